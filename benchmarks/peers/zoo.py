"""Tuned settings of the peers, from RL Zoo's files (zoo.toml), or the library's defaults where Zoo has none."""

from __future__ import annotations

import copy
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fastes.settings.preset_loader import tomllib

PEERS = ("ppo", "trpo", "ars", "a2c")
DEFAULT_POLICY = {"ars": "LinearPolicy"}  # 'MlpPolicy' for the others


class PeerSettings(NamedTuple):
    """A peer's settings for an environment.

    arguments: of the algorithm's class, as TOML has them.
    normalize: arguments of VecNormalize, None for none.
    source: where they come from, in words.
    """

    policy: str
    n_envs: int
    normalize: dict[str, Any] | None
    arguments: dict[str, Any]
    source: str


@cache
def zoo() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((Path(__file__).parent / "zoo.toml").read_text(encoding="utf-8"))
    return found


def task_of(env: str) -> str:
    """An environment id without namespace and version, as zoo.toml names tasks."""
    return re.sub(r"-v\d+$", "", env.rpartition("/")[2])


def settings_for(algo: str, env: str) -> PeerSettings:
    """The settings of a peer for an environment id of any version. Raises ValueError for an unknown algorithm."""
    if algo not in PEERS:
        raise ValueError(f"{algo!r} is no peer: expected one of {PEERS}")
    found = copy.deepcopy(zoo()[algo].get(task_of(env), {}))
    name, policy = found.pop("id", None), found.pop("policy", DEFAULT_POLICY.get(algo, "MlpPolicy"))
    n_envs, normalize = found.pop("n_envs", 1), found.pop("normalize", None)
    if normalize is not None:
        normalize = {} if normalize is True else normalize
        if "gamma" in found:
            normalize["gamma"] = found["gamma"]  # as Zoo does
    source = f"Zoo's {name}" if name else "the library's defaults: Zoo has no settings for it"
    return PeerSettings(policy, n_envs, normalize, found, source)


def shortened(algo: str, settings: PeerSettings, cores: int) -> PeerSettings:
    """The same work for each step in shorter cycles, so that the speed can be measured in seconds."""
    arguments = dict(settings.arguments)
    if algo == "ars":
        arguments["n_delta"] = min(arguments.get("n_delta", 8), 2 * cores)
        if "n_top" in arguments:
            arguments["n_top"] = min(arguments["n_top"], arguments["n_delta"])
    elif algo in ("ppo", "trpo"):
        batch = arguments.get("batch_size", 64 if algo == "ppo" else 128)
        arguments["n_steps"] = min(arguments.get("n_steps", 2048), max(1024, batch) // settings.n_envs or 1)
    return settings._replace(arguments=arguments)
