"""Playing a trained policy: in a window, or into an mp4 without a screen."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastes.errors import EnvironmentUnavailable, FastESError
from fastes.models.model import Model
from fastes.system.installation import install_command

Frame = npt.NDArray[np.uint8]


def _hint() -> str:
    return f"{_HINT}{install_command('video')}"


_HINT = (
    "Rendering needs a system library of its own. Without a screen MuJoCo draws through EGL: install libegl1 (Debian, Ubuntu: "
    "apt-get install libegl1; Fedora: dnf install mesa-libEGL) and leave MUJOCO_GL unset or set it to 'egl'. A window "
    "(--render) needs a display. Classic control and toy text environments need pygame-ce: "
)
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")


_CONTAINERS = (".mp4", ".m4v", ".mov", ".mkv")  # of H.264


class RenderError(FastESError):
    """The environment cannot be drawn on this machine; the message says what to install."""


def play(
    model: Model,
    episodes: int = 1,
    *,
    first_seed: int = 0,
    video: str | os.PathLike[str] | None = None,
    render: bool = False,
    max_frames: int | None = None,
    on_frame: Callable[[int], object] | None = None,
) -> Iterator[tuple[int, float, int, int]]:
    """Play noise-free episodes, yielding (env seed, return, length, frames written) of each.

    video: an mp4 to write, frame by frame. render: open a window instead. max_frames: frames the video has at most;
    episodes are played to their end all the same. on_frame: called with the number of frames after each one that was written.
    Raises RenderError when the environment cannot be drawn.
    """
    mode = "human" if render else "rgb_array" if video else None
    if mode == "rgb_array" and sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")  # read when mujoco is first imported
    env = _build(model, mode)
    try:
        with _writer(video, env, on_frame) as writer:
            for number in range(episodes):
                seed = first_seed + number
                yield (seed, *_play_episode(model, env, seed, writer, max_frames, mode == "human"))
    finally:
        env.close()


def _build(model: Model, mode: str | None) -> Any:
    if mode is None:
        return model.source()
    if mode == "human" and sys.platform == "linux" and not any(os.environ.get(name) for name in _DISPLAYS):
        raise RenderError("a window needs a display and this machine has none (DISPLAY is not set): write a --video instead")
    try:
        env = model.source(render_mode=mode) if model.source.factory is None else model.source()
    except EnvironmentUnavailable:
        raise
    except Exception as error:
        raise RenderError(f"{model.source.name} cannot be drawn: {type(error).__name__}: {error}. {_hint()}") from error
    if env.render_mode != mode:
        env.close()
        raise RenderError(
            f"the environment's factory made render_mode={env.render_mode!r}: it has to make {mode!r} to be shown"
        )
    return env


class VideoWriter:
    """Streams frames to ffmpeg (H.264) as they come; the first one sets the size.

    The file gets its name when it is whole: one that was cut off has no index and plays nowhere.
    """

    def __init__(self, path: Path, fps: float, on_frame: Callable[[int], object] | None = None) -> None:
        self.path, self.fps, self.frames, self.on_frame = path, fps, 0, on_frame
        self.part = path.with_name(f".{path.stem}.part{path.suffix}")
        self._ffmpeg: Generator[None, Any, None] | None = None

    def write(self, frame: Frame) -> None:
        height, width = (n - n % 2 for n in frame.shape[:2])  # H.264 wants even sides
        frame = np.ascontiguousarray(frame[:height, :width])
        if self._ffmpeg is None:
            self._ffmpeg = self._start((width, height))
        self._ffmpeg.send(frame)
        self.frames += 1
        if self.on_frame is not None:
            self.on_frame(self.frames)

    def _start(self, size: tuple[int, int]) -> Generator[None, Any, None]:
        try:
            import imageio_ffmpeg
        except ImportError:
            raise RenderError(f"writing a video needs imageio-ffmpeg: {install_command('video')}") from None
        writer: Generator[None, Any, None] = imageio_ffmpeg.write_frames(
            str(self.part), size, fps=self.fps, codec="libx264", quality=7, macro_block_size=2, ffmpeg_log_level="error"
        )
        writer.send(None)
        return writer

    def close(self) -> None:
        if self._ffmpeg is not None:
            self._ffmpeg.close()
            if not self.part.is_file() or self.part.stat().st_size == 0:
                self.part.unlink(missing_ok=True)
                raise RenderError(f"ffmpeg wrote no video to {self.path}: see its message above; use a name that ends in .mp4")
            self.part.replace(self.path)


@contextmanager
def _writer(
    video: str | os.PathLike[str] | None, env: Any, on_frame: Callable[[int], object] | None
) -> Generator[VideoWriter | None, None, None]:
    if video is None:
        yield None
        return
    path = Path(video)
    if path.suffix.lower() not in _CONTAINERS:
        raise RenderError(
            f"the video cannot be written to {path}: expected a name that ends in one of {', '.join(_CONTAINERS)}"
        )
    if not path.parent.is_dir() or path.is_dir():
        raise RenderError(f"the video cannot be written to {path}: expected a file name in an existing folder")
    writer = VideoWriter(path, float(env.metadata.get("render_fps") or 30), on_frame)
    try:
        yield writer
    finally:
        writer.close()


def _play_episode(
    model: Model, env: Any, seed: int, writer: VideoWriter | None, max_frames: int | None, window: bool
) -> tuple[float, int, int]:
    obs, _ = env.reset(seed=seed)
    total, length, before = 0.0, 0, writer.frames if writer else 0
    limit = model.settings.max_episode_steps or sys.maxsize
    done = False
    while not done and length < limit:
        if writer is not None and (max_frames is None or writer.frames < max_frames):
            writer.write(_draw(model, env))
        elif window:
            _draw(model, env)
        action, _ = model.predict(obs, episode_start=not length, deterministic=True)
        obs, reward, terminated, truncated, _ = env.step(action)
        total, length = total + float(reward), length + 1
        done = terminated or truncated
    return total, length, (writer.frames - before) if writer else 0


def _draw(model: Model, env: Any) -> Any:
    try:
        return env.render()
    except Exception as error:
        raise RenderError(f"{model.source.name} cannot be drawn: {type(error).__name__}: {error}. {_hint()}") from error
