"""Pictures of a training."""

from __future__ import annotations

import io
import math
from pathlib import Path

from fastes.reports.csv_log import read_progress
from fastes.system.atomic_files import write_bytes


def plot_learning_curve(progress: Path, picture: Path, title: str, target: float = math.inf) -> None:
    """Draw returns over timesteps from a progress.csv into a PNG. Raises ImportError without matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = read_progress(progress)
    steps = columns["timesteps"]
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(steps, columns["return_max"], color="#b8c4d6", linewidth=0.8, label="best candidate")
    axes.plot(steps, columns["return_mean"], color="#5b7db1", linewidth=1.0, label="mean of the candidates")
    axes.plot(steps, columns["eval_return"], color="#c2452d", linewidth=1.6, label="noise-free evaluation")
    if math.isfinite(target):
        axes.axhline(target, color="#3d8f5f", linewidth=0.9, linestyle="--", label=f"target {target:g}")
    axes.set(title=title, xlabel="timesteps", ylabel="return")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, loc="lower right")
    content = io.BytesIO()
    figure.savefig(content, dpi=120, format="png")
    write_bytes(picture, content.getvalue())
