"""Checks before a training that all it may gather will fit in a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fastes.checkpoints.file_format import MAX_BYTES, Arrays
from fastes.rollout.obs_normalizer import PREFIX
from fastes.settings.settings import Settings
from fastes.system.limits import in_bytes


def check_room(settings: Settings, arrays: Callable[[], Arrays]) -> None:
    """ValueError if trials, snapshots and waiting evaluations can outgrow a checkpoint that holds what one training learns.

    Args:
        settings: Of the training.
        arrays: Gives what one training has learned, with its statistics, as a checkpoint has it.
    """
    if settings.trials == 1 and not settings.archive_size and settings.eval_lag < 2:
        return
    sizes = {name: array.nbytes for name, array in arrays().items()}
    learned, gathered = sum(sizes.values()), largest_gathered(settings, sizes)
    total = settings.trials * (learned + sum(gathered.values()))
    if learned <= MAX_BYTES < total:
        of_trials = {"trials": (settings.trials - 1) * learned}
        most = max(gathered | of_trials, key=lambda name: (gathered | of_trials)[name])
        raise ValueError(
            f"{most} = {getattr(settings, most)}: with {sizes['theta'] // 4:,} parameters a checkpoint would grow to "
            f"{in_bytes(total)}, and it holds {in_bytes(MAX_BYTES)}: use a smaller {most}, or a smaller policy"
        )


def largest_gathered(settings: Settings, sizes: Mapping[str, int]) -> dict[str, int]:
    """Bytes that a checkpoint may have for each of the settings that make a training gather arrays.

    Args:
        settings: Of the training.
        sizes: Bytes of the arrays that it has learned, by name.
    """
    policy = sum(size for name, size in sizes.items() if name == "theta" or name.startswith(PREFIX))
    return {
        "archive_size": (settings.archive_size and settings.archive_size + 1) * policy,
        "eval_lag": settings.evaluations_at_once() * (policy + 8 * settings.largest_population()),
    }
