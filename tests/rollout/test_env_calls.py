"""Calls on `model.get_env()`: every environment that plays is given them, at the same moment, whoever plays it."""

from __future__ import annotations

import copy
import io
import json
import pickle
import time
import zipfile
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest
from calls_on_envs import CALLS, SETTINGS, Curriculum, Levels, Wrapped, make
from faults import caught_warnings
from training import Result, assert_same, assert_same_state, without_times

from fastes import CheckpointError, FastES, WorkerError
from fastes.rollout.env_calls import CallRecords, EnvCalls, made_on
from fastes.training.record import Record


def train(n_workers: int, kills: tuple[int, ...] = (), generations: int = 8) -> tuple[Result, Curriculum]:
    curriculum = Curriculum(CALLS, kills)
    with FastES(make, n_workers=n_workers, **SETTINGS) as model:
        model.learn(24 * generations, curriculum)
        return Result(model.snapshot(), curriculum.records), curriculum


def test_every_worker_is_given_the_calls_at_the_same_moment() -> None:
    """Candidates from the next generation on; an evaluation plays as its theta's candidates did, however late it is told."""
    first, curriculum = train(0)
    rounded = [round(each / 3) for each in curriculum.returns]
    expected = [0, 20, 1000040 + 1000, 1101040, 1101040, 1002070, 0, 0]
    assert [abs(r - e) <= 1 for r, e in zip(rounded, expected, strict=True)] == [True] * 8, rounded
    told = [(record.eval_generation, round(record.eval_return / 3)) for record in first.records if record.eval_generation]
    assert [abs(value - expected[of - 1]) <= 1 for of, value in told] == [True] * len(told), told
    assert len(told) >= 6
    for n_workers in (1, 2):
        again, _ = train(n_workers)
        assert_same(first, again)


@pytest.mark.parametrize("n_workers", [0, 2])
def test_each_trial_is_given_what_was_called_before_its_generation_began(n_workers: int) -> None:
    """A trial's next generation begins when its last one is told of, however many others play then."""
    seen: list[tuple[int, int, int]] = []

    def note(model: Any, record: Record) -> None:
        seen.append((record.trial, record.generation, round(model.last_episodes[0][0] / 30)))
        model.get_env().set_attr("level", 10 * record.generation + record.trial)

    with FastES(make, n_workers=n_workers, trials=3, trials_fraction=1.0, **SETTINGS) as model:
        model.learn(24 * 9, note)
        assert model.evaluate(1).mean == pytest.approx(3 * 330, abs=3), "the last call is that of the third trial"
    assert seen == [
        *((1, 1, 0), (2, 1, 0), (3, 1, 0)),
        *((1, 2, 11), (2, 2, 12), (3, 2, 13)),
        *((1, 3, 21), (2, 3, 22), (3, 3, 23)),
    ]


def test_a_worker_in_the_place_of_a_killed_one_is_given_them_too() -> None:
    first, _ = train(0)
    with pytest.warns(RuntimeWarning, match="died"):
        again, _ = train(2, kills=(2, 5))
    assert [{**without_times(record), "jobs_rerun": 0} for record in first.records] == [
        {**without_times(record), "jobs_rerun": 0} for record in again.records
    ]
    assert_same_state(first.state, again.state)


@pytest.mark.parametrize("n_workers", [0, 1])
def test_a_training_that_goes_on_elsewhere_has_them(n_workers: int, tmp_path: Path) -> None:
    """A file, a copy and a pickle, with an evaluation pending that began before the last calls."""
    calls = {
        1: lambda envs: envs.env_method("raise_by", 1.0),
        3: lambda envs: envs.set_attr("level", 5),
        4: lambda envs: envs.env_method("raise_by", 0.5),
    }
    with FastES(make, n_workers=n_workers, **SETTINGS) as model:
        kept: list[Any] = []

        def keep(of: Any, record: Record) -> None:
            if record.generation == 4:
                of.save(tmp_path / "model")
                kept.extend([copy.deepcopy(of), pickle.loads(pickle.dumps(of))])

        whole = Curriculum(calls)
        model.learn(24 * 7, [whole, keep])
        others = [FastES.load(tmp_path / "model", make, n_workers), *kept]
        for other in others:
            with other:
                assert other.env.unwrapped.level == model.env.unwrapped.level == 5.5
                rest = Curriculum({})
                other.learn(24 * 3, rest, reset_num_timesteps=False)
                assert [record.eval_return for record in rest.records] == [record.eval_return for record in whole.records[4:]]
                assert_same_state(model.snapshot(), other.snapshot())
                assert other.evaluate(3).mean == model.evaluate(3).mean


def test_a_call_after_loading_does_not_reach_an_evaluation_that_waits(tmp_path: Path) -> None:
    """Its theta's candidates played before that call, and the last call in the file is of the same attribute."""
    waiting = {1: lambda envs: envs.set_attr("level", 5)}
    with FastES(make, n_workers=0, **SETTINGS) as model:
        model.learn(24 * 4, [Curriculum(waiting), lambda of, record: record.generation < 3 or of.save(tmp_path / "model")])
    expected = Curriculum({})
    with FastES.load(tmp_path / "model", make, 0) as model:
        model.learn(24, expected, reset_num_timesteps=False)
    changed = Curriculum({})
    with FastES.load(tmp_path / "model", make, 0) as model:
        model.get_env().set_attr("level", 7)
        model.learn(24, changed, reset_num_timesteps=False)
    assert changed.records[0].eval_return == expected.records[0].eval_return
    assert changed.returns[0] > expected.returns[0]


def test_what_a_file_cannot_hold_is_said_and_a_copy_has_it(tmp_path: Path) -> None:
    with FastES(make, n_workers=0, **SETTINGS) as model:
        model.get_env().set_attr("weights", np.ones(2))
        model.get_env().set_attr("level", 3)
        model.save(tmp_path / "model")
        with copy.deepcopy(model) as other:
            assert other.env.unwrapped.weights.tolist() == [1.0, 1.0]
        with pytest.warns(UserWarning, match=r"does not hold set_attr\('weights', array"):
            loaded = FastES.load(tmp_path / "model", make, 0)
        with loaded:
            assert loaded.env.unwrapped.level == 3
            assert loaded.env.unwrapped.weights.tolist() == [0.0, 0.0]


def test_calls_of_private_names_are_left_out_of_a_file(tmp_path: Path) -> None:
    """As of TimeLimit's `_max_episode_steps`: a file that named one would be refused."""

    def limited() -> Any:
        return gymnasium.wrappers.TimeLimit(make(), 3)

    with FastES(limited, n_workers=0, **SETTINGS) as model:
        model.get_env().set_attr("_max_episode_steps", 2)
        model.get_env().env_method("_keep", 1)
        model.get_env().set_attr("level", 3)
        assert model.evaluate(1).lengths == [2]
        model.save(tmp_path / "model")
    with pytest.warns(UserWarning, match=r"does not hold set_attr\('_max_episode_steps', 2\), env_method\('_keep', 1\), which"):
        loaded = FastES.load(tmp_path / "model", limited, 0)
    with loaded:
        assert loaded.env.unwrapped.level == 3
        assert loaded.evaluate(1).lengths == [3]


def test_more_calls_than_a_file_has_room_for_are_left_out_together(tmp_path: Path) -> None:
    """As of a callback that calls a method at each step: the training is saved all the same."""
    with FastES(make, n_workers=0, **SETTINGS) as model:
        model.learn(24)
        model.get_env().env_method("raise_by", 2)
        model.training.env_calls.restore(model.training.env_calls.made * 50_000)
        model.save(tmp_path / "many")
        with pytest.warns(UserWarning, match=r"does not hold 50,000 calls, .* the last one env_method\('raise_by', 2\), which"):
            FastES.load(tmp_path / "many", make, 0).close()
        model.get_env().forget_calls()
        model.save(tmp_path / "none")
        with caught_warnings() as messages, FastES.load(tmp_path / "none", make, 0) as loaded:
            assert loaded.evaluate(2).returns.tolist() == model.evaluate(2).returns.tolist()
        assert messages == []
        model.get_env().set_attr("level", 7)
        model.save(tmp_path / "later")
        with caught_warnings() as messages, FastES.load(tmp_path / "later", make, 0) as loaded:
            assert loaded.env.unwrapped.level == 7
        assert messages == []


@pytest.mark.parametrize("forgets", [False, True])
def test_a_copy_plays_a_pending_evaluation_after_its_own_calls(forgets: bool) -> None:
    """Also if they are too many for a file, and if others were forgotten before."""
    with FastES(make, n_workers=0, **{**SETTINGS, "eval_lag": 2}) as model:
        for _ in range(1 + forgets):
            model.get_env().forget_calls()
            model.get_env().env_method("raise_by", 1)
            made = model.training.env_calls.made
            model.training.env_calls.restore((*made, *(made[-1:] * 30_000)))
        for _ in range(4):
            model.learn(1, reset_num_timesteps=False)
        assert model.training.pending
        model.get_env().env_method("raise_by", 2)
        with copy.deepcopy(model) as copied:
            assert len(copied.training.env_calls) == 30_002
            for own, its in zip(model.training.pending, copied.training.pending, strict=True):
                assert its.calls == 30_001
                assert copied.training.env_calls.made[: its.calls] == model.training.env_calls.made[: own.calls][-30_001:]


def test_calls_before_one_that_forgets_are_in_no_file(tmp_path: Path) -> None:
    def change(model: FastES, record: Any) -> None:
        model.get_env().forget_calls()
        model.get_env().set_attr("level", record.generation)

    with FastES(make, n_workers=0, **{**SETTINGS, "eval_lag": 1}) as whole:
        whole.learn(200, change)
        whole.save(tmp_path / "model")
        assert len(whole.snapshot().data["env_calls"]) < 8 < len(whole.training.env_calls)
        with FastES.load(tmp_path / "model", make, 1) as again:
            for model in (whole, again):
                model.learn(50, change, reset_num_timesteps=False)
            assert_same_state(whole.snapshot(), again.snapshot())


def test_calls_that_a_pending_evaluation_needs_are_not_left_out_in_silence(tmp_path: Path) -> None:
    with FastES(make, n_workers=0, **{**SETTINGS, "eval_lag": 2}) as model:
        model.get_env().env_method("raise_by", 2)
        model.training.env_calls.restore(model.training.env_calls.made * 50_000)
        model.learn(1)
        assert model.training.pending
        model.get_env().forget_calls()
        model.save(tmp_path / "model")
    with pytest.warns(UserWarning, match="does not hold 50,001 calls"):
        FastES.load(tmp_path / "model", make, 0).close()


@pytest.mark.parametrize(("length", "count"), [(300_000, 1), (100_000, 3)])
def test_long_calls_and_many_private_ones_are_named_in_short(length: int, count: int, tmp_path: Path) -> None:
    with FastES(make, n_workers=0, **SETTINGS) as model:
        model.get_env().set_attr("level", 3)
        for _ in range(count):
            model.get_env().set_attr("weights", [1.5] * length)
            model.get_env().set_attr("other", 1)
        for value in range(100):
            model.get_env().env_method("_keep", value)
        model.save(tmp_path / "model")
    with caught_warnings() as messages, FastES.load(tmp_path / "model", make, 0) as loaded:
        assert loaded.env.unwrapped.level == 3
    (message,) = messages
    assert "set_attr('weights', [1.5, 1.5, " in message
    assert f" and {97 + count} more" in message
    assert len(message) < 500


def test_numbers_of_numpy_are_kept_with_their_dtypes(tmp_path: Path) -> None:
    kept = [np.float64(2.5), np.float32(0.1), np.int64(3), np.int32(3), np.bool_(True), [np.float64(1.0)], {"a": np.int64(1)}]
    for value in (*kept, np.uint8(2), {"numpy_dtype": "int64", "value": 3}):
        with FastES(make, n_workers=0, **SETTINGS) as model:
            model.get_env().set_attr("level", value)
            model.save(tmp_path / "model")
        with caught_warnings() as messages, FastES.load(tmp_path / "model", make, 0) as loaded:
            level = loaded.env.unwrapped.level
        is_left_out = type(value) is np.uint8 or "numpy_dtype" in str(value)
        assert bool(messages) == is_left_out
        assert is_left_out or repr(level) == repr(value)


@pytest.mark.parametrize(
    "calls",
    [
        None,
        {},
        [1],
        [{"kind": "set_attr", "name": "level", "args": [], "kwargs": {}}],
        [{"kind": "set_attr", "name": "__class__", "args": [1], "kwargs": {}}],
        [{"kind": "env_method", "name": "load", "args": ["/etc/passwd"], "kwargs": {}}],
        [{"kind": "exec", "name": "x", "args": [1], "kwargs": {}}],
        [{"kind": "set_options", "name": "", "args": [3], "kwargs": {}}],
        [{"kind": "forget_calls", "name": "", "args": [], "kwargs": {}, "more": 1}],
    ],
)
def test_calls_in_a_file_that_mean_nothing_are_errors(calls: Any) -> None:
    file = io.BytesIO()
    with FastES(make, n_workers=0, **SETTINGS) as model:
        model.save(file)
    changed = io.BytesIO()
    with zipfile.ZipFile(file) as before, zipfile.ZipFile(changed, "w") as after:
        for name in before.namelist():
            content = before.read(name)
            if name == "data":
                content = json.dumps({**json.loads(content), "env_calls": calls}).encode()
            after.writestr(name, content)
    changed.seek(0)
    with pytest.raises(CheckpointError, match="env_calls"):
        FastES.load(changed, make, 0)


def test_attributes_are_read_from_an_environment_that_was_given_the_calls() -> None:
    with FastES(make, n_workers=1, **SETTINGS) as model:
        envs = model.get_env()
        envs.set_attr("level", 1)
        envs.env_method("raise_by", 1.5)
        assert envs.get_attr("level") == [2.5]
        envs.env_method("raise_by", 1.5)
        assert envs.get_attr("level") == [4.0], "the one that is there follows"
        for level in (1, 2):
            envs.set_attr("level", level)
            assert envs.get_attr("level") == [level]
        envs.set_attr("level", 3)
        assert model.env.unwrapped.level == 3
        (own,) = envs.envs
        envs.env_method("raise_by", 1.0)
        envs.env_method("refuse")
        for _ in range(2):
            with pytest.raises(ValueError, match="it will not"):
                envs.get_attr("level")
        assert own.unwrapped.level == 4.0, "calls before the one that fails are made once"
        assert envs.env_is_wrapped(Wrapped) == [True]
        assert envs.env_is_wrapped(gymnasium.wrappers.TimeLimit) == [False]
        assert envs.has_attr("level")
        assert not envs.has_attr("levels")


def test_an_attribute_called_options_is_the_environments_own() -> None:
    env = Wrapped(Levels())
    env.unwrapped.options = "its own"  # type: ignore[attr-defined]
    calls = EnvCalls()
    calls.record("set_options", "", {"bonus": 1.0})
    calls.record("set_attr", "options", "set")
    made = made_on(env, calls.made)
    made.reset()
    assert env.unwrapped.options == made.get_wrapper_attr("options") == "set"  # type: ignore[attr-defined]
    assert env.unwrapped.bonus == 1.0  # type: ignore[attr-defined]


def test_calls_that_cannot_be_right_say_what_works() -> None:
    with FastES(make, n_workers=0, **SETTINGS) as model:
        envs = model.get_env()
        with pytest.raises(AttributeError, match=r"no method 'raise_to'.*did you mean 'raise_by'"):
            envs.env_method("raise_to", 1)
        with pytest.raises(ValueError, match="set_options"):
            envs.env_method("reset")
        with pytest.raises(ValueError, match=r"indices = \[3\]: "):
            envs.set_attr("level", 1, indices=[3])
        with pytest.warns(UserWarning, match=r"no such attribute.*did you mean 'level'"):
            envs.set_attr("levle", 1)
        with pytest.raises(TypeError, match="cannot be sent"):
            envs.set_attr("level", (each for each in ()))
        (answer,) = envs.env_method("raise_by", 1.0)
        assert "raise_by" in repr(answer)
        for use in (bool, float, list, lambda a: a + 1, lambda a: a.level, np.asarray):
            with pytest.raises(TypeError, match="what env_method\\('raise_by'\\) returns is not known"):
                use(answer)


@pytest.mark.parametrize("n_workers", [0, 1])
def test_a_call_that_fails_in_a_worker_is_named_and_can_be_forgotten(n_workers: int) -> None:
    with FastES(make, n_workers=n_workers, **SETTINGS) as model:
        model.get_env().env_method("refuse")
        with pytest.raises(WorkerError, match=r"env_method\('refuse'\) failed in the environment: RuntimeError: it will not"):
            model.learn(24)
        model.get_env().forget_calls()
        model.learn(24)


def test_the_same_attribute_set_again_before_anything_plays_is_one_call() -> None:
    calls = EnvCalls()
    for value in range(5):
        calls.record("set_attr", "level", value)
    assert len(calls) == 1
    calls.sent()
    calls.record("set_attr", "level", 5)
    assert len(calls) == 2, "environments may have played in between"


def test_a_call_takes_as_long_however_many_came_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A callback may make one at each step of a training of millions."""
    content = cloudpickle.dumps(((1,), {}))
    monkeypatch.setattr("fastes.rollout.env_calls.cloudpickle.dumps", lambda _: content)

    def seconds(count: int) -> float:
        calls, began = EnvCalls(), time.process_time()
        for _ in range(count):
            calls.record("env_method", "raise_by", 1)
        assert len(calls.made) == len(calls) == count
        return time.process_time() - began

    few = min(seconds(2_000) for _ in range(3))
    assert min(seconds(40_000) for _ in range(3)) < 60 * few


def test_a_way_leads_from_one_list_of_calls_to_another(tmp_path: Path) -> None:
    """As a worker reads them from its parent's file, of several trainings."""
    first, second = EnvCalls(), EnvCalls()
    for name in ("a", "b", "c"):
        first.record("set_attr", name, 1)
    for name in ("a", "d"):
        second.record("set_attr", name, 1)
    written, read = CallRecords(), CallRecords()
    with open(tmp_path / "calls", "w+b") as file:
        two = written.number(first.made[:2])
        written.write_to(file.fileno(), 0)
        three, other = written.number(first.made), written.number(second.made)
        read.read_from(file.fileno(), 0)

        def names(have: int, want: int) -> list[str] | None:
            way = read.way(have, want)
            return None if way is None else [call.name for call in way]

        assert names(0, two) == ["a", "b"]
        assert names(two, three) == ["c"]
        assert names(three, two) is None
        assert names(three, other) is None
        assert names(0, other) == ["a", "d"]
        assert names(three, 0) is None
        assert names(0, 0) == []


def test_an_sb3_callback_trains_a_curriculum_and_its_vec_env_can_be_played_here(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import VecEnv

    class Rising(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            assert isinstance(self.training_env, VecEnv)
            self.training_env.set_attr("level", self.model.generation)

    monitored: list[Any] = []
    init = Monitor.__init__

    def noting(self: Any, env: Any, *arguments: Any, **named: Any) -> None:
        monitored.append(env)
        init(self, env, *arguments, **named)

    monkeypatch.setattr(Monitor, "__init__", noting)
    results = []
    for n_workers in (0, 2):
        monitored.clear()
        with FastES(make, n_workers=n_workers, **SETTINGS) as model:
            model.learn(24 * 4, Rising())
            assert model.last_episodes[0][0] > 3 * 10 * 3, "the last generation played on level 3"
            results.append(model.snapshot())
            assert monitored == [], "nothing was built for it"
            mean, _ = evaluate_policy(model, model.get_env(), n_eval_episodes=2, warn=True)
            assert mean >= 3 * 10 * 4
            assert len(monitored) == 1
            assert model.get_env().env_is_wrapped(Monitor) == [True]
            model.get_env().set_options({"bonus": 1.0})
            assert evaluate_policy(model, model.get_env(), n_eval_episodes=2)[0] >= 3e5
    assert_same_state(results[0], results[1])


def test_what_get_env_gives_can_be_given_to_a_model() -> None:
    """It stands for the environments, and is not played on itself."""
    with FastES(make, n_workers=1, **SETTINGS) as model:
        envs = model.get_env()
        with FastES(envs, n_workers=1, **SETTINGS) as other:
            assert other.n_workers == 1
            other.learn(24)
            model.learn(24)
            assert_same_state(model.snapshot(), other.snapshot())
        model.set_env(model.get_env())
        model.get_env().set_attr("level", 1)
        with pytest.raises(ValueError, match="another model would not know"):
            FastES(model.get_env(), **SETTINGS)
        model.set_env(model.get_env())
        assert model.env.unwrapped.level == 1


def test_a_name_like_no_other_is_answered_with_those_that_there_are() -> None:
    with FastES("Pendulum-v1", n_workers=0) as model, pytest.warns(UserWarning, match=r"no such attribute.*; it has g, "):
        model.get_env().set_attr("grav", 2.0)
