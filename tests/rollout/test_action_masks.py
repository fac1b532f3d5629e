"""Risk: an environment offers action masks, and it is not said that they are not used."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from envs_for_tests import Toy
from faults import SETTINGS, caught_warnings
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from training import learn

from fastes import CallablePolicy, FastES


class InInfo(Toy):
    def step(self, action: Any) -> Any:
        *rest, _ = super().step(action)
        return *rest, {"action_mask": np.ones(2, np.int8)}


class ByMethod(Toy):
    def action_masks(self) -> Any:
        return np.ones(2, bool)


def wrapped() -> Any:
    return gymnasium.wrappers.TimeLimit(ByMethod(), 50)


@pytest.mark.parametrize(
    ("env", "where"),
    [
        (InInfo, "info['action_mask']"),
        (wrapped, "action_masks()"),
        (lambda: SyncVectorEnv([InInfo] * 3), "info['action_mask']"),
        ("VecEnv", "action_masks()"),
        (Toy, ""),
    ],
)
@pytest.mark.parametrize("n_workers", [0, 1])
def test_masks_are_said_to_be_unused_once(env: Any, where: str, n_workers: int) -> None:
    given = env
    if env == "VecEnv":
        given = pytest.importorskip("stable_baselines3.common.vec_env").DummyVecEnv([ByMethod] * 2)
    elif env not in (InInfo, wrapped, Toy):
        given = env()
    workers = n_workers if env in (InInfo, wrapped, Toy) else None
    with caught_warnings() as messages, FastES(given, preset="default", n_workers=workers, **SETTINGS) as model:
        learn(model, 1)
        learn(model, 3)
    found = [message for message in messages if "action masks" in message]
    assert len(found) == bool(where)
    if where:
        assert f"({where}), and FastES uses none" in found[0]


class Allowed(gymnasium.Env[Any, Any]):
    """Two of five choices are allowed; any other ends the episode. The mask is in the observation."""

    def __init__(self) -> None:
        parts = {"mask": spaces.Box(0.0, 1.0, (5,)), "place": spaces.Box(-1.0, 1.0, (2,))}
        self.observation_space, self.action_space = spaces.Dict(parts), spaces.Discrete(5)

    def _shown(self) -> dict[str, Any]:
        self.mask = np.zeros(5, np.float32)
        self.mask[self.np_random.choice(5, 2, replace=False)] = 1.0
        return {"mask": self.mask, "place": self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self._shown(), {}

    def step(self, action: int) -> Any:
        allowed, self.steps = bool(self.mask[action]), self.steps + 1
        return self._shown(), float(allowed), not allowed, self.steps == 9, {}


def test_a_function_can_apply_a_mask_that_is_observed() -> None:
    """The way that the warning names."""

    def act(parameters: Any, observation: Any) -> int:
        mask, place = observation[:5], observation[5:]
        logits = parameters[:10].reshape(5, 2) @ place + parameters[10:]
        return int(np.argmax(np.where(mask > 0.0, logits, -np.inf)))

    own = {key: value for key, value in SETTINGS.items() if key != "policy_kwargs"}
    with FastES(Allowed, CallablePolicy(act, 15), preset="default", n_workers=0, normalize_obs=False, **own) as model:
        learn(model, 2)
        assert model.last_episodes == [(9.0, 9)] * 8, "no candidate ever chose what is not allowed"
