"""Small decision problems from textbooks, as a user would write them: raw units, no scaling. Importing registers them."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

Observation = npt.NDArray[Any] | np.int64


class TextbookTask(gymnasium.Env[Any, Any]):
    """A problem without an end of its own: it is cut after as many steps as it is registered with.

    A task sets its spaces, and defines `_begin` (draw a first state), `_seen` (the observation of the state) and `_pay` (change
    the state by one step and return the reward).
    """

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._begin()
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        reward = float(self._pay(action))
        return self._seen(), reward, False, False, {}

    def _begin(self) -> None:
        raise NotImplementedError

    def _seen(self) -> Observation:
        raise NotImplementedError

    def _pay(self, action: Any) -> float:
        raise NotImplementedError


def _numbers(low: list[float], high: list[float]) -> spaces.Box:
    return spaces.Box(np.array(low, np.float32), np.array(high, np.float32), dtype=np.float32)


class Thermostat(TextbookTask):
    """Two rooms that share a wall are kept at a set point, which falls at night, against an outside that is colder.

    Each step is a quarter of an hour of the heat balance of two lumped masses (Åström and Murray, Feedback Systems, models of
    thermal systems). Observations: both temperatures, outside and set point in degrees Celsius, and the hour of the day.
    Actions: the share, 0 to 1, of each heater's power. The reward takes off the distance of each room from the set point, in
    degrees, and the energy.
    """

    def __init__(self) -> None:
        self.observation_space = _numbers([-60.0, -60.0, -60.0, 10.0, 0.0], [90.0, 90.0, 60.0, 30.0, 24.0])
        self.action_space = spaces.Box(0.0, 1.0, (2,), np.float32)

    def _begin(self) -> None:
        self._rooms = self.np_random.uniform(12.0, 24.0, 2)
        self._quarter, self._mild = int(self.np_random.integers(96)), self.np_random.uniform(-5.0, 8.0)
        self._change_weather()

    def _change_weather(self) -> None:
        self._hour = self._quarter % 96 / 4
        self._outside = self._mild + 4.0 * math.sin((self._hour - 9.0) * math.pi / 12.0) + self.np_random.normal(0.0, 0.5)
        self._wanted = 21.0 if 6.0 <= self._hour < 22.0 else 17.0

    def _seen(self) -> Observation:
        return np.array([*self._rooms, self._outside, self._wanted, self._hour], np.float32)

    def _pay(self, action: Any) -> float:
        power = np.clip(action, 0.0, 1.0)
        to_other = self._rooms[::-1] - self._rooms
        self._rooms = self._rooms + 0.03 * (self._outside - self._rooms) + 0.05 * to_other + power * (1.6, 1.2)
        reward = -0.1 * np.abs(self._rooms - self._wanted).sum() - 0.1 * power.sum()
        self._quarter += 1
        self._change_weather()
        return float(reward)


class TwoQueues(TextbookTask):
    """Each job that arrives is sent to the queue of a fast or of a slow server. The best policy is a switching curve.

    After Hajek 1984, Optimal control of two interacting service stations, in slots of time: a job arrives with probability
    0.8, and a server finishes one with probability 0.6 or 0.3. Observations: jobs in both queues. Actions: the queue of the
    next job, which is lost if 20 are in it. A finished job pays 2; each job in the house costs 0.05 per slot.
    """

    def __init__(self) -> None:
        self.observation_space = _numbers([0.0, 0.0], [20.0, 20.0])
        self.action_space = spaces.Discrete(2)

    def _begin(self) -> None:
        self._jobs = self.np_random.integers(0, 10, 2)

    def _seen(self) -> Observation:
        return self._jobs.astype(np.float32)

    def _pay(self, action: Any) -> float:
        if self.np_random.random() < 0.8:
            self._jobs[action] = min(self._jobs[action] + 1, 20)
        finished = (self.np_random.random(2) < (0.6, 0.3)) & (self._jobs > 0)
        self._jobs -= finished
        return 2.0 * finished.sum() - 0.05 * self._jobs.sum()


class Inventory(TextbookTask):
    """Stock of one product with a lead time of two days and a fixed cost of an order: an (s, S) policy is near the best.

    After Scarf 1960 and Puterman, Markov Decision Processes, chapter 3. Demand per day is Poisson's with mean 8; what is short
    is delivered later. Observations: stock (negative: owed), and what arrives in one and two days. Actions: 0 to 8 lots of 5.
    An order costs 20, a piece in stock 1 per day, a piece owed 8; the reward is a tenth of that.
    """

    def __init__(self) -> None:
        self.observation_space = _numbers([-200.0, 0.0, 0.0], [200.0, 40.0, 40.0])
        self.action_space = spaces.Discrete(9)

    def _begin(self) -> None:
        self._stock, self._coming = int(self.np_random.integers(0, 31)), [0, 0]

    def _seen(self) -> Observation:
        return np.array([self._stock, *self._coming], np.float32)

    def _pay(self, action: Any) -> float:
        arrived, self._coming = self._coming[0], [self._coming[1], 5 * int(action)]
        stock = self._stock + arrived - int(self.np_random.poisson(8.0))
        self._stock = min(max(stock, -200), 200)
        return -0.1 * (20.0 * (action > 0) + max(self._stock, 0) + 8.0 * max(-self._stock, 0))


class MachineReplacement(TextbookTask):
    """A machine wears out and earns less; replace it, or let it work? The best policy is a limit of wear (Derman 1963).

    Observations: the wear, Discrete(10). Actions: 0 works, 1 replaces. A step of work pays 10 less the square of the wear over
    5, and adds 1 to the wear with probability 0.4 or 2 with probability 0.1; replacing costs 15 and takes the step.
    """

    def __init__(self) -> None:
        self.observation_space, self.action_space = spaces.Discrete(10), spaces.Discrete(2)

    def _begin(self) -> None:
        self._wear = int(self.np_random.integers(10))

    def _seen(self) -> Observation:
        return np.int64(self._wear)

    def _pay(self, action: Any) -> float:
        if action == 1:
            self._wear = 0
            return -15.0
        reward = 10.0 - self._wear**2 / 5.0
        self._wear = min(self._wear + int(self.np_random.choice(3, p=(0.5, 0.4, 0.1))), 9)
        return reward


class AccessControl(TextbookTask):
    """Ten servers, and customers of worth 1, 2, 4 or 8: accept the first in line, or keep a server for a better one?

    Sutton and Barto, Reinforcement Learning, example 10.2, in episodes of fixed length. A busy server is free again with
    probability 0.06. Observations, MultiDiscrete: free servers and the kind of customer. Actions: 0 rejects, 1 accepts.
    """

    def __init__(self) -> None:
        self.observation_space, self.action_space = spaces.MultiDiscrete([11, 4]), spaces.Discrete(2)

    def _begin(self) -> None:
        self._free, self._kind = 10, int(self.np_random.integers(4))

    def _seen(self) -> Observation:
        return np.array([self._free, self._kind], np.int64)

    def _pay(self, action: Any) -> float:
        accepted = action == 1 and self._free > 0
        reward = 2.0**self._kind if accepted else 0.0
        self._free -= int(accepted)
        self._free += int(self.np_random.binomial(10 - self._free, 0.06))
        self._kind = int(self.np_random.integers(4))
        return reward


_STEPS = {Thermostat: 192, TwoQueues: 1000, Inventory: 100, MachineReplacement: 200, AccessControl: 500}
TASKS = {f"textbook/{task.__name__}-v0": steps for task, steps in _STEPS.items()}
for _task, _steps in _STEPS.items():
    if (_id := f"textbook/{_task.__name__}-v0") not in gymnasium.registry:
        gymnasium.register(_id, f"{__name__}:{_task.__name__}", max_episode_steps=_steps)
