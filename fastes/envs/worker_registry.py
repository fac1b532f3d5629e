"""What this process has registered in Gymnasium, for its workers."""

from __future__ import annotations

import contextlib
import copy
import pickle
import sys
import warnings

import cloudpickle
import gymnasium
from gymnasium.envs.registration import EnvSpec

from fastes.envs.given.classes import is_found_anew, send_by_value


def portable(spec: EnvSpec) -> EnvSpec:
    """The spec, with its class in place of a name that only this process knows."""
    module, _, name = spec.entry_point.partition(":") if isinstance(spec.entry_point, str) else ("", "", "")
    if module not in sys.modules or (module != "__main__" and is_found_anew(module)):
        return spec
    if (found := getattr(sys.modules[module], name, None)) is None:
        return spec
    send_by_value([found])
    spec = copy.copy(spec)
    spec.entry_point = found
    return spec


def own_registrations() -> bytes:
    """What this process has registered in Gymnasium beside Gymnasium's own, pickled; what cannot be pickled stays out."""
    specs = {}
    for env_id, spec in gymnasium.registry.items():
        if str(spec.entry_point).startswith("gymnasium.") or str(spec.vector_entry_point).startswith("gymnasium."):
            continue
        try:
            specs[env_id] = cloudpickle.dumps(portable(spec))
        except Exception:
            continue
    return pickle.dumps(specs)


def register(registrations: bytes) -> None:
    """Register in a worker what `own_registrations` found in its parent; what cannot be loaded there stays out.

    Modules that register the same when they are imported are not warned of, as each worker would print it.
    """
    warnings.filterwarnings("ignore", r".*Overriding environment .* already in registry")
    for env_id, pickled in pickle.loads(registrations).items():
        with contextlib.suppress(Exception):
            gymnasium.registry[env_id] = cloudpickle.loads(pickled)
