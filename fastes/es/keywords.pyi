"""Made by docs/scripts/make_keywords.py from the fields of the settings: do not edit."""

from typing import TypedDict

from typing_extensions import Unpack as Unpack

from fastes.es.fitness_shaping import ShapingFunction
from fastes.es.optimizers import OptimizerFactory

class MoreHyperparameters(TypedDict, total=False):
    sigma_adaptation: str
    sigma_learning_rate: float
    optimizer: str | OptimizerFactory
    momentum: float
    beta2: float
    max_speed: float
    weight_decay: float
    shaping: str | ShapingFunction
    top_fraction: float
    perturbed_fraction: float
