"""Risk: a race of recipes depends on the workers or on a stop, forgets the user's settings, or is too large for its budget."""

from __future__ import annotations

import contextlib
import functools
import math
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from envs_for_tests import AnySpaces
from gymnasium import spaces
from processes import sent_by_value
from training import assert_same_state

from fastes import CallablePolicy, Callback, FastES
from fastes.checkpoints.file_format import Checkpoint
from fastes.cli.main import main
from fastes.runs.run_info import read_run_info
from fastes.settings.preset_loader import all_presets
from fastes.settings.recipes import AUTO, FRACTION, recipes_for
from fastes.training.record import Record
from fastes.training.selection import LEAST_GENERATIONS, Rung
from fastes.training.training import Training

sent_by_value(__name__)
BOX, CHOICES = spaces.Box(-1.0, 1.0, (3,), np.float32), spaces.Discrete(3)
BUDGET = 60_000


class Unknown(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole with short episodes behind a wrapper, for which there is no preset."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1", max_episode_steps=50))


def racing(n_workers: int = 0, seed: int = 3, **settings: Any) -> FastES:
    return FastES(Unknown, preset=AUTO, n_workers=n_workers, seed=seed, target_return="none", **settings)


class Rungs(Callback):
    """What raced, and how it ended."""

    def __init__(self) -> None:
        self.rungs: list[Rung] = []

    def on_rung(self, model: FastES, rung: Rung) -> None:
        self.rungs.append(rung)


class Long(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Pendulum behind a wrapper: every episode has 200 steps, so that 16 candidates play 3,200."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("Pendulum-v1"))


def racing_noise(timesteps: int, **settings: Any) -> dict[str, tuple[Any, Any, Any]]:
    """The sigma and the learning rate with which each recipe races, and the sigma of its strategy."""
    found = dict[str, tuple[Any, Any, Any]]()

    def note(model: FastES, _: Record) -> bool:
        for trial in model.selection.trials:
            own = trial.training.settings
            found[trial.recipe] = (own.sigma, own.learning_rate, trial.training.strategy.hyperparameters.sigma)
        return False

    with FastES(Long, preset=AUTO, n_workers=0, seed=3, target_return="none", **settings) as model:
        model.learn(timesteps, callback=note)
    return found


def test_a_budget_of_few_generations_gets_wider_noise() -> None:
    few, many = racing_noise(39 * 3_200), racing_noise(41 * 3_200)
    assert few["unbiased"] == (0.2, "lin_0.15_0.03", 0.2)
    assert many["unbiased"] == (0.1, "lin_0.05_0.01", 0.1)
    assert few["linear"] == many["linear"] == (0.1, "lin_0.05_0.01", 0.1)


def test_the_first_candidates_play_whole_episodes() -> None:
    with FastES(Long, preset=AUTO, n_workers=0, seed=3, target_return="none") as model:
        model.learn(50_000)
        assert model.selection.counters.warm_up_timesteps == 16 * 200, "the caps of the recipes start at 100 steps"


def test_a_budget_that_trains_nothing_is_told() -> None:
    with FastES(Long, preset=AUTO, n_workers=0, seed=3, target_return="none") as model:
        with pytest.warns(UserWarning, match=r"nothing was trained: 400 timesteps .* is 300. Give 4,000 or more"):
            model.learn(300)
        assert model.generation == 0
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.learn(10_000, reset_num_timesteps=False)
        assert model.generation > 0


@pytest.mark.filterwarnings("error")
def test_trials_that_end_after_a_stop_were_trained() -> None:
    """Even if the one that wins has had its last turn before the stop."""
    settings: dict[str, Any] = {"preset": "default", "population_size": 4, "trials": 3, "trials_fraction": 1.0}
    idle = 0
    for left in range(20_000, 20_000 - 600, -100):
        with FastES(Unknown, n_workers=0, seed=5, target_return="none", **settings) as model:
            model.learn(20_000, lambda model, _, left=left: model.num_timesteps < left)
            before = {trial.number: trial.training.generation for trial in model.selection.trials}
            if model.num_timesteps < 20_000:
                model.learn(20_000 - model.num_timesteps, reset_num_timesteps=False)
                idle += model.generation == before[model.selection.present.number]
    assert idle


class Marathon(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Pendulum with episodes of 5,000 steps, of which 16 candidates play 80,000."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("Pendulum-v1", max_episode_steps=5_000))


class OfOneLength(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole whose episodes have `length` steps, whatever it does; no limit is known."""

    length = 20

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1").unwrapped)
        self.steps = 0

    def reset(self, **given: Any) -> Any:
        self.steps = 0
        return self.env.reset(**given)

    def step(self, action: Any) -> Any:
        self.steps += 1
        seen = self.env.unwrapped.np_random.normal(size=4).astype(np.float32)
        return seen, 1.0, self.steps == self.length, False, {}


class Falling(OfOneLength):
    """16 candidates play 320 steps. Their episodes might have 5,000."""

    max_episode_steps = 5_000


class Short(Falling):
    """It says that they have no more."""

    max_episode_steps = 20


def test_a_small_budget_of_long_episodes_trains_something() -> None:
    with FastES(Marathon, preset=AUTO, n_workers=0, seed=3, target_return="none") as model:
        model.learn(20_000)
        assert model.generation > 1
        assert model.num_timesteps < 30_000
        assert model.selection.counters.warm_up_timesteps == 2 * 5_000, "the fewest that can be played"


@pytest.mark.parametrize(
    ("env", "budget", "steps"),
    [
        (Long, 2_000, 400),
        (Long, 10_000, 1_200),
        (Long, 40_000, 3_200),
        (Falling, 300, 40),
        (Falling, 1_000, 120),
        (Falling, 3_100, 320),
    ],
)
def test_the_first_candidates_take_about_a_tenth_of_the_budget(env: Any, budget: int, steps: int) -> None:
    """In whole pairs, at least one and at most a generation's. The same on any number of workers."""
    states = []
    for n_workers in (0, 1):
        with FastES(env, preset=AUTO, n_workers=n_workers, seed=3, target_return="none") as model:
            model.learn(budget, lambda *_: False)
            states.append(model.snapshot())
            assert model.selection.counters.warm_up_timesteps == steps
    assert_same_state(*states)


def test_first_candidates_that_take_less_than_a_tenth_give_the_bits_of_a_whole_generation() -> None:
    """Several requests play them, as long as episodes might take more."""
    states = []
    for env in (Falling, Short):
        with FastES(env, preset=AUTO, n_workers=0, seed=3, target_return="none") as model:
            model.learn(10_000, lambda *_: False)
            assert model.selection.counters.warm_up_timesteps == 16 * 20
            states.append([trial.training for trial in model.selection.trials])
    for one, other in zip(*states, strict=True):
        assert one.normalizer.mean.tobytes() == other.normalizer.mean.tobytes()
        assert one.strategy.theta.tobytes() == other.strategy.theta.tobytes()


@pytest.mark.parametrize("setting", [{"sigma": 0.1}, {"learning_rate": "lin_0.05_0.01"}, {"sigma": 0.3}])
def test_few_generations_change_nothing_that_the_user_has_set(setting: dict[str, Any]) -> None:
    usual = {"sigma": 0.1, "learning_rate": "lin_0.05_0.01", **setting}
    assert racing_noise(20 * 3_200, **setting)["unbiased"] == (usual["sigma"], usual["learning_rate"], usual["sigma"])


def test_a_race_with_few_generations_is_resumed_with_its_noise(tmp_path: Path) -> None:
    with FastES(Long, preset=AUTO, n_workers=0, seed=3, target_return="none") as whole:
        whole.learn(12 * 3_200)
    with FastES(Long, preset=AUTO, n_workers=0, seed=3, target_return="none") as first:
        first.learn(12 * 3_200, callback=lambda model, record: record.generation < 2)
        first.save(tmp_path / "race")
    with FastES.load(tmp_path / "race", Long, n_workers=0) as second:
        second.learn(12 * 3_200 - second.num_timesteps, reset_num_timesteps=False)
        assert_same_state(second.snapshot(), whole.snapshot())


def test_the_winner_of_a_race_goes_on_with_its_own_policy_and_settings() -> None:
    watch = Rungs()
    with racing() as model:
        raced = {trial.number: (trial.recipe, trial.training.spec) for trial in model.selection.trials}
        model.learn(BUDGET, watch)
        winner = model.selection.present
        assert len({recipe for recipe, _ in raced.values()}) == len(raced) > 2
        assert watch.rungs[-1].winner == winner.number + 1
        assert raced[winner.number] == (winner.recipe, model.policy_spec)
        assert model.num_timesteps >= BUDGET > 0.5 * BUDGET > model.selection.dropped.num_timesteps
        assert model.predict(model.env.reset(seed=0)[0], deterministic=True)[0] in (0, 1)


def test_a_race_has_the_same_bits_on_any_number_of_workers() -> None:
    with racing() as one, racing(n_workers=2) as two:
        assert_same_state(one.learn(BUDGET).snapshot(), two.learn(BUDGET).snapshot())


@pytest.fixture(scope="module")
def not_stopped() -> Checkpoint:
    with racing(rungs=3) as model:
        return model.learn(BUDGET).snapshot()


@pytest.mark.parametrize("stop_after", [1, 5, 12])
def test_a_race_that_was_stopped_and_loaded_ends_as_one_that_was_not(
    stop_after: int, not_stopped: Checkpoint, tmp_path: Path
) -> None:
    """Stopped in the first rung, where all policies are in the file, and later."""
    calls = iter(range(10**6))
    with racing(rungs=3) as first:
        first.learn(BUDGET, lambda *_: next(calls) < stop_after)
        first.save(tmp_path / "m.zip")
        assert first.num_timesteps < BUDGET
    with FastES.load(tmp_path / "m.zip", Unknown, n_workers=0) as again:
        assert [t.recipe for t in again.selection.trials] == [t.recipe for t in first.selection.trials]
        assert [t.training.settings for t in again.selection.trials] == [t.training.settings for t in first.selection.trials]
        again.learn(BUDGET - again.num_timesteps, reset_num_timesteps=False)
        assert_same_state(not_stopped, again.snapshot())


def test_a_race_that_was_stopped_and_loaded_plays_the_recipe_that_it_shows(tmp_path: Path) -> None:
    """Its policy has another size than the first recipe's."""
    with racing() as first:
        first.learn(BUDGET, lambda model, _: len(model.theta) == len(model.selection.trials[0].training.strategy.theta))
        assert first.selection.focus
        first.save(tmp_path / "m.zip")
        expected = first.evaluate(3)
    with FastES.load(tmp_path / "m.zip", Unknown, n_workers=0) as again:
        assert again.evaluate(3).returns.tolist() == expected.returns.tolist()


def test_recipes_that_are_equally_good_are_ranked_by_what_their_candidates_found() -> None:
    """Over some generations: where rewards are rare, the last one alone may have found none."""
    means: dict[int, float] = {}

    class Means(Callback):
        def on_generation(self, model: FastES, record: Record) -> None:
            number, value = record.trial - 1, record.return_mean
            means[number] = means[number] + (value - means[number]) / 10 if number in means else value

        def on_rung(self, model: FastES, rung: Rung) -> None:
            if not rung.winner:
                kept = model.selection.trials
                assert {trial.number: trial.recent_return for trial in kept} == {
                    trial.number: means[trial.number] for trial in kept
                }
                seen.append(len(kept))

    class Worthless(Unknown):
        def step(self, action: Any) -> Any:
            seen, _, *rest = self.env.step(action)
            return (seen, float(self.env.unwrapped.np_random.random() < 0.02), *rest)

    seen: list[int] = []
    with FastES(Worthless, n_workers=0, seed=3, target_return="none", rungs=3) as model:
        model.learn(BUDGET, Means())
    assert seen


def test_the_steps_of_a_file_are_those_of_its_model(tmp_path: Path) -> None:
    """With those of the episodes that scored a rung, which are in no training's tally."""
    with racing() as model:
        model.learn(BUDGET)
        assert model.selection.scoring_timesteps
        model.save(tmp_path / "m.zip")
        assert read_run_info(tmp_path / "m.zip").timesteps == model.num_timesteps


def test_learn_again_goes_on_with_the_winner() -> None:
    with racing() as model:
        winner = model.learn(BUDGET).selection.present
        model.learn(2000, reset_num_timesteps=False)
        assert (model.selection.present.recipe, model.selection.present.number) == (winner.recipe, winner.number)
        assert model.generation > winner.training.generation


def test_the_users_settings_are_kept_in_all_recipes() -> None:
    given = {"sigma": 0.123, "population_size": 6, "policy": "LinearPolicy"}
    for recipe in recipes_for(BOX, CHOICES, given):
        assert {name: getattr(recipe.settings, name) for name in given} == given


def test_recipes_that_differ_in_nothing_are_dropped() -> None:
    alike = {"policy": "LinearPolicy", "policy_kwargs": {"use_bias": True}, "optimizer": "adam", "momentum": 0.9, "sigma": 0.1}
    alike |= {"shaping": "centered_ranks", "population_size": 16, "learning_rate": 0.1, "top_fraction": 1.0, "obs_clip": 5.0}
    alike |= {"sigma_adaptation": "none", "episode_cap": "none", "episode_cap_start": 9, "sample_actions": False}
    assert len(recipes_for(BOX, CHOICES, alike)) == 1
    assert len(recipes_for(BOX, CHOICES, {**alike, "sample_actions": True})) == 1


def test_a_setting_that_a_recipe_cannot_have_leaves_it_out() -> None:
    """A sigma that adapts excludes a schedule of sigma; a recipe for choices excludes other actions."""
    everything = {recipe.name for recipe in recipes_for(BOX, CHOICES, {})}
    adapting = {recipe.name for recipe in recipes_for(BOX, CHOICES, {"sigma_adaptation": "scalar"})}
    scheduled = {name for name in everything if isinstance(all_presets()[name]["sigma"], str)}
    assert scheduled
    assert adapting == everything - scheduled
    sampled = {name for name in everything if all_presets()[name].get("sample_actions")}
    assert sampled
    assert {recipe.name for recipe in recipes_for(BOX, BOX, {})} == everything - sampled
    with pytest.raises(ValueError, match="sigma"):
        recipes_for(BOX, CHOICES, {"sigma": -1.0})


def test_a_recipe_takes_away_the_alive_bonus_that_the_environment_tells_of() -> None:
    def bonuses(env: str, **given: Any) -> set[Any]:
        with FastES(env, preset=AUTO, n_workers=0, seed=0, **given) as model:
            return {trial.training.settings.alive_bonus for trial in model.selection.trials}

    made = {"env_kwargs": {"healthy_reward": 2.5}}
    with pytest.warns(UserWarning, match="healthy_reward"):
        assert bonuses("Hopper-v5", **made) == {0.0, 2.5}
    with pytest.warns(UserWarning, match="healthy_reward"):
        assert bonuses("Hopper-v5", **made, alive_bonus=0.5) == {0.5}
    assert bonuses(Unknown) == {0.0}  # type: ignore[arg-type]


def test_the_recipes_for_images_are_others() -> None:
    for shape in ((84, 84, 4), (4, 84, 84)):
        images = spaces.Box(0, 255, shape, np.uint8)
        assert {recipe.settings.policy for recipe in recipes_for(images, CHOICES, {})} == {"CnnPolicy"}
        for several in (spaces.Dict({"image": images, "speed": BOX}), spaces.Tuple([images, images])):
            assert {recipe.settings.policy for recipe in recipes_for(several, CHOICES, {})} == {"MultiInputPolicy"}
    codes = spaces.Dict({"image": spaces.Box(0, 255, (7, 7, 3), np.uint8), "direction": CHOICES})
    assert recipes_for(codes, CHOICES, {})[0].name == recipes_for(BOX, CHOICES, {})[0].name, "a grid of codes is values"


def test_the_recipes_for_images_of_a_dict_train() -> None:
    """Of the smallest image that is one, with the recipes' own convolutions."""
    pictures = {"far": spaces.Box(0, 255, (20, 20, 1), np.uint8), "near": spaces.Box(0, 255, (3, 20, 24), np.uint8)}
    env = AnySpaces(spaces.Dict({**pictures, "speed": BOX}), CHOICES)
    with FastES(env, preset=AUTO, n_workers=0, seed=0, population_size=4) as model:
        assert (model.settings.policy, len(model.policy_spec.images)) == ("MultiInputPolicy", 2)
        assert [trial.recipe for trial in model.selection.trials] == ["several-inputs", "several-inputs-sampled"]
        model.learn(20)


@pytest.mark.parametrize(
    ("side", "actions", "names"),
    [
        (24, CHOICES, ["pixels-sampled", "pixels", "patches"]),
        (24, BOX, ["pixels", "patches"]),
        (20, CHOICES, ["pixels-sampled", "pixels"]),  # the second convolution of `patches` does not fit
    ],
)
def test_recipes_for_images_race(side: int, actions: Any, names: list[str]) -> None:
    """With the same bits on two workers, though the networks differ in their convolutions."""
    env, final = functools.partial(AnySpaces, spaces.Box(0, 255, (side, side, 1), np.uint8), actions), list[Any]()
    for n_workers in (0, 2):
        watch = Rungs()
        with FastES(env, preset=AUTO, n_workers=n_workers, seed=0, population_size=4) as model:
            assert [trial.recipe for trial in model.selection.trials] == names
            final.append(model.learn(900, callback=watch).snapshot())
            assert len(watch.rungs[0].scores) == len(names)
    assert_same_state(*final)


def test_trials_is_how_many_trainings_race() -> None:
    several = len(recipes_for(BOX, CHOICES, {}))
    with racing(trials=several + 1) as model:
        trials = model.selection.trials
        of_all = {(s.trials, s.rungs, s.trials_fraction) for s in (trial.training.settings for trial in trials)}
    assert len({trial.recipe for trial in trials[:several]}) == several
    assert len(trials) == several + 1
    assert trials[-1].recipe == trials[0].recipe
    assert of_all == {(several + 1, 1, FRACTION)}
    with racing(trials=1) as model:
        assert not model.selection.is_open
        model.learn(1000)


def test_an_episode_cap_hides_no_cost_of_a_race() -> None:
    """`linear` begins with episodes of 100 steps. Others do not, so that fewer of them fit in the budget."""

    class Long(OfOneLength):
        length = 500

    watch, budget = Rungs(), 200_000
    with FastES(Long, n_workers=0, seed=0, target_return="none") as model:
        model.learn(budget, watch)
        (rung,) = watch.rungs
        assert set(rung.recipes) == {"linear", "unbiased"}
        generation = 500 * 16
        assert model.selection.dropped.num_timesteps <= FRACTION * budget / 2 + 2 * generation, "one of them warmed up"


def test_a_small_budget_races_fewer_recipes() -> None:
    """Each has some generations in the first rung, while episodes are as long as the first ones."""
    counts = []
    for budget in (300, 10_000, 20_000, BUDGET):
        watch = Rungs()
        with racing(seed=1) as model:
            model.learn(budget, watch)
            counts.append(len(watch.rungs[0].scores) if watch.rungs else 1)
            assert model.num_timesteps >= budget
    assert counts == sorted(counts)
    assert counts[0] == 1 < counts[1] < counts[-1] == len(recipes_for(BOX, CHOICES, {}))
    assert LEAST_GENERATIONS > 1


def test_a_race_starts_with_the_observations_of_one_recipe() -> None:
    begun: list[Training] = []
    with racing() as model:
        model.learn(BUDGET, lambda own, _: bool(begun.extend(t.training for t in own.selection.trials)))
    (measured,) = (each for each in begun if each.counters.warm_up_timesteps)
    others = [each for each in begun if each is not measured]
    assert len(others) > 1
    assert {each.generation for each in others} == {0}
    assert {each.normalizer.count for each in others} == {measured.counters.warm_up_timesteps} != {0}
    assert {each.counters.num_timesteps for each in others} == {0}


def test_a_race_that_has_begun_is_not_measured_again(tmp_path: Path) -> None:
    """`learn` counts steps anew, and a checkpoint does not know of the rung that ended."""
    with racing(rungs=2) as model:
        model.learn(BUDGET, callback=lambda model, _: model.generation < 3)
        begun = {trial.recipe: trial.training.settings for trial in model.selection.trials if trial.training.generation}
        assert len(begun) > 1
        model.learn(10 * BUDGET, callback=lambda *_: False)
        after = {trial.recipe: trial.training.settings for trial in model.selection.trials}
        assert all(after.get(recipe) == settings for recipe, settings in begun.items())
        model.learn(BUDGET, callback=lambda model, _: model.selection.rung < 1)
        assert model.selection.rung == 1
        model.save(tmp_path / "model")
    with FastES.load(tmp_path / "model", env=Unknown, n_workers=0) as loaded:
        loaded.learn(BUDGET)
        assert not loaded.selection.is_open


def test_a_preset_is_used_where_the_environment_has_one() -> None:
    with FastES("CartPole-v1", preset=AUTO, n_workers=0) as auto, FastES("CartPole-v1", n_workers=0) as own:
        assert auto.settings == own.settings
        assert not auto.selection.trials[0].recipe


def test_a_changed_environment_says_that_recipes_race_in_place_of_its_preset() -> None:
    kwargs = {"sutton_barto_reward": True}
    with pytest.warns(UserWarning, match="recipes race, and their settings are used in place of its preset's"):
        model = FastES("CartPole-v1", preset=AUTO, env_kwargs=kwargs, n_workers=0)
    with model:
        assert model.selection.is_new_race


def test_a_custom_policy_races_with_those_recipes_that_it_can_have() -> None:
    def act(parameters: Any, observation: Any) -> int:
        return int(observation @ parameters > 0)

    with FastES(Unknown, CallablePolicy(act, 4), preset=AUTO, n_workers=0, seed=0, target_return="none") as model:
        assert len(model.selection.trials) > 1
        assert not any(trial.training.settings.sample_actions for trial in model.selection.trials)
        model.learn(20_000)


@pytest.mark.slow
def test_spaces_of_all_kinds_have_a_race() -> None:
    for observations in (BOX, CHOICES, spaces.Dict({"a": BOX, "b": CHOICES}), spaces.MultiBinary(4)):
        for actions in (BOX, CHOICES, spaces.MultiDiscrete([2, 3])):
            env = AnySpaces(observations, actions)
            with FastES(env, preset=AUTO, n_workers=0, seed=0) as model:
                assert model.learn(2000).num_timesteps >= 2000


@pytest.mark.parametrize("seed", [1, 4, 8])
def test_the_best_parameters_may_be_of_any_recipe(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its policy has other sizes than the first recipe's, or than the winner's."""
    monkeypatch.chdir(tmp_path)
    flags = ["--seed", str(seed), "--total-timesteps", "4000", "--workers", "0", "--quiet"]
    assert main(["train", "FrozenLake-v1", *flags]) == 0


def best_so_far(evaluated: dict[int, float], recent: dict[int, float]) -> int:
    """The number of the trial with the best evaluations; of equal ones the one with the best recent candidates."""
    return max(recent, key=lambda number: (evaluated.get(number, -math.inf), recent[number], -number))


class Stop(Callback):
    """Ends `learn` after some generations, by a false answer or an exception, and keeps each trial's mean of evaluations."""

    def __init__(self, generations: int, error: type[BaseException] | None = None) -> None:
        self.left, self.error = generations, error
        self.evaluated: dict[int, float] = {}
        self.last = -1

    def on_generation(self, model: FastES, record: Record) -> bool:
        assert model.selection.present.number == record.trial - 1, "callbacks see the training that the record is of"
        if record.eval_generation:
            before = self.evaluated.get(record.trial - 1, record.eval_return)
            self.evaluated[record.trial - 1] = before + (record.eval_return - before) / 3
        self.last, self.left = record.trial - 1, self.left - 1
        if self.error is not None and not self.left:
            raise self.error
        return self.left > 0


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_a_stop_in_a_race_leaves_the_best_recipe_so_far(error: type[BaseException] | None, tmp_path: Path) -> None:
    """In predict and evaluate, also once it was saved and loaded. The next generation is that of another recipe."""
    left = set()
    for generations in range(9, 21, 3):
        stop = Stop(generations, error)
        with racing(eval_lag=0) as model:
            with contextlib.nullcontext() if error is None else pytest.raises(error):
                model.learn(BUDGET, stop)
            assert model.selection.is_open
            recent = {trial.number: trial.recent_return for trial in model.selection.trials}
            best = model.selection.present.number
            assert best == best_so_far(stop.evaluated, recent)
            left.add((best, stop.last))
            seen = model.env.reset(seed=0)[0]
            acted, played = model.predict(seen, deterministic=True)[0], model.evaluate(2).returns.tolist()
            model.save(tmp_path / "m.zip")
        with FastES.load(tmp_path / "m.zip", Unknown, n_workers=0) as again:
            assert again.selection.present.number == best
            assert again.predict(seen, deterministic=True)[0] == acted
            assert again.evaluate(2).returns.tolist() == played
            again.learn(BUDGET - again.num_timesteps, Stop(1), reset_num_timesteps=False)
            numbers = [trial.number for trial in again.selection.trials]
            assert again.selection.turn == (numbers.index(stop.last) + 1) % len(numbers)
    assert any(best != last for best, last in left)


def test_a_race_that_stops_before_any_evaluation_shows_the_best_of_before(tmp_path: Path) -> None:
    """What is known of each recipe is in the file."""
    stop = Stop(17)
    with racing(eval_lag=0) as model:
        model.learn(BUDGET, stop)
        known = [trial.eval_return for trial in model.selection.trials]
        model.save(tmp_path / "m.zip")
    with FastES.load(tmp_path / "m.zip", Unknown, n_workers=0) as again:
        assert [trial.eval_return for trial in again.selection.trials] == known
        stop.left = 1
        again.learn(BUDGET, stop, reset_num_timesteps=False)
        recent = {trial.number: trial.recent_return for trial in again.selection.trials}
        assert again.selection.present.number == best_so_far(stop.evaluated, recent)


@pytest.mark.parametrize(
    ("settings", "budget"),
    [
        ({"preset": AUTO, "target_return": 45.0}, BUDGET),
        ({"preset": "default", "population_size": 8, "trials": 4, "trials_fraction": 0.5, "target_return": 50.0}, 6_000),
    ],
    ids=["in a rung", "at a rung's end"],
)
def test_a_stop_does_not_decide_which_trial_solves_a_task(settings: dict[str, Any], budget: int, tmp_path: Path) -> None:
    """An evaluation that a stop plays before its turn solves nothing: another trial's may come first.

    At the end of a rung all are played, so that no stop plays one more.
    """

    def toy_race() -> FastES:
        return FastES(Unknown, n_workers=0, seed=3, target_episodes=2, eval_episodes=1, **settings)

    def state(model: FastES) -> tuple[int, bytes, int, int, bool]:
        steps = model.num_timesteps, 0 if settings["preset"] == AUTO else model.eval_timesteps
        return model.selection.present.number, model.theta.tobytes(), *steps, model.solved

    with toy_race() as model:
        told = Stop(10**6)
        model.learn(budget, told)
        generations, expected = 10**6 - told.left, state(model)
        assert model.solved
    assert 5 < generations < 50
    differing = 0
    for stopped_after in range(1, generations + 1):
        with toy_race() as model:
            model.learn(budget, Stop(stopped_after))
            assert not model.solved or stopped_after == generations
            differing += model.selection.present.number != expected[0]
            model.save(tmp_path / "m.zip")
        with FastES.load(tmp_path / "m.zip", Unknown, n_workers=0) as again:
            again.learn(budget - again.num_timesteps, reset_num_timesteps=False)
            assert state(again) == expected, stopped_after
    assert differing


class Equal(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole with episodes of four steps: none ends before."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1", max_episode_steps=4))


class StopWithBest(Stop):
    """Also keeps which parameters were the best so far when a generation was committed."""

    def __init__(self, generations: int) -> None:
        super().__init__(generations)
        self.best, self.known = b"", dict[tuple[int, int], bytes]()

    def on_new_best(self, model: FastES, eval_return: float) -> None:
        self.best = model.theta.tobytes()

    def on_generation(self, model: FastES, record: Record) -> bool:
        self.known[record.trial, record.generation] = self.best
        return super().on_generation(model, record)


def test_a_stop_does_not_decide_which_of_equal_evaluations_is_the_best(tmp_path: Path) -> None:
    """The later one is, in the order of turns; a stop plays one before its turn."""

    def trials() -> FastES:
        settings: dict[str, Any] = {"preset": "default", "population_size": 4, "trials": 3, "trials_fraction": 0.9}
        return FastES(Equal, n_workers=0, seed=5, target_return="none", eval_lag=1, eval_episodes=1, **settings)

    with trials() as model:
        told = StopWithBest(10**6)
        model.learn(320, told)
    in_turn = list(told.known)
    assert len({*told.known.values()} - {b""}) == 3, "each trial's are as good as the others', and stay where they are"
    for stopped_after in range(3, len(in_turn)):  # all have begun: the first evaluations come with the second generations
        stop = StopWithBest(stopped_after)
        with trials() as model:
            model.learn(320, stop)
            model.save(tmp_path / "m.zip")
        with FastES.load(tmp_path / "m.zip", Equal, n_workers=0) as again:
            stop.left = 10**6
            again.learn(320 - again.num_timesteps, stop, reset_num_timesteps=False)
        assert list(stop.known) == in_turn
        later = in_turn[stopped_after:]
        assert [stop.known[each] for each in later] == [told.known[each] for each in later], stopped_after


def test_max_minutes_in_a_race_leave_the_best_recipe_so_far() -> None:
    with racing(eval_lag=0) as model:
        model.learn(BUDGET, Stop(14))
        best, last = model.selection.present.number, model.selection.trials[model.selection.turn].number
        assert best != last
        model.learn(BUDGET, reset_num_timesteps=False, max_minutes=1e-6)
        assert model.out_of_time
        trials = model.selection.trials
        recent = {trial.number: trial.recent_return for trial in trials}
        shown = model.selection.present.number
        assert shown == best_so_far({trial.number: trial.eval_return for trial in trials}, recent)
        with model.as_judged():
            assert not model.selection.is_open
        assert model.selection.present.number == shown


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_command_whose_race_max_minutes_end_reports_on_a_recipe_of_another_size(seed: int, tmp_path: Path) -> None:
    flags = ["--seed", str(seed), "--total-timesteps", "100000", "--workers", "0", "--quiet", "--runs", str(tmp_path)]
    assert main(["train", "FrozenLake-v1", *flags, "--max-minutes", "1e-9"]) == 0
