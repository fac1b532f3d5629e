"""Small environments with one bad habit each. `import envs_for_tests` registers Toy-v0; the others are given as factories."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces


class ToyError(Exception):
    """What Toy raises."""


class UnpicklableError(Exception):
    """An exception that pickle cannot write."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.function = lambda: None


class TwoArgumentsError(Exception):
    """An exception that pickle writes and cannot read."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


ERRORS: dict[str, Any] = {
    "ToyError": lambda seed: ToyError("toy fails", seed),
    "UnpicklableError": lambda _: UnpicklableError("toy fails"),
    "TwoArgumentsError": lambda _: TwoArgumentsError("toy", "fails"),
}


def die(how: str) -> None:
    """End this process as real faults do: 'segfault', 'exit' for os._exit(7), or a signal's name."""
    if how == "segfault":
        ctypes.string_at(0)
    elif how == "exit":
        os._exit(7)
    else:
        os.kill(os.getpid(), int(how) if how.isdigit() else signal.Signals[how])


class Toy(gymnasium.Env[Any, Any]):
    """A point to be held near zero; 8 to `length` steps. Bad habits are switched on for env seeds, at a step.

    marker: a path that makes a habit happen once: it is made first, and the habit needs it to be absent.
    while_exists: a path that must exist for `fail_seeds` to fail. parent_pid: the process in which build_* habits rest.
    death: how `kill_seeds` end the process, see `die`. build_hang: a marker of its own.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 20}

    def __init__(
        self,
        length: int = 20,
        fail_seeds: Any = (),
        kill_seeds: Any = (),
        hang_seeds: Any = (),
        nan_seeds: Any = (),
        interrupt_seeds: Any = (),
        at_step: int = 3,
        marker: str = "",
        while_exists: str = "",
        error: str = "ToyError",
        all_nan: bool = False,
        noisy: bool = False,
        step_seconds: float = 0.0,
        parent_pid: int = 0,
        build_error: str = "",
        build_kill: bool = False,
        reuse_buffer: bool = False,
        started: str = "",
        death: str = "SIGKILL",
        build_hang: str = "",
        render_mode: str | None = None,
    ) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.render_mode = render_mode
        self.length, self.at_step, self.error = length, at_step, error
        self.fail_seeds, self.kill_seeds, self.nan_seeds = set(fail_seeds), set(kill_seeds), set(nan_seeds)
        self.hang_seeds, self.interrupt_seeds = set(hang_seeds), set(interrupt_seeds)
        self.marker, self.while_exists, self.started = marker, while_exists, started
        self.death = death
        self.all_nan, self.noisy, self.step_seconds = all_nan, noisy, step_seconds
        self.buffer = np.zeros(3) if reuse_buffer else None
        self.reported = False
        if noisy:
            print("toy: built", file=sys.stderr, flush=True)
        if os.getpid() != parent_pid:
            if build_error:
                raise ToyError(build_error)
            if build_hang and self._first_time(build_hang):
                time.sleep(600.0)
            if build_kill:
                os.kill(os.getpid(), signal.SIGKILL)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if seed is not None and type(seed) is not int:
            raise TypeError(f"seed {seed!r} is a {type(seed).__name__}")
        super().reset(seed=seed, options=options)
        self.env_seed, self.steps = seed, 0
        self.position = self.np_random.normal(size=2)
        self.ends = int(self.np_random.integers(8, self.length + 1))
        if self.noisy:
            print("toy: reset", file=sys.stderr, flush=True)
            if not self.reported:
                print("toy: first reset of a process", file=sys.stderr, flush=True)
            self.reported = True
        if self.started:
            with open(self.started, "a"):
                pass
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.step_seconds:
            time.sleep(self.step_seconds)
        if self.steps == self.at_step:
            self._misbehave()
        self.position = 0.9 * self.position + 0.3 * np.asarray(action, dtype=np.float64)
        reward = 1.0 - float(np.square(self.position).sum())
        if self.all_nan or self.env_seed in self.nan_seeds:
            reward = float("nan")
        return self._observation(), reward, self.steps >= self.ends, False, {}

    def _misbehave(self) -> None:
        seed = self.env_seed
        if seed in self.fail_seeds and (not self.while_exists or os.path.exists(self.while_exists)):
            raise ERRORS[self.error](seed)
        if seed in self.kill_seeds and self._first_time():
            die(self.death)
        if seed in self.hang_seeds and self._first_time():
            if self.marker:
                with open(self.marker, "w") as file:
                    file.write(f"{os.getpid()}\n")
            time.sleep(60.0)
        if seed in self.interrupt_seeds and self._first_time():
            raise KeyboardInterrupt

    def _first_time(self, marker: str = "") -> bool:
        marker = marker or self.marker
        if not marker:
            return True
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def _observation(self) -> Any:
        values = (self.position[0], self.position[1], 0.1 * self.steps)
        if self.buffer is None:
            return np.array(values)
        self.buffer[:] = values
        return self.buffer

    def render(self) -> Any:
        return np.full((51, 37, 3), min(255, 10 * self.steps), dtype=np.uint8)


class AnySpaces(gymnasium.Env[Any, Any]):
    """Observations sampled from a space, actions checked against a space; what came is kept in `seen`."""

    def __init__(self, observation_space: Any, action_space: Any, render_mode: str | None = None) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.render_mode = render_mode
        self.seen: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        if not self.action_space.contains(action):
            raise ToyError(f"{action!r} is not in {self.action_space}")
        self.steps += 1
        self.seen.append(action)
        reward = float(np.sum(spaces.flatten(self.action_space, action)[:1])) if self.steps % 2 else 0.5
        return self.observation_space.sample(), reward, self.steps >= 6, False, {}


class SeedRecorder(Toy):
    """Toy that keeps the seeds of its resets, for tests without workers."""

    seeds: ClassVar[list[Any]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        SeedRecorder.seeds.append(seed)
        return super().reset(seed=seed, options=options)


def register_environments() -> None:
    if "Toy-v0" not in gymnasium.registry:
        gymnasium.register("Toy-v0", entry_point="envs_for_tests:Toy")
        gymnasium.register("Slow-v0", entry_point="envs_for_tests:Toy", kwargs={"step_seconds": 0.01})


register_environments()
