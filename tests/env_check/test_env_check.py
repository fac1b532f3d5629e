"""Risk: check_env passes an environment on which no training works, or warns of one that is fine."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
import time
import warnings
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from faults import caught_warnings
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from fastes import EnvCheck, FastES, check_env
from fastes.env_check.check import PolicyEpisodes
from fastes.errors import FastESError
from fastes.rollout.native_episodes import Compared


class Push(gymnasium.Env[Any, Any]):
    """Push a number to zero: twenty steps."""

    observation_space: Any = spaces.Box(-10.0, 10.0, (2,), np.float32)
    action_space: Any = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.at = 0, float(self.np_random.uniform(0.5, 1.0))
        return self.seen(), {}

    def step(self, action: Any) -> Any:
        self.steps, self.at = self.steps + 1, self.at + 0.1 * float(np.asarray(action).flat[0])
        return self.seen(), self.reward(), self.is_over(), False, {}

    def seen(self) -> Any:
        return np.array([self.at, 1.0], np.float32)

    def reward(self) -> Any:
        return -abs(self.at)

    def is_over(self) -> Any:
        return self.steps == 20


def checked(env: Any, **arguments: Any) -> EnvCheck:
    return check_env(env, **{"episodes": 10, "preset": "unbiased", **arguments})


def train(env: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with FastES(env, preset="unbiased", n_workers=0, seed=0, max_episode_steps=100) as model:
            model.learn(2000)


def texts(check: EnvCheck, level: str = "warning") -> list[str]:
    return [finding.text for finding in check.findings if finding.level == level]


def test_a_sound_environment_has_no_findings() -> None:
    check = checked(Push, total_timesteps=1e6, n_workers=4)
    assert check.findings == ()
    assert check.ok
    assert check.random_episodes is not None
    assert check.random_episodes.lengths.tolist() == [20] * 10
    assert check.policies is not None
    assert check.policies.returns.shape == (8, 5)
    assert check.policies.steps > 0
    assert check.policies.steps % (8 * 20) == 0
    assert (check.total_timesteps, check.processes) == (1_000_000, 4)
    assert check.seconds == pytest.approx(1e6 / (4 * check.steps_per_second))
    assert check.choice == "preset 'unbiased': LinearPolicy, 2 parameters"
    report = str(check)
    for part in (
        "10 of random actions: 20 steps; all ended by the rules",
        "Box(2,) of float32 from -10 to 10",
        "No problems found",
    ):
        assert part in report


class TruncatesEarly(Push):
    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, False, terminated, info


@pytest.mark.parametrize(
    ("limit", "said"), [(20, "all ended by the limit of 20"), (500, "all truncated"), (7, "all ended by the limit of 7")]
)
def test_episodes_that_the_environment_truncates_are_not_said_to_end_by_the_limit(limit: int, said: str) -> None:
    report = str(checked(lambda: gymnasium.wrappers.TimeLimit(TruncatesEarly(), limit)))
    assert f"{min(limit, 20)} steps; {said}\n" in report


def test_a_speed_is_measured_over_many_episodes_of_a_fast_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time passes while the 40 episodes play, also again without a comparison, and a second while more do."""
    clock = itertools.chain(itertools.repeat(0.0, 18), itertools.count(1.0))
    monkeypatch.setattr("fastes.env_check.check.time", SimpleNamespace(perf_counter=lambda: next(clock)))
    check = checked("CartPole-v1")
    assert check.policies is not None
    assert check.policies.returns.shape == (8, 5)
    assert check.policies.steps > 10 * check.policies.returns.sum()
    assert check.policies.seconds == 1.0


def test_a_speed_in_c_has_no_share_of_the_episodes_in_python_that_it_is_compared_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compared step sleeps: a speed that has some of them is of some thousand steps."""
    step, slow = Compared.step, list[bool]()

    def slowly(env: Compared, action: Any) -> Any:
        slow.append(True)
        time.sleep(0.0005)
        return step(env, action)

    monkeypatch.setattr(Compared, "step", slowly)
    check = checked("Acrobot-v1", episodes=5)
    assert check.steps == "in C"
    assert check.policies is not None
    assert check.policies.returns.shape[0] > 1
    assert len(slow) > 200, "C was compared with Python"
    assert check.steps_per_second > 50_000


@pytest.mark.parametrize(
    ("differs", "said"),
    [
        (lambda env: True, "reward in step 1 is 1.0 in C and 2.0 in Python"),
        (lambda env: env.np_random_seed != 1000, "reward in step 1 is 1.0 in C and 2.0 in Python"),
        (lambda env: abs(env.state[0]) > 0.9, "its version in C differs in an episode of a random policy"),
    ],
    ids=["in every episode", "with random actions alone", "with policies alone"],
)
def test_an_environment_whose_c_differs_is_timed_in_python_as_a_training_plays_it(
    differs: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = CartPoleEnv.step

    def doubled(self: Any, action: Any) -> Any:
        time.sleep(0.0005)
        observation, reward, *rest = step(self, action)
        return (observation, 2.0 * reward if differs(self) else reward, *rest)

    doubled.__code__ = doubled.__code__.replace(co_filename=step.__code__.co_filename)
    monkeypatch.setattr(CartPoleEnv, "step", doubled)
    with caught_warnings():
        check = checked("CartPole-v1")
    assert [said in text for text in texts(check)] == [True]
    assert check.steps == "in Python: its version in C differed"
    assert check.steps_per_second < 2000


def test_a_speed_of_a_slow_environment_needs_no_more_episodes() -> None:
    class Slow(Push):
        def step(self, action: Any) -> Any:
            time.sleep(0.0005)
            return super().step(action)

    check = checked(Slow)
    assert check.policies is not None
    assert check.policies.steps == 8 * 5 * 20


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "fastes/Catch-v0"])
def test_environments_of_gymnasium_are_sound(name: str) -> None:
    """Also those whose episodes all last to the limit, and whose preset averages out the noise."""
    check = check_env(name, episodes=10)
    assert check.findings == ()
    assert check.choice.startswith("its preset: ")


class Endless(Push):
    def is_over(self) -> Any:
        return False


class Wide(Push):
    def seen(self) -> Any:
        return np.array([self.at, 99.0], np.float32)


class Forgetful(Push):
    def reward(self) -> Any:
        return -abs(self.at) + float(np.random.default_rng().normal())


class DrawnWhenBuilt(Push):
    def __init__(self) -> None:
        super().__init__()
        self.goal = float(np.random.default_rng().normal())

    def reward(self) -> Any:
        return -abs(self.at - self.goal)


class OverAtOnce(Push):
    max_steps = 20

    def is_over(self) -> Any:
        return True


class Flat(Push):
    def reward(self) -> Any:
        return -0.25


class Lottery(Push):
    def reward(self) -> Any:
        return 100.0 * self.at * (self.steps == 1) - 0.2 * self.at


class Choices(Push):
    action_space = spaces.Discrete(3)

    def reward(self) -> Any:
        return 0.0


class Explorable(Choices):
    """All actions of an episode have to differ from those before: no policy that sees nothing but 1 can do it."""

    def seen(self) -> Any:
        return np.ones(2, np.float32)

    def step(self, action: Any) -> Any:
        self.changes = getattr(self, "changes", 0) if self.steps else 0
        self.changes += self.steps > 0 and action != self.last
        self.last = action
        return super().step(action)

    def reward(self) -> Any:
        return float(self.steps == 20 and self.changes > 12)


class Varied(Explorable):
    """Any change of the action does."""

    def reward(self) -> Any:
        return float(self.steps == 20 and self.changes > 0)


class Deaf(Push):
    def step(self, action: Any) -> Any:
        return super().step(0.0)


class VariedFromAnywhere(Varied):
    """The same, on top of what the seed gives."""

    def reward(self) -> Any:
        return super().reward() + self.first

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        found = super().reset(seed=seed)
        self.first = self.at
        return found


class OnceBlind(Push):
    """One observation of each episode has a NaN."""

    action_space = spaces.Discrete(2)

    def step(self, action: Any) -> Any:
        return super().step(np.float32(action - 0.5))

    def seen(self) -> Any:
        return np.array([self.at, math.nan if self.steps == 7 else 1.0], np.float32)


class Infinite(Push):
    """Every observation has a value that a policy clips."""

    def seen(self) -> Any:
        return np.array([self.at, math.inf], np.float32)


class SometimesWorthless(Push):
    """Return NaN in half of the episodes."""

    def reward(self) -> Any:
        return math.nan if self.at > 0.75 else -abs(self.at)


class Huge(Push):
    """Returns whose sum no float64 holds."""

    def reward(self) -> Any:
        return -1e306 * (4.0 + abs(self.at))


def test_returns_near_the_largest_number_are_told() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check = checked(Huge)
        returns, said = check.to_json()["random_episodes"]["returns"], str(check)
    assert returns["min"] <= returns["mean"] <= returns["max"] < -1e307
    assert 0.0 < returns["std"] < 1e307
    assert re.search(r"mean -\d\.\d+e\+307 \+- \d", said)
    assert check.policies is not None
    assert 0.0 < check.policies.noise < 1e308


WARNED = {
    "endless": (
        Endless,
        {"seconds": 60.0, "total_timesteps": 1000, "episodes": 2},
        ("2 of 2 random episodes", "max_episode_steps"),
    ),
    "outside of its space": (Wide, {}, ("observation[1] leaves its space, from -10 to 10: it reaches 99",)),
    "not of its seed": (Forgetful, {}, ("same seed and the same actions start alike and differ later", "self.np_random")),
    "drawn when built": (DrawnWhenBuilt, {}, ("two new environments play an episode of the same seed", "not in __init__")),
    "over at once": (OverAtOnce, {}, ("after their first step, though the limit is 20", "terminated")),
    "flat": (Flat, {}, ("all 10 random episodes, and all 40 of random policies, returned -5: nothing to climb. Rewards for",)),
    "noise": (Lottery, {}, ("depend more on the seed", "episodes_per_candidate")),
    "actions without effect": (
        Deaf,
        {},
        (
            "random actions and 8 random policies have the same return on each of 5 seeds",
            "step uses its action. If it does, no reward",
        ),
    ),
    "policies that act alike": (
        VariedFromAnywhere,
        {},
        ("8 random policies have the same return on each seed. sample_actions=True",),
    ),
    "choices": (Choices, {}, ("nothing to climb. sample_actions=True",)),
    "found by chance": (
        Explorable,
        {},
        ("all 40 episodes of random policies returned 0", "and those of random actions did not. sample_actions=True"),
    ),
    "a NaN in each episode": (
        OnceBlind,
        {},
        ("10 of 210 observations, in 10 of 10 random episodes, have values that are not finite", "the first choice"),
    ),
    "infinite observations": (Infinite, {}, ("210 of 210 observations, in 10 of 10 random episodes",)),
    "returns that are not always finite": (SometimesWorthless, {}, ("have a return that is not finite: they rank worst",)),
    "always found by chance": (
        Varied,
        {},
        ("all 40 episodes of random policies returned 0", "and those of random actions did not"),
    ),
}


@pytest.mark.parametrize("name", WARNED)
def test_what_harms_a_training_is_a_warning(name: str) -> None:
    env, arguments, words = WARNED[name]
    check = checked(env, **arguments)
    assert check.ok
    found = [text for text in texts(check) if all(word in text for word in words)]
    assert len(found) == 1, check.findings
    train(env)
    assert str(check).endswith(f"Training can work; {len(check.findings)} warning{'s' * (len(check.findings) != 1)}.")


class NotFinite(Push):
    def reward(self) -> Any:
        return math.nan


class Blind(Push):
    def seen(self) -> Any:
        return np.array([self.at, math.nan], np.float32)


class BlindOnce(OnceBlind):
    """Moves by its actions, which are NaN after an observation that has one."""

    action_space = Push.action_space
    step = Push.step


class Arrays(Push):
    def reward(self) -> Any:
        return np.ones(3)


class Shape(Push):
    def seen(self) -> Any:
        return np.zeros(3, np.float32)


class Raises(Push):
    def reward(self) -> Any:
        return 1 / (self.steps - 7)


class Unsupported(Push):
    action_space = spaces.Dict(a=spaces.Discrete(2))


WRONG = {
    "no finite return": (
        NotFinite,
        "10 of 10 random episodes and 40 of 40 episodes of random policies have a return that is not finite: nothing can",
    ),
    "no observation without NaN": (Blind, "all 210 observations have a NaN"),
    "an action that is NaN": (BlindOnce, "40 of 40 episodes of random policies have a return that is not finite: nothing can"),
    "no number as a reward": (Arrays, "an episode of random actions raised TypeError: env.step returned the reward array"),
    "another shape": (Shape, "a random policy raised ValueError: observation has shape (3,): expected (2,)"),
    "an exception": (
        Raises,
        "an episode of random actions raised ZeroDivisionError: division by zero (in test_env_check.py, line",
    ),
    "a space": (Unsupported, "action space Dict('a': Discrete(2)) is not supported"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_no_training_can_work_with_is_an_error(name: str) -> None:
    env, words = WRONG[name]
    check = checked(env)
    assert not check.ok
    assert [text for text in texts(check, "error") if words in text], check.findings
    assert check.findings[0].level == "error", "errors come first"
    assert "\n" not in check.findings[0].text
    assert str(check).endswith("A training cannot work before the errors are corrected.")
    with pytest.raises((FastESError, ValueError)):
        train(env)


class NoSuper(Push):
    """Draws from the global generator, which FastES seeds, and does not tell Gymnasium of the seed."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.steps, self.at = 0, random.uniform(0.5, 1.0)
        return self.seen(), {}


def test_gymnasium_finds_what_is_not_looked_for_here() -> None:
    (text,) = texts(checked(NoSuper))
    assert text.startswith("Gymnasium's check_env says: ")
    assert "super().reset(seed=seed)" in text


def test_a_slow_environment_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic()

    class Slow(Push):
        def reward(self) -> Any:
            time.sleep(0.005)
            return super().reward()

    check = checked(Slow, seconds=0.2)
    assert check.policies is not None
    assert check.policies.returns.shape == (2, 2), "the fewest that show anything"
    assert any("there was time for" in text for text in texts(check))
    assert time.monotonic() - began < 30.0


def test_policies_of_a_slow_environment_without_a_limit_play_what_there_is_time_for() -> None:
    class SlowAndEndless(Push):
        steps = 0

        def reward(self) -> Any:
            time.sleep(0.002)
            SlowAndEndless.steps += 1
            return super().reward()

        def is_over(self) -> Any:
            return False

    check = checked(SlowAndEndless, seconds=0.5)
    assert check.policies is not None
    assert SlowAndEndless.steps < 3 * 0.5 / 0.002, "the random episode, those of policies, and Gymnasium's check"


def test_the_global_random_state_is_the_callers() -> None:
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002
    expected = random.random(), np.random.random()  # noqa: NPY002
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002
    checked(Push)
    assert (random.random(), np.random.random()) == expected  # noqa: NPY002


def test_noise_and_spread_of_policies() -> None:
    equal = PolicyEpisodes(np.array([[1.0, 3.0], [1.0, 3.0], [1.0, 3.0]]), 1.0, 1, 1.0)
    assert equal.noise == pytest.approx(math.sqrt(2.0))
    assert equal.spread == 0.0
    rng = np.random.default_rng(0)
    drawn = PolicyEpisodes(rng.normal(0.0, 1.0, (2000, 1)) + rng.normal(0.0, 3.0, (2000, 4)), 1.0, 1, 1.0)
    assert drawn.noise == pytest.approx(3.0, rel=0.05)
    assert drawn.spread == pytest.approx(1.0, rel=0.15)
    seeds = np.array([-50.0, 0.0, 20.0, 30.0])  # what a seed gives to all policies hides no difference between them
    assert PolicyEpisodes(drawn.returns + seeds, 1.0, 1, 1.0).spread == pytest.approx(drawn.spread)
    assert PolicyEpisodes(drawn.returns + seeds, 1.0, 1, 1.0).noise > 30.0


def test_json_has_plain_values() -> None:
    for env in (Push, NotFinite, Unsupported):
        check = checked(env)
        values = json.loads(json.dumps(check.to_json(), allow_nan=False))
        assert values["ok"] == check.ok
        assert len(values["findings"]) == len(check.findings)
    assert checked(Push).to_json()["random_episodes"]["lengths"] == {"mean": 20.0, "std": 0.0, "min": 20.0, "max": 20.0}


def test_wrong_arguments_are_errors() -> None:
    with pytest.raises(ValueError, match="episodes = 0"):
        check_env(Push, episodes=0)
    with pytest.raises(ValueError, match="seconds = 0"):
        check_env(Push, seconds=0)
    with pytest.raises(ValueError, match="vector environment"):
        check_env(gymnasium.vector.SyncVectorEnv([Push]))


def test_recipes_that_race_are_named() -> None:
    check = checked(Choices, preset="auto")
    assert check.choice.startswith("no preset, so 5 recipes race: linear, ")
    assert "sampled" in check.choice
    (text,) = texts(check)
    assert "The recipe 'sampled' draws actions" in text


@pytest.mark.parametrize("rungs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_budget_says_which_recipes_race(rungs: int) -> None:
    """The same ones as in a training: all episodes have 20 steps."""

    def racing(timesteps: int) -> list[str]:
        with FastES(Push, n_workers=0, seed=0, rungs=rungs) as model:
            model.learn(timesteps, callback=lambda *_: False)
            return [trial.recipe for trial in model.selection.trials]

    def told(timesteps: int) -> str:
        return checked(Push, preset="auto", total_timesteps=timesteps, rungs=rungs, seconds=0.1).choice

    everyone = racing(10**6)
    fewer = {tuple(racing(timesteps)): timesteps for timesteps in range(2000, 26_000, 1000)}
    assert len(fewer) > 3
    least = re.search(r"they need a budget of about ([0-9,]+) steps", told(10**6))
    assert least is not None
    needed = int(least[1].replace(",", ""))
    assert racing(int(1.06 * needed)) == everyone != racing(int(0.94 * needed))
    for raced, timesteps in fewer.items():
        *first, last = raced
        names = f"{', '.join(first)} and {last} race" if first else f"{last} trains alone"
        if len(raced) < len(everyone):
            said = f"no preset, and {timesteps:,} steps are enough for {len(raced)} of {len(everyone)} recipes: {names}; "
            assert told(timesteps) == said + f"all of them need a budget of about {least[1]} steps"
