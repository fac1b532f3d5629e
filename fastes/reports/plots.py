"""Pictures of trainings."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastes.system.atomic_files import write_bytes

Numbers = npt.NDArray[np.float64]

_COLOURS = ("#c2452d", "#3465a4", "#3d8f5f", "#8a5aa8", "#c98a1b", "#4f9da6", "#8c564b", "#6b6b6b")
_LEAST_SMOOTHED = 10  # fewer evaluations are joined as they are
_BAND = (0.1, 0.9)  # quantiles between which most evaluations lie
_LEGEND_WIDTH = 110  # characters
_MOST_SMOOTHED = 51  # evaluations under one median


class Outcome(NamedTuple):
    """What the parameters that were kept are worth. at: timesteps of the whole training. worst: of `episodes` episodes."""

    at: float
    mean: float
    std: float
    worst: float
    episodes: int


class RungEnd(NamedTuple):
    """The end of a rung of several trials. at: timesteps of all of them. winner: the trial that is left; 0 if several are."""

    at: float
    winner: int


class Curve(NamedTuple):
    """A training as a line: its noise-free evaluations over the timesteps of candidates.

    Attributes:
        steps, returns: float64 (evaluations,), without those that are not finite.
        trials: The number of each evaluation's trial, float64 (evaluations,), or empty for a training without trials.
        rung_ends: The rungs of several trials that have ended.
        alike: Equal for trainings that differ in their seeds alone.
        outcome: None if training has not ended.
    """

    name: str
    steps: Numbers
    returns: Numbers
    target: float = math.inf
    trials: Numbers = np.zeros(0)
    rung_ends: tuple[RungEnd, ...] = ()
    alike: object = None
    outcome: Outcome | None = None

    @property
    def leader(self) -> float:
        """The trial that was left; if several are, the one with the best median at its end."""
        at, winner = self.rung_ends[-1] if self.rung_ends else (0.0, 0)
        if winner or not len(self.trials):
            return float(winner or 1)
        left = {*self.trials[self.steps > at].tolist()} or {*self.trials.tolist()}
        return float(max(sorted(left), key=lambda trial: float(smoothed(self.of_trial(trial)[1])[-1])))

    def of_trial(self, trial: float) -> tuple[Numbers, Numbers]:
        """Timesteps and returns of one trial's evaluations."""
        if not len(self.trials):
            return self.steps, self.returns
        return self.steps[self.trials == trial], self.returns[self.trials == trial]


def smoothed(returns: Numbers) -> Numbers:
    """The running median, which single falls do not move; few evaluations as they are."""
    median: Numbers = returns if len(returns) < _LEAST_SMOOTHED else running(returns, 0.5)[0]
    return median


def running(returns: Numbers, *shares: float) -> Numbers:
    """Running quantiles, float64 (shares, evaluations), over a tenth of the evaluations, at least 5.

    At the beginning over fewer, as many before as after, since a first rise must not be hidden; at the end over those before.
    """
    half = min(max(len(returns) // 10, 5), _MOST_SMOOTHED) // 2
    around = [returns[max(0, k - half) : k + min(half, k) + 1] for k in range(len(returns))]
    quantiles: Numbers = np.stack([np.quantile(few, shares) for few in around], axis=1)
    return quantiles


def plot_curves(curves: Sequence[Curve], picture: Path, title: str) -> None:
    """Draw one training with its evaluations, or several with a legend. Raises ImportError without matplotlib, OSError."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    if len(curves) == 1:
        _draw_one(axes, curves[0])
    else:
        _draw_several(axes, curves)
    for target in sorted({curve.target for curve in curves if math.isfinite(curve.target)}):
        axes.axhline(target, color="#3d8f5f", linewidth=1.0, linestyle="--", label=f"target {target:g}", zorder=1)
    axes.set_title(title, fontsize=13)
    axes.set_xlabel("environment steps", fontsize=11)
    axes.set_ylabel("return of an episode", fontsize=11)
    axes.xaxis.set_major_formatter(_short_number)
    axes.set_xlim(left=0.0)
    axes.margins(y=0.08)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    _draw_legend(figure, axes)
    content = io.BytesIO()
    figure.savefig(content, dpi=120, format=picture.suffix.lstrip(".").lower() or "png")
    write_bytes(picture, content.getvalue())


def _draw_legend(figure: Any, axes: Any) -> None:
    """Below the picture, which gets taller for it: inside it would hide something."""
    _, labels = axes.get_legend_handles_labels()
    columns = min(max(_LEGEND_WIDTH // (max(map(len, labels), default=0) + 8), 1), 4)
    figure.set_figheight(figure.get_figheight() + 0.2 * -(-len(labels) // columns))
    figure.legend(frameon=False, fontsize=10, loc="outside lower center", ncols=columns)


def _draw_one(axes: Any, curve: Curve) -> None:
    colour = _COLOURS[0]
    _draw_rungs(axes, curve)
    label: str | None = "another trial"
    for trial in sorted({*curve.trials.tolist()} - {curve.leader}):
        steps, returns = curve.of_trial(trial)
        axes.plot(steps, smoothed(returns), color="#9aa3b2", linewidth=1.2, label=label, zorder=2)
        label = None
    steps, returns = curve.of_trial(curve.leader)
    few = len(steps) < _LEAST_SMOOTHED
    axes.plot(
        *(steps, returns), "o", color=colour, alpha=0.8 if few else 0.3, markersize=5 if few else 2.5,
        markeredgewidth=0, label="one evaluation", zorder=2,
    )  # fmt: skip
    line = "evaluations, joined" if few else "running median"
    axes.plot(steps, smoothed(returns), color=colour, linewidth=1.2 if few else 2.2, label=line, zorder=4)
    if len(returns) >= _LEAST_SMOOTHED:
        low, high = running(returns, *_BAND)
        band = f"{_BAND[0]:.0%} to {_BAND[1]:.0%} of the evaluations around"
        axes.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0, label=band, zorder=3)
    if curve.outcome is not None:
        _draw_outcome(axes, curve.outcome)


def _draw_outcome(axes: Any, outcome: Outcome) -> None:
    """What was kept, where training ended: mean, standard deviation, and the worst episode."""
    at, mean, std, worst, episodes = outcome
    look = {"color": "black", "zorder": 5, "clip_on": False}
    label = f"kept: {_rounded(mean)} ± {_rounded(std)}, worst {_rounded(worst)}, over {episodes} episodes"
    axes.errorbar(at, mean, std, fmt="D", markersize=6, capsize=4, label=label, **look)
    axes.plot((at, at), (worst, mean), linewidth=0.8, **look)
    axes.plot(at, worst, "_", markersize=10, markeredgewidth=2, **look)


def _rounded(number: float) -> str:
    return f"{number:.{0 if abs(number) >= 100 else 1}f}"


def _draw_rungs(axes: Any, curve: Curve) -> None:
    """A grey ground under every second rung of several trials, and what each part is."""
    if not curve.rung_ends or not len(curve.steps):
        return
    between = [rung.at for rung in curve.rung_ends]
    begins, ends = [0.0, *between], [*between, float(curve.steps.max())]
    for number, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        if end <= begin:
            continue
        narrow = end - begin < 0.18 * ends[-1]
        if number % 2 == 0:
            axes.axvspan(begin, end, color="#eef0f4", zorder=0, linewidth=0)
        if number:
            axes.axvline(begin, color="#9aa3b2", linewidth=0.8, zorder=1)
        is_decided = number and curve.rung_ends[number - 1].winner
        name = "the best trial goes on" if is_decided else f"rung {number + 1}"
        axes.annotate(
            *(name, (begin, 1.0)), xycoords=("data", "axes fraction"), xytext=(3, -4), textcoords="offset points",
            fontsize=9, color="#5b6472", va="top", rotation=90 if narrow else 0,
        )  # fmt: skip


def _draw_several(axes: Any, curves: Sequence[Curve]) -> None:
    alike = len({repr(curve.alike) for curve in curves}) == 1 and curves[0].alike is not None
    many = alike and len(curves) > len(_COLOURS)  # no legend can name them
    for number, curve in enumerate(curves):
        colour, name = (_COLOURS[1], None if number else "one run") if many else (_COLOURS[number % len(_COLOURS)], curve.name)
        look = {"color": colour, "linewidth": 1.2 if alike else 2.0, "alpha": 0.35 if many else 0.6 if alike else 1.0}
        steps, returns = curve.of_trial(curve.leader)
        axes.plot(steps, smoothed(returns), label=name, **look)
    common = [curve for curve in curves if len(curve.of_trial(curve.leader)[0])]
    if alike and len(common) > 1:
        steps, median = _median_of(common)
        axes.plot(steps, median, color="black", linewidth=2.4, label=f"median of {len(common)} runs")


def _median_of(curves: Sequence[Curve]) -> tuple[Numbers, Numbers]:
    """The median of the smoothed lines over the timesteps that all of them have."""
    lines = [curve.of_trial(curve.leader) for curve in curves]
    begin, end = max(steps[0] for steps, _ in lines), min(steps[-1] for steps, _ in lines)
    steps = np.linspace(begin, max(begin, end), 200)
    return steps, np.median([np.interp(steps, its_steps, smoothed(returns)) for its_steps, returns in lines], axis=0)


def _short_number(value: float, _: object) -> str:
    """200k, 1.5M."""
    size, unit = next(((size, unit) for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if abs(value) >= size), (1.0, ""))
    return f"{value / size:g}{unit}"
