"""Risk: starts that play side by side change a result, play for nothing, or take the error of one for that of another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from envs_for_tests import Toy
from training import assert_same, assert_same_records, assert_same_state, learn, train

from fastes import FastES, WorkerError
from fastes.pools.ahead_pool import AheadPool
from fastes.settings.settings import Settings
from fastes.training.starts.parts import Stride, usual_parts
from fastes.training.state import TrainingState

SETTINGS: dict[str, Any] = {
    "seed": 4,
    "preset": "default",
    "target_return": "none",
    "noise_table_size": 5000,
    "population_size": 2,
    "policy_kwargs": {"net_arch": [5]},
    "starts": 3,
    "starts_share": 0.6,
    "sigma": "lin_0.3_0.05",
}
BUDGET = 1500
WORKERS = 6  # two starts beside the present one


class Uneven(Toy):
    """Ends between its 2nd and its 20th step, as the seed says: nobody can tell how many generations a start takes."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        result = super().reset(seed=seed, options=options)
        self.ends = 2 + (0 if seed is None else seed) % 19
        return result


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each request of a training whether it had been played ahead."""
    found: list[bool] = []
    submit = AheadPool.submit

    def noting(pool: AheadPool, request: Any) -> int:
        before = len(pool._mine)
        ticket = submit(pool, request)
        found.append(len(pool._mine) > before)
        return ticket

    monkeypatch.setattr(AheadPool, "submit", noting)
    return found


def run(env: Any, n_workers: int, **changes: Any) -> Any:
    with FastES(env, n_workers=n_workers, **{**SETTINGS, **changes}) as model:
        records = learn(model, 10**6, BUDGET)
        return model.snapshot(), records


@pytest.mark.parametrize("env", [Toy, Uneven], ids=["even", "uneven"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"obs_warmup": True, "episodes_per_candidate": "lin_2_1"},
        {"eval_lag": 0},
        {"eval_lag": 3, "eval_every": 2, "perturbed_fraction": 0.5},
        {"sigma": 0.2, "sigma_adaptation": "per_parameter"},
    ],
    ids=str,
)
def test_starts_side_by_side_give_what_they_give_one_after_the_other(
    env: Any, changes: dict[str, Any], taken: list[bool]
) -> None:
    expected, records = run(env, 0, **changes)
    assert not taken
    state, its_records = run(env, WORKERS, **changes)
    assert_same_state(expected, state)
    assert_same_records(records, its_records)
    assert sum(taken) > 20, "the later starts were played ahead"


def test_starts_of_later_rounds_play_side_by_side(taken: list[bool]) -> None:
    """With settings of their own, and with the same result."""
    table = {"obs_clip": [0.1, 5.0], "sigma": [0.3, "lin_0.3_0.2", 0.1]}
    changes = {"starts": 5, "starts_rounds": 2, "starts_alternatives": table}
    expected, _ = run(Uneven, 0, **changes)
    found: dict[tuple[int, int], int] = {}

    def note(model: FastES, _: Any) -> None:
        part = model.starts.round, model.starts.judged
        if part == (1, 0):
            assert [model.state.start_ahead(number).starts.size for number in (1, 2)] == [3, 3], "as long as they will be"
        found[part] = found.get(part, 0) + sum(taken)
        taken.clear()

    with FastES(Uneven, n_workers=WORKERS, **{**SETTINGS, **changes}) as model:
        model.learn(BUDGET, note)
        assert_same_state(expected, model.snapshot())
    assert found[0, 1] > 4 < found[0, 2]
    assert found[1, 1] > 4 < found[1, 2], "two of them beside the first one"


def test_few_workers_play_no_start_ahead(taken: list[bool]) -> None:
    """They would take time from the present one, and may play for nothing."""
    expected = run(Toy, 0)
    assert_same_state(expected[0], run(Toy, 1)[0])
    assert not taken


def test_a_wrong_guess_changes_nothing(monkeypatch: pytest.MonkeyPatch, taken: list[bool]) -> None:
    expected, _ = run(Toy, 0)
    start_ahead = TrainingState.start_ahead

    def wrong(state: TrainingState, number: int) -> TrainingState:
        new = start_ahead(state, number)
        new.starts.begun_generation += 1
        return new

    monkeypatch.setattr(TrainingState, "start_ahead", wrong)
    state, _ = run(Toy, WORKERS)
    assert_same_state(expected, state)
    assert taken
    assert not any(taken)


def test_a_training_that_is_stopped_and_goes_on_is_the_same(tmp_path: Path) -> None:
    expected, records = run(Uneven, 0)
    with FastES(Uneven, n_workers=WORKERS, **SETTINGS) as model:
        first = learn(model, 5, BUDGET)
        model.save(tmp_path / "m")
        assert_same_records(records, first + learn(model, 10**6, BUDGET))
        assert_same_state(expected, model.snapshot())
    for n_workers in (0, WORKERS):
        with FastES.load(tmp_path / "m", Uneven, n_workers=n_workers) as model:
            assert_same_records(records[5:], learn(model, 10**6, BUDGET))
            assert_same_state(expected, model.snapshot())


class Failing(Toy):
    """Raises in one environment seed."""

    bad = -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed == self.bad:
            raise RuntimeError("this seed is a bad one")
        return super().reset(seed=seed, options=options)


def test_an_error_in_a_start_that_plays_ahead_comes_when_its_turn_comes() -> None:
    with FastES(Toy, n_workers=0, **SETTINGS) as model:
        learn(model, 1, BUDGET)
        while not model.starts.judged:
            learn(model, model.generation + 1, BUDGET)
        bad = int(model.state.perturbations().env_seed[0, 0])
        generation = model.generation + 1

    class Bad(Failing):
        pass

    Bad.bad = bad
    errors = []
    for n_workers in (0, WORKERS):
        with FastES(Bad, n_workers=n_workers, **SETTINGS) as model:
            with pytest.raises(WorkerError, match="a bad one") as caught:
                learn(model, 10**6, BUDGET)
            errors.append((caught.value.generation, caught.value.env_seed, model.generation))
    assert errors[0][:2] == (generation, bad)
    assert errors == errors[:1] * 2


def test_parameters_that_are_set_end_the_other_starts() -> None:
    with FastES(Toy, n_workers=WORKERS, **SETTINGS) as model:
        learn(model, 2, BUDGET)
        model.set_parameters(model.get_parameters())
        learn(model, 6, BUDGET)
        assert not model.evaluator.pool._works  # type: ignore[union-attr]
        assert model.evaluate(2).returns.shape == (2,)


def test_draws_of_a_start_depend_on_no_episode_of_those_before() -> None:
    """In environments whose episodes end early, too."""
    drawn = []
    for ends in (3, 11):

        class Ends(Toy):
            its_end = ends

            def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
                result = super().reset(seed=seed, options=options)
                self.ends = self.its_end
                return result

        with FastES(Ends, n_workers=0, **SETTINGS) as model:
            model.learn(BUDGET, lambda m, _: m.starts.judged < 1)
            perturbations = model.state.perturbations()
            drawn.append((perturbations.noise_index.tolist(), perturbations.env_seed.tolist(), perturbations.sigma))
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("changes", [{}, {"starts": 5, "starts_rounds": 3, "starts_share": 0.9}], ids=str)
def test_no_draw_comes_twice(changes: dict[str, Any]) -> None:
    """Where episodes end early, a start has more generations than anybody could know before."""
    drawn: list[int] = []
    with FastES(Uneven, n_workers=0, **{**SETTINGS, **changes}) as model:
        model.learn(BUDGET, lambda m, _: drawn.append(m.state.drawn_as(m.generation)))
        parts = zip(model.starts.sizes, model.starts.strides, strict=True)
        assert model.generation > sum(size * stride.generations for size, stride in parts)
    assert len(set(drawn)) == len(drawn) > 20


@pytest.mark.parametrize("ends", ["chosen", "given"])
def test_no_draw_comes_twice_where_episodes_are_longer_than_thought(
    ends: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Starts have fewer generations than they have numbers then: what goes on has none of theirs."""
    monkeypatch.setattr("fastes.training.starts.parts._UNKNOWN_LENGTH", 4)
    drawn: list[int] = []

    def note(model: FastES, _: Any) -> bool:
        drawn.append(model.state.perturbations().env_seed[0, 0])
        return model.starts.judged < 2 or len(drawn) == 70

    with FastES(Uneven, n_workers=0, **SETTINGS) as model:
        model.learn(BUDGET, note)
        if ends == "given":
            model.set_parameters(model.get_parameters())
        while model.starts.has_unjudged_starts:
            learn(model, model.generation + 1, BUDGET, lambda _: drawn.append(model.state.perturbations().env_seed[0, 0]))
        assert model.state.counters.draws_ahead > 10
        model.save(tmp_path / "m")
        expected = len(drawn)
        learn(model, 10**6, BUDGET, lambda _: drawn.append(model.state.perturbations().env_seed[0, 0]))
    assert len(set(drawn)) == len(drawn) > expected + 20
    with FastES.load(tmp_path / "m", Uneven, n_workers=0) as again:
        learn(again, 10**6, BUDGET)
        assert_same_state(model.snapshot(), again.snapshot())
        again.learn(10)
        assert again.state.counters.draws_ahead > 10, "counters that begin anew do not repeat draws"


@pytest.mark.parametrize(
    ("settings", "limit", "expected"),
    [
        ({"population_size": 4}, 100, Stride(5, 2000)),
        ({"population_size": 4, "max_episode_steps": 50}, 100, Stride(10, 2000)),
        ({"population_size": 4, "episodes_per_candidate": 2}, 100, Stride(3, 2400)),
        ({"population_size": 4, "episodes_per_candidate": "lin_1_6"}, 100, Stride(4, 400 + 400 + 400 + 800)),
        ({"population_size": 4, "obs_warmup": True}, 100, Stride(4, 2000)),
        ({"population_size": 4, "obs_warmup": True, "normalize_obs": False}, 100, Stride(5, 2000)),
        ({"population_size": 4, "generation_timesteps": 900}, 100, Stride(3, 2700)),
        ({"population_size": 4, "generation_timesteps": "lin_500_4500"}, 100, Stride(3, 500 + 700 + 980)),
        ({"population_size": 4}, None, Stride(1, 4000)),
        (
            {"population_size": 4, "episode_cap": "grow", "episode_cap_start": 10, "episode_cap_factor": 2.0},
            100,
            Stride(8, 40 + 80 + 160 + 320 + 4 * 400),
        ),
    ],
    ids=str,
)
def test_what_a_start_usually_takes(settings: dict[str, Any], limit: int | None, expected: Stride) -> None:
    assert usual_parts(Settings().changed(**settings, starts=2, starts_share=0.4), 10_000, limit) == (expected,)


def test_a_training_whose_episodes_have_all_their_length_takes_what_is_usual() -> None:
    with FastES("Pendulum-v1", n_workers=0, **{**SETTINGS, "obs_warmup": True}) as model:
        ends: list[tuple[int, int, int]] = []

        def note(m: FastES, _: Any) -> bool:
            ends.append((m.starts.judged, m.generation, m.num_timesteps))
            return m.starts.judged < 2

        model.learn(20_000, note)
        (stride,) = model.starts.strides
    last = [max(end for end in ends if end[0] == judged) for judged in (0, 1)]
    assert [(generation, steps) for _, generation, steps in last] == [
        (stride.generations * k, stride.timesteps * k) for k in (1, 2)
    ]
    assert np.prod(stride) > 0


def test_a_training_without_starts_has_no_places_for_others() -> None:
    assert_same(train(Toy, 3, 0, population_size=2), train(Toy, 3, WORKERS, population_size=2))
    with FastES(Toy, n_workers=WORKERS, **{**SETTINGS, "starts": 1}) as model:
        assert model.evaluator.starts_ahead() == 0
        assert not isinstance(model.evaluator.start(), AheadPool)


def test_an_evaluation_of_a_start_is_replayed_as_it_was_played() -> None:
    """Its environment seeds are drawn by the start's own count of generations."""
    with FastES(Uneven, n_workers=0, **SETTINGS) as model:
        records = learn(model, 1, BUDGET)
        while model.starts.judged < 2 or model.generation < 12:
            records += learn(model, model.generation + 1, BUDGET)
        expected = {record.eval_generation: record.eval_return for record in learn(model, model.generation + 1, BUDGET)}
        assert model.last_evaluation is not None
        last = model.last_evaluation_of
        assert last is not None
        played = model.replay(last.generation + 1, model.settings.population_size)
        assert played.episode_return == model.last_evaluation.mean
        assert len(expected) == 1


def test_starts_play_side_by_side_again_after_an_exception(taken: list[bool]) -> None:
    expected, _ = run(Toy, 0)

    def interrupt(_: Any, record: Any) -> None:
        if record.generation == 2:
            raise KeyboardInterrupt

    with FastES(Toy, n_workers=WORKERS, **SETTINGS) as model:
        with pytest.raises(KeyboardInterrupt):
            model.learn(BUDGET, interrupt)
        taken.clear()
        learn(model, 10**6, BUDGET)
        assert_same_state(expected, model.snapshot())
    assert sum(taken) > 10


def test_guesses_take_no_memory_without_end(monkeypatch: pytest.MonkeyPatch, taken: list[bool]) -> None:
    expected, _ = run(Toy, 0)
    monkeypatch.setattr("fastes.pools.ahead_pool._MOST_BYTES", 2000)
    state, _ = run(Toy, WORKERS)
    assert_same_state(expected, state)
    assert taken
    assert not all(taken)
