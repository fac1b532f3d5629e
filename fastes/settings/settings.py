"""Every setting of a training: those of EvolutionStrategy and more. Flags, checks and pages are derived from them."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Sequence
from dataclasses import Field, dataclass, fields, replace
from typing import Any

from fastes.errors import listed
from fastes.es.hyperparameters import Hyperparameters
from fastes.es.schedules import ANY_NUMBER, ScheduleSetting, Whole, count_at, scheduled
from fastes.policies.obs_columns import ALL, checked_columns
from fastes.policies.policy_keywords import KEYS, POLICIES, plain_policy_kwargs
from fastes.rollout.episode import STEP_GUARD
from fastes.setting_fields import Range, checked_number, described, plain, setting
from fastes.settings.foreign_names import answer

ENV_ERRORS = ("stop", "penalise")
NATIVE = ("auto", "on", "off")
MOST_SNAPSHOTS = 64  # of an archive
MOST_TRIALS, MOST_RUNGS = 10_000, 14
MOST_BLOCKS = 16  # of an adaptive population whose maximum is not set
GROUPS = ("budget", "policy", "evolution", "episodes", "faults", "observations")  # in the order in which they are shown
EPISODE_CAPS = ("none", "mean", "share", "grow")


def _target(name: str, value: Any) -> Any:
    if not (isinstance(value, str) and value in ("auto", "none")):
        checked_number(name, value, "a number, 'auto' or 'none'")
    return plain(value)


def _timeout(name: str, value: Any) -> Any:
    if isinstance(value, str) and value == "auto":
        return value
    if checked_number(name, value, "seconds, more than 0, or 'auto'") <= 0.0:
        raise ValueError(f"{name} = {value!r}: expected seconds, more than 0, or 'auto'")
    return plain(value)


def _policy(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(
            f"{name} = {value!r} is a {type(value).__name__}: expected {', '.join(map(repr, POLICIES))}, a fastes.TorchPolicy "
            "or a fastes.CallablePolicy"
        )
    return value


@dataclass(frozen=True, kw_only=True)
class Settings(Hyperparameters):
    """The settings of a training. Presets, keyword arguments and command-line flags change the defaults."""

    total_timesteps: int = setting(
        5_000_000,
        "environment steps that candidates may take; checked after each generation",
        "budget",
        low=1,
        high=10**15,
        affects_learning=False,
        first=True,
    )
    target_return: float | str = setting(
        "auto",
        "noise-free return at which training stops; 'auto': the environment's threshold, 'none': never",
        "budget",
        check=_target,
        affects_learning=False,
        first=True,
    )
    target_episodes: int = setting(
        20, "episodes that confirm the target before training stops", "budget", low=1, affects_learning=False
    )

    policy: str = setting(
        "MlpPolicy",
        f"{listed(POLICIES, 'or')}; in Python also a TorchPolicy or a CallablePolicy",
        "policy",
        check=_policy,
        gain="LinearPolicy: LunarLander-v3; MlpPolicy: Reacher-v5; MlpLstmPolicy: the T-maze",
        first=True,
        fixed=True,
    )
    policy_kwargs: dict[str, Any] = setting(
        {},
        f"keywords of the policy: {', '.join(KEYS)}",
        "policy",
        check=lambda _, value: plain_policy_kwargs(value),
        gain="; ".join(f"{key.name}: {key.description.gain}" for key in KEYS.values() if key.description.gain)
        + "; others: none yet",
        fixed=True,
    )

    generation_timesteps: int | str = setting(
        0,
        "least environment steps of a generation, reached by adding candidates; a number, or a schedule such as "
        "exp_5000_40000; 0: no least number",
        "evolution",
        **scheduled(Whole(0, 10**15, "5000_40000")),
        gain="Walker2d-v5, Humanoid-v5",
    )
    max_population_size: int = setting(
        0,
        "most candidates that generation_timesteps may add up to; 0: 16 times population_size",
        "evolution",
        low=0,
        high=2**31 - 2,
        gain="Walker2d-v5",
    )
    noise_table_size: int = setting(
        0,
        "numbers in the shared noise table, 4 bytes each; 0: as many as the policy needs",
        "evolution",
        low=0,
        high=2**36,
        affects_learning=False,
    )

    trials: int = setting(
        1,
        "trainings side by side in the first part of the budget; the better ones continue, in the end the best alone",
        "evolution",
        low=1,
        high=MOST_TRIALS,
        gain="HalfCheetah-v5, LunarLanderContinuous-v3",
    )
    rungs: int = setting(
        1,
        "equal parts of trials_fraction; after each the worse half of the trials is dropped, after the last all but the best",
        "evolution",
        low=1,
        high=MOST_RUNGS,
        gain="LunarLanderContinuous-v3",
    )
    trials_fraction: float = setting(
        0.2,
        "share of the budget that all trials have together; in (0, 1]",
        "evolution",
        above=0.0,
        high=1.0,
        gain="with trials: HalfCheetah-v5, LunarLanderContinuous-v3",
    )

    episodes_per_candidate: int | str = setting(
        1,
        "episodes whose mean return is a candidate's fitness; a number, or a schedule such as lin_1_4",
        "episodes",
        **scheduled(Whole(1, 2**62, "1_4")),
        gain="InvertedDoublePendulum-v5, LunarLander-v3",
        first=True,
        tried=Range(1, 4),
    )
    eval_episodes: int = setting(1, "noise-free episodes of theta per evaluation", "episodes", low=1, affects_learning=False)
    eval_every: int = setting(
        1, "generations from one evaluation of theta to the next", "episodes", low=1, affects_learning=False
    )
    eval_lag: int = setting(
        1,
        "generations that play during an evaluation, before it is reported; 0: all workers wait for it",
        "episodes",
        low=0,
        high=100,
        affects_learning=False,
    )
    archive_size: int = setting(
        0,
        "earlier parameters that are kept, and compared with the last ones over fresh episodes at the end; 0: none",
        "episodes",
        low=0,
        high=MOST_SNAPSHOTS,
        gain="Pendulum-v1, LunarLander-v3",
    )
    action_noise: float = setting(
        0.0,
        "standard deviation of Gaussian noise on the policy's outputs in training (Box); if they are clipped to the action "
        "range, in halves of it",
        "episodes",
        low=0.0,
    )
    sample_actions: bool = setting(
        False,
        "draw training actions from the policy's distribution (Discrete, MultiDiscrete, MultiBinary)",
        "episodes",
        tried=(False, True),
    )
    alive_bonus: ScheduleSetting = setting(
        0.0,
        "reward per step that training subtracts; logs and evaluation keep it; a number or a schedule",
        "episodes",
        **scheduled(ANY_NUMBER),
        gain="Hopper-v5, Walker2d-v5, BipedalWalker-v3",
    )
    max_episode_steps: int = setting(
        0,
        "steps after which every episode is cut; 0: the environment decides, one without a limit is cut after 10,000, or fewer "
        f"if ten generations of these exceed the budget, but at least 1,000; -1: the environment decides, or {STEP_GUARD:,}",
        "episodes",
        low=-1,
        affects_learning=False,
    )
    episode_cap: str = setting(
        "none",
        "adaptive cap of training episodes: mean (of the mean length), share (grows when half of them reach it), grow (always)",
        "episodes",
        choices=EPISODE_CAPS,
        gain="grow: HalfCheetah-v5, Ant-v5, Reacher-v5; mean, share: none yet",
        tried=("none", "grow"),
    )
    episode_cap_start: int = setting(
        1000,
        "first value of the adaptive cap, in steps",
        "episodes",
        low=1,
        gain="HalfCheetah-v5",
        tried=Range(50, 1000, log=True),
    )
    episode_cap_factor: float = setting(
        2.0,
        "factor of the adaptive cap; more than 1",
        "episodes",
        above=1.0,
        gain="HalfCheetah-v5",
    )

    on_env_error: str = setting(
        "stop",
        "effect of an exception in an episode: stop the training, or penalise (the candidate ranks worst)",
        "faults",
        choices=ENV_ERRORS,
        affects_learning=False,
    )
    step_timeout: float | str = setting(
        "auto",
        "seconds without an env.step after which a worker is replaced; 'auto': learned from the episodes",
        "faults",
        check=_timeout,
        affects_learning=False,
    )
    worker_max_episodes: int = setting(
        0,
        "episodes after which a new process takes a worker's place, for environments that leak memory; 0: never",
        "faults",
        low=0,
        affects_learning=False,
    )

    native: str | bool = setting(
        "auto",
        "if environments step in C: auto (those that can, with the same bits), on or True (an error for others), off or False",
        "episodes",
        choices=NATIVE,
        affects_learning=False,
    )

    obs_columns: str | Sequence[int | str] = setting(
        ALL,
        "values of flat observations that the policy sees: all, or indices and ranges such as 0:45,60,100:",
        "observations",
        check=lambda _, value: checked_columns(value),
        gain="Humanoid-v5",
        fixed=True,
    )
    normalize_obs: bool = setting(
        True,
        "normalise observations by the running mean and standard deviation of what candidates saw",
        "observations",
        gain="InvertedDoublePendulum-v5",
        first=True,
        tried=(True, False),
    )
    obs_warmup: bool = setting(
        False,
        "play the first candidates once before training, for the statistics of observations",
        "observations",
        gain="Ant-v5, Acrobot-v1",
    )
    obs_freeze_after: int = setting(
        0,
        "observations after which their statistics are frozen; 0: never",
        "observations",
        low=0,
        high=10**15,
        gain="InvertedDoublePendulum-v5, Ant-v5",
    )
    obs_clip: float = setting(
        5.0,
        "normalised observations are clipped to plus or minus this many standard deviations",
        "observations",
        above=0.0,
        gain="Ant-v5, InvertedDoublePendulum-v5",
        tried=Range(3.0, 30.0, log=True),
    )
    obs_std_floor: float = setting(
        0.01,
        "smallest standard deviation that normalisation divides by",
        "observations",
        above=0.0,
        gain="with a wide obs_clip: Walker2d-v5",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_largest_population()

    def episodes_at(self, progress_remaining: float) -> int:
        """Return the episodes of a candidate at the progress that remains, from 1 (start) to 0 (end of the budget)."""
        return count_at(self.episodes_per_candidate, progress_remaining)

    def first_episodes(self) -> int:
        """Return the number of episodes of the first generation's candidates."""
        return self.population_size * self.episodes_at(1.0)

    def longest_episode(self) -> int | None:
        """Return the steps after which every episode is cut; None if no setting says it."""
        if self.max_episode_steps < 0:
            return STEP_GUARD
        return self.max_episode_steps or None

    def most_episodes(self) -> int:
        """Return the most episodes that a candidate has."""
        return max(self.episodes_at(1.0), self.episodes_at(0.0))

    def generation_timesteps_at(self, progress_remaining: float) -> int:
        """Return the least steps of a generation at the progress that remains; 0: no such rule."""
        return count_at(self.generation_timesteps, progress_remaining)

    def evaluations_at_once(self) -> int:
        """Return how many thetas are evaluated at a time: one each eval_every generations, until it is reported."""
        return self.eval_lag // self.eval_every + 1

    def largest_population(self) -> int:
        """Return the most candidates of a generation: population_size, unless generation_timesteps may ask for more."""
        if not self.generation_timesteps:
            return self.population_size
        return self.max_population_size or MOST_BLOCKS * self.population_size

    def _check_largest_population(self) -> None:
        """Raise ValueError if the maximum is not made of whole blocks."""
        block, most = self.population_size, self.max_population_size
        if most % block:
            below = most // block * block
            nearest = f"{below} or {below + block}" if below else f"{block}"
            raise ValueError(
                f"max_population_size = {most} is not a multiple of population_size = {block}: a population grows by whole "
                f"blocks, use {nearest}, or 0 for {MOST_BLOCKS} blocks"
            )

    def target(self, registered: float | None = None) -> float:
        """Return the return at which training stops: a number, infinity for never."""
        if isinstance(self.target_return, str) and self.target_return in ("auto", "none"):
            return registered if self.target_return == "auto" and registered is not None else math.inf
        return float(self.target_return)

    def timeout(self) -> float | None:
        """Return the seconds without an env.step after which a worker counts as hung; None if that is learned."""
        if isinstance(self.step_timeout, str) and self.step_timeout == "auto":
            return None
        return float(self.step_timeout)

    def changed(self, **values: Any) -> Settings:
        """Return the settings with these values in place of their own; TypeError for an unknown name, with the right one."""
        names = setting_names()
        unknown = [name for name in values if name not in names]
        if unknown:
            answers = [answer(name, names) for name in unknown]
            rest = "" if all(answers) else f"; expected one of {names}"
            if len(unknown) == 1:
                raise TypeError(f"unknown setting {unknown[0]!r}{answers[0]}{rest}")
            told = [
                f"{name!r} ({text.lstrip(':; ')})" if text else repr(name) for name, text in zip(unknown, answers, strict=True)
            ]
            raise TypeError(f"unknown settings {', '.join(told)}{rest}")
        return replace(self, **values) if values else self

    def as_given(self) -> dict[str, Any]:
        """Return the values by name, functions and classes among them."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values by name; a function or class becomes the string 'function'."""
        return {name: "function" if callable(value) else copy.deepcopy(value) for name, value in self.as_given().items()}


def grouped_fields() -> list[Field[Any]]:
    """Return the fields of Settings, group by group, as --help and the documentation show them."""
    return sorted(fields(Settings), key=lambda item: GROUPS.index(described(item).group))


@functools.cache
def setting_names() -> tuple[str, ...]:
    return tuple(item.name for item in fields(Settings))


# fields that may follow a training's progress, by name; and those of them whose schedules are of whole numbers
SCHEDULES = {item.name: allowed for item in fields(Settings) if (allowed := described(item).schedule) is not None}
# fields that may be functions or classes, which no file can hold
FUNCTIONS = {item.name: missing for item in fields(Settings) if (missing := described(item).missing) is not None}
# fields that have to stay as they are when a training is loaded: the file's arrays are of their kinds
FIXED = tuple(item.name for item in fields(Settings) if described(item).fixed)
COUNTED = {name: allowed for name, allowed in SCHEDULES.items() if isinstance(allowed, Whole)}
