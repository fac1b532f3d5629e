"""Risk: a message suggests what does not work, or shows what tells a reader nothing."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from envs_for_tests import Toy

from fastes import FastES
from fastes.cli.main import main
from fastes.errors import CheckpointError, EnvironmentUnavailable, shown
from fastes.runs.video import can_draw

TRAIN = [
    "--preset",
    "default",
    "--population-size",
    "2",
    "--net-arch",
    "4",
    "--target-return",
    "none",
    "--workers",
    "0",
    "--quiet",
]


class Undrawn(Toy):
    """Cannot be drawn."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012


@pytest.fixture(scope="module", autouse=True)
def _registered() -> Any:
    gymnasium.register("Undrawn-v0", entry_point=Undrawn)
    yield
    del gymnasium.registry["Undrawn-v0"]


@pytest.mark.parametrize(("env", "drawn"), [("CartPole-v1", True), ("Undrawn-v0", False)])
def test_the_command_that_plays_a_run_works(
    env: str, drawn: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("imageio_ffmpeg", "pygame"):
        pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    assert main(["train", env, *TRAIN, "--total-timesteps", "20"]) == 0
    command = shlex.split(capsys.readouterr().out.splitlines()[-1].partition("to play it back: fastes ")[2])
    assert ("--video" in command) == drawn
    assert main(command) == 0
    assert f"{env}.mp4" in command or not drawn


def test_no_video_is_offered_where_a_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    with FastES("CartPole-v1", n_workers=0) as model:
        assert can_draw(model)
        for module in ("imageio_ffmpeg", "pygame"):
            with monkeypatch.context() as patch:
                patch.delitem(sys.modules, module, raising=False)
                patch.setattr("importlib.util.find_spec", lambda name, missing=module: None if name == missing else object())
                assert not can_draw(model)


@pytest.mark.parametrize("name", ["progress.csv", "config.toml"])
def test_another_file_of_a_run_folder_is_no_damaged_checkpoint(name: str, tmp_path: Path) -> None:
    for each, content in (("checkpoint.zip", b""), ("best.zip", b""), (name, b"generation,timesteps\n")):
        (tmp_path / each).write_bytes(content)
    with pytest.raises(CheckpointError) as error:
        FastES.load(tmp_path / name)
    reason = "no checkpoint: it is not a zip file; next to it are best.zip and checkpoint.zip"
    assert str(error.value) == f"{tmp_path / name}: {reason}"


def test_a_function_that_makes_a_vector_environment_is_told_so() -> None:
    with pytest.raises(
        TypeError, match=r"a \w+: expected a gymnasium\.Env\. It is a vector environment: pass it itself"
    ) as error:
        FastES(lambda: gymnasium.make_vec("CartPole-v1", num_envs=2), preset="unbiased", n_workers=0)
    assert "old gym" not in str(error.value)
    FastES(gymnasium.make_vec("CartPole-v1", num_envs=2), preset="unbiased").close()


@pytest.mark.parametrize("wrong", [{"a": lambda: 1}, [Toy()], object(), lambda: 1])
def test_no_address_is_shown(wrong: Any) -> None:
    assert " at 0x" in repr(wrong)
    assert " at 0x" not in shown(wrong)
    calls: list[Any] = [
        lambda: FastES(Toy, preset="unbiased", policy_kwargs=wrong),
        lambda: FastES(Toy, preset="unbiased", population_size=wrong),
        lambda: FastES(Toy, preset="unbiased", archive_size=wrong),
        lambda: FastES(Toy, preset="unbiased", optimizer=wrong),
        lambda: FastES(Toy, preset="unbiased", trials=wrong),
        lambda: FastES(Toy, preset="unbiased", seed=wrong),
        lambda: FastES(Toy, preset="unbiased", n_workers=0).learn(10, callback={"a": wrong}),
    ]
    if not callable(wrong):
        calls += [
            lambda: FastES(wrong, preset="unbiased"),
            lambda: FastES(lambda: wrong, preset="unbiased"),
            lambda: FastES(Toy, preset="unbiased", sigma=wrong),
        ]
    for number, call in enumerate(calls):
        with pytest.raises((TypeError, ValueError)) as error:
            call()
        assert " at 0x" not in str(error.value), number


def test_shown_keeps_what_is_no_address() -> None:
    assert shown("born at 0x12 street") == "'born at 0x12 street'"
    assert shown(3) == "3"
    assert shown("x" * 500) == "'" + "x" * 199 + "..."


def test_an_id_that_a_file_here_registers_is_named_with_that_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "its_user.py").write_text("from fastes import FastES\nFastES('Bakery-v0')\n")
    (tmp_path / "broken.py").write_bytes(b"\xff\xfe")
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(EnvironmentUnavailable, match=r"'module:(Bakery|Env)-v0'"):
        FastES("Bakery-v0")
    (tmp_path / "bakery_file.py").write_text("import gymnasium\ngymnasium.register(\n    id='Bakery-v0', entry_point='a:B')\n")
    with pytest.raises(EnvironmentUnavailable, match=r"of your own is named with its file, 'bakery_file:Bakery-v0'$"):
        FastES("Bakery-v0")
    try:
        with pytest.raises(EnvironmentUnavailable, match=r"did you mean 'bakery_file:Bakery-v0'"):
            FastES("bakery_file:Bakry-v0")
        with pytest.raises(EnvironmentUnavailable, match=r"; bakery_file does not register it$"):
            FastES("bakery_file:Xyzzyplugh-v0")
    finally:
        gymnasium.registry.pop("Bakery-v0", None)
        sys.modules.pop("bakery_file", None)
