"""A search for settings: candidates in batches, a play-off of the best, and the winner's score on fresh seeds.

Three stages. Their seeds are disjoint ranges that begin at the search's seed:

1. Candidates are drawn by Optuna, the first ones are known good settings. Each is trained with `n_seeds` seeds, and pruned at
   rungs by its mean return. `parallel` of them train side by side.
2. The FINALISTS best, and the best of the known good settings, are trained again with PLAY_OFF times as many new seeds. The
   best mean of these wins: the best of many on a few seeds owes much of its score to them.
3. The winner, and what would be used without a search, are trained with REPORT_SEEDS seeds that decided nothing.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shlex
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from fastes.envs.closing import close_env
from fastes.envs.likeness import described
from fastes.envs.source import EnvSource
from fastes.errors import check_int, check_seed, shown, whole
from fastes.models.arguments import checked_minutes
from fastes.models.one_pool import check_shared
from fastes.policies.custom_policy import CustomPolicy
from fastes.settings import population_scale
from fastes.settings.preset_fit import misfit
from fastes.settings.preset_loader import DEFAULT, FILE, choose_settings, preset_for
from fastes.settings.recipes import AUTO, alive_bonus_of, are_choices, kind_of, recipes_for
from fastes.settings.search_space import SearchSpace
from fastes.settings.settings import Settings
from fastes.system.console import output_errors_tolerated, say
from fastes.system.digits import counted, digits_of, duration_in_words, in_digits
from fastes.system.html_tables import html_table
from fastes.tuning.candidates import FIRST_EPISODE, Candidate, Learner, train_candidates
from fastes.tuning.results import preset_values, write_plots, write_preset, write_table
from fastes.tuning.study import EIGHTHS, PRUNERS, SAMPLERS, TIMESTEPS, TRIALS, Study, check_choice, import_optuna, opened_study

FINALISTS, REPORT_SEEDS, REPORT_EPISODES = 5, 5, 20
PLAY_OFF = 2  # times n_seeds: the seeds of each finalist
_JOURNAL = ".journal"  # the usual end of a study's name, which its other files do not have
_MOST_REFUSED = 50  # candidates in a row that cannot be settings
_NO_EVALUATION = 2**40  # eval_every: a search plays its own evaluations
_SECONDS = "seconds"  # of the longest batch, and of a training: the study's attribute
_WHOLE = 10**9  # characters of a setting that is compared with those of the study so far
_ROUND = 10**6  # between the first episodes of the stages
_NO_NUMBER = 10**6  # of trials: the time ends the search

Make = Callable[..., Any]  # (env, policy, **arguments) -> a model: the class FastES


class Scored(NamedTuple):
    """Settings on seeds that no choice was made on.

    Attributes:
        name: The settings' name.
        seeds: One for each training.
        scores: Mean noise-free return of each.
    """

    name: str
    seeds: tuple[int, ...]
    scores: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.scores)

    @property
    def worst(self) -> float:
        return min(self.scores)


class Tuned(NamedTuple):
    """The result of a search.

    Attributes:
        settings: The best settings, those that differ from the defaults.
        score, worst: Median and minimum of the mean noise-free returns of trainings with fresh seeds.
        preset: The file of the settings, for `preset=` and `--preset`; None without a study file.
        fresh: Those trainings.
        usual: The same of what would be used without a search: the environment's preset, or 'auto', the race of recipes.
        trials: Candidates that count, pruned ones included.
    """

    settings: dict[str, Any]
    score: float
    worst: float
    preset: Path | None
    fresh: Scored
    usual: Scored
    trials: int

    def _repr_html_(self) -> str:
        """Return a table, which a notebook shows."""
        usual, seeds = self.usual, len(self.fresh.seeds)
        return html_table(
            f"Search over {self.trials} trials",
            [
                ("score", f"{self.score:.2f}, worst {self.worst:.2f} of {seeds} trainings with fresh seeds"),
                ("without a search", f"{usual.median:.2f}, worst {usual.worst:.2f} ({usual.name})"),
                ("preset", "none: a study without a file" if self.preset is None else self.preset),
                *((name, repr(value)) for name, value in self.settings.items()),
            ],
        )


@dataclass(frozen=True)
class _Search:
    """Everything that stays the same during a search."""

    make: Callable[[str, Mapping[str, Any], int], Learner]  # preset, settings on top and seed -> a model
    env: str
    space: SearchSpace
    starts: Mapping[str, Settings]  # known good settings, in the order in which they are tried
    usual: str  # what would be used without a search: the name of a start, or AUTO for a race of recipes
    timesteps: int
    n_seeds: int
    seed: int
    episodes: int
    parallel: int
    policy_is_custom: bool
    source: EnvSource
    verbose: bool

    def seeds(self, stage: int, count: int) -> tuple[int, ...]:
        """Return the seeds of a stage, from 0: those of no other."""
        return tuple(range(self.seed + stage * self.n_seeds, self.seed + stage * self.n_seeds + count))

    def settings_of(self, trial: Any) -> Settings:
        """Return the settings of an Optuna trial."""
        start = trial.user_attrs.get("start")
        return self.starts[start] if start in self.starts else Settings().changed(**self.space.settings_of(trial.params))

    def candidate(self, number: int, settings: Settings | None, seeds: Sequence[int]) -> Candidate:
        """Return a candidate of these settings; of a race of recipes for None."""
        preset, values = (AUTO, dict(self.space.fixed)) if settings is None else (DEFAULT, settings.as_given())
        values["total_timesteps"] = self.timesteps
        if "target_return" not in self.space.fixed:
            values["target_return"] = "none"
        if not values.get("archive_size") and "eval_every" not in self.space.fixed:
            values["eval_every"] = _NO_EVALUATION
        return Candidate(number, [self.make(preset, values, seed) for seed in seeds])

    def tell(self, text: str) -> None:
        if self.verbose:
            say(text)
            sys.stdout.flush()  # a file or a pipe has each line as soon as a terminal


def tune(
    make: Make,
    env: Any,
    policy: str | CustomPolicy | None,
    *,
    n_trials: int | None,
    max_minutes: float | None,
    study: str | os.PathLike[str] | None,
    seed: int,
    n_seeds: int,
    sampler: Any,
    pruner: Any,
    parallel: int,
    episodes: int,
    verbose: int,
    arguments: Mapping[str, Any],
    fixed: Mapping[str, Any],
) -> Tuned:
    """Search for settings; see Agent.tune. make: the model's class. arguments: its others, such as n_workers."""
    optuna = import_optuna()
    ends_at = time.monotonic() + 60.0 * checked_minutes(max_minutes)
    for name, value, least, most in (
        ("n_seeds", n_seeds, 1, 1000),
        ("parallel", parallel, 1, 1000),
        ("episodes", episodes, 1, _ROUND),
        ("n_trials", TRIALS if n_trials is None else n_trials, 1, _NO_NUMBER),
    ):
        check_int(name, value, least, most)
    check_choice("sampler", sampler, SAMPLERS, optuna.samplers.BaseSampler)
    check_choice("pruner", pruner, PRUNERS, optuna.pruners.BasePruner)
    most = n_trials if n_trials is not None else TRIALS if math.isinf(ends_at) else _NO_NUMBER
    path = None if study is None else Path(study).absolute()
    if path is not None and path.suffix == FILE:
        raise ValueError(
            f"study = {str(study)!r}: the preset gets a name that ends in {FILE}, use another, such as tune{_JOURNAL}"
        )
    check_seed(seed)
    fixed = dict(fixed)
    if population_scale.NAME in fixed:
        raise TypeError(
            f"{population_scale.NAME} = {fixed[population_scale.NAME]!r}: a search chooses population_size itself; pass "
            "population_size to fix it"
        )
    total_timesteps = fixed.pop("total_timesteps", None)
    search = _search(make, env, policy, total_timesteps, n_seeds, seed, parallel, episodes, bool(verbose), arguments, fixed)
    about = {
        "env": search.env,
        "arguments": _arguments_in_words(dict(search.source.make_kwargs)),
        "wrappers": [wrapper.entry_point for wrapper in search.source.added_wrappers],
        "policy": search.space.fixed.get("policy", ""),
        "total_timesteps": search.timesteps,
        "n_seeds": n_seeds,
        "seed": seed,
        "episodes": episodes,
        "fixed": {
            name: value if isinstance(value, (str, int, float, bool)) else shown(value, _WHOLE) for name, value in fixed.items()
        },
    }
    with output_errors_tolerated(), opened_study(path, about, sampler, pruner, seed) as opened:
        try:
            _tell_of_start(search, opened, path, most, max_minutes)
            per_training = _search_candidates(search, opened, most, ends_at)
            return _result(search, opened, path, per_training, ends_at)
        except BaseException as error:
            _write_best_so_far(search, opened, path, isinstance(error, KeyboardInterrupt))
            raise


def _arguments_in_words(kwargs: dict[str, Any]) -> str:
    """Return arguments as Python shows them; without the addresses of objects, which are others in each process."""
    shown = repr(kwargs)
    return described(kwargs) if " at 0x" in shown else shown


# --- the space and the starts -----------------------------------------------------------------------------------------


def _search(
    make: Make,
    env: Any,
    policy: str | CustomPolicy | None,
    total_timesteps: float | None,
    n_seeds: int,
    seed: int,
    parallel: int,
    episodes: int,
    verbose: bool,
    arguments: Mapping[str, Any],
    fixed: Mapping[str, Any],
) -> _Search:
    """Look at the environment, and return the search in it. Arguments and settings are checked here, with their warnings."""
    probe = make(env, policy, preset=AUTO, seed=seed, **arguments, **fixed)
    try:
        source: EnvSource = probe.source
        check_shared(source)
        observations, actions = probe.observation_space, probe.action_space
        usual = AUTO if probe.selection.is_open_race else probe.base_preset
        built = probe.evaluator.build()
        try:
            bonus = alive_bonus_of(built)
        finally:
            close_env(built, source.name)
    finally:
        probe.close()
    name = source.preset_name(observations)
    own = preset_for("" if misfit(name, source, observations, actions) else name)
    kept = dict(fixed)
    if policy is not None:
        kept["policy"] = policy.kind if isinstance(policy, CustomPolicy) else policy
    is_custom = isinstance(policy, CustomPolicy)
    space = SearchSpace(kind_of(observations), are_choices(actions), bonus, kept)
    starts = _starts(own, observations, actions, kept, bonus)
    steps = starts[own].total_timesteps if own in starts else TIMESTEPS
    if total_timesteps is not None:
        steps = check_int("total_timesteps", whole(total_timesteps), 1, 10**15)
    rest = {key: value for key, value in arguments.items() if key != "env_kwargs"}

    def made(preset: str, values: Mapping[str, Any], of_seed: int) -> Any:
        own_values = dict(values)
        named = own_values.pop("policy", None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of step lengths: candidates are to be unusual
            return make(source, policy if is_custom else named, preset=preset, seed=of_seed, **rest, **own_values)

    return _Search(made, name, space, starts, usual, steps, n_seeds, seed, episodes, parallel, is_custom, source, verbose)


def _starts(
    own: str | None, observations: Any, actions: Any, fixed: Mapping[str, Any], alive_bonus: float
) -> dict[str, Settings]:
    """Return the environment's preset, and the recipes that fit, with the user's settings in all."""
    found: dict[str, Settings] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        if own is not None:
            _add_start(found, own, lambda: choose_settings(own, fixed))
        with contextlib.suppress(ValueError):
            for recipe in recipes_for(observations, actions, fixed, alive_bonus):
                _add_start(found, recipe.name, lambda recipe=recipe: recipe.settings)  # type: ignore[misc]
        if not found:  # a policy that no recipe can have
            _add_start(found, DEFAULT, lambda: choose_settings(DEFAULT, fixed))
    return found


def _add_start(found: dict[str, Settings], name: str, settings: Callable[[], Settings]) -> None:
    """Add settings, unless they cannot be or are there already."""
    try:
        new = settings()
    except ValueError:
        return
    if all(new != other for other in found.values()):
        found[name] = new


# --- the stages -------------------------------------------------------------------------------------------------------


def _search_candidates(search: _Search, study: Study, most: int, ends_at: float) -> float:
    """Run batches of candidates until there are enough, or no time is left for another and the last stages.

    Returns:
        Seconds that a training takes; 0 if there was none.
    """
    longest, per_training = study.study.user_attrs.get(_SECONDS, (0.0, 0.0))
    while (count := len(study.finished)) < most:
        last = ((FINALISTS + 1) * PLAY_OFF * search.n_seeds + 2 * REPORT_SEEDS) * per_training
        left = ends_at - time.monotonic()
        if longest and longest + last > left:
            known = ", all of them known settings: nothing new was tried" if count <= len(search.starts) else ""
            next_, rest, there = map(duration_in_words, (longest, last, max(0.0, left)))
            needs = f"another batch takes {next_}, the play-off and fresh seeds {rest}, and {there} are left"
            search.tell(f"the time is up after {counted(count, 'candidate')}{known}: {needs}")
            break
        size = min(most - count, search.parallel - count % search.parallel)
        started = time.monotonic()
        batch = [_next_candidate(search, study, count + place) for place in range(size)]
        search.tell(_batch_in_words([trial for _, trial in batch]))
        _train_batch(search, study, [candidate for candidate, _ in batch], {c.number: trial for c, trial in batch}, most)
        longest = max(longest, time.monotonic() - started)
        whole_trainings = sum(len(c.models) * (len(c.returns) and EIGHTHS[len(c.returns) - 1] / EIGHTHS[-1]) for c, _ in batch)
        per_training = max(per_training, (time.monotonic() - started) / max(1.0, whole_trainings))
        study.study.set_user_attr(_SECONDS, (longest, per_training))
    return float(per_training)


def _next_candidate(search: _Search, study: Study, number: int) -> tuple[Candidate, Any]:
    """Return the next candidate and its trial. Drawn settings that cannot be are failed trials, and others are drawn."""
    refused = None
    names = list(search.starts)
    for attempt in range(_MOST_REFUSED):
        is_start = number < len(names) and not attempt
        start = (names[number], search.space.params_of(search.starts[names[number]])) if is_start else None
        trial = study.ask(number, attempt, start)
        try:
            search.space.draw(trial)
            candidate = search.candidate(trial.number, search.settings_of(trial), search.seeds(0, search.n_seeds))
        except ValueError as error:
            refused = error
            trial.set_user_attr("refused", str(error)[:500])
            study.study.tell(trial.number, state=import_optuna().trial.TrialState.FAIL)
            continue
        return candidate, trial
    raise ValueError(f"no candidate can have the settings that are fixed: {refused}") from refused


def _train_batch(search: _Search, study: Study, batch: Sequence[Candidate], trials: Mapping[int, Any], most: int) -> None:
    """Train a batch, and tell Optuna of it in the order of the candidates."""
    states = import_optuna().trial.TrialState

    def judge(candidate: Candidate, eighths: int) -> bool:
        trial = trials[candidate.number]
        if not math.isfinite(candidate.score):
            return True
        trial.report(candidate.score, eighths)
        return eighths < EIGHTHS[-1] and bool(trial.should_prune())

    train_candidates(batch, search.timesteps, search.episodes, FIRST_EPISODE, EIGHTHS, judge)
    for candidate in batch:
        trial = trials[candidate.number]
        trial.set_user_attr("seconds", round(candidate.seconds, 1))
        trial.set_user_attr("worst", min(candidate.returns[-1]))
        if candidate.failure:
            trial.set_user_attr("failure", candidate.failure)
        if candidate.is_pruned:
            study.study.tell(trial, state=states.PRUNED)
        else:
            study.study.tell(trial, candidate.score)
        _tell_of(search, study, candidate, trial, most)


def _tell_of_start(search: _Search, study: Study, path: Path | None, most: int, minutes: float | None) -> None:
    """Say what the search is, before its first batch, which may take long."""
    time_ = "" if minutes is None else duration_in_words(60.0 * minutes)
    number = counted(most, "trial")
    until = (f"at most {number} in {time_}" if most < _NO_NUMBER else time_) if time_ else number
    seeds = _seeds_in_words(search.seeds(0, search.n_seeds))
    search.tell(
        f"search for settings of {search.env}: {until}, {search.parallel} side by side; each trial is "
        f"{counted(search.n_seeds, 'training')} of {search.timesteps:,} steps, with {seeds}"
    )
    done = f"; {counted(count, 'trial')} finished before" if (count := len(study.finished)) else ""
    search.tell(f"study: {'in memory alone' if path is None else _shown(path)}{done}")


def _seeds_in_words(seeds: Sequence[int]) -> str:
    return f"seeds {seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}"


def _batch_in_words(trials: Sequence[Any]) -> str:
    """Return which trials a batch trains, and where their settings come from."""
    numbers = [trial.number for trial in trials]
    starts = [repr(trial.user_attrs["start"]) for trial in trials if "start" in trial.user_attrs]
    is_range = len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1
    named = f"{numbers[0]} to {numbers[-1]}" if is_range else ", ".join(map(str, numbers))
    drawn = len(trials) - len(starts)
    settings = [f"start {', '.join(starts)}"] if starts else []
    settings += [f"{drawn} drawn by Optuna" if starts else "drawn by Optuna"] if drawn else []
    return f"trial{'s' * (len(numbers) > 1)} {named} in training: {' and '.join(settings)}"


def _tell_of(search: _Search, study: Study, candidate: Candidate, trial: Any, most: int) -> None:
    count = len(study.finished)
    eighths = EIGHTHS[len(candidate.returns) - 1]
    ended = f"pruned after {eighths}/8" if candidate.is_pruned else ""
    best = study.complete[:1]
    lead = f"best {digits_of(best[0].value)} (trial {best[0].number})" if best else ""
    start = f"start {trial.user_attrs['start']!r}" if "start" in trial.user_attrs else ""
    done = f" ({count} of {most} done)" if most < _NO_NUMBER else ""
    notes = ", ".join(part for part in (start, ended, lead, f"{candidate.seconds:.0f} s", candidate.failure) if part)
    search.tell(f"trial {candidate.number:3d}{done}: {digits_of(candidate.score):>10}  {notes}")


def _result(search: _Search, study: Study, path: Path | None, per_training: float, ends_at: float) -> Tuned:
    """Play the best off against each other, and train the winner with fresh seeds. Stages that are done are read.

    With little time fewer are played off. The report is never shortened: its scores are those to quote.
    """
    finalists = study.complete[:FINALISTS]
    finalists += [each for each in study.complete[FINALISTS:] if "start" in each.user_attrs and not _has_start(finalists)][:1]
    if not finalists:
        raise ValueError("no candidate reached the end of its training with finite returns: nothing can be chosen")
    if _key_of_play_off(finalists) not in study.study.user_attrs:
        finalists = _with_time_for(search, finalists, per_training, ends_at - time.monotonic())
    winner = _play_off(search, study, finalists)
    settings = search.settings_of(winner)
    usual = search.starts.get(search.usual)
    seeds = search.seeds(1 + PLAY_OFF, REPORT_SEEDS)
    key = f"fresh of trial {winner.number} and of {search.usual}"
    scores = study.study.user_attrs.get(key)
    if scores is None:
        both = [search.candidate(0, settings, seeds)]
        if usual != settings:
            both.append(search.candidate(1, usual, seeds))
        others = f" and {search.usual!r}{', the race of recipes,' if usual is None else ''} are" if len(both) > 1 else " is"
        search.tell(f"trial {winner.number} is the best: now it{others} trained with fresh {_seeds_in_words(seeds)}")
        if (needed := len(both) * REPORT_SEEDS * per_training) > (left := ends_at - time.monotonic()):
            said, there = map(duration_in_words, (needed, max(0.0, left)))
            search.tell(f"this goes beyond the budget: it takes about {said}, and {there} are left")
        train_candidates(both, search.timesteps, REPORT_EPISODES, FIRST_EPISODE + 2 * _ROUND, EIGHTHS[-1:])
        scores = [both[0].returns[-1], both[-1].returns[-1]]
        study.study.set_user_attr(key, scores)
    fresh = Scored("tuned", seeds, tuple(scores[0]))
    plain = Scored(search.usual, seeds, tuple(scores[1]))
    values = _values(search, settings)
    files = _write(search, study, path, winner, values, fresh, plain, is_played_off=len(finalists) > 1)
    tuned = Tuned(values, fresh.median, fresh.worst, files[0] if files else None, fresh, plain, len(study.finished))
    _report(search, tuned, files)
    return tuned


def _with_time_for(search: _Search, finalists: list[Any], per_training: float, left: float) -> list[Any]:
    """Return the finalists whose play-off there is time for besides the report: the best one alone is not played off."""
    room, each = left - 2 * REPORT_SEEDS * per_training, PLAY_OFF * search.n_seeds * per_training
    if room >= len(finalists) * each or len(finalists) == 1:
        return finalists
    number = max(1, int(room / each))
    search.tell(f"there is time for a play-off of {number} of them" if number > 1 else "there is no time for a play-off")
    return finalists[:number]


def _key_of_play_off(finalists: Sequence[Any]) -> str:
    """Return the name of the study's attribute that has the result."""
    return "play-off of " + ", ".join(str(trial.number) for trial in finalists)


def _has_start(trials: Sequence[Any]) -> bool:
    return any("start" in each.user_attrs for each in trials)


def _play_off(search: _Search, study: Study, finalists: Sequence[Any]) -> Any:
    """Return the trial with the best mean over new seeds, of equal ones the better one in the search."""
    if len(finalists) == 1:
        return finalists[0]
    key = _key_of_play_off(finalists)
    means = study.study.user_attrs.get(key)
    if means is None:
        search.tell(f"play-off of trials {', '.join(str(trial.number) for trial in finalists)} with new seeds")
        seeds = search.seeds(1, PLAY_OFF * search.n_seeds)
        again = [search.candidate(trial.number, search.settings_of(trial), seeds) for trial in finalists]
        train_candidates(again, search.timesteps, search.episodes, FIRST_EPISODE + _ROUND, EIGHTHS[-1:])
        means = [each.score for each in again]
        study.study.set_user_attr(key, means)
    return finalists[means.index(max(means))]


# --- files and words --------------------------------------------------------------------------------------------------


def _values(search: _Search, settings: Settings) -> dict[str, Any]:
    kept = {name: getattr(settings, name) for name in ("target_return", "eval_every") if name in search.space.fixed}
    values = preset_values(replace(settings, total_timesteps=search.timesteps), search.policy_is_custom)
    return {"total_timesteps": search.timesteps, **values, **kept}


def _paths(path: Path) -> tuple[Path, Path, Path, Path]:
    """Return the paths of preset, table and plots for a study's file, none of which is that file."""
    stem = path.with_suffix("") if path.suffix == _JOURNAL else path
    return tuple(stem.with_name(stem.name + end) for end in (FILE, ".csv", "-history.png", "-importance.png"))  # type: ignore[return-value]


def _write(
    search: _Search,
    study: Study,
    path: Path | None,
    trial: Any,
    values: Mapping[str, Any],
    *scored: Scored,
    is_played_off: bool = False,
) -> list[Path]:
    """Write preset, table and plots, and return their paths. is_played_off: whether a play-off has chosen the trial."""
    if path is None:
        return []
    preset, table, history, importance = _paths(path)
    seeds = search.seeds(0, search.n_seeds + is_played_off * PLAY_OFF * search.n_seeds)
    source = f"fastes tune, trial {trial.number} as the best of {len(study.finished)} finished"
    source += f"; chosen on {_seeds_in_words(seeds)}, {search.timesteps} steps each"
    for each in scored:
        median, worst = in_digits(each.median, each.worst)
        source += f"; {each.name}: median {median}, worst {worst} on {_seeds_in_words(each.seeds)}"
    if functions := [name for name, value in search.space.fixed.items() if name not in values and callable(value)]:
        source += f"; found with {', '.join(functions)} as a function, which no file holds: pass it again"
    write_preset(preset, search.env, source, values)
    write_table(table, study.study)
    return [preset, table, *write_plots(history, importance, study.study)]


def _write_best_so_far(search: _Search, study: Study, path: Path | None, is_ctrl_c: bool) -> None:
    """Write the files of a search that was interrupted. is_ctrl_c: by Ctrl-C, which leaves ^C on the terminal's line."""
    best = study.complete[:1]
    if is_ctrl_c:
        search.tell("")
    if is_ctrl_c and not best:
        then = "starts again" if not study.finished else "continues"
        again = "" if path is None else f": the same command {then}"
        search.tell(f"stopped before any trial was trained to its end{again}")
    if path is None or not best:
        return
    files = _write(search, study, path, best[0], _values(search, search.settings_of(best[0])))
    search.tell(
        f"the best so far is trial {best[0].number}, {digits_of(best[0].value)}, in {_shown(files[0])}; no fresh seed was "
        "tried. The same command continues"
    )


def _report(search: _Search, tuned: Tuned, files: Sequence[Path]) -> None:
    name = max(len(tuned.usual.name), 5)
    seeds = tuned.fresh.seeds
    search.tell(f"\nnoise-free returns after {search.timesteps} steps, seeds {seeds[0]} to {seeds[-1]}, which decided nothing:")
    both = tuned.fresh, tuned.usual
    texts = in_digits(*(score for each in both for score in (each.median, each.worst)))
    for each, median, worst in zip(both, texts[::2], texts[1::2], strict=True):
        search.tell(f"  {each.name:{name}}  median {median:>10}  worst {worst:>10}")
    if tuned.fresh.scores == tuned.usual.scores and search.usual in search.starts:
        search.tell(f"  {tuned.usual.name!r} itself is the best that was found")
    elif tuned.score <= tuned.usual.median:
        search.tell(f"  no better than {tuned.usual.name!r}: more trials, or longer trainings, may find something")
    elif tuned.worst < tuned.usual.worst:
        search.tell(f"  better than {tuned.usual.name!r} in the median, but its worst seed is worse")
    for key, value in tuned.settings.items():
        search.tell(f"  {key} = {value!r}")
    if files:
        search.tell(f"files: {', '.join(map(_shown, files))}")
        search.tell(f"to train with them: {_command(search.source, search.env, _shown(files[0]))}")


def _command(source: EnvSource, env: str, preset: str) -> str:
    """Return what trains in an environment with a preset: a command if one can name it."""
    if (
        source.spec is None
        or source.vector_env is not None
        or source.changes is not None
        or any(wrapper.kwargs for wrapper in source.added_wrappers)
    ):
        return f"FastES(env, preset={preset!r})"
    flags = ["fastes", "train", env, "--preset", preset]
    if source.make_kwargs:
        flags += ["--env-kwargs", *(f"{name}={_in_a_shell(value)}" for name, value in source.make_kwargs.items())]
    for wrapper in source.added_wrappers:
        flags += ["--wrapper", wrapper.entry_point]
    return shlex.join(flags)


def _in_a_shell(value: Any) -> str:
    """Return an argument of an environment as --env-kwargs reads it; one that JSON has not, as Python shows it."""
    if isinstance(value, str):
        with contextlib.suppress(json.JSONDecodeError):  # a text that would be read as a number, or the like
            json.loads(value)
            return json.dumps(value)
        return value
    return json.dumps(value, default=repr)


def _shown(path: Path) -> str:
    """Return a path from the working directory, if it is in there."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)
