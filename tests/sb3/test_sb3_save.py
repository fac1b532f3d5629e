"""Risk: what a user has set on a model, or replaces on loading, is lost where SB3 keeps it."""

from __future__ import annotations

import copy
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults import SETTINGS, caught_warnings, toy
from training import learn

from fastes import CheckpointError, FastES
from fastes.checkpoints.writer import write_checkpoint
from fastes.sb3.saved_attributes import attributes_of

VALUES: dict[str, Any] = {"level": 3, "notes": ["a", {"b": None, "c": [1.5, True]}], "best": np.float64(0.1), "pair": (1, 2)}
AS_JSON = {"level": 3, "notes": ["a", {"b": None, "c": [1.5, True]}], "best": 0.1, "pair": [1, 2]}


@pytest.fixture
def model() -> Any:
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as made:
        learn(made, 1)
        vars(made).update(VALUES)
        yield made


def _loaded(path: Path, **arguments: Any) -> FastES:
    return FastES.load(path, env=toy(), n_workers=0, **arguments)


def test_attributes_come_back(model: Any, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    loaded = _loaded(tmp_path / "model")
    assert {name: getattr(loaded, name) for name in VALUES} == AS_JSON
    assert type(loaded.best) is float  # type: ignore[attr-defined]
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again.zip").read_bytes() == (tmp_path / "model.zip").read_bytes()
    assert copy.deepcopy(model).notes == AS_JSON["notes"]


def test_attributes_are_left_out_and_included(model: Any, tmp_path: Path) -> None:
    model._secret = 5
    model.save(tmp_path / "model", exclude=["level", "notes"], include=["_secret", "notes", "absent"])
    loaded = _loaded(tmp_path / "model")
    assert not hasattr(loaded, "level")
    assert loaded.notes == AS_JSON["notes"], "include wins, as in SB3"  # type: ignore[attr-defined]
    assert loaded._secret == 5  # type: ignore[attr-defined]
    model.save(tmp_path / "model")
    assert not hasattr(_loaded(tmp_path / "model"), "_secret")


def test_own_attributes_are_not_included(model: Any, tmp_path: Path) -> None:
    for name in vars(model).keys() - {"_logger", *VALUES}:
        model.save(tmp_path / "model", include=[name])
        assert _loaded(tmp_path / "model").level == 3, name  # type: ignore[attr-defined]


@pytest.mark.parametrize("value", [object(), {1: 2}, float("nan"), np.zeros(2), [[lambda: 0]], "x" * (1 << 21), 2**70])
def test_what_a_file_cannot_hold_is_said(model: Any, value: Any, tmp_path: Path) -> None:
    model.tool = value
    with caught_warnings() as messages:
        model.save(tmp_path / "model")
    (message,) = messages
    assert message.startswith("model.tool is a ")
    assert "Set it again after load" in message
    loaded = _loaded(tmp_path / "model")
    assert not hasattr(loaded, "tool")
    assert loaded.level == 3  # type: ignore[attr-defined]
    with caught_warnings() as messages:
        model.save(tmp_path / "model", exclude=["tool"])
    assert not messages
    with pytest.raises(TypeError, match=r"save\(include=\['tool'\]\): model.tool is a "):
        model.save(tmp_path / "model", include=["tool"])


@pytest.mark.parametrize("name", ["lr-decay", "eval.mean", "a b", "3"])
def test_a_name_that_is_not_an_identifier_is_left_out(model: Any, name: str, tmp_path: Path) -> None:
    """As of a script that sets all options of its own file."""
    setattr(model, name, 4)
    with caught_warnings() as messages:
        model.save(tmp_path / "model")
    (message,) = messages
    assert message.startswith(f"model.{name} is a int that a checkpoint cannot hold (its name is not an identifier")
    assert _loaded(tmp_path / "model").level == 3  # type: ignore[attr-defined]


def test_fastess_own_attributes_are_no_users() -> None:
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        learn(model, 2)
        model.evaluate(2)
        _ = model.get_env(), model.logger, model.env, model.predict(np.zeros(3))
        model.set_random_seed(3)
        model.set_env(toy())
        assert attributes_of(model) == {}


@pytest.mark.parametrize(
    ("attributes", "place"),
    [
        (3, "attributes"),
        ([], "attributes"),
        ({"learn": 1}, "attributes.learn"),
        ({"trainer": None}, "attributes.trainer"),
        ({"__class__": 1}, "attributes.__class__"),
        ({"a b": 1}, "attributes.a b"),
        ({"log_interval": 1}, "attributes.log_interval"),
    ],
)
def test_a_file_that_sets_what_is_fastess_own_is_refused(model: Any, attributes: Any, place: str, tmp_path: Path) -> None:
    snapshot = model.snapshot()
    snapshot.data["attributes"] = attributes
    write_checkpoint(tmp_path / "model", snapshot)
    with pytest.raises(CheckpointError, match=f"'{place}' is"):
        _loaded(tmp_path / "model")


def test_a_file_that_sets_what_a_model_keeps_to_itself_is_refused(model: Any, tmp_path: Path) -> None:
    snapshot = model.snapshot()
    for name in [name for name in vars(model) if name.startswith("_")]:
        snapshot.data["attributes"] = {name: 1}
        write_checkpoint(tmp_path / "model", snapshot)
        with pytest.raises(CheckpointError, match=f"'attributes.{name}' is"):
            _loaded(tmp_path / "model")


def test_custom_objects_replace_what_the_file_has(model: Any, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    tool = object()
    replaced = {"learning_rate": 0.5, "seed": 77, "level": tool, "absent": 1, "clip_range": 0.2, "observation_space": None}
    loaded: Any = _loaded(tmp_path / "model", custom_objects=replaced)
    assert loaded.settings.learning_rate == 0.5
    assert loaded.seed == 77
    assert loaded.level is tool
    assert loaded.notes == AS_JSON["notes"]
    assert not hasattr(loaded, "absent"), "as in SB3, only what the file has"
    assert _loaded(tmp_path / "model", custom_objects={"learning_rate": 0.5}, learning_rate=0.25).settings.learning_rate == 0.25
    assert _loaded(tmp_path / "model", custom_objects={"seed": 77}, seed=78).seed == 78
    with pytest.raises(TypeError, match=r"custom_objects = 'x': expected a dict"):
        _loaded(tmp_path / "model", custom_objects="x")


def test_system_info_is_printed_in_sb3s_words(model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model.save(tmp_path / "model")
    _loaded(tmp_path / "model", print_system_info=True)
    printed = capsys.readouterr().out
    assert printed.startswith("== CURRENT SYSTEM INFO ==\n")
    here, there = printed.split("\n\n== SAVED MODEL SYSTEM INFO ==\n")
    assert f"- numpy: {np.__version__}" in here.splitlines()
    with zipfile.ZipFile(os.fspath(tmp_path / "model.zip")) as archive:
        versions = json.loads(archive.read(archive.namelist()[0]))["versions"]
    assert there.split("\n\n")[0].splitlines() == [f"- {name}: {version}" for name, version in versions.items()]
    _loaded(tmp_path / "model")
    assert capsys.readouterr().out == ""
