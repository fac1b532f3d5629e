"""The model of eval, play, replay and --resume: its file, its environment, its episodes."""

from __future__ import annotations

import argparse
import math
import re
import shlex
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium

from fastes.checkpoints.env_description import MAY_NAME_CODE, WRAPPERS, CannotRebuild, plain_kwargs
from fastes.checkpoints.locate import MIDWAY, RUN_FILES, find_checkpoint
from fastes.checkpoints.reader import read_checkpoint
from fastes.cli.arguments import add_env_kwargs, add_wrapper, find_modules_here, parse_env_kwargs
from fastes.envs.import_hook import register_atari
from fastes.envs.named_wrappers import make_wrapped_source
from fastes.envs.source import EnvSource, MissingEnv
from fastes.model import FastES
from fastes.models.model import Model
from fastes.rollout.episode import STEP_GUARD
from fastes.runs.run_config import CONFIG, read_config
from fastes.settings.config_file import Config, config_of_run, env_kwargs_of


def add_model(parser: Any) -> None:
    parser.add_argument("model", type=Path, help="a run folder or a checkpoint file")


def add_episodes(parser: Any, episodes: int) -> None:
    add_model(parser)
    parser.add_argument("--episodes", type=int, default=episodes, metavar="N", help=f"episodes (default: {episodes})")
    parser.add_argument(
        "--first-seed", type=int, default=0, metavar="S", help="env seed of the first episode, then S+1, ... (default: 0)"
    )
    parser.add_argument(
        "--checkpoint", choices=("best", "last"), default="best", help="which one of a run folder (default: best)"
    )
    add_env(parser)


def add_env(parser: Any) -> None:
    parser.add_argument("--env", help="environment id, when the checkpoint cannot rebuild its own")
    add_env_kwargs(parser)
    add_wrapper(parser, " (default: those of the run folder)")


def load_model(arguments: argparse.Namespace, n_workers: int | None) -> FastES:
    """Load the model that the arguments name, in the environment that they describe."""
    return load_file(find_checkpoint(arguments.model, arguments.checkpoint), arguments, n_workers)


def load_file(path: Path, arguments: argparse.Namespace, n_workers: int | None) -> FastES:
    """Load a checkpoint in the environment that the arguments describe."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* is not a target. To use it ", category=UserWarning)  # nothing trains here
        return _load_file(path, arguments, n_workers)


def _load_file(path: Path, arguments: argparse.Namespace, n_workers: int | None) -> FastES:
    env: Any = arguments.env
    kwargs = parse_env_kwargs(arguments.env_kwargs)
    folder = path.parent if path.name in (*RUN_FILES, MIDWAY) else None  # its config.toml names the run's wrappers
    if (source := wrapped_source(folder, env, kwargs, arguments.wrapper)) is not None:
        return FastES.load(path, source, n_workers)
    command = shlex.join(["fastes", *arguments.typed]).replace("{", "{{").replace("}", "}}") + ("" if env else " --env {}")
    try:
        if kwargs and env is None:
            env, kwargs = _with_kwargs(path, kwargs)
        model = FastES.load(path, env, n_workers, env_kwargs=kwargs or None)
    except CannotRebuild as error:  # of the file's arguments for the environment
        raise ValueError(f"{error.reason}. {_how_to_name(str(env), command, error.reason)}") from error
    return buildable(model, command)


def read_run(folder: Path) -> Config | None:
    """Read the configuration of a run folder, if there is one."""
    tables = read_config(folder / CONFIG)
    return None if tables is None else config_of_run(tables)


def wrapped_source(
    folder: Path | None, env: str | None, kwargs: Mapping[str, Any], wrappers: Sequence[str]
) -> EnvSource | None:
    """Return the source of an environment in its wrappers.

    Args:
        folder: Run folder that supplies what the other arguments leave out.
        env: Id on the command line.
        kwargs: Arguments of the environment on the command line.
        wrappers: Wrappers on the command line.

    Returns:
        None if there are no wrappers.
    """
    run = None if folder is None else read_run(folder)
    names = wrappers or (run.wrappers if run is not None and env in (None, run.env) else ())
    if not names:
        return None
    if env is None and (run is None or run.env is None):
        raise ValueError(f"--wrapper {names[0]} goes around an environment, which no checkpoint with wrappers names: add --env")
    if run is not None:
        find_modules_here(run.env, *run.wrappers)
    if folder is not None and run is not None and env in (None, run.env):
        env, kwargs = run.env, env_kwargs_of(folder / CONFIG, run, kwargs)
    return make_wrapped_source(str(env), kwargs, names)


def _with_kwargs(path: Path, kwargs: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Return the id of the checkpoint's environment, if known, and its arguments updated by kwargs."""
    data = read_checkpoint(path).data.get("env")
    if isinstance(data, dict) and "id" in data:
        register_atari(str(data["id"]))
    if not isinstance(data, dict) or "id" not in data or data["id"] not in gymnasium.registry:
        return None, {}  # FastES.load says what is missing
    try:
        return str(data["id"]), {**plain_kwargs(data), **kwargs}
    except CannotRebuild:
        return None, {}


def check_episodes(arguments: argparse.Namespace) -> None:
    if arguments.episodes < 1:
        raise ValueError(f"--episodes {arguments.episodes}: expected at least 1")
    if arguments.first_seed < 0:
        raise ValueError(f"--first-seed {arguments.first_seed}: expected at least 0")


def most_steps(model: Model, episodes: int) -> float:
    """Return the most steps that a number of noise-free episodes can have; infinity without a limit."""
    model.note_episode_limit()
    longest = min(model.training.longest_episode(), model.training.episode_limit or STEP_GUARD)
    return episodes * longest if longest < STEP_GUARD else math.inf


def buildable(model: FastES, command: str) -> FastES:
    """Return the model if its environment can be built; otherwise raise ValueError, before a worker fails.

    Args:
        model: The model.
        command: Command that the error proposes, with {} for the environment.
    """
    missing = model.source.factory
    if isinstance(missing, MissingEnv):
        raise ValueError(f"{missing.bare}. {_how_to_name(model.source.name, command, missing.bare)}")
    return model


def _how_to_name(name: str, command: str, reason: str) -> str:
    """Return advice about an environment that was not found."""
    if MAY_NAME_CODE in reason:
        if "--env-kwargs" in command:
            return f"Where you know them, add --env {name}, and all of them to --env-kwargs"
        return f"Where you know them, type: {command.format(name)} --env-kwargs KEY=VALUE"
    if WRAPPERS in reason:
        return f"Type: {command.format(name)} --wrapper MODULE:CLASS"
    if ":" in name:
        return f"Type: {command.format(name)}"
    if re.search(r"-v\d+$", name) and name not in gymnasium.registry:
        return f"Name the module that registers it, as in: {command.format(f'my_package:{name}')}"
    register = "gymnasium.register('MyEnv-v0', entry_point=make_env)"
    return f"Register it in a file my_envs.py that lies here ({register}) and type: {command.format('my_envs:MyEnv-v0')}"
