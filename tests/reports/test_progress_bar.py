"""Risk: a progress bar that was asked for shows nothing, in a notebook or in a pipe."""

from __future__ import annotations

import io
import math
import os
import re
import sys
import threading
import types
from typing import Any

import pytest
from envs_for_tests import Toy

from fastes import FastES
from fastes.reports.progress_bar import Progress, ProgressBar, SeedsBar
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
    monkeypatch.setattr("fastes.agent.LINE_SECONDS", 0.0)
    lines = _learn(monkeypatch, progress_bar=True).splitlines()
    assert len(lines) > 2
    notes = r"(, eval [\d.]+, best [\d.]+)?, mean [\d.]+, util \d+%"
    form = rf" *\d+% \d+( of 4\d\d)? steps \[\d\d:\d\d<(\d\d:\d\d|\?)(, .* steps/s)?({notes})?\]"
    assert all(re.fullmatch(form, line) for line in lines[:-1]), lines
    assert "eval" in lines[-2]
    assert re.fullmatch(rf"100% 4\d\d steps \[\d\d:\d\d<00:00, .* steps/s{notes}\]", lines[-1])
    assert "\r" not in "".join(lines)


def test_a_short_training_gets_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = _learn(monkeypatch, progress_bar=True).splitlines()
    assert line.startswith("100%")
    assert _learn(monkeypatch) == ""
    assert _learn(monkeypatch, callback=ProgressBar()) == "", "no line where none was asked for"


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\r" in _learn(monkeypatch, Terminal(), progress_bar=True)


def test_words_of_a_bar() -> None:
    notes = ("eval 12.0", "best 15.0", "mean 9.0", "util 97%")
    progress = Progress(0.999, 3723.0, 61.0, 12345.0, "judging", notes)
    assert progress.in_words() == "judging [1:02:03<01:01, 12.3k steps/s, eval 12.0, best 15.0, mean 9.0, util 97%]"
    assert progress.drawn(200, ascii_only=True).startswith(" 99%|#######"), "100 % is said when nothing is left"
    fewer = [", ".join(["judging [1:02:03<01:01", *notes[:number]]) + "]" for number in (4, 3, 2, 1, 0)]
    for columns in range(40, 140):
        drawn = progress.drawn(columns, ascii_only=False)
        assert len(drawn) <= columns
        assert drawn.startswith(" 99%|")
        room = columns - len(" 99%|| ") - 8
        assert drawn.endswith("| " + next(words for words in (progress.in_words(), *fewer) if len(words) <= room))
    nothing = progress._replace(share=0.0, remaining=math.nan, rate=math.nan, phase="0 of 400 steps", notes=())
    assert nothing.in_words() == "0 of 400 steps [1:02:03<?]"


def test_the_bar_covers_all_that_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scoring of trials, the final selection, and the judging of the result, each under its name; it never goes back."""
    seen = list[Progress]()
    monkeypatch.setattr("fastes.reports.progress_bar.choose_face", lambda _: Recorder(seen))
    with FastES(lambda: Toy(), **TINY, trials=3, rungs=2, archive_size=2) as model:
        bar = ProgressBar(judging=20)
        model.learn(600, bar)
        trained = bar.progress()
        bar.judge(model, 20)
        bar.judge(model, 0)
        bar.close()
    phases = [progress.phase for progress in seen]
    names = [name for name, after in zip(phases, [*phases[1:], ""], strict=True) if name != after and "steps" not in name]
    assert names == ["scoring rung 1 of 2", "scoring rung 2 of 2", "final selection of 3", "judging the result"]
    shares = [progress.share for progress in seen]
    assert shares == sorted(shares)
    at_selection = next(progress.share for progress in seen if progress.phase == "final selection of 3")
    assert 0.1 < at_selection < trained.share < 1.0, "180 episodes beside 600 steps; later ones see them played"
    assert bar.progress().share == 1.0
    assert not any(thread.name == "fastes-progress" for thread in threading.enumerate())


def test_a_training_that_ends_by_the_clock_is_measured_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[Progress]()
    monkeypatch.setattr("fastes.reports.progress_bar.choose_face", lambda _: Recorder(seen))
    with FastES(lambda: Toy(), **TINY) as model:
        bar, minutes = ProgressBar(), 1000.0
        model.learn(10**9, [bar, lambda _, record: record.generation < 5], max_minutes=minutes)
        assert all(progress.remaining <= 60.0 * minutes for progress in seen if progress.share)
        assert re.fullmatch(r"of 1000 min, \d+ steps", next(progress.phase for progress in seen if progress.share))
        by_steps = ProgressBar()
        model.learn(10**12, [by_steps, lambda _, record: record.generation < 10])
        assert seen[-1].remaining > 60.0 * minutes


def test_a_resumed_training_begins_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[Progress]()
    monkeypatch.setattr("fastes.reports.progress_bar.choose_face", lambda _: Recorder(seen))
    with FastES(lambda: Toy(), **TINY) as model:
        model.learn(10_000, lambda model, _: model.num_timesteps < 5000)
        model.learn(5000, [ProgressBar(), lambda *_: False], reset_num_timesteps=False)
    assert 0.4 < seen[-1].share < 0.6


def test_a_stopped_training_is_as_far_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is judged after Ctrl-C: the steps that were left stay so."""
    seen = list[Progress]()
    monkeypatch.setattr("fastes.reports.progress_bar.choose_face", lambda _: Recorder(seen))
    with FastES(lambda: Toy(), **TINY) as model:
        bar = SeedsBar(1, judging=20)
        model.learn(10_000, [bar, lambda _, record: record.generation < 5])
        share = model.num_timesteps / 10_000
        bar.close()
    assert 0.0 < seen[-1].share < 2 * share


class Recorder:
    """A face that keeps what it is shown."""

    seconds = 0.0

    def __init__(self, seen: list[Progress]) -> None:
        self.seen = seen

    def show(self, progress: Progress) -> None:
        self.seen.append(progress)

    def end(self, stays: bool) -> None: ...


def test_a_notebook_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not in_notebook()
    _notebook(monkeypatch)
    assert in_notebook()
    for name in [name for name in sys.modules if name.startswith(("tqdm.autonotebook", "tqdm.notebook"))]:
        monkeypatch.delitem(sys.modules, name)
    shown = _learn(monkeypatch, progress_bar=True)
    assert re.search(r"100%\|.*\| 4\d\d steps \[", shown)
    assert "IProgress" not in shown, "without ipywidgets it is a bar of text, without a warning"


def test_no_stderr_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with FastES(lambda: Toy(), **TINY) as model:
        model.learn(200, progress_bar=True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_copy_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """Neither at its end, at which each bar says how far the training is."""
    copies = []

    def fork(_: Any, record: Any) -> bool:
        pid = os.fork()
        if pid == 0:
            try:
                bar.close()
            finally:
                os._exit(0)
        copies.append(os.waitpid(pid, 0)[1])
        return record.generation < 2

    with FastES(lambda: Toy(), **TINY) as model, SeedsBar(1, line_seconds=600.0) as bar:
        model.learn(400, [bar, fork])
    assert copies == [0, 0]
    (line,) = capfd.readouterr().err.splitlines()
    assert "steps" in line


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
