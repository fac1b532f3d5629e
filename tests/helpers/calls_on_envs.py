"""An environment whose rewards show which calls it was given, and a callback that makes these calls."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from processes import sent_by_value

from fastes import Callback
from fastes.training.record import Record

sent_by_value(__name__)
SETTINGS: dict[str, Any] = {
    "seed": 0,
    "noise_table_size": 10_000,
    "population_size": 8,
    "preset": "default",
    "eval_lag": 1,
    "eval_episodes": 2,
}


class Levels(gymnasium.Env[Any, Any]):
    """Rewards depend on its level, on how often it was raised, and on reset's options."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.level, self.raised, self.bonus, self.weights = 0.0, 0, 0.0, np.zeros(2)

    def raise_by(self, amount: float, times: int = 1) -> int:
        self.level += amount * times
        self.raised += 1
        return self.raised

    def _keep(self, amount: float) -> None:
        self.kept = amount

    def refuse(self) -> None:
        raise RuntimeError("it will not")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time, self.bonus = 0, (options or {}).get("bonus", 0.0)
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        reward = float(action) + 10 * self.level + 1000 * self.raised + 1e5 * self.bonus + 1e6 * float(self.weights.sum())
        return self._observation(), reward, self.time == 3, False, {}

    def _observation(self) -> Any:
        return self.np_random.random(2, dtype=np.float32)


class Wrapped(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Around it, so that attributes are found inside."""


def make() -> Any:
    return Wrapped(Levels())


class Curriculum(Callback):
    """Calls after generations, by number; a worker is killed after those of `kills`."""

    def __init__(self, calls: dict[int, Callable[[Any], object]], kills: tuple[int, ...] = ()) -> None:
        self.calls, self.kills = calls, kills
        self.records: list[Record] = []
        self.returns: list[float] = []

    def on_generation(self, model: Any, record: Record) -> bool:
        self.records.append(record)
        self.returns.append(model.last_episodes[0][0])
        self.calls.get(record.generation, lambda _: None)(model.get_env())
        if record.generation in self.kills:
            pool = model.evaluator.pool
            os.kill(pool.workers[0].process.pid, signal.SIGKILL)
            pool.workers[0].process.wait()
        return True


CALLS: dict[int, Callable[[Any], object]] = {
    1: lambda envs: envs.set_attr("level", 2.0),
    2: lambda envs: [envs.env_method("raise_by", 1.0, times=2), envs.set_attr("weights", np.array([0.5, 0.5]))],
    3: lambda envs: envs.set_options({"bonus": 1.0}),
    5: lambda envs: [envs.set_options(None), envs.env_method("raise_by", 3.0)],
    6: lambda envs: envs.forget_calls(),
}
