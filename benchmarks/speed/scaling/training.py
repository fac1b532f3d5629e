"""Simulated trainings: generations with a barrier each, evaluations that may be reported later, trials, several seeds."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import simpy

from benchmarks.speed.scaling.costs import Costs, Episodes, growing_horizon
from benchmarks.speed.scaling.machine import Kind, Machine, Steps
from fastes.settings.settings import Settings
from fastes.training.selection import TRIAL_EPISODES


class Generation(NamedTuple):
    """CPU seconds of its candidates' jobs and of its noise-free ones."""

    candidates: list[float]
    evaluations: list[float]


class Plan(NamedTuple):
    """A whole training.

    Attributes:
        trials: The generations of each trial.
        selection: CPU seconds of the jobs that judge each trial.
        rest: The further generations of the best trial.
        update_seconds: CPU seconds of the parent after each generation, and after each trial was judged.
    """

    trials: list[list[Generation]]
    selection: list[list[float]]
    rest: list[Generation]
    update_seconds: float

    def work(self) -> float:
        """CPU seconds of all that it does."""
        generations = [generation for trial in self.trials for generation in trial] + self.rest
        jobs = sum(sum(candidates) + sum(evaluations) for candidates, evaluations in generations)
        return jobs + sum(map(sum, self.selection)) + self.update_seconds * (len(generations) + len(self.selection))


class Way(NamedTuple):
    """How evaluations are played and trials follow each other.

    lag: Generations after which a generation's evaluations are reported. 0: they are jobs of the generation itself, claimed
        first, and it ends when all have ended.
    side_by_side: Trials are played together.
    """

    lag: int = 0
    side_by_side: bool = False


def plan_of(costs: Costs, settings: Settings, full_length: int, seed: int, processes: int) -> Plan:
    """Plan a training of settings.total_timesteps on a task that ends no episode early, such as HalfCheetah-v5.

    Args:
        costs: The environment's costs.
        settings: A preset with at most one rung of trials.
        full_length: Steps of an episode that nothing cuts.
        seed: Seed of the spread of episodes' times.
        processes: How many the parent wakes for each generation.
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

    number = settings.trials if settings.trials > 1 else 0
    share = settings.trials_fraction * settings.total_timesteps if number else 0.0
    trials = [play(0, share / number) for _ in range(number)]
    selection = [episodes.jobs([full_length] * TRIAL_EPISODES) for _ in range(number)]
    rest = play(len(trials[0]) if number else 0, settings.total_timesteps - share)
    return Plan(trials, selection, rest, costs.update_seconds + processes * costs.message_seconds)


def train(
    machine: Machine, generations: Iterable[Generation], lag: int, update_seconds: float, ends: list[float] | None = None
) -> Steps:
    """Play generations one after the other, as a SimPy process that ends with the last evaluation.

    Generation g ends when its candidates and the evaluations of generation g - lag have ended, and the parent has made its
    update. ends: takes the moments of these ends.
    """
    open_evaluations = deque[simpy.Event]()
    for candidates, evaluations in generations:
        if lag:
            played = machine.play(Kind.CANDIDATES, candidates)
            open_evaluations.append(machine.play(Kind.EVALUATIONS, evaluations))
            yield played
            while len(open_evaluations) > lag:
                yield open_evaluations.popleft()
        else:
            yield machine.play(Kind.CANDIDATES, evaluations + candidates)
        yield from machine.in_parent(update_seconds)
        if ends is not None:
            ends.append(machine.env.now)
    yield machine.env.all_of(open_evaluations)


def whole_training(machine: Machine, plan: Plan, way: Way) -> Steps:
    """Play the trials, one after the other or side by side, judge each, then continue with the best one."""

    def play_trial(number: int) -> Steps:
        yield from train(machine, plan.trials[number], way.lag, plan.update_seconds)
        yield machine.play(Kind.CANDIDATES, plan.selection[number])
        yield from machine.in_parent(plan.update_seconds)

    if way.side_by_side:
        yield machine.env.all_of([machine.env.process(play_trial(number)) for number in range(len(plan.trials))])
    else:
        for number in range(len(plan.trials)):
            yield from play_trial(number)
    yield from train(machine, plan.rest, way.lag, plan.update_seconds)


def simulate(machine: Machine, plans: Sequence[Plan], way: Way) -> float:
    """Return the wall seconds of trainings that begin together, one plan each."""
    trainings = [machine.env.process(whole_training(machine, plan, way)) for plan in plans]
    machine.env.run(machine.env.all_of(trainings))
    return float(machine.env.now)
