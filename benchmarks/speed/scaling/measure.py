"""Measure the costs of a training: the same generations are played twice in this process, under a clock of CPU time."""

from __future__ import annotations

import math
import statistics
import time
from itertools import pairwise, zip_longest
from typing import Any

import gymnasium
import numpy as np

from benchmarks.machine import describe
from benchmarks.speed.scaling.costs import CHUNK, Costs
from fastes import Callback, FastES
from fastes.training.record import Record

FOREVER = 10**12
_QUICK_GENERATIONS, _GENERATIONS = 200, 30
_WORKERS = (1, 2, 4, 8, 16)


class Episode:
    """The CPU seconds of an episode: marks when reset had ended and after each CHUNK steps, and its last step."""

    def __init__(self, began: float) -> None:
        self.began, self.marks, self.ended, self.steps = began, [time.thread_time()], 0.0, 0

    def seconds(self) -> float:
        """The time of the whole episode, reset included."""
        return self.ended - self.began - self.steps * clock_seconds()

    def chunks(self) -> list[float]:
        """The times of the first CHUNK steps, of the next ones, and so on."""
        return [later - earlier - CHUNK * clock_seconds() for earlier, later in pairwise(self.marks)]


class Clocked(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Notes this thread's CPU time while episodes are played, which other programs do not move."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.played: list[Episode] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        began = time.thread_time()
        first = self.env.reset(seed=seed, options=options)
        self.played.append(Episode(began))
        return first

    def step(self, action: Any) -> Any:
        stepped, episode = self.env.step(action), self.played[-1]
        episode.steps += 1
        episode.ended = time.thread_time()
        if episode.steps % CHUNK == 0:
            episode.marks.append(episode.ended)
        return stepped


_CLOCK_SECONDS: list[float] = []


def clock_seconds(steps: int = 20_000) -> float:
    """CPU seconds that a Clocked adds to a step: with it minus without it, in turn. Measured once."""
    if not _CLOCK_SECONDS:
        bare = OneStep(endless=True)
        clocked = Clocked(bare)
        clocked.reset()

        def seconds(step: Any) -> float:
            began = time.thread_time()
            for _ in range(steps):
                step(None)
            return (time.thread_time() - began) / steps

        _CLOCK_SECONDS.append(max(0.0, statistics.median(seconds(clocked.step) - seconds(bare.step) for _ in range(9))))
    return _CLOCK_SECONDS[0]


class ClockedTraining:
    """A training in this process, played one generation at a time without evaluations."""

    def __init__(self, env: str, seed: int) -> None:
        self.clocked: list[Clocked] = []  # the model keeps one for its spaces
        chosen: Any = {"preset": env, "target_return": "none", "eval_every": FOREVER, "trials": 1}
        self.model = FastES(lambda: self._build(env), n_workers=0, seed=seed, **chosen)

    def _build(self, env: str) -> gymnasium.Env[Any, Any]:
        self.clocked.append(Clocked(gymnasium.make(env, disable_env_checker=True)))
        return self.clocked[-1]

    def generation(self) -> list[Episode]:
        """The episodes of one more generation, in the order in which they were played."""
        for clocked in self.clocked:
            clocked.played.clear()
        self.model.learn(FOREVER, Generations(1), reset_num_timesteps=False)
        return [episode for clocked in self.clocked for episode in clocked.played if episode.steps]


class Generations(Callback):
    """Ends training after `count` generations, and keeps this process's CPU time and the wall seconds of each."""

    def __init__(self, count: int) -> None:
        self.count, self.cpu, self.wall = count, list[float](), list[float]()

    def on_generation(self, model: FastES, record: Record) -> bool:  # noqa: ARG002
        self.cpu.append(time.process_time())
        self.wall.append(record.seconds)
        return len(self.cpu) < self.count


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
    """The costs of a preset's training, from as many generations as can be played in the time."""
    first, second = ClockedTraining(env, seed), ClockedTraining(env, seed)
    pairs: list[tuple[list[Episode], list[Episode]]] = []
    until = time.perf_counter() + seconds
    while len(pairs) < 3 or time.perf_counter() < until:
        pairs.append((first.generation(), second.generation()))
    generations = [generation for pair in pairs[1:] for generation in pair]
    episodes = [episode for generation in generations for episode in generation]
    message = message_seconds(env)
    costs = Costs(
        env=env,
        machine=describe(),
        chunk_seconds=chunk_medians(episodes),
        reset_seconds=statistics.median(episode.marks[0] - episode.began for episode in episodes),
        job_seconds=statistics.median(
            later.began - earlier.ended for generation in generations for earlier, later in pairwise(generation)
        ),
        spread=0.0,
        update_seconds=statistics.median(parent_seconds(env, env, 1, _GENERATIONS)) - message,
        message_seconds=message,
    )
    return costs._replace(spread=spread(costs, pairs[1:]))


def chunk_medians(episodes: list[Episode]) -> list[float]:
    """Median seconds of the first CHUNK steps, of the next ones, and so on, as many as three episodes have."""
    columns = [[s for s in column if s is not None] for column in zip_longest(*(episode.chunks() for episode in episodes))]
    known = [statistics.median(column) for column in columns if len(column) >= 3]
    if not known:
        raise ValueError(f"no episode had {CHUNK} steps")
    return known


def spread(costs: Costs, pairs: list[tuple[list[Episode], list[Episode]]]) -> float:
    """Standard deviation of log(time / mean time for that length) among the candidates of a generation.

    What two plays of the same episode have in common is the episode's own; what they do not is the machine's.
    """
    shared: list[float] = []
    for pair in pairs:
        one, other = (np.array([math.log(each.seconds() / costs.job(each.steps)) for each in played]) for played in pair)
        shared.append(float(np.mean((one - np.median(one)) * (other - np.median(other)))))
    return math.sqrt(max(0.0, statistics.median(shared)))


def message_seconds(preset: str) -> float:
    """CPU seconds of the parent for each worker that it wakes: the slope over numbers of workers, on OneStep."""
    medians = [statistics.median(parent_seconds(OneStep, preset, workers, _QUICK_GENERATIONS)) for workers in _WORKERS]
    slope, _ = np.polyfit(_WORKERS, medians, 1)
    return float(slope)


def parent_seconds(env: Any, preset: str, workers: int, generations: int) -> list[float]:
    """CPU seconds of the parent for each generation of a single start, without the first tenth of them."""
    clock = Generations(generations)
    with FastES(env, preset=preset, n_workers=workers, seed=0, target_return="none", trials=1) as model:
        model.learn(FOREVER, clock)
    return [later - earlier for earlier, later in pairwise(clock.cpu)][generations // 10 :]
