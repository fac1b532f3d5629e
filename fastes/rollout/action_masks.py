"""Action masks, which say which actions an environment allows now: who offers them, as sb3-contrib's MaskablePPO reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

METHOD = "action_masks"
_KEYS = ("action_mask", "action_masks")


def has_mask(info: Any) -> bool:
    """Whether an info offers one, as those of PettingZoo's games and of Gymnasium's Taxi do."""
    return isinstance(info, Mapping) and any(key in info for key in _KEYS)


def masks_are_not_used(where: str) -> str:
    """What to say of masks that are offered. where: by what."""
    return (
        f"the environment offers action masks ({where}), and FastES uses none: a candidate may choose any action of the space. "
        "Let step() answer one that is not allowed (by doing nothing, the nearest action that is allowed, or the end with a "
        "low reward), or put the mask into the observation, a Dict, where a CallablePolicy can apply it"
    )
