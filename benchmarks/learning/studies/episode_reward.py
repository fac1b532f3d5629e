"""The reward paid only at the episode's end: what does that cost each contestant? FastES nothing, to the last bit."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learning.options import add_evaluation
from benchmarks.learning.reports.plots import COLOURS, draw_curves, new_figure, save
from benchmarks.learning.reports.sections import cpu_minutes, final_scores
from benchmarks.learning.runs.clock import Budget
from benchmarks.learning.runs.contestant import base_of
from benchmarks.learning.runs.evaluation import Task
from benchmarks.learning.runs.results import Row, Run
from benchmarks.learning.studies.changed import paid_late
from benchmarks.learning.studies.short import contestant_name, short_settings
from benchmarks.learning.studies.study import FIRST_SHARE, Study
from benchmarks.options import COUNT
from benchmarks.peers.zoo import algorithm_of
from benchmarks.tables import markdown_table
from fastes import FastES
from fastes.settings.preset_loader import preset_for

ALGOS = ("fastes", "ppo", "trpo")
_GENERATIONS = 3


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--env", nargs="+", default=["InvertedPendulum-v5", "Swimmer-v5"], metavar="ID", help="default: %(default)s"
    )
    parser.add_argument("--timesteps", type=COUNT, default=40_000, metavar="N", help="of a run (default: 40,000)")
    add_evaluation(parser, points=6, episodes=3, final_episodes=20)


def trained(env: str, seed: int, preset: str) -> FastES:
    with FastES(env, preset=preset, n_workers=0, seed=seed, target_return="none", **short_settings(env)) as model:
        model.learn(10**12, lambda _, record: record.generation < _GENERATIONS)
    return model


def check(arguments: argparse.Namespace) -> str:
    """FastES with the delay has the bits of FastES without it, or nothing is run."""
    for env in arguments.env:
        for seed in (arguments.first_seed, arguments.first_seed + 1):
            plain, late = (trained(each, seed, preset_for(env)) for each in (env, paid_late(env)))
            if not np.array_equal(plain.theta, late.theta) or plain.num_timesteps != late.num_timesteps:
                raise SystemExit(f"{env}, seed {seed}: FastES learns something else when rewards are paid late; nothing is run")
    return f"FastES has the same parameters with and without the delay, bit for bit, after {_GENERATIONS} generations."


def tasks(arguments: argparse.Namespace, seeds: range) -> list[Task]:
    budget, episodes = Budget(steps=arguments.timesteps), (arguments.points, arguments.episodes, arguments.final_episodes)
    return [
        Task(changed, contestant_name(algo, env), seed, budget, *episodes, first_share=FIRST_SHARE)
        for seed in seeds
        for env in arguments.env
        for algo in ALGOS
        for changed in (env, paid_late(env))
    ]


def condition(row: Row) -> dict[str, Any]:
    base = base_of(row.env)
    return {"env": base, "reward": "each step" if base == row.env else "at the end", "algo": algorithm_of(row.algo)}


def differing(runs: list[Run]) -> list[str]:
    """Seeds of FastES whose evaluations differ with the delay: none, or something is wrong."""
    curves = {(*condition(run.final).values(), run.final.seed): run for run in runs if algorithm_of(run.final.algo) == "fastes"}
    wrong = []
    for (env, reward, algo, seed), run in curves.items():
        other = curves.get((env, "at the end", algo, seed)) if reward == "each step" else None
        if other is not None and _told(run) != _told(other):
            wrong.append(f"{env} seed {seed}")
    return wrong


def _told(run: Run) -> tuple[list[float], list[float]]:
    return run.scores.tolist(), run.steps.tolist()


def write(arguments: argparse.Namespace, runs: list[Run], folder: Path) -> str:
    figure, axes = new_figure(len(ALGOS), len(arguments.env))
    panels, rows = iter(axes), []
    for env in arguments.env:
        for algo in ALGOS:
            kinds = {
                kind: [run for run in runs if condition(run.final) == {"env": env, "reward": kind, "algo": algo}]
                for kind in ("each step", "at the end")
            }
            panel = next(panels)
            draw_curves(panel, {kind: of for kind, of in kinds.items() if of}, dict.fromkeys(kinds, COLOURS[algo]))
            for line in panel.lines[1:]:
                line.set_linestyle("--")
            panel.set(title=f"{env}, {algo}", xlabel="steps", ylabel="noise-free return")
            if panel.lines:
                panel.legend(title="reward paid", fontsize="small")
            rows.append((env, algo, *map(final_scores, kinds.values())))
    save(figure, folder / "episode_reward.png")
    wrong = differing(runs)
    verdict = f"FastES differs, which must not be: {', '.join(wrong)}." if wrong else "Every evaluation of FastES is the same."
    text = f"{arguments.timesteps:,} steps a run: final noise-free return, median and range over seeds."
    table = markdown_table(("environment", "contestant", "paid each step", "paid at the end"), rows)
    return "\n\n".join((text, table, f"{verdict} {cpu_minutes(runs)}"))


STUDY = Study("Reward paid only at the episode's end", 3, add_options, check, tasks, condition, write)
