"""Risk: a checkpoint is lost, half written, silently wrong, or runs code."""

from __future__ import annotations

import contextlib
import copy
import errno
import json
import os
import pickle
import re
import shutil
import stat
import time
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from edited_checkpoints import edited
from envs_for_tests import Toy
from gymnasium import spaces
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors
from training import assert_same_state, label, learn

from fastes import CheckpointError, CheckpointMismatch, FastES
from fastes.agent import Agent
from fastes.checkpoints.file_format import FORMAT_VERSION, Checkpoint
from fastes.checkpoints.reader import read_checkpoint
from fastes.checkpoints.writer import write_checkpoint
from fastes.reports.monitor_files import EvaluationsFile
from fastes.settings.settings import Settings
from fastes.system.atomic_files import replace_file

SETTINGS: dict[str, Any] = {
    "population_size": 4,
    "seed": 5,
    "target_return": "none",
    "policy_kwargs": {"net_arch": [4]},
    "noise_table_size": 1000,
}


def _trained(generations: int = 2, **changes: Any) -> FastES:
    """A model after some generations."""
    model = FastES("Toy-v0", preset="default", n_workers=0, **{**SETTINGS, **changes})
    learn(model, generations)
    return model


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    with _trained() as model:
        model.save(tmp_path / "m.zip")
    return tmp_path / "m.zip"


@pytest.fixture
def saved_trials(tmp_path: Path) -> Path:
    """Of two trials that are left."""
    with _trained(trials=2) as model:
        model.save(tmp_path / "m.zip")
    return tmp_path / "m.zip"


def load(path: Path, **changes: Any) -> FastES:
    return FastES.load(path, n_workers=0, **changes)


def test_an_agent_is_loaded_without_sb3s_names(saved: Path) -> None:
    with Agent.load(saved, n_workers=0) as agent, load(saved) as model:
        assert type(agent) is Agent
        for each in agent, model:
            each.learn(200, reset_num_timesteps=False)
        assert_same_state(agent.snapshot(), model.snapshot())


# --- round trip ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optimizer": "sgd"},
        {"policy": "LinearPolicy", "policy_kwargs": {}},
        {"policy_kwargs": {"net_arch": [], "activation_fn": "relu", "use_bias": False}},
        {"policy_kwargs": {"net_arch": [3], "action_mapping": "bins", "num_bins": 3}},
        {"normalize_obs": False},
        {"target_return": 12.5},
        {"target_return": float("inf")},
        {"target_return": -1e300},
        {"step_timeout": float("inf")},
        {"learning_rate": "lin_0.1_0.01", "sigma": 1},
        {"trials": 3, "archive_size": 1, "episode_cap": "mean", "generation_timesteps": 60},
    ],
    ids=label,
)
def test_round_trip(changes: dict[str, Any], tmp_path: Path) -> None:
    with _trained(**changes) as model:
        model.save(tmp_path / "m")
        with load(tmp_path / "m") as again:
            assert_same_state(model.snapshot(), again.snapshot())
            assert again.target_return == model.target_return
            assert again.policy_spec == model.policy_spec
            observations = np.random.default_rng(0).normal(size=(20, 3))
            expected, _ = model.predict(observations, deterministic=True)
            assert (again.predict(observations, deterministic=True)[0] == expected).all()
            assert again.evaluate(3)[0].tolist() == model.evaluate(3)[0].tolist()


class Tanh:
    """Stands for torch.nn.Tanh, which SB3's users pass."""


@pytest.mark.parametrize(
    "changes",
    [
        {"policy_kwargs": {"net_arch": [4], "activation_fn": Tanh}},
        {"policy_kwargs": {"net_arch": (4, 4)}},
        {"policy_kwargs": {"net_arch": [np.int64(4)]}},
        {"population_size": np.int64(4)},
        {"total_timesteps": np.int64(1000)},
        {"learning_rate": np.float64(0.02)},
        {"target_return": np.float64(3.0)},
        {"target_return": -float("inf")},
        {"learning_rate": lambda remaining: 0.1 * remaining + 0.01},
    ],
    ids=label,
)
def test_whatever_trains_can_be_saved(changes: dict[str, Any], tmp_path: Path) -> None:
    with _trained(**changes) as model:
        model.save(tmp_path / "m")
        again_changes = {name: value for name, value in changes.items() if callable(value)}
        with load(tmp_path / "m", **again_changes) as again:
            assert again.theta.tobytes() == model.theta.tobytes()
            learn(again, 3)


def test_infinite_bounds_come_back(tmp_path: Path) -> None:
    class Unbounded(Toy):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = gymnasium.spaces.Box(np.array([-np.inf, 0.0], np.float32), np.inf, (2,), np.float32)

    with FastES(Unbounded, preset="default", n_workers=0, **SETTINGS) as model:
        model.save(tmp_path / "m")
        with load(tmp_path / "m", env=Unbounded) as again:
            assert again.policy_spec == model.policy_spec
            assert again.policy_spec.head.low == (-np.inf, 0.0)


def test_the_suffix_is_added_once(tmp_path: Path) -> None:
    with _trained() as model:
        for given, written in (("a", "a.zip"), ("b.zip", "b.zip"), ("c.v2", "c.v2.zip")):
            model.save(tmp_path / given)
            assert (tmp_path / written).is_file()
            load(tmp_path / given).close()
            load(tmp_path / written).close()
        model.save(str(tmp_path / "text"))
        load(str(tmp_path / "text")).close()  # type: ignore[arg-type]
    assert sorted(os.listdir(tmp_path)) == ["a.zip", "b.zip", "c.v2.zip", "text.zip"]


def test_the_file_is_a_plain_zip_that_others_can_read(saved: Path) -> None:
    with zipfile.ZipFile(saved) as archive:
        assert archive.testzip() is None
        assert set(archive.namelist()) == {"data", "trainings.safetensors"}
        data = json.loads(archive.read("data"))
        assert load_tensors(archive.read("trainings.safetensors"))["0.theta"].dtype == np.float32
    assert data["format_version"] == FORMAT_VERSION
    assert data["versions"]["numpy"] == np.__version__
    umask = os.umask(0)
    os.umask(umask)
    assert saved.stat().st_mode & 0o777 == 0o666 & ~umask


# --- written whole or not at all -------------------------------------------------------------------------------------


def _refuse(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("where", ["os.replace", "os.fsync", "write", "interrupt"])
def test_a_failed_save_keeps_the_old_file(where: str, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = saved.read_bytes()
    with load(saved) as model:
        learn(model, 4)
        with monkeypatch.context() as patch:
            if where == "write":
                _fail_after(patch, 300, OSError(errno.ENOSPC, "No space left on device"))
            elif where == "interrupt":
                _fail_after(patch, 300, KeyboardInterrupt())
            else:
                patch.setattr(where, _refuse)
            with pytest.raises((OSError, KeyboardInterrupt)):
                model.save(saved)
        assert saved.read_bytes() == old
        assert load(saved).generation == 2
        model.save(saved)
        assert load(saved).generation == 4
    assert sorted(os.listdir(saved.parent)) == ["m.zip", "m.zip.bak"]


def _fail_after(patch: pytest.MonkeyPatch, limit: int, error: BaseException) -> None:
    """Writing into a zip fails once so many bytes were given to it."""
    given = 0
    write = zipfile.ZipFile.writestr

    def writestr(self: zipfile.ZipFile, name: Any, data: Any, *arguments: Any) -> None:
        nonlocal given
        given += len(data)
        if given > limit:
            assert self.fp is not None
            self.fp.write(b"torn")
            raise error
        write(self, name, data, *arguments)

    patch.setattr(zipfile.ZipFile, "writestr", writestr)


def test_the_file_is_on_disk_before_it_takes_the_name(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(fd: int) -> None:
        calls.append("fsync folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "fsync")
        fsync(fd)

    def noted_replace(source: Any, target: Any) -> None:
        calls.append("bak" if str(target).endswith(".bak") else "replace")
        assert Path(target).parent == Path(source).parent
        replace(source, target)

    with load(saved) as model:
        monkeypatch.setattr("os.fsync", noted_fsync)
        monkeypatch.setattr("os.replace", noted_replace)
        model.save(saved)
    assert calls == ["fsync", "bak", "replace", "fsync folder"]


def test_the_previous_file_is_kept(saved: Path) -> None:
    old = saved.read_bytes()
    with load(saved) as model:
        learn(model, 4)
        model.save(saved)
        backup = saved.with_name("m.zip.bak")
        assert backup.read_bytes() == old
        assert load(backup).generation == 2
        learn(model, 5)
        model.save(saved)
        assert load(backup).generation == 4
    assert sorted(os.listdir(saved.parent)) == ["m.zip", "m.zip.bak"]


def test_a_save_after_one_killed_before_its_rename_leaves_nothing(saved: Path) -> None:
    """The backup is the file itself then, and rename() of one link to another does nothing."""
    os.link(saved, saved.with_name("m.zip.bak"))
    with load(saved) as model:
        model.save(saved)
    assert sorted(os.listdir(saved.parent)) == ["m.zip", "m.zip.bak"]


def test_the_previous_file_is_kept_without_hard_links(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = saved.read_bytes()
    monkeypatch.setattr("os.link", _refuse)
    with load(saved) as model:
        model.save(saved)
    assert saved.with_name("m.zip.bak").read_bytes() == old


@pytest.mark.parametrize("year", [1970, 1979, 2108, 9999])
def test_a_clock_that_a_zip_cannot_tell_of_spoils_no_save(year: int, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moment = time.struct_time((year, 1, 2, 3, 4, 5, 0, 2, 0))
    with load(saved) as model:
        before = model.snapshot()
        monkeypatch.setattr("time.localtime", lambda *_: moment)
        model.save(saved)
        model.learn(20, EvaluationsFile(saved.parent / "e.npz"))
    assert_same_state(before, read_checkpoint(saved))
    with np.load(saved.parent / "e.npz") as file:
        assert sorted(file) == ["ep_lengths", "results", "timesteps"]


def test_the_same_state_makes_the_same_bytes(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = saved.read_bytes()
    monkeypatch.setattr("time.localtime", lambda *_: time.struct_time((2031, 1, 2, 3, 4, 5, 0, 2, 0)))
    with load(saved) as model:
        model.save(saved)
    assert saved.read_bytes() == old


def test_a_torn_file_of_a_living_process_stays_and_that_of_a_dead_one_goes(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("os.O_TMPFILE", raising=False)  # the file has a name while it is written, as on systems without it
    seen: list[list[str]] = []

    def write(file: Any) -> None:
        file.write(b"half")
        file.flush()
        with load(saved) as model:
            model.save(saved)  # another one saves meanwhile
        seen.append(os.listdir(saved.parent))

    replace_file(saved, write)
    ((left,),) = ([name for name in names if name.endswith(".tmp")] for names in seen)
    assert sorted(os.listdir(saved.parent)) == ["m.zip", "m.zip.bak"]
    shutil.copy(saved.with_name("m.zip.bak"), saved)
    for name in (left, ".m.zip.bak", ".m.zip.77-0123abcd.bak", ".m.zip.00000000-0123456789abcdef.tmp"):
        saved.with_name(name).write_bytes(b"left by a kill")
    os.utime(saved.with_name(".m.zip.77-0123abcd.bak"), (0, 0))
    with load(saved) as model:
        model.save(saved)
    assert sorted(os.listdir(saved.parent)) == [".m.zip.00000000-0123456789abcdef.tmp", "m.zip", "m.zip.bak"]


@pytest.mark.parametrize("path", ["", ".", "/", "..", "a/..", "m\0", "a\0b/m"])
def test_a_path_that_names_no_file(path: str, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(saved.parent)
    with load(saved) as model, pytest.raises(ValueError, match=r"names no file: expected a path such as 'model\.zip'"):
        model.save(path)
    with pytest.raises(CheckpointError, match="there is no checkpoint at") as caught:
        FastES.load(path)
    assert str(caught.value).encode()
    assert os.listdir() == ["m.zip"]


def test_a_path_that_no_encoding_can_write_is_told() -> None:
    with pytest.raises(CheckpointError, match="there is no checkpoint at") as caught:
        FastES.load("m\udc80")
    assert str(caught.value).encode()


def test_names_that_are_long_and_too_long(saved: Path) -> None:
    with load(saved) as model:
        longest = saved.with_name("x" * 247 + ".zip")  # its .bak has 255 characters, the most that a file's name has
        for _ in range(2):
            model.save(longest)
        assert load(longest).generation == 2
        with pytest.raises(OSError, match="too long"):
            model.save(saved.with_name("x" * 300))
    with pytest.raises(CheckpointError, match="too long"):
        FastES.load("x" * 300)
    with pytest.raises(CheckpointError, match="too long"):
        FastES.load("x" * 5000)
    assert sorted(os.listdir(saved.parent)) == ["m.zip", longest.name, longest.name + ".bak"]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that takes no file, whoever asks")
def test_a_folder_that_takes_no_file_is_told_with_the_files_own_name() -> None:
    """And not with that of the temporary file beside it."""
    with FastES(lambda: Toy(), preset="default", n_workers=0) as model, pytest.raises(OSError, match=r"'/proc/model\.zip'$"):
        model.save("/proc/model")


def test_a_folder_that_is_not_there_is_an_oserror(saved: Path) -> None:
    with load(saved) as model, pytest.raises(OSError):
        model.save(saved / "below" / "a" / "file")


# --- damaged ---------------------------------------------------------------------------------------------------------


def _check_damaged(content: bytes, path: Path, intact: Checkpoint) -> bool:
    """True for CheckpointError, False for the same content; fails for anything else."""
    path.write_bytes(content)
    try:
        found = read_checkpoint(path)
        if set(found.arrays) != set(intact.arrays):
            load(path).close()
            pytest.fail(f"groups {set(found.arrays)} were loaded")
    except CheckpointError:
        return True
    assert_same_state(intact, found)
    assert found.data == intact.data
    return False


def test_garbage_in_the_middle_is_an_error(saved: Path, tmp_path: Path) -> None:
    content, intact = saved.read_bytes(), read_checkpoint(saved)
    with zipfile.ZipFile(saved) as archive:
        for info in archive.infolist():
            middle = info.header_offset + 30 + len(info.filename) + info.file_size // 2
            damaged = content[:middle] + bytes(b ^ 0xFF for b in content[middle : middle + 8]) + content[middle + 8 :]
            assert _check_damaged(damaged, tmp_path / "t.zip", intact), info.filename


# --- not ours --------------------------------------------------------------------------------------------------------


def _members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _write(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def _edited(saved: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    return edited(saved, saved.with_name("edited.zip"), change)


def test_missing_and_foreign_files_are_named(saved: Path, tmp_path: Path) -> None:
    cases = {
        "there is no checkpoint": tmp_path / "nothing",
        "folder": tmp_path,
        "no checkpoint|not a FastES": tmp_path / "text.zip",
        "data": _write(tmp_path / "empty.zip", {}),
        "not a FastES checkpoint": _write(
            tmp_path / "sb3.zip", {"data": b'{"policy_class": {}}', "pytorch_variables.pth": b""}
        ),
        "not a FastES": _write(tmp_path / "list.zip", {"data": b"[1, 2]"}),
        "damaged": _write(tmp_path / "json.zip", {"data": b"{"}),
    }
    (tmp_path / "text.zip").write_text("hello")
    for words, path in cases.items():
        with pytest.raises(CheckpointError, match=words) as caught:
            load(path)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize("backup", ["whole", "damaged", "folder", "missing"])
def test_whole_files_beside_a_damaged_one_are_named(backup: str, saved: Path, tmp_path: Path) -> None:
    """The longest trained one first, with commands that work."""
    run = tmp_path / "a run"
    run.mkdir()
    with _trained(1) as early, _trained(3) as late:
        early.save(run / "checkpoint.zip.bak")
        (run / "checkpoint.zip.bak.zip").rename(run / "checkpoint.zip.bak")
        late.save(run / "best.zip")
        steps = early.num_timesteps, late.num_timesteps
    if backup != "whole":
        (run / "checkpoint.zip.bak").unlink()
    if backup == "damaged":
        (run / "checkpoint.zip.bak").write_bytes(saved.read_bytes()[:-9])
    elif backup == "folder":
        (run / "checkpoint.zip.bak").mkdir()
    (run / "checkpoint.zip").write_bytes(saved.read_bytes()[:3000])
    with pytest.raises(CheckpointError) as error:
        load(run / "checkpoint.zip")
    found = f"best.zip ({steps[1]} timesteps)"
    found += f", checkpoint.zip.bak ({steps[0]} timesteps)" if backup == "whole" else ""
    best, damaged = f"'{run / 'best.zip'}'", f"'{run / 'checkpoint.zip'}'"
    assert str(error.value) == (
        f"{run / 'checkpoint.zip'}: the file is cut off, or is not a checkpoint. Whole files next to it: {found}. "
        f"To see what one does: fastes play {best}; to continue from it: cp {best} {damaged}"
    )


def test_a_newer_file_is_named(saved: Path) -> None:
    path = _edited(saved, lambda data: data.update(format_version=FORMAT_VERSION + 1))
    with pytest.raises(CheckpointError, match=f"version {FORMAT_VERSION + 1}"):
        load(path)


@pytest.mark.parametrize("name", ["data", "trainings.safetensors"])
def test_a_missing_member_is_named(name: str, saved: Path, tmp_path: Path) -> None:
    members = _members(saved)
    members.pop(name)
    with pytest.raises(CheckpointError, match=name.split(".")[0]):
        load(_write(tmp_path / "t.zip", members))


@pytest.mark.parametrize(
    "damage",
    ["longer", "shorter", "two dimensions", "float64", "int32", "nan", "inf", "renamed", "missing"],
)
@pytest.mark.parametrize("name", ["0.theta", "1.theta", "1.optimizer.m", "0.normalizer.mean", "1.pending.0.theta"])
def test_wrong_arrays_are_named(name: str, damage: str, saved_trials: Path, tmp_path: Path) -> None:
    members = _members(saved_trials)
    arrays = load_tensors(members["trainings.safetensors"])
    array = arrays.pop(name)
    changed: dict[str, Any] = {
        "longer": np.append(array, array[:1]),
        "shorter": array[:-1].copy(),
        "two dimensions": array.reshape(1, -1),
        "float64": array.astype(np.float64 if array.dtype != np.float64 else np.float32),
        "int32": array.astype(np.int32),
        "nan": np.full_like(array, np.nan),
        "inf": np.full_like(array, np.inf),
    }
    if damage == "renamed":
        arrays[name + "x"] = array
    elif damage != "missing":
        arrays[name] = changed[damage]
    with pytest.raises(CheckpointError, match=rf"{name}.* (checksum|missing)"):
        load(_write(tmp_path / "edited.zip", {**members, "trainings.safetensors": save_tensors(arrays)}))
    intact = read_checkpoint(saved_trials)
    write_checkpoint(tmp_path / "forged.zip", intact._replace(arrays={"trainings": arrays}))  # with true checksums
    said = "theta has" if name == "0.theta" and damage not in ("float64", "int32", "nan", "inf") else rf"trainings\.{name}"
    with pytest.raises(CheckpointError, match=said) as caught:
        load(tmp_path / "forged.zip")
    assert "checksum" not in str(caught.value)


def _paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where every value of nested dicts and lists lies."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, below in items for path in ((*at, key), *_paths(below, (*at, key)))]


_DEEP = json.loads("[" * 50 + "]" * 50)
_STRANGE = (None, "x", -1, 2**70, 10**400, 1.5, [], {}, [[]], _DEEP, {"a": 1}, True, 1e400, "function")


def test_edited_data_is_a_checkpoint_error_or_loads(saved: Path, tmp_path: Path) -> None:
    """No value of the JSON member leads to another exception than CheckpointError."""
    members, failures = _members(saved), []
    data = json.loads(members["data"])
    for path in _paths(data):
        if path[0] == "versions":
            continue
        for strange in ("delete", *_STRANGE):
            edited = copy.deepcopy(data)
            target = edited
            for key in path[:-1]:
                target = target[key]
            if strange == "delete":
                del target[path[-1]]
            else:
                target[path[-1]] = strange
            _write(tmp_path / "t.zip", {**members, "data": json.dumps(edited).encode()})
            try:
                load(tmp_path / "t.zip").close()
            except CheckpointError:
                pass
            except Exception as error:
                failures.append(f"{'.'.join(map(str, path))} = {strange!r}: {type(error).__name__}: {error}")
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize(
    "change",
    [
        {"shape": []},
        {"shape": [1]},
        {"shape": [3]},
        {"shape": [2, 2]},
        {"shape": [-2]},
        {"dtype": "int8"},
        {"dtype": "int64"},
        {"dtype": "complex128"},
        {"kind": "binary", "dtype": "int64"},
        {"kind": "categorical", "nvec": [1, 1], "start": [0, 0]},
        {"kind": "categorical", "nvec": [1, 1], "start": [0, 0], "dtype": "int64", "shape": []},
    ],
    ids=label,
)
def test_a_policy_that_contradicts_itself_is_refused(change: dict[str, Any], saved: Path) -> None:
    """The C core believes the head: a shape smaller than its size would be written past its end."""
    path = _edited(saved, lambda data: data["policy"]["head"].update(change))
    with pytest.raises(CheckpointError, match="policy"):
        load(path)


def test_negative_statistics_are_refused(saved: Path, tmp_path: Path) -> None:
    intact = read_checkpoint(saved)
    arrays = intact.arrays["trainings"]
    for name in ("0.normalizer.counts", "0.normalizer.squares", "0.pending.0.normalizer.counts"):
        changed = {**arrays, name: -np.abs(arrays[name]) - 1}
        write_checkpoint(tmp_path / "t", intact._replace(arrays={"trainings": changed}))
        with pytest.raises(CheckpointError, match=name):
            load(tmp_path / "t")


def test_an_observation_shape_of_lists_is_refused(saved: Path) -> None:
    """Numbers times a list make a list: sixteen threes before it would fill the memory."""
    path = _edited(saved, lambda data: data["policy"].update(obs_shape=[3] * 16 + [[2, 2]]))
    with pytest.raises(CheckpointError, match=r"'policy\.obs_shape' is"):
        load(path)


def test_a_noise_table_smaller_than_the_policy_is_refused(saved: Path) -> None:
    path = _edited(saved, lambda data: data["settings"].update(noise_table_size=1))
    with pytest.raises(CheckpointError, match="noise_table_size 1 for"):
        load(path)
    load(path, noise_table_size=1000).close()


def test_a_setting_newer_than_the_file_has_its_default(saved: Path) -> None:
    with load(_edited(saved, lambda data: data["settings"].pop("obs_clip"))) as model:
        assert model.settings.obs_clip == Settings().obs_clip


def test_a_setting_that_is_unknown_is_refused(saved: Path) -> None:
    path = _edited(saved, lambda data: data["settings"].update(warp=9))
    with pytest.raises(CheckpointError, match=r"newer FastES: \['warp'\]"):
        load(path)


# --- no code ---------------------------------------------------------------------------------------------------------


class Bomb:
    def __reduce__(self) -> Any:
        return os.mkdir, ("exploded",)


def test_pickles_in_a_checkpoint_are_not_executed(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    payload = pickle.dumps(Bomb())
    members = _members(saved)
    for name in ("data", "trainings.safetensors", "extra.pkl", "policy.pth"):
        with_bomb = {**members, name: payload}
        with contextlib.suppress(CheckpointError):
            load(_write(tmp_path / "t.zip", with_bomb)).close()
    (tmp_path / "raw.zip").write_bytes(payload)
    with pytest.raises(CheckpointError):
        load(tmp_path / "raw.zip")
    assert not (tmp_path / "exploded").exists()
    pickle.loads(payload)
    assert (tmp_path / "exploded").exists(), "the payload works where it is unpickled"


READ_CHECKPOINTS = ("models/checkpointing", "agent", "runs/run_folder", "runs/overview", "runs/run_info")


def test_no_module_that_reads_checkpoints_unpickles() -> None:
    package = Path(str(__import__("fastes").__file__)).parent
    read = [*(package / "checkpoints").glob("*.py"), *(package / f"{name}.py" for name in READ_CHECKPOINTS)]
    assert len(read) > len(READ_CHECKPOINTS) + 3
    for path in read:
        assert "pickle" not in path.read_text(), path


@pytest.mark.parametrize(
    "env",
    [
        {"id": "Toy-v0", "kwargs": {}, "entry_point": "hostile:explode"},
        {"id": "Toy-v0", "kwargs": {"entry_point": "hostile:explode"}},
        {"id": "hostile:Explode-v0", "kwargs": {}},
        {"id": "Explode-v0", "kwargs": {}, "entry_point": "hostile:explode"},
        {"id": "Toy-v0", "kwargs": {}, "additional_wrappers": [{"name": "x", "entry_point": "hostile:explode", "kwargs": {}}]},
        {"id": "Toy-v0", "kwargs": {"additional_wrappers": [{"entry_point": "hostile:explode"}]}},
        {"id": "Toy-v0", "kwargs": {"vector_entry_point": "hostile:explode", "id": "hostile:Explode-v0"}},
    ],
)
def test_the_environment_of_a_checkpoint_cannot_name_code(
    env: dict[str, Any], saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hostile.py").write_text("import os\nos.mkdir('exploded')\ndef explode(*a, **k): pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    path = _edited(saved, lambda data: data.update(env=env))
    with contextlib.suppress(CheckpointError, ValueError, TypeError), load(path) as model:
        model.predict(np.zeros(3))
        model.evaluate(1)
    assert not (tmp_path / "exploded").exists()


def test_a_factory_is_asked_for(tmp_path: Path) -> None:
    with FastES(partial(Toy, length=9), preset="default", n_workers=0, **SETTINGS) as model:
        learn(model, 2)
        model.save(tmp_path / "m")
        expected, _ = model.predict(np.ones(3), deterministic=True)
    with load(tmp_path / "m") as again:
        assert (again.predict(np.ones(3), deterministic=True)[0] == expected).all()
        with pytest.raises(ValueError, match="env=") as caught:
            again.learn(100)
        assert "factory" in str(caught.value)
    with load(tmp_path / "m", env=partial(Toy, length=9)) as again:
        learn(again, 3)


def test_env_kwargs_come_back(tmp_path: Path) -> None:
    with FastES("Toy-v0", preset="default", env_kwargs={"length": 8}, n_workers=0, **SETTINGS) as model:
        model.save(tmp_path / "m")
    with load(tmp_path / "m") as again:
        assert set(again.evaluate(5).lengths) == {8}


class Keeps(Toy):
    """Keeps what it is given."""

    def __init__(self, goal: Any = None) -> None:
        super().__init__()
        self.goal = goal


gymnasium.register("Keeps-v0", entry_point=Keeps)


@pytest.mark.parametrize(
    "goal", [(2, 0), [2, 0], {"way": [(1, (2, 3)), [4]], "to": ()}, ((), [(5,)])], ids=["tuple", "list", "dict", "nested"]
)
def test_tuples_come_back_as_tuples(goal: Any, tmp_path: Path) -> None:
    with FastES("Keeps-v0", preset="default", env_kwargs={"goal": goal}, n_workers=0, **SETTINGS) as model:
        model.save(tmp_path / "m")
    with load(tmp_path / "m") as again:
        again.save(tmp_path / "again")
        (found,) = again.get_env().get_attr("goal")
    assert repr(found) == repr(goal)
    with load(tmp_path / "again") as third:
        assert repr(third.get_env().get_attr("goal")[0]) == repr(goal)


@pytest.mark.parametrize(
    "ways", [3, "goal", [[]], [["goal"]], [["goal", "x"]], [["goal", 0, 1]], [["other"]], [[["goal"]]], None]
)
def test_tuples_that_are_not_there_are_refused(ways: Any, tmp_path: Path) -> None:
    with FastES("Keeps-v0", preset="default", env_kwargs={"goal": [2, 0, 5.5]}, n_workers=0, **SETTINGS) as model:
        model.save(tmp_path / "m.zip")
    path = _edited(tmp_path / "m.zip", lambda data: data["env"].update(tuples=ways))
    if ways == [["goal"]]:
        assert load(path).get_env().get_attr("goal") == [(2, 0, 5.5)]
    else:
        with pytest.raises((ValueError, CheckpointError), match=r"no such tuples in its arguments: .*pass env=|'env.tuples'"):
            load(path).evaluate(1)


def test_an_argument_too_large_for_a_file_is_asked_for(tmp_path: Path) -> None:
    prices = np.random.default_rng(0).normal(size=20_000).tolist()
    with FastES("Keeps-v0", preset="default", env_kwargs={"goal": prices}, n_workers=0, **SETTINGS) as model:
        expected = model.evaluate(2).returns
        model.save(tmp_path / "m")
    with load(tmp_path / "m") as again, pytest.raises(ValueError, match=r"needs goal .*env_kwargs=\{'goal': ...\}") as told:
        again.evaluate(2)
    assert len(str(told.value)) < 1000
    with load(tmp_path / "m", env="Keeps-v0", env_kwargs={"goal": prices}) as again:
        assert (again.evaluate(2).returns == expected).all()


def test_data_that_no_reader_takes_is_not_written(saved: Path) -> None:
    before = saved.read_bytes()
    with load(saved) as model:
        for name in "abcde":
            setattr(model, f"log_{name}", [0.1] * 150_000)
        with pytest.raises(ValueError, match=r"bytes in addition to the arrays: a checkpoint holds 4194304 .*'attributes' \d+"):
            model.save(saved)
    assert saved.read_bytes() == before


class Parts(Toy):
    """Shows an observation of its space, whatever that is."""

    def __init__(self, space: Any) -> None:
        super().__init__()
        self.observation_space = space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        _, *rest = super().step(action)
        return self.observation_space.sample(), *rest


def _box(size: int, high: float = 1.0) -> spaces.Box:
    return spaces.Box(0.0, high, (size,))


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ({"a": _box(2), "b": _box(3)}, {"b": _box(3), "c": _box(2)}, "Dict('b': Box(3), 'c': Box(2)), the policy was made for"),
        ({"a": _box(2), "b": _box(3)}, {"a": _box(3), "b": _box(2)}, "Dict('a': Box(3), 'b': Box(2)), the policy was made for"),
        ((_box(2), spaces.Discrete(3)), (spaces.Discrete(3), _box(2)), "Tuple(Discrete(3), Box(2)), the policy was made for"),
        (spaces.MultiDiscrete([3, 3]), spaces.MultiDiscrete([2, 4]), "MultiDiscrete([2, 4]), the policy was made for"),
        (spaces.Discrete(3), spaces.Discrete(3, start=1), "Discrete(3, start=1), the policy was made for Discrete(3)"),
    ],
    ids=["key", "sizes", "order", "choices", "start"],
)
def test_other_parts_of_as_many_values_are_refused(first: Any, second: Any, said: str, tmp_path: Path) -> None:
    """They would reach other weights than those that were trained on them."""
    makers = [
        partial(Parts, spaces.Dict(each) if isinstance(each, dict) else spaces.Tuple(each) if isinstance(each, tuple) else each)
        for each in (first, second)
    ]
    with FastES(makers[0], preset="default", n_workers=0, **SETTINGS) as model:
        learn(model, 1)
        model.save(tmp_path / "m")
        model.set_env(makers[0])
        with pytest.raises(CheckpointMismatch, match=re.escape(said)):
            model.set_env(makers[1])
    with pytest.raises(CheckpointMismatch, match=re.escape(said)):
        load(tmp_path / "m", env=makers[1])
    with load(tmp_path / "m", env=makers[0]) as again:
        learn(again, 2)
    older = _edited(tmp_path / "m.zip", lambda data: data["policy"].pop("parts"))
    with load(older, env=makers[1]) as again:
        learn(again, 2)


class OwnBox(spaces.Box):
    """A space of a user's class."""


def test_what_changes_no_value_may_differ(tmp_path: Path) -> None:
    with FastES(partial(Parts, spaces.Dict(a=_box(2))), preset="default", n_workers=0, **SETTINGS) as model:
        model.save(tmp_path / "m")
    for part in (_box(2, high=9.0), OwnBox(0.0, 1.0, (2,)), spaces.Box(0.0, 1.0, (1, 2))):
        load(tmp_path / "m", env=partial(Parts, spaces.Dict(a=part))).close()


def test_a_time_limit_comes_back(tmp_path: Path) -> None:
    limited = gymnasium.wrappers.TimeLimit(gymnasium.make("Toy-v0"), 5)
    with FastES(limited, preset="default", n_workers=0, **SETTINGS) as model:
        assert set(model.evaluate(5).lengths) == {5}
        model.save(tmp_path / "m")
    with load(tmp_path / "m") as again:
        assert set(again.evaluate(5).lengths) == {5}
    limited.close()


def test_an_environment_with_wrappers_is_asked_for(tmp_path: Path) -> None:
    wrapped = gymnasium.wrappers.TransformReward(gymnasium.make("Toy-v0"), lambda _: 1.0)
    with FastES(wrapped, preset="default", n_workers=0, **SETTINGS) as model:
        expected = model.evaluate(5)
        assert (expected.returns == expected.lengths).all()
        model.save(tmp_path / "m")
    with load(tmp_path / "m") as again, pytest.raises(ValueError, match="env="):
        again.evaluate(5)
    with load(tmp_path / "m", env=wrapped) as again:
        assert (again.evaluate(5).returns == expected.returns).all()
    wrapped.close()


def test_a_written_checkpoint_is_what_was_given(tmp_path: Path) -> None:
    with _trained() as model:
        state = model.snapshot()
    write_checkpoint(tmp_path / "m", state)
    assert_same_state(state, read_checkpoint(tmp_path / "m"))


def test_evaluation_needs_no_room_for_training(saved: Path) -> None:
    """A file may ask for a table of 256 GB and a million candidates; who only plays it back allocates nothing of that."""
    path = _edited(saved, lambda data: data["settings"].update(noise_table_size=2**36, population_size=2**24))
    for n_workers in (0, 1):
        with FastES.load(path, n_workers=n_workers) as model:
            assert len(model.evaluate(2).returns) == 2
    with load(saved) as model:  # and a model that was evaluated first trains as any other
        model.evaluate(2)
        learn(model, 4)
        expected = model.snapshot()
    with load(saved) as model:
        learn(model, 4)
        assert_same_state(expected, model.snapshot())
