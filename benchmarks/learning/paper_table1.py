"""Table 1 of Salimans et al. 2017 (arXiv 1703.03864) on today's tasks: environment steps of ES over those of TRPO.

TRPO with RL Zoo's settings runs to 5M steps; thresholds are initial + share * (final - initial) of its scores. FastES with its
preset and the preset's own budget stops once it has reached the last one. Each ratio is next to the
paper's, whose scores are of other versions of the tasks.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.learning.courses import preset_timesteps
from benchmarks.learning.options import add_place, place_of, seeds_of
from benchmarks.learning.reports.sections import failure_lines, machines, print_report, write_sections
from benchmarks.learning.reports.thresholds import SHARES, final_score, initial_score, progress_thresholds, reached
from benchmarks.learning.runs.clock import Budget
from benchmarks.learning.runs.evaluation import Task
from benchmarks.learning.runs.results import Row, Run, failures, finished_runs, read_rows, runs_of
from benchmarks.learning.runs.resumable import resumable
from benchmarks.learning.runs.runner import is_finished, run_all
from benchmarks.options import COUNT, check_envs
from benchmarks.tables import amount, markdown_table

# Steps of ES over steps of TRPO at 25, 50, 75 and 100 % of TRPO's progress, from the paper
PAPER = {
    "HalfCheetah-v5": (0.15, 0.49, 0.42, 0.58),
    "Hopper-v5": (0.53, 3.64, 6.05, 6.94),
    "InvertedDoublePendulum-v5": (0.46, 0.48, 0.49, 1.23),
    "InvertedPendulum-v5": (0.28, 0.52, 0.78, 0.88),
    "Swimmer-v5": (0.56, 0.47, 0.53, 0.30),
    "Walker2d-v5": (0.41, 5.69, 8.02, 7.88),
}
POINTS = 60  # evaluations of a run: two neighbours lie a factor of 1.15 apart
_FIRST_STEPS = 2000  # of either contestant at its first evaluation: some thresholds are reached soon after


def trpo_tasks(arguments: argparse.Namespace) -> list[Task]:
    budget = Budget(steps=arguments.trpo_timesteps)
    return [_task(env, "trpo", seed, budget) for seed in seeds_of(arguments) for env in arguments.env]


def fastes_tasks(arguments: argparse.Namespace, folders: Sequence[Sequence[Row]]) -> list[Task]:
    """One for each environment in which TRPO has finished and made progress, stopping at TRPO's final score."""
    stops = {}
    for env in arguments.env:
        peers = runs_of("trpo", env, Budget(steps=arguments.trpo_timesteps), folders)
        if peers and final_score(peers) > initial_score(peers):
            stops[env] = final_score(peers)
    seeds = seeds_of(arguments, arguments.es_seeds)
    return [_task(env, "fastes", seed, es_budget(arguments, env), stop) for seed in seeds for env, stop in stops.items()]


def _task(env: str, algo: str, seed: int, budget: Budget, stop_at: float | None = None) -> Task:
    return Task(env, algo, seed, budget, POINTS, stop_at=stop_at, first_share=_FIRST_STEPS / budget.steps)


def es_budget(arguments: argparse.Namespace, env: str) -> Budget:
    """The budget that was asked for, or the preset's own."""
    return Budget(steps=arguments.es_timesteps or preset_timesteps(env))


def ran_far_enough(rows: Iterable[Row], task: Task) -> bool:
    """Finished, and not at a score below today's: TRPO's median moves when seeds are added."""
    rows = [row for row in rows if row.key == task.key]
    runs = [run for run in finished_runs(rows) if run.final.steps >= task.budget.steps or max(run.scores[1:]) >= task.stop_at]
    return is_finished([run.final for run in runs], task)


def row_of(env: str, trpo: Sequence[Run], ours: Sequence[Run]) -> list[list[str]]:
    """One line a share: both contestants' steps, their ratio, and the paper's."""
    initial, final = initial_score(trpo), final_score(trpo)
    lines = []
    for share, paper, threshold in zip(
        SHARES, PAPER.get(env, (math.nan,) * len(SHARES)), progress_thresholds("TRPO", initial, final), strict=False
    ):
        theirs, mine = reached(trpo, threshold.score).steps, reached(ours, threshold.score).steps
        ratio = f"{mine / theirs:.2f}" if math.isfinite(mine) and math.isfinite(theirs) else "never"
        cells = [env, f"{share:.0%}", f"{threshold.score:.1f}", _steps(theirs), _steps(mine), ratio]
        lines.append([*cells, "" if math.isnan(paper) else f"{paper:.2f}", f"{len(trpo)} / {len(ours)}"])
    return lines


def _steps(steps: float) -> str:
    return amount(steps) if math.isfinite(steps) else "never"


def write_table(arguments: argparse.Namespace, sources: Sequence[Path]) -> Path:
    """table1.md in the first folder, from the runs of all. Raises ValueError if no environment has both contestants."""
    rows = [read_rows(source / "results.csv") for source in sources]
    lines, used, unfinished = [], [], []
    for env in arguments.env:
        trpo = runs_of("trpo", env, Budget(steps=arguments.trpo_timesteps), rows)
        ours = runs_of("fastes", env, es_budget(arguments, env), rows)
        found = row_of(env, trpo, ours) if trpo and ours else []
        lines += found
        used += [*trpo, *ours] if found else []
        unfinished += [] if found else [env]
    if not lines:
        raise ValueError(f"no environment has finished runs of both TRPO and FastES in {', '.join(map(str, sources))}")
    header = ("environment", "TRPO's progress", "score", "TRPO steps", "ES steps", "ratio", "paper's ratio", "seeds TRPO / ES")
    parts = [f"# Environment steps of ES over TRPO's at {amount(arguments.trpo_timesteps)}", machines(sources, used)]
    parts.append(markdown_table(header, lines))
    # an environment in which ES never got there counts as the worst ratio: leaving it out would flatter
    ratios = [math.inf if line[5] == "never" else float(line[5]) for line in lines if line[1] == "100%"]
    median = float(np.median(ratios))
    told = f"{median:.2f}" if math.isfinite(median) else "never"
    parts.append(f"Median ratio at 100 % (environments: {len(ratios)}): {told}.")
    if unfinished:
        parts.append(f"Not finished, or TRPO made no progress: {', '.join(unfinished)}.")
    return write_sections(sources[0] / "table1.md", parts + failure_lines(failures(*rows)))


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.paper_table1", description=__doc__)
    parser.add_argument("--env", nargs="+", default=list(PAPER), metavar="ID", help="default: the paper's six, version 5")
    parser.add_argument("--trpo-timesteps", type=COUNT, default=5_000_000, metavar="N", help="default: 5,000,000, the paper's")
    parser.add_argument("--es-timesteps", type=COUNT, metavar="N", help="at most (default: each preset's own)")
    parser.add_argument("--es-seeds", type=COUNT, metavar="N", help="runs of FastES (default: as --seeds)")
    add_place(parser, seeds=2)
    arguments = parser.parse_args(given)
    sources = [arguments.out, *arguments.merge]
    if not arguments.report_only:
        check_envs(parser, arguments.env)
        arguments.out.mkdir(parents=True, exist_ok=True)
        place = place_of(parser, arguments)
        with resumable():
            run_all(trpo_tasks(arguments), place)
            run_all(fastes_tasks(arguments, [read_rows(source / "results.csv") for source in sources]), place, ran_far_enough)
    print_report(lambda: write_table(arguments, sources))


if __name__ == "__main__":
    main()
