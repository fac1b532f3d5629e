"""Risk: a number that is not finite, or enormous, reaches theta or the statistics."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from faults import PAIRS, SETTINGS
from gymnasium import spaces
from hypothesis import example, given, settings
from hypothesis import strategies as st
from training import assert_same_state, label, learn, theta_of, train

from fastes import FastES, FastESError
from fastes.checkpoints.file_format import Checkpoint
from fastes.es.perturbations import draw_pairs
from fastes.training.record import Record

NAN, INF = math.nan, math.inf
SMALL: dict[str, Any] = {**SETTINGS, "preset": "default", "policy_kwargs": {"net_arch": [3]}}
OPTIMIZERS: tuple[dict[str, Any], ...] = (
    {"optimizer": "adam", "shaping": "centered_ranks"},
    {"optimizer": "adam", "shaping": "standardized"},
    {"optimizer": "sgd", "shaping": "centered_ranks"},
    {"optimizer": "clipup", "shaping": "nes"},
    {"optimizer": "sgd", "shaping": "standardized", "top_fraction": 0.5, "momentum": 0.0, "policy": "LinearPolicy"},
)
BOTH_KINDS = (OPTIMIZERS[0], OPTIMIZERS[-1])
LENGTH = 6


def small(**changes: Any) -> dict[str, Any]:
    merged = {**SMALL, **changes}
    if merged.get("policy") == "LinearPolicy":
        del merged["policy_kwargs"]
    return merged


class Numbers(gymnasium.Env[Any, Any]):
    """Six steps; at step `at`, or at all of them, the reward or observation is the one that a test wants to see.

    odd: only in episodes with an odd env seed. reward: also a function of the good reward.
    """

    def __init__(
        self, reward: Any = None, observation: Any = None, at: int = 3, always: bool = False, odd: bool = False
    ) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.reward, self.observation, self.at, self.always, self.odd = reward, observation, at, always, odd

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.wanted = 0, not self.odd or (seed or 0) % 2 == 1
        self.position = self.np_random.normal(size=3)
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.position = 0.9 * self.position + 0.2 * np.nan_to_num([*action, action[0]])
        reward: Any = 1.0 - float(np.square(self.position).sum())
        if self.reward is not None and self._now():
            reward = self.reward(reward) if callable(self.reward) else self.reward
        return self._observation(), reward, self.steps >= LENGTH, False, {}

    def _observation(self) -> Any:
        if self.observation is not None and self._now():
            return np.full(3, self.observation) if np.ndim(self.observation) == 0 else np.array(self.observation)
        return self.position.copy()

    def _now(self) -> bool:
        return self.wanted and (self.always or self.steps == self.at)


def numbers(**habits: Any) -> Callable[[], Numbers]:
    return partial(Numbers, **habits)


@pytest.fixture(autouse=True)
def _numpy_may_warn() -> Iterator[None]:
    """An overflow on the way is no failure; what it leaves behind is looked at."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def assert_finite(state: Checkpoint) -> None:
    for group, arrays in state.arrays.items():
        for name, array in arrays.items():
            assert np.isfinite(array).all(), (group, name, array)
    assert (state.arrays["trainings"]["0.normalizer.squares"] >= 0.0).all()
    assert (state.arrays["trainings"]["0.normalizer.counts"] >= 0).all()


def assert_sound(model: FastES, folder: Path) -> None:
    """The model is finite, acts, and a file of it gives the same model."""
    state = model.snapshot()
    if model.last_evaluation is not None:
        assert math.isfinite(model.last_evaluation.mean) or model.last_evaluation.mean == -INF
    assert_finite(state)
    assert np.isfinite(model.normalizer.std).all()
    assert (model.normalizer.std >= model.settings.obs_std_floor).all()
    model.save(folder / "m")
    with FastES.load(folder / "m", numbers(), n_workers=0) as loaded:
        assert_same_state(state, loaded.snapshot())


def assert_sane(record: Record) -> None:
    assert 0 <= record.num_nonfinite < 2 * PAIRS
    for name in ("return_mean", "return_max", "return_std", "theta_norm", "gradient_norm", "learning_rate", "episode_length"):
        assert math.isfinite(getattr(record, name)), (name, record)
    assert record.return_std >= 0.0
    assert record.return_mean <= record.return_max * (1.0 + 1e-12) + 1e-12 or record.return_max < 0.0
    assert 0.0 <= record.elite_fraction < 1.0
    if record.eval_generation:
        assert math.isfinite(record.eval_return) or record.eval_return == -INF
        assert 1 <= record.eval_rank <= 2 * PAIRS + 1
    else:
        assert record.generation == 1
        assert math.isnan(record.eval_return)
        assert record.eval_rank == 0


def without_budget(state: Checkpoint) -> Checkpoint:
    """`learn` notes its budget before it does anything."""
    (training,) = state.data["trainings"]
    counters = {**training["counters"], "budget": 0}
    selection = {**state.data["selection"], "budget": 0}
    return state._replace(data={**state.data, "selection": selection, "trainings": [{**training, "counters": counters}]})


def learn_or_stop(model: FastES, generations: int) -> tuple[list[Record], FastESError | None]:
    """Learn; each state is finite. A FastESError leaves the state before it as it was."""
    states = [model.snapshot()]

    def note(_: Record) -> None:
        states.append(model.snapshot())
        assert_finite(states[-1])

    records: list[Record] = []
    try:
        records = learn(model, generations, on_record=note)
    except FastESError as error:
        assert_same_state(without_budget(states[-1]), without_budget(model.snapshot()))
        return records, error
    return records, None


def odd_candidates(generation: int) -> int:
    return 2 * int(np.count_nonzero(draw_pairs(5, generation, PAIRS, 1, 29, 5000)[1] % 2))


# --- rewards ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", OPTIMIZERS, ids=label)
@pytest.mark.parametrize("reward", [NAN, INF, -INF])
def test_some_rewards_that_are_not_finite(reward: float, settings: dict[str, Any], tmp_path: Path) -> None:
    with FastES(numbers(reward=reward, odd=True), n_workers=0, **small(**settings)) as model:
        start = model.theta
        records = learn(model, 4)
        expected = [odd_candidates(generation) for generation in range(4)]
        assert [record.num_nonfinite for record in records] == expected
        assert 0 < sum(expected) < 4 * 2 * PAIRS
        for record in records:
            assert_sane(record)
        assert (model.theta != start).any()
        assert_sound(model, tmp_path)


def test_kinds_of_what_is_not_finite_count_alike() -> None:
    """All of them rank worst, with workers too."""
    first, *others = [train(numbers(reward=reward, odd=True), 3, 0, **SMALL) for reward in (NAN, INF, -INF)]
    others.append(train(numbers(reward=NAN, odd=True), 3, 2, **SMALL))
    for other in others:
        assert theta_of(other.state).tobytes() == theta_of(first.state).tobytes()


@pytest.mark.parametrize("settings", BOTH_KINDS, ids=label)
@pytest.mark.parametrize(("reward", "n_workers"), [(NAN, 0), (INF, 0), (-INF, 0), (1e308, 0), (NAN, 2)])
def test_no_finite_return_changes_nothing(reward: float, settings: dict[str, Any], n_workers: int, tmp_path: Path) -> None:
    """Two rewards of 1e308 add up to infinity."""
    env = numbers(reward=reward, always=True)
    with FastES(env, n_workers=n_workers, **small(**settings)) as model:
        records, error = learn_or_stop(model, 2)
        assert records == []
        assert error is not None
        assert "finite" in str(error)
        assert model.generation == model.num_timesteps == 0
        assert_sound(model, tmp_path)


@pytest.mark.parametrize("settings", OPTIMIZERS, ids=label)
@pytest.mark.parametrize("reward", [0.0, -0.0, 7.0, 1e300, -1e300, 5e-324])
def test_equal_returns_move_nothing(reward: float, settings: dict[str, Any], tmp_path: Path) -> None:
    env = numbers(reward=lambda _: reward, always=True)
    with FastES(env, n_workers=0, **small(**settings)) as model:
        start = model.theta.copy()
        for record in learn(model, 3):
            assert_sane(record)
            assert record.gradient_norm == 0.0
        assert model.theta.tobytes() == start.tobytes()
        assert_sound(model, tmp_path)


@pytest.mark.parametrize("settings", OPTIMIZERS, ids=label)
@pytest.mark.parametrize("scale", [1e300, -1e300, 1e307, 1e-300, 5e-324, 1e155])
def test_rewards_of_any_size(scale: float, settings: dict[str, Any], tmp_path: Path) -> None:
    with FastES(numbers(reward=lambda good: scale * good, always=True), n_workers=0, **small(**settings)) as model:
        records, error = learn_or_stop(model, 3)
        assert error is None
        for record in records:
            assert_sane(record)
        assert_sound(model, tmp_path)


@pytest.mark.parametrize("settings", OPTIMIZERS, ids=label)
def test_the_scale_of_rewards_decides_nothing(settings: dict[str, Any]) -> None:
    """Powers of two are exact: shaped returns are those of the good rewards."""
    plain, large, tiny = (
        train(numbers(reward=partial(_times, scale), always=True), 3, 0, **small(**settings))
        for scale in (1.0, 2.0**990, 2.0**-900)
    )
    assert theta_of(plain.state).tobytes() == theta_of(large.state).tobytes() == theta_of(tiny.state).tobytes()


def _times(scale: float, good: float) -> float:
    return scale * good


@pytest.mark.parametrize("settings", OPTIMIZERS, ids=label)
def test_a_mixture_of_huge_small_and_not_finite(settings: dict[str, Any], tmp_path: Path) -> None:
    values = iter([1e308, -1e308, NAN, 1e-300, INF, -1e300, 0.0, 5e-324, -INF, 3.0, 1e150] * 1000)
    with FastES(numbers(reward=lambda _: next(values)), n_workers=0, **small(**settings)) as model:
        records, error = learn_or_stop(model, 6)
        assert error is None
        assert any(record.num_nonfinite for record in records)
        assert len(records) == 6
        for record in records:
            assert_sane(record)
        assert_sound(model, tmp_path)


@pytest.mark.parametrize("reward", [1.7e308, -1.7e308])
@pytest.mark.parametrize("eval_episodes", [1, 2])
def test_huge_returns_are_no_target(reward: float, eval_episodes: int, tmp_path: Path) -> None:
    """The sum over evaluation episodes overflows where their mean does not: without a target, nothing is solved."""
    env = numbers(reward=lambda good: reward if good else 0.0)
    with FastES(env, n_workers=0, **small(eval_episodes=eval_episodes, target_episodes=3)) as model:
        records = learn(model, 2)
        assert not model.solved
        assert len(records) == 2
        for record in records:
            assert_sane(record)
            assert not record.eval_generation or record.eval_return == pytest.approx(reward)
            assert record.return_mean == pytest.approx(reward)
        assert model.last_evaluation is not None
        assert model.last_evaluation.mean == pytest.approx(reward)
        assert model.best_eval_return == pytest.approx(reward)
        assert_sound(model, tmp_path)
    with FastES(env, n_workers=0, **small(eval_episodes=eval_episodes, target_return=1e300, target_episodes=3)) as model:
        learn(model, 2)
        assert model.solved is (reward > 0)


KINDS: dict[str, Callable[[float], Any]] = {
    "int": round,
    "float32": lambda good: np.float32(round(good)),
    "float16": lambda good: np.float16(round(good)),
    "int64": lambda good: np.int64(round(good)),
    "int8": lambda good: np.int8(round(good)),
    "0-d array": lambda good: np.array(float(round(good))),
    "0-d int array": lambda good: np.array(round(good)),
    "longdouble": lambda good: np.longdouble(round(good)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_numbers_as_rewards(kind: str) -> None:
    """Exact whole numbers, so that all kinds can hold them."""
    plain, other = (train(numbers(reward=reward, always=True), 2, 0, **SMALL) for reward in (_whole, KINDS[kind]))
    assert theta_of(plain.state).tobytes() == theta_of(other.state).tobytes()
    assert [record.return_mean for record in plain.records] == [record.return_mean for record in other.records]


def _whole(good: float) -> float:
    return float(round(good))


@pytest.mark.parametrize("kind", [bool, np.bool_])
def test_truth_as_a_reward(kind: Any) -> None:
    plain, other = (
        train(numbers(reward=lambda good, as_=as_: as_(good > 0.0), always=True), 2, 0, **SMALL) for as_ in (float, kind)
    )
    assert theta_of(plain.state).tobytes() == theta_of(other.state).tobytes()
    assert plain.records[0].return_max > plain.records[0].return_mean


def test_small_integers_do_not_wrap() -> None:
    """Six rewards of 100 are 600, whatever an int8 can hold."""
    (record,) = train(numbers(reward=np.int8(100), always=True), 1, 0, **SMALL).records
    assert record.return_mean == 600.0


@pytest.mark.parametrize("reward", ["much", None, [1.0, 2.0], 1j, np.zeros(2)])
def test_rewards_that_are_no_number(reward: Any) -> None:
    env = numbers(reward=lambda _: reward)
    with FastES(env, n_workers=0, **SMALL) as model:
        records, error = learn_or_stop(model, 1)
        assert records == []
        assert error is not None
        assert "env seed" in str(error)


# --- observations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("at", [0, 3])
@pytest.mark.parametrize("value", [NAN, INF, -INF, [0.0, NAN, 1.0], [INF, -INF, 1.0]])
def test_observations_that_are_not_finite(value: Any, at: int, normalize: bool, tmp_path: Path) -> None:
    env = numbers(observation=value, at=at, odd=True)
    with FastES(env, n_workers=0, **small(normalize_obs=normalize)) as model:
        records, error = learn_or_stop(model, 4)
        assert error is None
        for record in records:
            assert_sane(record)
        skipped = sum(odd_candidates(generation) for generation in range(4)) if normalize else 0
        assert model.normalizer.skipped == skipped
        assert model.normalizer.count == (LENGTH * (4 * 2 * PAIRS - skipped) if normalize else 0)
        assert np.isfinite(model.predict(np.zeros(3), deterministic=True)[0]).all()
        assert_sound(model, tmp_path)


@pytest.mark.parametrize("n_workers", [0, 2])
def test_only_observations_that_are_not_finite(n_workers: int, tmp_path: Path) -> None:
    """The statistics stay empty; returns are finite, so training continues."""
    with FastES(numbers(observation=NAN, always=True), n_workers=n_workers, **SMALL) as model:
        records, error = learn_or_stop(model, 3)
        assert error is None
        assert len(records) == 3
        assert model.normalizer.count == 0
        assert model.normalizer.std.tolist() == [1.0, 1.0, 1.0]
        assert_sound(model, tmp_path)


@pytest.mark.parametrize("odd", [True, False])
@pytest.mark.parametrize("value", [1e38, 1e39, 1e150, 1e160, 1e300, 1.7e308, -1.7e308, [1e308, -1e308, 1e-308], 5e-324])
def test_observations_of_any_size(value: Any, odd: bool, tmp_path: Path) -> None:
    with FastES(numbers(observation=value, at=2, odd=odd), n_workers=0, **SMALL) as model:
        records, error = learn_or_stop(model, 5)
        assert error is None
        assert len(records) == 5
        for record in records:
            assert_sane(record)
        assert_sound(model, tmp_path)


def test_every_episode_is_counted_or_skipped(tmp_path: Path) -> None:
    """Each of their squares is finite, their sum over the episodes is not."""
    with FastES(numbers(observation=5e153, always=True), n_workers=0, **small(population_size=64)) as model:
        learn_or_stop(model, 3)
        assert model.normalizer.count + LENGTH * model.normalizer.skipped == model.num_timesteps
        assert_sound(model, tmp_path)


def test_huge_observations_with_workers_and_two_episodes(tmp_path: Path) -> None:
    changes = small(episodes_per_candidate=2, eval_episodes=2)
    results = [train(numbers(observation=1e200, odd=True), 3, n_workers, **changes) for n_workers in (0, 2)]
    assert_same_state(results[0].state, results[1].state)
    assert_finite(results[0].state)


# --- settings --------------------------------------------------------------------------------------------------------


EXTREMES: tuple[dict[str, Any], ...] = (
    {"learning_rate": 1e30},
    {"learning_rate": 1e38},
    {"learning_rate": 1e300},
    {"learning_rate": 1e-300},
    {"learning_rate": "lin_1e38_1e30"},
    {"sigma": 1e30},
    {"sigma": 1e38},
    {"sigma": 1e39},
    {"sigma": 1e300},
    {"sigma": 1e-10},
    {"sigma": 1e-20},
    {"sigma": 1e-30},
    {"sigma": 1e-300},
    {"sigma": 1e30, "learning_rate": 1e30},
    {"weight_decay": 1e3},
    {"weight_decay": 1e20},
    {"weight_decay": 1e30},
    {"weight_decay": 1e300},
    {"weight_decay": 1e30, "learning_rate": 1e-30},
    {"alive_bonus": 1e300},
    {"alive_bonus": -1e300},
    {"alive_bonus": 1.7e308},
    {"alive_bonus": "lin_-8e307_8e307"},
    {"optimizer": "clipup", "max_speed": 5e-324},
    {"optimizer": "clipup", "max_speed": 1e300, "learning_rate": 1e300},
    {"action_noise": 1e30},
    {"action_noise": 1e300},
    {"obs_clip": 1e300},
    {"obs_clip": 5e-324},
    {"obs_std_floor": 5e-324},
    {"obs_std_floor": 1e300},
    {"momentum": 0.9999999999},
    {"beta2": 0.9999999999},
    {"beta2": 0.0},
)


@pytest.mark.parametrize("kind", BOTH_KINDS, ids=label)
@pytest.mark.parametrize("extreme", EXTREMES, ids=label)
def test_extreme_settings_keep_the_last_finite_state(extreme: dict[str, Any], kind: dict[str, Any], tmp_path: Path) -> None:
    with FastES(numbers(), n_workers=0, **small(**{**kind, **extreme})) as model:
        _, error = learn_or_stop(model, 5)
        generation = model.generation
        assert generation == 5 or error is not None
        assert_sound(model, tmp_path)
    tame = {"learning_rate": 1e-3, "sigma": 0.1, "weight_decay": 0.0, "alive_bonus": 0.0, "action_noise": 0.0}
    with FastES.load(tmp_path / "m", numbers(), n_workers=0, **tame) as model:
        records, error = learn_or_stop(model, generation + 2)
        assert error is None
        assert len(records) == 2
        assert_sound(model, tmp_path)


def test_an_exploding_learning_rate_is_named() -> None:
    """Each of Adam's steps is as large as its learning rate."""
    with FastES(numbers(), n_workers=0, **small(learning_rate=3e38)) as model:
        _, error = learn_or_stop(model, 50)
        assert error is not None
        assert "learning" in str(error)
        assert "unchanged" in str(error)


def test_an_alive_bonus_that_leaves_nothing_finite() -> None:
    with FastES(numbers(), n_workers=0, **small(alive_bonus=1.7e308)) as model:
        _, error = learn_or_stop(model, 1)
        assert error is not None
        assert "finite" in str(error)


# --- anything --------------------------------------------------------------------------------------------------------

ANY = st.floats(allow_nan=True, allow_infinity=True)
HUGE = st.sampled_from([NAN, INF, -INF, 0.0, -0.0, 1.0, -2.5, 5e-324, 1e-300, 1e38, -1e39, 1e154, 1e300, 1.7e308, -1.7e308])


class Script(Numbers):
    """Rewards and observations come from lists, over and over, through all episodes of this process."""

    def __init__(self, rewards: list[float], observations: list[list[float]]) -> None:
        super().__init__()
        self.rewards, self.observations, self.at_reward, self.at_observation = rewards, observations, 0, 0

    def step(self, action: Any) -> Any:
        assert np.asarray(action).shape == (2,)
        self.steps += 1
        self.at_reward += 1
        return self._observation(), self.rewards[self.at_reward % len(self.rewards)], self.steps >= LENGTH, False, {}

    def _observation(self) -> Any:
        self.at_observation += 1
        return np.array(self.observations[self.at_observation % len(self.observations)])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(ANY | HUGE, min_size=1, max_size=40),
    st.lists(st.lists(ANY | HUGE, min_size=3, max_size=3), min_size=1, max_size=20),
    st.sampled_from(OPTIMIZERS),
    st.booleans(),
    st.sampled_from([{}, {"learning_rate": 1e30}, {"sigma": 1e20}, {"alive_bonus": 1e308}, {"weight_decay": 1e25}]),
    st.integers(1, 2),
)
@example([1.0, 2.0, 0.5], [[1e154, 0.0, 1.0], [-1e154, 1.0, 1.0]], OPTIMIZERS[0], True, {}, 2)
@example([1e308, 0.0, 1.0, -1e308, 3.0, 7.0, 1.0], [[0.0, 1.0, 2.0]], OPTIMIZERS[3], True, {}, 2)
def test_any_numbers(
    rewards: list[float],
    observations: list[list[float]],
    kind: dict[str, Any],
    normalize: bool,
    extreme: dict[str, Any],
    episodes: int,
) -> None:
    """The state is finite after each generation, or a FastESError leaves it as it was."""
    changes = small(**kind, **extreme, normalize_obs=normalize, eval_episodes=episodes, episodes_per_candidate=episodes)
    with FastES(partial(Script, rewards, observations), n_workers=0, **changes) as model:
        records, _ = learn_or_stop(model, 3)
        assert not model.solved
        for record in records:
            assert_sane(record)
        assert_finite(model.snapshot())
        assert np.isfinite(model.normalizer.std).all()
