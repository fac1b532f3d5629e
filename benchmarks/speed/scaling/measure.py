"""Measure what simulated trainings cost: the same generations are played twice in this process, under a clock of CPU time."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator
from functools import cache
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from benchmarks.machine import describe
from benchmarks.speed.scaling.costs import CHUNK, LARGE_POPULATION, Costs
from fastes import Callback, EvolutionStrategy, FastES
from fastes.settings.preset_loader import preset_for
from fastes.training.record import Record

FOREVER = 10**12
_QUICK_GENERATIONS, _GENERATIONS = 200, 30
_WORKERS = (1, 2, 4, 8, 16)


class Played(NamedTuple):
    """An episode under the clock, CPU seconds. marks: when reset had ended, then after each CHUNK steps. ended: its last step.

    clock_step: what the clock costs in each step.
    """

    began: float
    marks: list[float]
    ended: float
    steps: int
    clock_step: float

    def seconds(self) -> float:
        return self.ended - self.began - self.steps * self.clock_step

    def resetting(self) -> float:
        return self.marks[0] - self.began

    def chunks(self) -> list[float]:
        clock = CHUNK * self.clock_step
        return [later - earlier - clock for earlier, later in pairwise(self.marks)]


class Clocked(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Notes this thread's CPU time while episodes are played. cap: steps at which FastES cuts those of candidates."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.cap, self.played, self.clock_step = 0, list[Played](), clock_step_seconds()

    def reset(self, **given: Any) -> Any:
        self.began = time.thread_time()
        first = self.env.reset(**given)
        self.steps, self.marks = 0, [time.thread_time()]
        return first

    def step(self, action: Any) -> Any:
        stepped = self.env.step(action)
        self.steps += 1
        if self.steps % CHUNK == 0:
            self.marks.append(time.thread_time())
        if stepped[2] or stepped[3] or self.steps == self.cap:
            episode = Played(self.began, self.marks, time.thread_time(), self.steps, self.clock_step)
            if self.played and self.played[-1].began == self.began:  # an evaluation goes on where candidates are cut
                self.played[-1] = episode
            else:
                self.played.append(episode)
        return stepped


@cache
def clock_step_seconds(steps: int = 20_000) -> float:
    """CPU seconds that a Clocked adds to a step: with it over without it, in turn."""
    bare, clocked = OneStep(endless=True), Clocked.__new__(Clocked)
    gymnasium.Wrapper.__init__(clocked, bare)
    clocked.cap, clocked.played, clocked.clock_step = 0, [], 0.0
    clocked.reset()

    def seconds(step: Any) -> float:
        began = time.thread_time()
        for _ in range(steps):
            step(None)
        return (time.thread_time() - began) / steps

    return max(0.0, statistics.median(seconds(clocked.step) - seconds(bare.step) for _ in range(9)))


class ClockedTraining:
    """A training in this process, one generation at a time: `generation()` gives the episodes that it played, in order."""

    def __init__(self, env: str, seed: int) -> None:
        self.clocked: list[Clocked] = []
        self.model = FastES(lambda: self._build(env), preset=preset_for(env), n_workers=0, seed=seed, target_return="none")
        self.evaluations = self.model.settings.eval_episodes
        self.take()

    def _build(self, env: str) -> gymnasium.Env[Any, Any]:
        self.clocked.append(Clocked(gymnasium.make(env, disable_env_checker=True)))
        return self.clocked[-1]

    def generation(self) -> list[Played]:
        self.model.learn(FOREVER, OneGeneration(), reset_num_timesteps=False)
        return self.take()

    def take(self) -> list[Played]:
        """What was played since the last call. Cuts candidates where the model does from now on."""
        played = [episode for clocked in self.clocked for episode in clocked.played]  # the model keeps one for its spaces
        for clocked in self.clocked:
            clocked.cap = self.model.cap.steps
            clocked.played.clear()
        return played


class OneGeneration(Callback):
    """Ends training with the generation that is running."""

    def on_generation(self, model: FastES, record: Record) -> bool:  # noqa: ARG002
        return False


class CpuOfGenerations(Callback):
    """Ends training after some generations, and keeps this process's CPU time at the end of each."""

    def __init__(self, count: int) -> None:
        self.count, self.moments = count, list[float]()

    def on_generation(self, model: FastES, record: Record) -> bool:  # noqa: ARG002
        self.moments.append(time.process_time())
        return len(self.moments) < self.count

    def seconds(self) -> list[float]:
        return np.diff(self.moments).tolist()


class OneStep(gymnasium.Env[Any, Any]):
    """An environment that takes no time. endless: its episodes have more than one step."""

    def __init__(self, endless: bool = False) -> None:
        self.endless = endless
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (17,))
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (6,))
        self.np_random = np.random.default_rng(0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:  # noqa: ARG002
        if seed is not None:
            self.np_random = np.random.default_rng(seed)
        return np.zeros(17), {}

    def step(self, action: Any) -> Any:  # noqa: ARG002
        return np.zeros(17), float(self.np_random.standard_normal()), not self.endless, False, {}


def measure(env: str, seconds: float, seed: int = 0) -> Costs:
    """The costs of an environment's training with its preset, from as many generations as can be played in the time."""
    first, second = ClockedTraining(env, seed), ClockedTraining(env, seed)
    pairs: list[tuple[list[Played], list[Played]]] = []
    until = time.perf_counter() + seconds
    while len(pairs) < 3 or time.perf_counter() < until:
        pairs.append((first.generation(), second.generation()))
    generations = [generation for pair in pairs[1:] for generation in pair]
    episodes = [played for generation in generations for played in generation]
    evaluations = first.evaluations
    message = message_seconds()
    costs = Costs(
        env=env,
        machine=describe(),
        chunk_seconds=chunk_medians(episodes),
        reset_seconds=statistics.median(played.resetting() for played in episodes),
        job_seconds=statistics.median(between(generations)),
        spread=0.0,
        update_seconds=statistics.median(parent_seconds(env, preset_for(env), 1, _GENERATIONS)) - message,
        message_seconds=message,
        num_params=first.model.policy_spec.num_params,
        obs_size=first.model.policy_spec.obs_size,
        large_update_seconds=update_of_population(first.model.policy_spec.num_params, LARGE_POPULATION),
        lengths=[[played.steps for played in pair[0][evaluations:]] for pair in pairs],
        evaluation_lengths=[played.steps for pair in pairs for played in pair[0][:evaluations]],
    )
    return costs._replace(spread=spread(costs, pairs[1:], evaluations))


def chunk_medians(episodes: list[Played]) -> list[float]:
    """Median seconds of the first CHUNK steps, of the next ones, ...; as many as a tenth of the longest episodes have."""
    columns = [[s for s in column if s is not None] for column in zip_longest(*(played.chunks() for played in episodes))]
    known = [statistics.median(column) for column in columns if len(column) >= 3]
    if not known:
        raise ValueError(f"no episode had {CHUNK} steps")
    return known


def between(generations: list[list[Played]]) -> Iterator[float]:
    """CPU seconds between an episode's last step and the next one's reset, in the same generation."""
    for generation in generations:
        for earlier, later in pairwise(generation):
            yield later.began - earlier.ended


def spread(costs: Costs, pairs: list[tuple[list[Played], list[Played]]], evaluations: int) -> float:
    """Standard deviation of log(time over the mean time for that length) among the candidates of a generation.

    What two plays of the same episode have in common is the episode's own; what they do not is the machine's.
    """
    shared: list[float] = []
    for pair in pairs:
        one, other = (np.array([math.log(p.seconds() / costs.job(p.steps)) for p in played[evaluations:]]) for played in pair)
        shared.append(float(np.mean((one - np.median(one)) * (other - np.median(other)))))
    return math.sqrt(max(0.0, statistics.median(shared)))


def message_seconds() -> float:
    """CPU seconds of the parent for each worker that it wakes: the slope over numbers of workers, on OneStep."""
    medians = [
        statistics.median(parent_seconds(OneStep, "HalfCheetah-v5", workers, _QUICK_GENERATIONS)) for workers in _WORKERS
    ]
    slope, _ = np.polyfit(_WORKERS, medians, 1)
    return float(slope)


def parent_seconds(env: Any, preset: str, workers: int, generations: int) -> list[float]:
    """CPU seconds of the parent for each generation, but the first ones."""
    clock = CpuOfGenerations(generations)
    with FastES(env, preset=preset, n_workers=workers, seed=0, target_return="none") as model:
        model.learn(FOREVER, clock)
    return clock.seconds()[generations // 10 :]


def update_of_population(num_params: int, candidates: int, repeats: int = 5) -> float:
    """CPU seconds of asking and telling a strategy of so many parameters and candidates, in this thread."""
    strategy = EvolutionStrategy(np.zeros(num_params, dtype=np.float32), population_size=candidates, seed=0)
    rng, seconds = np.random.default_rng(0), list[float]()
    for _ in range(repeats):
        started = time.process_time()
        strategy.ask()
        seconds.append(time.process_time() - started)
        returns = rng.standard_normal((candidates // 2, 2))
        started = time.process_time()
        strategy.tell(returns)
        seconds[-1] += time.process_time() - started
    return statistics.median(seconds)
