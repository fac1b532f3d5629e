"""Risk: the study of populations trains something else than population_scale sets, or dates a return that was luck."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1]))  # last: the checkout's fastes may have no compiled core

from benchmarks.csv_records import read_records
from benchmarks.learning.studies import populations
from benchmarks.learning.studies.__main__ import main
from benchmarks.learning.studies.population_run import Point, Watch
from benchmarks.learning.studies.population_table import (
    Reached,
    first_reached,
    fitted_limit,
    grouped,
    median_and_worst,
    section,
    time_on,
)
from benchmarks.learning.studies.populations import COURSES, Case, cases_of, changes_of, parsed
from fastes.settings.preset_loader import choose_settings


def points(*scores: float) -> list[Point]:
    return [Point(k, 100 * k, score, 0.0) for k, score in enumerate(scores)]


def reached(factor: int, generations: float, aim: float = 5.0, rate: str = "root", seed: int = 0) -> Reached:
    size = 16 * factor
    return Reached("Toy", factor, rate, "steps", "share", seed, size, aim, generations, generations * size, 1.0, 1.0, 99, "")


@pytest.mark.parametrize("env", COURSES)
@pytest.mark.parametrize("factor", [1, 2, 4, 16])
def test_the_default_rules_are_what_population_scale_sets(env: str, factor: int) -> None:
    """All but schedules, which have no budget here, and stay at their first value."""
    (case,) = cases_of(parsed(["--env", env, "--factors", str(factor), "--seeds", "1", "--out", "x"]))
    changes = changes_of(case)
    scaled = choose_settings(env, None, {"population_scale": factor})
    rate = scaled.learning_rate
    first = float(rate.split("_")[1]) if isinstance(rate, str) else rate
    assert changes["learning_rate"] == pytest.approx(first, rel=1e-15)
    studied = choose_settings(env, None, changes)
    same = {name: value for name, value in scaled.to_dict().items() if name not in ("learning_rate", "sigma", "starts")}
    for name, value in same.items():
        assert getattr(studied, name) == (pytest.approx(value, rel=1e-12) if isinstance(value, float) else value), name


def test_rules_change_what_they_say() -> None:
    case = Case("HalfCheetah-v5", 4, "linear", "generations", "number", 0)
    assert changes_of(case) == {
        "population_size": 64,
        "learning_rate": 0.08,
        "sigma": 0.03,
        "starts": 1,
        "obs_freeze_after": 0,
        "top_fraction": 0.125,
    }
    assert changes_of(case._replace(rate="same"))["learning_rate"] == 0.02


def test_a_factor_of_one_is_run_once_whatever_the_rules() -> None:
    given = [
        "--factors",
        "4",
        "1",
        "--rates",
        "root",
        "same",
        "--growths",
        "steps",
        "generations",
        "--seeds",
        "2",
        "--out",
        "x",
    ]
    cases = cases_of(parsed(["--env", "HalfCheetah-v5", *given]))
    assert len(cases) == len(set(cases)) == 2 * (1 + 4)
    assert [case.factor for case in cases[:5]] == [1, 4, 4, 4, 4]
    assert {case.seed for case in cases} == {0, 1}


@pytest.mark.parametrize(
    ("given", "said"),
    [(["Swimmer-v5"], "no known returns"), (["Walker2d-v5", "--returns", "9", "--most-steps", "9"], "generation_timesteps")],
)
def test_environments_that_cannot_be_studied_are_refused(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parsed(["--out", "x", "--env", *given])
    assert said in capsys.readouterr().err


def test_one_lucky_evaluation_reaches_nothing() -> None:
    assert first_reached(points(0, 0, 9, 0, 0, 9, 0), 5.0) is None
    assert first_reached(points(0, 0, 9, 0, 9, 9, 0), 5.0) == 3
    assert first_reached(points(9, 9, 9, 0, 0), 5.0) == 2
    assert first_reached(points(9, 9, 9), 5.0) is None
    assert first_reached([], 5.0) is None


def test_a_training_ends_at_the_return_or_when_its_steps_are_spent() -> None:
    class Told:
        def __init__(self, generation: int, score: float) -> None:
            self.generation, self.eval_return = generation, score
            self.timesteps = 100 * generation

    def ends_after(scores: list[float], most: int) -> tuple[int, Watch]:
        watch = Watch(5.0, most)
        for generation, score in enumerate(scores, 1):
            told: Any = Told(generation, score)
            if not watch.on_generation(told, told):
                return generation, watch
        return 0, watch

    ended, watch = ends_after([0, 9, 0, 9, 9, 9], 10**6)
    assert ended == 5
    assert first_reached(watch.points, 5.0) == 2, "whatever ends a training is found in it"
    assert [point[:3] for point in watch.points[:2]] == [(0, 0, 0), (1, 100, 9)], "an evaluation is of theta before"
    assert ends_after([0, 9, 0, 0, 9, 0], 10**6)[0] == 0
    assert ends_after([0.0] * 6, 300)[0] == 3


def test_time_on_many_workers_is_that_of_rounds() -> None:
    assert time_on(64, points(0, 0, 0), 10) == 2 * 10, "two generations of ten candidates with ten steps each"
    assert time_on(10, points(0, 0, 0), 10) == 2 * 10
    assert time_on(9, points(0, 0, 0), 10) == 2 * 20
    assert time_on(1, points(0, 0, 0), 10) == 2 * 100
    assert time_on(64, points(0), 10) == 0


def test_the_limit_of_perfect_measurements_is_found() -> None:
    factors = [1, 2, 4, 8, 16]
    limit = fitted_limit(factors, [10 * (1 + 4 / factor) for factor in factors])
    assert limit.critical == pytest.approx(4, rel=0.02)
    assert limit.least == pytest.approx(10, rel=0.02)
    assert fitted_limit(factors, [30] * 5).critical == 0.125
    assert fitted_limit(factors, [320 / factor for factor in factors]).critical == 256


def test_the_table_compares_with_a_factor_of_one() -> None:
    rows = [reached(1, 100, seed=seed) for seed in (0, 1)] + [reached(4, 50), reached(4, 40, rate="same")]
    by_rules = grouped(rows)
    assert list(by_rules) == [("root", "steps", "share"), ("same", "steps", "share")]
    assert all(list(by_factor) == [1, 4] for by_factor in by_rules.values())
    text = section(rows)
    (root,) = [line for line in text.splitlines() if line.startswith("| root") and " 4 " in line]
    cells = [cell.strip() for cell in root.split("|")[1:-1]]
    assert cells[1:7] == ["4", "64", "50", "2.0", "3,200", "2.0"]
    never = section([reached(1, 100), reached(4, math.inf)])
    assert "never" in never
    assert median_and_worst([3, 1, 2]) == "2 (worst 3)"
    assert median_and_worst([1, math.inf]) == "never (worst never)"


def test_the_same_command_goes_on_where_it_was(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    given = ["populations", "--env", "CartPole-v1", "--factors", "1", "2", "--returns", "15", "--seeds", "1", "--cores", "1"]
    command = [*given, "--most-steps", "3000", "--out", str(tmp_path)]
    main(command)
    files = sorted((tmp_path / "populations" / "points").iterdir())
    assert [file.name for file in files] == [
        "CartPole-v1-1-same-generations-share-0.csv",
        "CartPole-v1-2-fourth-generations-share-0.csv",
    ]
    found = read_records(files[0], Point)
    assert [point.generation for point in found] == list(range(len(found)))
    first = (tmp_path / "populations" / "populations.csv").read_text()
    files[1].unlink()
    before = files[0].stat().st_mtime_ns
    capfd.readouterr()
    main(command)
    told = capfd.readouterr()
    assert (tmp_path / "populations" / "populations.csv").read_text() == first
    assert files[0].stat().st_mtime_ns == before
    assert "CartPole-v1-2-fourth" in told.err
    assert "CartPole-v1-1-" not in told.err
    assert (tmp_path / "populations" / "populations.png").stat().st_size > 1000
    main([*command, "--report-only"])
    assert not capfd.readouterr().err


def test_what_cannot_be_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main(["populations", "--env", "CartPole-v1", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="no finished training"):
        main(["populations", "--report-only", "--out", str(tmp_path)])
    assert populations.QUESTION
