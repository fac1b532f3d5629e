"""fastes eval: the noise-free return of a trained policy."""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
from collections.abc import Iterator
from typing import Any

from fastes.cli.arguments import add_workers
from fastes.cli.saved_model import add_episodes, check_episodes, load_model, most_steps
from fastes.model import FastES
from fastes.reports.progress_bar import Repeatedly
from fastes.system.console import say
from fastes.system.digits import counted

_SECONDS = 0.2  # between updates of the bar


def add_eval(commands: Any) -> None:
    evaluate = commands.add_parser("eval", help="noise-free return of a trained policy over many episodes")
    add_episodes(evaluate, episodes=100)
    add_workers(evaluate)


def run_eval(arguments: argparse.Namespace) -> int:
    check_episodes(arguments)
    episodes = counted(arguments.episodes, "noise-free episode")
    last_seed = arguments.first_seed + arguments.episodes - 1
    with load_model(arguments, arguments.workers) as model:
        say(
            f"{model.source.name}, {model.num_timesteps} timesteps: return over {episodes} "
            f"(env seeds {arguments.first_seed} to {last_seed})"
        )
        sys.stdout.flush()  # the episodes may take minutes
        with _bar(model, arguments.episodes):
            result = model.evaluate(arguments.episodes, first_seed=arguments.first_seed)
    returns = result.returns
    say(
        f"mean {result.mean:.2f}  std {result.std:.2f}  min {returns.min():.2f}  max {returns.max():.2f}  "
        f"mean length {result.lengths.mean():.1f}"
    )
    return 0


@contextlib.contextmanager
def _bar(model: FastES, episodes: int) -> Iterator[None]:
    """Show a bar over the steps on a terminal; it vanishes at the end."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from tqdm import tqdm

    most = most_steps(model, episodes)
    total = None if most == math.inf else int(most)
    with tqdm(total=total, unit="step", unit_scale=True, dynamic_ncols=True, leave=False) as bar:
        looking = Repeatedly(_SECONDS, lambda: bar.update(model.evaluator.steps_played().evaluations - bar.n))
        try:
            yield
        finally:
            looking.end()
