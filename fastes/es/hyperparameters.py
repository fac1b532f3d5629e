"""Settings that EvolutionStrategy has, too: the only list of its hyper-parameters, with a training's defaults and limits."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypedDict

from fastes.errors import check_int, suggest
from fastes.es.fitness_shaping import SHAPINGS
from fastes.es.optimizers import OPTIMIZERS
from fastes.es.schedules import ScheduleSetting, make_schedule
from fastes.es.setting_fields import checked, setting
from fastes.es.sigma_adaptation import ADAPTATIONS, LARGEST_RATE, check_adaptation

if sys.version_info >= (3, 11):
    from typing import Unpack as Unpack
else:
    from typing_extensions import Unpack as Unpack

# of sb3-contrib's ARS and of packages for ES -> the name here
OTHER_NAMES = {
    **dict.fromkeys(("lr", "lrate", "lrate_init", "stepsize", "step_size", "center_learning_rate"), "learning_rate"),
    **dict.fromkeys(("std", "delta_std", "noise_std", "noise_stdev", "sigma_init", "stdev_init", "init_stdev"), "sigma"),
    **dict.fromkeys(("sigma0", "init_sigma", "init_std"), "sigma"),
    **dict.fromkeys(("stdev_learning_rate", "sigma_lr"), "sigma_learning_rate"),
    **dict.fromkeys(("popsize", "pop_size", "population", "num_population", "n_population"), "population_size"),
    **dict.fromkeys(("l2_coeff", "l2coeff", "l2_coefficient", "l2"), "weight_decay"),
    **dict.fromkeys(("ranking_method", "return_proc_mode", "fitness_shaping"), "shaping"),
    "clipup_max_speed": "max_speed",
}
_OF_SEARCHES = {  # of EvolutionStrategy's peers, and what to do here
    **dict.fromkeys(("mean", "x0", "center_init", "initial_solution"), "it is theta0 here, the first argument"),
    **dict.fromkeys(("num_dims", "n_dim", "n_dims", "dim", "solution_length"), "theta0, the first argument, has that length"),
    **dict.fromkeys(("bounds", "lower_bounds", "upper_bounds"), "there are none here: clip the candidates in your function"),
    "cov": "there is no covariance here; sigma_adaptation='per_parameter' learns a sigma for each parameter",
}


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """What an EvolutionStrategy may be set to. Settings have these fields, and those of a training beside them.

    The defaults suit policies. EvolutionStrategy has its own of sigma, learning_rate and population_size, for short vectors.
    """

    population_size: int = setting(64, "candidates a generation; even, since they come in mirrored pairs", "evolution")
    sigma: ScheduleSetting = setting(
        0.05,
        "standard deviation of the noise on the parameters; a number or a schedule",
        "evolution",
    )
    sigma_adaptation: str = setting(
        "none",
        "none; scalar: one sigma that follows the returns (PGPE); per_parameter: one for each",
        "evolution",
        choices=ADAPTATIONS,
    )
    sigma_learning_rate: float = setting(
        0.1,
        "how fast sigma_adaptation goes; a sigma changes by at most 20 % a generation",
        "evolution",
        above=0.0,
        high=LARGEST_RATE,
    )
    learning_rate: ScheduleSetting = setting(
        0.02,
        "step size; a number or a schedule",
        "evolution",
    )
    optimizer: str = setting(
        "adam",
        "adam, sgd, or clipup (steps of one length, whatever the gradient's)",
        "evolution",
        choices=OPTIMIZERS,
    )
    momentum: float = setting(0.9, "momentum of sgd and clipup, beta1 of adam; in [0, 1)", "evolution", low=0.0, below=1.0)
    beta2: float = setting(0.999, "decay of adam's second moment; in [0, 1)", "evolution", low=0.0, below=1.0)
    max_speed: float = setting(
        0.0,
        "longest step of clipup, as a length in parameter space; 0: twice the learning rate",
        "evolution",
        low=0.0,
    )
    weight_decay: float = setting(0.0, "share of theta that is taken from the gradient", "evolution", low=0.0)
    shaping: str = setting(
        "centered_ranks",
        "centered_ranks (OpenAI-ES), standardized (ARS), nes, or signed_ranks (of differences within pairs)",
        "evolution",
        choices=SHAPINGS,
    )
    top_fraction: float = setting(
        1.0,
        "share of the pairs that count, those with the best candidates; in (0, 1]",
        "evolution",
        above=0.0,
        high=1.0,
    )
    perturbed_share: float = setting(
        1.0,
        "share of the parameters that each pair perturbs; in (0, 1]",
        "evolution",
        above=0.0,
        high=1.0,
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "population_size", check_population_size(self.population_size))
        make_schedule("sigma", self.sigma)
        make_schedule("learning_rate", self.learning_rate)
        for item in fields(self):
            plain = checked(item.name, getattr(self, item.name), item.type, item.metadata)
            object.__setattr__(self, item.name, plain)
        check_adaptation(self.sigma_adaptation, self.sigma, self.shaping)

    def hyperparameters(self) -> dict[str, Any]:
        """These fields alone, by name."""
        return {item.name: getattr(self, item.name) for item in fields(Hyperparameters)}


class MoreHyperparameters(TypedDict, total=False):
    """Those fields that EvolutionStrategy takes as keywords, for editors and type checkers; a test compares them."""

    sigma_adaptation: str
    sigma_learning_rate: float
    optimizer: str
    momentum: float
    beta2: float
    max_speed: float
    weight_decay: float
    shaping: str
    top_fraction: float
    perturbed_share: float


def make_hyperparameters(values: Mapping[str, Any]) -> Hyperparameters:
    """TypeError for names that there are not, with the closest ones."""
    names = [item.name for item in fields(Hyperparameters)]
    for name in values:
        if name not in names:
            raise TypeError(f"unknown hyper-parameter {name!r}{_advice(name, names)}")
    return Hyperparameters(**values)


def _advice(name: str, names: list[str]) -> str:
    """What to write instead of a name that is none of the names."""
    if name in OTHER_NAMES:
        return f": it is {OTHER_NAMES[name]} here"
    return f": {_OF_SEARCHES[name]}" if name in _OF_SEARCHES else f": expected one of {names}{suggest(name, names)}"


def check_population_size(population_size: object) -> int:
    """An even int of at least 2, or an error that says so."""
    size = check_int("population_size", population_size, 2, 2**31 - 2)
    if size % 2:
        raise ValueError(f"population_size = {size} is odd: candidates come in mirrored pairs, use {size + 1}")
    return size
