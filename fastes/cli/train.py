"""fastes train: a run folder is begun or gone on with, and ends with a report."""

from __future__ import annotations

import argparse
import contextlib
import math
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastes.agent import FastES
from fastes.cli.arguments import add_short_help, add_workers, find_modules_here, parse_env_kwargs
from fastes.cli.saved_model import buildable
from fastes.cli.setting_flags import add_settings, given_settings
from fastes.cli.train_report import Session, counted, replay_command, report, resume_command
from fastes.errors import FastESError, WorkerError
from fastes.es.schedules import ANY_NUMBER, make_schedule
from fastes.models.from_config import read_settings
from fastes.reports.callbacks import Callback
from fastes.reports.console_log import ConsoleLog, ProgressBar
from fastes.reports.stop_on_signal import INTERRUPTED, StopOnSignal
from fastes.runs.run_folder import RunFolder, find_checkpoint, new_run_folder
from fastes.sb3.files import EVALUATIONS, MONITOR
from fastes.settings.preset_loader import no_preset_note
from fastes.settings.settings import SCHEDULES
from fastes.system.interrupts import Terminated, interrupts_wait

_MAIN = (  # what --help shows
    "env",
    "resume",
    "config",
    "preset",
    "total_timesteps",
    "target_return",
    "seed",
    "workers",
    "policy",
    "net_arch",
    "population_size",
    "population_scale",
    "sigma",
    "learning_rate",
    "quiet",
    "help",
    "help_all",
)


def add_train(commands: Any) -> None:
    train = commands.add_parser(
        "train",
        help="train a policy on all cores",
        description="Train a policy. Settings without a flag come from the environment's preset; defaults below are those of "
        "an environment without one.",
        usage="%(prog)s [env] [flags]",
        add_help=False,
    )
    train.set_defaults(command="train")
    add_short_help(train, _MAIN)
    _add_start(train)
    _add_run_folder(train)
    train.add_argument("--quiet", action="store_true", help="no progress bar and no line a generation")
    add_settings(train)


def _add_start(train: Any) -> None:
    """What a training begins with."""
    train.add_argument("env", nargs="?", help="environment id, such as HalfCheetah-v5 or module:Env-v0")
    train.add_argument(
        "--resume", type=Path, metavar="RUN", help="go on with a run folder; --total-timesteps is its new budget"
    )
    train.add_argument("--seed", type=int, help="int >= 0; everything follows from it (default: drawn and recorded)")
    add_workers(train)
    train.add_argument(
        "--preset", help="settings to start from: an environment id, 'default', 'paper' or 'ars' (default: the environment's)"
    )
    train.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="settings of a run's config.toml (with its environment and seed) or of a best.toml; flags beside it win",
    )
    train.add_argument(
        "--env-kwargs", nargs="+", default=[], metavar="KEY=VALUE", help="arguments of the environment, values as JSON"
    )
    train.add_argument(
        "--population-scale",
        type=int,
        metavar="K",
        help="K times the candidates a generation that the preset or --config says, with the learning rate that suits them: "
        "for many cores (default: 1)",
    )


def _add_run_folder(train: Any) -> None:
    """What it leaves, where and how often."""
    train.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="where run folders go (default: runs)")
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
    if arguments.env is None and arguments.resume is None and arguments.config is None:
        raise ValueError("expected an environment id, as in 'fastes train CartPole-v1', --config FILE or --resume RUN")
    with contextlib.ExitStack() as until_the_end:
        model, folder = (_resumed if arguments.resume else _new)(arguments, until_the_end)
        status = _train(arguments, model, folder)
        sys.stdout.flush()
        folder.note_losses()
        return status


def _train(arguments: argparse.Namespace, model: FastES, folder: RunFolder) -> int:
    _note_start(arguments, model, folder)
    callbacks: list[Callback] = [folder] if arguments.quiet else [ConsoleLog(), folder, ProgressBar()]
    started, before = time.perf_counter(), (model.num_timesteps, model.generation)
    with model, StopOnSignal() as interrupt:
        status = _learn(model, folder, [*callbacks, interrupt])
        if status:
            return status
        session = Session(*before, time.perf_counter() - started)
        try:
            report(model, folder, session, interrupt.requested)
        except (KeyboardInterrupt, Terminated):
            print(f"\nstopped before the report was whole; for that: {resume_command(model, folder.shown)}", file=sys.stderr)
            raise
    return INTERRUPTED if interrupt.requested else 0


def _note_start(arguments: argparse.Namespace, model: FastES, folder: RunFolder) -> None:
    """In the run folder and on the console."""
    command = shlex.join(["fastes", *sys.argv[1:]])
    folder.write_config(
        model, {"command": command, "started": time.strftime("%Y-%m-%d %H:%M:%S%z"), "at_timesteps": model.num_timesteps}
    )
    settings = model.settings
    print(
        f"{model.source.name}: {settings.policy}, {model.num_params} parameters, {settings.population_size} candidates "
        f"a generation, {counted(model.n_workers, 'worker')}, seed {model.seed}, run folder {folder.shown}"
    )
    own = not arguments.resume and arguments.preset is None and arguments.config is None
    if own and (note := no_preset_note(model.source.name, "--preset ")):
        print(note)


def _learn(model: FastES, folder: RunFolder, callbacks: Sequence[Callback]) -> int:
    """Train and save. An exit status: 0 where a report can follow, as after the first Ctrl-C, too."""
    left = max(0, model.settings.total_timesteps - model.num_timesteps)
    try:
        model.learn(left, callbacks, reset_num_timesteps=False)
        with interrupts_wait():
            saved = folder.save_somewhere(model)
    except KeyboardInterrupt:
        print(f"\nstopped at once; {_what_is_lost(model, folder)}: {resume_command(model, folder.shown)}", file=sys.stderr)
        return INTERRUPTED
    except Terminated as ended:
        saved = folder.save_somewhere(model)
        name = signal.Signals(ended.number).name
        print(f"\n{name}: {saved} is written; to go on: {resume_command(model, folder.shown)}", file=sys.stderr)
        with contextlib.suppress(OSError, FastESError):
            folder.draw(model)
        return ended.exit_status
    except Exception as error:
        with interrupts_wait():
            saved = folder.save_somewhere(model)
        print(f"training failed in generation {model.generation + 1}; what came before is saved in {saved}", file=sys.stderr)
        if isinstance(error, WorkerError) and error.job is not None and error.generation:
            print(f"to play that episode again: {replay_command(model, folder.shown, error)}", file=sys.stderr)
        raise
    return 0 if saved.parent == folder.path else 1


def _new(arguments: argparse.Namespace, until_the_end: contextlib.ExitStack) -> tuple[FastES, RunFolder]:
    runs = _absolute(arguments.runs)
    model = _new_model(arguments)
    try:
        path = new_run_folder(runs, model.source.name)
    except OSError as error:
        model.close()
        raise OSError(
            f"the run folder cannot be made in {arguments.runs}: {error.strerror}; choose another with --runs"
        ) from error
    shown = arguments.runs / path.relative_to(runs)
    return model, until_the_end.enter_context(_run_folder(path, arguments, shown))


def _new_model(arguments: argparse.Namespace) -> FastES:
    given = {
        "preset": arguments.preset,
        "n_workers": arguments.workers,
        "env_kwargs": parse_env_kwargs(arguments.env_kwargs),
        **given_settings(arguments),
    }
    if arguments.population_scale is not None:
        given["population_scale"] = arguments.population_scale
    if arguments.config is None:
        return FastES(arguments.env, seed=arguments.seed, **given)
    if arguments.env is None:
        find_modules_here(read_settings(arguments.config).env)
    if arguments.seed is not None:
        given["seed"] = arguments.seed
    return FastES.from_config(arguments.config, arguments.env, **given)


def _absolute(path: Path) -> Path:
    """An environment may leave the working directory."""
    try:
        return path.absolute()
    except FileNotFoundError as error:
        raise OSError(f"the working directory was deleted: there is no {path}; go to another folder") from error


def _resumed(arguments: argparse.Namespace, until_the_end: contextlib.ExitStack) -> tuple[FastES, RunFolder]:
    of_new_runs = ("seed", "preset", "config", "env_kwargs", "population_scale")
    if any(getattr(arguments, name) not in (None, []) for name in of_new_runs):
        raise ValueError(
            "--seed, --preset, --config, --env-kwargs and --population-scale belong to a new run: a resumed one keeps its own"
        )
    if arguments.resume.is_file():
        raise ValueError(f"--resume {arguments.resume}: expected a run folder such as runs/CartPole-v1/1")
    resume = _absolute(arguments.resume)
    checkpoint = find_checkpoint(resume, "last")
    folder = until_the_end.enter_context(_run_folder(resume, arguments, arguments.resume))
    settings = given_settings(arguments)
    model = FastES.load(checkpoint, arguments.env, arguments.workers, **settings)
    buildable(model, f"fastes train {{}} --resume {shlex.quote(str(arguments.resume))}")
    if model.settings.total_timesteps <= model.num_timesteps and folder.finished:
        raise ValueError(_spent(arguments, model))
    if model.budget and model.num_timesteps < model.settings.total_timesteps != model.budget:
        _tell_of_stretched_schedules(model)
    if changed := {name: value for name, value in settings.items() if name != "total_timesteps"}:
        print(f"with other settings from here on: {', '.join(f'{name} = {value!r}' for name, value in changed.items())}")
    return model, folder


def _spent(arguments: argparse.Namespace, model: FastES) -> str:
    """Why a run does not go on."""
    budget, made = model.settings.total_timesteps, model.num_timesteps
    if "total_timesteps" in given_settings(arguments):
        return (
            f"--total-timesteps {budget} is the budget of the whole run, and {arguments.resume} has made {made} timesteps "
            f"already: give a larger one with --total-timesteps, such as {2 * made}"
        )
    return (
        f"{arguments.resume} has spent its budget of {budget} timesteps, with {made} when its last generation ended: give a "
        "larger one with --total-timesteps"
    )


def _what_is_lost(model: FastES, folder: RunFolder) -> str:
    """Of a training that ended in the middle of a generation."""
    lost = model.num_timesteps - folder.saved_timesteps
    before = f"{lost} timesteps after it and " if lost else ""
    return (
        f"the last checkpoint is whole and holds {folder.saved_timesteps} timesteps, {before}the generation that was running "
        f"{'are' if lost else 'is'} lost, to go on"
    )


def _tell_of_stretched_schedules(model: FastES) -> None:
    """Schedules run towards the new budget, so that what had fallen may rise."""
    settings = model.settings
    remaining = 1.0 - model.num_timesteps / settings.total_timesteps
    values = [
        f"{name} from {make_schedule(name, value, ANY_NUMBER)(remaining):.4g} ({value})"
        for name in SCHEDULES
        if isinstance(value := getattr(settings, name), str)
    ]
    if values:
        print(f"schedules stretch over the new budget of {settings.total_timesteps} timesteps: on with {', '.join(values)}")


def _run_folder(path: Path, arguments: argparse.Namespace, shown: Path) -> RunFolder:
    return RunFolder(
        path,
        arguments.checkpoint_seconds,
        arguments.on_save_error,
        shown,
        monitor_csv=arguments.monitor_csv,
        evaluations_npz=arguments.evaluations_npz,
    )
