"""Risk: a training that cannot learn says nothing, or a good one is called bad."""

from __future__ import annotations

import itertools
import math
import re
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from faults import caught_warnings, toy
from gymnasium import spaces
from training import MANY, Result, assert_same, assert_same_state, learn, train

from fastes import FastES, Settings
from fastes.es.strategy import Update
from fastes.reports.returns_over_budget import ReturnsOverBudget
from fastes.reports.training_warnings import StatisticsWarnings
from fastes.rollout.batch import Batch
from fastes.rollout.episode import STEP_GUARD
from fastes.rollout.obs_normalizer import ObsNormalizer
from fastes.sb3.logger import configure
from fastes.settings.preset_loader import all_presets, choose_settings, load_preset
from fastes.training.counters import Counters
from fastes.training.evaluation import Evaluation, FinishedEvaluation, PendingEvaluation
from fastes.training.record import Generation, Record, Stretch, make_record

# --- no candidate reaches theta --------------------------------------------------------------------------------------


def model_with(noise: str = "action_noise", limit: int | None = None, budget: int = 0, **settings: Any) -> Any:
    return SimpleNamespace(
        spec=SimpleNamespace(head=SimpleNamespace(noise=noise)),
        settings=Settings().changed(**settings),
        normalizer=SimpleNamespace(skipped=0),
        longest_episode=lambda: STEP_GUARD,
        episode_limit=limit,
        counters=Counters(budget=budget),
    )


class Played(NamedTuple):
    """A generation's candidates, and theta's evaluation as it is told with them."""

    batch: Batch
    told: FinishedEvaluation | None


def generation(candidates: Any, evaluation: Any) -> Played:
    returns = np.asarray(candidates, dtype=np.float64)
    lengths, evaluated = np.ones(returns.shape, np.int64), np.asarray(evaluation, dtype=np.float64)
    batch = Batch(returns, lengths, np.full(returns.shape, np.nan), 0 * lengths, np.zeros((4, 2, 1)), 0.0, 0, "")
    if not evaluated.size:
        return Played(batch, None)
    theta, finite = np.zeros(3, np.float32), returns[np.isfinite(returns)]
    pending = PendingEvaluation(0, 0, theta, ObsNormalizer(1), finite)
    return Played(
        batch, FinishedEvaluation(pending, Evaluation(evaluated, np.ones(evaluated.shape, np.int64), np.zeros(0, np.int64)))
    )


def record_of(number: int, batch: Batch, told: FinishedEvaluation | None) -> Record:
    played: Any = Generation(SimpleNamespace(generation=number - 1, sigma=0.1), batch)  # type: ignore[arg-type]
    others = {"others": 0, "episode_cap": 1, "n_workers": 1, "cpu_seconds": 0.0, "trial": 1}
    return make_record(played, told, Update(*[0.0] * 7), Counters(), stretch=Stretch(1.0, 1, 1.0), **others)


BEATEN = generation([[0.0, 5.0], [1.0, -1.0]], [2.0])
UNBEATEN = generation([[0.0, 1.0], [1.0, -1.0]], [2.0])


def warnings_of(
    batches: list[Played],
    words: str = "no candidate",
    first: int = 1,
    target: float = math.inf,
    has_raced: bool = False,
    racing_until: int = 0,
    **settings: Any,
) -> list[str]:
    """Warnings with these words. first: number of the first generation. A generation makes one step of the budget."""
    odd, model = StatisticsWarnings(), model_with(**settings)
    with caught_warnings() as messages:
        for number, (batch, told) in enumerate(batches, first):
            told = told and told._replace(pending=told.pending._replace(generation=number - 1))
            model.counters = model.counters._replace(num_timesteps=number)
            odd.check(model, record_of(number, batch, told), batch, told, target, has_raced, number < racing_until)
    return [message for message in messages if words in message]


def test_fifty_generations_without_a_better_candidate_are_told_once() -> None:
    assert warnings_of([UNBEATEN] * 49) == []
    (message,) = warnings_of([UNBEATEN] * 200, sigma=0.75)
    for words in ("50 generations up to 50 ", "sigma = 0.75", "stuck", "eval_return"):
        assert words in message
    (message,) = warnings_of([BEATEN] * 30 + [UNBEATEN] * 60 + [BEATEN] + [UNBEATEN] * 60)
    assert "up to 80 " in message


def test_one_better_candidate_starts_the_count_again() -> None:
    assert warnings_of(([UNBEATEN] * 49 + [BEATEN]) * 4) == []
    assert len(warnings_of([UNBEATEN] * 49 + [BEATEN] + [UNBEATEN] * 50)) == 1


@pytest.mark.parametrize("before", [0, 1])
def test_observations_of_a_penalised_candidate_are_no_others_fault(before: int) -> None:
    """before: candidates that were left out before the first generation, in a warm-up or a race's first episodes."""
    odd, model = StatisticsWarnings(), model_with()
    model.normalizer.skipped = before
    with caught_warnings() as messages:
        for number, (skipped, penalised) in enumerate([(0, ""), (1, "ValueError: x"), (1, ""), (3, "")], 1):
            skipped += before
            moments = np.zeros((4, 2, 1))
            moments[: skipped - model.normalizer.skipped] = np.nan
            model.normalizer.skipped = skipped
            batch = replace(BEATEN.batch, penalised=penalised, moments=moments)
            odd.check(model, record_of(number, batch, None), batch, None)
    (message,) = messages
    assert message.startswith("2 candidates of generation 4 saw observations")


NOT_BELOW: dict[str, Played] = {
    "a tie": generation([[0.0, 2.0], [1.0, -1.0]], [2.0]),
    "all the same": generation([[2.0, 2.0], [2.0, 2.0]], [2.0]),
    "a tie with a mean of thirds": generation([[0.1, 0.1]], [0.1, 0.1, 0.1]),
    "above the mean of evaluations": generation([[2.5, 0.0]], [1.0, 3.0]),
    "an evaluation that is not finite": generation([[0.0, 1.0]], [math.inf, -math.inf]),
    "NaN in evaluation": generation([[0.0, 1.0]], [math.nan]),
    "no finite return": generation([[math.nan, math.nan]], [1.0]),
}


@pytest.mark.parametrize("name", NOT_BELOW)
def test_what_does_not_count(name: str) -> None:
    assert warnings_of([NOT_BELOW[name]] * 60) == []
    assert len(warnings_of([UNBEATEN] * 49 + [NOT_BELOW[name]] + [UNBEATEN] * 50)) == 1, "it starts the count again"


def test_a_policy_that_acts_well_only_when_its_actions_are_drawn_is_told() -> None:
    drawn, words = generation([[1.0, 1.0], [0.0, 1.0]], [0.0, 0.0]), "the likeliest"
    (message,) = warnings_of([drawn] * 60, words, sample_actions=True)
    assert "20 evaluations in a row up to generation 20 take" in message
    assert "in the last one 0, and the candidates 0.75 in mean" in message
    assert warnings_of([drawn] * 60, words) == []
    assert warnings_of([drawn] * 60, words, sample_actions=True, episode_cap="grow") == [], "evaluations are not cut"
    assert warnings_of([drawn] * 19 + [generation([[1.0, 0.0]], [0.5])] + [drawn] * 19, words, sample_actions=True) == []


def test_a_generation_without_an_evaluation_is_no_sign_of_anything() -> None:
    assert warnings_of([UNBEATEN, generation([[0.0, 1.0]], [])] * 49) == []
    (message,) = warnings_of([UNBEATEN, generation([[0.0, 9.0]], [])] * 50)
    assert "up to 99 " in message


def test_returns_without_a_number_are_left_out() -> None:
    assert len(warnings_of([generation([[math.nan, 1.0]], [2.0])] * 60)) == 1
    assert warnings_of([generation([[math.nan, 3.0]], [2.0])] * 60) == []


def test_an_adaptive_cap_makes_returns_of_candidates_smaller() -> None:
    """It ends their episodes and not those of the evaluation: less is no sign of anything."""
    assert warnings_of([UNBEATEN] * 60, episode_cap="mean") == []


def test_what_else_makes_candidates_worse_is_named() -> None:
    assert "action_noise" in warnings_of([UNBEATEN] * 50, action_noise=0.1)[0]
    assert "sample_actions" in warnings_of([UNBEATEN] * 50, sample_actions=True)[0]
    assert "(or" not in warnings_of([UNBEATEN] * 50)[0]


class Summit(gymnasium.Env[Any, Any]):
    """One step; the best action is that of parameters which are all zero."""

    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return np.ones(2, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.ones(2, np.float32), -abs(float(action[0])), True, False, {}


class Slope(Summit):
    """Without an end, but for that of the actions."""

    def step(self, action: Any) -> Any:
        return np.ones(2, np.float32), float(action[0]), True, False, {}


class Endless(Slope):
    """Without an end of its episodes."""

    def step(self, action: Any) -> Any:
        return np.ones(2, np.float32), float(action[0]), False, False, {}


def hardly_moving(env: Any, **settings: Any) -> FastES:
    plain = {
        "preset": "default",
        "policy": "LinearPolicy",
        "learning_rate": 1e-9,
        "normalize_obs": False,
        "population_size": 4,
        "seed": 1,
        "noise_table_size": 500,
    }
    return FastES(env, n_workers=0, **{**plain, **settings})


def on_the_summit(generations: int, env: Any = Summit, **settings: Any) -> tuple[list[str], Any]:
    with caught_warnings() as messages, hardly_moving(env, **settings) as model:
        model.learn(MANY, lambda _, record: record.generation < generations)
        state = model.snapshot()
    return [message for message in messages if "no candidate" in message], state


def test_a_training_on_a_summit_is_told_so() -> None:
    assert on_the_summit(49)[0] == []
    (message,), _ = on_the_summit(60, sigma="lin_0.5_0.4")
    assert "sigma = 'lin_0.5_0.4'" in message
    assert on_the_summit(60, Slope)[0] == []


def test_the_warning_of_a_training_points_at_the_line_that_trains() -> None:
    with pytest.warns(RuntimeWarning, match="no candidate") as caught, hardly_moving(Summit) as model:
        model.learn(MANY, lambda _, record: record.generation < 60)
    (warning,) = (warning for warning in caught if "no candidate" in str(warning.message))
    assert "model.learn(MANY, lambda" in Path(warning.filename).read_text().splitlines()[warning.lineno - 1]


def test_the_warning_changes_no_bit_and_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    told, first = on_the_summit(60)
    monkeypatch.setattr("fastes.reports.training_warnings.UNBEATEN", MANY)
    unwarned, second = on_the_summit(60)
    assert (len(told), len(unwarned)) == (1, 0)
    assert_same_state(first, second)
    odd, model, (batch, told) = StatisticsWarnings(), model_with(), generation(np.zeros((500, 2)), [1.0])
    record = record_of(1, batch, told)
    started = time.process_time()  # of this process: others may take the core
    for _ in range(200):
        odd.check(model, record, batch, told)
    assert (time.process_time() - started) / 200 < 1e-3


# --- a population that was changed beside a learning rate that was not ------------------------------------------------


def rates(name: str = "InvertedPendulum-v5", **changes: Any) -> list[str]:
    with caught_warnings() as messages:
        choose_settings(name, changes)
    return messages


def test_a_learning_rate_that_was_left_behind_is_told() -> None:
    preset = load_preset("InvertedPendulum-v5")
    population, rate = preset["population_size"], preset["learning_rate"]
    for factor in (4, 16, 1 / 4):
        (message,) = rates(population_size=int(population * factor))
        for words in (
            f"population_size = {int(population * factor)} with learning_rate = {rate:g}",
            f"'InvertedPendulum-v5' has for population_size = {population}",
            "fourth root" if factor > 1 else "noise",
            "silences",
        ):
            assert words in message
        (number,) = re.findall(r"learning_rate = (\S+) is a point to start", message)
        assert float(number) == pytest.approx(rate * factor ** (0.25 if factor > 1 else 0.5), rel=0.05)
        assert (f"population_scale = {factor} " in message) == (factor > 1)
    assert "population_scale" not in rates(population_size=4 * population + 2)[0]
    assert rates(population_size=np.int64(4 * population)) != []


def test_numbers_of_a_schedule_are_scaled() -> None:
    population = load_preset("HalfCheetah-v5")["population_size"]
    assert load_preset("HalfCheetah-v5")["learning_rate"] == "lin_0.02_0.004"
    (message,) = rates("HalfCheetah-v5", population_size=16 * population)
    assert "learning_rate = lin_0.02_0.004, which" in message
    assert "learning_rate = 'lin_0.04_0.008' is a point" in message
    assert load_preset("Reacher-v5")["learning_rate"] == "exp_0.008_0.0003"
    (message,) = rates("Reacher-v5", population_size=16 * load_preset("Reacher-v5")["population_size"])
    assert "learning_rate = 'exp_0.016_0.0006' is a point" in message


def test_what_needs_no_other_learning_rate_is_not_told() -> None:
    population = load_preset("InvertedPendulum-v5")["population_size"]
    for size in (population, 2 * population, 4 * population - 2, population // 2, population // 4 + 2):
        assert rates(population_size=size) == []
    assert rates(population_size=64 * population, learning_rate=load_preset("InvertedPendulum-v5")["learning_rate"]) == []
    assert rates(population_size=64 * population, learning_rate="lin_0.1") == []
    assert rates(sigma=0.1) == []
    for name in ("default", "linear"):  # whose numbers were tuned on nothing
        assert rates(name, population_size=4) == rates(name, population_size=4096) == []
    for name in all_presets():
        assert rates(name, **{key: value for key, value in load_preset(name).items() if key != "learning_rate"}) == []


def test_the_warning_points_at_the_line_of_the_user() -> None:
    with pytest.warns(UserWarning, match="population_size") as caught:
        FastES("CartPole-v1", n_workers=0, population_size=256, seed=0).close()
    (warning,) = caught
    assert "population_size=256, seed=0).close()" in Path(warning.filename).read_text().splitlines()[warning.lineno - 1]


def test_the_error_of_a_wrong_population_size_comes_alone() -> None:
    with caught_warnings() as messages, pytest.raises(ValueError, match="population_size"):
        choose_settings("CartPole-v1", {"population_size": 1001})
    assert messages == []


def test_equal_returns_are_warned_of_once() -> None:
    equal = generation([[3.0, 3.0], [3.0, 3.0]], [3.0])
    words = "the same return"
    assert warnings_of([equal] * 19, words) == []
    (message,) = warnings_of([equal] * 60, words)
    assert "20 generations up to 20" in message
    assert "sigma" in message
    assert "sample_actions" not in message
    assert "sample_actions=True" in warnings_of([equal] * 20, words, noise="sample_actions")[0], "actions are choices"
    assert "sample_actions" not in warnings_of([equal] * 20, words, noise="sample_actions", sample_actions=True)[0]
    assert warnings_of([*[equal] * 19, BEATEN, *[equal] * 19], words) == []
    assert warnings_of([generation([[3.0, 3.0], [3.0, 3.0]], [4.0])] * 30, words) == []
    longer = equal._replace(batch=replace(equal.batch, lengths=np.array([[1, 2], [3, 4]])))
    assert len(warnings_of([longer] * 30, words)) == 1
    assert warnings_of([longer] * 30, words, alive_bonus=0.1) == [], "fitness differs, as steps do"
    assert len(warnings_of([equal] * 30, words, alive_bonus=0.1)) == 1


def test_a_recipe_that_does_not_learn_is_told_once_the_race_is_over() -> None:
    equal, words = generation([[3.0, 3.0], [3.0, 3.0]], [3.0]), "the same return"
    assert warnings_of([equal] * 60, words, racing_until=100) == []
    (message,) = warnings_of([equal] * 60, words, racing_until=40)
    assert "in 40 generations up to 40" in message
    (message,) = warnings_of([UNBEATEN] * 90, racing_until=80)
    assert "in 80 generations up to 80" in message


def test_equal_returns_are_no_fault_at_the_maximum() -> None:
    """As on CartPole, whose candidates all balance to the end. Where returns were never lower, or were higher, it is one."""
    best, words = generation([[3.0, 3.0], [3.0, 3.0]], [3.0]), "the same return"
    lower, higher = generation([[1.0, 3.0], [2.0, 3.0]], [3.0]), generation([[3.0, 4.0], [3.0, 3.0]], [3.0])
    assert warnings_of([lower, *[best] * 60], words) == []
    assert len(warnings_of([higher, *[best] * 60], words)) == 1
    assert len(warnings_of([best] * 60, words)) == 1
    assert warnings_of([best] * 60, words, first=31) == [], "its start was not seen"


def test_an_episode_without_an_end_is_said_once_for_all_trials() -> None:
    with (
        caught_warnings() as messages,
        FastES(Endless, preset="default", population_size=2, trials=3, seed=0, n_workers=0) as m,
    ):
        m.learn(20_000)
    assert len([message for message in messages if "was cut after 1,000 steps" in message]) == 1


# --- episodes that end at once ---------------------------------------------------------------------------------------


def lasting(*lengths: int) -> Played:
    """Candidates whose episodes have these lengths, and whose returns differ."""
    played = generation([[-1.0, -2.0]] * (len(lengths) // 2), [])
    return played._replace(batch=replace(played.batch, lengths=np.array(lengths).reshape(-1, 2)))


def test_a_policy_that_ends_episodes_at_once_is_told() -> None:
    words = "episodes ended after"
    assert warnings_of([lasting(200, 180), *[lasting(1, 2)] * 19], words) == []
    (message,) = warnings_of([lasting(200, 180), *[lasting(1, 2)] * 60], words)
    assert "20 generations up to 21 episodes ended after 1.5 steps, at first after 190: " in message
    assert "end cost more" in message
    assert warnings_of([lasting(200, 180), *[lasting(3, 2)] * 60], words) == [], "a goal may be near"
    (message,) = warnings_of([lasting(1, 1)] * 60, words, limit=200)
    assert "terminated = True by mistake" in message
    assert warnings_of([lasting(1, 1)] * 60, words) == [], "a single decision has no more"
    assert warnings_of([lasting(1, 1)] * 60, words, limit=1) == []


# --- returns that do not rise ----------------------------------------------------------------------------------------

BUDGET = 300
RNG = np.random.default_rng(0)
NOISE = RNG.normal(size=(BUDGET, 9))


def course(level: Any, spread: float = 1.0, lengths: Any = None, **settings: Any) -> list[str]:
    """Warnings of a training whose returns follow a function of its progress, from 0 to 1."""
    batches = []
    for number in range(BUDGET):
        values = level(number / BUDGET) + spread * NOISE[number] * ([1.0] * 8 + [0.3])
        played = generation(values[:8].reshape(4, 2), values[8:])
        steps = np.full((4, 2), 10 if lengths is None else lengths(number / BUDGET))
        batches.append(played._replace(batch=replace(played.batch, lengths=steps)))
    return warnings_of(batches, "returns have not risen", budget=BUDGET, **settings)


def test_returns_that_never_rise_are_told_after_a_third_of_the_budget() -> None:
    (message,) = course(lambda progress: 5.0, spread=0.01)
    number = int(re.findall(r"up to generation (\d+)", message)[0])
    assert BUDGET / 3 <= number <= BUDGET * 2 / 3
    assert re.search(r"evaluations are at (5|5\.00\d|4\.99\d), as at the start", message)
    assert "preset='auto'" in message
    assert len(course(lambda progress: -3.0 * progress)) == 1, "returns that fall do not rise"
    (message,) = course(lambda progress: 5.0, has_raced=True)
    assert "auto" not in message


class Noise(gymnasium.Env[Any, Any]):
    """Five steps, whose rewards depend on no action."""

    observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.low, {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.observation_space.low, float(self.np_random.normal()), False, self.steps == 5, {}


def test_the_winner_of_a_race_whose_returns_never_rise_is_told() -> None:
    """Its budget is another one once it has won; its first return is that of the race."""
    with caught_warnings() as messages, FastES(Noise, seed=0, n_workers=0) as model:
        model.learn(30_000)
        assert model.selection.is_race
        assert not model.selection.is_open
    (message,) = [each for each in messages if "returns have not risen" in each]
    assert "as at the start" in message


RISES = {
    "steadily": lambda progress: 100.0 * progress,
    "slowly": lambda progress: 6.0 * progress,
    "at once": lambda progress: 100.0 * min(1.0, 30.0 * progress),
    "in one generation": lambda progress: 100.0 * (progress > 0.0),
    "in steps": lambda progress: 50.0 * (progress > 0.1) + 50.0 * (progress > 0.6),
    "late in the first third": lambda progress: 100.0 * max(0.0, progress - 0.25),
}


@pytest.mark.parametrize("name", RISES)
def test_returns_that_rise_or_have_risen_are_not_told(name: str) -> None:
    assert course(RISES[name]) == []
    assert course(RISES[name], episode_cap="grow") == []


def test_a_plateau_below_the_target_is_told() -> None:
    stuck = lambda progress: 40.0 * min(1.0, 30.0 * progress)  # noqa: E731
    (message,) = course(stuck, target=100.0)
    assert "below the target of 100" in message
    assert course(lambda progress: 60.0 * progress, target=100.0) == [], "it rises, if slowly"
    assert course(stuck, target=45.0) == [], "it is near"
    assert course(stuck, target=39.0) == []


def test_a_target_that_noise_may_hide_is_not_given_up() -> None:
    """Evaluations of a robot that runs or falls differ by a thousand, and reach the target in the end."""
    stuck = lambda progress: 40.0 - 720.0 * max(0.0, 1.0 - 30.0 * progress)  # noqa: E731
    bin_of = lambda progress: int(60.0 * (progress + 1.001 / BUDGET))  # noqa: E731
    uneven = lambda progress: stuck(progress) + 450.0 * (-1) ** bin_of(progress)  # noqa: E731
    (quiet,), noisy = course(stuck, target=310.0), course(uneven, target=310.0)
    assert int(re.findall(r"up to generation (\d+)", quiet)[0]) < BUDGET / 2
    assert [text for text in noisy if int(re.findall(r"up to generation (\d+)", text)[0]) < BUDGET / 2] == []


@pytest.mark.parametrize(("slope", "is_flat"), [(-1.0, True), (0.0, True), (1.0, False)])
def test_returns_on_a_straight_line(slope: float, is_flat: bool) -> None:
    """Nothing divides by an error of zero."""
    returns = ReturnsOverBudget()
    for number in range(1, BUDGET):
        returns.add(slope * (60 * number // BUDGET), number, BUDGET, is_first=number == 1)
    assert returns.is_flat == is_flat


def test_only_evaluations_count_while_a_cap_grows() -> None:
    """Returns of candidates follow the cap, as negative rewards make those of longer episodes smaller."""
    batches = [generation(np.full((4, 2), -1.0 * n), [float(n)]) for n in range(1, 300)]
    assert warnings_of(batches, "not risen", budget=300, episode_cap="grow") == []
    batches = [generation(np.full((4, 2), 1.0 * n) + NOISE[n, :2], NOISE[n, :1]) for n in range(1, 300)]
    assert len(warnings_of(batches, "not risen", budget=300, episode_cap="grow")) == 1
    assert warnings_of(batches, "not risen", budget=300) == [], "candidates that are better and better are learning"


def test_what_to_try_depends_on_what_is_seen() -> None:
    batches = [generation(NOISE[n, :8].reshape(4, 2), 9.0 * NOISE[n, 8:]) for n in range(300)]
    (message,) = warnings_of(batches, "not risen", budget=300)
    assert "noise hides what is better. Try episodes_per_candidate=4" in message
    quiet: dict[str, Any] = {"level": lambda progress: 5.0}
    (message,) = course(**quiet, noise="sample_actions")
    assert "sample_actions=True" in message
    alike = [generation([[2.0, 2.0]], [2.0])] * 30
    (message,) = warnings_of(
        alike, "could be learned. Unless that is the best there is, raise sigma, or give rewards that tell small improvements"
    )
    (message,) = warnings_of(
        alike, "could be learned. Unless that is the best there is, give rewards that tell small improvements", has_raced=True
    )
    (message,) = warnings_of(alike, "the same return", has_raced=True, noise="sample_actions")
    assert "sample_actions=True (--sample-actions), which explores within each episode, or give rewards" in message
    assert "sigma" not in message
    (message,) = course(**quiet, has_raced=True)
    assert message.endswith("Other recipes raced and were no better. Give rewards for small progress, or a larger budget")
    noisy = [generation(NOISE[n, :8].reshape(4, 2), NOISE[n, 8:]) for n in range(300)]
    (message,) = warnings_of(noisy, "not risen", budget=300)
    assert "noise hides what is better" in message, "candidates have the noise of evaluations, too"
    waits = lambda progress: 200 if progress > 0.1 else 50  # noqa: E731
    (message,) = course(**quiet, lengths=waits, limit=200)
    assert "All episodes now last to the limit of 200 steps" in message
    assert "alive_bonus" in message
    (message,) = course(**quiet, lengths=lambda progress: 200, limit=200)
    assert "limit" not in message, "as episodes of fixed length do by design"


def test_a_training_whose_start_was_not_seen_is_not_judged_by_it() -> None:
    assert course(lambda progress: 5.0, first=2) == []
    assert len(course(lambda progress: 5.0, first=2, target=100.0)) == 0


def test_few_generations_and_no_budget_are_not_judged() -> None:
    batches = [generation([[1.0, 2.0]], [1.5])] * 25
    assert warnings_of(batches, "not risen", budget=25) == []
    assert warnings_of([generation([[1.0, 2.0]], [1.5])] * 300, "not risen", budget=0) == []


@pytest.mark.parametrize(
    ("env", "settings"),
    [
        ("CartPole-v1", {"total_timesteps": 400_000, "target_return": "none"}),
        ("Pendulum-v1", {"total_timesteps": 200_000}),
        ("MountainCar-v0", {"total_timesteps": 100_000}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_trainings_that_learn_are_not_warned_of(env: str, settings: dict[str, Any]) -> None:
    with caught_warnings() as messages, FastES(env, seed=1, n_workers=0, **settings) as model:
        model.learn()
    assert messages == []


# --- a clock that stands still ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_workers", [0, 1])
def test_a_clock_that_stands_still_or_goes_back_ends_no_training(n_workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As tests freeze it, and virtual machines that are moved."""
    settings: dict[str, Any] = {"preset": "default", "population_size": 4, "seed": 5, "target_return": "none"}
    expected = train(toy(), 3, n_workers, **settings)
    clock = itertools.count(0.0, -1.0)
    for now in (lambda: 5.0, lambda: next(clock)):
        monkeypatch.setattr("time.perf_counter", now)
        with FastES(toy(), n_workers=n_workers, verbose=1, **settings) as model:
            records = learn(model, 3)
            assert_same(expected, Result(model.snapshot(), records))
        assert all(math.isnan(record.steps_per_second) and math.isnan(record.utilisation) for record in records)
    monkeypatch.setattr("time.monotonic", lambda: 5.0)
    with FastES(toy(), n_workers=0, **settings) as model:
        model.set_logger(configure(None, []))
        model.learn(100)
        assert model.generation
