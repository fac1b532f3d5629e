"""fastes plot: the learning curves of runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fastes.errors import FastESError
from fastes.runs.curves import read_curves, title_of
from fastes.runs.found_runs import each_once, runs_of
from fastes.runs.run_config import CURVE
from fastes.system.installation import install_command

_SUFFIXES = (".png", ".svg", ".pdf")


def add_plot(commands: Any) -> None:
    plot = commands.add_parser(
        "plot",
        help="draw the learning curves of runs",
        description="Draw the noise-free evaluations of a run, their running median and the spread around it, or the medians "
        "of several runs in one picture. Runs that differ in their seeds alone become one line, the median of these, with the "
        "range from the lowest to the highest.",
    )
    plot.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="a run folder, whether it is finished or not, or a folder of several"
    )
    plot.add_argument(
        "--out",
        type=Path,
        action="append",
        metavar="FILE",
        help=f".png, .svg or .pdf, again for another one (default: {CURVE} in the run, or here for several)",
    )
    plot.add_argument(
        "--x",
        choices=("steps", "time", "cpu"),
        default="steps",
        help="environment steps, wall time, or CPU time of this process and its workers (default: steps)",
    )
    plot.add_argument(
        "--compare", nargs="+", default=[], metavar="SETTING", help="settings that name the lines (default: those that differ)"
    )


def run_plot(arguments: argparse.Namespace) -> int:
    from fastes.runs.curve_picture import draw_curves, save_figure

    runs = each_once([run for path in arguments.runs for run in runs_of(path)])
    pictures = arguments.out or [runs[0] / CURVE if len(runs) == 1 else Path(CURVE)]
    for out in pictures:
        if out.suffix.lower() not in _SUFFIXES:
            raise ValueError(f"--out {out}: expected a name that ends in one of {', '.join(_SUFFIXES)}")
        if not out.parent.is_dir():
            raise ValueError(f"--out {out}: there is no folder {out.parent}")
    curves = read_curves(runs, arguments.x)
    try:
        figure = draw_curves(curves, title_of(curves), arguments.x, list(dict.fromkeys(arguments.compare)))
    except ImportError as error:
        raise FastESError(f"drawing needs matplotlib: {install_command('plots')}") from error
    for out in pictures:
        save_figure(figure, out)
        print(out)
    return 0
