"""Risk: another processor, compiler or NumPy gives other bits. Digests of trainings are stored here, made on x86-64.

A training's bits follow from its environment's, so this one computes with what IEEE 754 defines alone. wheels/aarch64.py runs
the same tests on arm64. A digest changes when the random streams, a kernel's arithmetic or what a setting does is changed on
purpose: then for all processors.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Any

import pytest
from exact_envs import Ball
from training import Result, assert_same, train

from fastes import _core

GENERATIONS = 4
ARCHITECTURE = {"net_arch": [9, 6]}
PICTURE = {"cnn": [[5, 3, 2], [6, 3, 1]], "net_arch": [7]}

CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "mlp": (
        Ball,
        {"policy_kwargs": ARCHITECTURE, "action_noise": 0.1, "weight_decay": 0.005, "learning_rate": "exp_0.05_0.01"},
    ),
    "squash": (
        Ball,
        {
            "policy_kwargs": {**ARCHITECTURE, "activation_fn": "elu", "action_mapping": "squash"},
            "optimizer": "clipup",
            "sigma_adaptation": "per_parameter",
            "perturbed_fraction": 0.5,
        },
    ),
    "bins": (
        Ball,
        {
            "policy_kwargs": {**ARCHITECTURE, "activation_fn": "relu", "action_mapping": "bins", "num_bins": 5},
            "shaping": "nes",
        },
    ),
    "linear": (
        partial(Ball, "binary"),
        {"policy": "LinearPolicy", "optimizer": "sgd", "shaping": "standardized", "top_fraction": 0.5, "sample_actions": True},
    ),
    "lstm": (
        partial(Ball, "discrete"),
        {"policy": "MlpLstmPolicy", "policy_kwargs": {"lstm_hidden_size": 5, "net_arch": [6]}, "sample_actions": True},
    ),
    "gru": (Ball, {"policy": "MlpLstmPolicy", "policy_kwargs": {"lstm_hidden_size": 5, "cell": "gru", "net_arch": [6]}}),
    "cnn": (
        partial(Ball, "discrete", image=True),
        {"policy": "CnnPolicy", "policy_kwargs": {**PICTURE, "batch_norm": "virtual"}, "shaping": "signed_ranks"},
    ),
}
DIGESTS = {
    "mlp": "21c19c8eec8537d6",
    "squash": "c801b53848f3c79f",
    "bins": "4b215547d323b1bd",
    "linear": "edd4f0d2b4220dca",
    "lstm": "e598b5f44f9b1ccc",
    "gru": "4bf7e829513f4704",
    "cnn": "fd196dcd0df1c0e4",
}
FIXED = {"population_size": 8, "episodes_per_candidate": 2, "sigma": 0.1, "eval_episodes": 2}


def trained(case: str, n_workers: int) -> Result:
    env, settings = CASES[case]
    return train(env, GENERATIONS, n_workers, **{**FIXED, **settings})


def digest_of(result: Result) -> str:
    """The beginning of a SHA-256 of every array of the training's state, and of what it says of its generations."""
    found = hashlib.sha256()
    for (group, name), array in sorted(grouped(result).items()):
        found.update(f"{group} {name} {array.dtype.name} {array.shape}".encode())
        found.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
    for record in result.records:
        found.update(" ".join(value.hex() for value in (record.return_mean, record.eval_return, record.theta_norm)).encode())
    return found.hexdigest()[:16]


def grouped(result: Result) -> dict[tuple[str, str], Any]:
    """The arrays by (group, name) as the digests name them: of a group of its own are pending evaluations, statistics, ..."""
    arrays = {("reference", name): array for name, array in result.state.arrays.get("reference", {}).items()}
    for name, array in result.state.arrays["trainings"].items():
        own = name.removeprefix("0.")
        group, _, rest = own.partition(".")
        if group in ("pending", "normalizer"):
            arrays[group, rest] = array
        else:
            arrays["theta" if own == "theta" else "optimizer", own] = array
    return arrays


@pytest.mark.parametrize("name", _core.available_variants())
@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("kernels")
def test_a_training_has_its_digest(case: str, name: str) -> None:
    _core.use_variant(name)
    result = trained(case, 0)
    assert len(result.records) == GENERATIONS
    assert digest_of(result) == DIGESTS[case]


@pytest.mark.parametrize("n_workers", [1, 2])
def test_workers_change_no_bit_of_it(n_workers: int) -> None:
    result = trained("mlp", n_workers)
    assert digest_of(result) == DIGESTS["mlp"]
    assert_same(trained("mlp", 0), result)
