"""fastes replay: one job of the generation at which training failed."""

from __future__ import annotations

import argparse
import traceback
from typing import Any

from fastes.cli.saved_model import add_env, add_model, load_model
from fastes.models.replay import check_job


def add_replay(commands: Any) -> None:
    replay = commands.add_parser(
        "replay", help="play again, in this process, one episode of the generation in which training failed, to see its error"
    )
    replay.set_defaults(checkpoint="last")
    add_model(replay)
    replay.add_argument("--generation", type=int, required=True, metavar="G", help="as the error message counts them")
    replay.add_argument("--job", type=int, required=True, metavar="J", help="a candidate, or population size + n")
    replay.add_argument("--trial", type=int, metavar="T", help="of several trials, the one that the message names")
    add_env(replay)


def run_replay(arguments: argparse.Namespace) -> int:
    with load_model(arguments, 0) as model:
        check_job(model.training_of(arguments.trial), arguments.generation, arguments.job)
        try:
            episode = model.replay(arguments.generation, arguments.job, trial=arguments.trial)
        except Exception:  # this is what it is for
            traceback.print_exc()
            return 1
    where = f"{model.source.name}, generation {arguments.generation}, job {arguments.job}"
    print(f"{where}: return {episode.episode_return:.2f}, {episode.length} steps; nothing went wrong this time")
    return 0
