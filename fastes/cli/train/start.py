"""The start of a training: a model and its run folder, new or resumed."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastes.checkpoints.locate import find_checkpoint
from fastes.cli.arguments import find_modules_here, parse_env_kwargs
from fastes.cli.saved_model import buildable, read_run, wrapped_source
from fastes.cli.setting_flags import given_settings
from fastes.cli.train.report import Run
from fastes.envs.named_wrappers import make_wrapped_source
from fastes.es.schedules import ANY_NUMBER, count_at, make_schedule
from fastes.model import FastES
from fastes.models.arguments import env_kwargs_of, read_settings
from fastes.policies.obs_columns import ALL
from fastes.runs.run_folder import RunFolder, new_run_folder
from fastes.settings.preset_loader import no_preset_note
from fastes.settings.settings import COUNTED, SCHEDULES
from fastes.system.console import say

RUNS = "runs"  # the folder of run folders, unless --runs says another


def new(arguments: argparse.Namespace, until_the_end: contextlib.ExitStack) -> Run:
    """Make a new model and its run folder, which until_the_end unlocks."""
    runs = absolute(place_of_runs(arguments))
    model = new_model(arguments, arguments.seed)
    try:
        return Run(model, until_the_end.enter_context(new_folder(arguments, runs, model)))
    except BaseException:
        model.close()
        raise


def new_folder(arguments: argparse.Namespace, runs: Path, model: FastES) -> RunFolder:
    """Create the next free run folder of the model's environment. runs: absolute path of the parent of all run folders."""
    try:
        path = new_run_folder(runs, model.source.name)
    except OSError as error:
        raise OSError(
            f"the run folder cannot be made in {place_of_runs(arguments)}: {error.strerror}; choose another with --runs"
        ) from error
    return _run_folder(path, arguments, place_of_runs(arguments) / path.relative_to(runs))


def new_model(arguments: argparse.Namespace, seed: int | None) -> FastES:
    """Make the model that the flags describe. seed: None for that of --config, or a drawn one."""
    given: dict[str, Any] = {
        "preset": arguments.preset,
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


def place_of_runs(arguments: argparse.Namespace) -> Path:
    """Return the parent of all run folders."""
    return Path(RUNS) if arguments.runs is None else arguments.runs


def absolute(path: Path) -> Path:
    """Make a path absolute. Environments may change the working directory, so call this before one is built."""
    try:
        return path.absolute()
    except FileNotFoundError as error:
        raise OSError(f"the working directory was deleted: there is no {path}; go to another folder") from error


def resumed(arguments: argparse.Namespace, until_the_end: contextlib.ExitStack) -> Run:
    """Load the model of --resume and take its run folder, which until_the_end unlocks."""
    of_new_runs = ("runs", "seed", "preset", "config", "env_kwargs", "population_scale")
    if any(getattr(arguments, name) not in (None, []) for name in of_new_runs):
        raise ValueError(
            "--runs, --seed, --preset, --config, --env-kwargs and --population-scale belong to a new run: a resumed one keeps "
            "its own"
        )
    if arguments.resume.is_file():
        raise ValueError(f"--resume {arguments.resume}: expected a run folder such as runs/CartPole-v1/1")
    resume = absolute(arguments.resume)
    checkpoint = absolute(find_checkpoint(arguments.resume, "last"))
    folder = until_the_end.enter_context(_run_folder(resume, arguments, arguments.resume))
    settings = given_settings(arguments)
    env = wrapped_source(resume, arguments.env, {}, arguments.wrapper) or arguments.env
    if run := read_run(resume):
        arguments.wrapper = arguments.wrapper or list(run.wrappers)
    model = FastES.load(checkpoint, env, arguments.workers, cluster=arguments.cluster, **settings)
    buildable(model, f"fastes train {{}} --resume {shlex.quote(str(arguments.resume))}")
    if model.settings.total_timesteps <= model.num_timesteps and folder.finished:
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


def tell_start(arguments: argparse.Namespace, model: FastES, what: str) -> None:
    """Print what is trained. what: the seeds and their run folders."""
    settings = model.settings
    shown = textwrap.shorten(str(settings.obs_columns).replace(",", ", "), 60, placeholder=" ...")
    seen = f" of observations {shown}" if settings.obs_columns != ALL else ""
    least = "at least " if settings.generation_timesteps else ""
    say(
        f"{model.source.name}: {settings.policy}{seen}, {model.num_params} parameters, {least}{settings.population_size} "
        f"candidates a generation, {model.pool.in_words}, {what}"
    )
    own = not arguments.resume and arguments.preset is None and arguments.config is None
    env, chosen = model.source.preset_name(model.observation_space), {"policy": settings.policy}
    if own and (note := no_preset_note(env, chosen, "--preset ")):
        say(note)
