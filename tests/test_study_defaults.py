"""Risk: a default is chosen by one task that outweighs others, by trainings that are missing, or on what it is tested on."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1]))  # last: the checkout's fastes may have no compiled core

from benchmarks.csv_records import append_record, read_records
from benchmarks.learning.runs.contestant import fingerprint
from benchmarks.learning.runs.evaluation import play
from benchmarks.learning.studies import default_run, default_scores, defaults
from benchmarks.learning.studies.__main__ import main
from benchmarks.learning.studies.default_run import Result
from benchmarks.learning.studies.default_scores import LEAST_TASKS, PRESET, Table, Task, best_of, overall, read_table
from benchmarks.learning.studies.defaults import Case, cases_to_choose, cases_to_test, choice_of, parsed
from fastes.settings.preset_loader import DEFAULT, GENERAL, load_preset
from fastes.settings.settings import Settings

CYCLE = "fastes/CyclicMDP-v0"
RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
TASKS = {"CartPole-v1": Task(300, 0.0, 100.0), "Pendulum-v1": Task(400, -1000.0, -200.0)}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Table:
    """Two tasks to choose on and one to test on, with three alternatives beside each setting's own default."""
    alternatives = {DEFAULT: {}, "linear": {"policy": "LinearPolicy"}, "few": {"population_size": 2}, "odd": {"sigma": 0.5}}
    table = Table(alternatives, frozenset(["odd"]), TASKS, {CYCLE: Task(20, 0.0, 132.0)})
    for module in (default_scores, defaults):
        monkeypatch.setattr(module, "read_table", lambda: table)
    return table


def write(out: Path, case: Case, score: float) -> None:
    """A line of a training that is made up."""
    env, settings, seed, timesteps = case.key
    append_record(
        out / "defaults" / "defaults.csv",
        Result(env, case.alternative, settings, seed, timesteps, score, 0.0, score, timesteps, 1.0, "a machine"),
    )


# --- the table ------------------------------------------------------------------------------------------------------


@pytest.mark.skipif("Taxi-v4" not in gymnasium.registry, reason="the tasks of the study are those of Gymnasium 1.3 or newer")
def test_the_table_has_tasks_enough_and_tests_on_others() -> None:
    table = read_table()
    assert len(table.choose) >= LEAST_TASKS
    assert {"Taxi-v4", "FrozenLake-v1", "Pusher-v5", "HumanoidStandup-v5", "BipedalWalker-v3", CYCLE} <= set(table.test)
    assert not set(table.choose) & set(table.test)
    for env, task in (table.choose | table.test).items():
        assert gymnasium.spec(env)
        assert task.nothing < task.full
    assert len(table.alternatives) >= 7
    assert table.alternatives[DEFAULT] == {}
    assert table.compared_only < set(table.alternatives)


def test_alternatives_are_changes_to_what_each_setting_has_by_itself() -> None:
    assert Settings().changed(**load_preset(DEFAULT)) == Settings()
    made = [str(Settings().changed(**changes)) for changes in read_table().alternatives.values()]
    assert len(set(made)) == len(made)


def test_the_preset_of_environments_without_one_is_what_the_study_chose() -> None:
    """Its trainings are those that results are reported of."""
    arguments = parsed(["--seeds", "2", "--report-only", "--out", str(RESULTS / "studies")])
    choice = choice_of(arguments)
    assert choice is not None
    assert Settings().changed(**load_preset(GENERAL)) == Settings().changed(**read_table().alternatives[choice])


@pytest.mark.parametrize("env", ["CartPole-v1", "MountainCarContinuous-v0"])
def test_nothing_is_what_a_task_gives_for_nothing(env: str) -> None:
    made = gymnasium.make(env)
    made.action_space.seed(1)
    still = np.zeros(1, np.float32) if env.startswith("Mountain") else None
    returns = play(made, lambda _: made.action_space.sample() if still is None else still, range(100 if still is None else 1))
    assert np.mean(returns) == pytest.approx(read_table().choose[env].nothing, abs=3.0)


# --- scores ---------------------------------------------------------------------------------------------------------


def test_scores_are_cut_off_at_both_ends() -> None:
    task = TASKS["Pendulum-v1"]
    returned = [-600.0, -1000.0, -200.0, -5000.0, 0.0, -math.inf, math.nan]
    assert [task.score(each) for each in returned] == [0.5, 0.0, 1.0, 0.0, 1.1, 0.0, 0.0]


def test_each_task_counts_the_same_and_a_lucky_seed_does_not() -> None:
    scores = {"specialist": {"a": [1.1, 1.1], "b": [0.0, 0.0], "c": [0.2, 0.2]}, "even": {task: [0.5, 0.5] for task in "abc"}}
    assert best_of(scores) == "even"
    assert overall({"a": [0.1, 0.3, 1.0], "b": [0.5, 0.5, 0.6]}) == (pytest.approx(0.4), pytest.approx(0.3))
    lucky = {"even": {"a": [0.5] * 3}, "lucky": {"a": [0.0, 0.4, 1.1]}}
    assert best_of(lucky) == "even"
    assert best_of({"loose": {"a": [0.1, 0.5, 0.6]}, "tight": {"a": [0.4, 0.5, 0.5]}}) == "tight", "worst seeds part equal ones"


# --- what is trained ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
def test_what_lacks_a_training_is_not_chosen(tmp_path: Path) -> None:
    arguments = parsed(["--seeds", "2", "--report-only", "--out", str(tmp_path)])
    cases = cases_to_choose(arguments)
    assert len(cases) == len(set(cases)) == 2 * 2 * 4
    (tmp_path / "defaults").mkdir()
    last = cases[-2]
    assert last.alternative == "few"
    for case in set(cases) - {last}:
        write(tmp_path, case, {"few": 1000.0, "linear": -300.0, "odd": 2000.0}.get(case.alternative, -400.0))
    assert choice_of(arguments) == "linear", "the best may be compared alone, and the second lacks a training"
    write(tmp_path, last, 1000.0)
    assert choice_of(arguments) == "few"


@pytest.mark.usefixtures("small")
def test_it_is_tested_on_other_seeds_and_tasks_beside_presets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = parsed(["--seeds", "2", "--report-only", "--out", str(tmp_path)])
    chosen, tested = cases_to_choose(arguments), cases_to_test(arguments, "linear")
    assert {case.seed for case in chosen} == {1000, 1001}
    assert {case.seed for case in tested} == {0, 1}
    assert {case.env for case in chosen} == set(TASKS)
    names = {env: [case.alternative for case in tested if (case.env, case.seed) == (env, 0)] for env in (*TASKS, CYCLE)}
    assert names == {**{env: [DEFAULT, "linear", PRESET] for env in TASKS}, CYCLE: [DEFAULT, "linear"]}
    assert [case.alternative for case in cases_to_test(arguments, DEFAULT)].count(DEFAULT) == 2 * 3
    with pytest.raises(SystemExit, match="2"):
        parsed(["--first-seed", "999", "--out", str(tmp_path)])
    assert "'999': expected a whole number of 1000 or more" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        parsed(["--tasks", CYCLE, "--out", str(tmp_path)])
    assert "at least one to choose on" in capsys.readouterr().err


@pytest.mark.usefixtures("small")
def test_the_report_has_the_choice_its_settings_and_presets_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["defaults", "--seeds", "2", "--report-only", "--out", str(tmp_path)]
    with pytest.raises(SystemExit, match="none that may be chosen has all these tasks"):
        main(given)
    arguments = parsed(given[1:])
    (tmp_path / "defaults").mkdir()
    returns = {"linear": {"CartPole-v1": 80.0, "Pendulum-v1": -600.0}, PRESET: {"CartPole-v1": 95.0, "Pendulum-v1": -280.0}}
    for case in cases_to_choose(arguments) + cases_to_test(arguments, "linear"):
        write(tmp_path, case, returns.get(case.alternative, {}).get(case.env, 10.0 if case.env != "Pendulum-v1" else -920.0))
    main(given)
    text = (tmp_path / "defaults" / "report.md").read_text(encoding="utf-8")
    assert capsys.readouterr().out.strip() == text.strip()
    head, choosing, again, others = text.split("\n## ")
    cells = {part: [line.split("|")[1:-1] for line in part.splitlines() if line.startswith("| ")] for part in (choosing, again)}
    rows = [[cell.strip() for cell in line] for line in cells[choosing]]
    assert rows[0] == ["task", "steps", DEFAULT, "linear", "few", "odd"]
    assert rows[2] == ["CartPole-v1", "300", "0.10 (0.10)", "0.80 (0.80)", "0.10 (0.10)", "0.10 (0.10)"]
    assert rows[4][:4] == ["all 2", "", "0.100 (0.100)", "0.650 (0.650)"]
    assert "The choice: linear, which is not yet the preset `general`. Fewer than 12 tasks" in choosing
    assert '[general]\npolicy = "LinearPolicy"\n' in choosing
    rows = [[cell.strip() for cell in line] for line in cells[again]]
    assert rows[0] == ["task", "steps", DEFAULT, "linear", PRESET]
    assert rows[2][3:] == ["0.80 (0.80): 80.0", "0.95 (0.95): 95.0"]
    assert "seeds 1000 to 1001" in choosing
    assert "seeds 0 to 1" in again
    assert "fastes/CyclicMDP-v0" in others
    assert PRESET not in others
    assert "a machine" in head
    monkeypatch.setattr(defaults, "LEAST_TASKS", 2)
    assert "a trial" not in defaults.described("linear", 2)


def test_what_is_trained_is_what_the_line_says(small: Table) -> None:
    small.alternatives["few"] |= {"policy": "LinearPolicy"}
    case = Case(CYCLE, "few", 3, 40)
    found = default_run.train(CYCLE, "few", case.preset, case.changes, 3, 40)
    assert found.key == case.key
    expected = Settings().changed(population_size=2, policy="LinearPolicy", target_return="none")
    assert found.settings == fingerprint(expected)
    assert found.steps > found.timesteps, "evaluation's, too"
    assert found.worst <= found.score


def test_the_same_command_goes_on_where_it_was(small: Table, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The only alternative is each setting's own default, so that there are two trainings: one to choose on, one to test on."""
    task = small.test.pop(CYCLE)
    for env in list(small.choose):
        del small.choose[env]
    small.choose[CYCLE] = task
    command = ["defaults", "--alternatives", DEFAULT, "--seeds", "1", "--cores", "1", "--out", str(tmp_path)]
    main(command)
    file = tmp_path / "defaults" / "defaults.csv"
    rows = read_records(file, Result)
    assert [(row.env, row.seed) for row in rows] == [(CYCLE, 1000), (CYCLE, 0)]
    assert "default, which is not yet the preset" in capfd.readouterr().out
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:-1]))
    main(command)
    assert [row._replace(cpu=0.0) for row in read_records(file, Result)] == [row._replace(cpu=0.0) for row in rows]
    told = capfd.readouterr()
    assert told.err.count("CPU s") == 1
    assert "CyclicMDP-v0-default-0" in told.err
    small.choose[CYCLE] = task._replace(timesteps=10)
    with pytest.raises(SystemExit, match="none that may be chosen"):
        main([*command, "--report-only"])
