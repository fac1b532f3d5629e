"""The preset of environments that have none of their own: chosen over many tasks that count the same, tested on others."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from benchmarks.child_process import Child
from benchmarks.csv_records import append_record, read_records
from benchmarks.learning.reports.sections import write_sections
from benchmarks.learning.runs.contestant import fingerprint
from benchmarks.learning.runs.resumable import resumable
from benchmarks.learning.runs.side_by_side import run_jobs
from benchmarks.learning.studies.default_run import EPISODES, Result
from benchmarks.learning.studies.default_scores import (
    LEAST_TASKS,
    MOST,
    PRESET,
    Scores,
    Task,
    best_of,
    read_table,
    section,
)
from benchmarks.machine import usable_cpus
from benchmarks.options import COUNT, at_least, check_envs
from fastes.settings.preset_loader import DEFAULT, GENERAL, choose_settings, load_preset, preset_for
from fastes.settings.settings import Settings

QUESTION = "A default that transfers: chosen over many tasks of equal weight, tested on others"
FIRST_SEED = 1000  # to choose on; those below are for tests
SCORES = (
    f"Mean return of the last parameters over {EPISODES} noise-free episodes, as a score: 0 for what random actions get or "
    "the best action that never changes, 1 for the preset's reported score or the task's threshold, at most "
    f"{MOST}. Median over seeds, the worst in brackets; each task counts the same. Where tested, the median return stands "
    "behind. `preset`: the task's own, in the steps of the others, which are fewer than those that most were made for."
)
_RUN = "benchmarks.learning.studies.default_run"


class Case(NamedTuple):
    """One training. alternative: of defaults.toml, or PRESET for what the environment has of its own."""

    env: str
    alternative: str
    seed: int
    timesteps: int

    @property
    def name(self) -> str:
        return f"{self.env.replace('/', '-')}-{self.alternative}-{self.seed}"

    @property
    def preset(self) -> str:
        return preset_for(self.env) if self.alternative == PRESET else DEFAULT

    @property
    def changes(self) -> dict[str, Any]:
        return {} if self.alternative == PRESET else read_table().alternatives[self.alternative]

    @property
    def key(self) -> tuple[str, str, int, int]:
        """Of its Result: settings say whether it is done, and not the alternative's name."""
        settings = choose_settings(self.env, self.preset, {**self.changes, "target_return": "none"})
        return self.env, fingerprint(settings), self.seed, self.timesteps


class Training:
    """A case that is not done; its line is written when it is."""

    def __init__(self, case: Case, out: Path, failures: list[str]) -> None:
        self.case, self.out, self.failures = case, out, failures

    def start(self, cpus: Sequence[int]) -> Child:
        case, logs = self.case, self.out / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        given = {**case._asdict(), "preset": case.preset, "changes": case.changes}
        return Child(_RUN, given, cpus, len(cpus), self.out, logs / f"{case.name}.log")

    def note(self, record: dict[str, Any]) -> None:
        append_record(results_file(self.out), Result(**record))
        print(f"{self.case.name}: {record['score']:.1f}, {record['cpu']:.0f} CPU s", file=sys.stderr, flush=True)

    def end(self, failure: str | None) -> None:
        if failure is not None:
            self.failures.append(f"{self.case.name} failed: {failure}")


def results_file(out: Path) -> Path:
    return out / "defaults.csv"


def parsed(given: Sequence[str]) -> argparse.Namespace:
    """Options; choose and test: the tasks that are asked for, by environment id."""
    table = read_table()
    known = [*table.choose, *table.test]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.studies defaults", description=QUESTION)
    names = list(table.alternatives)
    parser.add_argument("--alternatives", nargs="+", default=names, choices=names, metavar="NAME", help="default: %(default)s")
    parser.add_argument("--tasks", nargs="+", default=known, choices=known, metavar="ID", help="default: %(default)s")
    parser.add_argument("--seeds", type=COUNT, default=3, metavar="N", help="to choose on, and to test on (default: 3)")
    parser.add_argument(
        "--first-seed", type=at_least(FIRST_SEED), default=FIRST_SEED, metavar="K", help="to choose on (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="trainings finished in it are kept")
    parser.add_argument(
        "--cores", type=COUNT, metavar="N", help="trainings side by side, a CPU each (default: all that may be used)"
    )
    parser.add_argument("--report-only", action="store_true", help="run nothing: write the report anew from what is there")
    arguments = parser.parse_args(given)
    arguments.choose = {env: task for env, task in table.choose.items() if env in arguments.tasks}
    arguments.test = {env: task for env, task in table.test.items() if env in arguments.tasks}
    if not arguments.choose:
        parser.error(f"--tasks: expected at least one to choose on, of {', '.join(table.choose)}")
    if not arguments.report_only:
        check_envs(parser, [*arguments.choose, *arguments.test])
    arguments.out = (arguments.out / "defaults").absolute()
    return arguments


# --- what is trained ------------------------------------------------------------------------------------------------


def cases_to_choose(arguments: argparse.Namespace) -> list[Case]:
    """In an order that shows something early: seed by seed, all alternatives of a task one after the other."""
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    tried = itertools.product(seeds, arguments.choose.items(), arguments.alternatives)
    return [Case(env, name, seed, task.timesteps) for seed, (env, task), name in tried]


def cases_to_test(arguments: argparse.Namespace, choice: str) -> list[Case]:
    """On seeds that nothing was chosen on: the choice beside each setting's own default, and the presets that there are."""
    tried = itertools.product(range(arguments.seeds), (arguments.choose | arguments.test).items(), (DEFAULT, choice, PRESET))
    cases = [Case(env, name, seed, task.timesteps) for seed, (env, task), name in tried]
    return list(dict.fromkeys(case for case in cases if case.preset != GENERAL))


def returns_of(arguments: argparse.Namespace, cases: Iterable[Case]) -> dict[str, dict[str, list[float]]]:
    """Alternative -> task -> returns, one a seed, of those tasks whose seeds are all there."""
    scores = {result.key: result.score for result in read_records(results_file(arguments.out), Result)}
    found: dict[str, dict[str, list[float | None]]] = {}
    for case in cases:
        found.setdefault(case.alternative, {}).setdefault(case.env, []).append(scores.get(case.key))
    return {
        name: {env: [each for each in of if each is not None] for env, of in by_task.items() if None not in of}
        for name, by_task in found.items()
    }


def scores_of(tasks: Mapping[str, Task], returns: Mapping[str, Mapping[str, Sequence[float]]]) -> Scores:
    """Of the tasks that are named."""
    return {
        name: {env: [tasks[env].score(each) for each in of] for env, of in by_task.items() if env in tasks}
        for name, by_task in returns.items()
    }


def choice_of(arguments: argparse.Namespace) -> str | None:
    """The best of the alternatives that may be chosen and have all tasks and seeds; None where none has."""
    scores = scores_of(arguments.choose, returns_of(arguments, cases_to_choose(arguments)))
    may_be = {name: by_task for name, by_task in scores.items() if name not in read_table().compared_only}
    whole = {name: by_task for name, by_task in may_be.items() if len(by_task) == len(arguments.choose)}
    return best_of(whole) if whole else None


def train_missing(arguments: argparse.Namespace, cases: Iterable[Case], failures: list[str]) -> None:
    done = {result.key for result in read_records(results_file(arguments.out), Result)}
    missing: dict[tuple[Any, ...], Case] = {}
    for case in cases:
        if case.key not in done:
            missing.setdefault(case.key, case)  # alternatives may have the same settings
    jobs = (Training(case, arguments.out, failures) for case in missing.values())
    run_jobs(jobs, [[cpu] for cpu in usable_cpus(arguments.cores)])


# --- from end to end ------------------------------------------------------------------------------------------------


def run(given: Sequence[str]) -> None:
    """Train what is missing, choose, train what tests the choice, and write report.md."""
    arguments, failures = parsed(given), list[str]()
    if not arguments.report_only:
        arguments.out.mkdir(parents=True, exist_ok=True)
        with resumable():
            train_missing(arguments, cases_to_choose(arguments), failures)
            if (choice := choice_of(arguments)) is not None:
                train_missing(arguments, cases_to_test(arguments, choice), failures)
    told = "\n".join(failures)
    if choice_of(arguments) is None:
        raise SystemExit(told or f"none that may be chosen has all these tasks and seeds in {results_file(arguments.out)}")
    print(write_report(arguments).read_text(encoding="utf-8"))
    if told:
        raise SystemExit(told)


def write_report(arguments: argparse.Namespace) -> Path:
    """Of a choice that there is."""
    choice = choice_of(arguments)
    assert choice is not None
    chosen = scores_of(arguments.choose, returns_of(arguments, cases_to_choose(arguments)))
    tested = returns_of(arguments, cases_to_test(arguments, choice))
    seeds = named_seeds(arguments.first_seed, arguments.seeds)
    parts = [f"# {QUESTION}", machines(arguments.out), SCORES, section(f"Chosen on {seeds}", arguments.choose, chosen)]
    parts.append(described(choice, len(arguments.choose)))
    seeds = named_seeds(0, arguments.seeds)
    for title, tasks in ((f"Tested on {seeds}", arguments.choose), (f"Tested on other tasks, {seeds}", arguments.test)):
        scores = {name: of for name, of in scores_of(tasks, tested).items() if of}
        parts.append(section(title, tasks, scores, tested) if scores else "")
    return write_sections(arguments.out / "report.md", parts)


def named_seeds(first: int, number: int) -> str:
    return f"seeds {first} to {first + number - 1}" if number > 1 else f"seed {first}"


def machines(out: Path) -> str:
    names = dict.fromkeys(result.machine for result in read_records(results_file(out), Result))
    return "Machines:\n\n" + "\n".join(f"- {name}" for name in names)


def described(choice: str, tasks: int) -> str:
    """The choice in words, and as the table of a preset."""
    settings = read_table().alternatives[choice]
    same = Settings().changed(**settings) == Settings().changed(**load_preset(GENERAL))
    text = f"The choice: {choice}, which {'is' if same else 'is not yet'} the preset `{GENERAL}`."
    if tasks < LEAST_TASKS:
        text += f" Fewer than {LEAST_TASKS} tasks: a trial, and no choice of a default."
    table = tomli_w.dumps({GENERAL: load_preset(DEFAULT) | settings})
    return f"{text}\n\n```toml\n{table}```"
