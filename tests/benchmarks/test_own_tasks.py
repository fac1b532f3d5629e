"""Risk: a task of the study cannot be built, a score means something else than the table says, a finished row is run again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

sys.path.append(str(Path(__file__).parents[2]))  # last: the checkout's fastes may have no compiled core

from benchmarks.csv_records import append_record, read_records
from benchmarks.learning import own_tasks, textbook_tasks
from benchmarks.learning.own_task_run import OwnTask, Row, play_row, read_tasks
from benchmarks.learning.runs.evaluation import play
from fastes.settings.preset_loader import tomllib

TEXTBOOK = "benchmarks.learning.textbook_tasks"
TASKS = {
    "easy": OwnTask("easy", "choose", "a", 1000, zero=0.0, one=10.0),
    "hard": OwnTask("hard", "held out", "b", 1000, zero=-5.0),
    "flat": OwnTask("flat", "held out", "b", 1000, zero=3.0),
}


def row(task: str, method: str, seed: int, score: float, cpu: float = 1.0) -> Row:
    return Row(task, method, seed, 1000, cpu, score, 0.0, "")


ROWS = [
    *(row("easy", "auto", seed, score) for seed, score in enumerate((8.0, 4.0, 9.0))),
    *(row("easy", "ppo", seed, score) for seed, score in enumerate((20.0, 10.0, 0.0))),
    row("easy", "recipe:general", 0, 9.0),
    row("hard", "auto", 0, 5.0),
    row("hard", "ppo", 0, -10.0),
    row("hard", "recipe:general", 0, 2.5),
    row("hard", "recipe:default", 0, 10.0),
    row("flat", "auto", 0, 3.0),
    row("flat", "ppo", 0, 2.0),
]


def test_scores_are_between_the_tasks_zero_and_the_best_that_is_known() -> None:
    scores = own_tasks.score_all(ROWS, TASKS)
    assert scores["easy", "auto"] == (0.8, 0.4)  # one is the file's: no median is higher
    assert scores["easy", "ppo"] == (1.0, 0.0)  # a single seed above one counts no more
    assert scores["hard", "recipe:default"] == (1.0, 1.0)  # the best of the study is 1
    assert scores["hard", "auto"] == (pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert scores["hard", "ppo"] == (0.0, 0.0)  # worse than nothing is not less than nothing
    assert scores["flat", "auto"] == (0.0, 0.0)  # no method was better than nothing


def test_the_table_has_means_the_loss_in_hindsight_and_the_standing() -> None:
    said = own_tasks.tables(own_tasks.score_all(ROWS, TASKS), TASKS)
    lines = {cells[1]: cells[2:-1] for line in said.splitlines() if len(cells := [c.strip() for c in line.split("|")]) > 2}
    assert lines["held out"][:3] == ["2", "0.33 (0.33)", "0.00 (0.00)"]
    assert lines["all"][:2] == ["3", "0.49 (0.36)"]
    assert lines["all"][3:] == ["0.70 (0.70) of 2", "1.00 (1.00) of 1"]
    assert lines["auto"] == ["0.22", "1, 1, 1"]  # (0.9 - 0.8 + 1 - 2/3) / 2; ahead on hard, level on flat, behind on easy


def test_steps_at_a_peers_time_follow_medians() -> None:
    rows = [
        row("easy", "auto", 0, 0.0, cpu=2.0),
        *(row("easy", "ppo", seed, 0.0, cpu) for seed, cpu in enumerate((9.0, 8.0, 1.0))),
    ]
    assert own_tasks.steps_for(TASKS["easy"], "auto@ppo", rows) == 4000
    assert own_tasks.steps_for(TASKS["easy"], "auto", []) == 1000
    with pytest.raises(ValueError, match="auto@ppo on easy: run ppo first"):
        own_tasks.steps_for(TASKS["easy"], "auto@ppo", rows[:1])


def test_finished_rows_are_skipped_and_an_absent_package_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, Any]] = []

    def records(_: str, given: dict[str, Any], *__: Any) -> list[dict[str, Any]]:
        started.append(given)
        return [row(given["name"], given["method"], given["seed"], 1.0)._asdict()]

    monkeypatch.setattr(own_tasks, "records_of", records)
    tasks = [TASKS["easy"], OwnTask("gone", "choose", "a", 10, 0.0, module="no_such_package")]
    append_record(tmp_path / "rows.csv", row("easy", "ppo", 1, 5.0))
    wrong = own_tasks.run(tasks, ["ppo", "auto"], [1], tmp_path / "rows.csv")
    assert wrong == ["gone left out: no module no_such_package; pip install -e '.[own-tasks]'"]
    assert started == [{"name": "easy", "method": "auto", "seed": 1, "steps": 1000}]
    assert [(r.method, r.score) for r in read_records(tmp_path / "rows.csv", Row)] == [("ppo", 5.0), ("auto", 1.0)]


def test_the_list_of_tasks_is_whole() -> None:
    tasks = read_tasks().values()
    others = [task for task in tasks if task.module not in ("", "fastes", TEXTBOOK)]
    assert len(tasks) >= 24
    assert len(others) >= 10
    assert sum(task.split == "held out" for task in others) >= 8
    assert {task.split for task in tasks} == {"choose", "held out"}
    assert all(task.steps > 0 and (task.one is None or task.one > task.zero) for task in tasks)
    assert {task.name for task in tasks if task.module == TEXTBOOK} == set(textbook_tasks.TASKS)
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extra = " ".join(project["optional-dependencies"]["own-tasks"]).replace("-", "_")
    assert all(task.module in extra for task in others)
    with pytest.raises(ValueError, match="--tasks CartPol: expected tasks, splits or groups"):
        own_tasks.chosen_tasks(["CartPol"], read_tasks())


@pytest.mark.parametrize("task", [task for task in read_tasks().values() if task.is_installed], ids=lambda task: task.name)
def test_a_task_can_be_built(task: OwnTask) -> None:
    if task.module == "shimmy":
        pytest.importorskip("dm_control")
    try:
        env = task.make()
    except gymnasium.error.DependencyNotInstalled as missing:
        pytest.skip(str(missing))
    env.close()


@pytest.mark.parametrize("name", list(textbook_tasks.TASKS))
def test_textbook_tasks_keep_gymnasiums_promises(name: str) -> None:
    env = gymnasium.make(name)
    check_env(env.unwrapped, skip_render_check=True)
    assert play(env, lambda _: env.action_space.sample(), range(2)) != play(env, lambda _: env.action_space.sample(), range(2))
    action = env.action_space.sample()
    assert play(env, lambda _: action, range(3)) == play(env, lambda _: action, range(3))  # all chance is the seed's


@pytest.mark.parametrize("method", ["auto", "recipe:default", "cma", "fixed"])
def test_a_run_learns_on_a_task_and_says_what_it_took(method: str) -> None:
    if method == "cma":
        pytest.importorskip("cmaes")
    steps, worst = 6_000, play_row("textbook/MachineReplacement-v0", "random", 0, 0).score
    result = play_row("textbook/MachineReplacement-v0", method, 0, steps)
    assert (result.steps == 0) if method == "fixed" else (steps <= result.steps < 3 * steps)
    assert method == "fixed" or result.score > worst


def test_trpo_of_sb3_contrib_learns_on_a_task() -> None:
    pytest.importorskip("sb3_contrib")
    name, steps = "textbook/TwoQueues-v0", 2_000
    result = play_row(name, "trpo", 0, steps)
    assert steps <= result.steps < 2 * steps
    assert result.score > read_tasks()[name].zero
