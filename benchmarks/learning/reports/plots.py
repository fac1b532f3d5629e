"""Learning curves over time and over environment steps, one picture an environment, or many environments in one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.learning.reports.curves import median_curve
from benchmarks.learning.reports.thresholds import Contest

_AXES = {"wall": "wall-clock seconds", "cpu": "CPU seconds", "steps": "environment steps"}
COLOURS = {
    "fastes": "#d62728",
    "fastes, longer": "#ff7f0e",
    "ppo": "#1f77b4",
    "trpo": "#2ca02c",
    "ars": "#9467bd",
    "a2c": "#8c564b",
}
_COLUMNS = 4


def draw(contest: Contest, title: str, path: Path) -> None:
    """One environment over wall time and over steps."""
    figure = _figure(11, 4.2)
    for axes, measure in zip(figure.subplots(1, 2, sharey=True), ("wall", "steps"), strict=True):
        _plot(axes, contest, measure)
    figure.axes[0].set_ylabel("noise-free return, median over seeds")
    figure.axes[0].legend(title="contestant (seeds)")
    figure.suptitle(title)
    figure.savefig(path, dpi=110)


def draw_all(contests: Mapping[str, Contest], measure: str, path: Path) -> None:
    """Environments by name, a panel each; measure: 'wall', 'cpu' or 'steps'."""
    columns = min(_COLUMNS, len(contests))
    rows = math.ceil(len(contests) / columns)
    figure = _figure(3.4 * columns, 2.9 * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (env, contest) in zip(panels, contests.items(), strict=False):
        _plot(axes, contest, measure)
        axes.set_title(env, fontsize=10)
        axes.legend(fontsize=7)
    for axes in panels[len(contests) :]:
        axes.set_visible(False)
    figure.savefig(path, dpi=110)


def _figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _plot(axes: Any, contest: Contest, measure: str) -> None:
    """Medians over seeds with 95 % bootstrap intervals, logarithmic along: early progress is seen beside late."""
    for algo, runs in contest.items():
        curve, colour = median_curve(runs, measure), COLOURS.get(algo)
        axes.plot(curve.along, curve.scores.median, label=f"{algo} ({len(runs)})", color=colour)
        axes.fill_between(curve.along, curve.scores.low, curve.scores.high, alpha=0.2, color=colour, linewidth=0)
    axes.set_xscale("log")
    axes.set_xlabel(_AXES[measure])
    axes.grid(alpha=0.3)
