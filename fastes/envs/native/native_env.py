"""NativeEnv: an environment in C as a gymnasium.Env."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded

from fastes import _core

_IS_LIBRARY = re.compile(r".*\.(so(\.\d+)*|dylib)", re.DOTALL).fullmatch  # of a path; a library may have a version: walk.so.1
_SOURCES = (".c", ".cc", ".cpp")
_FIRST_ADDRESS = 65536  # operating systems leave the memory before it empty
_expected: dict[str, str] = {}  # path of a library -> checksum of the file that a training in this process is of
_loaded: dict[str, tuple[int, int, int]] = {}  # path of a library -> inode, time and size of the file that this process loaded
_HEADER = Path(__file__).resolve().parents[2] / "include"


def get_include() -> str:
    """Return the folder of fastes_env.h, for the C compiler's -I."""
    return str(_HEADER)


def in_library(spec: EnvSpec | None) -> bool:
    """Return whether a spec makes an environment in C."""
    return spec is not None and spec.entry_point == f"{NativeEnv.__module__}:{NativeEnv.__name__}"


def is_native(env_id: str) -> bool:
    """Return whether an id names an environment in a shared library: PATH.so:NAME, or is meant to."""
    path = env_id.rpartition(":")[0]
    return path.endswith(_SOURCES) or any(map(_IS_LIBRARY, (path, env_id)))


def native_spec(place: str, options: Mapping[str, Any]) -> EnvSpec:
    """Return the spec of an environment in C, with the library's absolute path.

    Args:
        place: PATH.so:NAME.
        options: Numbers and texts by name.

    Raises:
        ValueError: It lacks the name, or names source code.
    """
    path, _, name = place.rpartition(":")
    if _IS_LIBRARY(place):
        raise ValueError(f"{place!r} is a library: expected {place}:NAME, with the name in FASTES_ENV(NAME)")
    if not name:
        raise ValueError(_no_name(place))
    if path.endswith(_SOURCES):
        raise ValueError(f"{path!r} is source code: compile it, and pass {os.path.splitext(path)[0]}.so:{name}")
    kwargs = {**options, "place": f"{os.path.abspath(os.path.expanduser(path))}:{name}"}
    entry_point = f"{NativeEnv.__module__}:{NativeEnv.__name__}"
    return EnvSpec(native_id(place), entry_point=entry_point, kwargs=kwargs, disable_env_checker=True)


def library_of(spec: EnvSpec) -> str:
    """Return the path of the library of a spec that `native_spec` made."""
    return str(spec.kwargs["place"].rpartition(":")[0])


def native_id(place: str) -> str:
    """Return the id by which a checkpoint knows an environment in C: it does not say where the library is."""
    return f"native/{place.rpartition(':')[2]}"


class NativeEnv(gymnasium.Env[Any, Any]):
    """An environment in C (fastes_env.h) as Gymnasium knows environments.

    A training plays it without Python. Loading a library runs its code. `step` raises ResetNeeded before the first reset and
    after the end of an episode, and TypeError if a choice is not a whole number.

    Attributes:
        instance: Its memory.
        max_episode_steps: Steps after which it truncates an episode; 0 for no limit.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012

    def __init__(self, place: str, *, render_mode: str | None = None, **options: float | str) -> None:
        """Load the library.

        Args:
            place: PATH.so:NAME of a fastes_env.
            render_mode: 'rgb_array' for pictures, if it draws any.
            **options: Arguments of its `make`: numbers and texts.

        Raises:
            FileNotFoundError, OSError: The library cannot be loaded.
            ValueError: It has no fastes_env of this name, or one that cannot be used, or does not take the options.
        """
        path, _, name = place.rpartition(":")
        library, address = _find(os.path.expanduser(path), name)
        self._begin(_core.NativeInstance(address, name, options, library), render_mode)
        self.spec = native_spec(place, options)
        self.spec.max_episode_steps = self.max_episode_steps or None

    @classmethod
    def from_functions(
        cls,
        reset: Any,
        step: Any,
        observation_space: spaces.Box,
        action_space: spaces.Space[Any],
        *,
        state_size: int = 0,
        max_episode_steps: int = 0,
        name: str = "native",
    ) -> NativeEnv:
        """Return an environment of two functions that are compiled in this process, such as numba's.

        Workers cannot be sent such functions: pass FastES a function that compiles them and returns the environment.

        Args:
            reset, step: As in fastes_env.h: numba @cfuncs, ctypes functions, or their addresses.
            observation_space: A Box of float64, float32 or uint8.
            action_space: A Box of float32 or float64, or a Discrete from 0.
            state_size: Bytes of its state.
            max_episode_steps: Steps after which an episode is truncated; 0 for no limit.
            name: Its name in messages.
        """
        self = cls.__new__(cls)
        functions = _address(reset), _address(step)
        made = _core.MadeEnv(*functions, _as_dict(observation_space), _as_dict(action_space), state_size, max_episode_steps)
        self._begin(_core.NativeInstance(made.address, name, {}, (made, reset, step)), None)
        return self

    def _begin(self, instance: _core.NativeInstance, render_mode: str | None) -> None:
        self.instance = instance
        self.observation_space, self.action_space = _space(instance.observation_space), _space(instance.action_space)
        self.max_episode_steps = int(instance.max_episode_steps)
        if instance.picture is None:
            self.metadata = {"render_modes": []}
        if render_mode not in (None, *self.metadata["render_modes"]):
            has = self.metadata["render_modes"] or "no pictures"
            raise ValueError(f"render_mode = {render_mode!r}: {instance.name} has {has}")
        self.render_mode = render_mode
        self._steps, self._is_running = 0, False
        self._dtype = np.dtype(self.action_space.dtype)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._steps, self._is_running = 0, False  # stays so if the reset fails
        self.instance.reset(int(self.np_random.integers(2**32)) if seed is None else seed)
        self._is_running = True
        return self._seen(far=True)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self._is_running:
            when = "after its episode has ended" if self._steps else "before reset"
            raise ResetNeeded(f"{self.instance.name}: step was called {when}: call reset")
        taken = np.asarray(action)
        if taken.dtype != self._dtype or not taken.flags.c_contiguous:
            taken = self._converted(taken)
        reward, terminated, truncated = self.instance.step(taken)
        self._steps += 1
        truncated = truncated or self._steps == self.max_episode_steps
        self._is_running = not (terminated or truncated)
        observation, info = self._seen(far=terminated or truncated)
        return observation, reward, terminated, truncated, info

    def _converted(self, action: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return an action as the core takes it. TypeError if it is a choice and no whole number."""
        if isinstance(self.action_space, spaces.Discrete) and action.dtype.kind not in "iub":
            expected = f"a whole number from 0 to {self.action_space.n - 1}"
            raise TypeError(f"{self.instance.name}: the action is {action.tolist()!r:.100}: expected {expected}")
        return np.ascontiguousarray(action, dtype=self._dtype)

    def _seen(self, far: bool) -> tuple[Any, dict[str, Any]]:
        """Return the last observation and info. far: of `check_bounds`."""
        info = self.instance.info()
        self.instance.check_bounds(far)
        return self.instance.observation.copy(), info

    def render(self) -> Any:
        return self.instance.render() if self.render_mode is not None else None

    def close(self) -> None:
        self.instance.close()

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        if self.spec is None:
            _refuse_copies(self.instance.name)
        kwargs = dict(self.spec.kwargs)
        return _rebuilt, (kwargs.pop("place"), self.render_mode, kwargs)


def _rebuilt(place: str, render_mode: str | None, options: Mapping[str, Any]) -> NativeEnv:
    return NativeEnv(place, render_mode=render_mode, **options)


def _refuse_copies(name: str) -> NoReturn:
    raise TypeError(f"{name} is made of functions of this process, which no other has: pass FastES a function that makes it")


def _no_name(place: str) -> str:
    return f"{place}: expected PATH.so:NAME, the file and the name in FASTES_ENV(NAME)"


@cache
def checksum_of(path: str) -> str:
    """Return the SHA-256 of a library, as this process has first seen it."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def expect(path: str, checksum: str) -> None:
    """Load a library from now on only if it is this one: that of the process in which the training began."""
    _expected[path] = checksum


def _find(path: str, name: str) -> tuple[ctypes.CDLL, int]:
    """Load a library; return it and the address of its fastes_env of this name."""
    if not name.isidentifier() or not path:
        raise ValueError(_no_name(f"{path}:{name}"))
    if not os.path.isfile(path):
        command = f"cc -O3 -shared -fPIC -I{get_include()} {os.path.splitext(path)[0]}.c -o {path} -lm"
        raise FileNotFoundError(f"there is no library {path!r}: compile it, such as by {command}")
    full = os.path.abspath(path)
    status = os.stat(full)
    version = status.st_ino, status.st_mtime_ns, status.st_size
    if _loaded.setdefault(full, version) != version:
        raise ValueError(
            f"{path} has been compiled again since this process loaded it, and the process keeps the first version: start a "
            "new process (in a notebook, restart the kernel), or give the library another name"
        )
    checksum = checksum_of(full)  # now: later the file may be another one
    if _expected.get(full, checksum) != checksum:
        raise ValueError(
            f"{path} has been compiled again since the training began, or is another one on this machine, and results would "
            "mix both: start the training again"
        )
    library = ctypes.CDLL(full)
    try:
        return library, ctypes.addressof(ctypes.c_char.in_dll(library, name))
    except ValueError as error:
        raise ValueError(f"{path} has no environment {name!r}: expected FASTES_ENV({name}) = {{...}} in its code") from error


def _space(found: Mapping[str, Any]) -> Any:
    if found["choices"]:
        return spaces.Discrete(found["choices"])
    return spaces.Box(found["low"].astype(found["dtype"]), found["high"].astype(found["dtype"]), dtype=found["dtype"])


def _as_dict(space: Any) -> dict[str, Any]:
    """Return a space as the core describes it."""
    if isinstance(space, spaces.Discrete) and space.start == 0:
        return {"dtype": "int64", "shape": (), "low": np.zeros(0), "high": np.zeros(0), "choices": int(space.n)}
    if not isinstance(space, spaces.Box):
        raise ValueError(f"{space}: expected a Box, or a Discrete from 0")
    low, high = (np.ascontiguousarray(bound, dtype=np.float64).reshape(-1) for bound in (space.low, space.high))
    return {"dtype": str(space.dtype), "shape": space.shape, "low": low, "high": high, "choices": 0}


def _address(function: Any) -> int:
    """Return the address of a function in C."""
    if isinstance(function, int) and not isinstance(function, bool):
        if function < _FIRST_ADDRESS:
            raise ValueError(f"{function} is not a function's address: expected one from {_FIRST_ADDRESS} on")
        return function
    if isinstance(address := getattr(function, "address", None), int):  # numba's
        return address
    if hasattr(function, "argtypes"):  # a function of ctypes
        return ctypes.cast(function, ctypes.c_void_p).value or 0
    raise TypeError(f"{function!r:.200}: expected a numba @cfunc, a ctypes function or an address")
