"""The settings that a tuner may vary, as the parameters of a study: `fastes tune` and RL Zoo's `train -optimize` draw them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from fastes.es.fitness_shaping import rule_of
from fastes.setting_fields import Range, default_of, described
from fastes.settings.settings import Settings

_SMALL_CNN: dict[str, Any] = {"cnn": [[8, 8, 8]], "features_extractor_kwargs": {"features_dim": 16}}
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "linear": ("LinearPolicy", {"use_bias": True}),
    "unbiased": ("LinearPolicy", {}),
    "memory": ("MlpLstmPolicy", {"lstm_hidden_size": 8}),
    "16-16": ("MlpPolicy", {"net_arch": [16, 16]}),
    "32-32": ("MlpPolicy", {"net_arch": [32, 32]}),
    "64-64": ("MlpPolicy", {"net_arch": [64, 64]}),
    "cnn": ("CnnPolicy", {}),
    "small-cnn": ("CnnPolicy", _SMALL_CNN),
    "patches": ("CnnPolicy", {"cnn": [[16, 8, 8], [16, 3, 2]], "features_extractor_kwargs": {"features_dim": 32}}),
    "several-inputs": ("MultiInputPolicy", {}),
    "several-inputs-small": ("MultiInputPolicy", _SMALL_CNN),
}
_OF_KIND = {  # networks by recipes.kind_of; else all others
    "images": ["cnn", "small-cnn", "patches"],
    "images and values": ["several-inputs", "several-inputs-small"],
}
_ENDS = {"learning_rate": (1.0, 0.2, 0.1), "sigma": (1.0, 1 / 7)}  # last values of schedules over their first
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the environment's alive bonus that training subtracts
_PLAIN_MOMENTUM = {"sgd": 0.0}  # as ARS; 0.9 for the other optimisers
_DIGITS = 2  # of what is drawn, so that what was tried is what is written down
_ADAPTED = "sigma_adaptation"
_TRIED = {item.name: tried for item in fields(Settings) if (tried := described(item).tried) is not None}
_FIELDS = {item.name: item for item in fields(Settings)}
_UNADAPTED = default_of(_FIELDS[_ADAPTED])


class OptunaTrial(Protocol):
    """An optuna.Trial, as far as it draws."""

    def suggest_categorical(self, name: str, choices: Any) -> Any: ...
    def suggest_int(self, name: str, low: int, high: int, *, log: bool = ...) -> int: ...
    def suggest_float(self, name: str, low: float, high: float, *, log: bool = ...) -> float: ...


_Draw = Callable[[str, Any], Any]  # (name of a parameter, its range or choices) -> a value


@dataclass(frozen=True)
class SearchSpace:
    """The parameters of a study in one environment.

    Most are settings, with the values that their fields' `tried` names. Four are not: `network` is policy and policy_kwargs,
    `learning_rate_end` and `sigma_end` are a schedule's last value as a share of its first, `alive_bonus_share` is the alive
    bonus as a share of the environment's.

    Attributes:
        kind: The kind of the observations, as `recipes.kind_of` returns it.
        has_choices: Whether actions are Discrete or alike, and may be drawn.
        alive_bonus: The reward per step for being alive that the environment tells of; 0 for none.
        fixed: The user's settings, which no candidate changes.
    """

    kind: str = "values"
    has_choices: bool = False
    alive_bonus: float = 0.0
    fixed: Mapping[str, Any] = field(default_factory=dict)

    def draw(self, trial: OptunaTrial) -> dict[str, Any]:
        """Draw a candidate. trial: an optuna.Trial. Returns the parameters that the trial stores."""

        def suggest(name: str, tried: Any) -> Any:
            if not isinstance(tried, Range):
                return trial.suggest_categorical(name, list(tried))
            kinds = {type(tried.low), type(tried.high)}
            draw: Any = trial.suggest_int if kinds == {int} else trial.suggest_float
            return draw(name, tried.low, tried.high, log=tried.log)

        return self._walk(suggest)

    def params_of(self, settings: Settings) -> dict[str, Any]:
        """Return the parameters that are nearest to settings, those of recipes exactly."""
        return self._walk(lambda name, tried: _nearest(self._value_in(settings, name), tried))

    def settings_of(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings, `fixed` included, that stored parameters stand for. ValueError if these are refused."""
        found = {name: value for name, value in trained(params).items() if name in _FIELDS}
        if "network" in params:
            policy, policy_kwargs = NETWORKS[params["network"]]
            found |= {"policy": policy, "policy_kwargs": dict(policy_kwargs)}
        for name in _ENDS:
            if (end := params.get(f"{name}_end", 1.0)) != 1.0:
                found[name] = f"lin_{found[name]:g}_{_rounded(found[name] * end):g}"
        if "alive_bonus_share" in params:
            found["alive_bonus"] = params["alive_bonus_share"] * self.alive_bonus
        if "optimizer" in params:
            found["momentum"] = _PLAIN_MOMENTUM.get(params["optimizer"], default_of(_FIELDS["momentum"]))
        found |= self.fixed
        Settings().changed(**found)
        return found

    def _walk(self, value_of: _Draw) -> dict[str, Any]:
        """Return a value for each parameter that has an effect together with those before it."""
        params: dict[str, Any] = {}

        def setting(name: str) -> Any:
            return self.fixed.get(name, params.get(name, default_of(_FIELDS[name])))

        def take(name: str, tried: Any, has_effect: bool = True) -> None:
            if has_effect and name not in self.fixed:
                params[name] = value_of(name, tried)

        if networks := self._networks():
            take("network", networks)
        effects = self._effects(setting, params)
        for name in sorted(_TRIED, key=lambda name: name in effects):  # those that depend on others come last
            take(name, self._tried(name), name not in effects or effects[name]())
            if name in _ENDS and not (name == "sigma" and self._adapts):
                take(f"{name}_end", _ENDS[name], name not in self.fixed)
        take("alive_bonus_share", _SHARES, bool(self.alive_bonus) and "alive_bonus" not in self.fixed)
        return params

    @property
    def _adapts(self) -> bool:
        """Whether the user's settings adapt sigma, which then has no schedule, and needs a fitness that compares pairs."""
        return bool(self.fixed.get(_ADAPTED, _UNADAPTED) != _UNADAPTED)

    def _tried(self, name: str) -> Any:
        """Return the range or the choices of a setting that the user's settings allow."""
        tried: Any = _TRIED[name]
        if name == "shaping" and self._adapts:
            return tuple(each for each in tried if not rule_of(each).within_pairs)
        if name == "population_size" and (most := self.fixed.get("max_population_size", 0)):  # which has to be a multiple
            return tuple(each for each in range(tried.low, tried.high + 1, 2) if most % each == 0) or tried
        return tried

    def _effects(self, setting: Callable[[str], Any], params: Mapping[str, Any]) -> dict[str, Callable[[], bool]]:
        """Return the settings that have an effect, or are allowed, only together with some values of others."""

        def compares_pairs() -> bool:
            return not rule_of(setting("shaping")).within_pairs

        def falls(name: str) -> bool:
            return bool(params.get(f"{name}_end", 1.0) != 1.0)

        return {
            "top_fraction": compares_pairs,
            _ADAPTED: lambda: compares_pairs() and isinstance(setting("sigma"), (int, float)) and not falls("sigma"),
            "sample_actions": lambda: self.has_choices,
            "episode_cap_start": lambda: setting("episode_cap") != "none",
            "obs_clip": lambda: bool(setting("normalize_obs")),
        }

    def _networks(self) -> list[str]:
        """Return the names of the networks that the user's policy, or any, can have; [] if their keywords are the user's."""
        if "policy_kwargs" in self.fixed:
            return []
        wanted = self.fixed.get("policy")
        others = [name for name in NETWORKS if not any(name in names for names in _OF_KIND.values())]
        fit = _OF_KIND.get(self.kind, others)
        return [name for name in fit if wanted in (None, NETWORKS[name][0])]

    def _value_in(self, settings: Settings, name: str) -> Any:
        """Return the value of a parameter in settings; None if nothing is like it."""
        if name == "network":
            wanted = settings.policy, settings.policy_kwargs
            names = self._networks()
            exact = [each for each in names if NETWORKS[each] == wanted]
            alike = [each for each in names if NETWORKS[each][0] == settings.policy]
            return next(iter([*exact, *alike]), None)
        if (scheduled := name.removesuffix("_end")) in _ENDS and scheduled != name:
            value = getattr(settings, scheduled)
            first, *last = _numbers_of(value)
            if last:
                return last[-1] / first
            return 0.0 if isinstance(value, str) else 1.0  # a schedule of one number falls to zero
        if name == "alive_bonus_share":
            return _numbers_of(settings.alive_bonus)[0] / self.alive_bonus
        value = getattr(settings, name)
        return _numbers_of(value)[0] if isinstance(_TRIED[name], Range) else value


def _numbers_of(value: Any) -> list[float]:
    """Return the numbers of a schedule in a text, or a number itself; [1.0] for a function."""
    if isinstance(value, str):
        return [float(number) for number in re.findall(r"(?<=_)[^_]+", value)]
    return [1.0] if callable(value) else [value]


def _nearest(value: Any, tried: Any) -> Any:
    """Return the tried value that is nearest to a value, the first one if none is like it."""
    if isinstance(tried, Range):
        inside = min(max(value, tried.low), tried.high)
        return round(inside) if isinstance(tried.low, int) and isinstance(tried.high, int) else float(inside)
    if value in tried:
        return value
    numbers = isinstance(value, (int, float)) and all(isinstance(each, (int, float)) for each in tried)
    return min(tried, key=lambda each: abs(each - value)) if numbers else tried[0]


def trained(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored parameters as trainings have them: floats with two digits, and an even population."""
    found = {name: _rounded(value) for name, value in params.items()}
    if "population_size" in found:
        found["population_size"] += found["population_size"] % 2
    return found


def _rounded(value: Any) -> Any:
    """Return a float with two digits, anything else as it is."""
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) and math.isfinite(value) else value
