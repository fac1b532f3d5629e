"""Risk: a picture slows or ends a training, floods a notebook with outputs, or appears where no notebook is."""

from __future__ import annotations

import importlib.util
import sys
import time
import types
from collections.abc import Callable
from typing import Any

import pytest
from envs_for_tests import Toy

from fastes import FastES
from fastes.reports.live_curve import live_curve

TINY: dict[str, Any] = {"population_size": 4, "seed": 5, "preset": "default", "n_workers": 0, "target_return": "none"}


class Shown:
    """IPython's display, which notes the pictures of each output."""

    def __init__(self) -> None:
        self.outputs: list[list[Any]] = []

    def display(self, picture: Any, display_id: bool) -> Any:
        pictures = [picture]
        self.outputs.append(pictures)
        return types.SimpleNamespace(update=pictures.append)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """IPython as the kernel of a notebook has it."""
    shown, module, display = Shown(), types.ModuleType("IPython"), types.ModuleType("IPython.display")
    module.get_ipython = lambda: types.SimpleNamespace(config={"IPKernelApp": {}})  # type: ignore[attr-defined]
    module.version_info = (9, 0)  # type: ignore[attr-defined]  # which Matplotlib asks for
    display.display = shown.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return shown


def _learn(callback: Callable[..., Any] | None = None, **how: Any) -> list[float]:
    """The parameters after a training."""
    with FastES(Toy, **TINY) as model:
        model.learn(2000, callback, **how)
        return [float(value) for value in model.theta]


def test_a_notebook_shows_the_curve_in_one_output(notebook: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("fastes.reports.live_curve.SECONDS", 0.0)
    theta = _learn(lambda *_: time.sleep(0.02), progress_bar=True)
    (pictures,) = notebook.outputs
    ends = [max(picture.axes[0].lines[0].get_xdata()) for picture in pictures]
    assert len(pictures) > 1
    assert ends == sorted(ends), "it grows"
    assert ends[0] < 1000 < ends[-1]
    assert theta == _learn(), "a picture changes no bit"


def test_a_short_training_has_its_curve_at_the_end(notebook: Shown) -> None:
    pytest.importorskip("matplotlib")
    _learn(progress_bar=True)
    (pictures,) = notebook.outputs
    assert 1 < len(pictures) < 5, "about one per second, and the last one"
    assert len(pictures[-1].axes[0].lines[0].get_xdata()) > 20


def test_drawing_gets_a_tenth_of_the_time(notebook: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastes.reports.live_curve.SECONDS", 0.0)
    drawn, clock = list[float](), [0.0]
    monkeypatch.setattr("fastes.reports.live_curve.time", types.SimpleNamespace(monotonic=lambda: clock[0]))

    def draw() -> str:
        drawn.append(clock[0])
        clock[0] += 3.0
        return "picture"

    curve = live_curve(draw)
    assert curve is not None
    for _ in range(100):
        clock[0] += 1.0
        curve.on_generation(None, types.SimpleNamespace(eval_generation=1))  # type: ignore[arg-type]
    assert 3 <= len(drawn) <= 4
    curve.on_generation(None, types.SimpleNamespace(eval_generation=0))  # type: ignore[arg-type]
    curve.on_end(None)  # type: ignore[arg-type]
    assert notebook.outputs == [["picture"] * len(drawn)]


def test_a_picture_that_fails_ends_no_training(notebook: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: FastES) -> Any:
        raise RuntimeError("no fonts")

    monkeypatch.setattr(FastES, "plot", fail)
    assert _learn(progress_bar=True)
    assert notebook.outputs == []


def test_only_a_notebook_with_matplotlib_that_asked_shows_it(
    notebook: Shown, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _learn()
    assert notebook.outputs == [], "nobody asked"
    find = importlib.util.find_spec
    with monkeypatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda name, *how: None if name == "matplotlib" else find(name, *how))
        _learn(progress_bar=True)
    assert notebook.outputs == []
    assert "100%" in capsys.readouterr().err, "the bar"
    monkeypatch.delitem(sys.modules, "IPython")
    _learn(progress_bar=True)
    assert notebook.outputs == [], "a script"
