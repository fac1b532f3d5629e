"""Trainings with a preset as plans of a simulation: how long each job takes."""

from __future__ import annotations

from benchmarks.speed.scaling.costs import Costs, Episodes, growing_horizon
from benchmarks.speed.scaling.training import Generation, Plan
from fastes.settings.settings import Settings


def whole_training(costs: Costs, settings: Settings, full_length: int, seed: int, processes: int) -> Plan:
    """A training of settings.total_timesteps on a task that ends no episode early, such as HalfCheetah-v5.

    settings: with one round of starts at most. full_length: steps of an episode that nothing cuts.
    processes: how many the parent wakes for each generation.
    """
    episodes = Episodes(costs, seed)
    caps = growing_horizon(settings.episode_cap_start, settings.episode_cap_factor, full_length)
    if settings.episode_cap != "grow":
        caps = [full_length]
    steps = settings.population_size * settings.episodes_at(1.0)

    def play(first: int, timesteps: float) -> list[Generation]:
        generations, done = list[Generation](), 0
        while done < timesteps:
            cap = caps[min(first + len(generations), len(caps) - 1)]
            candidates = episodes.jobs([cap] * settings.population_size)
            generations.append(Generation(candidates, episodes.jobs([full_length] * settings.eval_episodes)))
            done += cap * steps
        return generations

    update_seconds = costs.update_seconds + processes * costs.message_seconds
    number = settings.starts if settings.starts > 1 else 0
    share = settings.starts_share * settings.total_timesteps if number else 0.0
    starts = [play(0, share / number) for _ in range(number)]
    judging = [episodes.jobs([full_length] * settings.starts_episodes) for _ in range(number)]
    rest = play(len(starts[0]) if number else 0, settings.total_timesteps - share)
    return Plan(starts, judging, rest, update_seconds)
