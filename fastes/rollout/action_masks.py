"""Action masks, the actions that an environment allows now, as sb3-contrib's MaskablePPO reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

METHOD = "action_masks"


def has_mask(info: Any) -> bool:
    """Whether an info offers one, as those of PettingZoo's games and of Gymnasium's Taxi do."""
    return isinstance(info, (dict, Mapping)) and ("action_mask" in info or "action_masks" in info)


def masks_are_not_used(where: str) -> str:
    """The warning about masks that are not used. where: what offers them."""
    return (
        f"the environment offers action masks ({where}), and FastES uses none: candidates choose among all actions. If step() "
        "takes any of them, as Taxi's does, that is fine; if not, let it do nothing, or end the episode, for one that is not "
        "allowed, or show the mask in a Dict observation to a CallablePolicy"
    )
