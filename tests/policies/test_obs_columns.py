"""Risk: a policy sees other observations than it was told to, or others when it acts, is loaded, or plays on another pool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from envs_for_tests import Toy
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from training import assert_same, assert_same_records, learn, train
from uneven import Dictionary, assert_same_results, settings

from fastes import CallablePolicy, CheckpointError, CheckpointMismatch, FastES, Settings
from fastes.checkpoints.reader import read_checkpoint
from fastes.checkpoints.writer import write_checkpoint
from fastes.policies.obs_columns import checked_columns, columns_of

CHOSEN: dict[str, Any] = settings(obs_columns="2,0")
FLAT = spaces.Box(-1.0, 1.0, (5,))


class Two(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Shows what CHOSEN chooses, and nothing else."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)

    def observation(self, observation: Any) -> Any:
        return observation[[2, 0]]


def two() -> Any:
    return Two(Toy())


def dictionary() -> Any:
    return Dictionary(Toy())


def lean(parameters: Any, observation: Any) -> Any:
    """A policy of the two."""
    assert observation.shape == (2,)
    return np.tanh(parameters[:2] * observation + parameters[2:]).astype(np.float32)


# What is written


@pytest.mark.parametrize(
    ("value", "text", "columns"),
    [
        ("all", "all", ()),
        ("0:", "all", ()),
        ("0:2,4", "0:2,4", (0, 1, 4)),
        ([0, 1, np.int64(2), "4:"], "0:3,4:", (0, 1, 2, 4)),
        ((3, 1), "3,1", (3, 1)),
        (range(1, 4), "1:4", (1, 2, 3)),
        (np.array([4, 0]), "4,0", (4, 0)),
        (" 1 , :1 ", "1,0", (1, 0)),
        ("0:5", "0:5", ()),  # all there are
        ("2:,0:2", "2:,0:2", (2, 3, 4, 0, 1)),
    ],
)
def test_indices_and_ranges(value: Any, text: str, columns: tuple[int, ...]) -> None:
    assert Settings(obs_columns=value).obs_columns == checked_columns(text) == text
    assert columns_of(value, 5) == columns


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "'' is empty, and a policy has to see something"),
        ([], r"\[\] is empty"),
        ("1,0:3", "has column 1 twice"),
        ("2:,7", "has column 7 twice"),
        ("3:3", "has the range '3:3', in which nothing is"),
        ("-1", "has the item '-1': expected 'all', indices and ranges such as '0:45,60,100:'"),
        ("0:6:2", "has the item '0:6:2'"),
    ],
)
def test_what_is_no_choice_is_named(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"obs_columns = .*{message}"):
        Settings(obs_columns=value)


@pytest.mark.parametrize(("value", "where"), [("0:4", 3), ("3", 3), ("5:", 5), ("1,9,0", 9)])
def test_columns_that_are_not_there_are_named(value: str, where: int) -> None:
    with pytest.raises(ValueError, match=f"'{value}' is out of range at {where}: observations have 3 values.*from 0 to 2"):
        FastES(Toy, preset="default", n_workers=0, obs_columns=value)


class Shows(Toy):
    """Whatever the space is."""

    space: spaces.Space[Any]

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = self.space


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Box(0, 255, (4, 4, 3), np.uint8), r"have shape \(4, 4, 3\): leave it out, or flatten them"),
        (spaces.Box(-1.0, 1.0, (2, 3)), r"have shape \(2, 3\)"),
        (spaces.Discrete(7), r"an observation of Discrete\(7\) is a choice: leave it out"),
    ],
    ids=str,
)
def test_where_it_makes_no_sense_it_is_refused(space: Any, message: str) -> None:
    class Env(Shows):
        pass

    Env.space = space
    with pytest.raises(ValueError, match=f"obs_columns = '0' chooses among .*{message}"):
        FastES(Env, preset="default", n_workers=0, obs_columns=[0])


# What is seen


@pytest.mark.parametrize(
    "policy",
    [
        {"policy_kwargs": {"net_arch": [4]}},
        {"policy": "LinearPolicy", "policy_kwargs": {}},
        {"policy": CallablePolicy(lean, 4), "policy_kwargs": {}},
    ],
    ids=["mlp", "linear", "callable"],
)
def test_a_training_is_that_of_an_environment_that_shows_no_more(policy: dict[str, Any]) -> None:
    expected = train(two, 3, **settings(**policy))
    chosen = train(Toy, 3, **{**CHOSEN, **policy})
    for group, arrays in expected.state.arrays.items():
        assert {name: array.tobytes() for name, array in arrays.items()} == {
            name: array.tobytes() for name, array in chosen.state.arrays[group].items()
        }
    assert_same_records(expected.records, chosen.records)
    assert chosen.state.arrays["trainings"]["0.normalizer.mean"].shape == (2,)
    if "policy" not in policy:
        assert_same(chosen, train(Toy, 3, 2, **CHOSEN))


def test_a_module_gets_them() -> None:
    torch = pytest.importorskip("torch")
    from fastes import TorchPolicy

    own = {"policy": TorchPolicy(torch.nn.Linear(2, 2)), "policy_kwargs": {}}
    expected, chosen = train(two, 2, **{**settings(), **own}), train(Toy, 2, 2, **{**CHOSEN, **own})
    assert_same_records(expected.records, chosen.records)


@pytest.mark.parametrize(("env", "value"), [(Toy, "2,0"), (dictionary, "1:3,5")], ids=["box", "flattened"])
def test_a_vector_environment_shows_the_same(env: Any, value: str) -> None:
    own = settings(obs_columns=value)
    vector = SyncVectorEnv([env] * 3)
    assert_same_results(train(env, 2, **own), train(vector, 2, **own))
    vector.close()


def test_acting_needs_whole_observations(tmp_path: Path) -> None:
    observations = np.random.default_rng(0).standard_normal((4, 3))
    with (
        FastES(two, preset="default", n_workers=0, **settings()) as alone,
        FastES(Toy, preset="default", n_workers=0, **CHOSEN) as model,
    ):
        learn(alone, 2)
        learn(model, 2)
        expected, _ = alone.predict(observations[:, [2, 0]], deterministic=True)
        assert (model.predict(observations, deterministic=True)[0] == expected).all()
        assert (model.predict(observations[1], deterministic=True)[0] == expected[1]).all()
        with pytest.raises(ValueError, match=r"observation has shape \(2,\): expected \(3,\)"):
            model.predict(observations[0, :2])
        evaluation = model.evaluate(2)
        model.save(tmp_path / "m")
    assert read_checkpoint(tmp_path / "m").data["settings"]["obs_columns"] == "2,0"
    with FastES.load(tmp_path / "m", n_workers=0) as model:  # acts without an environment
        assert (model.predict(observations, deterministic=True)[0] == expected).all()
    with FastES.load(tmp_path / "m", Toy, n_workers=0) as model:
        assert (model.evaluate(2).returns == evaluation.returns).all()
        assert model.policy_spec.columns == (2, 0)
    with pytest.raises(CheckpointMismatch, match=r"has observations \(2,\) and .* was made for observations \(3,\)"):
        FastES.load(tmp_path / "m", two, n_workers=0)
    with pytest.raises(CheckpointMismatch, match="obs_columns = '0,2' cannot change on loading, the checkpoint has '2,0'"):
        FastES.load(tmp_path / "m", Toy, n_workers=0, obs_columns=[0, 2])
    with FastES.load(tmp_path / "m", Toy, n_workers=0, obs_columns=[2, 0]) as model:
        assert model.generation == 2, "they are the same"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("2,3", "'2:4' is out of range at 3: observations have 3 values"),
        ("0:2,2", r"2 inputs"),
        ("2", "1 columns of .* for 2 inputs"),
        ("1,1", "has column 1 twice"),
        ("0:9999999999", "out of range"),
        (7, "7 is a int"),
        (None, "None is a NoneType"),
    ],
)
@pytest.mark.parametrize("custom", [False, True], ids=["mlp", "callable"])
def test_a_file_that_says_others_is_refused(columns: Any, message: str, custom: bool, tmp_path: Path) -> None:
    own = {"policy": CallablePolicy(lean, 4), "policy_kwargs": {}} if custom else {}
    with FastES(Toy, preset="default", n_workers=0, **{**CHOSEN, **own}) as model:
        saved = model.snapshot()
    saved.data["settings"]["obs_columns"] = columns
    write_checkpoint(tmp_path / "m", saved)
    message = f"{message}|observations of . values, statistics of 2" if custom else message
    with pytest.raises(CheckpointError, match=message):
        FastES.load(tmp_path / "m", Toy, n_workers=0, **({"policy": own["policy"]} if custom else {}))
