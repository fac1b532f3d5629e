"""Optimisers: a gradient of the expected return in, a step of theta out. All of them ascend."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fastes import _core
from fastes.errors import shown, suggest
from fastes.number_array import Float32
from fastes.system.copies import shallow

AnyFloat = npt.NDArray[np.float32] | npt.NDArray[np.float64]
Arrays = dict[str, AnyFloat]

_EPSILON = np.float32(1e-8)  # Adam's, the paper's value


class Optimizer(Protocol):
    """An optimiser of one theta: gradients in, steps out.

    Its state is a dict of arrays, so that a checkpoint needs to know no optimiser: `load_state(state())` on a new one has to
    give one that takes the same steps.
    """

    def step(self, gradient: Float32, learning_rate: float) -> Float32:
        """Return the step to add to theta.

        Args:
            gradient: The estimated gradient of the fitness, which is to rise, float32 (num_params,). Not to be changed.
            learning_rate: That of this generation.

        Returns:
            float32 (num_params,).
        """

    def state(self) -> Arrays:
        """Return float32 or float64 arrays by name. Names, dtypes and shapes are the same at any time."""

    def load_state(self, state: Mapping[str, AnyFloat]) -> None:
        """Continue from what `state` has returned."""


OptimizerFactory = Callable[[int], Optimizer]  # num_params -> an optimiser that has taken no step


class SGD:
    """v <- momentum * v + gradient; step = learning_rate * v."""

    def __init__(self, num_params: int, momentum: float) -> None:
        self.momentum = np.float32(momentum)
        self.velocity = np.zeros(num_params, dtype=np.float32)

    def step(self, gradient: Float32, learning_rate: float) -> Float32:
        self.velocity = self.momentum * self.velocity + gradient
        step: Float32 = np.float32(learning_rate) * self.velocity
        return step

    def state(self) -> Arrays:
        return {"velocity": self.velocity.copy()}

    def load_state(self, state: Mapping[str, AnyFloat]) -> None:
        self.velocity = np.array(state["velocity"], dtype=np.float32)


class Adam:
    """m <- beta1 m + (1 - beta1) g; v <- beta2 v + (1 - beta2) g^2; step = learning_rate m' / (sqrt(v') + epsilon).

    m' = m / (1 - beta1^t), v' = v / (1 - beta2^t): Kingma and Ba 2015, algorithm 1. The powers of beta are kept as running
    products: no libm, the same bits.
    """

    def __init__(self, num_params: int, beta1: float, beta2: float) -> None:
        self.beta1, self.beta2 = beta1, beta2
        self.m = np.zeros(num_params, dtype=np.float32)
        self.v = np.zeros(num_params, dtype=np.float32)
        self.powers = np.ones(2, dtype=np.float64)  # beta1^t, beta2^t

    def step(self, gradient: Float32, learning_rate: float) -> Float32:
        self.powers = self.powers * np.array([self.beta1, self.beta2])
        self.m = np.float32(self.beta1) * self.m + np.float32(1.0 - self.beta1) * gradient
        self.v = np.float32(self.beta2) * self.v + np.float32(1.0 - self.beta2) * (gradient * gradient)
        m_hat = self.m / np.float32(1.0 - self.powers[0])
        v_hat = self.v / np.float32(1.0 - self.powers[1])
        step: Float32 = np.float32(learning_rate) * m_hat / (np.sqrt(v_hat) + _EPSILON)
        return step

    def state(self) -> Arrays:
        return {"m": self.m.copy(), "v": self.v.copy(), "powers": self.powers.copy()}

    def load_state(self, state: Mapping[str, AnyFloat]) -> None:
        self.m = np.array(state["m"], dtype=np.float32)
        self.v = np.array(state["v"], dtype=np.float32)
        self.powers = np.array(state["powers"], dtype=np.float64)


class ClipUp:
    """Toklu et al. 2020 (arXiv 2008.02387), algorithm 1: steps of a length that does not depend on the gradient's.

    v <- momentum * v + learning_rate * gradient / |gradient|, shortened to |v| <= max_speed; step = v. So learning_rate and
    max_speed are lengths in the space of parameters. max_speed 0: twice the learning rate, the paper's rule of thumb, which
    follows a schedule. A gradient of zeros pushes nowhere.
    """

    def __init__(self, num_params: int, momentum: float, max_speed: float) -> None:
        self.momentum, self.max_speed = np.float32(momentum), max_speed
        self.velocity = np.zeros(num_params, dtype=np.float32)

    def step(self, gradient: Float32, learning_rate: float) -> Float32:
        velocity = self.momentum * self.velocity
        length = math.sqrt(_core.sum_squares(gradient))
        if length != 0.0:
            # in float64: what a gradient near the ends of float32 is multiplied by lies outside of it
            velocity += (gradient.astype(np.float64) * (learning_rate / length)).astype(np.float32)
        speed, limit = math.sqrt(_core.sum_squares(velocity)), self.max_speed or 2.0 * learning_rate
        self.velocity = velocity * np.float32(limit / speed) if speed > limit else velocity
        step: Float32 = self.velocity.copy()
        return step

    def state(self) -> Arrays:
        # not by SGD's name, velocity: that is no step, and one must not be taken for the other on loading
        return {"step": self.velocity.copy()}

    def load_state(self, state: Mapping[str, AnyFloat]) -> None:
        self.velocity = np.array(state["step"], dtype=np.float32)


class _Named(NamedTuple):
    """An optimiser that has a name.

    Attributes:
        kind: Its class.
        arguments: Those behind the number of parameters: from momentum, beta2 and max_speed.
        step_length: Length of an early step: from the learning rate, the gradient's length, the number of parameters and the
            momentum.
    """

    kind: type[Any]
    arguments: Callable[[float, float, float], tuple[float, ...]]
    step_length: Callable[[float, float, int, float], float]


_NAMED = {
    "adam": _Named(
        Adam,
        lambda momentum, beta2, _: (momentum, beta2),
        lambda rate, _, num_params, __: rate * math.sqrt(num_params),
    ),
    "sgd": _Named(
        SGD,
        lambda momentum, *_: (momentum,),
        lambda rate, gradient, _, momentum: rate * gradient / (1.0 - momentum),
    ),
    "clipup": _Named(
        ClipUp,
        lambda momentum, _, max_speed: (momentum, max_speed),
        lambda rate, *_: rate,
    ),
}
OPTIMIZERS = tuple(_NAMED)
_KINDS = {named.kind for named in _NAMED.values()}
_EXAMPLE = "optimizer=RMSprop, or functools.partial(RMSprop, decay=0.9) for one with arguments of its own"


class MissingOptimizer:
    """Stands for an optimiser of the user's in a model that was loaded without it. It keeps its state and takes no step."""

    def __init__(self, num_params: int) -> None:  # noqa: ARG002
        self._state: Arrays = {}

    def step(self, gradient: Float32, learning_rate: float) -> Float32:  # noqa: ARG002
        raise ValueError(
            "optimizer was a class or function of your own, which a checkpoint does not hold: pass it, as in "
            "load(path, optimizer=RMSprop)"
        )

    def state(self) -> Arrays:
        return {name: array.copy() for name, array in self._state.items()}

    def load_state(self, state: Mapping[str, AnyFloat]) -> None:
        self._state = {name: array.copy() for name, array in state.items()}


def checked_optimizer(name: str, value: Any) -> Any:
    """Return one of OPTIMIZERS or an OptimizerFactory as it is, or raise TypeError or ValueError."""
    if isinstance(value, str) and value in OPTIMIZERS:
        return value
    if isinstance(value, str) or not (callable(value) or hasattr(value, "step")):
        raise ValueError(f"{name} = {shown(value)}: expected one of {OPTIMIZERS} or a class{suggest(value, OPTIMIZERS)}")
    if not isinstance(value, type) and hasattr(value, "step"):
        raise TypeError(
            f"{name} = {shown(value)} is an optimiser that was made already: pass what makes one for a number of parameters, "
            f"as in {_EXAMPLE}"
        )
    return value


def make_optimizer(
    optimizer: str | OptimizerFactory, num_params: int, momentum: float, beta2: float, max_speed: float
) -> Optimizer:
    """Return an optimiser that has taken no step.

    Args:
        optimizer: One of OPTIMIZERS, or a function or class of `num_params` that makes one.
        num_params: Length of theta.
        momentum: That of SGD and ClipUp, or Adam's beta1.
        beta2: Adam's.
        max_speed: ClipUp's.

    Raises:
        ValueError: Another name.
        TypeError: A function or class that does not make an optimiser.
    """
    if isinstance(optimizer, str):
        if optimizer not in _NAMED:
            raise ValueError(f"unknown optimizer {optimizer!r}: expected one of {OPTIMIZERS}{suggest(optimizer, OPTIMIZERS)}")
        named = _NAMED[optimizer]
        own: Optimizer = named.kind(num_params, *named.arguments(momentum, beta2, max_speed))
        return own
    try:
        made = optimizer(num_params)
    except TypeError as error:
        raise TypeError(
            f"optimizer = {shown(optimizer)} cannot be called with the number of parameters, {num_params}: {error}. Expected "
            f"{_EXAMPLE}"
        ) from error
    for method in ("step", "state", "load_state"):
        if not callable(getattr(made, method, None)):
            raise TypeError(
                f"optimizer = {shown(optimizer)} makes {shown(made)}, which has no method {method}: expected the methods of "
                "fastes.es.optimizers.Optimizer"
            )
    for name, array in dict(made.state()).items():
        if not isinstance(name, str) or not isinstance(array, np.ndarray) or array.dtype not in (np.float32, np.float64):
            raise TypeError(
                f"optimizer = {shown(optimizer)}: its state has {shown(name)}: {shown(array)}, expected float32 or float64 "
                "arrays by name"
            )
    return made


def step_length(optimizer: str, learning_rate: float, gradient: float, num_params: int, momentum: float) -> float:
    """Return the length of an early step of one of OPTIMIZERS, from the gradient's length."""
    return _NAMED[optimizer].step_length(learning_rate, gradient, num_params, momentum)


def stepped(optimizer: Optimizer, gradient: Float32, learning_rate: float) -> tuple[Optimizer, Float32]:
    """Take a step without changing the optimiser.

    Returns:
        The optimiser after the step, and the step, float32 (num_params,).

    Raises:
        ValueError: The step has another shape, or the optimiser other arrays after it.
    """
    is_named = type(optimizer) in _KINDS
    new = shallow(optimizer) if is_named else copy.deepcopy(optimizer)  # that of a user may write into its arrays
    step = np.asarray(new.step(gradient, learning_rate), dtype=np.float32)
    if step.shape != gradient.shape:
        raise ValueError(f"the step of {shown(optimizer)} has shape {step.shape}: expected {gradient.shape}, as the gradient")
    if not is_named:
        _check_same_arrays(optimizer, new)
    return new, step


def _check_same_arrays(before: Optimizer, after: Optimizer) -> None:
    """Raise ValueError if a step of a user's optimiser has changed names, dtypes or shapes of its state: no file would load."""
    was, now = (
        {name: f"{np.asarray(array).dtype} of shape {np.shape(array)}" for name, array in each.state().items()}
        for each in (before, after)
    )
    for name in (*was, *now):
        if was.get(name) != now.get(name):
            raise ValueError(
                f"the state of {shown(after)} has {name!r} as {now.get(name, 'no array')} after a step, and as "
                f"{was.get(name, 'no array')} before it: expected the same names, dtypes and shapes, or no checkpoint of it "
                "could be loaded"
            )
