"""Search for settings of an environment with Optuna, and write the best as a preset's table. The same command resumes.

The score of a trial is the area under the noise-free learning curve, as a mean return: evaluations at equal shares of the
budget, averaged, then averaged over the tuning seeds (--objective last: the last evaluation only). A trial that is below the
median of the others at the same point is pruned.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium
import tomli_w

from benchmarks.learning.runs.resumable import resumable
from benchmarks.machine import versions
from benchmarks.options import COUNT, COUNT_OR_0
from fastes import FastES, FastESError
from fastes.es.fitness_shaping import SHAPINGS
from fastes.es.optimizers import OPTIMIZERS
from fastes.settings.preset_loader import choose_settings, load_preset, preset_for
from fastes.settings.settings import Settings
from fastes.training.record import Record
from fastes.zoo import hyperparams as search_space

if TYPE_CHECKING:
    import optuna

FIRST_TUNING_SEED = 100
_EVALUATION_SEED = 2**30  # of the first of each evaluation's episodes, the same ones for all trials
_UNTESTED_TRIALS = 8  # before any is pruned
_BONUS_STEP = 0.25
_PLAIN_MOMENTUM = {"sgd": 0.0}  # as ARS; 0.9 for the other optimisers


class Search(NamedTuple):
    """Everything that makes scores comparable: a folder holds trials of one search."""

    env: str
    seeds: tuple[int, ...]
    timesteps: int
    points: int
    episodes: int
    objective: str
    alive_bonus: float
    shapings: tuple[str, ...] = SHAPINGS  # a release that has more makes another search

    def score(self, seeds: Sequence[Sequence[float]]) -> float:
        """Return the score of a trial from the evaluations of each seed, in order."""
        return statistics.fmean(statistics.fmean(scores) if self.objective == "area" else scores[-1] for scores in seeds)


# --- what is searched -----------------------------------------------------------------------------------------------


def alive_bonus_of(env: str) -> float:
    """The reward a step for being alive that the environment tells of (MuJoCo's healthy_reward), else 0."""
    made = gymnasium.make(env, disable_env_checker=True)
    try:
        return float(getattr(made.unwrapped, "_healthy_reward", 0.0))
    finally:
        made.close()


def draw_settings(trial: Any, alive_bonus: float) -> dict[str, Any]:
    """Settings of a trial (optuna.Trial): fastes.zoo's space, shaping, optimiser, normalisation, a share of the alive bonus.

    Numbers have few digits: what was tried is what is written down.
    """
    settings = search_space.convert(search_space.draw_common(trial))
    settings["shaping"] = trial.suggest_categorical("shaping", list(SHAPINGS))
    settings["optimizer"] = trial.suggest_categorical("optimizer", list(OPTIMIZERS))
    settings["momentum"] = _PLAIN_MOMENTUM.get(settings["optimizer"], 0.9)
    settings["normalize_obs"] = trial.suggest_categorical("normalize_obs", [True, False])
    if alive_bonus:
        share = trial.suggest_float("alive_bonus_share", 0.0, 1.0, step=_BONUS_STEP)
        settings["alive_bonus"] = share * alive_bonus
    if settings["shaping"] == "signed_ranks":  # which goals are easy would choose the pairs
        settings["top_fraction"] = 1.0
    for name in ("sigma", "learning_rate", "top_fraction"):
        settings[name] = float(f"{settings[name]:.2g}")
    return settings


# --- what a trial is worth ------------------------------------------------------------------------------------------


def train(
    search: Search, settings: Mapping[str, Any], preset: str, seed: int, n_workers: int | None, told: Callable[[float], None]
) -> list[float]:
    """Mean returns at equal shares of the budget, (points,); a share that a generation jumps over has the next evaluation's.

    told: called with each of them; what it raises ends the training.
    """
    scores: list[float] = []

    def evaluate_when_due(model: FastES, record: Record) -> bool:
        due = min(search.points, int(record.timesteps / search.timesteps * search.points))
        if due > len(scores):
            mean = model.evaluate(search.episodes, first_seed=_EVALUATION_SEED).mean
            while len(scores) < due:
                scores.append(mean)
                told(mean)
        return len(scores) < search.points

    with FastES(search.env, preset=preset, n_workers=n_workers, seed=seed, target_return="none", **settings) as model:
        model.learn(search.timesteps, evaluate_when_due)
    return scores


def objective(search: Search, n_workers: int | None) -> Callable[[optuna.Trial], float]:
    import optuna

    def score_of(trial: optuna.Trial) -> float:
        settings, all_scores, met = draw_settings(trial, search.alive_bonus), [], list[float]()
        trial.set_user_attr("settings", settings)

        def told(score: float) -> None:
            if not math.isfinite(score):
                raise optuna.TrialPruned
            met.append(score)
            trial.report(statistics.fmean(met), len(met))
            if trial.should_prune():
                raise optuna.TrialPruned

        for seed in search.seeds:
            all_scores.append(train(search, settings, "default", seed, n_workers, told))
        return search.score(all_scores)

    return score_of


def baseline(search: Search, n_workers: int | None) -> float:
    """The score of the settings that the environment has today."""
    preset = preset_for(search.env)
    return search.score([train(search, {}, preset, seed, n_workers, lambda _: None) for seed in search.seeds])


# --- the study in its folder ----------------------------------------------------------------------------------------


def open_study(search: Search, folder: Path) -> optuna.Study:
    """The study of a folder, new or not. Raises ValueError where it holds trials of another search."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    folder.mkdir(parents=True, exist_ok=True)
    storage = JournalStorage(JournalFileBackend(str(folder / "trials.journal")))
    pruner = optuna.pruners.MedianPruner(_UNTESTED_TRIALS, n_warmup_steps=search.points // 2)
    study = optuna.create_study(storage=storage, study_name="tune", direction="maximize", pruner=pruner, load_if_exists=True)
    # another seed for each continuation, or it would draw again what was drawn at first
    study.sampler = optuna.samplers.TPESampler(seed=len(study.trials), multivariate=True)
    known, given = study.user_attrs.get("search"), json.loads(json.dumps(search._asdict()))
    if known not in (None, given):
        raise ValueError(f"{folder} holds trials of another search, {known}; this one is {given}: give another --out")
    study.set_user_attr("search", given)
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)  # cut off by whatever ended that process
    return study


def finished(study: optuna.Study) -> list[Any]:
    """Trials that ended, pruned ones too; those that failed are done again."""
    import optuna

    return study.get_trials(states=(optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED))


def best_trial(study: optuna.Study) -> Any | None:
    import optuna

    complete = study.get_trials(states=(optuna.trial.TrialState.COMPLETE,))
    return max(complete, key=lambda trial: trial.value) if complete else None


def preset_table(search: Search, study: optuna.Study, trial: Any) -> dict[str, dict[str, Any]]:
    """The environment's table in a file of fastes/presets: its source, then its settings."""
    kind = "area under the learning curve" if search.objective == "area" else "last evaluation"
    command = f"python -m benchmarks.learning.tune --env {search.env} --trials {len(finished(study))} --seeds "
    command += f"{' '.join(map(str, search.seeds))} --timesteps {search.timesteps} --objective {search.objective}"
    source = f"{command}; trial {trial.number}, {kind} over seeds {', '.join(map(str, search.seeds))}: {trial.value:.1f}"
    source += f" (settings before: {study.user_attrs['baseline']:.1f}); {versions()}"
    settings, defaults = load_preset("default") | trial.user_attrs["settings"], Settings().to_dict()
    changed = {name: value for name, value in settings.items() if name == "policy" or value != defaults[name]}
    choose_settings(search.env, "default", changed)  # refuses what a preset may not hold
    return {search.env: {"source": source, "total_timesteps": search.timesteps, **changed}}


def write_results(search: Search, study: optuna.Study, folder: Path) -> Path | None:
    """trials.csv, and best.toml where a trial was completed; returns that."""
    with open(folder / "trials.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("trial", "state", "score", "seconds", "settings"))
        for trial in study.get_trials(deepcopy=False):
            seconds = f"{trial.duration.total_seconds():.1f}" if trial.duration else ""
            settings = json.dumps(trial.user_attrs.get("settings", {}))
            writer.writerow((trial.number, trial.state.name.lower(), trial.value, seconds, settings))
    best = best_trial(study)
    if best is None:
        return None
    path = folder / "best.toml"
    path.write_text(tomli_w.dumps(preset_table(search, study, best)), encoding="utf-8")
    return path


def check_seeds(seeds: Sequence[int]) -> None:
    """Raises ValueError for seeds that results are reported on, and for repeated ones."""
    reported = [seed for seed in seeds if seed < FIRST_TUNING_SEED]
    if reported:
        raise ValueError(
            f"--seeds {' '.join(map(str, reported))}: seeds below {FIRST_TUNING_SEED} are for results that are reported, which "
            f"mean nothing on seeds that were tuned on: use {FIRST_TUNING_SEED} or more"
        )
    if len(set(seeds)) != len(seeds):
        raise ValueError(f"--seeds {' '.join(map(str, seeds))}: one of them is there twice")


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.tune", description=__doc__)
    parser.add_argument("--env", required=True, metavar="ID", help="Gymnasium environment")
    parser.add_argument("--trials", type=COUNT, default=50, metavar="N", help="in all, earlier ones included (default: 50)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101, 102], metavar="K", help="default: 100 101 102")
    parser.add_argument("--timesteps", type=COUNT, required=True, metavar="T", help="budget of each training")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="trials.journal, trials.csv, best.toml")
    parser.add_argument("--points", type=COUNT, default=10, metavar="N", help="evaluations of a training (default: 10)")
    parser.add_argument("--episodes", type=COUNT, default=5, metavar="N", help="of an evaluation (default: 5)")
    parser.add_argument("--objective", choices=("area", "last"), default="area", help="what is maximised (default: area)")
    parser.add_argument(
        "--alive-bonus", type=float, metavar="R", help="reward a step for being alive (default: the environment's)"
    )
    parser.add_argument("--workers", type=COUNT_OR_0, metavar="N", help="worker processes, 0 for none (default: one a core)")
    arguments = parser.parse_args(given)
    try:
        check_seeds(arguments.seeds)
        bonus = alive_bonus_of(arguments.env) if arguments.alive_bonus is None else arguments.alive_bonus
        given = (arguments.timesteps, arguments.points, arguments.episodes, arguments.objective, bonus)
        search = Search(arguments.env, tuple(arguments.seeds), *given)
        study = open_study(search, arguments.out)
    except (ValueError, gymnasium.error.Error) as error:
        parser.error(str(error))
    missing = arguments.trials - len(finished(study))
    try:
        with resumable():
            if "baseline" not in study.user_attrs:
                study.set_user_attr("baseline", baseline(search, arguments.workers))
            if missing > 0:
                study.optimize(objective(search, arguments.workers), n_trials=missing, catch=(FastESError,))
    finally:
        path = write_results(search, study, arguments.out)
    print(path.read_text(encoding="utf-8") if path else "no trial was completed")


if __name__ == "__main__":
    main()
