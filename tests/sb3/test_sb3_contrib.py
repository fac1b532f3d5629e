"""Risk: what sb3-contrib has beside its algorithms does not work with FastES, or its ARS is not what docs/sb3.md says."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from envs_for_tests import Toy
from faults import SETTINGS
from training import assert_same, learn, train

from fastes import FastES

sb3_contrib = pytest.importorskip("sb3_contrib")


def timed() -> Any:
    from sb3_contrib.common.wrappers import TimeFeatureWrapper

    return TimeFeatureWrapper(gymnasium.wrappers.TimeLimit(Toy(), 12), max_steps=12)


def test_time_features_reach_the_policy() -> None:
    results = [train(env, 2, n_workers, **SETTINGS) for env, n_workers in ((timed, 0), (timed, 2), (timed(), 1))]
    for result in results:
        assert result.state.data["policy"]["layer_sizes"][0] == 4, "Toy's three numbers and the time that is left"
        result.state.data.update(env=None, env_name="")
    assert_same(results[0], results[1])
    assert_same(results[0], results[2])


def test_ars_and_fastes_drive_the_same_vecenv() -> None:
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    env = make_vec_env("CartPole-v1", 2, seed=0)
    ars = sb3_contrib.ARS("LinearPolicy", env, n_delta=2, seed=0).learn(500)
    with FastES("LinearPolicy", env, preset="unbiased", seed=0, population_size=4, learning_rate=0.05) as model:
        learn(model, 3)
        for trained in (ars, model):
            mean, _ = evaluate_policy(trained, env, 4)
            assert mean >= 8.0, "no CartPole falls sooner"
    env.close()


def test_ars_goes_on_when_a_callback_says_stop_and_fastes_does_not() -> None:
    from stable_baselines3.common.callbacks import BaseCallback

    class Stop(BaseCallback):
        def _on_step(self) -> bool:
            return False

    ars = sb3_contrib.ARS("LinearPolicy", "CartPole-v1", n_delta=2, seed=0).learn(400, Stop())
    assert ars.num_timesteps >= 400
    with FastES("LinearPolicy", "CartPole-v1", n_workers=0, seed=0, population_size=4, learning_rate=0.05) as model:
        model.learn(10**6, Stop())
        assert model.generation == 1


def test_a_return_of_nan_ruins_ars_and_ranks_worst_in_fastes() -> None:
    class Sometimes(Toy):
        def reset(self, **arguments: Any) -> Any:
            self.bad = bool((arguments.get("seed") or 1) % 2)
            return super().reset(**arguments)

        def step(self, action: Any) -> Any:
            obs, reward, *rest = super().step(action)
            return obs, float("nan") if self.bad else reward, *rest

    ars = sb3_contrib.ARS("LinearPolicy", Sometimes(), n_delta=2, seed=0).learn(200)
    assert np.isnan(ars.weights.numpy()).all()
    with FastES(Sometimes, preset="default", n_workers=0, **SETTINGS) as model:
        with pytest.warns(RuntimeWarning, match="not finite"):
            learn(model, 2)
        assert np.isfinite(model.theta).all()
