"""Trainings under a clock of CPU time, which other programs do not move."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from benchmarks.speed.scaling.costs import CHUNK, preset_measured
from fastes import Callback, FastES
from fastes.training.record import Record

FOREVER = 10**12


class Played(NamedTuple):
    """An episode under the clock, CPU seconds. marks: when reset had ended, then after each CHUNK steps. ended: its last step.

    env_seed: of its reset. clock_step: what the clock costs in each step.
    """

    env_seed: int
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
    """Notes this thread's CPU time while episodes are played. get_cap: the steps at which FastES cuts those of candidates."""

    def __init__(self, env: gymnasium.Env[Any, Any], get_cap: Callable[[], int]) -> None:
        super().__init__(env)
        self.get_cap, self.played, self.clock_step = get_cap, list[Played](), 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.cap, self.env_seed = self.get_cap(), -1 if seed is None else seed
        self.began = time.thread_time()
        first = self.env.reset(seed=seed, options=options)
        self.steps, self.marks = 0, [time.thread_time()]
        return first

    def step(self, action: Any) -> Any:
        stepped = self.env.step(action)
        self.steps += 1
        if self.steps % CHUNK == 0:
            self.marks.append(time.thread_time())
        if stepped[2] or stepped[3] or self.steps == self.cap:
            episode = Played(self.env_seed, self.began, self.marks, time.thread_time(), self.steps, self.clock_step)
            if self.played and self.played[-1].began == self.began:  # an evaluation goes on where candidates are cut
                self.played[-1] = episode
            else:
                self.played.append(episode)
        return stepped


@cache
def clock_step_seconds(steps: int = 20_000) -> float:
    """CPU seconds that a Clocked adds to a step: with it over without it, in turn."""
    bare = OneStep(endless=True)
    clocked = Clocked(bare, lambda: 0)
    clocked.reset()

    def seconds(step: Any) -> float:
        began = time.thread_time()
        for _ in range(steps):
            step(None)
        return (time.thread_time() - began) / steps

    return max(0.0, statistics.median(seconds(clocked.step) - seconds(bare.step) for _ in range(9)))


class PlayedGeneration(NamedTuple):
    """in_order: all of them."""

    candidates: list[Played]
    evaluations: list[Played]
    in_order: list[Played]


class ClockedTraining:
    """A training in this process, played one generation at a time, with evaluations that everybody waits for."""

    def __init__(self, env: str, seed: int) -> None:
        self.clocked: list[Clocked] = []  # the model keeps one for its spaces
        chosen: Any = {"preset": preset_measured(env), "target_return": "none", "eval_lag": 0}
        self.model = FastES(lambda: self._build(env), n_workers=0, seed=seed, **chosen)

    def _build(self, env: str) -> gymnasium.Env[Any, Any]:
        clocked = Clocked(
            gymnasium.make(env, disable_env_checker=True), lambda: self.model.state.episode_settings()[0].max_steps
        )
        clocked.clock_step = clock_step_seconds()
        self.clocked.append(clocked)
        return clocked

    def generation(self) -> PlayedGeneration:
        state = self.model.state
        seeds = {seed for pending in state.to_evaluate() for seed in state.eval_seeds(pending.drawn_as).tolist()}
        for clocked in self.clocked:
            clocked.played.clear()
        self.model.learn(FOREVER, OneGeneration(), reset_num_timesteps=False)
        played = [episode for clocked in self.clocked for episode in clocked.played]
        candidates = [episode for episode in played if episode.env_seed not in seeds]
        evaluations = [episode for episode in played if episode.env_seed in seeds]
        return PlayedGeneration(candidates, evaluations, played)


class OneGeneration(Callback):
    """Ends training with the generation that is running."""

    def on_generation(self, model: FastES, record: Record) -> bool:  # noqa: ARG002
        return False


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
