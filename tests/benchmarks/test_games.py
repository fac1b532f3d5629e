"""Risk: the queue of games trains a finished one again, starts a stopped one anew, or its table compares what it should not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2]))  # last: the checkout's fastes may have no compiled core

from benchmarks.csv_records import append_record, read_records
from benchmarks.learning import game_run, games
from benchmarks.learning.game_run import Score
from benchmarks.learning.runs.training_queue import QueuedTraining
from fastes import FastES


def score(game: str, seed: int, its: float, flags: str = "", timesteps: int = 1000) -> Score:
    curve = " ".join(map(str, range(10)))
    return Score(game, flags, seed, timesteps, 250_000, 1800.0, its, 0.0, its, curve, "fastes 0.1.0")


def test_the_table_has_medians_the_worst_seed_and_the_share_of_a_human() -> None:
    scores = [score("Boxing", 0, 6.1), score("Boxing", 1, 0.1), score("Boxing", 2, 7.0), score("Own", 0, 3.0)]
    scores += [score("Pong", 0, -20.7), score("Boxing", 0, 12.1, "--sigma 0.03"), score("Boxing", 0, 49.8, timesteps=2000)]
    said = games.tables(scores, games.read_published()).splitlines()
    commands = "`fastes train ALE/<game>-v5`:", "`fastes train ALE/<game>-v5 --sigma 0.03`:"
    assert [line for line in said if line.startswith("`")] == list(commands)
    at = said.index(commands[1])
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in (*said[4 : at - 1], *said[at + 4 :])]
    assert [line[:7] for line in lines] == [
        ["Pong", "1", "1M", "0.50", "-20.7", "-20.7", "0 %"],
        ["Boxing", "3", "1M", "0.50", "6.1", "0.1", "50 %"],
        ["Boxing", "1", "1M", "0.50", "49.8", "49.8", "414 %"],
        ["Own", "1", "1M", "0.50", "3.0", "3.0", ""],
        ["Boxing", "1", "1M", "0.50", "12.1", "12.1", "100 %"],
    ]
    assert lines[1][7:] == ["49.8", "33.7", "", "0.1", "12.1"]


def test_frames_are_those_of_the_flags() -> None:
    flags = "--sigma 0.03 --env-kwargs obs_type=ram frame_skip=2"
    assert [score("Pong", 0, 1.0, its).frames for its in ("", flags)] == [1_000_000, 500_000]
    line = games.table([score("Pong", 0, 1.0, flags)], games.read_published()).splitlines()[2]
    assert [cell.strip() for cell in line.split("|")[1:4]] == ["Pong", "1", "0.5M"]


def test_only_what_has_no_line_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, started = tmp_path / "scores.csv", list[tuple[Any, ...]]()
    for line in (score("Pong", 0, 1.0), score("Boxing", 1, 1.0, "--sigma 0.03"), score("Boxing", 0, 1.0, timesteps=500)):
        append_record(out, line)

    def note(jobs: Iterable[QueuedTraining], cores: int | None) -> None:
        assert cores == 1
        started.extend((job.given["game"], job.given["seed"]) for job in jobs)

    monkeypatch.setattr(games, "run_queue", note)
    assert games.run(["Pong", "Boxing"], "", [0, 1], 1000, out, cores=1) == []
    assert started == [("Boxing", 0), ("Pong", 1), ("Boxing", 1)]


def test_a_training_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first process leaves a run folder that a second one finds: finished, or stopped before its report."""
    pytest.importorskip("ale_py")
    monkeypatch.setattr(game_run, "EPISODES", 2)
    flags = "--population-size 4 --learning-rate 0.15 --env-kwargs max_num_frames_per_episode=400 frame_skip=4"
    first = game_run.train("Pong", flags, 5, 300, str(tmp_path))
    again = game_run.train("Pong", flags, 5, 300, str(tmp_path))
    assert again._replace(versions="") == first._replace(versions=""), "a finished one was trained again"
    (folder,) = tmp_path.glob("*/*/1")
    stopped = folder / "config.toml"
    stopped.write_text(stopped.read_text().replace("finished = true", "finished = false"))
    (folder / "best.zip").unlink()
    assert game_run.train("Pong", flags, 5, 300, str(tmp_path))._replace(versions="") == first._replace(versions="")
    assert not list(folder.parent.glob("2")), "it began anew"
    longer = game_run.train("Pong", flags, 5, 900, str(tmp_path))
    assert 300 <= first.decisions < 900 <= longer.decisions
    with FastES.load(folder / "best.zip", n_workers=0) as model:
        assert model.seed == 5
        assert model.evaluate(2, first_seed=20_000).mean == pytest.approx(first.score, abs=0.05)


def test_a_failure_is_told_and_stops_no_other(tmp_path: Path) -> None:
    flags = "--env-kwargs " + " ".join(f"option_{number}=1" for number in range(40))  # longer than a file's name can be
    failures = games.run(["NoSuchGame"], flags, [0], 100, tmp_path / "scores.csv", cores=1)
    assert len(failures) == 1
    assert failures[0].startswith(f"NoSuchGame {flags} seed 0 failed, see the logs in")
    assert "NoSuchGame" in next(tmp_path.glob("scores/*.log")).read_text()
    assert read_records(tmp_path / "scores.csv", Score) == []


def test_the_page_has_all_trainings_and_the_terminal_the_games_that_were_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "scores.csv"
    for line in (score("Pong", 0, 1.0), score("Boxing", 1, 1.0), score("Own", 0, 1.0)):
        append_record(out, line)
    games.main(["table", "--games", "Pong", "--out", str(out)])
    said, page = capsys.readouterr().out, out.with_suffix(".md").read_text()
    assert "Pong" in said
    assert "Boxing" not in said
    assert "Pong" in page
    assert "Boxing" in page
    assert "Own" in page
    assert "![Curves](scores.png)" in page
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_the_legend_says_what_trainings_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure
    seen, legend = list[list[str]](), figure.legend
    monkeypatch.setattr(figure, "legend", lambda own, *given, **named: (seen.append(given[1]), legend(own, *given, **named)))
    memory, objects = (
        "--env-kwargs obs_type=ram --sigma 0.1",
        "--env-kwargs obs_type=ram --wrapper own.module:Objects --sigma 0.1",
    )
    scores = [score("Pong", 0, 1.0), score("Pong", 0, 1.0, memory), score("Pong", 0, 1.0, objects)]
    games.draw(scores, games.read_published(), tmp_path / "scores.png")
    assert seen == [["screens", "obs_type=ram", "obs_type=ram Objects"]]


def test_games_are_known_to_a_process_that_has_used_none(tmp_path: Path) -> None:
    pytest.importorskip("ale_py")
    code = f"""
import argparse, sys
sys.path.append({str(Path(__file__).parents[2])!r})
from benchmarks.options import check_envs
check_envs(argparse.ArgumentParser(), ["ALE/Pong-v5"])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--flags=--seed 7",), "the queue sets --seed itself"),
        (("--flags=--total-timestep 9",), "the queue sets --total-timesteps itself"),
        (("--flags=--max-minutes 1",), "the queue sets --max-minutes itself"),
        (("--flags=--nonsense 3",), "--nonsense"),
        (("--flags=--cnn '[[8",), "No closing quotation"),
        (("--out", "folder"), "expected a CSV file, such as folder/scores.csv"),
        (("--games", "pong"), "ALE/pong-v5"),
        (("--games", "Pong", "--out", "none.csv"), "none.csv has no line of Pong"),
    ],
)
def test_wrong_arguments_start_nothing(given: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        games.main(["table" if "none.csv" in given else "run", *given])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
