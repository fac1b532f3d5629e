"""Proportional set sizes of a training on HalfCheetah-v5: the parent's and a worker's."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys

from benchmarks.machine import describe
from benchmarks.tables import below_aim, markdown_table

PARENT_AIM, WORKER_AIM = 180.0, 110.0  # MB
_TRAINING = """
import json, os, re
from pathlib import Path
from fastes import FastES

def size(pid):
    return int(re.search(r"^Pss:\\s+(\\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)[1]) / 1e3

def measure(model, record):
    if record.generation < 20:
        return True
    workers = model.evaluator.pool.workers
    print(json.dumps([size(os.getpid()), *(size(worker.process.pid) for worker in workers.values())]), flush=True)
    return False

if __name__ == "__main__":
    with FastES("HalfCheetah-v5", n_workers=2, seed=0) as model:
        model.learn(10**9, measure)
"""


def sizes() -> list[float]:
    """MB of the parent and of each worker, after 20 generations in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", _TRAINING], capture_output=True, text=True, check=True)
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.memory", description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="trainings (default: 3)")
    found = [sizes() for _ in range(parser.parse_args().repeats)]
    rows = []
    for name, aim, values in (
        ("parent", PARENT_AIM, [parent for parent, *_ in found]),
        ("worker", WORKER_AIM, [worker for _, *workers in found for worker in workers]),
    ):
        median = statistics.median(values)
        rows.append((name, f"{median:.0f}", f"{max(values):.0f}", below_aim(median, aim, "MB")))
    print(describe())
    print(markdown_table(("process", "MB, median", "MB, most", "aim"), rows))


if __name__ == "__main__":
    main()
