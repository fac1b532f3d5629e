"""Risk: an exception, of whatever kind and at whatever moment, leaves a generation booked in part."""

from __future__ import annotations

import ast
import contextlib
import csv
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from faults import SETTINGS, toy
from training import MANY, TIMES, Result, assert_same, assert_same_state, tell_the_rest

import fastes
from fastes import Callback, EvolutionStrategy, FastES
from fastes.checkpoints.reader import read_checkpoint
from fastes.envs.worker_number import WORKER_INDEX, numbered
from fastes.models.checkpointing import checkpoint_of
from fastes.runs.run_folder import RunFolder
from fastes.system.interrupts import Terminated, interrupts_deferred
from fastes.training.player import Player
from fastes.training.record import Generation
from fastes.training.selection import Selection
from fastes.training.training import Training

TOTAL = 10**6
PACKAGE = fastes.__path__[0]  # of a checkout, it may be that of what is installed
RICH: dict[str, Any] = {
    **SETTINGS,
    "sigma_adaptation": "per_parameter",
    "sigma_learning_rate": 1.0,
    "episode_cap": "grow",
    "episode_cap_start": 5,
    "generation_timesteps": 60,
    "archive_size": 1,
}
TARGETED: dict[str, Any] = {**RICH, "target_return": -1e9, "target_episodes": 2}


@pytest.fixture(autouse=True)
def _no_garbage() -> Iterator[None]:
    """What an earlier test has left would be finalised at any line, and an exception there is nobody's to meet."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.collect()
    with numbered(0):
        pass
    assert WORKER_INDEX not in os.environ, "an exception where a number is taken back leaves it until the next is"


EVERY = pytest.mark.parametrize("every", [23, pytest.param(1, marks=pytest.mark.slow)])  # so many lines apart


class Stopped(BaseException):
    """What a signal's handler may raise."""


@cache
def _lines_without_a_call(file: str) -> frozenset[int]:
    """Those of `finally` blocks: Python lets a signal, or another thread's exception, come only where something is called."""
    blocks = [node.finalbody for node in ast.walk(ast.parse(Path(file).read_text())) if isinstance(node, ast.Try)]
    stores = [line for block in blocks for line in block if isinstance(line, ast.Assign)]
    return frozenset(line.lineno for line in stores if not any(isinstance(node, ast.Call) for node in ast.walk(line)))


class At:
    """Raises Stopped at the n-th line of the package that is run between the calls of `start` and `stop`.

    Not in interrupts.py, which no signal can interrupt.
    """

    def __init__(self, number: int) -> None:
        self.number, self.lines, self.raised = number, 0, False

    def start(self) -> None:
        frame: FrameType | None = sys._getframe(1)
        sys.settrace(self._trace)
        while frame is not None:  # those that run already
            if frame.f_code.co_filename.startswith(PACKAGE):
                frame.f_trace = self._trace
            frame = frame.f_back

    def stop(self) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if self.raised or not frame.f_code.co_filename.startswith(PACKAGE) or "interrupts" in frame.f_code.co_filename:
            return None
        if event == "line" and frame.f_lineno not in _lines_without_a_call(frame.f_code.co_filename):
            self.lines += 1
            if self.lines == self.number:
                self.raised = True
                raise Stopped
        return self._trace


def _said(model: FastES) -> tuple[str, ...]:
    """All of a model's state, to compare by, as if it showed the trial that made a generation last: after a stop it may not."""
    state = checkpoint_of(model.selection.focused(model.selection.last.number), model.source)
    arrays = [f"{group} {name} {array.tobytes().hex()}" for group, of in state.arrays.items() for name, array in of.items()]
    return json.dumps(state.data, sort_keys=True), *arrays


def _begun(model: FastES, done: int) -> Selection:
    """The state after so many generations, of all trials, whose evaluations are not told yet, as `learn` begins with it."""
    states = [model.selection]

    def note(model: FastES, _: Any) -> bool:
        states.append(model.selection)
        return len(states) <= done

    if done:
        model.learn(TOTAL, note)
    start = states[-1].with_budget(TOTAL - states[-1].num_timesteps, False)
    _go_back(model, start)
    return start


def _go_back(model: FastES, start: Selection) -> None:
    model.trainer.replace_selection(start)


class Ending(Callback):
    """Ends the training after so many generations, of all trials, and notes the state in which the last one was booked."""

    def __init__(self, generations: int, when_booked: Callable[[], None]) -> None:
        self.generations, self.when_booked, self.booked = generations, when_booked, ("",)

    def on_generation(self, model: FastES, record: Any) -> bool:
        self.generations -= 1
        if not self.generations:
            self.when_booked()
            self.booked = _said(model)
        return self.generations > 0


def _stopped(model: FastES, at: At, *callbacks: Callback) -> None:
    """Train until the callbacks say stop, or `at` raises."""
    try:
        model.learn(TOTAL - model.num_timesteps, callbacks, reset_num_timesteps=False)
    except Stopped:
        pass
    finally:
        at.stop()


@EVERY
@pytest.mark.parametrize(
    ("settings", "done"),
    [
        (RICH, 1),
        ({**RICH, "eval_lag": 0}, 1),
        (TARGETED, 1),
        ({**TARGETED, "eval_lag": 0}, 0),
        ({**RICH, "trials": 2}, 3),
        ({**TARGETED, "trials": 2}, 2),
    ],
    ids=["learned", "learned at once", "solved", "solved at once", "one of two trials", "one of two trials solved"],
)
def test_an_exception_at_any_line_of_booking_leaves_the_state_before_or_after(
    settings: dict[str, Any], done: int, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a signal, another thread, or a full memory: at every line that Python executes, one after the other.

    From where a generation's candidates are known to where callbacks are told.
    """
    play, at = Player.generation, At(0)

    async def traced(player: Player, training: Training) -> Generation:
        generation = await play(player, training)
        at.start()
        return generation

    with FastES(toy(), preset="default", n_workers=0, **settings) as model:
        start = _begun(model, done)
        monkeypatch.setattr(Player, "generation", traced)
        before, ends, number, raised = _said(model), set(), 1 - every, True
        while raised:
            number += every
            _go_back(model, start)
            at = At(number)
            ending = Ending(1, at.stop)
            _stopped(model, at, ending)
            raised = at.raised
            if raised:
                ends.add(_said(model))
            assert (model.unreported_record is not None) == (raised and _said(model) != before), f"line {number}"
        assert number > 100, "lines of a whole generation"
        assert ends == {before, ending.booked}
        assert model.solved == (settings["target_return"] != "none")


@EVERY
@pytest.mark.parametrize(
    ("settings", "generations", "evaluations", "solved"),
    [
        ({**RICH, "eval_lag": 2}, 2, 2, False),
        (TARGETED, 1, 1, True),
        ({**RICH, "trials": 2}, 4, 1, False),
        ({**TARGETED, "trials": 2}, 2, 1, False),
        ({**TARGETED, "trials": 2}, 3, 0, True),
    ],
    ids=["learned", "solved", "one of two trials", "one of two trials at a target", "one of two trials solved"],
)
def test_an_exception_at_any_line_of_the_end_tells_each_evaluation_or_not(
    settings: dict[str, Any], generations: int, evaluations: int, solved: bool, every: int
) -> None:
    """From where the last generation is booked to where `learn` is over. A stop solves none of several trials."""
    with FastES(toy(), preset="default", n_workers=0, **settings) as model:
        start, at = _begun(model, 0), At(0)
        _stopped(model, at, Ending(generations, at.start))
        whole, ends, number = _said(model), set(), 1 - every
        while number < 1 or at.raised:
            number += every
            _go_back(model, start)
            at = At(number)
            ending = Ending(generations, at.start)
            _stopped(model, at, ending)
            ends.add(_said(model))
            tell_the_rest(model)
            assert _said(model) == whole, f"line {number}"
            assert model.solved == solved
        assert number > 100, "lines of the end of a training"
        assert {ending.booked, whole} <= ends
        assert len(ends) == 1 + evaluations, "each evaluation is told as a whole"


@contextlib.contextmanager
def alarms() -> Iterator[None]:
    """The handler of SIGALRM raises Stopped meanwhile; the suite's own alarm waits."""

    def expire(number: int, frame: FrameType | None) -> None:
        raise Stopped

    left = signal.setitimer(signal.ITIMER_REAL, 0.0)[0]
    handler = signal.signal(signal.SIGALRM, expire)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, left)


def stopped_after(model: FastES, seconds: float, *callbacks: Any) -> tuple[dict[int, Any], bool]:
    """Four generations, with an alarm after so many seconds and `learn` once more: their records, and whether it rang."""
    records: dict[int, Any] = {}
    armed = stopped = False

    def note(model: FastES, record: Any) -> bool:
        records[record.generation] = record
        return record.generation < 4

    while model.generation < 4 or not armed:
        try:
            if not armed:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, seconds + 1e-6)
            model.learn(MANY - model.num_timesteps, [*callbacks, note], reset_num_timesteps=False)
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        except Stopped:
            stopped = True
            if model.unreported_record is not None:
                records[model.unreported_record.generation] = model.unreported_record
    return records, stopped


# between `open` and `with` an exception leaves a file to the garbage collector: Python has no way around that
AT_ANY_MOMENT = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")


@AT_ANY_MOMENT
def test_alarms_at_random_moments_change_no_result(undisturbed: Result) -> None:
    """Time limits raise in a handler of SIGALRM; training continues after each."""
    chance, stopped = np.random.default_rng(0), 0
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model, alarms():
        start, seconds = model.selection, _seconds(model, lambda: [])
        for number in range(1000):
            _go_back(model, start)
            records, rang = stopped_after(model, chance.uniform(0.0, seconds))
            tell_the_rest(model)
            assert_same(undisturbed, Result(model.snapshot(), [records[generation] for generation in range(1, 5)]))
            stopped += rang
            if number > 50 and stopped > 10:
                break
    assert stopped > 10


@AT_ANY_MOMENT
def test_alarms_at_random_moments_lose_no_row(tmp_path: Path, undisturbed: Result) -> None:
    chance, stopped, folders = np.random.default_rng(1), 0, count()

    def new() -> RunFolder:
        path = tmp_path / str(next(folders))
        path.mkdir()
        return RunFolder(path, checkpoint_seconds=0.0)

    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model, alarms():
        start, seconds = model.selection, _seconds(model, lambda: [new()])
        for number in range(300):
            _go_back(model, start)
            folder = new()
            stopped += stopped_after(model, chance.uniform(0.0, seconds), folder)[1]
            assert _statistics(folder.path) == _statistics(tmp_path / "0")
            tell_the_rest(model)
            folder.save(model)
            assert_same_state(undisturbed.state, read_checkpoint(folder.path / "checkpoint.zip"))
            if number > 20 and stopped > 5:
                break
    assert stopped > 5


def _seconds(model: FastES, callbacks: Callable[[], list[Any]]) -> float:
    """That four generations take when nothing has to be made any more; the model is as it was."""
    start = model.selection
    for _ in range(2):
        _go_back(model, start)
        began = time.perf_counter()
        stopped_after(model, 60.0, *callbacks())
    _go_back(model, start)
    return time.perf_counter() - began


def _statistics(run: Path) -> list[dict[str, str]]:
    with open(run / "progress.csv", newline="") as file:
        return [{key: value for key, value in row.items() if key not in TIMES} for row in csv.DictReader(file)]


def test_a_strategy_that_is_interrupted_is_told_again() -> None:
    """tell() of a user's own loop, stopped at each of its lines, leaves theta and optimiser as before or as after."""

    def made() -> tuple[EvolutionStrategy, list[float]]:
        es = EvolutionStrategy(np.zeros(5), population_size=8, sigma_adaptation="scalar", seed=1)
        return es, [float(-np.sum((x - 1.0) ** 2)) for x in es.ask()]

    es, returns = made()
    before = _strategy_said(es)
    es.tell(returns)
    after, number, raised = _strategy_said(es), 0, True
    while raised:
        number += 1
        (es, returns), at = made(), At(number)
        at.start()
        try:
            es.tell(returns)
        except Stopped:
            pass
        finally:
            at.stop()
        raised = at.raised
        assert _strategy_said(es) in (before, after), f"line {number}"
    assert number > 20


def _strategy_said(es: EvolutionStrategy) -> list[Any]:
    return [es.generation, *(array.tobytes() for array in es.state().values())]


def test_a_handler_that_waited_sees_where_it_came() -> None:
    """Profilers look at the frame."""
    seen: list[Any] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append((number, frame.f_code.co_name)))
    try:
        with interrupts_deferred():
            signal.raise_signal(signal.SIGUSR1)
            assert seen == []
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [(signal.SIGUSR1, "test_a_handler_that_waited_sees_where_it_came")]


def test_a_request_to_end_is_not_lost_behind_an_alarm() -> None:
    def late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    def end(number: int, frame: FrameType | None) -> None:
        raise Terminated(number)

    before = [(number, signal.signal(number, handler)) for number, handler in ((signal.SIGUSR1, late), (signal.SIGTERM, end))]
    try:
        with pytest.raises(Terminated), interrupts_deferred():  # noqa: PT012
            for number, _ in before:
                signal.raise_signal(number)
    finally:
        for number, handler in before:
            signal.signal(number, handler)
