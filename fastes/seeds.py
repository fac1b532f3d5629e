"""Several trainings at once, which differ in their seeds alone, on one pool of workers."""

from __future__ import annotations

import contextlib
import reprlib
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any

from fastes.agent import CallbackArgument
from fastes.envs.source import EnvArgument
from fastes.errors import check_int, check_seed
from fastes.model import FastES
from fastes.policies.custom_policy import CustomPolicy
from fastes.pools.pool import run_trainings
from fastes.reports.progress_bar import SeedsBar
from fastes.system.console import output_lasts
from fastes.training.evaluator import Shared

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
    """Train a model for each of several seeds, all at once on one pool of workers.

    >>> from fastes import train_seeds
    >>> models = train_seeds("CartPole-v1", seeds=3, total_timesteps=5_000)
    >>> [model.seed for model in models]
    [0, 1, 2]

    env, policy: as FastES takes them.
    seeds: how many, 0 to seeds - 1, or the seeds themselves.
    total_timesteps: of each; None for the settings'.
    callback: a function that makes a model's own callbacks, for `learn`; None for none.
    progress_bar: show one over all of them.
    max_minutes: of `learn`, for all of them together.
    arguments: of FastES, such as preset, n_workers or a setting.

    Each model is what a training of its own gives, bit for bit. Many workers have more to do than one small population gives
    them: while one model's last episodes are played, those of the others are, too. Raises what FastES and learn raise; the
    other trainings end with it, and each model is as it was after its last whole generation.
    """
    if "seed" in arguments:
        raise TypeError(
            f"seed = {arguments['seed']!r} is of one training: give all of them as seeds, such as seeds=range(5, 10)"
        )
    models = make_models(lambda seed: FastES(env, policy, seed=seed, **arguments), seeds)
    try:
        bar = [SeedsBar(len(models))] if progress_bar else []
        callbacks = {model.seed: [callback(model), *bar] if callback else bar for model in models}
        train_together(models, lambda model: model.learn_async(total_timesteps, callbacks[model.seed], max_minutes=max_minutes))
    except BaseException:
        for model in models:
            model.close()
        raise
    return models


def make_models(make: Callable[[int], FastES], seeds: int | Iterable[int]) -> list[FastES]:
    """One for each seed. make: a model from a seed; it makes the first one, and the environment is built here once."""
    first, *others = check_seeds(seeds)
    model = make(first)
    try:
        _check_shared(model)
        return [model, *map(model.with_seed, others)]
    except BaseException:
        model.close()
        raise


def _check_shared(model: FastES) -> None:
    if model.source.vector_env is not None:
        raise ValueError(
            f"{model.source.vector_env} cannot be shared by several trainings: pass the environment's id, or a "
            "function that builds one, as env"
        )


def check_seeds(seeds: int | Iterable[int]) -> list[int]:
    """The seeds that are meant; TypeError or ValueError for what means none, or the same one twice."""
    if isinstance(seeds, (str, bytes, dict)) or not (isinstance(seeds, Iterable) or type(seeds) is int):
        raise TypeError(f"seeds = {reprlib.repr(seeds)}: expected how many, such as 5, or the seeds, such as [0, 1, 2]")
    if isinstance(seeds, int):
        return list(range(check_int("seeds", seeds, 1, MOST_SEEDS)))
    found = [check_seed(seed) for seed in seeds]
    if not 0 < len(found) <= MOST_SEEDS or len(set(found)) < len(found):
        raise ValueError(f"seeds = {reprlib.repr(found)}: expected 1 to {MOST_SEEDS} different ones")
    return found


@contextlib.contextmanager
def one_pool(models: Sequence[FastES]) -> Iterator[None]:
    """The models use the first one's pool meanwhile."""
    needs = tuple(each for model in models for each in model.evaluator.needs())
    pool, first = models[0].pool, 0
    try:
        for model in models:
            model.evaluator.share(pool, Shared(first, needs))
            first += len(model.selection.trials)
        yield
    finally:
        for model in models:
            model.evaluator.unshare()
        pool.close()


def train_together(models: Sequence[FastES], learn: Callable[[FastES], Coroutine[Any, Any, bool]]) -> None:
    """Train models side by side on one pool. learn: a model's training, such as `FastES.learn_async`."""
    with output_lasts(), one_pool(models):
        run_trainings(*[_named(model, learn) for model in models])


async def _named(model: FastES, learn: Callable[[FastES], Coroutine[Any, Any, bool]]) -> None:
    """A training whose errors say which one it is."""
    try:
        await learn(model)
    except Exception as error:
        if hasattr(error, "add_note"):  # Python 3.11
            error.add_note(f"[in the training with seed {model.seed}]")
        raise
