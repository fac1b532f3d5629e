"""Every test: no process outlives it, a hang is a failure, the slow ones run only when asked for."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from types import FrameType

import envs_for_tests  # noqa: F401  registers Toy-v0
import pytest
from faults import SETTINGS, toy
from processes import children, wait_until
from training import Result, train

from fastes import _core

sys.path.append(str(Path(__file__).parents[1]))  # for benchmarks; last, as the checkout's fastes may have no compiled core
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background by a shell
    signal.signal(signal.SIGINT, signal.default_int_handler)
_HANG_SECONDS = 240


@pytest.hookimpl(wrapper=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """One more than there are cores: many tests wait for a process, a deadline or a disk."""
    return (yield) + 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.markexpr:
        return
    named = set()  # tests that are named one by one, without what follows in brackets
    for path, *names in (argument.split("::") for argument in config.args if "::" in argument):
        named.add((os.path.realpath(config.invocation_params.dir / path), "::".join(names)))
    for item in items:
        path, name = os.path.realpath(item.path), item.nodeid.partition("::")[2]
        if "slow" in item.keywords and not {(path, name), (path, name.partition("[")[0])} & named:
            item.add_marker(pytest.mark.skip(reason="slow: run with -m slow"))


def pytest_collection_finish() -> None:
    """Leave all that was imported out of later collections: each would take a third of a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    def give_up(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"the test hung for {_HANG_SECONDS} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(_HANG_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def _no_process_left() -> Iterator[None]:
    before = set(children())
    yield
    if set(children()) - before:
        gc.collect()
        wait_until(lambda: not set(children()) - before, "processes that the test started ended")


@pytest.fixture(scope="session")
def undisturbed() -> Result:
    """Four generations of the toy training, without a fault."""
    return train(toy(), 4, **SETTINGS)


@pytest.fixture
def kernels() -> Iterator[None]:
    """The kernel variant chosen in a test ends with it."""
    before = _core.variant()
    yield
    _core.use_variant(before)


@pytest.fixture(params=_core.available_variants())
def variant(request: pytest.FixtureRequest, kernels: None) -> str:
    """Each kernel variant that this CPU runs, one after the other, in use."""
    _core.use_variant(request.param)
    return _core.variant()


@pytest.fixture
def no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting any process fails the test."""

    def refuse(*arguments: object, **_: object) -> None:
        pytest.fail(f"a process was started: {arguments}")

    monkeypatch.setattr("subprocess.Popen", refuse)
    monkeypatch.setattr("os.fork", refuse)
    monkeypatch.setattr("os.posix_spawn", refuse)
