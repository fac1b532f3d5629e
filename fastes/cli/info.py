"""fastes info: all that is known of a run or a checkpoint."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fastes.reports.model_in_words import policy_in_words
from fastes.runs.run_info import Base, RunInfo, read_run_info
from fastes.runs.rungs import Race
from fastes.runs.setting_differences import value_in_words
from fastes.system.console import say, say_beside
from fastes.system.digits import duration_in_words, in_digits, number_in_words
from fastes.system.near_paths import printable

_TITLE = 14  # columns of a row's name
_FROM_A_FILE = 500  # characters of a text that a file holds


def add_info(commands: Any) -> None:
    info = commands.add_parser(
        "info",
        help="what a run or a checkpoint is: environment, policy, settings, scores, versions",
        description="Tell all that is known of a run or a checkpoint from its files alone: no environment is built, and no "
        "code from a file runs.",
    )
    info.add_argument("run", type=Path, metavar="RUN", help="a run folder or a checkpoint file")
    info.add_argument("--json", action="store_true", help="print JSON")


def run_info(arguments: argparse.Namespace) -> int:
    info = read_run_info(arguments.run)
    if arguments.json:
        print(json.dumps(info.to_json(), indent=2))
        return 0
    print(printable(str(info.path)))
    for title, text in _rows(info):
        say_beside(f"  {title:<{_TITLE}}", printable(text))
    for problem in info.problems:
        say(f"problem: {printable(problem)}")
    return 0


def _rows(info: RunInfo) -> Iterator[tuple[str, str]]:
    kwargs = f", {info.env_kwargs:.{_FROM_A_FILE}}" if info.env_kwargs not in ("", "{}") else ""
    seed = "" if info.seed is None else f", seed {info.seed}"
    yield "environment", f"{info.env or 'not known'}{kwargs}{seed}"
    if info.policy is not None:
        yield "observations", f"shape {info.policy.obs_shape}{', flattened' if info.policy.flattened else ''}"
        yield "actions", info.policy.actions or "those of a policy in Python"
        of_recipe = f" (of recipe {info.policy.recipe})" if info.policy.recipe else ""
        yield "policy", policy_in_words(info.policy.name, info.policy.layer_sizes, info.policy.num_params) + of_recipe
    yield "training", _training_in_words(info)
    if info.ended:
        yield "ended", f"{info.ended:.{_FROM_A_FILE}}"
    if info.race is not None:
        yield "race", _race_in_words(info.race, info.best is not None)
    yield "return", _scores_in_words(info)
    if info.base is not None:
        yield "settings", _base_in_words(info.base)
    yield "not default", _settings_in_words(info.changed)
    if info.trained_on:
        yield "trained in", info.trained_on
    if info.versions:
        yield "written by", ", ".join(f"{name} {version}" for name, version in info.versions.items())
    if info.files:
        yield "files", ", ".join(f"{name} ({size:,} B)" for name, size in info.files.items())


def _training_in_words(info: RunInfo) -> str:
    budget = "" if info.budget is None else f" of {info.budget:,}"
    counts = [f"{info.timesteps:,}{budget} steps", f"{info.generations:,} generation{'s' * (info.generations != 1)}"]
    counts += [f"{info.episodes:,} episode{'s' * (info.episodes != 1)}"] if info.episodes else []
    counts += [f"{info.trials} trials"] if info.trials > 1 else []
    time = "" if info.seconds is None else f" in {duration_in_words(info.seconds)}"
    time += "" if info.cpu_seconds is None else f", CPU time {duration_in_words(info.cpu_seconds)}"
    return f"{f'{info.status}, ' if info.status else ''}{', '.join(counts)}{time}"


def _race_in_words(race: Race, is_evaluated: bool) -> str:
    names = list(dict.fromkeys(race.recipes.values()))
    parts = [f"{len(names)} recipes ({', '.join(names)})"]
    for rung in race.rungs:
        scores = ", ".join(map(" ".join, zip(rung.recipes, in_digits(*rung.scores), strict=True)))
        parts.append(f"scores after {rung.at:,.0f} steps: {scores}")
    if race.winner:
        parts.append(f"{race.winner} has won")
    elif race.leader and (race.rungs or is_evaluated):
        parts.append(f"{race.leader} leads{'' if race.rungs else ', whose evaluations are the best; no rung has ended'}")
    elif not race.rungs and not is_evaluated:
        parts.append("no recipe has been evaluated yet")
    return "; ".join(parts)


def _scores_in_words(info: RunInfo) -> str:
    best = "no evaluation yet" if info.best is None else f"best evaluation {number_in_words(info.best)}"
    if info.result is None:
        return best
    mean, std, worst = in_digits(*info.result[:3])
    return f"{mean} +- {std}, worst {worst} over {info.result.episodes} episodes of the parameters that were kept; {best}"


def _base_in_words(base: Base) -> str:
    if base.kind == "recipes":
        return "each recipe has its own"
    unknown = "" if base.kind in ("recipe", "preset") else "no file says what they began with; compared with "
    if base.changed is None:
        return f"{unknown}{base.kind} {base.name}"
    return f"{unknown}{base.kind} {base.name}, {f'but {_settings_in_words(base.changed)}' if base.changed else 'unchanged'}"


def _settings_in_words(settings: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value_in_words(value):.{_FROM_A_FILE}}" for name, value in settings.items()) or "no setting"
