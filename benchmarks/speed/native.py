"""Training on environments in C, over training on the same ones in Python, and over a bare loop in C."""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import describe
from benchmarks.speed.timing import median_ratio
from benchmarks.tables import against_aim, markdown_table, median_and_range
from fastes import FastES, get_include

AIMS = {"CartPole-v1": 30.0, "Pendulum-v1": 30.0, "Acrobot-v1": 30.0, "MountainCar-v0": 30.0, "MountainCarContinuous-v0": 0.0}
BARE_AIM = 0.8
_GENERATIONS = 20  # whose parameters have to be the same
_CODE = Path(__file__).with_name("bare_cartpole.c")


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


def rate(model: FastES, seconds: float) -> float:
    """Train on for some seconds; return the environment steps per CPU second, evaluations included."""
    before, began, started = model.num_timesteps + model.eval_timesteps, time.perf_counter(), time.process_time()
    model.learn(10**12, lambda *_: time.perf_counter() - began < seconds, reset_num_timesteps=False)
    return (model.num_timesteps + model.eval_timesteps - before) / (time.process_time() - started)


def compare(env: str, seconds: float, repeats: int) -> list[str]:
    """The row of an environment."""
    check_same(env)
    with model_on(env, "on") as in_c, model_on(env, "off") as in_python:
        for model in (in_c, in_python):
            rate(model, 2 * seconds)  # its policy is trained then, and its episodes are long
        pairs = [(rate(in_c, seconds), rate(in_python, seconds)) for _ in range(repeats)]
    ratios = [a / b for a, b in pairs]
    aim = against_aim(float(np.median(ratios)), AIMS[env]) if AIMS[env] else ""
    return [env, *(f"{np.median(rates):,.0f}" for rates in zip(*pairs, strict=True)), median_and_range(ratios), aim]


def compile_bare(folder: str) -> tuple[Callable[..., int], str]:
    """Compile the bare loop. Returns it, and the library, which FastES trains on."""
    library = str(Path(folder) / "bare_cartpole.so")
    subprocess.run(
        ["cc", "-O3", "-shared", "-fPIC", f"-I{get_include()}", str(_CODE), "-o", library, "-lm"], check=True, timeout=120
    )
    loop = ctypes.CDLL(library).bare_steps
    loop.restype = ctypes.c_int64
    return loop, f"{library}:CartPole"


def over_bare(seconds: float, repeats: int) -> list[str]:
    """The row of CartPole over a bare loop of its equations with the same policy."""
    with tempfile.TemporaryDirectory() as folder:
        loop, env = compile_bare(folder)
        with model_on(env, "on") as model:
            rate(model, 2 * seconds)
            weight: Any = np.ascontiguousarray(model.theta[:8])
            mean, inv_std = (np.ascontiguousarray(each) for each in (model.normalizer.mean, 1.0 / model.normalizer.std))
            given = [array.ctypes.data_as(ctypes.c_void_p) for array in (weight, mean, inv_std)]
            pairs = []
            for _ in range(repeats):
                one, started = rate(model, seconds), time.process_time()
                steps = loop(ctypes.c_int64(int(seconds * 10_000)), *given)
                pairs.append((one, steps / (time.process_time() - started)))
    ratio = median_ratio(*zip(*pairs, strict=True))
    rates = (f"{np.median(rates):,.0f}" for rates in zip(*pairs, strict=True))
    return ["CartPole, bare loop", *rates, median_and_range([a / b for a, b in pairs]), against_aim(ratio, BARE_AIM)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.native", description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a stretch (default: 2)")
    parser.add_argument("--repeats", type=int, default=5, help="stretches of each side (default: 5)")
    given = parser.parse_args()
    rows = [compare(env, given.seconds, given.repeats) for env in AIMS]
    rows.append(over_bare(given.seconds, given.repeats))
    print(describe())
    print(markdown_table(("environment", "in C, steps/s", "beside it, steps/s", "ratio", "aim"), rows))


if __name__ == "__main__":
    main()
