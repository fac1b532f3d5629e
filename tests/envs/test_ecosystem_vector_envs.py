"""Risk: vector environments of other packages fail, lose a step, or give returns that are not their episodes'.

SuperSuit's rows are the agents of PettingZoo worlds; EnvPool's play in threads, from seeds of their own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from envs_for_tests import Toy
from faults import caught_warnings
from training import learn, train
from uneven import settings

from fastes import FastES
from fastes.envs.source import vector_env_of

supersuit = pytest.importorskip("supersuit")
pettingzoo = pytest.importorskip("pettingzoo")

COPIES, AGENTS = 2, 3


class Nine(Toy):
    """Ends after its 9th step."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        result = super().reset(seed=seed, options=options)
        self.ends = 9
        return result


class World(pettingzoo.ParallelEnv):  # type: ignore[misc, name-defined]
    """Agents that each have a Toy of their own: agent n's begins with the world's seed + 100 n."""

    metadata = {"name": "world_v0", "render_modes": []}  # noqa: RUF012
    render_mode = None

    def __init__(self) -> None:
        self.possible_agents = [f"agent {number}" for number in range(AGENTS)]
        self.toys = {agent: Nine() for agent in self.possible_agents}

    def observation_space(self, agent: str) -> Any:
        return self.toys[agent].observation_space

    def action_space(self, agent: str) -> Any:
        return self.toys[agent].action_space

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        first = 12345 if seed is None else seed  # a world that is reset without its seed begins as no other
        both = {agent: self.toys[agent].reset(seed=first + 100 * number) for number, agent in enumerate(self.agents)}
        return {agent: obs for agent, (obs, _) in both.items()}, {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        results = {agent: self.toys[agent].step(action) for agent, action in actions.items()}
        return tuple({agent: result[part] for agent, result in results.items()} for part in range(5))


def concatenated(**arguments: Any) -> Any:
    return supersuit.concat_vec_envs_v1(supersuit.pettingzoo_env_to_vec_env_v1(World()), COPIES, **arguments)


def in_processes() -> Any:
    env = concatenated(num_cpus=2)
    env.graceful_shutdown_timeout = 0  # its processes never leave when they are asked to
    return env


def monitored(**arguments: Any) -> Any:
    wrappers = pytest.importorskip("stable_baselines3.common.vec_env")
    return wrappers.VecCheckNan(wrappers.VecMonitor(concatenated(base_class="stable_baselines3", **arguments)))


KINDS: dict[str, Callable[[], Any]] = {
    "one world": lambda: supersuit.pettingzoo_env_to_vec_env_v1(World()),
    "several worlds": concatenated,
    "in processes": in_processes,
    "as SB3's": lambda: concatenated(base_class="stable_baselines3"),
    "as SB3's, monitored": monitored,
}
_CANDIDATES = 8


def _expected(model: FastES, rows: int) -> list[float]:
    """The returns of the running generation's candidates, each by itself in a Toy that begins as its row's does.

    Noise-free episodes are played first. Rows wait for each other, and begin together from the seed of the first among them.
    """
    perturbations, actor, returns = model.training.ask(), model.policy_spec.make_actor(), []
    jobs = [(model.theta, int(seed)) for seed in model.training.eval_seeds(0)]
    jobs += [(theta.copy(), int(perturbations.env_seed[job // 2, 0])) for job, theta in enumerate(perturbations)]
    for job, (theta, _) in enumerate(jobs):
        world, agent = divmod(job % rows, AGENTS)
        env, total, over = Nine(), 0.0, False
        obs, _ = env.reset(seed=jobs[job - job % rows][1] + world + 100 * agent)
        actor.parameters[:] = theta
        actor.begin_episode()
        while not over:
            obs, reward, over, _, _ = env.step(actor.act(obs))
            total += float(np.float32(reward))
        returns.append(total)
    return returns[-_CANDIDATES:]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:The `render_mode` attribute")
def test_each_agent_of_supersuit_plays_a_candidate(kind: str) -> None:
    env = KINDS[kind]()
    own = settings(population_size=_CANDIDATES, normalize_obs=False, action_noise=0.0)
    with contextlib.closing(env), caught_warnings() as messages, FastES(env, preset="default", **own) as model:
        assert model.n_envs == (AGENTS if kind == "one world" else COPIES * AGENTS)
        expected = _expected(model, model.n_envs)
        learn(model, 1)
        assert [episode_return for episode_return, _ in model.last_episodes] == pytest.approx(expected, rel=1e-6)
        assert {length for _, length in model.last_episodes} == {9}
        learn(model, 3)
        assert model.num_timesteps == 3 * _CANDIDATES * 9
    (message,) = (message for message in messages if "seed" in message)
    assert "takes one seed for all of its environments" in message
    assert "Each agent plays a candidate of its own" in message


def test_the_same_bits_however_supersuit_makes_them() -> None:
    thetas = []
    for kind in ("several worlds", "in processes", "as SB3's", "as SB3's, monitored"):
        env = KINDS[kind]()
        thetas.append(train(env, 3, **settings()).state.arrays["trainings"]["0.theta"])
        env.close()
    assert all((theta == thetas[0]).all() for theta in thetas)


@pytest.mark.filterwarnings("ignore:.*precision lowered")
def test_envpool() -> None:
    envpool = pytest.importorskip("envpool")
    own = {"seed": 1, "population_size": 12, "preset": "default", "target_return": "none"}
    thetas = []
    for _ in range(2):
        env = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=3, seed=5)
        with caught_warnings() as messages, FastES(env, preset="default", **own) as model:
            assert model.source.vector_env is not None
            assert model.source.vector_env.restarts_alone
            learn(model, 3)
            assert all(episode_return == length >= 8 for episode_return, length in model.last_episodes), (
                "no step without reward"
            )
            thetas.append(model.theta.copy())
        assert sum("takes no seed once it is made" in message for message in messages) == 1
        assert not any("reset(seed=...) is ignored" in message for message in messages)
    assert (thetas[0] == thetas[1]).all()


@pytest.mark.filterwarnings("ignore:.*precision lowered")
def test_an_environment_of_envpool_starts_alone() -> None:
    envpool = pytest.importorskip("envpool")
    vector_env = vector_env_of(envpool.make("CartPole-v1", env_type="gymnasium", num_envs=3, seed=5))
    assert vector_env is not None
    vector_env.reset([0, 0, 0])
    for _ in range(7):
        vector_env.step(np.ones(3, dtype=np.int64))
    before = np.array(list(vector_env.observations()))
    vector_env.restart({1: 0})
    after = np.array(list(vector_env.observations()))
    assert (after[[0, 2]] == before[[0, 2]]).all()
    assert (abs(after[1]) <= 0.05).all(), "where an episode of CartPole begins"
    assert (abs(before[1]) > 0.05).any()


@pytest.mark.filterwarnings("ignore:.*precision lowered")
def test_envpool_that_answers_for_a_part_is_refused() -> None:
    envpool = pytest.importorskip("envpool")
    env = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=4, batch_size=2)
    with pytest.raises(ValueError, match=r"batch_size = 2.*Leave batch_size out"):
        FastES(env, preset="default")


@pytest.mark.filterwarnings("ignore:.*precision lowered")
def test_envpool_in_a_vecenv() -> None:
    """As EnvPool's own example wraps it for SB3."""
    envpool = pytest.importorskip("envpool")
    wrappers = pytest.importorskip("stable_baselines3.common.vec_env")

    class Adapter(wrappers.VecEnvWrapper):  # type: ignore[misc, name-defined]
        def __init__(self, env: Any) -> None:
            self.venv, self.num_envs, self.render_mode, self.reset_infos = env, env.num_envs, None, [{}] * env.num_envs
            self.observation_space, self.action_space = env.observation_space, env.action_space

        def reset(self) -> Any:
            return self.venv.reset()[0]

        def step_async(self, actions: Any) -> None:
            self.actions = actions

        def step_wait(self) -> Any:
            observations, rewards, terminated, truncated, _ = self.venv.step(self.actions)
            dones = terminated | truncated
            if dones.any():
                observations[dones] = self.venv.reset(np.flatnonzero(dones).astype(np.int32))[0]
            return observations, rewards, dones, [{}] * self.num_envs

    env = Adapter(envpool.make("CartPole-v1", env_type="gymnasium", num_envs=3, seed=5))
    own = {"seed": 1, "population_size": 12, "preset": "default", "target_return": "none"}
    with caught_warnings() as messages, FastES(env, preset="default", **own) as model:
        learn(model, 2)
        assert all(episode_return == length >= 8 for episode_return, length in model.last_episodes)
    assert sum("takes no seed once it is made" in message for message in messages) == 1
