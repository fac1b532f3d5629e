"""Several trainings side by side on one pool of workers, which differ only in their seeds."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from fastes.agent import CallbackArgument
from fastes.envs.source import EnvArgument
from fastes.errors import check_int, check_seed, shown
from fastes.model import FastES
from fastes.models.one_pool import check_shared, one_pool
from fastes.policies.custom_policy import CustomPolicy
from fastes.pools.pool import run_to_end, side_by_side
from fastes.reports.callbacks import Callback
from fastes.reports.progress_bar import SeedsBar
from fastes.system.console import output_errors_tolerated

MOST_SEEDS = 1000


def train_seeds(
    env: EnvArgument | CustomPolicy,
    seeds: int | Iterable[int] = 5,
    policy: str | CustomPolicy | EnvArgument | None = None,
    *,
    total_timesteps: float | None = None,
    callback: Callable[[FastES], CallbackArgument] | None = None,
    progress_bar: bool = False,
    max_minutes: float | None = None,
    **arguments: Any,
) -> list[FastES]:
    """Train a model for each of several seeds, side by side on one pool of workers.

    >>> from fastes import train_seeds
    >>> models = train_seeds("CartPole-v1", seeds=3, total_timesteps=5_000)
    >>> [model.seed for model in models]
    [0, 1, 2]

    Each model is bit for bit that of a separate training. Many workers are busier than with one small population: while they
    wait for one model's last episodes, they play those of the others.

    Args:
        env, policy: See FastES.
        seeds: A number of seeds, 0 to seeds - 1, or the seeds.
        total_timesteps: Budget of each model; None for the settings'.
        callback: A function that makes the callbacks of a model, for `learn`; None for none.
        progress_bar: Show a progress bar for all trainings.
        max_minutes: See `learn`; for all trainings together.
        arguments: Arguments of FastES, such as preset, n_workers or a setting.

    Returns:
        The models, in the order of seeds.

    Raises:
        Exception: Any error of FastES and learn. An error in learn, or Ctrl-C, ends all trainings; its attribute `models` has
            the models, each as it was after its last complete generation.
    """
    if "seed" in arguments:
        raise TypeError(
            f"seed = {arguments['seed']!r} is of one training: give all of them as seeds, such as seeds=range(5, 10)"
        )
    if callback is not None and (isinstance(callback, Callback) or not callable(callback)):
        raise TypeError(
            f"callback = {shown(callback)} is a {type(callback).__name__}: expected a function from a model to its callbacks, "
            "as in callback=lambda model: [MyCallback()]"
        )
    models = make_models(lambda seed: FastES(env, policy, seed=seed, **arguments), seeds)
    try:
        bar = [SeedsBar(len(models))] if progress_bar else []
        callbacks = {model.seed: [callback(model), *bar] if callback else bar for model in models}
        train_together(models, lambda model: model.learn_async(total_timesteps, callbacks[model.seed], max_minutes=max_minutes))
    except BaseException as error:
        for model in models:
            model.close()
        error.models = models  # type: ignore[attr-defined]
        raise
    return models


def make_models(make: Callable[[int], FastES], seeds: int | Iterable[int]) -> list[FastES]:
    """Make a model for each seed. make: makes the first one of its seed; the others are copies with another seed."""
    first, *others = check_seeds(seeds)
    model = make(first)
    try:
        check_shared(model.source)
        return [model, *map(model.with_seed, others)]
    except BaseException:
        model.close()
        raise


def check_seeds(seeds: int | Iterable[int]) -> list[int]:
    """Return the seeds of the argument `seeds`; TypeError or ValueError for other values and for repeated seeds."""
    if isinstance(seeds, (str, bytes, dict)) or not (isinstance(seeds, Iterable) or type(seeds) is int):
        raise TypeError(f"seeds = {reprlib.repr(seeds)}: expected how many, such as 5, or the seeds, such as [0, 1, 2]")
    if isinstance(seeds, int):
        return list(range(check_int("seeds", seeds, 1, MOST_SEEDS)))
    found = [check_seed(seed) for seed in seeds]
    if not 0 < len(found) <= MOST_SEEDS or len(set(found)) < len(found):
        raise ValueError(f"seeds = {reprlib.repr(found)}: expected 1 to {MOST_SEEDS} different ones")
    return found


def train_together(models: Sequence[FastES], learn: Callable[[FastES], Coroutine[Any, Any, bool]]) -> None:
    """Train models side by side on one pool. learn: starts a model's training, such as `FastES.learn_async`."""
    with output_errors_tolerated(), one_pool(models):
        run_to_end(side_by_side(*[_named(model, learn) for model in models]))


async def _named(model: FastES, learn: Callable[[FastES], Coroutine[Any, Any, bool]]) -> None:
    """Train a model; a note on its errors names its seed."""
    try:
        await learn(model)
    except Exception as error:
        if hasattr(error, "add_note"):  # Python 3.11
            error.add_note(f"[in the training with seed {model.seed}]")
        raise
