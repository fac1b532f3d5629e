"""Which environments step in C: those in C themselves, and Gymnasium's that have a twin with the same bits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fastes import _core
from fastes.envs.layers import layers
from fastes.envs.native.mujoco import copied_data, is_robot, plain, resets_in_c, robot_in_c
from fastes.envs.native.native_env import NativeEnv
from fastes.envs.native.step_wrappers import replaced_in_words, step_wrappers


class Twin(NamedTuple):
    """An environment in C that plays in place of a Python one.

    Attributes:
        instance: The one in C.
        wrappers: The effect of the environment's wrappers on a step.
        is_same: Whether it is the environment itself, so that there is nothing to compare.
        whole: The Python environment with its wrappers, if that begins each episode; None if C does.
        robot: The innermost environment, if the one in C steps in its memory.
    """

    instance: _core.NativeInstance
    wrappers: _core.StepWrappers
    is_same: bool = False
    whole: Any = None
    robot: Any = None

    def begin(self, seed: int) -> None:
        """Begin an episode."""
        if self.whole is None:
            self.instance.reset(seed)
        else:
            self.instance.begin_at(self.whole.reset(seed=seed)[0])

    def beside(self) -> tuple[_core.NativeInstance, Callable[[int, Any], None]]:
        """Return one that steps in addition to the Python environment, and a function that begins its episode.

        The function takes the seed, and the observation with which the Python environment has begun.
        """
        if self.robot is None:
            return self.instance, lambda seed, _: self.instance.reset(seed)
        data, take_over = copied_data(self.robot)
        other = robot_in_c(self.robot, data)
        if self.whole is None:
            return other, lambda seed, _: other.reset(seed)

        def begin(_: int, observation: Any) -> None:
            take_over()
            other.begin_at(observation)

        return other, begin


def twin_of(env: Any) -> Twin | str:
    """Return the twin of an environment, or why it has none, in words."""
    *outer, innermost = layers(env)
    if changed := replaced_in_words(innermost):
        return changed
    native = innermost if type(innermost) is NativeEnv else None
    found = _known(innermost) if native is None else native.instance
    if isinstance(found, str):
        return found
    wrappers = step_wrappers(outer, 0 if native is None else native.max_episode_steps)
    if isinstance(wrappers, str):
        return wrappers
    if native is not None:
        return Twin(found, wrappers, True)
    robot = innermost if is_robot(type(innermost)) else None
    whole = None if robot is None or resets_in_c(robot) else env
    return Twin(found, wrappers, whole=whole, robot=robot)


def python_because(found: Twin | str, actor: _core.Actor | None, reads_infos: bool) -> str:
    """Return why an environment steps in Python, in words; "" if it steps in C.

    Args:
        found: Its twin, or why it has none.
        actor: Plays in it; None for a policy in Python.
        reads_infos: Whether a callback reads its infos.
    """
    if isinstance(found, str):
        return found
    if reads_infos and not found.is_same:
        return "a callback reads infos"
    return "" if actor is not None and found.instance.reads(actor) else "its policy or its spaces are not those of C"


def _known(env: Any) -> _core.NativeInstance | str:
    """Return the C version of one of Gymnasium's environments, with its constants; or why there is none."""
    kind = type(env)
    read = _CLASSIC.get((kind.__module__, kind.__qualname__))
    is_own = getattr(sys.modules.get(kind.__module__), kind.__name__, None) is kind
    if not is_own or (read is None and not is_robot(kind)):
        return f"{kind.__name__} is not known in C"
    if getattr(env, "render_mode", None) == "human":
        return "it shows itself on a screen"
    try:
        if read is None:
            return robot_in_c(env)
        return _core.NativeInstance(_core.classic_env(kind.__name__), kind.__name__, read(env))
    except (AttributeError, KeyError, TypeError, ValueError, OSError) as error:
        return f"{kind.__name__} is not as expected ({error})"


def _numbers(*names: str) -> Callable[[Any], dict[str, float]]:
    return lambda env: {name: plain(name, getattr(env, name)) for name in names}


_POLE = ("gravity", "masspole", "total_mass", "length", "polemass_length", "force_mag", "tau", "x_threshold")
_LINKS = ("LINK_MASS_1", "LINK_MASS_2", "LINK_LENGTH_1", "LINK_COM_POS_1", "LINK_COM_POS_2", "LINK_MOI")


def _cartpole(env: Any) -> dict[str, float]:
    more = {"is_euler": env.kinematics_integrator == "euler", "sutton_barto_reward": env._sutton_barto_reward}
    numbers = _numbers(*_POLE, "theta_threshold_radians")(env)
    return {**numbers, **{name: plain(name, value) for name, value in more.items()}}


def _acrobot(env: Any) -> dict[str, float]:
    if env.torque_noise_max > 0 or len(env.AVAIL_TORQUE) != 3:
        raise ValueError("noise on the torque, or other torques")
    torques = {f"torque_{i}": plain("AVAIL_TORQUE", torque) for i, torque in enumerate(env.AVAIL_TORQUE)}
    numbers = _numbers("dt", *_LINKS, "MAX_VEL_1", "MAX_VEL_2")(env)
    return {**numbers, **torques, "is_nips": float(env.book_or_nips == "nips")}


def _continuous_car(env: Any) -> dict[str, float]:
    if (env.min_action, env.max_action) != (-1.0, 1.0):
        raise ValueError(f"actions from {env.min_action} to {env.max_action}")
    return _numbers(*_HILL, "power")(env)


_HILL = ("min_position", "max_position", "max_speed", "goal_position", "goal_velocity")
_PLACE = "gymnasium.envs.classic_control"
_CLASSIC: Mapping[tuple[str, str], Callable[[Any], dict[str, float]]] = {
    (f"{_PLACE}.cartpole", "CartPoleEnv"): _cartpole,
    (f"{_PLACE}.pendulum", "PendulumEnv"): _numbers("max_speed", "max_torque", "dt", "g", "m", "l"),
    (f"{_PLACE}.acrobot", "AcrobotEnv"): _acrobot,
    (f"{_PLACE}.mountain_car", "MountainCarEnv"): _numbers(*_HILL, "force", "gravity"),
    (f"{_PLACE}.continuous_mountain_car", "Continuous_MountainCarEnv"): _continuous_car,
}
