"""fastes runs: a table of runs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fastes.cli.arguments import RUNS
from fastes.errors import FastESError
from fastes.runs.found_runs import each_once, runs_of
from fastes.runs.overview import Overview, read_overview
from fastes.runs.setting_differences import OF_THE_END, RACE, named_values, telling, told_settings
from fastes.system.console import columns_of, say
from fastes.system.digits import digits_of, duration_in_words, in_digits, short
from fastes.system.near_paths import printable

_LEAST_SETTINGS, _BEFORE_SETTINGS = 14, 3  # characters of settings, and columns without which a terminal shows none
_AFTER_SETTINGS = 4  # ranks from this on make room for settings
_BEGUN_WITH = ("recipe", "preset")  # told of each run if some have raced
_IN_OTHER_COLUMNS = ("total_timesteps",)  # settings


def add_runs(commands: Any) -> None:
    runs = commands.add_parser(
        "runs",
        help="list runs: how far they are, their scores, the settings in which they differ",
        description="List runs in a table, those that changed last first. The return is that of the parameters that a finished "
        "run has kept, or else its best evaluation so far. Settings are shown where runs of the same environment differ.",
    )
    add_folders(runs)
    runs.add_argument(
        "--sort",
        choices=tuple(_ORDERS),
        default="updated",
        help="last change, highest return, or environment (default: updated)",
    )
    runs.add_argument("--json", action="store_true", help="print a JSON list with all that is known of each")


def add_folders(parser: Any) -> None:
    """Add the argument of `named_runs`."""
    parser.add_argument(
        "folders", nargs="*", type=Path, metavar="FOLDER", help=f"a folder of runs, or a run folder (default: {RUNS})"
    )


def run_runs(arguments: argparse.Namespace) -> int:
    seen = sorted(map(read_overview, named_runs(arguments.folders)), key=_ORDERS[arguments.sort])
    if arguments.json:
        print(json.dumps([each.to_json() for each in seen], indent=2))
        return 0
    width = columns_of(sys.stdout) if sys.stdout.isatty() else None
    for line in table(seen, width):
        print(line)
    for each in seen:
        if each.reason:
            say(f"{printable(str(each.path))}: {printable(each.reason)}")
    return 0


def named_runs(named: Sequence[Path]) -> list[Path]:
    """Return the run folders in these folders, each once; those in runs/ if none is named. FastESError if there are none."""
    try:
        return each_once([run for path in named or [RUNS] for run in runs_of(path)])
    except FastESError as error:
        if named:
            raise
        advice = "`fastes train ENV` makes the first one; those of another folder have to be named"
        raise FastESError(f"there are no runs: {error}. {advice}") from error


# --- order ------------------------------------------------------------------------------------------------------------


def _by_update(run: Overview) -> Any:
    return -(run.updated or 0.0)


def _by_score(run: Overview) -> Any:
    return run.score is None, -(run.score or 0.0), _by_update(run)


def _by_env(run: Overview) -> Any:
    return run.env, _by_update(run)


_ORDERS: dict[str, Callable[[Overview], Any]] = {"updated": _by_update, "score": _by_score, "env": _by_env}


# --- the table --------------------------------------------------------------------------------------------------------


class _Column(NamedTuple):
    """A column of the table. rank: a narrow terminal shows the columns of the lowest ranks that differ between runs."""

    title: str
    cell: Callable[[Overview], str]
    rank: int
    is_number: bool = False


def _return_of(run: Overview) -> str:
    if run.result is not None:
        return " +- ".join(in_digits(run.result.mean, run.result.std))
    return "-" if run.best is None else f"best {digits_of(run.best)}"


def _steps_of(run: Overview) -> str:
    return short(run.timesteps) if run.budget is None else f"{short(run.timesteps)} of {short(run.budget)}"


def _time_of(seconds: float | None) -> str:
    return "-" if seconds is None else duration_in_words(seconds)


_COLUMNS = (
    _Column("run", lambda run: str(run.path), 0),
    _Column("env", lambda run: run.env or "-", 6),
    _Column("seed", lambda run: "-" if run.seed is None else str(run.seed), 5, is_number=True),
    _Column("status", lambda run: run.word, 2),
    _Column("return", _return_of, 1, is_number=True),
    _Column("steps", _steps_of, 3, is_number=True),
    _Column("time", lambda run: _time_of(run.seconds), 4, is_number=True),
    _Column("CPU", lambda run: _time_of(run.cpu_seconds), 7, is_number=True),
)


def table(runs: Sequence[Overview], width: int | None) -> list[str]:
    """Return the lines of a table, a title line first.

    Args:
        runs: In the order of the lines.
        width: Columns of the terminal, which leaves out what it has no room for; None for any width.
    """
    settings = _settings_of(runs)
    columns = [[column.title, *(printable(column.cell(run)) for run in runs)] for column in _COLUMNS]
    widths = [max(map(len, column)) for column in columns]
    ranked = sorted(range(len(widths)), key=lambda number: _COLUMNS[number].rank)
    shown, widest = _fitting(widths, ranked, width), max(map(len, settings), default=0)
    if widest and width is not None and width < sum(widths) + 2 * len(widths) + widest:
        nothing = [number for number in ranked if _says_nothing(_COLUMNS[number], columns[number])]
        ranked = [*(number for number in ranked if number not in nothing), *nothing]
        needed = sum(widths[number] + 2 for number in {*ranked} - {*nothing} if _COLUMNS[number].rank < _AFTER_SETTINGS)
        beside = _fitting(widths, ranked, width - 2 - max(_LEAST_SETTINGS, min(widest, width - needed)))
        room = width - sum(widths[number] + 2 for number in beside)
        is_told = len({_cut(text, room) for text in settings}) > 1
        shown, settings = (beside, settings) if len(beside) >= _BEFORE_SETTINGS and is_told else (shown, [])
    lines = [
        "  ".join(_aligned(columns[number][row], widths[number], number) for number in shown) for row in range(len(runs) + 1)
    ]
    if any(settings):
        lines = [f"{line}  {text}" for line, text in zip(lines, ["settings", *settings], strict=True)]
    return [_cut(line.rstrip(), width) for line in lines]


def _says_nothing(column: _Column, cells: Sequence[str]) -> bool:
    """Return whether all of several lines have the same in a column, so that settings matter more. cells: the title first."""
    return column.title != "status" and len(cells) > 2 and len(set(cells[1:])) == 1


def _fitting(widths: Sequence[int], ranked: Sequence[int], room: int | None) -> list[int]:
    """Return the numbers of the columns that there is room for, at least the first of `ranked`."""
    shown: list[int] = []
    for number in ranked:
        room = None if room is None else room - widths[number] - 2 * bool(shown)
        if shown and room is not None and room < 0:
            break
        shown.append(number)
    return sorted(shown)


def _aligned(text: str, width: int, number: int) -> str:
    return text.rjust(width) if _COLUMNS[number].is_number else text.ljust(width)


def _cut(line: str, width: int | None) -> str:
    return line if width is None or len(line) <= width else f"{line[: max(width - 3, 0)]}..."


def _settings_of(runs: Sequence[Overview]) -> list[str]:
    """Return for each run the settings in which runs of its environment differ, as one text."""
    flat = list(map(_told_of, runs))
    found: list[str] = []
    for run, settings in zip(runs, flat, strict=True):
        alike = [others for other, others in zip(runs, flat, strict=True) if other.env == run.env]
        is_mixed = len({other.given is None for other in runs if other.env == run.env}) > 1  # a race among others
        names = [name for name in telling(alike) if name not in _IN_OTHER_COLUMNS]
        names = list(dict.fromkeys([*(_BEGUN_WITH if is_mixed else ()), *names]))
        values = {name: len({str(others.get(name)) for others in alike}) for name in names}
        names.sort(key=lambda name: (name in OF_THE_END, -values[name]))  # what tells most runs apart comes first
        left_out = {*(RACE if run.recipe else ())}  # the recipe tells that
        left_out |= {*(names if is_mixed else _BEGUN_WITH)} - settings.keys()
        found.append(" ".join(named_values(settings, [name for name in names if name not in left_out])))
    return [printable(text) for text in found]


def _told_of(run: Overview) -> dict[str, Any]:
    """Return what may tell a run from others: the recipe that won, or the preset; and settings."""
    begun = {"recipe": run.recipe, "preset": run.preset if run.given is None else "", "env_kwargs": run.env_kwargs}
    return {**{name: text for name, text in begun.items() if text}, **told_settings(run.settings, run.given)}
