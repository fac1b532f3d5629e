"""Policies that are torch modules: their parameters lie in one buffer, so a candidate costs no copy of any of them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from fastes.errors import blame_policy, suggest
from fastes.number_array import Float32
from fastes.policies.action_head import ActionHead
from fastes.policies.custom_policy import CustomActor, CustomPolicy, CustomSpec, hook_of, pickled_copy, warn_if_not_reset
from fastes.policies.policy_keywords import ActionKeywords, head_from, names_of

if TYPE_CHECKING:
    import torch

_UNUSED = "num_batches_tracked"  # a buffer of BatchNorm that no output depends on


class TorchPolicy(CustomPolicy):
    """A policy that is a torch module, as in FastES("CartPole-v1", TorchPolicy(torch.nn.Linear(4, 2))).

    Training begins at the module's own parameters. Those with requires_grad=False stay as they are, and so do buffers, such
    as the statistics of BatchNorm. The module is copied when the policy is made and runs in eval mode on one thread of the
    CPU; training never changes the original: `model.policy_spec.module_with(model.theta)` is a trained copy of it.

    A module that draws random numbers draws from torch's global state, which starts from each episode's env seed: the same on
    any number of workers. In a vector environment episodes overlap and share that state, so results depend on the number of
    environments.

    A module that remembers earlier observations (a recurrent cell, stacked frames) needs a method `begin_episode()` or
    `reset()` without arguments that clears its memory and leaves the parameters as they are. It is called at the start of every
    episode, and by `predict` if episode_start says so. If the module has both, begin_episode is called; if it has neither, the
    methods of its submodules are. A module that seems to remember without such a method causes a warning.

    Args:
        module: Takes observations, float32 (1, *observation shape), or (1, n) of n values in obs_columns. They are normalised
            unless normalize_obs is off; spaces other than Box are flattened. Returns the action head's outputs, float32
            (1, num_outputs) or (num_outputs,): a number for each component of a Box action, a logit for each choice (Discrete,
            MultiDiscrete) or switch (MultiBinary). policy_kwargs may have action_mapping and num_bins.

    Raises:
        TypeError, ValueError: A module that cannot be copied, has nothing to train, or has trainable parameters that are not
            float32 on the CPU.
    """

    kind = "TorchPolicy"

    def __init__(self, module: torch.nn.Module) -> None:
        import torch

        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"module = {module!r} is a {type(module).__name__}: expected a torch.nn.Module")
        trained = dict(_trained(module))
        for name, parameter in trained.items():
            _check_parameter(torch, name, parameter)
        if not trained:
            raise ValueError(
                f"the module {type(module).__name__} has no parameters to train: expected at least one with requires_grad=True"
            )
        self.shapes = {name: tuple(parameter.shape) for name, parameter in trained.items()}
        self.theta0 = np.concatenate([parameter.detach().reshape(-1).numpy() for parameter in trained.values()])
        if not np.isfinite(self.theta0).all():
            raise ValueError(
                f"the parameters of {type(module).__name__} are not all finite: training could not begin with them"
            )
        self.pickled = pickled_copy(f"the module {type(module).__name__}", module)

    def parameter_shapes(self) -> Mapping[str, tuple[int, ...]]:
        return self.shapes

    def head_for(self, action_space: spaces.Space[Any], policy_kwargs: dict[str, Any]) -> ActionHead:
        names = names_of(ActionKeywords)
        for key in policy_kwargs:
            if key not in names:
                raise ValueError(
                    f"policy_kwargs key {key!r} means nothing to a TorchPolicy: expected {names}{suggest(key, names)}"
                )
        return head_from(action_space, policy_kwargs)

    def make_spec(
        self, head: ActionHead | None, obs_shape: tuple[int, ...], flattened: bool, columns: tuple[int, ...] = ()
    ) -> TorchSpec:
        spec = TorchSpec(self.kind, head, obs_shape, flattened, self.shapes, self.theta0, self.pickled, columns)
        actor = spec.make_actor()
        actor.check_outputs()
        actor.check_reset()
        return replace(spec, untrained=actor.untrained())


@dataclass(frozen=True, eq=False)
class TorchSpec(CustomSpec):
    """A TorchPolicy for an environment's spaces."""

    def make_actor(self) -> TorchActor:
        return TorchActor(self)

    def module_with(self, theta: Float32) -> torch.nn.Module:
        """Return a new copy of the module with parameters theta (num_params,), such as `model.theta`.

        It is in train mode if the original was, and expects normalised observations.
        """
        import torch

        if np.shape(theta) != (self.num_params,):
            raise ValueError(f"theta has shape {np.shape(theta)}: expected {self.num_params} parameters")
        module: torch.nn.Module = self.own_copy()
        values = self.split(np.array(theta, dtype=np.float32))
        with torch.no_grad():
            for name, parameter in _trained(module):
                parameter.copy_(torch.from_numpy(values[name]))
        return module

    def theta_of(self, theta: Float32, state_dict: Mapping[str, Any], strict: bool = True) -> Float32:
        """Return theta (num_params,) with the parameters of a state_dict of the module.

        Args:
            theta: Parameters (num_params,) for those that the state_dict lacks, which strict=False allows.
            state_dict: As the module's own.
            strict: As torch's load_state_dict takes it.

        Raises:
            RuntimeError: Torch's own, for names and shapes that do not fit.
            ValueError: Other values of what is not trained.
        """
        import torch

        module = self.module_with(theta)
        before = {name: value.clone() for name, value in module.state_dict().items()}
        module.load_state_dict({name: torch.as_tensor(value) for name, value in state_dict.items()}, strict=strict)
        for name, value in _untrained(module, self.shapes).items():
            if not torch.equal(value, before[name]):
                raise ValueError(f"{name!r} is not trained and cannot change: make a TorchPolicy of a module that has it so")
        return np.concatenate([parameter.detach().reshape(-1).numpy() for _, parameter in _trained(module)])


class TorchActor(CustomActor):
    """A copy of the module whose parameters are views of the actor's `parameters`."""

    def __init__(self, spec: TorchSpec) -> None:
        import torch

        super().__init__(spec)
        self._spec = spec
        module: torch.nn.Module = spec.own_copy()
        views = spec.split(self.parameters)
        for name, parameter in _trained(module):
            parameter.data = torch.from_numpy(views[name])
        self.parameters[:] = spec.theta0
        self.module = module.eval().requires_grad_(False)  # without gradients nothing is recorded: no_grad would cost more
        self._input = torch.from_numpy(self.observation).view(1, *spec.input_shape)
        own = hook_of(self.module)
        found = [own] if own else [hook_of(inner) for inner in self.module.modules()]
        self.hooks = [hook for hook in found if hook is not None]

    def act(self, obs: Any) -> Any:
        """Return the action for one observation."""
        self.observe(obs)
        try:
            outputs = self.module(self._input.clone()).numpy()  # a copy: the module may keep what it sees
        except Exception as error:
            blame_policy(error)
            raise
        return self.choose(outputs)

    def check_outputs(self) -> None:
        """Run the module once, on zeros; ValueError if its outputs do not suit the action head."""
        import torch

        name, head = type(self.module).__name__, self._spec.head
        assert head is not None
        given = f"a float32 tensor {tuple(self._input.shape)}"
        with torch.random.fork_rng(devices=[]):
            self.reset_memory()  # an episode begins with it
            try:
                outputs = self.module(self._input.clone())
            except Exception as error:
                columns, size = len(self._spec.columns), math.prod(self._spec.obs_shape)
                advice = f". obs_columns chooses {columns} of {size} values; 'all' leaves all" if columns else ""
                raise ValueError(f"the module {name} raised for {given}: {type(error).__name__}: {error}{advice}") from error
        expected = f"expected float32 (1, {head.num_outputs}) or ({head.num_outputs},), {head.outputs}"
        if not isinstance(outputs, torch.Tensor):
            raise ValueError(f"the module {name} returned a {type(outputs).__name__} for {given}: {expected}")
        if tuple(outputs.shape) not in ((1, head.num_outputs), (head.num_outputs,)) or outputs.dtype != torch.float32:
            kind = str(outputs.dtype).removeprefix("torch.")
            raise ValueError(f"the module {name} returned {kind} {tuple(outputs.shape)} for {given}: {expected}")
        if outputs.requires_grad:
            raise ValueError(f"the module {name} returned outputs with a gradient: use detach(), or no_grad(), in its forward")

    def check_reset(self) -> None:
        """Warn of a module whose memory is not reset; ValueError if its hook changes parameters."""
        what = f"the module {type(self.module).__name__}"
        self.reset_memory()
        if self.parameters.tobytes() != self._spec.theta0.tobytes():
            raise ValueError(
                f"{what} changes its parameters in reset() or begin_episode(), which is called at the start of every episode: "
                "expected one that only clears what the module remembers; begin_episode() goes before reset() where it has both"
            )

        def run(value: float) -> Any:
            self.observation[:] = value
            return self.module(self._input.clone()).clone()

        warn_if_not_reset(what, self, run, self._state)

    def untrained(self) -> dict[str, str]:
        """Return checksums of frozen parameters and persistent buffers, by name, as they are when an episode begins."""
        import torch

        with torch.random.fork_rng(devices=[]):
            first, second = self._checksums(), self._checksums()
        return {name: value for name, value in first.items() if second[name] == value}  # others are drawn by reset

    def _checksums(self) -> dict[str, str]:
        self.reset_memory()
        untrained = _untrained(self.module, self._spec.shapes)
        tensors = {name: value for name, value in untrained.items() if isinstance(value, type(self._input))}
        return {name: checksum(value) for name, value in tensors.items() if not name.endswith(_UNUSED)}

    def _state(self) -> list[Any]:
        """Return the attributes and buffers of the module and its submodules, without parameters."""
        attributes = [vars(inner).items() for inner in self.module.modules()]
        held = [value for each in attributes for name, value in each if name not in ("_parameters", "_modules")]
        return [*held, *self.module.buffers()]


def checksum(value: torch.Tensor) -> str:
    """Return the SHA-256 of a tensor's dtype, shape and bytes."""
    import torch

    content = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(f"{value.dtype} {tuple(value.shape)}\n".encode() + content).hexdigest()


def _trained(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """Yield names and parameters that training changes, each once, however often the module uses it."""
    return ((name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad)


def _untrained(module: torch.nn.Module, trained: Iterable[str]) -> dict[str, Any]:
    """Return the entries of a state_dict that are none of the trained parameters, under any of their names."""
    places = {module.get_parameter(name).data_ptr() for name in trained}
    state = module.state_dict().items()
    return {name: value for name, value in state if not hasattr(value, "data_ptr") or value.data_ptr() not in places}


def _check_parameter(torch: Any, name: str, parameter: torch.nn.Parameter) -> None:
    if torch.nn.parameter.is_lazy(parameter):
        raise ValueError(f"parameter {name!r} of the module has no shape yet: call the module once on an observation first")
    if parameter.dtype != torch.float32:
        raise ValueError(
            f"parameter {name!r} of the module is {parameter.dtype}: expected torch.float32; call module.float() first, or "
            "requires_grad_(False) on what need not be trained"
        )
    if parameter.device.type != "cpu":
        raise ValueError(
            f"parameter {name!r} of the module is on {parameter.device}: call module.cpu() first, workers use the CPU"
        )
