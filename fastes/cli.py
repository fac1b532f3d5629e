"""The command line: fastes train, play, eval."""

from __future__ import annotations

import argparse
import json
import math
import re
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from types import FrameType
from typing import Any

from fastes import __version__
from fastes.agent import FastES
from fastes.callbacks import Callback, ConsoleLog, ProgressBar
from fastes.errors import FastESError
from fastes.logger import Record
from fastes.playback import play
from fastes.run_folder import BEST, CHECKPOINT, RunFolder, find_checkpoint, new_run_folder
from fastes.settings import Settings

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status. Wrong arguments give 2, a failed training 1, Ctrl-C 130."""
    arguments = build_parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except KeyboardInterrupt:
        print("\nstopped at once", file=sys.stderr)
        return _INTERRUPTED
    except (ValueError, TypeError) as error:
        print(f"fastes: error: {error}", file=sys.stderr)
        return 2
    except (FastESError, OSError) as error:
        print(f"fastes: error: {error}", file=sys.stderr)
        return 1


# --- arguments ------------------------------------------------------------------------------------------------------


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fastes", description="Evolution Strategies for Gymnasium environments.")
    parser.add_argument("--version", action="version", version=f"fastes {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")
    _add_train(commands)
    _add_eval(commands)
    _add_play(commands)
    return parser


def _add_train(commands: Any) -> None:
    train = commands.add_parser(
        "train",
        help="train a policy on all cores",
        description="Train a policy. Settings without a flag come from the environment's preset; defaults below are those of "
        "an environment without one.",
    )
    train.set_defaults(run=run_train)
    train.add_argument("env", nargs="?", help="environment id, such as HalfCheetah-v5 or module:Env-v0")
    train.add_argument(
        "--resume", type=Path, metavar="RUN", help="go on with a run folder; --total-timesteps is its new budget"
    )
    train.add_argument("--seed", type=int, help="int >= 0; everything follows from it (default: drawn and recorded)")
    train.add_argument("--workers", type=int, metavar="N", help="worker processes; 0: in this one (default: one a usable core)")
    train.add_argument("--preset", help="settings to start from: an environment id or 'default' (default: the environment's)")
    train.add_argument(
        "--env-kwargs", nargs="+", default=[], metavar="KEY=VALUE", help="arguments of the environment, values as JSON"
    )
    train.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="where run folders go (default: runs)")
    train.add_argument(
        "--checkpoint-seconds", type=float, default=30.0, metavar="S", help="seconds between checkpoints (default: 30)"
    )
    train.add_argument("--quiet", action="store_true", help="no progress bar and no line a generation")
    groups: dict[str, Any] = {}
    for item in fields(Settings):
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
    evaluate.set_defaults(run=run_eval)
    _add_run(evaluate, episodes=100)
    evaluate.add_argument(
        "--workers", type=int, metavar="N", help="worker processes; 0: in this one (default: one a usable core)"
    )


def _add_play(commands: Any) -> None:
    player = commands.add_parser("play", help="play a trained policy and print the return of each episode")
    player.set_defaults(run=run_play)
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


def _add_run(parser: Any, episodes: int) -> None:
    parser.add_argument("model", type=Path, help="a run folder or a checkpoint file")
    parser.add_argument("--episodes", type=int, default=episodes, metavar="N", help=f"episodes (default: {episodes})")
    parser.add_argument(
        "--first-seed", type=int, default=0, metavar="S", help="env seed of the first episode, then S+1, ... (default: 0)"
    )
    parser.add_argument(
        "--checkpoint", choices=("best", "last"), default="best", help="which one of a run folder (default: best)"
    )
    parser.add_argument("--env", help="environment id, when the checkpoint cannot rebuild its own")
    parser.add_argument("--env-kwargs", nargs="+", default=[], metavar="KEY=VALUE", help="arguments for --env, values as JSON")


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


# --- train ----------------------------------------------------------------------------------------------------------


class StopOnInterrupt(Callback):
    """The first Ctrl-C ends training after the running generation, the second one at once."""

    def __init__(self) -> None:
        self.requested = False
        self._before: Any = None

    def __enter__(self) -> StopOnInterrupt:
        self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        print("\nCtrl-C: ending after this generation; again to stop at once", file=sys.stderr)

    def on_generation(self, model: FastES, record: Record) -> bool:  # noqa: ARG002
        return not self.requested


def run_train(arguments: argparse.Namespace) -> int:
    if not 0.0 <= arguments.checkpoint_seconds < math.inf:
        raise ValueError(f"--checkpoint-seconds {arguments.checkpoint_seconds}: expected seconds, 0 or more")
    if arguments.env is None and arguments.resume is None:
        raise ValueError("expected an environment id, as in 'fastes train CartPole-v1', or --resume RUN")
    model, folder = _resumed(arguments) if arguments.resume else _new(arguments)
    command = shlex.join(["fastes", *sys.argv[1:]])
    folder.write_config(
        model, {"command": command, "started": time.strftime("%Y-%m-%d %H:%M:%S%z"), "at_timesteps": model.num_timesteps}
    )
    settings = model.settings
    print(
        f"{model.source.name}: {settings.policy}, {model.num_params} parameters, {settings.population_size} candidates "
        f"a generation, {model.n_workers} workers, seed {model.seed}, run folder {folder.path}"
    )
    callbacks: list[Callback] = [folder] if arguments.quiet else [ConsoleLog(), folder, ProgressBar()]
    started = time.perf_counter()
    with model, StopOnInterrupt() as interrupt:
        budget = model.settings.total_timesteps - model.num_timesteps
        try:
            model.learn(budget, [*callbacks, interrupt], reset_num_timesteps=False)
        except KeyboardInterrupt:
            print(f"\nstopped at once; the last checkpoint is whole: {_resume_command(model, folder.path)}", file=sys.stderr)
            return _INTERRUPTED
        except FastESError:
            folder.save(model)
            print(
                f"training failed in generation {model.generation + 1}; what came before is saved in {folder.path}",
                file=sys.stderr,
            )
            raise
        folder.save(model)
        seconds = time.perf_counter() - started
        _report(model, folder, seconds, interrupt.requested)
    return _INTERRUPTED if interrupt.requested else 0


def _new(arguments: argparse.Namespace) -> tuple[FastES, RunFolder]:
    model = FastES(
        arguments.env,
        preset=arguments.preset,
        n_workers=arguments.workers,
        seed=arguments.seed,
        env_kwargs=parse_env_kwargs(arguments.env_kwargs),
        **given_settings(arguments),
    )
    try:
        path = new_run_folder(arguments.runs, model.source.name)
    except OSError as error:
        model.close()
        raise OSError(
            f"the run folder cannot be made in {arguments.runs}: {error.strerror}; choose another with --runs"
        ) from error
    return model, RunFolder(path, arguments.checkpoint_seconds)


def _resumed(arguments: argparse.Namespace) -> tuple[FastES, RunFolder]:
    if arguments.seed is not None or arguments.preset is not None or arguments.env_kwargs:
        raise ValueError("--seed, --preset and --env-kwargs belong to a new run: a resumed one keeps its own")
    if arguments.resume.is_file():
        raise ValueError(f"--resume {arguments.resume}: expected a run folder such as runs/CartPole-v1/1")
    checkpoint = find_checkpoint(arguments.resume, "last")
    model = FastES.load(checkpoint, arguments.env, arguments.workers, **given_settings(arguments))
    if model.settings.total_timesteps <= model.num_timesteps:
        raise ValueError(
            f"{arguments.resume} has spent its budget ({model.num_timesteps} of {model.settings.total_timesteps} timesteps): "
            "give a larger one with --total-timesteps"
        )
    return model, RunFolder(arguments.resume, arguments.checkpoint_seconds)


def _resume_command(model: FastES, path: Path) -> str:
    """What goes on with the run; a checkpoint names no module to import, so the command line has to."""
    env = f"{shlex.quote(model.source.name)} " if ":" in model.source.name else ""
    return f"fastes train {env}--resume {shlex.quote(str(path))}"


def _report(model: FastES, folder: RunFolder, seconds: float, interrupted: bool) -> None:
    path = shlex.quote(str(folder.path))
    print(f"{model.num_timesteps} timesteps in {model.generation} generations, {seconds:.1f} s")
    if interrupted:
        print(f"stopped by Ctrl-C; to go on: {_resume_command(model, folder.path)}")
    else:
        _choose_best(model, folder)
    if not folder.draw(model):
        print("no learning_curve.png: it needs matplotlib, pip install 'fastes[plots]'")
    env = f"--env {shlex.quote(model.source.name)} " if ":" in model.source.name else ""
    print(f"to play it back: fastes play {path} {env}--video {re.split('[/:]', model.source.name)[-1]}.mp4")


def _choose_best(model: FastES, folder: RunFolder) -> None:
    """Compare the last parameters with those of the best evaluation over the same seeds; best.zip gets the better ones."""
    episodes = model.settings.target_episodes
    last = model.evaluate(episodes)
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
    env = model.source.name if ":" in model.source.name else None
    with FastES.load(folder.path / BEST, env, model.n_workers) as best_model:
        best_model.env_shown = True
        best = best_model.evaluate(episodes)
    print(f"best parameters: return {best.mean:.1f} +- {best.std:.1f} over the same seeds")
    if last.mean >= best.mean:
        folder.keep_as_best(model)
    target = "" if math.isinf(model.target_return) else f" (target {model.target_return:g} not reached)"
    print(f"{BEST} holds the better of the two, {CHECKPOINT} the last{target}")


# --- eval and play --------------------------------------------------------------------------------------------------


def _load(arguments: argparse.Namespace, n_workers: int | None) -> FastES:
    if arguments.episodes < 1 or arguments.first_seed < 0:
        raise ValueError(f"--episodes {arguments.episodes} --first-seed {arguments.first_seed}: expected at least 1 and 0")
    path = find_checkpoint(arguments.model, arguments.checkpoint)
    return FastES.load(path, arguments.env, n_workers, env_kwargs=parse_env_kwargs(arguments.env_kwargs) or None)


def run_eval(arguments: argparse.Namespace) -> int:
    with _load(arguments, arguments.workers) as model:
        result = model.evaluate(arguments.episodes, first_seed=arguments.first_seed)
    returns = result.returns
    last_seed = arguments.first_seed + arguments.episodes - 1
    print(
        f"{model.source.name}, {model.num_timesteps} timesteps: return over {len(returns)} noise-free episodes "
        f"(env seeds {arguments.first_seed} to {last_seed})"
    )
    print(
        f"mean {result.mean:.2f}  std {result.std:.2f}  min {returns.min():.2f}  max {returns.max():.2f}  "
        f"mean length {result.lengths.mean():.1f}"
    )
    return 0


def run_play(arguments: argparse.Namespace) -> int:
    if arguments.max_frames < 1:
        raise ValueError(f"--max-frames {arguments.max_frames}: expected at least 1")
    with _load(arguments, 0) as model:
        episodes = play(
            model,
            arguments.episodes,
            first_seed=arguments.first_seed,
            video=arguments.video,
            render=arguments.render,
            max_frames=arguments.max_frames,
        )
        frames = 0
        for seed, episode_return, length, written in episodes:
            frames += written
            print(f"env seed {seed}: return {episode_return:.2f}, {length} steps", flush=True)
    if arguments.video:
        print(f"{arguments.video}: {frames} frames" + (" (cut by --max-frames)" if frames == arguments.max_frames else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
