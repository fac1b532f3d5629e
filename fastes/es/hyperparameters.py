"""The hyper-parameters of EvolutionStrategy, which are settings of a training, too: their only list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from fastes.errors import check_int, suggest
from fastes.es.fitness_shaping import SHAPINGS, ShapingFunction, checked_shaping, missing_shaping, rule_of
from fastes.es.optimizers import OPTIMIZERS, MissingOptimizer, OptimizerFactory, checked_optimizer
from fastes.es.schedules import POSITIVE, ScheduleSetting, scheduled
from fastes.setting_fields import Range, checked_fields, setting

ADAPTATIONS = ("none", "scalar", "per_parameter")  # see sigma_adaptation.py
_SMALLEST_SIGMA, _LARGEST_SIGMA = 1e-30, 1e30  # of those that adapt: floor and ceiling are then ordinary float32 numbers


def _population_size(name: str, value: object) -> int:
    """Return an even int of at least 2, or raise an error that says so."""
    size = check_int(name, value, 2, 2**31 - 2)
    if size % 2:
        raise ValueError(f"{name} = {size} is odd: candidates come in mirrored pairs, use {size + 1}")
    return size


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """The hyper-parameters of an EvolutionStrategy. Settings have these fields and those of a training.

    The defaults suit policies. EvolutionStrategy has its own of sigma, learning_rate and population_size, for short vectors.
    """

    population_size: int = setting(
        64,
        "candidates per generation; even, since they come in mirrored pairs",
        "evolution",
        check=_population_size,
        gain="Swimmer-v5, HalfCheetah-v5, Hopper-v5",
        first=True,
        tried=Range(8, 128, log=True),
    )
    sigma: ScheduleSetting = setting(
        0.05,
        "standard deviation of the noise on the parameters; a number or a schedule",
        "evolution",
        **scheduled(POSITIVE),
        gain="Swimmer-v5",
        first=True,
        tried=Range(0.01, 1.0, log=True),
    )
    sigma_adaptation: str = setting(
        "none",
        "none; scalar: one sigma that follows the returns (PGPE); per_parameter: one for each. It takes two pairs that count",
        "evolution",
        choices=ADAPTATIONS,
        gain="per_parameter, with clipup: Walker2d-v5, BipedalWalker-v3, HumanoidStandup-v5",
        fixed=True,
        tried=("none", "per_parameter"),
    )
    sigma_learning_rate: float = setting(
        0.1,
        "speed of sigma_adaptation; a sigma changes by at most 20 % per generation",
        "evolution",
        above=0.0,
        high=1000.0,
    )
    learning_rate: ScheduleSetting = setting(
        0.02,
        "step size; a number or a schedule",
        "evolution",
        **scheduled(POSITIVE),
        gain="Swimmer-v5, HalfCheetah-v5",
        first=True,
        tried=Range(0.003, 1.0, log=True),
    )
    optimizer: str | OptimizerFactory = setting(
        "adam",
        "adam, sgd, or clipup (steps of one length, whatever the gradient's); in Python also a class of your own",
        "evolution",
        choices=OPTIMIZERS,
        check=checked_optimizer,
        missing=lambda _: MissingOptimizer,
        gain="sgd: HalfCheetah-v5; adam: LunarLander-v3; clipup: Walker2d-v5, BipedalWalker-v3, HumanoidStandup-v5",
        first=True,
        fixed=True,
        tried=OPTIMIZERS,
    )
    momentum: float = setting(
        0.9,
        "momentum of sgd and clipup, beta1 of adam; in [0, 1)",
        "evolution",
        low=0.0,
        below=1.0,
        gain="0 with sgd: HalfCheetah-v5",
    )
    beta2: float = setting(0.999, "decay of adam's second moment; in [0, 1)", "evolution", low=0.0, below=1.0)
    max_speed: float = setting(
        0.0,
        "longest step of clipup, as a length in parameter space; 0: twice the learning rate",
        "evolution",
        low=0.0,
    )
    weight_decay: float = setting(0.0, "fraction of theta that is subtracted from the gradient", "evolution", low=0.0)
    shaping: str | ShapingFunction = setting(
        "centered_ranks",
        "centered_ranks (OpenAI-ES), standardized (ARS), nes, or signed_ranks (of differences within pairs); in Python also a "
        "function",
        "evolution",
        choices=SHAPINGS,
        check=checked_shaping,
        missing=lambda _: missing_shaping,
        gain="standardized: HalfCheetah-v5; centered_ranks: LunarLander-v3; signed_ranks: Reacher-v5; nes: none yet",
        first=True,
        tried=SHAPINGS,
    )
    top_fraction: float = setting(
        1.0,
        "fraction of the pairs that count, those with the best candidates; in (0, 1]",
        "evolution",
        above=0.0,
        high=1.0,
        gain="HalfCheetah-v5",
        tried=Range(0.1, 1.0),
    )
    perturbed_fraction: float = setting(
        1.0,
        "fraction of the parameters that each pair perturbs; in (0, 1]",
        "evolution",
        above=0.0,
        high=1.0,
    )

    def __post_init__(self) -> None:
        checked_fields(self)
        _check_adaptation(self.sigma_adaptation, self.sigma, self.shaping)

    def hyperparameters(self) -> dict[str, Any]:
        """Return these fields alone, by name."""
        return {item.name: getattr(self, item.name) for item in fields(Hyperparameters)}


def _check_adaptation(kind: str, sigma: ScheduleSetting, shaping: str | ShapingFunction) -> None:
    """Raise ValueError for an adaptation that cannot work with these settings."""
    if kind == "none":
        return
    if callable(sigma) or isinstance(sigma, str):
        raise ValueError(
            f"sigma = {sigma!r} is a schedule, and sigma_adaptation = {kind!r} changes sigma as well: expected a number for "
            "sigma, or sigma_adaptation='none'"
        )
    if rule_of(shaping).within_pairs:
        raise ValueError(
            f"sigma_adaptation = {kind!r} compares pairs with each other, and shaping = {shaping!r} keeps only the "
            "difference within each: expected another shaping, or sigma_adaptation='none'"
        )
    if not _SMALLEST_SIGMA <= sigma <= _LARGEST_SIGMA:
        raise ValueError(
            f"sigma = {sigma!r} cannot be adapted (sigma_adaptation = {kind!r}): expected {_SMALLEST_SIGMA:g} to "
            f"{_LARGEST_SIGMA:g}"
        )


# --- names of other packages for ES -----------------------------------------------------------------------------------

# their name -> the name here
RENAMED = {
    **dict.fromkeys(("lr", "lrate", "lrate_init", "stepsize", "step_size", "center_learning_rate"), "learning_rate"),
    **dict.fromkeys(("std", "delta_std", "noise_std", "noise_stdev", "sigma_init", "stdev_init", "init_stdev"), "sigma"),
    **dict.fromkeys(("sigma0", "init_sigma", "init_std"), "sigma"),
    **dict.fromkeys(("stdev_learning_rate", "sigma_lr"), "sigma_learning_rate"),
    **dict.fromkeys(("popsize", "pop_size", "population", "num_population", "n_population"), "population_size"),
    **dict.fromkeys(("l2_coeff", "l2coeff", "l2_coefficient", "l2"), "weight_decay"),
    **dict.fromkeys(("ranking_method", "return_proc_mode", "fitness_shaping"), "shaping"),
    "clipup_max_speed": "max_speed",
}
# their name, without a counterpart here -> what to do instead
ANSWERS_OF_SEARCHES = {
    **dict.fromkeys(("mean", "x0", "center_init", "initial_solution"), "it is theta0 here, the first argument"),
    **dict.fromkeys(("num_dims", "n_dim", "n_dims", "dim", "solution_length"), "theta0, the first argument, has that length"),
    **dict.fromkeys(("bounds", "lower_bounds", "upper_bounds"), "there are none here: clip the candidates in your function"),
    "cov": "there is no covariance here; sigma_adaptation='per_parameter' learns a sigma for each parameter",
}


def make_hyperparameters(values: Mapping[str, Any]) -> Hyperparameters:
    """Return checked hyper-parameters; TypeError for an unknown name, with the closest known ones."""
    names = [item.name for item in fields(Hyperparameters)]
    for name in values:
        if name not in names:
            raise TypeError(f"unknown hyper-parameter {name!r}{_advice(name, names)}")
    return Hyperparameters(**values)


def _advice(name: str, names: list[str]) -> str:
    """Return the end of an error for an unknown name: what to write instead."""
    if name in RENAMED:
        return f": it is {RENAMED[name]} here"
    return (
        f": {ANSWERS_OF_SEARCHES[name]}" if name in ANSWERS_OF_SEARCHES else f": expected one of {names}{suggest(name, names)}"
    )
