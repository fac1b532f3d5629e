"""Risk: a copy of a model is refused, shares something with the original, or trains differently."""

from __future__ import annotations

import copy
import os
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest
from faults import SETTINGS, toy
from processes import run_script
from training import Result, assert_same, assert_same_records, assert_same_state, learn, tell_the_rest, train

from fastes import CallablePolicy, EvolutionStrategy, FastES, FastESError

COPIERS: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "cloudpickle": lambda model: cloudpickle.loads(cloudpickle.dumps(model)),
}


@pytest.mark.parametrize("kind", COPIERS)
def test_a_copy_trains_as_the_original(kind: str, undisturbed: Result) -> None:
    with FastES(toy(), preset="default", n_workers=1, **SETTINGS) as model:
        records = learn(model, 2)
        with COPIERS[kind](model) as twin:
            assert_same_state(model.snapshot(), twin.snapshot())
            assert twin.n_workers == 1
            further = learn(twin, 4)
            assert_same(undisturbed, Result(twin.snapshot(), [*records, *further]))
            assert model.generation == 2, "the original stays where it was"
        records += learn(model, 4)
        assert_same(undisturbed, Result(model.snapshot(), records))


@pytest.mark.parametrize("kind", COPIERS)
def test_a_copy_has_the_trials_that_are_left(kind: str) -> None:
    settings = {**SETTINGS, "trials": 3}
    whole = train(toy(), 3, **settings)
    with FastES(toy(), n_workers=0, preset="default", **settings) as model:
        records = learn(model, 2)
        with COPIERS[kind](model) as twin:
            assert [trial.number for trial in twin.selection.trials] == [0, 1, 2]
            assert_same_state(model.snapshot(), twin.snapshot())
            records += learn(twin, 3)
            assert_same_state(whole.state, twin.snapshot())
            assert model.selection.trials[1].training.generation == 1, "the original stays where it was"
    # at a stop the trial that came last plays its evaluation to the end: its steps are counted before those of others
    of_each = [[record._replace(eval_timesteps=0) for record in each] for each in (whole.records, records)]
    assert_same_records(*of_each)


def test_functions_travel_with_a_copy() -> None:
    """A file would not hold them: the environment's, the policy's, a schedule's."""
    length = 12

    def push(parameters: Any, observation: Any) -> Any:
        return np.tanh(parameters[:2] * observation[:2])

    settings = {**SETTINGS, "learning_rate": lambda remaining: 0.02 * remaining}
    del settings["policy_kwargs"]
    whole = train(lambda: toy(length=length)(), 3, policy=CallablePolicy(push, 3), **settings)
    with FastES(lambda: toy(length=length)(), CallablePolicy(push, 3), preset="default", n_workers=0, **settings) as model:
        records = learn(model, 1)
        with copy.deepcopy(model) as twin:
            records += learn(twin, 3)
            assert_same_state(whole.state, twin.snapshot())


def test_a_copy_made_in_a_callback_is_that_generation(undisturbed: Result) -> None:
    copies: list[FastES] = []
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        records = learn(model, 4, on_record=lambda record: copies.append(copy.deepcopy(model)))
    assert [twin.generation for twin in copies] == [1, 2, 3, 4]
    records[2:] = learn(copies[1], 4)
    assert_same(undisturbed, Result(copies[1].snapshot(), records))
    tell_the_rest(copies[3])
    assert_same(undisturbed, Result(copies[3].snapshot(), records))


def test_vector_environments_with_processes_stay_behind() -> None:
    envs = gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="async")
    with FastES(envs, preset="unbiased", seed=1, target_return="none", population_size=4) as model:
        model.learn(100)
        with copy.deepcopy(model) as twin:
            assert twin.theta.tobytes() == model.theta.tobytes()
            with pytest.raises(ValueError, match=r"AsyncVectorEnv.* left behind .*set_env"):
                twin.learn(100)
            twin.set_env("CartPole-v1")
            twin.learn(100)
    envs.close()


def test_vector_environments_that_lose_what_they_wrap_stay_behind() -> None:
    """VecNormalize is pickled without the environment in it."""
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    envs = vec_env.VecNormalize(vec_env.DummyVecEnv([lambda: gymnasium.make("CartPole-v1")]))
    with FastES(envs, preset="unbiased", seed=1, target_return="none", population_size=4) as model:
        with copy.deepcopy(model) as twin:
            assert twin.theta.tobytes() == model.theta.tobytes()
            with pytest.raises(ValueError, match=r"VecNormalize.* left behind .*set_env"):
                twin.evaluate(1)
        model.learn(100)
        with copy.deepcopy(model) as twin, pytest.warns(UserWarning, match="CartPole-v1 has them as they are"):
            twin.set_env("CartPole-v1")


def test_another_process_unpickles_a_model(tmp_path: Path) -> None:
    with FastES("CartPole-v1", n_workers=0, seed=1, target_return="none") as model:
        model.learn(1000)
        (tmp_path / "model.pickle").write_bytes(pickle.dumps(model))
        expected = model.evaluate(3)
    result = run_script(
        """
        import pickle
        with pickle.load(open("model.pickle", "rb")) as model:
            print(model.evaluate(3).returns.tolist())
        """,
        tmp_path,
    )
    assert result.stdout.strip() == str(expected.returns.tolist()), result.stderr


@pytest.mark.parametrize("kind", COPIERS)
@pytest.mark.parametrize("sigma", [0.1, "lin_0.1_0.02", "exp_0.1_0.02"])
def test_a_copy_of_a_strategy_goes_on_as_the_original(kind: str, sigma: Any) -> None:
    def step(es: EvolutionStrategy) -> None:
        es.tell([float(-np.sum((x - 1.0) ** 2)) for x in es.ask(0.5)])

    es = EvolutionStrategy(np.zeros(5), sigma, population_size=8, seed=1)
    step(es)
    twin = COPIERS[kind](es)
    assert len(pickle.dumps(es)) < 10_000, "without the noise table, which its seed draws again"
    with pytest.raises(ValueError, match="read-only"):
        twin.theta[0] = 1.0
    step(es)
    assert twin.generation == 1
    step(twin)
    assert twin.theta.tobytes() == es.theta.tobytes()


@pytest.mark.parametrize("call", ["learn", "evaluate", "replay"])
def test_a_second_thread_gets_an_error_and_does_no_harm(call: str, undisturbed: Result) -> None:
    started, told = threading.Event(), threading.Event()
    errors: list[Exception] = []

    def other() -> None:
        started.wait(60)
        calls = {"learn": lambda: model.learn(10), "evaluate": lambda: model.evaluate(1), "replay": lambda: model.replay(2, 0)}
        try:
            calls[call]()
        except Exception as error:
            errors.append(error)
        told.set()

    def on_record(record: Any) -> None:
        started.set()
        told.wait(60)
        assert model.evaluate(1).returns.size == 1, "the thread that trains may evaluate"

    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        thread = threading.Thread(target=other, name="second")
        thread.start()
        records = learn(model, 4, on_record=on_record)
        thread.join()
        assert_same(undisturbed, Result(model.snapshot(), records))
    (error,) = errors
    assert isinstance(error, FastESError)
    for words in (f"{call}() in thread 'second'", "learn() in thread 'MainThread'", "deepcopy"):
        assert words in str(error)


def test_threads_one_after_the_other_may_train() -> None:
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        for _ in range(2):
            thread = threading.Thread(target=learn, args=(model, model.generation + 1))
            thread.start()
            thread.join()
        assert model.generation == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_while_a_thread_trains_is_free_of_it() -> None:
    """The child has no such thread: nobody would ever let it in."""
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        reading, go_on = threading.Event(), threading.Event()

        def pause(record: Any) -> None:
            reading.set()
            go_on.wait(60)

        thread = threading.Thread(target=learn, args=(model, 1), kwargs={"on_record": pause})
        thread.start()
        reading.wait(60)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                model.evaluate(1)
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        go_on.set()
        thread.join()
