"""fastes plot: the learning curves of runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fastes.errors import FastESError
from fastes.runs.curves import each_once, read_curves, runs_of, title_of
from fastes.runs.run_config import CURVE
from fastes.system.installation import install_command

_SUFFIXES = (".png", ".svg", ".pdf")


def add_plot(commands: Any) -> None:
    plot = commands.add_parser(
        "plot",
        help="draw the learning curves of runs",
        description="Draw the noise-free evaluations of a run, their running median and the spread around it, or the medians "
        "of several runs in one picture; runs that differ in their seeds alone get a median of these.",
    )
    plot.set_defaults(command="plot", env=None)
    plot.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="a run folder, whether it is finished or not, or a folder of several"
    )
    plot.add_argument(
        "--out", type=Path, metavar="FILE", help=f".png, .svg or .pdf (default: {CURVE} in the run, or here for several)"
    )


def run_plot(arguments: argparse.Namespace) -> int:
    from fastes.runs.curves import plot_curves

    runs = each_once([run for path in arguments.runs for run in runs_of(path)])
    curves = read_curves(runs)
    out = arguments.out or (runs[0] / CURVE if len(runs) == 1 else Path(CURVE))
    if out.suffix.lower() not in _SUFFIXES:
        raise ValueError(f"--out {out}: expected a name that ends in one of {', '.join(_SUFFIXES)}")
    try:
        plot_curves(curves, out, title_of(curves))
    except ImportError as error:
        raise FastESError(f"drawing needs matplotlib: {install_command('plots')}") from error
    print(out)
    return 0
