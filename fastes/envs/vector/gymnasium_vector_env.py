"""Gymnasium's vector environments, driven as they are."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from fastes.envs.returned import flags_of, rewards_of
from fastes.envs.vector.vector_env import (
    AGENTS,
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
from fastes.errors import shown, warn_user

_WITH_MASKS = (gymnasium.vector.SyncVectorEnv, gymnasium.vector.AsyncVectorEnv)
# wrappers that remember nothing: an environment may start anew under them while the others go on
_PASSING = {
    "ArrayConversion",
    "ClipAction",
    "ClipReward",
    "DtypeObservation",
    "FilterObservation",
    "FlattenObservation",
    "GrayscaleObservation",
    "RescaleAction",
    "RescaleObservation",
    "ReshapeObservation",
    "ResizeObservation",
    "TransformAction",
    "TransformObservation",
    "TransformReward",
}


class GymnasiumVectorEnv(VectorEnv):
    """A gymnasium.vector environment in any autoreset mode.

    Each episode starts by `reset` with its seed: in one environment alone if there are reset masks and no wrapper remembers
    more than a step, else in all environments at once. A step in which autoreset starts an episode does not count.
    """

    def __init__(self, env: Any) -> None:
        self.env, self.num_envs = env, int(env.num_envs)
        self._set_spaces(env)
        *wrappers, self._base = chain_of(env, "env")
        check_envpool(self._base)
        self._statistics = [wrapper for wrapper in wrappers if "NormalizeObservation" in kinds_of(wrapper)]
        self.normalizes = bool(self._statistics)
        mode = (getattr(env, "metadata", None) or {}).get("autoreset_mode")
        self._disabled = getattr(mode, "name", str(mode)).upper().endswith("DISABLED")
        self._atari = _is_atari(self._base)
        masks = isinstance(self._base, _WITH_MASKS) or (self._atari and _atari_has_masks())
        self.restarts_alone = self._disabled or (masks and all(kinds_of(wrapper) & _PASSING for wrapper in wrappers))
        self._own_seeds = bool(kinds_of(self._base) & SEEDED_BEFORE)
        self._part_resets = self._own_seeds and not wrappers  # by ids, answering with these rows alone
        self.restarts_alone |= self._part_resets
        self.in_processes = in_processes(self._base, "AsyncVectorEnv")
        self.made_in = process_of(self._base)
        self.check_process()
        self._check_copies(getattr(mode, "name", str(mode)).upper())
        self._describe(wrappers, self._base, lambda: self._base.call("__str__")[0])
        self._seeds_each = not self._own_seeds and not kinds_of(self._base) & AGENTS
        if not self._seeds_each:
            warn_of_seeds(self._base, self._own_seeds)
        self._over = np.zeros(self.num_envs, dtype=bool)
        self._obs: Any = None
        self._infos: dict[str, Any] | list[dict[str, Any]] = {}
        if any("NormalizeReward" in kinds_of(wrapper) for wrapper in wrappers):
            warn_user(
                "NormalizeReward scales rewards by statistics that move during a generation: late candidates get other "
                "returns, and results depend on the number of environments. Leave it out: FastES compares returns by rank, or "
                "in units of their std",
                UserWarning,
            )

    def _set_spaces(self, env: Any) -> None:
        """Set the spaces of one environment; SuperSuit's vector environments have no others."""
        own = getattr(env, "single_observation_space", None)
        self.observation_space = env.observation_space if own is None else own
        self.action_space = getattr(env, "single_action_space", env.action_space)
        batched = env.observation_space if own is not None and own is not env.observation_space else None
        self._batched = batched or gymnasium.vector.utils.batch_space(self.observation_space, self.num_envs)

    def _check_copies(self, mode: str) -> None:
        """Raise ValueError if autoreset follows a reset, too: the first step would be lost, and begin from another state."""
        if (
            isinstance(self._base, gymnasium.vector.AsyncVectorEnv)
            and not self._base.shared_memory
            and not mode.endswith(("SAME_STEP", "DISABLED"))
        ):
            raise ValueError(
                f"{self} has shared_memory=False, and resets an environment in the step after its end even where that was "
                "reset with a seed meanwhile: episodes would not be those of their seeds. Make it with shared_memory=True, or "
                "with autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP"
            )

    def reset(self, seeds: list[int]) -> None:
        if self._seeds_each:
            try:
                self._obs, _ = self.env.reset(seed=np.array(seeds) if self._atari else list(seeds))
            except (TypeError, ValueError, gymnasium.error.Error):
                if isinstance(self._base, _WITH_MASKS):
                    raise
                self._seeds_each = False
                warn_of_seeds(self._base, takes_none=False)
        if not self._seeds_each:
            self._obs, _ = self.env.reset() if self._own_seeds else self.env.reset(seed=seeds[0])
        self._over[:] = False

    def restart(self, seeds: Mapping[int, int | None]) -> None:
        if self._part_resets:
            self._restart_part(sorted(seeds))
            return
        mask = np.zeros(self.num_envs, dtype=bool)
        mask[list(seeds)] = True
        given: Any = [seeds.get(index) for index in range(self.num_envs)]
        if self._atari:  # takes those that it needs
            given = np.array([seeds[index] for index in sorted(seeds)])
        self._obs, _ = self.env.reset(seed=given, options={"reset_mask": mask})
        self._over[mask] = False

    def _restart_part(self, indices: list[int]) -> None:
        """Reset some environments by their ids, as EnvPool does; it returns the observations of these alone."""
        observations, _ = self.env.reset(np.array(indices, dtype=np.int32))
        self._obs = _with_rows(self._obs, indices, observations)

    def observations(self) -> Iterable[Any]:
        if isinstance(self.observation_space, spaces.Box):
            return self._obs  # type: ignore[no-any-return]
        return gymnasium.vector.utils.iterate(self._batched, self._obs)

    def step(self, actions: Rows) -> tuple[Rows, Rows]:
        if self._disabled and self._over.any():  # environments without work; they must not be stepped as they are
            self.restart(dict.fromkeys(np.flatnonzero(self._over).tolist()))
        self._obs, rewards, terminated, truncated, self._infos = self.env.step(actions)
        rewards = rewards_of(rewards, self.num_envs)
        ended = flags_of("terminated", terminated, self.num_envs)
        dones = ended | flags_of("truncated", truncated, self.num_envs)
        self._timed_out = dones & ~ended
        if self._disabled:
            self._over = dones.copy()
        return rewards, dones

    def info(self, index: int) -> Mapping[str, Any]:
        row: Any = self._infos[index] if isinstance(self._infos, list) else _row_of(self._infos, index)
        row = row if isinstance(row, Mapping) else {}  # a list is DictInfoToList's, or SuperSuit's
        final: Any = row.get("final_info")
        return final if isinstance(final, Mapping) else row

    def timed_out(self, index: int) -> bool:
        return bool(self._timed_out[index])

    def frozen(self) -> contextlib.AbstractContextManager[None]:
        return switched_off(self._statistics, "update_running_mean")

    def has_seen_nothing(self) -> bool:
        return any(float(wrapper.obs_rms.count) < 1.0 for wrapper in self._statistics)


def _row_of(infos: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Return the info of one environment, out of gymnasium.vector's dict of arrays: '_key' says which have a key."""
    found = {}
    for key, values in infos.items():
        known = infos.get(f"_{key}")
        if key.startswith("_") and key[1:] in infos:
            continue
        if known is not None and not known[index]:
            continue
        if isinstance(values, Mapping):
            found[key] = _row_of(values, index)
        elif isinstance(values, (np.ndarray, list, tuple)) and len(values) > index:
            found[key] = values[index]
    return found


def _with_rows(observations: Any, indices: list[int], rows: Any) -> Any:
    """Return a copy of observations, an array or a dict of such, with the rows of some environments replaced."""
    if isinstance(observations, dict):
        return {key: _with_rows(part, indices, rows[key]) for key, part in observations.items()}
    changed = np.array(observations)
    changed[indices] = rows
    return changed


def _is_atari(base: Any) -> bool:
    """Return whether this is ale-py's vector environment. Raises ValueError if it steps only a part of its games at a time."""
    if "AtariVectorEnv" not in kinds_of(base):
        return False
    if base.batch_size != base.num_envs:
        raise ValueError(
            f"{shown(base)} answers for {base.batch_size} of its {base.num_envs} games at a time, and FastES steps all of "
            "them: leave batch_size out"
        )
    return True


def _atari_has_masks() -> bool:
    """Return whether ale-py's vector environment can reset a part of its games: since version 0.12."""
    version = str(getattr(sys.modules.get("ale_py"), "__version__", "0.0"))
    return tuple(int(part) for part in version.split(".")[:2]) >= (0, 12)
