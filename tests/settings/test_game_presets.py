"""Risk: a game gets settings that were meant for other observations, or none; a published network is not the published one."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest

from fastes import FastES
from fastes.settings.preset_loader import all_presets, choose_settings, load_preset, other_version, preset_for

NAMED = {name for name in all_presets() if name.startswith("ALE/")}


def test_games_without_a_preset_get_that_of_all_games() -> None:
    assert preset_for("ALE/Skiing-v5") == "atari"
    assert {preset_for(name) for name in NAMED} == NAMED
    for other in ("ALE/Pong-ram-v5", "Pong-v4", "Toy-v0", "ALE/Pong-v6"):
        assert preset_for(other) is None


def test_the_preset_of_another_version_is_known() -> None:
    assert other_version("Hopper-v4") == "Hopper-v5"
    assert {other_version(name) for name in ("Hopper-v5", "ALE/Pong-v5", "Toy-v0", "toy")} == {""}


def test_a_published_network_keeps_its_size_beside_the_preset() -> None:
    def of(**kwargs: Any) -> dict[str, Any]:
        return choose_settings("atari", {"policy_kwargs": kwargs}).policy_kwargs

    size = load_preset("ALE/Pong-v5" if "ALE/Pong-v5" in NAMED else "atari")["policy_kwargs"]["features_extractor_kwargs"]
    assert of(activation_fn="elu")["features_extractor_kwargs"] == size
    assert of(cnn="nature") == {"cnn": "nature"}
    assert of(cnn="a3c", features_extractor_kwargs={"features_dim": 9})["features_extractor_kwargs"] == {"features_dim": 9}


@pytest.mark.parametrize("game", ["ALE/Skiing-v5", "fastes/Catch-v0"])
def test_another_policy_that_sees_images_keeps_what_they_go_through(game: str) -> None:
    def of(policy: str, **kwargs: Any) -> dict[str, Any]:
        return choose_settings(
            str(preset_for(game)), {"policy": policy, **({"policy_kwargs": kwargs} if kwargs else {})}
        ).policy_kwargs

    own = load_preset(str(preset_for(game)))["policy_kwargs"]
    assert set(own) == {"cnn", "features_extractor_kwargs"}
    assert of("CnnPolicy") == of("CnnLstmPolicy") == own
    assert of("CnnLstmPolicy", lstm_hidden_size=8) == {**own, "lstm_hidden_size": 8}
    assert of("CnnLstmPolicy", cnn="nature") == {"cnn": "nature"}
    assert of("LinearPolicy") == of("MlpLstmPolicy") == of("TorchPolicy") == {}
    assert of("MlpPolicy", net_arch=[3]) == {"net_arch": [3]}


def test_kwargs_of_a_policy_that_sees_no_image_stay_behind() -> None:
    assert choose_settings("Pendulum-v1", {"policy": "CnnPolicy"}).policy_kwargs == {}
    assert choose_settings("Pendulum-v1", {"policy": "MlpLstmPolicy"}).policy_kwargs == {}


def wrapped() -> Any:
    cv2 = pytest.importorskip("cv2")
    assert cv2
    env = gymnasium.make("PongNoFrameskip-v4")
    return gymnasium.wrappers.FrameStackObservation(gymnasium.wrappers.AtariPreprocessing(env), 4)


def flat() -> Any:
    return gymnasium.wrappers.FlattenObservation(gymnasium.make("fastes/Atari-v0", game="pong", screen_size=8))


@pytest.mark.parametrize(
    ("env", "kwargs", "policy"),
    [
        ("ALE/Pong-v5", {}, "CnnPolicy"),
        ("PongNoFrameskip-v4", {"frame_skip": 2}, "CnnPolicy"),
        ("fastes/Atari-v0", {"game": "pong"}, "CnnPolicy"),
        (lambda: gymnasium.make("fastes/Atari-v0", game="pong"), None, "CnnPolicy"),
        (wrapped, None, "CnnPolicy"),
        ("ALE/Pong-v5", {"obs_type": "ram"}, "LinearPolicy"),
        (flat, None, "LinearPolicy"),
    ],
)
def test_what_a_game_shows_decides(env: Any, kwargs: dict[str, Any] | None, policy: str) -> None:
    pytest.importorskip("ale_py")
    given = env if kwargs is not None else env()
    with FastES(given, n_workers=0, seed=0, env_kwargs=kwargs, population_size=2, learning_rate=0.1) as model:
        assert model.settings.policy == policy
        assert not model.policy_spec.needs_reference or model.training.reference.shape == (128, 4, 84, 84)
