"""Risk: the comparison with other algorithms flatters: evaluation on the clock, lost or doubled runs, wrong thresholds."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import alive, started_script, wait_until

from benchmarks.child_process import Child, ChildFailed, records_of
from benchmarks.csv_records import read_records
from benchmarks.learning import paper_table1, presets, race
from benchmarks.learning.courses import COURSES, preset_timesteps, reported_timesteps
from benchmarks.learning.head_to_head import main
from benchmarks.learning.preset_run import Result
from benchmarks.learning.reports.thresholds import (
    first_reached,
    initial_score,
    progress_thresholds,
    reached,
    thresholds,
    winners,
)
from benchmarks.learning.runs import runner
from benchmarks.learning.runs.clock import Budget, Clock, tree_cpu_seconds
from benchmarks.learning.runs.contestant import fingerprint, preset_fingerprint
from benchmarks.learning.runs.evaluation import CURVE_SEEDS, FINAL_SEEDS, Task, Watch, due_shares
from benchmarks.learning.runs.results import MEASURES, Row, Run, append_row, failures, finished_runs, next_attempt, read_rows
from benchmarks.learning.runs.resumable import resumable
from benchmarks.learning.runs.runner import Place, run_all
from benchmarks.learning.runs.side_by_side import run_jobs
from benchmarks.machine import usable_cpus
from benchmarks.peers.zoo import PEERS, settings_for, shortened, task_of
from fastes import Settings
from fastes.settings.preset_loader import load_preset
from fastes.settings.settings import SCHEDULES

SPIN = "import time\nwhile time.process_time() < {}: pass\n"
TASKS = "CartPole Acrobot Pendulum MountainCar MountainCarContinuous LunarLander LunarLanderContinuous BipedalWalker Swimmer"
MUJOCO = "HalfCheetah Hopper Walker2d Ant Humanoid"
PPO_ONLY = "InvertedPendulum InvertedDoublePendulum Reacher"


def row(kind: str = "point", steps: int = 0, score: float = 0.0, **changes: Any) -> Row:
    made = Row("Toy-v0", "ppo", 0, "60 s", 1, kind, steps, steps / 100, steps / 50, score, 1.0, 10, "a machine", "note")
    return made._replace(**changes)


def run(scores: list[float], steps: list[int] | None = None, **changes: Any) -> Run:
    steps = steps or [1000 * k for k in range(len(scores))]
    rows = [row(steps=at, score=score, **changes) for at, score in zip(steps, scores, strict=True)]
    return finished_runs([*rows[:-1], rows[-1]._replace(kind="final")])[0]


# --- the clock ------------------------------------------------------------------------------------------------------


class Hands:
    """Readings of a clock that a test moves."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


def test_evaluation_takes_no_time() -> None:
    wall, cpu = Hands(), Hands()
    clock = Clock(Budget(seconds=10.0), wall, cpu)
    clock.start()
    for _ in range(2):
        wall.at, cpu.at = wall.at + 3.0, cpu.at + 5.0
        with clock.paused() as used:
            wall.at, cpu.at = wall.at + 40.0, cpu.at + 80.0
            assert clock.used() == used
            assert clock.wall == used.wall
    assert clock.used() == (6.0, 10.0)
    assert clock.share(steps=10**9) == 0.6


def test_an_evaluation_that_raises_leaves_the_clock_running() -> None:
    wall = Hands()
    clock = Clock(Budget(steps=10), wall, Hands())
    clock.start()
    with pytest.raises(ZeroDivisionError), clock.paused():
        raise ZeroDivisionError
    wall.at += 2.0
    assert clock.wall == 2.0
    assert clock.share(steps=5) == 0.5


def test_cpu_time_of_living_and_ended_descendants_counts() -> None:
    before = tree_cpu_seconds()
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SPIN.format(0.4)!r}]); print('spun'); input()"
    with subprocess.Popen([sys.executable, "-c", nested], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        living = tree_cpu_seconds() - before
        child.communicate(b"\n")
    ended = tree_cpu_seconds() - before
    assert living >= 0.35
    assert ended >= living


def test_steps_of_evaluation_and_of_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluations: one untrained, geometric ones, none at the end but the last; the clock stands in each."""
    clock, records, played = Clock(Budget(steps=1000)), [], []

    def play(env: object, act: object, seeds: range, begin: object) -> list[float]:
        assert clock.used() == clock.used(), "the clock runs while it is evaluated"
        played.append(seeds)
        return [float(len(played))] * len(seeds)

    monkeypatch.setattr("benchmarks.learning.runs.evaluation.play", play)
    clock.start()
    watch = Watch(
        Task("CartPole-v1", "ppo", 0, clock.budget, points=6, episodes=2, final_episodes=3), clock, None, records.append, None
    )
    looks = [watch.check(steps) for steps in range(0, 1001, 50)]
    watch.finish(1000, "why")
    assert looks == [True] * 20 + [False]
    assert [record["steps"] for record in records] == [0, 50, 100, 250, 1000]
    assert [record["kind"] for record in records] == ["point"] * 4 + ["final"]
    assert min(min(seeds) for seeds in played) >= 2**31, "training's seeds are below"
    assert not set(range(CURVE_SEEDS, CURVE_SEEDS + 1000)) & set(range(FINAL_SEEDS, FINAL_SEEDS + 1000))
    assert due_shares(2) == []


# --- results that outlive crashes -------------------------------------------------------------------------------------


def test_half_a_run_does_not_count_and_its_second_attempt_does(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    for one in (row(score=1.0), row(steps=10, score=99.0)):
        append_row(path, one)
    assert finished_runs(read_rows(path)) == []
    assert next_attempt(read_rows(path), row().key) == 2
    again = [row(score=2.0, attempt=2), row("final", 10, 3.0, attempt=2, note='of "Zoo", line 2')]
    for one in again:
        append_row(path, one)
    (found,) = finished_runs(read_rows(path))
    assert found.scores.tolist() == [2.0, 3.0]
    assert found.final == again[-1]


def test_a_row_torn_anywhere_takes_no_other_one_with_it(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    append_row(path, row(score=1.0))
    whole = path.read_bytes()
    append_row(path, row(score=9.0, machine="a machine, 2 cores", note='said "no",\nand ended'))
    torn = path.read_bytes()
    assert torn.count(b"\n") == 3, "a note is one line"
    for end in range(len(whole), len(torn)):
        path.write_bytes(torn[:end])
        found = read_rows(path)
        assert len(found) == 1 or (found[1].machine, found[1].note[:4]) == ("a machine, 2 cores", "said"[: len(found[1].note)])
        append_row(path, row(score=2.0, attempt=2))
        assert [found.score for found in read_rows(path)] == [1.0, 2.0], f"cut after {end} bytes"


def test_the_last_finished_attempt_counts() -> None:
    """A run that was done again because it had stopped too early."""
    rows = [row(score=1.0), row("final", score=2.0), row(score=3.0, attempt=2), row("final", score=4.0, attempt=2)]
    assert [found.scores.tolist() for found in finished_runs(rows)] == [[3.0, 4.0]]
    assert [found.scores.tolist() for found in finished_runs([*rows, row(score=5.0, attempt=3)])] == [[3.0, 4.0]]
    assert [found.final.score for found in finished_runs(rows[:2], rows)] == [2.0], "the first folder's"


def test_failures_are_told_until_a_run_is_finished() -> None:
    failed = row("failed", score=math.nan, note="exit status 1")
    assert failures([failed]) == [failed]
    assert failures([failed, row("final", attempt=2)]) == []
    assert failures([failed], [row("final")]) == []


def test_folders_are_merged_and_nothing_counts_twice() -> None:
    here = [row(score=1.0), row("final", score=2.0)]
    there = [*here, row("final", score=7.0, seed=1)]
    assert [found.final.score for found in finished_runs(here, [r._replace(score=9.0) for r in there])] == [2.0, 9.0]
    assert len(finished_runs(here, there)[0].scores) == 2


@pytest.fixture
def contestants(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of the contestants that were started. Those of seed 1 fail after a point while `broken` is in the list.

    Those of seed 3 fail as they end, after their last row.
    """
    started = ["broken"]

    class Contestant(contextlib.ExitStack):
        silent_at = math.inf

        def __init__(self, module: str, given: dict[str, Any], *_: object) -> None:
            super().__init__()
            self.ready = os.open(os.devnull, os.O_RDONLY)
            self.callback(os.close, self.ready)
            started.append(f"{given['task']['algo']} {given['task']['seed']}")
            self.broken = given["task"]["seed"] == 1 and "broken" in started
            self.fails_at_its_end = given["task"]["seed"] == 3
            statistics = {"wall": 1.0, "cpu": 2.0, "score": 5.0, "std": 0.0, "episodes": 1, "note": ""}
            self.says = [[{"kind": "point", "steps": 0, **statistics}], [{"kind": "alive", "steps": 5}]]
            self.says += [] if self.broken else [[{"kind": "final", "steps": 10, **statistics}]]

        def fileno(self) -> int:
            return self.ready

        def read(self) -> list[dict[str, Any]] | None:
            if (self.broken or self.fails_at_its_end) and not self.says:
                raise ChildFailed("exit status -9: killed")
            return self.says.pop(0) if self.says else None

        def end(self) -> None:
            self.close()

    monkeypatch.setattr(runner, "Child", Contestant)
    return started


def test_resuming_skips_what_is_finished_and_repeats_the_rest(tmp_path: Path, contestants: list[str]) -> None:
    place = Place(tmp_path, (0,), 0.0)
    tasks = [Task("CartPole-v1", algo, seed, Budget(1.0)) for seed in (0, 1, 2) for algo in ("fastes", "ppo")]
    run_all(tasks, place)
    assert contestants[1:] == ["fastes 0", "ppo 0", "fastes 1", "ppo 1", "fastes 2", "ppo 2"], "a failure stops nothing"
    assert [failed.seed for failed in failures(read_rows(place.results))] == [1, 1]
    contestants.clear()
    run_all(tasks, place)
    assert contestants == ["fastes 1", "ppo 1"]
    assert [found.scores.tolist() for found in finished_runs(read_rows(place.results))] == [[5.0, 5.0]] * 6
    run_all([tasks[0]._replace(budget=Budget(2.0))], place)
    assert contestants[2:] == ["fastes 0"], "another budget is another run"


def test_a_run_whose_process_fails_after_its_last_row_counts(tmp_path: Path, contestants: list[str]) -> None:
    place, task = Place(tmp_path, (0,), 0.0), Task("CartPole-v1", "fastes", 3, Budget(1.0))
    run_all([task], place)
    assert [row.kind for row in read_rows(place.results)] == ["point", "final"]
    contestants.clear()
    run_all([task], place)
    assert contestants == []


def start(tmp_path: Path, code: str, patience: float = 60.0) -> Iterator[dict[str, Any]]:
    (tmp_path / "contestant_for_test.py").write_text(code)
    cpus = usable_cpus(1)
    return records_of("contestant_for_test", {"x": 1}, cpus, 1, tmp_path, tmp_path / "log", patience)


def test_a_crash_is_one_contestants_own(tmp_path: Path) -> None:
    code = "import os, sys\nprint('{\"kind\": \"point\"}', flush=True)\nprint('no memory', file=sys.stderr)\nos.abort()"
    records = start(tmp_path, code)
    assert next(records) == {"kind": "point"}
    with pytest.raises(ChildFailed, match="-6: no memory"):
        next(records)


def test_silence_ends_a_contestant(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(ChildFailed, match="said nothing for"):
        list(start(tmp_path, "import time\ntime.sleep(600)", patience=0.5))
    assert time.monotonic() - began < 60.0


def test_side_by_side_a_silent_run_ends_and_the_others_go_on(tmp_path: Path) -> None:
    """Each in a place of its own; the third is asked for when one is free."""
    code = """
import json, sys, time
number = json.loads(sys.argv[1])
for _ in range(6 if number else 1):
    print(json.dumps({"number": number}), flush=True)
    time.sleep(0.2 if number else 600)
"""
    (tmp_path / "job_for_test.py").write_text(code)
    told: list[str] = []

    class Run:
        def __init__(self, number: int) -> None:
            told.append(f"asked for {number}")
            self.number = number

        def start(self, cpus: Sequence[int]) -> Child:
            told.append(f"{self.number} on {cpus}")
            patience = 60.0 if self.number else 2.0
            return Child("job_for_test", self.number, usable_cpus(1), 1, tmp_path, tmp_path / "log", patience)  # type: ignore[arg-type]

        def note(self, record: dict[str, Any]) -> None:
            assert record == {"number": self.number}
            told.append(f"{self.number} says")

        def end(self, failure: str | None) -> None:
            told.append(f"{self.number} ended: {failure and failure[:19]}")

    began = time.monotonic()
    run_jobs(map(Run, range(3)), [["a"], ["b"]])  # type: ignore[arg-type]
    assert time.monotonic() - began < 60.0
    assert told[:4] == ["asked for 0", "0 on ['a']", "asked for 1", "1 on ['b']"]
    assert [told.count(f"{number} says") for number in range(3)] == [1, 6, 6]
    assert {"0 ended: it said nothing for", "1 ended: None", "2 ended: None"} <= set(told)
    first_end = min(told.index("0 ended: it said nothing for"), told.index("1 ended: None"))
    assert told[first_end + 1] == "asked for 2"


def test_a_contestants_children_end_with_it_and_stay_on_its_cores(tmp_path: Path) -> None:
    code = """
import json, os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdout=subprocess.DEVNULL)
print(json.dumps({"pid": child.pid, "cpus": sorted(os.sched_getaffinity(child.pid)), "threads": os.environ["OMP_NUM_THREADS"]}))
"""
    before = os.sched_getaffinity(0)
    (record,) = start(tmp_path, code)
    assert record["cpus"] == list(usable_cpus(1))
    assert record["threads"] == "1"
    wait_until(lambda: not alive(record["pid"]), "the child ended")
    assert os.sched_getaffinity(0) == before


def test_an_interrupt_ends_the_contestant(tmp_path: Path) -> None:
    records = start(tmp_path, "import os, time\nprint(f'{{\"pid\": {os.getpid()}}}', flush=True)\ntime.sleep(600)")
    pid = next(records)["pid"]
    records.close()
    assert not alive(pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_a_benchmark_ends_its_contestant(tmp_path: Path, number: signal.Signals) -> None:
    """It has a session of its own, so that neither the terminal nor a batch system reaches it."""
    (tmp_path / "contestant_for_test.py").write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)")
    code = """
        import signal
        from pathlib import Path
        from benchmarks.child_process import records_of
        from benchmarks.learning.runs.resumable import resumable
        from benchmarks.machine import usable_cpus

        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may run under nohup
        with resumable():
            for record in records_of("contestant_for_test", {}, usable_cpus(1), 1, Path("."), Path("log"), 60.0):
                print(record, flush=True)
    """
    with started_script(code, tmp_path) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.send_signal(number)
        assert process.wait(60) == 128 + number
        assert process.stderr is not None
        assert process.stderr.read() == "interrupted: the same command continues where it was\n"
    wait_until(lambda: not alive(pid), "the contestant ended")


@pytest.fixture
def _signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_signals")
def test_what_nohup_ignores_stays_ignored_and_handlers_come_back() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with resumable():
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.usefixtures("_signals")
def test_a_second_signal_changes_nothing() -> None:
    """A terminal that closes may send SIGHUP twice, and some batch systems send both."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    cleaned = []

    def interrupted() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10.0)
        finally:
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
            cleaned.append(True)

    with pytest.raises(SystemExit) as ended, resumable():
        interrupted()
    assert (ended.value.code, cleaned) == (143, [True])
    os.kill(os.getpid(), signal.SIGHUP)  # as while results are written


# --- statistics -----------------------------------------------------------------------------------------------------


def test_thresholds_are_shares_of_progress_not_of_the_score() -> None:
    assert [found.score for found in progress_thresholds("TRPO", -100.0, 300.0)] == [0.0, 100.0, 200.0, 300.0]
    assert progress_thresholds("TRPO", 5.0, 5.0) == []
    contest = {"fastes": [run([0, 900])], "trpo": [run([0, 80]), run([20, 120]), run([10, 100])], "ppo": [run([10, 50])]}
    found = thresholds(contest)
    assert initial_score(contest["trpo"]) == 10.0
    assert [found[0].score, found[3].score, found[-1].score] == [32.5, 100.0, 50.0], "the best peer is TRPO, never FastES"
    assert found[-1].name == "PPO's final score"
    assert thresholds({"fastes": [run([0, 1])]}) == []


def test_reaching_a_threshold() -> None:
    lucky = run([500.0, 10.0, 60.0, 40.0, 70.0])
    assert first_reached(lucky, 50.0, "steps") == 2000, "an untrained policy's luck is no learning, a later fall no failure"
    assert first_reached(lucky, 70.5, "steps") == math.inf
    seeds = [run([0.0, 100.0]), run([0.0, 0.0, 0.0, 100.0]), run([0.0, 0.0, 0.0])]
    assert reached(seeds, 100.0) == (30.0, 60.0, 3000.0), "the median"
    assert reached(seeds[:2], 100.0).steps == 2000
    assert reached(seeds[1:], 100.0).steps == math.inf, "one lucky seed of two is no median"
    first = winners(
        {"fastes": reached(seeds[:1], 50.0), "ppo": reached(seeds[:1], 50.0), "ars": reached(seeds[1:2], 50.0)}, MEASURES
    )
    assert first == {"wall": ["fastes", "ppo"], "cpu": ["fastes", "ppo"], "steps": ["fastes", "ppo"]}
    assert winners({"fastes": reached(seeds[2:], 50.0)}, MEASURES)["wall"] == [], "nobody is first where nobody got"


def test_intervals_and_curves() -> None:
    pytest.importorskip("scipy")
    from benchmarks.learning.reports.curves import median_curve, median_interval

    seeds = np.array([1.0, 2.0, 3.0, 4.0, 100.0])
    found = median_interval(seeds)
    assert (found.median, found.low, found.high) == (3.0, 1.0, 100.0)
    assert median_interval(np.full(4, 7.0)) == (7.0, 7.0, 7.0)
    assert median_interval(seeds[:1]) == (1.0, 1.0, 1.0)
    wide = median_interval(np.arange(200.0))
    assert 80 < wide.low < wide.median < wide.high < 120, "an interval of the median, not of the seeds"
    with pytest.raises(ValueError, match="at least one seed"):
        median_interval(seeds[:0])
    curve = median_curve([run([0, 10, 20]), run([0, 30], [0, 1500])], "steps", points=50)
    assert curve.along[-1] == pytest.approx(1500), "no seed is continued beyond its end"
    assert curve.scores.median[-1] == pytest.approx((15 + 30) / 2)


def test_zoo_settings_are_found_for_any_version() -> None:
    for algo in PEERS:
        for task in (TASKS + " " + MUJOCO).split():
            assert "Zoo's" in settings_for(algo, f"{task}-v5").source or (algo, task) == ("a2c", "Swimmer"), (algo, task)
    for task in PPO_ONLY.split():
        assert settings_for("ppo", f"{task}-v5").normalize is not None
        assert "defaults" in settings_for("trpo", f"{task}-v5").source
    cheetah = settings_for("trpo", "HalfCheetah-v5")
    assert (cheetah.n_envs, cheetah.arguments["target_kl"], cheetah.normalize) == (2, 0.04, {"gamma": 0.99})
    assert settings_for("ars", "Humanoid-v5").arguments["n_delta"] == 256
    assert settings_for("ars", "Swimmer-v5").normalize is None
    cheetah.arguments["gamma"] = 0.0
    assert settings_for("trpo", "HalfCheetah-v5").arguments["gamma"] == 0.99, "handed out as a copy"
    assert task_of("ALE/Pong-v5") == "Pong"
    walker = shortened("ppo", settings_for("ppo", "BipedalWalker-v3"), 2)
    assert walker.n_envs * walker.arguments["n_steps"] == 1024


# --- the report -----------------------------------------------------------------------------------------------------


def write_runs(folder: Path, machine: str, **algos: list[list[float]]) -> None:
    folder.mkdir(exist_ok=True)
    for algo, seeds in algos.items():
        for seed, scores in enumerate(seeds):
            for k, score in enumerate(scores):
                kind = "final" if k == len(scores) - 1 else "point"
                append_row(folder / "results.csv", row(kind, 1000 * k, score, algo=algo, seed=seed, machine=machine))
    (folder / "machine.json").write_text(json.dumps({machine: f"{machine}, described"}))


def test_the_report_says_where_fastes_loses(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    pytest.importorskip("matplotlib")
    from benchmarks.learning.head_to_head import write_report

    write_runs(tmp_path / "a", "machine A", fastes=[[0, 10, 60], [0, 20, 70]], ppo=[[0, 80, 100]], trpo=[[0, 5, 40]])
    append_row(tmp_path / "a" / "results.csv", row("failed", algo="ars", note="exit status 1: no memory"))
    text = write_report(tmp_path / "a", [tmp_path / "a"]).read_text()
    assert "FastES ends at 65.0, below ppo 100.0." in text
    assert "to 75% of PPO's progress (75.0) ppo was first by wall time and CPU seconds and environment steps" in text
    assert "FastES never got there" in text
    assert "TRPO's final score (40.0) ppo was first" in text
    assert "machine A, described" in text
    assert "ars seed 0, 60 s: exit status 1: no memory" in text
    assert "were taken on different machines" not in text
    assert (tmp_path / "a" / "Toy-v0-60s.png").stat().st_size > 10_000
    write_runs(tmp_path / "b", "machine B", a2c=[[0, 1, 200]], fastes=[[0, 999, 999]])
    for k, kind in enumerate(("point", "point", "final")):
        for algo in ("fastes", "ppo"):
            alike = {"env": "Alike-v0", "algo": algo, "machine": "machine B"}
            append_row(tmp_path / "b" / "results.csv", row(kind, 1000 * k, 10.0 * k, **alike))
    merged = write_report(tmp_path / "b", [tmp_path / "a", tmp_path / "b"]).read_text()
    assert "Times of Toy-v0 were taken on different machines" in merged, "and Alike-v0's were not"
    assert "A2C's progress" in merged
    mixed, alike = merged.split("## Alike-v0")
    assert "a2c was first by environment steps" in mixed, "which compare anywhere"
    assert "first by wall time" not in mixed
    assert "first by wall time" in alike
    assert "FastES ends at 65.0" in merged, "the first folder's run of a seed counts"


def test_the_papers_table(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    pytest.importorskip("matplotlib")
    own = preset_timesteps("Hopper-v5")
    budgets = {"trpo": "5000000 steps", "fastes": f"{own} steps"}
    for algo, scores in (("trpo", [[0, 40, 60, 80, 100]] * 2), ("fastes", [[0, 0, 30, 90, 95, 95, 100]])):
        for seed, of_one in enumerate(scores):
            for k, score in enumerate(of_one):
                kind = "final" if k == len(of_one) - 1 else "point"
                changes = {"env": "Hopper-v5", "algo": algo, "budget": budgets[algo], "seed": seed}
                append_row(tmp_path / "results.csv", row(kind, 1000 * k, score, **changes))
    paper_table1.main(["--report-only", "--out", str(tmp_path)])
    lines = [line.split("|") for line in (tmp_path / "table1.md").read_text().splitlines() if line.startswith("| Hopper")]
    assert [[cell.strip() for cell in line[6:8]] for line in lines] == [
        ["2.00", "0.53"],
        ["1.50", "3.64"],
        ["1.00", "6.05"],
        ["1.50", "6.94"],
    ]
    assert "Median ratio at 100 % (environments: 1): 1.50" in (tmp_path / "table1.md").read_text()
    task = Task("Hopper-v5", "fastes", 0, Budget(steps=own), stop_at=100.0)
    assert paper_table1.ran_far_enough(read_rows(tmp_path / "results.csv"), task)
    further = task._replace(stop_at=101.0)
    assert not paper_table1.ran_far_enough(read_rows(tmp_path / "results.csv"), further)
    again = {"env": "Hopper-v5", "algo": "fastes", "budget": budgets["fastes"], "attempt": 2}
    for kind, score in (("point", 0), ("point", 102), ("final", 103)):
        append_row(tmp_path / "results.csv", row(kind, 1000, score, **again))
    assert paper_table1.ran_far_enough(read_rows(tmp_path / "results.csv"), further), "a run that was done again counts"


def test_the_papers_table_begins_where_thresholds_are_reached() -> None:
    given = argparse.Namespace(
        env=["InvertedPendulum-v5", "Walker2d-v5"],
        seeds=1,
        es_seeds=None,
        first_seed=0,
        trpo_timesteps=5_000_000,
        es_timesteps=None,
    )
    rows = [
        row(kind, 1000, score, env=env, algo="trpo", budget="5000000 steps")
        for env in given.env
        for kind, score in (("point", 0.0), ("final", 9.0))
    ]
    tasks = [*paper_table1.trpo_tasks(given), *paper_table1.fastes_tasks(given, [rows])]
    assert [task.budget.steps for task in tasks] == [5_000_000, 5_000_000, 500_000, 20_000_000], "its preset's"
    assert {round(task.budget.steps * due_shares(task.points, task.first_share)[0]) for task in tasks} == {2000}
    given.es_seeds, given.first_seed = 2, 5
    assert [task.seed for task in paper_table1.trpo_tasks(given)] == [5, 5]
    assert [task.seed for task in paper_table1.fastes_tasks(given, [rows])] == [5, 5, 6, 6]


@pytest.mark.parametrize(
    ("command", "given"),
    [
        (race.main, ["--timesteps", "-5"]),
        (race.main, ["--seeds", "0"]),
        (paper_table1.main, ["--first-seed", "-1"]),
        (paper_table1.main, ["--es-timesteps", "x"]),
        (main, ["--minutes", "nan"]),
        (main, ["--points", "1"]),
    ],
)
def test_numbers_that_cannot_be_are_refused(
    command: Any, given: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        command([*given, "--env", "CartPole-v1", "--out", str(tmp_path / "out")])
    assert re.search(f"argument {given[0]}: '{given[1]}': expected a (whole )?number", capsys.readouterr().err)
    assert not (tmp_path / "out").exists()


def test_a_small_comparison_from_end_to_end(tmp_path: Path) -> None:
    for module in ("scipy", "matplotlib", "sb3_contrib"):
        pytest.importorskip(module)
    command = ["--env", "CartPole-v1", "--algos", "fastes", "ppo", "--seeds", "1", "--timesteps", "2048", "--cores", "1"]
    command += ["--episodes", "2", "--final-episodes", "5", "--points", "5", "--calibration-seconds", "0"]
    main([*command, "--out", str(tmp_path)])
    rows = read_rows(tmp_path / "results.csv")
    ours, peer = finished_runs(rows)
    assert (ours.final.algo, peer.final.algo) == ("fastes", "ppo")
    for found in (ours, peer):
        assert found.steps[0] == 0
        assert found.final.steps >= 2048
        assert found.final.episodes == 5
        assert (np.diff(found.wall) > 0).all()
        assert (np.diff(found.cpu) >= 0).all()
        assert found.final.cpu < 3 * found.final.wall + 1.0
    assert re.fullmatch(r"preset CartPole-v1 \([0-9a-f]{8}\); 1 workers", ours.final.note)
    assert peer.final.note == "Zoo's CartPole-v1; DummyVecEnv of 8, 1 torch thread"
    began = time.monotonic()
    main([*command, "--out", str(tmp_path)])
    assert read_rows(tmp_path / "results.csv") == rows, "what is finished is not run again"
    assert time.monotonic() - began < 60


@pytest.mark.slow
def test_a_queue_of_presets_goes_on_where_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "results" / "learning.csv"
    command = ["--timesteps", "300", "--out", str(out)]
    presets.main([*command, "--env", "CartPole-v1", "--seeds", "0", "1"])
    rows = read_records(out, Result)
    assert sorted(row.seed for row in rows) == [0, 1]
    assert {row.settings for row in rows} == {preset_fingerprint("CartPole-v1")}, "the budget is not a setting of the preset's"
    whole = out.read_text()
    out.write_text(whole + 'CartPole-v1,"torn')
    presets.main([*command, "--env", "CartPole-v1", "Acrobot-v1", "--seeds", "1", "2"])
    assert sorted((row.env, row.seed) for row in read_records(out, Result)[2:]) == [
        ("Acrobot-v1", 1),
        ("Acrobot-v1", 2),
        ("CartPole-v1", 2),
    ]
    assert out.read_text().startswith(whole), "what is finished is not run again"
    told = capsys.readouterr().out
    assert "Acrobot-v1 with preset 'Acrobot-v1', 300 timesteps" in told
    assert "| 2 " in told
    presets.main([*command, "--env", "CartPole-v1", "--seeds", "2", "--flags=--sigma 0.7"])
    other = read_records(out, Result)[-1]
    assert (other.seed, other.flags) == (2, "--sigma 0.7"), "with other flags it is another training"
    monkeypatch.setattr(presets, "_RUN", "no_such_module")
    failed = r"CartPole-v1 seed 3 failed, see the logs in .*: exit status 1: .*No module named no_such_module"
    with pytest.raises(SystemExit, match=failed):
        presets.main([*command, "--env", "CartPole-v1", "--seeds", "2", "3"])
    assert len(read_records(out, Result)) == 6


def test_a_preset_that_has_changed_is_trained_again(tmp_path: Path) -> None:
    out, preset = tmp_path / "l.csv", tmp_path / "own.toml"
    command = ["--env", "CartPole-v1", "--timesteps", "300", "--seeds", "7", "--preset", str(preset), "--out", str(out)]
    for sigma in (0.1, 0.9, 0.9):
        preset.write_text(f"[CartPole-v1]\nsigma = {sigma}\npopulation_size = 4\n")
        presets.main(command)
    narrow, wide = read_records(out, Result)
    assert narrow.settings != wide.settings
    assert narrow.final_mean != wide.final_mean, "the first one's parameters were played again"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("CartPole-v1", "--flags=--preset paper"), "the preset is an option of its own, --preset"),
        (("CartPole-v1", "--flags=--conf x.toml"), "the preset is an option of its own, --preset"),
        (("CartPole-v1", "--preset", "no-such"), "--preset: "),
        (("CartPole-v1", "--preset", "no-such.toml"), "no-such.toml"),
        (("CartPole-v1", "NoSuch-v0", "--timesteps", "9", "--aim", "1"), "--env NoSuch-v0: NameNotFound"),
        (("FrozenLake-v1",), "FrozenLake-v1 has no known budget and aim: give --timesteps and --aim"),
    ],
)
def test_wrong_options_of_presets_start_nothing(given: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        presets.main(["--env", *given])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_settings_that_were_changed_have_another_fingerprint() -> None:
    before, after = Settings(sigma=0.1), Settings(sigma=0.2)
    assert fingerprint(before) == fingerprint(Settings(sigma=0.1)) != fingerprint(after)


@pytest.mark.parametrize("env_id", sorted(COURSES))
def test_what_is_reported_of_a_preset_was_trained_with_its_settings(env_id: str) -> None:
    """Schedules and starts stretch over the budget: with another one the settings are others."""
    preset = load_preset(env_id)
    stretches = preset.get("starts", 1) > 1 or any(isinstance(preset.get(name), str) for name in SCHEDULES)
    assert reported_timesteps(env_id) <= preset["total_timesteps"]
    assert not stretches or reported_timesteps(env_id) == preset["total_timesteps"]


def test_a_race_without_an_aim_has_no_verdict() -> None:
    assert race.verdict(0.1, math.nan, seeds=1) == race.verdict(0.1, math.nan, seeds=3) == ""
    assert race.verdict(math.inf, 0.5, seeds=3) == "0.5: not reached"


def test_a_race_evaluates_everybody_on_as_many_episodes() -> None:
    given = argparse.Namespace(
        env=["Reacher-v5", "CartPole-v1", "FrozenLake-v1"],
        peers=["trpo"],
        seeds=1,
        first_seed=0,
        timesteps=5,
        es_timesteps=None,
    )
    peers, ours = race.peer_tasks(given), race.our_tasks(given)
    assert [task.episodes for task in peers] == [task.episodes for task in ours] == [100, 10, 10]
    assert [task.budget.steps for task in ours] == [6_000_000, 100_000, 5], "the peers' budget where none is known"


@pytest.mark.parametrize(
    ("env", "peers", "asked", "steps"),
    [
        ("HalfCheetah-v5", ["trpo"], None, [4_000_000]),
        ("HalfCheetah-v5", ["ppo"], None, [8_000_000]),
        ("HalfCheetah-v5", ["trpo", "ppo"], None, [4_000_000, 8_000_000]),
        ("HalfCheetah-v5", ["trpo", "ppo"], 7, [7]),
        ("Swimmer-v5", ["trpo", "ppo"], None, [5_000_000, 1_700_000]),
    ],
)
def test_a_race_may_be_longer_against_one_peer(env: str, peers: list[str], asked: int | None, steps: list[int]) -> None:
    given = argparse.Namespace(env=[env], peers=peers, seeds=1, first_seed=0, timesteps=5, es_timesteps=asked)
    assert [task.budget.steps for task in race.our_tasks(given)] == steps


@pytest.mark.parametrize("peers", [["trpo", "ppo"], ["ppo", "trpo"]])
def test_each_peer_meets_the_runs_that_were_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, peers: list[str]
) -> None:
    pytest.importorskip("scipy")
    pytest.importorskip("matplotlib")
    runs = {
        ("trpo", 1_000_000): [0, 40],
        ("ppo", 1_000_000): [0, 60],
        ("fastes", 4_000_000): [0, 50],
        ("fastes", 8_000_000): [0, 20, 70],
    }
    for (algo, steps), scores in runs.items():
        for k, score in enumerate(scores):
            kind = "final" if k == len(scores) - 1 else "point"
            changes = {"env": "HalfCheetah-v5", "algo": algo, "budget": f"{steps} steps"}
            append_row(tmp_path / "results.csv", row(kind, steps if kind == "final" else 1000 * k, score, **changes))
    drawn: list[dict[str, str]] = []
    monkeypatch.setattr(
        race,
        "draw_all",
        lambda contests, *_: drawn.extend({k: v[0].final.budget for k, v in c.items()} for c in contests.values()),
    )
    race.main(["--env", "HalfCheetah-v5", "--peers", *peers, "--report-only", "--out", str(tmp_path)])
    lines = [line.split("|") for line in capsys.readouterr().out.splitlines() if line.startswith("| HalfCheetah")]
    rows = {cells[2].strip(): [cells[k].strip() for k in (5, 7, 8)] for cells in lines}
    assert rows == {"TRPO": ["50.0 at 4M", "4M", "4.000"], "PPO": ["70.0 at 8M", "8M", "8.000"]}
    budgets = {"fastes": "4000000 steps", "fastes, longer": "8000000 steps"}
    assert drawn == [{**budgets, "trpo": "1000000 steps", "ppo": "1000000 steps"}]


def test_the_race_is_of_times_to_the_peers_last_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two seeds of three are there at 3000 steps, 30 s; TRPO took 40 s in all, and 20 s to its first evaluation as good."""
    pytest.importorskip("scipy")
    pytest.importorskip("matplotlib")
    runs = {("trpo", "4000 steps"): [[0, 50, 101, 90, 100]] * 3}
    runs["fastes", "8000 steps"] = [[0, 10, 99, 100], [200, 0, 0, 100], [0, 0, 0, 90]]
    for (algo, budget), seeds in runs.items():
        for seed, scores in enumerate(seeds):
            for k, score in enumerate(scores):
                kind = "final" if k == len(scores) - 1 else "point"
                changes = {"env": "Hopper-v5", "algo": algo, "budget": budget, "seed": seed}
                append_row(tmp_path / "results.csv", row(kind, 1000 * k, score, **changes))
    given = ["--env", "Hopper-v5", "--timesteps", "4000", "--es-timesteps", "8000", "--report-only", "--out", str(tmp_path)]
    race.main(given)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| Hopper")]
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    assert cells[1:4] == ["TRPO", "100.0", "40 / 80"]
    assert cells[4:7] == ["100.0 at 8,000", "30.0 / 60.0", "3,000"]
    assert cells[7:] == ["0.750", "0.5: not reached", "0.750", "1.500", "3 / 2 of 3"]
    assert "Hopper-v5 against PPO" in (tmp_path / "race.md").read_text()
    assert "- Hopper-v5, trpo: note" in (tmp_path / "race.md").read_text(), "the settings that each one had"
    fewer = [line for line in (tmp_path / "results.csv").read_text().splitlines() if "fastes,2," not in line]
    (tmp_path / "results.csv").write_text("\n".join(fewer) + "\n")
    race.main(given)
    assert "| 0.5: 2 of 3 seeds |" in capsys.readouterr().out, "no verdict on two seeds"
    assert (tmp_path / "race.png").stat().st_size > 5_000
    with pytest.raises(SystemExit, match="met no peer"):
        race.main([*given[:-1], str(tmp_path / "empty")])


def test_a_race_of_one_side_ends_well_and_says_what_is_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["--env", "Hopper-v5", "--only", "peers", "--peers", "ppo", "--seeds", "1", "--cores", "1", "--out", str(tmp_path)]

    def runs_end_as(kind: str) -> None:
        change = {"env": "Hopper-v5", "budget": "1000000 steps", "note": "no memory"}
        monkeypatch.setattr(race, "run_all", lambda tasks, place: append_row(place.results, row(kind, **change)))

    runs_end_as("failed")
    with pytest.raises(SystemExit, match="no memory"):
        race.main(given)
    runs_end_as("final")
    race.main(given)
    assert "run the others, or --merge their folder" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="met no peer"):
        race.main([*given, "--report-only"])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "results.csv").write_bytes(b"\xff")
    with pytest.raises(SystemExit, match="decode"):
        race.main([*given, "--merge", str(tmp_path / "other")])


def test_a_peer_whose_median_never_was_as_good_gives_no_ratio() -> None:
    theirs, ours = [run([0, 100]), run([0, 0], seed=1)], [run([0, 100]), run([0, 100], seed=1)]
    assert race.line_of("Hopper-v5", "trpo", theirs, ours, Budget(steps=100))[-2] == "peer: never"


def test_a_peer_that_did_not_learn_or_ran_elsewhere_gives_no_times() -> None:
    """FastES's first evaluation, of a policy that hardly moves, is above what Ant's peers end at."""
    ours, budget = [run([900, 950, 1000], seed=seed) for seed in range(3)], Budget(steps=100)
    fell = [run([990, 500, 700], seed=seed) for seed in range(3)]
    told = ["the peer ends no better than it began", *[""] * 5, "3 / 3 of 3"]
    assert race.line_of("Ant-v5", "trpo", fell, ours, budget)[5:] == told
    stayed = [run([700, 900, 700], seed=seed) for seed in range(3)]
    assert race.line_of("Ant-v5", "trpo", stayed, ours, budget)[5:] == told
    elsewhere = [run([0, 500, 950], seed=seed, machine="another") for seed in range(3)]
    told = ["times of different machines", "1,000", *[""] * 4, "3 / 3 of 3"]
    assert race.line_of("Ant-v5", "trpo", elsewhere, ours, budget)[5:] == told


# --- pictures and environments of other kinds -------------------------------------------------------------------------


@pytest.mark.parametrize("evaluations", [3, 40])
def test_few_evaluations_are_marked_in_the_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evaluations: int) -> None:
    """A line between four evaluations, drawn over a logarithmic axis, looks like a measured curve."""
    pytest.importorskip("scipy")
    pytest.importorskip("matplotlib")
    from benchmarks.learning.reports import plots

    figures: list[Any] = []
    monkeypatch.setattr(plots, "save", lambda figure, path: figures.append(figure))
    scores = [float(k**2) for k in range(evaluations)]
    plots.draw({"ppo": [run(scores), run([2.0 * score for score in scores], seed=1)]}, "Toy", tmp_path / "toy.png")
    for axes in figures[0].axes:
        dots = [line for line in axes.lines if line.get_marker() == "o"]
        assert len(dots) == (evaluations == 3)
        if dots:
            assert dots[0].get_ydata() == pytest.approx([1.5, 6.0], rel=1e-3), "the trained ones, the median of two seeds"


@pytest.mark.parametrize("algo", ["ppo", "a2c"])
def test_a_peer_plays_where_actions_and_observations_are_numbers(algo: str) -> None:
    """FrozenLake looks actions up in a dict, which takes no array; a Box's actions stay arrays."""
    pytest.importorskip("sb3_contrib")
    import gymnasium

    from benchmarks.learning.runs.evaluation import play
    from benchmarks.peers.sb3_peer import Way, make_peer

    for env_id, kind in (("FrozenLake-v1", np.integer), ("Pendulum-v1", np.ndarray)):
        peer = make_peer(algo, env_id, 0, settings_for(algo, env_id), Way(False, 1), 1, lambda: 1.0)
        env = gymnasium.make(env_id)
        with contextlib.closing(env):
            assert isinstance(peer.act(env.reset(seed=0)[0]), kind)
            if kind is np.integer:
                assert len(play(env, peer.act, range(2))) == 2
        peer.end()
