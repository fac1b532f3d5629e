"""fastes train: a run folder is begun or gone on with, and ends with a report."""

from __future__ import annotations

import argparse
import contextlib
import math
import re
import shlex
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from fastes.agent import FastES
from fastes.cli.arguments import given_settings, parse_env_kwargs
from fastes.envs.source import MissingEnv
from fastes.errors import WorkerError
from fastes.es.schedules import ANY_NUMBER, make_schedule
from fastes.reports.callbacks import Callback
from fastes.reports.console_log import ConsoleLog, ProgressBar
from fastes.runs.run_folder import BEST, CHECKPOINT, RunFolder, find_checkpoint, new_run_folder
from fastes.settings.preset_loader import all_presets
from fastes.settings.settings import SCHEDULES
from fastes.system.interrupts import Terminated, interrupts_wait
from fastes.training.record import Record

INTERRUPTED = 130


class StopOnSignal(Callback):
    """The first Ctrl-C ends training after the running generation, the second one at once.

    SIGTERM and SIGHUP raise Terminated at once: whoever sends them does not wait for long.
    """

    def __init__(self) -> None:
        self.requested, self.terminated = False, 0  # the number of the signal that came
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopOnSignal:
        self._before[signal.SIGINT] = signal.signal(signal.SIGINT, self._interrupt)
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
                self._before[number] = signal.signal(number, self._terminate)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if self.terminated else handler)  # a second one must not change the status

    def _interrupt(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.terminated:
            return
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        print("\nCtrl-C: ending after this generation; again to stop at once", file=sys.stderr)

    def _terminate(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if not self.terminated:  # else the checkpoint is being written, and must be
            self.terminated = number
            raise Terminated(number)

    def on_generation(self, model: FastES, record: Record) -> bool:  # noqa: ARG002
        if self.terminated:  # somebody has caught the exception
            raise Terminated(self.terminated)
        return not self.requested


def run_train(arguments: argparse.Namespace) -> int:
    if not 0.0 <= arguments.checkpoint_seconds < math.inf:
        raise ValueError(f"--checkpoint-seconds {arguments.checkpoint_seconds}: expected seconds, 0 or more")
    if arguments.env is None and arguments.resume is None:
        raise ValueError("expected an environment id, as in 'fastes train CartPole-v1', or --resume RUN")
    with contextlib.ExitStack() as until_the_end:
        model, folder = (_resumed if arguments.resume else _new)(arguments, until_the_end)
        status = _train(arguments, model, folder)
        sys.stdout.flush()
        folder.note_losses()
        return status


def _train(arguments: argparse.Namespace, model: FastES, folder: RunFolder) -> int:
    command = shlex.join(["fastes", *sys.argv[1:]])
    folder.write_config(
        model, {"command": command, "started": time.strftime("%Y-%m-%d %H:%M:%S%z"), "at_timesteps": model.num_timesteps}
    )
    settings = model.settings
    print(
        f"{model.source.name}: {settings.policy}, {model.num_params} parameters, {settings.population_size} candidates "
        f"a generation, {_counted(model.n_workers, 'worker')}, seed {model.seed}, run folder {folder.shown}"
    )
    if not arguments.resume and arguments.preset is None:
        _tell_of_another_version(model.source.name)
    callbacks: list[Callback] = [folder] if arguments.quiet else [ConsoleLog(), folder, ProgressBar()]
    started = time.perf_counter()
    with model, StopOnSignal() as interrupt:
        left = max(0, model.settings.total_timesteps - model.num_timesteps)
        try:
            model.learn(left, [*callbacks, interrupt], reset_num_timesteps=False)
            with interrupts_wait():
                saved = folder.save_somewhere(model)
        except KeyboardInterrupt:
            print(f"\nstopped at once; the last checkpoint is whole: {_resume_command(model, folder.shown)}", file=sys.stderr)
            return INTERRUPTED
        except Terminated as ended:
            saved = folder.save_somewhere(model)
            name = signal.Signals(ended.number).name
            print(f"\n{name}: {saved} is written; to go on: {_resume_command(model, folder.shown)}", file=sys.stderr)
            return ended.exit_status
        except Exception as error:
            with interrupts_wait():
                saved = folder.save_somewhere(model)
            print(
                f"training failed in generation {model.generation + 1}; what came before is saved in {saved}", file=sys.stderr
            )
            if isinstance(error, WorkerError) and error.job is not None and error.generation:
                print(f"to play that episode again: {_replay_command(model, folder.shown, error)}", file=sys.stderr)
            raise
        if saved.parent != folder.path:
            return 1
        seconds = time.perf_counter() - started
        try:
            _report(model, folder, seconds, interrupt.requested)
        except (KeyboardInterrupt, Terminated):
            print(f"\nstopped before the report was whole; for that: {_resume_command(model, folder.shown)}", file=sys.stderr)
            raise
    return INTERRUPTED if interrupt.requested else 0


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _tell_of_another_version(env: str) -> None:
    """Of a preset for another version of an environment that has none."""
    others = [name for name in all_presets() if "-v" in env and name.rpartition("-v")[0] == env.rpartition("-v")[0]]
    if others and env not in others:
        print(f"{env} has no preset, these are FastES's defaults; --preset {others[0]} takes those of another version")


def _new(arguments: argparse.Namespace, until_the_end: contextlib.ExitStack) -> tuple[FastES, RunFolder]:
    runs = _absolute(arguments.runs)
    model = FastES(
        arguments.env,
        preset=arguments.preset,
        n_workers=arguments.workers,
        seed=arguments.seed,
        env_kwargs=parse_env_kwargs(arguments.env_kwargs),
        **given_settings(arguments),
    )
    try:
        path = new_run_folder(runs, model.source.name)
    except OSError as error:
        model.close()
        raise OSError(
            f"the run folder cannot be made in {arguments.runs}: {error.strerror}; choose another with --runs"
        ) from error
    shown = arguments.runs / path.relative_to(runs)
    return model, until_the_end.enter_context(_run_folder(path, arguments, shown))


def _absolute(path: Path) -> Path:
    """An environment may leave the working directory."""
    try:
        return path.absolute()
    except FileNotFoundError as error:
        raise OSError(f"the working directory was deleted: there is no {path}; go to another folder") from error


def _resumed(arguments: argparse.Namespace, until_the_end: contextlib.ExitStack) -> tuple[FastES, RunFolder]:
    if arguments.seed is not None or arguments.preset is not None or arguments.env_kwargs:
        raise ValueError("--seed, --preset and --env-kwargs belong to a new run: a resumed one keeps its own")
    if arguments.resume.is_file():
        raise ValueError(f"--resume {arguments.resume}: expected a run folder such as runs/CartPole-v1/1")
    resume = _absolute(arguments.resume)
    checkpoint = find_checkpoint(resume, "last")
    folder = until_the_end.enter_context(_run_folder(resume, arguments, arguments.resume))
    model = buildable(FastES.load(checkpoint, arguments.env, arguments.workers, **given_settings(arguments)))
    if model.settings.total_timesteps <= model.num_timesteps and folder.finished:
        raise ValueError(
            f"{arguments.resume} has spent its budget ({model.num_timesteps} of {model.settings.total_timesteps} timesteps): "
            "give a larger one with --total-timesteps"
        )
    if model.budget and model.num_timesteps < model.settings.total_timesteps != model.budget:
        _tell_of_stretched_schedules(model)
    return model, folder


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


def _module_id(model: FastES) -> str | None:
    """The id of an environment that a module has to be imported for: a checkpoint names none, so the command line has to."""
    return model.source.name if ":" in model.source.name else None


def _env_flag(model: FastES) -> str:
    """--env for the commands that play a run, where they need it."""
    name = _module_id(model)
    return f" --env {shlex.quote(name)}" if name else ""


def _resume_command(model: FastES, path: Path) -> str:
    """What goes on with the run."""
    name = _module_id(model)
    return f"fastes train {shlex.quote(name) + ' ' if name else ''}--resume {shlex.quote(str(path))}"


def _replay_command(model: FastES, path: Path, error: WorkerError) -> str:
    return f"fastes replay {shlex.quote(str(path))} --generation {error.generation} --job {error.job}{_env_flag(model)}"


def _report(model: FastES, folder: RunFolder, seconds: float, interrupted: bool) -> None:
    path = shlex.quote(str(folder.shown))
    print(f"{model.num_timesteps} timesteps in {_counted(model.generation, 'generation')}, {seconds:.1f} s")
    if interrupted:
        print(f"stopped by Ctrl-C; to go on: {_resume_command(model, folder.shown)}")
    else:
        _choose_best(model, folder)
    if not folder.draw(model):
        print("no learning_curve.png: it needs matplotlib, pip install 'fastes[plots]'")
    if not interrupted:
        folder.finish()
    print(f"to play it back: fastes play {path}{_env_flag(model)} --video {re.split('[/:]', model.source.name)[-1]}.mp4")


def _choose_best(model: FastES, folder: RunFolder) -> None:
    """Compare the last parameters with those of the best evaluation over the same seeds; best.zip gets the better ones."""
    episodes = model.settings.target_episodes
    last = model.evaluate(episodes, first_seed=None if model.solved else 0)  # None: the confirmation once more
    if model.solved:
        folder.keep_as_best(model)
        target = f"target {model.target_return:g}"
        print(f"solved: return {last.mean:.1f} +- {last.std:.1f} over {episodes} noise-free episodes ({target})")
        return
    model.close()
    print(f"last parameters: return {last.mean:.1f} +- {last.std:.1f} over {episodes} noise-free episodes")
    if not (folder.path / BEST).exists():
        folder.keep_as_best(model)
        return
    with FastES.load(folder.path / BEST, _module_id(model), model.n_workers) as best_model:
        best_model.evaluator.env_shown = True
        best = best_model.evaluate(episodes)
    print(f"best parameters: return {best.mean:.1f} +- {best.std:.1f} over the same seeds")
    if last.mean >= best.mean:
        folder.keep_as_best(model)
    target = "" if math.isinf(model.target_return) else f" (target {model.target_return:g} not reached)"
    print(f"{BEST} holds the better of the two, {CHECKPOINT} the last{target}")


def buildable(model: FastES) -> FastES:
    """The model, unless its environment cannot be built: better said now than by a worker."""
    if isinstance(model.source.factory, MissingEnv):
        model.source()
    return model
