"""Risk: a notebook shows no video, leaves files, or a script draws one that nobody asked for."""

from __future__ import annotations

import base64
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from envs_for_tests import Toy

from fastes import FastES, FastESError, play
from fastes.runs.playback import Playback
from fastes.runs.video import Played

pytest.importorskip("imageio_ffmpeg")

TINY: dict[str, Any] = {"population_size": 4, "seed": 5, "preset": "default", "n_workers": 0, "target_return": "none"}


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython as the kernel of a notebook has it."""
    module = types.ModuleType("IPython")
    module.get_ipython = lambda: types.SimpleNamespace(config={"IPKernelApp": {}})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", module)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, in which temporary files are, too."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_script_plays_as_play_does(folder: Path) -> None:
    with FastES("Toy-v0", **TINY) as model:
        assert list(model.play(3, first_seed=4)) == play(model, 3, first_seed=4)
        playback = model.play()
        assert [episode.env_seed for episode in playback] == [0]
        assert playback.video == b""
        assert list(folder.iterdir()) == []
        assert model.play(video="v.mp4").video == b"", "it is in the file alone"
        assert (folder / "v.mp4").stat().st_size > 500


@pytest.mark.usefixtures("notebook")
def test_a_notebook_has_the_video_in_the_output(folder: Path) -> None:
    with FastES("Toy-v0", **TINY) as model:
        playback = model.play(2, first_seed=7)
        assert list(folder.iterdir()) == [], "no file is left"
        html = playback._repr_html_()
        (source,) = re.findall(r'<video controls loop muted style="[^"]*" src="data:video/mp4;base64,([^"]+)"></video>', html)
        assert base64.b64decode(source) == playback.video
        assert playback.video[4:8] == b"ftyp", "an mp4"
        assert "env seed 8" in html
        assert f"return {playback[1].episode_return:.2f}, {playback[1].length} steps" in html
        assert len(model.play(2, first_seed=7, max_frames=2).video) < len(playback.video)
        named = model.play(video=Path("v.mov"))
        assert named.video == (folder / "v.mov").read_bytes()
        assert "data:video/quicktime;" in named._repr_html_()


def test_many_episodes_have_a_short_table() -> None:
    html = Playback([Played(seed, 1.0, 1234, 0) for seed in range(50)])._repr_html_()
    assert "<video" not in html
    assert html.count("<tr>") == 1 + 20 + 1
    assert "50 episodes in all" in html
    assert "1,234 steps" in html


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"episodes": 0}, "episodes = 0"),
        ({"first_seed": -1}, "first_seed = -1"),
        ({"max_frames": 0}, "max_frames = 0"),
        ({"max_seconds": 0.0}, "max_seconds = 0.0: expected more than 0"),
        ({"video": "v.mp4", "render": True}, "video = 'v.mp4' and render = True: expected one of them"),
    ],
)
def test_arguments_that_cannot_work(how: dict[str, Any], words: str, no_process: None) -> None:
    with FastES(Toy, **TINY) as model, pytest.raises(ValueError, match=re.escape(words)):
        model.play(**how)


@pytest.mark.usefixtures("notebook")
def test_a_notebook_says_why_there_is_no_video(folder: Path) -> None:
    class NoPicture(Toy):
        def __init__(self) -> None:
            super().__init__()

    with FastES(NoPicture, **TINY) as model, pytest.raises(FastESError, match="it has to make 'rgb_array' to be shown"):
        model.play()
    assert list(folder.iterdir()) == []


def test_a_callback_may_play() -> None:
    with FastES("Toy-v0", **TINY) as model:
        played = list[Playback]()
        model.learn(100, lambda model, _: played.append(model.play()))
        assert played


@pytest.mark.usefixtures("notebook")
def test_a_notebook_shows_a_gif_as_a_picture(folder: Path) -> None:
    with FastES("Toy-v0", **TINY) as model:
        playback = model.play(video=folder / "v.gif")
    assert '<img style="max-width: 100%" src="data:image/gif;base64,' in playback._repr_html_()
    assert playback.video == (folder / "v.gif").read_bytes()
