"""What larger populations gave: when a training had a return, the time on many cores, the fitted limit; table, picture."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.learning.reports.plots import new_figure, save
from benchmarks.learning.studies.population_run import WINDOW, Point
from benchmarks.tables import amount, markdown_table

WORKERS = (16, 64)  # for which times are computed
Rules = tuple[str, str, str]


class Reached(NamedTuple):
    """A line of the study's CSV: when a training first had a return; infinite where it never did.

    rate, growth, elites: the rules. aim: the return. generations, steps: of candidates, before the evaluation that had it.
    on_16, on_64: the same as a time, in environment steps that follow one another, computed for so many workers.
    last_steps: where the training ended.
    """

    env: str
    factor: int
    rate: str
    growth: str
    elites: str
    seed: int
    population: int
    aim: float
    generations: float
    steps: float
    on_16: float
    on_64: float
    last_steps: int
    machine: str

    @property
    def rules(self) -> Rules:
        return self.rate, self.growth, self.elites


def first_reached(points: Sequence[Point], aim: float) -> int | None:
    """The first evaluation that has a median of at least the aim together with two before and two after it."""
    half = WINDOW // 2
    for k in range(half, len(points) - half):
        if statistics.median(point.score for point in points[k - half : k + half + 1]) >= aim:
            return k
    return None


def time_on(workers: int, points: Sequence[Point], population: int) -> float:
    """Steps that follow one another until theta of the last point was there, if cores had nothing to do but to step.

    Candidates of a generation count as equally long, so that they are played in rounds; evaluations delay nobody.
    """
    rounds = -(-population // workers)
    return sum(rounds * (after.steps - before.steps) / population for before, after in itertools.pairwise(points))


class Limit(NamedTuple):
    """McCandlish et al. 2018 (arXiv 1812.06162), equation 2.11, for populations: generations = least (1 + critical / factor).

    critical: the factor at which generations are twice the least, and steps twice those of a factor near 0.
    """

    least: float
    critical: float


def fitted_limit(factors: Sequence[float], generations: Sequence[float]) -> Limit:
    """Least squares of logarithms over factors and generations of single trainings; critical between 1/8 and 256."""
    at, seen = np.array(factors, dtype=np.float64), np.log(np.maximum(np.array(generations, dtype=np.float64), 1.0))
    criticals = 2.0 ** np.linspace(-3.0, 8.0, 221)
    shapes = np.log1p(criticals[:, None] / at)
    offsets = (seen - shapes).mean(axis=1)
    best = int(((seen - shapes - offsets[:, None]) ** 2).sum(axis=1).argmin())
    return Limit(float(np.exp(offsets[best])), float(criticals[best]))


def grouped(rows: Sequence[Reached]) -> dict[Rules, dict[int, list[Reached]]]:
    """Rules -> factor, rising -> lines of one return; those of factor 1, which has no rule, are in all."""
    plain = [row for row in rows if row.factor == 1]
    found: dict[Rules, dict[int, list[Reached]]] = {}
    for row in sorted(rows, key=lambda row: row.factor):
        if row.factor > 1:
            by_factor = found.setdefault(row.rules, {1: plain} if plain else {})
            by_factor.setdefault(row.factor, []).append(row)
    return found or {rules: {1: plain} for rules in {row.rules for row in plain}}


_COLUMNS = ("generations", "steps", *(f"on_{workers}" for workers in WORKERS))


def section(rows: Sequence[Reached]) -> str:
    """The table of one return in one environment, and the limits."""
    header = ("rate, growth, elites", "factor", "candidates", "generations", "fewer", "steps", "more")
    header += tuple(f"faster on {workers}" for workers in WORKERS)
    lines = []
    for rules, by_factor in grouped(rows).items():
        bases = dict(zip(_COLUMNS, _medians(by_factor.get(1, [])), strict=True))
        for factor, found in by_factor.items():
            medians = dict(zip(_COLUMNS, _medians(found), strict=True))
            lines.append(
                (
                    ", ".join(rules),
                    str(factor),
                    str(found[0].population),
                    median_and_worst([row.generations for row in found]),
                    ratio(bases["generations"], medians["generations"]),
                    median_and_worst([row.steps for row in found]),
                    ratio(medians["steps"], bases["steps"]),
                    *(ratio(bases[name], medians[name]) for name in _COLUMNS[2:]),
                )
            )
    return f"## {rows[0].env}: {rows[0].aim:g}\n\n{markdown_table(header, lines)}\n\n{limits(rows)}"


def _medians(rows: Sequence[Reached]) -> list[float]:
    return [statistics.median(getattr(row, name) for row in rows) if rows else math.nan for name in _COLUMNS]


def ratio(first: float, second: float) -> str:
    """'2.4'; empty where one of the two is not known."""
    return f"{first / second:.1f}" if math.isfinite(first + second) and second else ""


def median_and_worst(values: Sequence[float]) -> str:
    """'38 (worst 52)'; 'never' for what is infinite."""
    median, worst = (amount(value) if math.isfinite(value) else "never" for value in (statistics.median(values), max(values)))
    return f"{median} (worst {worst})" if len(values) > 1 else median


def limits(rows: Sequence[Reached]) -> str:
    """The fitted limit of each rule that has three factors and whose trainings have all arrived."""
    told = []
    for rules, by_factor in grouped(rows).items():
        found = [row for group in by_factor.values() for row in group]
        if len({row.factor for row in found}) > 2 and all(math.isfinite(row.generations) for row in found):
            limit = fitted_limit([row.factor for row in found], [row.generations for row in found])
            size = found[0].population / found[0].factor * limit.critical
            told.append(
                f"- {', '.join(rules)}: generations = {limit.least:.1f} (1 + {limit.critical:.1f} / factor), so that the "
                f"critical population is {size:.0f}"
            )
    return "\n".join(told)


def draw(rows: Sequence[Reached], path: Path) -> None:
    """Generations and steps to each environment's last return over the factor; dotted: a perfect use of candidates."""
    aims = {row.env: max(other.aim for other in rows if other.env == row.env) for row in rows}
    figure, axes = new_figure(2, len(aims))
    panels = iter(axes)
    for env, aim in aims.items():
        for name in _COLUMNS[:2]:
            panel = next(panels)
            for rules, by_factor in grouped([row for row in rows if (row.env, row.aim) == (env, aim)]).items():
                _draw_rules(panel, ", ".join(rules), by_factor, name)
            panel.set(title=f"{env}, {aim:g}", xlabel="times the preset's population", ylabel=f"{name} to the return")
            panel.set_xscale("log", base=2)
            factors = sorted({row.factor for row in rows if row.env == env})
            panel.set_xticks(factors, [str(factor) for factor in factors])
            panel.set_yscale("log")
    if axes[0].lines:
        axes[0].legend(title="rate, growth, elites", fontsize="small")
    save(figure, path)


def _draw_rules(panel: object, label: str, by_factor: dict[int, list[Reached]], name: str) -> None:
    seen = [(factor, getattr(row, name)) for factor, found in by_factor.items() for row in found]
    medians = [(factor, statistics.median(getattr(row, name) for row in found)) for factor, found in by_factor.items()]
    lines, dots = ([point for point in points if math.isfinite(point[1])] for points in (medians, seen))
    if not lines:
        return
    (line,) = panel.plot(*zip(*lines, strict=True), marker="o", label=label)  # type: ignore[attr-defined]
    panel.scatter(*zip(*dots, strict=True), s=10, alpha=0.5, color=line.get_color())  # type: ignore[attr-defined]
    if lines[0][0] == 1:
        perfect = [lines[0][1] / (factor if name == "generations" else 1) for factor in by_factor]
        panel.plot(list(by_factor), perfect, color="grey", linestyle=":")  # type: ignore[attr-defined]
