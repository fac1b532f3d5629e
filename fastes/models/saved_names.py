"""SB3's `exclude` and `include` of `save`: a checkpoint always holds the whole training, and what else is asked for."""

from __future__ import annotations

from collections.abc import Iterable

from fastes.settings.settings import setting_names

# fmt: off
_HELD = {
    "policy", "policy.optimizer", "policy_kwargs", "policy_class", "seed", "settings", "state", "strategy", "theta",
    "num_timesteps", "eval_timesteps", "num_episodes", "generation", "budget", "best_eval_return", "_n_updates", "_episode_num",
    "_total_timesteps", "normalizer",
}
_NEVER_HELD = {
    "env": "pass env= to load", "_vec_normalize_env": "model.get_vec_normalize_env().save(path) writes it",
    **dict.fromkeys(("logger", "_logger"), "call set_logger after load"),
    **dict.fromkeys(("ep_info_buffer", "ep_success_buffer"), "learn fills it anew"),
}
# fmt: on


def check_saved_names(exclude: Iterable[str] | None, include: Iterable[str] | None) -> tuple[set[str], set[str]]:
    """Both as sets, of which `include` wins.

    ValueError for what cannot be left out, and for what a checkpoint cannot hold; TypeError for what are no names.

    Other names stand for what SB3's algorithms have and FastES has not, and change nothing.
    """
    held = _HELD | set(setting_names())
    left, wanted = set(_names("exclude", exclude)), set(_names("include", include))
    for name in sorted(left):
        if name in held:
            raise ValueError(
                f"save(exclude=[{name!r}]): a checkpoint always holds the whole training, and {name!r} is a part of it; leave "
                "it out of exclude. model.get_parameters() are the parameters alone"
            )
    for name in sorted(wanted):
        if name in _NEVER_HELD:
            raise ValueError(f"save(include=[{name!r}]): a checkpoint cannot hold {name!r}; {_NEVER_HELD[name]}")
    return left - wanted, wanted


def _names(argument: str, names: Iterable[str] | None) -> list[str]:
    if names is None:
        return []
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise TypeError(f"save({argument}={names!r}): expected a list of names, as in {argument}=['replay_buffer']")
    found = list(names)
    if odd := [name for name in found if not isinstance(name, str)]:
        raise TypeError(f"save({argument}=...) got {odd[0]!r}, a {type(odd[0]).__name__}: expected names of attributes")
    return found
