"""Other estimators of the same gradient, and averaging theta, beside plain FastES with the same settings and draws."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.head_to_head.clock import Budget
from benchmarks.head_to_head.evaluation import Task
from benchmarks.head_to_head.results import Row, Run
from benchmarks.options import COUNT, add_evaluation
from benchmarks.report import markdown_table
from benchmarks.studies.estimator_run import make_model
from benchmarks.studies.figures import cell, cpu_minutes, draw_curves, new_figure, save
from benchmarks.studies.short import short_settings
from benchmarks.studies.strategies import STRATEGIES
from benchmarks.studies.study import FIRST_SHARE, Study
from fastes import FastES

_GENERATIONS = 3
_OTHERS = 200_000
TIMESTEPS = {"Swimmer-v5": _OTHERS, "HalfCheetah-v5": 2_000_000, "Hopper-v5": 160_000}  # ten generations or more


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--env", nargs="+", default=list(TIMESTEPS), metavar="ID", help="default: %(default)s")
    parser.add_argument("--variants", nargs="+", default=list(STRATEGIES), choices=STRATEGIES, help="default: all")
    told = ", ".join(f"{env} {steps:,}" for env, steps in TIMESTEPS.items())
    parser.add_argument("--timesteps", type=COUNT, metavar="N", help=f"of a run (default: {told}; others {_OTHERS:,})")
    add_evaluation(parser, points=8, episodes=5, final_episodes=20)


def check(arguments: argparse.Namespace) -> str:
    """The plain estimator, its perturbations written out, has FastES's own bits, or nothing is run."""
    for env in arguments.env:
        made = [
            FastES(env, n_workers=0, seed=arguments.first_seed, target_return="none", **short_settings(env)),
            make_model(env, "plain", arguments.first_seed, 0),
        ]
        for model in made:
            with model:
                model.learn(10**12, lambda _, record: record.generation < _GENERATIONS)
        if not np.array_equal(made[0].theta, made[1].theta):
            raise SystemExit(f"{env}: the plain estimator gives other parameters than FastES itself; nothing is run")
    return f"plain gives the parameters of FastES itself, bit for bit, after {_GENERATIONS} generations."


def tasks(arguments: argparse.Namespace, seeds: range) -> list[Task]:
    episodes = (arguments.points, arguments.episodes, arguments.final_episodes)
    return [
        Task(
            env,
            variant,
            seed,
            Budget(steps=arguments.timesteps or TIMESTEPS.get(env, _OTHERS)),
            *episodes,
            first_share=FIRST_SHARE,
        )
        for seed in seeds
        for env in arguments.env
        for variant in arguments.variants
    ]


def condition(row: Row) -> dict[str, Any]:
    return {"env": row.env, "variant": row.algo}


def write(arguments: argparse.Namespace, runs: list[Run], folder: Path) -> str:
    figure, axes = new_figure(len(arguments.env))
    rows = []
    for panel, env in zip(axes, arguments.env, strict=True):
        of_env = [run for run in runs if run.final.env == env]
        found = {variant: [run for run in of_env if run.final.algo == variant] for variant in arguments.variants}
        draw_curves(panel, {variant: of for variant, of in found.items() if of})
        panel.set(title=env, xlabel="environment steps", ylabel="noise-free return, median over seeds")
        if panel.lines:
            panel.legend(fontsize="small")
        rows.append((env, *map(cell, found.values())))
    save(figure, folder / "estimators.png")
    text = "Final noise-free return, median and range over seeds; the same settings for all, equal steps in a line."
    return "\n\n".join((text, markdown_table(("environment", *arguments.variants), rows), cpu_minutes(runs)))


STUDY = Study(
    "Estimators that were tried: orthogonal, guided and reused perturbations, averaged parameters",
    3,
    add_options,
    check,
    tasks,
    condition,
    write,
    "benchmarks.studies.estimator_run",
)
