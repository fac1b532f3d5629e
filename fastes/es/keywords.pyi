"""Made by docs/scripts/make_keywords.py from the fields of the settings: do not edit."""

from typing import TypedDict

from typing_extensions import Unpack as Unpack

class MoreHyperparameters(TypedDict, total=False):
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
