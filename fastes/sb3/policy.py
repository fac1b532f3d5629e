"""`model.policy`: a model's parameters and actions by the names that SB3's policies have, also without a model."""

from __future__ import annotations

import os
import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastes.checkpoints.writer import write_anywhere
from fastes.envs.closing import close_env
from fastes.envs.source import EnvArgument
from fastes.models.acting import act
from fastes.models.checkpointing import Parts, checkpoint_of, read_parts, selection_from
from fastes.models.parameters import named_parameters, theta_of_vector, theta_with, vector_of
from fastes.policies.custom_policy import CustomPolicy
from fastes.policies.layers import State
from fastes.policies.policy_spec import PolicySpec
from fastes.policies.torch_policy import TorchSpec
from fastes.rollout.predictor import Predictor
from fastes.system.installation import install_command
from fastes.system.one_thread import OneThread
from fastes.weights.exported import Exported, exported, onnx_bytes

# fmt: off
_OF_TORCH = (
    "optimizer", "forward", "evaluate_actions", "get_distribution", "predict_values", "mlp_extractor", "action_net",
    "value_net", "features_extractor", "extract_features", "obs_to_tensor", "actor", "critic", "q_net", "log_std",
    "reset_noise", "modules", "children", "zero_grad",
)
# fmt: on


def device() -> Any:
    """Where policies run: torch.device('cpu') where torch is in use, which scripts ask for its type; else 'cpu'."""
    torch = sys.modules.get("torch")
    return "cpu" if torch is None else torch.device("cpu")


def check_device(given: Any) -> None:
    if str(given) not in ("auto", "cpu"):
        raise ValueError(f"device = {given!r}: FastES runs on the CPU, expected 'auto' or 'cpu'")


class Policy:
    """A model's policy. It has no parameters of its own: what it gives and takes is the model's.

    A TorchPolicy's parameters are torch tensors, all of the module's with its buffers, under the module's names; others are
    NumPy arrays, in torch's orientation under torch's names (see FastES.get_parameters). `training` is always False: candidates
    play with the module in eval mode.
    """

    training = False

    def __init__(self, model: Any) -> None:
        self._model = model

    observation_space = property(lambda self: self._model.observation_space)
    action_space = property(lambda self: self._model.action_space)
    device = property(lambda _: device())
    squash_output = property(lambda self: getattr(self._model.policy_spec.head, "kind", None) == "squash")

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Any, State | None]:
        """See FastES.predict."""
        return self._model.predict(observation, state, episode_start, deterministic)  # type: ignore[no-any-return]

    # --- parameters -------------------------------------------------------------------------------------------------

    def state_dict(self) -> OrderedDict[str, Any]:
        """Parameter name -> copy, as FastES.get_parameters has them."""
        spec, theta = self._model.policy_spec, self._model.theta
        if isinstance(spec, TorchSpec):
            return OrderedDict(spec.module_with(theta).state_dict())
        return OrderedDict(named_parameters(spec, theta))

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Set the model's parameters, from arrays or tensors; strict=False takes a part.

        ValueError that names what does not fit.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"load_state_dict() got {state_dict!r:.100}, a {type(state_dict).__name__}: expected a dict")
        spec, theta = self._model.policy_spec, self._model.theta
        if isinstance(spec, TorchSpec):
            self._set(spec.theta_of(theta, state_dict, strict))
        else:
            self._set(theta_with(spec, theta, state_dict, strict, ("load_state_dict()", "strict")))

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        """Name and parameter: read-only copies; tensors for a TorchPolicy."""
        spec, theta = self._model.policy_spec, self._model.theta
        if isinstance(spec, TorchSpec):
            return iter(spec.module_with(theta).named_parameters())
        named = named_parameters(spec, theta)
        for value in named.values():
            value.flags.writeable = False
        return iter(named.items())

    def parameters(self) -> Iterator[Any]:
        """See named_parameters."""
        return (parameter for _, parameter in self.named_parameters())

    def parameters_to_vector(self) -> npt.NDArray[np.float32]:
        """All parameters that are trained one behind the other, float32: the order of `parameters`, which is not theta's."""
        return vector_of(self._model.policy_spec, self._model.theta)

    def load_from_vector(self, vector: npt.ArrayLike) -> None:
        """Set all parameters that are trained from what `parameters_to_vector` gives. ValueError for another length."""
        self._set(theta_of_vector(self._model.policy_spec, self._model.theta, vector))

    def _set(self, theta: npt.ArrayLike) -> None:
        with self._model.alone("loading parameters"):
            self._model.set_theta(theta)

    # --- for other libraries ----------------------------------------------------------------------------------------

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Everything between an observation and its deterministic action as NumPy arrays, as numpy.savez takes them.

        `layers.0.weight` and so on as in state_dict; activation_fn; outputs ('unit', 'tanh', 'bins' or 'logits'); where
        observations are normalised mean, std and clip; where a part is read columns; of a Box low and high; of choices nvec and
        start. `fastes.import_policy` takes it, and a file of it. ValueError for policies that are more than dense layers.
        """
        return self._exported().arrays()

    def to_torch(self) -> Any:
        """A torch module: observations (n, *observation shape) -> actions, as predict(deterministic=True) gives them.

        Normalisation, bounds and choices are in it. Its parameters have the names of state_dict. ValueError for policies that
        are more than dense layers.
        """
        of = self._exported()
        from fastes.weights.torch_module import ActionModule

        return ActionModule(of)

    def to_onnx(self, path: str | os.PathLike[str] | IO[bytes]) -> None:
        """Write an ONNX model: `observation`, float32 (n, *observation shape), -> `action`, as to_torch gives them.

        Needs the package onnx (extra onnx), ImportError without. ValueError for policies that are more than dense layers.
        """
        of = self._exported()
        try:
            import onnx
        except ImportError as error:
            raise ImportError(f"to_onnx() needs the package onnx: {install_command('onnx')}") from error
        written = onnx_bytes(of, onnx)
        if isinstance(path, (str, os.PathLike)):
            with open(path, "wb") as file:
                file.write(written)
        else:
            path.write(written)

    def _exported(self) -> Exported:
        model = self._model
        return exported(model.policy_spec, model.settings, model.theta, model.normalizer)

    # --- keeping ----------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str] | IO[bytes]) -> None:
        """Write the model's checkpoint, which holds the policy, the statistics of its observations, and the training."""
        self._model.save(path)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str] | IO[bytes],
        device: str = "auto",
        *,
        env: EnvArgument | None = None,
        policy: CustomPolicy | None = None,
    ) -> Policy:
        """The policy of a checkpoint, of `policy.save` or of `model.save`, to act without a training.

        env: needed for observations that are flattened (Dict, Tuple, Discrete, ...) where the file cannot rebuild its own.
        policy: the TorchPolicy or CallablePolicy that was trained. Runs no code from the file.
        """
        check_device(device)
        return cls(_Acting(read_parts(path, env, 0, None, policy, {})))

    # --- modes that torch modules have --------------------------------------------------------------------------------

    def set_training_mode(self, mode: bool) -> None:
        """Nothing: see Policy."""

    def train(self, mode: bool = True) -> Policy:  # noqa: ARG002
        """Itself, as it was: see Policy."""
        return self

    def eval(self) -> Policy:
        """Itself, as it was: see Policy."""
        return self

    def to(self, device: Any) -> Policy:
        """Itself; ValueError for anything but the CPU."""
        check_device(device)
        return self

    def __repr__(self) -> str:
        spec = self._model.policy_spec
        if isinstance(spec, TorchSpec):
            return f"Policy({spec.own_copy()!r})"
        layers = f"{' - '.join(map(str, spec.layer_sizes))}, " if isinstance(spec, PolicySpec) else ""
        return f"Policy({self._model.settings.policy}: {layers}{spec.num_params:,} parameters)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Policy) and other._model is self._model

    def __hash__(self) -> int:
        return id(self._model)

    if not TYPE_CHECKING:  # a type checker is to go on knowing the names

        def __getattr__(self, name: str) -> Any:
            if name not in _OF_TORCH:
                return object.__getattribute__(self, name)
            raise AttributeError(
                f"FastES's policy has no {name!r}: it is no torch module and has no gradients. It has predict, state_dict and "
                "parameters; of a TorchPolicy, model.policy_spec.module_with(model.theta) is the module"
            )


class _Acting:
    """A checkpoint's parameters and statistics without workers, and without an environment unless its spaces are asked for."""

    def __init__(self, parts: Parts) -> None:
        self.source, self.settings, self.policy_spec = parts.source, parts.settings, parts.spec
        self._selection = selection_from(parts.checkpoint, parts.settings, parts.spec, parts.source.episode_limit)
        self._predictor = Predictor(parts.spec, parts.settings.normalize_obs, self._selection.seed)
        self._predictor.reference = self._selection.training.reference
        self._spaces: tuple[Any, Any] | None = None
        self._one_thread = OneThread()

    theta = property(lambda self: self._selection.training.strategy.theta)
    normalizer = property(lambda self: self._selection.training.normalizer)

    def alone(self, what: str) -> AbstractContextManager[None]:
        return self._one_thread.using(what)

    def set_theta(self, theta: npt.ArrayLike) -> None:
        self._selection = self._selection.decided().with_training(self._selection.training.with_parameters(theta))

    def save(self, path: str | os.PathLike[str] | IO[bytes]) -> None:
        write_anywhere(path, checkpoint_of(self._selection, self.source))

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Any, State | None]:
        space = self.observation_space if self.policy_spec.flattened else None
        given = observation, state, episode_start, deterministic
        return act(self._selection.training, self.source, self._predictor, space, *given)

    def _both_spaces(self) -> tuple[Any, Any]:
        if self._spaces is None:
            env: Any = self.source.vector_env or self.source()
            self._spaces = env.observation_space, env.action_space
            if self.source.vector_env is None:
                close_env(env, self.source.name)
        return self._spaces

    observation_space = property(lambda self: self._both_spaces()[0])
    action_space = property(lambda self: self._both_spaces()[1])
