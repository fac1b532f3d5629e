"""Which attributes the code of an environment may write while it is played, as its compiled methods say."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium

_ROOTS = ("reset", "step", "render", "close", "__call__", "__getattr__")
_BY_NAME = {"setattr", "delattr", "__dict__", "__setattr__", "vars", "exec", "eval"}  # these may write any attribute
_IN_PLACE = {
    *("append", "appendleft", "extend", "insert", "pop", "popleft", "remove", "clear", "update", "setdefault", "popitem"),
    *("add", "discard", "sort", "reverse", "rotate", "fill", "put", "copyto", "shuffle", "resize", "next"),
    *("heappush", "heappop"),
}


@dataclass(frozen=True)
class WrittenNames:
    """What methods write that `reset`, `step`, `render` or `close` may call.

    assigned: names of attributes that are assigned or deleted.
    filled: names of attributes that are mentioned where something is changed in place: items that are set, a method that
        changes what it belongs to, a function that changes what it is given.
    any: whether attributes are written in ways that show no name.
    """

    assigned: frozenset[str]
    filled: frozenset[str]
    any: bool


def written_names(kinds: Collection[type]) -> WrittenNames:
    """Of the methods of these classes and of those that they inherit from. A method is called if its name is mentioned."""
    members: dict[str, list[types.CodeType]] = {}
    compiled = False
    for base in dict.fromkeys(base for kind in kinds for base in kind.__mro__):
        for name, member in vars(base).items():
            compiled |= issubclass(base, gymnasium.Env) and type(member).__name__ == "cython_function_or_method"
            for function in _functions(member):
                members.setdefault(name, []).append(function.__code__)
                for other, value in function.__globals__.items() if name in _ROOTS else ():
                    if isinstance(value, types.FunctionType):
                        members.setdefault(other, []).append(value.__code__)
    todo, seen = [*_ROOTS], set(_ROOTS)
    assigned, filled, by_name = set[str](), set[str](), compiled
    while todo:
        for code in members.get(todo.pop(), ()):
            mentioned, stored, fills = _in_code(code)
            assigned |= stored
            if fills or any(_fills_argument(other) for name in mentioned for other in members.get(name, ())):
                filled |= mentioned
            by_name |= not mentioned.isdisjoint(_BY_NAME)
            todo.extend(mentioned - seen)
            seen |= mentioned
    return WrittenNames(frozenset(assigned), frozenset(filled), by_name)


def _fills_argument(code: types.CodeType) -> bool:
    """Whether it may change what it is given in place, self aside."""
    return code.co_argcount > (code.co_varnames[:1] == ("self",)) and _in_code(code)[2]


def _functions(member: Any) -> Iterator[types.FunctionType]:
    inner = [member.fget, member.fset, member.fdel] if isinstance(member, property) else [getattr(member, "__func__", member)]
    for function in inner:
        while isinstance(function, types.FunctionType):
            yield function
            function = getattr(function, "__wrapped__", None)


@functools.cache
def _in_code(code: types.CodeType) -> tuple[frozenset[str], frozenset[str], bool]:
    """Names that are mentioned, attributes that are stored, and whether anything is changed in place."""
    mentioned, stored, fills = set[str](), set[str](), False
    todo = [code]
    while todo:
        code = todo.pop()
        mentioned.update(code.co_names)
        todo.extend(part for part in code.co_consts if isinstance(part, types.CodeType))
        for instruction in dis.get_instructions(code):
            if instruction.opname in ("STORE_ATTR", "DELETE_ATTR"):
                stored.add(instruction.argval)
            fills |= instruction.opname in ("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE")
        fills |= any(isinstance(part, tuple) and "out" in part for part in code.co_consts)  # a keyword of NumPy's
    fills |= any(name.endswith("_") and not name.startswith("_") for name in mentioned)  # as torch names methods
    return frozenset(mentioned), frozenset(stored), fills or not mentioned.isdisjoint(_IN_PLACE)
