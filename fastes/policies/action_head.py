"""Action heads: how the outputs of the last layer become an action of the environment's space."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from fastes.errors import suggest

BOX_MAPPINGS = ("clip", "squash", "bins")


class ActionKind(NamedTuple):
    """A kind of action in words.

    Attributes:
        noise: The setting by which training actions vary, '' if none does.
        outputs: The meaning of the policy's outputs.
        actions: The actions themselves, with their spaces.
    """

    noise: str
    outputs: str
    actions: str


KINDS = {
    "clip": ActionKind("action_noise", "a number for each component of the action space", "numbers (Box)"),
    "squash": ActionKind("action_noise", "a number for each component of the action space", "numbers (Box)"),
    "bins": ActionKind(
        "", "{num_bins} logits for each component of the action space", "numbers (Box) that action_mapping = 'bins' chooses"
    ),
    "categorical": ActionKind(
        "sample_actions", "a logit for each choice of the action space", "choices (Discrete or MultiDiscrete)"
    ),
    "binary": ActionKind("sample_actions", "a logit for each switch of the action space", "switches (MultiBinary)"),
}


@dataclass(frozen=True)
class ActionHead:
    """An action space as the C core needs it.

    Attributes:
        kind: clip, squash, bins (Box), categorical (Discrete, MultiDiscrete), binary (MultiBinary).
        dtype: Dtype of the kernel's actions.
        shape: Shape of an action, () for a Discrete.
        size: Number of components.
        num_outputs: Width of the last layer.
        low, high: Bounds of each Box component, infinite for none.
        num_bins: Values per component for 'bins', else 0.
        nvec: Number of choices of each categorical component.
        start: The first choice of each.
        cast: Dtype of the space's actions if it is not the kernel's, else empty.
    """

    kind: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    num_outputs: int
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    num_bins: int = 0
    nvec: tuple[int, ...] = ()
    start: tuple[int, ...] = ()
    cast: str = ""

    def fits(self, other: ActionHead | None) -> bool:
        """Return whether actions of another head are of the same space. Older files have no dtype of a Discrete."""
        return other is not None and self == (replace(other, cast=self.cast) if self.scalar and not self.cast else other)

    @property
    def noise(self) -> str:
        """The setting by which training actions of this kind vary, '' if none does."""
        return KINDS[self.kind].noise

    @property
    def actions(self) -> str:
        """The actions in words, with the kind of their space."""
        return KINDS[self.kind].actions

    @property
    def outputs(self) -> str:
        """The meaning of the policy's outputs, in words."""
        return KINDS[self.kind].outputs.format(num_bins=self.num_bins)

    def spans(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return the factor and the summand of each output of a Box, which is then clipped to the bounds; float64 (size,) each.

        Components with bounds are spanned by -1 to 1; the others are the outputs themselves.
        """
        low, high = np.array(self.low), np.array(self.high)
        bounded = np.isfinite(low) & np.isfinite(high)
        with np.errstate(invalid="ignore"):
            return np.where(bounded, (high - low) / 2, 1.0), np.where(bounded, (high + low) / 2, 0.0)

    @property
    def scalar(self) -> bool:
        """Whether an action is a single number (Discrete)."""
        return self.kind == "categorical" and self.shape == ()


def actions_in_words(head: ActionHead | None) -> str:
    """Return the actions of a head in words, for a message."""
    if head is None:
        return "actions of its own"
    if head.kind == "categorical":
        return f"actions with {' x '.join(map(str, head.nvec))} choices from {' x '.join(map(str, head.start))} on"
    if head.kind == "binary":
        return f"{head.size} switches"
    numbers = ", ".join(f"{low:g} to {high:g}" for low, high in zip(head.low, head.high, strict=True))
    return f"actions {head.shape} of {head.dtype}, {head.kind}, from {numbers}"


def make_action_head(space: spaces.Space[object], mapping: str = "clip", num_bins: int = 10) -> ActionHead:
    """Return the head for an action space.

    Args:
        space: The environment's action space.
        mapping: For Box with finite bounds, 'clip' (outputs in [-1, 1] span low to high, others are clipped), 'squash' (tanh
            first) or 'bins' (num_bins values per component, the largest output picks one).
        num_bins: Values per component of 'bins'.

    Raises:
        ValueError: Another mapping or number of bins, or a space that is not supported.
    """
    mapping, num_bins = check_mapping("action_mapping", mapping), check_num_bins("num_bins", num_bins)
    if isinstance(space, (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)) and 0 in space.shape:
        raise ValueError(f"action space {space} is empty: expected at least one component")
    if len(space.shape or ()) > 32:
        raise ValueError(f"action space {space} has {len(space.shape or ())} dimensions: expected at most 32")
    if isinstance(space, spaces.Box):
        return _box_head(space, mapping, num_bins)
    if isinstance(space, spaces.Discrete):
        n = int(space.n)
        return ActionHead("categorical", "int64", (), 1, n, nvec=(n,), start=(int(space.start),), cast=_cast(space))
    if isinstance(space, spaces.MultiDiscrete):
        nvec = tuple(int(n) for n in np.ravel(space.nvec))
        start = tuple(int(s) for s in np.ravel(space.start))
        shape = space.nvec.shape
        return ActionHead("categorical", "int64", shape, len(nvec), sum(nvec), nvec=nvec, start=start, cast=_cast(space))
    if isinstance(space, spaces.MultiBinary):
        shape = tuple(int(n) for n in space.shape)
        size = int(np.prod(shape))
        return ActionHead("binary", "int8", shape, size, size)
    raise ValueError(
        f"action space {space} is not supported: expected Box, Discrete, MultiDiscrete or MultiBinary. "
        "Wrap the environment (gymnasium.ActionWrapper) so that its actions are one of these"
    )


def _cast(space: spaces.Discrete | spaces.MultiDiscrete) -> str:
    return "" if space.dtype == np.int64 else np.dtype(space.dtype).name


def check_mapping(name: str, mapping: object) -> str:
    """Return a mapping of Box actions, checked; ValueError for anything else."""
    if not isinstance(mapping, str) or mapping not in BOX_MAPPINGS:
        raise ValueError(f"unknown {name} {mapping!r}: expected one of {BOX_MAPPINGS}{suggest(mapping, BOX_MAPPINGS)}")
    return mapping


def check_num_bins(name: str, num_bins: object) -> int:
    """Return a number of bins per component, checked; ValueError for anything else."""
    if type(num_bins) is not int or not 2 <= num_bins < 2**31:
        raise ValueError(f"{name} = {num_bins!r} is not a number of bins: expected an int of at least 2")
    return num_bins


def _box_head(space: spaces.Box, mapping: str, num_bins: int) -> ActionHead:
    dtype = space.dtype
    if dtype is None or dtype.name not in ("float32", "float64"):
        raise ValueError(
            f"action space {space} has dtype {dtype}: expected float32 or float64. For whole numbers use Discrete or "
            "MultiDiscrete, or convert in a wrapper"
        )
    low, high = np.ravel(space.low).astype(np.float64), np.ravel(space.high).astype(np.float64)
    largest = np.finfo(np.float32).max  # this bound or more stands for none
    low, high = np.where(low <= -largest, -np.inf, low), np.where(high >= largest, np.inf, high)
    if mapping != "clip" and not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise ValueError(f"action_mapping {mapping!r} needs finite bounds, the action space is {space}: use 'clip'")
    bins = num_bins if mapping == "bins" else 0
    outputs = len(low) * max(bins, 1)
    bounds = tuple(low.tolist()), tuple(high.tolist())
    return ActionHead(mapping, dtype.name, space.shape, len(low), outputs, bounds[0], bounds[1], bins)
