"""Optimising a function from start to end: the best candidate so far, when to stop, and the loop of ask and tell."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastes.errors import FastESError, check_int, whole
from fastes.es.perturbations import Perturbations
from fastes.setting_fields import checked_number

Float32 = npt.NDArray[np.float32]
PATIENCE = 100  # generations without anything better
_RESOLVED = float(np.finfo(np.float32).eps) / 2  # a smaller fraction of a float32 changes nothing when it is added


class Best(NamedTuple):
    """The best candidate so far: its parameters, float32 (num_params,), and its fitness as `tell` was given it."""

    parameters: Float32
    fitness: float


class Result(NamedTuple):
    """The result of `minimize` or `maximize`.

    Attributes:
        parameters: float32 (num_params,), the better of the best candidate and the last theta.
        value: The function's value there.
        evaluations: Calls of the function.
        generations: Updates.
        reason: Why it ended, in words.
    """

    parameters: Float32
    value: float
    evaluations: int
    generations: int
    reason: str


class History(NamedTuple):
    """The fitness seen by `tell` so far. A candidate is kept as its draw, and rebuilt on demand.

    Attributes:
        perturbations, job, fitness: Those of the best candidate; None, 0 and -inf before the first.
        mean: The highest mean fitness of a generation.
        idle: Generations since the best candidate or the highest mean was a new one.
        sigma_ratio: sigma over the largest parameter; infinite if theta is 0.
        step_ratio: Length of the last step over that of theta; infinite if theta is 0.
    """

    perturbations: Perturbations | None = None
    job: int = 0
    fitness: float = -math.inf
    mean: float = -math.inf
    idle: int = 0
    sigma_ratio: float = math.inf
    step_ratio: float = math.inf

    def after(self, perturbations: Perturbations, fitness: npt.NDArray[np.float64], step_ratio: float) -> History:
        """And a generation of this fitness (pairs, 2), of which some is finite."""
        finite = np.isfinite(fitness)
        job = int(np.where(finite, fitness, -math.inf).argmax())
        with np.errstate(over="ignore"):
            best, mean = float(fitness.flat[job]), float(fitness[finite].mean())
        largest = float(np.abs(perturbations.theta).max())
        sigma_ratio = perturbations.sigma / largest if largest else math.inf
        rest = max(mean, self.mean), 0 if best > self.fitness or mean > self.mean else self.idle + 1, sigma_ratio, step_ratio
        if best > self.fitness:
            return History(perturbations, job, best, *rest)
        return History(self.perturbations, self.job, self.fitness, *rest)

    @property
    def best(self) -> Best:
        """The best candidate, a copy. FastESError before the first one."""
        if self.perturbations is None:
            raise FastESError("there is no best candidate before the first tell(): call ask(), evaluate its candidates, tell()")
        return Best(self.perturbations[self.job], self.fitness)

    def stop_reason(self, patience: int) -> str:
        """As BlackBox.stop_reason."""
        if self.idle >= patience:
            return f"no better fitness for {self.idle} generations"
        if self.sigma_ratio < _RESOLVED:
            return "sigma is too small to change the parameters"
        if 0.0 < self.step_ratio < _RESOLVED:
            return "the steps are too short to change the parameters"
        return ""


class BlackBox:
    """The methods of EvolutionStrategy for functions that are optimised from start to end, on top of ask and tell."""

    @property
    @abstractmethod
    def history(self) -> History:
        """The fitness seen by `tell`. FastESError for a strategy that keeps none."""

    @property
    @abstractmethod
    def theta(self) -> Float32:
        """The parameters."""

    @property
    @abstractmethod
    def generation(self) -> int:
        """Updates done so far."""

    @abstractmethod
    def ask(self, progress_remaining: float = 1.0, num_pairs: int | None = None) -> Perturbations:
        """A generation's candidates."""

    @abstractmethod
    def tell(self, returns: Any) -> Any:
        """Their fitness, higher is better."""

    @property
    def best(self) -> Best:
        """The best candidate told so far, a copy. FastESError before the first `tell`.

        If fitness is noisy that candidate was lucky, too: theta is then the better choice.
        """
        return self.history.best

    def should_stop(self, patience: int = PATIENCE) -> bool:
        """Whether there is a `stop_reason`; False before the first `tell`."""
        return bool(self.stop_reason(patience))

    def stop_reason(self, patience: int = PATIENCE) -> str:
        """Return why continuing is of no use, in words; '' if it may be of use.

        - Neither the best fitness nor the mean fitness of a generation has risen for `patience` generations.
        - sigma is so small compared with the parameters that float32 candidates are all alike.
        - The last step was so short compared with theta that it changed nothing.

        Fitness that is not finite counts as worst; a generation of nothing else is an error of `tell`.
        """
        return self.history.stop_reason(check_int("patience", patience, 1))

    def minimize(
        self,
        function: Callable[[Float32], float],
        max_evaluations: float,
        *,
        target: float | None = None,
        patience: int = PATIENCE,
    ) -> Result:
        """Search for the parameters at which the function is SMALLEST: ask, evaluate and tell -value until it is time to stop.

        Schedules of sigma and the learning rate run over max_evaluations. A second call continues from where the first ended;
        its result, target and patience know nothing of the first. `best.fitness` is -value, since tell's fitness is higher for
        better candidates.

        Args:
            function: Called with a candidate, float32 (num_params,), returns a number; NaN and infinities count as worst.
            max_evaluations: Calls of the function, at least a population's and one more, for theta at the end.
            target: A value at which to stop.
            patience: See `stop_reason`.

        Returns:
            The parameters found, and why the search ended.
        """
        return _search(self, function, -1.0, max_evaluations, target, patience)

    def maximize(
        self,
        function: Callable[[Float32], float],
        max_evaluations: float,
        *,
        target: float | None = None,
        patience: int = PATIENCE,
    ) -> Result:
        """Search for the parameters at which the function is LARGEST; see `minimize`."""
        return _search(self, function, 1.0, max_evaluations, target, patience)


def _search(
    strategy: BlackBox,
    function: Callable[[Float32], float],
    sign: float,
    max_evaluations: float,
    target: float | None,
    patience: int,
) -> Result:
    """sign: 1 for the largest value, -1 for the smallest."""
    check_int("patience", patience, 1)
    goal = math.inf if target is None else sign * checked_number("target", target, "a number")
    needed = len(strategy.ask()) + 1
    budget = check_int("max_evaluations", whole(max_evaluations), needed)
    begun, evaluations, seen, reason = strategy.generation, 0, History(), ""

    def fitness_of(candidate: Float32) -> float:
        return sign * _number(function(candidate))

    while not reason:
        candidates = strategy.ask(1.0 - evaluations / budget)
        fitness = np.array([fitness_of(candidate) for candidate in candidates])
        seen = seen.after(candidates, fitness.reshape(-1, 2), strategy.tell(fitness).update_ratio)
        evaluations += len(fitness)
        if seen.fitness >= goal:
            reason = f"the target {target:g} is reached"
        elif evaluations + needed > budget:
            reason = f"max_evaluations = {budget} are used up"
        else:
            reason = seen.stop_reason(patience)
    found, last = seen.best, fitness_of(strategy.theta)
    if math.isfinite(last) and last >= found.fitness:
        found = Best(strategy.theta.copy(), last)
    return Result(found.parameters, sign * found.fitness, evaluations + 1, strategy.generation - begun, reason)


def _number(value: Any) -> float:
    """Return a function's value as a float; TypeError for anything but one number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"the function returned {value!r}, a {type(value).__name__}: expected one number") from None
