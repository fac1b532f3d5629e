"""Risk: minimising goes the wrong way, the best candidate is another one, or a search never ends."""

from __future__ import annotations

import copy
import math
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

from fastes import EvolutionStrategy, FastES, FastESError

SOLUTION = np.array([0.5, 0.1, -0.3])


def sphere(x: np.ndarray[Any, Any]) -> float:
    return float(np.sum((x - SOLUTION) ** 2))


def make(**changes: Any) -> EvolutionStrategy:
    return EvolutionStrategy(np.zeros(3), population_size=10, **{"seed": 0, "learning_rate": 0.05, **changes})


@pytest.mark.parametrize(
    "settings", [{}, {"sigma_adaptation": "per_parameter"}, {"perturbed_fraction": 0.4}], ids=["plain", "each", "window"]
)
def test_best_is_the_best_candidate_that_was_told(settings: dict[str, Any]) -> None:
    es = make(**settings)
    told = []
    for _ in range(20):
        candidates = list(es.ask())
        fitness = [-sphere(x) for x in candidates]
        fitness[3] = math.nan
        fitness[4] = math.inf
        es.tell(fitness)
        told += [(f, x) for f, x in zip(fitness, candidates, strict=True) if math.isfinite(f)]
        value, parameters = max(told, key=lambda pair: pair[0])
        assert es.best.fitness == value
        assert es.best.parameters.tobytes() == parameters.tobytes()
    es.best.parameters[:] = 7.0
    assert es.best.parameters.tobytes() == parameters.tobytes(), "a copy"
    for again in (copy.deepcopy(es), pickle.loads(pickle.dumps(es))):
        assert again.best.parameters.tobytes() == parameters.tobytes()
    es.theta = np.ones(3)
    es.reseed(5)
    es.restart(np.zeros(3))
    assert es.best.parameters.tobytes() == parameters.tobytes(), "of the draws before"
    es.load_state(es.state(), 20)
    with pytest.raises(FastESError, match=r"no best candidate before the first tell\(\)"):
        es.best  # noqa: B018


def test_what_remembers_changes_no_bit_and_training_pays_nothing() -> None:
    first, second = make(), make(keep_best=False)
    for _ in range(5):
        updates = [es.tell([-sphere(x) for x in es.ask()]) for es in (first, second)]
        assert updates[0] == updates[1]
    assert first.theta.tobytes() == second.theta.tobytes()
    with pytest.raises(FastESError, match="keep_best=True"):
        second.best  # noqa: B018
    with FastES("CartPole-v1", n_workers=0, preset="default", population_size=4, seed=0) as model:
        model.learn(100)
        with pytest.raises(FastESError, match="keep_best=True"):
            model.strategy.best  # noqa: B018


def test_no_candidate_is_rebuilt_that_nobody_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastes.es.perturbations import Perturbations

    es = make()
    fitness = [-sphere(x) for x in es.ask()]
    monkeypatch.setattr(Perturbations, "__getitem__", lambda *_: pytest.fail("rebuilt"))
    es.tell(fitness)
    assert not es.should_stop()


@pytest.mark.parametrize(
    "settings", [{}, {"sigma_adaptation": "per_parameter"}, {"perturbed_fraction": 0.4}], ids=["plain", "each", "window"]
)
def test_candidates_can_be_used_as_an_array(settings: dict[str, Any]) -> None:
    candidates = make(**settings).ask()
    rows = np.array(list(candidates))
    assert (candidates.shape, candidates.ndim, candidates.size, candidates.dtype) == (rows.shape, 2, rows.size, rows.dtype)
    for index in (0, -1, np.int64(3), slice(None), slice(7, 1, -2), [4, 4, -2], rows[:, 0] > 0, (slice(1, 3), 2), ..., (2, 1)):
        taken = candidates[index]
        assert taken.tobytes() == rows[index].tobytes()
        assert np.shape(taken) == rows[index].shape
    assert np.array(candidates, dtype=np.float64).tobytes() == rows.astype(np.float64).tobytes()
    vector = np.array([1.0, 2.0, 3.0])
    for ours, theirs in (
        (candidates * 2.0, rows * 2.0),
        (1.0 - candidates, 1.0 - rows),
        (vector + candidates, vector + rows),
        (candidates @ vector, rows @ vector),
        (candidates / vector, rows / vector),
        (-(candidates**2), -(rows**2)),
        (np.square(candidates - SOLUTION).sum(axis=1), np.square(rows - SOLUTION).sum(axis=1)),
    ):
        assert ours.tobytes() == theirs.tobytes()
    taken = candidates[0]
    taken[:] = 0.0
    assert candidates[0].tobytes() == rows[0].tobytes(), "a copy"
    with pytest.raises(ValueError, match="copy=False"):
        np.array(candidates, copy=False)
    with pytest.raises(AttributeError, match=r"no 'mean'.*np\.asarray\(es\.ask\(\)\)\.mean .* 120 bytes"):
        candidates.mean()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="has no attribute 'frobnicate'"):
        candidates.frobnicate  # type: ignore[attr-defined]  # noqa: B018


def test_an_array_of_candidates_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = make().ask()
    monkeypatch.setattr("fastes.es.perturbations.check_memory", lambda parts, advice: pytest.fail(f"{parts}, {advice}"))
    assert len(candidates[3]) == 3, "one is never too large"
    with pytest.raises(BaseException, match=r"'10 candidates as an array': 120.*take fewer"):
        np.asarray(candidates)


def test_minimize_and_maximize_go_where_their_names_say() -> None:
    seen: list[np.ndarray[Any, Any]] = []

    def counted(x: np.ndarray[Any, Any]) -> float:
        seen.append(x.copy())
        return sphere(x)

    least = make().minimize(counted, 2000)
    assert len(seen) == least.evaluations <= 2000
    assert least.value == min(map(sphere, seen)) == sphere(least.parameters) < 1e-3
    assert least.generations == least.evaluations // 10
    assert least.reason == "max_evaluations = 2000 are used up"
    most = make().maximize(lambda x: -sphere(x), 2000)
    assert most.value == -least.value
    assert most.parameters.tobytes() == least.parameters.tobytes()


def test_a_sigma_that_falls_to_zero_ends_as_it_was_just_before() -> None:
    es = make(sigma="lin_0.1")
    for progress in (1.0, 0.5, 0.0):
        candidates = es.ask(progress)
        es.tell(np.array([-sphere(candidate) for candidate in candidates]))
    assert candidates.sigma == pytest.approx(1e-4)
    assert np.isfinite(es.theta).all()


def test_a_function_may_write_into_its_argument() -> None:
    def distance(x: Any) -> float:
        x -= 3.0
        return float((x**2).sum())

    found = make().minimize(distance, 2000)
    assert found.parameters == pytest.approx(3.0, abs=0.1)


def test_minimize_is_the_loop_of_ask_and_tell() -> None:
    one, other = make(sigma="lin_0.1_0.01"), make(sigma="lin_0.1_0.01")
    one.minimize(sphere, 101)
    for generation in range(10):
        other.tell([-sphere(x) for x in other.ask(1.0 - 10 * generation / 101)])
    assert one.theta.tobytes() == other.theta.tobytes()
    assert one.best.fitness == other.best.fitness == -sphere(one.best.parameters)


def test_a_search_ends_at_its_target() -> None:
    result = make().minimize(sphere, 100_000, target=0.01)
    assert result.value <= 0.01
    assert result.evaluations < 2000
    assert result.reason == "the target 0.01 is reached"
    assert make().maximize(lambda x: -sphere(x), 100_000, target=-0.01).evaluations == result.evaluations


def test_a_search_ends_where_nothing_gets_better() -> None:
    flat = make().minimize(lambda x: 1.0, 100_000, patience=7)
    assert flat.evaluations == 8 * 10 + 1
    assert flat.reason == "no better fitness for 7 generations"
    assert make().minimize(sphere, 500_000).reason == "no better fitness for 100 generations"


def test_a_second_search_knows_nothing_of_the_first() -> None:
    """It was judged by the best fitness and mean of the first one, so that it ended while it got better all the time."""
    es = make()
    flat = [es.minimize(lambda x: 1.0, 100_000, patience=7).generations for _ in range(2)]
    assert flat == [8, 8]
    es.minimize(sphere, 2000)
    elsewhere = es.minimize(lambda x: 1000.0 + sphere(x - 2.0), 100_000, patience=20)
    assert elsewhere.value < 1000.01
    es.restart(np.full(3, 4.0))
    assert es.minimize(sphere, 100_000, patience=20).value < 0.01
    fresh = make(keep_best=False)
    assert fresh.minimize(sphere, 2000).value == make().minimize(sphere, 2000).value, "it needs no memory of the strategy's"


def test_a_value_that_is_not_finite_is_no_result() -> None:
    """Theta at the end comes on top of the candidates, and counts as worst as they do."""
    calls = []

    def infinite_at_the_end(x: np.ndarray[Any, Any]) -> float:
        calls.append(x)
        return -math.inf if len(calls) == 21 else sphere(x)

    result = make().minimize(infinite_at_the_end, 21)
    assert result.value == min(sphere(x) for x in calls[:20])


def test_a_lucky_candidate_does_not_end_a_noisy_search() -> None:
    """The mean of the generations goes on rising long after no candidate beats the luckiest one."""
    es = EvolutionStrategy(np.full(20, 3.0), sigma=0.1, learning_rate=0.01, population_size=40, seed=1)
    luck = np.random.default_rng(0)
    first = True
    for _ in range(200):
        fitness = [-float(np.sum(x**2)) + luck.normal() for x in es.ask()]
        if first:
            fitness[0], first = 1000.0, False
        es.tell(fitness)
    assert not es.should_stop(patience=50)
    assert es.best.fitness == 1000.0


def test_a_small_parameter_may_move_beside_a_large_one() -> None:
    for sigma in (0.01, 0.05):
        es = EvolutionStrategy([2e5, 0.0], sigma=sigma, learning_rate=0.005, population_size=20, seed=0)
        found = es.minimize(lambda x: float(((x[0] - 2e5) / 1e3) ** 2 + (x[1] - 0.5) ** 2), 20_000)
        assert found.value < 1e-4, found


@pytest.mark.parametrize("way", ["restart", "changed", "theta"])
def test_a_search_that_begins_anew_knows_only_the_best(way: str) -> None:
    es = EvolutionStrategy(np.ones(3), sigma=1e-9, population_size=4, seed=0)
    for _ in range(30):
        es.ask()
        es.tell([1.0] * 4)
    assert es.stop_reason(20) == "no better fitness for 29 generations"
    if way == "restart":
        es.restart(np.full(3, 5.0))
    elif way == "theta":
        es.theta = np.full(3, 5.0)
    else:
        es = es.changed(sigma=0.1)
    assert es.stop_reason(20) == ""
    assert es.best.fitness == 1.0
    es.ask()
    es.tell([-9.0, -8.0, -7.0, -6.0])
    assert es.history.idle == 0, "the mean of its first generation is its best so far"


def test_a_table_whose_slices_repeat_within_a_generation_is_warned_of() -> None:
    message = r"table_size .noise_table_size of FastES. = 8 leaves 1 slices of 8 parameters for 32 pairs.*at least 327"
    with pytest.warns(RuntimeWarning, match=message):
        EvolutionStrategy(np.zeros(8), population_size=64, table_size=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        EvolutionStrategy(np.zeros(1000), population_size=64, table_size=1100, perturbed_fraction=0.05)
        es = EvolutionStrategy(np.zeros(8), population_size=64, table_size=327)
    assert len(np.unique(es.ask(), axis=0)) > 60


@pytest.mark.parametrize("size", ["big", 2.5, -1])
def test_a_table_of_another_kind_of_size_is_refused(size: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="table_size"):
        EvolutionStrategy(np.zeros(3), table_size=size)


def test_steps_that_change_nothing_end_a_search() -> None:
    es = EvolutionStrategy(np.ones(3), learning_rate=1e-12, population_size=4, seed=0)
    es.ask()
    es.tell([1.0, 2.0, 3.0, 4.0])
    assert es.stop_reason() == "the steps are too short to change the parameters"
    es = EvolutionStrategy(np.ones(3), sigma=1e-9, population_size=4, seed=0)
    es.ask()
    es.tell([1.0, 2.0, 3.0, 4.0])
    assert es.stop_reason() == "sigma is too small to change the parameters"
    es = make()
    assert not es.should_stop()
    es.ask()
    es.tell([1.0] * 10)
    assert not es.should_stop(), "theta is 0 and has not moved: the next draw may find a way"


def test_arguments_that_cannot_be() -> None:
    es = make()
    with pytest.raises(ValueError, match=r"max_evaluations = 10 is out of range: expected an int at least 11"):
        es.minimize(sphere, 10)
    with pytest.raises(ValueError, match="patience = 0"):
        es.minimize(sphere, 100, patience=0)
    with pytest.raises(TypeError, match="target = True is a bool"):
        es.minimize(sphere, 100, target=True)
    with pytest.raises(TypeError, match=r"the function returned None, a NoneType: expected one number"):
        es.minimize(lambda x: None, 100)  # type: ignore[arg-type,return-value]
    for value in ("1", 10**400):
        with pytest.raises(TypeError, match="expected one number"):
            es.minimize(lambda x, value=value: value, 100)  # type: ignore[misc]
    with pytest.raises(FastESError, match="none of the 10 returns of this generation is finite"):
        es.minimize(lambda x: math.nan, 100)
    assert es.minimize(sphere, 2e3).evaluations > 1000, "scripts write 2e3 as well"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("popsize", "it is population_size here"),
        ("lr", "it is learning_rate here"),
        ("stdev_init", "it is sigma here"),
        ("mean", "it is theta0 here, the first argument"),
        ("n_dims", "theta0, the first argument, has that length"),
        ("bounds", "there are none here: clip the candidates"),
        ("sigam", "expected one of .*did you mean 'sigma'"),
    ],
)
def test_names_of_other_packages_are_answered(name: str, said: str) -> None:
    with pytest.raises(TypeError, match=f"unknown hyper-parameter {name!r}: {said}"):
        EvolutionStrategy(np.zeros(3), **{name: 1})  # type: ignore[arg-type]
