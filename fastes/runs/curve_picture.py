"""The picture of learning curves."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastes.errors import suggest, warn_user
from fastes.reports.progress_rows import Clock, Numbers
from fastes.runs.curves import Curve, Outcome
from fastes.runs.setting_differences import differing, telling, value_in_words
from fastes.system.atomic_files import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# of Okabe and Ito (2008), told apart by eyes of any kind; their yellow is too pale for a line, black is that of results
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_STYLES = ("-", "--", ":", "-.")  # of further lines
_GREY = "#9aa3b2"
_LEAST_SMOOTHED = 10  # fewer evaluations are joined without smoothing
_MOST_SMOOTHED = 51  # evaluations under one median
_MOST_DRAWN = 2000  # places of a line, and points: a picture has fewer pixels
_BAND = (0.1, 0.9)  # quantiles between which most evaluations lie
_SIZE, _DPI = (6.0, 3.7), 160  # inches without the legend, and pixels per inch: letters are still read at 400 pixels
_LEGEND_WIDTH, _LINE_WIDTH = 75, 7  # of the legend and of the piece of line before a name, in characters
_LONGEST_NAME = 60  # characters of the settings that differ, unless they are asked for
_LETTER = 0.012  # the width of a rung's letter, of the whole axis
_CLOCKS = {"time": (1, "wall time"), "cpu": (2, "CPU time")}  # value of x -> column of the clock, and its name
_UNITS = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"))


def smoothed(steps: Numbers, returns: Numbers) -> tuple[Numbers, Numbers]:
    """Return steps and the running median, which single outliers do not move, or few evaluations unchanged."""
    if len(returns) < _LEAST_SMOOTHED:
        return steps, returns
    steps, median = running(steps, returns, 0.5)
    return steps, median[0]


def running(steps: Numbers, returns: Numbers, *shares: float) -> tuple[Numbers, Numbers]:
    """Return steps, float64 (n,), and running quantiles there, float64 (shares, n).

    Each is over a tenth of the evaluations, at least 5. Near the start the window is smaller and symmetric, so that a first
    rise is not hidden. Not each of very many evaluations has a quantile.
    """
    half = min(max(len(returns) // 10, 5), _MOST_SMOOTHED) // 2
    at = np.linspace(0, len(returns) - 1, min(len(returns), _MOST_DRAWN)).astype(int).tolist()
    around = [returns[max(0, k - half) : k + min(half, k) + 1] for k in at]
    return steps[at], np.stack([np.quantile(few, shares) for few in around], axis=1)


def plot_curves(curves: Sequence[Curve], picture: Path, title: str, x: str = "steps", compare: Sequence[str] = ()) -> None:
    """Write the picture of `draw_curves` to a file. OSError if it cannot be written."""
    save_figure(draw_curves(curves, title, x, compare), picture)


def save_figure(figure: Figure, picture: Path) -> None:
    """Write a figure to a file, whose suffix says its format. OSError if it cannot be written."""
    content = io.BytesIO()
    figure.savefig(content, dpi=_DPI, format=picture.suffix.lstrip(".").lower() or "png")
    write_bytes(picture, content.getvalue())


def draw_curves(curves: Sequence[Curve], title: str, x: str = "steps", compare: Sequence[str] = ()) -> Figure:
    """Draw one training with its evaluations, or several with a legend.

    Args:
        curves: The curves. Several that are alike become their median, and the range from the lowest to the highest.
        title: Text above it.
        x: 'steps', 'time' for wall time, or 'cpu' for CPU time.
        compare: Settings that name curves, or groups that are alike, in the legend; () for those that differ.

    Raises:
        ImportError: Without matplotlib.
        ValueError: If no curve has a setting of `compare`.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from fastes.runs.shown_figure import ShownFigure

    _check_compared(curves, compare)
    curves, axis = (curves, "environment steps") if x == "steps" else _over(curves, *_CLOCKS[x])
    figure = ShownFigure(figsize=_SIZE, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    if len(curves) == 1:
        _draw_one(axes, curves[0])
    else:
        _draw_several(axes, curves, compare)
    is_one_task = len({repr(curve.settings.get("env")) for curve in curves}) == 1
    for target in sorted({curve.target for curve in curves if is_one_task and math.isfinite(curve.target)}):
        axes.axhline(target, color="#444444", linewidth=1.0, linestyle=(0, (6, 4)), label=f"target {target:g}", zorder=1)
    axes.set_title(title, fontsize=13)
    axes.set_xlabel(axis, fontsize=11)
    axes.set_ylabel("return of an episode", fontsize=11)
    axes.xaxis.set_major_formatter(_short_number)
    axes.tick_params(labelsize=10)
    axes.locator_params(nbins=6)
    axes.set_xlim(left=0.0)
    axes.margins(y=0.08)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    _draw_legend(figure, axes)
    return figure


def _over(curves: Sequence[Curve], column: int, name: str) -> tuple[list[Curve], str]:
    """Return curves over a column of their clocks, and the name of that axis with its unit. name: of what the column tells."""
    end = max(float(curve.clock.rows[-1, column]) for curve in curves)
    size, unit = next(((size, unit) for size, unit in _UNITS if end >= 2.0 * size), (1.0, "seconds"))
    return [curve.along(partial(_on_the_clock, curve.clock, column, size)) for curve in curves], f"{unit} of {name}"


def _on_the_clock(clock: Clock, column: int, size: float, at: Numbers) -> Numbers:
    values: Numbers = clock.at(at)[:, column] / size
    return values


def _draw_legend(figure: Any, axes: Any) -> None:
    """Draw the legend below the picture, which gets taller for it."""
    handles, labels = axes.get_legend_handles_labels()
    labels = [textwrap.fill(label, _LEGEND_WIDTH - _LINE_WIDTH, break_on_hyphens=False) for label in labels]
    widest = max((len(line) for label in labels for line in label.split("\n")), default=0)
    columns = min(max(_LEGEND_WIDTH // (widest + _LINE_WIDTH), 1), 4)
    lines = [label.count("\n") + 1 for label in labels]
    rows = -(-len(lines) // columns)
    height = max((sum(lines[first : first + rows]) for first in range(0, len(lines), max(rows, 1))), default=0)
    figure.set_figheight(figure.get_figheight() + 0.2 * height)
    figure.legend(handles, labels, frameon=False, fontsize=10, loc="outside lower center", ncols=columns)


def _draw_one(axes: Any, curve: Curve) -> None:
    colour = _COLOURS[0]
    _draw_rungs(axes, curve)
    label: str | None = "another trial"
    for number, trial in enumerate(sorted({*curve.trials.tolist()} - {curve.leader})):
        steps, returns = curve.of_trial(trial)
        recipe = curve.recipes.get(int(trial))
        other = _COLOURS[1 + number % (len(_COLOURS) - 1)] if recipe else _GREY
        axes.plot(*smoothed(steps, returns), marker=_alone(steps), color=other, linewidth=1.2, label=recipe or label, zorder=2)
        label = None
    steps, returns = curve.of_trial(curve.leader)
    few = len(steps) < _LEAST_SMOOTHED
    every = 1 + len(steps) // _MOST_DRAWN
    axes.plot(
        *(steps[::every], returns[::every]), "o", color=colour, alpha=0.8 if few else 0.3, markersize=5 if few else 2.5,
        markeredgewidth=0, label="one evaluation" if every == 1 else f"one of {every} evaluations", zorder=2,
    )  # fmt: skip
    line = "evaluations, joined" if few else "running median"
    if winner := curve.recipes.get(int(curve.leader)):
        line = f"{winner}, {line}"
    axes.plot(*smoothed(steps, returns), color=colour, linewidth=1.2 if few else 2.2, label=line, zorder=4)
    if len(returns) >= _LEAST_SMOOTHED:
        steps, (low, high) = running(steps, returns, *_BAND)
        band = f"{_BAND[0]:.0%} to {_BAND[1]:.0%} of the evaluations around"
        axes.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0, label=band, zorder=3)
    if curve.outcome is not None:
        _draw_outcome(axes, curve.outcome)


def _alone(steps: Numbers) -> str:
    """Return the marker of a curve: a line with a single point would not be seen."""
    return "o" if len(steps) == 1 else ""


def _draw_outcome(axes: Any, outcome: Outcome) -> None:
    """Draw the result at the end of training: mean, standard deviation, and the worst episode."""
    at, mean, std, worst, episodes = outcome
    look = {"color": "black", "zorder": 5, "clip_on": False}
    label = f"kept: {_rounded(mean)} ± {_rounded(std)}, worst {_rounded(worst)}, over {episodes} episodes"
    axes.errorbar(at, mean, std, fmt="D", markersize=6, capsize=4, label=label, **look)
    axes.plot((at, at), (worst, mean), linewidth=0.8, **look)
    axes.plot(at, worst, "_", markersize=10, markeredgewidth=2, **look)


def _rounded(number: float) -> str:
    return f"{number:.{0 if abs(number) >= 100 else 1}f}"


def _draw_rungs(axes: Any, curve: Curve) -> None:
    """Draw a grey ground under every second rung, and the name of each part."""
    if not curve.rung_ends or not len(curve.steps):
        return
    between = [rung.at for rung in curve.rung_ends]
    begins, ends = [0.0, *between], [*between, float(curve.steps.max())]
    for number, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        if end <= begin:
            continue
        if number % 2 == 0:
            axes.axvspan(begin, end, color="#eef0f4", zorder=0, linewidth=0)
        if number:
            axes.axvline(begin, color=_GREY, linewidth=0.8, zorder=1)
        is_decided = number and curve.rung_ends[number - 1].winner
        name = f"the best {'recipe' if curve.recipes else 'trial'} continues" if is_decided else f"rung {number + 1}"
        narrow = end - begin < (0.01 + _LETTER * len(name)) * ends[-1]
        axes.annotate(
            *(name, (begin, 1.0)), xycoords=("data", "axes fraction"), xytext=(3, -4), textcoords="offset points",
            fontsize=9, color="#5b6472", va="top", rotation=90 if narrow else 0,
        )  # fmt: skip


def _draw_several(axes: Any, curves: Sequence[Curve], compare: Sequence[str]) -> None:
    """Draw a line for each curve, or group of curves that are alike; a group also has its range.

    The curves of a group that has no range have a line each.
    """
    groups = [part for group in _groups_of(curves, compare) for part in _with_a_range(group)]
    for number, (group, name) in enumerate(zip(groups, _names_of(groups, compare), strict=True)):
        style = _STYLES[number // len(_COLOURS) % len(_STYLES)]
        look = {"color": _COLOURS[number % len(_COLOURS)], "linestyle": style, "linewidth": 2.0}
        if len(group) == 1:
            steps, returns = group[0].of_trial(group[0].leader)
            axes.plot(*smoothed(steps, returns), label=name, zorder=3, marker=_alone(steps), **look)
        else:
            steps, (low, median, high) = _range_of(group)
            axes.fill_between(steps, low, high, color=look["color"], alpha=0.18, linewidth=0, zorder=2)
            axes.plot(steps, median, label=name, zorder=4, **look)


def _groups_of(curves: Sequence[Curve], compare: Sequence[str] = ()) -> list[list[Curve]]:
    """Return curves that are alike, also in the settings of `compare`, together.

    One without an evaluation is left out if another one is alike.
    """
    groups: dict[object, list[Curve]] = {}
    for number, curve in enumerate(curves):
        compared = [curve.settings.get(name) for name in compare]
        groups.setdefault(number if curve.alike is None else repr((curve.alike, compared)), []).append(curve)
    return [[curve for curve in group if len(curve.steps)] or group[:1] for group in groups.values()]


def _with_a_range(group: list[Curve]) -> list[list[Curve]]:
    """Return a group as one, or its curves one by one if no part of the axis has them together, as after one evaluation."""
    if len(group) > 1:
        begin, end, *_ = _lines_of(group)
        return [group] if begin < end else [[curve] for curve in group]
    return [group]


def _range_of(curves: Sequence[Curve]) -> tuple[Numbers, Numbers]:
    """Return timesteps, and the lowest, median and highest of the smoothed curves there."""
    begin, end, ends, lines = _lines_of(curves)
    steps = np.linspace(begin, end, 200)
    values = [np.where(steps <= last, np.interp(steps, *line), np.nan) for line, last in zip(lines, ends, strict=True)]
    return steps, np.nanquantile(values, (0.0, 0.5, 1.0), axis=0)


def _lines_of(curves: Sequence[Curve]) -> tuple[float, float, list[float], list[tuple[Numbers, Numbers]]]:
    """Return where the range of curves begins and ends, where each of them ends, and the smoothed curves.

    It begins with the last curve. A solved curve keeps its last value to the end of the longest, another one leaves them at
    its end. The range ends when fewer than half of the curves are left.
    """
    lines = [smoothed(*curve.of_trial(curve.leader)) for curve in curves]
    begin, longest = max(steps[0] for steps, _ in lines), max(steps[-1] for steps, _ in lines)
    ends = [longest if curve.solved else steps[-1] for curve, (steps, _) in zip(curves, lines, strict=True)]
    return begin, sorted(ends)[len(ends) // 2], ends, lines


# --- names of groups --------------------------------------------------------------------------------------------------


def _check_compared(curves: Sequence[Curve], compare: Sequence[str]) -> None:
    known = dict.fromkeys(name for curve in curves for name in curve.settings)
    for name in compare:
        if name not in known:
            differ = ", ".join(differing([curve.settings for curve in curves])) or "none"
            raise ValueError(
                f"{name!r} is not a setting of these runs{suggest(name, known)}; the settings in which they differ: {differ}"
            )
        value = curves[0].settings.get(name)
        if all(curve.settings.get(name) == value for curve in curves):
            warn_user(f"every run has {name}={value_in_words(value)}: comparing it tells nothing apart", UserWarning)


def _names_of(groups: Sequence[Sequence[Curve]], compare: Sequence[str]) -> list[str]:
    """Return a name for each group of curves: its settings of `compare`, or those that differ."""
    envs = {repr(group[0].settings.get("env")) for group in groups}
    asked = [*(["env"] if len(envs) > 1 and "env" not in compare else []), *compare]
    settings = [_told_of(group[0], asked) for group in groups]
    texts = [_settings_in_words(own, asked or telling(settings)) for own in settings]
    is_mixed, names = any(len(group) > 1 for group in groups), []
    for group, own, text in zip(groups, settings, texts, strict=True):
        if asked and texts.count(text) > 1:  # other settings tell these groups apart
            rivals = [other for other, its in zip(settings, texts, strict=True) if its == text]
            more = [name for name in telling(rivals) if name not in asked]
            text = ", ".join(filter(None, (text, _settings_in_words(own, more))))
        names.append(_named(group, text, bool(compare), is_mixed))
    return [f"{name}: {group[0].name}" if names.count(name) > 1 else name for group, name in zip(groups, names, strict=True)]


def _told_of(curve: Curve, asked: Sequence[str]) -> Mapping[str, Any]:
    """Return the settings that may name a curve, those that are asked for in any case."""
    return curve.settings if curve.race is None else {**curve.race, **{name: curve.settings.get(name) for name in asked}}


def _settings_in_words(settings: Mapping[str, Any], names: Sequence[str]) -> str:
    words = {name: value_in_words(settings.get(name)) for name in names}
    return ", ".join(value if name == "env" else f"{name}={value}" for name, value in words.items())


def _named(group: Sequence[Curve], text: str, is_compared: bool, is_mixed: bool) -> str:
    """Return the name of a group in the legend. text: its settings in words; is_mixed: whether some group has several runs."""
    if len(group) == 1 and not is_compared:
        text = _without_env(text, group[0])
    text = text if is_compared else textwrap.shorten(text, _LONGEST_NAME, placeholder=" ...")
    if len(group) > 1:
        return f"{text} (median of {len(group)} runs)" if text else f"median of {len(group)} runs, lowest to highest"
    if is_compared:
        return text
    return f"{text}: {group[0].name}" if is_mixed and text else group[0].name


def _without_env(text: str, curve: Curve) -> str:
    """Return settings in words without the environment, if the curve's name begins with that, too."""
    env = str(curve.settings.get("env"))
    named_twice = curve.name.startswith(f"{env}, ") and f"{text}, ".startswith(f"{env}, ")
    return text[len(env) :].removeprefix(", ") if named_twice else text


def _short_number(value: float, _: object) -> str:
    """Format a number as in 200k and 1.5M."""
    size, unit = next(((size, unit) for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if abs(value) >= size), (1.0, ""))
    return f"{value / size:g}{unit}"
