"""fastes play: episodes of a trained policy, drawn or not."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastes.cli.saved_model import add_episodes, check_episodes, load_model

_FRAMES_SECONDS = 10.0


def add_play(commands: Any) -> None:
    player = commands.add_parser("play", help="play a trained policy and print the return of each episode")
    player.set_defaults(command="play")
    add_episodes(player, episodes=1)
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


def run_play(arguments: argparse.Namespace) -> int:
    check_episodes(arguments)
    if arguments.max_frames < 1:
        raise ValueError(f"--max-frames {arguments.max_frames}: expected at least 1")
    from fastes.runs.video import play

    with load_model(arguments, 0) as model:
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


def _tell_frames() -> Callable[[int], None]:
    """Says how many frames there are when that was not said for _FRAMES_SECONDS."""
    said = time.monotonic()

    def tell(frames: int) -> None:
        nonlocal said
        if time.monotonic() - said >= _FRAMES_SECONDS:
            said = time.monotonic()
            print(f"{frames} frames drawn", flush=True)

    return tell
