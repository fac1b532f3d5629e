"""Action repeat 1 to 4 with the same budget of agent decisions: how much does each contestant care?"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.learning.reports.curves import final_interval
from benchmarks.learning.reports.plots import COLOURS, draw_curves, draw_finals, new_figure, save
from benchmarks.learning.reports.sections import cpu_minutes, final_scores
from benchmarks.learning.runs.clock import Budget
from benchmarks.learning.runs.evaluation import Task
from benchmarks.learning.runs.results import Row, Run
from benchmarks.learning.studies.changed import REPEATS, repeated
from benchmarks.learning.studies.short import contestant_name
from benchmarks.learning.studies.study import FIRST_SHARE, Study, add_one_env, nothing_to_check
from benchmarks.peers.zoo import algorithm_of
from benchmarks.tables import markdown_table

ALGOS = ("fastes", "ppo", "trpo")
_REPEATS = (1, *REPEATS)


def add_options(parser: argparse.ArgumentParser) -> None:
    add_one_env(parser, 40_000, "decisions of a run", points=6, episodes=3)


def tasks(arguments: argparse.Namespace, seeds: range) -> list[Task]:
    budget, episodes = Budget(steps=arguments.timesteps), (arguments.points, arguments.episodes, arguments.final_episodes)
    return [
        Task(
            repeated(arguments.env, repeat),
            contestant_name(algo, arguments.env),
            seed,
            budget,
            *episodes,
            first_share=FIRST_SHARE,
        )
        for seed in seeds
        for repeat in _REPEATS
        for algo in ALGOS
    ]


def condition(row: Row) -> dict[str, Any]:
    head, _, name = row.env.rpartition("/")
    repeat = int(head.partition(":repeat")[2] or 1)
    return {"env": name if repeat > 1 else row.env, "repeat": repeat, "algo": algorithm_of(row.algo)}


def write(arguments: argparse.Namespace, runs: list[Run], folder: Path) -> str:
    found = {algo: {repeat: [run for run in runs if _is(run.final, algo, repeat)] for repeat in _REPEATS} for algo in ALGOS}
    shown = {algo: {repeat: of for repeat, of in by.items() if of} for algo, by in found.items()}
    figure, axes = new_figure(1 + len(ALGOS), sharey=True)
    for algo, by in shown.items():
        draw_finals(axes[0], list(by), list(by.values()), algo, COLOURS[algo])
    axes[0].set(xlabel="action repeat", ylabel="noise-free return", title=f"after {arguments.timesteps:,} decisions")
    axes[0].set_xticks(_REPEATS)
    axes[0].legend()
    for each, (algo, by) in zip(axes[1:], shown.items(), strict=True):
        draw_curves(each, {f"repeat {repeat}": of for repeat, of in by.items()})
        each.set(xlabel="decisions", title=algo)
        each.legend(fontsize="small")
    figure.suptitle(f"{arguments.env}: action repeat, median over seeds")
    save(figure, folder / "frame_skip.png")
    rows = [(algo, *(final_scores(of) for of in by.values()), _spread(shown[algo])) for algo, by in found.items()]
    header = ("contestant", *(f"repeat {repeat}" for repeat in _REPEATS), "worst over best")
    return "\n\n".join(
        (
            f"{arguments.env}, {arguments.timesteps:,} decisions a run: final noise-free return, median and range over seeds. "
            "An episode lasts as long in the environment's own steps whatever the repeat, so that returns compare; a decision "
            "of repeat 4 costs four of these steps.",
            markdown_table(header, rows),
            cpu_minutes(runs),
        )
    )


def _is(row: Row, algo: str, repeat: int) -> bool:
    return (algorithm_of(row.algo), condition(row)["repeat"]) == (algo, repeat)


def _spread(by_repeat: dict[int, list[Run]]) -> str:
    """The worst repeat's median over the best one's, where returns are positive."""
    medians = [float(final_interval(of).median) for of in by_repeat.values()]
    return f"{min(medians) / max(medians):.2f}" if medians and min(medians) > 0 else "-"


STUDY = Study("Action repeat 1 to 4: FastES, PPO and TRPO", 3, add_options, nothing_to_check, tasks, condition, write)
