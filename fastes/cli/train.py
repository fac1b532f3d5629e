"""fastes train: start or resume a run, or start several with --seeds, and end with a report."""

from __future__ import annotations

import argparse
import contextlib
import math
import shlex
import sys
import textwrap
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import gymnasium

from fastes.checkpoints.locate import find_checkpoint, is_run_folder
from fastes.cli.arguments import (
    RUNS,
    add_cluster,
    add_env_kwargs,
    add_short_help,
    add_workers,
    add_wrapper,
    find_modules_here,
    parse_env_kwargs,
)
from fastes.cli.saved_model import buildable, read_run, wrapped_source
from fastes.cli.setting_flags import add_settings, given_settings
from fastes.cli.stop_on_signal import INTERRUPTED, StopOnSignal
from fastes.cli.train_report import (
    Run,
    Session,
    draw_all,
    most_judging,
    replay_command,
    report,
    report_all,
    resume_advice,
    resume_command,
    resume_lines,
    solved_among,
)
from fastes.cli.train_reporters import add_report, check_installed, reporters_of
from fastes.envs.named_wrappers import make_wrapped_source
from fastes.errors import FastESError, WorkerError, check_int
from fastes.es.schedules import ANY_NUMBER, count_at, make_schedule
from fastes.model import FastES
from fastes.models.arguments import checked_minutes
from fastes.models.one_pool import one_pool
from fastes.policies.obs_columns import ALL
from fastes.policies.policy_keywords import KEYS
from fastes.pools.pool import run_to_end, side_by_side
from fastes.reports.callbacks import Callback
from fastes.reports.console_log import ConsoleLog
from fastes.reports.monitor_files import EVALUATIONS, MONITOR
from fastes.reports.progress_bar import ProgressBar, SeedsBar
from fastes.runs.run_config import BY_CTRL_C, failed_with
from fastes.runs.run_folder import RunFolder, new_run_folder
from fastes.seeds import MOST_SEEDS, make_models
from fastes.settings.config_file import env_kwargs_of, read_settings
from fastes.settings.settings import COUNTED, SCHEDULES
from fastes.system.console import say
from fastes.system.interrupts import Terminated, interrupts_deferred

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
    *(name for name, key in KEYS.items() if key.description.first),
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
        description="Train a policy. Settings without a flag come from the environment's preset, or from recipes that race "
        "if it has none. The defaults below are those of the first recipe, linear.",
        usage="%(prog)s [env] [flags]",
        add_help=False,
    )
    add_short_help(train, _MAIN)
    _add_start(train)
    _add_run_folder(train)
    train.add_argument(
        "-v",
        dest="verbose",
        action="store_true",
        help="a row per generation, not about one per second",
    )
    train.add_argument("-q", "--quiet", action="store_true", help="no progress bar and no rows")
    add_settings(train)


def _add_start(train: Any) -> None:
    """Add the arguments that say how a training begins."""
    train.add_argument("env", nargs="?", help="environment id, such as HalfCheetah-v5 or module:Env-v0")
    train.add_argument(
        "--resume", type=Path, metavar="RUN", help="continue a run, given by its folder; --total-timesteps is its new budget"
    )
    train.add_argument(
        "--max-minutes",
        type=float,
        metavar="M",
        help="end training then; a final selection comes on top",
    )
    train.add_argument("--seed", type=int, help="int >= 0; everything follows from it (default: drawn and recorded)")
    train.add_argument(
        "--seeds", type=int, metavar="N", help="N trainings at once, with the seeds S to S+N-1 of --seed S (default there: 0)"
    )
    add_workers(train)
    add_cluster(train)
    train.add_argument(
        "--preset",
        help="start: an id, linear, paper, ars, default or a .toml file (default: auto, the id's own; else recipes race)",
    )
    train.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="settings of a run, its folder or config.toml (with its environment and seed), or a preset's file; flags win",
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
    """Add the arguments about files."""
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
    add_report(train)
    for flag, name in (("--monitor-csv", MONITOR), ("--evaluations-npz", EVALUATIONS)):
        train.add_argument(
            flag, action="store_true", help=f"write {name} as Stable-Baselines3 does; a resumed run continues what it has"
        )


def run_train(arguments: argparse.Namespace) -> int:
    if not 0.0 <= arguments.checkpoint_seconds < math.inf:
        raise ValueError(f"--checkpoint-seconds {arguments.checkpoint_seconds}: expected seconds, 0 or more")
    checked_minutes(arguments.max_minutes, "--max-minutes")
    check_installed(arguments.report)
    if arguments.env is None and arguments.resume is None and arguments.config is None:
        raise ValueError("expected an environment id, as in 'fastes train CartPole-v1', --config FILE or --resume RUN")
    if arguments.env is not None and arguments.env not in gymnasium.registry and is_run_folder(Path(arguments.env)):
        raise ValueError(
            f"{arguments.env} is a run folder: --resume {arguments.env} continues it, --config begins another such run"
        )
    if arguments.seeds is not None:
        return _run_seeds(arguments)
    with contextlib.ExitStack() as until_the_end:
        model, folder = (_resumed_run if arguments.resume else _new_run)(arguments, until_the_end)
        status = _train(arguments, model, folder)
        sys.stdout.flush()
        folder.note_losses()
        return status


# --- start ------------------------------------------------------------------------------------------------------------


def _new_run(arguments: argparse.Namespace, until_the_end: contextlib.ExitStack) -> Run:
    """Make a new model and its run folder, which until_the_end unlocks."""
    runs = _absolute(_place_of_runs(arguments))
    model = _new_model(arguments, arguments.seed)
    try:
        return Run(model, until_the_end.enter_context(_new_folder(arguments, runs, model)))
    except BaseException:
        model.close()
        raise


def _new_folder(arguments: argparse.Namespace, runs: Path, model: FastES) -> RunFolder:
    """Create the next free run folder of the model's environment. runs: absolute path of the parent of all run folders."""
    try:
        path = new_run_folder(runs, model.source.name)
    except OSError as error:
        raise OSError(
            f"the run folder cannot be made in {_place_of_runs(arguments)}: {error.strerror}; choose another with --runs"
        ) from error
    return _run_folder(path, arguments, _place_of_runs(arguments) / path.relative_to(runs))


def _new_model(arguments: argparse.Namespace, seed: int | None) -> FastES:
    """Make the model that the flags describe. seed: None for that of --config, or a drawn one."""
    given: dict[str, Any] = {
        **({} if arguments.preset is None else {"preset": arguments.preset}),
        "n_workers": arguments.workers,
        "cluster": arguments.cluster,
        "env_kwargs": parse_env_kwargs(arguments.env_kwargs),
        **given_settings(arguments),
    }
    if arguments.population_scale is not None:
        given["population_scale"] = arguments.population_scale
    if arguments.config is None:
        if arguments.wrapper:
            source = make_wrapped_source(arguments.env, given.pop("env_kwargs"), arguments.wrapper)
            return FastES(source, seed=seed, **given)
        return FastES(arguments.env, seed=seed, **given)
    config = read_settings(arguments.config, arguments.env)
    env: Any = arguments.env
    if env is None:
        find_modules_here(config.env, *config.wrappers)
    if arguments.wrapper:
        own = env_kwargs_of(arguments.config, config, given["env_kwargs"]) if env in (None, config.env) else given["env_kwargs"]
        env = make_wrapped_source(str(env or config.env), own, arguments.wrapper)
        del given["env_kwargs"]
    elif env in (None, config.env):
        arguments.wrapper = list(config.wrappers)
    if seed is not None:
        given["seed"] = seed
    return FastES.from_config(arguments.config, env, **given)


def _place_of_runs(arguments: argparse.Namespace) -> Path:
    """Return the parent of all run folders."""
    return RUNS if arguments.runs is None else arguments.runs


def _absolute(path: Path) -> Path:
    """Make a path absolute. Environments may change the working directory, so call this before one is built."""
    try:
        return path.absolute()
    except FileNotFoundError as error:
        raise OSError(f"the working directory was deleted: there is no {path}; go to another folder") from error


def _resumed_run(arguments: argparse.Namespace, until_the_end: contextlib.ExitStack) -> Run:
    """Load the model of --resume and take its run folder, which until_the_end unlocks."""
    of_new_runs = ("runs", "seed", "preset", "config", "env_kwargs", "population_scale")
    if any(getattr(arguments, name) not in (None, []) for name in of_new_runs):
        raise ValueError(
            "--runs, --seed, --preset, --config, --env-kwargs and --population-scale belong to a new run: a resumed one keeps "
            "its own"
        )
    if arguments.resume.is_file():
        raise ValueError(f"--resume {arguments.resume}: expected a run folder such as runs/CartPole-v1/1")
    resume = _absolute(arguments.resume)
    checkpoint = _absolute(find_checkpoint(arguments.resume, "last"))
    folder = until_the_end.enter_context(_run_folder(resume, arguments, arguments.resume))
    settings = given_settings(arguments)
    env = wrapped_source(resume, arguments.env, {}, arguments.wrapper) or arguments.env
    if (run := read_run(resume)) and arguments.env in (None, run.env):
        arguments.wrapper = arguments.wrapper or list(run.wrappers)
    model = FastES.load(checkpoint, env, arguments.workers, cluster=arguments.cluster, **settings)
    buildable(model, f"fastes train {{}} --resume {shlex.quote(str(arguments.resume))}")
    is_less = "total_timesteps" in settings and model.settings.total_timesteps < model.budget
    if model.settings.total_timesteps <= model.num_timesteps and (folder.finished or is_less):
        raise ValueError(_spent(arguments, model))
    for file in folder.files:  # before anything is written: a changed setting may not fit them
        file.check(model)
    if model.budget and model.num_timesteps < model.settings.total_timesteps != model.budget:
        _tell_of_stretched_schedules(model)
    if changed := {name: value for name, value in settings.items() if name != "total_timesteps"}:
        say(f"with other settings from here on: {', '.join(f'{name} = {value!r}' for name, value in changed.items())}")
    return Run(model, folder)


def _spent(arguments: argparse.Namespace, model: FastES) -> str:
    """Return the error of a run whose budget is spent."""
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


def _tell_of_stretched_schedules(model: FastES) -> None:
    """Say that schedules stretch over the new budget: values that had fallen may rise."""
    settings = model.settings
    remaining = 1.0 - model.num_timesteps / settings.total_timesteps
    values = [
        f"{name} from {_value_at(name, value, remaining)} ({value})"
        for name in SCHEDULES
        if isinstance(value := getattr(settings, name), str)
    ]
    if values:
        say(f"schedules stretch over the new budget of {settings.total_timesteps} timesteps: on with {', '.join(values)}")


def _value_at(name: str, value: str, remaining: float) -> str:
    """Return the value of a schedule. remaining: share of the progress that remains."""
    if name in COUNTED:
        return str(count_at(value, remaining))
    return f"{make_schedule(name, value, ANY_NUMBER)(remaining):.4g}"


def _run_folder(path: Path, arguments: argparse.Namespace, shown: Path) -> RunFolder:
    return RunFolder(
        path,
        arguments.checkpoint_seconds,
        arguments.on_save_error,
        shown,
        monitor_csv=arguments.monitor_csv,
        evaluations_npz=arguments.evaluations_npz,
    )


def note_start(model: FastES, folder: RunFolder, wrappers: Sequence[str] = ()) -> None:
    """Write config.toml. wrappers: those of the command line."""
    command = shlex.join(["fastes", *sys.argv[1:]])
    cluster = model.pool_choice.for_run_folder()
    started = time.strftime("%Y-%m-%d %H:%M:%S%z")
    named = {**cluster, "wrappers": list(wrappers)} if wrappers else cluster
    folder.write_config(model, {**named, "command": command, "started": started, "at_timesteps": model.num_timesteps})


def _tell_start(model: FastES, what: str) -> None:
    """Print what is trained. what: the seeds and their run folders."""
    settings = model.settings
    shown = textwrap.shorten(str(settings.obs_columns).replace(",", ", "), 60, placeholder=" ...")
    seen = f" of observations {shown}" if settings.obs_columns != ALL else ""
    least = "at least " if settings.generation_timesteps else ""
    is_race = model.selection.is_open_race
    shape = f"{settings.policy}{seen}, {model.num_params} parameters"
    policy = "" if is_race else f"{shape}, {least}{settings.population_size} candidates per generation, "
    say(f"{model.source.name}: {policy}{model.pool.in_words}, {what}")


# --- one training -----------------------------------------------------------------------------------------------------


def _row_seconds(arguments: argparse.Namespace) -> float:
    """Return the seconds between two rows of statistics."""
    if arguments.verbose:
        return 0.0
    return _ROW_SECONDS[sys.stdout is not None and sys.stdout.isatty()]


def _train(arguments: argparse.Namespace, model: FastES, folder: RunFolder) -> int:
    note_start(model, folder, arguments.wrapper)
    _tell_start(model, f"seed {model.seed}, run folder {folder.shown}")
    bar = ProgressBar(_LINE_SECONDS, judging=most_judging(model))
    callbacks: list[Callback] = [folder] if arguments.quiet else [ConsoleLog(seconds=_row_seconds(arguments)), folder, bar]
    started, before = time.perf_counter(), (model.num_timesteps, model.generation)
    with reporters_of([folder], arguments.report) as (reporters,), model, StopOnSignal() as interrupt, bar:
        status = _learn(model, folder, [*callbacks, *reporters, interrupt], arguments.max_minutes)
        if status:
            return status
        interrupt.training_has_ended()
        session = Session(*before, time.perf_counter() - started)
        try:
            report(model, folder, session, interrupt.requested, bar)
        except (KeyboardInterrupt, Terminated) as stopped:
            _note_stop([] if model.solved else [folder], stopped)
            say(f"\nstopped before the report was whole; for that: {resume_command(model, folder.shown)}", file=sys.stderr)
            raise
    return INTERRUPTED if interrupt.requested else 0


def _learn(model: FastES, folder: RunFolder, callbacks: Sequence[Callback], minutes: float | None) -> int:
    """Train and save.

    Returns:
        The exit status, 0 if a report can follow, as it does after the first Ctrl-C.
    """
    left = max(0, model.settings.total_timesteps - model.num_timesteps)
    try:
        model.learn(left, callbacks, reset_num_timesteps=False, max_minutes=minutes)
        with interrupts_deferred():
            saved = folder.save_somewhere(model)
    except KeyboardInterrupt as stopped:
        _note_stop([folder], stopped)
        say(
            f"\nstopped at once. {_what_is_lost(model, folder)} To continue: {resume_command(model, folder.shown)}",
            file=sys.stderr,
        )
        return INTERRUPTED
    except Terminated as ended:
        _note_stop([folder], ended)
        saved = folder.save_somewhere(model)
        say(f"\n{ended.signal_name}: {saved} is written; to continue: {resume_command(model, folder.shown)}", file=sys.stderr)
        with contextlib.suppress(OSError, FastESError):
            folder.draw(model)
        return ended.exit_status
    except Exception as error:
        with interrupts_deferred():
            folder.note_end(failed_with(error))
            saved = folder.save_somewhere(model)
        say(f"training failed in {_running_in(model, error)}; what came before is saved in {saved}", file=sys.stderr)
        _tell_how_to_replay(model, folder, error)
        raise
    return 0 if saved.parent == folder.path else 1


def _note_stop(folders: Iterable[RunFolder], stopped: KeyboardInterrupt | Terminated) -> None:
    """Note in each run folder which signal ended its training."""
    how = f"stopped by {stopped.signal_name}" if isinstance(stopped, Terminated) else BY_CTRL_C
    with interrupts_deferred():
        for folder in folders:
            folder.note_end(how)


def _what_is_lost(model: FastES, folder: RunFolder) -> str:
    """Return what is lost of a training that ended in the middle of a generation."""
    lost = model.num_timesteps - folder.saved_timesteps
    gone = f"the {lost} since are" if lost else "what was running is"
    return f"The last checkpoint holds {folder.saved_timesteps} timesteps; {gone} lost."


def _running_in(model: FastES, error: Exception) -> str:
    """Return the generation in which an error was raised, and its trial if there are several."""
    if not isinstance(error, WorkerError) or not error.generation:
        return f"generation {model.generation + 1}"
    return f"generation {error.generation}{f' of trial {error.trial}' if error.trial else ''}"


def _tell_how_to_replay(model: FastES, folder: RunFolder, error: Exception) -> None:
    if isinstance(error, WorkerError) and error.job is not None and error.generation:
        say(f"to play that episode again: {replay_command(model, folder.shown, error)}", file=sys.stderr)


# --- several trainings ------------------------------------------------------------------------------------------------


def _run_seeds(arguments: argparse.Namespace) -> int:
    first, number = arguments.seed or 0, check_int("--seeds", arguments.seeds, 1, MOST_SEEDS)
    if arguments.resume is not None:
        raise ValueError("--seeds belongs to new runs: resume each run on its own, as in fastes train --resume RUN")
    with contextlib.ExitStack() as until_the_end:
        place = _absolute(_place_of_runs(arguments))
        models = make_models(lambda seed: _new_model(arguments, seed), range(first, first + number))
        for model in models:
            until_the_end.enter_context(model)
        runs = [Run(model, until_the_end.enter_context(_new_folder(arguments, place, model))) for model in models]
        status = _train_all(arguments, runs)
        sys.stdout.flush()
        for run in runs:
            run.folder.note_losses()
        return status


def _train_all(arguments: argparse.Namespace, runs: Sequence[Run]) -> int:
    for model, folder in runs:
        note_start(model, folder, arguments.wrapper)
    (first, folder), (last, last_folder) = runs[0], runs[-1]
    one = f"seed {first.seed}, run folder {folder.shown}"
    several = f"seeds {first.seed} to {last.seed}, run folders {folder.shown} to {last_folder.shown.name}"
    _tell_start(first, one if len(runs) == 1 else several)
    bar, started = SeedsBar(len(runs), judging=most_judging(first)), time.perf_counter()
    reporting = reporters_of([run.folder for run in runs], arguments.report)
    with reporting as reporters, StopOnSignal() as interrupt, one_pool([run.model for run in runs]), bar:
        status = _learn_all(runs, reporters, [interrupt] if arguments.quiet else [bar, interrupt], arguments.max_minutes)
        if status:
            return status
        interrupt.training_has_ended()
        try:
            report_all(runs, time.perf_counter() - started, interrupt.requested, bar)
        except (KeyboardInterrupt, Terminated) as stopped:
            _note_stop([run.folder for run in runs if not run.model.solved], stopped)
            say(f"\nstopped before the report was whole; for that:\n{resume_lines(runs)}", file=sys.stderr)
            raise
    return INTERRUPTED if interrupt.requested else 0


def _learn_all(
    runs: Sequence[Run], reporters: Sequence[Sequence[Callback]], callbacks: Sequence[Callback], minutes: float | None
) -> int:
    """`_learn` for all runs side by side. reporters: those of each run; callbacks: those of all runs."""
    failed: list[Run] = []
    whole: list[Run] = []
    try:
        each = zip(runs, reporters, strict=True)
        run_to_end(side_by_side(*[_learn_one(run, [*its, *callbacks], minutes, failed, whole) for run, its in each]))
    except KeyboardInterrupt as stopped:
        solved = solved_among(whole)
        _note_stop([run.folder for run in runs if run not in solved], stopped)
        left = resume_advice(runs, solved, _with_timesteps)
        say(f"\nstopped at once; each run's last checkpoint is whole{left}", file=sys.stderr)
        return INTERRUPTED
    except Terminated as ended:
        _note_stop([run.folder for run in runs if not run.model.solved], ended)
        _save_all(runs)
        say(f"\n{ended.signal_name}: all runs are saved{resume_advice(runs, solved_among(runs))}", file=sys.stderr)
        with contextlib.suppress(OSError, FastESError):
            draw_all(runs)
        return ended.exit_status
    except Exception as error:
        with interrupts_deferred():
            for run in runs:
                if run in failed:
                    run.folder.note_end(failed_with(error))
                elif not run.model.solved:
                    run.folder.note_end("stopped when another seed failed")
            _save_all(runs)
        _tell_of_failure(runs, failed, error)
        raise
    return 0 if len(whole) == len(runs) else 1


async def _learn_one(
    run: Run, callbacks: Sequence[Callback], minutes: float | None, failed: list[Run], whole: list[Run]
) -> None:
    """Train and save one of several runs.

    Args:
        run: The run.
        callbacks: Its callbacks besides its folder.
        minutes: Longest time.
        failed: Gets the run after an exception.
        whole: Gets the run when its folder holds all of it.
    """
    model, folder = run
    try:
        budget = model.settings.total_timesteps
        await model.learn_async(budget, [folder, *callbacks], reset_num_timesteps=False, max_minutes=minutes)
    except Exception:
        failed.append(run)
        raise
    with interrupts_deferred():
        if folder.save_somewhere(model).parent == folder.path:
            whole.append(run)


def _save_all(runs: Sequence[Run]) -> None:
    """Save all runs, even if saving one fails; then raise the last error."""
    with contextlib.ExitStack() as all_of_them:
        for model, folder in runs:
            all_of_them.callback(folder.save_somewhere, model)


def _tell_of_failure(runs: Sequence[Run], failed: Sequence[Run], error: Exception) -> None:
    for model, _ in failed:
        say(f"training failed with seed {model.seed}, in its generation {model.generation + 1}", file=sys.stderr)
    say(f"all {len(runs)} runs are saved as they were before{resume_advice(runs, solved_among(runs))}", file=sys.stderr)
    for model, folder in failed:
        _tell_how_to_replay(model, folder, error)


def _with_timesteps(runs: Sequence[Run]) -> str:
    """Return `resume_lines` with the timesteps of each checkpoint."""
    lines = resume_lines(runs).splitlines()
    return "\n".join(
        f"{line}  ({run.folder.saved_timesteps} of {run.model.num_timesteps} timesteps)"
        for run, line in zip(runs, lines, strict=True)
    )
