"""Risk: the user, the system or a crash ends the training process halfway."""

from __future__ import annotations

import contextlib
import csv
import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from faults import SETTINGS, seed_of, toy
from processes import alive, children, environment, fastes_command, run_fastes, run_script, started_script, wait_until
from training import MANY, TIMES, Result, assert_same, assert_same_state, learn

from fastes import FastES
from fastes.checkpoints.reader import read_checkpoint
from fastes.cli.main import main
from fastes.cli.stop_on_signal import StopOnSignal
from fastes.es.noise_table import NoiseTable
from fastes.es.perturbations import draw_eval_seeds
from fastes.rollout.obs_normalizer import ObsNormalizer
from fastes.system.atomic_files import remove_leftovers


def test_interrupt_leaves_the_last_whole_generation(tmp_path: Path, undisturbed: Result) -> None:
    """A real SIGINT while workers are in the middle of generation 2."""
    marker = tmp_path / "marker"

    def interrupt() -> None:
        wait_until(lambda: marker.exists() and marker.read_text().endswith("\n"), "a worker hangs in an episode")
        os.kill(os.getpid(), signal.SIGINT)

    states: list[Any] = []
    records: list[Any] = []
    with FastES(toy(hang_seeds=[seed_of(2, 0)], marker=str(marker)), preset="default", n_workers=2, **SETTINGS) as model:

        def note(record: Any) -> None:
            records.append(record)
            states.append(model.snapshot())

        sender = threading.Thread(target=interrupt)
        sender.start()
        with pytest.raises(KeyboardInterrupt):
            learn(model, 4, on_record=note)
        sender.join()
        assert model.generation == 2
        assert_same_state(states[-1], model.snapshot())
        records += learn(model, 4)
        assert_same(undisturbed, Result(model.snapshot(), records))


def test_interrupt_without_workers_leaves_the_last_whole_generation(tmp_path: Path, undisturbed: Result) -> None:
    records: list[Any] = []
    env = toy(interrupt_seeds=[seed_of(2, 3)], marker=str(tmp_path / "marker"))
    with FastES(env, preset="default", n_workers=0, **SETTINGS) as model:
        with pytest.raises(KeyboardInterrupt):
            learn(model, 4, on_record=records.append)
        assert model.generation == 2
        records += learn(model, 4)
        assert_same(undisturbed, Result(model.snapshot(), records))


@pytest.mark.parametrize("n_workers", [0, 2])
def test_interrupt_while_the_noise_table_is_filled(
    n_workers: int, monkeypatch: pytest.MonkeyPatch, undisturbed: Result
) -> None:
    """Workers must never train on a table that was not filled."""
    with FastES(toy(), preset="default", n_workers=n_workers, **SETTINGS) as model:
        with monkeypatch.context() as patch:

            def interrupted(*_: Any) -> None:
                raise KeyboardInterrupt

            patch.setattr(NoiseTable, "place", interrupted)
            with pytest.raises(KeyboardInterrupt):
                learn(model, 4)
        records = learn(model, 4)
        assert_same(undisturbed, Result(model.snapshot(), records))


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_interrupt_in_the_confirmation_of_the_target_counts_nothing(lag: int, tmp_path: Path) -> None:
    """The evaluation that confirms the target comes before the generation is whole that it is told with."""
    settings = {**SETTINGS, "target_return": -1e9, "eval_lag": lag}
    confirming = draw_eval_seeds(5, 2**32 - 1 - lag, 20).tolist()
    env = toy(interrupt_seeds=confirming, marker=str(tmp_path / "marker"))
    with FastES(toy(), preset="default", n_workers=0, **settings) as model:
        records = learn(model, 4)
        whole = Result(model.snapshot(), records)
        assert model.solved
    with FastES(env, preset="default", n_workers=0, **settings) as model:
        model.trainer.selection = model.selection.with_budget(MANY, anew=False)  # as learn does
        before, records = [model.snapshot()], []

        def note(record: Any) -> None:
            records.append(record)
            before.append(model.snapshot())

        with pytest.raises(KeyboardInterrupt):
            learn(model, 4, on_record=note)
        assert (tmp_path / "marker").exists()
        assert len(records) == lag
        assert_same_state(before[-1], model.snapshot())
        records += learn(model, 4)
        assert_same(whole, Result(model.snapshot(), records))


def test_interrupt_from_a_callback_leaves_a_whole_generation(undisturbed: Result) -> None:
    def interrupt(record: Any) -> None:
        if record.generation == 2:
            raise KeyboardInterrupt

    with FastES(toy(), preset="default", n_workers=2, **SETTINGS) as model:
        with pytest.raises(KeyboardInterrupt):
            learn(model, 4, on_record=interrupt)
        learn(model, 4)
        assert_same_state(undisturbed.state, model.snapshot())


ENDLESS = """
    import envs_for_tests
    from fastes import FastES
    make = lambda: envs_for_tests.Toy(step_seconds=0.01, started="started")
    model = FastES(make, preset="unbiased", n_workers=3, population_size=50, seed=0)
    model.learn()
"""


@pytest.mark.parametrize("when", ["working", "starting"])
def test_workers_die_with_a_killed_parent(when: str, tmp_path: Path) -> None:
    with started_script(ENDLESS, tmp_path) as parent:
        wait_until(lambda: len(children(parent.pid)) == 3, "three workers run")
        if when == "working":
            wait_until((tmp_path / "started").exists, "an episode was started")
        workers = children(parent.pid)
        for pid in (parent.pid, *workers):
            with contextlib.suppress(FileNotFoundError):
                assert "/dev/shm/" not in Path(f"/proc/{pid}/maps").read_text()
    wait_until(lambda: not any(alive(pid) for pid in workers), "workers ended after their parent")


def test_workers_die_with_a_killed_parent_even_while_they_sleep_in_an_episode(tmp_path: Path) -> None:
    """A hung-up pipe alone would not be noticed before the episode ends."""
    with started_script(ENDLESS.replace("step_seconds=0.01", "step_seconds=100.0"), tmp_path) as parent:
        wait_until((tmp_path / "started").exists, "an episode was started")
        workers = children(parent.pid)
        assert len(workers) == 3
    wait_until(lambda: not any(alive(pid) for pid in workers), "workers ended after their parent")


TRAIN = [
    "CartPole-v1",
    "--seed",
    "3",
    "--workers",
    "2",
    "--preset",
    "default",
    "--population-size",
    "8",
    "--target-return",
    "none",
]
TRAIN += ["--total-timesteps", "1000000000", "--checkpoint-seconds", "0.2", "--quiet"]


def _started_training(folder: Path, *flags: str) -> subprocess.Popen[str]:
    """`fastes train` in a process group of its own, once it has written statistics."""
    process = subprocess.Popen(
        [*fastes_command(), "train", *TRAIN, *flags],
        cwd=folder,
        env={**environment(), "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # these tests may run under nohup
    )
    run = folder / "runs" / "CartPole-v1" / "1"
    wait_until(lambda: (run / "progress.csv").exists() and len(_generations(run)) > 5, "some generations are done")
    return process


def _generations(run: Path) -> list[int]:
    with open(run / "progress.csv", newline="") as file:
        return [int(row["generation"]) for row in csv.DictReader(file)]


@pytest.mark.parametrize(("number", "whole_group"), [(signal.SIGTERM, True), (signal.SIGHUP, False)])
def test_termination_saves_and_says_so_in_the_exit_status(number: int, whole_group: bool, tmp_path: Path) -> None:
    """Batch systems send SIGTERM, some of them to every process of the job, and wait for a few seconds."""
    process = _started_training(tmp_path, "--checkpoint-seconds", "1e9")
    workers = children(process.pid)
    assert len(workers) == 2
    (os.killpg if whole_group else os.kill)(process.pid, number)
    started = time.monotonic()
    _, error = process.communicate(timeout=60)
    assert time.monotonic() - started < 60.0
    assert process.returncode == 128 + number
    run = tmp_path / "runs" / "CartPole-v1" / "1"
    with FastES.load(run / "checkpoint.zip", n_workers=0) as model:
        assert model.generation >= _generations(run)[-1] > 5
    assert "--resume" in error
    assert "Traceback" not in error
    assert "Warning" not in error
    assert not any(alive(pid) for pid in workers)


def test_a_second_termination_does_not_cut_the_save_short(tmp_path: Path) -> None:
    process = _started_training(tmp_path, "--checkpoint-seconds", "1e9")
    for _ in range(20):
        process.terminate()
        time.sleep(0.002)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 143, error
    FastES.load(tmp_path / "runs" / "CartPole-v1" / "1" / "checkpoint.zip", n_workers=0).close()


def test_termination_of_a_training_in_python_leaves_the_model_whole(tmp_path: Path) -> None:
    """The recipe of docs/reliability.md for scripts."""
    script = """
        import signal, sys
        from fastes import FastES
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        model = FastES("CartPole-v1", seed=0, n_workers=2, preset="default", population_size=8, target_return="none")
        try:
            model.learn(10**12, lambda m, r: print(r.generation, flush=True))
        finally:
            model.save("end")
            print("saved", model.generation, flush=True)
    """
    with started_script(script, tmp_path) as process:
        assert process.stdout is not None
        for _ in range(5):
            process.stdout.readline()
        process.terminate()
        output, error = process.communicate(timeout=60)
        assert process.returncode == 143, error
    lines = output.split()
    with FastES.load(tmp_path / "end", n_workers=0) as model:
        assert model.generation == int(lines[-1]) >= 5


def shared_memory() -> set[str]:
    """Names in it, without those of a test that may run beside this one."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith("saves-of-a-test-")}


@pytest.mark.parametrize("whole_group", [False, True])
def test_a_killed_training_leaves_a_checkpoint_and_nothing_else(whole_group: bool, tmp_path: Path) -> None:
    before = shared_memory()
    process = _started_training(tmp_path)
    run = tmp_path / "runs" / "CartPole-v1" / "1"
    wait_until(lambda: (run / "checkpoint.zip.bak").exists(), "two checkpoints were written")
    workers = children(process.pid)
    assert len(workers) == 2
    (os.killpg if whole_group else os.kill)(process.pid, signal.SIGKILL)
    wait_until(lambda: not any(alive(pid) for pid in workers), "workers ended after their parent")
    process.communicate()
    assert shared_memory() <= before
    assert os.listdir(tmp_path) == ["runs"], "nothing in the temporary folder either"
    remove_leftovers(run)  # as the next save does: a kill may come between a whole file's name and its own
    assert {p.name for p in run.iterdir()} <= {
        "checkpoint.zip", "checkpoint.zip.bak", "best.zip", "best.zip.bak", "midway.zip", "midway.zip.bak",
        "config.toml", "progress.csv", "population.json",
    }  # fmt: skip
    with FastES.load(run / "checkpoint.zip", n_workers=0) as model:
        assert model.generation > 0


@pytest.mark.slow
def test_a_training_that_is_killed_again_and_again_ends_as_if_it_was_not(tmp_path: Path) -> None:
    flags = ["--seed", "4", "--quiet", "--workers", "2", "--preset", "default", "--population-size", "20"]
    flags += ["--target-return", "none", "--checkpoint-seconds", "0", "--total-timesteps", "150000"]
    whole = run_fastes("train", "CartPole-v1", *flags, "--runs", "whole", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    chance, command = random.Random(0), ["train", "CartPole-v1", *flags, "--runs", "parts"]
    run = tmp_path / "parts" / "CartPole-v1" / "1"
    for kills in range(1, 5):
        process = subprocess.Popen(
            [*fastes_command(), *command], cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        goal = _done(run) + chance.randrange(1, 4)
        wait_until(lambda goal=goal, process=process: _done(run) >= goal or process.poll() is not None, "a few generations")  # type: ignore[misc]
        time.sleep(chance.uniform(0.0, 0.01))
        assert process.poll() is None, "it is killed in the middle"
        process.kill()
        process.wait()
        command = ["train", "--resume", str(run), "--quiet", "--workers", str(kills % 3), "--checkpoint-seconds", "0"]
    last = run_fastes(*command, cwd=tmp_path)
    assert last.returncode == 0, last.stderr
    ends = [read_checkpoint(tmp_path / name / "CartPole-v1" / "1" / "checkpoint.zip") for name in ("whole", "parts")]
    assert_same_state(*ends)
    statistics = [_statistics(tmp_path / name / "CartPole-v1" / "1") for name in ("whole", "parts")]
    assert statistics[0] == statistics[1]


def _done(run: Path) -> int:
    """Generations that a run folder's statistics tell of; 0 before there are any."""
    try:
        return _generations(run)[-1]
    except (OSError, IndexError, ValueError, KeyError, TypeError):  # not there, or a line is being written
        return 0


def _statistics(run: Path) -> list[dict[str, str]]:
    with open(run / "progress.csv", newline="") as file:
        return [{key: value for key, value in row.items() if key not in TIMES} for row in csv.DictReader(file)]


# --- signals in the middle of booking --------------------------------------------------------------------------------


class Slow:
    """Lets a signal come in the middle of booking a generation, and gives other threads the time to take it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int, generation: int) -> None:
        merged = ObsNormalizer.merged
        self.calls = 0

        def slow(normalizer: ObsNormalizer, *arguments: Any) -> Any:
            self.calls += 1
            if self.calls == generation:
                os.kill(os.getpid(), number)
                time.sleep(0.2)
            return merged(normalizer, *arguments)

        monkeypatch.setattr(ObsNormalizer, "merged", slow)


@pytest.mark.parametrize("n_workers", [0, 2])
def test_an_interrupt_while_a_generation_is_booked_leaves_it_whole(
    n_workers: int, monkeypatch: pytest.MonkeyPatch, undisturbed: Result
) -> None:
    records: list[Any] = []
    stop = threading.Event()
    other = threading.Thread(target=stop.wait)  # the system may give it the signal
    other.start()
    with FastES(toy(), preset="default", n_workers=n_workers, **SETTINGS) as model:
        Slow(monkeypatch, signal.SIGINT, 3)
        with pytest.raises(KeyboardInterrupt):
            learn(model, 4, on_record=records.append)
        assert model.generation == 3
        assert model.unreported_record is not None
        assert model.unreported_record.generation == 3
        records += [model.unreported_record, *learn(model, 4)]
        assert_same(undisturbed, Result(model.snapshot(), records))
    stop.set()
    other.join()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_while_it_books_has_statistics_without_a_gap(
    number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ctrl-C twice at once, and SIGTERM: whatever the checkpoint has, progress.csv has."""
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    flags = ["CartPole-v1", "--seed", "4", "--quiet", "--workers", "0", "--preset", "default", "--population-size", "6"]
    flags += ["--target-return", "none", "--total-timesteps", "2000", "--checkpoint-seconds", "0"]
    assert main(["train", *flags, "--runs", str(tmp_path / "whole")]) == 0
    with monkeypatch.context() as patch:
        Slow(patch, number, 3)
        status = main(["train", *flags, "--runs", str(tmp_path / "parts")])
    for each, handler in before.items():
        signal.signal(each, handler)
    assert status == (143 if number == signal.SIGTERM else 130)
    run = tmp_path / "parts" / "CartPole-v1" / "1"
    assert read_checkpoint(run / "checkpoint.zip").data["trainings"][0]["generation"] == _generations(run)[-1] == 3
    assert main(["train", "--resume", str(run), "--quiet", "--workers", "0"]) == 0
    assert _statistics(run) == _statistics(tmp_path / "whole" / "CartPole-v1" / "1")


def test_a_termination_that_somebody_swallows_ends_the_training_all_the_same(tmp_path: Path) -> None:
    script = """
        import os, signal, sys
        import envs_for_tests
        import gymnasium
        from fastes.cli.main import main
        class Deaf(envs_for_tests.Toy):
            played = 0
            def step(self, action):
                Deaf.played += 1
                try:
                    if Deaf.played == 500:
                        os.kill(os.getpid(), signal.SIGTERM)
                        for _ in range(1000):
                            pass
                except:
                    print("swallowed", flush=True)
                return super().step(action)
        gymnasium.register("Deaf-v0", entry_point=Deaf)
        print("ready", flush=True)
        flags = ["--workers", "0", "--population-size", "4", "--target-return", "none", "--total-timesteps", "100000000"]
        sys.exit(main(["train", "Deaf-v0", *flags, "--quiet"]))
    """
    result = run_script(script, tmp_path)
    assert "swallowed" in result.stdout
    assert result.returncode == 143, result.stderr
    assert "--resume" in result.stderr


@pytest.mark.parametrize("error", ["OSError", "ValueError", "MemoryError"])
def test_whatever_ends_a_training_what_it_has_is_saved(error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: dict[str, type[Exception]] = {"OSError": OSError, "ValueError": ValueError, "MemoryError": MemoryError}

    def failing(self: Any, model: FastES, record: Any) -> bool:
        if record.generation == 3:
            raise kinds[error]("from a callback")
        return True

    flags = [
        "train",
        "CartPole-v1",
        "--quiet",
        "--workers",
        "0",
        "--seed",
        "1",
        "--population-size",
        "4",
        "--runs",
        str(tmp_path),
    ]
    monkeypatch.setattr(StopOnSignal, "on_generation", failing)
    assert main([*flags, "--checkpoint-seconds", "1e9"]) in (1, 2)
    run = tmp_path / "CartPole-v1" / "1"
    assert read_checkpoint(run / "checkpoint.zip").data["trainings"][0]["generation"] == _generations(run)[-1] == 3
