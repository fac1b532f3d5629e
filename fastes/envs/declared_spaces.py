"""Whether an environment has its two spaces, and what to write where it has none or something else in their place."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

from fastes.errors import shown

_EXAMPLES = {
    "observation_space": "gymnasium.spaces.Box(-1.0, 1.0, (3,))",
    "action_space": "gymnasium.spaces.Discrete(2)",
}


def check_declared(env: Any) -> None:
    """TypeError that names what an environment has in the place of a space."""
    for name, example in _EXAMPLES.items():
        kind = type(getattr(env, "unwrapped", env)).__name__
        expected = f"expected self.{name} = {example}, or another space, in its __init__"
        try:
            space = getattr(env, name)
        except AttributeError as error:
            raise TypeError(f"the environment {kind} has no {name} ({error}): {expected}") from error
        if isinstance(space, spaces.Space):
            continue
        if isinstance(space, type):
            raise TypeError(f"{name} of the environment {kind} is the class {space.__name__} itself: {expected}")
        old = (
            ". It is a space of the old gym: import spaces from gymnasium" if type(space).__module__.startswith("gym.") else ""
        )
        raise TypeError(f"{name} of the environment {kind} is {shown(space, 100)}, a {type(space).__name__}: {expected}{old}")
