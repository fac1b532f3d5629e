"""Risk: an exponential schedule misses its ends, bends at the wrong rate, or has other bits on another machine."""

from __future__ import annotations

import hashlib
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from training import assert_same, train

from fastes import Settings
from fastes.es.portable_math import exp, log
from fastes.es.schedules import make_schedule

POSITIVE = st.floats(1e-150, 1e150)


def test_the_logarithm_is_one() -> None:
    x = np.concatenate([np.random.default_rng(0).uniform(0.3, 3.0, 10_000), 2.0 ** np.arange(-1000, 1000, 7), [1.0]])
    np.testing.assert_allclose(log(x), [math.log(value) for value in x], rtol=1e-15, atol=0.0)


def test_the_exponential_is_one() -> None:
    for x in [*np.random.default_rng(0).uniform(-700, 700, 10_000).tolist(), 0.0, 1.0, -1.0, 709.7, 1e-300]:
        assert exp(x) == pytest.approx(math.exp(x), rel=1e-15, abs=0.0)
    assert exp(-1e4) == 0.0


@pytest.mark.parametrize(("value", "kind"), [(0.0, ValueError), (None, TypeError)])
def test_a_function_that_returns_a_wrong_value_is_named_with_the_time(value: Any, kind: type[Exception]) -> None:
    schedule = make_schedule("learning_rate", lambda remaining: 0.1 if remaining > 0.2 else value)
    assert schedule(0.5) == 0.1
    said = rf"learning_rate is a function, which returned {value} when 0\.125 of the progress remained: expected a positive"
    with pytest.raises(kind, match=said):
        schedule(0.125)


@given(POSITIVE, POSITIVE)
def test_ends_are_met_and_halves_are_geometric_means(first: float, last: float) -> None:
    schedule = make_schedule("sigma", f"exp_{first!r}_{last!r}")
    assert schedule(1.0) == first
    assert schedule(0.0) == last
    middle = schedule(0.5)
    assert min(first, last) <= middle <= max(first, last)
    assert middle == pytest.approx(math.sqrt(first) * math.sqrt(last), rel=1e-12, abs=0.0)


@pytest.mark.parametrize(("first", "last"), [(1.7e308, 1.0), (1.0, 1.7e308), (1.0, 1e-308), (5e-324, 1e-100)])
def test_the_widest_schedules_stay_between_their_ends(first: float, last: float) -> None:
    schedule = make_schedule("sigma", f"exp_{first!r}_{last!r}")
    values = [schedule(k / 100) for k in range(101)]
    assert values == sorted(values, reverse=last > first)
    assert (schedule(1.0), schedule(0.0)) == (first, last)
    assert schedule(0.5) == pytest.approx(math.sqrt(first) * math.sqrt(last), rel=1e-12, abs=0.0)


@pytest.mark.parametrize("value", ["exp_1.7e308_1e-10", "exp_5e-324_1.0"])
def test_ends_too_far_apart_are_refused(value: str) -> None:
    with pytest.raises(ValueError, match=f"sigma = '{value}' has ends whose ratio is more than a float can hold: bring"):
        Settings(sigma=value)


def test_equal_times_have_equal_factors() -> None:
    values = np.array([make_schedule("learning_rate", "exp_0.1_0.0001")(k / 12) for k in range(13)])
    assert values[1:] / values[:-1] == pytest.approx(1000 ** (1 / 12), rel=1e-13, abs=0.0)


def test_it_may_rise() -> None:
    assert make_schedule("alive_bonus", "exp_0.01_1")(0.5) == pytest.approx(0.1)


def test_values_are_the_same_bits_everywhere() -> None:
    schedules = [make_schedule("sigma", value) for value in ("exp_0.05_0.003", "exp_0.003_0.05", "exp_1e100_1e-100")]
    values = struct.pack("<3003d", *(schedule(k / 1000) for schedule in schedules for k in range(1001)))
    assert hashlib.sha256(values).hexdigest() == "304a074b51fbe79697b94b28acc8812a43c8744b1eb59d80d3e5d5492ed6dd89"


def test_no_libm_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    def values() -> list[float]:
        schedule = make_schedule("sigma", "exp_0.05_0.003")
        return [schedule(k / 100) for k in range(101)]

    expected = values()
    for library in (math, np):
        for name in ("log", "log2", "log10", "log1p", "exp", "expm1", "exp2", "power", "pow"):
            monkeypatch.delattr(library, name, raising=False)
    assert values() == expected


@pytest.mark.parametrize("value", ["exp_0.1", "exp_0.1_0", "exp_-0.1_-0.2", "exp_0.1_inf", "exp_0.1_0.01_0.001", "exp_a_b"])
@pytest.mark.parametrize("name", ["sigma", "learning_rate", "alive_bonus"])
def test_what_is_no_exponential_is_refused(name: str, value: Any) -> None:
    forms = "a number, 'lin_1' .*'exp_0.1_1'" if name == "alive_bonus" else "a positive number, 'lin_0.02' .*'exp_0.02_0.001'"
    with pytest.raises(ValueError, match=f"{name} = {value!r} (is not|does not).*: expected {forms}"):
        Settings(**{name: value})


@pytest.mark.parametrize("remaining", [1.5, 2.0**60, -0.5, -math.inf, math.nan])
def test_progress_beyond_the_ends_stays_at_them(remaining: float) -> None:
    assert make_schedule("sigma", "exp_0.1_0.01")(remaining) == (0.1 if remaining > 1 else 0.01)


def test_a_training_is_the_same_on_workers_and_follows_it() -> None:
    settings: dict[str, Any] = {"sigma": "exp_0.2_0.02", "learning_rate": "exp_0.1_0.001", "population_size": 8}
    serial = train("Toy-v0", 4, **settings)
    assert_same(serial, train("Toy-v0", 4, 2, **settings))
    assert serial.records[-1].sigma < serial.records[0].sigma == 0.2
