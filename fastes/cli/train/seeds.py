"""fastes train --seeds: several trainings at once, with a run folder each."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import time
from collections.abc import Sequence

from fastes.cli.train.report import most_judging, replay_command
from fastes.cli.train.seeds_report import draw_all, how_to_go_on, report_all, solved_among, to_go_on
from fastes.cli.train.start import Run, absolute, new_folder, new_model, note_start, place_of_runs, tell_start
from fastes.cli.train.stop_on_signal import INTERRUPTED, StopOnSignal
from fastes.errors import FastESError, WorkerError, check_int
from fastes.pools.pool import run_trainings
from fastes.reports.callbacks import Callback
from fastes.reports.progress_bar import SeedsBar
from fastes.seeds import MOST_SEEDS, make_models, one_pool
from fastes.system.console import say
from fastes.system.interrupts import Terminated, interrupts_wait


def run_seeds(arguments: argparse.Namespace) -> int:
    first, number = arguments.seed or 0, check_int("--seeds", arguments.seeds, 1, MOST_SEEDS)
    if arguments.resume is not None:
        raise ValueError("--seeds belongs to new runs: go on with each run by itself, as in fastes train --resume RUN")
    with contextlib.ExitStack() as until_the_end:
        place = absolute(place_of_runs(arguments))
        models = make_models(lambda seed: new_model(arguments, seed), range(first, first + number))
        for model in models:
            until_the_end.enter_context(model)
        runs = [Run(model, until_the_end.enter_context(new_folder(arguments, place, model))) for model in models]
        status = _train(arguments, runs)
        sys.stdout.flush()
        for run in runs:
            run.folder.note_losses()
        return status


def _train(arguments: argparse.Namespace, runs: Sequence[Run]) -> int:
    for model, folder in runs:
        note_start(model, folder, arguments.wrapper)
    (first, folder), (last, last_folder) = runs[0], runs[-1]
    one = f"seed {first.seed}, run folder {folder.shown}"
    several = f"seeds {first.seed} to {last.seed}, run folders {folder.shown} to {last_folder.shown.name}"
    tell_start(arguments, first, one if len(runs) == 1 else several)
    bar, started = SeedsBar(len(runs), judging=most_judging(first)), time.perf_counter()
    with StopOnSignal() as interrupt, one_pool([run.model for run in runs]), bar:
        status = _learn(runs, [interrupt] if arguments.quiet else [bar, interrupt], arguments.max_minutes)
        if status:
            return status
        interrupt.training_has_ended()
        try:
            report_all(runs, time.perf_counter() - started, interrupt.requested, bar)
        except (KeyboardInterrupt, Terminated):
            say(f"\nstopped before the report was whole; for that:\n{how_to_go_on(runs)}", file=sys.stderr)
            raise
    return INTERRUPTED if interrupt.requested else 0


def _learn(runs: Sequence[Run], callbacks: Sequence[Callback], minutes: float | None) -> int:
    """Train and save all. An exit status: 0 where a report can follow, as after the first Ctrl-C, too."""
    failed: list[Run] = []
    whole: list[Run] = []
    try:
        run_trainings(*[_training(run, callbacks, minutes, failed, whole) for run in runs])
    except KeyboardInterrupt:
        left = to_go_on(runs, solved_among(whole), _with_what)
        say(f"\nstopped at once; each run's last checkpoint is whole{left}", file=sys.stderr)
        return INTERRUPTED
    except Terminated as ended:
        _save_all(runs)
        name = signal.Signals(ended.number).name
        say(f"\n{name}: all runs are saved{to_go_on(runs, solved_among(runs))}", file=sys.stderr)
        with contextlib.suppress(OSError, FastESError):
            draw_all(runs)
        return ended.exit_status
    except Exception as error:
        with interrupts_wait():
            _save_all(runs)
        _tell_of_failure(runs, failed, error)
        raise
    return 0 if len(whole) == len(runs) else 1


async def _training(
    run: Run, callbacks: Sequence[Callback], minutes: float | None, failed: list[Run], whole: list[Run]
) -> None:
    """One of the trainings.

    minutes: that it may take. failed: where it goes after an exception. whole: where it goes once its folder holds all of it.
    """
    model, folder = run
    try:
        budget = model.settings.total_timesteps
        await model.learn_async(budget, [folder, *callbacks], reset_num_timesteps=False, max_minutes=minutes)
    except Exception:
        failed.append(run)
        raise
    with interrupts_wait():
        if folder.save_somewhere(model).parent == folder.path:
            whole.append(run)


def _save_all(runs: Sequence[Run]) -> None:
    """Save all runs, also after one could not be saved; raises the last one's error."""
    with contextlib.ExitStack() as all_of_them:
        for model, folder in runs:
            all_of_them.callback(folder.save_somewhere, model)


def _tell_of_failure(runs: Sequence[Run], failed: Sequence[Run], error: Exception) -> None:
    for model, _ in failed:
        say(f"training failed with seed {model.seed}, in its generation {model.generation + 1}", file=sys.stderr)
    say(f"all {len(runs)} runs are saved as they were before{to_go_on(runs, solved_among(runs))}", file=sys.stderr)
    for model, folder in failed:
        if isinstance(error, WorkerError) and error.job is not None and error.generation:
            say(f"to play that episode again: {replay_command(model, folder.shown, error)}", file=sys.stderr)


def _with_what(runs: Sequence[Run]) -> str:
    """A line for each run, and what its checkpoint holds."""
    lines = how_to_go_on(runs).splitlines()
    return "\n".join(
        f"{line}  ({run.folder.saved_timesteps} of {run.model.num_timesteps} timesteps)"
        for run, line in zip(runs, lines, strict=True)
    )
