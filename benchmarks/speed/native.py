"""Training on environments that step in C, over the same in Python, MuJoCo alone, a bare loop in C, and EnvPool's steps."""

from __future__ import annotations

import argparse
import ctypes
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mujoco.rollout
import numpy as np

from benchmarks.machine import describe
from benchmarks.speed.bare_loops import candidates_of, record
from benchmarks.speed.throughput import StopAfter
from benchmarks.tables import against_aim, markdown_table, median_and_range
from fastes import FastES, get_include
from fastes.envs.native.mujoco import clock, library
from fastes.settings.preset_loader import preset_for

# environment -> share of MuJoCo's own speed that training is meant to reach
PHYSICS_AIMS = {
    "HalfCheetah-v5": 0.93,
    "Hopper-v5": 0.90,
    "Walker2d-v5": 0.90,
    "Ant-v5": 0.90,
    "Swimmer-v5": 0.90,
    "Reacher-v5": 0.90,
    "Humanoid-v5": 0.97,
}
AIMS = {"CartPole-v1": 30.0, "Pendulum-v1": 30.0, "Acrobot-v1": 30.0, "MountainCar-v0": 30.0, "MountainCarContinuous-v0": 0.0}
BARE, BARE_AIM = "bare", 0.8  # CartPole over a bare loop of its equations
ENVPOOL = ("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5")
_ENVPOOL_SIZES = (1, 8, 64, 256)  # environments side by side, of which the fastest counts
_REPLAYED_STEPS = 16_000  # of a robot: how long mj_step takes depends on the candidate's contacts
_GENERATIONS = 20  # whose parameters have to be the same
_STATE = mujoco.mjtState.mjSTATE_FULLPHYSICS


def model_on(env: str, native: str) -> FastES:
    return FastES(env, preset="linear", n_workers=0, seed=0, target_return="none", native=native)


def check_same(env: str) -> None:
    """Raise AssertionError unless trainings in C and in Python have the same parameters, bit for bit."""
    thetas = []
    for native in ("on", "off"):
        with model_on(env, native) as model:
            model.learn(10**9, lambda model, _: model.generation < _GENERATIONS)
            thetas.append(model.theta.tobytes())
    assert thetas[0] == thetas[1], f"{env}: parameters differ between C and Python"


def rate(model: FastES, seconds: float) -> tuple[float, float]:
    """Train on for some seconds; return the environment steps per CPU second, evaluations included, and the last sigma.

    Steps are those that were played: `learn` ends with the evaluation that it has begun, and the next `learn` plays it again.
    """
    before, started, stop = model.evaluator.steps_played(), time.process_time(), StopAfter(seconds)
    model.learn(10**12, stop, reset_num_timesteps=False)
    spent, after = time.process_time() - started, model.evaluator.steps_played()
    return (sum(after) - sum(before)) / spent, stop.records[-1].sigma


def table_row(name: str, pairs: Sequence[tuple[float, float]], aim: float) -> list[str]:
    """The row of a name. pairs: steps per second of training in C, and of the baseline. aim: of the ratio; 0 for none."""
    ratios = [ours / baseline for ours, baseline in pairs]
    rates = (f"{np.median(rates):,.0f}" for rates in zip(*pairs, strict=True))
    return [name, *rates, median_and_range(ratios), against_aim(statistics.median(ratios), aim) if aim else ""]


def compare(env: str, seconds: float, repeats: int) -> list[str]:
    """The row of an environment."""
    check_same(env)
    with model_on(env, "on") as in_c, model_on(env, "off") as in_python:
        for model in (in_c, in_python):
            rate(model, 2 * seconds)  # its policy is trained then, and its episodes are long
        pairs = [(rate(in_c, seconds)[0], rate(in_python, seconds)[0]) for _ in range(repeats)]
    return table_row(env, pairs, AIMS[env])


def compiled(name: str, folder: str) -> str:
    """Compile a C file of this folder; return the library's path."""
    target = str(Path(folder) / f"{name}.so")
    source = str(Path(__file__).with_name(f"{name}.c"))
    subprocess.run(
        ["cc", "-O3", "-shared", "-fPIC", f"-I{get_include()}", source, "-o", target, "-lm"], check=True, timeout=120
    )
    return target


class Physics:
    """Episodes of a model's candidates as a program in C replays them: `mj_step` under the same controls, nothing else.

    MuJoCo's clock does not run in such a program; its package has set one.
    """

    def __init__(self, model: FastES, sigma: float, loop: Any) -> None:
        """loop: `bare_steps` of bare_mujoco.c."""
        env = model.source()
        inner: Any = env.unwrapped
        self._model, self._data, self._skip = inner.model, mujoco.MjData(inner.model), inner.frame_skip
        self._episodes: list[tuple[Any, Any]] = []
        self._clock, self._loop = clock(), loop
        data, step = self._data, ctypes.cast(library().mj_step, ctypes.c_void_p)
        self._places = [step, *map(ctypes.c_void_p, (self._model._address, data._address, data.ctrl.ctypes.data))]
        for seed, actions in record(env, model.policy_spec, candidates_of(model, sigma), 0, _REPLAYED_STEPS):
            env.reset(seed=seed)
            state = np.empty(mujoco.mj_stateSize(inner.model, _STATE))
            mujoco.mj_getState(inner.model, inner.data, state, _STATE)
            self._episodes.append((state, np.ascontiguousarray(actions, dtype=np.float64)))
        self._check()

    def _check(self) -> None:
        """Raise AssertionError unless an episode ends in the state in which MuJoCo's own replay ends."""
        state, actions = self._episodes[0]
        self._replay(state, actions)
        last = np.empty_like(state)
        mujoco.mj_getState(self._model, self._data, last, _STATE)
        controls = np.repeat(actions, self._skip, axis=0)[None]
        states, _ = mujoco.rollout.rollout(self._model, mujoco.MjData(self._model), state[None], controls)
        assert last.tobytes() == states[0, -1].tobytes(), "the bare loop and mujoco.rollout end in other states"

    def _replay(self, state: Any, actions: Any) -> None:
        self._data.qacc_warmstart[:] = 0.0
        mujoco.mj_setState(self._model, self._data, state, _STATE)
        sizes = map(ctypes.c_int64, (*actions.shape, self._skip))
        self._loop(*self._places, actions.ctypes.data_as(ctypes.c_void_p), *sizes)

    def rate(self, seconds: float) -> float:
        """Replay for some seconds; return the environment steps per CPU second."""
        usual, self._clock.value = self._clock.value, None
        began, started, steps = time.perf_counter(), time.process_time(), 0
        while time.perf_counter() - began < seconds:
            for state, actions in self._episodes:
                self._replay(state, actions)
                steps += len(actions)
        spent, self._clock.value = time.process_time() - started, usual
        return steps / spent


def over_physics(env: str, seconds: float, repeats: int) -> list[str]:
    """The row of a robot: training over its physics alone."""
    check_same(env)
    preset = preset_for(env) if env != "Humanoid-v5" else "linear"
    with (
        tempfile.TemporaryDirectory() as folder,
        FastES(env, preset=preset, n_workers=0, seed=0, target_return="none", native="on") as model,
    ):
        loop = ctypes.CDLL(compiled("bare_mujoco", folder)).bare_steps
        loop.restype = None
        rate(model, 2 * seconds)
        pairs = []
        for _ in range(repeats):
            ours, sigma = rate(model, seconds)
            pairs.append((ours, Physics(model, sigma, loop).rate(seconds)))
    return table_row(env, pairs, PHYSICS_AIMS[env])


def over_bare(seconds: float, repeats: int) -> list[str]:
    """The row of CartPole over a bare loop of its equations with the same policy."""
    with tempfile.TemporaryDirectory() as folder:
        path = compiled("bare_cartpole", folder)
        loop = ctypes.CDLL(path).bare_steps
        loop.restype = ctypes.c_int64
        with model_on(f"{path}:CartPole", "on") as model:
            rate(model, 2 * seconds)
            weight, bias = (np.ascontiguousarray(each) for each in (model.theta[:8], model.theta[8:10]))
            mean, inv_std = (np.ascontiguousarray(each) for each in (model.normalizer.mean, 1.0 / model.normalizer.std))
            given = [array.ctypes.data_as(ctypes.c_void_p) for array in (weight, bias, mean, inv_std)]
            pairs = []
            for _ in range(repeats):
                one, started = rate(model, seconds)[0], time.process_time()
                steps = loop(ctypes.c_int64(int(seconds * 10_000)), *given)
                pairs.append((one, steps / (time.process_time() - started)))
    return table_row("CartPole, bare loop", pairs, BARE_AIM)


class EnvPool:
    """Environments of EnvPool that step on one thread with actions drawn beforehand, without a policy."""

    def __init__(self, env_id: str, size: int) -> None:
        self._env = import_module("envpool").make(env_id, env_type="gymnasium", num_envs=size, num_threads=1, seed=0)
        space: Any = self._env.action_space
        space.seed(0)
        self._actions = np.stack([np.array([space.sample() for _ in range(size)]) for _ in range(100)])
        self._env.reset()
        self.size = size

    def rate(self, seconds: float) -> float:
        """Step for some seconds; return the steps per CPU second."""
        began, started, steps = time.perf_counter(), time.process_time(), 0
        while time.perf_counter() - began < seconds:
            for actions in self._actions:
                self._env.step(actions)
            steps += self.size * len(self._actions)
        return steps / (time.process_time() - started)

    def close(self) -> None:
        self._env.close()


def over_envpool(env: str, seconds: float, repeats: int) -> list[str]:
    """The row of an environment: training over the steps of EnvPool alone."""
    check_same(env)
    rates = dict[int, float]()
    for size in _ENVPOOL_SIZES:
        with closing(EnvPool(env, size)) as pool:
            rates[size] = pool.rate(seconds / 4)
    pool = EnvPool(env, max(_ENVPOOL_SIZES, key=lambda size: rates[size]))
    with closing(pool), model_on(env, "on") as model:
        rate(model, 2 * seconds)
        pairs = [(rate(model, seconds)[0], pool.rate(seconds)) for _ in range(repeats)]
    return table_row(f"{env}, EnvPool's steps ({pool.size} side by side)", pairs, 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.native", description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a stretch (default: 2)")
    parser.add_argument("--repeats", type=int, default=5, help="stretches of each side (default: 5)")
    names = (*PHYSICS_AIMS, *AIMS, BARE)
    parser.add_argument(
        "--envs", nargs="+", choices=names, default=names, metavar="ENV", help=f"of {', '.join(names)} (default: all)"
    )
    given = parser.parse_args()
    seconds, repeats = given.seconds, given.repeats
    rows = [over_physics(env, seconds, repeats) for env in PHYSICS_AIMS if env in given.envs]
    rows += [compare(env, seconds, repeats) for env in AIMS if env in given.envs]
    if BARE in given.envs:
        rows.append(over_bare(seconds, repeats))
    if find_spec("envpool"):  # pip install envpool
        rows += [over_envpool(env, seconds, repeats) for env in ENVPOOL if env in given.envs]
    print(describe())
    print(markdown_table(("environment", "in C, steps/s", "baseline, steps/s", "ratio", "aim"), rows))


if __name__ == "__main__":
    main()
