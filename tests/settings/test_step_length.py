"""Risk: a learning rate of another method learns nothing in silence, or one that is right is warned of."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from faults import caught_warnings

from fastes import FastES
from fastes.settings.preset_fit import LEAST, relative_step_length, warn_of_step_length
from fastes.settings.preset_loader import DEFAULT, all_presets, load_preset
from fastes.settings.settings import Settings

SIZES = {"Humanoid-v5": 782, "HumanoidStandup-v5": 782, "Walker2d-v5": 108, "BipedalWalker-v3": 100, "Pusher-v5": 168}
SIZES |= dict.fromkeys(("atari", "patches"), 4000)


def said_of(preset: str, num_params: int = 100, **changes: Any) -> str:
    settings = Settings().changed(**{**load_preset(preset), **changes})
    with caught_warnings() as messages:
        warn_of_step_length(preset, settings, changes, num_params)
    return "".join(messages)


@pytest.mark.parametrize("name", sorted(all_presets()))
def test_no_preset_is_warned_of(name: str) -> None:
    own, size = load_preset(name), SIZES.get(name, 100)
    length = relative_step_length(Settings().changed(**own), size)
    assert length is not None
    assert 3 * LEAST < length < 0.6
    for under in (name, DEFAULT, "unbiased"):  # as a run's configuration or the Zoo's entry has it
        assert said_of(under, size, **own) == ""


@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        ("Hopper-v5", {"learning_rate": 0.02}),
        ("Hopper-v5", {"learning_rate": "lin_0.02_0.005"}),
        ("ars", {"sigma": 0.05, "learning_rate": 0.02, "population_size": 16, "top_fraction": 0.5}),
        ("CartPole-v1", {"sigma": "exp_0.2_0.02", "learning_rate": "lin_0.05_0.005"}),
        (DEFAULT, {"population_size": 64, "sigma": 0.2, "learning_rate": 0.05}),
        ("HalfCheetah-v5", {"optimizer": "adam"}),
        ("HalfCheetah-v5", {"population_size": 2000, "learning_rate": 0.07}),
        (DEFAULT, {"optimizer": "sgd"}),
        (DEFAULT, {"learning_rate": lambda remaining: 1e-9 * remaining}),
        ("HalfCheetah-v5", {"sigma": 0.3, "learning_rate": 0.2}),
    ],
)
def test_what_documents_and_users_reasonably_write_is_not(preset: str, changes: dict[str, Any]) -> None:
    assert said_of(preset, **changes) == ""


@pytest.mark.parametrize(
    ("preset", "changes", "told"),
    [
        ("HalfCheetah-v5", {"learning_rate": 1e-3}, "learning_rate = 0.001: a step is 1.7 % of a perturbation's length"),
        ("HalfCheetah-v5", {"learning_rate": 3e-4}, "so training will hardly move; preset 'HalfCheetah-v5' has learning_rate"),
        ("unbiased", {"learning_rate": 1e-3}, "has learning_rate = lin_0.05_0.01 and sigma = 0.1, whose steps are 25 % of one"),
        (DEFAULT, {"learning_rate": 1e-3}, "learning_rate = 0.001: a step is 2 %"),
        ("CartPole-v1", {"learning_rate": 3e-4}, "a step is 0.3 %"),
        ("Humanoid-v5", {"learning_rate": 1e-3}, "a step is 0.5 %"),
        (
            "unbiased",
            {"optimizer": "clipup", "learning_rate": 1e-3},
            "and optimizer = clipup: a step is 0.1 %",
        ),
        (DEFAULT, {"learning_rate": 1.0}, "a step is 2000 % of a perturbation's length, so training may not settle"),
        (DEFAULT, {"sigma": 2.0}, "sigma = 2.0: a step is 1 %"),
        (DEFAULT, {"sigma": 2.0}, ". Leave it out, or begin at the preset's"),
    ],
)
def test_numbers_that_are_far_off_are(preset: str, changes: dict[str, Any], told: str) -> None:
    said = said_of(preset, **changes)
    assert told in said
    assert "\n" not in said


@pytest.mark.parametrize("kind", ["scalar", "per_parameter"])
def test_a_schedule_of_the_preset_is_no_obstacle_to_an_adapted_sigma(kind: str) -> None:
    assert said_of("Swimmer-v5", sigma=0.05, sigma_adaptation=kind) == ""
    assert "a step is" in said_of("Swimmer-v5", sigma=0.05, sigma_adaptation=kind, learning_rate=1e-5)


def test_a_model_says_it_once_where_it_is_made() -> None:
    with (
        pytest.warns(UserWarning, match=re.escape("learning_rate = 0.001: a step is")) as caught,
        FastES("CartPole-v1", "MlpPolicy", learning_rate=1e-3, n_workers=0, seed=0),
    ):
        pass
    (warning,) = [each for each in caught if "perturbation's length" in str(each.message)]
    assert warning.filename == __file__
    with caught_warnings() as messages, FastES("CartPole-v1", n_workers=0, seed=0):
        pass
    assert not messages


def test_loading_warns_of_what_is_changed(tmp_path: Path) -> None:
    file = tmp_path / "model.zip"
    with FastES("CartPole-v1", n_workers=0, seed=0) as model:
        model.save(file)
    for given in ({"learning_rate": 1e-3}, {"custom_objects": {"learning_rate": 1e-3}}):
        with pytest.warns(
            UserWarning, match="learning_rate = 0.001: a step is .* preset 'CartPole-v1' has learning_rate = 0.05"
        ) as caught:
            FastES.load(file, n_workers=0, **given)
        assert [each.filename for each in caught] == [__file__]
    with caught_warnings() as messages:
        FastES.load(file, n_workers=0)
        FastES.load(file, n_workers=0, learning_rate=0.02, population_size=32)
        FastES.load(file, n_workers=0, custom_objects={"learning_rate": 0.0})
        with FastES("CartPole-v1", n_workers=0, seed=0, preset="paper", sigma=0.05) as model:
            model.save(file)
        FastES.load(file, n_workers=0)
    assert not messages
