"""Risk: descriptors, threads, processes or memory stay behind when a model is done."""

from __future__ import annotations

import gc
import os
import threading
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from envs_for_tests import Toy
from processes import children, run_script, second_process_fails, wait_until
from training import Result, assert_same, learn, train

from fastes import FastES, WorkerError

SETTINGS: dict[str, Any] = {
    "preset": "default",
    "population_size": 4,
    "seed": 5,
    "target_return": "none",
    "policy_kwargs": {"net_arch": [4]},
    "noise_table_size": 1 << 16,
}


def held() -> tuple[int, int, int, int]:
    """Open descriptors, threads, child processes, and mapped blocks of shared memory."""
    gc.collect()
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer) and thread.finished.is_set():
            thread.join()  # it was cancelled, and ends by itself
    maps = Path("/proc/self/maps").read_text()
    return len(os.listdir("/proc/self/fd")), threading.active_count(), len(children()), maps.count("memfd:fastes")


@pytest.mark.parametrize(("n_workers", "models"), [(0, 8), (1, 3)])
def test_models_in_sequence_leave_nothing(n_workers: int, models: int) -> None:
    train("Toy-v0", 1, n_workers, **SETTINGS)
    before = held()
    for _ in range(models):
        train("Toy-v0", 1, n_workers, **SETTINGS)
        assert held() == before
    assert before[2:] == (0, 0)


def test_replaying_leaves_nothing() -> None:
    before = held()
    model = FastES("Toy-v0", n_workers=0, **SETTINGS)
    model.replay(1, 0)
    assert held()[0] == before[0]
    assert held()[3] == before[3]
    model.close()


def resident_kilobytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def test_memory_stays_flat_over_500_generations(tmp_path: Path) -> None:
    """Of this process and of its workers, with saves in between."""
    sizes: list[int] = []

    def note(model: FastES, record: Any) -> bool:
        if record.generation % 50 == 0:
            model.save(tmp_path / "m")
        if record.generation in (100, 300, 500):
            gc.collect()
            workers = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4 for pid in children()]
            sizes.append(resident_kilobytes() + sum(workers))
        return record.generation < 500

    with FastES("Toy-v0", n_workers=2, **{**SETTINGS, "noise_table_size": 1 << 16}) as model:
        model.learn(10**9, note)
    first, _, last = sizes
    assert last - first < 1500, f"{sizes} kB resident: 400 generations may not keep 4 kB each"


def test_memory_stays_flat_over_models(tmp_path: Path) -> None:
    for _ in range(5):
        train("Toy-v0", 1, 0, **SETTINGS)
    gc.collect()
    before = resident_kilobytes()
    for _ in range(20):
        train("Toy-v0", 1, 0, **SETTINGS)
    gc.collect()
    assert resident_kilobytes() - before < 20 * 400, "a model's noise table alone is 4 MB"


def test_a_model_that_is_dropped_leaves_nothing() -> None:
    before = held()
    model = FastES("Toy-v0", n_workers=2, **SETTINGS)
    learn(model, 1)
    assert held() > before
    del model
    wait_until(lambda: held() == before, "everything is given back")


def test_closing_twice_and_going_on_leave_nothing() -> None:
    before = held()
    model = FastES("Toy-v0", n_workers=2, **SETTINGS)
    for generation in (1, 2, 3):
        learn(model, generation)
        model.close()
        model.close()
        assert held() == before
    model.close()


@pytest.mark.parametrize("n_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_an_exception_leaves_nothing(n_workers: int) -> None:
    before = held()
    with FastES("Toy-v0", n_workers=0, **SETTINGS) as model:
        seed = int(model.strategy.ask().env_seed[0, 0])
    for _ in range(3):
        model = FastES(partial(Toy, fail_seeds=[seed]), n_workers=n_workers, **SETTINGS)
        with pytest.raises(WorkerError):
            learn(model, 1)
        model.close()
    assert held() == before


def test_a_process_that_cannot_be_started_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = train("Toy-v0", 2, **SETTINGS)
    before = held()
    with FastES("Toy-v0", n_workers=3, **SETTINGS) as model:
        with monkeypatch.context() as patch:
            patch.setattr("subprocess.Popen", second_process_fails())
            with pytest.raises(BlockingIOError):
                learn(model, 2)
        records = learn(model, 2)
        assert_same(expected, Result(model.snapshot(), records))
    assert held() == before


@pytest.mark.parametrize("at", ["os.posix_fallocate", "mmap.mmap"])
def test_an_interrupt_while_memory_is_made_leaves_no_descriptor(at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with FastES("Toy-v0", n_workers=1, **SETTINGS) as model:
        before = held()

        def interrupted(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(at, interrupted, raising=False)
        with pytest.raises(KeyboardInterrupt):
            learn(model, 1)
        assert held()[0] == before[0]
        monkeypatch.undo()
        learn(model, 1)


def test_replaced_workers_leave_nothing(tmp_path: Path) -> None:
    with FastES("Toy-v0", n_workers=2, **SETTINGS) as model:
        seeds = [int(seed) for seed in model.strategy.ask().env_seed[:, 0]]
        learn(model, 1)
        before = held()
    with FastES(partial(Toy, kill_seeds=seeds, marker=str(tmp_path / "m")), n_workers=2, **SETTINGS) as model:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            learn(model, 2)
        assert held() == before
        assert (tmp_path / "m").exists()


def test_a_model_that_cannot_be_made_leaves_nothing() -> None:
    closed: list[Toy] = []

    class Closing(Toy):
        def close(self) -> None:
            closed.append(self)

    before = held()
    for bad in ({"n_workers": -1}, {"seed": -1}, {"policy": "NoPolicy"}, {"noise_table_size": 1}):
        with pytest.raises(ValueError):
            FastES(Closing, preset="unbiased", **bad)  # type: ignore[arg-type]
    assert held() == before
    assert len(closed) == 4, "the environment that was built to look at is closed"


def test_two_models_at_once_do_not_meet() -> None:
    settings = {**SETTINGS, "action_noise": 0.1}
    apart = [train("Toy-v0", 3, **{**settings, "seed": seed}) for seed in (1, 2)]
    records: tuple[list[Any], list[Any]] = ([], [])
    with (
        FastES("Toy-v0", n_workers=2, **{**settings, "seed": 1}) as first,
        FastES("Toy-v0", n_workers=1, **{**settings, "seed": 2}) as second,
    ):
        for generation in (1, 2, 3):
            records[0].extend(learn(first, generation))
            records[1].extend(learn(second, generation))
        assert len(children()) == 3
        first.close()
        assert len(children()) == 1
        together = [Result(first.snapshot(), records[0]), Result(second.snapshot(), records[1])]
    for alone, result in zip(apart, together, strict=True):
        assert_same(alone, result)


EXITS = {
    "end of the script": "",
    "exception": "raise SystemExit(0)",
    "reference cycle": "model.me = model",
    "held by a module": "import json; json.model = model",
    "open progress bar": "model.learn(300, progress_bar=True, reset_num_timesteps=False)",
}


@pytest.mark.parametrize("how", EXITS)
def test_exit_without_close_neither_hangs_nor_warns(how: str, tmp_path: Path) -> None:
    script = f"""
        from fastes import FastES
        model = FastES("CartPole-v1", n_workers=1, preset="default", population_size=4, seed=0)
        model.learn(100)
        print("learned")
        {EXITS[how]}
    """
    result = run_script(script, tmp_path)
    assert result.returncode == 0
    assert result.stdout == "learned\n"
    assert [line for line in result.stderr.splitlines() if not line.startswith("100% ")] == []


def test_nothing_lies_around_after_training(tmp_path: Path) -> None:
    script = """
        import os, tempfile
        from fastes import FastES
        before = set(os.listdir(tempfile.gettempdir())) | set(os.listdir("."))
        with FastES("CartPole-v1", n_workers=2, preset="default", population_size=4, seed=0) as model:
            model.learn(100)
            during = set(os.listdir(tempfile.gettempdir())) | set(os.listdir("."))
        after = set(os.listdir(tempfile.gettempdir())) | set(os.listdir("."))
        assert before == during == after, (before, during, after)
    """
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    result = run_script(f"import os; os.environ['TMPDIR'] = {str(temporary)!r}\n" + _dedent(script), tmp_path)
    assert result.returncode == 0, result.stderr


def _dedent(text: str) -> str:
    return "\n".join(line[8:] for line in text.splitlines())
