"""Pictures and numbers of several runs: curves of each contestant, final scores over a condition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learning.reports import plots
from benchmarks.learning.reports.curves import Interval, median_interval
from benchmarks.learning.runs.results import Run

COLOURS = {**plots.COLOURS, "ppo+CartPole-v1": "#17becf"}


def new_figure(columns: int, rows: int = 1, sharey: bool = False) -> tuple[Any, list[Any]]:
    """A figure that needs no screen, and its axes in reading order."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.0 + 3.8 * columns, 0.6 + 3.4 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(rows, columns, sharey=sharey, squeeze=False).ravel())
    for each in axes:
        each.grid(alpha=0.3)
    return figure, axes


def save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=110)


def final_interval(runs: Sequence[Run]) -> Interval:
    """Of final scores: the median over seeds with its 95 % bootstrap interval."""
    return median_interval(np.array([run.final.score for run in runs]))


def draw_curves(axes: Any, contestants: Mapping[str, Sequence[Run]], colours: Mapping[str, Any] | None = None) -> None:
    """Scores over steps from the untrained policy's on: medians over seeds with 95 % bootstrap intervals."""
    for name, runs in contestants.items():
        along = np.linspace(0.0, min(run.steps[-1] for run in runs), 100)
        found = median_interval(np.array([np.interp(along, run.steps, run.scores) for run in runs]))
        (line,) = axes.plot(along, found.median, label=f"{name} ({len(runs)})", color=(colours or {}).get(name))
        axes.fill_between(along, found.low, found.high, alpha=0.15, color=line.get_color(), linewidth=0)


def draw_finals(axes: Any, at: Sequence[float], groups: Sequence[Sequence[Run]], label: str, colour: Any = None) -> None:
    """Median final scores over a condition, each seed as a dot."""
    found = [final_interval(runs) for runs in groups]
    (line,) = axes.plot(at, [float(each.median) for each in found], marker="o", label=label, color=colour)
    for x, runs in zip(at, groups, strict=True):
        axes.scatter([x] * len(runs), [run.final.score for run in runs], s=10, alpha=0.5, color=line.get_color())


def cell(runs: Sequence[Run]) -> str:
    """'357.0 (340.1 to 360.2)': median final score and the seeds' range; '' without runs."""
    if not runs:
        return ""
    scores = [run.final.score for run in runs]
    return f"{float(np.median(scores)):.1f} ({min(scores):.1f} to {max(scores):.1f})"


def cpu_minutes(runs: Sequence[Run]) -> str:
    return f"Training took {sum(run.final.cpu for run in runs) / 60:.1f} CPU minutes, evaluation left out."
