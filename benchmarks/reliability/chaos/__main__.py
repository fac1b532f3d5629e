"""A training that is disturbed every few seconds, and the same one left in peace: equal bits, and the cost of faults."""

from __future__ import annotations

import argparse
import csv
import math
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.machine import describe
from benchmarks.reliability.chaos.compare import check_comparer, folder_differences
from benchmarks.reliability.chaos.faults import KILL_TRAINING, KINDS, TIMEOUT_SETTING, Injector, possible_kinds
from benchmarks.reliability.chaos.follow import Failed, Follower
from benchmarks.reliability.chaos.training import Plan
from benchmarks.tables import markdown_table
from fastes.settings.settings import setting_names
from fastes.system.limits import available_cpus

AIM = 0.05
_CHECKPOINT_SECONDS = 2.0  # a kill should meet a training whose last checkpoint is not where its stretch began
_WARNING = "RuntimeWarning: worker "


class Stretch(NamedTuple):
    """One row of the CSV file. Shares of calm_seconds: overhead = lost_work + rest.

    rest_by_neighbours: the same as rest, from the disturbed training alone and without the kill of its process: its disturbed
    generations against those around them, seconds and not minutes away.
    """

    generations: int
    calm_seconds: float
    chaos_seconds: float
    worker_faults: int
    warnings: int
    jobs_rerun: int
    redone: int
    resume_seconds: float
    overhead: float
    lost_work: float
    rest: float
    rest_by_neighbours: float


# --- both trainings -------------------------------------------------------------------------------------------------


class Experiment:
    """Two trainings in folders of their own, a stretch of each in turn. Raises Failed at the first difference."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.arguments, self.folder = arguments, folder
        self.startup_seconds = startup_cpu_seconds(arguments.env)
        self.rng = random.Random(f"faults {arguments.seed}")
        self.injector = Injector(arguments.kinds, arguments.fault_every, folder / "chaos-order", self.rng)
        self.stretches: list[Stretch] = []

    def run_stretch(self) -> Stretch:
        number = len(self.stretches) + 1
        calm = Follower(self._plan("calm", 0), self.folder / f"calm-{number}.log").run()
        if number == 1:
            check_comparer(self.folder / "calm")
        kill_after = calm.seconds * self.rng.uniform(0.3, 0.9) if KILL_TRAINING in self.arguments.kinds else math.inf
        faults_before, idle_before = self.injector.worker_faults, self.injector.idle_seconds
        log = self.folder / f"chaos-{number}.log"
        chaos = Follower(self._plan("chaos", calm.generation), log, self.injector, kill_after).run()
        differences = folder_differences(self.folder / "calm", self.folder / "chaos")
        if differences:
            raise Failed(f"after {calm.generation} generations the results differ:\n" + "\n".join(differences))
        faults = self.injector.worker_faults - faults_before
        idle = self.injector.idle_seconds - idle_before
        # a fault hits an episode in its middle, on average
        lost_by_workers = idle + faults * (calm.job_seconds / 2 + self.startup_seconds)
        lost_by_workers /= self.arguments.workers * calm.seconds
        lost = lost_by_workers + chaos.resume_seconds / calm.seconds
        overhead = chaos.seconds / calm.seconds - 1
        stretch = Stretch(
            generations=calm.generations,
            calm_seconds=calm.seconds,
            chaos_seconds=chaos.seconds,
            worker_faults=faults,
            warnings=log.read_text(encoding="utf-8", errors="replace").count(_WARNING),
            jobs_rerun=chaos.jobs_rerun,
            redone=chaos.redone,
            resume_seconds=chaos.resume_seconds,
            overhead=overhead,
            lost_work=lost,
            rest=overhead - lost,
            rest_by_neighbours=chaos.delay - lost_by_workers,
        )
        self.stretches.append(stretch)
        return stretch

    def _plan(self, name: str, goal: int) -> Plan:
        arguments = self.arguments
        (self.folder / name).mkdir(exist_ok=True)
        return Plan(
            env=arguments.env,
            seed=arguments.seed,
            n_workers=arguments.workers,
            folder=str(self.folder / name),
            order=str(self.folder / f"{name}-order"),
            seconds=60 * arguments.stretch_minutes,
            goal=goal,
            checkpoint_seconds=_CHECKPOINT_SECONDS,
            settings={TIMEOUT_SETTING: arguments.step_timeout} if TIMEOUT_SETTING in setting_names() else {},
        )


def startup_cpu_seconds(env: str) -> float:
    """CPU time of an interpreter that imports what a worker does and builds the environment: the median of three."""
    imports = "from fastes.pools.processes import worker; from benchmarks.reliability.chaos.env import make_env"
    code = f"import sys; from pathlib import Path; {imports}; make_env(sys.argv[1], Path('none')).reset(seed=0)"
    command = [sys.executable, "-c", code, env]
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(seconds)


# --- report ---------------------------------------------------------------------------------------------------------


def fault_table(injector: Injector) -> str:
    rows = [(name, f"{injector.counts[kind]:,}") for kind, name in KINDS.items() if injector.counts[kind]]
    return markdown_table(("fault", "injected"), [*rows, ("all", f"{sum(injector.counts.values()):,}")])


def summary_table(env: str, stretches: Sequence[Stretch]) -> str:
    """Sums over the stretches, and medians (min to max) of the shares."""
    by_neighbours = [s.rest_by_neighbours for s in stretches if not math.isnan(s.rest_by_neighbours)] or [math.nan]
    rest = statistics.median(by_neighbours)
    calm, chaos = (sum(seconds) for seconds in zip(*((s.calm_seconds, s.chaos_seconds) for s in stretches), strict=True))
    cells = {
        "env": env,
        "generations": f"{sum(s.generations for s in stretches):,}",
        "calm / chaos, min": f"{calm / 60:.1f} / {chaos / 60:.1f}",
        "worker faults / warnings": f"{sum(s.worker_faults for s in stretches)} / {sum(s.warnings for s in stretches)}",
        "jobs run again": f"{sum(s.jobs_rerun for s in stretches):,}",
        "s a worker fault": _seconds_a_fault(stretches),
        "generations done again": f"{sum(s.redone for s in stretches):,}",
        "overhead": _spread([s.overhead for s in stretches]),
        "of it lost work": _spread([s.lost_work for s in stretches]),
        "rest": _spread([s.rest for s in stretches]),
        "rest, by neighbours": _spread(by_neighbours),
        "aim": f"rest, by neighbours < {AIM:.0%}: {'met' if rest < AIM else 'missed'}",
    }
    return markdown_table(list(cells), [list(cells.values())])


def _seconds_a_fault(stretches: Sequence[Stretch]) -> str:
    """Wall seconds by which a fault of a worker delays the training; pauses are counted in."""
    faults = sum(s.worker_faults for s in stretches)
    extra = sum(s.chaos_seconds - s.resume_seconds - s.calm_seconds for s in stretches)
    return f"{extra / faults:.2f}" if faults else "-"


def _spread(shares: Sequence[float]) -> str:
    return f"{statistics.median(shares):.1%} ({min(shares):.1%} to {max(shares):.1%})"


def write_csv(path: Path, stretches: Sequence[Stretch]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [[f"{x:.4f}" if isinstance(x, float) else x for x in stretch] for stretch in stretches]
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([Stretch._fields, *rows])


# --- command line ---------------------------------------------------------------------------------------------------


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability.chaos", description=__doc__)
    parser.add_argument("--env", default="HalfCheetah-v5", metavar="ID", help="default: HalfCheetah-v5")
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="of each training; the whole takes twice that (default: 60)"
    )
    parser.add_argument("--stretch-minutes", type=float, default=2.0, help="the trainings take turns after these (default: 2)")
    parser.add_argument(
        "--fault-every", type=float, default=10.0, metavar="S", help="mean seconds between faults (default: 10)"
    )
    parser.add_argument("--workers", type=int, default=available_cpus(), help="worker processes (default: one a usable core)")
    parser.add_argument("--seed", type=int, default=0, help="of the trainings and of the faults (default: 0)")
    parser.add_argument(
        "--kinds", nargs="+", choices=list(KINDS), default=possible_kinds(), help="kinds of faults (default: all)"
    )
    parser.add_argument(
        "--step-timeout", type=float, default=5.0, metavar="S", help="seconds that env.step may take (default: 5)"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="write chaos.csv there, a row a stretch")
    arguments = parser.parse_args()
    if arguments.workers < 1 or not min(arguments.minutes, arguments.stretch_minutes, arguments.fault_every) > 0:
        parser.error("--workers, --minutes, --stretch-minutes and --fault-every must be above 0")
    impossible = sorted(set(arguments.kinds) - set(possible_kinds()))
    if impossible:
        parser.error(f"--kinds {' '.join(impossible)} needs the setting {TIMEOUT_SETTING}, which this FastES does not have")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # end the training, too
    number = max(1, round(arguments.minutes / arguments.stretch_minutes))
    print(
        f"{describe()}\n\n{arguments.env}, {arguments.workers} workers, seed {arguments.seed}: {number} stretches of "
        f"{arguments.stretch_minutes:g} min of each training, taken in turn, a fault every {arguments.fault_every:g} s."
    )
    folder = Path(tempfile.mkdtemp(prefix="fastes-chaos-"))
    try:
        experiment = Experiment(arguments, folder)
        print(f"A worker's start takes {experiment.startup_seconds:.2f} s of CPU time.\n", flush=True)
        for k in range(number):
            stretch = experiment.run_stretch()
            text = f"overhead {stretch.overhead:.1%}, of it lost work {stretch.lost_work:.1%}"
            print(f"stretch {k + 1}: {stretch.generations} generations, the same bits; {text}", file=sys.stderr)
            if arguments.out is not None:
                write_csv(arguments.out / "chaos.csv", experiment.stretches)
    except Failed as error:
        raise SystemExit(f"stretch {len(experiment.stretches) + 1}: {error}\n(run folders and logs: {folder})") from None
    except BaseException:
        shutil.rmtree(folder)
        raise
    shutil.rmtree(folder)
    generations = sum(s.generations for s in experiment.stretches)
    print(f"After each stretch both have the same arrays, counters and statistics; {generations:,} generations in all.\n")
    print(f"{fault_table(experiment.injector)}\n\n{summary_table(arguments.env, experiment.stretches)}")


if __name__ == "__main__":
    main()
