"""Atari games: a queue of trainings, each of one core, and a page with published scores."""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.learning.game_run import EPISODES, Score
from benchmarks.learning.reports.plots import COLOURS, new_grid, save
from benchmarks.learning.runs.training_queue import QueuedTraining, add_queue_options, parsed_flags, read_results, run_queue
from benchmarks.options import COUNT, check_envs
from benchmarks.tables import amount, markdown_table
from fastes.settings.preset_loader import tomllib

_RUN = "benchmarks.learning.game_run"
_COLUMNS = 3  # of the picture
_LEVELS = "#000000"  # colour of what others reach
_OTHERS = {"ES, 1e9 frames": "es", "A3C, 1 day": "a3c", "SB3's PPO, 40M": "ppo", "random": "random", "human": "human"}

Published = Mapping[str, Mapping[str, float]]  # of a game, by the keys of games.toml


def read_published() -> Published:
    found: Published = tomllib.loads(Path(__file__).with_name("games.toml").read_text(encoding="utf-8"))
    return found


def run(games: Sequence[str], flags: str, seeds: Sequence[int], timesteps: int, out: Path, cores: int | None) -> list[str]:
    """Train what has no result yet, all games on one seed before the next one. Returns what failed."""
    done = {(score.game, score.flags, score.seed, score.timesteps) for score in read_results(out, Score)}
    failures = list[str]()
    common = {"flags": flags, "timesteps": timesteps}
    jobs = [
        QueuedTraining(game, _RUN, {**common, "game": game, "seed": seed}, Score, out, failures)
        for seed, game in itertools.product(seeds, games)
        if (game, flags, seed, timesteps) not in done
    ]
    run_queue(jobs, cores)
    return failures


def tables(scores: Iterable[Score], published: Published) -> str:
    """A table for each set of flags, below the command that has them."""
    groups: dict[str, list[Score]] = {}
    for score in scores:
        groups.setdefault(score.flags, []).append(score)
    return "\n\n".join(
        f"`{f'fastes train ALE/<game>-v5 {flags}'.strip()}`:\n\n{table(found, published)}"
        for flags, found in sorted(groups.items())
    )


def table(scores: Iterable[Score], published: Published) -> str:
    """A line for each game and budget: medians over seeds, the worst seed, and what others reach."""
    groups: dict[tuple[str, int], list[Score]] = {}
    for score in scores:
        groups.setdefault((score.game, score.timesteps), []).append(score)
    order = {game: number for number, game in enumerate(published)}
    lines = []
    for (game, _), found in sorted(groups.items(), key=lambda item: (order.get(item[0][0], len(order)), item[0])):
        others = published.get(game, {})
        median = statistics.median(score.score for score in found)
        hours = statistics.median(score.cpu_seconds for score in found) / 3600.0
        frames = statistics.median(score.frames for score in found)
        ours = [f"{median:,.1f}", f"{min(score.score for score in found):,.1f}", _normalised(median, others)]
        theirs = [f"{others[key]:,.1f}" if key in others else "" for key in _OTHERS.values()]
        lines.append([game, str(len(found)), amount(frames), f"{hours:.2f}", *ours, *theirs])
    header = ("game", "seeds", "frames", "core-hours", "median", "worst seed", "of human", *_OTHERS)
    return markdown_table(header, lines)


def draw(scores: Sequence[Score], published: Published, path: Path) -> None:
    """Learning curves: a panel for each game, a line for each training, the paper's ES and random actions as levels."""
    from matplotlib.lines import Line2D

    runs: dict[str, list[Score]] = {game: [] for game in published}
    for score in scores:
        runs.setdefault(score.game, []).append(score)
    shown = {game: found for game, found in runs.items() if found}
    others = (colour for colour in COLOURS.values() if colour != _LEVELS)
    colours = dict(zip(dict.fromkeys(["", *(score.flags for score in scores)]), itertools.cycle(others)))
    figure, panels = new_grid(shown, _COLUMNS, (3.2, 2.0), 0.8)
    for axes, (game, found) in zip(panels, shown.items(), strict=True):
        for score in found:
            axes.plot(_middles(score) / 1e6, score.returns, color=colours[score.flags])
        for key, style in (("es", "--"), ("random", ":")):
            if key in published.get(game, {}):
                axes.axhline(published[game][key], color=_LEVELS, linestyle=style, linewidth=1.0)
    if len(colours) > 1:
        lines = [Line2D([], [], color=colour) for colour in colours.values()]
        figure.legend(lines, list(map(_seen, colours)), loc="outside upper center", ncols=3, frameon=False)
    figure.supxlabel("million frames; dashed: the paper's ES after 1000 million; dotted: random actions", fontsize=10)
    figure.supylabel("score", fontsize=10)
    save(figure, path)


def report(scores: Sequence[Score], published: Published, picture: str) -> str:
    """The page that lies next to the CSV file."""
    versions = "\n".join(f"- {known}" for known in sorted({score.versions for score in scores}))
    return f"""# Atari games

Trainings of one core from pixels, with the preset `atari`, unless flags say otherwise; {EPISODES} whole games without noise
each. Frames count those of evaluations. "Of human": 0 % is the score of random actions, 100 % a human's.

{tables(scores, published)}

![Curves]({picture})

Versions:

{versions}
"""


def _seen(flags: str) -> str:
    """Return what a training with these flags sees, and the preset that they name, for the legend."""
    parsed = parsed_flags(flags)
    wrappers = [name.partition(":")[2] for name in parsed.wrapper or ()]
    return " ".join([*(parsed.env_kwargs or ()), *wrappers, *filter(None, [parsed.preset])]) or "screens"


def _middles(score: Score) -> npt.NDArray[np.float64]:
    """The frames at which the middles of the parts of a curve lie."""
    parts = len(score.returns)
    return score.frames * (np.arange(parts) + 0.5) / parts


def _normalised(score: float, others: Mapping[str, float]) -> str:
    """A score between that of random actions, 0 %, and a human's, 100 %."""
    if "human" not in others:
        return ""
    return f"{round(100.0 * (score - others['random']) / (others['human'] - others['random']))} %"


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.games", description=__doc__)
    parser.add_argument(
        "command",
        choices=("run", "table"),
        help=f"run plays {EPISODES} games with what each training leaves; table writes the page anew",
    )
    published = read_published()
    parser.add_argument("--games", nargs="+", default=list(published), metavar="NAME", help=f"default: {', '.join(published)}")
    parser.add_argument(
        "--timesteps",
        type=COUNT,
        default=4_000_000,
        metavar="N",
        help="decisions, of 4 frames each (default: 4,000,000)",
    )
    add_queue_options(parser, (0, 1, 2), Path("benchmarks/results/games/scores.csv"))
    arguments, failures = parser.parse_args(given), list[str]()
    games, seeds = list(dict.fromkeys(arguments.games)), list(dict.fromkeys(arguments.seeds))
    if arguments.command == "run":
        check_envs(parser, [f"ALE/{game}-v5" for game in games])
        failures = run(games, arguments.flags, seeds, arguments.timesteps, arguments.out, arguments.cores)
    scores = read_results(arguments.out, Score)
    found = [score for score in scores if score.game in games]
    if not found and not failures:
        parser.error(f"{arguments.out} has no line of {', '.join(games)}: `run` writes them")
    if found:
        picture = arguments.out.with_suffix(".png")
        draw(scores, published, picture)
        arguments.out.with_suffix(".md").write_text(report(scores, published, picture.name), encoding="utf-8")
    print(tables(found, published))
    if failures:
        raise SystemExit("\n".join(failures))


if __name__ == "__main__":
    main()
