"""Time from the shell prompt: a cold `fastes train CartPole-v1` until it has ended, solved; and `import fastes`."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.machine import describe
from benchmarks.tables import below_aim, markdown_table
from fastes import FastES
from fastes.checkpoints.locate import find_checkpoint

ENV, SOLVED, EPISODES = "CartPole-v1", 475.0, 100
FIRST_AIM, SOLVED_AIM, TRAIN_AIM, IMPORT_AIM = 0.6, 1.0, 5.0, 0.3
UNWANTED = ("torch", "matplotlib", "ray")
# a user's start finds bytecode, since pip compiles what it installs
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
_IMPORT = """
import json, sys, time
started = time.perf_counter()
{statement}
print(json.dumps([time.perf_counter() - started, [name for name in {unwanted} if name in sys.modules]]))
"""


class Training(NamedTuple):
    """How a training went.

    first: seconds from the process's start until its first generation is on the screen.
    solved: those until it is confirmed to be solved.
    seconds: wall time of the whole process.
    mean: return of its best.zip, evaluated outside the clock.
    """

    seed: int
    first: float
    solved: float
    seconds: float
    timesteps: int
    mean: float


def train_cold(seed: int) -> Training:
    """Train in a fresh process. Ends the program unless it was solved, and stays so over 100 other episodes."""
    with tempfile.TemporaryDirectory() as runs:
        command = [sys.executable, "-m", "fastes", "train", ENV, "--seed", str(seed), "--runs", runs]
        started, said, after = time.perf_counter(), "", dict[str, float]()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=_ENVIRONMENT) as child:
            assert child.stdout is not None
            for line in child.stdout:
                said += line
                after.setdefault(line.split(maxsplit=1)[0] if line.strip() else "", time.perf_counter() - started)
        seconds = time.perf_counter() - started
        if child.returncode or not {"first", "confirmed:", "solved:"} <= after.keys():
            raise SystemExit(f"seed {seed} was not solved:\n{said[-2000:]}")
        (run,) = (Path(runs) / ENV).iterdir()
        with FastES.load(find_checkpoint(run)) as model:
            mean = model.evaluate(EPISODES, first_seed=1_000_000).mean
            timesteps = model.num_timesteps
    if mean < SOLVED:
        raise SystemExit(f"seed {seed}: best.zip reaches {mean:.1f} over {EPISODES} episodes, expected {SOLVED:g}")
    return Training(seed, after["first"], after["confirmed:"], seconds, timesteps, mean)


def import_cold(statement: str) -> tuple[float, list[str]]:
    """Seconds of an import in a fresh interpreter, and the heavy modules that it loaded."""
    code = _IMPORT.format(statement=statement, unwanted=UNWANTED)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=_ENVIRONMENT)
    seconds, loaded = json.loads(done.stdout)
    return seconds, loaded


def time_imports(repeats: int) -> str:
    rows = []
    for statement, aim in (("import fastes", IMPORT_AIM), ("from fastes import FastES", None)):
        found = [import_cold(statement) for _ in range(repeats)]
        loaded = sorted({name for _, names in found for name in names})
        if loaded:
            raise SystemExit(f"{statement!r} loads {', '.join(loaded)}")
        median = statistics.median(seconds for seconds, _ in found)
        rows.append((statement, f"{median:.3f}", "" if aim is None else below_aim(median, aim, "s")))
    title = f"### Import in a fresh interpreter, median of {repeats}; neither loads {', '.join(UNWANTED)}\n\n"
    return title + markdown_table(("what", "s", "aim"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.cold_start", description=__doc__)
    parser.add_argument(
        "--repeats", type=int, default=5, help="trainings, each with a seed of its own, and imports (default: 5)"
    )
    parser.add_argument("--first-seed", type=int, default=0, metavar="K", help="seeds are K, K+1, ... (default: 0)")
    arguments = parser.parse_args()
    train_cold(arguments.first_seed)  # off the clock: it compiles what has no bytecode yet, and fills the page cache
    print(f"{describe()}\n\n{time_imports(arguments.repeats)}\n", flush=True)
    trainings = [train_cold(arguments.first_seed + k) for k in range(arguments.repeats)]
    rows = [
        (str(t.seed), f"{t.first:.2f}", f"{t.solved:.2f}", f"{t.seconds:.2f}", f"{t.timesteps:,}", f"{t.mean:.1f}")
        for t in trainings
    ]
    first, solved, whole = (statistics.median(times) for times in list(zip(*trainings, strict=True))[1:4])
    steps = statistics.median(t.timesteps for t in trainings)
    rows.append(("median", f"{first:.2f}", f"{solved:.2f}", f"{whole:.2f}", f"{steps:,.0f}", ""))
    rows.append(
        ("aim", below_aim(first, FIRST_AIM, "s"), below_aim(solved, SOLVED_AIM, "s"), below_aim(whole, TRAIN_AIM, "s"), "", "")
    )
    print(f"### Cold `fastes train {ENV}`\n")
    header = ("seed", "first generation, s", "solved, s", "ended, s", "timesteps", f"best.zip over {EPISODES} other episodes")
    print(markdown_table(header, rows))


if __name__ == "__main__":
    main()
