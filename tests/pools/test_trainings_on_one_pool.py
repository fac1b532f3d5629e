"""Risk: trainings that differ in policy and settings play on one pool, and one gets another's room, noise, actor or results."""

from __future__ import annotations

import copy
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from faults import caught_warnings
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from pools import opened, played
from processes import children, sent_by_value
from uneven import TellsSuccess, Uneven

from fastes import FastES, FastESError
from fastes.envs.source import make_env_source
from fastes.es.noise_table import NoiseTable
from fastes.pools.make_pool import make_local_pool
from fastes.pools.pool import Pool
from fastes.pools.processes.process_pool import spare_workers
from fastes.rollout.batch import Batch
from fastes.rollout.job import Request

sent_by_value(__name__)
COMMON: dict[str, Any] = {"target_return": "none", "preset": "default", "n_workers": 0}
TRAININGS: dict[str, dict[str, Any]] = {
    "linear": {
        "policy": "LinearPolicy",
        "policy_kwargs": {},
        "seed": 5,
        "population_size": 8,
        "noise_table_size": 5000,
        "normalize_obs": False,
    },
    "mlp": {
        "policy_kwargs": {"net_arch": [5, 4]},
        "seed": 6,
        "population_size": 14,
        "noise_table_size": 7000,
        "normalize_obs": True,
        "sigma_adaptation": "per_parameter",
        "perturbed_fraction": 0.5,
        "episodes_per_candidate": 2,
        "eval_episodes": 3,
    },
    "the first one's table": {
        "policy_kwargs": {"net_arch": [3]},
        "seed": 5,
        "population_size": 4,
        "noise_table_size": 5000,
        "normalize_obs": True,
        "obs_columns": "2,0",
    },
    "recurrent": {
        "policy": "MlpLstmPolicy",
        "policy_kwargs": {"lstm_hidden_size": 3},
        "seed": 7,
        "population_size": 6,
        "noise_table_size": 5000,
        "action_noise": 0.1,
    },
}
GENERATIONS = 3
FIELDS = ("returns", "lengths", "successes", "cuts", "moments")


class Ends(TellsSuccess, Uneven):
    """Episodes of 2 to 20 steps, which tell whether they are a success."""


class Trainings:
    """Models that differ, their requests, and what a pool has to know of all of them."""

    def __init__(self, env: Any = Ends) -> None:
        self.models = [FastES(env, **COMMON, **settings) for settings in TRAININGS.values()]
        self.requests = [self._requests_of(number, model) for number, model in enumerate(self.models)]
        room = {"num_generations": GENERATIONS, "num_evaluations": GENERATIONS}
        needs = [replace(model.evaluator.needs()[0], **room) for model in self.models]
        self.spec = replace(self.models[0].evaluator.pool_spec(), trainings=tuple(needs), info_bytes=200)

    def _requests_of(self, training: int, model: FastES) -> list[Request]:
        """A generation, its evaluation, and so on."""
        candidates, evaluation = model.training.episode_settings()
        rng, requests = np.random.default_rng(training), []
        for number in range(GENERATIONS):
            perturbations, seeds = model.strategy.ask(), model.training.eval_seeds(number)
            model.normalizer.merge(rng.standard_normal((1, 2, model.policy_spec.obs_size)) ** 2, np.array([5]))
            normalizer = copy.copy(model.normalizer)
            requests.append(Request(model.theta, normalizer, candidates, perturbations, training=training))
            requests.append(
                Request(model.theta, normalizer, evaluation, eval_seeds=seeds, generation=number, training=training)
            )
            model.strategy.tell(rng.standard_normal(model.strategy.population_size))
        return requests

    def interleaved(self) -> list[Request]:
        """The first request of each training, the second of each, and so on."""
        return [request for turn in zip(*self.requests, strict=True) for request in turn]

    def place_tables(self, pool: Pool) -> None:
        for number, model in enumerate(self.models):
            pool.place_table(model.strategy.table, number)

    def alone(self) -> list[Batch]:
        """What each of the interleaved requests gives on a pool of its training's own."""
        batches = []
        for model, requests in zip(self.models, self.requests, strict=True):
            pool = opened(replace(model.evaluator.pool_spec(), info_bytes=200))
            pool.place_table(NoiseTable(model.strategy.table.size, model.strategy.table.seed))
            batches.append([played(pool, request._replace(training=0)) for request in requests])
            pool.close()
        return [batch for turn in zip(*batches, strict=True) for batch in turn]

    def close(self) -> None:
        for model in self.models:
            model.close()


def assert_same_batch(first: Batch, second: Batch) -> None:
    for name in FIELDS:
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes(), name
    assert first.infos == second.infos


def assert_plays_as_alone(pool: Pool, requests: Sequence[Request], alone: Sequence[Batch], last_first: bool = False) -> None:
    """All requests at once."""
    tickets = [pool.submit(request) for request in requests]
    found = {}
    for ticket in reversed(tickets) if last_first else tickets:
        pool.wait((ticket,))
        found[ticket] = pool.collect(ticket)
    for ticket, expected in zip(tickets, alone, strict=True):
        assert_same_batch(found[ticket], expected)


@pytest.fixture(scope="module")
def trainings() -> Iterator[Trainings]:
    made = Trainings()
    yield made
    made.close()


@pytest.fixture(scope="module")
def alone(trainings: Trainings) -> list[Batch]:
    return trainings.alone()


@pytest.fixture
def pools(trainings: Trainings) -> Iterator[list[Pool]]:
    made: list[Pool] = []
    yield made
    for model in trainings.models:
        model.strategy.table.release()
    for pool in made:
        pool.close()


def test_the_trainings_differ(trainings: Trainings, alone: list[Batch]) -> None:
    """Else the tests below could not see that one is taken for another."""
    sizes = {(needs.policy.num_params, needs.num_pairs, needs.policy.obs_size) for needs in trainings.spec.trainings}
    assert len(sizes) == len(TRAININGS)
    assert {needs.normalize_obs for needs in trainings.spec.trainings} == {True, False}
    assert len({batch.returns.tobytes() for batch in alone}) == len(alone)
    assert any(batch.infos for batch in alone)


@pytest.mark.parametrize("n_workers", [0, 1, 3])
@pytest.mark.parametrize("last_first", [False, True], ids=["as submitted", "last first"])
def test_each_gives_what_it_gives_alone(
    n_workers: int, last_first: bool, trainings: Trainings, alone: list[Batch], pools: list[Pool]
) -> None:
    pools.append(pool := opened(trainings.spec, n_workers))
    trainings.place_tables(pool)
    for _ in range(2):
        assert_plays_as_alone(pool, trainings.interleaved(), alone, last_first)


def test_spare_workers_play_evaluations_of_all(trainings: Trainings, alone: list[Batch], pools: list[Pool]) -> None:
    pools.append(pool := opened(replace(trainings.spec, evaluations_first=True), 1, spare=1))
    trainings.place_tables(pool)
    assert_plays_as_alone(pool, trainings.interleaved(), alone)


@pytest.mark.parametrize("num_envs", [1, 3, 50])
def test_a_vector_environment_gives_it_too(num_envs: int, trainings: Trainings, alone: list[Batch], pools: list[Pool]) -> None:
    """50: environments without a job act all the same."""
    source = make_env_source(SyncVectorEnv([Ends] * num_envs))
    pools.append(pool := make_local_pool(source))
    pool.open(replace(trainings.spec, source=source))
    trainings.place_tables(pool)
    for _ in range(2):
        assert_plays_as_alone(pool, trainings.interleaved(), alone)


def test_a_worker_that_is_killed_at_any_moment_changes_nothing(
    trainings: Trainings, alone: list[Batch], pools: list[Pool]
) -> None:
    before = set(children())
    pools.append(pool := opened(trainings.spec, 3))
    trainings.place_tables(pool)
    rng = np.random.default_rng(0)
    with caught_warnings() as messages:
        for _ in range(5):
            tickets = [pool.submit(request) for request in trainings.interleaved()]
            if victims := sorted(set(children()) - before):
                os.kill(int(rng.choice(victims)), signal.SIGKILL)
            for ticket, expected in zip(tickets, alone, strict=True):
                pool.wait((ticket,))
                assert_same_batch(pool.collect(ticket), expected)
    assert messages
    assert all("results do not change" in message for message in messages)


def test_a_job_that_kills_its_worker_is_played_again(
    tmp_path: Any, trainings: Trainings, alone: list[Batch], pools: list[Pool]
) -> None:
    asked = trainings.requests[1]
    seeds = [int(asked[2].perturbations.env_seed[1, 1]), int(trainings.requests[0][3].eval_seeds[0])]  # type: ignore[union-attr]
    env = partial(Ends, kill_seeds=seeds, at_step=1, marker=str(tmp_path / "marker"))
    pools.append(pool := opened(replace(trainings.spec, source=make_env_source(env)), 2))
    trainings.place_tables(pool)
    with caught_warnings() as messages:
        assert_plays_as_alone(pool, trainings.interleaved(), alone)
    assert messages
    assert all("results do not change" in message for message in messages)


def test_no_training_takes_another_s_room(trainings: Trainings, pools: list[Pool]) -> None:
    pools.append(pool := opened(trainings.spec))
    trainings.place_tables(pool)
    first, second = (requests[0] for requests in trainings.requests[:2])
    for _ in range(GENERATIONS):
        pool.submit(first)
    with pytest.raises(FastESError, match="no slot is free for another request of candidates of training 0"):
        pool.submit(first)
    pool.submit(second)


@pytest.mark.parametrize("n_workers", [0, 2])
def test_evaluation_alone_beside_a_training(
    n_workers: int, trainings: Trainings, alone: list[Batch], pools: list[Pool]
) -> None:
    """A training without candidates has neither a noise table nor room for them."""
    needs = trainings.models[1].evaluator.needs_of(trainings.models[1].training, training=False)
    spec = replace(trainings.spec, trainings=(trainings.spec.trainings[0], needs))
    pools.append(pool := opened(spec, n_workers))
    pool.place_table(trainings.models[0].strategy.table)
    asked = [*trainings.requests[0], trainings.requests[1][1]]
    expected = [*alone[:: len(TRAININGS)], alone[len(TRAININGS) + 1]]
    assert_plays_as_alone(pool, asked, expected)
    with pytest.raises(FastESError, match="no slot is free"):
        pool.submit(trainings.requests[1][0])
    with pytest.raises(ValueError, match="a noise table of 7000 values of seed 6 for training 1, expected none"):
        pool.place_table(trainings.models[1].strategy.table, 1)


# --- noise tables ----------------------------------------------------------------------------------------------------


def test_trainings_of_one_size_and_seed_share_a_table(trainings: Trainings, pools: list[Pool]) -> None:
    assert trainings.spec.tables == [(5000, 5), (7000, 6), (5000, 7)]
    assert [trainings.spec.table_of(number) for number in range(4)] == [0, 1, 0, 2]
    pools.append(pool := opened(trainings.spec))
    drawn: list[int] = []
    tables = [model.strategy.table for model in trainings.models]
    with pytest.MonkeyPatch.context() as patch:
        original = NoiseTable.place
        patch.setattr(NoiseTable, "place", lambda table, buffer: (drawn.append(table.seed), original(table, buffer)))
        for _ in range(2):
            trainings.place_tables(pool)
    assert drawn == [5, 6, 7], "each is drawn once"
    assert np.shares_memory(tables[0].values, tables[2].values)
    assert not np.shares_memory(tables[0].values, tables[3].values)


def test_a_table_of_another_seed_is_refused(trainings: Trainings, pools: list[Pool]) -> None:
    """It would take the place of the noise of the trainings that share the memory."""
    pools.append(pool := opened(trainings.spec))
    with pytest.raises(ValueError, match="5000 values of seed 9 for training 2, expected 5000 values of seed 5"):
        pool.place_table(NoiseTable(5000, 9), 2)


# --- memory and processes --------------------------------------------------------------------------------------------


def test_memory_is_counted_of_all(trainings: Trainings) -> None:
    layout = trainings.spec.layout(2)
    parts = layout.memory(3)
    assert parts["2 noise tables of 5,000 values"] == 40000
    assert parts["a noise table of 7,000 values"] == 28000
    params = [needs.policy.num_params for needs in trainings.spec.trainings]
    assert [parts[f"3 x {count:,} parameters"] for count in params] == [12 * count for count in params]
    assert sum(parts.values()) > layout.size()
    assert all(size >= 0 for size in parts.values())


def test_spare_workers_are_those_that_all_trainings_together_need(trainings: Trainings) -> None:
    """32 candidates: enough for four workers, of which one training's eight are too few."""

    def spare(*numbers: int) -> int:
        needs = [replace(trainings.spec.trainings[k], num_generations=1, num_evaluations=2) for k in numbers]
        return spare_workers(replace(trainings.spec, trainings=tuple(needs)), 4)

    assert spare(0) == 1
    assert spare(0, 2) == 2
    assert spare(0, 1, 2, 3) == 0


def test_an_error_names_the_job_as_its_own_training_replays_it(trainings: Trainings, pools: list[Pool]) -> None:
    """Noise-free episodes are numbered after the candidates of their training."""
    asked = trainings.requests[1][1]
    env = partial(Ends, fail_seeds=[int(asked.eval_seeds[2])], at_step=1)
    pools.append(pool := opened(replace(trainings.spec, source=make_env_source(env))))
    with pytest.raises(FastESError, match=r"evaluation episode 2.*model\.replay\(1, 16\)"):
        played(pool, asked)


class Wide(Ends):
    """Shows one number more."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float64)

    def _observation(self) -> Any:
        return np.append(super()._observation(), 0.0)


def test_each_policy_has_to_fit_the_environment(trainings: Trainings, pools: list[Pool]) -> None:
    """The first one does."""
    with FastES(Wide, **COMMON, seed=1) as model:
        fits = replace(model.evaluator.pool_spec(), spaces=None)
        spec = replace(fits, trainings=(*fits.trainings, trainings.spec.trainings[1]))
        request = Request(
            model.theta, model.normalizer, model.training.episode_settings()[1], eval_seeds=np.arange(1, dtype=np.int64)
        )
        pools += [opened(fits), opened(spec)]
        played(pools[0], request)
        with pytest.raises(ValueError, match=r"expected observations of shape \(3,\)"):
            played(pools[1], request)
