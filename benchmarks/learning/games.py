"""Trainings of Atari games, from their run folders: what they reached after how many frames and core-hours, and the curves.

The trainings themselves are `fastes train ALE/<Game>-v5`, with what a user gets.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.csv_records import write_records
from benchmarks.learning.reports.plots import new_figure, save
from benchmarks.learning.reports.sections import write_sections
from benchmarks.learning.runs.run_folder import read_ended
from benchmarks.machine import cpu_model
from benchmarks.tables import markdown_table
from fastes.errors import FastESError

# Salimans et al. 2017, table 2: an hour on 720 cores
PAPER = {
    "BeamRider": 744.0,
    "Boxing": 49.8,
    "Breakout": 9.5,
    "Freeway": 31.0,
    "Pong": 21.0,
    "Qbert": 147.5,
    "Seaquest": 1390.0,
}
_POINTS = 30  # of a curve that is kept


class Game(NamedTuple):
    """One training. score, std, worst: of `episodes` whole games with the parameters that were kept. frames: candidates' and
    evaluations'; core_hours: as `runs.run_folder` counts them."""

    game: str
    seed: int
    frames: int
    core_hours: float
    score: float
    std: float
    worst: float
    episodes: int
    first: float
    versions: str


class Point(NamedTuple):
    """The running median of a training's evaluations. frames: of candidates alone, until then."""

    game: str
    seed: int
    frames: int
    score: float


def read_game(folder: Path) -> tuple[Game, list[Point]]:
    """Raises FastESError where the training has not ended."""
    run = read_ended(folder)
    game = run.env.removeprefix("ALE/").removesuffix("-v5")
    skip = int(run.env_kwargs.get("frame_skip", 4))
    told = (run.outcome.mean, run.outcome.std, run.outcome.worst, run.outcome.episodes, run.first, run.versions)
    points = [Point(game, run.seed, int(skip * run.at[k]), float(run.median[k])) for k in run.sampled(_POINTS)]
    return Game(game, run.seed, skip * run.steps, round(run.core_hours, 3), *told), points


def table(games: Sequence[Game]) -> str:
    header = (
        "game",
        "seed",
        "frames",
        "core-hours",
        "first evaluation",
        "score",
        "worst",
        "paper, 1e9 frames",
    )
    rows = [
        (
            *(each.game, str(each.seed), f"{each.frames / 1e6:.1f}M", f"{each.core_hours:.2f}", f"{each.first:g}"),
            f"{each.score:.1f} +- {each.std:.1f}",
            f"{each.worst:g}",
            f"{PAPER[each.game]:g}" if each.game in PAPER else "",
        )
        for each in games
    ]
    return markdown_table(header, rows)


def draw(points: Sequence[Point], path: Path) -> None:
    """A panel a game, a line a seed, the paper's score dotted."""
    games = sorted({point.game for point in points})
    columns = min(3, len(games))
    figure, panels = new_figure(columns, math.ceil(len(games) / columns))
    for panel, game in zip(panels, games, strict=False):
        for seed in sorted({point.seed for point in points if point.game == game}):
            line = [point for point in points if (point.game, point.seed) == (game, seed)]
            panel.plot([point.frames / 1e6 for point in line], [point.score for point in line], label=f"seed {seed}")
        if game in PAPER:
            panel.axhline(PAPER[game], color="grey", linestyle=":", label="paper, 1000M frames")
        panel.set(title=game, xlabel="candidates' frames, millions")
        panel.legend(fontsize=8)
    for panel in panels[len(games) :]:
        panel.set_visible(False)
    figure.supylabel("noise-free score, running median")
    save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.games", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders, such as runs/ALE-Pong-v5/1")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where games.csv, curves.csv, games.png go")
    arguments = parser.parse_args()
    try:
        read = [read_game(folder) for folder in arguments.runs]
    except FastESError as error:
        raise SystemExit(str(error)) from None
    read.sort(key=lambda each: each[0][:2])
    arguments.out.mkdir(parents=True, exist_ok=True)
    games, points = [game for game, _ in read], [point for _, of_game in read for point in of_game]
    write_records(arguments.out / "games.csv", games)
    write_records(arguments.out / "curves.csv", points)
    draw(points, arguments.out / "games.png")
    told = (
        "`python -m benchmarks.learning.games`, from run folders of `fastes train ALE/<Game>-v5`. Frames count those of "
        "evaluations. The paper's scores are of 720 core-hours (Salimans et al. 2017)."
    )
    made = "\n".join(f"- {each}" for each in sorted({f"{cpu_model()}; {game.versions}" for game in games}))
    parts = ["# Atari games from pixels", told, made, table(games), "![Curves](games.png)"]
    print(write_sections(arguments.out / "games.md", parts).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
