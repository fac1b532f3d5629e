"""Risk: everything runs and nothing is learned, or what is learned is not what the settings say."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from envs_for_tests import Toy
from gymnasium.vector import SyncVectorEnv
from training import MANY, assert_same_state, label, learn, train, without_times

from fastes import Callback, EvolutionStrategy, FastES, FastESError, _core
from fastes.es.fitness_shaping import SHAPINGS, shape_returns
from fastes.es.perturbations import draw_eval_seeds
from fastes.policies.named_policies import make_policy_spec
from fastes.rollout.batch import Batch
from fastes.rollout.episode import EpisodeSettings, run_episode
from fastes.rollout.obs_normalizer import ObsNormalizer
from fastes.runs.run_folder import RunFolder
from fastes.settings.settings import Settings
from fastes.training.episode_cap import EpisodeCap

TOY = {"population_size": 8, "seed": 5, "preset": "default", "target_return": "none", "policy_kwargs": {"net_arch": [4]}}

# --- the strategy alone ----------------------------------------------------------------------------------------------

SOLUTION = np.array([0.5, 0.1, -0.3])


def quadratic(x: Any) -> float:
    return -float(np.sum(np.square(x - SOLUTION)))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"optimizer": "sgd", "learning_rate": 0.05, "momentum": 0.0},
        {"optimizer": "sgd", "learning_rate": 0.01, "momentum": 0.9},
        {"optimizer": "sgd", "momentum": 0.0, "learning_rate": 0.02, "shaping": "standardized"},
        {"optimizer": "sgd", "momentum": 0.0, "learning_rate": 0.02, "shaping": "standardized", "top_fraction": 0.3},
        {"optimizer": "clipup", "learning_rate": "lin_0.1"},
        {"shaping": "nes", "top_fraction": 0.5},
        {"shaping": "signed_ranks", "learning_rate": "lin_0.1"},
        {"learning_rate": "lin_0.1", "sigma": "lin_0.2_0.02"},
        {"learning_rate": lambda remaining: 0.1 * remaining + 1e-4},
    ],
    ids=label,
)
def test_the_quadratic_example_converges(settings: dict[str, Any]) -> None:
    """https://openai.com/index/evolution-strategies: 50 candidates, sigma 0.1."""
    es = EvolutionStrategy(np.zeros(3), population_size=50, seed=0, **{"sigma": 0.1, "learning_rate": 0.05, **settings})
    for generation in range(200):
        es.tell([quadratic(x) for x in es.ask(1.0 - generation / 200)])
    assert np.abs(es.theta - SOLUTION).max() < 0.05


def test_it_climbs_and_does_not_descend() -> None:
    es = EvolutionStrategy(np.zeros(3), sigma=0.1, learning_rate=0.05, population_size=50, seed=0)
    for _ in range(20):
        es.tell([float(x.sum()) for x in es.ask()])
    assert es.theta.sum() > 1.0


def test_the_gradient_is_the_papers() -> None:
    """1/(2n sigma) sum (F+ - F-) eps over centred ranks, computed here from the candidates themselves."""
    es = EvolutionStrategy(
        np.arange(5.0), sigma=0.25, learning_rate=0.5, population_size=6, seed=1, optimizer="sgd", momentum=0.0
    )
    theta, perturbations = es.theta.astype(np.float64), es.ask()
    candidates = np.array(list(perturbations), dtype=np.float64)
    assert (candidates[0::2] + candidates[1::2]) / 2 == pytest.approx(np.tile(theta, (3, 1)), abs=1e-6)
    returns = np.array([3.0, -1.0, 10.0, 2.0, 2.5, 100.0])
    ranks = np.argsort(np.argsort(returns)) / 5 - 0.5
    eps = (candidates - theta) / 0.25
    gradient = (ranks[:, np.newaxis] * eps).sum(axis=0) / (6 * 0.25)
    update = es.tell(returns)
    assert es.theta == pytest.approx(theta + 0.5 * gradient, abs=1e-5)
    assert update.gradient_norm == pytest.approx(np.linalg.norm(gradient), rel=1e-4)
    assert update.step_norm == pytest.approx(0.5 * np.linalg.norm(gradient), rel=1e-4)
    assert update.update_ratio == pytest.approx(update.step_norm / np.linalg.norm(theta), rel=1e-4)


def test_the_gradient_of_ars_is_the_papers() -> None:
    """1/(b sigma_R) sum over the b best directions of (r+ - r-) eps."""
    settings: dict[str, Any] = {"optimizer": "sgd", "momentum": 0.0, "shaping": "standardized", "top_fraction": 0.5}
    es = EvolutionStrategy(np.zeros(4), sigma=0.25, learning_rate=0.5, population_size=8, seed=1, **settings)
    candidates = np.array(list(es.ask()), dtype=np.float64)
    returns = np.array([[3.0, -1.0], [10.0, 2.0], [2.5, 9.0], [0.0, 1.0]])
    best = returns[[1, 2]]
    eps = candidates[0::2] / 0.25
    gradient = ((best[:, 0] - best[:, 1])[:, np.newaxis] * eps[[1, 2]]).sum(axis=0) / (2 * best.std())
    es.tell(returns)
    assert es.theta == pytest.approx(0.5 * gradient, abs=1e-5)


def test_adam_is_the_papers() -> None:
    es = EvolutionStrategy(np.zeros(3), sigma=0.1, learning_rate=0.05, population_size=10, seed=0)
    first = EvolutionStrategy(
        np.zeros(3), sigma=0.1, learning_rate=1.0, population_size=10, seed=0, optimizer="sgd", momentum=0.0
    )
    m = v = np.zeros(3)
    theta = np.zeros(3)
    for t in range(1, 6):
        returns = [quadratic(x) for x in es.ask()]
        first.theta = es.theta
        first.ask()
        first.tell(returns)
        gradient = first.theta.astype(np.float64) - es.theta
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        theta = theta + 0.05 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        es.tell(returns)
        assert es.theta == pytest.approx(theta, abs=2e-5)


def test_weight_decay_shrinks() -> None:
    settings: dict[str, Any] = {"optimizer": "sgd", "momentum": 0.0, "learning_rate": 0.5, "population_size": 4, "seed": 0}
    es = EvolutionStrategy(np.full(3, 2.0), weight_decay=0.1, **settings)
    es.ask()
    es.tell([1.0, 1.0, 1.0, 1.0])
    assert es.theta == pytest.approx(2.0 - 0.5 * 0.1 * 2.0)


def test_returns_are_not_written_and_may_have_either_shape() -> None:
    thetas = []
    for shape in ((6,), (3, 2)):
        es = EvolutionStrategy(np.zeros(3), population_size=6, seed=0)
        es.ask()
        returns = np.array([3.0, 1.0, np.nan, 5.0, 2.0, -np.inf]).reshape(shape)
        kept = returns.copy()
        es.tell(returns)
        assert np.array_equal(returns, kept, equal_nan=True)
        thetas.append(es.theta.tobytes())
    assert thetas[0] == thetas[1]


def test_theta0_is_copied() -> None:
    theta0 = np.zeros(3, dtype=np.float32)
    es = EvolutionStrategy(theta0, population_size=4)
    theta0[:] = 9.0
    assert not es.theta.any()
    with pytest.raises(ValueError, match="read-only"):
        es.theta[0] = 1.0


def test_nothing_changes_without_a_finite_return() -> None:
    for optimizer in ("adam", "sgd", "clipup"):
        es = EvolutionStrategy(np.ones(3), population_size=4, seed=0, optimizer=optimizer)
        es.ask()
        es.tell([1.0, 2.0, 3.0, 4.0])
        before = {name: array.tobytes() for name, array in es.state().items()}
        perturbations = es.ask()
        for bad in ([math.nan] * 4, [math.inf] * 4, [math.nan, math.inf, -math.inf, math.nan]):
            with pytest.raises(FastESError, match="finite"):
                es.tell(bad)
        assert {name: array.tobytes() for name, array in es.state().items()} == before
        assert es.generation == 1
        assert (es.ask().noise_index == perturbations.noise_index).all()
        es.tell([1.0, math.nan, 3.0, math.inf])
        assert np.isfinite(es.theta).all()


def test_nothing_changes_when_the_step_is_not_finite() -> None:
    es = EvolutionStrategy(np.ones(3), population_size=4, seed=0, learning_rate=1e300, optimizer="sgd")
    es.ask()
    before = {name: array.tobytes() for name, array in es.state().items()}
    with pytest.raises(FastESError, match="learning rate"):
        es.tell([1.0, 2.0, 3.0, 4.0])
    assert {name: array.tobytes() for name, array in es.state().items()} == before


def test_bad_returns_rank_worst() -> None:
    returns = np.array([[1.0, np.nan], [3.0, np.inf], [5.0, -np.inf], [2.0, 4.0]])
    for shaping in SHAPINGS:
        shaped = shape_returns(returns, 0.1, shaping).shaped
        worst = shaped.min()
        assert shaped[0, 1] == shaped[1, 1] == shaped[2, 1] == worst
        assert shaped.max() == shaped[2, 0]
        assert (shape_returns(returns, 0.1, shaping).weights[:3] >= 0).all()


def test_equal_returns_give_no_step() -> None:
    for shaping in SHAPINGS:
        es = EvolutionStrategy(np.ones(3), population_size=4, seed=0, shaping=shaping, optimizer="sgd")
        es.ask()
        es.tell([7.0] * 4)
        assert (es.theta == 1.0).all()


def test_returns_of_any_magnitude_are_standardized() -> None:
    weights = [
        shape_returns(np.array([[1.0, 2.0], [4.0, 3.0]]) * scale, 0.1, "standardized").weights for scale in (1e-300, 1.0, 1e300)
    ]
    assert weights[0] == pytest.approx(weights[1])
    assert weights[2] == pytest.approx(weights[1])


def test_top_fraction_keeps_the_best_pairs() -> None:
    returns = np.array([[1.0, 0.0], [9.0, -9.0], [5.0, 6.0], [0.0, 0.5]])
    for fraction, kept in ((0.25, [1]), (0.5, [1, 2]), (0.51, [0, 1, 2]), (1.0, [0, 1, 2, 3]), (1e-9, [1])):
        weights = shape_returns(returns, 0.1, "standardized", fraction).weights
        assert np.flatnonzero(weights).tolist() == kept


# --- the black-box loop and the workers are one path -----------------------------------------------------------------


@pytest.mark.parametrize("shaping", SHAPINGS)
def test_ask_and_tell_do_what_the_workers_do(shaping: str) -> None:
    settings: dict[str, Any] = {"optimizer": "sgd", "momentum": 0.5, "weight_decay": 0.01, "shaping": shaping}
    episodes, generations, noise = 2, 4, 0.2
    with FastES(Toy, n_workers=1, episodes_per_candidate=episodes, action_noise=noise, **settings, **TOY) as model:
        learn(model, generations)

        env = Toy()
        spec = make_policy_spec("MlpPolicy", env.observation_space, env.action_space, {"net_arch": [4]})
        es = EvolutionStrategy(spec.initial_theta(5), 0.05, 0.02, 8, seed=5, episodes=episodes, **settings)
        normalizer, actor = ObsNormalizer(spec.obs_size), _core.Actor(spec)
        for _ in range(generations):
            perturbations, returns, moments, counts = es.ask(), [], [], []
            actor.set_normalizer(normalizer.mean, 1.0 / normalizer.std, normalizer.clip)
            for job, candidate in enumerate(perturbations):
                actor.parameters[:] = candidate
                actor.count_moments(True)
                played = [
                    run_episode(env, actor, int(seed), EpisodeSettings(action_noise=noise), int(key))
                    for seed, key in zip(perturbations.env_seed[job // 2], perturbations.action_key[job // 2], strict=True)
                ]
                returns.append(sum(episode.episode_return for episode in played) / episodes)
                counts.append(sum(episode.length for episode in played))
                moments.append(actor.observation_moments.copy())
            es.tell(returns)
            normalizer.merge(np.array(moments), np.array(counts))
        assert es.theta.tobytes() == model.theta.tobytes()
        assert normalizer.mean.tobytes() == model.normalizer.mean.tobytes()
        assert normalizer.std.tobytes() == model.normalizer.std.tobytes()


def test_statistics_are_those_of_the_observations() -> None:
    """A NumPy mean and standard deviation of what candidates saw."""
    seen: list[Any] = []
    seeds: list[int] = []

    class Watched(Toy):
        def _observation(self) -> Any:
            observation = super()._observation()
            seen.append(observation.copy())
            seeds.append(self.env_seed)
            return observation

    with FastES(Watched, n_workers=0, **TOY) as model:
        learn(model, 3)
        assert model.normalizer.count == model.num_timesteps
        table = np.array(seen)
        starts = np.flatnonzero(table[:, 2] == 0.0)
        evaluated = {int(draw_eval_seeds(5, generation, 1)[0]) for generation in range(3)}
        assert evaluated <= set(seeds)
        played = zip(np.split(table, starts[1:]), starts, strict=True)
        episodes = [episode for episode, start in played if seeds[start] not in evaluated]
        observed = np.concatenate([episode[:-1] for episode in episodes])
        assert len(observed) == model.normalizer.count, "the last observation of an episode is never acted on"
        assert model.normalizer.mean == pytest.approx(observed.mean(axis=0))
        assert model.normalizer.std == pytest.approx(np.maximum(observed.std(axis=0), 0.01))


# --- settings of training --------------------------------------------------------------------------------------------


def test_alive_bonus_changes_fitness_and_not_the_statistics() -> None:
    class Longer(Toy):
        """Its episodes last longer when the action is large, and it pays for nothing but lasting."""

        def step(self, action: Any) -> Any:
            observation, _, _, truncated, info = super().step(action)
            return observation, 1.0, self.steps > 5 + 100 * float(action[0]), truncated, info

    with_bonus, without = (train(Longer, 2, **{**TOY, "alive_bonus": bonus}) for bonus in (1.0, 0.0))
    first, second = with_bonus.records[0], without.records[0]
    for name in ("return_mean", "return_max", "return_std", "elite_fraction", "episode_length"):
        assert getattr(first, name) == getattr(second, name)
    for name in ("eval_generation", "eval_return", "eval_rank"):
        assert getattr(with_bonus.records[1], name) == getattr(without.records[1], name)
    assert second.gradient_norm > 0.0
    assert first.gradient_norm == 0.0, "without the bonus nothing is left to climb"


def test_episodes_per_candidate_are_averaged() -> None:
    one, three = (train(Toy, 1, **TOY, episodes_per_candidate=n).records[0] for n in (1, 3))
    assert 0.5 < three.return_mean / one.return_mean < 2.0
    assert three.episodes == 3 * one.episodes
    assert 8.0 <= three.episode_length <= 20.0
    assert three.timesteps == pytest.approx(3 * one.timesteps, rel=0.5)


def test_max_episode_steps_cuts_training_and_evaluation() -> None:
    with FastES(Toy, n_workers=0, **TOY, max_episode_steps=5, eval_episodes=2) as model:
        record, later = learn(model, 2)
        assert record.episode_length == 5.0
        assert (record.eval_timesteps, later.eval_timesteps, model.eval_timesteps) == (0, 10, 20)
        assert set(model.evaluate(4).lengths) == {5}


def test_the_adaptive_cap_cuts_training_and_not_evaluation() -> None:
    settings = {"episode_cap": "mean", "episode_cap_start": 4, "episode_cap_factor": 1.5}
    records = train(Toy, 5, **{**TOY, **settings}).records
    assert records[0].episode_length == 4.0
    assert records[1].eval_timesteps >= 8
    assert records[1].episode_length == 6.0
    assert [record.episode_cap for record in records[:2]] == [6, 9]
    assert [record.episodes_cut for record in records[:2]] == [8, 8], "all of them"


@pytest.mark.parametrize("episodes", [1, 3])
def test_episodes_that_a_cap_cuts_are_counted(episodes: int) -> None:
    own, toy, counts = {**TOY, "episodes_per_candidate": episodes}, Toy(), []
    with FastES(Toy, n_workers=0, **own) as model:
        seeds = model.training.ask().env_seed.ravel().tolist()
    lengths = [toy.ends for seed in seeds if toy.reset(seed=seed)]
    for cap in (8, 14, 20):
        for env in (Toy, SyncVectorEnv([Toy] * 3)):
            (record,) = train(env, 1, **own, max_episode_steps=cap).records
            assert record.episodes_cut == 2 * sum(length > cap for length in lengths), "one that ends there by itself is whole"
        counts.append(record.episodes_cut)
    assert len(set(counts)) == 3


def _cap(**settings: Any) -> EpisodeCap:
    cap = EpisodeCap.start(Settings(**settings))
    assert cap is not None
    return cap


def _batch(steps: int, cut: int, episodes: int) -> Batch:
    """A generation of so many episodes, of so many steps together, of which so many were cut."""
    lengths, cuts = np.zeros((episodes // 2, 2), np.int64), np.zeros((episodes // 2, 2), np.int64)
    lengths.flat[0], cuts.flat[0] = steps, cut
    returns, moments = np.zeros(lengths.shape), np.zeros((0, 2, 1))
    return Batch(returns, lengths, returns, cuts, moments, 0.0, 0, "")


def test_the_cap_by_mean_length() -> None:
    cap = _cap(episode_cap="mean", episode_cap_factor=2.0, episode_cap_start=100, max_episode_steps=150)
    assert cap.steps == 100
    assert cap.after(_batch(101, 0, 4)).steps == math.ceil(2 * 101 / 4)
    assert cap.after(_batch(200, 2, 2)).steps == 150
    assert cap.after(_batch(2, 0, 2)).steps == 2
    assert cap.after(_batch(0, 0, 2)).steps == 1
    assert cap.steps == 100, "another cap comes out"


def test_the_cap_by_share_of_episodes_that_are_cut() -> None:
    cap = _cap(episode_cap="share", episode_cap_factor=1.5, episode_cap_start=10, max_episode_steps=20)
    for cut, expected in ((1, 10), (2, 15), (1, 15), (4, 20), (4, 20)):
        cap = cap.after(_batch(40, cut, 4))
        assert cap.steps == expected


def test_the_cap_that_grows_each_generation() -> None:
    cap = _cap(episode_cap="grow", episode_cap_factor=1.1, episode_cap_start=10, max_episode_steps=14)
    found = []
    for _ in range(5):
        found.append(cap.steps)
        cap = cap.after(_batch(3, 0, 2))
    assert found == [10, 11, 13, 14, 14], "whatever the episodes did"


@pytest.mark.parametrize("rule", ["grow", "share", "mean"])
def test_a_factor_of_any_size_ends_at_the_limit(rule: str) -> None:
    """A float's largest, times a few steps, is infinite."""
    cap = _cap(episode_cap=rule, episode_cap_factor=1e308, episode_cap_start=10, max_episode_steps=14)
    assert cap.after(_batch(40, 4, 4)).steps == 14


def test_no_cap() -> None:
    assert EpisodeCap.start(Settings()) is None


def test_schedules_follow_the_budget() -> None:
    with FastES(Toy, n_workers=0, **TOY, learning_rate="lin_0.5_0.1", sigma=lambda remaining: 0.1 + remaining) as model:
        records: list[Any] = []
        model.learn(1000, lambda _, record: records.append(record))
    assert records[0].learning_rate == 0.5
    assert records[0].sigma == 1.1
    before = 0
    for record in records:
        remaining = 1.0 - before / 1000
        assert record.learning_rate == pytest.approx(0.1 + 0.4 * remaining)
        assert record.sigma == pytest.approx(0.1 + remaining)
        before = record.timesteps
    assert before >= 1000


def test_statistics_of_a_generation() -> None:
    with FastES(Toy, n_workers=0, **TOY, eval_episodes=3) as model:
        theta = model.theta
        (record,) = learn(model, 1)
        steps, (later,) = model.num_timesteps, learn(model, 2)
        assert (later.eval_generation, later.eval_at) == (1, 0), "that of the first generation"
        assert 1 <= later.eval_rank <= 9
        assert model.last_evaluation_of is not None
        assert model.last_evaluation_of.timesteps == steps
    with FastES(Toy, n_workers=0, **TOY, eval_episodes=3, eval_lag=0) as model:
        (record,) = learn(model, 1)
        assert record.theta_norm == pytest.approx(float(np.linalg.norm(theta)))
        step = float(np.linalg.norm(model.theta - theta))
        assert record.update_ratio == pytest.approx(step / record.theta_norm, rel=1e-4)
        assert record.timesteps == model.num_timesteps
        assert 1 <= record.eval_rank <= 9
        assert 0.0 <= record.elite_fraction <= 1.0
        assert record.episodes == 8
        assert record.num_nonfinite == 0
        assert record.return_mean <= record.return_max


def test_rank_and_share_count_candidates() -> None:
    """Evaluation at the initial parameters against candidates that are all worse, or all better."""

    class Fixed(Toy):
        def step(self, action: Any) -> Any:
            observation, _, ended, truncated, info = super().step(action)
            return observation, -float(np.abs(action).sum()), ended, truncated, info

    record, later = train(Fixed, 2, **{**TOY, "policy": "LinearPolicy", "policy_kwargs": {}}).records
    assert (later.eval_generation, later.eval_return) == (1, 0.0)
    assert later.eval_rank == 1
    assert record.return_max < 0.0


def test_target_is_confirmed_before_training_stops() -> None:
    """One lucky evaluation episode is no solution."""

    class Lucky(Toy):
        def step(self, action: Any) -> Any:
            observation, _, ended, truncated, info = super().step(action)
            return observation, float(self.env_seed % 4 == 0) if ended else 0.0, ended, truncated, info

    with FastES(Lucky, n_workers=0, **{**TOY, "target_return": 1.0}, target_episodes=20) as model:
        records = learn(model, 12)
        assert not model.solved
        assert len(records) == 12
        assert max(record.eval_return for record in records[1:]) == 1.0
    with FastES(Lucky, n_workers=0, **{**TOY, "target_return": 0.1}, target_episodes=20) as model:
        theta = model.theta
        records = learn(model, 100)
        assert model.solved
        assert len(records) < 100
        assert model.theta.tobytes() == theta.tobytes() or len(records) > 1
        last = records[-1]
        assert (last.gradient_norm, last.update_ratio) == (0.0, 0.0), "nothing was learned from it"
        assert not any(math.isnan(value) for value in last)


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_each_episode_is_noted_once(lag: int) -> None:
    """Also where evaluations are told after the last generation."""
    with FastES(Toy, n_workers=0, **TOY, eval_lag=lag) as model:
        learn(model, 2)
        learn(model, 3)
        assert len(model.ep_info_buffer) == 3 * 8


def test_the_registered_threshold_is_the_target() -> None:
    with FastES("CartPole-v1", n_workers=0, preset="default") as model:
        assert model.target_return == 475.0
    with FastES("Pendulum-v1", n_workers=0, preset="default") as model:
        assert model.target_return == math.inf
    with FastES("CartPole-v1", n_workers=0, preset="default", target_return=10) as model:
        assert model.target_return == 10.0


def test_evaluate_is_a_pure_function_of_parameters_and_seeds() -> None:
    with FastES(Toy, n_workers=0, **TOY, target_episodes=4) as model, FastES(Toy, n_workers=3, **TOY) as other:
        learn(model, 2)
        learn(other, 2)
        before = model.snapshot()
        first, second = model.evaluate(11, first_seed=3), other.evaluate(11, first_seed=3)
        assert first.returns.tolist() == second.returns.tolist()
        assert first.lengths.tolist() == second.lengths.tolist()
        assert first.env_seeds.tolist() == list(range(3, 14))
        assert first.mean == pytest.approx(first.returns.mean())
        assert first.std == pytest.approx(first.returns.std())
        fresh = model.evaluate(5, first_seed=None)
        assert len(set(fresh.env_seeds.tolist())) == 5
        assert_same_state(before, model.snapshot())


def test_a_nonfinite_evaluation_is_no_best() -> None:
    with FastES(partial(Toy, all_nan=True), n_workers=0, **TOY) as model:
        result = model.evaluate(3)
        assert result.mean == -math.inf
        assert math.isnan(result.std)


# --- learning ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_preset_solves_cartpole(seed: int) -> None:
    with FastES("CartPole-v1", seed=seed, n_workers=0) as model:
        model.learn()
        assert model.solved
        assert model.evaluate(100, first_seed=1000).mean >= 475


ARS: dict[str, Any] = {
    "preset": "default",
    "policy": "LinearPolicy",
    "optimizer": "sgd",
    "momentum": 0.0,
    "shaping": "standardized",
    "top_fraction": 0.5,
    "population_size": 16,
    "sigma": 0.1,
    "learning_rate": 0.1,
}


def test_settings_of_ars_learn_cartpole() -> None:
    with FastES("CartPole-v1", seed=0, n_workers=0, **ARS) as model:
        before = model.evaluate(20).mean
        model.learn(100_000)
        assert model.evaluate(20).mean > 300 > 2 * before


def test_a_network_learns_pendulum_like_rewards() -> None:
    """Dense rewards, Box actions, normalised observations, Adam."""
    with FastES(Toy, n_workers=0, **{**TOY, "population_size": 16, "learning_rate": 0.05}) as model:
        before = model.evaluate(50).mean
        model.learn(40_000)
        assert model.evaluate(50).mean > before + 2.0


def test_action_noise_and_sampling_are_of_training_only() -> None:
    quiet, noisy = (train(Toy, 2, **{**TOY, "action_noise": noise}).records for noise in (0.0, 0.5))
    assert quiet[1].eval_return == noisy[1].eval_return
    assert quiet[0].return_mean != noisy[0].return_mean
    mode, sampled = (train("CartPole-v1", 2, **{**TOY, "sample_actions": sample}).records for sample in (False, True))
    assert mode[1].eval_return == sampled[1].eval_return
    assert mode[0].return_mean != sampled[0].return_mean


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_callbacks_are_called_in_order_and_can_stop(lag: int) -> None:
    calls: list[str] = []

    class Noting(Callback):
        def on_start(self, model: FastES, total_timesteps: int) -> None:
            calls.append(f"start {total_timesteps}")

        def on_new_best(self, model: FastES, eval_return: float) -> None:
            calls.append("best")

        def on_generation(self, model: FastES, record: Any) -> bool:
            calls.append(f"generation {record.generation}")
            return record.generation < 2

        def on_end(self, model: FastES) -> None:
            calls.append("end")

    seen: list[dict[str, Any]] = []
    with FastES(Toy, n_workers=0, **TOY, eval_lag=lag) as model:
        model.learn(MANY, [Noting(), lambda _, record: seen.append(without_times(record))])
    assert [call for call in calls if call != "best"] == [f"start {MANY}", "generation 1", "generation 2", "end"]
    assert calls[1 + lag] == "best", "the first evaluation is"
    assert len(seen) == 2, "all callbacks are called, though one says stop"


def test_a_callback_that_cannot_start_ends_those_that_have(tmp_path: Path) -> None:
    calls: list[str] = []

    class Noting(Callback):
        def __init__(self, name: str) -> None:
            self.name = name

        def on_start(self, model: FastES, total_timesteps: int) -> None:
            if self.name == "second":
                raise OSError("no space")
            calls.append(f"{self.name} starts")

        def on_end(self, model: FastES) -> None:
            calls.append(f"{self.name} ends")

    with FastES(Toy, n_workers=0, **TOY) as model:
        with pytest.raises(OSError, match="no space"):
            model.learn(MANY, [Noting("first"), RunFolder(tmp_path), Noting("second"), Noting("third")])
        assert calls == ["first starts", "first ends"]
        model.learn(100, RunFolder(tmp_path))  # another one than has locked it
