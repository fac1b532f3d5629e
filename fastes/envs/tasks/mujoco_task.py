"""A robot's task as a description: what it sees, what pays, and when it has fallen."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.utils import EzPickle

from fastes.number_array import Float64
from fastes.system.installation import install_command

try:
    import mujoco  # noqa: F401
    from gymnasium.envs.mujoco import MujocoEnv
except ImportError as error:
    raise ImportError(f"MujocoTask needs MuJoCo: {install_command('mujoco')} ({error})") from error

Place = str
Seen = Place | tuple[Place, float, float]
Point = Place | Sequence[float]

_PLACE = re.compile(
    r"(?:(?P<array>qpos|qvel|sensordata)|(?P<kind>body|site|sensor):(?P<name>[^\[\]]+))"
    r"(?:\[(?P<index>-?\d+|(?:-?\d+)?:(?:-?\d+)?)\])?"
)
_EXPECTED = (
    "expected qpos, qvel, sensordata, body:NAME, site:NAME or sensor:NAME, or some of its numbers, such as qpos[2] or qvel[:3]"
)
_MOST = 8  # places, ranges, distances, and numbers of a point: C has room for as many


class MujocoTask(MujocoEnv, EzPickle):
    """A task on a MuJoCo model of your own, with terms that several of Gymnasium's robots (v5) share. It steps in C.

    A place is a text: `qpos`, `qvel`, `sensordata`, `body:NAME` and `site:NAME` (positions, three numbers), `sensor:NAME`; or
    some of its numbers, as `qpos[2]`, `qvel[:3]` or `body:torso[0]`.

    In a step the controls are held for `frame_skip` steps of MuJoCo, and the reward is

        forward_reward_weight * (rate of change of `moves`) + (healthy_reward if healthy)
            - ctrl_cost_weight * sum(action^2) - sum of weight * |from - to| over `distances`.

    Gymnasium's robots have more: costs of contact (Ant, Humanoid, HumanoidStandup), the penalties of InvertedDoublePendulum,
    and the speed of the centre of mass (Humanoid). They observe cinert, cvel, qfrc_actuator, qfrc_constraint and cfrc_ext,
    sines and cosines of angles, and differences of places. Some begin with normal numbers, or draw a goal. For these write a
    class of your own, which steps in Python.
    """

    metadata: dict[str, Any] = {"render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"]}  # noqa: RUF012

    def __init__(
        self,
        xml_file: str,
        *,
        frame_skip: int = 5,
        observe: Sequence[Seen] = ("qpos", "qvel"),
        moves: Place | None = None,
        forward_reward_weight: float = 1.0,
        ctrl_cost_weight: float = 0.0,
        healthy: Mapping[Place, tuple[float, float]] | None = None,
        healthy_reward: float = 0.0,
        terminate_when_unhealthy: bool = True,
        distances: Sequence[tuple[Place, Point, float]] = (),
        reset_noise_scale: float = 0.01,
        **rendering: Any,
    ) -> None:
        """Load the model.

        Args:
            xml_file: The model's MJCF file.
            frame_skip: MuJoCo steps per step.
            observe: Parts of an observation, one behind the other: places, or (place, low, high) to clip its numbers.
            moves: A place of one number that is to grow, such as 'qpos[0]'; None for none.
            forward_reward_weight: Reward for one unit of it per second.
            ctrl_cost_weight: Cost of the actions' sum of squares.
            healthy: Places of one number, and the limits between which each has to be.
            healthy_reward: Reward of a step after which all of them are.
            terminate_when_unhealthy: Whether the episode ends when one is not.
            distances: (from, to, weight) each; `to` is a place, or the numbers of a point that does not move.
            reset_noise_scale: First positions and velocities are the model's, plus uniform numbers of at most this size.
            **rendering: render_mode, camera_name and what else MujocoEnv takes.

        Raises:
            OSError: There is no such file.
            ValueError: MuJoCo cannot read it, an actuator has no range, there is no such place, or an argument cannot be used.
                A point, `observe`, `healthy` and `distances` have eight entries at most.
            TypeError: frame_skip is not a whole number.
        """
        if (frame_skip := operator.index(frame_skip)) < 1:
            raise ValueError(f"frame_skip = {frame_skip}: expected 1 or more")
        self._observe = _observed(observe)
        self._moves = None if moves is None else _place("moves", moves)
        self._healthy = _ranges(dict(healthy or {}))
        self._distances = _pairs(distances)
        self._forward_reward_weight, self._ctrl_cost_weight = float(forward_reward_weight), float(ctrl_cost_weight)
        self._healthy_reward, self._terminate_when_unhealthy = float(healthy_reward), bool(terminate_when_unhealthy)
        self._reset_noise_scale = float(reset_noise_scale)
        path = os.path.abspath(os.path.expanduser(xml_file))
        EzPickle.__init__(
            self,
            path,
            frame_skip=frame_skip,
            observe=self._observe,
            moves=self._moves,
            forward_reward_weight=self._forward_reward_weight,
            ctrl_cost_weight=self._ctrl_cost_weight,
            healthy=self._healthy,
            healthy_reward=self._healthy_reward,
            terminate_when_unhealthy=self._terminate_when_unhealthy,
            distances=self._distances,
            reset_noise_scale=self._reset_noise_scale,
            **rendering,
        )
        MujocoEnv.__init__(self, path, frame_skip, None, **rendering)
        self.metadata = {**self.metadata, "render_fps": round(1.0 / self.dt)}
        self._check_actuators()
        self._seen, self._ranges = self.observed_in(self.data), self.ranges_in(self.data)
        self._apart, self._moving = self.distances_in(self.data), self.moving_in(self.data)
        size = sum(array.size for array, *_ in self._seen)
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float64)

    # --- the task's numbers in MuJoCo's memory; data: an MjData of its model --------------------------------------------

    def observed_in(self, data: Any) -> list[tuple[Any, ...]]:
        """Return the parts of an observation: an array, and its limits if it has some."""
        return [(self._at(data, place), *limits) for place, *limits in self._observe]

    def moving_in(self, data: Any) -> Float64 | None:
        """Return the number that is to grow, float64 (1,); None for none."""
        return None if self._moves is None else self._number(data, self._moves)

    def ranges_in(self, data: Any) -> list[tuple[Float64, float, float]]:
        """Return numbers, float64 (1,), and the limits between which each has to be."""
        return [(self._number(data, place), *limits) for place, limits in self._healthy.items()]

    def distances_in(self, data: Any) -> list[tuple[Float64, Float64, float]]:
        """Return pairs of points, float64 (n,), and the weights of their distances."""
        found = []
        for start, end, weight in self._distances:
            one, other = self._at(data, start), self._at(data, end) if isinstance(end, str) else np.array(end)
            if one.size != other.size or one.size > _MOST:
                numbers = f"{one.size} and {other.size} numbers: expected as many, at most {_MOST}"
                raise ValueError(f"distances has {start!r} and {end!r}, points of {numbers}")
            found.append((one, other, weight))
        return found

    def _number(self, data: Any, place: Place) -> Float64:
        part = self._at(data, place)
        if part.size != 1:
            raise ValueError(f"{place!r} has {part.size} numbers: expected one, such as {place.partition('[')[0]}[0]")
        return part

    def _at(self, data: Any, place: Place) -> Float64:
        """Return a view of a place.

        Raises:
            ValueError: The model has no such place.
        """
        found = _PLACE.fullmatch(place)
        if found is None:
            raise ValueError(f"{place!r} is not a place: {_EXPECTED}")
        if found["array"]:
            whole = getattr(data, found["array"])
        else:
            try:
                named = getattr(data, found["kind"])(found["name"])
            except KeyError as error:
                raise ValueError(f"{place!r}: {error.args[0]}") from error
            whole = named.data if found["kind"] == "sensor" else named.xpos
        first, colon, past = (found["index"] or ":").partition(":")
        begin = int(first) if first else 0
        end = (int(past) if past else None) if colon else (begin + 1 or None)
        part: Float64 = whole[begin:end]
        if not part.size:
            raise ValueError(f"{place!r} has no numbers: {place.partition('[')[0]} has {whole.size}")
        return part

    def _check_actuators(self) -> None:
        space: Any = self.action_space
        still = [self.model.actuator(number).name or number for number in np.flatnonzero(space.low >= space.high)]
        if still or not self.model.nu:
            what = f"the actuators {still} without a range" if still else "no actuators"
            raise ValueError(f"{self.fullpath} has {what}: each needs one, such as ctrlrange='-1 1'")

    # --- the environment --------------------------------------------------------------------------------------------

    @property
    def is_healthy(self) -> bool:
        return all(low < array[0] < high for array, low, high in self._ranges)

    def reset_model(self) -> Float64:
        low, high = -self._reset_noise_scale, self._reset_noise_scale
        qpos = self.init_qpos + self.np_random.uniform(low, high, self.model.nq)
        qvel = self.init_qvel + self.np_random.uniform(low, high, self.model.nv)
        self.set_state(qpos, qvel)  # type: ignore[no-untyped-call]
        return self._observation()

    def step(self, action: npt.NDArray[np.float32]) -> Any:
        action, moving = np.asarray(action, dtype=np.float32), self._moving
        before = 0.0 if moving is None else float(moving[0])
        self.do_simulation(action, self.frame_skip)
        speed = 0.0 if moving is None else (float(moving[0]) - before) / self.dt
        forward, healthy = self._forward_reward_weight * speed, self.is_healthy
        alive = self._healthy_reward if healthy else 0.0
        control = float(np.float32(self._ctrl_cost_weight) * np.sum(np.square(action)))
        reward, apart = forward + alive - control, 0.0
        for start, end, weight in self._apart:
            cost = weight * float(np.linalg.norm(start - end))
            reward, apart = reward - cost, apart + cost
        info = {"reward_forward": forward, "reward_survive": alive, "reward_ctrl": -control, "reward_distance": -apart}
        if self.render_mode == "human":
            self.render()  # type: ignore[no-untyped-call]
        return self._observation(), reward, not healthy and self._terminate_when_unhealthy, False, info

    def _observation(self) -> Float64:
        return np.concatenate([np.clip(array, *limits) if limits else array for array, *limits in self._seen])


def _place(what: str, place: Any) -> Place:
    if not isinstance(place, str):
        raise ValueError(f"{what} has {place!r}, a {type(place).__name__}: {_EXPECTED}")
    return place


def _check_count(what: str, count: int, least: int = 0) -> None:
    if not least <= count <= _MOST:
        raise ValueError(f"{what} has {count} entries: expected {f'{least} to' if least else 'at most'} {_MOST}")


def _limits(what: str, limits: Any) -> tuple[float, float]:
    try:
        low, high = map(float, limits)
    except (TypeError, ValueError):
        low = high = 0.0
    if not low < high:
        raise ValueError(f"{what} has the limits {limits!r}: expected two numbers, the smaller first")
    return low, high


def _observed(observe: Any) -> tuple[tuple[Any, ...], ...]:
    """Return places, each with its limits if it has some."""
    if isinstance(observe, str):
        raise ValueError(f"observe = {observe!r} is a text: expected a list of places")
    found: list[tuple[Any, ...]] = []
    for each in observe:
        parts = each if isinstance(each, (tuple, list)) else (each,)
        if len(parts) not in (1, 3):
            raise ValueError(f"observe has {each!r}: expected a place, or (place, low, high)")
        found.append((_place("observe", parts[0]), *(_limits("observe", parts[1:]) if len(parts) == 3 else ())))
    _check_count("observe", len(found), 1)
    return tuple(found)


def _ranges(healthy: Mapping[Any, Any]) -> dict[Place, tuple[float, float]]:
    """Return the limits of each place."""
    _check_count("healthy", len(healthy))
    return {_place("healthy", place): _limits("healthy", limits) for place, limits in healthy.items()}


def _pairs(distances: Any) -> tuple[tuple[Place, Place | tuple[float, ...], float], ...]:
    """Return (from, to, weight) each."""
    found = []
    for each in distances:
        try:
            start, end, weight = each
            end = end if isinstance(end, str) else tuple(map(float, end))
            weight = float(weight)
        except (TypeError, ValueError) as error:
            raise ValueError(f"distances has {each!r}: expected (place, place or numbers, weight)") from error
        if not np.isfinite(weight) or not (isinstance(end, str) or np.isfinite(end).all()):
            raise ValueError(f"distances has {each!r}: expected finite numbers")
        found.append((_place("distances", start), end, weight))
    _check_count("distances", len(found))
    return tuple(found)
