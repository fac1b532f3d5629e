"""Risk: what an environment says in info is lost on its way to callbacks, ep_info_buffer and Monitor files."""

from __future__ import annotations

import contextlib
import csv
import functools
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from callbacks import Counter
from envs_for_tests import Toy
from faults import SETTINGS, caught_warnings, seed_of
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from processes import sent_by_value
from training import learn

from fastes import FastES
from fastes.reports.monitor_files import MonitorFile
from fastes.rollout.last_infos import LEFT_OUT, read_info, scalars_of, write_info

sent_by_value(__name__)


class Telling(Toy):
    """Says in info where it is, in many kinds; at its end alone, how far it came."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, _ = super().step(action)
        info = {
            "place": np.float64(self.position[0]),
            "seed": -1 if self.env_seed is None else self.env_seed,
            "near": np.bool_(abs(self.position[0]) < 0.3),
            "word": "left, or\nso" if self.position[0] < 0 else "right",
            "array": self.position.copy(),
            "zero_d": np.array(self.steps),
            "nan": float("nan"),
        }
        if terminated:
            info["far"] = float(np.abs(self.position).max())
        return obs, reward, terminated, truncated, info


SCALARS = ["TimeLimit.truncated", "far", "nan", "near", "place", "seed", "word", "zero_d"]


class Ends(Counter):
    """Notes the infos of steps that end an episode; those of others are empty."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[dict[str, Any]] = []

    def on_step(self) -> bool:
        for done, info in zip(self.locals["dones"], self.locals["infos"], strict=True):
            assert done or not info
            self.told += [info] * bool(done)
        return True


def _learn_with(model: FastES, callback: Any, generations: int = 2) -> None:
    model.learn(10**6, [callback, lambda _, record: record.generation < generations])


def _told(env: Any, n_workers: int | None = 0, **changes: Any) -> list[dict[str, Any]]:
    """What callbacks see beside 'episode', with sorted keys."""
    callback = Ends()
    with FastES(env, preset="default", n_workers=n_workers, **{**SETTINGS, **changes}) as model:
        _learn_with(model, callback)
        assert len(callback.told) == model.num_episodes
    return [{key: value for key, value in sorted(info.items()) if key != "episode"} for info in callback.told]


def test_callbacks_see_the_scalars_of_the_last_step() -> None:
    told = _told(Telling)
    assert [sorted(info) for info in told] == [SCALARS] * len(told)
    assert [info["seed"] for info in told[:8]] == [seed_of(0, pair) for pair in range(4) for _ in range(2)]
    assert {type(info["near"]) for info in told} == {bool}
    assert {info["word"] for info in told} == {"left, or\nso", "right"}
    assert all((info["near"]) == (abs(info["place"]) < 0.3) for info in told)


def test_the_same_infos_for_any_number_of_workers() -> None:
    expected = str(_told(Telling, 0, episodes_per_candidate=3))
    assert str(_told(Telling, 2, episodes_per_candidate=3)) == expected
    for mode in AutoresetMode:
        env = SyncVectorEnv([Telling] * 3, autoreset_mode=mode)
        assert str(_told(env, None, episodes_per_candidate=3)) == expected


@pytest.mark.parametrize(
    ("limits", "expected"),
    [({}, {False}), ({"max_episode_steps": 3}, {True}), ({"limit": 4}, {True})],
    ids=["ended", "truncated", "cut"],
)
def test_infos_tell_whether_a_limit_ended_the_episode(limits: dict[str, int], expected: set[bool]) -> None:
    """As SB3's VecEnvs do: of the environment, or of FastES."""
    settings = {"episode_cap": "mean", "episode_cap_start": limits["limit"]} if "limit" in limits else {}

    def make() -> Any:
        steps = limits.get("max_episode_steps")
        return gymnasium.wrappers.TimeLimit(Telling(), steps) if steps else Telling()

    vector_env = SyncVectorEnv([make] * 3)
    for env, n_workers in ((make, 0), (make, 1), (vector_env, None)):
        told = _told(env, n_workers, **settings)
        assert {info["TimeLimit.truncated"] for info in told[:4]} == expected


def test_infos_from_processes_and_lists() -> None:
    expected = str(_told(Telling))
    with contextlib.closing(AsyncVectorEnv([Telling] * 3)) as env:
        assert str(_told(env, None)) == expected
    assert str(_told(gymnasium.wrappers.vector.DictInfoToList(SyncVectorEnv([Telling] * 3)), None)) == expected


def test_a_step_that_is_not_told_says_so() -> None:
    def read(_locals: dict[str, Any], _globals: dict[str, Any]) -> None:
        _locals["infos"][0]["place"]

    model = FastES(Telling, preset="default", n_workers=0, **SETTINGS)
    with pytest.raises(KeyError, match=r"'place' is not in this info: .* Look where dones is true"):
        model.learn(10, read)
    model.close()


def test_keywords_are_in_the_buffer_and_cost_no_bit() -> None:
    with FastES(Telling, preset="default", n_workers=0, **SETTINGS) as model:
        learn(model, 2)
        assert model.last_infos == []
        expected = model.theta.copy()
        assert set(model.ep_info_buffer[0]) == {"r", "l", "t"}
    for n_workers in (0, 2):
        with FastES(Telling, preset="default", n_workers=n_workers, info_keywords=("far", "seed"), **SETTINGS) as model:
            learn(model, 2)
            assert (model.theta == expected).all()
            assert {frozenset(info) for info in model.ep_info_buffer} == {frozenset(("r", "l", "t", "far", "seed"))}
            assert [info["seed"] for info in list(model.ep_info_buffer)[:2]] == [seed_of(0, 0)] * 2
            assert len(model.last_infos) == len(model.last_episodes)


def test_a_pool_that_runs_without_infos_is_started_anew() -> None:
    with FastES(Telling, preset="default", n_workers=1, **SETTINGS) as model:
        learn(model, 1)
        callback = Ends()
        model.learn(1, callback, reset_num_timesteps=False)
        assert all("far" in info for info in callback.told)
        theta = model.theta.copy()
    with FastES(Telling, preset="default", n_workers=0, **SETTINGS) as model:
        learn(model, 2)
        assert (model.theta == theta).all()


@pytest.mark.parametrize("env", [Telling, lambda: SyncVectorEnv([Telling] * 2)], ids=["env", "vector"])
def test_warnings_of_infos_point_at_the_line_that_called_learn(env: Any) -> None:
    given = env if env is Telling else env()
    workers = 0 if env is Telling else None
    with (
        FastES(given, preset="default", n_workers=workers, info_keywords=["farr"], **SETTINGS) as model,
        pytest.warns(match="farr") as caught,
    ):
        model.learn(1)
    assert [each.filename for each in caught if "farr" in str(each.message)] == [__file__]


def test_a_keyword_that_no_info_has_is_warned_of_once() -> None:
    with (
        caught_warnings() as messages,
        FastES(Telling, preset="default", n_workers=0, info_keywords=["farr"], **SETTINGS) as model,
    ):
        learn(model, 3)
    (message,) = (message for message in messages if "farr" in message)
    assert "'far'" in message
    with pytest.raises(TypeError, match=r"info_keywords = 'far': expected names"):
        FastES(Telling, preset="default", info_keywords="far", **SETTINGS)


@pytest.mark.filterwarnings("ignore:ToyError")
def test_an_episode_that_failed_has_no_info_of_an_earlier_one() -> None:
    env = functools.partial(Telling, fail_seeds=[seed_of(1, 2)])
    with FastES(env, preset="default", n_workers=0, on_env_error="penalise", info_keywords=("seed",), **SETTINGS) as model:
        learn(model, 2)
        assert [bool(info) for info in model.last_infos] == [True] * 4 + [False] * 2 + [True] * 2


def test_what_has_no_room_is_counted_and_keywords_come_first() -> None:
    info = {f"key {number}": number for number in range(100)}
    room = np.full(200, 7, np.uint8)
    write_info(room, info, ("key 99", "absent"), False)
    found = read_info(room)
    assert found["key 99"] == 99
    assert found.pop(LEFT_OUT) == 101 - len(found)
    assert found.items() <= {**info, "TimeLimit.truncated": False}.items()
    write_info(room, {"a": 1}, (), True)
    assert read_info(room) == {"TimeLimit.truncated": True, "a": 1}
    write_info(room, None, (), False)
    assert read_info(room) == {"TimeLimit.truncated": False}

    class Talkative(Toy):
        def step(self, action: Any) -> Any:
            *rest, _ = super().step(action)
            return *rest, {f"key {number}": "x" * 100 for number in range(50)}

    with (
        caught_warnings() as messages,
        FastES(Talkative, preset="default", n_workers=0, info_keywords=["key 49"], **SETTINGS) as model,
    ):
        learn(model, 2)
        assert model.ep_info_buffer[0]["key 49"] == "x" * 100
    assert sum("had no room in 2048 bytes" in message for message in messages) == 1


def test_scalars_are_kept_as_they_are() -> None:
    kept = {"float": 0.1, "int": 2**62, "flag": True, "word": "ä", "infinite": -np.inf, "small": 5e-324}
    room = np.zeros(400, np.uint8)
    given = {**kept, "half": np.float32(0.1), "none": None, "list": [1], "dict": {"a": 1}, 3: 4, "row": np.zeros(1)}
    write_info(room, {**given, "long": np.longdouble(0.5)}, (), False)
    assert read_info(room) == {"TimeLimit.truncated": False, **kept, "half": float(np.float32(0.1)), "long": 0.5}
    assert scalars_of({"episode": {"r": 1.0, "l": 2, "t": 3.0, "far": 4.0}}) == {"episode": {"far": 4.0}}
    assert scalars_of("no mapping") == {}


def _rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        file.readline()
        return list(csv.DictReader(file))


def test_a_monitor_file_has_the_keywords_and_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "log.monitor.csv"
    with FastES(Telling, preset="default", n_workers=0, info_keywords=("far", "word"), **SETTINGS) as model:
        model.learn(10**6, [MonitorFile(file), lambda _, record: record.generation < 2])
        infos = list(model.last_infos)
        model.save(tmp_path / "model")
        rows = _rows(file)
        assert list(rows[0]) == ["r", "l", "t", "far", "word"]
        assert [float(row["far"]) for row in rows[-8:]] == [info["far"] for info in infos]
        assert {row["word"] for row in rows} == {"left, or so", "right"}
    with FastES.load(tmp_path / "model", env=Telling, n_workers=0, info_keywords=("far", "word")) as model:
        model.learn(1, MonitorFile(file), reset_num_timesteps=False)
        assert _rows(file)[:16] == rows
        assert len(_rows(file)) == 24
    model = FastES.load(tmp_path / "model", env=Telling, n_workers=0)
    with pytest.raises(ValueError, match="with the columns r,l,t to continue"):
        model.learn(1, MonitorFile(file), reset_num_timesteps=False)
    model.close()


# --- SB3's Monitor ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_workers", [0, 2])
def test_the_keywords_of_sb3s_monitor(n_workers: int, tmp_path: Path) -> None:
    monitor = pytest.importorskip("stable_baselines3.common.monitor")
    env = monitor.Monitor(Telling(), str(tmp_path / "log"), info_keywords=("far", "near"))
    callback = Ends()
    with caught_warnings() as messages, FastES(env, preset="default", n_workers=n_workers, **SETTINGS) as model:
        _learn_with(model, callback)
        told = callback.told
        assert all(info["episode"]["far"] == info["far"] for info in told)
        assert [info["far"] for info in model.ep_info_buffer] == [info["far"] for info in told]
    env.close()
    assert not any("keywords" in message for message in messages)
    rows = _rows(tmp_path / "log.monitor.csv")
    assert [(float(row["far"]), row["near"]) for row in rows] == [(info["far"], str(info["near"])) for info in told]
    pytest.importorskip("pandas")
    far = pytest.approx([info["far"] for info in told], rel=1e-12)  # pandas may round the last digit
    assert monitor.load_results(str(tmp_path))["far"].tolist() == far


def test_the_keywords_of_a_monitor_that_a_function_makes(tmp_path: Path) -> None:
    monitor = pytest.importorskip("stable_baselines3.common.monitor")
    make = functools.partial(_monitored, monitor.Monitor)
    with FastES(make, preset="default", n_workers=0, **SETTINGS) as model:
        learn(model, 1)
        assert {frozenset(info) for info in model.ep_info_buffer} == {frozenset(("r", "l", "t", "far"))}
        model.save(tmp_path / "model")
    with FastES.load(tmp_path / "model", env=make, n_workers=0) as model:
        learn(model, 2)
        assert "far" in model.ep_info_buffer[0]


def _monitored(kind: Any) -> Any:
    return kind(Telling(), info_keywords=("far",))


def test_monitors_in_a_vecenv() -> None:
    vec = pytest.importorskip("stable_baselines3.common.vec_env")
    monitor = pytest.importorskip("stable_baselines3.common.monitor")
    buffers = []
    for env in (
        vec.DummyVecEnv([functools.partial(_monitored, monitor.Monitor)] * 3),
        vec.VecMonitor(vec.DummyVecEnv([Telling] * 3), info_keywords=("far",)),
    ):
        with FastES(env, preset="default", **SETTINGS) as model:
            learn(model, 2)
            buffers.append([info["far"] for info in model.ep_info_buffer])
    with FastES(Telling, preset="default", n_workers=0, info_keywords=("far",), **SETTINGS) as model:
        learn(model, 2)
        expected = [info["far"] for info in model.ep_info_buffer]
    assert buffers == [expected] * 2


def test_keywords_of_a_reset_are_warned_of(tmp_path: Path) -> None:
    monitor = pytest.importorskip("stable_baselines3.common.monitor")
    env = monitor.Monitor(Telling(), str(tmp_path / "log"), reset_keywords=("level",))
    with caught_warnings() as messages, FastES(env, preset="default", n_workers=0, **SETTINGS) as model:
        learn(model, 1)
    env.close()
    assert any("reset_keywords=...) has 'level'" in message for message in messages)
    assert len(_rows(tmp_path / "log.monitor.csv")) == 8
