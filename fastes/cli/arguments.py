"""The command line's arguments: one flag for each setting, and how their values are read."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, NoReturn

from fastes import __version__
from fastes.sb3.files import EVALUATIONS, MONITOR
from fastes.settings.aliases import answer
from fastes.settings.settings import Settings, grouped_fields


class _Parser(argparse.ArgumentParser):
    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = super().parse_known_args(_join_negative_numbers(sys.argv[1:] if args is None else args), namespace)
        if unknown:
            flag = unknown[0].partition("=")[0]
            self.error(f"unrecognized arguments: {' '.join(unknown)}{answer(flag, self._option_string_actions)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Without the usage, which has a screenful of flags."""
        self.exit(2, f"{self.prog}: error: {message} ({self.prog} --help lists what there is)\n")


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="fastes", description="Evolution Strategies for Gymnasium environments.")
    parser.add_argument("--version", action="version", version=f"fastes {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")
    _add_train(commands)
    _add_eval(commands)
    _add_play(commands)
    _add_replay(commands)
    return parser


def _add_train(commands: Any) -> None:
    train = commands.add_parser(
        "train",
        help="train a policy on all cores",
        description="Train a policy. Settings without a flag come from the environment's preset; defaults below are those of "
        "an environment without one.",
    )
    train.set_defaults(command="train")
    train.add_argument("env", nargs="?", help="environment id, such as HalfCheetah-v5 or module:Env-v0")
    train.add_argument(
        "--resume", type=Path, metavar="RUN", help="go on with a run folder; --total-timesteps is its new budget"
    )
    train.add_argument("--seed", type=int, help="int >= 0; everything follows from it (default: drawn and recorded)")
    train.add_argument("--workers", type=int, metavar="N", help="worker processes; 0: in this one (default: one a usable core)")
    train.add_argument(
        "--preset", help="settings to start from: an environment id, 'default', 'paper' or 'ars' (default: the environment's)"
    )
    train.add_argument(
        "--env-kwargs", nargs="+", default=[], metavar="KEY=VALUE", help="arguments of the environment, values as JSON"
    )
    train.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="where run folders go (default: runs)")
    train.add_argument(
        "--checkpoint-seconds", type=float, default=30.0, metavar="S", help="seconds between checkpoints (default: 30)"
    )
    train.add_argument(
        "--on-save-error",
        choices=("continue", "stop"),
        default="continue",
        help="what a full disk does to the training (default: continue; saving is tried again)",
    )
    for flag, name in (("--monitor-csv", MONITOR), ("--evaluations-npz", EVALUATIONS)):
        train.add_argument(
            flag, action="store_true", help=f"write {name} as Stable-Baselines3 does; a resumed run goes on with what it has"
        )
    train.add_argument("--quiet", action="store_true", help="no progress bar and no line a generation")
    groups: dict[str, Any] = {}
    for item in grouped_fields():
        group = item.metadata["group"]
        if group not in groups:
            groups[group] = train.add_argument_group(group)
        _add_setting(groups[group], item)


def _add_setting(group: Any, item: Any) -> None:
    flag, text = "--" + item.name.replace("_", "-"), item.metadata["help"].replace("%", "%%")
    if item.name == "policy_kwargs":
        group.add_argument(
            "--net-arch", type=int, nargs="*", metavar="N", help="sizes of MlpPolicy's hidden layers (default: 64 64)"
        )
        group.add_argument("--activation-fn", help="between layers: tanh or relu (default: tanh)")
        group.add_argument(
            "--use-bias", action=argparse.BooleanOptionalAction, help="biases in the layers (default: MlpPolicy only)"
        )
        group.add_argument("--action-mapping", help="Box actions: clip, squash or bins (default: clip)")
        group.add_argument("--num-bins", type=int, help="values of each component with bins (default: 10)")
        return
    default = item.default if item.default is not MISSING else None
    text = f"{text} (default: {default})"
    if item.type == "bool":
        group.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=text)
        return
    kinds = {"int": _int, "float": float, "str": str}
    metavar = item.type.removesuffix("Setting").split(" ")[0].upper()
    group.add_argument(flag, type=kinds.get(item.type, _number_or_text), metavar=metavar, help=text)


def _int(text: str) -> int:
    """An int, also written 1e6 or 1_000_000."""
    try:
        number = float(text.replace("_", ""))
        whole = number == int(number)
    except (ValueError, OverflowError):
        whole = False
    if not whole:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text.replace("_", "")) if text.replace("_", "").lstrip("+-").isdigit() else int(number)


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _add_eval(commands: Any) -> None:
    evaluate = commands.add_parser("eval", help="noise-free return of a trained policy over many episodes")
    evaluate.set_defaults(command="eval")
    _add_run(evaluate, episodes=100)
    evaluate.add_argument(
        "--workers", type=int, metavar="N", help="worker processes; 0: in this one (default: one a usable core)"
    )


def _add_play(commands: Any) -> None:
    player = commands.add_parser("play", help="play a trained policy and print the return of each episode")
    player.set_defaults(command="play")
    _add_run(player, episodes=1)
    show = player.add_mutually_exclusive_group()
    show.add_argument("--video", type=Path, metavar="FILE", help="write an mp4; needs no screen")
    show.add_argument("--render", action="store_true", help="open a window")
    player.add_argument(
        "--max-frames",
        type=int,
        default=1000,
        metavar="N",
        help="frames the video has at most (default: 1000); episodes end as always",
    )


def _add_replay(commands: Any) -> None:
    replay = commands.add_parser(
        "replay", help="play one job of the generation at which training failed again, in this process, as the error named it"
    )
    replay.set_defaults(command="replay", checkpoint="last")
    replay.add_argument("model", type=Path, help="a run folder or a checkpoint file")
    replay.add_argument("--generation", type=int, required=True, metavar="G", help="as the error message counts them")
    replay.add_argument("--job", type=int, required=True, metavar="J", help="a candidate, or population size + n")
    _add_env(replay)


def _add_run(parser: Any, episodes: int) -> None:
    parser.add_argument("model", type=Path, help="a run folder or a checkpoint file")
    parser.add_argument("--episodes", type=int, default=episodes, metavar="N", help=f"episodes (default: {episodes})")
    parser.add_argument(
        "--first-seed", type=int, default=0, metavar="S", help="env seed of the first episode, then S+1, ... (default: 0)"
    )
    parser.add_argument(
        "--checkpoint", choices=("best", "last"), default="best", help="which one of a run folder (default: best)"
    )
    _add_env(parser)


def _add_env(parser: Any) -> None:
    parser.add_argument("--env", help="environment id, when the checkpoint cannot rebuild its own")
    parser.add_argument("--env-kwargs", nargs="+", default=[], metavar="KEY=VALUE", help="arguments for --env, values as JSON")


def _join_negative_numbers(argv: Sequence[str]) -> list[str]:
    """--flag -1e5 as --flag=-1e5: argparse takes a negative number with an exponent for a flag."""
    joined: list[str] = []
    for argument in argv:
        if re.fullmatch(r"-[\d._]+([eE][+-]?\d+)?|-inf", argument) and joined and re.fullmatch(r"--[\w-]+", joined[-1]):
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined


def given_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings whose flags were given."""
    given = {}
    for item in fields(Settings):
        value = getattr(arguments, item.name, None)
        if value is not None:
            given[item.name] = value
    policy_kwargs = {
        name: getattr(arguments, name)
        for name in ("net_arch", "activation_fn", "use_bias", "action_mapping", "num_bins")
        if getattr(arguments, name) is not None
    }
    if policy_kwargs:
        given["policy_kwargs"] = policy_kwargs
    return given


def parse_env_kwargs(pairs: Sequence[str]) -> dict[str, Any]:
    """KEY=VALUE strings as a dict; a value that is not JSON is a string."""
    kwargs = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.isidentifier():
            raise ValueError(f"--env-kwargs {pair!r}: expected KEY=VALUE, such as healthy_reward=0.5")
        try:
            kwargs[key] = json.loads(text)
        except json.JSONDecodeError:
            kwargs[key] = text
    return kwargs
