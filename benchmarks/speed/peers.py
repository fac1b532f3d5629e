"""Training speed of sb3-contrib's ARS and SB3's PPO on HalfCheetah-v5, each way in a process of its own.

Settings are RL Zoo's for HalfCheetah. Whole cycles are timed (rollout and update), after a first one off the clock. In
'ARS, 8 envs in one process' a candidate's fitness is the sum of 8 episodes: with Zoo's single one, 7 of the 8 environments
step for nothing, at the same speed. Its steps are counted here: its own counter grows by 8 for each step of each environment.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.child_process import ChildFailed
from benchmarks.machine import usable_cpus
from benchmarks.peers.calibration import rate_of
from benchmarks.peers.sb3_peer import Way
from benchmarks.peers.zoo import PeerSettings, settings_for
from benchmarks.tables import against_aim, markdown_table
from fastes import FastES

ENV = "HalfCheetah-v5"
AIMS = {"ars": 3.0, "ppo": 12.0}
_PATIENCE = 600.0


class PeerWay(NamedTuple):
    """How a peer steps its environments.

    envs: in one VecEnv, or workers of AsyncEval.
    way: in processes or not, and torch's threads.
    """

    algo: str
    envs: int
    way: Way

    def __str__(self) -> str:
        if self.algo == "ars":
            return f"ARS, AsyncEval with {self.envs} workers" if self.way.processes else f"ARS, {self.envs} envs in one process"
        kind, many = "SubprocVecEnv" if self.way.processes else "DummyVecEnv", "s" if self.envs > 1 else ""
        return f"PPO, {self.envs} env{many} ({kind}), torch threads: {self.way.threads}"

    @property
    def settings(self) -> PeerSettings:
        """Zoo's, with as many environments; ARS in one process plays an episode of a candidate in each."""
        found = settings_for(self.algo, ENV)
        if self.algo == "ars" and self.way.processes:
            return found
        arguments = found.arguments | ({"n_eval_episodes": self.envs} if self.algo == "ars" else {})
        return found._replace(n_envs=self.envs, arguments=arguments)


def peer_ways(n_workers: int) -> list[PeerWay]:
    """Ways that are known to be fast: for PPO, each VecEnv with one torch thread and with one per worker."""
    found = [PeerWay("ars", 8, Way(False, 1)), PeerWay("ars", n_workers, Way(True, 1))]
    for envs, processes in ((1, False), (8, False), (8, True)):
        found += [PeerWay("ppo", envs, Way(processes, threads)) for threads in sorted({1, n_workers})]
    return found


def measure(peer: PeerWay, cpus: Sequence[int], seconds: float) -> float:
    """Steps per second of a way, in a fresh process whose numerical libraries use the way's threads."""
    one_cycle_is_long = peer.algo == "ars" and not peer.way.processes
    with tempfile.TemporaryDirectory() as folder:
        given = (peer.algo, ENV, peer.settings, peer.way, cpus, seconds, Path(folder) / "log", _PATIENCE)
        try:
            return rate_of(*given, warm_up=1.0, each_step=one_cycle_is_long)
        except ChildFailed as failure:
            raise SystemExit(f"{peer} failed: {failure}") from None


def compare(n_workers: int, seconds: float, repeats: int, train_for: Callable[[FastES, float], float]) -> str:
    """A markdown table of FastES and all ways, measured in turn. train_for: steps per second of some seconds of training."""
    peers, cpus = peer_ways(n_workers), usable_cpus(min(n_workers, len(usable_cpus(None))))
    rates: dict[PeerWay, list[float]] = {peer: [] for peer in peers}
    ours: list[float] = []
    with FastES(ENV, n_workers=n_workers, seed=0, target_return="none") as model:
        train_for(model, seconds)
        for _ in range(repeats):
            for peer in peers:
                rates[peer].append(measure(peer, cpus, seconds))
                print(f"{peer}: {rates[peer][-1]:,.0f} steps/s", file=sys.stderr, flush=True)
            ours.append(train_for(model, seconds))
    own = statistics.median(ours)
    medians = {peer: statistics.median(found) for peer, found in rates.items()}
    best = {algo: max((p for p in peers if p.algo == algo), key=lambda p: medians[p]) for algo in AIMS}
    rows = [(f"FastES, {n_workers} workers", f"{own:,.0f}", "", "")]
    for peer in peers:
        ratio = own / medians[peer]
        aim = against_aim(ratio, AIMS[peer.algo]) if best[peer.algo] is peer else ""
        rows.append((str(peer), f"{medians[peer]:,.0f}", f"{ratio:.1f}", aim))
    return f"### {ENV}: training steps per second beside its peers\n\n" + markdown_table(
        ("what", "steps/s", "FastES over it", "aim, against the best"), rows
    )
