"""Classes and registered ids of this process that a worker would not get by importing the same modules.

A worker imports a class from its file. It would lack the methods and values that were replaced on the class here, and it finds
no module that only this process knows: one that was made in memory, or loaded from a file outside sys.path. Nor does it know
the ids that a script has registered in Gymnasium.
"""

from __future__ import annotations

import contextlib
import copy
import enum
import functools
import importlib
import os
import pickle
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from fastes.envs.likeness import same
from fastes.errors import warn_user

_PLAIN = (type(None), bool, int, float, complex, str, bytes, enum.Enum, np.generic, np.ndarray, gymnasium.Space)


@dataclass(frozen=True)
class ClassState:
    """Members of this process's classes that an import might not give.

    Attributes:
        members: (module, name of the class) -> name of a member -> the member, pickled.
        made_in: Id of this process, in which `apply` does nothing.
    """

    members: dict[tuple[str, str], dict[str, bytes]]
    made_in: int = field(default_factory=os.getpid)

    def apply(self, imports: bool = True) -> bool:
        """Set the members that differ on the classes of another process. Return whether any did.

        Args:
            imports: Whether to import modules that are not imported yet.
        """
        if os.getpid() == self.made_in:
            return False
        found = False
        for (module, name), members in self.members.items():
            if imports or module in sys.modules:
                with contextlib.suppress(ImportError, AttributeError):  # building the environment says more
                    found |= _give(_named(importlib.import_module(module), name), members)
        return found


def state_of_classes(kinds: Iterable[Any]) -> ClassState | None:
    """Return the members that other processes might lack of these classes and their bases; None if there are none."""
    members: dict[tuple[str, str], dict[str, bytes]] = {}
    for kind in _with_bases(kinds):
        found = {name: content for name, member in vars(kind).items() if (content := _pickled(kind, name, member))}
        if found:
            members[kind.__module__, kind.__qualname__] = found
    return ClassState(members) if members else None


def loaded_env_classes(kind: Any = gymnasium.Env) -> Iterator[Any]:
    """Yield the classes of environments and wrappers that this process has imported, without Gymnasium's own."""
    for sub in kind.__subclasses__():
        if not sub.__module__.startswith("gymnasium."):
            yield sub
        yield from loaded_env_classes(sub)


def is_found_anew(module: str) -> bool:
    """Return whether an interpreter with the same sys.path finds the module that this process has under that name."""
    known = sys.modules.get(module)
    root = module.partition(".")[0]
    if known is None or root == "__main__" or root in sys.stdlib_module_names or root in sys.builtin_module_names:
        return True
    package = module.rpartition(".")[0]
    path = getattr(sys.modules.get(package), "__path__", None) if package else None
    for finder in sys.meta_path:
        with contextlib.suppress(Exception):
            if (spec := finder.find_spec(module, path)) is not None:
                own = getattr(known, "__file__", None)
                return own is None or spec.origin is None or os.path.realpath(own) == os.path.realpath(spec.origin)
    return False


def send_by_value(kinds: Iterable[Any]) -> None:
    """Let cloudpickle send these classes and functions by value if other processes do not find their modules."""
    for module in {str(getattr(base, "__module__", "")) for kind in kinds for base in getattr(kind, "__mro__", (kind,))}:
        if module in sys.modules and not is_found_anew(module):
            cloudpickle.register_pickle_by_value(sys.modules[module])


def _with_bases(kinds: Iterable[Any]) -> list[type]:
    """Return classes and their bases that other processes import by name, each once."""
    bases = {base: None for kind in kinds if isinstance(kind, type) for base in kind.__mro__}
    is_found = functools.cache(is_found_anew)  # a module often has several classes
    return [base for base in bases if _is_imported(base, is_found)]


def _is_imported(kind: type, is_found: Callable[[str], bool]) -> bool:
    module = kind.__module__
    if module.partition(".")[0] in {"__main__", *sys.stdlib_module_names} or kind in (gymnasium.Env, gymnasium.Wrapper):
        return False
    with contextlib.suppress(AttributeError):
        return _named(sys.modules.get(module), kind.__qualname__) is kind and is_found(module)
    return False


def _named(module: Any, name: str) -> Any:
    for part in name.split("."):
        module = getattr(module, part)
    return module


def _pickled(kind: type, name: str, member: Any) -> bytes | None:
    """Return a member that an import might not give; None for one that it does give, or that cannot be pickled."""
    if isinstance(member, (types.FunctionType, staticmethod, classmethod, property)):
        member = _replaced(kind, name, member)
        if member is None:
            return None
    elif name.startswith(("__", "_abc_")) or not _is_plain(member):  # Python's own names
        return None
    try:
        return bytes(cloudpickle.dumps(member))
    except Exception as error:
        warn_user(
            f"{kind.__name__}.{name} does not look as the file of its class has it, and cannot be sent to workers ({error}): "
            "they have that of the file. If you have replaced it, do so in the function that builds the environment",
            UserWarning,
        )
    return None


def _is_plain(member: Any) -> bool:
    if type(member) in (list, tuple, set, frozenset):
        return all(map(_is_plain, member))
    if type(member) is dict:
        return all(map(_is_plain, (*member, *member.values())))
    return isinstance(member, _PLAIN)


def _replaced(kind: type, name: str, member: Any) -> Any:
    """Return a method that is not written in its class, in a form that is pickled by value; None for any other member."""
    if isinstance(member, (staticmethod, classmethod)):
        inner = _replaced(kind, name, member.__func__)
        return None if inner is None else type(member)(inner)
    if isinstance(member, property):
        fget, fset, fdel = (_replaced(kind, name, part) for part in (member.fget, member.fset, member.fdel))
        return property(fget or member.fget, fset or member.fset, fdel or member.fdel) if fget or fset or fdel else None
    if not isinstance(member, types.FunctionType):
        return None
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if member.__code__.co_filename == file and member.__qualname__ == f"{kind.__qualname__}.{name}":
        return None
    with contextlib.suppress(AttributeError):
        found = _named(sys.modules.get(member.__module__), member.__qualname__)
        own_name = member.__module__ == kind.__module__ and member.__qualname__.startswith(f"{kind.__qualname__}.")
        if found is member and not own_name:
            return member
    closure = member.__closure__
    clone = types.FunctionType(member.__code__, member.__globals__, member.__name__, member.__defaults__, closure)
    clone.__kwdefaults__, clone.__qualname__, clone.__module__ = member.__kwdefaults__, member.__qualname__, member.__module__
    vars(clone).update(vars(member))
    return clone


def _give(kind: Any, members: dict[str, bytes]) -> bool:
    found = False
    for name, content in members.items():
        member = cloudpickle.loads(content)
        if name not in vars(kind) or not same(vars(kind)[name], member):
            setattr(kind, name, member)
            found = True
    return found


# --- ids in Gymnasium's registry ------------------------------------------------------------------------------------


def portable(spec: EnvSpec) -> EnvSpec:
    """Return a spec with the class itself as entry point if other processes cannot import it by name."""
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
    """Return, pickled, the specs that are registered in this process without Gymnasium's own; those that can be pickled."""
    specs = {}
    for env_id, spec in gymnasium.registry.items():
        if str(spec.entry_point).startswith("gymnasium.") or str(spec.vector_entry_point).startswith("gymnasium."):
            continue
        with contextlib.suppress(Exception):
            specs[env_id] = cloudpickle.dumps(portable(spec))
    return pickle.dumps(specs)


def register(registrations: bytes) -> None:
    """Register in a worker what `own_registrations` of its parent has returned, as far as it can be loaded there.

    A module that registers the same id when it is imported causes no warning: every worker would print it.
    """
    warnings.filterwarnings("ignore", r".*Overriding environment .* already in registry")
    for env_id, pickled in pickle.loads(registrations).items():
        with contextlib.suppress(Exception):
            gymnasium.registry[env_id] = cloudpickle.loads(pickled)
