"""FastES and sb3-contrib's ARS on the same VecEnv of SB3, and the cost of SB3's callbacks. One process, one thread."""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from sb3_contrib import ARS
from stable_baselines3.common import callbacks
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from benchmarks.machine import describe
from benchmarks.tables import against_aim, markdown_table, median_and_range
from fastes import Callback, FastES
from fastes.reports.callbacks import as_callbacks
from fastes.sb3.callbacks import step_callback
from fastes.training.record import Record

ENV, NUM_ENVS = "HalfCheetah-v5", 8
PER_GENERATION = 30  # candidates; with 2 evaluation episodes they fill the environments
ARS_AIM, CALLBACKS_AIM = 1.0, 0.98


class Stretch(NamedTuple):
    """Environment steps that told something of a policy, and what they took."""

    steps: int
    wall: float
    cpu: float

    @property
    def rate(self) -> float:
        """Steps per CPU second: both sides run in one thread, and other programs' turns do not count."""
        return self.steps / self.cpu


class CountingVecEnv(DummyVecEnv):
    """Counts environment steps: ARS's own counter grows by the number of environments for each step of each."""

    calls = 0

    def step_wait(self) -> Any:
        CountingVecEnv.calls += 1
        return super().step_wait()


def vec_env() -> VecNormalize:
    return VecNormalize(make_vec_env(ENV, NUM_ENVS, vec_env_cls=CountingVecEnv), norm_reward=False)


def timed(work: Any) -> tuple[int, float, float]:
    """Environment steps, wall seconds and CPU seconds of a call."""
    calls, wall, cpu = CountingVecEnv.calls, time.perf_counter(), time.process_time()
    work()
    return (CountingVecEnv.calls - calls) * NUM_ENVS, time.perf_counter() - wall, time.process_time() - cpu


def check_vector_env() -> None:
    """The vector environment gives the bits of the environment alone, before their speed is worth anything."""
    settings: dict[str, Any] = {"seed": 0, "population_size": 4, "preset": "default", "target_return": "none"}
    thetas = []
    for env in ("CartPole-v1", make_vec_env("CartPole-v1", 3)):
        with FastES(env, n_workers=0, **settings) as model:
            model.learn(500)
            thetas.append(model.theta)
    if not np.array_equal(*thetas):
        raise SystemExit("the vector environment and the environment alone give different parameters: nothing is timed")


def compare_with_ars(repeats: int) -> list[str]:
    model = FastES("LinearPolicy", vec_env(), seed=0, population_size=PER_GENERATION, eval_episodes=2, target_return="none")
    # candidates of 8 episodes, so that no environment steps for nothing; with Zoo's single episode 7 of 8 do
    ars = ARS("LinearPolicy", vec_env(), seed=0, n_delta=2, n_top=1, n_eval_episodes=NUM_ENVS)

    def fastes() -> Stretch:
        before = model.num_timesteps + model.eval_timesteps
        _, wall, cpu = timed(lambda: model.learn(1, reset_num_timesteps=False))
        return Stretch(model.num_timesteps + model.eval_timesteps - before, wall, cpu)

    def peer() -> Stretch:
        return Stretch(*timed(lambda: ars.learn(1, reset_num_timesteps=False, log_interval=None)))

    for way in (fastes, peer):
        way()
    pairs = [(fastes(), peer()) for _ in range(repeats)]
    ratios = [mine.rate / theirs.rate for mine, theirs in pairs]
    return row_of(f"FastES / ARS on a VecEnv of {NUM_ENVS} {ENV}, VecNormalize", pairs, ratios, ARS_AIM)


def row_of(name: str, pairs: Sequence[tuple[Stretch, Stretch]], ratios: Sequence[float], aim: float) -> list[str]:
    """Rates of both sides, their ratio by CPU time and by wall time."""
    walls = [first.steps / first.wall / (second.steps / second.wall) for first, second in pairs]
    rates = [f"{statistics.median(side):,.0f}" for side in zip(*((a.rate, b.rate) for a, b in pairs), strict=True)]
    told = (median_and_range(ratios, "{:.3f}"), median_and_range(walls, "{:.3f}"))
    return [name, *rates, *told, against_aim(statistics.median(ratios), aim)]


class Clocked(Callback):
    """A callback and the CPU seconds that it takes."""

    def __init__(self, callback: Callback) -> None:
        self.callback, self.cpu = callback, 0.0

    def on_start(self, model: FastES, total_timesteps: int) -> None:
        self.callback.on_start(model, total_timesteps)

    def on_generation(self, model: FastES, record: Record) -> bool:
        cpu = time.process_time()
        goes_on = self.callback.on_generation(model, record)
        self.cpu += time.process_time() - cpu
        return goes_on is not False


class ClockedEvaluation(callbacks.EvalCallback):
    """EvalCallback and the CPU and wall seconds of its evaluations."""

    cpu = wall = 0.0

    def _on_step(self) -> bool:
        wall, cpu = time.perf_counter(), time.process_time()
        goes_on = super()._on_step()
        self.wall += time.perf_counter() - wall
        self.cpu += time.process_time() - cpu
        return goes_on


def callback_cost(repeats: int, generations: int) -> list[str]:
    """Training with EvalCallback and CheckpointCallback and without, the evaluation's own episodes off the clock.

    The ratio is 1 - (CPU seconds in the callbacks) / (CPU seconds in all), which other programs' turns do not move.
    """

    def train(attached: Any, evaluation: ClockedEvaluation | None) -> Stretch:
        before = model.num_timesteps + model.eval_timesteps
        enough = [lambda _, record: record.generation % generations != 0, *attached]
        _, wall, cpu = timed(lambda: model.learn(10**9, enough, reset_num_timesteps=False))
        steps = model.num_timesteps + model.eval_timesteps - before
        off = (evaluation.wall, evaluation.cpu) if evaluation else (0.0, 0.0)
        return Stretch(steps, wall - off[0], cpu - off[1])

    def attached(folder: str) -> tuple[Stretch, float]:
        evaluation = ClockedEvaluation(gymnasium.make(ENV), eval_freq=50_000, n_eval_episodes=1, verbose=0, warn=False)
        saving = callbacks.CheckpointCallback(50_000, os.path.join(folder, "checkpoints"))
        clocked = [Clocked(each) for each in as_callbacks([evaluation, saving], step_callback)]
        stretch = train(clocked, evaluation)
        return stretch, 1.0 - (sum(each.cpu for each in clocked) - evaluation.cpu) / stretch.cpu

    with tempfile.TemporaryDirectory() as folder, FastES(ENV, seed=0, n_workers=0, target_return="none") as model:
        attached(folder)
        found = [(*attached(folder), train([], None)) for _ in range(repeats)]
    pairs, ratios = [(first, second) for first, _, second in found], [ratio for _, ratio, _ in found]
    return row_of(f"with EvalCallback and CheckpointCallback / without, {ENV}", pairs, ratios, CALLBACKS_AIM)


HEADER = ("compared", "first: steps per CPU second", "second", "ratio", "ratio by wall time", "aim")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.sb3", description=__doc__)
    parser.add_argument("--repeats", type=int, default=7, help="pairs of stretches, taken in turn (default: 7)")
    parser.add_argument("--generations", type=int, default=4, help="of a stretch with or without callbacks (default: 4)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    check_vector_env()
    print(f"{describe()}\n\nMedians of {arguments.repeats} pairs of stretches, taken in turn.\n", flush=True)
    rows = [compare_with_ars(arguments.repeats), callback_cost(arguments.repeats, arguments.generations)]
    print(markdown_table(HEADER, rows))


if __name__ == "__main__":
    main()
