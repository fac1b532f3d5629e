"""One page of all comparisons, made from the result files: FastES, PPO, TRPO, ARS, A2C and CMA-ES.

python -m benchmarks.learning.comparison
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.csv_records import read_records
from benchmarks.learning.courses import COURSES
from benchmarks.learning.own_task_run import Row, read_tasks
from benchmarks.learning.own_tasks import score_all, standing
from benchmarks.learning.race import PEERS, our_budget
from benchmarks.learning.reports.plots import COLOURS, NAMES, new_figure
from benchmarks.learning.reports.sections import described_machines
from benchmarks.learning.reports.thresholds import OURS, final_score, first_reached, initial_score, reached
from benchmarks.learning.runs.clock import Budget
from benchmarks.learning.runs.results import Run, finished_runs, machines_of, read_rows, runs_of
from benchmarks.tables import amount, markdown_table
from fastes.settings.preset_loader import all_presets

RESULTS = Path("benchmarks/results")
PAGE, PICTURES = Path("docs/comparison.md"), Path("docs/pictures")
PEER_STEPS = 1_000_000
_NAMES = {**NAMES, "cma": "CMA-ES", "auto": NAMES[OURS]}
_MARKS = {"ppo": "s", "trpo": "^", "a2c": "P", "ars": "D", "cma": "v"}  # of peers, told apart without colours, too
_DOTS = {"auto": COLOURS[OURS], **{who: COLOURS.get(who, "#cc79a7") for who in _MARKS}}
_LANE, _LABEL, _LONGEST = 5.5, 25.0, 21  # heights of a mark's lane and of a label in points, letters in one line
_NEVER = 10.0  # place of "never" on the axis of ratios
_ASKED = argparse.Namespace(timesteps=PEER_STEPS, es_timesteps=None)  # of the race: its usual budgets


class Line(NamedTuple):
    """A task in a picture: a value per contestant. `never` are those that did not get there, at the picture's edge."""

    task: str
    values: Mapping[str, float]
    never: frozenset[str] = frozenset()


# --- tuned settings ---------------------------------------------------------------------------------------------------


def tuned(rows: Sequence[Any]) -> tuple[list[Line], str]:
    """Return the share of a peer's wall time that FastES takes to its last return, as a picture's lines and a table.

    The picture leaves out peers that end no better than they began.
    """
    lines, cells = [], []
    for env in dict.fromkeys(row.env for row in rows):
        shares, never = {}, set()
        for peer in reversed(PEERS):
            budget = our_budget(_ASKED, env, peer)
            ours, theirs = runs_of(OURS, env, budget, [rows]), runs_of(peer, env, Budget(steps=PEER_STEPS), [rows])
            worst = min(run.final.score for run in ours)
            last = f"{final_score(ours):,.1f} ({worst:,.1f}) after {amount(budget.steps)}"
            if not theirs:
                cells.append([env, _NAMES[peer], "not run", "", last, "", "", ""])
                continue
            if len(machines_of([*ours, *theirs])) > 1:
                raise ValueError(f"{env}: {peer} and FastES ran on several machines, whose times do not compare")
            settings = "Zoo's" if theirs[0].final.note.startswith("Zoo's") else "library's"
            score, wall = final_score(theirs), statistics.median(float(run.final.wall) for run in theirs)
            told = [env, _NAMES[peer], settings, f"{score:,.1f}", last]
            if score <= initial_score(theirs):
                cells.append([*told, "peer ends below its start", "", ""])
                continue
            there = reached(ours, score)
            shares[peer] = min(there.wall / wall, _NEVER)
            never |= {peer} if math.isinf(there.wall) else set()
            seeds = sum(math.isfinite(first_reached(run, score, "steps")) for run in ours)
            reach = ("never", "never") if math.isinf(there.wall) else (f"{there.wall / wall:.3f}", amount(there.steps))
            cells.append([*told, *reach, f"{seeds} of {len(ours)}"])
        if shares:
            lines.append(Line(env, shares, frozenset(never)))
    lines.sort(key=lambda line: statistics.fmean(map(math.log, line.values.values())))
    theirs_is = ("task", "peer", "its settings", "its return after 1M steps")
    ours_is = ("FastES's (worst seed) after its budget", "share of its wall time", "steps to its return", "seeds there")
    return lines, markdown_table((*theirs_is, *ours_is), cells)


def tuned_without_peers(rows: Sequence[Any]) -> list[str]:
    """Return the environments that have a preset and no row."""
    raced = {row.env for row in rows}
    return [name for name in all_presets() if re.search(r"-v\d+$", name) and name not in raced]


# --- tasks without tuned settings -------------------------------------------------------------------------------------


def untuned(
    rows: Sequence[Row], methods: Mapping[str, str], shares: Mapping[str, float] | None = None
) -> tuple[list[Line], str]:
    """Return the scores on tasks without tuned settings, as a picture's lines and a table.

    Args:
        rows: Rows of the study.
        methods: Those of the study, by the contestants' names here.
        shares: How much of PPO's CPU time FastES took on each task, for a column of the table.
    """
    tasks = read_tasks()
    scores = score_all(rows, tasks)
    methods = {who: method for who, method in methods.items() if any(played == method for _, played in scores)}
    needed = [method for who, method in methods.items() if who in ("auto", "ppo")]
    names = [name for name in tasks if all((name, method) in scores for method in needed)]
    lines = [
        Line(name, {who: scores[name, method][0] for who, method in methods.items() if (name, method) in scores})
        for name in names
    ]
    lines.sort(key=lead, reverse=True)
    cells = []
    for line in lines:
        values = [_cell(line.values.get(who)) for who in methods]
        taken = [f"{shares[line.task]:.2f}"] if shares else []
        cells.append([line.task, _SPLITS[tasks[line.task].split], *values, *taken, standing(lead(line))])
    column = ["FastES's share of PPO's time"] if shares else []
    median = [f"{statistics.median(shares.values()):.2f} (median)"] if shares else []
    cells.append(["mean", f"{len(lines)} tasks", *(_mean(lines, who) for who in methods), *median, ""])
    return lines, markdown_table(("task", "recipes", *(_NAMES[who] for who in methods), *column, "FastES is"), cells)


def shares_of_time(rows: Sequence[Row], method: str) -> dict[str, float]:
    """Return how much of PPO's CPU time a method takes on each task, as the median over the seeds that both have."""
    seconds = {(row.task, row.seed): row.cpu for row in rows if row.method == "ppo"}
    shares: dict[str, list[float]] = {}
    for row in rows:
        if row.method == method and (row.task, row.seed) in seconds:
            shares.setdefault(row.task, []).append(row.cpu / seconds[row.task, row.seed])
    return {task: statistics.median(its) for task, its in shares.items()}


def trpo_time(rows: Sequence[Row]) -> float:
    """Return the share of PPO's CPU time that TRPO takes, in the median of the tasks; ValueError if it takes more on one."""
    shares = shares_of_time(rows, _IN_TIME["trpo"])
    if longer := [task for task, share in shares.items() if share > 1.0]:
        raise ValueError(f"TRPO takes more CPU time than PPO on {', '.join(longer)}: its scores do not belong beside PPO's")
    return statistics.median(shares.values())


def _cell(value: float | None) -> str:
    return "not run" if value is None else f"{value:.2f}"


def _mean(lines: Sequence[Line], who: str) -> str:
    """A contestant's mean score, and over how many tasks if it has not met all."""
    values = [line.values[who] for line in lines if who in line.values]
    return _cell(statistics.fmean(values)) + ("" if len(values) == len(lines) else f" of {len(values)}")


def lead(line: Line) -> float:
    """How far FastES is above the best other method."""
    return line.values["auto"] - max(value for who, value in line.values.items() if who != "auto")


def losses(lines: Sequence[Line]) -> str:
    """A sentence that names the tasks on which another method is ahead."""
    others = {who for line in lines for who in line.values if who != "auto"}
    best = "the best other method" if len(others) > 1 else _NAMES[others.pop()]
    behind = [line.task for line in lines if standing(lead(line)) == "behind"]
    return f"FastES is behind {best} on {len(behind)} of {len(lines)}: {', '.join(behind)}."


def not_run(lines: Sequence[Line]) -> str:
    """A sentence that counts the tasks on which a method was not run, '' if each has met all."""
    methods = [who for who in _MARKS if any(who in line.values for line in lines)]
    absent = {_NAMES[who]: sum(who not in line.values for line in lines) for who in methods}
    told = ", ".join(f"{name} on {count}" for name, count in absent.items() if count)
    return f"Not run: {told} of {len(lines)} tasks. " if told else ""


# --- equal clock ------------------------------------------------------------------------------------------------------


def clocked(rows: Sequence[Any]) -> str:
    """A table of all contestants after the same wall time."""
    runs = finished_runs(rows)
    cells = []
    for env, budget in dict.fromkeys((run.final.env, run.final.budget) for run in runs):
        its = [run for run in runs if (run.final.env, run.final.budget) == (env, budget)]
        by_algo: dict[str, list[Run]] = {}
        for run in its:
            by_algo.setdefault(run.final.algo, []).append(run)
        for algo, own in sorted(by_algo.items(), key=lambda pair: -final_score(pair[1])):
            worst, steps = min(run.final.score for run in own), statistics.median(run.final.steps for run in own)
            cells.append([env, budget, _NAMES[algo], f"{final_score(own):,.0f} ({worst:,.0f})", amount(steps), str(len(own))])
    return markdown_table(("task", "wall time", "method", "return (worst seed)", "steps in it", "seeds"), cells)


# --- machines ---------------------------------------------------------------------------------------------------------


def machine_cells(part: str, folder: Path) -> list[list[str]]:
    """Rows of a table that says on which machine each environment ran."""
    known = described_machines([folder])
    found: dict[str, dict[str, None]] = {}
    for run in finished_runs(read_rows(folder / "results.csv")):
        found.setdefault(run.final.machine, {})[run.final.env] = None
    return [[part, known[name].partition(";")[0], ", ".join(envs)] for name, envs in found.items()]


# --- pictures ---------------------------------------------------------------------------------------------------------


def draw(lines: Sequence[Line], path: Path, title: str, axis: str, edge: Callable[[Any], object] | None = None) -> None:
    """Draw a row per task: FastES as a bar, and each peer in a lane of its own, so that no mark hides another.

    Args:
        lines: The tasks, the best one for FastES first.
        path: The picture.
        title, axis: Texts above and below it.
        edge: Changes the axes at the end.
    """
    shown = [who for who in _DOTS if any(who in line.values for line in lines)]
    peers = [who for who in shown if who in _MARKS]
    height = max(_LABEL, _LANE * len(peers) + 3)  # of a row, in points
    figure, (axes,) = new_figure(1, size=(5.0, 1.5 + height * len(lines) / 72))
    looks: dict[str, dict[str, Any]] = {who: {"marker": _MARKS[who], "markersize": 5} for who in peers}
    looks["auto"] = {"marker": "|", "markersize": height - 2, "markeredgewidth": 4}
    for row, line in enumerate(reversed(lines)):
        axes.axhspan(row - 0.5, row + 0.5, color="white" if row % 2 else "#f0f0f0", linewidth=0, zorder=0)
        for who, value in line.values.items():
            lane = 0 if who == "auto" else (len(peers) - 1) / 2 - peers.index(who)
            fill = "none" if who in line.never else "full"
            place = row + lane * _LANE / height
            axes.plot([value], [place], color=_DOTS[who], fillstyle=fill, zorder=2 if who == "auto" else 3, **looks[who])
    axes.grid(visible=False, axis="y")
    axes.set_yticks(range(len(lines)), [_label(line.task) for line in reversed(lines)], fontsize=9, linespacing=1.1)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(-0.5, len(lines) - 0.5)
    axes.set_xlabel(axis)
    figure.suptitle(title, fontsize=11)
    if edge is not None:
        edge(axes)
    for who in shown:  # in the legend a mark is full, and a bar no higher than its name
        axes.plot([], [], linestyle="", color=_DOTS[who], label=_NAMES[who], **{**looks[who], "markersize": 9})
    figure.legend(loc="outside lower center", ncols=min(len(shown), 3), frameon=False)
    figure.savefig(path, dpi=140)


def _label(task: str) -> str:
    """A task's name without its version, a long one in two lines."""
    name = re.sub(r"-v\d+$", "", task)
    if len(name) <= _LONGEST:
        return name
    breaks = [found.end() for found in re.finditer(r"[/-]|[a-z](?=[A-Z])", name)]
    middle = min(breaks, key=lambda place: abs(place - len(name) / 2))
    return f"{name[:middle]}\n{name[middle:]}"


def _ratios(axes: Any) -> None:
    axes.set_xscale("log")
    axes.set_xlim(5e-4, 2.2 * _NEVER)
    axes.axvline(1.0, color="#444444", linewidth=1.0, linestyle="--")
    axes.set_xticks([0.001, 0.01, 0.1, 1.0, _NEVER], ["0.1 %", "1 %", "10 %", "as long", "never"])


# --- the page ---------------------------------------------------------------------------------------------------------


class Compared(NamedTuple):
    """The lines of each picture, and the table below it."""

    tuned: tuple[list[Line], str]
    in_time: tuple[list[Line], str]
    trpo_time: float  # its share of PPO's CPU time in the median task
    in_steps: tuple[list[Line], str]
    clocked: str
    alone: list[str]
    versions: str
    machines: list[list[str]]


def compared() -> Compared:
    """Read the result files."""
    own = read_records(RESULTS / "studies" / "own_tasks.csv", Row)
    raced = read_rows(RESULTS / "race" / "results.csv")
    return Compared(
        tuned(raced),
        untuned(own, _IN_TIME, shares_of_time(own, _IN_TIME["auto"])),
        trpo_time(own),
        untuned(own, _IN_STEPS),
        clocked(read_rows(RESULTS / "head_to_head" / "results.csv")),
        tuned_without_peers(raced),
        next(row.versions for row in own if "torch" in row.versions),
        [*machine_cells("tuned", RESULTS / "race"), *machine_cells("two minutes", RESULTS / "head_to_head")],
    )


def page(found: Compared) -> str:
    """The text of the page. It draws no pictures."""
    longer = " and ".join(
        f"below {_NAMES[peer]} on {env}"
        for peer in PEERS
        for env, course in COURSES.items()
        if getattr(course, f"against_{peer}")
    )
    parts = [
        "# Comparison",
        "`python -m benchmarks.learning.comparison` makes this page from the result files. [Results](results.md) explains how "
        "they were measured, and [presets](presets.md) has the returns.",
        "## With tuned settings",
        "![Time to a peer's return](pictures/comparison_tuned.png)",
        "Each method has one core and seeds 0 to 2. PPO and TRPO have 1M steps and RL Zoo's settings, or their library's where "
        "Zoo has none. FastES has its presets. The picture and the table say how long FastES takes to the peer's last return, "
        "as a share of the peer's wall time: left of the dashed line FastES is faster. A hollow mark means that the median "
        "seed never reaches it. On Ant-v5 both peers end below their first return, so the picture leaves it out. On Hopper-v5 "
        "PPO only stands still, and TRPO's seeds end far apart ([results](results.md#compared-with-ppo-and-trpo)).",
        f"With its usual steps FastES ended {longer}, and was run again with more steps against these.",
        found.tuned[1],
        f"No peer was run on the other tuned environments: {', '.join(found.alone)}. [Presets](presets.md#what-they-reach) has "
        "FastES's returns there.",
        "## Without tuned settings, in the same CPU time",
        "![Scores in PPO's CPU time](pictures/comparison_time.png)",
        "FastES races its recipes, and PPO and TRPO have the defaults of SB3 and sb3-contrib. FastES has as many steps as a "
        "shorter training predicts for PPO's CPU time; a column says how much of it they took. TRPO has PPO's steps, "
        f"which took {found.trpo_time:.2f} of it in the median, and never more than all of it. A2C, ARS and CMA-ES were not "
        "run. [Presets](presets.md#what-a-race-reaches) says what the scores 0 and 1 are. PPO and FastES have three seeds, the "
        "others one. " + losses(found.in_time[0]),
        found.in_time[1],
        "## Without tuned settings, in the same steps",
        "![Scores in the same steps](pictures/comparison_steps.png)",
        "The same tasks, 10,000 to 400,000 steps. FastES and PPO are the median of seeds 0 to 2. So are ARS and CMA-ES on "
        "the tasks that were held out; all else is seed 0. PPO, TRPO, A2C and ARS have the defaults of SB3 and sb3-contrib, "
        "and CMA-ES has a linear policy. " + losses(found.in_steps[0]),
        f"{not_run(found.in_steps[0])}ARS takes no MultiDiscrete actions, which mobile-small-central-v0 has.",
        found.in_steps[1],
        "## In two minutes of one core",
        "PPO, TRPO, ARS and A2C have RL Zoo's settings, and FastES its presets. CMA-ES was not run.",
        found.clocked,
        "## Machines and versions",
        markdown_table(("part", "machine", "tasks"), [*found.machines, ["not tuned", "AMD EPYC, 2 shared cores", "all"]]),
        markdown_table(*_versions(found.versions)),
    ]
    return "\n\n".join(part if part[0] in "|!#" else _wrapped(part) for part in parts) + "\n"


def _versions(text: str) -> tuple[list[str], list[list[str]]]:
    """Return the head and the row of a table of 'package version, package version, ...'."""
    pairs = [part.rsplit(" ", 1) for part in text.split(", ")]
    return [name for name, _ in pairs], [[version for _, version in pairs]]


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 128, break_long_words=False, break_on_hyphens=False)


_SPLITS = {"choose": "chosen on it", "held out": "held out"}
_IN_TIME = {"auto": "auto@ppo", "ppo": "ppo", "trpo": "trpo"}
_IN_STEPS = {"auto": "auto", "ppo": "ppo", "trpo": "trpo", "a2c": "a2c", "ars": "ars", "cma": "cma"}


def draw_all(found: Compared) -> None:
    """Draw the page's pictures."""
    share = "share of the peer's wall time;\nleft of the dashed line FastES is faster"
    draw(found.tuned[0], PICTURES / "comparison_tuned.png", "FastES's time to a peer's return", share, _ratios)
    score = "score: 0 random, 1 best known;\na mark right of the bar is ahead of FastES"
    in_time, in_steps = (f"Tasks without tuned settings, in {what}" for what in ("PPO's CPU time", "the same steps"))
    draw(found.in_time[0], PICTURES / "comparison_time.png", in_time, score)
    draw(found.in_steps[0], PICTURES / "comparison_steps.png", in_steps, score)


def main() -> None:
    argparse.ArgumentParser(prog="python -m benchmarks.learning.comparison", description=__doc__).parse_args()
    found = compared()
    draw_all(found)
    PAGE.write_text(page(found), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
