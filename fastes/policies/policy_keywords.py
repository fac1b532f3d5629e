"""policy_kwargs: the keywords of each policy family, with defaults, checks and help, from which flags and pages follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from fastes.errors import listed, shown, suggest, warn_user
from fastes.policies.action_head import BOX_MAPPINGS, ActionHead, check_mapping, check_num_bins, make_action_head
from fastes.policies.layers import ACTIVATIONS, CELLS, MOST_VALUES
from fastes.setting_fields import SettingDescription, checked_fields, default_of, described, setting, with_default

Filters = tuple[tuple[int, int, int], ...]  # (filters, kernel, stride) of each convolution


class PublishedCnn(NamedTuple):
    """Published convolutions, and the size of the dense layer behind them."""

    filters: Filters
    features_dim: int


# a3c: Mnih et al. 2013 and 2016, and Salimans et al. 2017 for ES. nature: Mnih et al. 2015, and Stable-Baselines3.
PUBLISHED_CNNS = {
    "a3c": PublishedCnn(((16, 8, 4), (32, 4, 2)), 256),
    "nature": PublishedCnn(((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512),
}
BATCH_NORMS = ("virtual", "none")
_OWN_FEATURES = 256  # behind convolutions that are listed
_CNNS = f"one of {tuple(PUBLISHED_CNNS)}, or a list of (filters, kernel, stride) such as [(16, 8, 4), (32, 4, 2)]"
_MOST_CELLS, _MOST_UNITS = 1_000, 10**6


# --- checks -----------------------------------------------------------------------------------------------------------


def _layer_sizes(name: str, given: Any) -> tuple[int, ...]:
    """Check a list of layer sizes, or SB3's dict, whose 'pi' is the actor's list (ES has no use for 'vf' and 'qf')."""
    sizes = given
    if isinstance(given, Mapping):
        if "pi" not in given or not set(given) <= {"pi", "vf", "qf"}:
            raise ValueError(
                f"{name} = {dict(given)!r}: expected a list of layer sizes, or a dict with them under 'pi' ('vf' and 'qf' are "
                "left out: there is no critic)"
            )
        sizes = given["pi"]
    listed = isinstance(sizes, Sequence) and not isinstance(sizes, (str, bytes))
    if listed and any(isinstance(n, Mapping) for n in sizes):
        raise ValueError(
            f"{name} = {given!r} shares layers with a critic, which SB3 has removed, and there is no critic here: expected "
            "a list of layer sizes, those of the dict's 'pi' behind the shared ones"
        )
    if not listed or not all(_is_size(n) for n in sizes):
        raise ValueError(f"{name} = {given!r}: expected a list of positive layer sizes, such as [64, 64]")
    return tuple(int(n) for n in sizes)


def _activation(name: str, given: object) -> str:
    activation = given if isinstance(given, str) else getattr(given, "__name__", repr(given))
    if activation.lower() not in ACTIVATIONS:
        raise ValueError(
            f"unknown {name} {given!r}: expected one of {ACTIVATIONS}, or a class of that name such as "
            f"torch.nn.Tanh; for any other network use fastes.TorchPolicy(module){suggest(activation.lower(), ACTIVATIONS)}"
        )
    return activation.lower()


def _convolutions(name: str, given: Any) -> str | Filters:
    if isinstance(given, str):
        if given not in PUBLISHED_CNNS:
            raise ValueError(f"unknown {name} {given!r}: expected {_CNNS}{suggest(given, PUBLISHED_CNNS)}")
        return given
    rows = list(given) if isinstance(given, Sequence) else []
    whole = all(isinstance(row, Sequence) and len(row) == 3 and all(map(_is_size, row)) for row in rows)
    if not rows or not whole:
        raise ValueError(f"{name} = {given!r:.200}: expected {_CNNS}, all of ints of at least 1")
    return tuple((int(filters), int(kernel), int(stride)) for filters, kernel, stride in rows)


def _features(name: str, given: Any) -> dict[str, int]:
    """Check the size of the features, under the name that SB3's NatureCNN or its CombinedExtractor has for it."""
    extractor = given or {}
    known = isinstance(extractor, Mapping) and set(extractor) <= {"features_dim", "cnn_output_dim"}
    if not known or len(extractor) > 1:
        raise ValueError(
            f"{name} = {extractor!r}: expected {{'features_dim': n}}, the size of the dense layer behind the convolutions"
        )
    for size in extractor.values():
        if not _is_size(size) or size > MOST_VALUES:
            raise ValueError(
                f"features_dim = {size!r}: expected the size of a layer, an int of at least 1 and at most {MOST_VALUES}"
            )
        return {"features_dim": int(size)}
    return {}


def _batch_norm(name: str, given: object) -> str:
    if given is None:
        return BATCH_NORMS[1]
    if not isinstance(given, str) or given not in BATCH_NORMS:
        raise ValueError(f"{name} = {given!r}: expected one of {BATCH_NORMS}, or None for none")
    return given


def _cell(name: str, given: object) -> str:
    if not isinstance(given, str) or given.lower() not in CELLS:
        hint = suggest(given, CELLS) if isinstance(given, str) else ""
        raise ValueError(f"unknown {name} {given!r:.100}: expected one of {tuple(CELLS)}{hint}")
    return given.lower()


def _is_size(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and int(value) >= 1


# --- families ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ActionKeywords:
    """The keywords of the action head, the only ones of a TorchPolicy."""

    action_mapping: str = setting("clip", "of Box actions", choices=BOX_MAPPINGS, check=check_mapping)
    num_bins: int = setting(10, "values of each component with bins", check=check_num_bins)

    def __post_init__(self) -> None:
        checked_fields(self)


@dataclass(frozen=True, kw_only=True)
class LinearKeywords(ActionKeywords):
    """One matrix."""

    use_bias: bool = setting(False, "biases in the layers")


@dataclass(frozen=True, kw_only=True)
class MlpKeywords(LinearKeywords):
    """Dense layers."""

    net_arch: tuple[int, ...] = setting(
        (64, 64),
        "sizes of hidden layers",
        check=_layer_sizes,
        gain="Reacher-v5",
        first=True,
    )
    activation_fn: str = setting("tanh", "between layers", choices=ACTIVATIONS, check=_activation, gain="Reacher-v5")
    use_bias: bool = with_default(LinearKeywords, "use_bias", True)


@dataclass(frozen=True, kw_only=True)
class CnnKeywords(MlpKeywords):
    """Convolutions of an image, and a dense layer of their outputs and of all other values."""

    net_arch: tuple[int, ...] = with_default(MlpKeywords, "net_arch", ())
    activation_fn: str = with_default(MlpKeywords, "activation_fn", "relu")
    cnn: str | Filters = setting(
        "a3c", f"convolutions: {' or '.join(PUBLISHED_CNNS)}, or [[filters, kernel, stride], ...]", check=_convolutions
    )
    features_extractor_kwargs: dict[str, int] = setting(
        {},
        "features_dim: size of the dense layer behind the convolutions; "
        + ", ".join(f"{network.features_dim} of {name}" for name, network in PUBLISHED_CNNS.items()),
        check=_features,
        flag=("features-dim", lambda size: {"features_dim": size}),
    )
    batch_norm: str = setting(
        "virtual",
        "between layers and their activations",
        choices=BATCH_NORMS,
        check=_batch_norm,
        gain="Catch of 20 x 20",
    )
    normalize_images: bool = setting(True, "whether bytes are divided by 255")

    @property
    def network(self) -> PublishedCnn:
        """The convolutions, and the size of the dense layer behind them."""
        network = PUBLISHED_CNNS[self.cnn] if isinstance(self.cnn, str) else PublishedCnn(self.cnn, _OWN_FEATURES)
        return PublishedCnn(network.filters, *self.features_extractor_kwargs.values() or (network.features_dim,))

    @property
    def image_activation(self) -> str:
        """The activation of the layers from an image to its features."""
        return self.activation_fn


@dataclass(frozen=True, kw_only=True)
class MultiInputKeywords(CnnKeywords):
    """Convolutions and features for each image, and dense layers of these and of all other values."""

    net_arch: tuple[int, ...] = with_default(CnnKeywords, "net_arch", (64, 64))
    activation_fn: str = with_default(CnnKeywords, "activation_fn", "tanh")

    @property
    def image_activation(self) -> str:
        """The activation of the layers from an image to its features: ReLU, as in SB3."""
        return "relu"


@dataclass(frozen=True, kw_only=True)
class CellKeywords:
    """The recurrent cells of a policy that remembers."""

    cell: str = setting("lstm", "kind of the cells", choices=tuple(CELLS), check=_cell)
    # about the parameters of MlpPolicy's 64-64; sb3-contrib's 256 are 60 times as many
    lstm_hidden_size: int = setting(32, "units of a cell", low=1, high=_MOST_UNITS)
    n_lstm_layers: int = setting(1, "cells, one behind the other", low=1, high=_MOST_CELLS)


@dataclass(frozen=True, kw_only=True)
class MlpLstmKeywords(CellKeywords, MlpKeywords):
    """Cells, and dense layers behind them."""

    net_arch: tuple[int, ...] = with_default(MlpKeywords, "net_arch", ())


@dataclass(frozen=True, kw_only=True)
class CnnLstmKeywords(CellKeywords, CnnKeywords):
    """Convolutions, and cells behind them."""


@dataclass(frozen=True, kw_only=True)
class MultiInputLstmKeywords(CellKeywords, MultiInputKeywords):
    """Convolutions and features for each image, and cells of these and of all other values."""

    net_arch: tuple[int, ...] = with_default(MultiInputKeywords, "net_arch", ())


FAMILIES: dict[str, type[LinearKeywords]] = {
    "MlpPolicy": MlpKeywords,
    "LinearPolicy": LinearKeywords,
    "CnnPolicy": CnnKeywords,
    "MultiInputPolicy": MultiInputKeywords,
    "MlpLstmPolicy": MlpLstmKeywords,
    "CnnLstmPolicy": CnnLstmKeywords,
    "MultiInputLstmPolicy": MultiInputLstmKeywords,
}
POLICIES = tuple(FAMILIES)
_WITHOUT_IMAGES = {"MultiInputPolicy": "MlpPolicy", "MultiInputLstmPolicy": "MlpLstmPolicy"}  # the same where no image is seen
IMAGE_POLICIES = tuple(name for name, family in FAMILIES.items() if issubclass(family, CnnKeywords))
RECURRENT_POLICIES = tuple(name for name, family in FAMILIES.items() if issubclass(family, CellKeywords))


def names_of(family: Any) -> tuple[str, ...]:
    """Return the keys of a family of keywords."""
    return tuple(item.name for item in fields(family))


HIDDEN_KEYS = tuple(name for name in names_of(MlpKeywords) if name not in names_of(LinearKeywords))
IMAGE_KEYS = tuple(name for name in names_of(CnnKeywords) if name not in names_of(MlpKeywords))
CELL_KEYS = names_of(CellKeywords)


class Key(NamedTuple):
    """A key of policy_kwargs.

    Attributes:
        item: Its field, of the first policy that has it.
        defaults: The default of each policy that has it.
    """

    item: Field[Any]
    defaults: dict[str, Any]

    @property
    def name(self) -> str:
        """The key itself."""
        return self.item.name

    @property
    def description(self) -> SettingDescription:
        """Its description."""
        return described(self.item)

    @property
    def flag(self) -> str:
        """Its flag of `fastes train`."""
        return "--" + (self.description.flag[0] if self.description.flag else self.name.replace("_", "-"))

    @property
    def in_python(self) -> str:
        """How it is passed, with its first default."""
        return f"policy_kwargs={{{self.name!r}: {self.policies_by_default()[0][0]!r}}}"

    def policies_by_default(self) -> list[tuple[Any, list[str]]]:
        """Return each default as JSON knows it, and the policies that have it, in the order of POLICIES."""
        found: list[tuple[Any, list[str]]] = []
        for policy, default in self.defaults.items():
            plain = list(default) if isinstance(default, tuple) else default
            policies = next((names for other, names in found if other == plain), None)
            if policies is None:
                found.append((plain, [policy]))
            else:
                policies.append(policy)
        return found


def _keys() -> dict[str, Key]:
    found: dict[str, Key] = {}
    for policy, family in FAMILIES.items():
        for item in fields(family):
            found.setdefault(item.name, Key(item, {})).defaults[policy] = default_of(item)
    return dict(sorted(found.items(), key=lambda pair: not pair[1].description.first))


KEYS = _keys()  # those that matter first come first


# --- what users pass --------------------------------------------------------------------------------------------------

# fmt: off
_OF_NETWORKS = (
    "ortho_init", "use_sde", "log_std_init", "full_std", "use_expln", "squash_output", "features_extractor_class",
    "share_features_extractor", "optimizer_class", "optimizer_kwargs", "n_critics", "clip_mean", "sde_net_arch",
)
# fmt: on
_NO_CRITIC = "there is no critic in ES: leave it out"
_ANSWERS = {  # keys of the policies of SB3 and sb3-contrib, and keys of another family here
    **dict.fromkeys(_OF_NETWORKS, "it has no counterpart here: leave it out"),
    "squash_output": "it is action_mapping='squash' here",
    "optimizer_class": "optimizer is a setting here, outside of policy_kwargs",
    "features_extractor_class": "put the extractor and the layers into one module, as in fastes.TorchPolicy(module)",
    "with_bias": "it is use_bias here",
    **dict.fromkeys(HIDDEN_KEYS, "LinearPolicy has no hidden layers: use 'MlpPolicy'"),
    **dict.fromkeys(
        (*IMAGE_KEYS, "features_dim"), "it is of policies that see images: use 'CnnPolicy', or 'MultiInputPolicy' for a Dict"
    ),
    **dict.fromkeys(CELL_KEYS, f"it is of policies that remember: use one of {RECURRENT_POLICIES}"),
    "shared_lstm": _NO_CRITIC,
    "enable_critic_lstm": _NO_CRITIC,
    "lstm_kwargs": f"leave it out: {listed(CELL_KEYS)} are all keywords of a cell",
    "recurrent_layer_type": "it is cell='lstm' or cell='gru' here",
}
_ANSWERS_OF_IMAGES = {
    **_ANSWERS,
    "features_extractor_class": "cnn says which convolutions there are: 'a3c', 'nature', or a list of (filters, kernel, "
    "stride); for any other network use fastes.TorchPolicy(module)",
}


def keywords_for(policy: str, policy_kwargs: Mapping[str, Any] | None) -> LinearKeywords:
    """Return the checked keywords of a named policy.

    Args:
        policy: One of POLICIES.
        policy_kwargs: The user's; the defaults of the family hold for other keys. None for none.

    Raises:
        ValueError: A key that the family does not have, with what to write instead, or a value that it cannot have.
        TypeError: A value of another type.
    """
    family, given = FAMILIES[policy], dict(policy_kwargs or {})
    expected, sees_images = names_of(family), policy in IMAGE_POLICIES
    answers = _ANSWERS_OF_IMAGES if sees_images else _ANSWERS
    for key in given:
        if key not in expected:
            known = f"; {answers[key]}" if key in answers else suggest(key, expected)
            if key == "features_dim" and sees_images:
                known = f"; it is features_extractor_kwargs={{'features_dim': {given[key]!r:.100}}} here"
            raise ValueError(f"unknown policy_kwargs key {key!r}: expected {expected}{known}")
    # as in SB3, None for a list of layers is its default
    lists = [item.name for item in fields(family) if isinstance(item.default, tuple)]
    return family(**{key: value for key, value in given.items() if value is not None or key not in lists})


def action_keywords(policy_kwargs: Mapping[str, Any]) -> ActionKeywords:
    """Return the checked keywords that say how outputs become actions; other keys are left out."""
    return ActionKeywords(**{key: policy_kwargs[key] for key in names_of(ActionKeywords) if key in policy_kwargs})


def head_from(space: spaces.Space[object], policy_kwargs: Mapping[str, Any]) -> ActionHead:
    """Return the head for an action space and what policy_kwargs say of it."""
    chosen = action_keywords(policy_kwargs)
    return make_action_head(space, chosen.action_mapping, chosen.num_bins)


def plain_policy_kwargs(value: object) -> dict[str, Any]:
    """Return policy_kwargs as presets, checkpoints and config files can hold them, {} for None. TypeError for no mapping."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f"policy_kwargs = {shown(value)}: expected a dict such as {{'net_arch': [64, 64]}}")
    plain = {key: _plain(item) for key, item in value.items()}
    if isinstance(layers := plain.get("net_arch"), list) and len(layers) == 1 and isinstance(layers[0], dict):
        warn_user(
            f"net_arch = {layers!r} is a dict in a list, which SB3 has deprecated since it shares no layers: pass the dict "
            f"itself, net_arch = {layers[0]!r}",
            UserWarning,
        )
        plain["net_arch"] = layers[0]
    return plain


def merged_policy_kwargs(
    kept: Mapping[str, Any], kept_policy: object, given: Mapping[str, Any], policy: object
) -> dict[str, Any]:
    """Return policy_kwargs given for a policy, on top of those that a preset or file has for `kept_policy`.

    If the policies differ, `kept` gives only its keys for convolutions, and only if both policies see images; a policy of
    several inputs also takes the keys of the policy that it equals without images. A given cnn drops the size of the features
    of the other one.
    """
    if kept_policy not in (policy, _WITHOUT_IMAGES.get(policy) if isinstance(policy, str) else None):
        both_see = policy in IMAGE_POLICIES and kept_policy in IMAGE_POLICIES
        kept = {key: value for key, value in kept.items() if both_see and key in IMAGE_KEYS}
    if "cnn" in given:
        kept = {key: value for key, value in kept.items() if key != "features_extractor_kwargs"}
    return {**kept, **given}


def _plain(value: Any) -> Any:
    """Return a value as TOML and JSON have it, with classes and functions by name."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return getattr(value, "__name__", value)
