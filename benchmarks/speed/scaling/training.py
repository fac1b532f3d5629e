"""A simulated training: generations with a barrier each, evaluations that may be told later, starts, several seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from benchmarks.speed.scaling.machine import Kind, Machine, Request


class Generation(NamedTuple):
    """CPU seconds of its candidates' jobs and of its noise-free ones."""

    candidates: list[float]
    evaluations: list[float]


class Way:
    """How evaluations are played and starts follow each other.

    lag: generations after which a generation's evaluations are told. 0: they are jobs of the generation itself, claimed first,
    and it is over when all have ended. side_by_side: starts are played together.
    """

    def __init__(self, lag: int = 0, side_by_side: bool = False) -> None:
        self.lag, self.side_by_side = lag, side_by_side


class Training:
    """Plays generations on a machine, one after the other. ended: called after the last one, when all evaluations have ended.

    Generation g ends when its candidates and the evaluations of generation g - lag have ended, and the parent has made its
    update. ends: when those that have ended did.
    """

    def __init__(
        self, machine: Machine, generations: Iterator[Generation], lag: int, update_seconds: float, ended: Callable[[], None]
    ) -> None:
        self.machine, self.generations, self.lag, self.ended = machine, generations, lag, ended
        self.update_seconds = update_seconds
        self.number, self.played_all, self.ends = -1, False, list[float]()
        self.awaited: set[int] = set()  # generations with evaluations that have not ended
        self._begin()

    def _begin(self) -> None:
        generation = next(self.generations, None)
        if generation is None:
            self.played_all = True
            self._end_if_over()
            return
        self.number, self.playing = self.number + 1, True
        number, (candidates, evaluations) = self.number, generation
        if not self.lag:
            self.machine.ask(Request(Kind.CANDIDATES, evaluations + candidates, self._candidates_ended))
            return
        self.machine.ask(Request(Kind.CANDIDATES, candidates, self._candidates_ended))
        if evaluations:
            self.awaited.add(number)
            self.machine.ask(Request(Kind.EVALUATIONS, evaluations, lambda: self._evaluations_ended(number)))

    def _candidates_ended(self) -> None:
        self.playing = False
        self._end_if_over()

    def _evaluations_ended(self, number: int) -> None:
        self.awaited.remove(number)
        self._end_if_over()

    def _end_if_over(self) -> None:
        if self.played_all:
            if not self.awaited:
                self.ended()
            return
        if self.playing or any(number <= self.number - self.lag for number in self.awaited):
            return
        self.playing = True  # until the update is done nothing else may end this generation
        self.machine.in_parent(self.update_seconds, self._end)

    def _end(self) -> None:
        self.ends.append(self.machine.now)
        self._begin()


class Plan(NamedTuple):
    """A whole training: what each start plays and what judges it, and then the best one's generations.

    update_seconds: of the parent after each generation, and after each start was judged.
    """

    starts: list[list[Generation]]
    judging: list[list[float]]
    rest: list[Generation]
    update_seconds: float

    def work(self) -> float:
        """CPU seconds of all that it does."""
        generations = [generation for start in self.starts for generation in start] + self.rest
        jobs = sum(sum(candidates) + sum(evaluations) for candidates, evaluations in generations)
        return jobs + sum(map(sum, self.judging)) + self.update_seconds * (len(generations) + len(self.judging))


class WholeTraining:
    """Plays a plan: starts one after the other or side by side, each is judged, then the rest."""

    def __init__(self, machine: Machine, plan: Plan, way: Way) -> None:
        self.machine, self.plan, self.way, self.judged = machine, plan, way, 0
        if not plan.starts:
            self._play_rest()
        for number in range(len(plan.starts) if way.side_by_side else min(1, len(plan.starts))):
            self._play_start(number)

    def _play(self, generations: list[Generation], then: Callable[[], None]) -> None:
        Training(self.machine, iter(generations), self.way.lag, self.plan.update_seconds, then)

    def _play_start(self, number: int) -> None:
        self._play(self.plan.starts[number], lambda: self._judge(number))

    def _judge(self, number: int) -> None:
        def told() -> None:
            self.machine.in_parent(self.plan.update_seconds, self._go_on)

        self.machine.ask(Request(Kind.CANDIDATES, self.plan.judging[number], told))

    def _go_on(self) -> None:
        self.judged += 1
        if self.judged == len(self.plan.starts):
            self._play_rest()
        elif not self.way.side_by_side:
            self._play_start(self.judged)

    def _play_rest(self) -> None:
        self._play(self.plan.rest, lambda: None)


def simulate(machine: Machine, plans: list[Plan], way: Way) -> float:
    """Wall seconds of trainings that begin together, one plan each."""
    for plan in plans:
        WholeTraining(machine, plan, way)
    return machine.run()
