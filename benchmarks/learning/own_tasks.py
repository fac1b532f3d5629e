"""How good FastES is without a preset on tasks of textbooks and packages, compared with PPO, TRPO, A2C, ARS and CMA-ES."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.child_process import ChildFailed, records_of
from benchmarks.csv_records import append_record, read_records
from benchmarks.learning.own_task_run import OwnTask, Row, read_tasks
from benchmarks.learning.runs.resumable import resumable
from benchmarks.machine import usable_cpus
from benchmarks.options import COUNT_OR_0
from benchmarks.tables import amount, markdown_table

PEERS = ("ppo", "trpo", "a2c", "ars", "cma", "random", "fixed")
_LEVEL = 0.01  # scores that differ by less are level

Scores = Mapping[tuple[str, str], tuple[float, float]]  # of a task and a method: median and worst seed


def chosen_tasks(names: Sequence[str], tasks: Mapping[str, OwnTask]) -> list[OwnTask]:
    """Tasks by their names, or by those of their splits or groups; all without a name.

    Raises:
        ValueError: A name is none of these.
    """
    known = {label for task in tasks.values() for label in (task.name, task.split, task.group)}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(
            f"--tasks {unknown[0]}: expected tasks, splits or groups of own_tasks.toml: {', '.join(sorted(known))}"
        )
    return [task for task in tasks.values() if not names or {task.name, task.split, task.group} & set(names)]


def steps_for(task: OwnTask, method: str, rows: Iterable[Row]) -> int:
    """The task's steps; for 'NAME@PEER' as many as NAME can take in PEER's CPU time, by the medians of finished rows.

    Raises:
        ValueError: NAME or PEER has no row on the task.
    """
    name, _, peer = method.partition("@")
    if not peer:
        return task.steps
    found = list(rows)
    spent = {one: [row for row in found if (row.task, row.method) == (task.name, one)] for one in (name, peer)}
    if missing := [one for one, its in spent.items() if not its]:
        raise ValueError(f"{method} on {task.name}: run {missing[0]} first, whose CPU time it needs")
    seconds = {one: statistics.median(row.cpu for row in its) for one, its in spent.items()}
    return round(task.steps * seconds[peer] / max(seconds[name], 0.1))


def run(tasks: Sequence[OwnTask], methods: Sequence[str], seeds: Sequence[int], out: Path) -> list[str]:
    """Append the rows that are not there yet, one process after the other. Returns what went wrong or was left out."""
    missing = [task for task in tasks if not task.is_installed]
    wrong = [f"{task.name} left out: no module {task.module}; pip install -e '.[own-tasks]'" for task in missing]
    out.parent.mkdir(parents=True, exist_ok=True)
    log = out.with_suffix(".log").absolute()
    for seed in seeds:
        for task in (task for task in tasks if task.is_installed):
            for method in methods:
                rows = read_records(out, Row)
                if (task.name, method, seed) in {(row.task, row.method, row.seed) for row in rows}:
                    continue
                try:
                    given = {"name": task.name, "method": method.partition("@")[0], "seed": seed}
                    given["steps"] = steps_for(task, method, rows)
                    module, cpus = "benchmarks.learning.own_task_run", usable_cpus(None)
                    for record in records_of(module, given, cpus, 1, log.parent, log, float("inf")):
                        append_record(out, Row(**{**record, "method": method}))
                        print(f"{task.name} {method} seed {seed}: {record['score']:g}, {record['cpu']:g} s", file=sys.stderr)
                except (ChildFailed, ValueError) as failure:
                    wrong.append(f"{task.name} {method} seed {seed}: {failure}")
                    print(wrong[-1], file=sys.stderr)
    return wrong


def score_all(rows: Iterable[Row], tasks: Mapping[str, OwnTask]) -> dict[tuple[str, str], tuple[float, float]]:
    """Median and worst seed of each task and method: 0 is the task's zero, 1 its one or the best median, if that is higher."""
    returns: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row.task in tasks:
            returns.setdefault((row.task, row.method), []).append(row.score)
    found = {}
    for (name, method), its in returns.items():
        task = tasks[name]
        medians = [statistics.median(others) for (other, _), others in returns.items() if other == name]
        best = max([*medians, *([] if task.one is None else [task.one])])
        found[name, method] = _score(task.zero, best, statistics.median(its)), _score(task.zero, best, min(its))
    return found


def _score(zero: float, one: float, value: float) -> float:
    return min(max((value - zero) / (one - zero), 0.0), 1.0) if one > zero else 0.0


def tables(scores: Scores, tasks: Mapping[str, OwnTask]) -> str:
    """Scores of each task, their means over groups and splits, and each of our methods compared with recipes and peers."""
    played, methods = dict.fromkeys(task for task, _ in scores), list(dict.fromkeys(method for _, method in scores))
    shown = [task for name, task in tasks.items() if name in played]
    lines = [[t.name, t.split, amount(t.steps), *(_cell([scores.get((t.name, m))]) for m in methods)] for t in shown]
    labels = dict.fromkeys(label for t in shown for label in (f"{t.split}: {t.group}", t.split))
    means = []
    for label in [*labels, "all"]:
        inside = [t for t in shown if label in (f"{t.split}: {t.group}", t.split, "all")]
        means.append([label, str(len(inside)), *(_cell([scores.get((t.name, m)) for t in inside]) for m in methods)])
    ours = [method for method in methods if method.partition("@")[0] not in PEERS]
    peers = [method for method in methods if method not in ours]
    beside = [[mine, recipe_loss(scores, mine), *(_standing(scores, mine, peer) for peer in peers)] for mine in ours]
    parts = [("task", "split", "steps", *methods), ("mean over", "tasks", *methods)]
    parts += [("ours", "loss against a task's best recipe", *(f"ahead, level, behind {peer}" for peer in peers))]
    return "\n\n".join(markdown_table(header, rows) for header, rows in zip(parts, (lines, means, beside), strict=True))


def _cell(found: Sequence[tuple[float, float] | None]) -> str:
    """Means of medians and of worst seeds, and over how many tasks if some are missing."""
    known = [pair for pair in found if pair is not None]
    if not known:
        return ""
    median, worst = (statistics.fmean(values) for values in zip(*known, strict=True))
    return f"{median:.2f} ({worst:.2f})" + (f" of {len(known)}" if len(known) < len(found) else "")


def recipe_loss(scores: Scores, method: str) -> str:
    """The mean over tasks of the best single recipe's score less the method's; the best recipe is chosen in hindsight."""
    losses = []
    for task in (task for task, other in scores if other == method):
        recipes = [
            score for (other, m), (score, _) in scores.items() if other == task and m.startswith("recipe:") and "@" not in m
        ]
        losses += [max(recipes) - scores[task, method][0]] if recipes else []
    return f"{statistics.fmean(losses):.2f}" if losses else ""


def standing(gap: float) -> str:
    """Return whether a method whose score is above another one's by `gap` is 'ahead', 'level' or 'behind'."""
    return "ahead" if gap >= _LEVEL else "behind" if gap <= -_LEVEL else "level"


def _standing(scores: Scores, mine: str, peer: str) -> str:
    gaps = [scores[task, mine][0] - scores[task, peer][0] for task, m in scores if m == mine and (task, peer) in scores]
    found = [standing(gap) for gap in gaps]
    return ", ".join(str(found.count(each)) for each in ("ahead", "level", "behind")) if gaps else ""


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.own_tasks", description=__doc__)
    parser.add_argument("command", choices=("run", "table"), help="run the trainings, or print their scores")
    parser.add_argument("--tasks", nargs="+", default=[], metavar="NAME", help="tasks, splits or groups (default: all)")
    methods = "auto, recipe:<preset>, ppo, trpo, a2c, ars, cma, random, fixed; NAME@PEER: in PEER's CPU time (default: auto)"
    parser.add_argument("--method", nargs="+", default=["auto"], metavar="NAME", help=methods)
    parser.add_argument("--seeds", type=COUNT_OR_0, nargs="+", default=[0, 1, 2], metavar="K", help="default: 0 1 2")
    out = Path("benchmarks/results/studies/own_tasks.csv")
    parser.add_argument("--out", type=Path, default=out, metavar="CSV", help=f"rows; those in it are skipped (default: {out})")
    arguments = parser.parse_args(given)
    tasks, wrong = read_tasks(), []
    try:
        chosen = chosen_tasks(arguments.tasks, tasks)
    except ValueError as error:
        parser.error(str(error))
    if arguments.command == "run":
        with resumable():
            wrong = run(chosen, arguments.method, arguments.seeds, arguments.out)
    else:
        print(tables(score_all(read_records(arguments.out, Row), {task.name: task for task in chosen}), tasks))
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
