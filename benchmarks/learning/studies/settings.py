"""Population size, sigma and learning rate, one at a time around a study's settings (studies.short), at equal steps."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.learning.reports.plots import COLOURS, draw_finals, new_figure, save
from benchmarks.learning.reports.sections import cpu_minutes, final_scores
from benchmarks.learning.runs.clock import Budget
from benchmarks.learning.runs.evaluation import Task
from benchmarks.learning.runs.results import Row, Run
from benchmarks.learning.studies.short import fastes_for, short_settings
from benchmarks.learning.studies.study import FIRST_SHARE, Study, add_one_env, nothing_to_check
from benchmarks.peers.zoo import changed_settings
from benchmarks.tables import markdown_table
from fastes.settings.preset_loader import choose_settings
from fastes.settings.settings import Settings

VARIED = ("population_size", "sigma", "learning_rate")
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


def add_options(parser: argparse.ArgumentParser) -> None:
    add_one_env(parser, 200_000, "of a run", points=8, episodes=5)


def times_factor(name: str, value: Any, factor: float) -> Any:
    """A setting times a factor: an even number of candidates, of at least 2; each number of a schedule."""
    if name == "population_size":
        return max(2, 2 * round(value * factor / 2))
    if isinstance(value, str):
        head, *numbers = value.split("_")
        return "_".join([head, *(f"{float(number) * factor:g}" for number in numbers)])
    return float(f"{value * factor:g}")


def middle(env: str) -> Settings:
    """The settings around which others are tried."""
    return choose_settings(env, None, short_settings(env))


def contestants(env: str) -> dict[str, dict[Any, str]]:
    """Setting -> its values, rising -> the name of the contestant; the middle's own is in each."""
    unchanged = middle(env)
    found: dict[str, dict[Any, str]] = {}
    for name in VARIED:
        own = getattr(unchanged, name)
        values = [times_factor(name, own, factor) for factor in FACTORS]
        found[name] = {value: fastes_for(env) if value == own else fastes_for(env, **{name: value}) for value in values}
    return found


def tasks(arguments: argparse.Namespace, seeds: range) -> list[Task]:
    budget, episodes = Budget(steps=arguments.timesteps), (arguments.points, arguments.episodes, arguments.final_episodes)
    names = dict.fromkeys(name for values in contestants(arguments.env).values() for name in values.values())
    return [Task(arguments.env, name, seed, budget, *episodes, first_share=FIRST_SHARE) for seed in seeds for name in names]


def condition(row: Row) -> dict[str, Any]:
    preset, changed = choose_settings(row.env, None, {}), changed_settings(row.algo)
    return {"env": row.env, **{name: changed.get(name, getattr(preset, name)) for name in VARIED}}


def write(arguments: argparse.Namespace, runs: list[Run], folder: Path) -> str:
    unchanged = fastes_for(arguments.env)
    figure, axes = new_figure(len(VARIED), sharey=True)
    rows = []
    for panel, (name, values) in zip(axes, contestants(arguments.env).items(), strict=True):
        shown = {value: [run for run in runs if run.final.algo == algo] for value, algo in values.items()}
        shown = {value: of for value, of in shown.items() if of}
        at = [float(value) if not isinstance(value, str) else float(value.split("_")[1]) for value in shown]
        draw_finals(panel, at, list(shown.values()), name, COLOURS["fastes"])
        for x, value in zip(at, shown, strict=True):
            if values[value] == unchanged:
                panel.axvline(x, color="grey", linestyle=":")
        panel.set_xscale("log", base=2)
        panel.set_xticks(at, [f"{x:g}" for x in at])
        panel.set(xlabel=name)
        rows += [
            (name, f"{value}{' (middle)' if values[value] == unchanged else ''}", final_scores(of))
            for value, of in shown.items()
        ]
    axes[0].set_ylabel("noise-free return, median over seeds")
    figure.suptitle(f"{arguments.env}: one setting at a time, {arguments.timesteps:,} steps")
    save(figure, folder / "settings.png")
    text = f"{arguments.env}, {arguments.timesteps:,} steps a run: final noise-free return, median and range over seeds."
    table = markdown_table(("setting", "value", "final return"), rows)
    return "\n\n".join((text, table, cpu_minutes(runs)))


STUDY = Study(
    "Population size, sigma and learning rate, one at a time", 3, add_options, nothing_to_check, tasks, condition, write
)
