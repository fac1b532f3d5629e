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
    """A noise-free evaluation. frames: of the candidates until then. cpu: seconds of the process until then."""

    env: str
    skip: int
    seed: int
    generation: int
    frames: int
    score: float
    cpu: float


class Watch(Callback):
    """Notes evaluations, and ends a training after so many generations."""

    def __init__(self, env: str, skip: int, seed: int, generations: int) -> None:
        self.run, self.generations = (env, skip, seed), generations
        self.points, self.began = list[Point](), time.process_time()

    def on_generation(self, model: FastES, record: Record) -> bool:  # noqa: ARG002
        frames, cpu = record.timesteps * self.run[1], time.process_time() - self.began
        self.points.append(Point(*self.run, record.generation, frames, record.eval_return, round(cpu, 1)))
        return record.generation < self.generations


def train(env: str, skip: int, seed: int, generations: int, frames: int) -> list[Point]:
    """One process, one game of evaluation each generation. frames: of a candidate's episode in the first one."""
    watch = Watch(env, skip, seed, generations)
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
        updates = [float("inf") if point is None else point.generation for point in found]
        seconds = [float("inf") if point is None else point.cpu for point in found]
        rows.append(
            (
                str(skip),
                str(len(runs)),
                f"{statistics.median(ends):.1f} ({min(ends):.1f} to {max(ends):.1f})",
                f"{statistics.median(updates):g} ({max(updates):g})",
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
        generations = sorted({point.generation for point in of_skip})
        medians = [statistics.median(p.score for p in of_skip if p.generation == each) for each in generations]
        if generations:
            axes[0].plot(generations, medians, label=f"frame-skip {skip}")
    axes[0].set(xlabel="updates", ylabel="noise-free score, one game", title=env)
    axes[0].legend()
    save(figure, path)


def parsed(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.studies game_frame_skip", description=QUESTION)
    parser.add_argument("--env", default="ALE/Freeway-v5", metavar="ID", help="a game (default: %(default)s)")
    parser.add_argument("--score", type=float, default=20.0, help="to date (default: %(default)g)")
    parser.add_argument("--generations", type=COUNT, default=16, metavar="N", help="updates of a training (default: 16)")
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
        if len(there) >= arguments.generations:
            continue
        points = train(arguments.env, skip, seed, arguments.generations, arguments.frames)
        for point in points[len(there) :]:
            append_record(path, point)
        print(f"{arguments.env}, frame-skip {skip}, seed {seed}: {points[-1].score:g}", file=sys.stderr, flush=True)
    points = [point for point in read_records(path, Point) if point.env == arguments.env]
    draw(arguments.env, points, folder / "game_frame_skip.png")
    text = f"{cpu_model()}; {versions()}. Medians over seeds; the score at the end is the median of the last five evaluations."
    picture = "![Frame-skip](game_frame_skip.png)"
    parts = [f"# {QUESTION}", text, section(arguments.env, points, arguments.score), picture]
    print(write_sections(folder / "report.md", parts).read_text(encoding="utf-8"))
