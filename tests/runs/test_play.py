"""Risk: a video is empty, endless or unreadable, or a missing library shows a traceback."""

from __future__ import annotations

import builtins
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from ctypes import ArgumentError
from functools import partial, partialmethod
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import imageio_ffmpeg
import numpy as np
import pytest
from envs_for_tests import AnySpaces, Toy
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from processes import environment, fastes_command, wait_until
from tqdm import tqdm

from fastes import FastES, FastESError
from fastes.cli.main import main
from fastes.runs.captions import captioned
from fastes.runs.video import RenderError, follow_robot, play, play_episodes

TINY = {"population_size": 4, "seed": 5, "preset": "default"}


class SmallPicture(Toy):
    """Draws white pictures of 60x20 pixels."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()
        self.render_mode = render_mode

    def render(self) -> Any:
        return np.full((20, 60, 3), 255, np.uint8)


@pytest.fixture
def cartpole(tmp_path: Path) -> Path:
    with FastES("CartPole-v1", n_workers=0, **TINY) as model:
        model.save(tmp_path / "cartpole.zip")
    return tmp_path / "cartpole.zip"


def frames_of(video: Path, height: int, width: int) -> np.ndarray[Any, Any]:
    """The decoded frames, uint8 (frames, height, width, 3)."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", str(video), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    decoded = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    return np.frombuffer(decoded, np.uint8).reshape(-1, height, width, 3)


def test_cartpole_is_written_and_decodes(
    cartpole: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    video = cartpole.with_name("v.mp4")
    monkeypatch.setattr("fastes.cli.play.FRAMES_SECONDS", 0.0)
    assert main(["play", str(cartpole), "--video", str(video), "--max-frames", "7"]) == 0
    frames, seconds = imageio_ffmpeg.count_frames_and_secs(str(video))
    assert frames == 7
    assert seconds == pytest.approx(7 / 50, abs=0.05)
    text = capsys.readouterr().out
    assert "return" in text
    assert "\n6 frames drawn\n7 frames drawn\n" in text
    assert "v.mp4: 7 frames" in text
    decoded = frames_of(video, 400, 600)
    assert len(decoded) == 7
    assert (decoded[0] != decoded[6]).any(), "something moves"
    assert decoded[0].std() > 1.0, "something is drawn"


def test_a_video_needs_no_screen_and_says_nothing_of_one(cartpole: Path) -> None:
    """pygame's library prints an error where it finds none; a window that is asked for afterwards is still refused."""
    script = (
        "import fastes, os\n"
        f"model = fastes.FastES.load({str(cartpole)!r}, n_workers=0)\n"
        f"print(fastes.play(model, video={str(cartpole.with_name('v.mp4'))!r}, max_frames=3)[0].frames)\n"
        "assert 'SDL_VIDEODRIVER' not in os.environ\n"
        "try:\n    fastes.play(model, render=True)\nexcept fastes.FastESError as error:\n    print(error)\n"
    )
    unset = ("SDL_VIDEODRIVER", "XDG_RUNTIME_DIR", "DISPLAY", "WAYLAND_DISPLAY")
    bare = {name: value for name, value in environment().items() if name not in unset}
    done = subprocess.run([sys.executable, "-c", script], env=bare, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    if sys.platform == "linux":
        assert done.stdout.startswith("3\na window needs a display")


def test_sigterm_ends_a_command_that_draws(cartpole: Path) -> None:
    """SDL would take the signal from the system's own handler."""
    flags = ["play", str(cartpole), "--video", "long.mp4", "--episodes", "100000", "--max-seconds", "100000"]
    process = subprocess.Popen([*fastes_command(), *flags], cwd=cartpole.parent, env=environment(), stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: any(path.stat().st_size for path in cartpole.parent.glob(".*.mp4")), "it draws")
        process.terminate()
        assert process.wait(60) == -signal.SIGTERM
    finally:
        process.kill()
        process.wait()


def test_a_video_that_was_cut_off_has_no_name(cartpole: Path) -> None:
    video = cartpole.with_name("half.mp4")
    with FastES.load(cartpole, n_workers=0) as model:
        playing = play_episodes(model, 2, video=video)
        next(playing)
        assert not video.exists()
        playing.close()
    assert video.stat().st_size > 500
    assert not [path for path in video.parent.iterdir() if ".part" in path.name]


def test_a_name_with_a_colon_is_a_file(cartpole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a time of day; ffmpeg reads it as a protocol."""
    monkeypatch.chdir(cartpole.parent)
    with FastES.load(cartpole, n_workers=0) as model:
        play(model, video="10:30.gif", max_frames=2)
    assert sorted(os.listdir()) == ["10:30.gif", "cartpole.zip"]


@pytest.mark.parametrize("suffix", [".mp4", ".m4v", ".mov", ".mkv", ".gif"])
def test_every_container_holds_every_frame(suffix: str, cartpole: Path) -> None:
    with FastES.load(cartpole, n_workers=0) as model:
        (played,) = play(model, 1, video=cartpole.with_name(f"v{suffix}"))
    frames = imageio_ffmpeg.count_frames_and_secs(str(cartpole.with_name(f"v{suffix}")))[0]
    assert frames == played.frames == played.length + 1


def test_a_gif_has_the_pictures_of_the_video(cartpole: Path) -> None:
    video, gif = cartpole.with_name("v.mp4"), cartpole.with_name("v.gif")
    with FastES.load(cartpole, n_workers=0) as model:
        for path in (video, gif):
            play(model, video=path, max_frames=7)
    frames = frames_of(gif, 400, 600).astype(float)
    assert len(frames) == 7
    assert np.abs(frames - frames_of(video, 400, 600)).mean() < 2.0
    assert gif.read_bytes()[:6] == b"GIF89a"


class Ended(RuntimeError):
    """Of a test."""


@pytest.mark.parametrize("how", ["index", "ffmpeg", "interrupt", "exception"])
def test_a_video_that_is_not_whole_replaces_none(how: str, cartpole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk ends ffmpeg, or leaves out the index, of which imageio_ffmpeg says nothing; Ctrl-C while it takes a frame."""
    video = cartpole.with_name("v.mp4")
    write_frames = imageio_ffmpeg.write_frames

    def failing(path: str, *arguments: Any, **more: Any) -> Any:
        frames = write_frames(path, *arguments, **more)
        frames.send(None)
        yield
        try:
            for _ in range(3 if how != "index" else 10**9):
                frames.send((yield))
        finally:
            frames.close()
            os.truncate(path, os.path.getsize(path) - 100)
        raise {"ffmpeg": OSError("broken pipe"), "interrupt": KeyboardInterrupt()}.get(how, Ended())

    expected: Any = {"interrupt": KeyboardInterrupt, "exception": Ended}.get(how, RenderError)
    with FastES.load(cartpole, n_workers=0) as model:
        play(model, 1, video=video)
        before = video.read_bytes()
        monkeypatch.setattr("imageio_ffmpeg.write_frames", failing)
        with pytest.raises(expected):
            play(model, 1, video=video)
    assert video.read_bytes() == before
    assert sorted(os.listdir(video.parent)) == ["cartpole.zip", "v.mp4"]


def test_a_second_interrupt_leaves_no_part_of_a_video(cartpole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one finishes the video, which takes a moment."""

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("imageio_ffmpeg.count_frames_and_secs", interrupted)
    with FastES.load(cartpole, n_workers=0) as model, pytest.raises(KeyboardInterrupt):
        play(model, video=cartpole.with_name("v.mp4"), max_frames=3)
    assert os.listdir(cartpole.parent) == ["cartpole.zip"]


class Endless(Toy):
    """As long as it is played, with rewards that the global random state decides."""

    def step(self, action: Any) -> Any:
        obs, _, _, _, info = super().step(action)
        return obs, random.random() + np.random.random(), False, False, info  # noqa: NPY002


def test_an_episode_without_an_end_is_that_of_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cut where evaluation cuts it, and draws what it draws there; one's own random state stays."""
    monkeypatch.setattr("fastes.training.training.usual_limit", lambda *_: 50)
    with FastES(Endless, n_workers=0, **TINY) as model:
        before = random.getstate(), str(np.random.get_state())  # noqa: NPY002
        played = play(model, 2, first_seed=7)
        assert (random.getstate(), str(np.random.get_state())) == before  # noqa: NPY002
        expected = model.evaluate(2, first_seed=7)
    assert [episode.episode_return for episode in played] == expected.returns.tolist()
    assert [episode.length for episode in played] == expected.lengths.tolist() == [50, 50]


def test_max_frames_bounds_all_episodes_together(cartpole: Path) -> None:
    video = cartpole.with_name("v.mp4")
    with FastES.load(cartpole, n_workers=0) as model:
        told: list[int] = []
        played = list(play_episodes(model, 3, video=video, max_frames=25, on_frame=told.append))
        assert told == list(range(1, 26))
        expected = model.evaluate(3)
        assert [episode[1] for episode in played] == expected.returns.tolist(), "episodes are played to their end"
        assert [episode[2] for episode in played] == expected.lengths.tolist()
        assert sum(episode[3] for episode in played) <= 25
    assert imageio_ffmpeg.count_frames_and_secs(str(video))[0] == sum(episode[3] for episode in played)


def test_a_short_episode_has_a_frame_a_step(tmp_path: Path) -> None:
    video = tmp_path / "v.mp4"
    with FastES("Toy-v0", n_workers=0, **TINY) as model:
        ((seed, _, length, frames),) = play(model, 1, first_seed=3, video=video, max_frames=1000, caption=False)
    assert seed == 3
    assert frames == length
    assert imageio_ffmpeg.count_frames_and_secs(str(video))[0] == length
    decoded = frames_of(video, 458, 332)  # 51 x 37 nine times, cut to even sides
    assert [round(float(frame.mean())) for frame in decoded] == pytest.approx([10 * k for k in range(length)], abs=4)


def test_frames_tell_the_return_so_far_and_the_step(cartpole: Path) -> None:
    """CartPole pays 1 a step. Compared with --no-caption, nothing else of the picture changes."""
    videos = [cartpole.with_name(name) for name in ("told.mp4", "bare.mp4")]
    for video, more in zip(videos, ([], ["--no-caption"]), strict=True):
        assert main(["play", str(cartpole), "--video", str(video), "--max-frames", "5", *more]) == 0
    told, bare = (frames_of(video, 400, 600).astype(int) for video in videos)
    for step, (frame, picture) in enumerate(zip(told, bare, strict=True)):
        expected = captioned(picture.astype(np.uint8), float(step), step).astype(int)
        assert np.abs(frame - expected).mean() < 1.0, "as far as H.264 keeps it"
        other = captioned(picture.astype(np.uint8), float(step + 1), step + 1).astype(int)
        assert np.abs(frame - expected).sum() < 0.7 * np.abs(frame - other).sum()


class LateReward(SmallPicture):
    """Pays for its last step alone, and cannot be drawn after that."""

    def step(self, action: Any) -> Any:
        obs, _, terminated, truncated, info = super().step(action)
        self.has_ended = terminated or truncated
        return obs, 88.0 if self.has_ended else 0.0, terminated, truncated, info

    def reset(self, **how: Any) -> Any:
        self.has_ended = False
        return super().reset(**how)

    def render(self) -> Any:
        assert not self.has_ended
        return super().render()


def test_the_last_frame_of_an_episode_tells_its_whole_return(tmp_path: Path) -> None:
    """The last picture is held for it, as far as the frames allow; without a caption there is nothing to hold it for."""
    video = tmp_path / "v.mp4"
    with FastES(LateReward, n_workers=0, **TINY) as model:
        first, second = play(model, 2, video=video)
        decoded = frames_of(video, 320, 960)
        cut = play(model, 2, video=tmp_path / "cut.mp4", max_frames=first.length)
        (bare,) = play(model, 1, video=tmp_path / "bare.mp4", caption=False)
    assert [first.frames, second.frames] == [first.length + 1, second.length + 1]
    picture = np.full((320, 960, 3), 255, np.uint8)
    for end, played in ((first.frames, first), (first.frames + second.frames, second)):
        assert played.episode_return == 88.0
        expected = captioned(picture, 88.0, played.length).astype(int)
        assert np.abs(decoded[end - 1] - expected).mean() < 1.0, "as far as H.264 keeps it"
        assert np.abs(decoded[end - 2] - expected).mean() > 1.5 * np.abs(decoded[end - 1] - expected).mean()
    assert [episode.frames for episode in cut] == [first.length, 0]
    assert bare.frames == bare.length


def test_a_video_with_room_for_all_steps_is_not_said_to_be_cut(cartpole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FastES.load(cartpole, n_workers=0) as model:
        length = int(model.evaluate(1, first_seed=0).lengths[0])
    for frames, said in ((length, "frames, "), (length - 1, "(cut; ")):
        video = cartpole.with_name("v.mp4")
        assert main(["play", str(cartpole), "--video", str(video), "--max-frames", str(frames)]) == 0
        printed = capsys.readouterr().out
        assert said in printed
        assert ("cut" in printed) == (frames < length)


@pytest.mark.parametrize("caption", [True, False])
def test_a_small_picture_is_enlarged(caption: bool, tmp_path: Path) -> None:
    with FastES(SmallPicture, n_workers=0, **TINY) as model:
        play(model, video=tmp_path / "v.gif", max_frames=1, caption=caption)
    frame = frames_of(tmp_path / "v.gif", 320, 960)[0]
    assert (frame[100:] == 255).mean() > 0.99
    assert (frame[:20, :20] == 255).all() != caption


def test_play_without_a_picture_needs_no_library(cartpole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    monkeypatch.setitem(sys.modules, "pygame", None)
    with FastES.load(cartpole, n_workers=0) as model:
        ((_, episode_return, length, frames),) = play(model, 1)
        assert (episode_return, frames) == (length, 0)


def test_play_of_observations_that_are_flattened(tmp_path: Path) -> None:
    env = partial(AnySpaces, spaces.Dict({"a": spaces.Discrete(3)}), spaces.Discrete(2, start=4))
    with FastES(env, n_workers=0, **TINY) as model:
        assert [episode[1] for episode in play(model, 2)] == model.evaluate(2).returns.tolist()


def _fails(model: FastES, words: tuple[str, ...], **how: Any) -> None:
    with pytest.raises(FastESError) as caught:
        play(model, 1, **how)
    assert [word for word in words if word not in str(caught.value)] == []


def _without(monkeypatch: pytest.MonkeyPatch, module: str, error: Callable[[], Exception]) -> None:
    """Importing a module fails from now on."""
    original = builtins.__import__

    def importing(name: str, *arguments: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == module:
            raise error()
        return original(name, *arguments, **kwargs)

    for name in list(sys.modules):
        if name.split(".")[0] == module:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("builtins.__import__", importing)


def test_missing_ffmpeg_is_named(cartpole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _without(monkeypatch, "imageio_ffmpeg", lambda: ImportError("No module named 'imageio_ffmpeg'"))
    with FastES.load(cartpole, n_workers=0) as model:
        _fails(model, ("imageio-ffmpeg", "pip install"), video=cartpole.with_name("v.mp4"))


def test_missing_pygame_is_named(cartpole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _without(monkeypatch, "pygame", lambda: ImportError("No module named 'pygame'", name="pygame"))
    with FastES.load(cartpole, n_workers=0) as model:
        _fails(model, ("pygame", "pip install"), video=cartpole.with_name("v.mp4"))


EGL_PACKAGES = "libegl1 libopengl0 libgl1-mesa-dri"


@pytest.fixture
def on_debian(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of libraries say how Debian installs them."""
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: {"ID": "ubuntu", "ID_LIKE": "debian"})
    monkeypatch.setattr("sys.platform", "linux")


@pytest.mark.usefixtures("on_debian")
@pytest.mark.parametrize(
    ("way", "error", "words"),
    [
        ("", AttributeError("'NoneType' object has no attribute 'eglQueryString'"), (EGL_PACKAGES, "leave MUJOCO_GL unset")),
        ("egl", ArgumentError("'NoneType' object has no attribute 'glGetError'"), (EGL_PACKAGES, "leave MUJOCO_GL unset")),
        (
            "glfw",
            ImportError("an OpenGL platform library has not been loaded"),
            (EGL_PACKAGES, "unset MUJOCO_GL, which is 'glfw'"),
        ),
        ("osmesa", ImportError("Unable to load OpenGL library"), ("MUJOCO_GL is 'osmesa'", "apt-get install libosmesa6")),
    ],
)
def test_missing_system_library_is_named(
    way: str, error: Exception, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a slim container raises without libEGL, without OpenGL, and where MUJOCO_GL names what is not there."""

    def no_library(self: Toy) -> None:
        raise error

    monkeypatch.setattr(Toy, "render", no_library)
    monkeypatch.setenv("DISPLAY", ":0")  # MUJOCO_GL stays as it is
    monkeypatch.setenv("MUJOCO_GL", way)
    with FastES("Toy-v0", n_workers=0, **TINY) as model:
        _fails(model, (str(error), *words, "fastes doctor"), video=tmp_path / "v.mp4")
        model.save(tmp_path / "m")
    assert main(["play", str(tmp_path / "m"), "--video", str(tmp_path / "v.mp4")]) == 1


def test_an_error_of_the_environments_own_names_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(self: Toy) -> None:
        raise ValueError("single legs")

    monkeypatch.setattr(Toy, "render", mistaken)
    with FastES("Toy-v0", n_workers=0, **TINY) as model, pytest.raises(RenderError) as caught:
        play(model, video=tmp_path / "v.mp4")
    assert "single legs" in str(caught.value)
    assert "install" not in str(caught.value)


def test_mujoco_draws_through_egl_where_its_variable_is_empty(cartpole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MuJoCo takes an empty one for GLFW, which needs a screen."""
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setenv("MUJOCO_GL", "")
    with FastES.load(cartpole, n_workers=0) as model:
        play(model, video=cartpole.with_name("v.mp4"), max_frames=1)
    assert os.environ["MUJOCO_GL"] == "egl"


@pytest.mark.usefixtures("on_debian")
def test_an_environment_that_cannot_be_built_to_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = Toy.__init__

    def no_display(self: Toy, *arguments: Any, render_mode: str | None = None, **kwargs: Any) -> None:
        if render_mode:
            raise OSError("libEGL.so.1: cannot open shared object file")
        build(self, *arguments, **kwargs)

    monkeypatch.setattr(Toy, "__init__", no_display)
    with FastES("Toy-v0", n_workers=0, **TINY) as model:
        _fails(model, ("Toy-v0", "libEGL.so.1", EGL_PACKAGES), video=tmp_path / "v.mp4")


def test_an_environment_without_that_render_mode(tmp_path: Path) -> None:
    with FastES(lambda: Toy(), n_workers=0, **TINY) as model:
        _fails(model, ("render_mode", "rgb_array"), video=tmp_path / "v.mp4")
    with FastES(lambda: Toy(render_mode="rgb_array"), n_workers=0, **TINY) as model:
        assert play(model, 1, video=tmp_path / "v.mp4")[0].frames > 0


@pytest.mark.parametrize("where", ["no/such/v.mp4", "folder.mp4"])
def test_a_video_that_cannot_be_written(where: str, tmp_path: Path) -> None:
    (tmp_path / "folder.mp4").mkdir()
    with FastES("Toy-v0", n_workers=0, **TINY) as model:
        _fails(model, ("video", str(tmp_path / where)), video=tmp_path / where)


def test_a_format_that_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FastES("Toy-v0", n_workers=0, **TINY) as model:
        model.save(tmp_path / "m")
    for name in ("video.xyz", "video", "video.webp"):
        assert main(["play", str(tmp_path / "m"), "--video", str(tmp_path / name)]) == 1
        assert ".mp4" in capsys.readouterr().err
        assert not (tmp_path / name).exists()
    assert main(["play", str(tmp_path / "m"), "--video", str(tmp_path / "video.MOV")]) == 0


def test_the_environment_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Toy] = []
    monkeypatch.setattr(Toy, "close", lambda self: closed.append(self))
    with FastES("Toy-v0", n_workers=0, **TINY) as model:
        model.close()
        closed.clear()
        play(model, 1, video=tmp_path / "v.mp4")
        assert len(closed) == 1
        player = play_episodes(model, 5)
        next(iter(player))
        player.close()  # type: ignore[attr-defined]
        assert len(closed) == 2


def test_playing_changes_nothing(tmp_path: Path) -> None:
    with FastES("Toy-v0", n_workers=0, **TINY) as model:
        before = model.snapshot()
        play(model, 2, video=tmp_path / "v.mp4")
        after = model.snapshot()
        assert before.data == after.data
        assert (
            before.arrays["trainings"]["0.normalizer.counts"].tolist()
            == after.arrays["trainings"]["0.normalizer.counts"].tolist()
        )


# --- cameras ---------------------------------------------------------------------------------------------------------


def _camera_of(env: Any, **kwargs: Any) -> tuple[int | None, dict[str, Any]]:
    """What a MuJoCo environment is drawn with: the camera's number for pictures, the configuration for windows, too."""
    try:
        follow_robot(env, kwargs)
        renderer = env.unwrapped.mujoco_renderer
        return renderer.camera_id, dict(renderer.default_cam_config or {})
    finally:
        env.close()


@pytest.mark.parametrize("env", ["Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Humanoid-v5", "Swimmer-v5"])
def test_robots_that_run_away_are_followed(env: str) -> None:
    mujoco = pytest.importorskip("mujoco")
    made = gymnasium.make(env)
    number, window = _camera_of(made)
    model = made.unwrapped.model  # type: ignore[attr-defined]
    assert model.camera(number).name == "track"
    assert window["type"] == mujoco.mjtCamera.mjCAMERA_FIXED
    assert window["fixedcamid"] == number


@pytest.mark.parametrize("kwargs", [{"camera_id": -1}, {"camera_name": "track"}, {"default_camera_config": {"distance": 9.0}}])
def test_a_camera_that_was_chosen_stays(kwargs: dict[str, Any]) -> None:
    pytest.importorskip("mujoco")
    expected = gymnasium.make("HalfCheetah-v5", **kwargs).unwrapped.mujoco_renderer  # type: ignore[attr-defined]
    for said in (kwargs, {}):  # in --env-kwargs, or by a factory
        number, window = _camera_of(gymnasium.make("HalfCheetah-v5", **kwargs), **said)
        assert number == expected.camera_id
        assert window == expected.default_cam_config


def test_an_environment_of_ones_own_is_followed(tmp_path: Path) -> None:
    """By a camera of its model that goes with a body, whatever it is called; or as its configuration says."""
    mujoco = pytest.importorskip("mujoco")
    from gymnasium.envs.mujoco import MujocoEnv

    class Own(MujocoEnv):
        metadata: ClassVar[dict[str, Any]] = {"render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"]}

        def __init__(self, camera: str, config: dict[str, Any] | None = None) -> None:
            (tmp_path / "own.xml").write_text(
                f"<mujoco><worldbody><camera name='side'/><body>{camera}<freejoint/><geom size='.1'/></body></worldbody>"
                "</mujoco>"
            )
            super().__init__(str(tmp_path / "own.xml"), 5, spaces.Box(-1, 1, (1,)), default_camera_config=config)

    assert _camera_of(Own("<camera name='behind' mode='trackcom'/>"))[0] == 1
    assert _camera_of(Own("<camera mode='trackcom'/><camera name='tracker' mode='track'/>"))[0] == 2
    number, window = _camera_of(Own("", {"trackbodyid": 1, "distance": 3.0}))
    assert number is None
    assert window == {"trackbodyid": 1, "distance": 3.0, "type": mujoco.mjtCamera.mjCAMERA_TRACKING}
    assert _camera_of(Own(""))[0] == -1


# --- how long, how fast ----------------------------------------------------------------------------------------------


def test_an_environment_with_many_steps_a_second_has_frames_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(Toy.metadata, "render_fps", 125)
    video = tmp_path / "v.mp4"
    with FastES("Toy-v0", n_workers=0, **TINY) as model:
        ((_, _, length, frames),) = play(model, 1, first_seed=3, video=video, caption=False)
    assert frames == -(-length // 4)
    assert imageio_ffmpeg.count_frames_and_secs(str(video))[1] == pytest.approx(frames * 4 / 125, abs=0.04)
    decoded = frames_of(video, 458, 332)
    assert [round(float(frame.mean())) for frame in decoded] == pytest.approx([40 * k for k in range(frames)], abs=6)


def test_seconds_bound_the_video(cartpole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    video = cartpole.with_name("v.mp4")
    command = ["play", str(cartpole), "--video", str(video), "--episodes", "2"]
    assert main([*command, "--max-seconds", "0.1"]) == 0
    assert imageio_ffmpeg.count_frames_and_secs(str(video)) == (5, pytest.approx(0.1, abs=0.02))
    said = capsys.readouterr().out
    assert "drawing 5 frames at most (0 s)" in said
    assert "v.mp4: 5 frames, 0.1 s (cut; --max-seconds" in said
    assert main([*command, "--max-seconds", "inf"]) == 0
    assert "cut" not in capsys.readouterr().out
    for wrong in ("0", "-1", "nan"):
        assert main([*command, "--max-seconds", wrong]) == 2


def test_a_terminal_sees_how_far_the_drawing_is(
    cartpole: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr("tqdm.std.tqdm.__init__", partialmethod(tqdm.__init__, mininterval=0.0))
    assert main(["play", str(cartpole), "--video", str(cartpole.with_name("v.mp4")), "--max-frames", "5"]) == 0
    captured = capsys.readouterr()
    assert "5/5" in captured.err
    assert "frames drawn" not in captured.out
    assert "return" in captured.out


# --- environments of one's own ---------------------------------------------------------------------------------------


def make_toy(render_mode: str | None = None) -> Toy:
    return Toy(render_mode=render_mode)


@pytest.mark.parametrize("env", [make_toy, partial(Toy, length=8), Toy(length=8), TimeLimit(Toy(), 6)])
def test_an_environment_that_takes_render_mode_is_drawn(env: Any, tmp_path: Path) -> None:
    with FastES(env, n_workers=0, **TINY) as model:
        ((_, _, length, frames),) = play(model, 1, video=tmp_path / "v.mp4")
        assert frames == length + 1
        assert model.env.render_mode is None, "training draws nothing"


def test_a_constructor_without_render_mode_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = Toy.__init__
    monkeypatch.setattr(Toy, "__init__", lambda self: build(self))
    with FastES("Toy-v0", n_workers=0, **TINY) as model, pytest.raises(FastESError) as caught:
        play(model, 1, video=tmp_path / "v.mp4")
    assert "has to take render_mode" in str(caught.value)
    assert "libegl1" not in str(caught.value)


def test_a_robot_runs_off_no_floor() -> None:
    """HalfCheetah's ends after 40 m; what is drawn goes on, and what is simulated is the same."""
    mujoco = pytest.importorskip("mujoco")
    ends = []
    for drawn in (False, True):
        env = gymnasium.make("HalfCheetah-v5", render_mode="rgb_array")
        if drawn:
            follow_robot(env, {})
        model = env.unwrapped.model  # type: ignore[attr-defined]
        (floor,) = np.flatnonzero(model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE)
        assert (model.geom_size[floor, 0] >= 1000.0) == drawn
        env.reset(seed=0)
        env.action_space.seed(0)
        for _ in range(50):
            end = env.step(env.action_space.sample())[0]
        ends.append(end)
        env.close()
    assert np.array_equal(*ends)
