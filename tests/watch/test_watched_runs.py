"""Risk: runs that begin, end, break or go are not seen, or one of them hides the others."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from written_runs import progress_line, write_progress, write_race, write_run

from fastes.runs import folder_lock
from fastes.runs.folder_lock import FolderLock
from fastes.watch import watched_runs
from fastes.watch.followed_progress import FollowedProgress
from fastes.watch.watched_runs import WatchedRuns


@pytest.fixture(autouse=True)
def _search_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_runs, "SEARCH_SECONDS", 0.0)


class Table:
    """What a page has: it applies the news that it gets."""

    def __init__(self, runs: WatchedRuns) -> None:
        self.runs, self.rows, self.revision = runs, dict[str, dict[str, Any]](), ""

    def update(self) -> int:
        """Returns the number of requests until all was told."""
        for number in range(1, 10_000):
            news = json.loads(json.dumps(self.runs.rows_since(self.revision), allow_nan=False))
            if news["anew"]:
                self.rows.clear()
            self.rows.update({row["name"]: row for row in news["changed"]})
            for name in news["gone"]:
                del self.rows[name]
            self.revision = news["revision"]
            if news["complete"]:
                return number
        raise AssertionError("the table is never complete")


def test_runs_begin_change_and_go(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    table = Table(WatchedRuns([root]))
    table.update()
    assert table.rows == {}
    run = write_run(root / "CartPole-v1" / "1")
    table.update()
    row = table.rows[str(run)]
    assert (row["env"], row["status"], row["timesteps"], row["best"]) == ("CartPole-v1", "finished", 2000, 40.0)
    write_progress(run, [progress_line(number) for number in range(1, 31)])
    other = write_run(root / "CartPole-v1" / "2", seed=1)
    table.update()
    assert (table.rows[str(run)]["timesteps"], table.rows[str(other)]["seed"]) == (3000, 1)
    shutil.rmtree(run)
    table.update()
    assert list(table.rows) == [str(other)]


def test_the_best_evaluation_of_a_running_training_never_falls(tmp_path: Path) -> None:
    """An overview reads the newest rows alone, and the checkpoint, which is older."""
    run = write_run(tmp_path / "1", noted={"finished": False})
    table = Table(WatchedRuns([tmp_path]))
    table.update()
    assert table.rows[str(run)]["best"] == 40.0
    lines = [progress_line(number) for number in range(1, 21)]
    write_progress(run, [*lines, *(progress_line(number, eval_return=1.0) for number in range(21, 400))])
    table.update()
    row = table.rows[str(run)]
    assert (row["generations"], row["best"], row["score"]) == (399, 40.0, 40.0)
    assert table.runs.run_since(str(run), {})["best"] == 40.0


def test_nothing_is_told_twice(tmp_path: Path) -> None:
    runs = WatchedRuns([tmp_path])
    write_run(tmp_path / "1")
    revision = runs.rows_since("")["revision"]
    assert runs.rows_since(revision) == {"revision": revision, "anew": False, "changed": [], "gone": [], "complete": True}


def test_a_page_of_another_server_gets_all(tmp_path: Path) -> None:
    run = write_run(tmp_path / "1", generations=3)
    before = WatchedRuns([tmp_path]).rows_since("")
    write_progress(run, [progress_line(number) for number in range(1, 51)])
    for revision in (before["revision"], "5", ".", "x.y", f"{before['revision']}9"):
        news = WatchedRuns([tmp_path]).rows_since(revision)
        assert (news["anew"], [row["generations"] for row in news["changed"]]) == (True, [50])


@pytest.mark.parametrize("listed", [True, False])
def test_a_training_that_is_killed_is_no_longer_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: bool) -> None:
    if not listed:  # as on macOS
        monkeypatch.setattr(folder_lock, "holders", dict)
        monkeypatch.setattr(watched_runs, "holders", dict)
    run = write_run(tmp_path / "1", noted={"finished": False})
    table, lock = Table(WatchedRuns([tmp_path])), FolderLock(run)
    table.update()
    assert table.rows[str(run)]["status"] == "stopped"
    lock.take()
    table.update()
    assert table.rows[str(run)]["status"] == "running"
    lock.release()
    table.update()
    assert table.rows[str(run)]["status"] == "stopped"


def test_a_thousand_runs_come_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_runs, "SPENT_SECONDS", 0.0)  # one run per request
    for number in range(30):
        write_run(tmp_path / str(number), generations=2, seed=number)
    table = Table(WatchedRuns([tmp_path]))
    assert table.update() >= 30
    assert sorted(row["seed"] for row in table.rows.values()) == list(range(30))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.toml", "no toml"),
        ("config.toml", "run = 3\n"),
        ("config.toml", "[run]\nenv = 3\nseed = 'x'\nrungs = [1, {scores = 3}]\nracing = 'no'\nfinished = 7\n"),
        (
            "config.toml",
            "[run]\nrungs = [{at_timesteps = 5, kept = inf, scores = {x = 1.0, 1 = nan}}]\n[settings]\nsigma = nan\n",
        ),
        ("progress.csv", "torn,"),
        ("population.json", "{}"),
        ("population.json", '{"generation": 1, "low": NaN, "high": 1, "counts": [1]}'),
        ("population.json", "[" * 5000),
        ("population.json", f'{{"generation": 1, "low": 0, "high": 1{"0" * 400}, "counts": [1]}}'),
        ("config.toml", f"[run]\nrungs = [{{at_timesteps = 1{'0' * 400}, kept = 1, scores = {{1 = 1{'0' * 400}}}}}]\n"),
        ("config.toml", f"[run.last_evaluation]\ntrial = 1\nat_timesteps = 1{'0' * 30}\nmean = 0.0\n"),
    ],
)
def test_damaged_files_hide_nothing_else(tmp_path: Path, name: str, content: str) -> None:
    damaged, whole = write_run(tmp_path / "1"), write_run(tmp_path / "2")
    (damaged / name).write_text(content)
    runs = WatchedRuns([tmp_path])
    table = Table(runs)
    table.update()
    assert table.rows[str(whole)]["status"] == "finished"
    shown = json.dumps(runs.run_since(str(damaged), {}), allow_nan=False)
    assert json.loads(shown)["population"] is None


def test_a_population_is_sent_without_what_else_is_in_its_file(tmp_path: Path) -> None:
    run = write_run(tmp_path / "1")
    (run / "population.json").write_text('{"generation": 3, "low": 0, "high": 1, "counts": [4, 5], "x": NaN}')
    shown = json.loads(json.dumps(WatchedRuns([tmp_path]).run_since(str(run), {}), allow_nan=False))
    assert shown["population"] == {"generation": 3, "low": 0, "high": 1, "counts": [4, 5]}


def test_how_a_run_ended_is_told(tmp_path: Path) -> None:
    ends: list[dict[str, Any]] = [
        {"solved": True, "target_return": 475.0},
        {"finished": False, "ended": "failed: ValueError: my words"},
        {},
    ]
    for number, noted in enumerate(ends):
        write_run(tmp_path / str(number), noted=noted)
    table = Table(WatchedRuns([tmp_path]))
    table.update()
    told = [tuple(table.rows[str(tmp_path / str(number))][name] for name in ("status", "word", "ended")) for number in range(3)]
    failed = ("stopped", "failed", "failed: ValueError: my words")
    assert told == [("finished", "solved", "solved, target 475"), failed, ("finished", "finished", "")]


def test_a_result_that_is_not_finite_hides_no_run(tmp_path: Path) -> None:
    """As of an environment some of whose episodes return NaN: JSON has no such numbers."""
    result = {"mean": -math.inf, "std": math.nan, "worst": math.nan, "episodes": 20}
    odd, whole = write_run(tmp_path / "1", noted={"result": result}), write_run(tmp_path / "2")
    table = Table(runs := WatchedRuns([tmp_path]))
    table.update()
    assert table.rows[str(whole)]["status"] == table.rows[str(odd)]["status"] == "finished"
    shown = json.loads(json.dumps(runs.run_since(str(odd), {}), allow_nan=False))
    assert shown["score"] is table.rows[str(odd)]["score"] is None
    assert shown["result"] == {"mean": None, "std": None, "worst": None, "episodes": 20}


def test_the_last_evaluation_is_told_with_its_place(tmp_path: Path) -> None:
    last = {"trial": 1, "at_timesteps": 1900, "mean": 77.0}
    write_run(tmp_path / "1", noted={"last_evaluation": last})
    write_run(tmp_path / "2", noted={"last_evaluation": {**last, "trial": 3}})
    runs = WatchedRuns([tmp_path])
    shown = [runs.run_since(str(tmp_path / str(number)), {}) for number in (1, 2)]
    assert shown[0]["last"] == {"trial": 1, "row": [1900.0, 38.0, 0.5, 77.0]}
    assert shown[1]["last"] is None, "it is of no trial that the page has"


def test_a_solved_training_has_no_generation_whose_update_was_dropped(tmp_path: Path) -> None:
    lines = [progress_line(1, trial=2), progress_line(2, trial=2), progress_line(3)]
    for number, solved in enumerate((True, False)):
        leader = {"trial": 2, "generation": 2}
        write_progress(write_run(tmp_path / str(number), noted={"solved": solved, "leader": leader}), lines)
    runs = WatchedRuns([tmp_path])
    shown = [runs.run_since(str(tmp_path / str(number)), {}) for number in range(2)]
    assert [each["generations"] for each in shown] == [2, 3]
    assert [each["leader"] for each in shown] == [2, 2]


def test_runs_of_other_environments_are_no_seeds_of_each_other(tmp_path: Path) -> None:
    for number, gravity in enumerate((1.0, 1.0, 20.0)):
        write_run(
            tmp_path / str(number), seed=number, noted={"env_kwargs": str({"gravity": gravity})}, target_return=100.0 + number
        )
    runs = WatchedRuns([tmp_path])
    shown = [runs.run_since(str(tmp_path / str(number)), {}) for number in range(3)]
    assert shown[0]["group"] == shown[1]["group"] != shown[2]["group"]
    assert shown[2]["settings"]["env_kwargs"] == "{'gravity': 20.0}"


def test_races_are_one_group_whichever_recipe_has_won(tmp_path: Path) -> None:
    write_race(tmp_path / "0", 0, "linear", {"obs_clip": 5.0}, obs_clip=5.0, sigma=0.02)
    write_race(tmp_path / "1", 1, "wide", {"obs_clip": 5.0}, obs_clip=5.0, sigma=0.3)
    write_race(tmp_path / "2", 2, "linear", {}, obs_clip=5.0, sigma=0.02)
    write_run(tmp_path / "3", seed=3, obs_clip=5.0, sigma=0.02)
    runs = WatchedRuns([tmp_path])
    shown = [runs.run_since(str(tmp_path / str(number)), {}) for number in range(4)]
    assert shown[0]["group"] == shown[1]["group"]
    assert len({each["group"] for each in shown}) == 3
    assert shown[1]["told"] == {"env_kwargs": "", "recipes": "race", "obs_clip": "5.0"}
    assert shown[1]["settings"]["sigma"] == "0.3"


def test_rungs_and_recipes_of_a_race(tmp_path: Path) -> None:
    rung = {"at_timesteps": 500, "kept": 1, "scores": {"2": 9.5, "1": "not finite"}, "recipes": {"2": "wide", "1": "narrow"}}
    noted = {"racing": {"1": "narrow", "2": "wide", "3": "other"}, "rungs": [rung]}
    run = write_run(tmp_path / "1", noted=noted)
    shown = WatchedRuns([tmp_path]).run_since(str(run), {})
    assert shown["recipes"] == {"1": "narrow", "2": "wide", "3": "other"}
    assert shown["rungs"] == [{"at": 500, "kept": 1, "trials": (2, 1), "scores": [9.5, None], "recipes": ("wide", "narrow")}]


def test_only_the_runs_that_were_found_can_be_named(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "1")
    outside = write_run(tmp_path / "outside")
    runs = WatchedRuns([tmp_path / "runs"])
    for name in (str(outside), str(tmp_path / "runs" / ".." / "outside"), "", "/", str(tmp_path / "runs")):
        with pytest.raises(KeyError):
            runs.run_since(name, {})
        with pytest.raises(KeyError):
            runs.path_of(name)


def test_curves_that_nobody_looks_at_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_runs, "MOST_FOLLOWED", 2)
    opened: list[str] = []

    class Opened(FollowedProgress):
        def __init__(self, path: Path) -> None:
            opened.append(str(path.parent))
            super().__init__(path)

    monkeypatch.setattr(watched_runs, "FollowedProgress", Opened)
    names = [str(write_run(tmp_path / str(number))) for number in range(5)]
    runs = WatchedRuns([tmp_path])
    first = runs.run_since(names[0], {})["cursor"]
    second = runs.run_since(names[1], first)["cursor"]
    assert runs.run_since(names[1], second)["cursor"] == second
    for name in names[2:]:
        runs.run_since(name, {})
    assert opened == names
    assert runs.run_since(names[0], first)["trials"]["1"]["generations"]["rows"] != []
    assert opened == [*names, names[0]]
