"""Training speed of sb3-contrib's ARS and SB3's PPO on HalfCheetah-v5, each way in a process of its own.

Settings are RL Zoo's for HalfCheetah. Whole cycles are timed (rollout and update), after a first one off the clock. In
'ARS, 8 envs in one process' a candidate's fitness is the sum of 8 episodes: with Zoo's single one, 7 of the 8 environments
step for nothing, at the same speed. Its steps are counted here: its own counter grows by 8 for each step of each environment.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from typing import Any, NamedTuple

from benchmarks.tables import against_aim, markdown_table
from fastes import FastES

ENV = "HalfCheetah-v5"
ARS_AIM, PPO_AIM = 3.0, 12.0
ARS_ZOO: dict[str, Any] = {"n_delta": 32, "n_top": 4, "learning_rate": 0.02, "delta_std": 0.03, "alive_bonus_offset": 0}
PPO_ZOO: dict[str, Any] = {
    "n_steps": 512,
    "batch_size": 64,
    "gamma": 0.98,
    "learning_rate": 2.0633e-05,
    "ent_coef": 0.000401762,
    "clip_range": 0.1,
    "n_epochs": 20,
    "gae_lambda": 0.92,
    "max_grad_norm": 0.8,
    "vf_coef": 0.58096,
}


class Way(NamedTuple):
    """algorithm: ARS or PPO. envs: in one VecEnv; processes: SubprocVecEnv, or AsyncEval for ARS."""

    algorithm: str
    envs: int
    processes: bool
    threads: int

    def __str__(self) -> str:
        if self.algorithm == "ARS":
            return f"ARS, AsyncEval with {self.envs} workers" if self.processes else f"ARS, {self.envs} envs in one process"
        kind, many = "SubprocVecEnv" if self.processes else "DummyVecEnv", "s" if self.envs > 1 else ""
        return f"PPO, {self.envs} env{many} ({kind}), torch threads: {self.threads}"


def ways(n_workers: int) -> list[Way]:
    """What is known to be fast: for PPO, each VecEnv with one torch thread and with one a worker."""
    found = [Way("ARS", 8, False, 1), Way("ARS", n_workers, True, 1)]
    for envs, processes in ((1, False), (8, False), (8, True)):
        found += [Way("PPO", envs, processes, threads) for threads in sorted({1, n_workers})]
    return found


# --- one way, in its own process ------------------------------------------------------------------------------------


class TimeUp(Exception):
    """Ends `learn`: ARS does not listen to a callback that says stop."""


def make_clock(seconds: float, each_step: bool) -> Any:
    """An SB3 callback that keeps (time, timesteps) at each mark, and raises TimeUp when `seconds` have passed.

    Marks are the starts of rollouts: from one to the next lies a whole cycle. The first cycle, and at least a second, is
    left out. each_step: marks are calls, one an environment step, where a cycle takes minutes and its update no time.
    """
    from stable_baselines3.common.callbacks import BaseCallback

    class Clock(BaseCallback):
        def __init__(self) -> None:
            super().__init__()
            self.marks: list[tuple[float, int]] = []
            self.warm = False
            self.begun = time.perf_counter()

        def _mark(self) -> None:
            now = time.perf_counter()
            if not self.warm or now - self.begun < 1.0:
                self.warm = True
                return
            self.marks.append((now, self.n_calls if each_step else self.model.num_timesteps))
            if now - self.marks[0][0] >= seconds:
                raise TimeUp

        def _on_rollout_start(self) -> None:
            if not each_step:
                self._mark()

        def _on_step(self) -> bool:
            if each_step:
                self._mark()
            return True

    return Clock()


def measure_here(way: Way, seconds: float) -> float:
    """Steps per second of a way, in this process."""
    import torch
    from sb3_contrib import ARS
    from sb3_contrib.common.vec_env import AsyncEval
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize

    torch.set_num_threads(way.threads)
    one_cycle_is_long = way.algorithm == "ARS" and not way.processes
    clock = make_clock(seconds, each_step=one_cycle_is_long)
    learn: dict[str, Any] = {"total_timesteps": 10**9, "callback": clock, "log_interval": None}

    def make(envs: int, kind: type[DummyVecEnv] | type[SubprocVecEnv], **normalize: Any) -> VecNormalize:
        return VecNormalize(make_vec_env(ENV, envs, vec_env_cls=kind), **normalize)

    try:
        if way.algorithm == "PPO":
            network = {"pi": [256, 256], "vf": [256, 256]}
            policy = {"log_std_init": -2, "ortho_init": False, "activation_fn": torch.nn.ReLU, "net_arch": network}
            env = make(way.envs, SubprocVecEnv if way.processes else DummyVecEnv, gamma=PPO_ZOO["gamma"])
            PPO("MlpPolicy", env, policy_kwargs=policy, device="cpu", seed=0, **PPO_ZOO).learn(**learn)
        elif way.processes:
            build = partial(make, 1, DummyVecEnv, norm_reward=False)
            ars = ARS("LinearPolicy", build(), seed=0, **ARS_ZOO)
            learn["async_eval"] = AsyncEval([build] * way.envs, ars.policy)
            ars.learn(**learn)
        else:
            env = make(way.envs, DummyVecEnv, norm_reward=False)
            ARS("LinearPolicy", env, seed=0, n_eval_episodes=way.envs, **ARS_ZOO).learn(**learn)
    except TimeUp:
        pass
    (first, steps_before), (last, steps_after) = clock.marks[0], clock.marks[-1]
    return float((steps_after - steps_before) / (last - first))


# --- all ways -------------------------------------------------------------------------------------------------------


def measure(way: Way, seconds: float) -> float:
    """Steps per second of a way, in a fresh process whose numerical libraries use the way's threads."""
    command = [sys.executable, "-m", "benchmarks.speed.peers", json.dumps(way), "--seconds", str(seconds)]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(way.threads))
    done = subprocess.run(command, env={**os.environ, **threads}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{way} failed:\n{done.stderr}")
    return float(done.stdout.split()[-1])


def compare(n_workers: int, seconds: float, repeats: int) -> str:
    """A markdown table of FastES and all ways, measured in turn."""
    from benchmarks.speed.throughput import train_for

    peers = ways(n_workers)
    rates: dict[Way, list[float]] = {way: [] for way in peers}
    ours: list[float] = []
    with FastES(ENV, n_workers=n_workers, seed=0, target_return="none") as model:
        train_for(model, seconds)
        for _ in range(repeats):
            for way in peers:
                rates[way].append(measure(way, seconds))
                print(f"{way}: {rates[way][-1]:,.0f} steps/s", file=sys.stderr, flush=True)
            ours.append(train_for(model, seconds).steps_per_second)
    own = statistics.median(ours)
    medians = {way: statistics.median(found) for way, found in rates.items()}
    best = {name: max((w for w in peers if w.algorithm == name), key=lambda w: medians[w]) for name in ("ARS", "PPO")}
    rows = [(f"FastES, {n_workers} workers", f"{own:,.0f}", "", "")]
    for way in peers:
        ratio = own / medians[way]
        aim = ARS_AIM if way.algorithm == "ARS" else PPO_AIM
        rows.append(
            (str(way), f"{medians[way]:,.0f}", f"{ratio:.1f}", against_aim(ratio, aim) if best[way.algorithm] is way else "")
        )
    return f"### {ENV}: training steps per second beside its peers\n\n" + markdown_table(
        ("what", "steps/s", "FastES over it", "aim, against the best"), rows
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed.peers",
        description="One way alone, for `benchmarks.speed.throughput --peers`; prints steps per second.",
    )
    parser.add_argument("way", help='as JSON: algorithm, envs, processes, torch threads, such as ["PPO", 8, false, 1]')
    parser.add_argument("--seconds", type=float, default=6.0, help="seconds on the clock, more until a cycle ends (default: 6)")
    arguments = parser.parse_args()
    print(measure_here(Way(*json.loads(arguments.way)), arguments.seconds))


if __name__ == "__main__":
    main()
