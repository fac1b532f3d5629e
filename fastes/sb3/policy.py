"""`model.policy`: a model's parameters and actions under the names of SB3's policies."""

from __future__ import annotations

import os
import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastes.agent import Agent
from fastes.envs.source import EnvArgument
from fastes.models.checkpointing import read_parts
from fastes.models.parameters import named_parameters, theta_of_vector, theta_with, vector_of
from fastes.policies.custom_policy import CustomPolicy
from fastes.policies.layers import State
from fastes.policies.policy_spec import PolicySpec
from fastes.policies.torch_policy import TorchSpec
from fastes.pools.pool import PoolChoice
from fastes.system.installation import install_command
from fastes.weights.exported import Exported, exported, onnx_bytes

# fmt: off
_OF_TORCH = (
    "optimizer", "forward", "evaluate_actions", "get_distribution", "predict_values", "mlp_extractor", "action_net",
    "value_net", "features_extractor", "extract_features", "obs_to_tensor", "actor", "critic", "q_net", "log_std",
    "reset_noise", "modules", "children", "zero_grad",
)
# fmt: on


def device() -> Any:
    """Return torch.device('cpu') if torch is imported, because scripts ask for its type, else 'cpu'."""
    torch = sys.modules.get("torch")
    return "cpu" if torch is None else torch.device("cpu")


def check_device(given: Any) -> None:
    """Raise ValueError for any device but the CPU."""
    if str(given) not in ("auto", "cpu"):
        raise ValueError(f"device = {given!r}: FastES runs on the CPU, expected 'auto' or 'cpu'")


class Policy:
    """A model's policy. It reads and sets the parameters of the model.

    A TorchPolicy's parameters are torch tensors under the module's names, including its buffers. Those of other policies are
    NumPy arrays in torch's orientation under torch's names (see FastES.get_parameters). `training` is always False: candidates
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
        """Return {name: copy of a parameter}, as FastES.get_parameters does."""
        spec, theta = self._model.policy_spec, self._model.theta
        if isinstance(spec, TorchSpec):
            return OrderedDict(spec.module_with(theta).state_dict())
        return OrderedDict(named_parameters(spec, theta))

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Set the model's parameters from arrays or tensors.

        Args:
            state_dict: As `state_dict` returns it.
            strict: False allows a part of the parameters.

        Raises:
            ValueError: If names or shapes do not fit.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"load_state_dict() got {state_dict!r:.100}, a {type(state_dict).__name__}: expected a dict")
        spec, theta = self._model.policy_spec, self._model.theta
        if isinstance(spec, TorchSpec):
            self._set(spec.theta_of(theta, state_dict, strict))
        else:
            self._set(theta_with(spec, theta, state_dict, strict, ("load_state_dict()", "strict")))

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        """Iterate over names and read-only copies of the parameters (tensors for a TorchPolicy)."""
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
        """Return all trained parameters as one vector, float32, in the order of `parameters`, which is not theta's."""
        return vector_of(self._model.policy_spec, self._model.theta)

    def load_from_vector(self, vector: npt.ArrayLike) -> None:
        """Set all trained parameters from a vector as `parameters_to_vector` returns it; ValueError for another length."""
        self._set(theta_of_vector(self._model.policy_spec, self._model.theta, vector))

    def _set(self, theta: npt.ArrayLike) -> None:
        with self._model.alone("loading parameters"):
            self._model.set_theta(theta)

    # --- for other libraries ----------------------------------------------------------------------------------------

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return everything between an observation and its deterministic action as NumPy arrays, for numpy.savez.

        The names are `layers.0.weight` and so on as in state_dict; activation_fn; outputs ('unit', 'tanh', 'bins' or 'logits');
        mean, std and clip if observations are normalised; columns if a part of them is read; low and high of a Box; nvec and
        start of choices. `fastes.import_policy` takes the dict, or a file of it.

        Raises:
            ValueError: If the policy has other than dense layers.
        """
        return self._exported().arrays()

    def to_torch(self) -> Any:
        """Return a torch module from observations (n, *observation shape) to the actions of predict(deterministic=True).

        It includes normalisation, bounds and choices. Its parameters have the names of state_dict.

        Raises:
            ValueError: If the policy has other than dense layers.
        """
        of = self._exported()
        from fastes.weights.torch_module import ActionModule

        return ActionModule(of)

    def to_onnx(self, path: str | os.PathLike[str] | IO[bytes]) -> None:
        """Write an ONNX model with input `observation`, float32 (n, *observation shape), and output `action`, as to_torch.

        Raises:
            ImportError: Without the package onnx (extra onnx).
            ValueError: If the policy has other than dense layers.
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
        """Write the model's checkpoint, which holds the policy, the statistics of observations, and the training."""
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
        """Read the policy of a checkpoint, to act. No code from the file is run, and no worker starts.

        Args:
            path: A checkpoint of `policy.save` or `model.save`.
            device: 'auto' or 'cpu'.
            env: Needed for observations that are flattened (Dict, Tuple, Discrete, ...) if the file cannot rebuild its own.
            policy: The TorchPolicy or CallablePolicy that was trained.
        """
        check_device(device)
        return cls(Agent.from_parts(read_parts(path, env, 0, None, policy, {}), PoolChoice(n_workers=0)))

    # --- modes that torch modules have --------------------------------------------------------------------------------

    def set_training_mode(self, mode: bool) -> None:
        """Do nothing; see Policy."""

    def train(self, mode: bool = True) -> Policy:  # noqa: ARG002
        """Return self; see Policy."""
        return self

    def eval(self) -> Policy:
        """Return self; see Policy."""
        return self

    def to(self, device: Any) -> Policy:
        """Return self; ValueError for any device but the CPU."""
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

    if not TYPE_CHECKING:  # otherwise a type checker would accept any name

        def __getattr__(self, name: str) -> Any:
            if name not in _OF_TORCH:
                return object.__getattribute__(self, name)
            raise AttributeError(
                f"FastES's policy has no {name!r}: it is not a torch module and has no gradients. It has predict, state_dict "
                "and parameters; of a TorchPolicy, model.policy_spec.module_with(model.theta) is the module"
            )
