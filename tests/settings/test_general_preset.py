"""Risk: an environment without a preset gets settings that were chosen for another kind of policy, or for none."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from fastes import CallablePolicy, FastES
from fastes.settings.preset_loader import DEFAULT, GENERAL, choose_settings, load_preset, preset_for
from fastes.settings.settings import Settings

LINEAR: list[dict[str, Any]] = [{}, {"sigma": 0.3}, {"policy": "LinearPolicy"}, {"policy_kwargs": {"use_bias": True}}]
NETWORKS: list[dict[str, Any]] = [
    {"policy": "MlpPolicy"},
    {"policy": "MlpLstmPolicy", "policy_kwargs": {"cell": "gru"}},
    {"policy_kwargs": {"net_arch": [8]}},
    {"policy_kwargs": {"activation_fn": "relu"}},
]


def test_the_general_policy_is_linear() -> None:
    assert load_preset(GENERAL)["policy"] == "LinearPolicy", "what preset_for takes for granted"


@pytest.mark.parametrize("changes", LINEAR)
def test_linear_policies_get_the_general_preset(changes: dict[str, Any]) -> None:
    assert preset_for("Toy-v0", changes) == GENERAL
    assert choose_settings("Toy-v0", None, changes) == Settings().changed(**{**load_preset(GENERAL), **changes})


@pytest.mark.parametrize("changes", NETWORKS)
def test_networks_get_what_each_setting_has_by_itself(changes: dict[str, Any]) -> None:
    assert preset_for("Toy-v0", changes) == DEFAULT
    assert choose_settings("Toy-v0", None, changes) == Settings().changed(**changes)


def test_who_names_the_general_preset_gets_it_with_any_policy() -> None:
    assert choose_settings("Toy-v0", GENERAL, {"policy": "MlpPolicy"}).sigma == load_preset(GENERAL)["sigma"]


@pytest.mark.parametrize("changes", LINEAR + NETWORKS[:1])
def test_presets_of_environments_stay(changes: dict[str, Any]) -> None:
    assert preset_for("CartPole-v1", changes) == "CartPole-v1"
    assert preset_for("ALE/Skiing-v5", changes) == "atari"


def test_a_policy_of_ones_own_is_no_linear_one() -> None:
    policy = CallablePolicy(lambda params, observation: np.tanh(params[:2]), 2)
    with FastES("Toy-v0", policy, n_workers=0) as model:
        assert model.settings.sigma == Settings().sigma
        assert model.settings.population_size == Settings().population_size


def test_another_number_of_candidates_is_no_reason_to_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose_settings("Toy-v0", None, {"population_size": 4096}).population_size == 4096
