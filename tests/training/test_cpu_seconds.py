"""Risk: CPU time that nobody spent is counted, or that of workers, other trainings or earlier sessions twice or never."""

from __future__ import annotations

import math
import resource
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training import learn

from fastes import FastES
from fastes.cli.main import main
from fastes.reports.progress_rows import read_progress
from fastes.runs.overview import read_overview
from fastes.seeds import make_models, train_together

SMALL: dict[str, Any] = {
    "preset": "default",
    "population_size": 8,
    "policy_kwargs": {"net_arch": [4]},
    "target_return": "none",
    "native": "off",
}
SMALL["noise_table_size"] = 20_000
TRAIN = ["train", "CartPole-v1", "--seed", "0", "--preset", "default", "--population-size", "8", "--net-arch", "4", "--quiet"]


def spent_so_far() -> float:
    """CPU time of this process and of its children that have ended, as the system counts it."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def spend(seconds: float) -> None:
    """Use the CPU for so long."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


@pytest.mark.parametrize("n_workers", [0, 1, 3])
def test_what_is_counted_is_what_the_system_counts(n_workers: int) -> None:
    model = FastES("CartPole-v1", seed=0, n_workers=n_workers, **SMALL)
    before = spent_so_far()
    with model:
        told = [record.cpu_seconds for record in learn(model, 60)]
    spent = spent_so_far() - before
    assert all(0.0 < one < other for one, other in pairwise(told))
    assert 0.5 * spent < told[-1] <= spent


def test_trainings_on_one_pool_share_what_it_takes() -> None:
    models = make_models(lambda seed: FastES("CartPole-v1", seed=seed, n_workers=1, **SMALL), 3)
    before = spent_so_far()
    train_together(models, lambda model: model.learn_async(5_000))
    spent = spent_so_far() - before
    assert 0.4 * spent < sum(model.cpu_seconds for model in models) <= spent


def test_what_comes_between_two_parts_of_a_training_is_not_counted() -> None:
    with FastES("CartPole-v1", seed=0, n_workers=0, **SMALL) as model:
        learn(model, 2)
        first = model.cpu_seconds
        spend(0.5)
        began = time.process_time()
        told = learn(model, 4)[-1].cpu_seconds
        assert first < told <= first + time.process_time() - began
        began = time.process_time()
        model.learn(100)
        assert model.cpu_seconds <= time.process_time() - began, "a training that counts from 0 again"


def test_a_resumed_run_goes_on_with_what_it_has_spent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TRAIN, "--workers", "1", "--total-timesteps", "2000", "--runs", str(tmp_path)]) == 0
    run = tmp_path / "CartPole-v1" / "1"
    first = read_progress(run / "progress.csv")["cpu_seconds"]
    assert main(["train", "--resume", str(run), "--workers", "0", "--quiet", "--total-timesteps", "4000"]) == 0
    both = read_progress(run / "progress.csv")["cpu_seconds"]
    assert both[: len(first)].tolist() == first.tolist()
    assert (np.diff(both) > 0.0).all()
    assert read_overview(run).cpu_seconds == both[-1]
    capsys.readouterr()
    assert main(["info", str(run)]) == 0
    assert ", CPU time " in capsys.readouterr().out


def test_a_run_of_an_earlier_version_does_not_know_its_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not even after it was resumed: what was spent before is not known."""
    assert main([*TRAIN, "--workers", "0", "--total-timesteps", "2000", "--runs", str(tmp_path)]) == 0
    run = tmp_path / "CartPole-v1" / "1"
    header, *lines = [line.split(",") for line in (run / "progress.csv").read_text().splitlines()]
    at = header.index("cpu_seconds")
    rows = [",".join([*line[:at], *line[at + 1 :]]) for line in (header, *lines)]
    (run / "progress.csv").write_text("\n".join([*rows, ""]))
    for _ in range(2):
        assert read_overview(run).cpu_seconds is None
        assert main(["plot", str(run), "--x", "cpu"]) == 1
        assert "without cpu_seconds, as an earlier version wrote them" in capsys.readouterr().err
        assert main(["plot", str(run), "--x", "time"]) == 0
        assert main(["train", "--resume", str(run), "--workers", "0", "--quiet", "--total-timesteps", "4000"]) in (0, 2)
    assert all(map(math.isnan, read_progress(run / "progress.csv")["cpu_seconds"]))
