"""Risk: an environment without a preset gets settings that its policy cannot have, or a preset in place of what was asked."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from fastes import CallablePolicy, FastES
from fastes.settings.preset_loader import choose_settings, load_preset, preset_for
from fastes.settings.recipes import PLAIN
from fastes.settings.settings import Settings

LINEAR: list[dict[str, Any]] = [{}, {"sigma": 0.3}, {"policy": "LinearPolicy"}, {"policy_kwargs": {"use_bias": True}}]
NETWORKS: list[dict[str, Any]] = [
    {"policy": "MlpPolicy"},
    {"policy": "MlpLstmPolicy", "policy_kwargs": {"cell": "gru"}},
    {"policy_kwargs": {"net_arch": [8]}},
    {"policy_kwargs": {"activation_fn": "relu"}},
]


@pytest.mark.parametrize("changes", LINEAR)
def test_without_a_preset_a_model_has_the_plain_recipe(changes: dict[str, Any]) -> None:
    with FastES("Toy-v0", preset=None, n_workers=0, **changes) as model:
        assert model.settings == Settings().changed(**{**load_preset(PLAIN), **changes})
        assert len(model.selection.trials) == 1


@pytest.mark.parametrize("changes", NETWORKS)
def test_a_network_gets_the_recipe_of_its_policy(changes: dict[str, Any]) -> None:
    with FastES("Toy-v0", preset=None, n_workers=0, **changes) as model:
        settings = model.settings
    assert settings.policy == changes.get("policy", "MlpPolicy")
    assert changes.get("policy_kwargs", {}).items() <= settings.policy_kwargs.items()
    assert settings.sigma == load_preset("memory" if "policy_kwargs" in changes and "policy" in changes else "network")["sigma"]


def test_without_a_preset_a_tuned_one_is_not_used() -> None:
    with FastES("CartPole-v1", preset=None, n_workers=0) as plain, FastES("CartPole-v1", n_workers=0) as tuned:
        assert plain.settings == Settings().changed(**load_preset(PLAIN))
        assert tuned.settings == Settings().changed(**load_preset("CartPole-v1"))


def test_presets_of_environments_and_games() -> None:
    assert preset_for("CartPole-v1") == "CartPole-v1"
    assert preset_for("ALE/Skiing-v5") == "atari"
    assert preset_for("Toy-v0") is None


def test_a_policy_of_ones_own_needs_no_preset() -> None:
    policy = CallablePolicy(lambda params, observation: np.tanh(params[:2]), 2)
    with FastES("Toy-v0", policy, preset=None, n_workers=0, seed=0) as model:
        assert model.settings.sigma == load_preset(PLAIN)["sigma"]
        model.learn(500)


def test_another_number_of_candidates_is_no_reason_to_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose_settings(PLAIN, {"population_size": 4096}).population_size == 4096
