"""fastes tune: search for the settings of an environment."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from fastes.cli.arguments import add_cluster, add_env_kwargs, add_short_help, add_workers, add_wrapper, parse_env_kwargs
from fastes.cli.setting_flags import add_settings, given_settings
from fastes.cli.stop_on_signal import INTERRUPTED
from fastes.envs.named_wrappers import make_wrapped_source
from fastes.model import FastES
from fastes.runs.run_folder import file_name_of
from fastes.tuning.study import PRUNERS, SAMPLERS, TIMESTEPS, TRIALS

_MINUTES = {"s": 1 / 60, "m": 1.0, "h": 60.0}
_RACES = ("trials", "rungs", "trials_fraction")  # settings whose flags would be mistaken for those of the search
_MAIN = (
    "env",
    "budget",
    "n_trials",
    "study",
    "total_timesteps",
    "seed",
    "n_seeds",
    "sampler",
    "pruner",
    "parallel",
    "workers",
    "help",
    "help_all",
)


def add_tune(commands: Any) -> None:
    tune = commands.add_parser(
        "tune",
        help="search for settings with Optuna",
        description="Search for the settings of an environment, beginning with known good ones, and write a preset. "
        "The same command continues after a kill. Settings whose flags are given are kept in all candidates.",
        usage="%(prog)s env [flags]",
        add_help=False,
    )
    add_short_help(tune, _MAIN)
    tune.add_argument("env", help="environment id, such as Pendulum-v1 or module:Env-v0")
    tune.add_argument(
        "--budget", type=_minutes, metavar="TIME", help="time for all of it, such as 90s, 30m or 2h (default: no limit)"
    )
    tune.add_argument(
        "--trials",
        dest="n_trials",
        type=int,
        metavar="N",
        help=f"candidates in all, earlier ones included (default: {TRIALS}, or as many as --budget allows)",
    )
    tune.add_argument(
        "--study",
        type=Path,
        metavar="FILE",
        help="Optuna's journal; preset, table and plots get its name (default: the environment's, .journal)",
    )
    tune.add_argument("--seed", type=int, default=0, metavar="S", help="first seed of the trainings (default: 0)")
    tune.add_argument("--seeds", dest="n_seeds", type=int, default=3, metavar="N", help="trainings per candidate (default: 3)")
    tune.add_argument("--sampler", choices=SAMPLERS, default="tpe", help="Optuna's, which draws candidates (default: tpe)")
    tune.add_argument("--pruner", choices=PRUNERS, default="median", help="Optuna's, which ends bad ones (default: median)")
    tune.add_argument(
        "--parallel",
        type=int,
        default=4,
        metavar="N",
        help="candidates that train side by side (default: 4)",
    )
    tune.add_argument("--episodes", type=int, default=10, metavar="N", help="noise-free episodes per evaluation (default: 10)")
    add_workers(tune)
    add_cluster(tune)
    add_env_kwargs(tune)
    add_wrapper(tune)
    tune.add_argument("-q", "--quiet", action="store_true", help="print nothing")
    add_settings(tune, without=_RACES, steps=f"of each training (default: the preset's, or {TIMESTEPS:,})")
    tune.set_defaults(trials=None)


def _minutes(text: str) -> float:
    """Parse a time such as 90s, 30m or 2h."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    if not found or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: expected a number and s, m or h, such as 90s, 30m or 2h")
    return float(found[1]) * _MINUTES[found[2]]


def run_tune(arguments: argparse.Namespace) -> int:
    fixed = given_settings(arguments)
    kwargs: Any = parse_env_kwargs(arguments.env_kwargs)
    env: Any = arguments.env
    if arguments.wrapper:
        env, kwargs = make_wrapped_source(env, kwargs, arguments.wrapper), None
    study = arguments.study or Path(f"{file_name_of(arguments.env)}.journal")
    try:
        FastES.tune(
            env,
            n_trials=arguments.n_trials,
            max_minutes=arguments.budget,
            study=study,
            seed=arguments.seed,
            n_seeds=arguments.n_seeds,
            sampler=arguments.sampler,
            pruner=arguments.pruner,
            parallel=arguments.parallel,
            episodes=arguments.episodes,
            n_workers=arguments.workers,
            cluster=arguments.cluster,
            env_kwargs=kwargs,
            verbose=not arguments.quiet,
            **fixed,
        )
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0
