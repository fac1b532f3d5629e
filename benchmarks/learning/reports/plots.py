"""Pictures of learning curves over time and over steps: medians over seeds with intervals."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learning.reports.curves import median_curve
from benchmarks.learning.reports.thresholds import Contest

_AXES = {"wall": "wall-clock seconds", "cpu": "CPU seconds", "steps": "environment steps"}
NAMES = {
    "fastes": "FastES",
    "fastes, longer": "FastES, longer budget",
    "ppo": "PPO",
    "trpo": "TRPO",
    "ars": "ARS",
    "a2c": "A2C",
}
COLOURS = {  # the first four are told apart by the colour-blind, too
    "fastes": "#d55e00",
    "fastes, longer": "#000000",
    "ppo": "#0072b2",
    "trpo": "#009e73",
    "ars": "#9467bd",
    "a2c": "#8c564b",
}
_COLUMNS = 2  # a page is not wide
_FEW = 12  # evaluations: a line through so few hides how little is known


def draw(contest: Contest, title: str, path: Path) -> None:
    """One environment over wall time and over steps."""
    figure, panels = new_figure(2, size=(11, 4.2), sharey=True)
    for axes, measure in zip(panels, ("wall", "steps"), strict=True):
        _plot(axes, contest, measure)
    panels[0].set_ylabel("noise-free return, median over seeds")
    panels[0].legend(title="contestant (seeds)")
    figure.suptitle(title)
    save(figure, path)


def draw_all(contests: Mapping[str, Contest], measure: str, path: Path) -> None:
    """Environments by name, a panel each, with one legend; measure: 'wall', 'cpu' or 'steps'."""
    figure, panels = new_grid(contests, _COLUMNS, (3.8, 2.1), 0.9)
    lines: dict[str, Any] = {}
    for axes, contest in zip(panels, contests.values(), strict=True):
        lines = {**_plot(axes, contest, measure), **lines}
        axes.set_xlabel("")
    shown = [*(algo for algo in NAMES if algo in lines), *(algo for algo in lines if algo not in NAMES)]
    handles, names = [lines[algo] for algo in shown], [NAMES.get(algo, algo) for algo in shown]
    figure.legend(handles, names, loc="outside upper center", ncols=len(shown), frameon=False, fontsize=11)
    counts = sorted({len(runs) for contest in contests.values() for runs in contest.values()})
    seeds = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    figure.supxlabel(f"{_AXES[measure]}; medians of {seeds} seeds", fontsize=11)
    figure.supylabel("noise-free return", fontsize=11)
    save(figure, path)


def new_figure(
    columns: int, rows: int = 1, sharey: bool = False, size: tuple[float, float] | None = None
) -> tuple[Any, list[Any]]:
    """A figure that needs no screen, and its axes in reading order; size: in inches, as the panels need for None."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size or (1.0 + 3.8 * columns, 0.6 + 3.4 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    panels = list(figure.subplots(rows, columns, sharey=sharey, squeeze=False).ravel())
    for axes in panels:
        axes.grid(alpha=0.3)
    return figure, panels


def new_grid(titles: Collection[str], most: int, panel: tuple[float, float], above: float) -> tuple[Any, list[Any]]:
    """A figure with a panel under each title, and the panels' axes in that order.

    Args:
        titles: One for each panel.
        most: Panels in a row.
        panel: Its width and height in inches.
        above: Inches for what is around all panels.
    """
    columns = min(most, len(titles))
    rows = math.ceil(len(titles) / columns)
    figure, panels = new_figure(columns, rows, size=(0.4 + panel[0] * columns, above + panel[1] * rows))
    for axes, title in zip(panels, titles, strict=False):
        axes.set_title(title, fontsize=11)
    for axes in panels[len(titles) :]:
        axes.set_visible(False)
    return figure, panels[: len(titles)]


def save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=110)


def _plot(axes: Any, contest: Contest, measure: str) -> dict[str, Any]:
    """Medians over seeds with 95 % bootstrap intervals, with a logarithmic x-axis, so that early progress is visible, too.

    Returns the contestants' lines.
    """
    lines = {}
    for algo, runs in contest.items():
        curve, colour, label = median_curve(runs, measure), COLOURS.get(algo), f"{NAMES.get(algo, algo)} ({len(runs)})"
        (line,) = axes.plot(curve.along, curve.scores.median, label=label, color=colour)
        _mark_few(axes, [run.along(measure) for run in runs], curve.along, curve.scores.median, line.get_color())
        axes.fill_between(curve.along, curve.scores.low, curve.scores.high, alpha=0.2, color=line.get_color(), linewidth=0)
        lines[algo] = line
    axes.set_xscale("log")
    axes.set_xlabel(_AXES[measure])
    return lines


def _mark_few(axes: Any, evaluated: Sequence[Any], along: Any, median: Any, colour: Any) -> None:
    """Mark the median positions of the evaluations on a line; mark none if there are many."""
    count = min(len(each) for each in evaluated)
    if count > _FEW:
        return
    at = np.median([each[:count] for each in evaluated], axis=0)
    at = at[(at >= along[0]) & (at <= along[-1])]
    axes.plot(at, np.interp(at, along, median), linestyle="none", marker="o", markersize=4, color=colour)
