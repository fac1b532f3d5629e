"""SB3's VecEnvs, driven as they are."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces

from fastes.envs.layers import LIVES
from fastes.envs.returned import TIMED_OUT, flags_of, rewards_of
from fastes.envs.vector.vector_env import (
    SEEDED_BEFORE,
    Rows,
    VectorEnv,
    chain_of,
    check_envpool,
    in_processes,
    kinds_of,
    process_of,
    switched_off,
    warn_of_seeds,
)
from fastes.errors import warn_user

# wrappers that let an environment start anew while the others go on, and those through which rewards pass as they are
_PASSING = {"VecNormalize", "VecMonitor", "VecCheckNan"}
_REWARD_PASSING = _PASSING | {"VecFrameStack", "VecTransposeImage", "VecExtractDictObs", "VecVideoRecorder"}
_KNOWN = {"DummyVecEnv", "SubprocVecEnv"}  # these start each episode from a seed of its own
# what wrappers add up in an episode
_SUMS = ("returns", "episode_returns", "episode_lengths")


class VecEnv(Protocol):
    """A VecEnv of Stable-Baselines3."""

    num_envs: int
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]: ...


def is_vec_env(env: object) -> bool:
    """Return whether an object is a VecEnv. SB3 is not imported for that."""
    module = sys.modules.get("stable_baselines3.common.vec_env")
    return module is not None and isinstance(env, module.VecEnv)


class Sb3VectorEnv(VectorEnv):
    """A VecEnv of Stable-Baselines3 with its wrappers.

    Returns add up the rewards before VecNormalize: a scale that moves during a generation would favour late candidates.

    Attributes:
        statistics: Its VecNormalize wrappers, from the outside in.

    Raises:
        ValueError: A wrapper around VecNormalize may change normalised rewards, or a Monitor forbids resets.
    """

    def __init__(self, env: Any) -> None:
        self.env, self.num_envs = env, int(env.num_envs)
        self.observation_space, self.action_space = env.observation_space, env.action_space
        *self._wrappers, self._base = chain_of(env, "venv")
        self.statistics = [wrapper for wrapper in self._wrappers if "VecNormalize" in kinds_of(wrapper)]
        self.normalizes = any(wrapper.norm_obs for wrapper in self.statistics)
        check_envpool(self._base)
        base = kinds_of(self._base)
        self.in_processes = in_processes(self._base, "SubprocVecEnv")
        self.made_in = process_of(self._base)
        self.check_process()
        self._seeds_each = bool(base & _KNOWN)
        self.restarts_alone = self._seeds_each and all(kinds_of(wrapper) & _PASSING for wrapper in self._wrappers)
        self._check_monitors()
        self.info_keywords = keywords_of(env)
        self._warn_of_lives()
        self._rewards_of = self._source_of_rewards()
        self._describe(self._wrappers, self._base, lambda: self._base.env_method("__str__", indices=[0])[0])
        self._obs: Any = None
        self._infos: list[dict[str, Any]] = []
        if not self._seeds_each:
            warn_of_seeds(self._base, bool(base & SEEDED_BEFORE))

    def __getstate__(self) -> dict[str, Any]:
        """Raise TypeError if there is a VecNormalize: it is pickled without its environment."""
        if self.statistics:
            raise TypeError("a VecNormalize is pickled without the environment in it")
        return vars(self)

    def _source_of_rewards(self) -> Any:
        """Return the VecNormalize that has the rewards of the environments; None if those of `step` are."""
        strange: Any = None  # the innermost wrapper so far that may change rewards
        for wrapper in self._wrappers:
            if wrapper not in self.statistics:
                if not kinds_of(wrapper) & _REWARD_PASSING:
                    strange = wrapper
            elif strange is not None and wrapper.norm_reward:
                raise ValueError(
                    f"{type(strange).__name__} lies around VecNormalize, which normalises rewards: FastES adds up rewards "
                    "before that, and does not know what the wrapper does to them. Use VecNormalize(norm_reward=False), or put "
                    "the wrapper inside of it"
                )
            elif strange is not None:
                return None
        return self.statistics[-1] if self.statistics else None

    def _check_monitors(self) -> None:
        """Raise ValueError if a Monitor forbids the reset that starts each episode."""
        if _has_attr(self._base, "allow_early_resets") and not all(self._base.get_attr("allow_early_resets")):
            raise ValueError(
                "Monitor(allow_early_resets=False) forbids the reset with its own seed that starts each episode of FastES: use "
                "allow_early_resets=True"
            )

    def _warn_of_lives(self) -> None:
        wrappers = sys.modules.get("stable_baselines3.common.atari_wrappers")
        is_wrapped = getattr(self._base, "env_is_wrapped", None)  # EnvPool's have none
        if wrappers is not None and is_wrapped is not None and any(is_wrapped(wrappers.EpisodicLifeEnv)):
            warn_user(LIVES, UserWarning)

    def reset(self, seeds: list[int]) -> None:
        if isinstance(self._base, gymnasium.vector.VectorEnv):
            self._obs = self._reset_gymnasium(seeds[0])
            return
        self.env.seed(seeds[0])
        if hasattr(self._base, "_seeds"):
            self._base._seeds = list(seeds)
        self._obs = self.env.reset()

    def part(self, seed: int) -> None:
        if hasattr(self._base, "_seeds"):
            self._base._seeds = [seed + index for index in range(self.num_envs)]

    def _reset_gymnasium(self, seed: int) -> Any:
        """Reset a Gymnasium vector environment in another package's VecEnv wrapper, which passes no seed on."""
        base = self._base
        if kinds_of(base) & SEEDED_BEFORE:
            return self.env.reset()
        base.reset = functools.partial(type(base).reset, base, seed=seed)
        try:
            return self.env.reset()
        finally:
            del base.reset

    def restart(self, seeds: Mapping[int, int]) -> None:
        for index, seed in seeds.items():
            ((obs, _),) = self._base.env_method("reset", seed=seed, indices=[index])
            for wrapper in self._wrappers:
                for name in _SUMS:
                    if name in vars(wrapper):
                        getattr(wrapper, name)[index] = 0
            self._place(index, obs)

    def _place(self, index: int, obs: Any) -> None:
        if isinstance(self._obs, dict):
            rows = self._normalized({key: np.asarray(value)[np.newaxis] for key, value in obs.items()})
            for key, value in rows.items():
                self._obs[key][index] = value[0]
        elif isinstance(self._obs, tuple):
            for part, value in zip(self._obs, obs, strict=True):
                part[index] = value
        else:
            self._obs[index] = self._normalized(np.asarray(obs)[np.newaxis])[0]

    def _normalized(self, obs: Any) -> Any:
        for wrapper in reversed(self.statistics):
            obs = wrapper.normalize_obs(obs)
        return obs

    def observations(self) -> Iterable[Any]:
        if isinstance(self._obs, dict):
            return ({key: part[index] for key, part in self._obs.items()} for index in range(self.num_envs))
        if isinstance(self._obs, tuple):
            return (tuple(part[index] for part in self._obs) for index in range(self.num_envs))
        return self._obs  # type: ignore[no-any-return]

    def step(self, actions: Rows) -> tuple[Rows, Rows]:
        self._obs, rewards, dones, self._infos = self.env.step(actions)
        rewards = rewards if self._rewards_of is None else self._rewards_of.get_original_reward()
        return rewards_of(rewards, self.num_envs), flags_of("dones", dones, self.num_envs)

    def info(self, index: int) -> Mapping[str, Any]:
        return self._infos[index]

    def timed_out(self, index: int) -> bool:
        return bool(self._infos[index].get(TIMED_OUT, False))

    def frozen(self) -> contextlib.AbstractContextManager[None]:
        return switched_off(self.statistics, "training")

    def has_method(self, name: str) -> bool:
        return _has_attr(self._base, name)

    def has_seen_nothing(self) -> bool:
        return any(wrapper.norm_obs and _count(wrapper.obs_rms) < 1.0 for wrapper in self.statistics)


def _has_attr(base: Any, name: str) -> bool:
    """Return whether the environments in a VecEnv have an attribute; False for other packages' VecEnvs, which cannot say."""
    has_attr = getattr(base, "has_attr", None)
    return has_attr is not None and bool(has_attr(name))


def keywords_of(env: Any) -> tuple[str, ...]:
    """Return the info_keywords of the Monitors and VecMonitors in a VecEnv."""
    *wrappers, base = chain_of(env, "venv")
    given = [vars(wrapper).get("info_keywords", ()) for wrapper in wrappers]
    if _has_attr(base, "info_keywords"):
        given += base.get_attr("info_keywords")
    return tuple(dict.fromkeys(name for names in given for name in names))


def _count(statistics: Any) -> float:
    """Return the number of observations in VecNormalize's statistics; Dict observations have one for each key."""
    each = statistics.values() if isinstance(statistics, dict) else [statistics]
    return max((float(part.count) for part in each), default=0.0)
