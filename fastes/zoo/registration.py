"""Where the Zoo, which has no plugins, keeps its algorithms: FastES is put there."""

from __future__ import annotations

from rl_zoo3 import exp_manager
from rl_zoo3.hyperparams_opt import HYPERPARAMS_CONVERTER, HYPERPARAMS_SAMPLER
from rl_zoo3.utils import ALGOS

from fastes.zoo.algorithm import FastES
from fastes.zoo.environments import remembering
from fastes.zoo.search_space import convert, sample


def register(name: str) -> None:
    """Make `name` an algorithm of the Zoo in this process: to train, load, and tune.

    The tables are changed in place, since modules of the Zoo have imported them by name.
    """
    if name in ALGOS:
        return
    ALGOS[name] = FastES
    HYPERPARAMS_SAMPLER[name] = sample
    HYPERPARAMS_CONVERTER[name] = convert
    exp_manager.make_vec_env = remembering(exp_manager.make_vec_env)
