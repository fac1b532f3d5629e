"""Risk: a callback that works with PPO fails, counts otherwise, or is not asked with FastES."""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from callbacks import Counter, Quiet
from envs_for_tests import Toy, ToyError
from faults import SETTINGS, caught_warnings, seed_of, toy
from training import learn

from fastes import FastES
from fastes.sb3.callbacks import counts_steps, takes_locals
from fastes.sb3.logger import configure


def test_every_step_is_told_once_and_in_order() -> None:
    callback = Counter()
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        model.learn(200, callback)
        assert callback.n_calls == callback.num_timesteps == model.num_timesteps
        assert sum(done for done, _, _ in callback.seen) == model.num_episodes
        lengths = [info["episode"]["l"] for done, _, info in callback.seen if done]
        ends = [number for number, (done, _, _) in enumerate(callback.seen) if done]
        assert np.diff([-1, *ends]).tolist() == lengths
        assert all((done, bool(info)) in ((True, True), (False, False)) for done, _, info in callback.seen)
        assert [info["r"] for info in model.ep_info_buffer] == [info["episode"]["r"] for done, _, info in callback.seen if done]
    rounds = model.generation
    assert callback.events == ["init", "start", *["rollout", "rollout end"] * rounds, "end"]
    assert callback.locals["total_timesteps"] == 200
    assert callback.locals["self"] is model


def test_a_false_answer_stops_at_once() -> None:
    callback = Counter(stop_at=3)
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        model.learn(10**6, callback)
        assert model.generation == 1
    assert callback.n_calls == 3
    assert callback.events[-1] == "end"


def test_functions_of_locals_are_told_steps_and_others_generations() -> None:
    steps: list[int] = []
    records: list[int] = []

    def of_steps(_locals: dict[str, Any], _globals: dict[str, Any]) -> bool:
        steps.append(_locals["self"].num_timesteps)
        return True

    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        model.learn(200, [of_steps, lambda _, record: records.append(record.generation)])
        assert len(steps) == model.num_timesteps
        assert records == list(range(1, model.generation + 1))


class Listener:
    """Called like SB3's functions, but none."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, locals_: dict[str, Any], globals_: dict[str, Any]) -> None:
        self.calls += 1

    def method(self, locals: dict[str, Any], globals: dict[str, Any], extra: int = 1) -> None:
        self.calls += extra

    def of_record(self, model: Any, record: Any) -> None:
        self.calls += 1


def _behind_another(_: Any, locals_: Any, globals_: Any) -> None: ...


def _with_an_extra(locals_: Any, globals_: Any, extra: int = 1) -> None: ...


def _with_any(_locals: Any, *others: Any, **more: Any) -> None: ...


@functools.wraps(_with_an_extra)
def _wrapped(*arguments: Any, **more: Any) -> None: ...


WHO: dict[str, tuple[Any, bool]] = {
    "a partial": (functools.partial(_behind_another, 1), True),
    "a partial by keyword": (functools.partial(_with_an_extra, extra=2), True),
    "a partial that gave the locals": (functools.partial(_behind_another, 1, {}), False),
    "not yet a partial": (_behind_another, False),
    "a callable object": (Listener(), True),
    "a bound method": (Listener().method, True),
    "a bound method of a record": (Listener().of_record, False),
    "an extra with a default": (_with_an_extra, True),
    "any others": (_with_any, True),
    "a wrapped function": (_wrapped, True),
    "one argument": (lambda locals_: None, False),
    "only by keyword": (lambda locals_, *, globals_=None: None, False),
    "another name": (lambda local, globals_: None, False),
    "a builtin without a signature": (print, False),
    "a builtin of unknown arguments": (dict.update, False),
    "nothing to ask": (min, False),
}


@pytest.mark.parametrize("name", WHO)
def test_who_takes_locals(name: str) -> None:
    function, expected = WHO[name]
    assert takes_locals(function) is expected


def test_callable_objects_and_partials_are_told_steps() -> None:
    one, bound, filled, records = Listener(), Listener(), Listener(), Listener()
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        model.learn(200, [one, bound.method, functools.partial(filled.method, extra=2), records.of_record])
        assert one.calls == bound.calls == filled.calls / 2 == model.num_timesteps
        assert records.calls == model.generation


def test_callbacks_change_no_result(tmp_path: Path) -> None:
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        learn(model, 3)
        expected = model.theta.copy()
    with FastES(toy(), preset="default", n_workers=0, tensorboard_log=None, **SETTINGS) as model:
        model.learn(10**6, [Counter(), lambda _, record: record.generation < 3])
        assert (model.theta == expected).all()


# --- SB3's own -------------------------------------------------------------------------------------------------------


@pytest.fixture
def sb3() -> Any:
    """stable_baselines3.common.callbacks."""
    return pytest.importorskip("stable_baselines3.common.callbacks")


def cartpole(**changes: Any) -> FastES:
    settings = {"population_size": 8, "seed": 1, "target_return": "none", "preset": "default", "n_workers": 0}
    return FastES("CartPole-v1", **{**settings, **changes})


def test_sb3_callbacks_are_recognised(sb3: Any) -> None:
    assert counts_steps(sb3.CheckpointCallback(10, "x"))
    assert not counts_steps(lambda locals_, globals_: True)


def test_evaluation_and_checkpoints(sb3: Any, tmp_path: Path) -> None:
    evaluation = sb3.EvalCallback(
        gymnasium.make("CartPole-v1"),
        eval_freq=500,
        n_eval_episodes=2,
        log_path=str(tmp_path),
        best_model_save_path=str(tmp_path),
        verbose=0,
        warn=False,
    )
    checkpoints = sb3.CheckpointCallback(700, str(tmp_path / "checkpoints"))
    ends: list[int] = [0]
    with cartpole() as model:
        model.learn(3000, [evaluation, checkpoints, lambda _, record: ends.append(record.timesteps)])
        steps = model.num_timesteps
        due = [end for before, end in itertools.pairwise(ends) if end // 700 > before // 700]
        names = os.listdir(tmp_path / "checkpoints")
        assert sorted(names) == sorted(f"rl_model_{end}_steps.zip" for end in due)
        assert 2 <= len(due) < len(ends) - 1
        for name in names:
            with FastES.load(tmp_path / "checkpoints" / name, n_workers=0) as saved:
                assert name == f"rl_model_{saved.num_timesteps}_steps.zip"
    results = np.load(tmp_path / "evaluations.npz")
    assert results["results"].shape == (len(results["timesteps"]), 2)
    assert results["timesteps"].tolist() == [end for before, end in itertools.pairwise(ends) if end // 500 > before // 500]
    FastES.load(tmp_path / "best_model", n_workers=0).close()
    assert evaluation.n_calls == checkpoints.n_calls == steps


@pytest.mark.parametrize("kind", ["Monitor", "DummyVecEnv"])
def test_evaluations_on_a_usual_environment_warn_of_nothing(sb3: Any, kind: str) -> None:
    monitor = pytest.importorskip("stable_baselines3.common.monitor").Monitor
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    env = monitor(gymnasium.make("CartPole-v1"))
    evaluation = sb3.EvalCallback(
        env if kind == "Monitor" else vec_env.DummyVecEnv([lambda: env]), eval_freq=100, n_eval_episodes=1, verbose=0
    )
    with caught_warnings() as messages, cartpole() as model:
        model.learn(200, evaluation)
        assert isinstance(model.get_env(), vec_env.DummyVecEnv), "as SB3's algorithms have it"
    assert evaluation.last_mean_reward > 0
    assert not messages


def test_stopping_rules(sb3: Any, tmp_path: Path) -> None:
    stop = sb3.StopTrainingOnRewardThreshold(5.0)
    evaluation = sb3.EvalCallback(gymnasium.make("CartPole-v1"), callback_on_new_best=stop, eval_freq=10, verbose=0, warn=False)
    with cartpole() as model:
        model.learn(10**6, evaluation)
        assert model.generation == 1
    with cartpole() as model:
        model.learn(10**6, sb3.StopTrainingOnMaxEpisodes(30))
        assert model.num_episodes == 32, "whole generations of 8"
    patience = sb3.StopTrainingOnNoModelImprovement(0)
    evaluation = sb3.EvalCallback(
        gymnasium.make("CartPole-v1", max_episode_steps=1), callback_after_eval=patience, eval_freq=1, verbose=0, warn=False
    )
    with cartpole() as model:
        model.learn(10**6, sb3.CallbackList([evaluation]))
        assert model.generation < 5


def test_every_n_timesteps(sb3: Any) -> None:
    class Note(sb3.BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            at.append(self.num_timesteps)
            return True

    class Every(sb3.EveryNTimesteps):  # type: ignore[misc]
        def _on_step(self) -> bool:
            asked.append(self.num_timesteps)
            return bool(super()._on_step())

    at: list[int] = []
    asked: list[int] = []
    with cartpole() as model:
        model.learn(3000, Every(1000, Note()))
        assert len(asked) == model.generation, "once a generation, not for each step"
    assert 2 <= len(at) <= 3
    assert (np.diff([0, *at]) >= 1000).all()


def test_each_of_a_list_is_told_whatever_the_others_say(sb3: Any) -> None:
    class Says(sb3.BaseCallback):  # type: ignore[misc]
        def __init__(self, answer: bool) -> None:
            super().__init__()
            self.answer, self.told = answer, 0

        def _on_step(self) -> bool:
            self.told += 1
            return self.answer

    first, stops, last = Says(True), Says(False), Says(True)
    with cartpole() as model:
        model.learn(10**6, sb3.CallbackList([first, sb3.CallbackList([stops, last])]))
        assert model.generation == 1
        assert first.told == last.told == model.num_timesteps
    assert stops.told == 1


def test_log_every_n_timesteps(sb3: Any, tmp_path: Path) -> None:
    ends: list[int] = [0]
    with cartpole() as model:
        model.set_logger(configure(tmp_path, ["json"]))
        noted = [sb3.LogEveryNTimesteps(700), lambda _, record: ends.append(record.timesteps)]
        model.learn(3000, noted, log_interval=None)
        model.logger.close()
    due, last = [], 0
    for end in ends:
        if end - last >= 700:
            due.append(end)
            last = end
    rows = [json.loads(line) for line in (tmp_path / "progress.json").read_text().splitlines()]
    assert [row["time/total_timesteps"] for row in rows] == due
    assert 2 <= len(due) < len(ends) - 1
    assert all(row["rollout/ep_rew_mean"] > 0 for row in rows)


@pytest.mark.parametrize("num_envs", [0, 3])
def test_progress_bar(sb3: Any, num_envs: int) -> None:
    pytest.importorskip("rich")
    from stable_baselines3.common.env_util import make_vec_env

    env = make_vec_env("CartPole-v1", num_envs, seed=0) if num_envs else "CartPole-v1"
    bar = sb3.ProgressBarCallback()
    with FastES(env, population_size=8, seed=1, target_return="none", preset="default", n_workers=0) as model:
        model.learn(500, bar)
        assert bar.pbar.total == 500
        assert bar.pbar.n == model.num_timesteps


def test_the_same_steps_are_told_to_a_callback_of_ones_own(sb3: Any) -> None:
    class Own(sb3.BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            infos.extend(info for info in self.locals["infos"] if "episode" in info)
            assert self.training_env.num_envs == 1
            return True

    infos: list[Any] = []
    with cartpole() as model:
        own = Own()
        model.learn(1000, own)
        assert own.n_calls == model.num_timesteps
        assert len(infos) == model.num_episodes


@pytest.mark.parametrize(("interval", "dumps"), [(1, 4), (3, 1), (None, 0)])
def test_log_interval_counts_generations(interval: int | None, dumps: int, tmp_path: Path) -> None:
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        model.set_logger(configure(tmp_path, ["json"]))
        model.learn(10**6, lambda _, record: record.generation < 4, log_interval=interval)
        model.logger.close()
        assert len((tmp_path / "progress.json").read_text().splitlines()) == dumps


def test_evaluate_policy(sb3: Any) -> None:
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    with cartpole() as model:
        model.learn(2000)
        single, _ = evaluate_policy(model, gymnasium.make("CartPole-v1"), 3, warn=False)
        several, _ = evaluate_policy(model.policy, make_vec_env("CartPole-v1", 3, seed=0), 6)
        assert single > 0
        assert several > 0


def test_statistics_go_to_a_logger_of_sb3(sb3: Any, tmp_path: Path) -> None:
    logger = pytest.importorskip("stable_baselines3.common.logger")
    with cartpole() as model:
        model.set_logger(logger.configure(str(tmp_path), ["csv"]))
        model.learn(1500)
        model.logger.close()
        rows = (tmp_path / "progress.csv").read_text().splitlines()
        assert len(rows) == model.generation + 1
        for key in ("rollout/ep_rew_mean", "rollout/ep_len_mean", "time/fps", "time/total_timesteps", "train/learning_rate"):
            assert key in rows[0]


# --- how generations become calls ------------------------------------------------------------------------------------


class FailsAtOnce(Toy):
    """In its reset, with some seeds."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        result = super().reset(seed=seed, options=options)
        if seed in self.fail_seeds:
            raise ToyError("not today")
        return result


@pytest.mark.parametrize("kind", [Toy, FailsAtOnce])
@pytest.mark.filterwarnings("ignore:ToyError")
def test_episodes_that_failed_spoil_no_statistics(kind: Any) -> None:
    """In a step, and in a reset, of which no step can be told."""
    counter = Counter()
    env = functools.partial(kind, fail_seeds=[seed_of(0, 1), seed_of(1, 2)])
    with FastES(env, preset="default", n_workers=0, on_env_error="penalise", **SETTINGS) as model:
        model.learn(10**6, [counter, lambda _, record: record.generation < 2])
        assert sum(math.isnan(episode_return) for episode_return, _ in model.last_episodes) == 2
        assert all(math.isfinite(info["r"]) for info in model.ep_info_buffer)
        assert len(model.ep_info_buffer) == model.num_episodes - 4
        whole = [episode_return for episode_return, length in model.last_episodes if length]
    assert len(whole) == 8 - 2 * (kind is FailsAtOnce)
    ends = [info["episode"]["r"] for done, _, info in counter.seen if done]
    assert str(ends[-len(whole) :]) == str(whole)
    assert sum(done for done, _, _ in counter.seen) == len(ends)


def test_several_episodes_a_candidate_are_told_as_episodes() -> None:
    callback = Counter()
    with FastES(toy(), preset="default", n_workers=0, episodes_per_candidate=3, stats_window_size=1000, **SETTINGS) as model:
        model.learn(10**6, [callback, lambda _, record: record.generation < 2])
        assert sum(done for done, _, _ in callback.seen) == model.num_episodes
        assert callback.n_calls == model.num_timesteps
        infos = [info["episode"] for done, _, info in callback.seen if done]
        assert sum(info["l"] for info in infos) == model.num_timesteps
        assert max(info["l"] for info in infos) <= 20, "Toy's longest episode"
        assert len(model.ep_info_buffer) == model.num_episodes


def test_max_episodes_counts_episodes(sb3: Any) -> None:
    with FastES(toy(), preset="default", n_workers=0, episodes_per_candidate=3, **SETTINGS) as model:
        model.learn(10**6, sb3.StopTrainingOnMaxEpisodes(40))
        assert model.num_episodes == 48, "2 generations of 8 candidates with 3 episodes"


@pytest.mark.parametrize("num_envs", [0, 3])
def test_max_episodes_are_counted_for_each_environment(sb3: Any, num_envs: int) -> None:
    """As a callback of the same rule counts that is told each step."""
    from stable_baselines3.common.vec_env import DummyVecEnv

    class Counting(sb3.BaseCallback):  # type: ignore[misc]
        episodes = stopped_at = 0

        def _on_step(self) -> bool:
            if not self.stopped_at:
                self.episodes += int(self.locals["dones"].sum())
                self.stopped_at = self.n_calls if self.episodes >= 13 * max(num_envs, 1) else 0
            return True

    env: Any = DummyVecEnv([Toy] * num_envs) if num_envs else Toy
    stop, counting = sb3.StopTrainingOnMaxEpisodes(13), Counting()
    with FastES(env, preset="default", n_workers=None if num_envs else 0, **SETTINGS) as model:
        model.learn(10**6, [counting, stop])
        assert model.num_episodes == (40 if num_envs else 16), "whole generations of 8"
    assert stop.n_episodes == counting.episodes
    assert 13 * max(num_envs, 1) <= stop.n_episodes < 14 * max(num_envs, 1)
    assert stop.n_calls == counting.stopped_at


def test_a_callback_with_a_bar_of_its_own_is_left_alone(sb3: Any) -> None:
    class Own(sb3.BaseCallback):  # type: ignore[misc]
        pbar = None
        max_episodes = 3

        def _on_step(self) -> bool:
            return True

    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        own = Own()
        model.learn(200, own)
        assert own.n_calls == model.num_timesteps


def test_each_period_of_a_callback_is_met() -> None:
    class Two(Quiet):
        check_freq, save_freq = 1000, 700

        def on_step(self) -> bool:
            super().on_step()
            met.extend(period for period in (700, 1000) if self.n_calls % period == 0)
            return True

    met: list[int] = []
    with FastES(toy(), preset="default", n_workers=0, **{**SETTINGS, "population_size": 100}) as model:
        model.learn(10**6, [Two(), lambda _, record: record.generation < 3])
    assert met.count(700) == met.count(1000) == 3


class Ends(Counter):
    check_freq = 1000


class EndsByAnotherMethod(Quiet):
    check_freq = 1000

    def on_step(self) -> bool:
        super().on_step()
        self.note()
        return True

    def note(self) -> None:
        self.seen.extend((done, 0.0, {}) for done in self.locals["dones"])


class EndsInAnExpression(Quiet):
    check_freq = 1000

    def on_step(self) -> bool:
        super().on_step()
        self.seen.extend((bool(self.locals["dones"][at]), 0.0, {}) for at in (0,))
        return True


@pytest.mark.parametrize("kind", [Ends, EndsByAnotherMethod, EndsInAnExpression])
def test_one_with_a_period_that_reads_locals_is_called_for_each_step(kind: type[Quiet]) -> None:
    callback = kind()
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        model.learn(200, callback)
        assert callback.n_calls == model.num_timesteps
        assert sum(done for done, _, _ in callback.seen) == model.num_episodes


def test_one_with_a_list_of_its_own_is_no_list_of_callbacks() -> None:
    class Own(Counter):
        callbacks: ClassVar[list[Any]] = []

    callback = Own(stop_at=10)
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        model.learn(10**6, callback)
        assert (callback.n_calls, model.generation) == (10, 1)


def test_a_generation_whose_callback_raises_has_its_row(tmp_path: Path) -> None:
    def fail(_: Any, record: Any) -> None:
        if record.generation == 3:
            raise ZeroDivisionError

    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        model.set_logger(configure(tmp_path, ["json"]))
        with pytest.raises(ZeroDivisionError):
            model.learn(10**6, fail)
        model.logger.close()
    rows = [json.loads(line) for line in (tmp_path / "progress.json").read_text().splitlines()]
    assert [row["time/iterations"] for row in rows] == [1, 2, 3]


def test_what_a_callback_records_is_in_the_row_of_its_generation(tmp_path: Path) -> None:
    class Records(Quiet):
        def on_rollout_end(self) -> None:
            self.model.logger.record("own/of_sb3", self.model.generation)

    def record_one(model: Any, record: Any) -> bool:
        model.logger.record("own/generation", record.generation)
        return bool(record.generation < 3)

    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        model.set_logger(configure(tmp_path, ["json"]))
        model.learn(10**6, [record_one, Records()])
        model.logger.close()
    rows = [json.loads(line) for line in (tmp_path / "progress.json").read_text().splitlines()]
    names = ("time/iterations", "own/generation", "own/of_sb3")
    assert [[row[name] for name in names] for row in rows] == [[1] * 3, [2] * 3, [3] * 3]


def test_a_generation_that_proves_the_target_is_not_told_in_steps() -> None:
    callback = Counter()
    with FastES("fastes/CyclicMDP-v0", preset="unbiased", n_workers=0, seed=0, target_episodes=2) as model:
        model.learn(10**6, callback)
        assert model.solved
        assert callback.n_calls == model.num_timesteps


def test_a_generation_is_told_to_all_after_an_interrupt() -> None:
    def interrupt(_: Any, record: Any) -> None:
        if record.generation == 2:
            raise KeyboardInterrupt

    callback = Counter()
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        with pytest.raises(KeyboardInterrupt):
            model.learn(10**6, [interrupt, callback])
        assert model.generation == 2
        assert callback.n_calls == model.num_timesteps
