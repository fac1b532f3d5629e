"""Stages of a training side by side in one video: the same episodes, played by earlier and later parameters."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

from fastes.envs.closing import close_env
from fastes.models.model import Model
from fastes.runs.captions import Frame, captioned, enlarged
from fastes.runs.video import Moment, Played, VideoWriter, build_drawn, draw, moments, no_screen, video_writer
from fastes.system.forks import CopiesEndHere
from fastes.system.random_state import OwnRandom

_GAP, _GREY = 4, 128  # pixels between panels, and their colour


class Stage(NamedTuple):
    """A model, and the word for it on its frames."""

    label: str
    model: Model


def play_stages(
    stages: Sequence[Stage],
    episodes: int = 1,
    *,
    first_seed: int = 0,
    video: str | os.PathLike[str],
    max_frames: float | None = None,
    max_seconds: float | None = None,
    caption: bool = True,
    on_frame: Callable[[int], object] | None = None,
    on_start: Callable[[VideoWriter], object] | None = None,
) -> Iterator[tuple[Played, ...]]:
    """Play the same noise-free episodes with each stage into one video, a panel for each; see `play_episodes`.

    A panel whose episode has ended holds its last frame. The last frame of all shows how each has ended.

    Yields:
        The stages' episodes of one environment seed, as `play` would have played each alone.
    """
    with no_screen(), ExitStack() as opened:
        envs = [_opened(stage.model, opened) for stage in stages]
        writer = opened.enter_context(video_writer(video, envs[0], on_frame))
        writer.limit(max_frames, max_seconds)
        if on_start is not None:
            on_start(writer)
        for seed in range(first_seed, first_seed + episodes):
            panels = [_Panel(stage, env, seed) for stage, env in zip(stages, envs, strict=True)]
            before, step, playing = writer.frames, 0, True
            while playing:
                for panel in panels:
                    panel.go_on()
                playing = not all(panel.now.is_over for panel in panels)
                if writer.wants(step if playing else 0):
                    writer.write(side_by_side([panel.picture(caption) for panel in panels]))
                step += 1
            frames = writer.frames - before
            yield tuple(Played(seed, panel.now.episode_return, panel.now.step, frames) for panel in panels)


def _opened(model: Model, opened: ExitStack) -> Any:
    """Return a model's environment, which the stack closes."""
    env = build_drawn(model, "rgb_array")
    opened.callback(close_env, env, model.source.name)
    return env


class _Panel:
    """An episode of one stage.

    Attributes:
        now: How far it is.
    """

    def __init__(self, stage: Stage, env: Any, seed: int) -> None:
        self._stage, self._env = stage, env
        self._moments, self._random = moments(stage.model, env, seed), OwnRandom()
        self._frame: Frame | None = None
        self.now = Moment(0.0, 0, False)

    def go_on(self) -> None:
        """Play the next step, unless the episode has ended."""
        if not self.now.is_over:
            with self._random, CopiesEndHere(f"the environment {self._stage.model.source.name}"):
                self.now = next(self._moments)

    def picture(self, caption: bool) -> Frame:
        """Return the present frame, or the last one of an episode that has ended."""
        if self._frame is None or not self.now.is_over:
            make_current(self._env)
            with self._random:
                self._frame = enlarged(draw(self._stage.model, self._env))
        if not caption:
            return self._frame
        return captioned(self._frame, self.now.episode_return, self.now.step, self._stage.label)


def make_current(env: Any) -> None:
    """Let a MuJoCo environment draw into its own graphics context: Gymnasium leaves the one that was made last."""
    viewer = getattr(getattr(env.unwrapped, "mujoco_renderer", None), "viewer", None)
    if viewer is not None:
        viewer.make_context_current()


def side_by_side(frames: Sequence[Frame]) -> Frame:
    """Return frames of the same height side by side, with a gap between them."""
    gap = np.full((len(frames[0]), _GAP, 3), _GREY, np.uint8)
    return np.hstack([part for frame in frames for part in (gap, frame)][1:])
