"""Environments that are another one changed in one way, under ids that name both; importing this module registers them.

`benchmarks.learning.studies.changed:repeat4/Swimmer-v5` acts for 4 steps at a time, `...:late/Swimmer-v5` pays at the end, and
`...:steps30/CyclicMDP-v0` is cut after 30 steps, and `...:length30/TMaze-v0` is a longer maze. The part after the slash is the
base's name, so that tuned settings are found.
"""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium
from gymnasium.envs.registration import register, registry

REPEATS = (2, 3, 4)
CYCLE = "fastes/CyclicMDP-v0"
CYCLE_STEPS = (30, 300, 999)
MAZE = "fastes/TMaze-v0"
MAZE_LENGTHS = (5, 20, 30, 50)  # and its own, 10

AnyEnv = gymnasium.Env[Any, Any]
Stepped = tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]


class ActionRepeat(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Each action is taken `repeat` times, or until the episode ends; rewards add up, and the last observation is seen."""

    def __init__(self, env: AnyEnv, repeat: int) -> None:
        if repeat < 1:
            raise ValueError(f"repeat = {repeat}: expected at least 1")
        super().__init__(env)
        self.repeat = repeat

    def step(self, action: Any) -> Stepped:
        total = 0.0
        for _ in range(self.repeat):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


class LateReward(gymnasium.Wrapper[Any, Any, Any, Any]):
    """All rewards of an episode are paid in its last step, added up in the order in which they came; before, 0.

    Adding up what this pays gives the bits that adding up the rewards themselves gives: 0 + 0 + ... + total is total.
    """

    def __init__(self, env: AnyEnv) -> None:
        super().__init__(env)
        self.total = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.total = 0.0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> Stepped:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.total += float(reward)
        return observation, self.total if terminated or truncated else 0.0, terminated, truncated, info


def build(base: str, repeat: int = 1, late: bool = False, steps: int | None = None, **kwargs: Any) -> AnyEnv:
    """The base, with its own time limit (or `steps`) inside of the change: an episode is as long as it was."""
    env = gymnasium.make(base, max_episode_steps=steps, disable_env_checker=True, **kwargs)
    if repeat > 1:
        env = ActionRepeat(env, repeat)
    return LateReward(env) if late else env


def repeated(env: str, repeat: int) -> str:
    """The id of an environment whose actions are repeated; its own for 1."""
    return f"{__name__}:repeat{repeat}/{env}" if repeat > 1 else env


def paid_late(env: str) -> str:
    return f"{__name__}:late/{env}"


def cut_after(steps: int) -> str:
    """The id of the cyclic MDP with a cap of so many steps."""
    return CYCLE if steps == gymnasium.spec(CYCLE).max_episode_steps else f"{__name__}:steps{steps}/{CYCLE.partition('/')[2]}"


def of_length(length: int) -> str:
    """The id of the T-maze whose corridor has so many places."""
    return f"{__name__}:length{length}/{MAZE.partition('/')[2]}" if length in MAZE_LENGTHS else MAZE


def _register_changes() -> None:
    for spec in [spec for spec in registry.values() if spec.namespace is None]:
        changes = {f"repeat{repeat}": {"repeat": repeat} for repeat in REPEATS} | {"late": {"late": True}}
        for name, change in changes.items():
            _register(f"{name}/{spec.id}", spec.id, change)
    for steps in CYCLE_STEPS:
        _register(f"steps{steps}/{CYCLE.partition('/')[2]}", CYCLE, {"steps": steps})
    for length in MAZE_LENGTHS:
        _register(f"length{length}/{MAZE.partition('/')[2]}", MAZE, {"length": length})


def _register(changed: str, base: str, change: dict[str, Any]) -> None:
    if changed not in registry:
        register(changed, entry_point=f"{__name__}:build", kwargs={"base": base, **change})


_register_changes()
