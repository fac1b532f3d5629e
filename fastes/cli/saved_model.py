"""What eval, play and replay share: which trained policy, in which environment, over which episodes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fastes.agent import FastES
from fastes.cli.arguments import parse_env_kwargs
from fastes.envs.source import MissingEnv
from fastes.runs.run_folder import find_checkpoint


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
    parser.add_argument("--env-kwargs", nargs="+", default=[], metavar="KEY=VALUE", help="arguments for --env, values as JSON")


def load_model(arguments: argparse.Namespace, n_workers: int | None) -> FastES:
    path = find_checkpoint(arguments.model, arguments.checkpoint)
    model = FastES.load(path, arguments.env, n_workers, env_kwargs=parse_env_kwargs(arguments.env_kwargs) or None)
    return buildable(model)


def check_episodes(arguments: argparse.Namespace) -> None:
    if arguments.episodes < 1 or arguments.first_seed < 0:
        raise ValueError(f"--episodes {arguments.episodes} --first-seed {arguments.first_seed}: expected at least 1 and 0")


def buildable(model: FastES) -> FastES:
    """The model, unless its environment cannot be built: better said now than by a worker."""
    if isinstance(model.source.factory, MissingEnv):
        model.source()
    return model
