"""What `train -optimize` draws with Optuna, and the settings that a draw stands for."""

from __future__ import annotations

from typing import Any

_NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "linear": ("LinearPolicy", {}),
    "tiny": ("MlpPolicy", {"net_arch": [16, 16]}),
    "small": ("MlpPolicy", {"net_arch": [32, 32]}),
    "medium": ("MlpPolicy", {"net_arch": [64, 64]}),
}
# OpenAI-ES and ARS: both steps need their own learning rates, which one range covers
_METHODS: dict[str, dict[str, Any]] = {
    "openai_es": {"shaping": "centered_ranks", "optimizer": "adam", "momentum": 0.9},
    "ars": {"shaping": "standardized", "optimizer": "sgd", "momentum": 0.0},
}


def sample(trial: Any, n_actions: int, n_envs: int, additional_args: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001
    """Settings of one trial, by the Zoo's signature of a sampler; trial: optuna.Trial."""
    return convert({"method": trial.suggest_categorical("method", list(_METHODS)), **draw_common(trial)})


def draw_common(trial: Any) -> dict[str, Any]:
    """What has to be found whatever the method is; benchmarks/learning/tune.py searches it, too."""
    return {
        "network": trial.suggest_categorical("network", list(_NETWORKS)),
        "population_size_pow": trial.suggest_int("population_size_pow", 3, 7),
        "top_fraction": trial.suggest_float("top_fraction", 0.1, 1.0),
        "sigma": trial.suggest_float("sigma", 0.01, 1.0, log=True),
        "learning_rate": trial.suggest_float("learning_rate", 0.003, 0.5, log=True),
    }


def convert(drawn: dict[str, Any]) -> dict[str, Any]:
    """Settings from what a study has stored of a trial; without a method these are those of the common part."""
    settings = dict(drawn)
    method = _METHODS[settings.pop("method")] if "method" in settings else {}
    policy, policy_kwargs = _NETWORKS[settings.pop("network")]
    return {
        "policy": policy,
        "policy_kwargs": dict(policy_kwargs),
        "population_size": 2 ** settings.pop("population_size_pow"),
        **method,
        **settings,
    }
