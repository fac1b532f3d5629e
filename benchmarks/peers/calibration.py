"""Which way of using the cores is the fastest for a peer on this machine: whole cycles of rollout and update, timed."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.child_process import ChildFailed, answer_once, records_of
from benchmarks.peers.sb3_peer import Way, make_peer, ways
from benchmarks.peers.zoo import PeerSettings, settings_for, shortened

_PATIENCE = 30.0  # seconds to start, and ten times those on the clock: a way that needs more is not the fastest


class Enough(Exception):
    """Ends `learn`: ARS does not listen to a callback that says stop."""


def steps_per_second(
    algo: str, env: str, settings: PeerSettings, way: Way, cores: int, seconds: float, warm_up: float, each_step: bool
) -> float:
    """Measure whole cycles for at least `seconds`, in this process, after a first one and warm_up seconds off the clock.

    each_step: from each environment step to the next, where a cycle takes minutes and its update no time.
    """
    from stable_baselines3.common.callbacks import BaseCallback

    marks: list[tuple[float, int]] = []
    begun = time.perf_counter()

    class Marks(BaseCallback):
        first = True

        def _mark(self, steps: int) -> None:
            now = time.perf_counter()
            if self.first or now - begun < warm_up:
                self.first = False
                return
            marks.append((now, steps))
            if len(marks) > 1 and now - marks[0][0] >= seconds:
                raise Enough

        def _on_rollout_start(self) -> None:
            if not each_step:
                self._mark(self.model.num_timesteps)

        def _on_step(self) -> bool:
            if each_step:
                self._mark(self.n_calls)
            return True

    peer = make_peer(algo, env, 0, settings, way, cores, lambda: 1.0)
    try:
        peer.model.learn(callback=Marks(), **peer.learn)
    except Enough:
        peer.end()
    (first, before), (last, after) = marks[0], marks[-1]
    return (after - before) / (last - first)


def rate_of(
    algo: str,
    env: str,
    settings: PeerSettings,
    way: Way,
    cpus: Sequence[int],
    seconds: float,
    log: Path,
    patience: float,
    warm_up: float = 0.0,
    each_step: bool = False,
) -> float:
    """`steps_per_second` in a fresh process on the CPUs, killed after `patience` seconds. Raises ChildFailed.

    log: file for what it prints; its folder is the process's.
    """
    given = {"algo": algo, "env": env, "settings": settings, "way": way, "cores": len(cpus), "seconds": seconds}
    given |= {"warm_up": warm_up, "each_step": each_step}
    (record,) = records_of(__name__, given, cpus, way.threads, log.parent, log, patience)
    return float(record["steps_per_second"])


def fastest_way(algo: str, env: str, cpus: Sequence[int], seconds: float, folder: Path) -> Way:
    """Measured once for each (algorithm, environment, cores) and kept in calibration.json; seconds = 0 takes the fallback."""
    cores = len(cpus)
    choices = ways(algo, settings_for(algo, env).n_envs, cores)
    if seconds <= 0 or len(choices) == 1:
        return choices[0]
    path, name = folder / "calibration.json", f"{env} {algo} on {cores} cores"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if name not in known:
        rates = [_rate_or_0(algo, env, way, cpus, seconds, folder) for way in choices]
        known[name] = [{**way._asdict(), "steps_per_second": round(rate)} for way, rate in zip(choices, rates, strict=True)]
        path.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    best = max(known[name], key=lambda found: found["steps_per_second"])
    return Way(best["processes"], best["threads"])


def _rate_or_0(algo: str, env: str, way: Way, cpus: Sequence[int], seconds: float, folder: Path) -> float:
    """0 for a way that fails: another one is taken."""
    settings = shortened(algo, settings_for(algo, env), len(cpus))
    log = folder / "logs" / f"{env.replace('/', '-')}-{algo}-calibration.log"
    try:
        return rate_of(algo, env, settings, way, cpus, seconds, log, _PATIENCE + 10 * seconds)
    except ChildFailed as failure:
        print(f"calibration of {algo} on {env}, {way}: {failure}", file=sys.stderr)
        return 0.0


def answer(given: dict[str, Any]) -> dict[str, Any]:
    """In the child: steps_per_second of the peer on its command line."""
    given |= {"settings": PeerSettings(*given["settings"]), "way": Way(*given["way"])}
    return {"steps_per_second": steps_per_second(**given)}


if __name__ == "__main__":
    answer_once(answer)
