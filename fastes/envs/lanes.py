"""Vector environments that step together: SB3's VecEnvs and Gymnasium's. Each of their environments is a lane."""

from __future__ import annotations

import contextlib
import copy
import math
import sys
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from fastes.rollout import success_of

Rows = npt.NDArray[Any]

# wrappers that let a lane start anew while the others go on: they keep nothing of a lane's past observations
_PASSING = ("VecNormalize", "VecMonitor", "VecCheckNan")
_WITH_MASKS = (gymnasium.vector.SyncVectorEnv, gymnasium.vector.AsyncVectorEnv)
_MASKS = hasattr(gymnasium.vector, "AutoresetMode")  # Gymnasium 1.1 brought both


class VecEnv(Protocol):
    """A VecEnv of Stable-Baselines3."""

    num_envs: int
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]: ...


class Lanes(Protocol):
    """What a pool needs of a vector environment.

    env: the environment as it was given. observation_space, action_space: of one lane. normalizes: whether a wrapper
    normalises observations by running statistics. restarts_alone: whether a lane can start an episode while others go on.
    """

    env: Any
    num_envs: int
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    normalizes: bool
    restarts_alone: bool

    def spec(self) -> EnvSpec | None:
        """The spec of a lane's environment, where it has one."""

    def plain(self) -> bool:
        """Whether the lanes behave as the environment of `spec` alone does: no wrapper changes what they show."""

    def reset(self, seeds: list[int]) -> None:
        """Start an episode in every lane."""

    def restart(self, seeds: Mapping[int, int]) -> None:
        """Start an episode in some lanes: lane -> seed. Needs restarts_alone."""

    def observations(self) -> Iterable[Any]:
        """What each lane shows now: for a Box an array (num_envs, *shape), else one observation a lane."""

    def step(self, actions: Rows) -> tuple[Rows, Rows]:
        """Rewards (num_envs,), and which lanes ended their episode, bool (num_envs,)."""

    def success(self, lane: int) -> float:
        """Of the last step in a lane: 1.0, 0.0, or NaN where the environment does not tell."""


def lanes_of(env: object) -> Lanes | None:
    """The lanes of a vector environment; None for anything else."""
    if isinstance(env, gymnasium.vector.VectorEnv):
        return GymnasiumLanes(env)
    module = sys.modules.get("stable_baselines3.common.vec_env")
    return SB3Lanes(env) if module is not None and isinstance(env, module.VecEnv) else None


def _chain(env: Any, inner: str) -> list[Any]:
    """A vector environment's wrappers from the outside in; the last item is the environment itself."""
    found = [env]
    while (within := vars(found[-1]).get(inner)) is not None:
        found.append(within)
    return found


class SB3Lanes:
    """A VecEnv of Stable-Baselines3 with its wrappers; statistics: those that are VecNormalize, from the outside in.

    Returns add up the rewards before VecNormalize: a scale that moves during a generation would favour late candidates.
    """

    def __init__(self, env: Any) -> None:
        self.env, self.num_envs = env, int(env.num_envs)
        self.observation_space, self.action_space = env.observation_space, env.action_space
        *wrappers, self._base = _chain(env, "venv")
        kinds = [{base.__name__ for base in type(wrapper).__mro__} for wrapper in wrappers]
        self._wrapped = bool(wrappers)
        self.statistics = [w for w, kind in zip(wrappers, kinds, strict=True) if "VecNormalize" in kind]
        self.normalizes = any(wrapper.norm_obs for wrapper in self.statistics)
        known = {base.__name__ for base in type(self._base).__mro__} & {"DummyVecEnv", "SubprocVecEnv"}
        self.restarts_alone = bool(known) and all(kind & set(_PASSING) for kind in kinds)
        self._obs: Any = None
        self._infos: list[dict[str, Any]] = []

    def spec(self) -> EnvSpec | None:
        return _first_spec(self._base)

    def plain(self) -> bool:
        return not self._wrapped

    def reset(self, seeds: list[int]) -> None:
        self.env.seed(seeds[0])
        if hasattr(self._base, "_seeds"):
            self._base._seeds = list(seeds)
        self._obs = self.env.reset()

    def restart(self, seeds: Mapping[int, int]) -> None:
        for lane, seed in seeds.items():
            ((obs, _),) = self._base.env_method("reset", seed=seed, indices=[lane])
            if isinstance(self._obs, dict):
                obs = self._normalized({key: np.asarray(value)[np.newaxis] for key, value in obs.items()})
                for key, value in obs.items():
                    self._obs[key][lane] = value[0]
            elif isinstance(self._obs, tuple):
                for part, value in zip(self._obs, obs, strict=True):
                    part[lane] = value
            else:
                self._obs[lane] = self._normalized(np.asarray(obs)[np.newaxis])[0]

    def _normalized(self, obs: Any) -> Any:
        for wrapper in reversed(self.statistics):
            obs = wrapper.normalize_obs(obs)
        return obs

    def observations(self) -> Iterable[Any]:
        if isinstance(self._obs, dict):
            return ({key: part[lane] for key, part in self._obs.items()} for lane in range(self.num_envs))
        if isinstance(self._obs, tuple):
            return (tuple(part[lane] for part in self._obs) for lane in range(self.num_envs))
        return self._obs  # type: ignore[no-any-return]

    def step(self, actions: Rows) -> tuple[Rows, Rows]:
        self._obs, rewards, dones, self._infos = self.env.step(actions)
        return (self.statistics[-1].get_original_reward() if self.statistics else rewards), dones

    def success(self, lane: int) -> float:
        return success_of(self._infos[lane])


class GymnasiumLanes:
    """A gymnasium.vector environment in any autoreset mode.

    Each episode starts by `reset` with its seed, in one lane where the environment has reset masks, else in all lanes at once;
    what autoreset does in between is no step and no reward.
    """

    def __init__(self, env: Any) -> None:
        self.env, self.num_envs = env, int(env.num_envs)
        self.observation_space, self.action_space = env.single_observation_space, env.single_action_space
        *wrappers, self._base = _chain(env, "env")
        self._wrapped = bool(wrappers)
        self.normalizes = any(type(wrapper).__name__ == "NormalizeObservation" for wrapper in wrappers)
        mode = (getattr(env, "metadata", None) or {}).get("autoreset_mode")
        self._disabled = getattr(mode, "name", str(mode)).upper().endswith("DISABLED")
        self.restarts_alone = self._disabled or (_MASKS and isinstance(self._base, _WITH_MASKS) and not self.normalizes)
        self._seeds_each = True
        self._over = np.zeros(self.num_envs, dtype=bool)
        self._obs: Any = None
        self._infos: dict[str, Any] = {}

    def spec(self) -> EnvSpec | None:
        return _first_spec(self._base)

    def plain(self) -> bool:
        return not self._wrapped

    def reset(self, seeds: list[int]) -> None:
        if self._seeds_each:
            try:
                self._obs, _ = self.env.reset(seed=list(seeds))
            except (TypeError, ValueError, gymnasium.error.Error):
                if isinstance(self._base, _WITH_MASKS):
                    raise
                self._seeds_each = False
                warnings.warn(
                    f"{self.env} takes one seed for all of its lanes: candidates of a pair do not meet the same episodes, and "
                    "results depend on the number of lanes",
                    RuntimeWarning,
                    stacklevel=2,
                )
        if not self._seeds_each:
            self._obs, _ = self.env.reset(seed=seeds[0])
        self._over[:] = False

    def restart(self, seeds: Mapping[int, int | None]) -> None:
        mask = np.zeros(self.num_envs, dtype=bool)
        mask[list(seeds)] = True
        given = [seeds.get(lane) for lane in range(self.num_envs)]
        self._obs, _ = self.env.reset(seed=given, options={"reset_mask": mask})
        self._over[mask] = False

    def observations(self) -> Iterable[Any]:
        if isinstance(self.observation_space, spaces.Box):
            return self._obs  # type: ignore[no-any-return]
        return gymnasium.vector.utils.iterate(self.env.observation_space, self._obs)

    def step(self, actions: Rows) -> tuple[Rows, Rows]:
        if self._disabled and self._over.any():  # lanes without work; they must not be stepped as they are
            self.restart(dict.fromkeys(np.flatnonzero(self._over).tolist()))
        self._obs, rewards, terminated, truncated, self._infos = self.env.step(actions)
        dones = np.logical_or(terminated, truncated)
        if self._disabled:
            self._over = dones.copy()
        return rewards, dones

    def success(self, lane: int) -> float:
        infos = self._infos.get("final_info", self._infos)
        known = infos.get("_is_success")
        return success_of({"is_success": infos["is_success"][lane]}) if known is not None and known[lane] else math.nan


def _first_spec(env: Any) -> EnvSpec | None:
    """The spec of the first environment, without SB3's Monitor, which shows nothing else than what it wraps."""
    with contextlib.suppress(Exception):
        spec = env.get_attr("spec")[0]
        if isinstance(spec, EnvSpec):
            spec = copy.deepcopy(spec)
            spec.kwargs.pop("render_mode", None)
            spec.additional_wrappers = tuple(w for w in spec.additional_wrappers or () if w.name != "Monitor")
            return spec
    return getattr(env, "spec", None) if isinstance(getattr(env, "spec", None), EnvSpec) else None
