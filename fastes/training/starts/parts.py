"""What several starts are made of: rounds, parts of the budget, and what a start is when it was judged."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from fastes.checkpoints.file_format import Arrays
from fastes.rollout.episode import STEP_GUARD
from fastes.settings.settings import Settings
from fastes.training.episode_cap import EpisodeCap

MOST_GENERATIONS = 100_000  # that a part is thought to have
_UNKNOWN_LENGTH = 1000  # of an episode of an environment that has no limit


class Start(NamedTuple):
    """What a start had learned when it was judged.

    number: from 0.
    score: of the episodes that judged it.
    alternatives: its values of the settings in which starts differ.
    arrays: of strategy and normaliser.
    """

    number: int
    score: float
    episode_cap: int
    first_blocks: int
    alternatives: dict[str, Any]
    arrays: Arrays


class Verdict(NamedTuple):
    """What the judging of a start has led to. Starts and rounds count from 1.

    start, round, score: which start it was, and how it did.
    dropped: starts that are not among the best of the round any more.
    chosen: the start that goes on alone, 0 while others do, too.
    """

    start: int
    round: int
    score: float
    dropped: tuple[int, ...]
    chosen: int


class Stride(NamedTuple):
    """Generations and timesteps that a part takes where no episode ends early. So far lie the draws of starts apart."""

    generations: int
    timesteps: int


def round_sizes(number: int, rounds: int) -> list[int]:
    """How many of so many starts each round has: half of those before, rounded up. No round has one that is alone."""
    sizes = [number]
    while len(sizes) < rounds and sizes[-1] > 2:
        sizes.append(-(-sizes[-1] // 2))
    return sizes


def usual_parts(settings: Settings, budget: int, episode_limit: int | None) -> tuple[Stride, ...]:
    """Of each round of a training with this budget. episode_limit: the environment's, None where it has none."""
    cap, strides = EpisodeCap(settings), list[Stride]()
    limit = min(settings.longest_episode() or STEP_GUARD, episode_limit or STEP_GUARD)
    limit = limit if limit < STEP_GUARD else _UNKNOWN_LENGTH
    sizes = round_sizes(settings.starts, settings.starts_rounds)
    for size in sizes:
        generations, timesteps, part = 0, 0, settings.starts_share * budget / (len(sizes) * size)
        before = sum(parts * stride.timesteps for parts, stride in zip(sizes, strides, strict=False))
        while timesteps < part and generations < MOST_GENERATIONS:
            remaining = max(0.0, 1.0 - (before + timesteps) / budget)
            steps, episodes = min(cap.steps, limit), settings.population_size * settings.episodes_at(remaining)
            warm_up = not (generations or strides) and settings.obs_warmup and settings.normalize_obs
            timesteps += max(episodes * steps, settings.generation_timesteps_at(remaining)) * (2 if warm_up else 1)
            cap.update(steps, int(steps >= cap.steps), 1)
            generations += 1
        # schedules go by the parts themselves: what last generations have beyond would run through the budget in many rounds
        strides.append(Stride(generations, timesteps if len(sizes) == 1 else min(timesteps, math.ceil(part))))
    return tuple(strides)
