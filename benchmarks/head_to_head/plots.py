"""Learning curves over wall time and over environment steps, one picture an environment."""

from __future__ import annotations

from pathlib import Path

from benchmarks.head_to_head.curves import median_curve
from benchmarks.head_to_head.thresholds import Contest

_AXES = {"wall": "wall-clock seconds", "steps": "environment steps"}
_COLOURS = {"fastes": "#d62728", "ppo": "#1f77b4", "trpo": "#2ca02c", "ars": "#9467bd", "a2c": "#8c564b"}


def draw(contest: Contest, title: str, path: Path) -> None:
    """Medians over seeds with 95 % bootstrap intervals, both axes logarithmic along: early progress is seen beside late."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (measure, label) in zip(figure.subplots(1, len(_AXES), sharey=True), _AXES.items(), strict=True):
        for algo, runs in contest.items():
            curve, colour = median_curve(runs, measure), _COLOURS.get(algo)
            axes.plot(curve.along, curve.scores.median, label=f"{algo} ({len(runs)})", color=colour)
            axes.fill_between(curve.along, curve.scores.low, curve.scores.high, alpha=0.2, color=colour, linewidth=0)
        axes.set_xscale("log")
        axes.set_xlabel(label)
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("noise-free return, median over seeds")
    figure.axes[0].legend(title="contestant (seeds)")
    figure.suptitle(title)
    figure.savefig(path, dpi=110)
