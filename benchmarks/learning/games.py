"""Atari games from pixels: a queue of trainings, each of one core, and a table with published scores."""

from __future__ import annotations

import argparse
import itertools
import shlex
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.child_process import Child
from benchmarks.csv_records import append_record, read_records
from benchmarks.learning.game_run import EPISODES, Score
from benchmarks.learning.runs.resumable import resumable
from benchmarks.learning.runs.side_by_side import run_jobs
from benchmarks.machine import usable_cpus
from benchmarks.options import COUNT, COUNT_OR_0, check_envs
from benchmarks.tables import amount, markdown_table
from fastes.settings.preset_loader import tomllib

_FRAMES = 4  # of a decision, unless flags say otherwise
_OWN_FLAGS = {"--seed", "--seeds", "--runs", "--resume", "--total-timesteps", "--target-return", "--workers"}
_OTHERS = {"ES, 1e9 frames": "es", "A3C, 1 day": "a3c", "SB3's PPO, 40M": "ppo", "random": "random", "human": "human"}

Published = Mapping[str, Mapping[str, float]]  # of a game, by the keys of games.toml


def read_published() -> Published:
    found: Published = tomllib.loads(Path(__file__).with_name("games.toml").read_text(encoding="utf-8"))
    return found


class Training:
    """A training of the queue."""

    def __init__(self, given: dict[str, Any], out: Path, failures: list[str]) -> None:
        self.given, self.out, self.failures = given, out, failures

    def start(self, cpus: Sequence[int]) -> Child:
        folder = Path(self.given["runs"])
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / f"{_name(self.given).replace('/', '-')}.log"
        return Child("benchmarks.learning.game_run", self.given, cpus, 1, folder, log)

    def note(self, record: dict[str, Any]) -> None:
        score = Score(**record)
        append_record(self.out, score)
        print(f"{_name(self.given)}: {score.score:g} +- {score.std:g}, worst {score.worst:g}", file=sys.stderr)

    def end(self, failure: str | None) -> None:
        if failure is not None:
            self.failures.append(f"{_name(self.given)} failed, see the logs in {self.given['runs']}: {failure}")
            print(self.failures[-1], file=sys.stderr)


def checked_flags(text: str) -> str:
    """Flags of fastes train, as --flags has them.

    Raises:
        argparse.ArgumentTypeError: They cannot be read, or the queue sets one of them.
    """
    try:
        names = {flag.partition("=")[0] for flag in shlex.split(text)}
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
    if own := sorted(names & _OWN_FLAGS):
        raise argparse.ArgumentTypeError(f"{text!r}: the queue sets {own[0]} itself")
    return text


def csv_file(text: str) -> Path:
    """A file for lines, next to which a folder of its stem has room."""
    if not Path(text).suffix or Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r}: expected a CSV file, such as {Path(text) / 'scores.csv'}")
    return Path(text)


def run(games: Sequence[str], flags: str, seeds: Sequence[int], timesteps: int, out: Path, cores: int | None) -> list[str]:
    """Train what has no line yet, all games on one seed before the next one. Returns what failed."""
    out.parent.mkdir(parents=True, exist_ok=True)
    done = {(score.game, score.flags, score.seed, score.timesteps) for score in read_records(out, Score)}
    failures, runs = list[str](), str(out.with_suffix("").absolute())
    jobs = [
        Training({"game": game, "flags": flags, "seed": seed, "timesteps": timesteps, "runs": runs}, out, failures)
        for seed, game in itertools.product(seeds, games)
        if (game, flags, seed, timesteps) not in done
    ]
    run_jobs(jobs, [[cpu] for cpu in usable_cpus(cores)])
    return failures


def table(scores: Iterable[Score], published: Published) -> str:
    """A line for each game, flags and budget: medians over seeds, the worst seed, and what others reach."""
    groups: dict[tuple[str, str, int], list[Score]] = {}
    for score in scores:
        groups.setdefault((score.game, score.flags, score.timesteps), []).append(score)
    order = {game: number for number, game in enumerate(published)}
    lines = []
    for (game, flags, _), found in sorted(groups.items(), key=lambda item: (order.get(item[0][0], len(order)), item[0])):
        others = published.get(game, {})
        median = statistics.median(score.score for score in found)
        hours = statistics.median(score.cpu_seconds for score in found) / 3600.0
        frames = _FRAMES * statistics.median(score.decisions for score in found)
        ours = [f"{median:,.1f}", f"{min(score.score for score in found):,.1f}", _normalised(median, others)]
        theirs = [f"{others[key]:,.1f}" if key in others else "" for key in _OTHERS.values()]
        lines.append([f"{game} {flags}".strip(), str(len(found)), amount(frames), f"{hours:.2f}", *ours, *theirs])
    header = ("game", "seeds", "frames", "core-hours", "median", "worst seed", "of human", *_OTHERS)
    return markdown_table(header, lines)


def _normalised(score: float, others: Mapping[str, float]) -> str:
    """A score between that of random actions, 0 %, and a human's, 100 %."""
    if "human" not in others:
        return ""
    return f"{100.0 * (score - others['random']) / (others['human'] - others['random']):.0f} %"


def _name(given: Mapping[str, Any]) -> str:
    return " ".join(filter(None, (given["game"], given["flags"], f"seed {given['seed']}")))


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.games", description=__doc__)
    parser.add_argument("command", choices=("run", "table"), help=f"run plays {EPISODES} games with what each training leaves")
    published = read_published()
    parser.add_argument("--games", nargs="+", default=list(published), metavar="NAME", help=f"default: {', '.join(published)}")
    parser.add_argument("--seeds", type=COUNT_OR_0, nargs="+", default=[0, 1, 2], metavar="K", help="default: 0 1 2")
    parser.add_argument("--timesteps", type=COUNT, default=4_000_000, metavar="N", help="decisions (default: 4,000,000)")
    parser.add_argument(
        "--flags",
        type=checked_flags,
        default="",
        help="of fastes train, as --flags='--sigma 0.03' (default: the preset's settings); frames count 4 per decision",
    )
    parser.add_argument("--cores", type=COUNT, metavar="N", help="trainings side by side (default: a core each)")
    out = Path("benchmarks/results/games/scores.csv")
    parser.add_argument(
        "--out", type=csv_file, default=out, metavar="CSV", help=f"lines; those in it are skipped (default: {out})"
    )
    arguments, failures = parser.parse_args(given), list[str]()
    games, seeds = list(dict.fromkeys(arguments.games)), list(dict.fromkeys(arguments.seeds))
    if arguments.command == "run":
        check_envs(parser, [f"ALE/{game}-v5" for game in games])
        with resumable():
            failures = run(games, arguments.flags, seeds, arguments.timesteps, arguments.out, arguments.cores)
    found = [score for score in read_records(arguments.out, Score) if score.game in games]
    if not found and not failures:
        parser.error(f"{arguments.out} has no line of {', '.join(games)}: `run` writes them")
    print(table(found, published))
    if failures:
        raise SystemExit("\n".join(failures))


if __name__ == "__main__":
    main()
