"""Risk: evaluation on several environments gives other statistics than on one. For training see test_sb3_vec_envs.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from envs_for_tests import Toy
from faults import SETTINGS
from training import learn

from fastes import FastES

pytest.importorskip("stable_baselines3")


class Steady(Toy):
    """Each episode begins at the same place, whatever the seed; its length and return follow from the actions alone."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=7, options=options)


def vector_env_of(number: int) -> Any:
    from stable_baselines3.common.env_util import make_vec_env

    return make_vec_env(Steady, number, seed=0)


@pytest.mark.parametrize("number", [2, 3])
def test_evaluate_policy_gives_what_one_environment_gives(number: int) -> None:
    from stable_baselines3.common.evaluation import evaluate_policy

    with FastES(Steady, preset="default", n_workers=0, **SETTINGS) as model:
        learn(model, 2)
        one = evaluate_policy(model, vector_env_of(1), n_eval_episodes=5, return_episode_rewards=True)
        several = evaluate_policy(model, vector_env_of(number), n_eval_episodes=5, return_episode_rewards=True)
        assert len(several[0]) == 5
        assert several == one
        assert one[0] == pytest.approx(model.evaluate(5).returns.tolist(), abs=1e-5), "Monitor rounds"
        assert evaluate_policy(model.policy, vector_env_of(number), 4)[0] == pytest.approx(one[0][0], abs=1e-5)


@pytest.mark.parametrize("training_envs", [0, 2])
def test_evalcallback_with_several_environments_gives_what_one_gives(training_envs: int, tmp_path: Path) -> None:
    from stable_baselines3.common.callbacks import EvalCallback

    found = []
    for number in (1, 3):
        folder = tmp_path / str(number)
        env = vector_env_of(training_envs) if training_envs else Steady
        with FastES(env, preset="default", n_workers=0, **SETTINGS) as model:
            callback = EvalCallback(
                vector_env_of(number),
                eval_freq=50,
                n_eval_episodes=6,
                log_path=str(folder),
                best_model_save_path=str(folder),
                verbose=0,
            )
            model.learn(600, callback)
            with np.load(folder / "evaluations.npz") as file:
                found.append({name: file[name] for name in file})
            assert (folder / "best_model.zip").is_file()
            found[-1]["best"] = np.array([callback.best_mean_reward])
    assert found[0]["results"].shape[1] == 6
    assert len(found[0]["results"]) > 1
    for name, expected in found[0].items():
        assert (expected == found[1][name]).all(), name
