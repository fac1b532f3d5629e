"""A toy whose observations are images, and small policies for it."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from fastes.policies.named_policies import make_policy_spec
from fastes.policies.policy_spec import PolicySpec

ACTIONS = spaces.Box(-1.0, 1.0, (1,), np.float64)  # so that every bit of a policy reaches the return
NORMED: dict[str, Any] = {"cnn": [(4, 4, 2), (3, 2, 1)], "features_extractor_kwargs": {"features_dim": 5}}
SMALL = {**NORMED, "batch_norm": "none"}
SETTINGS: dict[str, Any] = {"policy": "CnnPolicy", "policy_kwargs": NORMED, "population_size": 4, "eval_episodes": 2}


class Dots(gymnasium.Env[Any, Any]):
    """Go to the bright column of a picture (8, 9, 2). dictionary: beside where one is, and a choice."""

    def __init__(self, channels_first: bool = False, dictionary: bool = False) -> None:
        self.channels_first = channels_first
        self.observation_space = spaces.Box(0, 255, (2, 8, 9) if channels_first else (8, 9, 2), np.uint8)
        if dictionary:
            where, choice = spaces.Box(-np.inf, np.inf, (2,), np.float64), spaces.Discrete(3)
            self.observation_space = spaces.Dict({"choice": choice, "image": self.observation_space, "where": where})
        self.dictionary, self.action_space = dictionary, ACTIONS

    def _shown(self) -> Any:
        image = np.full((8, 9, 2), 20, np.uint8)
        image[:, int(self.goal), 0] = 250
        image[5, int(self.at), 1] = 255
        image = np.ascontiguousarray(np.moveaxis(image, 2, 0)) if self.channels_first else image
        return {"image": image, "where": np.array([self.at, 1e3 * self.goal]), "choice": 2} if self.dictionary else image

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed, options=options)
        self.at, self.goal = map(float, self.np_random.integers(9, size=2))
        self.steps, self.length = 0, int(self.np_random.integers(3, 9))
        return self._shown(), {}

    def step(self, action: Any) -> Any:
        self.steps, self.at = self.steps + 1, min(8.0, max(0.0, self.at + float(action[0])))
        return self._shown(), -abs(self.at - self.goal), False, self.steps == self.length, {}


class Cameras(gymnasium.Env[Any, Any]):
    """Two pictures and a number, -1 or 1 each, whose mean is the best action: without one of them a step costs at least 1/3.

    A picture is 1 if its right half is bright. One is (20, 22, 3), the other (2, 12, 12), and a choice that never changes.
    """

    def __init__(self) -> None:
        parts = {"near": box(2, 12, 12), "far": box(20, 22, 3), "choice": spaces.Discrete(3)}
        self.observation_space = spaces.Dict({**parts, "sign": spaces.Box(-np.inf, np.inf, (1,), np.float64)})
        self.action_space = ACTIONS

    def _shown(self) -> Any:
        self.sides, self.sign = self.np_random.integers(2, size=2), float(self.np_random.integers(2) * 2 - 1)
        far, near = np.full((20, 22, 3), 40, np.uint8), np.full((2, 12, 12), 40, np.uint8)
        far[:, 11 * self.sides[0] :][:, :11] = 230
        near[:, 6 * self.sides[1] :][:, :6] = 230
        return {"far": far, "near": near, "choice": 1, "sign": np.array([self.sign])}

    @property
    def wanted(self) -> float:
        """The action that is best for what is shown."""
        return float(self.sign + (2 * self.sides - 1).sum()) / 3

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed, options=options)
        self.steps = 0
        return self._shown(), {}

    def step(self, action: Any) -> Any:
        reward = -abs(float(np.clip(action[0], -1, 1)) - self.wanted)
        self.steps += 1
        return self._shown(), reward, False, self.steps == 6, {}


def box(*shape: int, high: float = 255, dtype: Any = np.uint8) -> spaces.Box:
    return spaces.Box(0, high, shape, dtype)


def spec(space: spaces.Space[Any], **kwargs: Any) -> PolicySpec:
    return make_policy_spec("CnnPolicy", space, ACTIONS, kwargs)
