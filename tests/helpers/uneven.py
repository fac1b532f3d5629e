"""Toy with episodes of very different lengths, for environments that step together, and how their trainings are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
from envs_for_tests import Toy
from faults import SETTINGS
from gymnasium import spaces
from processes import sent_by_value
from training import assert_same, learn
from twins.same_bits import assert_same_bits

from fastes import FastES
from fastes.pools.serial_pool import SerialPool
from fastes.rollout.job import Request, publish
from fastes.rollout.job_runner import parameter_loader

sent_by_value(__name__)


def assert_pool_plays_candidates(model: FastES) -> None:
    """What the pool makes of the running generation's request is what the strategy asked for."""
    perturbations, pool = model.training.ask(), SerialPool()
    pool.open(model.evaluator.pool_spec())
    pool.place_table(model.strategy.table)
    try:
        training, _ = model.training.episode_settings()
        request, slot = Request(perturbations.theta, model.normalizer, training, perturbations), pool.block.slots[0]
        actor, load = model.policy_spec.make_actor(), parameter_loader(slot.layout, model.policy_spec)
        for job, expected in zip(publish(slot, request), perturbations, strict=True):
            load(actor, slot, job, perturbations.sigma)
            assert_same_bits(f"job {job}", actor.parameters, expected)
        slot = pool.block.slots[1]
        publish(slot, Request(perturbations.theta, model.normalizer, training, eval_seeds=model.training.eval_seeds(0)))
        load(actor, slot, 0, perturbations.sigma)
        assert_same_bits("theta", actor.parameters, perturbations.theta)
    finally:
        model.strategy.table.release()
        pool.close()


def assert_spec_stays(make: Callable[[list[Callable[[], Any]]], Any]) -> None:
    """A vector environment of processes, whose specs cannot be pickled, is trained on and not rebuilt."""

    def changed() -> Any:
        return gymnasium.wrappers.TransformReward(gymnasium.make("CartPole-v1"), lambda reward: 2.0 * reward)

    env = make([changed] * 2)
    try:
        with FastES(env, preset="unbiased", seed=1, population_size=4, learning_rate=0.05) as model:
            assert model.source.name == "CartPole-v1"
            learn(model, 1)
            assert not model.source.rebuilds
    finally:
        env.close()


class Uneven(Toy):
    """Ends between its 2nd and its 20th step, as the seed says."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        result = super().reset(seed=seed, options=options)
        self.ends = 2 + (0 if seed is None else seed) % 19
        return result


class TellsSuccess(Toy):
    """Tells whether it ended near zero."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        if terminated:
            info["is_success"] = bool(abs(self.position[0]) < 0.4)
        return obs, reward, terminated, truncated, info


class Dictionary(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Toy's observation in a Dict, beside a number."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.observation_space = spaces.Dict({"place": env.observation_space, "kind": spaces.Discrete(3)})

    def observation(self, observation: Any) -> Any:
        return {"place": observation, "kind": int(abs(observation[0]) * 10) % 3}


def settings(**changes: Any) -> dict[str, Any]:
    return {**SETTINGS, "eval_episodes": 2, **changes}


def assert_same_results(expected: Any, result: Any) -> None:
    """All but what names the environment."""
    for state in (expected.state, result.state):
        state.data.update(env=None, env_name="")
    assert_same(expected, result)
