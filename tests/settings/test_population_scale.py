"""Risk: a scaled population learns with another step than the one that was measured, or a factor of 1 changes a bit."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults import caught_warnings

from fastes import FastES
from fastes.cli.main import main
from fastes.runs.run_config import read_config
from fastes.settings.population_scale import scaled_settings
from fastes.settings.preset_loader import all_presets, choose_settings, load_preset
from fastes.settings.settings import Settings

COUNTS = ("obs_freeze_after", "generation_timesteps", "max_population_size")
SCALED = {"population_size", "learning_rate", *COUNTS}


def changed(env: str, **changes: Any) -> dict[str, tuple[Any, Any]]:
    """What the changes change in a preset's settings: before and after."""
    before, after = (choose_settings(env, given).to_dict() for given in ({}, changes))
    return {name: (before[name], after[name]) for name in before if before[name] != after[name]}


def test_the_candidates_are_multiplied_and_the_learning_rate_goes_with_their_fourth_root() -> None:
    assert changed("HalfCheetah-v5", population_scale=16) == {
        "population_size": (16, 256),
        "learning_rate": ("lin_0.02_0.004", "lin_0.04_0.008"),
    }
    assert changed("InvertedPendulum-v5", population_scale=16) == {"population_size": (16, 256), "learning_rate": (0.1, 0.2)}
    assert changed("Reacher-v5", population_scale=16)["learning_rate"] == ("exp_0.008_0.0003", "exp_0.016_0.0006")
    assert changed("default", population_scale=3) == {
        "population_size": (64, 192),
        "learning_rate": (0.02, 0.02 * math.sqrt(math.sqrt(3.0))),
    }


def tripled(count: int | str) -> int | str:
    """A whole number, or a schedule of such."""
    if not isinstance(count, str):
        return 3 * count
    kind, first, last = count.split("_")
    return f"{kind}_{3.0 * float(first)}_{3.0 * float(last)}"


@pytest.mark.parametrize("name", sorted(all_presets()))
def test_nothing_else_changes_in_any_preset(name: str) -> None:
    preset = load_preset(name)
    changes = changed(name, population_scale=3)
    assert set(changes) <= SCALED
    assert changes["population_size"] == (
        choose_settings(name, {}).population_size,
        3 * preset.get("population_size", 64),
    )
    for count in COUNTS:
        before = preset.get(count, 0)
        assert changes.get(count, (0, 0)) == (before, tripled(before))
    assert changed(name, population_scale=1) == {}


def test_elites_stay_a_share_of_the_pairs_and_adaptive_populations_keep_their_blocks() -> None:
    assert "top_fraction" not in changed("HalfCheetah-v5", population_scale=8)
    adaptive = {"population_size": 10, "generation_timesteps": 1000, "max_population_size": 40}
    scaled = Settings().changed(**scaled_settings(adaptive, 3))
    assert (scaled.population_size, scaled.generation_timesteps, scaled.max_population_size) == (30, 3000, 120)
    assert scaled_settings({"population_size": 10}, 3).keys() == {
        "population_size",
        "generation_timesteps",
        "max_population_size",
        "obs_freeze_after",
        "learning_rate",
    }
    assert Settings().changed(**scaled_settings({"population_size": 10}, 3)).generation_timesteps == 0
    assert scaled_settings({**adaptive, "generation_timesteps": 2e4}, 3)["generation_timesteps"] == 60_000
    growing = Settings().changed(**scaled_settings({**adaptive, "generation_timesteps": "exp_1000_8000"}, 3))
    assert [growing.generation_timesteps_at(remaining) for remaining in (1.0, 0.0)] == [3000, 24_000]
    with pytest.raises(ValueError, match="generation_timesteps = 'exp_1000' is not a schedule"):
        scaled_settings({**adaptive, "generation_timesteps": "exp_1000"}, 3)


def test_given_settings_stay_as_they_are_given() -> None:
    assert changed("HalfCheetah-v5", population_scale=4, learning_rate=0.3)["learning_rate"] == ("lin_0.02_0.004", 0.3)
    assert changed("Ant-v5", population_scale=4, obs_freeze_after=5)["obs_freeze_after"] == (20_000, 5)


def test_a_factor_of_one_has_the_bits_of_none() -> None:
    thetas = []
    for given in ({}, {"population_scale": 1}, {"population_scale": 1, "population_size": 64}):
        with FastES("CartPole-v1", preset="default", seed=3, n_workers=0, target_return="none", **given) as model:  # type: ignore[arg-type]
            thetas.append(model.learn(10**9, lambda _, record: record.generation < 2).theta)
    assert np.array_equal(thetas[0], thetas[1])
    assert np.array_equal(thetas[0], thetas[2])


def test_a_factor_of_one_leaves_what_it_is_given() -> None:
    for given in ({}, {"learning_rate": "lin_2e-2"}, {"learning_rate": abs}, {"population_size": "many"}):
        assert scaled_settings(given, 1) == given


def test_a_scaled_model_is_the_one_with_those_settings() -> None:
    scaled = FastES("CartPole-v1", preset="default", seed=3, n_workers=0, population_scale=16)
    written = FastES("CartPole-v1", preset="default", seed=3, n_workers=0, population_size=1024, learning_rate=0.04)
    assert scaled.settings == written.settings


def test_a_scaled_population_is_told_of_no_learning_rate_that_was_left_behind() -> None:
    with caught_warnings() as messages:
        choose_settings("Hopper-v5", {"population_scale": 16})
    assert messages == []


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        (0, ValueError, "population_scale = 0 is out of range: expected an int from 1 to 10000"),
        (-2, ValueError, "population_scale = -2 is out of range"),
        (10_001, ValueError, "population_scale = 10001 is out of range"),
        (1.5, TypeError, "population_scale = 1.5 is a float: expected an int"),
        ("4", TypeError, "population_scale = '4' is a str: expected an int"),
        (True, TypeError, "population_scale = True is a bool: expected an int"),
    ],
)
def test_a_wrong_factor_is_named(wrong: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        FastES("CartPole-v1", n_workers=0, population_scale=wrong)
    assert words in str(caught.value)


def test_a_factor_and_a_population_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="population_scale = 2 with population_size = 32") as caught:
        FastES("CartPole-v1", n_workers=0, population_scale=2, population_size=32)
    assert "leave one of the two out" in str(caught.value)


def test_a_factor_is_for_new_models(tmp_path: Path) -> None:
    with FastES("CartPole-v1", n_workers=0, seed=0) as model:
        model.save(tmp_path / "model.zip")
    with pytest.raises(TypeError, match="population_scale") as caught:
        FastES.load(tmp_path / "model.zip", population_scale=2)  # type: ignore[call-arg]
    assert "pass population_size and learning_rate" in str(caught.value)


# --- files of settings --------------------------------------------------------------------------------------------------


def written(folder: Path, text: str) -> Path:
    path = folder / "best.toml"
    path.write_text(f"[CartPole-v1]\n{text}\n", encoding="utf-8")
    return path


def test_a_factor_scales_what_a_file_says(tmp_path: Path) -> None:
    path = written(tmp_path, "population_size = 10\nlearning_rate = 0.1")
    for number, (given, population, rate) in enumerate(
        [
            ({}, 10, 0.1),
            ({"population_scale": 16}, 160, 0.2),
            ({"population_scale": 16, "learning_rate": 0.3}, 160, 0.3),
            ({"population_size": 20}, 20, 0.1),
        ]
    ):
        settings = FastES.from_config(path, n_workers=0, **given).settings
        assert (settings.population_size, settings.learning_rate) == (population, rate), number
    with pytest.raises(ValueError, match="population_scale = 4 with population_size = 20"):
        FastES.from_config(path, n_workers=0, population_scale=4, population_size=20)


def test_a_function_is_scaled_by_nobody(tmp_path: Path) -> None:
    path = written(tmp_path, "learning_rate = 'function'")
    with pytest.raises(ValueError, match="learning_rate was a function"):
        FastES.from_config(path, n_workers=0, population_scale=4)
    assert FastES.from_config(path, n_workers=0, population_scale=4, learning_rate=0.3).settings.learning_rate == 0.3
    with pytest.raises(TypeError, match="population_scale multiplies the numbers of learning_rate, which is a function"):
        scaled_settings({"learning_rate": abs}, 2)


def test_a_factor_in_a_file_scales_the_file_and_gives_way_to_one_that_is_passed(tmp_path: Path) -> None:
    path = written(tmp_path, "population_size = 10\nlearning_rate = 0.1\npopulation_scale = 4")
    assert FastES.from_config(path, n_workers=0).settings.population_size == 40
    assert FastES.from_config(path, n_workers=0, population_scale=9).settings.population_size == 90
    assert FastES.from_config(path, n_workers=0, population_scale=1).settings.population_size == 10
    assert FastES.from_config(written(tmp_path, "population_scale = 4"), n_workers=0).settings.population_size == 256


# --- fastes train -------------------------------------------------------------------------------------------------------


def trained(folder: Path, *flags: str) -> int:
    budget = ("--total-timesteps", "500", "--workers", "0", "--seed", "0", "--quiet", "--runs", str(folder))
    return main(["train", *flags, *budget])


def test_the_flag_scales_and_the_run_keeps_the_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trained(tmp_path, "CartPole-v1", "--preset", "default", "--population-scale", "16") == 0
    assert "1024 candidates" in capsys.readouterr().out
    config = tmp_path / "CartPole-v1" / "1" / "config.toml"
    tables = read_config(config)
    assert tables is not None
    assert (tables["settings"]["population_size"], tables["settings"]["learning_rate"]) == (1024, 0.04)
    assert "population_scale" not in tables["settings"], "a run that begins from this file must not be scaled again"
    assert trained(tmp_path, "--config", str(config)) == 0
    assert "1024 candidates" in capsys.readouterr().out
    assert trained(tmp_path, "--config", str(config), "--population-scale", "2") == 0
    assert "2048 candidates" in capsys.readouterr().out


def test_the_flag_is_refused_where_it_cannot_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trained(tmp_path, "CartPole-v1", "--population-scale", "2", "--population-size", "32") == 2
    assert "leave one of the two out" in capsys.readouterr().err
    assert trained(tmp_path, "CartPole-v1", "--population-scale", "0") == 2
    assert "population_scale = 0 is out of range" in capsys.readouterr().err
    assert trained(tmp_path, "CartPole-v1") == 0
    assert trained(tmp_path, "--resume", str(tmp_path / "CartPole-v1" / "1"), "--population-scale", "2") == 2
    assert "--population-scale belong to a new run" in capsys.readouterr().err
