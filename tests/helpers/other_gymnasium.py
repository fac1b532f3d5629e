"""Classes of Gymnasium as another version has them; workers import it, so that it imports nothing of fastes."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv


def as_of(method: Any, function: Any) -> Any:
    """The function as if it stood in the file of a method: another version, and not one that was put in its place."""
    code = function.__code__.replace(co_filename=method.__code__.co_filename)
    return FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)


USUAL_STEP = CartPoleEnv.step


def narrow_step(self: Any, action: Any) -> Any:
    """The step of a Gymnasium in which episodes of CartPole end earlier, at a place that the first ones do not reach."""
    observation, reward, terminated, *rest = USUAL_STEP(self, action)
    return (observation, reward, terminated or abs(self.state[0]) > 0.6, *rest)


def narrow_cartpole() -> Any:
    """CartPole in that Gymnasium, also in a worker."""
    CartPoleEnv.step = as_of(USUAL_STEP, narrow_step)  # type: ignore[method-assign]
    return gymnasium.make("CartPole-v1", disable_env_checker=True)
