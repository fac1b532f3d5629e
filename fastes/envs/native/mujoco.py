"""Gymnasium's MuJoCo robots (v5) in C: what its classes compute, as numbers and as places in MuJoCo's memory."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import functools
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fastes import _core

_PLACE = "gymnasium.envs.mujoco"
_INFINITE = (-math.inf, math.inf)
_NAMES = {
    "half_cheetah_v5.HalfCheetahEnv": "cheetah",
    "swimmer_v5.SwimmerEnv": "swimmer",
    "hopper_v5.HopperEnv": "hopper",
    "walker2d_v5.Walker2dEnv": "walker",
    "ant_v5.AntEnv": "ant",
    "humanoid_v5.HumanoidEnv": "humanoid",
    "humanoidstandup_v5.HumanoidStandupEnv": "standup",
    "inverted_pendulum_v5.InvertedPendulumEnv": "pendulum",
    "inverted_double_pendulum_v5.InvertedDoublePendulumEnv": "double_pendulum",
    "reacher_v5.ReacherEnv": "reacher",
    "pusher_v5.PusherEnv": "pusher",
    "fastes.envs.tasks.mujoco_task.MujocoTask": "described",
}
_NUMBERS = {  # field of the task in C -> names of the attribute in Gymnasium's classes, and its value without
    "forward_weight": (("_forward_reward_weight",), 0.0),
    "control_weight": (("_ctrl_cost_weight", "_reward_control_weight"), 0.0),
    "contact_weight": (("_contact_cost_weight", "_impact_cost_weight"), 0.0),
    "distance_weight": (("_reward_dist_weight",), 0.0),
    "near_weight": (("_reward_near_weight",), 0.0),
    "healthy_reward": (("_healthy_reward",), 0.0),
    "z": (("_healthy_z_range",), _INFINITE),
    "angle": (("_healthy_angle_range",), _INFINITE),
    "state": (("_healthy_state_range",), _INFINITE),
    "contact": (("_contact_force_range", "_contact_cost_range", "_impact_cost_range"), _INFINITE),
    "ends_if_unhealthy": (("_terminate_when_unhealthy",), False),
    "reset_scale": (("_reset_noise_scale",), 0.0),
}
_NORMAL = ("cheetah", "ant", "double_pendulum")  # whose first states have normal numbers, which C does not draw


def is_robot(kind: type) -> bool:
    """Return whether a class has the name of one of Gymnasium's robots, or of MujocoTask."""
    return _kind_of(kind) != ""


def resets_in_c(env: Any) -> bool:
    """Return whether a robot's episodes begin in C, too."""
    return _kind_of(type(env)) not in _NORMAL


def _kind_of(kind: type) -> str:
    return _NAMES.get(f"{kind.__module__}.{kind.__qualname__}".removeprefix(f"{_PLACE}."), "")


def robot_in_c(env: Any, data: Any = None) -> _core.NativeInstance:
    """Return a robot that steps in C.

    Args:
        env: One of Gymnasium's robots, or a MujocoTask, without wrappers.
        data: The MjData that it steps; None for the environment's own.

    Raises:
        AttributeError, TypeError, ValueError, OSError: The class, or MuJoCo, is not as it was in known versions.
    """
    kind, model = _kind_of(type(env)), env.model
    data = env.data if data is None else data
    _refuse_callbacks()
    _take_errors()
    arrays = {name: getattr(data, name) for name in ("ctrl", "qpos", "qvel", "cfrc_ext")}
    arrays |= {"body_mass": model.body_mass, "init_qpos": env.init_qpos, "init_qvel": env.init_qvel, **_places(kind, env, data)}
    numbers = {name: _number(env, names, usual) for name, (names, usual) in _NUMBERS.items()}
    numbers |= {
        "dt": plain("dt", env.dt),
        "timestep": float(model.opt.timestep),
        "frame_skip": int(plain("frame_skip", env.frame_skip)),
    }
    numbers["num_bodies"] = int(model.nbody)
    space = env.action_space
    low, high = (np.ascontiguousarray(bound, dtype=np.float64) for bound in (space.low, space.high))
    parts = _parts(kind, env, data)
    numbers["reads_forces"] = kind in ("ant", "humanoid", "standup")
    functions = [_address(name) for name in ("mj_step", "mj_rnePostConstraint", "mj_resetData", "mj_forward")]
    if sum(part[1].size for part in parts) != env.observation_space.shape[0]:
        raise ValueError(f"an observation has {env.observation_space.shape[0]} values")
    name = type(env).__name__
    own = (env.ranges_in(data), env.distances_in(data)) if kind == "described" else ()
    return _core.mujoco_instance(
        name, kind, numbers, arrays, parts, low, high, model._address, data._address, functions, _usual_clock(), *own
    )


def copied_data(env: Any) -> tuple[Any, Callable[[], None]]:
    """Return a copy of a robot's MjData, and a function that makes it equal to the robot's again."""
    other, copy_data = copy.copy(env.data), library().mj_copyData  # older packages have it in C alone
    addresses = [ctypes.c_void_p(each._address) for each in (other, env.model, env.data)]
    return other, lambda: copy_data(*addresses)


def leave_untimed() -> None:
    """Let MuJoCo keep no profile, data.timer, in this process: it makes a step 7 to 27 % longer. A clock in Python stays."""
    mujoco: Any = sys.modules.get("mujoco")
    if mujoco is not None and hasattr(mujoco, "get_mjcb_time") and mujoco.get_mjcb_time() is None:
        with contextlib.suppress(OSError, ValueError):
            clock().value = None


def clock() -> ctypes.c_void_p:
    """Return where MuJoCo looks for its clock."""
    return ctypes.c_void_p.in_dll(library(), "mjcb_time")


@functools.cache
def library() -> ctypes.CDLL:
    """Return MuJoCo's own library, which its package has loaded."""
    import mujoco

    folder = Path(mujoco.__file__).parent
    loaded = list[ctypes.CDLL]()
    for path in {*folder.glob("**/libmujoco.so*"), *folder.glob("**/libmujoco*.dylib")}:
        with contextlib.suppress(OSError):
            loaded.append(ctypes.CDLL(str(path), mode=ctypes.DEFAULT_MODE | os.RTLD_NOLOAD))
    if len(loaded) != 1:
        raise OSError(f"{len(loaded)} libraries of MuJoCo in {folder} are loaded")
    return loaded[0]


def _refuse_callbacks() -> None:
    """Raise ValueError if MuJoCo calls functions of Python, whose exceptions nothing would catch."""
    import mujoco

    for name in ("control", "passive", "sensor", "act_dyn", "act_gain", "act_bias", "contactfilter", "time"):
        if getattr(mujoco, f"get_mjcb_{name}", lambda: None)() is not None:
            raise ValueError(f"mjcb_{name} is set")


def _take_errors() -> None:
    """Let an error of MuJoCo end a step in C, and not the process. MuJoCo's package has its own way for Python's calls."""
    handler = ctypes.c_void_p.in_dll(library(), "mju_user_error")
    if not handler.value:
        handler.value = _core.mujoco_error_handler()


@functools.cache
def _usual_clock() -> tuple[int, int]:
    """Return where MuJoCo looks for its clock, and which one its package has put there; asked before the first step in C."""
    place = clock()
    return ctypes.addressof(place), place.value or 0


def _address(name: str) -> int:
    return ctypes.cast(getattr(library(), name), ctypes.c_void_p).value or 0


def _number(env: Any, names: tuple[str, ...], usual: Any) -> Any:
    found = [getattr(env, name) for name in names if hasattr(env, name)]
    value = found[0] if found else usual
    if isinstance(usual, tuple):
        low, high = value
        return plain(names[0], low), plain(names[0], high)
    return plain(names[0], value)


def plain(name: str, value: Any) -> float:
    """Return a number of Python as a float; TypeError for NumPy's, with which it computes in another precision."""
    if type(value) not in (int, float, bool):
        kind = type(value)
        raise TypeError(f"{name} is a {kind.__module__}.{kind.__qualname__}: expected an int, a float or a bool of Python")
    return float(value)


def _places(kind: str, env: Any, data: Any) -> dict[str, Any]:
    """Return the arrays of a kind of robot, by their names in C."""
    if kind in ("cheetah", "swimmer", "hopper", "walker"):
        return {"position": data.qpos}
    if kind == "described":
        moving = env.moving_in(data)
        return {} if moving is None else {"position": moving}
    if kind == "ant":
        return {"position": data.body(env._main_body).xpos}
    if kind == "humanoid":
        return {"position": data.xipos}
    if kind == "double_pendulum":
        return {"first": data.site_xpos[0]}
    if kind == "reacher":
        return {"first": data.body("fingertip").xpos, "second": data.body("target").xpos}
    if kind == "pusher":
        return {name: data.body(body).xpos for name, body in (("first", "object"), ("second", "goal"), ("third", "tips_arm"))}
    return {}


def _parts(kind: str, env: Any, data: Any) -> list[tuple[str, Any, Any, float, float]]:
    """Return the parts of an observation, in their order."""

    def part(array: Any, how: str = "as it is", less: Any = None, low: float = 0.0, high: float = 0.0) -> Any:
        return how, array, less, low, high

    qpos, qvel = data.qpos, data.qvel
    if kind == "described":
        return [part(array, "clipped", None, *limits) if limits else part(array) for array, *limits in env.observed_in(data)]
    if kind == "double_pendulum":
        angles, force = qpos[1:], data.qfrc_constraint[:1]
        turned = [part(angles, "sin"), part(angles, "cos")]
        return [part(qpos[:1]), *turned, part(qvel, "clipped", None, -10.0, 10.0), part(force, "clipped", None, -10.0, 10.0)]
    if kind == "reacher":
        tip, target = data.body("fingertip").xpos, data.body("target").xpos
        turned = [part(qpos[:2], "cos"), part(qpos[:2], "sin")]
        return [*turned, part(qpos[2:]), part(qvel[:2]), part(tip[:2], "less", target[:2])]
    if kind == "pusher":
        return [part(qpos[:7]), part(qvel[:7]), *(part(data.body(name).xpos) for name in ("tips_arm", "object", "goal"))]
    skipped = 0
    if getattr(env, "_exclude_current_positions_from_observation", False):
        skipped = int(env.observation_structure["skipped_qpos"])
    seen = [part(qpos[skipped:])]
    seen.append(part(qvel, "clipped", None, -10.0, 10.0) if kind in ("hopper", "walker") else part(qvel))
    if kind in ("humanoid", "standup"):
        more = {
            "cinert": data.cinert[1:],
            "cvel": data.cvel[1:],
            "qfrc_actuator": data.qfrc_actuator[6:],
            "cfrc_ext": data.cfrc_ext[1:],
        }
        seen += [part(array) for name, array in more.items() if getattr(env, f"_include_{name}_in_observation") is True]
    if kind == "ant" and env._include_cfrc_ext_in_observation:
        low, high = env._contact_force_range
        seen.append(part(data.cfrc_ext[1:], "clipped", None, float(low), float(high)))
    return seen
