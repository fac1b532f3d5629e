"""Short trainings that are the same bits on every machine, and the digests of what they end with."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Any

from exact_envs import Ball
from training import Result, train

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
