"""Draw the pictures of docs/how-es-works.md into docs/pictures. Run by `make docs`; needs matplotlib.

python docs/scripts/draw_how_es_works.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

PICTURES = Path(__file__).parents[1] / "pictures"
INK, GREY, BLUE, RED, ORANGE = "#222233", "#8a94a3", "#2a5fa8", "#c2452d", "#e0913a"
PALE, BOX = "#eef3fb", "#f6f7f9"
SIGMA, PAIRS = 0.35, 10


def figure(width: float, height: float, panels: int = 1) -> tuple[Figure, list[Axes]]:
    """An empty picture, in inches."""
    made = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasSVG(made)
    return made, [made.add_subplot(1, panels, number + 1) for number in range(panels)]


def save(made: Figure, name: str) -> None:
    """The same file for the same picture."""
    with mpl.rc_context({"svg.hashsalt": name}):
        made.savefig(PICTURES / name, metadata={"Date": None})


def landscape(points: np.ndarray) -> np.ndarray:
    """The mean return of the parameters (..., 2): a hill, longer than wide."""
    x, y = points[..., 0] - 1.6, points[..., 1] - 1.1
    return -0.5 * (x - 0.35 * y) ** 2 - 1.1 * y**2


def centred_ranks(returns: np.ndarray) -> np.ndarray:
    """From -0.5, the worst, to 0.5."""
    return returns.argsort().argsort() / (len(returns) - 1) - 0.5


def draw_step() -> None:
    """Mirrored candidates around theta, their ranks, and the step that they give."""
    made, (axes,) = figure(6.4, 3.9)
    grid = np.stack(np.meshgrid(np.linspace(-1.5, 2.6, 60), np.linspace(-1.2, 1.7, 60)), -1)
    axes.contourf(grid[..., 0], grid[..., 1], landscape(grid), levels=14, cmap="Blues", alpha=0.45)
    theta, noise = np.array([-0.2, -0.1]), np.random.default_rng(5).standard_normal((PAIRS, 2))
    sides = np.stack([theta + SIGMA * noise, theta - SIGMA * noise])
    ranks = centred_ranks(landscape(sides).ravel()).reshape(2, PAIRS)
    for plus, minus in sides.transpose(1, 0, 2):
        axes.plot(*zip(plus, minus, strict=True), color=GREY, linewidth=0.8, zorder=1)
    dots = axes.scatter(*sides.reshape(-1, 2).T, c=ranks.ravel(), cmap="RdYlGn", edgecolor=INK, linewidth=0.6, s=42, zorder=2)
    step = (ranks[0] - ranks[1]) @ noise / (2 * PAIRS * SIGMA)
    axes.annotate("", theta + step, theta, arrowprops={"arrowstyle": "-|>", "color": INK, "linewidth": 2.2}, zorder=3)
    axes.plot(*theta, "o", color=INK, zorder=4)
    axes.annotate(r"$\theta$", theta, (9, -5), textcoords="offset points", fontsize=13, color=INK)
    axes.annotate(r"$\theta+\alpha g$", theta + step, (7, -4), textcoords="offset points", fontsize=13, color=INK)
    axes.plot(1.6, 1.1, "*", color=INK, markersize=11)
    axes.annotate("best return", (1.6, 1.1), (9, -4), textcoords="offset points", color=INK)
    made.colorbar(dots, ax=axes, label="centred rank of the return", ticks=[-0.5, 0, 0.5])
    axes.set(xlabel="first parameter", ylabel="second parameter", aspect="equal")
    save(made, "es_step.svg")


def draw_ranks() -> None:
    """What one candidate with a far return weighs, by returns and by ranks."""
    returns = np.array([120.0, 95.0, 80.0, 140.0, -900.0, 110.0, 100.0, 130.0])
    panels = {
        "returns": (returns, GREY),
        "standardised returns": ((returns - returns.mean()) / returns.std(), RED),
        "centred ranks": (centred_ranks(returns), BLUE),
    }
    made, several = figure(8.4, 2.7, len(panels))
    for axes, (title, (values, colour)) in zip(several, panels.items(), strict=True):
        axes.bar(range(1, len(values) + 1), values, color=colour, width=0.7)
        axes.axhline(0, color=INK, linewidth=0.8)
        axes.set_title(title, fontsize=11, color=INK)
        axes.set(xlabel="candidate", xticks=range(1, len(values) + 1))
        axes.spines[["top", "right"]].set_visible(False)
    save(made, "es_ranks.svg")


def box(axes: Axes, x: float, y: float, size: tuple[float, float], lines: list[str], fill: str) -> None:
    """A box with a heading and lines below it; x and y are its centre."""
    width, height = size
    shape = FancyBboxPatch((x - width / 2, y - height / 2), width, height, boxstyle="round,pad=0.06", fc=fill, ec=INK, lw=0.9)
    axes.add_patch(shape)
    for number, line in enumerate(lines):
        height_of_line = y + 0.26 * ((len(lines) - 1) / 2 - number)
        weight = "bold" if number == 0 else "normal"
        axes.text(x, height_of_line, line, ha="center", va="center", fontsize=9.5, weight=weight, color=INK)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 1.6})


def draw_wire() -> None:
    """The parent, three workers, and what goes to and fro."""
    made, (axes,) = figure(8.4, 3.9)
    axes.set(xlim=(0, 10), ylim=(0, 4.3))
    axes.axis("off")
    box(axes, 1.5, 2.6, (2.4, 3.0), ["parent", "ask: draws indices", "tell: ranks, weighted", "sum, one step"], PALE)
    for number, y in enumerate((3.75, 2.6, 1.45), 1):
        box(axes, 8.3, y, (2.9, 0.72), [f"worker {number}", r"$\theta\pm\sigma\,\epsilon$, one whole episode"], PALE)
        arrow(axes, (2.85, y + 0.14), (6.75, y + 0.14), BLUE)
        arrow(axes, (6.75, y - 0.14), (2.85, y - 0.14), ORANGE)
    axes.text(4.8, 4.02, r"once: $\theta$    each: noise index, sign, seed", color=BLUE, ha="center", fontsize=9.5)
    axes.text(4.8, 1.06, "each: return, length, observation sums", color=ORANGE, ha="center", fontsize=9.5)
    box(axes, 5.0, 0.4, (9.3, 0.52), ["noise table, the same for all: an index stands for a whole vector"], BOX)
    for x in (1.5, 8.3):
        axes.plot([x, x], [0.74, 1.02], color=GREY, linewidth=1.2, linestyle=":")
    save(made, "es_wire.svg")


if __name__ == "__main__":
    draw_step()
    draw_ranks()
    draw_wire()
