"""What an environment returned that no policy or sum can take, in words, once an exception has come of it."""

from __future__ import annotations

from typing import Any

from fastes.rollout.observation_rows import misfit


def advice_on_step(space: Any, flatten: Any, size: int, returned: Any, reward: Any) -> str:
    """What is wrong with the last observation or reward; '' where neither is, and the exception came of something else.

    flatten: see observation_flattener.
    size: values of a flattened observation.
    returned: the observation.
    """
    try:
        float(reward)
    except (TypeError, ValueError):
        shape = f" of shape {reward.shape}" if hasattr(reward, "shape") else ""
        return (
            f"env.step returned the reward {reward!r:.100}, a {type(reward).__name__}{shape}: expected one number; return "
            "float(reward), of several for instance their sum"
        )
    if flatten is None:
        return ""
    try:
        if len(flatten(returned)) == size:
            return ""
    except Exception:  # this is what is to be told
        pass
    what = misfit(space, returned)
    return f"env returned an observation that is not one of its observation_space: {what}; the space is {space}" if what else ""
