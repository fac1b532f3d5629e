"""Playing a trained policy: in a window, or into an mp4 without a screen."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastes.envs.closing import close_env
from fastes.envs.returned import is_over, observation_and_info, reward_of
from fastes.errors import EnvironmentUnavailable, FastESError
from fastes.models.model import Model
from fastes.rollout.random_state import global_random_kept, seed_global_random
from fastes.runs.mujoco_view import follow_robot
from fastes.system.drawing_libraries import has_libraries, packages_command
from fastes.system.forks import CopiesEndHere
from fastes.system.installation import install_command

Frame = npt.NDArray[np.uint8]


_WITH_PYGAME = ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text", "gymnasium.envs.box2d")
_WITH_GL = ("gymnasium.envs.mujoco", "gymnasium_robotics")
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
_OF_GL = re.compile(r"\be?gl[A-Z]\w+|EGL|libGL|OpenGL|OSMesa|MUJOCO_GL|GLFW|glfw")  # in an error: the system's libraries
_CONTAINERS = (".mp4", ".m4v", ".mov", ".mkv")  # of H.264
_LEAST_FPS = 30  # an environment with more steps a second than twice that has frames left out


class RenderError(FastESError):
    """The environment cannot be drawn on this machine; the message says what to install."""


class Played(NamedTuple):
    """An episode of `play`. frames: how many of it are in the video."""

    env_seed: int
    episode_return: float
    length: int
    frames: int


def play(
    model: Model,
    episodes: int = 1,
    *,
    first_seed: int = 0,
    video: str | os.PathLike[str] | None = None,
    render: bool = False,
    max_frames: int | None = None,
    max_seconds: float | None = None,
) -> list[Played]:
    """Play noise-free episodes, on a video or in a window where that is asked for.

    >>> from fastes import FastES, play
    >>> with FastES("CartPole-v1", n_workers=0, seed=0) as model:
    ...     played = play(model, 2)
    >>> [episode.env_seed for episode in played]
    [0, 1]

    Returns (env_seed, episode_return, length, frames) of each.

    first_seed: environment seed of the first one; those of the others follow.
    video: an mp4 to write, frame by frame. It plays as fast as its environment says (render_fps): of one with 60 steps a
        second or more, every second or n-th is shown. MuJoCo's robots are followed, unless the environment's arguments name
        a camera.
    render: open a window instead.
    max_frames, max_seconds: how long the video is at most; episodes are played to their end all the same.

    Raises RenderError, a FastESError, when the environment cannot be drawn.
    """
    how: dict[str, Any] = {"video": video, "render": render, "max_frames": max_frames, "max_seconds": max_seconds}
    return list(play_episodes(model, episodes, first_seed=first_seed, **how))


def play_episodes(
    model: Model,
    episodes: int = 1,
    *,
    first_seed: int = 0,
    video: str | os.PathLike[str] | None = None,
    render: bool = False,
    max_frames: float | None = None,
    max_seconds: float | None = None,
    on_frame: Callable[[int], object] | None = None,
    on_start: Callable[[VideoWriter], object] | None = None,
) -> Iterator[Played]:
    """`play`, yielding each episode when it has ended. Nothing is played before the first is asked for.

    on_frame: called with the number of frames after each one that was written.
    on_start: called with what writes the video, before the first one.

    Raises RenderError when the environment cannot be drawn.
    """
    mode = "human" if render else "rgb_array" if video else None
    with _no_screen() if mode == "rgb_array" else nullcontext():
        env = _build(model, mode)
        try:
            with _writer(video, env, on_frame) as writer:
                if writer is not None:
                    writer.limit(max_frames, max_seconds)
                    if on_start is not None:
                        on_start(writer)
                for number in range(episodes):
                    seed = first_seed + number
                    with global_random_kept(), CopiesEndHere(f"the environment {model.source.name}") as copies_end:
                        played = Played(seed, *_play_episode(model, env, seed, writer, mode == "human", copies_end))
                    yield played
        finally:
            close_env(env, model.source.name)


def can_draw(model: Model) -> bool:
    """Whether a video of a model's environment can be made, as far as that can be known without trying it."""
    try:
        seen = model.evaluator.look()
    except Exception:  # an environment may be built elsewhere alone
        return False
    if importlib.util.find_spec("imageio_ffmpeg") is None or "rgb_array" not in seen.render_modes:
        return False
    modules = [kind.__module__ for kind in seen.kinds]
    if any(module.startswith(_WITH_PYGAME) for module in modules):
        return importlib.util.find_spec("pygame") is not None
    if any(module.startswith(_WITH_GL) for module in modules) and sys.platform == "linux" and not os.environ.get("DISPLAY"):
        return has_libraries(os.environ.get("MUJOCO_GL") or "egl")
    return True


@contextmanager
def _no_screen() -> Iterator[None]:
    """Libraries that draw look for no screen on a machine that has none: pygame's search would print an error."""
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ["MUJOCO_GL"] = os.environ.get("MUJOCO_GL") or "egl"  # read when mujoco is first imported
    if sys.platform != "linux" or any(os.environ.get(name) for name in _DISPLAYS):
        yield
        return
    hidden = [name for name in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER") if name not in os.environ]
    os.environ.update(dict.fromkeys(hidden, "dummy"))  # neither a screen nor a sound card is looked for
    try:
        yield
    finally:
        for name in hidden:  # else a window that is asked for later would open nowhere
            os.environ.pop(name, None)


def _build(model: Model, mode: str | None) -> Any:
    if mode is None:
        return model.evaluator.build()
    if mode == "human" and sys.platform == "linux" and not any(os.environ.get(name) for name in _DISPLAYS):
        raise RenderError("a window needs a display and this machine has none (DISPLAY is not set): write a --video instead")
    source = model.source
    try:
        env = model.evaluator.build(render_mode=mode)
    except EnvironmentUnavailable:
        raise
    except Exception as error:
        raise RenderError(f"{source.name} cannot be drawn: {type(error).__name__}: {error}. {_advice(error)}") from error
    if env.render_mode != mode:
        close_env(env, source.name)
        raise RenderError(
            f"the environment's factory made render_mode={env.render_mode!r}: it has to make {mode!r} to be shown, so let it "
            "take a parameter render_mode and pass that on"
        )
    follow_robot(env, {**(source.spec.kwargs if source.spec else {}), **source.make_kwargs})
    return env


def _advice(error: Exception) -> str:
    """What to do about an environment that cannot be drawn."""
    if isinstance(error, TypeError) and "render_mode" in str(error):
        return "To be drawn, its constructor has to take render_mode, and its render() to return a picture for 'rgb_array'"
    if "pygame" in str(error):
        return f"It needs pygame-ce: {install_command('video')}"
    tries = "`fastes doctor` tries what this machine can draw"
    return f"{_libraries_advice()}. {tries}" if _OF_GL.search(str(error)) and sys.platform == "linux" else tries


def _libraries_advice() -> str:
    way = os.environ.get("MUJOCO_GL") or "egl"
    if way == "osmesa":
        return f"MUJOCO_GL is 'osmesa': install that library of the system with `{packages_command(way)}`"
    chosen = "leave MUJOCO_GL unset" if way == "egl" else f"unset MUJOCO_GL, which is {way!r} here,"
    return (
        f"Without a screen MuJoCo draws through EGL: {chosen} and install the system's libraries for it with "
        f"`{packages_command('egl')}`"
    )


class VideoWriter:
    """Streams frames to ffmpeg (H.264) as they come; the first one sets the size.

    Of an environment with many steps a second, every so many are left out: it plays as fast all the same. The file gets its
    name when it is whole: one that was cut off has no index and plays nowhere.
    """

    def __init__(self, path: Path, fps: float, on_frame: Callable[[int], object] | None = None) -> None:
        self.path, self.frames, self.on_frame = path, 0, on_frame
        self.every = max(1, int(fps // _LEAST_FPS))  # steps a frame
        self.fps = fps / self.every
        self.most, self.cut = math.inf, False  # frames, and whether there would be more
        self.part = path.with_name(f".{path.stem}.part{path.suffix}")
        self._ffmpeg: Generator[None, Any, None] | None = None

    def limit(self, frames: float | None, seconds: float | None) -> None:
        """How long the video is at most."""
        self.most = min(math.inf if frames is None else frames, math.inf if seconds is None else seconds * self.fps)

    def wants(self, step: int) -> bool:
        """Whether an episode's step, counted from 0, is to be seen."""
        due = step % self.every == 0
        self.cut = self.cut or (due and self.frames >= self.most)
        return due and not self.cut

    def write(self, frame: Frame) -> None:
        height, width = (n - n % 2 for n in frame.shape[:2])  # H.264 wants even sides
        frame = np.ascontiguousarray(frame[:height, :width])
        if self._ffmpeg is None:
            self._ffmpeg = self._start((width, height))
        try:
            self._ffmpeg.send(frame)
        except OSError as error:
            raise RenderError(f"ffmpeg has ended before the video {self.path} was whole: see its message above") from error
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
        """Finish the video. RenderError where it is not whole; what was at its path stays then."""
        if self._ffmpeg is None:
            return
        self._ffmpeg.close()
        if not self._is_whole():
            self.part.unlink(missing_ok=True)
            raise RenderError(f"ffmpeg wrote no whole video to {self.path}: see its message above; the disk may be full")
        self.part.replace(self.path)

    def _is_whole(self) -> bool:
        """Whether it has all frames: a full disk, or the end of ffmpeg, leaves some out, or the index."""
        import imageio_ffmpeg

        with suppress(RuntimeError, OSError):  # it is empty, or nothing that plays
            frames, _ = imageio_ffmpeg.count_frames_and_secs(str(self.part))
            return bool(frames == self.frames)
        return False


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
    except BaseException:
        with suppress(RenderError):
            writer.close()
        raise
    writer.close()


def _play_episode(
    model: Model, env: Any, seed: int, writer: VideoWriter | None, window: bool, copies_end: CopiesEndHere
) -> tuple[float, int, int]:
    seed_global_random(seed)
    obs, _ = observation_and_info(env.reset(seed=seed))
    total, length, before = 0.0, 0, writer.frames if writer else 0
    model.note_episode_limit()
    limit = model.training.episode_settings()[1].max_steps  # as in evaluation: an environment may have no end
    done, state = False, None
    while not done and length < limit:
        if writer is not None and writer.wants(length):
            writer.write(_draw(model, env))
        elif window:
            _draw(model, env)
        action, state = model.predict(obs, state, episode_start=not length, deterministic=True)
        action = action[()] if isinstance(action, np.ndarray) else action  # a choice as an int, as in training
        obs, reward, terminated, truncated, _ = env.step(action)
        copies_end.check()
        total, length, done = total + reward_of(reward), length + 1, is_over(terminated, truncated)
    return total, length, (writer.frames - before) if writer else 0


def _draw(model: Model, env: Any) -> Any:
    try:
        return env.render()
    except Exception as error:
        raise RenderError(f"{model.source.name} cannot be drawn: {type(error).__name__}: {error}. {_advice(error)}") from error
