"""Risk: training reads an observation that predict refuses, or both read another one than the environment means."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from processes import sent_by_value

from fastes import FastES, WorkerError
from fastes.rollout.observations import ObservationReader, layout_of

sent_by_value(__name__)
SMALL: dict[str, Any] = {"seed": 0, "population_size": 4, "preset": "default", "target_return": "none"}
IMAGE = spaces.Box(0, 255, (12, 10, 3), np.uint8)
FOUR = spaces.Box(-1.0, 1.0, (4,))


class Shown(gymnasium.Env[Any, Any]):
    """Shows what `show` makes of samples of its space; the reward is what the policy chose."""

    def __init__(self, space: Any, show: Any) -> None:
        self.observation_space, self.action_space, self.show = copy.deepcopy(space), spaces.Box(-1.0, 1.0, (1,)), show

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.steps = 0
        return self.show(self.observation_space.sample()), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.show(self.observation_space.sample()), float(action[0]), self.steps >= 4, False, {}


def same(sample: Any) -> Any:
    return sample


def trained(space: Any, show: Any = same, n_workers: int | None = 0, **settings: Any) -> tuple[bytes, list[str]]:
    """Theta after three generations, and what was warned of."""

    def make() -> Shown:
        return Shown(space, show)

    env: Any = gymnasium.vector.SyncVectorEnv([make] * 2) if n_workers is None else make
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with FastES(env, n_workers=n_workers, **{**SMALL, **settings}) as model:
            model.learn(40)
            return model.theta.tobytes(), [str(each.message) for each in caught if each.category is RuntimeWarning]


LAYOUTS: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "channels first": (
        IMAGE,
        lambda image: image.transpose(2, 0, 1),
        {"policy": "CnnPolicy", "policy_kwargs": {"cnn": [[2, 3, 2]], "batch_norm": "none"}},
        "observation has shape (3, 12, 10) where its space has (12, 10, 3): its channels come first and are moved to the end",
    ),
    "channels last": (
        spaces.Box(0, 255, (3, 12, 10), np.uint8),
        lambda image: image.transpose(1, 2, 0),
        {"policy": "CnnPolicy", "policy_kwargs": {"cnn": [[2, 3, 2]], "batch_norm": "none"}},
        "observation has shape (12, 10, 3) where its space has (3, 12, 10): its channels come last and are moved to the front",
    ),
    "column": (FOUR, lambda x: x[:, None], {}, "observation has shape (4, 1) where its space has (4,): axes of length 1"),
    "row": (FOUR, lambda x: x[None], {}, "observation has shape (1, 4) where its space has (4,): axes of length 1"),
    "number": (spaces.Box(-1.0, 1.0, (1,)), lambda x: float(x[0]), {}, "observation has shape () where its space has (1,)"),
    "part": (
        spaces.Dict({"screen": IMAGE, "place": FOUR}),
        lambda parts: {**parts, "screen": parts["screen"].transpose(2, 0, 1)},
        {},
        "observation['screen'] has shape (3, 12, 10) where its space has (12, 10, 3): its channels come first",
    ),
    "more keys": (
        spaces.Dict({"place": FOUR}),
        lambda parts: {**parts, "speed": 3.0},
        {},
        "observation has the keys ['speed'], which its space lacks: they are left out",
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_is_recognised_and_said_once(name: str) -> None:
    space, show, settings, said = LAYOUTS[name]
    expected = trained(space, same, 0, **settings)
    assert expected[1] == []
    theta, told = trained(space, show, 0, **settings)
    assert theta == expected[0]
    assert [text for text in told if text.startswith(said)] == told
    assert len(told) == 1


@pytest.mark.parametrize("n_workers", [2, None], ids=["workers", "vector"])
def test_other_pools_do_the_same(n_workers: int | None) -> None:
    space, show, settings, said = LAYOUTS["channels first"]
    if n_workers is None:  # a vector environment makes its space's shape of most things
        space, show, settings, said = LAYOUTS["column"]
        show = same
    theta, told = trained(space, show, n_workers, **settings)
    assert theta == trained(space, show, 0, **settings)[0]
    assert [text for text in told if said in text] == told[: n_workers is not None]


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("batch", [False, True], ids=["one", "batch"])
def test_predict_reads_what_training_reads(name: str, batch: bool) -> None:
    space, show, settings, _ = LAYOUTS[name]
    if name in ("row", "number") and batch:
        pytest.skip("one more axis is a batch")
    samples = [space.sample() for _ in range(3)]

    def given(each: list[Any]) -> Any:
        if not batch:
            return each[0]
        if isinstance(space, spaces.Dict):
            return {key: np.stack([item[key] for item in each]) for key in each[0]}
        return np.stack(each)

    with FastES(lambda: Shown(space, same), n_workers=0, **{**SMALL, **settings}) as model:
        model.learn(40)
        expected = model.predict(given(samples), deterministic=True)[0]
        found = model.predict(given([show(sample) for sample in samples]), deterministic=True)[0]
        np.testing.assert_array_equal(np.squeeze(found), np.squeeze(expected))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("is_dict", [False, True], ids=["image", "dict"])
def test_a_batch_of_grey_images_with_channels_first_is_one_of_any_length(count: int, is_dict: bool) -> None:
    grey = spaces.Box(0, 255, (12, 10, 1), np.uint8)
    space: Any = spaces.Dict({"image": grey, "speed": FOUR}) if is_dict else grey
    images, speeds = np.stack([grey.sample() for _ in range(count)]), np.stack([FOUR.sample() for _ in range(count)])
    with FastES(lambda: Shown(space, same), n_workers=0, **SMALL) as model:
        first, last = (
            {"image": shown, "speed": speeds} if is_dict else shown for shown in (images.transpose(0, 3, 1, 2), images)
        )
        found, expected = (model.predict(batch, deterministic=True)[0] for batch in (first, last))
    assert found.shape == expected.shape == (count, 1)
    np.testing.assert_array_equal(found, expected)


WRONG: dict[str, tuple[Any, Any]] = {
    "square for four": (FOUR, np.zeros((2, 2))),
    "five for four": (FOUR, np.zeros(5)),
    "flat image": (IMAGE, np.zeros(360, np.uint8)),
    "swapped sides": (IMAGE, np.zeros((10, 12, 3), np.uint8)),
    "four for a square": (spaces.Box(-1.0, 1.0, (2, 2)), np.zeros(4)),
}


@pytest.mark.parametrize("name", WRONG)
def test_another_shape_with_as_many_values_is_an_error_in_both(name: str) -> None:
    space, shown = WRONG[name]
    said = f"observation has shape {shown.shape}: expected {space.shape}"
    with FastES(lambda: Shown(space, lambda _: shown), n_workers=0, **SMALL) as model:
        with pytest.raises(WorkerError) as caught:
            model.learn(10)
        assert said in str(caught.value)
        with pytest.raises(ValueError) as refused:
            model.predict(shown)
        assert said in str(refused.value)


VALUES: dict[str, tuple[Any, Any, list[float], str]] = {
    "below": (
        spaces.Discrete(3),
        -1,
        [0, 0, 0],
        "has the value -1, which is not in Discrete(3): all its places are 0",
    ),
    "above": (spaces.Discrete(3, start=1), 4, [0, 0, 0], "has the value 4, which is not in Discrete(3, start=1)"),
    "several": (
        spaces.MultiDiscrete([2, 3]),
        np.array([2, 1]),
        [0, 0, 0, 1, 0],
        "has the value 2, which is not in",
    ),
    "switch": (
        spaces.MultiBinary(2),
        np.array([7, 1]),
        [7, 1],
        "has the value 7, which is not in MultiBinary(2): it is taken",
    ),
    "part": (
        spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(2)}),
        {"a": 5, "b": 1},
        [0, 0, 0, 1],
        "observation['a'] has the value 5, which is not in Discrete(2)",
    ),
    "float image": (
        spaces.Dict({"screen": spaces.Box(0, 255, (1, 1, 2), np.uint8)}),
        {"screen": np.array([[[0.25, 0.5]]], np.float32)},
        [0.25, 0.5],
        "observation['screen'] has the value 0.25 with dtype float32, which is not in Box(0, 255, (1, 1, 2), uint8)",
    ),
    "large number": (
        spaces.Tuple([spaces.Box(0, 255, (1, 1, 2), np.uint8)]),
        (np.array([[[300, -1]]]),),
        [300, -1],
        "observation[0] has the value 300 with dtype int64",
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_outside_of_the_space_are_said_once_and_read_alike(name: str) -> None:
    space, shown, read, said = VALUES[name]
    told: list[str] = []
    reader = ObservationReader(space, lambda _, text: told.append(text))
    assert reader.flatten is not None
    for _ in range(3):
        assert reader.flatten(shown).tolist() == read
    assert len(told) == 1
    assert said in told[0]
    with FastES(lambda: Shown(space, lambda _: shown), n_workers=0, **SMALL) as model:
        with pytest.warns(RuntimeWarning) as warned:
            model.learn(10)
        assert sum(said in str(each.message) for each in warned) == 1
        with pytest.warns(RuntimeWarning) as warned:
            [model.predict(shown) for _ in range(2)]
        assert sum(said in str(each.message) for each in warned) == 1


@pytest.mark.parametrize("n_workers", [0, 2])
def test_values_of_a_box_are_compared_at_the_first_observation(n_workers: int) -> None:
    _, told = trained(spaces.Box(0.0, 1.0, (3,)), lambda x: 255.0 * x + 1.0, n_workers)
    assert len(told) == 1
    assert "which is not in Box(0.0, 1.0, (3,), float32): values outside of a Box are taken as they are" in told[0]


def test_choices_that_are_no_whole_numbers_are_errors_in_both() -> None:
    for space, shown in (
        (spaces.Discrete(3), 1.5),
        (spaces.Discrete(3), float("nan")),
        (spaces.MultiDiscrete([2, 3]), np.array([0.5, 1.0])),
    ):
        reader = ObservationReader(space)
        assert reader.flatten is not None
        with pytest.raises(ValueError):
            reader.flatten(shown)
        with FastES(lambda space=space: Shown(space, same), n_workers=0, **SMALL) as model, pytest.raises(ValueError):
            model.predict(shown)


SPACES: list[Any] = [
    spaces.Discrete(4, start=-1),
    spaces.MultiDiscrete([[2, 3], [4, 2]]),
    spaces.MultiBinary((2, 2)),
    spaces.Dict({"a": FOUR, "b": spaces.Discrete(3, start=1), "c": IMAGE, "d": spaces.Tuple([spaces.MultiBinary(2), FOUR])}),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_members_of_a_space_are_read_as_gymnasium_flattens_them(space: Any) -> None:
    reader = ObservationReader(space, lambda _, text: pytest.fail(text))
    assert reader.flatten is not None
    space.seed(0)
    for _ in range(10):
        sample = space.sample()
        np.testing.assert_array_equal(reader.flatten(sample), spaces.flatten(space, sample))


def test_layouts_that_may_mean_two_things_are_none() -> None:
    assert layout_of((2, 2), (4,)) is layout_of((3, 2), (2, 3)) is layout_of((12, 3, 10), (12, 10, 3)) is None
    assert layout_of((3, 3, 3), (3, 3, 3)) is not None
