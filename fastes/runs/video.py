"""Playing a trained policy: in a window, or into a video without a screen."""

from __future__ import annotations

import importlib.util
import inspect
import math
import os
import re
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastes.envs.atari.options import FRAMES_A_SECOND, is_ale_env
from fastes.envs.closing import close_env
from fastes.envs.returned import is_over, observation_and_info, reward_of
from fastes.errors import EnvironmentUnavailable, FastESError
from fastes.models.model import Model
from fastes.runs.captions import Frame, captioned, enlarged
from fastes.system.forks import CopiesEndHere
from fastes.system.installation import has_libraries, install_command, packages_command
from fastes.system.random_state import global_random_kept, seed_global_random

_WITH_PYGAME = ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text", "gymnasium.envs.box2d")
_WITH_GL = ("gymnasium.envs.mujoco", "gymnasium_robotics")
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
_OF_GL = re.compile(r"\be?gl[A-Z]\w+|EGL|libGL|OpenGL|OSMesa|MUJOCO_GL|GLFW|glfw")  # in an error: the system's libraries
_H264: dict[str, Any] = {"codec": "libx264", "quality": 7, "macro_block_size": 2}  # arguments of imageio_ffmpeg.write_frames
_GIF: dict[str, Any] = {"codec": "gif", "pix_fmt_out": "pal8", "macro_block_size": 1}
_CODECS = {".mp4": _H264, ".m4v": _H264, ".mov": _H264, ".mkv": _H264, ".gif": _GIF}
_ONE_PALETTE = (
    "split[frames][seen];[seen]palettegen=max_colors=128:stats_mode=diff[palette];[frames][palette]paletteuse=dither=none"
)
_LEAST_FPS = 30  # an environment with at least twice as many steps per second has frames left out


class RenderError(FastESError):
    """The environment cannot be drawn on this machine; the message says what to install."""


class Played(NamedTuple):
    """An episode of `play`. frames: its frames in the video."""

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
    caption: bool = True,
) -> list[Played]:
    """Play noise-free episodes, optionally into a video or in a window.

    >>> from fastes import FastES, play
    >>> with FastES("CartPole-v1", n_workers=0, seed=0) as model:
    ...     played = play(model, 2)
    >>> [episode.env_seed for episode in played]
    [0, 1]

    Args:
        model: The model.
        episodes: Number of episodes.
        first_seed: Environment seed of the first one; the others have the seeds that follow.
        video: An mp4 or a GIF to write. It plays as fast as its environment says (render_fps): with 60 steps per second or
            more, every second or n-th is shown. Small pictures are enlarged. The camera follows MuJoCo's robots unless the
            environment's arguments name one.
        render: Open a window instead.
        max_frames, max_seconds: The longest video; episodes are always played to their end.
        caption: Whether each frame of the video tells the return so far and the step. The last picture of each episode is then
            shown once more, with the return of the whole episode, if the video has room for it.

    Returns:
        (env_seed, episode_return, length, frames) of each.

    Raises:
        RenderError: If the environment cannot be drawn. It is a FastESError.
    """
    how: dict[str, Any] = {"video": video, "render": render, "max_frames": max_frames, "max_seconds": max_seconds}
    return list(play_episodes(model, episodes, first_seed=first_seed, caption=caption, **how))


def play_episodes(
    model: Model,
    episodes: int = 1,
    *,
    first_seed: int = 0,
    video: str | os.PathLike[str] | None = None,
    render: bool = False,
    max_frames: float | None = None,
    max_seconds: float | None = None,
    caption: bool = True,
    on_frame: Callable[[int], object] | None = None,
    on_start: Callable[[VideoWriter], object] | None = None,
    widest: int | None = None,
) -> Iterator[Played]:
    """`play` as a generator, which yields each episode when it has ended.

    Args:
        model, episodes, first_seed, video, render, max_frames, max_seconds, caption: See `play`.
        on_frame: Called with the number of frames after each that was written.
        on_start: Called with the video's writer before the first frame.
        widest: See VideoWriter.
    """
    mode = "human" if render else "rgb_array" if video else None
    with no_screen() if mode == "rgb_array" else nullcontext():
        env = build_drawn(model, mode)
        try:
            with nullcontext() if video is None else video_writer(video, env, on_frame, widest) as writer:
                if writer is not None:
                    writer.limit(max_frames, max_seconds)
                    if on_start is not None:
                        on_start(writer)
                for number in range(episodes):
                    seed = first_seed + number
                    with global_random_kept(), CopiesEndHere(f"the environment {model.source.name}") as copies_end:
                        window = mode == "human"
                        played = _play_episode(model, env, seed, writer, window, caption, copies_end)
                    yield played
        finally:
            close_env(env, model.source.name)


def can_draw(model: Model) -> bool:
    """Return whether a video of a model's environment can be made, as far as is known without trying."""
    try:
        seen = model.evaluator.look()
    except Exception:  # an environment may build only in other processes
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
def no_screen() -> Iterator[None]:
    """Keep libraries from searching for a screen on a machine without one: pygame's search would print an error."""
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ["MUJOCO_GL"] = os.environ.get("MUJOCO_GL") or "egl"  # read when mujoco is first imported
    if sys.platform != "linux" or any(os.environ.get(name) for name in _DISPLAYS):
        yield
        return
    hidden = [name for name in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER") if name not in os.environ]
    os.environ.update(dict.fromkeys(hidden, "dummy"))
    try:
        yield
    finally:
        for name in hidden:  # a later window must open on the real screen
            os.environ.pop(name, None)


def build_drawn(model: Model, mode: str | None) -> Any:
    """Build a model's environment with a render_mode, None for no pictures; RenderError if it has none here."""
    if mode is None:
        return model.evaluator.build()
    if mode == "human" and sys.platform == "linux" and not any(os.environ.get(name) for name in _DISPLAYS):
        raise RenderError("a window needs a display and this machine has none (DISPLAY is not set): write a --video instead")
    source = model.source
    os.environ.setdefault("SDL_NO_SIGNAL_HANDLERS", "1")  # otherwise pygame makes of SIGTERM an event that nothing reads
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
    """Return advice about an environment that cannot be drawn."""
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
    """Streams frames to ffmpeg (H.264, or a GIF); the first one sets the size.

    If the environment has many steps per second, the video shows every n-th, at the environment's speed. The file gets its
    name when it is complete: a video that was cut off has no index and does not play.

    Args:
        path: The video's file.
        fps: Steps per second.
        on_frame: Called with the number of frames after each.
        widest: Pixels from which frames of a GIF are made narrower; None for their own width.
    """

    def __init__(
        self, path: Path, fps: float, on_frame: Callable[[int], object] | None = None, widest: int | None = None
    ) -> None:
        self.path, self.frames, self.on_frame, self._widest = path, 0, on_frame, widest
        self.every = max(1, int(fps // _LEAST_FPS))  # steps per frame
        self.fps = fps / self.every
        self.most, self.cut = math.inf, False  # frames, and whether there would be more
        # absolute: in a relative path, ffmpeg would take what comes before a colon for a protocol
        self.part = path.absolute().with_name(f".{path.stem}.part{path.suffix}")
        self._ffmpeg: Generator[None, Any, None] | None = None

    def limit(self, frames: float | None, seconds: float | None) -> None:
        """Set the longest video."""
        self.most = min(math.inf if frames is None else frames, math.inf if seconds is None else seconds * self.fps)

    def wants(self, step: int) -> bool:
        """Return whether the video shows an episode's step, counted from 0."""
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
        codec = _CODECS[self.path.suffix.lower()]
        if codec is _GIF:
            narrower = f"scale='min({self._widest},iw)':-1:flags=area," if self._widest else ""
            codec = {**codec, "output_params": ["-vf", narrower + _ONE_PALETTE]}
        writer: Generator[None, Any, None] = imageio_ffmpeg.write_frames(
            str(self.part), size, fps=self.fps, ffmpeg_log_level="error", **codec
        )
        writer.send(None)
        return writer

    def close(self) -> None:
        """Finish the video. RenderError if it is incomplete; then the file that was at its path stays."""
        if self._ffmpeg is None:
            return
        try:
            self._ffmpeg.close()
            if not self._is_whole():
                raise RenderError(f"ffmpeg wrote no whole video to {self.path}: see its message above; the disk may be full")
        except BaseException:  # a second Ctrl-C, too
            self.part.unlink(missing_ok=True)
            raise
        self.part.replace(self.path)

    def _is_whole(self) -> bool:
        """Return whether the file has all frames: after a full disk or a crash of ffmpeg some are missing, or the index."""
        import imageio_ffmpeg

        with suppress(RuntimeError, OSError):  # the file is empty or does not play
            frames, _ = imageio_ffmpeg.count_frames_and_secs(str(self.part))
            return bool(frames == self.frames)
        return False


@contextmanager
def video_writer(
    video: str | os.PathLike[str], env: Any, on_frame: Callable[[int], object] | None, widest: int | None = None
) -> Generator[VideoWriter, None, None]:
    """Yield the writer of a video of an environment; RenderError if there cannot be such a file."""
    path = Path(video)
    if path.suffix.lower() not in _CODECS:
        raise RenderError(f"the video cannot be written to {path}: expected a name that ends in one of {', '.join(_CODECS)}")
    if not path.parent.is_dir() or path.is_dir():
        raise RenderError(f"the video cannot be written to {path}: expected a file name in an existing folder")
    writer = VideoWriter(path, _steps_per_second(env), on_frame, widest)
    try:
        yield writer
    except BaseException:
        with suppress(RenderError):
            writer.close()
        raise
    writer.close()


def _steps_per_second(env: Any) -> float:
    """Return the steps of an environment in a second of its own time: render_fps, which for ale-py's counts frames."""
    if is_ale_env(env.spec):
        return FRAMES_A_SECOND / float(np.mean(env.spec.kwargs.get("frameskip", 4)))
    return float(env.metadata.get("render_fps") or 30)


class Moment(NamedTuple):
    """An episode so far: its return, its steps, and whether it has ended."""

    episode_return: float
    step: int
    is_over: bool


def moments(model: Model, env: Any, seed: int) -> Iterator[Moment]:
    """Play a noise-free episode: yield before the first step and after each, while the environment can be drawn.

    The caller keeps the global random state, which the episode seeds.
    """
    seed_global_random(seed)
    obs, _ = observation_and_info(env.reset(seed=seed))
    total, length = 0.0, 0
    model.note_episode_limit()
    limit = model.training.episode_settings()[1].max_steps  # as in evaluation: an environment may have no end
    done, state = False, None
    while not done and length < limit:
        yield Moment(total, length, False)
        action, state = model.predict(obs, state, episode_start=not length, deterministic=True)
        action = action[()] if isinstance(action, np.ndarray) else action  # a choice as a number, as in training
        obs, reward, terminated, truncated, _ = env.step(action)
        total, length, done = total + reward_of(reward), length + 1, is_over(terminated, truncated)
    yield Moment(total, length, True)


def _play_episode(
    model: Model, env: Any, seed: int, writer: VideoWriter | None, window: bool, caption: bool, copies_end: CopiesEndHere
) -> Played:
    before, frame = writer.frames if writer else 0, None
    for moment in moments(model, env, seed):
        copies_end.check()
        if moment.is_over:
            break
        if writer is not None and writer.wants(moment.step):
            frame = enlarged(draw(model, env))
            writer.write(captioned(frame, moment.episode_return, moment.step) if caption else frame)
        elif window:
            draw(model, env)
    if writer is not None and caption and frame is not None and writer.frames < writer.most:  # rewards came after that picture
        writer.write(captioned(frame, moment.episode_return, moment.step))
    return Played(seed, moment.episode_return, moment.step, (writer.frames - before) if writer else 0)


def draw(model: Model, env: Any) -> Any:
    """Return a picture of a model's environment; RenderError, with advice, if it cannot be drawn."""
    try:
        frame = env.render()
    except Exception as error:
        raise RenderError(f"{model.source.name} cannot be drawn: {type(error).__name__}: {error}. {_advice(error)}") from error
    if env.render_mode == "rgb_array" and (np.ndim(frame) != 3 or np.shape(frame)[2] != 3):
        found = f"an array of shape {frame.shape}" if isinstance(frame, np.ndarray) else f"{frame!r:.99}"
        raise RenderError(f"{model.source.name} cannot be drawn: render() returned {found}, expected uint8 (height, width, 3)")
    return frame


# --- the camera of MuJoCo's environments ------------------------------------------------------------------------------

_CAMERA_ARGUMENTS = frozenset({"camera_id", "camera_name", "default_camera_config"})
_TRACKING_MODES = (1, 2)  # mjCAMLIGHT_TRACK, mjCAMLIGHT_TRACKCOM: where a camera is goes with its body
_TRACKING, _FIXED = 1, 2  # of mjtCamera: a free camera that follows a body, a camera of the model
_PLANE = 0  # of mjtGeom
_FLOOR = 1000.0  # metres from the middle to a side
_QUALITY = {"offsamples": (4, 0), "shadowsize": (4096, 1024)}  # MuJoCo's defaults and ours: a quarter of the time per frame


def follow_robot(env: Any, kwargs: Any) -> None:
    """Let the camera of a new MuJoCo environment move with its robot, and draw faster. Gymnasium 1.4's camera stands still.

    Any other environment is left unchanged.

    Args:
        env: The environment.
        kwargs: The arguments that it was made with. A camera that these or its own code name stays.
    """
    env = env.unwrapped
    renderer, model = getattr(env, "mujoco_renderer", None), getattr(env, "model", None)
    if renderer is None or not hasattr(model, "cam_mode") or not hasattr(renderer, "default_cam_config"):
        return
    _lighten(model)
    _lay_floors(model)
    config = dict(renderer.default_cam_config or {})
    if _CAMERA_ARGUMENTS & set(kwargs) or "type" in config or _chosen(env, renderer.default_cam_config):
        return
    camera = _tracking_camera(model)
    if camera is not None:
        renderer.camera_id = camera  # of pictures; a window takes the configuration
        renderer.default_cam_config = {**config, "type": _FIXED, "fixedcamid": camera}
    elif config.get("trackbodyid", 0) > 0:
        renderer.camera_id = None
        renderer.default_cam_config = {**config, "type": _TRACKING}


def _chosen(env: Any, config: Any) -> bool:
    """Return whether the environment's own code has chosen a camera."""
    if getattr(env, "camera_id", None) is not None or getattr(env, "camera_name", None) is not None:
        return True
    parameter = inspect.signature(type(env)).parameters.get("default_camera_config")
    return parameter is not None and config is not parameter.default


def _tracking_camera(model: Any) -> int | None:
    """Return the number of a camera that follows a body, preferably one whose name says so."""
    cameras = [number for number in range(model.ncam) if model.cam_mode[number] in _TRACKING_MODES]
    return min(cameras, key=lambda number: "track" not in model.camera(number).name.lower(), default=None)


def _lighten(model: Any) -> None:
    """Set fewer samples and a smaller shadow map, unless the model changes MuJoCo's defaults."""
    for name, (default, ours) in _QUALITY.items():
        if getattr(model.vis.quality, name) == default:
            setattr(model.vis.quality, name, ours)


def _lay_floors(model: Any) -> None:
    """Enlarge the drawn floors, which a fast robot runs off: HalfCheetah's ends after 40 m. Physics is not affected."""
    for number in range(model.ngeom):
        size, material = model.geom_size[number], model.geom_matid[number]
        if model.geom_type[number] == _PLANE and (size[:2] > 0.0).all():
            longer = (_FLOOR / size[:2]).clip(min=1.0)
            size[:2] *= longer
            if material >= 0 and not model.mat_texuniform[material]:
                model.mat_texrepeat[material] *= longer  # tiles as large as before
