"""Returns that a preset reaches on several seeds: the final parameters and the best so far, over 100 noise-free episodes."""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple, get_type_hints

from benchmarks.learning.runs.contestant import fingerprint, preset_fingerprint
from benchmarks.machine import describe, versions
from benchmarks.options import COUNT, COUNT_OR_0
from benchmarks.tables import markdown_table
from fastes import Callback, FastES
from fastes.checkpoint import Checkpoint, write_checkpoint
from fastes.logger import Record
from fastes.presets import load_preset, preset_for

EPISODES = 100


class Task(NamedTuple):
    """timesteps: budget. aim: the return whose first evaluation is dated."""

    timesteps: int
    aim: float


TASKS = {
    "CartPole-v1": Task(100_000, 475.0),
    "Acrobot-v1": Task(1_000_000, -90.0),
    "MountainCar-v0": Task(1_000_000, -110.0),
    "MountainCarContinuous-v0": Task(300_000, 90.0),
    "Pendulum-v1": Task(1_000_000, -200.0),
    "LunarLander-v3": Task(1_500_000, 200.0),
    "LunarLanderContinuous-v3": Task(1_000_000, 200.0),
    "BipedalWalker-v3": Task(10_000_000, 280.0),
    "InvertedPendulum-v5": Task(300_000, 1000.0),
    "InvertedDoublePendulum-v5": Task(1_000_000, 9300.0),
    "Swimmer-v5": Task(1_700_000, 350.0),
    "Reacher-v5": Task(3_000_000, -5.0),
    "HalfCheetah-v5": Task(2_000_000, 4500.0),
    "Hopper-v5": Task(4_000_000, 3400.0),
    "Walker2d-v5": Task(4_000_000, 3500.0),
    "Ant-v5": Task(15_000_000, 3000.0),
}


class Result(NamedTuple):
    """One row of the CSV file.

    final_*, best_*: over 100 episodes, of the last parameters and of those whose evaluation during training was the best.
    first_reached: timesteps when an evaluation during training first reached the aim, nan for never. cpu_seconds: of
    training, all its processes. settings: their fingerprint, empty in rows that are older than it.
    """

    env: str
    preset: str
    seed: int
    timesteps: int
    final_mean: float
    final_std: float
    best_mean: float
    best_std: float
    first_reached: float
    wall_seconds: float
    cpu_seconds: float
    versions: str
    aim: float
    settings: str


class Watch(Callback):
    """Keeps the best parameters so far, and when the aim was first reached."""

    def __init__(self, aim: float) -> None:
        self.aim, self.first_reached = aim, math.nan
        self.best: Checkpoint | None = None

    def on_new_best(self, model: FastES, eval_return: float) -> None:  # noqa: ARG002
        self.best = model.snapshot()

    def on_generation(self, model: FastES, record: Record) -> None:  # noqa: ARG002
        if record.eval_return >= self.aim and math.isnan(self.first_reached):
            self.first_reached = record.timesteps


# --- one seed, in its own process -----------------------------------------------------------------------------------


def cpu_seconds() -> float:
    """Of this process and of the children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def train(env: str, preset: str, seed: int, timesteps: int, aim: float, n_workers: int) -> Result:
    """Train with a preset to the end of the budget, then evaluate twice."""
    watch, started, started_cpu = Watch(aim), time.perf_counter(), cpu_seconds()
    with FastES(env, preset=preset, n_workers=n_workers, seed=seed, target_return="none") as model:
        model.learn(timesteps, watch)
        wall = time.perf_counter() - started
        model.close()  # its workers' CPU time counts once they have ended
        used = cpu_seconds() - started_cpu
        final, settings = model.evaluate(EPISODES), fingerprint(model.settings)
    assert watch.best is not None
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder) / "best.zip", watch.best)
        with FastES.load(Path(folder) / "best.zip", n_workers=n_workers) as model:
            best = model.evaluate(EPISODES)
    figures = (final.mean, final.std, best.mean, best.std, watch.first_reached)
    return Result(env, preset, seed, timesteps, *figures, round(wall, 1), round(used, 1), versions(), aim, settings)


# --- all seeds ------------------------------------------------------------------------------------------------------


def read_results(path: Path) -> list[Result]:
    """The rows of a CSV file that exists or not."""
    if not path.exists():
        return []
    kinds = get_type_hints(Result)
    with open(path, newline="", encoding="utf-8") as file:
        return [Result(**{name: kinds[name](text) for name, text in row.items()}) for row in csv.DictReader(file)]


def append_result(path: Path, result: Result) -> None:
    new = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([Result._fields, result] if new else [result])


def run_seed(arguments: argparse.Namespace, seed: int, free_cpus: SimpleQueue[list[int]]) -> Result:
    """One seed in a process pinned to cores that no other one has; it hands them on."""
    cpus = free_cpus.get()
    command = [sys.executable, "-m", "benchmarks.learning.presets", "--env", arguments.env, "--preset", arguments.preset]
    command += ["--seeds", str(seed), "--timesteps", str(arguments.timesteps), "--aim", str(arguments.aim)]
    command += ["--workers-per-run", str(arguments.workers_per_run), "--here-on-cpus", *map(str, cpus)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    finally:
        free_cpus.put(cpus)
    if done.returncode:
        raise RuntimeError(f"seed {seed} failed:\n{_tail(done.stderr)}")
    return Result(*json.loads(done.stdout.splitlines()[-1]))


def _tail(text: str, lines: int = 8) -> str:
    return "\n".join(text.splitlines()[-lines:])


def run_seeds(arguments: argparse.Namespace, seeds: list[int]) -> list[str]:
    """Run seeds side by side; each result is written when it is there. Returns what went wrong."""
    usable = sorted(os.sched_getaffinity(0))
    free_cpus: SimpleQueue[list[int]] = SimpleQueue()
    for slot in range(arguments.parallel):
        first = slot * arguments.workers_per_run
        free_cpus.put([usable[k % len(usable)] for k in range(first, first + arguments.workers_per_run)])
    failures = []
    with ThreadPoolExecutor(arguments.parallel) as threads:
        running = [threads.submit(run_seed, arguments, seed, free_cpus) for seed in seeds]
        for future in as_completed(running):
            try:
                result = future.result()
            except RuntimeError as error:
                failures.append(str(error))
                continue
            append_result(arguments.out, result)
            print(f"seed {result.seed}: final {result.final_mean:.1f}, best {result.best_mean:.1f}", file=sys.stderr)
    return failures


def summary(results: list[Result], aim: float) -> str:
    """Each seed, then median, min and max; a seed that never reached the aim counts as later than all others."""
    header = ("seed", "final", "+-", "best", "+-", f"first at {aim:g}, timesteps", "wall s", "CPU s")
    figures: dict[str, tuple[float, ...]] = {
        str(r.seed): (r.final_mean, r.final_std, r.best_mean, r.best_std, r.first_reached, r.wall_seconds, r.cpu_seconds)
        for r in sorted(results, key=lambda r: r.seed)
    }
    columns = [[math.inf if math.isnan(x) else x for x in column] for column in zip(*figures.values(), strict=True)]
    for name, of in (("median", statistics.median), ("min", min), ("max", max)):
        figures[name] = tuple(of(column) for column in columns)
    return markdown_table(header, [(name, *map(_figure, line)) for name, line in figures.items()])


def _figure(value: float) -> str:
    if not math.isfinite(value):
        return "never"
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.presets", description=__doc__)
    parser.add_argument("--env", required=True, help=f"environment id; budgets and aims are known for {', '.join(TASKS)}")
    parser.add_argument("--preset", metavar="NAME", help="one of FastES's presets (default: the environment's, or 'default')")
    parser.add_argument("--seeds", type=COUNT_OR_0, nargs="+", default=[0, 1, 2, 3, 4], metavar="K", help="default: 0 1 2 3 4")
    parser.add_argument("--timesteps", type=COUNT, help="budget of each run (default: the environment's)")
    parser.add_argument("--aim", type=float, help="return whose first evaluation is dated (default: the environment's)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("benchmarks/results/learning.csv"),
        metavar="CSV",
        help="a row a run; runs that it holds already are skipped (default: benchmarks/results/learning.csv)",
    )
    parser.add_argument("--workers-per-run", type=COUNT, default=1, metavar="N", help="workers and cores of a run (default: 1)")
    parser.add_argument("--parallel", type=COUNT, default=2, metavar="N", help="runs side by side (default: 2)")
    parser.add_argument("--here-on-cpus", type=int, nargs="+", help=argparse.SUPPRESS)  # this process is the run of one seed
    arguments = parser.parse_args()
    arguments.preset = arguments.preset or preset_for(arguments.env)
    try:
        load_preset(arguments.preset)
    except ValueError as error:
        parser.error(f"--preset: {error}")
    task = TASKS.get(arguments.env)
    if task is None and (arguments.timesteps is None or arguments.aim is None):
        parser.error(f"{arguments.env} has no known budget and aim: give --timesteps and --aim")
    if task is not None:
        arguments.timesteps = arguments.timesteps or task.timesteps
        arguments.aim = task.aim if arguments.aim is None else arguments.aim
    if arguments.here_on_cpus:
        os.sched_setaffinity(0, arguments.here_on_cpus)
        seed = arguments.seeds[0]
        result = train(arguments.env, arguments.preset, seed, arguments.timesteps, arguments.aim, arguments.workers_per_run)
        print(json.dumps(result))
        return

    today = ("", preset_fingerprint(arguments.env, arguments.preset))

    def wanted(result: Result) -> bool:
        asked = (arguments.env, arguments.preset, arguments.timesteps, arguments.aim)
        same = (result.env, result.preset, result.timesteps, result.aim) == asked and result.settings in today
        return same and result.seed in arguments.seeds

    done = {result.seed for result in read_results(arguments.out) if wanted(result)}
    failures = run_seeds(arguments, [seed for seed in arguments.seeds if seed not in done])
    kind = f"preset {arguments.preset!r}, {arguments.timesteps:,} timesteps"
    print(f"{describe()}\n\n{arguments.env} with {kind}, returns over {EPISODES} episodes\n")
    results = [result for result in read_results(arguments.out) if wanted(result)]
    if results:
        print(summary(results, arguments.aim))
    if failures:
        raise SystemExit("\n".join(failures))


if __name__ == "__main__":
    main()
