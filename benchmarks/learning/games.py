"""Trainings of Atari games, from their run folders: what they reached after how many frames and core-hours, and the curves.

The trainings themselves are `fastes train ALE/<Game>-v5`, with what a user gets.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.csv_records import merge_records
from benchmarks.learning.reports.ended_trainings import machine_lines, machine_of, read_trainings, report_parser
from benchmarks.learning.reports.plots import new_figure, save
from benchmarks.learning.reports.sections import print_report, write_sections
from benchmarks.learning.runs.run_folder import Ended
from benchmarks.tables import markdown_table

# Salimans et al. 2017, table 2: an hour on 720 cores
PAPER = {
    "BeamRider": 744.0,
    "Boxing": 49.8,
    "Breakout": 9.5,
    "Freeway": 31.0,
    "Pong": 21.0,
    "Qbert": 147.5,
    "Seaquest": 1390.0,
    "SpaceInvaders": 678.5,
}
_GAME = re.compile(r"ALE/(\w+)-v5")
_FRAMES = 4  # a step
_POINTS = 30  # of a curve that is kept


class Game(NamedTuple):
    """One training. score, std, worst: of `episodes` whole games with the parameters that were kept. frames: candidates' and
    evaluations'; core_hours: as `runs.run_folder` counts them; machine: processor, of the machine that
    reports, and versions."""

    game: str
    seed: int
    frames: int
    core_hours: float
    score: float
    std: float
    worst: float
    episodes: int
    first: float
    machine: str


class Point(NamedTuple):
    """The running median of a training's evaluations. frames: of candidates alone, until then."""

    game: str
    seed: int
    frames: int
    score: float


def game_of(run: Ended) -> tuple[Game, list[Point]]:
    """Ends the program where it is no game's."""
    if not (found := _GAME.fullmatch(run.env)):
        raise SystemExit(f"expected run folders of ALE/<Game>-v5, got one of {run.env}")
    name = found[1]
    told = (run.outcome.mean, run.outcome.std, run.outcome.worst, run.outcome.episodes, run.first, machine_of(run))
    points = [Point(name, run.seed, int(_FRAMES * run.at[k]), float(run.median[k])) for k in run.sampled(_POINTS)]
    return Game(name, run.seed, _FRAMES * run.steps, round(run.core_hours, 3), *told), points


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


def write_report(arguments: argparse.Namespace) -> Path:
    new = [game_of(run) for run in read_trainings(arguments.runs)]
    arguments.out.mkdir(parents=True, exist_ok=True)
    games = merge_records(arguments.out / "games.csv", Game, [game for game, _ in new], key=lambda game: game[:2])
    of_games = [point for _, of_game in new for point in of_game]
    points = merge_records(arguments.out / "curves.csv", Point, of_games, key=lambda point: point[:2])
    draw(points, arguments.out / "games.png")
    told = (
        "`python -m benchmarks.learning.games`, from run folders of `fastes train ALE/<Game>-v5`. Frames count those of "
        "evaluations. The paper's scores are of 720 core-hours (Salimans et al. 2017)."
    )
    made = machine_lines(game.machine for game in games)
    parts = ["# Atari games from pixels", told, made, table(games), "![Curves](games.png)"]
    return write_sections(arguments.out / "games.md", parts)


def main() -> None:
    files = "games.csv, curves.csv, games.md and games.png"
    arguments = report_parser("benchmarks.learning.games", __doc__, "runs/ALE-Pong-v5/1", files).parse_args()
    print_report(lambda: write_report(arguments))


if __name__ == "__main__":
    main()
