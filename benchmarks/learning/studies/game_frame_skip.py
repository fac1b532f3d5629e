"""Frames that an action lasts, 1 to 4, on an Atari game: the study of Salimans et al. 2017, section 4.3.

As in the paper the curves are over updates, and everything else stays as it is, so that a lower frame-skip has more decisions
in an episode of the same frames. Candidates play the first frames of a game, as in the preset, evaluations all of it.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.csv_records import append_record, read_records
from benchmarks.learning.reports.plots import new_figure, save
from benchmarks.learning.reports.sections import write_sections
from benchmarks.machine import cpu_model, versions
from benchmarks.options import COUNT, COUNT_OR_0
from benchmarks.tables import markdown_table
from fastes import Callback, FastES
from fastes.training.record import Record

QUESTION = "Frame-skip 1 to 4 on an Atari game: updates and time to a score"
SKIPS = (1, 2, 3, 4)
SETTINGS: dict[str, Any] = {
    "eval_lag": 0,
    "eval_every": 1,
    "eval_episodes": 1,
    "episode_cap": "grow",
    "episode_cap_factor": 1.01,
    "target_return": "none",
}


class Point(NamedTuple):
    """A noise-free evaluation. updates, frames of candidates: what led to its parameters; cpu: until then.

    cpu counts the seconds of the process, those of the evaluations before it among them.
    """

    env: str
    skip: int
    seed: int
    updates: int
    frames: int
    score: float
    cpu: float


class Watch(Callback):
    """Notes evaluations, and ends a training once it has that of the parameters after so many updates."""

    def __init__(self, env: str, skip: int, seed: int, updates: int) -> None:
        self.run, self.updates = (env, skip, seed), updates
        self.points, self.began, self.cpu = list[Point](), time.process_time(), 0.0

    def on_generation(self, model: FastES, record: Record) -> bool:  # noqa: ARG002
        updates, frames = record.eval_generation - 1, record.eval_at * self.run[1]
        self.points.append(Point(*self.run, updates, frames, record.eval_return, round(self.cpu, 1)))
        self.cpu = time.process_time() - self.began
        return updates < self.updates


def train(env: str, skip: int, seed: int, updates: int, frames: int) -> list[Point]:
    """One process, one game of evaluation before each update. frames: of a candidate's episode in the first one."""
    watch = Watch(env, skip, seed, updates)
    kwargs, cap = {"frame_skip": skip}, max(1, frames // skip)
    with FastES(env, n_workers=0, seed=seed, env_kwargs=kwargs, episode_cap_start=cap, **SETTINGS) as model:
        model.learn(10**12, watch)
    return watch.points


def first_reached(points: Sequence[Point], score: float) -> Point | None:
    return next((point for point in points if point.score >= score), None)


def section(env: str, points: Sequence[Point], score: float) -> str:
    """A line a frame-skip: medians over seeds."""
    rows = []
    for skip in SKIPS:
        seeds = sorted({point.seed for point in points if point.skip == skip})
        runs = [[point for point in points if (point.skip, point.seed) == (skip, seed)] for seed in seeds]
        if not runs:
            continue
        found = [first_reached(run, score) for run in runs]
        ends = [statistics.median(point.score for point in run[-5:]) for run in runs]
        needed = [float("inf") if point is None else point.updates for point in found]
        seconds = [float("inf") if point is None else point.cpu for point in found]
        rows.append(
            (
                str(skip),
                str(len(runs)),
                f"{statistics.median(ends):.1f} ({min(ends):.1f} to {max(ends):.1f})",
                f"{statistics.median(needed):g} ({max(needed):g})",
                f"{statistics.median(seconds):.0f}",
                f"{statistics.median(run[-1].cpu for run in runs):.0f}",
            )
        )
    header = ("frame-skip", "seeds", "score at the end", f"updates to {score:g} (worst)", "CPU s to it", "CPU s of all")
    return f"## {env}\n\n" + markdown_table(header, rows)


def draw(env: str, points: Sequence[Point], path: Path) -> None:
    figure, axes = new_figure(1)
    for skip in SKIPS:
        of_skip = [point for point in points if point.skip == skip]
        updates = sorted({point.updates for point in of_skip})
        medians = [statistics.median(p.score for p in of_skip if p.updates == each) for each in updates]
        if updates:
            axes[0].plot(updates, medians, label=f"frame-skip {skip}")
    axes[0].set(xlabel="updates", ylabel="noise-free score, one game", title=env)
    axes[0].legend()
    save(figure, path)


def parsed(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.studies game_frame_skip", description=QUESTION)
    parser.add_argument("--env", default="ALE/Freeway-v5", metavar="ID", help="a game (default: %(default)s)")
    parser.add_argument("--score", type=float, default=20.0, help="to date (default: %(default)g)")
    parser.add_argument("--updates", type=COUNT, default=15, metavar="N", help="of a training (default: 15)")
    parser.add_argument("--frames", type=COUNT, default=1_200, metavar="N", help="of a first episode (default: 1200)")
    parser.add_argument("--skips", type=int, nargs="+", default=list(SKIPS), choices=SKIPS, help="default: 1 2 3 4")
    parser.add_argument("--seeds", type=COUNT, default=3, metavar="N", help="trainings of each (default: 3)")
    parser.add_argument("--first-seed", type=COUNT_OR_0, default=0, metavar="K", help="seeds are K, K + 1, ... (default: 0)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="trainings finished in it are kept")
    return parser.parse_args(given)


def run(given: Sequence[str]) -> None:
    """Train what is missing, one after the other; write game_frame_skip.csv, .png and report.md."""
    arguments = parsed(given)
    folder = arguments.out / "game_frame_skip"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "game_frame_skip.csv"
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    for seed, skip in itertools.product(seeds, sorted(arguments.skips, reverse=True)):
        there = [point for point in read_records(path, Point) if point[:3] == (arguments.env, skip, seed)]
        if len(there) > arguments.updates:
            continue
        points = train(arguments.env, skip, seed, arguments.updates, arguments.frames)
        for point in points[len(there) :]:
            append_record(path, point)
        print(f"{arguments.env}, frame-skip {skip}, seed {seed}: {points[-1].score:g}", file=sys.stderr, flush=True)
    points = [point for point in read_records(path, Point) if point.env == arguments.env]
    draw(arguments.env, points, folder / "game_frame_skip.png")
    text = f"{cpu_model()}; {versions()}. Medians over seeds; the score at the end is the median of the last five evaluations."
    picture = "![Frame-skip](game_frame_skip.png)"
    parts = [f"# {QUESTION}", text, section(arguments.env, points, arguments.score), picture]
    print(write_sections(folder / "report.md", parts).read_text(encoding="utf-8"))
