"""fastes train: a run folder is begun or gone on with, and ends with a report."""

from __future__ import annotations

import argparse
import contextlib
import math
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium

from fastes.checkpoints.locate import is_run_folder
from fastes.cli.arguments import add_cluster, add_env_kwargs, add_short_help, add_workers, add_wrapper
from fastes.cli.setting_flags import add_settings
from fastes.cli.train.report import Session, most_judging, replay_command, report, resume_command
from fastes.cli.train.seeds import run_seeds
from fastes.cli.train.start import RUNS, new, note_start, resumed, tell_start
from fastes.cli.train.stop_on_signal import INTERRUPTED, StopOnSignal
from fastes.errors import FastESError, WorkerError
from fastes.model import FastES
from fastes.models.arguments import checked_minutes
from fastes.policies.policy_keywords import KEYS
from fastes.reports.callbacks import Callback
from fastes.reports.console_log import ConsoleLog
from fastes.reports.monitor_files import EVALUATIONS, MONITOR
from fastes.reports.progress_bar import ProgressBar
from fastes.runs.run_folder import RunFolder
from fastes.system.console import say
from fastes.system.interrupts import Terminated, interrupts_wait

_ROW_SECONDS = {True: 1.0, False: 10.0}  # on a terminal, and in a file or a pipe
_LINE_SECONDS = 30.0  # between lines on how far the training is, in a file or a pipe

_MAIN = (  # what --help shows
    "env",
    "resume",
    "config",
    "preset",
    "total_timesteps",
    "max_minutes",
    "target_return",
    "seed",
    "seeds",
    "workers",
    "cluster",
    "policy",
    *(name for name, key in KEYS.items() if key.told.first),
    "population_size",
    "population_scale",
    "sigma",
    "learning_rate",
    "verbose",
    "quiet",
    "help",
    "help_all",
)


def add_train(commands: Any) -> None:
    train = commands.add_parser(
        "train",
        help="train a policy on all cores",
        description="Train a policy. Settings without a flag come from the environment's preset. The defaults below are of an "
        "environment that has none.",
        usage="%(prog)s [env] [flags]",
        add_help=False,
    )
    train.set_defaults(command="train")
    add_short_help(train, _MAIN)
    _add_start(train)
    _add_run_folder(train)
    train.add_argument(
        "-v",
        dest="verbose",
        action="store_true",
        help="a row per generation, not about one per second",
    )
    train.add_argument("--quiet", action="store_true", help="no progress bar and no rows")
    add_settings(train)


def _add_start(train: Any) -> None:
    """What a training begins with."""
    train.add_argument("env", nargs="?", help="environment id, such as HalfCheetah-v5 or module:Env-v0")
    train.add_argument(
        "--resume", type=Path, metavar="RUN", help="go on with a run folder; --total-timesteps is its new budget"
    )
    train.add_argument(
        "--max-minutes",
        type=float,
        metavar="M",
        help="end after the generation that runs then; --resume goes on",
    )
    train.add_argument("--seed", type=int, help="int >= 0; everything follows from it (default: drawn and recorded)")
    train.add_argument(
        "--seeds", type=int, metavar="N", help="N trainings at once, with the seeds S to S+N-1 of --seed S (default there: 0)"
    )
    add_workers(train)
    add_cluster(train)
    train.add_argument(
        "--preset",
        help="whose settings to start from: an environment id, general, default, paper or ars",
    )
    train.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="settings of a run, its folder or config.toml (with its environment and seed), or of a best.toml; flags win",
    )
    add_env_kwargs(train)
    add_wrapper(train)
    train.add_argument(
        "--population-scale",
        type=int,
        metavar="K",
        help="K times the preset's candidates per generation, and a learning rate for them (default: 1)",
    )


def _add_run_folder(train: Any) -> None:
    """What it leaves, where and how often."""
    train.add_argument("--runs", type=Path, metavar="DIR", help=f"where run folders go (default: {RUNS})")
    train.add_argument(
        "--checkpoint-seconds", type=float, default=30.0, metavar="S", help="seconds between checkpoints (default: 30)"
    )
    train.add_argument(
        "--on-save-error",
        choices=("continue", "stop"),
        default="continue",
        help="what a full disk does to the training (default: continue; saving is tried again)",
    )
    for flag, name in (("--monitor-csv", MONITOR), ("--evaluations-npz", EVALUATIONS)):
        train.add_argument(
            flag, action="store_true", help=f"write {name} as Stable-Baselines3 does; a resumed run goes on with what it has"
        )


def run_train(arguments: argparse.Namespace) -> int:
    if not 0.0 <= arguments.checkpoint_seconds < math.inf:
        raise ValueError(f"--checkpoint-seconds {arguments.checkpoint_seconds}: expected seconds, 0 or more")
    checked_minutes(arguments.max_minutes, "--max-minutes")
    if arguments.env is None and arguments.resume is None and arguments.config is None:
        raise ValueError("expected an environment id, as in 'fastes train CartPole-v1', --config FILE or --resume RUN")
    if arguments.env is not None and arguments.env not in gymnasium.registry and is_run_folder(Path(arguments.env)):
        raise ValueError(
            f"{arguments.env} is a run folder: --resume {arguments.env} goes on with it, --config begins another such run"
        )
    if arguments.seeds is not None:
        return run_seeds(arguments)
    with contextlib.ExitStack() as until_the_end:
        model, folder = (resumed if arguments.resume else new)(arguments, until_the_end)
        status = _train(arguments, model, folder)
        sys.stdout.flush()
        folder.note_losses()
        return status


def _row_seconds(arguments: argparse.Namespace) -> float:
    """Between two rows of statistics."""
    if arguments.verbose:
        return 0.0
    return _ROW_SECONDS[sys.stdout is not None and sys.stdout.isatty()]


def _train(arguments: argparse.Namespace, model: FastES, folder: RunFolder) -> int:
    note_start(model, folder, arguments.wrapper)
    tell_start(arguments, model, f"seed {model.seed}, run folder {folder.shown}")
    bar = ProgressBar(_LINE_SECONDS, judging=most_judging(model))
    callbacks: list[Callback] = [folder] if arguments.quiet else [ConsoleLog(seconds=_row_seconds(arguments)), folder, bar]
    started, before = time.perf_counter(), (model.num_timesteps, model.generation)
    with model, StopOnSignal() as interrupt, bar:
        status = _learn(model, folder, [*callbacks, interrupt], arguments.max_minutes)
        if status:
            return status
        interrupt.training_has_ended()
        session = Session(*before, time.perf_counter() - started)
        try:
            report(model, folder, session, interrupt.requested, bar)
        except (KeyboardInterrupt, Terminated):
            say(f"\nstopped before the report was whole; for that: {resume_command(model, folder.shown)}", file=sys.stderr)
            raise
    return INTERRUPTED if interrupt.requested else 0


def _learn(model: FastES, folder: RunFolder, callbacks: Sequence[Callback], minutes: float | None) -> int:
    """Train and save. An exit status: 0 where a report can follow, as after the first Ctrl-C, too."""
    left = max(0, model.settings.total_timesteps - model.num_timesteps)
    try:
        model.learn(left, callbacks, reset_num_timesteps=False, max_minutes=minutes)
        with interrupts_wait():
            saved = folder.save_somewhere(model)
    except KeyboardInterrupt:
        say(
            f"\nstopped at once. {_what_is_lost(model, folder)} To go on: {resume_command(model, folder.shown)}",
            file=sys.stderr,
        )
        return INTERRUPTED
    except Terminated as ended:
        saved = folder.save_somewhere(model)
        name = signal.Signals(ended.number).name
        say(f"\n{name}: {saved} is written; to go on: {resume_command(model, folder.shown)}", file=sys.stderr)
        with contextlib.suppress(OSError, FastESError):
            folder.draw(model)
        return ended.exit_status
    except Exception as error:
        with interrupts_wait():
            saved = folder.save_somewhere(model)
        say(f"training failed in generation {model.generation + 1}; what came before is saved in {saved}", file=sys.stderr)
        if isinstance(error, WorkerError) and error.job is not None and error.generation:
            say(f"to play that episode again: {replay_command(model, folder.shown, error)}", file=sys.stderr)
        raise
    return 0 if saved.parent == folder.path else 1


def _what_is_lost(model: FastES, folder: RunFolder) -> str:
    """Of a training that ended in the middle of a generation."""
    lost = model.num_timesteps - folder.saved_timesteps
    gone = f"the {lost} since are" if lost else "what was running is"
    return f"The last checkpoint holds {folder.saved_timesteps} timesteps; {gone} lost."
