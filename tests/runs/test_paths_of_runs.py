"""Risk: a path that means a run is refused where another command takes it, or what is missing is called something else."""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fastes import CheckpointError, FastES
from fastes.checkpoints.locate import find_checkpoint
from fastes.cli.main import main
from fastes.runs.curve_picture import draw_curves
from fastes.runs.curves import Curve
from fastes.system.near_paths import in_order, what_is_beside

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMALL = ["--preset", "default", "--workers", "0", "--population-size", "4", "--net-arch", "4", "--target-return", "none"]
BUDGET = ["--total-timesteps", "200", "--target-episodes", "1", "--quiet"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CartPole-v1/1 and 2."""
    runs = tmp_path_factory.mktemp("trained")
    assert main(["train", "CartPole-v1", *SMALL, *BUDGET, "--runs", str(runs), "--seeds", "2"]) == 0
    return runs


@pytest.fixture
def runs(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of them, which is the working directory."""
    shutil.copytree(trained, tmp_path / "runs")
    monkeypatch.chdir(tmp_path / "runs")
    return tmp_path / "runs"


def test_a_run_folder_is_its_best_checkpoint(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Path("CartPole-v1/1")
    with FastES.load(run / "best.zip", n_workers=0) as best, FastES.load(run, n_workers=0) as model:
        assert model.theta.tobytes() == best.theta.tobytes()
    for spelling in ("CartPole-v1/1/", "./CartPole-v1/../CartPole-v1/1", str(runs / run)):
        with FastES.load(spelling, n_workers=0) as model:
            assert model.seed == 0
    monkeypatch.chdir(run)
    for spelling in (".", "../1", "../../CartPole-v1/1"):
        with FastES.load(spelling, n_workers=0) as model:
            assert model.seed == 0
    (runs / run / "best.zip").unlink()
    assert find_checkpoint(".") == Path("checkpoint.zip"), "a run before its first evaluation"


def test_a_run_folder_in_the_place_of_an_environment(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "CartPole-v1/1", *SMALL]) == 2
    assert "CartPole-v1/1 is a run folder: --resume CartPole-v1/1 continues it" in capsys.readouterr().err


def test_a_folder_beside_a_checkpoint_of_its_name_is_not_in_its_way(runs: Path) -> None:
    Path("model").mkdir()
    shutil.copy("CartPole-v1/1/best.zip", "model.zip")
    with FastES.load("model", n_workers=0) as model:
        assert model.seed == 0


@pytest.mark.parametrize("command", ["eval", "play", "plot", "train --resume"])
def test_every_command_takes_a_run_folder(command: str, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = [] if command == "plot" else ["--total-timesteps", "400"] if "resume" in command else ["--episodes", "1"]
    workers = ["--workers", "0"] if command in ("eval", "train --resume") else []
    assert main([*command.split(), "CartPole-v1/1", *more, *workers]) == 0


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("CartPole-v1", r"\(it is a folder\): name one of its runs, as in CartPole-v1/2; it has 1 and 2"),
        ("CartPole-v1/7", r"CartPole-v1/7: there is no such file or folder; CartPole-v1 contains: 1, 2 and "),
        ("CartPol-v1/1", r"CartPol-v1/1: there is no such file or folder; the working directory contains: CartPole-v1"),
        ("CartPole-v1/1/bset.zip", r"no such file or folder; CartPole-v1/1 contains: best\.zip, best\.zip\.bak"),
        ("nowhere/at/all", r"no such file or folder; the working directory contains: CartPole-v1"),
        (".", r"\(it is a folder\): a run folder holds best\.zip or checkpoint\.zip, and this one CartPole-v1"),
    ],
)
def test_a_path_to_no_run_says_what_there_is(path: str, said: str, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CheckpointError, match=f"there is no checkpoint at .*{said}"):
        FastES.load(path)
    for command in ("eval", "play", "replay"):
        assert main([command, path, *(["--generation", "1", "--job", "1"] if command == "replay" else [])]) == 1
        told = capsys.readouterr().err
        assert "there is no checkpoint at" in told
        assert told.count("\n") == 1
    if not path.endswith(".zip"):
        assert main(["train", "--resume", path]) == 1
        assert "there is no checkpoint at" in capsys.readouterr().err


def test_the_folder_of_several_runs_is_drawn(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[list[str]] = []

    def draw(curves: Sequence[Curve], *rest: Any) -> Figure:
        drawn.append([curve.name for curve in curves])
        return draw_curves(curves, *rest)

    monkeypatch.setattr("fastes.runs.curve_picture.draw_curves", draw)
    (runs / "CartPole-v1" / "notes").mkdir()
    assert main(["plot", "CartPole-v1"]) == 0
    assert main(["plot", "CartPole-v1/2/progress.csv"]) == 0
    assert main(["plot", "."]) == 0
    assert [len(names) for names in drawn] == [2, 1, 2], "a folder of environments has the runs of each"
    drawn.pop()
    for number in ("1", "2"):
        folder = runs / "CartPole-v1" / number
        (folder / "progress.csv").write_text((folder / "progress.csv").read_text().splitlines()[0] + "\n")
        (folder / "config.toml").unlink()  # it has the last evaluation
        if number == "1":
            with pytest.warns(UserWarning, match=r"CartPole-v1/1 has no evaluations in progress\.csv yet.* It is left out"):
                assert main(["plot", "CartPole-v1"]) == 0
    assert [len(names) for names in drawn] == [2, 1, 1]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("CartPole-v2", r"CartPole-v2 is missing; the working directory contains: CartPole-v1"),
        ("CartPole-v1/notes", r"CartPole-v1/notes is not a run folder, and holds none: .*; it has nothing"),
        ("../outside", r"\.\./outside is not a run folder, and holds none: expected one such as runs/CartPole-v1/1; it has a"),
        ("CartPole-v1/new", r"CartPole-v1/new has no evaluations in progress\.csv yet: they come with its first generations"),
        ("news", r"none of news/1 and news/2 has evaluations in progress\.csv yet"),
    ],
)
def test_what_cannot_be_drawn_says_what_it_is(path: str, said: str, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "CartPole-v1" / "notes").mkdir()
    (runs.parent / "outside" / "a" / "b" / "c").mkdir(parents=True)
    (runs.parent / "outside" / "a" / "b" / "c" / "progress.csv").touch()  # deeper than the program makes runs
    for new in ("CartPole-v1/new", "news/1", "news/2"):
        (runs / new).mkdir(parents=True)
        (runs / new / "progress.csv").touch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert main(["plot", path]) == 1
    assert re.search(said, capsys.readouterr().err)


def test_a_missing_configuration_says_what_is_beside_it(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--config", "CartPole-v1/1/confg.toml"]) == 1
    assert "there is no CartPole-v1/1/confg.toml; CartPole-v1/1 contains: config.toml" in capsys.readouterr().err
    assert main(["train", "--config", "CartPole-v1"]) == 1
    assert "there is no CartPole-v1/config.toml; CartPole-v1 contains: 1, 2" in capsys.readouterr().err


def test_names_are_in_an_order_and_few(tmp_path: Path) -> None:
    assert in_order(["run10", "run9", "b", "10", "9", "a1"]) == ["9", "10", "a1", "b", "run9", "run10"]
    for name in (*map(str, range(1, 12)), ".hidden", "two\nlines"):
        (tmp_path / name).touch()
    assert what_is_beside(tmp_path / "7x") == f"; {tmp_path} contains: 7, 1, 2, 3, 4, 5 and 6 more"
    assert "\n" not in what_is_beside(tmp_path / "two lines")
    assert what_is_beside(tmp_path / "1" / "x").startswith(f"; {tmp_path} contains: 1, ")


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, "", b"\xff", "/proc/1/root/no"])
def test_no_path_breaks_the_search(path: Any, runs: Path) -> None:
    with pytest.raises((CheckpointError, TypeError)):
        FastES.load(path)
