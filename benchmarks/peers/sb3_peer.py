"""A peer of Stable-Baselines3 with Zoo's settings, ready to learn, and the ways in which it can use cores."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from benchmarks.peers.zoo import PeerSettings


class Way(NamedTuple):
    """How a peer is run.

    processes: environments step in processes of their own (SubprocVecEnv; for ARS AsyncEval).
    threads: torch's.
    """

    processes: bool
    threads: int

    def describe(self, algo: str, n_envs: int, cores: int) -> str:
        threads = f"{self.threads} torch thread" + ("s" if self.threads > 1 else "")
        if algo == "ars":
            return f"AsyncEval with {cores} workers" if self.processes else "one process"
        return f"{'SubprocVecEnv' if self.processes else 'DummyVecEnv'} of {n_envs}, {threads}"


def ways(algo: str, n_envs: int, cores: int) -> list[Way]:
    """Ways that can be the fastest; the first one is the fallback. ARS's workers have a policy each: one thread."""
    if algo == "ars":
        return [Way(True, 1), Way(False, 1)] if cores > 1 else [Way(False, 1)]
    apart = (False, True) if n_envs > 1 and cores > 1 else (False,)
    return [Way(processes, threads) for processes in apart for threads in sorted({1, cores})]


class Peer(NamedTuple):
    """A peer that can learn.

    model: of SB3, on the CPU.
    learn: arguments of its `learn`.
    normalizer: its VecNormalize, or None.
    """

    model: Any
    learn: dict[str, Any]
    normalizer: Any
    end: Callable[[], None]

    def act(self, observation: Any) -> Any:
        """The noise-free action; statistics are used as they are and not changed."""
        seen = observation if self.normalizer is None else self.normalizer.normalize_obs(observation)
        return self.model.predict(seen, deterministic=True)[0][()]  # an int of Discrete: FrozenLake takes no array for one


def make_vec_env(env: str, n_envs: int, seed: int, processes: bool, normalize: dict[str, Any] | None) -> Any:
    from stable_baselines3.common import env_util
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize

    kind = SubprocVecEnv if processes else DummyVecEnv
    # SB3 asks for pictures, which not every environment has
    made = env_util.make_vec_env(env, n_envs, seed=seed, vec_env_cls=kind, env_kwargs={"render_mode": None})
    return made if normalize is None else VecNormalize(made, **normalize)


def make_peer(
    algo: str, env: str, seed: int, settings: PeerSettings, way: Way, cores: int, remaining: Callable[[], float]
) -> Peer:
    """remaining: share of the budget that is left; schedules follow it."""
    import torch
    from sb3_contrib import ARS, TRPO
    from sb3_contrib.common.vec_env import AsyncEval
    from stable_baselines3 import A2C, PPO

    torch.set_num_threads(way.threads)
    arguments = with_objects(settings.arguments, remaining, torch.nn)
    classes = {"ppo": PPO, "trpo": TRPO, "ars": ARS, "a2c": A2C}
    apart = way.processes and algo != "ars"
    vec_env = make_vec_env(env, settings.n_envs, seed, apart, settings.normalize)
    model = classes[algo](settings.policy, vec_env, seed=seed, device="cpu", **arguments)
    learn: dict[str, Any] = {"total_timesteps": 10**12, "log_interval": None}
    end = vec_env.close
    if algo == "ars" and way.processes:
        build: list[Callable[[], Any]] = [
            partial(make_vec_env, env, 1, seed + 1 + k, False, settings.normalize) for k in range(cores)
        ]
        workers = learn["async_eval"] = AsyncEval(build, model.policy)

        def end() -> None:
            workers.close()
            vec_env.close()

    return Peer(model, learn, model.get_vec_normalize_env(), end)


def with_objects(found: dict[str, Any], remaining: Callable[[], float], layers: Any) -> dict[str, Any]:
    """TOML's words as Python's objects: schedules and activation functions."""
    made = dict(found)
    for key, value in found.items():
        if isinstance(value, str) and value.startswith("lin_"):
            made[key] = _falling(float(value[4:]), remaining)
    policy = dict(found.get("policy_kwargs", {}))
    if "activation_fn" in policy:
        policy["activation_fn"] = getattr(layers, policy["activation_fn"])
    return {**made, "policy_kwargs": policy} if policy else made


def _falling(start: float, remaining: Callable[[], float]) -> Callable[[float], float]:
    # SB3 gives the share of total_timesteps that is left, which nobody knows where the budget is a time
    return lambda _: start * max(0.0, remaining())
