"""Environments of the old gym: what came from them, what Gymnasium's interface expects, and how to wrap them."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any

import gymnasium

_GYMNASIUM = os.path.dirname(os.path.abspath(gymnasium.__file__))
_CALLERS = (  # files and folders of what calls environments
    os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "rollout", "episode.py"),
    os.path.join(_GYMNASIUM, "core.py"),
    os.path.join(_GYMNASIUM, "wrappers", ""),
)
_STEP = "(observation, reward, terminated, truncated, info)"
_RESET = "(observation, info)"
_WRAP = (
    "An environment of the old gym can be wrapped: pip install shimmy, then shimmy.GymV21CompatibilityV0(env=env) where step "
    "returns four values, shimmy.GymV26CompatibilityV0(env=env) else"
)


def advice_on_object(thing: object) -> str:
    """What to do with something that is no gymnasium.Env but has its methods; '' for anything else."""
    if isinstance(thing, gymnasium.Env) or not all(callable(getattr(thing, name, None)) for name in ("reset", "step")):
        return ""
    if hasattr(thing, "num_envs"):
        return (
            ". It is a vector environment: pass it itself as env, FastES(make()) and not FastES(make), to have it driven as it "
            "is; or, to have it played by workers, a function that returns one of its environments"
        )
    if hasattr(thing, "possible_agents") or hasattr(thing, "agents"):
        return (
            ". It has several agents, as PettingZoo's environments do, and FastES trains one: write a gymnasium.Env that gives "
            "all agents one policy's actions and returns one reward, such as the sum"
        )
    return (
        ". It has reset and step: derive its class from gymnasium.Env, with reset(seed=..., options=...) that returns "
        f"{_RESET} and step(action) that returns {_STEP}. {_WRAP}"
    )


def advice_on_episode(error: Exception, first: Any) -> str:
    """An exception in an episode and what to do about it, where the environment's reset or step is an old one's; else ''.

    first: what reset returned, None where it did not return.
    """
    said = str(error)
    if first is not None and not (isinstance(first, (tuple, list)) and len(first) == 2):
        return f"{said}. {_WRAP}"
    if not _between_environments(error.__traceback__):
        return ""
    if isinstance(error, TypeError) and "unexpected keyword argument 'seed'" in said:
        return f"{said}: env.reset takes no seed: expected reset(seed=..., options=...), which returns {_RESET}. {_WRAP}"
    if "unpack" not in said:
        return ""
    if first is None or "expected 2" in said:
        return f"{said}: env.reset did not return two values: expected {_RESET}, as Gymnasium has it. {_WRAP}"
    return f"{said}: env.step did not return five values: expected {_STEP}, as Gymnasium has it. {_WRAP}"


def _between_environments(trace: TracebackType | None) -> bool:
    """Whether an exception was raised by who called the environment, FastES or a wrapper of Gymnasium's, and not in it."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_filename.startswith(_CALLERS)
