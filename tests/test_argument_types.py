"""Risk: an argument of a wrong type is taken in silence, or its error speaks of something else."""

from __future__ import annotations

from typing import Any

import pytest

from fastes import FastES, FastESError

SMALL: dict[str, Any] = {"seed": 0, "population_size": 4, "n_workers": 0}
OBJECT = object()
OF_CONSTRUCTOR: dict[str, tuple[Any, ...]] = {
    "env_kwargs": (5, 1.5, "x", [1], True, OBJECT, b"x", {1: 2}),
    "preset": (5, [1], {}, True, OBJECT),
    "n_workers": (1.5, "x", [1], True),
    "seed": (1.5, "x", [1], True),
    "cluster": (5, [1], True),
    "verbose": ("x", 1.5, [1], OBJECT),
    "tensorboard_log": (5, [1], True, OBJECT),
    "stats_window_size": ("x", 1.5, None),
    "device": (5, [1], None),
    "learning_rate": ("x", [1], OBJECT),
    "policy": (5, [1], OBJECT),
}
OF_LEARN: dict[str, tuple[Any, ...]] = {
    "total_timesteps": ("x", 1.5, [1], True),
    "callback": (5, "x", OBJECT),
    "log_interval": ("x", 1.5, [1]),
    "tb_log_name": (5, [1], None),
    "reset_num_timesteps": ("x", 2, None, [1]),
    "progress_bar": ("x", 2, None, [1]),
}


@pytest.mark.parametrize("name", OF_CONSTRUCTOR)
def test_the_constructor_names_argument_and_value(name: str) -> None:
    for value in OF_CONSTRUCTOR[name]:
        with pytest.raises((TypeError, ValueError)) as caught:
            FastES("CartPole-v1", **{**SMALL, name: value}).close()
        assert name in str(caught.value), value
        assert repr(value)[:7] in str(caught.value), value


@pytest.mark.parametrize("name", OF_LEARN)
def test_learn_names_argument_and_value(name: str) -> None:
    with FastES("CartPole-v1", **SMALL) as model:
        for value in OF_LEARN[name]:
            with pytest.raises((TypeError, ValueError)) as caught:
                model.learn(**{"total_timesteps": 10, name: value})
            assert name in str(caught.value), value
            assert repr(value)[:7] in str(caught.value), value
        assert model.num_timesteps == 0


def test_a_sigma_that_is_too_small_is_what_the_error_names() -> None:
    with FastES("CartPole-v1", sigma=1e-300, **SMALL) as model, pytest.raises(FastESError, match="raise sigma"):
        model.learn(100)
