"""When a contestant is evaluated, and how: noise-free episodes with raw rewards, on seeds of their own, off the clock."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium

from benchmarks.learning.runs.clock import Budget, Clock
from benchmarks.learning.runs.results import Key
from fastes.rollout.episode import STEP_GUARD

# FastES draws training's seeds below 2**31, and the peers count theirs from the run's seed: these belong to nobody.
CURVE_SEEDS, FINAL_SEEDS = 2**31, 2**31 + 2**20
FIRST_SHARE = 1 / 256  # of the budget: the first evaluation after the one of the untrained policy
_PULSE_SECONDS = 20.0

Act = Callable[[Any], Any]


class Task(NamedTuple):
    """One run.

    episodes: of an evaluation on the way, and of the last.
    points: evaluations in all, the first one untrained.
    stop_at: score of an evaluation that ends the run early, or None.
    first_share: of the budget, when the first trained one is.
    """

    env: str
    algo: str
    seed: int
    budget: Budget
    points: int = 24
    episodes: int = 10
    final_episodes: int = 100
    stop_at: float | None = None
    first_share: float = FIRST_SHARE

    @property
    def name(self) -> str:
        return f"{self.env} {self.algo} seed {self.seed}, {self.budget}"

    @property
    def key(self) -> Key:
        return self.env, self.algo, self.seed, str(self.budget)


def due_shares(points: int, first: float = FIRST_SHARE) -> list[float]:
    """Shares of the budget at which to evaluate, between the untrained policy and the end: each as far as the last, times q."""
    between = points - 2
    return [first ** (1 - k / between) for k in range(between)] if between > 0 else []


def play(env: gymnasium.Env[Any, Any], act: Act, seeds: range, begin: Callable[[], object] = lambda: None) -> list[float]:
    """Raw returns of one episode per seed. begin: called before each, for policies that remember."""
    returns = []
    for seed in seeds:
        observation, _ = env.reset(seed=seed)
        begin()
        total = 0.0
        for _ in range(STEP_GUARD):
            observation, reward, terminated, truncated, _ = env.step(act(observation))
            total += float(reward)
            if terminated or truncated:
                break
        returns.append(total)
    return returns


class Watch:
    """Evaluates a contestant when it is due and writes a record each time.

    act: observation -> noise-free action of the current parameters.
    write: takes a dict.
    clock: started, or about to be.
    begin: called before each episode.
    """

    def __init__(
        self,
        task: Task,
        clock: Clock,
        act: Act,
        write: Callable[[dict[str, Any]], None],
        begin: Callable[[], object],
    ) -> None:
        self.task, self.clock, self.act, self.write, self.begin = task, clock, act, write, begin
        self.due = due_shares(task.points, task.first_share)
        self.env = gymnasium.make(task.env, disable_env_checker=True)
        self.beaten = False  # stop_at was reached
        self._pulse = time.monotonic()

    def check(self, steps: int) -> bool:
        """Evaluate the parameters if it is time to; True while the contestant may continue. Call it between updates."""
        share = self.clock.share(steps)
        if share < 1.0 and (steps == 0 or (self.due and share >= self.due[0])):
            self.due = [later for later in self.due if later > share]
            self._evaluate("point", steps, range(CURVE_SEEDS, CURVE_SEEDS + self.task.episodes))
        elif time.monotonic() - self._pulse > _PULSE_SECONDS:
            self._pulse = time.monotonic()
            self.write({"kind": "alive", "steps": steps})
        return share < 1.0 and not self.beaten

    def finish(self, steps: int, note: str) -> None:
        """The last evaluation."""
        self._evaluate("final", steps, range(FINAL_SEEDS, FINAL_SEEDS + self.task.final_episodes), note)
        self.env.close()

    def _evaluate(self, kind: str, steps: int, seeds: range, note: str = "") -> None:
        with self.clock.paused() as used:
            returns = play(self.env, self.act, seeds, self.begin)
            score, std = statistics.fmean(returns), statistics.pstdev(returns)
            spent = {"steps": steps, "wall": round(used.wall, 3), "cpu": round(used.cpu, 2)}
            self.write({"kind": kind, **spent, "score": score, "std": std, "episodes": len(returns), "note": note})
            self._pulse = time.monotonic()
        self.beaten = self.task.stop_at is not None and math.isfinite(score) and score >= self.task.stop_at
