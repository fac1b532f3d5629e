"""Proportional set sizes of a training on two workers: the parent's and a worker's."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys

from benchmarks.machine import describe
from benchmarks.tables import below_aim, markdown_table

AIMS = {"HalfCheetah-v5": (180.0, 110.0), "ALE/Pong-v5": (180.0, 90.0)}  # MB of the parent and of a worker
_TRAINING = """
import json, os, re, sys
from pathlib import Path
from fastes import FastES

def size(pid):
    return int(re.search(r"^Pss:\\s+(\\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)[1]) / 1e3

def measure(model, record):
    if record.generation < int(sys.argv[2]):
        return True
    workers = model.evaluator.pool.workers
    print(json.dumps([size(os.getpid()), *(size(worker.process.pid) for worker in workers.values())]), flush=True)
    return False

if __name__ == "__main__":
    with FastES(sys.argv[1], n_workers=2, seed=0) as model:
        model.learn(10**9, measure)
"""


def sizes(env: str, generations: int) -> list[float]:
    """MB of the parent and of each worker, after some generations in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", _TRAINING, env, str(generations)], capture_output=True, text=True, check=True)
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.memory", description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="trainings (default: 3)")
    parser.add_argument("--env", choices=AIMS, default="HalfCheetah-v5", help="default: HalfCheetah-v5")
    parser.add_argument("--generations", type=int, default=20, help="after which they are read (default: 20)")
    arguments = parser.parse_args()
    found = [sizes(arguments.env, arguments.generations) for _ in range(arguments.repeats)]
    parent_aim, worker_aim = AIMS[arguments.env]
    rows = []
    for name, aim, values in (
        ("parent", parent_aim, [parent for parent, *_ in found]),
        ("worker", worker_aim, [worker for _, *workers in found for worker in workers]),
    ):
        median = statistics.median(values)
        rows.append((name, f"{median:.0f}", f"{max(values):.0f}", below_aim(median, aim, "MB")))
    print(describe())
    print(markdown_table(("process", "MB, median", "MB, most", "aim"), rows))


if __name__ == "__main__":
    main()
