"""Which way of using the cores is the fastest for a peer on this machine: whole cycles of rollout and update, timed."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.child_process import ChildFailed, records_of
from benchmarks.peers.sb3_peer import Way, make_peer, ways
from benchmarks.peers.zoo import settings_for, shortened

_PATIENCE = 30.0  # seconds to start, and ten times those on the clock: a way that needs more is not the fastest


class Enough(Exception):
    """Ends `learn`."""


def steps_per_second(algo: str, env: str, way: Way, cores: int, seconds: float) -> float:
    """Over whole cycles of at least so many seconds, after a first one off the clock, in this process."""
    from stable_baselines3.common.callbacks import BaseCallback

    marks: list[tuple[float, int]] = []

    class Marks(BaseCallback):
        def _on_rollout_start(self) -> None:
            marks.append((time.perf_counter(), self.model.num_timesteps))
            if len(marks) > 2 and marks[-1][0] - marks[1][0] >= seconds:
                raise Enough

        def _on_step(self) -> bool:
            return True

    settings = shortened(algo, settings_for(algo, env), cores)
    peer = make_peer(algo, env, 0, settings, way, cores, lambda: 1.0)
    try:
        peer.model.learn(callback=Marks(), **peer.learn)
    except Enough:
        peer.end()
    (began, before), (ended, after) = marks[1], marks[-1]
    return (after - before) / (ended - began)


def fastest_way(algo: str, env: str, cpus: Sequence[int], seconds: float, folder: Path) -> Way:
    """Measured once for each (algorithm, environment, cores) and kept in calibration.json; seconds = 0 takes the fallback."""
    cores = len(cpus)
    choices = ways(algo, settings_for(algo, env).n_envs, cores)
    if seconds <= 0 or len(choices) == 1:
        return choices[0]
    path, name = folder / "calibration.json", f"{env} {algo} on {cores} cores"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if name not in known:
        rates = [_rate(algo, env, way, cpus, seconds, folder) for way in choices]
        known[name] = [{**way._asdict(), "steps_per_second": round(rate)} for way, rate in zip(choices, rates, strict=True)]
        path.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    best = max(known[name], key=lambda found: found["steps_per_second"])
    return Way(best["processes"], best["threads"])


def _rate(algo: str, env: str, way: Way, cpus: Sequence[int], seconds: float, folder: Path) -> float:
    """0 for a way that fails: another one is taken."""
    given = {"algo": algo, "env": env, "way": way, "cores": len(cpus), "seconds": seconds}
    log = folder / "logs" / f"{env.replace('/', '-')}-{algo}-calibration.log"
    try:
        records = list(records_of(__name__, given, cpus, way.threads, folder, log, _PATIENCE + 10 * seconds))
    except ChildFailed as failure:
        print(f"calibration of {algo} on {env}, {way}: {failure}", file=sys.stderr)
        return 0.0
    return float(records[-1]["steps_per_second"])


def main() -> None:
    from benchmarks.child_process import records_to_stdout

    given: dict[str, Any] = json.loads(sys.argv[1])
    write = records_to_stdout()
    rate = steps_per_second(given["algo"], given["env"], Way(*given["way"]), given["cores"], given["seconds"])
    write({"steps_per_second": rate})


if __name__ == "__main__":
    main()
