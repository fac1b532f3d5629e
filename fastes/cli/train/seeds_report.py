"""How several trainings end: a table over all of them, and a picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from fastes.checkpoints.locate import BEST
from fastes.cli.train.report import Outcome, choose_best, counted, play_command, resume_command
from fastes.cli.train.start import Run
from fastes.pools.pool import run_trainings
from fastes.reports.progress_bar import SeedsBar
from fastes.runs.curves import plot_curves, read_curve
from fastes.system.console import say
from fastes.system.installation import install_command


def report_all(runs: Sequence[Run], seconds: float, interrupted: bool, bar: SeedsBar) -> None:
    timesteps, generations = (sum(getattr(model, name) for model, _ in runs) for name in ("num_timesteps", "generation"))
    say(f"{counted(len(runs), 'seed')}: {timesteps} timesteps in {counted(generations, 'generation')}, {seconds:.1f} s")
    outcomes = {} if interrupted else _judge(runs, bar)
    bar.close()
    if interrupted:
        say(f"stopped by Ctrl-C{to_go_on(runs, solved_among(runs))}")
    else:
        if late := [run for run in runs if run.model.out_of_time]:
            say(f"{counted(len(late), 'seed')} ended by --max-minutes, before the budget; to go on:\n{how_to_go_on(late)}")
        _print_table(runs, outcomes)
    for model, folder in runs:
        if not interrupted:
            folder.note_result(outcomes[model.seed].kept)
    picture = draw_all(runs)  # matplotlib takes seconds until it is imported
    for run in runs:
        if not interrupted and not run.model.out_of_time:
            run.folder.finish()
    say(f"no learning curves: they need matplotlib, {install_command('plots')}" if picture is None else f"curves: {picture}")
    if not interrupted:
        best = max(runs, key=lambda run: _rank(outcomes[run.model.seed]))
        say(f"to play the best one back: {play_command(best.model, best.folder)}")


def how_to_go_on(runs: Sequence[Run]) -> str:
    """A line for each run."""
    return "\n".join(f"  seed {model.seed}: {resume_command(model, folder.shown)}" for model, folder in runs)


def solved_among(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.model.solved]


def to_go_on(runs: Sequence[Run], solved: Sequence[Run], how: Callable[[Sequence[Run]], str] = how_to_go_on) -> str:
    """The end of a sentence about all runs, and a line for each that is not solved: nothing is left to do for those that are.

    how: makes the lines.
    """
    left = [run for run in runs if run not in solved]
    said = f"; solved: {', '.join(f'seed {model.seed}' for model, _ in solved)}" if solved else ""
    return f"{said}; to go on:\n{how(left)}" if left else said


def _judge(runs: Sequence[Run], bar: SeedsBar) -> dict[int, Outcome]:
    """Evaluate the parameters of each seed; its best.zip gets the better ones."""
    outcomes = run_trainings(*[choose_best(model, folder, bar) for model, folder in runs])
    return {run.model.seed: outcome for run, outcome in zip(runs, outcomes, strict=True)}


def _rank(outcome: Outcome) -> float:
    """A return that is no number is the worst."""
    mean = outcome.kept.mean
    return -math.inf if math.isnan(mean) else mean


def _print_table(runs: Sequence[Run], outcomes: dict[int, Outcome]) -> None:
    model = runs[0].model
    target = "" if math.isinf(model.target_return) else f" (target {model.target_return:g})"
    say(f"what each {BEST} holds, over {counted(model.settings.target_episodes, 'noise-free episode')}{target}:")
    rows = [("seed", "timesteps", "return", "worst", "solved", "run folder")]
    for model, folder in runs:
        kept = outcomes[model.seed].kept
        solved = "yes" if model.solved else "no" if target else "-"
        shown = f"{kept.mean:.1f} +- {kept.std:.1f}", f"{kept.worst:.1f}"
        rows.append((str(model.seed), str(model.num_timesteps), *shown, solved, str(folder.shown)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        *numbers, path = row
        print("  ".join([*(f"{text:>{width}}" for text, width in zip(numbers, widths, strict=False)), path]))
    means = [outcomes[model.seed].kept.mean for model, _ in runs]
    worst = min(runs, key=lambda run: _rank(outcomes[run.model.seed])).model.seed
    say(f"median return {float(np.median(means)):.1f}")
    say(f"worst return {outcomes[worst].kept.mean:.1f} (seed {worst})")


def draw_all(runs: Sequence[Run]) -> Path | None:
    """Draw each learning curve, and all in one picture, whose path this is; None when matplotlib is missing.

    It is named after the run folders, which no other training has.
    """
    curves = []
    for its_model, its in runs:
        if not its.draw(its_model):
            return None
        curve = read_curve(its.path, its.shown)
        curves.append(curve._replace(name=f"seed {its_model.seed}", target=its_model.target_return))
    (first, folder), (last, last_folder) = runs[0], runs[-1]
    name = f"runs-{folder.path.name}-{last_folder.path.name}.png"
    plot_curves(curves, folder.path.parent / name, f"{first.source.name}, seeds {first.seed} to {last.seed}")
    return folder.shown.parent / name
