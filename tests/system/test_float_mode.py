"""Risk: an environment changes how its process computes with floats, and results depend on which process played what."""

from __future__ import annotations

import ctypes
import ctypes.util
import platform
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from envs_for_tests import Toy

from fastes import FastES, _core

SMALL: dict[str, Any] = {"seed": 0, "population_size": 4, "preset": "default", "target_return": "none"}
UP = 0x800 if platform.machine() == "x86_64" else 0x400000 if platform.machine() == "aarch64" else -1
pytestmark = pytest.mark.skipif(UP < 0, reason="fesetround's numbers are of the machine")


def round_up() -> None:
    assert ctypes.CDLL(ctypes.util.find_library("m")).fesetround(UP) == 0


@pytest.fixture(autouse=True)
def _usual_afterwards() -> Iterator[None]:
    with _core.UsualFloats():
        yield


class RoundsUp(Toy):
    """Toy that rounds up from a call of one of its methods on."""

    def __init__(self, when: str, at: int = 3) -> None:
        super().__init__()
        self.when, self.at = when, at
        if when == "build":
            round_up()

    def reset(self, **how: Any) -> Any:
        if self.when == "reset":
            round_up()
        return super().reset(**how)

    def step(self, action: Any) -> Any:
        result = super().step(action)
        if self.when == "step" and self.steps == self.at:
            round_up()
        if self.when == "end" and result[2]:
            round_up()
        return result


def trained(n_workers: int, when: str) -> tuple[bytes, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with FastES(lambda: RoundsUp(when), n_workers=n_workers, **SMALL) as model:
            model.learn(200)
            assert _core.float_mode() == 0
            return model.theta.tobytes(), [str(each.message) for each in caught if "floats" in str(each.message)]


@pytest.mark.parametrize("when", ["step", "end", "build"])
def test_results_are_those_of_the_usual_mode(when: str) -> None:
    """It is set back before any of it is seen: the Toy computes nothing behind its change."""
    plain, _ = trained(0, "never")
    for n_workers in (0, 2):
        theta, told = trained(n_workers, when)
        assert theta == plain
        if when != "build":
            assert len(told) == 1
            assert "(it rounds up): FastES sets that back before each reset, action and update" in told[0]


def test_what_reset_computes_is_the_same_in_every_process() -> None:
    assert trained(0, "reset")[0] == trained(2, "reset")[0]


def test_a_mode_that_the_script_has_set_is_kept_and_changes_nothing() -> None:
    plain, _ = trained(0, "never")
    round_up()
    with FastES(lambda: RoundsUp("never"), n_workers=0, **SMALL) as model:
        model.learn(200)
        assert _core.float_mode() == 2
        assert model.theta.tobytes() == plain


def test_an_actor_sets_it_back_and_tells() -> None:
    with FastES(lambda: Toy(), n_workers=0, **SMALL) as model:
        actor = model.policy_spec.make_actor()
    actor.begin_episode()
    assert actor.float_mode == 0
    round_up()
    actor.act(np.zeros(3))
    assert (actor.float_mode, _core.float_mode()) == (2, 0)


FLUSH = {"x86_64": (7, 0x8040), "aarch64": (0, 1 << 24)}  # machine -> word of fenv_t, and its bits that flush denormals


@pytest.mark.skipif(sys.platform != "linux" or platform.machine() not in FLUSH, reason="Linux's fenv_t of these processors")
def test_denormals_that_are_flushed_are_seen() -> None:
    number, bits = FLUSH[platform.machine()]
    libm, environment = ctypes.CDLL(ctypes.util.find_library("m")), (ctypes.c_uint32 * 32)()
    smallest = np.float32(1e-40)
    assert libm.fegetenv(environment) == 0
    environment[number] |= bits
    assert libm.fesetenv(environment) == 0
    assert float(smallest * np.float32(0.5)) == 0.0
    mode = _core.float_mode()
    assert mode == _core.FLOAT_FLAGS["flushes to zero"] | _core.FLOAT_FLAGS["denormals are zero"]
    assert _core.set_floats_back() == mode
    assert _core.float_mode() == 0
    assert float(smallest * np.float32(0.5)) > 0.0
