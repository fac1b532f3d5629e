"""Settings that EvolutionStrategy has, too: the only list of its hyper-parameters, with a training's defaults and limits."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypedDict

from fastes.errors import check_int, suggest
from fastes.es.fitness_shaping import SHAPINGS
from fastes.es.optimizers import OPTIMIZERS
from fastes.es.schedules import FORMS, ScheduleSetting, make_schedule
from fastes.es.setting_fields import checked, setting
from fastes.es.sigma_adaptation import ADAPTATIONS, LARGEST_RATE, check_adaptation

if sys.version_info >= (3, 11):
    from typing import Unpack as Unpack
else:
    from typing_extensions import Unpack as Unpack


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """What an EvolutionStrategy may be set to. Settings have these fields, and those of a training beside them.

    The defaults suit policies. EvolutionStrategy has its own of sigma, learning_rate and population_size, for short vectors.
    """

    population_size: int = setting(64, "candidates a generation, even: they come in mirrored pairs", "evolution")
    sigma: ScheduleSetting = setting(
        0.05,
        f"standard deviation of the noise on the parameters: {FORMS}. Let wide noise fall where a narrow search keeps the "
        "first gait that it finds, as in lin_0.06_0.02",
        "evolution",
    )
    sigma_adaptation: str = setting(
        "none",
        "none; scalar (one sigma, which follows the returns as in PGPE) or per_parameter (one for each parameter). Try "
        "per_parameter when no single sigma suits all parameters, or when sigma cannot be tuned. sigma has to be a number "
        "then: it starts there, and stays within 0.01 and 10 times that",
        "evolution",
        choices=ADAPTATIONS,
    )
    sigma_learning_rate: float = setting(
        0.1,
        "how fast sigma_adaptation goes; a generation changes a sigma by 20 % at most. Start at 0.1, and lower it when sigma "
        "falls while returns still rise; scalar is the slower the more parameters there are. With standardized shaping, whose "
        "returns are three times as large, take a third. At most 1000",
        "evolution",
        above=0.0,
        high=LARGEST_RATE,
    )
    learning_rate: ScheduleSetting = setting(
        0.02,
        f"step size: {FORMS}. Let it fall to a fifth or a tenth where evaluations swing late in a training",
        "evolution",
    )
    optimizer: str = setting(
        "adam",
        "adam, sgd, or clipup (steps of one length, whatever the gradient's: learning_rate is then a length, to be set with "
        "max_speed; for steep or badly scaled returns)",
        "evolution",
        choices=OPTIMIZERS,
    )
    momentum: float = setting(0.9, "momentum of sgd and clipup, beta1 of adam, in [0, 1)", "evolution", low=0.0, below=1.0)
    beta2: float = setting(0.999, "decay of adam's second moment, in [0, 1)", "evolution", low=0.0, below=1.0)
    max_speed: float = setting(
        0.0,
        "longest step of clipup, the length of theta's change in a generation; 0: twice the learning rate, also along its "
        "schedule. Start with sigma * sqrt(number of parameters) / 15 and half of it as learning_rate",
        "evolution",
        low=0.0,
    )
    weight_decay: float = setting(0.0, "share of theta taken from the gradient", "evolution", low=0.0)
    shaping: str = setting(
        "centered_ranks",
        "centered_ranks (OpenAI-ES), standardized (ARS: returns over their std), nes (ranks of which the better half counts, "
        "the best most; try it with 50 candidates or more where few of them are much better; with sgd, start with a fifth of "
        "the learning rate) or signed_ranks (ranks of the differences within the mirrored pairs, whose episodes begin alike; "
        "try it where a return depends more on the start or the goal than on the policy, with top_fraction 1 and without "
        "sigma_adaptation)",
        "evolution",
        choices=SHAPINGS,
    )
    top_fraction: float = setting(
        1.0,
        "share of the pairs that count, those with the best candidate (ARS: b/N), in (0, 1]",
        "evolution",
        above=0.0,
        high=1.0,
    )
    perturbed_share: float = setting(
        1.0,
        "share of the parameters that each pair perturbs, a window of them that it draws, in (0, 1]; less reads less of the "
        "noise table. Leave it at 1 for small policies; try 0.1 to 0.5 with a million parameters and many workers, as the "
        "paper of OpenAI-ES suggests",
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
            raise TypeError(f"unknown hyper-parameter {name!r}: expected one of {names}{suggest(name, names)}")
    return Hyperparameters(**values)


def check_population_size(population_size: object) -> int:
    """An even int of at least 2, or an error that says so."""
    size = check_int("population_size", population_size, 2, 2**31 - 2)
    if size % 2:
        raise ValueError(f"population_size = {size} is odd: candidates come in mirrored pairs, use {size + 1}")
    return size
