"""check_env: what a task is like, and whether a training on it can work, before one begins."""

from __future__ import annotations

import contextlib
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium.utils.env_checker import check_env as check_by_gymnasium

from fastes.env_check.random_episodes import RandomEpisodes, Repeated, compared, play_random, random_episode
from fastes.env_check.whereabouts import AGAIN, AT_RANDOM, CLOSED, GYMNASIUM, IN_C, PICTURE, POLICIES, Whereabouts
from fastes.envs.closing import close_env
from fastes.envs.native.twins import Twin, twin_of
from fastes.envs.source import EnvArgument, EnvSource, make_env_source
from fastes.errors import WorkerError, check_int, place_outside, summary_of, with_place
from fastes.es.schedules import make_schedule
from fastes.model import FastES
from fastes.models.arguments import checked_timesteps
from fastes.policies.custom_policy import CustomPolicy
from fastes.reports.choice_in_words import choice_in_words, exploring, has_own_preset, race_in_words, steps_in_words
from fastes.reports.task_in_words import (
    lengths_in_words,
    nothing_to_climb,
    returns_in_words,
    scaled,
    space_in_words,
)
from fastes.rollout.episode import EpisodeSettings
from fastes.rollout.native_episodes import Compared, difference_in_loop, difference_in_words
from fastes.setting_fields import checked_number
from fastes.system.digits import duration_in_words, number_in_words
from fastes.system.limits import available_cpus
from fastes.system.random_state import global_random_kept
from fastes.training.evaluation import Evaluation

ERROR, WARNING = "error", "warning"
_GRIDS = ((8, 5), (4, 3), (2, 2))  # random policies, and episodes of each: the first that there is time for
_FEW = 5  # random episodes, from which little can be said
_NOISY = 3.0  # times that returns of one policy may differ more than those of several
_COMPARED = 5  # episodes that an environment in Python and its twin in C play
_COMPARED_STEPS = 1000  # of an episode that C and Python play in turn
_FIRST_SEED = 1000  # of the environment
_FIND = "find the division, root or logarithm"
_TIMED = 0.2  # seconds of steps, at least, that a speed is measured over


class Finding(NamedTuple):
    """Something about a task that harms a training.

    Attributes:
        level: "error" if no training can work, else "warning".
        text: The fact, and what to do about it.
    """

    level: str
    text: str


class PolicyEpisodes(NamedTuple):
    """Episodes of several random policies, all on the same environment seeds.

    Attributes:
        returns: float64 (policies, episodes of each).
        length: Mean length of these episodes.
        steps, seconds: Steps, and the wall time that they took: of all these episodes; if that is little, of more that the same
            policies play.
    """

    returns: npt.NDArray[np.float64]
    length: float
    steps: int
    seconds: float

    @property
    def noise(self) -> float:
        """Standard deviation of the returns of one policy over environment seeds, as a root mean square over policies."""
        returns, unit = scaled(self.returns)
        return unit * float(np.sqrt(returns.var(axis=1, ddof=1).mean()))

    @property
    def spread(self) -> float:
        """Standard deviation of the policies' mean returns, without the part that chance has in it.

        All play the same seeds, so the part of a return that a seed gives to all of them cancels out.
        """
        policies, episodes = self.returns.shape
        returns, unit = scaled(self.returns)
        means = returns.mean(axis=1)
        rest = returns - means[:, None] - returns.mean(axis=0) + means.mean()
        chance = float((rest**2).sum()) / ((policies - 1) * (episodes - 1))
        return unit * math.sqrt(max(0.0, float(means.var(ddof=1)) - chance / episodes))


class EnvCheck(NamedTuple):
    """The result of `check_env`; as text it is the report of `fastes check-env`.

    Attributes:
        env: The environment's name.
        observation_space, action_space: Its spaces, in words.
        episode_limit: Steps after which the environment itself ends an episode; None if no limit is known.
        cut_after: Steps after which a training cuts an episode of an environment without a known limit, else None.
        steps: Whether a training steps it in C, and why not.
        choice: The policy of a training, and where its settings come from.
        random_episodes: Episodes of random actions.
        policies: Episodes of random policies.
        repeated: Whether the same seed and actions give the same episode.
        elsewhere: Whether they do in two new environments; None if `repeated` or something else is wrong.
        total_timesteps: The budget that `seconds` is for.
        processes: Number of processes that share it.
        findings: Faults, errors first.

    Parts that could not be played are None.
    """

    env: str
    observation_space: str = ""
    action_space: str = ""
    episode_limit: int | None = None
    cut_after: int | None = None
    steps: str = ""
    choice: str = ""
    random_episodes: RandomEpisodes | None = None
    policies: PolicyEpisodes | None = None
    repeated: Repeated | None = None
    elsewhere: Repeated | None = None
    total_timesteps: int = 0
    processes: int = 1
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether a training can work: there is no finding of the level "error"."""
        return all(finding.level != ERROR for finding in self.findings)

    @property
    def steps_per_second(self) -> float:
        """Steps per second of one process, policy included; NaN if no policy has played."""
        played = self.policies
        return math.nan if played is None else played.steps / max(played.seconds, 1e-9)

    @property
    def seconds(self) -> float:
        """Seconds that `total_timesteps` take if all processes are always busy; NaN if no policy has played."""
        return self.total_timesteps / (self.steps_per_second * self.processes)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `fastes check-env --json` prints them."""
        played, policies, repeated = self.random_episodes, self.policies, self.repeated
        return {
            "env": self.env,
            "ok": self.ok,
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "episode_limit": self.episode_limit,
            "cut_after": self.cut_after,
            "steps": self.steps,
            "choice": self.choice,
            "random_episodes": played
            and {
                "episodes": len(played.returns),
                "returns": _summary(played.returns),
                "lengths": _summary(played.lengths),
                "terminated": played.terminated,
                "truncated": played.truncated,
                "cut": played.cut,
                "rewarded_steps": played.rewarded,
            },
            "policies": policies
            and {
                "policies": policies.returns.shape[0],
                "episodes_each": policies.returns.shape[1],
                "return_std_between_policies": _number(policies.spread),
                "return_std_of_one_policy": _number(policies.noise),
            },
            "steps_per_second": _number(self.steps_per_second),
            "total_timesteps": self.total_timesteps,
            "processes": self.processes,
            "seconds": _number(self.seconds),
            "deterministic": repeated and repeated.is_same and (self.elsewhere is None or self.elsewhere.is_same),
            "findings": [finding._asdict() for finding in self.findings],
        }

    def __str__(self) -> str:
        return "\n".join(f"{title}{text}" for title, text in self.lines())

    def lines(self) -> list[tuple[str, str]]:
        """Return the report's lines, each as a title and the text to its right; the title of a whole line is empty."""
        rows = list(self._rows())
        width = max((len(name) for name, _ in rows), default=0)
        findings = (("", f"{finding.level}: {finding.text}") for finding in self.findings)
        return [("", self.env), *((f"  {name.ljust(width)}  ", text) for name, text in rows), *findings, ("", self._result())]

    def _rows(self) -> Iterator[tuple[str, str]]:
        if self.observation_space:
            yield "observations", self.observation_space
            yield "actions", self.action_space
            yield "steps", self.steps
        if self.random_episodes is not None:
            yield "episodes", _episodes_in_words(self.random_episodes, self.episode_limit)
            yield "returns", _returns_and_rewards_in_words(self.random_episodes)
        if self.policies is not None and math.isfinite(self.policies.noise):
            yield "noise", _noise_in_words(self.policies)
        if self.repeated is not None:
            same = self.repeated.is_same
            yield "seeds", f"the same seed and actions give {'the same episode' if same else 'different episodes'}"
        if self.policies is not None:
            yield (
                "speed",
                (
                    f"{self.steps_per_second:,.0f} steps/s in one process: {self.total_timesteps:,} steps take "
                    f"about {duration_in_words(self.seconds)} on {self.processes} core{'s' * (self.processes != 1)}"
                ),
            )
        if self.choice:
            yield "training", self.choice

    def _result(self) -> str:
        number = len(self.findings)
        if not self.ok:
            return "A training cannot work before the errors are corrected."
        return f"Training can work; {number} warning{'s' * (number != 1)}." if number else "No problems found."


def check_env(
    env: EnvArgument,
    policy: str | CustomPolicy | None = None,
    *,
    episodes: int = 40,
    seconds: float = 20.0,
    total_timesteps: float | None = None,
    n_workers: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> EnvCheck:
    """Play an environment for a few seconds in this process, and say what a training on it would be like.

    >>> from fastes import check_env
    >>> check = check_env("CartPole-v1", episodes=5)
    >>> check.ok, check.episode_limit, len(check.random_episodes.returns)
    (True, 500, 5)

    Random actions show lengths, returns and rewards; random policies of the kind that a training begins with show how much
    returns depend on the policy and how much on the environment's seed. `print(check_env(env))` prints the report.

    Args:
        env, policy, env_kwargs: See FastES.
        episodes: Episodes of random actions; fewer if the time is over.
        seconds: Time for these, and once more for random policies. The first episode of a slow environment may take longer.
        total_timesteps: Budget whose time is estimated; None for the settings'.
        n_workers: Processes that it is estimated for; None for the usable cores.
        arguments: More arguments of FastES, such as preset or a setting.

    Raises:
        EnvironmentUnavailable: The id is unknown, or a package is missing.
        TypeError, ValueError: If an argument is wrong. Faults of the environment are findings.
    """
    return watched_check(
        Whereabouts(),
        env,
        policy,
        episodes=episodes,
        seconds=seconds,
        total_timesteps=total_timesteps,
        n_workers=n_workers,
        env_kwargs=env_kwargs,
        **arguments,
    )


def watched_check(
    whereabouts: Whereabouts,
    env: EnvArgument,
    policy: str | CustomPolicy | None,
    *,
    episodes: int,
    seconds: float,
    total_timesteps: float | None,
    n_workers: int | None,
    env_kwargs: Mapping[str, Any] | None,
    **arguments: Any,
) -> EnvCheck:
    """Return the result of `check_env`, and note each of its stages, episodes and steps in `whereabouts`."""
    check_int("episodes", episodes, 1)
    if checked_number("seconds", seconds, "seconds, more than 0") <= 0.0:
        raise ValueError(f"seconds = {seconds!r}: expected seconds, more than 0")
    processes = available_cpus() if n_workers is None else max(1, check_int("n_workers", n_workers, 0))
    source = make_env_source(env, env_kwargs)
    if source.vector_env is not None:
        raise ValueError(f"{source.name} is a vector environment: pass the id, or a function that makes a single environment")
    check = EnvCheck(source.name, processes=processes)
    try:
        with global_random_kept():
            model = FastES(source, policy, n_workers=0, seed=0, **arguments)
    except Exception as error:
        if not place_outside(error) and not isinstance(error, (TypeError, ValueError)):
            raise
        return check._replace(findings=(Finding(ERROR, with_place(error)),))
    with model, global_random_kept():
        budget = checked_timesteps(total_timesteps, model.settings, least=1)
        model.note_episode_limit()
        training = model.selection.with_budget(budget, anew=True).training
        limit = training.longest_episode()
        check = check._replace(
            observation_space=space_in_words(model.observation_space),
            action_space=space_in_words(model.action_space),
            episode_limit=training.episode_limit,
            cut_after=limit if training.cuts_endless_episodes else None,
            steps=steps_in_words(model),
            choice=choice_in_words(model),
            total_timesteps=budget,
        )
        check, faults = _played(check, model, source, episodes, float(seconds), limit, whereabouts)
        if model.selection.is_open_race and check.policies is not None:
            check = check._replace(choice=race_in_words(model, budget, check.policies.length))
        whereabouts.enter(CLOSED)
    return check._replace(
        findings=(
            *faults,
            *sorted(_warnings_about(check, faults, exploring(model), has_own_preset(model)), key=lambda each: each.level),
        )
    )


# --- playing ----------------------------------------------------------------------------------------------------------


def _played(
    check: EnvCheck, model: FastES, source: EnvSource, episodes: int, seconds: float, limit: int, whereabouts: Whereabouts
) -> tuple[EnvCheck, list[Finding]]:
    """Return the check with what could be played, and the faults that ended it or that Gymnasium finds."""
    seeds = range(_FIRST_SEED, _FIRST_SEED + episodes)
    bare = source()
    env = whereabouts.around(bare)
    try:
        whereabouts.enter(AT_RANDOM)
        played = play_random(env, seeds, limit, seconds)
        check = check._replace(random_episodes=played)
        if played.seconds / max(int(played.lengths.sum()), 1) * int(played.lengths.max()) < seconds:
            whereabouts.enter(AGAIN)
            check = check._replace(repeated=compared(*(random_episode(env, _FIRST_SEED, limit) for _ in range(2))))
        whereabouts.enter(GYMNASIUM)
        differences = list(_differences_in_c(env, seeds[:_COMPARED], limit, seconds))
        if differences:  # then a training plays in Python
            model.evaluator.env_calls.leave_c()
        faults = [*differences, *_said_by_gymnasium(env)]
        faults += _about_own_c(bare, model, check.repeated, seeds[:_COMPARED], limit, whereabouts)
    except Exception as error:  # an environment may raise anything
        return check, [Finding(ERROR, f"an episode of random actions raised {_said(error)}")]
    finally:
        whereabouts.enter(CLOSED)
        close_env(env, source.name)
    if check.repeated is not None and check.repeated.is_same and not faults:
        whereabouts.enter(AGAIN)
        check = check._replace(elsewhere=_played_elsewhere(source, limit))
    whereabouts.enter(POLICIES)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".* which is not in ", category=RuntimeWarning)  # a finding says it
            steps = int(played.lengths.sum())
            if played.is_late and played.cut and steps:  # endless episodes: what can be played in the time
                limit = min(limit, max(1, int(seconds / 4 * steps / played.seconds)))
            policies = _play_policies(model, played, limit, seconds)
            if model.evaluator.has_differed:
                faults.append(Finding(WARNING, "its version in C differs in an episode of a random policy"))
            return check._replace(policies=policies, steps=steps_in_words(model)), faults
    except Exception as error:
        return check, [Finding(ERROR, f"an episode of a random policy raised {_said(error)}"), *faults]


def _played_elsewhere(source: EnvSource, limit: int) -> Repeated | None:
    """Play an episode in two new environments, one after the other; None if these cannot be had."""
    played = []
    with contextlib.suppress(Exception):  # the first one could be built and played: a training's error says more
        for _ in range(2):
            env = source()
            try:
                played.append(random_episode(env, _FIRST_SEED, limit))
            finally:
                close_env(env, source.name)
    return compared(*played) if len(played) == 2 else None


def _differences_in_c(env: Any, seeds: range, limit: int, seconds: float) -> Iterator[Finding]:
    """Yield the first difference between an environment and its twin in C, over episodes of random actions."""
    found = twin_of(env)
    if isinstance(found, Twin) and not found.is_same:
        both = Compared(env, found)
        play_random(both, seeds, limit, seconds)
        if both.difference:
            yield Finding(WARNING, difference_in_words(getattr(env.spec, "id", str(env)), both.difference))


def _about_own_c(
    env: Any, model: FastES, repeated: Repeated | None, seeds: range, limit: int, whereabouts: Whereabouts
) -> Iterator[Finding]:
    """Yield what is wrong with a user's environment in C: what a training plays is not what Python steps, or its picture."""
    found = twin_of(env)
    if not isinstance(found, Twin) or not found.is_same:
        return
    whereabouts.enter(IN_C)
    actor = model.policy_spec.make_actor()
    is_same_again = repeated is None or repeated.is_same  # if not, that is the finding
    if is_same_again and not model.policy_spec.needs_reference and found.instance.reads(actor):
        differences = (difference_in_loop(env, found, actor, seed, min(limit, _COMPARED_STEPS)) for seed in seeds)
        if difference := next(filter(None, differences), ""):
            yield Finding(
                WARNING,
                f"{difference}: see whether it keeps anything outside of `state`, or a pointer to a buffer of an earlier call",
            )
    whereabouts.enter(PICTURE)
    if found.instance.picture is not None:
        try:
            found.instance.render()
        except RuntimeError as error:
            yield Finding(ERROR, str(error))


def _play_policies(model: FastES, played: RandomEpisodes, limit: int, seconds: float) -> PolicyEpisodes:
    """Play random policies as the first generation has them: the first parameters, and a perturbation on top."""
    per_episode = played.seconds / max(len(played.returns), 1)
    grid = next((grid for grid in _GRIDS if grid[0] * grid[1] * per_episode <= seconds), _GRIDS[-1])
    policies, episodes = grid
    rng, sigma = np.random.default_rng(0), make_schedule("sigma", model.settings.sigma)(1.0)
    model.evaluator.start(training=False)  # builds the environment, which is no part of the speed
    returns, thetas, steps, began = list[npt.NDArray[np.float64]](), list[npt.NDArray[np.float32]](), 0, time.perf_counter()
    while len(returns) < policies and (len(returns) < 2 or time.perf_counter() - began < seconds):
        thetas.append((model.theta + sigma * rng.standard_normal(model.num_params)).astype(np.float32))
        result = _played_by(model, thetas[-1], episodes, limit)
        returns.append(result.returns)
        steps += result.timesteps
    spent, length = time.perf_counter() - began, steps / (len(returns) * episodes)
    if not model.evaluator.python_because:  # some have played in Python, too, which most of that time was for
        if model.evaluator.has_differed:  # then a training plays in Python
            model.evaluator.env_calls.leave_c()
        steps, began = 0, time.perf_counter()
        for theta in thetas:
            steps += _played_by(model, theta, episodes, limit, compared=False).timesteps
            if (spent := time.perf_counter() - began) >= min(_TIMED, seconds):
                break
    while spent < min(_TIMED, seconds):
        episodes, steps, began = 16 * episodes, 0, time.perf_counter()
        for theta in thetas:
            steps += _played_by(model, theta, episodes, limit, compared=False).timesteps
        spent = time.perf_counter() - began
    return PolicyEpisodes(np.array(returns), length, steps, spent)


def _played_by(model: FastES, theta: npt.NDArray[np.float32], episodes: int, limit: int, compared: bool = True) -> Evaluation:
    """Play episodes of a policy. compared: whether the first one is also played in Python if it is in C."""
    seeds = np.arange(_FIRST_SEED, _FIRST_SEED + episodes, dtype=np.int64)
    playing = model.evaluator.evaluate(theta, model.normalizer, seeds, EpisodeSettings(limit), compared=compared)
    return model.evaluator.run(playing)


def _said_by_gymnasium(env: Any) -> Iterator[Finding]:
    """Yield the first fault that Gymnasium's own check finds, unless it is of spaces or seeds, which are checked here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            check_by_gymnasium(env, skip_render_check=True, skip_close_check=True)
        except Exception as error:  # assertions, and whatever the environment raises
            said = " ".join(str(error).split())
            if not any(words in said for words in ("observation space", "deterministic", "Deterministic", "share an object")):
                yield Finding(WARNING, f"Gymnasium's check_env says: {said}")


def _said(error: Exception) -> str:
    """Return an exception in one line, with the file and line of the user's code that raised it, if it was that."""
    if isinstance(error, WorkerError):  # its text goes on with how to play the episode again
        return str(error).partition("\n")[0]
    place = place_outside(error)
    return f"{summary_of(error)} ({place})" if place else summary_of(error)


# --- judging ----------------------------------------------------------------------------------------------------------


def _warnings_about(check: EnvCheck, faults: list[Finding], how_to_explore: str, is_tuned: bool) -> Iterator[Finding]:
    """Yield findings. is_tuned: whether the settings were tuned on this environment, its noise included."""
    played = check.random_episodes
    if played is None:
        return
    yield from _about_numbers(played, check.policies)
    yield from _about_lengths(check, played)
    yield from _about_repeated(check.repeated, check.elsewhere)
    for part in played.outside:
        reached = "a value that is not in it" if math.isnan(part.value) else number_in_words(part.value)
        yield Finding(
            WARNING,
            f"{part.where} leaves its space, {part.space}: it reaches {reached}. Widen the space, or clip in the environment: "
            "wrappers that scale by the bounds, and one-hot choices, depend on them",
        )
    if not any(finding.level == ERROR for finding in faults):
        yield from _about_returns(played, check.policies, how_to_explore, is_tuned)


def _about_numbers(played: RandomEpisodes, policies: PolicyEpisodes | None) -> Iterator[Finding]:
    """Yield findings about numbers that are not finite: an error if no return tells one policy from another."""
    if 0 < played.nan_observations == played.observations and _are_alike(policies):
        yield Finding(ERROR, f"all {played.observations:,} observations have a NaN, on which no policy can act: {_FIND}")
    elif played.odd_observations:
        yield Finding(
            WARNING,
            f"{played.odd_observations:,} of {played.observations:,} observations, in {played.odd_episodes} of "
            f"{len(played.returns)} random episodes, have values that are not finite: {_FIND}. A training leaves such episodes "
            "out of the statistics that scale observations, and its policy answers NaN with NaN, or with the first choice",
        )
    kinds = {"random episodes": played.returns}
    if policies is not None:
        kinds["episodes of random policies"] = policies.returns.ravel()
    odd = {name: int(np.count_nonzero(~np.isfinite(returns))) for name, returns in kinds.items()}
    told = " and ".join(f"{odd[name]} of {len(returns)} {name}" for name, returns in kinds.items() if odd[name])
    if policies is not None and odd["episodes of random policies"] == policies.returns.size:
        yield Finding(ERROR, f"{told} have a return that is not finite: nothing can be learned from them")
    elif told:
        yield Finding(WARNING, f"{told} have a return that is not finite: they rank worst")


def _are_alike(policies: PolicyEpisodes | None) -> bool:
    """Return whether all policies have the same return on each seed, finite or not."""
    return policies is None or all(np.array_equal(own, policies.returns[0], equal_nan=True) for own in policies.returns)


def _about_lengths(check: EnvCheck, played: RandomEpisodes) -> Iterator[Finding]:
    number = len(played.lengths)
    if played.is_late and number < _FEW:
        yield Finding(
            WARNING,
            f"there was time for {number} random episode{'s' * (number != 1)} alone: steps are slow, or episodes long. "
            "seconds=... (--seconds) gives more",
        )
    if played.cut and check.cut_after is not None and played.lengths.max() >= check.cut_after:
        yield Finding(
            WARNING,
            f"{played.cut} of {number} random episodes had not ended after {check.cut_after:,} steps, at which learn "
            "cuts them, too: the environment has no limit that is known. Set max_episode_steps to the steps that an episode "
            "should have",
        )
    if number > 1 and played.lengths.max() == 1 and (check.episode_limit or 0) > 1:
        yield Finding(
            WARNING,
            f"all random episodes ended after their first step, though the limit is {check.episode_limit}: see whether step "
            "returns terminated = True by mistake",
        )


def _about_repeated(repeated: Repeated | None, elsewhere: Repeated | None) -> Iterator[Finding]:
    if elsewhere is not None and not elsewhere.is_same:
        yield Finding(
            WARNING,
            "two new environments play an episode of the same seed and the same actions differently: each worker builds its "
            "own, so results will depend on which worker plays what. Draw in reset, from self.np_random, and not in __init__",
        )
    if repeated is None or repeated.is_same:
        return
    what = "start differently" if not repeated.start else "start alike and differ later"
    yield Finding(
        WARNING,
        f"two episodes of the same seed and the same actions {what}: results will depend on which worker plays what. Call "
        "super().reset(seed=seed), draw from self.np_random alone (in C: from reset's fastes_random), and keep nothing "
        "from one episode to the next",
    )


def _about_returns(
    played: RandomEpisodes, policies: PolicyEpisodes | None, how_to_explore: str, is_tuned: bool
) -> Iterator[Finding]:
    number, first = len(played.returns), float(played.returns[0])
    of_policies = None if policies is None else policies.returns
    policies_alike = of_policies is None or nothing_to_climb(of_policies.ravel())
    are_equal = policies_alike and (of_policies is None or float(of_policies.flat[0]) == first)
    if nothing_to_climb(played.returns) and are_equal:
        who = f"all {number} random episodes" + (
            "" if of_policies is None else f", and all {of_policies.size} of random policies,"
        )
        yield Finding(
            WARNING,
            f"{who} returned {number_in_words(first)}: nothing to climb. {how_to_explore}",
        )
    elif policies_alike and of_policies is not None and of_policies.size > 1:
        yield Finding(
            WARNING,
            f"all {of_policies.size} episodes of random policies returned {number_in_words(of_policies.flat[0])}, and those "
            f"of random actions did not. {how_to_explore}",
        )
    elif policies is not None and len(policies.returns) > 1 and _are_alike(policies):
        both = min(number, policies.returns.shape[1])  # they play the same seeds
        if np.array_equal(played.returns[:both], policies.returns[0, :both]):
            yield Finding(
                WARNING,
                f"random actions and {len(policies.returns)} random policies have the same return on each of {both} seeds: "
                f"see whether step uses its action. If it does, no reward depends on it yet. {how_to_explore}",
            )
        else:
            yield Finding(
                WARNING, f"{len(policies.returns)} random policies have the same return on each seed. {how_to_explore}"
            )
    elif policies is not None and not is_tuned and math.isfinite(policies.noise) and policies.noise > _NOISY * policies.spread:
        yield Finding(
            WARNING,
            f"returns depend more on the seed (+- {number_in_words(policies.noise)}) than on the policy "
            f"(+- {number_in_words(policies.spread)}): average with episodes_per_candidate=4, or take a larger population_size",
        )


# --- plain values -----------------------------------------------------------------------------------------------------


def _episodes_in_words(played: RandomEpisodes, limit: int | None) -> str:
    number = len(played.lengths)
    few = "" if played.lengths.min() == played.lengths.max() else f", mean {played.lengths.mean():.0f}"
    at_limit = min(played.truncated, int(np.count_nonzero(played.lengths == limit))) if limit else 0
    ends = [
        f"{_share(count, number)} {text}"
        for count, text in (
            (played.terminated, "ended by the rules"),
            (at_limit, f"ended by the limit of {limit or 0:,}"),
            (played.truncated - at_limit, "truncated"),
            (played.cut, "cut"),
        )
        if count
    ]
    return f"{number} of random actions: {lengths_in_words(played.lengths)}{few}; {', '.join(ends)}"


def _share(count: int, number: int) -> str:
    return "all" if count == number else f"{count}"


def _returns_and_rewards_in_words(played: RandomEpisodes) -> str:
    if played.rewarded == 1.0:
        return returns_in_words(played.returns)
    rewarded = f"{_percent(played.rewarded)} of steps have a reward" if played.rewarded else "no step has a reward"
    return f"{returns_in_words(played.returns)}; {rewarded}"


def _noise_in_words(played: PolicyEpisodes) -> str:
    policies, each = played.returns.shape
    if nothing_to_climb(played.returns.ravel()):
        return f"{policies} random policies, {each} episodes each: all returned {number_in_words(played.returns.flat[0])}"
    return (
        f"{policies} random policies, {each} episodes each: policies differ by +- {number_in_words(played.spread)}, "
        f"episodes of one policy by +- {number_in_words(played.noise)}"
    )


def _percent(share: float) -> str:
    return f"{100.0 * share:.2g} %"


def _summary(values: npt.NDArray[Any]) -> dict[str, float | None]:
    of: dict[str, Callable[[npt.NDArray[Any]], Any]] = {"mean": np.mean, "std": np.std, "min": np.min, "max": np.max}
    plain, unit = scaled(values)
    return {name: _number(unit * float(function(plain))) for name, function in of.items()}


def _number(value: float) -> float | None:
    """Return a number, or None if JSON has none for it."""
    return value if math.isfinite(value) else None
