"""The picture of docs/: how much faster more workers are. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.published import HUMANOID_MINUTES
from benchmarks.speed.scaling.cluster import Wire
from benchmarks.speed.scaling.costs import Costs
from benchmarks.speed.scaling.many_machines import WORKERS, point, stages
from benchmarks.speed.scaling.one_machine import BEFORE, CORES, PICTURED, seconds

INK, GREY, BLUE, RED, ORANGE = "#222233", "#8a94a3", "#2a5fa8", "#c2452d", "#e0913a"


def draw(cheetah: Costs, humanoid: Costs, wire: Wire, path: Path, timesteps: int = 0) -> None:
    """Speed over one core's on one machine, and over workers of a cluster. The suffix says what file it is."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.2, 3.7), layout="constrained", facecolor="white")
    machine, cluster = figure.subplots(1, 2)
    _draw_machine(machine, cheetah, timesteps)
    _draw_cluster(cluster, humanoid, cheetah.spread, wire)
    for axes in (machine, cluster):
        axes.set_xscale("log", base=2 if axes is machine else 10)
        axes.set_yscale("log", base=2 if axes is machine else 10)
        axes.grid(alpha=0.25)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.set_ylabel("times as fast as one core")
        axes.legend(fontsize=7.5, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    with mpl.rc_context({"svg.hashsalt": path.name}):  # the same file for the same picture
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=110)


def _draw_machine(axes: Any, costs: Costs, timesteps: int) -> None:
    axes.plot(CORES, CORES, color=GREY, linestyle=":", linewidth=1)
    for (name, setup), colour in zip(PICTURED.items(), (BLUE, ORANGE, RED, INK), strict=True):
        one = seconds(costs, BEFORE._replace(seeds=setup.seeds), 1, timesteps)
        found = [one / seconds(costs, setup, cores, timesteps) for cores in CORES]
        axes.plot(CORES, found, color=colour, marker="o", markersize=3, label=name)
    axes.set_xlabel("cores of one machine")
    axes.set_title("HalfCheetah-v5, 16 candidates a generation (simulated)", fontsize=9)


def _draw_cluster(axes: Any, costs: Costs, spread: float, wire: Wire) -> None:
    axes.plot(WORKERS, WORKERS, color=GREY, linestyle=":", linewidth=1)
    for stage, colour in zip(stages(costs, spread), (RED, ORANGE, BLUE), strict=True):
        found = [workers * point(stage, costs, workers, wire).efficiency for workers in WORKERS]
        axes.plot(WORKERS, found, color=colour, marker="o", markersize=3, label=stage.name)
    (few, slow), *_ = HUMANOID_MINUTES.items()
    paper = [few * slow / minutes for minutes in HUMANOID_MINUTES.values()]
    axes.plot(list(HUMANOID_MINUTES), paper, "*", color=INK, label=f"the paper, {few} cores taken as {few}")
    axes.set_xlabel("workers of a cluster, 16 a node")
    axes.set_title("Humanoid-v5, 10,000 candidates a generation (simulated)", fontsize=9)
