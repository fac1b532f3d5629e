"""Risk: a progress bar that was asked for shows nothing, in a notebook or in a pipe."""

from __future__ import annotations

import io
import re
import sys
import types
from typing import Any

import pytest
from envs_for_tests import Toy

from fastes import FastES
from fastes.reports.console_log import ProgressBar, ProgressLines, line_meanwhile
from fastes.system.console import in_notebook

TINY: dict[str, Any] = {"population_size": 4, "seed": 5, "preset": "default", "n_workers": 0, "target_return": "none"}


def _learn(monkeypatch: pytest.MonkeyPatch, stream: Any = None, **how: Any) -> str:
    """What learn writes to stderr."""
    stream = stream or io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with FastES(lambda: Toy(), **TINY) as model:
        model.learn(400, **how)
    return str(stream.getvalue())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython as the kernel of a notebook has it."""
    module = types.ModuleType("IPython")
    shell = types.SimpleNamespace(config={"IPKernelApp": {}})
    module.get_ipython = lambda: shell  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", module)


def test_a_pipe_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastes.sb3.callbacks._LINE_SECONDS", 0.0)
    lines = _learn(monkeypatch, progress_bar=True).splitlines()
    assert len(lines) > 2
    assert re.fullmatch(r" *\d+% of 4\d\d steps: .*step/s\]", lines[0]), "no evaluation is told yet"
    assert all(re.fullmatch(r" *\d+% of 4\d\d steps: .*step/s, eval .*\]", line) for line in lines[1:]), lines
    assert lines[-1].startswith("100%")
    assert "\r" not in "".join(lines)


def test_a_short_training_gets_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = _learn(monkeypatch, progress_bar=True).splitlines()
    assert line.startswith("100%")
    assert _learn(monkeypatch) == ""
    assert _learn(monkeypatch, callback=ProgressBar()) == "", "the commands have lines of their own"


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\r" in _learn(monkeypatch, Terminal(), progress_bar=True)


def test_a_terminal_is_told_what_goes_on_and_keeps_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, during, after in ((Terminal(), "playing\r", "playing\r       \r"), (io.StringIO(), "", "")):
        monkeypatch.setattr(sys, "stderr", stream)
        with line_meanwhile("playing"):
            assert stream.getvalue() == during
        assert stream.getvalue() == after
    monkeypatch.setattr(sys, "stderr", None)
    with line_meanwhile("playing"):
        pass


def test_a_notebook_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not in_notebook()
    _notebook(monkeypatch)
    assert in_notebook()
    for name in [name for name in sys.modules if name.startswith(("tqdm.autonotebook", "tqdm.notebook"))]:
        monkeypatch.delitem(sys.modules, name)
    shown = _learn(monkeypatch, progress_bar=True)
    assert "400" in shown
    assert "IProgress" not in shown, "without ipywidgets it is a bar of text, without a warning"


def test_no_stderr_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with FastES(lambda: Toy(), **TINY) as model:
        model.learn(200, progress_bar=True)


def test_a_forked_copy_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar(line_seconds=0.0)
    bar._bar = ProgressLines(10, 0, 0.0)
    bar.leave_to_parent()
    bar._bar.update(5)
    bar._bar.close()
    assert capsys.readouterr().err == ""


def test_an_evaluation_shows_its_statistics() -> None:
    with FastES("Toy-v0", **TINY) as model:
        result = model.evaluate(20)
    text = (
        f"Evaluation(mean={result.mean:.2f}, std={result.std:.2f}, min={result.returns.min():.2f}, "
        f"max={result.returns.max():.2f}, episodes=20)"
    )
    assert repr(result) == str(result) == text
    assert [len(values) for values in result] == [20, 20, 20], "it is a tuple of arrays all the same"
    assert "nan" in repr(result._replace(returns=result.returns * float("nan")))
