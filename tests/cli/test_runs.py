"""Risk: a run is missing from the list, stands at a wrong place, or a line of it breaks a terminal or a script."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from processes import environment, fastes_command
from terminals import shown
from written_runs import write_race, write_run

from fastes.cli.main import main
from fastes.cli.runs import table
from fastes.reports.csv_log import CsvLog
from fastes.runs.overview import read_overview

HEADER = "generation,timesteps,eval_return,seconds,trial\n"


def make_run(
    folder: Path, *, env: str = "CartPole-v1", seed: int = 0, age: float = 0.0, result: float | None = None, **settings: Any
) -> Path:
    """A run folder as a training leaves it, of three generations. age: seconds since its last row, of a million."""
    folder.mkdir(parents=True)
    noted: dict[str, Any] = {"env": env, "seed": seed, "env_kwargs": "{}", "finished": result is not None}
    if result is not None:
        noted["result"] = {"mean": result, "std": 1.5, "worst": result - 3.0, "episodes": 20}
    tables = {"run": noted, "settings": {"total_timesteps": 5000, "sigma": 0.1, **settings}, "versions": {}}
    (folder / "config.toml").write_text(tomli_w.dumps(tables))
    (folder / "progress.csv").write_text(HEADER + "1,100,nan,1,1\n2,200,7.5,1,1\n3,1200,3.5,62,1\n")
    os.utime(folder / "progress.csv", (1e6 - age, 1e6 - age))
    return folder


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four runs in runs/, which is in the working directory."""
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs" / "CartPole-v1" / "1", age=300.0, result=480.0)
    make_run(tmp_path / "runs" / "CartPole-v1" / "2", seed=1, age=100.0, sigma=0.25, policy_kwargs={"net_arch": [64, 64]})
    make_run(tmp_path / "runs" / "CartPole-v1" / "10", seed=2, age=200.0, total_timesteps=9000)
    make_run(tmp_path / "runs" / "ALE-Pong-v5" / "1", env="ALE/Pong-v5", age=0.0, result=-20.0)
    return tmp_path / "runs"


def _paths(lines: str) -> list[str]:
    return [line.split()[0].removeprefix("runs/") for line in lines.splitlines()[1:]]


def test_a_line_has_what_its_run_is_and_did(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs"]) == 0
    title, *lines = capsys.readouterr().out.splitlines()
    assert title.split() == ["run", "env", "seed", "status", "return", "steps", "time", "CPU", "settings"]
    by_run = {line.split()[0]: " ".join(line.split()[1:]) for line in lines}
    assert by_run["runs/CartPole-v1/1"] == ("CartPole-v1 0 finished 480.0 +- 1.5 1.20k of 5.00k 64 s - sigma=0.1 net_arch=-")
    assert by_run["runs/CartPole-v1/2"].startswith(
        "CartPole-v1 1 stopped best 7.5 1.20k of 5.00k 64 s - sigma=0.25 net_arch=64x64"
    )
    assert "1.20k of 9.00k" in by_run["runs/CartPole-v1/10"]
    assert "total_timesteps" not in "".join(lines), "the steps say it"
    assert by_run["runs/ALE-Pong-v5/1"].endswith("64 s -"), "it is the only one of its environment"


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("updated", ["ALE-Pong-v5/1", "CartPole-v1/2", "CartPole-v1/10", "CartPole-v1/1"]),
        ("score", ["CartPole-v1/1", "CartPole-v1/2", "CartPole-v1/10", "ALE-Pong-v5/1"]),
        ("env", ["ALE-Pong-v5/1", "CartPole-v1/2", "CartPole-v1/10", "CartPole-v1/1"]),
    ],
)
def test_runs_come_in_the_order_that_is_asked(
    order: str, expected: list[str], runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if order == "env":
        os.utime(runs / "ALE-Pong-v5" / "1" / "progress.csv", (0.0, 0.0))
    assert main(["runs", "--sort", order]) == 0
    assert _paths(capsys.readouterr().out) == expected


def test_a_run_without_a_score_comes_last(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (make_run(runs / "CartPole-v1" / "11") / "progress.csv").write_text(HEADER)
    assert main(["runs", "--sort", "score"]) == 0
    assert _paths(capsys.readouterr().out)[-1] == "CartPole-v1/11"


def test_parameters_whose_return_is_not_finite_are_not_told_by_a_lucky_evaluation(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(runs / "CartPole-v1" / "11", result=-math.inf)
    assert main(["runs", "--sort", "score"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert "CartPole-v1/11" in last
    assert "-inf" in last
    assert "7.5" not in last


def test_json_has_all_that_is_known(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(runs / "CartPole-v1" / "12", obs_clip=float("inf"), age=1000.0)
    assert main(["runs", "runs/CartPole-v1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert [each["path"] for each in told] == [f"runs/CartPole-v1/{number}" for number in (2, 10, 1, 12)]
    assert told[2]["result"] == {"mean": 480.0, "std": 1.5, "worst": 477.0, "episodes": 20}
    assert (told[2]["status"], told[2]["seconds"], told[2]["budget"]) == ("finished", 64.0, 5000)
    assert told[3]["settings"]["obs_clip"] == "inf"


def test_no_run_of_many_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(1, 1102):
        (tmp_path / "Env-v0" / str(number)).mkdir(parents=True)
        CsvLog(tmp_path / "Env-v0" / str(number) / "progress.csv")
    assert main(["runs", str(tmp_path)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + 1101


def test_a_run_that_is_named_in_two_ways_has_one_line(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(UserWarning, match="named more than once: it counts once"):
        assert main(["runs", "runs/CartPole-v1", str(runs / "CartPole-v1" / "1")]) == 0
    assert len(_paths(capsys.readouterr().out)) == 3


@pytest.mark.parametrize("columns", [30, 60, 80, 100, 200])
def test_a_table_fits_a_terminal(columns: int, runs: Path) -> None:
    lines = shown([*fastes_command(), "runs"], columns, runs.parent, environment(), lambda _: None)
    assert len(lines) == 5, "a line per run, and a title"
    assert lines[0].split()[0] == "run"
    assert ("settings" in lines[0]) == (columns >= 60)
    assert ("seed" in lines[0]) == (columns >= 100)
    whole = columns >= 100
    assert any(line.endswith("...") for line in lines) == (columns in (60, 80)), lines
    assert any("net_arch=64x64" in line for line in lines) == whole


def test_settings_that_tell_runs_apart_are_not_cut_for_what_all_lines_have(tmp_path: Path) -> None:
    seen = [
        read_overview(make_run(tmp_path / "Env-v0" / str(number), archive_size=8, **settings))
        for number, settings in enumerate(
            ({"trials": 1, "sigma": 0.1}, {"trials": 4, "sigma": 0.1}, {"trials": 2, "sigma": 0.2})
        )
    ]
    seen = [each._replace(path=Path(f"runs/Env-v0/{number}")) for number, each in enumerate(seen)]
    wide = table(seen, None)
    narrow, least = table(seen, max(map(len, wide)) - 12), table(seen, 62)
    assert [line.split("  ")[-1] for line in wide] == [
        "settings",
        "trials=1 sigma=0.1",
        "trials=4 sigma=0.1",
        "trials=2 sigma=0.2",
    ]
    assert "env" in wide[0].split()
    assert "env" not in narrow[0].split(), "it is the same in all lines"
    assert [line.split("  ")[-1] for line in narrow] == [line.split("  ")[-1] for line in wide]
    assert len({line.split("  ")[-1] for line in least}) == 4


def test_a_target_is_told_last(tmp_path: Path) -> None:
    many = [{"target_return": 5.0, "trials": 1}, {"target_return": 6.0, "trials": 1}, {"target_return": 7.0, "trials": 4}]
    seen = [read_overview(make_run(tmp_path / "Env-v0" / str(number), **settings)) for number, settings in enumerate(many)]
    told = [line.split("  ")[-1] for line in table(seen, None)]
    assert told[1:] == ["trials=1 target_return=5", "trials=1 target_return=6", "trials=4 target_return=7"]


def test_what_all_lines_have_is_shown_where_no_settings_need_the_room(tmp_path: Path) -> None:
    seen = [read_overview(make_run(tmp_path / "Env-v0" / str(number), seed=number)) for number in range(3)]
    seen = [each._replace(path=Path(f"runs/Env-v0/{number}"), status="stopped", best=None) for number, each in enumerate(seen)]
    for columns in range(32, 90):
        titles = table(seen, columns)[0].split()
        assert "status" in titles or columns < 38, columns
        assert titles == ["run", "env", "seed", "status", "return", "steps", "time", "CPU"] or columns < 85


def test_no_setting_is_cut_beside_a_column_that_says_nothing(tmp_path: Path) -> None:
    seen = [
        read_overview(make_run(tmp_path / "E" / str(number), policy=policy)) for number, policy in enumerate(["Linear", "Mlp"])
    ]
    seen = [each._replace(path=Path(f"E/{number}"), best=None, result=None) for number, each in enumerate(seen)]
    for columns in range(40, 120):
        lines = table(seen, columns)
        titles, cut = lines[0].split(), any(line.endswith("...") for line in lines)
        assert not (cut and {"env", "return", "steps", "time", "CPU"} & {*titles}), lines


def test_nothing_in_a_file_controls_the_terminal(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(runs / "CartPole-v1" / "12", env="\x1b[2J\nCartPole", seed=1)
    make_run(runs / "CartPole-v1" / "13", env="\x1b[2J\nCartPole", policy="\x1b[31m")
    assert main(["runs"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert len(out.splitlines()) == 7


def test_what_is_damaged_is_said_below(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "CartPole-v1" / "2" / "config.toml").write_text("[run")
    assert main(["runs"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "runs/CartPole-v1/2: config.toml is damaged"


def test_it_says_that_there_are_no_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["runs"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("fastes: error: there are no runs: runs is missing")
    assert "`fastes train ENV` makes the first one" in told
    (tmp_path / "models").mkdir()
    assert main(["runs", "models"]) == 1
    assert "models is not a run folder, and holds none" in capsys.readouterr().err


def test_a_table_without_a_terminal_is_whole(runs: Path) -> None:
    lines = table([read_overview(runs / "CartPole-v1" / number) for number in ("1", "2")], None)
    assert lines[0].split()[-1] == "settings"
    assert lines[2].endswith("sigma=0.25 net_arch=64x64")


def test_what_the_winner_of_a_race_has_is_no_setting_that_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_race(tmp_path / "0", 0, "linear", {"obs_clip": 5.0}, obs_clip=5.0, sigma=0.02)
    write_race(tmp_path / "1", 1, "wide", {"obs_clip": 9.0}, obs_clip=9.0, sigma=0.3)
    assert main(["runs", str(tmp_path)]) == 0
    told = [line.split("  ")[-1].strip() for line in capsys.readouterr().out.splitlines()[1:]]
    assert sorted(told) == ["recipe=linear obs_clip=5", "recipe=wide obs_clip=9"]


def test_a_race_among_other_runs_is_told_once_and_they_are_told_by_their_presets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_race(tmp_path / "0", 0, "linear", {"obs_clip": 5.0}, obs_clip=5.0, sigma=0.02)
    write_race(tmp_path / "1", 1, "", obs_clip=5.0)
    write_run(tmp_path / "2", seed=2, noted={"preset": "default"}, net_arch=[8])
    write_run(tmp_path / "3", seed=3, noted={"preset": "default"})
    write_run(tmp_path / "4", seed=4)
    assert main(["runs", *(str(tmp_path / str(number)) for number in range(5))]) == 0
    lines = {line.split()[0][-1]: line.split("  ")[-1].strip() for line in capsys.readouterr().out.splitlines()[1:]}
    assert lines["0"] == "recipe=linear obs_clip=5"
    assert lines["1"] == "recipes=race"
    assert lines["2"] == "preset=default net_arch=8"
    assert lines["3"] == "preset=default"
    assert "=" not in lines["4"], "no file says what it began with"
