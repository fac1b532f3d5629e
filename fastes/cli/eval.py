"""fastes eval: the noise-free return of a trained policy."""

from __future__ import annotations

import argparse
from typing import Any

from fastes.cli.arguments import add_workers
from fastes.cli.saved_model import add_episodes, check_episodes, load_model
from fastes.cli.train.report import counted
from fastes.system.console import say


def add_eval(commands: Any) -> None:
    evaluate = commands.add_parser("eval", help="noise-free return of a trained policy over many episodes")
    evaluate.set_defaults(command="eval")
    add_episodes(evaluate, episodes=100)
    add_workers(evaluate)


def run_eval(arguments: argparse.Namespace) -> int:
    check_episodes(arguments)
    with load_model(arguments, arguments.workers) as model:
        result = model.evaluate(arguments.episodes, first_seed=arguments.first_seed)
    returns = result.returns
    last_seed = arguments.first_seed + arguments.episodes - 1
    episodes = counted(arguments.episodes, "noise-free episode")
    say(
        f"{model.source.name}, {model.num_timesteps} timesteps: return over {episodes} "
        f"(env seeds {arguments.first_seed} to {last_seed})"
    )
    say(
        f"mean {result.mean:.2f}  std {result.std:.2f}  min {returns.min():.2f}  max {returns.max():.2f}  "
        f"mean length {result.lengths.mean():.1f}"
    )
    return 0
