"""Risk: a value of a checkpoint that somebody edited, or that another program wrote, is taken, or fails without its place."""

from __future__ import annotations

import copy
import io
import json
import warnings
import zipfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from envs_for_tests import AnySpaces
from gymnasium import spaces
from training import learn

from fastes import CheckpointError, FastES

OF_EACH_JSON_TYPE: tuple[Any, ...] = (None, True, 7, 1.5, "x", [1], {"a": 1})
OF_THE_FORMAT = {"format", "format_version", "checksums"}  # test_hostile_checkpoints.py has these
CNN = {"cnn": [[2, 2, 1]], "features_extractor_kwargs": {"features_dim": 2}}
EVERYTHING: dict[str, Any] = {"archive_size": 1, "trials": 2, "episode_cap": "mean", "generation_timesteps": 8}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "mlp": ("EditedBox-v0", {"policy_kwargs": {"net_arch": [2], "action_mapping": "bins", "num_bins": 3}, **EVERYTHING}),
    "cnn": ("EditedImage-v0", {"policy": "CnnPolicy", "policy_kwargs": {**CNN, "batch_norm": "none"}}),
    "lstm": ("EditedBox-v0", {"policy": "MlpLstmPolicy", "policy_kwargs": {"lstm_hidden_size": 2}}),
    "dict": ("EditedDict-v0", {"policy": "CnnLstmPolicy", "policy_kwargs": {**CNN, "cell": "gru", "lstm_hidden_size": 2}}),
}
IMAGE = spaces.Box(0, 255, (2, 3, 2), np.uint8)
SPACES: dict[str, tuple[spaces.Space[Any], spaces.Space[Any]]] = {
    "EditedBox-v0": (spaces.Box(-1.0, 1.0, (3,)), spaces.Box(-1.0, 1.0, (2,))),
    "EditedImage-v0": (IMAGE, spaces.MultiBinary([2, 2])),
    "EditedDict-v0": (spaces.Dict({"image": IMAGE, "where": spaces.Box(-1.0, 1.0, (1,))}), spaces.MultiDiscrete([2, 3])),
}
Path = tuple[str | int, ...]


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    for name, (observations, actions) in SPACES.items():
        kwargs = {"observation_space": observations, "action_space": actions}
        gymnasium.register(name, entry_point=lambda kwargs=kwargs: AnySpaces(**kwargs))
    yield
    for name in SPACES:
        del gymnasium.registry[name]


class Saved(NamedTuple):
    """A file taken apart. data: its JSON member."""

    env: str
    members: dict[str, bytes]
    data: dict[str, Any]

    def edited(self, path: Path, value: Any) -> io.BytesIO:
        data = copy.deepcopy(self.data)
        inner: Any = data
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for name, content in {**self.members, "data": json.dumps(data).encode()}.items():
                archive.writestr(zipfile.ZipInfo(name), content)
        file.seek(0)
        return file


@pytest.fixture(params=["mlp", "dict", *(pytest.param(name, marks=pytest.mark.slow) for name in ("cnn", "lstm"))])
def saved(request: pytest.FixtureRequest) -> Saved:
    env, changes = MODELS[request.param]
    small = {"population_size": 2, "preset": "default", "max_episode_steps": 5, "noise_table_size": 1000, "seed": 1}
    file = io.BytesIO()
    with FastES(env, n_workers=0, **small, **changes) as model:
        learn(model, 2)
        model.save(file)
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    return Saved(env, members, json.loads(members["data"]))


def places(value: Any, at: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every place of a JSON value and what it holds."""
    if at:
        yield at, value
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if at or key not in OF_THE_FORMAT:
            yield from places(inner, (*at, key))


def named(path: Path, message: str) -> bool:
    """Whether a message names the place, or the part of the file that contradicts itself or its environment."""
    words = [key for key in path if isinstance(key, str)]
    return words[-1] in message or f"'{words[0]}" in message or (words[0] == "policy" and "does not fit the policy" in message)


def outcome(saved: Saved, path: Path, value: Any, **given: Any) -> str:
    """What is wrong with loading the edited file, acting and saving again; 'refused', or '' for no harm."""
    try:
        with FastES.load(saved.edited(path, value), n_workers=0, **given) as model:
            shape = model.policy_spec.obs_shape
            if not model.policy_spec.flattened:
                model.predict(np.zeros(shape, np.uint8))
            elif given:
                model.predict(SAMPLE)
            model.save(io.BytesIO())
    except CheckpointError as error:
        return "refused" if named(path, str(error)) else f"without its place: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def test_a_wrong_value_anywhere_is_named_or_does_no_harm(saved: Saved) -> None:
    """Loaded alone, and with env=, where the policy has to fit the environment."""
    refused, wrong = 0, []
    for path, held in places(saved.data):
        for value in OF_EACH_JSON_TYPE:
            if type(value) is type(held) and value == held:
                continue
            for given in ({}, {"env": saved.env}) if path[0] in ("env", "policy", "settings") else ({},):
                found = outcome(saved, path, value, **given)
                refused += found == "refused"
                if found not in ("refused", ""):
                    wrong.append((path, value, given, found))
    assert wrong == []
    assert refused > 500


SAMPLE = {"image": np.zeros((2, 3, 2), np.uint8), "where": np.zeros(1, np.float32)}
KWARGS = ("settings", "policy_kwargs")
DAMAGED = "'settings.policy_kwargs' is damaged: "
WRONG: list[tuple[str, Path, Any, str]] = [
    ("cnn", (*KWARGS, "cnn"), 1, rf"{DAMAGED}cnn = 1: expected"),
    ("cnn", ("settings", "policy"), "x", r"'settings.policy' is 'x'"),
    ("cnn", ("policy", "flattened"), True, r"'policy.flattened' is True"),
    ("mlp", ("policy", "flattened"), True, r"does not fit the policy: .* observations \(3,\) that are flattened"),
    ("mlp", ("policy", "head", "num_bins"), None, r"'policy.head.num_bins' is None"),
    (
        "mlp",
        (*KWARGS, "num_bins"),
        4,
        rf"{DAMAGED}action_mapping 'bins' with num_bins 4",
    ),
    (
        "mlp",
        (*KWARGS, "net_arch"),
        [5],
        rf"{DAMAGED}.*layer 0 would be dense 3 -> 5",
    ),
    (
        "lstm",
        (*KWARGS, "lstm_hidden_size"),
        "x",
        rf"{DAMAGED}lstm_hidden_size = 'x'",
    ),
    ("mlp", ("trainings", 1, "counters", "best_eval_return"), "x", r"'trainings.1.counters.best_eval_return' is 'x'"),
    ("mlp", ("trainings", 0, "archive", "snapshots", 0, "total"), None, r"'trainings.0.archive.snapshots.0.total' is None"),
    ("mlp", ("trainings", 0, "pending", 0, "calls"), -1, r"'trainings.0.pending.0.calls' is -1"),
    ("mlp", ("trainings", 0, "episode_cap"), 0, r"'trainings.0.episode_cap' is 0"),
    ("mlp", ("trainings", 0, "population"), [], r"'trainings.0.population' is \[\]"),
    ("mlp", ("trainings", 0, "seed"), 2**63, r"'trainings.0.seed' is 9223372036854775808"),
    ("mlp", ("selection", "dropped", "num_timesteps"), 0.5, r"'selection.dropped.num_timesteps' is 0.5"),
    ("mlp", ("selection", "trials", 1, "number"), 0, r"'selection.trials' is \[{.*'number': 0"),
    ("mlp", ("selection", "sizes"), [3, 1], r"'selection.sizes' is \[3, 1\]"),
    ("mlp", ("selection", "focus"), 2, r"'selection.focus' is 2"),
    ("mlp", ("settings", "trials"), 0, r"settings.* trials = 0"),
    ("mlp", ("versions", "numpy"), [], r"'versions.numpy' is \[\]"),
    ("mlp", ("env",), {}, r"'env' misses \['id', 'kwargs'\]"),
    ("mlp", ("env", "kwargs"), {"a": 1}, r"'env.kwargs' is {'a': 1}, which 'EditedBox-v0' does not take .* pass env_kwargs="),
]


@pytest.mark.parametrize(("saved", "path", "value", "said"), WRONG, indirect=["saved"])
def test_the_error_says_where_and_what(saved: Saved, path: Path, value: Any, said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        FastES.load(saved.edited(path, value), env=saved.env, n_workers=0)


def test_the_files_load_as_they_are(saved: Saved) -> None:
    """Otherwise they would be refused for something else; without a warning, too."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FastES.load(saved.edited(("seed",), saved.data["seed"]), env=saved.env, n_workers=0).close()
