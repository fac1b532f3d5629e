"""Risk: `get_env` shows images otherwise than SB3's algorithms show them to callbacks and scripts."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from faults import caught_warnings
from images_for_tests import SETTINGS, Dots

from fastes import FastES

vec = pytest.importorskip("stable_baselines3.common.vec_env")


@pytest.mark.parametrize("dictionary", [False, True])
@pytest.mark.parametrize("given", [False, True], ids=["rebuilt", "VecEnv"])
def test_images_with_channels_last_are_transposed(given: bool, dictionary: bool) -> None:
    def make() -> Any:
        return Dots(dictionary=dictionary)

    env = vec.DummyVecEnv([make] * 2) if given else make
    with FastES(env, preset="default", n_workers=None if given else 0, seed=0, **SETTINGS) as model:
        shown = model.get_env()
        assert model.get_env() is shown
        assert vec.is_vecenv_wrapped(shown, vec.VecTransposeImage)
        assert model.env is env or not given
        space = shown.observation_space["image"] if dictionary else shown.observation_space
        assert space.shape == (2, 8, 9)
        first = shown.reset()
        first = first["image"] if dictionary else first
        assert first.shape == (1 + given, 2, 8, 9)


@pytest.mark.parametrize("wrapped", [False, True])
def test_what_needs_no_transposing_is_shown_as_it_is(wrapped: bool) -> None:
    env = vec.VecTransposeImage(vec.DummyVecEnv([Dots])) if wrapped else vec.DummyVecEnv([lambda: Dots(channels_first=True)])
    with FastES(env, preset="default", seed=0, **SETTINGS) as model:
        assert model.get_env() is env
    vectors = vec.DummyVecEnv([lambda: gymnasium.make("CartPole-v1")])
    with FastES(vectors, preset="unbiased", seed=0) as model:
        assert model.get_env() is vectors


def test_the_policy_acts_on_what_get_env_shows() -> None:
    with FastES(Dots, preset="default", n_workers=0, seed=0, **SETTINGS) as model:
        model.get_env().seed(3)
        shown = model.get_env().reset()
        last = np.moveaxis(shown, 1, 3)
        assert np.array_equal(last[0], Dots().reset(seed=3)[0])
        assert np.array_equal(model.predict(shown, deterministic=True)[0], model.predict(last, deterministic=True)[0])


def test_a_model_takes_back_the_environments_that_it_shows() -> None:
    with FastES(Dots, preset="default", n_workers=0, seed=0, **SETTINGS) as model:
        model.get_env().set_attr("length", 7)
        model.set_env(model.get_env())
        assert model.learn(50).get_env().get_attr("length") == [7]


@pytest.mark.parametrize("dictionary", [False, True])
def test_scripts_play_on_what_get_env_shows_and_give_it_to_models(dictionary: bool) -> None:
    from stable_baselines3.common.evaluation import evaluate_policy

    def make() -> Any:
        return Dots(dictionary=dictionary)

    with FastES(make, preset="default", n_workers=0, seed=0, **SETTINGS) as model:
        model.get_env().seed(0)
        with caught_warnings() as messages:
            returns, lengths = evaluate_policy(model, model.get_env(), 1, return_episode_rewards=True)
        assert messages == []
        expected = model.evaluate(1, first_seed=0)
        assert returns == pytest.approx(expected.returns.tolist(), rel=1e-6)
        assert lengths == expected.lengths.tolist()
        with FastES(model.get_env(), preset="default", n_workers=0, seed=0, **SETTINGS) as other:
            assert other.source.vector_env is None
            assert other.source.factory is make
