"""Words for an observation that no policy can take, once it has led to an exception."""

from __future__ import annotations

from typing import Any

from fastes.rollout.observations.rows import misfit


def advice_on_step(space: Any, flatten: Any, size: int, returned: Any) -> str:
    """The fault of the last observation; '' if it has none, and the exception has another cause.

    flatten: see ObservationReader.
    size: values of a flattened observation.
    returned: the observation.
    """
    if flatten is None:
        return ""
    try:
        if len(flatten(returned)) == size:
            return ""
    except Exception:  # this is what is to be told
        pass
    what = misfit(space, returned)
    return f"env returned an observation that is not one of its observation_space: {what}; the space is {space}" if what else ""
