"""Risk: what training produces depends on workers, kernels, scheduling, or on what a user does beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
from envs_for_tests import SeedRecorder, Toy
from processes import environment
from training import Result, assert_same, learn, theta_of, train

from fastes import EvolutionStrategy, FastES, _core
from fastes.es import strategy
from fastes.es.noise_table import NoiseTable
from fastes.es.perturbations import draw_pairs
from fastes.pools.processes.process_pool import ProcessPool

CHEETAH = {
    "population_size": 8,
    "policy_kwargs": {"net_arch": [16]},
    "max_episode_steps": 60,
    "action_noise": 0.02,
    "optimizer": "adam",
    "weight_decay": 0.005,
}
CARTPOLE = {
    "population_size": 10,
    "episodes_per_candidate": 2,
    "eval_episodes": 3,
    "sample_actions": True,
    "episode_cap": "share",
    "episode_cap_start": 30,
    "learning_rate": "lin_0.05_0.01",
    "sigma": "lin_0.1",
}
CASES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "HalfCheetah-v5": ("HalfCheetah-v5", 10, CHEETAH),
    "CartPole-v1": ("CartPole-v1", 6, CARTPOLE),
}


@pytest.fixture(scope="module")
def in_process() -> dict[str, Result]:
    return {name: train(env, generations, 0, **settings) for name, (env, generations, settings) in CASES.items()}


@pytest.mark.parametrize("n_workers", [1, 5])
@pytest.mark.parametrize("case", CASES)
def test_number_of_workers_changes_no_bit(case: str, n_workers: int, in_process: dict[str, Result]) -> None:
    env, generations, settings = CASES[case]
    result = train(env, generations, n_workers, **settings)
    assert len(result.records) == generations
    assert_same(in_process[case], result)


def test_training_moves(in_process: dict[str, Result]) -> None:
    """The comparisons here are of something: parameters, optimiser and statistics all changed."""
    for name, (env, _, settings) in CASES.items():
        with FastES(env, n_workers=0, seed=5, preset="default", **settings) as model:
            start = model.snapshot()
        arrays = in_process[name].state.arrays
        assert (theta_of(in_process[name].state) != theta_of(start)).any()
        assert arrays["trainings"]["0.normalizer.counts"][0] > 0
        assert (arrays["trainings"]["0.optimizer.m"] != 0).any()
        assert len({record.theta_norm for record in in_process[name].records}) == len(in_process[name].records)


@pytest.mark.parametrize("name", _core.available_variants())
@pytest.mark.parametrize("n_workers", [0, 1])
@pytest.mark.usefixtures("kernels")
def test_kernel_variants_change_no_bit(name: str, n_workers: int, in_process: dict[str, Result]) -> None:
    env, generations, settings = CASES["HalfCheetah-v5"]
    _core.use_variant(name)
    assert_same(in_process["HalfCheetah-v5"], train(env, generations, n_workers, **settings))


def test_environment_variable_chooses_kernels() -> None:
    def ask(name: str) -> subprocess.CompletedProcess[str]:
        code = "import fastes._core as c; print(c.variant())"
        env = {**environment(), "FASTES_KERNELS": name}
        return subprocess.run([sys.executable, "-I", "-c", code], env=env, capture_output=True, text=True, timeout=60)

    for name in _core.available_variants():
        assert ask(name).stdout.strip() == name
    wrong = ask("mmx")
    assert wrong.returncode != 0
    assert "mmx" in wrong.stderr
    assert str(_core.available_variants()) in wrong.stderr


@pytest.mark.usefixtures("kernels")
def test_workers_use_the_kernels_of_their_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []

    class Watched(ProcessPool):
        def start(self) -> None:
            sent.append(_core.variant())
            super().start()

    monkeypatch.setattr("fastes.pools.make_pool.ProcessPool", Watched)
    least = _core.available_variants()[0]
    _core.use_variant(least)
    monkeypatch.setenv("FASTES_KERNELS", _core.available_variants()[-1])
    with FastES(_VariantReporter, preset="unbiased", seed=0, n_workers=1, population_size=2) as model:
        assert model.evaluate(1).returns[0] == _core.VARIANTS.index(least)
    assert sent


class _VariantReporter(Toy):
    """Its reward is the number of the kernel variant in use, once an episode."""

    def step(self, action: Any) -> Any:
        observation, _, ended, truncated, info = super().step(action)
        return observation, float(_core.VARIANTS.index(_core.variant())) if ended else 0.0, ended, truncated, info


def test_more_workers_than_jobs() -> None:
    settings = {"population_size": 2}
    assert_same(train("Toy-v0", 3, 0, **settings), train("Toy-v0", 3, 3, **settings))


def test_seed_decides_everything() -> None:
    first, again, other = (train("Toy-v0", 3, population_size=8, seed=seed) for seed in (1, 1, 2))
    assert_same(first, again)
    assert (theta_of(first.state) != theta_of(other.state)).any()
    assert first.records[0].return_mean != other.records[0].return_mean


def test_big_seeds_are_told_apart() -> None:
    seeds = (1, 2**32 + 1, 2**63 - 1)
    thetas = {theta_of(train("Toy-v0", 1, population_size=4, seed=seed).state).tobytes() for seed in seeds}
    assert len(thetas) == len(seeds)


def test_both_sides_of_a_pair_share_their_env_seeds() -> None:
    SeedRecorder.seeds.clear()
    episodes, pairs = 3, 4
    with FastES(
        SeedRecorder, preset="unbiased", seed=0, n_workers=0, population_size=2 * pairs, episodes_per_candidate=episodes
    ) as model:
        perturbations = model.strategy.ask()
        learn(model, 1)
    seeds = np.array(SeedRecorder.seeds)
    assert len(seeds) == 2 * pairs * episodes + 1
    per_job = seeds[:-1].reshape(pairs, 2, episodes)
    assert (per_job[:, 0] == per_job[:, 1]).all()
    assert (per_job[:, 0] == perturbations.env_seed).all()
    assert len(set(seeds.tolist())) == pairs * episodes + 1, "pairs, episodes and the evaluation have seeds of their own"
    assert all(type(seed) is int for seed in SeedRecorder.seeds)


def test_generations_have_env_seeds_and_noise_of_their_own() -> None:
    es = EvolutionStrategy(np.zeros(4), population_size=20, seed=3, episodes=2)
    drawn = []
    for _ in range(5):
        drawn.append(es.ask())
        es.tell(np.arange(20.0))
    seeds = {int(seed) for perturbations in drawn for seed in perturbations.env_seed.ravel()}
    assert len(seeds) == 5 * 10 * 2
    assert len({perturbations.noise_index.tobytes() for perturbations in drawn}) == 5


def test_asking_again_gives_the_same() -> None:
    es = EvolutionStrategy(np.zeros(4), seed=3)
    first, second = es.ask(), es.ask()
    assert (first.noise_index == second.noise_index).all()
    assert (first[7] == second[7]).all()


@pytest.mark.parametrize(("pairs", "told"), [(5, False), (4, False), (5, True)], ids=["right", "other pairs", "too late"])
def test_what_is_drawn_ahead_changes_no_draw(pairs: int, told: bool) -> None:
    plain, ahead = (EvolutionStrategy(np.zeros(4), population_size=10, seed=3, episodes=2) for _ in range(2))
    for es in (plain, ahead):
        es.ask()
    if not told:
        ahead.draw_ahead(pairs)
    for es in (plain, ahead):
        es.tell(np.arange(10.0))
    if told:
        ahead.draw_ahead(pairs)  # for the generation after the one that is asked for
    for seed in (3, 4):
        plain.reseed(seed)
        ahead.reseed(seed)
        ours, theirs = plain.ask(), ahead.ask()
        for name in ("noise_index", "env_seed", "action_key"):
            assert (getattr(ours, name) == getattr(theirs, name)).all(), f"{name}, seed {seed}"


def test_pairs_are_drawn_once_and_before_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the generation before plays: nobody waits for draws."""
    order: list[str] = []

    def drawing(*key: int) -> Any:
        order.append(f"draw {key[1]}")
        return draw_pairs(*key)

    def asking(*arguments: Any) -> Any:
        perturbations = ask(*arguments)
        order.append(f"ask {perturbations.generation}")
        return perturbations

    ask = EvolutionStrategy.ask
    monkeypatch.setattr(strategy, "draw_pairs", drawing)
    monkeypatch.setattr(EvolutionStrategy, "ask", asking)
    train("Toy-v0", 3, n_workers=0, population_size=4)
    assert order == ["draw 0", "ask 0", "draw 1", "ask 1", "draw 2", "ask 2", "draw 3"]


def test_looking_at_a_model_while_it_learns_changes_nothing(tmp_path: Any) -> None:
    settings = {"population_size": 6, "seed": 5, "target_return": "none", "action_noise": 0.1, "preset": "default"}
    plain = train("Toy-v0", 5, **settings)
    with FastES("Toy-v0", n_workers=2, **settings) as model:

        def look(_: Any) -> None:
            model.evaluate(3)
            model.predict(np.zeros(3))
            model.save(tmp_path / "model")
            model.get_parameters()

        records = learn(model, 5, on_record=look)
        assert_same(plain, Result(model.snapshot(), records))


def test_closing_between_generations_changes_nothing() -> None:
    settings = {"population_size": 6, "seed": 5, "target_return": "none", "preset": "default"}
    plain = train("Toy-v0", 4, **settings)
    records = []
    with FastES("Toy-v0", n_workers=0, **settings) as model:
        for generation in (1, 2, 3, 4):
            records += learn(model, generation)
            model.close()
        assert_same(plain, Result(model.snapshot(), records))


def test_reused_observation_buffers_change_nothing() -> None:
    settings = {"population_size": 6}
    first, second = (train(partial(Toy, reuse_buffer=reuse), 3, **settings) for reuse in (False, True))
    assert_same(first, second)


def test_table_filled_in_parts_equals_a_table_filled_at_once() -> None:
    size = (1 << 21) + 777
    table, whole = NoiseTable(size, 11), np.empty(size, dtype=np.float32)
    _core.normal_fill(whole, 11)
    assert (table.values == whole).all()
    num_params = (1 << 20) + 5
    index, weights = np.array([3, 1 << 20, 0], dtype=np.int64), np.array([0.5, -2.0, 0.0], dtype=np.float32)
    expected = np.empty(num_params, dtype=np.float32)
    _core.noise_sum(expected, whole, index[:2].copy(), weights[:2].copy())
    assert (table.weighted_sum(index, weights, num_params) == expected).all()


def test_strategy_reproduces_its_golden_values() -> None:
    """Frozen: a change here changes what every seed means, and needs a new stream version."""
    assert _core.STREAM_VERSION == 1
    es = EvolutionStrategy(np.zeros(3), sigma=0.125, learning_rate=0.0625, population_size=8, seed=7, optimizer="sgd")

    def value(x: Any) -> float:
        a, b, c = float(x[0]) - 0.5, float(x[1]) - 0.125, float(x[2]) + 0.25
        return -(a * a + b * b + c * c)

    for _ in range(20):
        es.tell([value(x) for x in es.ask()])
    assert [x.hex() for x in es.theta.tolist()] == GOLDEN


GOLDEN = ["0x1.cf14480000000p-1", "0x1.1c92360000000p-2", "-0x1.0723860000000p-1"]


def test_no_thread_count_is_inherited() -> None:
    """Workers limit BLAS and OpenMP to one thread, whatever the parent has."""
    with FastES(_ThreadReporter, preset="unbiased", seed=0, n_workers=1, population_size=2) as model:
        assert model.evaluate(1).returns[0] == 1.0


class _ThreadReporter(Toy):
    def step(self, action: Any) -> Any:
        observation, _, ended, truncated, info = super().step(action)
        limits = {os.environ.get(name) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
        return observation, float(limits == {"1"}) if ended else 0.0, ended, truncated, info
