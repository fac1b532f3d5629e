"""Evolution Strategies as ask and tell, and as a search from start to end. Knows no process and no environment."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastes import _core
from fastes.errors import FastESError, NotFinite, check_int, check_seed, warn_user, whole
from fastes.es.fitness_shaping import Shaped, shape_returns
from fastes.es.hyperparameters import Hyperparameters, make_hyperparameters
from fastes.es.keywords import MoreHyperparameters, Unpack
from fastes.es.noise_table import NoiseTable, default_table_size, window_size
from fastes.es.optimizers import AnyFloat, Arrays, Optimizer, make_optimizer, stepped
from fastes.es.perturbations import Draws, Perturbations, draw_pairs, draw_windows
from fastes.es.schedules import ScheduleSetting, checked_value, make_schedule
from fastes.es.sigma_adaptation import SigmaAdaptation, make_adaptation
from fastes.number_array import Float32, Float64, number_array
from fastes.setting_fields import checked_number

SLICES_PER_PAIR = 10  # fewer in the noise table cause a warning
PATIENCE = 100  # generations without anything better before a search ends
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
        sigma_ratio: The largest sigma_i / |theta_i|; infinite if a theta_i is 0.
        is_stuck: Whether the last step was so short that theta stayed the same.
    """

    perturbations: Perturbations | None = None
    job: int = 0
    fitness: float = -math.inf
    mean: float = -math.inf
    idle: int = 0
    sigma_ratio: float = math.inf
    is_stuck: bool = False

    def after(
        self, perturbations: Perturbations, fitness: npt.NDArray[np.float64], step_norm: float, theta: Float32
    ) -> History:
        """Return the history after a generation of this fitness, float64 (pairs, 2), some of it finite.

        Args:
            perturbations: The generation's.
            fitness: Its candidates'.
            step_norm: Length of the step.
            theta: The parameters after it.
        """
        finite = np.isfinite(fitness)
        job = int(np.where(finite, fitness, -math.inf).argmax())
        with np.errstate(over="ignore"):
            best, mean = float(fitness.flat[job]), float(fitness[finite].mean())
        with np.errstate(divide="ignore", over="ignore"):
            sigma_ratio = float((perturbations.sigmas / np.abs(perturbations.theta)).max())
        is_stuck = step_norm > 0.0 and np.array_equal(theta, perturbations.theta)
        rest = max(mean, self.mean), 0 if best > self.fitness or mean > self.mean else self.idle + 1, sigma_ratio, is_stuck
        if best > self.fitness:
            return History(perturbations, job, best, *rest)
        return History(self.perturbations, self.job, self.fitness, *rest)

    def elsewhere(self) -> History:
        """Return the history of a search that begins again at other parameters: it knows the best candidate so far."""
        return History(self.perturbations, self.job, self.fitness)

    @property
    def best(self) -> Best:
        """The best candidate, a copy. FastESError before the first one."""
        if self.perturbations is None:
            raise FastESError("there is no best candidate before the first tell(): call ask(), evaluate its candidates, tell()")
        return Best(self.perturbations[self.job], self.fitness)

    def stop_reason(self, patience: int) -> str:
        """See EvolutionStrategy.stop_reason."""
        if self.idle >= patience:
            return f"no better fitness for {self.idle} generations"
        if self.sigma_ratio < _RESOLVED:
            return "sigma is too small to change the parameters"
        if self.is_stuck:
            return "the steps are too short to change the parameters"
        return ""


class Update(NamedTuple):
    """The statistics of one `tell`.

    Attributes:
        theta_norm, gradient_norm, step_norm: Euclidean lengths.
        update_ratio: step_norm / theta_norm.
        num_nonfinite: Number of returns that were not finite.
        learning_rate: That of this step.
        sigma: That of the generation's noise; the mean if each parameter has its own.
    """

    theta_norm: float
    gradient_norm: float
    step_norm: float
    update_ratio: float
    num_nonfinite: int
    learning_rate: float
    sigma: float


class LastTell(NamedTuple):
    """The arguments of one `ask` and `tell`: a strategy in the state before takes the same step with them.

    This is how the workers of Salimans et al. 2017, algorithm 2, follow.

    Attributes:
        progress_remaining: The argument of `ask`.
        fitness: The argument of `tell`, float64 (num_pairs, 2), read-only.
    """

    progress_remaining: float
    fitness: Float64


class _State(NamedTuple):
    """The state that `ask` and `tell` change. It is replaced as a whole, so that an exception never leaves half of it."""

    theta: Float32
    optimizer: Optimizer
    adaptation: SigmaAdaptation | None
    generation: int
    perturbations: Perturbations | None
    history: History | None
    last_tell: LastTell | None = None


class EvolutionStrategy:
    """Maximise a function of a vector by mirrored Gaussian perturbations.

    >>> import numpy as np
    >>> solution = np.array([0.5, 0.1, -0.3])
    >>> es = EvolutionStrategy(np.zeros(3), sigma=0.1, learning_rate=0.05, population_size=50, seed=0)
    >>> for _ in range(100):
    ...     update = es.tell([-np.sum((x - solution) ** 2) for x in es.ask()])
    >>> bool(np.abs(es.theta - solution).max() < 0.05)
    True

    `minimize` and `maximize` are that loop; `best` and `should_stop` serve a loop of your own.

    Defaults of sigma, learning_rate and population_size are for short vectors, as in the example; Settings' are for policies.
    ARS is optimizer='sgd', momentum=0, shaping='standardized'.

    Args:
        theta0: First parameters, (num_params,), copied as float32.
        sigma: Standard deviation of the noise. It and learning_rate are positive numbers, 'lin_A', 'lin_A_B', 'exp_A_B' or
            functions of the progress that remains (see schedules.py).
        learning_rate: Step size.
        population_size: Candidates per generation, even.
        seed: int >= 0; with the settings it determines everything.
        episodes: Environment seeds drawn per pair.
        table_size: Values of the noise table, 0 for one that fits theta.
        keep_best: Whether to remember the best candidate, for best and should_stop; False saves an earlier theta's memory.
        hyperparameters: Any other field of fastes.es.hyperparameters.Hyperparameters, such as optimizer, momentum, shaping,
            top_fraction or sigma_adaptation.

    Raises:
        TypeError, ValueError: Arguments that cannot work.

    Sources: Salimans et al. 2017 (arXiv 1703.03864), algorithm 2; Mania et al. 2018 (arXiv 1803.07055); optimizers.py.
    """

    _ahead: tuple[tuple[int, ...], Draws] | None = None  # see draw_ahead

    def __init__(
        self,
        theta0: npt.ArrayLike,
        sigma: ScheduleSetting = 0.1,
        learning_rate: ScheduleSetting = 0.05,
        population_size: int = 50,
        seed: int = 0,
        *,
        episodes: int = 1,
        table_size: int = 0,
        keep_best: bool = True,
        **hyperparameters: Unpack[MoreHyperparameters],
    ) -> None:
        theta = _checked_theta(theta0)
        first = {"sigma": sigma, "learning_rate": learning_rate, "population_size": population_size}
        self._use(make_hyperparameters({**first, **hyperparameters}), len(theta))
        self.seed, self.episodes = check_seed(seed), check_int("episodes", episodes, 1)
        given = check_int("table_size", whole(table_size), 0)
        table_size = given or default_table_size(len(theta))
        if table_size < len(theta):
            raise ValueError(f"table_size = {table_size} is too small: theta has {len(theta)} parameters")
        if given and self.hyperparameters.perturbed_fraction == 1.0:  # windows of one slice may lie elsewhere
            _warn_of_few_slices(table_size, len(theta), self.population_size // 2)
        self.table = NoiseTable(table_size, self.seed)
        history = History() if keep_best else None
        parts = self._new_optimizer(), self._new_adaptation(), 0, None, history
        self._state = _State(theta, *parts)
        self.progress_remaining = 1.0  # what the last `ask` was given

    def _use(self, chosen: Hyperparameters, num_params: int) -> None:
        """Set everything that follows from the hyper-parameters alone."""
        self.hyperparameters = chosen
        self.shaping, self.top_fraction, self.weight_decay = chosen.shaping, chosen.top_fraction, chosen.weight_decay
        self.population_size = chosen.population_size
        self._sigma = make_schedule("sigma", chosen.sigma)
        self._learning_rate = make_schedule("learning_rate", chosen.learning_rate)
        self._window_size = window_size(chosen.perturbed_fraction, num_params)
        rule = chosen.optimizer, num_params, chosen.momentum, chosen.beta2, chosen.max_speed
        self._new_optimizer = partial(make_optimizer, *rule)
        adapting = chosen.sigma_adaptation, chosen.sigma, chosen.sigma_learning_rate, num_params
        self._new_adaptation = partial(make_adaptation, *adapting)

    @property
    def theta(self) -> Float32:
        """The parameters, float32 (num_params,), read-only; each `tell` makes a new array."""
        return self._state.theta

    @theta.setter
    def theta(self, value: npt.ArrayLike) -> None:
        self._state = self._state._replace(
            theta=self._fitting(value), perturbations=None, last_tell=None, history=self._history_elsewhere()
        )

    @property
    def optimizer(self) -> Optimizer:
        """The optimiser; each `tell` makes a new one."""
        return self._state.optimizer

    @property
    def has_sigma_per_parameter(self) -> bool:
        return self._state.adaptation is not None and self._state.adaptation.each is not None

    @property
    def generation(self) -> int:
        """Updates done so far."""
        return self._state.generation

    @property
    def history(self) -> History:
        """The history since this strategy was made, or its state loaded. FastESError with keep_best=False."""
        if self._state.history is None:
            raise FastESError("this strategy remembers no candidates: make it with keep_best=True")
        return self._state.history

    @property
    def last_tell(self) -> LastTell | None:
        """The arguments that led to this state from the one before; None if no `tell` did."""
        return self._state.last_tell

    def follow(self, last_tell: LastTell) -> Update:
        """Take the step that another strategy took from this state."""
        self.ask(last_tell.progress_remaining, len(last_tell.fitness))
        return self.tell(last_tell.fitness)

    def restart(self, theta: npt.ArrayLike) -> None:
        """Continue from theta (num_params,) with an optimiser that has taken no step, and an adapted sigma at its start.

        The generation stays.
        """
        parts = self._new_optimizer(), self._new_adaptation(), self.generation, None, self._history_elsewhere()
        self._state = _State(self._fitting(theta), *parts)

    def changed(self, **hyperparameters: Any) -> EvolutionStrategy:
        """Return a strategy with other hyper-parameters and the same noise table, which begins at theta as `restart` does."""
        new = copy.copy(self)
        new._use(make_hyperparameters({**self.hyperparameters.hyperparameters(), **hyperparameters}), len(self.theta))
        new.restart(self.theta)
        return new

    def _history_elsewhere(self) -> History | None:
        history = self._state.history
        return None if history is None else history.elsewhere()

    def _fitting(self, value: npt.ArrayLike) -> Float32:
        theta = _checked_theta(value)
        if theta.shape != self.theta.shape:
            raise ValueError(f"theta has {theta.size} values, this strategy has {self.theta.size} parameters")
        return theta

    def reseed(self, seed: int) -> None:
        """Draw from another seed from now on, with another noise table; theta and the optimiser stay."""
        self.seed = check_seed(seed)
        self.table = NoiseTable(self.table.size, self.seed)
        self._state = self._state._replace(perturbations=None, last_tell=None)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickle or a deep copy, from which arrays come out writeable."""
        self.__dict__.update(state)
        self.theta.flags.writeable = False

    @property
    def num_pairs(self) -> int:
        return self.population_size // 2

    def ask(self, progress_remaining: float = 1.0, num_pairs: int | None = None) -> Perturbations:
        """Return this generation's perturbations; a second call before `tell` returns the same ones.

        Args:
            progress_remaining: From 1 (start) to 0 (end of the budget), for schedules.
            num_pairs: Number of pairs, None for half of population_size. Fewer pairs are the first ones of more pairs.

        Returns:
            The candidates, theta + sigma eps_j and theta - sigma eps_j (mirrored sampling, Salimans et al. 2017, section 2).
        """
        count = self.num_pairs if num_pairs is None else check_int("num_pairs", num_pairs, 1, 2**30)
        self.progress_remaining = _checked_progress(progress_remaining)
        theta, _, adaptation, generation, *_ = self._state
        if adaptation is None:
            sigma, each = checked_value("sigma", self._sigma_now()), None
        else:
            sigma, each = adaptation.mean, adaptation.each
        drawn = self._draw(generation, count)[1]
        size, windows = self._window_size, None
        if size:
            windows = draw_windows(self.seed, generation, count, len(theta), size)
        perturbations = Perturbations(generation, sigma, theta, self.table, *drawn, each, windows)
        self._state = self._state._replace(perturbations=perturbations)
        return perturbations

    def draw_ahead(self, num_pairs: int) -> None:
        """Draw the next generation's pairs while there is time for it. If `ask` wants another number, it draws again."""
        self._ahead = self._draw(self.generation + 1, num_pairs)

    def _draw(self, generation: int, count: int) -> tuple[tuple[int, ...], Draws]:
        """Return the key of a generation's draws, and the draws, from `draw_ahead` if its key is the same."""
        key = self.seed, generation, count, self.episodes, len(self.theta), self.table.size
        return self._ahead if self._ahead is not None and self._ahead[0] == key else (key, draw_pairs(*key))

    def tell(self, returns: npt.ArrayLike | Sequence[float]) -> Update:
        """Move theta. An exception changes nothing.

        Args:
            returns: Fitness of the candidates of the last `ask`, (candidates,) in job order or (pairs, 2). Higher is better,
                NaN counts as worst.

        Returns:
            The statistics of the step.

        Raises:
            FastESError: There was no `ask`, or no return, or the step, is finite.
            ValueError, TypeError: The returns are not numbers, or are too many or too few.
        """
        theta, optimizer, adaptation, generation, perturbations, history, *_ = self._state
        if perturbations is None:
            raise FastESError("tell() was called before ask(): call ask(), evaluate its candidates, then tell()")
        fitness = _pairs_of_returns(returns, perturbations)  # F(theta + sigma eps_j), F(theta - sigma eps_j)
        # shaped fitness s_j: ranks (Salimans et al. 2017, section 2), or returns over sigma_R (Mania et al. 2018, algorithm 2)
        shaped = shape_returns(fitness, perturbations.sigma, self.shaping, self.top_fraction)
        # g = 1/(2 n sigma) sum_j (s_j+ - s_j-) eps_j: Salimans et al. 2017, equation 1, with mirrored pairs
        gradient = estimate_gradient(perturbations, shaped, self.weight_decay)
        learning_rate = self._learning_rate_now()
        # sigma <- sigma (1 + rate mean_j s_j (eps_j^2 - 1)): Sehnke et al. 2010, section 3.3
        adapted = None if adaptation is None else adaptation.adapted(perturbations, shaped)
        with np.errstate(all="ignore"):
            optimizer, step = stepped(optimizer, gradient, learning_rate)  # theta <- theta + alpha g, by an optimiser
            new_theta = theta + step
        if not all(map(_all_finite, (new_theta, *optimizer.state().values()))):
            advice = "Lower the learning rate"
            if not _all_finite(gradient):
                advice = "The gradient is not finite, either, which is divided by sigma: raise sigma"
            elif not all(map(_all_finite, optimizer.state().values())):
                advice = "The optimizer squares the gradient, which is divided by sigma: raise sigma, or use 'clipup'"
            raise NotFinite(
                f"the step of generation {generation + 1} is not finite (learning_rate {learning_rate:g}, sigma "
                f"{perturbations.sigma:g}, weight_decay {self.weight_decay:g}); parameters are unchanged. "
                f"{advice}"
            )
        gradient_norm, step_norm, theta_norm = _norm(gradient), _norm(step), _norm(theta)
        ratio = step_norm / theta_norm if theta_norm > 0.0 else math.inf if step_norm else 0.0
        new_theta.flags.writeable = False
        if history is not None:
            history = history.after(perturbations, fitness, step_norm, new_theta)
        fitness.flags.writeable = False
        last_tell = LastTell(self.progress_remaining, fitness)
        self._state = _State(new_theta, optimizer, adapted, generation + 1, None, history, last_tell)
        return Update(theta_norm, gradient_norm, step_norm, ratio, shaped.num_nonfinite, learning_rate, perturbations.sigma)

    def _sigma_now(self) -> float:
        """The schedule's value; of one that ends at zero, the last one before that: without noise nothing is learned."""
        return self._sigma(self.progress_remaining) or self._sigma(max(self.progress_remaining, 1e-3))

    def _learning_rate_now(self) -> float:
        """Return the learning rate at the progress of the last `ask`; a schedule that ends at 0 stays just above it."""
        return checked_value("learning_rate", max(self._learning_rate(self.progress_remaining), 1e-300))

    def no_step(self) -> Update:
        """Return the statistics of a generation from which nothing is learned: gradient and step are 0."""
        perturbations = self._state.perturbations
        sigma = math.nan if perturbations is None else perturbations.sigma
        return Update(_norm(self.theta), 0.0, 0.0, 0.0, 0, self._learning_rate_now(), sigma)

    def state(self) -> Arrays:
        """Return the arrays that, with hyper-parameters and generation, determine all later steps."""
        theta, optimizer, adaptation, *_ = self._state
        sigma: Arrays = {} if adaptation is None else {"sigma": adaptation.values.copy()}
        return {"theta": theta.copy(), **{f"optimizer.{k}": v for k, v in optimizer.state().items()}, **sigma}

    def load_state(self, state: Mapping[str, AnyFloat], generation: int) -> None:
        """Continue from a `state()` that was taken after `generation` generations, without the history before it."""
        prefix = "optimizer."
        optimizer = self._new_optimizer()
        optimizer.load_state({k[len(prefix) :]: v for k, v in state.items() if k.startswith(prefix)})
        adaptation = self._new_adaptation()
        if adaptation is not None:
            adaptation.values = state["sigma"]
        history = None if self._state.history is None else History()
        self._state = _State(self._fitting(state["theta"]), optimizer, adaptation, generation, None, history)

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


def estimate_gradient(perturbations: Perturbations, shaped: Shaped, weight_decay: float) -> Float32:
    """g = scale / perturbed_fraction * sum_j w_j eps_j - weight_decay * theta, float32 (num_params,).

    If each parameter has its own sigma, its sum is multiplied by sigma_i over the mean sigma, as in PGPE: a parameter with
    twice the sigma takes twice the step.
    """
    theta = perturbations.theta
    gradient = perturbations.table.weighted_sum(perturbations.noise_index, shaped.weights, len(theta), perturbations.windows)
    gradient *= np.float32(shaped.scale * perturbations.inverse_fraction)
    if perturbations.sigma_each is not None:
        gradient *= perturbations.sigma_each / np.float32(perturbations.sigma)
    if weight_decay:
        gradient -= np.float32(weight_decay) * theta
    return gradient


def _search(
    strategy: EvolutionStrategy,
    function: Callable[[Float32], float],
    sign: float,
    max_evaluations: float,
    target: float | None,
    patience: int,
) -> Result:
    """Search for the largest value with sign 1, for the smallest with -1; see `minimize`."""
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
        seen = seen.after(candidates, fitness.reshape(-1, 2), strategy.tell(fitness).step_norm, strategy.theta)
        evaluations += len(fitness)
        if seen.fitness >= goal:
            reason = f"the target {target:g} is reached"
        elif evaluations + needed > budget:
            reason = f"max_evaluations = {budget} are used up"
        else:
            reason = seen.stop_reason(patience)
    found, last = seen.best, fitness_of(strategy.theta.copy())  # a copy, as candidates are: a function may change it
    if math.isfinite(last) and last >= found.fitness:
        found = Best(strategy.theta.copy(), last)
    return Result(found.parameters, sign * found.fitness, evaluations + 1, strategy.generation - begun, reason)


def _number(value: Any) -> float:
    """Return a function's value as a float; TypeError for anything but one number."""
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"the function returned {value!r}, a {type(value).__name__}: expected one number") from None


def _checked_progress(value: float) -> float:
    expected = "a number from 1 (start) to 0 (end of the budget); num_pairs is how many candidates to ask for, halved"
    if not 0.0 <= (progress := checked_number("progress_remaining", value, expected)) <= 1.0:
        raise ValueError(f"progress_remaining = {value!r} is out of range: expected {expected}")
    return progress


def _pairs_of_returns(returns: npt.ArrayLike | Sequence[float], perturbations: Perturbations) -> Float64:
    """Return the returns, (candidates,) in job order or (pairs, 2), as a new float64 (pairs, 2); an error for anything else."""
    expected = f"({len(perturbations)},) in job order or ({perturbations.num_pairs}, 2)"
    if _holds_candidates(returns):
        raise ValueError(
            "tell() got (candidate, value) pairs, as cmaes takes them: expected the values alone, in the order of ask()'s "
            "candidates, and higher is better: es.tell([-value for _, value in solutions]) where value is to be small"
        )
    fitness = number_array("tell()'s returns", returns, f"a number for each of ask()'s {len(perturbations)} candidates")
    if fitness.shape not in ((len(perturbations),), (perturbations.num_pairs, 2)):
        raise ValueError(
            f"tell() got {fitness.size} returns of shape {fitness.shape}, ask() gave {len(perturbations)} candidates: "
            f"expected {expected}"
        )
    return fitness.reshape(perturbations.num_pairs, 2)


def _holds_candidates(returns: object) -> bool:
    """Whether these are pairs of a vector and a value."""
    if not isinstance(returns, (list, tuple)) or not returns:
        return False
    return all(isinstance(pair, (list, tuple)) and len(pair) == 2 and np.ndim(pair[0]) > 0 for pair in returns)


def _all_finite(array: AnyFloat) -> bool:
    return int(np.count_nonzero(np.isfinite(array))) == array.size


def _norm(x: Float32) -> float:
    return math.sqrt(_core.sum_squares(x))


def _warn_of_few_slices(size: int, num_params: int, pairs: int) -> None:
    """Warn of a noise table from which several pairs of a generation are likely to have the same slice."""
    slices, least = size - num_params + 1, num_params - 1 + SLICES_PER_PAIR * pairs
    if size < least:
        warn_user(
            f"table_size (noise_table_size of FastES) = {size:,} leaves {slices:,} slices of {num_params:,} parameters for "
            f"{pairs:,} pairs, so candidates are alike: take at least {least:,}, or 0 for the default"
        )


def _checked_theta(theta: npt.ArrayLike) -> Float32:
    array = number_array("theta's values", theta, "numbers, (num_params,)", np.float32)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"theta has shape {array.shape}: expected one dimension with at least one parameter")
    if not np.isfinite(array).all():
        raise ValueError("theta has values that are not finite: expected finite numbers only")
    array.flags.writeable = False
    return array
