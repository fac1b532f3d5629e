"""fastes check-env: what a task is like, and whether a training on it can work."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from fastes.cli.arguments import add_env_kwargs, add_wrapper, parse_env_kwargs
from fastes.env_check import check_env
from fastes.envs.named_wrappers import make_wrapped_source
from fastes.envs.source import make_env_source
from fastes.system.console import say


def add_check_env(commands: Any) -> None:
    check = commands.add_parser(
        "check-env",
        help="what an environment is like for a training, and what is wrong with it",
        description="Play an environment for some seconds with random actions and random policies, and say how long episodes "
        "are, what returns are like, how fast it is, what a training would choose, and what harms one. The exit status is 1 if "
        "no training can work.",
    )
    check.set_defaults(command="check-env")
    check.add_argument("env", help="environment id, such as HalfCheetah-v5 or module:Env-v0")
    add_env_kwargs(check)
    add_wrapper(check)
    check.add_argument("--episodes", type=int, default=40, metavar="N", help="episodes of random actions (default: 40)")
    check.add_argument(
        "--seconds", type=float, default=20.0, metavar="S", help="time for these, and for random policies (default: 20)"
    )
    check.add_argument(
        "--total-timesteps", type=float, metavar="N", help="budget to estimate the time of (default: the preset's)"
    )
    check.add_argument("--preset", help="as of fastes train")
    check.add_argument("--workers", type=int, metavar="N", help="processes for that (default: one per usable core)")
    check.add_argument("--json", action="store_true", help="print JSON")


def run_check_env(arguments: argparse.Namespace) -> int:
    kwargs = parse_env_kwargs(arguments.env_kwargs)
    wrappers = arguments.wrapper
    source = make_wrapped_source(arguments.env, kwargs, wrappers) if wrappers else make_env_source(arguments.env, kwargs)
    preset = {} if arguments.preset is None else {"preset": arguments.preset}
    check = check_env(
        source,
        episodes=arguments.episodes,
        seconds=arguments.seconds,
        total_timesteps=arguments.total_timesteps,
        n_workers=arguments.workers,
        **preset,
    )
    if arguments.json:
        print(json.dumps(check.to_json(), indent=2))
    else:
        for line in str(check).splitlines():
            say(line)
    sys.stdout.flush()
    return 0 if check.ok else 1
