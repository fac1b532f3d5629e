"""The command line: fastes train, play, eval, replay."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fastes.agent import FastES
from fastes.cli.arguments import build_parser, parse_env_kwargs
from fastes.cli.train import INTERRUPTED, buildable, run_train
from fastes.errors import FastESError
from fastes.models.replay import check_job
from fastes.runs.run_folder import find_checkpoint
from fastes.runs.video import play
from fastes.system.console import let_go, output_is_the_result, output_lasts
from fastes.system.descriptors import fill_standard_descriptors
from fastes.system.interrupts import Terminated


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status.

    Wrong arguments give 2, a failed training 1, Ctrl-C 130, SIGTERM 143. Where the console's output cannot be written, a
    training goes on and gives what it gives otherwise; the other commands, whose output is their result, give 1.
    """
    fill_standard_descriptors()
    try:
        with output_lasts(), _short_warnings():
            return _run(argv)
    finally:
        let_go()


def _run(argv: Sequence[str] | None) -> int:
    try:
        with output_is_the_result():
            arguments = build_parser().parse_args(argv)
        if ":" in (arguments.env or ""):
            with contextlib.suppress(FileNotFoundError):  # the working directory was deleted
                sys.path.append(os.getcwd())  # modules that lie here; last, so that none is taken for a package of that name
        with contextlib.nullcontext() if arguments.command == "train" else output_is_the_result():
            return _COMMANDS[arguments.command](arguments)
    except KeyboardInterrupt:
        print("\nstopped at once", file=sys.stderr)
        return INTERRUPTED
    except Terminated as ended:
        return ended.exit_status
    except (ValueError, TypeError) as error:
        print(f"fastes: error: {error}", file=sys.stderr)
        return 2
    except (FastESError, OSError, MemoryError) as error:
        print(f"fastes: error: {error}", file=sys.stderr)
        return 1


@contextlib.contextmanager
def _short_warnings() -> Iterator[None]:
    """Warnings of FastES are shown without the line of its code that they come from."""
    before, package = warnings.formatwarning, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")

    def shown(message: Any, category: Any, filename: str, lineno: int, line: str | None = None) -> str:
        if os.path.abspath(filename).startswith(package):
            return f"fastes: warning: {message}\n"
        return before(message, category, filename, lineno, line)

    warnings.formatwarning = shown
    try:
        yield
    finally:
        warnings.formatwarning = before


# --- eval and play --------------------------------------------------------------------------------------------------


def _load(arguments: argparse.Namespace, n_workers: int | None) -> FastES:
    path = find_checkpoint(arguments.model, arguments.checkpoint)
    model = FastES.load(path, arguments.env, n_workers, env_kwargs=parse_env_kwargs(arguments.env_kwargs) or None)
    return buildable(model)


def _check_episodes(arguments: argparse.Namespace) -> None:
    if arguments.episodes < 1 or arguments.first_seed < 0:
        raise ValueError(f"--episodes {arguments.episodes} --first-seed {arguments.first_seed}: expected at least 1 and 0")


def run_replay(arguments: argparse.Namespace) -> int:
    with _load(arguments, 0) as model:
        check_job(model.state, arguments.generation, arguments.job)
        try:
            episode = model.replay(arguments.generation, arguments.job)
        except Exception:  # this is what it is for
            traceback.print_exc()
            return 1
    where = f"{model.source.name}, generation {arguments.generation}, job {arguments.job}"
    print(f"{where}: return {episode.episode_return:.2f}, {episode.length} steps; nothing went wrong this time")
    return 0


def run_eval(arguments: argparse.Namespace) -> int:
    _check_episodes(arguments)
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
    _check_episodes(arguments)
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
            on_frame=_tell_frames(),
        )
        if arguments.video:
            print(f"drawing {arguments.max_frames} frames at most to {arguments.video}", flush=True)
        frames = steps = 0
        for seed, episode_return, length, written in episodes:
            frames, steps = frames + written, steps + length
            print(f"env seed {seed}: return {episode_return:.2f}, {length} steps", flush=True)
    if arguments.video:
        print(f"{arguments.video}: {frames} frames" + (" (cut by --max-frames)" if frames < steps else ""))
    return 0


_FRAMES_SECONDS = 10.0


def _tell_frames() -> Callable[[int], None]:
    """Says how many frames there are when that was not said for _FRAMES_SECONDS."""
    said = time.monotonic()

    def tell(frames: int) -> None:
        nonlocal said
        if time.monotonic() - said >= _FRAMES_SECONDS:
            said = time.monotonic()
            print(f"{frames} frames drawn", flush=True)

    return tell


_COMMANDS = {"train": run_train, "eval": run_eval, "play": run_play, "replay": run_replay}


if __name__ == "__main__":
    sys.exit(main())
