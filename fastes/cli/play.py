"""fastes play: episodes of a trained policy, drawn or not."""

from __future__ import annotations

import argparse
import math
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastes.checkpoints.locate import BEST, CHECKPOINT, MIDWAY, RUN_FILES, find_checkpoint
from fastes.cli.saved_model import add_episodes, check_episodes, load_file, load_model, most_steps
from fastes.system.console import fitted, say

if TYPE_CHECKING:
    from fastes.models.model import Model
    from fastes.runs.stages import Stage
    from fastes.runs.video import VideoWriter

FRAMES_SECONDS = 10.0  # between lines in a file or a pipe
_LABELS = {BEST: "best", CHECKPOINT: "last"}  # of a run folder's files, on frames


def add_play(commands: Any) -> None:
    player = commands.add_parser("play", help="play a trained policy and print the return of each episode")
    add_episodes(player, episodes=1)
    show = player.add_mutually_exclusive_group()
    show.add_argument("--video", type=Path, metavar="FILE", help="write an mp4, or a GIF (.gif); needs no screen")
    show.add_argument("--render", action="store_true", help="open a window")
    player.add_argument(
        "--max-seconds",
        type=float,
        default=30.0,
        metavar="S",
        help="how long the video is at most (default: 30, inf for no limit); episodes end as always",
    )
    player.add_argument(
        "--stages",
        action="store_true",
        help="show, in the video, the untrained policy, that from the training's midst, and the trained one side by side",
    )
    player.add_argument("--no-caption", action="store_true", help="write no return so far, step and stage on the frames")
    player.add_argument("--max-frames", type=int, metavar="N", help="frames it has at most (default: as --max-seconds says)")


def run_play(arguments: argparse.Namespace) -> int:
    check_episodes(arguments)
    if arguments.max_frames is not None and arguments.max_frames < 1:
        raise ValueError(f"--max-frames {arguments.max_frames}: expected at least 1")
    if not arguments.max_seconds > 0.0:
        raise ValueError(f"--max-seconds {arguments.max_seconds}: expected more than 0")
    if arguments.stages:
        return _run_stages(arguments)
    from fastes.runs.video import play_episodes

    with load_model(arguments, 0) as model, _Drawing(model, arguments.episodes) as drawing:
        episodes = play_episodes(model, arguments.episodes, render=arguments.render, **_of_video(arguments, drawing))
        for seed, episode_return, length, _ in episodes:
            drawing.write(f"env seed {seed}: return {episode_return:.2f}, {length} steps")
    drawing.end()
    return 0


def _of_video(arguments: argparse.Namespace, drawing: _Drawing) -> dict[str, Any]:
    """Return the arguments of an episode's player and of its video."""
    return {
        "first_seed": arguments.first_seed,
        "video": arguments.video,
        "max_frames": arguments.max_frames,
        "max_seconds": arguments.max_seconds,
        "caption": not arguments.no_caption,
        "on_frame": drawing.tell,
        "on_start": drawing.begin,
    }


# --- stages of a training ---------------------------------------------------------------------------------------------


def _run_stages(arguments: argparse.Namespace) -> int:
    if arguments.video is None:
        raise ValueError("--stages goes into a video: add --video FILE")
    from fastes.runs.stages import play_stages

    with ExitStack() as opened:
        stages = _stages(arguments, opened)
        drawing = opened.enter_context(_Drawing(stages[-1].model, arguments.episodes, closing=1))
        for played in play_stages(stages, arguments.episodes, **_of_video(arguments, drawing)):
            ends = zip(stages, played, strict=True)
            words = "; ".join(f"{stage.label} return {end.episode_return:.2f}, {end.length} steps" for stage, end in ends)
            drawing.write(f"env seed {played[0].env_seed}: {words}")
    drawing.end()
    return 0


def _stages(arguments: argparse.Namespace, opened: ExitStack) -> list[Stage]:
    """Load the untrained policy, that from the midst of the training, if its folder has one, and the one that is named."""
    from fastes.runs.stages import Stage

    path = find_checkpoint(arguments.model, arguments.checkpoint)
    trained, untrained = (opened.enter_context(load_file(path, arguments, 0)) for _ in range(2))
    untrained.training = untrained.training.as_begun()
    stages = [Stage("untrained", untrained), Stage(_LABELS.get(path.name, "trained"), trained)]
    between, of_run = path.with_name(MIDWAY), path.name in RUN_FILES
    if not of_run or not between.is_file():
        reason = f"{path.parent} has no {MIDWAY}, which trainings write" if of_run else f"{path} is not a run folder"
        say(f"{reason}: the stages are untrained and {stages[-1].label}")
        return stages
    midway = opened.enter_context(load_file(between, arguments, 0))
    number = trained.selection.present.number
    if any(trial.number == number for trial in midway.selection.trials):  # it may have shown one that is out by now
        midway.trainer.replace_selection(midway.selection.focused(number))
    is_best = ", the best one until then" if path.name == BEST else ""
    say(f"{MIDWAY} is the policy after {midway.num_timesteps:,} steps, {path.name} after {trained.num_timesteps:,}{is_best}")
    return [stages[0], Stage("midway", midway), stages[1]]


class _Drawing:
    """Shows the progress of a video: a bar on a terminal, elsewhere lines.

    Args:
        closing: Frames per episode that show how it has ended, and no step.
    """

    def __init__(self, model: Model, episodes: int, closing: int = 0) -> None:
        self.steps, self._closing = most_steps(model, episodes), closing * episodes
        self.writer: VideoWriter | None = None
        self._bar: Any = None
        self._said = time.monotonic()

    def __enter__(self) -> _Drawing:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._bar is not None:
            if kind is None:
                self._bar.total = self._bar.n  # the episodes may have ended before the most frames that they could have
                self._bar.refresh()
            self._bar.close()

    def begin(self, writer: VideoWriter) -> None:
        from tqdm import tqdm

        self.writer = writer
        of_episodes = math.ceil(self.steps / writer.every) + self._closing if self.steps < math.inf else math.inf
        most = min(writer.most, of_episodes)
        limit = "" if most == math.inf else f"{most:.0f} frames at most ({most / writer.fps:.0f} s) "
        say(f"drawing {limit}to {writer.path}")
        sys.stdout.flush()
        disable = None if sys.stderr is not None else True  # None: tqdm shows no bar in a file or a pipe
        self._bar = tqdm(total=None if most == math.inf else int(most), unit="frame", dynamic_ncols=True, disable=disable)

    def tell(self, frames: int) -> None:
        self._bar.update(frames - self._bar.n)
        if self._bar.disable and time.monotonic() - self._said >= FRAMES_SECONDS:
            self._said = time.monotonic()
            print(f"{frames} frames drawn", flush=True)

    def write(self, line: str) -> None:
        """Print a line above the bar."""
        if self._bar is None or self._bar.disable:
            say(line)
            sys.stdout.flush()
        else:
            self._bar.write(fitted(line, sys.stdout), file=sys.stdout)

    def end(self) -> None:
        if self.writer is not None:
            frames, seconds = self.writer.frames, self.writer.frames / self.writer.fps
            cut = " (cut; --max-seconds and --max-frames say how long it may be)" if self.writer.cut else ""
            say(f"{self.writer.path}: {frames} frames, {seconds:.1f} s{cut}")
