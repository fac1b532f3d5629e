"""Every setting of a training, and the one list of those that EvolutionStrategy lacks; flags and docs are made from this."""

from __future__ import annotations

import math
from dataclasses import Field, asdict, dataclass, fields, replace
from typing import Any

from fastes.es.hyperparameters import Hyperparameters
from fastes.es.schedules import ANY_FORMS, ANY_NUMBER, ScheduleSetting, make_schedule
from fastes.es.setting_fields import checked_number, setting
from fastes.rollout.episode import STEP_GUARD
from fastes.settings.aliases import answer
from fastes.settings.policy_kwargs import plain_policy_kwargs

ENV_ERRORS = ("stop", "penalise")
ROLLBACK_WINDOW = 10_000  # the longest
MOST_BLOCKS = 16  # of an adaptive population whose maximum is not set
SCHEDULES = ("sigma", "learning_rate", "alive_bonus")  # fields that may follow the progress of a training
GROUPS = ("budget", "policy", "evolution", "episodes", "faults", "observations")  # in the order in which they are shown
EPISODE_CAPS = ("none", "mean", "share", "grow")


@dataclass(frozen=True, kw_only=True)
class Settings(Hyperparameters):
    """The settings of a training. Presets, keyword arguments and command-line flags change the defaults."""

    total_timesteps: int = setting(
        5_000_000,
        "budget of environment steps that candidates may take; checked after each generation",
        "budget",
        low=1,
        high=10**15,
    )
    target_return: float | str = setting(
        "auto",
        "stop when noise-free evaluation reaches this return; 'auto': the registered reward_threshold, 'none': never",
        "budget",
    )
    target_episodes: int = setting(20, "episodes that confirm the target before training stops", "budget", low=1)

    policy: str = setting("MlpPolicy", "MlpPolicy or LinearPolicy; in Python also a TorchPolicy or CallablePolicy", "policy")
    policy_kwargs: dict[str, Any] = setting(
        {}, "net_arch, activation_fn, use_bias, action_mapping (clip, squash, bins), num_bins", "policy"
    )

    generation_timesteps: int = setting(
        0,
        "adaptive population: steps that a generation's candidates make at least. It begins with as many blocks of "
        "population_size candidates as the last one's mean length asks for (the first: one) and adds whole blocks until "
        "then; 0: one block. For tasks whose episodes are short at first, such as walkers that fall: population_size times "
        "3/4 of a full episode's steps is usual in PGPE with ClipUp",
        "evolution",
        low=0,
        high=10**15,
    )
    max_population_size: int = setting(
        0,
        f"candidates that the adaptive population has at most, a multiple of population_size; 0: {MOST_BLOCKS} blocks. Lower "
        "it where resets are slow",
        "evolution",
        low=0,
        high=2**31 - 2,
    )
    noise_table_size: int = setting(
        0, "numbers in the shared noise table (4 bytes each); 0: fits the policy", "evolution", low=0, high=2**36
    )

    rollback_drop: float = setting(
        0.0,
        "go back to the best parameters, with a fresh optimiser, when the evaluation has lost this share of what was learned "
        "(best - first; median of rollback_window generations); 0: never. 0.5 for trainings that collapse, with 2 or more "
        "eval_episodes where returns are noisy; where it goes back again and again, lower the learning rate",
        "evolution",
        low=0.0,
    )
    rollback_window: int = setting(
        10,
        "generations whose evaluations are smoothed for rollback_drop: more for noisier ones, which then notices later",
        "evolution",
        low=1,
        high=ROLLBACK_WINDOW,
    )

    starts: int = setting(
        1,
        "trainings from scratch that share the first part of the budget; the one whose noise-free evaluation is best goes on. "
        "For tasks on which seeds end far apart, because what is learned first decides: 3 to 8",
        "evolution",
        low=1,
        high=10_000,
    )
    starts_share: float = setting(
        0.2,
        "share of the budget that all starts have together, in (0, 1]: long enough to tell a good start from a bad one",
        "evolution",
        above=0.0,
        high=1.0,
    )

    episodes_per_candidate: int = setting(1, "episodes whose mean return is a candidate's fitness", "episodes", low=1)
    eval_episodes: int = setting(
        1, "noise-free episodes of theta each generation, run beside the candidates", "episodes", low=1
    )
    action_noise: float = setting(
        0.0,
        "standard deviation of Gaussian noise on training actions (Box), in units of half the action range",
        "episodes",
        low=0.0,
    )
    sample_actions: bool = setting(
        False, "sample training actions from the policy's distribution (Discrete, MultiDiscrete, MultiBinary)", "episodes"
    )
    alive_bonus: ScheduleSetting = setting(
        0.0,
        "reward a step that training takes away (logs and evaluation keep it). Where a reward for being alive lets policies "
        "stand still, take away that reward; where without it they learn to fall, first nothing, then all, as in 'lin_0_1', "
        f"or a part: {ANY_FORMS}",
        "episodes",
    )
    max_episode_steps: int = setting(
        0, f"steps after which every episode is cut; 0: the environment decides, or {STEP_GUARD:,}", "episodes", low=0
    )
    episode_cap: str = setting(
        "none",
        "adaptive cap: mean (factor x mean length), share (grow by the factor when many episodes reach it) or grow (by the "
        "factor each generation: a horizon that lengthens). grow saves steps where the first ones of an episode show what a "
        "policy is worth, and harms where ending early or waiting pays in the short run",
        "episodes",
        choices=EPISODE_CAPS,
    )
    episode_cap_start: int = setting(
        1000,
        "first value of the adaptive cap, steps; for grow as many as tell policies apart, 150 to 250 for walkers",
        "episodes",
        low=1,
    )
    episode_cap_factor: float = setting(
        2.0,
        "factor of the adaptive cap, more than 1; for grow 1.001 to 1.02, so that most generations play part of an episode",
        "episodes",
        above=1.0,
    )
    episode_cap_share: float = setting(
        0.5, "share of episodes at the cap from which rule share grows it, in (0, 1]", "episodes", above=0.0, high=1.0
    )

    on_env_error: str = setting(
        "stop",
        "an exception in an episode: stop the training, or penalise (its candidate ranks worst)",
        "faults",
        choices=ENV_ERRORS,
    )
    step_timeout: float | str = setting(
        "auto",
        "seconds without an env.step after which a worker is replaced; 'auto': 20 times the longest episode so far, at least "
        "60, and 600 before the first",
        "faults",
    )

    normalize_obs: bool = setting(
        True, "normalise observations by the running mean and std of what candidates saw", "observations"
    )
    obs_warmup: bool = setting(
        False,
        "play the first generation's candidates once before it, for the statistics of observations alone; their steps count. "
        "Else theta takes its first step on raw observations, and the normalised ones that follow mean something else to it. "
        "For observations far from mean 0 and std 1, and for few generations",
        "observations",
    )
    obs_freeze_after: int = setting(
        0,
        "observations after which their statistics stay as they are (whole generations); 0: never. The std of a balancing "
        "task's observations falls as the policy gets steadier, which raises its gains until it shakes itself loose",
        "observations",
        low=0,
        high=10**15,
    )
    obs_clip: float = setting(
        5.0,
        "normalised observations are clipped to +- this many std; 1 where most of them are rare events, such as contact forces",
        "observations",
        above=0.0,
    )
    obs_std_floor: float = setting(0.01, "smallest std that normalisation divides by", "observations", above=0.0)

    def __post_init__(self) -> None:
        make_schedule("alive_bonus", self.alive_bonus, ANY_NUMBER)
        if not isinstance(self.policy, str):
            raise TypeError(
                f"policy = {self.policy!r} is a {type(self.policy).__name__}: expected 'MlpPolicy', 'LinearPolicy', a "
                "fastes.TorchPolicy or a fastes.CallablePolicy"
            )
        object.__setattr__(self, "policy_kwargs", plain_policy_kwargs(self.policy_kwargs))
        super().__post_init__()
        self.target()
        self.timeout()
        self._check_largest_population()

    def largest_population(self) -> int:
        """Candidates that a generation has at most: population_size, unless generation_timesteps may ask for more."""
        if not self.generation_timesteps:
            return self.population_size
        return self.max_population_size or MOST_BLOCKS * self.population_size

    def _check_largest_population(self) -> None:
        """ValueError when the maximum is not made of whole blocks."""
        block, most = self.population_size, self.max_population_size
        if most % block:
            below = most // block * block
            nearest = f"{below} or {below + block}" if below else f"{block}"
            raise ValueError(
                f"max_population_size = {most} is no multiple of population_size = {block}: a population grows by whole "
                f"blocks, use {nearest}, or 0 for {MOST_BLOCKS} blocks"
            )

    def target(self, registered: float | None = None) -> float:
        """The return at which training stops: a number, infinity for never."""
        if isinstance(self.target_return, str) and self.target_return in ("auto", "none"):
            return registered if self.target_return == "auto" and registered is not None else math.inf
        return checked_number("target_return", self.target_return, "a number, 'auto' or 'none'")

    def timeout(self) -> float | None:
        """Seconds without an env.step after which a worker counts as hung; None when that is learned."""
        if isinstance(self.step_timeout, str) and self.step_timeout == "auto":
            return None
        seconds = checked_number("step_timeout", self.step_timeout, "seconds, more than 0, or 'auto'")
        if seconds <= 0.0:
            raise ValueError(f"step_timeout = {self.step_timeout!r}: expected seconds, more than 0, or 'auto'")
        return seconds

    def changed(self, **values: Any) -> Settings:
        """A copy with these settings instead, or an error that suggests the right name."""
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
        return replace(self, **values)

    def to_dict(self) -> dict[str, Any]:
        """Plain values; a schedule that is a function becomes the string 'function'."""
        return {name: "function" if callable(value) else value for name, value in asdict(self).items()}


def grouped_fields() -> list[Field[Any]]:
    """The fields of Settings, group by group, as --help and the documentation show them."""
    return sorted(fields(Settings), key=lambda item: GROUPS.index(item.metadata["group"]))


def setting_names() -> tuple[str, ...]:
    return tuple(item.name for item in fields(Settings))
