"""Runs jobs in processes of their own, as many at a time as there are places; what each writes is noted as it comes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from benchmarks.child_process import Child, ChildFailed, with_news


class Job(Protocol):
    """A run that is not done."""

    def start(self, cpus: Sequence[int]) -> Child:
        """Start it on these CPUs, which no other job has meanwhile."""

    def note(self, record: dict[str, Any]) -> None:
        """Write down what it says: a killed program resumes from there."""

    def end(self, failure: str | None) -> None:
        """It has ended. failure: in words, None where it ended well."""


def run_jobs(jobs: Iterable[Job], places: Iterable[Sequence[int]]) -> None:
    """Run all in order; the next one is asked for when a place (its CPUs) is free. A failure stops nothing."""
    waiting, free = iter(jobs), list(places)
    running: dict[Child, tuple[Job, Sequence[int]]] = {}
    with contextlib.ExitStack() as all_end:
        while True:
            while free and (job := next(waiting, None)):
                cpus = free.pop(0)
                running[all_end.enter_context(job.start(cpus))] = job, cpus
            if not running:
                return
            for child in with_news(running):
                job, cpus = running[child]
                if not _goes_on(child, job):
                    child.end()
                    del running[child]
                    free.append(cpus)


def _goes_on(child: Child, job: Job) -> bool:
    try:
        records = child.read()
    except ChildFailed as failure:
        job.end(str(failure))
        return False
    for record in records or ():
        job.note(record)
    if records is None:
        job.end(None)
    return records is not None
