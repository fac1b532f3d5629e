"""Risk: what a recurrent policy remembers leaks into another episode or row, is lost between two calls, or is not in a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from envs_for_tests import AnySpaces, Toy
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from images_for_tests import NORMED, Dots
from training import Result, assert_same, assert_same_state, learn, train

from fastes import CheckpointMismatch, FastES
from fastes.checkpoints.policy_description import describe_policy
from fastes.errors import CheckpointError
from fastes.policies.layers import described_layers
from fastes.policies.named_policies import make_policy_spec
from fastes.policies.policy_keywords import MlpLstmKeywords
from fastes.runs.video import play
from fastes.sb3.policy import Policy

HIDDEN_SIZE = MlpLstmKeywords().lstm_hidden_size
SMALL: dict[str, Any] = {
    "policy": "MlpLstmPolicy",
    "policy_kwargs": {"lstm_hidden_size": 3, "n_lstm_layers": 2},
    "population_size": 8,
    "noise_table_size": 50_000,
    "sigma": 0.5,
    "learning_rate": 0.1,
}
CNN = {**SMALL, "policy": "CnnLstmPolicy", "policy_kwargs": {**NORMED, "lstm_hidden_size": 3, "net_arch": [4]}}
GRU = {**SMALL, "policy_kwargs": {"lstm_hidden_size": 3, "cell": "gru", "net_arch": [4]}}
BOX, ACTIONS = spaces.Box(-1.0, 1.0, (3,)), spaces.Box(-1.0, 1.0, (2,))


# --- which network ----------------------------------------------------------------------------------------------------


def layers(policy: str = "MlpLstmPolicy", space: Any = None, **policy_kwargs: Any) -> list[Any]:
    spec = make_policy_spec(policy, space or BOX, ACTIONS, policy_kwargs)
    assert described_layers(describe_policy(spec)) == spec.layers
    return [(layer.kind, layer.inputs, layer.outputs) for layer in spec.layers]


def test_the_cells_are_before_the_hidden_layers() -> None:
    assert layers() == [("lstm", 3, HIDDEN_SIZE), ("dense", HIDDEN_SIZE, 2)]
    wanted = [("gru", 3, 5), ("gru", 5, 5), ("dense", 5, 7), ("dense", 7, 2)]
    assert layers(cell="GRU", lstm_hidden_size=np.int64(5), n_lstm_layers=2, net_arch={"pi": [7], "vf": [9]}) == wanted
    image = layers("CnnLstmPolicy", spaces.Box(0, 255, (8, 9, 2), np.uint8), **NORMED, net_arch=[7])
    features = [("dense", 12, 5), ("virtual_batch_norm", 5, 5)]
    assert image[-5:] == [*features, ("lstm", 5, HIDDEN_SIZE), ("dense", HIDDEN_SIZE, 7), ("dense", 7, 2)], "no other norm"


@pytest.mark.parametrize(
    ("policy", "kwargs", "said"),
    [
        ("MlpLstmPolicy", {"cell": "rnn"}, r"unknown cell 'rnn': expected one of \('lstm', 'gru'\)"),
        ("MlpLstmPolicy", {"cell": 3}, "unknown cell 3"),
        ("MlpLstmPolicy", {"lstm_hidden_size": 0}, "lstm_hidden_size = 0 is out of range: expected an int from 1"),
        ("MlpLstmPolicy", {"n_lstm_layers": "2"}, "n_lstm_layers = '2' is a str: expected an int"),
        ("MlpLstmPolicy", {"shared_lstm": True}, "'shared_lstm'.*there is no critic in ES: leave it out"),
        ("MlpLstmPolicy", {"enable_critic_lstm": False}, "'enable_critic_lstm'.*there is no critic in ES: leave it out"),
        ("MlpLstmPolicy", {"lstm_kwargs": {"dropout": 0.1}}, "'lstm_kwargs'.*leave it out: cell, lstm_hidden_size and"),
        ("MlpLstmPolicy", {"lstm_hiden_size": 4}, r"did you mean 'lstm_hidden_size'\?"),
        ("CnnLstmPolicy", {"shared_lstm": True}, "'shared_lstm'.*there is no critic in ES: leave it out"),
        ("CnnPolicy", {"cell": "gru"}, r"'cell'.*it is of policies that remember: use one of"),
        (
            "MlpPolicy",
            {"lstm_hidden_size": 4},
            r"'lstm_hidden_size'.*it is of policies that remember: use one of \('MlpLstmPolicy'",
        ),
    ],
)
def test_what_a_cell_cannot_be_told(policy: str, kwargs: dict[str, Any], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        FastES(Toy, policy, preset="unbiased", n_workers=0, policy_kwargs=kwargs)


# --- training ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "settings", "workers"), [(Toy, SMALL, (1, 2)), (Toy, GRU, ()), (Dots, CNN, ())], ids=["lstm", "gru", "cnn"]
)
def test_training_is_the_same_on_every_pool(env: Any, settings: dict[str, Any], workers: tuple[int, ...]) -> None:
    one = train(env, 3, 0, **settings)
    for n_workers in workers:
        assert_same(one, train(env, 3, n_workers, **settings))
    vector = train(SyncVectorEnv([env] * 3), 3, **settings)
    assert vector.state.arrays["trainings"]["0.theta"].tobytes() == one.state.arrays["trainings"]["0.theta"].tobytes()


@pytest.mark.parametrize(("env", "settings"), [(Toy, SMALL), (Toy, GRU), (Dots, CNN)], ids=["lstm", "gru", "cnn"])
def test_a_checkpoint_holds_all_and_goes_on(env: Any, settings: dict[str, Any], tmp_path: Path) -> None:
    whole = train(env, 4, **settings)
    with FastES(env, n_workers=0, seed=5, target_return="none", preset="default", **settings) as model:
        records = learn(model, 2)
        model.save(tmp_path / "m")
        saved = model.snapshot()
        observations = np.array([model.observation_space.sample() for _ in range(4)])
        expected = model.predict(observations, deterministic=True)
    alone = Policy.load(tmp_path / "m", env=env)
    with FastES.load(tmp_path / "m", env, n_workers=0) as model:
        assert_same_state(saved, model.snapshot())
        for again in (model.predict(observations, deterministic=True), alone.predict(observations, deterministic=True)):
            assert same(again, expected)
        records += learn(model, 4)
        assert_same(whole, Result(model.snapshot(), records))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("recurrent") / "m.zip"
    with FastES(Toy, preset="default", n_workers=0, seed=1, **SMALL) as model:
        model.save(path)
    return str(path)


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({"lstm_hidden_size": 5, "n_lstm_layers": 2}, r"layer 0 would be lstm 3 -> 5, the checkpoint's is lstm 3 -> 3"),
        ({"lstm_hidden_size": 3, "n_lstm_layers": 3}, r"layer 2 would be lstm 3 -> 3, the checkpoint's is dense 3 -> 2"),
        ({"lstm_hidden_size": 3, "cell": "gru"}, r"layer 0 would be gru 3 -> 3, the checkpoint's is lstm 3 -> 3"),
    ],
)
def test_other_layers_than_the_files_are_named(kwargs: dict[str, Any], said: str, saved: str) -> None:
    with pytest.raises(CheckpointMismatch, match=f"policy_kwargs = .* cannot change on loading: {said}"):
        FastES.load(saved, Toy, n_workers=0, policy_kwargs=kwargs)


def test_other_parameters_than_the_layers_are_named(saved: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with FastES.load(saved, Toy, n_workers=0) as model, FastES(Toy, preset="default", n_workers=0, seed=1, **GRU) as other:
        with pytest.raises(ValueError, match=r"missing: .*'layers.2.weight'|unknown"):
            model.policy.load_state_dict(other.policy.state_dict() | {"layers.9.weight": np.zeros(3)})
        views = model.policy.state_dict() | {"layers.0.weight_ih": np.zeros((8, 20))}
        with pytest.raises(ValueError, match=r"parameter 'layers.0.weight_ih' has shape \(8, 20\), expected \(12, 3\)"):
            model.policy.load_state_dict(views)
        checkpoint = model.snapshot()
    checkpoint.data["policy"]["layers"][2]["outputs"] = 3
    monkeypatch.setattr("fastes.models.checkpointing.read_checkpoint", lambda _: checkpoint)
    with pytest.raises(CheckpointError, match="3 outputs for"):
        FastES.load(saved, Toy, n_workers=0)
    checkpoint.data["policy"]["layers"][2]["outputs"] = 2
    for layer in checkpoint.data["policy"]["layers"][:2]:
        layer["outputs"] = 4
    checkpoint.data["policy"]["layers"][1]["inputs"] = checkpoint.data["policy"]["layers"][2]["inputs"] = 4
    message = r"it has \d+ parameters \(layer 0 lstm 3 -> 4, layer 1 lstm 4 -> 4, layer 2 dense 4 -> 2\), theta has \d+"
    with pytest.raises(CheckpointError, match=message):
        FastES.load(saved, Toy, n_workers=0)


# --- acting -----------------------------------------------------------------------------------------------------------


def same(first: Any, second: Any) -> bool:
    """Actions and states of two predictions, to the last bit."""
    arrays = ([action, *state] for action, state in (first, second))
    return all(np.array_equal(one, other) for one, other in zip(*arrays, strict=True))


@pytest.fixture(params=[SMALL, GRU], ids=["lstm", "gru"])
def model(request: pytest.FixtureRequest) -> Iterator[FastES]:
    with FastES(Toy, preset="unbiased", n_workers=0, seed=4, **request.param) as model:
        model.policy.load_from_vector(np.random.default_rng(1).normal(size=len(model.policy.parameters_to_vector())))
        yield model


def test_predict_goes_on_from_the_state_that_it_returned(model: FastES) -> None:
    rows = np.random.default_rng(0).normal(size=(5, 3))
    actor = model.policy_spec.make_actor()
    actor.parameters[:] = model.theta
    actor.set_normalizer(model.normalizer.mean, 1.0 / model.normalizer.std, model.normalizer.clip)
    actor.begin_episode()
    expected, state = [actor.act(row) for row in rows], None
    for row, action in zip(rows, expected, strict=True):
        given = None if state is None else tuple(part.copy() for part in state)
        before = None if given is None else tuple(part.copy() for part in given)
        got, state = model.predict(row, given, deterministic=True)
        assert np.array_equal(got, action)
        assert given is None or all(np.array_equal(*pair) for pair in zip(given, before, strict=True)), "the caller's own"
    cells, parts = (1, 1) if "cell" in model.settings.policy_kwargs else (2, 2)
    assert [(part.shape, part.dtype) for part in state] == [((cells, 1, 3), np.float32)] * parts
    assert np.array_equal(np.array(state).transpose(2, 1, 0, 3).ravel(), actor.state)
    assert not np.array_equal(model.predict(rows[1], deterministic=True)[0], expected[1]), "without a state it begins anew"


def test_each_row_has_its_own_state_and_begins_where_it_is_told(model: FastES) -> None:
    rows = np.random.default_rng(0).normal(size=(3, 3))
    _, state = model.predict(rows, deterministic=True)
    assert [part.shape[1] for part in state] == [3] * len(state)
    starts = np.array([False, True, False])
    together = model.predict(rows, state, starts, deterministic=True)
    for i, row in enumerate(rows):
        its_own = None if starts[i] else tuple(part[:, i : i + 1] for part in state)
        action, after = model.predict(row, its_own, deterministic=True)
        assert same((together[0][i], [part[:, i : i + 1] for part in together[1]]), (action, after))
    everywhere = model.predict(rows, state, True, deterministic=True)
    assert same(everywhere, model.predict(rows, deterministic=True))
    assert same(everywhere, model.predict(rows, state, [1.0, 1.0, 1.0], deterministic=True))
    action, after = model.predict(np.zeros((0, 3)))
    assert (len(action), [part.shape[1] for part in after]) == (0, [0] * len(state))


def test_states_that_do_not_fit_are_refused(model: FastES) -> None:
    one, three = np.zeros(3), np.zeros((3, 3))
    _, state = model.predict(three)
    for wrong in (state, 3, [], (np.zeros(3),) * len(state), state[:1] * 3, "state", [[1], [2, 3]]):
        with pytest.raises(ValueError, match=rf"state has .*: expected a tuple of {len(state)} arrays \(\d, 1, 3\) for 1 obs"):
            model.predict(one, wrong)
    with pytest.raises(ValueError, match=r"episode_start has shape \(2,\): expected one flag, or \(3,\)"):
        model.predict(three, state, [True, False])


def test_other_policies_have_no_state() -> None:
    with FastES(Toy, "LinearPolicy", preset="unbiased", n_workers=0, seed=0) as model:
        assert model.predict(np.zeros(3), (np.zeros(2),), True)[1] is None


def test_episodes_that_are_played_are_those_that_are_evaluated(model: FastES) -> None:
    returns = model.evaluate(3, first_seed=4).returns.tolist()
    assert [episode[1] for episode in play(model, 3, first_seed=4)] == returns
    vector: Any = SyncVectorEnv([Toy] * 3)
    observations, _ = vector.reset(seed=[4, 5, 6])
    state, starts, totals, going = None, np.ones(3, bool), np.zeros(3), np.ones(3, bool)
    while going.any():
        actions, state = model.predict(observations, state, starts, deterministic=True)
        observations, rewards, terminated, truncated, _ = vector.step(actions)
        totals += rewards * going
        starts = terminated | truncated
        going &= ~starts
    assert totals.tolist() == pytest.approx(returns)


def test_evaluate_policy_of_sb3(model: FastES) -> None:
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv

    for n_envs in (1, 2):
        vector = DummyVecEnv([lambda: Monitor(Toy())] * n_envs)
        vector.seed(0)
        returns, _ = evaluate_policy(model, vector, 2, return_episode_rewards=True)
        expected = model.evaluate(n_envs, first_seed=0).returns
        assert sorted(returns[:n_envs]) == pytest.approx(sorted(expected), rel=1e-6), "one each, as they end"


def test_the_name_that_sb3_has_for_dicts() -> None:
    env = AnySpaces(spaces.Dict({"all": BOX, "some": spaces.Discrete(2)}), ACTIONS)
    with FastES("MultiInputLstmPolicy", env, preset="default", n_workers=0, seed=0) as model:
        assert model.policy_spec == make_policy_spec("MlpLstmPolicy", env.observation_space, ACTIONS)
        _, state = model.predict(env.reset(seed=0)[0])
        assert state is not None
        assert [part.shape for part in state] == [(1, 1, HIDDEN_SIZE)] * 2
