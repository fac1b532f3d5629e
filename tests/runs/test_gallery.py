"""Risk: a gallery shows another run than the best, or ends at one that cannot be drawn."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from written_runs import write_run

from fastes import FastES
from fastes.cli.main import main
from fastes.runs.gallery import Exhibit, best_runs, picture_names, write_page
from fastes.runs.overview import read_overview

pytest.importorskip("imageio_ffmpeg")

TINY: dict[str, Any] = {"population_size": 4, "preset": "default", "n_workers": 0, "target_return": "none"}


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs of Toy-v0, of which the second is better, and two whose environments cannot be had."""
    monkeypatch.chdir(tmp_path)
    for seed, score in ((1, 3.0), (2, 8.0)):
        result = {"mean": score, "std": 1.0, "worst": 0.0, "episodes": 20}
        folder = write_run(tmp_path / "runs" / "Toy-v0" / str(seed), seed=seed, noted={"env": "Toy-v0", "result": result})
        with FastES("Toy-v0", seed=seed, **TINY) as model:
            model.save(folder / "best.zip")
    write_run(tmp_path / "runs" / "Gone-v0" / "1", noted={"env": "Gone|v0"})
    (tmp_path / "runs" / "torn" / "1").mkdir(parents=True)
    (tmp_path / "runs" / "torn" / "1" / "progress.csv").write_text("torn")
    return tmp_path / "runs"


def test_the_best_run_of_each_environment_is_drawn(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gallery", "--seconds", "0.5", "--width", "20"]) == 0
    left_out, drawn, written = capsys.readouterr().out.splitlines()
    assert left_out.startswith("runs/Gone-v0/1 is left out: ")
    assert re.fullmatch(r"gallery/Toy-v0\.gif: return [-.\d]+, \d+\.\d kB", drawn)
    size = Path("gallery/Toy-v0.gif").stat().st_size
    assert size < 100_000
    assert drawn.endswith(f" {size / 1000:.1f} kB")
    assert written == "gallery/gallery.md"
    page = Path("gallery/gallery.md").read_text()
    assert "![Toy-v0](Toy-v0.gif)" in page
    assert "return 8.0 &plusmn; 1.0 over 20 episodes" in page
    assert "`runs/Toy-v0/2`" in page
    assert "Gone" not in page
    picture = Path("gallery/Toy-v0.gif").read_bytes()
    assert int.from_bytes(picture[6:8], "little") == 20, "as wide as was asked"


@pytest.mark.parametrize(
    ("mean", "std", "told"),
    [(0.041, 0.0123, "return 0.041 &plusmn; 0.012"), (12345.678, 40.0, "return 12,345.7 &plusmn; 40.0")],
)
def test_returns_have_digits_that_count(mean: float, std: float, told: str, tmp_path: Path) -> None:
    result = {"mean": mean, "std": std, "worst": 0.0, "episodes": 20}
    run = read_overview(write_run(tmp_path / "1", noted={"env": "Toy-v0", "result": result}))
    page = write_page([Exhibit(run, "Toy.gif", 0.05)], tmp_path).read_text()
    assert f"{told} over 20 episodes<br>{'0.050' if mean < 1 else '0.1'} in the picture" in page


def test_the_command_that_is_advised_draws_what_was_left_out(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gymnasium.register("OfAnotherModule-v0", entry_point="envs_for_tests:Toy")
    try:
        with FastES("OfAnotherModule-v0", **TINY) as other:
            folder = write_run(runs / "OfAnotherModule-v0" / "1", noted={"env": "OfAnotherModule-v0"})
            other.save(folder / "best.zip")
    finally:
        del gymnasium.registry["OfAnotherModule-v0"]
    assert main(["gallery", str(folder)]) == 1
    said = capsys.readouterr().out
    assert f"fastes play {folder} --video gallery/OfAnotherModule-v0.gif --env " in said


def test_environments_are_built_with_arguments_and_wrappers(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (runs.parent / "drawn_wide.py").write_text(
        "import gymnasium, numpy as np\n"
        "class Wide(gymnasium.Wrapper):\n"
        "    def render(self):\n"
        "        return np.zeros((300, 20 * self.unwrapped.length, 3), np.uint8)\n"
    )
    monkeypatch.syspath_prepend(runs.parent)
    command = ["gallery", str(runs / "Toy-v0"), "--seconds", "0.5", "--width", "400", "--env-kwargs", "length=18"]
    assert main([*command, "--wrapper", "drawn_wide:Wide"]) == 0
    assert int.from_bytes(Path("gallery/Toy-v0.gif").read_bytes()[6:8], "little") == 360
    assert main([*command, "--wrapper", "drawn_wide:Missing"]) == 1
    assert "drawn_wide" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("def step(self, action): raise RuntimeError('out of paper')", "RuntimeError: out of paper"),
        ("def render(self): return None", "render() returned None, expected uint8 (height, width, 3)"),
        ("def render(self): return np.zeros((30, 30), np.uint8)", "render() returned an array of shape (30, 30), expected"),
    ],
    ids=["step", "none", "flat"],
)
def test_an_environment_that_fails_is_left_out(
    body: str, said: str, runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = f"fails_{re.sub('[^a-z]', '', said.lower())[:30]}"
    (runs.parent / f"{module}.py").write_text(f"import gymnasium, numpy as np\nclass Fails(gymnasium.Wrapper):\n    {body}\n")
    monkeypatch.syspath_prepend(runs.parent)
    assert main(["gallery", str(runs / "Toy-v0"), "--wrapper", f"{module}:Fails"]) == 1
    shown = capsys.readouterr()
    assert "runs/Toy-v0/2 is left out: " in shown.out
    assert said in shown.out
    assert "no run could be drawn" in shown.err


def test_no_picture_is_an_error(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gallery", str(runs / "Gone-v0")]) == 1
    assert "no run could be drawn" in capsys.readouterr().err
    assert not Path("gallery/gallery.md").exists()


@pytest.mark.parametrize(
    ("flag", "value"), [("--seconds", "0"), ("--width", "3"), ("--first-seed", "-1"), ("--env-kwargs", "odd")]
)
def test_a_value_that_cannot_be(flag: str, value: str, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gallery", str(runs), flag, value]) == 2
    assert f"{flag} {value}" in capsys.readouterr().err.replace("0.0", "0").replace("'", "")
    assert not Path("gallery").exists()


def test_arguments_of_an_environment_are_another_one(tmp_path: Path) -> None:
    noted = {"env": "a:B/C-v0", "result": {"mean": 1.0, "std": 0.0, "worst": 1.0, "episodes": 2}}
    folders = [
        write_run(tmp_path / "1", noted={**noted, "env_kwargs": "{}"}),
        write_run(tmp_path / "2", noted={**noted, "env_kwargs": "{'m': 2}"}),
        write_run(tmp_path / "3", noted={"env": "a:B/C-v0", "env_kwargs": "{}"}),  # without a result: its best evaluation
    ]
    shown = best_runs(map(read_overview, folders))
    assert [run.path.name for run in shown] == ["2", "3"]
    assert picture_names(shown) == ["a-B-C-v0.gif", "a-B-C-v0-2.gif"]


def test_a_damaged_configuration_makes_no_other_environment(runs: Path) -> None:
    """Its arguments are those of the checkpoint, and none are none in whatever file they stand."""
    for name, kwargs in (("1", {}), ("2", {}), ("3", {"length": 9})):
        folder = runs / "Toy-v0" / name
        folder.mkdir(exist_ok=True)
        with FastES("Toy-v0", env_kwargs=kwargs, **TINY) as model:
            model.save(folder / "best.zip")
        if name != "1":
            (folder / "config.toml").write_text("torn = ")
    write_run(runs / "Toy-v0" / "4", noted={"env": "Toy-v0"})  # without env_kwargs
    shown = best_runs(read_overview(runs / "Toy-v0" / str(number)) for number in range(1, 5))
    assert {run.env_kwargs.strip("{}") for run in shown} == {"", "'length': 9"}
    assert len(shown) == 2
