"""Compare two objects part by part: `==` of an unknown object may return an array, lie, or raise.

An object is laid out as the parts that it holds: way -> content. Contents compare by type and value. Classes, modules and
built-in functions are the same only if they are identical; of an object without visible parts (a lock, a file, a generator)
only the type counts.
"""

from __future__ import annotations

import collections
import enum
import functools
import hashlib
import pathlib
import random
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gymnasium
import numpy as np

PLAIN = (type(None), bool, int, float, complex, str, bytes, bytearray, range, slice, type(...), type(NotImplemented))
_ONE = (type, types.ModuleType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, np.ufunc)
_DRAWING = ("pygame", "pyglet", "glfw", "OpenGL", "gymnasium.envs.mujoco.mujoco_rendering")  # windows, screens, clocks
_FOREIGN_DEPTH = 3  # objects of C++ within each other
_SHOWN = 60  # characters
_SHOWN_VALUES = 6  # of an array
# of MuJoCo's MjData; everything else follows from these, or is memory that was not written to
_MUJOCO_STATE = {
    *("time", "qpos", "qvel", "act", "ctrl", "qacc_warmstart", "qfrc_applied", "xfrc_applied"),
    *("eq_active", "mocap_pos", "mocap_quat", "userdata", "plugin_state"),
}


class Step(NamedTuple):
    """A step from an object to one of its parts.

    Attributes:
        kind: 'layer' of an environment, 'attribute', 'item' of a dict or list, 'index' of a tuple; 'part' for parts that cannot
            be reached from the object.
        key: The layer's index, the attribute's name, or the key.
    """

    kind: str
    key: Any

    def __str__(self) -> str:
        return {"layer": "", "attribute": f".{self.key}", "part": ""}.get(self.kind, f"[{self.key!r}]")


Way = tuple[Step, ...]


class Content(NamedTuple):
    """The object at the end of a way, without its parts, which have ways of their own.

    Attributes:
        kind: Its type, compared by identity.
        value: Plain values by which objects of that type differ.
        shown: Its text in messages.
    """

    kind: Identity
    value: Any
    shown: str

    def same_as(self, other: Content | None) -> bool:
        """Return whether both have the same type and value."""
        return other is not None and self[:2] == other[:2]


class Identity:
    """An object that equals itself alone."""

    def __init__(self, thing: object) -> None:
        self.thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.thing is other.thing

    def __hash__(self) -> int:
        return id(self.thing)


@dataclass
class Layout:
    """The parts of an object.

    Attributes:
        contents: Way -> content.
        ways: Id of each part that may change -> the first way to it.
        kept: These parts, so that they stay alive while their ids are in use.
    """

    contents: dict[Way, Content] = field(default_factory=dict)
    ways: dict[int, Way] = field(default_factory=dict)
    kept: list[Any] = field(default_factory=list)


def same(one: object, other: object) -> bool:
    """Return whether two objects have the same parts."""
    if one is other:
        return True
    return not ways_that_differ(layout(one), layout(other))


def alike(one: object, other: object) -> bool:
    """Return whether two spaces have the same parts or are equal: some spaces keep computed values."""
    if same(one, other):
        return True
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:
        return False


def described(value: Any) -> str:
    """Return an argument in a few words: plain values as Python writes them."""
    if type(value) in PLAIN:
        return repr(value)
    if type(value) is dict:
        return "{" + ", ".join(f"{described(key)}: {described(part)}" for key, part in value.items()) + "}"
    if type(value) in (list, tuple):
        inner = ", ".join(map(described, value))
        return f"[{inner}]" if type(value) is list else f"({inner}{',' * (len(value) == 1)})"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType, type)):
        return f"the {'class' if isinstance(value, type) else 'function'} {value.__name__}"
    if isinstance(value, (enum.Enum, np.generic, pathlib.PurePath)):
        return repr(value)
    kind = type(value).__name__
    return f"a{'n' * (kind[:1].upper() in 'AEIO')} {kind}"


def ways_that_differ(one: Layout, other: Layout) -> list[Way]:
    """Return the ways to parts that differ or are not in both, shortest first; a part of such a part is left out."""
    mine, theirs = one.contents, other.contents
    differing = [way for way, content in mine.items() if not content.same_as(theirs.get(way))]
    differing += [way for way in theirs if way not in mine]
    found: dict[Way, None] = {}
    for way in sorted(differing, key=len):
        if not any(way[:end] in found for end in range(len(way))):
            found[way] = None
    return list(found)


def shown_at(contents: Mapping[Way, Content], way: Way) -> str:
    """Return the text in messages of the part at the end of a way."""
    return contents[way].shown if way in contents else "missing"


def layout(thing: Any) -> Layout:
    """Return the parts of an object, to any depth."""
    found = Layout()
    _lay_out(found, [((), thing, 0)])
    return found


def layout_of_layers(layers: Sequence[Any], is_left_out: Callable[[Any, str], bool], places: Mapping[int, int]) -> Layout:
    """Return the parts of an environment's layers.

    Args:
        layers: Layers that count, from the inside out.
        is_left_out: Whether an attribute of a layer does not count.
        places: Id of any layer -> index of the layer that stands for it.
    """
    found = Layout()
    found.ways.update({number: (Step("layer", place),) for number, place in places.items()})
    for index, layer in enumerate(layers):
        way = (Step("layer", index),)
        found.contents[way] = _content(layer)
        counted = [(name, value) for name, value in _attributes(layer) if not is_left_out(layer, name)]
        _lay_out(found, [((*way, Step("attribute", name)), value, 0) for name, value in counted])
    return found


def _lay_out(found: Layout, todo: list[tuple[Way, Any, int]]) -> None:
    """Add parts and their parts. todo: ways, parts, and the number of foreign objects around each."""
    todo.reverse()
    while todo:
        way, thing, foreign = todo.pop()
        known = found.ways.get(id(thing))
        if known is not None:
            found.contents[way] = Content(Identity(Layout), known, f"the same as {in_words(known)}")
            continue
        found.contents[way] = _content(thing)
        if _is_opaque(thing):
            continue
        if not isinstance(thing, (tuple, frozenset)):
            found.ways[id(thing)] = way
            found.kept.append(thing)
        foreign += _is_foreign(thing)
        if foreign > _FOREIGN_DEPTH:
            continue
        todo.extend(reversed([((*way, step), part, foreign) for step, part in _parts(thing)]))


def _content(thing: Any) -> Content:
    kind = type(thing)
    shown = described(thing) if not isinstance(thing, (dict, list, tuple)) else f"a {kind.__name__} of {len(thing)}"
    value: Any = None
    if kind in PLAIN:
        value = repr(thing)
    elif isinstance(thing, (*_ONE, enum.Enum)):
        value = Identity(thing)
    elif isinstance(thing, np.ndarray):
        value = (str(thing.dtype), thing.shape, None if thing.dtype.hasobject else _digest(thing.tobytes()))
        shown = str(thing.tolist()) if thing.size <= _SHOWN_VALUES else shown
    elif isinstance(thing, (np.generic, np.dtype)):
        value = repr(thing) if isinstance(thing, np.dtype) else (str(thing.dtype), thing.tobytes())
    elif isinstance(thing, pathlib.PurePath):
        value = str(thing)
    elif isinstance(thing, types.CodeType):
        value = thing
    elif _is_tensor(thing):
        value = _tensor_value(thing)
    elif isinstance(thing, dict):
        value = tuple(map(_key, thing))
    elif isinstance(thing, (list, tuple, collections.deque)):
        value = len(thing)
        if _is_flat(thing):
            value = shown = repr(thing)
    elif isinstance(thing, (set, frozenset)):
        value = tuple(sorted(map(str, map(_key, thing))))
    return Content(Identity(kind), value, shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "...")


def _is_flat(thing: Any) -> bool:
    """Return whether a list or tuple has only plain values, or tuples of them: they are part of its content then."""
    return type(thing) in (list, tuple) and all(
        type(part) in PLAIN or (type(part) is tuple and _is_flat(part)) for part in thing
    )


def _key(key: Any) -> Any:
    """Return a key or an item of a set as a plain value."""
    if isinstance(key, tuple):
        return tuple(map(_key, key))
    return (type(key).__name__, repr(key)) if type(key) in PLAIN or isinstance(key, enum.Enum) else type(key).__name__


def _is_opaque(thing: Any) -> bool:
    """Return whether an object has no parts of its own."""
    if type(thing) in PLAIN or isinstance(thing, (*_ONE, enum.Enum, np.generic, np.dtype, pathlib.PurePath, types.CodeType)):
        return True
    return _is_tensor(thing) or draws(thing)


def draws(thing: Any) -> bool:
    """Return whether an object, or each in a container, belongs to a window or a screen."""
    parts = (thing.values() if type(thing) is dict else thing) if type(thing) in (list, tuple, dict) else [thing]
    return bool(parts) and all(_module(part).startswith(_DRAWING) for part in parts)


def _is_tensor(thing: Any) -> bool:
    return _module(thing).partition(".")[0] == "torch" and hasattr(thing, "detach") and hasattr(thing, "numpy")


def _module(thing: Any) -> str:
    """Return the module of an object's class; SWIG's have none."""
    return str(getattr(type(thing), "__module__", ""))


def _tensor_value(tensor: Any) -> Any:
    plain = tensor.detach().cpu()
    try:
        content = plain.numpy().tobytes()
    except TypeError:  # NumPy does not have the dtype
        content = repr(plain.tolist()).encode()
    return str(tensor.dtype), tuple(tensor.shape), bool(tensor.requires_grad), _digest(content)


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def _is_foreign(thing: Any) -> bool:
    """Return whether an object is one of C++, with parts as properties: of pybind11, as MuJoCo's, or SWIG, as Box2D's."""
    return type(type(thing)).__name__ == "pybind11_type" or _is_of_swig(thing)


def _is_of_swig(thing: Any) -> bool:
    return type(getattr(thing, "__dict__", {}).get("this")).__name__ == "SwigPyObject"


def _parts(thing: Any) -> Iterator[tuple[Step, Any]]:
    """Yield the parts of an object, one level down."""
    if isinstance(thing, np.ndarray):
        if thing.dtype.hasobject:
            yield from ((Step("part", index), part) for index, part in enumerate(thing.ravel().tolist()))
        return
    if isinstance(thing, types.FunctionType):
        yield from _parts_of_function(thing)
        return
    if isinstance(thing, types.MethodType):
        yield Step("part", "function"), thing.__func__
        yield Step("part", "object"), thing.__self__
        return
    if isinstance(thing, (property, staticmethod, classmethod)):
        names = ["fget", "fset", "fdel"] if isinstance(thing, property) else ["__func__"]
        yield from ((Step("part", name), getattr(thing, name)) for name in names)
        return
    if (state := _random_state(thing)) is not None:
        yield Step("part", "state"), state
        return
    yield from _items(thing)
    foreign, shows = _is_foreign(thing), False
    for name, value in _properties(thing) if foreign else _attributes(thing):
        shows = True
        if not (isinstance(thing, gymnasium.Space) and name == "_np_random"):
            yield Step("attribute", name), value
    if not shows and not isinstance(thing, (dict, list, tuple, set, frozenset, collections.deque)) and not foreign:
        yield from _reduced(thing)


def _items(thing: Any) -> Iterator[tuple[Step, Any]]:
    if isinstance(thing, dict):
        by_name = all(type(key) in PLAIN or isinstance(key, enum.Enum) for key in thing)
        for index, (key, value) in enumerate(thing.items()):
            yield (Step("item", key) if by_name else Step("part", index)), value
    elif isinstance(thing, (list, tuple)) and not _is_flat(thing):
        kind = "item" if isinstance(thing, list) else "index"
        yield from ((Step(kind, index), part) for index, part in enumerate(thing))
    elif isinstance(thing, collections.deque):
        yield from ((Step("part", index), part) for index, part in enumerate(thing))


def _parts_of_function(function: types.FunctionType) -> Iterator[tuple[Step, Any]]:
    yield Step("part", "code"), function.__code__
    for name in ("__defaults__", "__kwdefaults__", "__dict__"):
        yield Step("part", name), getattr(function, name)
    for index, cell in enumerate(function.__closure__ or ()):
        try:
            content = cell.cell_contents
        except ValueError:  # it is empty
            continue
        yield Step("part", index), content


def _random_state(thing: Any) -> Any:
    """Return the state of a random number generator; None for anything else."""
    if isinstance(thing, np.random.Generator):
        return thing.bit_generator.state
    if isinstance(thing, np.random.BitGenerator):
        return thing.state
    if isinstance(thing, np.random.RandomState):
        return thing.get_state(legacy=False)
    return thing.getstate() if isinstance(thing, random.Random) else None


def _attributes(thing: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of an instance with their names, including those in __slots__."""
    yield from sorted(dict(getattr(thing, "__dict__", {})).items(), key=lambda pair: str(pair[0]))
    for name in _slots(type(thing)):  # type: ignore[arg-type]
        try:
            yield name, object.__getattribute__(thing, name)
        except AttributeError:
            continue


@functools.cache
def _slots(kind: type) -> tuple[str, ...]:
    return tuple(
        name
        for base in kind.__mro__
        if "__slots__" in vars(base)
        for name, member in vars(base).items()
        if isinstance(member, types.MemberDescriptorType)
    )


def _attribute(thing: Any, name: str) -> Any:
    return vars(thing)[name] if name in getattr(thing, "__dict__", {}) else object.__getattribute__(thing, name)


def _properties(thing: Any) -> Iterator[tuple[str, Any]]:
    """Yield the properties of a foreign object that do not raise; of SWIG's objects only numbers and vectors.

    Bodies of Box2D lead to each other, each time by new Python objects.
    """
    names = {name for base in type(thing).__mro__ for name, member in vars(base).items() if isinstance(member, property)}
    if type(thing).__name__ == "MjData":
        names &= _MUJOCO_STATE
    for name in sorted(names):
        if name.startswith("_"):
            continue
        try:
            value = _property(thing, name)
        except Exception:
            continue
        if not _is_of_swig(thing) or type(value) in PLAIN or type(value) is tuple:
            yield name, value


def _property(thing: Any, name: str) -> Any:
    """Return a property of a foreign object; Box2D's vectors as tuples, which it accepts, too."""
    value = getattr(thing, name)
    return tuple(value) if _is_of_swig(value) and "Vec" in type(value).__name__ else value


def _reduced(thing: Any) -> Iterator[tuple[Step, Any]]:
    """Yield the parts that pickle would store of an object that has no others."""
    try:
        reduced = thing.__reduce_ex__(4)
    except Exception:
        return
    if isinstance(reduced, tuple):
        for index, part in enumerate(reduced[:3]):  # items come with the object itself
            yield Step("part", index), part


def in_words(way: Way) -> str:
    """Return a way as code that begins at the environment, without layers: 'model.opt.gravity', \"config['speed']\"."""
    return "".join(map(str, way)).lstrip(".")


def part_of(thing: Any, way: Way) -> Any:
    """Return the object at the end of a way. Raises LookupError or AttributeError if the way ends before."""
    for step in way:
        if step.kind == "attribute":
            thing = _property(thing, step.key) if _is_foreign(thing) else _attribute(thing, step.key)
        elif step.kind == "part":
            raise LookupError(f"no way leads to {in_words(way)}")
        else:
            thing = thing[step.key]
    return thing
