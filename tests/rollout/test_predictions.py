"""Risk: `predict` refuses what SB3 and users hand over, takes a batch for one observation, or acts differently in a batch."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
from drawn_spaces import OBSERVATIONS, SMALL, modest
from envs_for_tests import AnySpaces
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from gymnasium.vector.utils import create_empty_array
from hypothesis import given
from hypothesis import strategies as st
from training import learn

from fastes import FastES, TorchPolicy
from fastes.policies.named_policies import make_policy_spec
from fastes.rollout.obs_normalizer import ObsNormalizer
from fastes.rollout.observations import observation_rows
from fastes.rollout.predictor import Predictor

ACTIONS = spaces.Box(-1.0, 1.0, (2,))
SPACES: dict[str, spaces.Space[Any]] = {
    "Discrete": spaces.Discrete(5, start=-2),
    "MultiDiscrete": spaces.MultiDiscrete([3, 2], start=[1, -1]),
    "grid": spaces.MultiDiscrete([[2, 3], [4, 2]]),
    "MultiBinary": spaces.MultiBinary(3),
    "Dict": spaces.Dict(
        {
            "speed": spaces.Box(-1.0, 1.0, (2,), np.float32),
            "image": spaces.Box(0, 255, (2, 2), np.uint8),
            "gear": spaces.Discrete(3),
            "lamps": spaces.MultiBinary(2),
        }
    ),
    "Tuple": spaces.Tuple([spaces.Box(-1.0, 1.0, (2,), np.float64), spaces.MultiDiscrete([3, 2]), spaces.Discrete(4)]),
    "pairs": spaces.Tuple([spaces.Box(-1.0, 1.0, (2,)), spaces.Box(-1.0, 1.0, (2,))]),
    "choices": spaces.Tuple([spaces.Discrete(3), spaces.Discrete(3)]),
    "nested": spaces.Dict({"x": spaces.Tuple([spaces.Discrete(2), spaces.Dict({"y": spaces.Box(0.0, 1.0, ())})])}),
    "Text": spaces.Dict({"word": spaces.Text(3, min_length=3), "speed": spaces.Box(-1.0, 1.0, (2,))}),
}


def stacked(space: Any, observations: list[Any]) -> Any:
    """As SB3's and Gymnasium's vector environments stack them."""
    if isinstance(space, spaces.Dict):
        return {key: stacked(part, [one[key] for one in observations]) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(stacked(part, [one[k] for one in observations]) for k, part in enumerate(space.spaces))
    if isinstance(space, spaces.Text):
        return tuple(observations)
    return np.array(observations)


class Acting:
    """A policy of some random parameters for a space, and what training would do with an observation."""

    def __init__(self, space: Any) -> None:
        self.space = space
        self.model = FastES(partial(AnySpaces, space, ACTIONS), n_workers=0, policy_kwargs={"net_arch": [3]}, **SMALL)
        learn(self.model, 1)

    def __call__(self, observation: Any) -> Any:
        return self.model.predict(observation, deterministic=True)[0]

    def as_trained(self, observation: Any) -> Any:
        actor = self.model.policy_spec.make_actor()
        actor.parameters[:] = self.model.theta
        normalizer = self.model.normalizer
        if self.model.settings.normalize_obs:
            actor.set_normalizer(normalizer.mean, 1.0 / normalizer.std, normalizer.clip)
        actor.begin_episode(0, 0.0, False)
        return actor.act(spaces.flatten(self.space, observation))


def act_on(predictor: Predictor, observation: Any, space: Any) -> Any:
    """The action of parameters that are all zero."""
    spec = predictor.spec
    theta = np.zeros(spec.num_params, np.float32)
    return predictor.act(theta, ObsNormalizer(spec.obs_size), observation, (0.0, False), space)[0]


def same(first: Any, second: Any) -> bool:
    return first.dtype == second.dtype and first.shape == second.shape and first.tobytes() == second.tobytes()


@pytest.mark.parametrize("name", SPACES)
def test_one_stacked_and_listed_are_the_same_bits(name: str) -> None:
    space = SPACES[name]
    acting = Acting(space)
    space.seed(1)
    observations = [space.sample() for _ in range(5)]
    single = [acting(one) for one in observations]
    assert all(same(one, acting.as_trained(raw)) for one, raw in zip(single, observations, strict=True))
    assert len({one.tobytes() for one in single}) > 1
    for n in (5, 2, 1):  # two observations of two parts are where readings could be mixed up
        rows = np.array(single[:n])
        assert same(acting(stacked(space, observations[:n])), rows)
        assert same(acting(observations[:n]), rows)
        if isinstance(space, spaces.Dict):
            assert same(acting(tuple(observations[:n])), rows)
            listed = np.empty(n, dtype=object)
            listed[:] = observations[:n]
            assert same(acting(listed), rows)


@given(OBSERVATIONS.filter(lambda space: not isinstance(space, spaces.Box)), st.integers(1, 3), st.randoms())
@modest
def test_any_space_stacks(space: Any, n: int, random: Any) -> None:
    space.seed(random.randrange(2**31))
    observations = [space.sample() for _ in range(n)]
    expected = [spaces.flatten(space, one).tobytes() for one in observations]
    for batch in (stacked(space, observations), observations):
        rows, single = observation_rows(space, batch)
        assert not single
        assert [spaces.flatten(space, row).tobytes() for row in rows] == expected
    ((row,), single) = observation_rows(space, observations[0])
    assert single
    assert spaces.flatten(space, row).tobytes() == expected[0]


def test_values_and_types_that_a_box_does_not_declare() -> None:
    acting = Acting(SPACES["Dict"])
    one = {"speed": np.array([3.5, -7.25], np.float32), "image": np.full((2, 2), 9, np.uint8), "gear": 1, "lamps": [1, 0]}
    expected = acting(one)
    assert same(expected, acting.as_trained(one))
    others: list[dict[str, Any]] = [
        {"speed": np.array([3.5, -7.25], np.float64)},
        {"speed": np.array([3.5, -7.25], np.float16)},
        {"speed": [3.5, -7.25]},
        {"image": np.full((2, 2), 9.0)},
        {"image": np.full((2, 2), 9, np.int64)},
        {"gear": np.int8(1)},
        {"gear": np.array(1)},
        {"gear": 1.0},
        {"lamps": np.array([True, False])},
        {"lamps": np.array([1.0, 0.0], np.float32)},
    ]
    for other in others:
        assert same(acting({**one, **other}), expected), other
    assert not same(acting({**one, "speed": np.array([1.0, -1.0])}), expected), "values are not clipped"
    choices = Acting(SPACES["grid"])
    assert same(choices(np.array([[1.0, 0.0], [3.0, 1.0]])), choices(np.array([[1, 0], [3, 1]])))
    whole = [{"speed": one["speed"], "image": one["image"], "gear": 1, "lamps": [1, 0]}] * 3
    assert same(acting(stacked(acting.space, whole)), np.array([expected] * 3))


def test_orders_of_keys_do_not_matter() -> None:
    acting = Acting(SPACES["Dict"])
    one = acting.space.sample()
    assert same(acting(dict(reversed(list(one.items())))), acting(one))


def test_tuples_are_stacked_and_lists_are_lists() -> None:
    acting = Acting(SPACES["pairs"])
    a, b, c, d = (np.array([k, -k], np.float32) / 5 for k in range(4))
    first, second = acting((a, b)), acting((c, d))
    assert same(acting([(a, b), (c, d)]), np.array([first, second]))
    assert same(acting(([a, c], [b, d])), np.array([first, second]))
    assert same(acting(((a, c), (b, d))), np.array([first, second]))
    assert same(acting([a, b]), first)
    assert same(acting(np.array([a, b])), first)
    assert same(acting(np.array([[a, b], [c, d]])), np.array([first, second]))
    choices = Acting(SPACES["choices"])
    assert same(choices((1, 2)), choices([1, 2]))
    assert same(choices(np.array([[1, 2], [0, 1]])), np.array([choices((1, 2)), choices((0, 1))]))
    assert same(choices(([1, 0], [2, 1])), np.array([choices((1, 2)), choices((0, 1))]))


def test_an_empty_batch_gives_no_action() -> None:
    for name in ("Discrete", "Dict", "Tuple"):
        acting = Acting(SPACES[name])
        assert acting(create_empty_array(acting.space, 0)).shape == (0, 2)
        assert acting([]).shape == (0, 2)


GOOD = {"speed": np.zeros(2), "image": np.zeros((2, 2)), "gear": 1, "lamps": np.zeros(2)}
# space, what came, and what the message has to name
REFUSED: list[tuple[str, Any, tuple[str, ...]]] = [
    ("Discrete", 0.5, ("value 0.5",)),
    ("Discrete", float("nan"), ("nan",)),
    ("Discrete", "up", ("str", "'up'")),
    ("Discrete", None, ("None",)),
    ("MultiDiscrete", [1, -1, 0], ("(3,)", "(2,)", "(n, 2)")),
    ("MultiBinary", [[0, 1], [1]], ("list", "one shape")),
    ("Dict", 5, ("int", "5", "dict", "speed")),
    ("Dict", {"speed": np.zeros(2)}, ("['speed']", "'gear', 'image', 'lamps', 'speed'")),
    ("Dict", {**GOOD, "speed": np.zeros(3)}, ("observation['speed']", "(3,)", "(2,)", "(n, 2)")),
    ("Dict", {**GOOD, "speed": ["a", "b"]}, ("observation['speed']", "<U1")),
    ("Dict", {**GOOD, "speed": np.zeros(2) * 1j}, ("observation['speed']", "complex")),
    ("Dict", {**GOOD, "speed": np.zeros((4, 2))}, ("mixes", "a batch of 4", "one observation")),
    ("Dict", {k: np.zeros((n, *np.shape(v))) for n, (k, v) in enumerate(GOOD.items(), 2)}, ("batch of 2", "batch of 3")),
    ("Dict", [{k: [v] for k, v in GOOD.items()}], ("observation[0]", "batch itself")),
    ("Tuple", (np.zeros(2), [0, 0]), ("tuple of 3 parts",)),
    ("Tuple", {"a": 1}, ("dict", "tuple of 3 parts")),
    ("nested", {"x": [[0, 1], {"y": [0.5, 0.5]}]}, ("observation['x']", "list", "tuple")),
    ("Text", {"word": "toolong", "speed": [0, 0]}, ("observation['word']", "toolong", "Text")),
]


@pytest.mark.parametrize(("name", "observation", "words"), REFUSED)
def test_what_does_not_fit_is_named(name: str, observation: Any, words: tuple[str, ...]) -> None:
    spec = make_policy_spec("LinearPolicy", SPACES[name], ACTIONS)
    with pytest.raises(ValueError) as caught:
        act_on(Predictor(spec, False, 0), observation, SPACES[name])
    missing = [
        word for word in (*words, str(SPACES[name]), "expected one observation", "batch") if word not in str(caught.value)
    ]
    assert not missing, f"{missing} not in: {caught.value}"


SAID: list[tuple[str, Any, tuple[str, ...]]] = [
    ("Discrete", 3, ("value 3", "Discrete(5, start=-2)")),
    ("Discrete", -3, ("value -3",)),
    ("Discrete", [0, 1, 9], ("value 9",)),
    ("MultiDiscrete", [1, 1], ("value 1",)),
    ("MultiBinary", [0, 1, 2], ("value 2",)),
    ("Dict", {**GOOD, "more": 1}, ("more",)),
    ("Dict", {**GOOD, "image": np.full((2, 2), 0.5)}, ("observation['image']", "0.5")),
    ("Dict", {**GOOD, "image": np.full((2, 2), 256)}, ("observation['image']", "256")),
    ("Dict", {**GOOD, "gear": 3}, ("observation['gear']", "value 3", "Discrete(3)")),
    ("Dict", [GOOD, {**GOOD, "gear": 7}], ("observation['gear']", "7")),
    ("Tuple", (np.zeros(2), [0, 0], 4), ("observation[2]", "value 4")),
    ("Discrete", np.zeros((2, 1), int), ("shape (1,)", "()")),
]


@pytest.mark.parametrize(("name", "observation", "words"), SAID)
def test_what_is_outside_of_the_space_is_said_once_and_taken(name: str, observation: Any, words: tuple[str, ...]) -> None:
    predictor = Predictor(make_policy_spec("LinearPolicy", SPACES[name], ACTIONS), False, 0)
    with pytest.warns(RuntimeWarning) as caught:
        act_on(predictor, observation, SPACES[name])
    assert len(caught) == 1
    assert [word for word in words if word not in str(caught[0].message)] == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        act_on(predictor, observation, SPACES[name])


@pytest.mark.parametrize("name", [name for name in SPACES if name != "Text"])
def test_vector_environments_of_gymnasium(name: str) -> None:
    acting = Acting(SPACES[name])
    vector = SyncVectorEnv([partial(AnySpaces, SPACES[name], ACTIONS)] * 3)
    observations, _ = vector.reset(seed=4)
    for _ in range(4):
        actions = acting(observations)
        assert actions.shape == (3, 2)
        observations, *_ = vector.step(actions)
    vector.close()


@pytest.mark.parametrize("name", ["Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple", "pairs"])
def test_evaluate_policy_of_sb3(name: str) -> None:
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv

    acting = Acting(SPACES[name])
    for n_envs in (1, 3):
        vector = DummyVecEnv([lambda: Monitor(AnySpaces(SPACES[name], ACTIONS))] * n_envs)
        vector.seed(0)
        observations: Any = vector.reset()
        rows = [acting(row) for row in observation_rows(SPACES[name], observations)[0]]
        assert same(acting(observations), np.array(rows))
        returns, lengths = evaluate_policy(acting.model, vector, n_eval_episodes=5, return_episode_rewards=True)
        assert lengths == [6] * 5
        assert np.isfinite(returns).all()
        vector.close()


def test_each_row_of_a_policy_that_remembers_has_noise_of_its_own() -> None:
    torch = pytest.importorskip("torch")

    class Still(torch.nn.Module):  # type: ignore[misc,name-defined]
        """Remembers nothing, and might."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def reset(self) -> None: ...

        def forward(self, observation: Any) -> Any:
            return 0.0 * self.layer(observation)

    settings: dict[str, Any] = {"preset": "default", "n_workers": 0, "seed": 3, "action_noise": 0.2}
    with FastES("Pendulum-v1", TorchPolicy(Still()), **settings) as model:
        actions = [model.predict(np.zeros((4, 3), np.float32))[0] for _ in range(2)]
    assert len(set(np.ravel(actions).tolist())) == 8


def test_actions_with_noise_follow_from_the_seed() -> None:
    def drawn(seed: int) -> list[bytes]:
        with FastES("Pendulum-v1", preset="default", n_workers=0, seed=3, action_noise=0.2) as model:
            model.set_random_seed(seed)
            observation = model.observation_space.sample() * 0
            return [model.predict(observation)[0].tobytes() for _ in range(4)]

    assert drawn(3) == drawn(3)
    assert len(set(drawn(3))) == 4
    assert drawn(3) != drawn(4)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_a_seed_of_numpy_is_its_number(kind: type[Any]) -> None:
    """Scripts draw seeds as arrays; 32 bits do not hold the keys of actions."""
    observation = np.zeros(3, np.float32)
    with FastES("Pendulum-v1", preset="default", n_workers=0, seed=kind(3), action_noise=0.2) as model:
        drawn = model.predict(observation)[0]
        for seed in (7, 3):
            model.set_random_seed(kind(seed))
        assert model.seed == 3
        assert model.predict(observation)[0] == drawn
    with FastES("Pendulum-v1", preset="default", n_workers=0, seed=4, action_noise=0.2) as model:
        model.set_random_seed(kind(3))
        assert model.predict(observation)[0] == drawn
