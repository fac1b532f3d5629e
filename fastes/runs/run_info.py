"""All that the files of a run, or a checkpoint, tell of it. No environment is built, and no code from a file runs."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fastes.checkpoints.file_format import Checkpoint
from fastes.checkpoints.locate import BEST, CHECKPOINT, find_checkpoint, is_run_folder
from fastes.checkpoints.policy_description import spec_from
from fastes.checkpoints.reader import counters_in, read_checkpoint, read_description, timesteps_in
from fastes.errors import CheckpointError, CheckpointMismatch
from fastes.models.checkpointing import one_by_one
from fastes.policies.action_head import ActionHead
from fastes.policies.policy_spec import PolicySpec
from fastes.runs.overview import Overview, best_in, env_kwargs_in, overview_and_config, plain
from fastes.runs.run_config import PROGRESS, Result, as_table, number_in, preset_in, text_in
from fastes.runs.rungs import Race, race_in
from fastes.runs.setting_differences import differing, flat_settings
from fastes.settings.preset_loader import all_presets, choose_settings, preset_for
from fastes.settings.recipes import FRACTION
from fastes.settings.settings import Settings


class PolicyInfo(NamedTuple):
    """A policy as its checkpoint describes it.

    Attributes:
        recipe: Whose policy it is if several recipes race; '' for another training.
        name: Such as MlpPolicy.
        layer_sizes: Number of values before, between and after the layers; () for a custom policy.
        num_params: Number of parameters.
        obs_shape: Shape of one observation.
        flattened: Whether the space was another one, whose values are in one row.
        actions: In words; '' if the file does not tell.
    """

    recipe: str
    name: str
    layer_sizes: tuple[int, ...]
    num_params: int
    obs_shape: tuple[int, ...]
    flattened: bool
    actions: str


class Base(NamedTuple):
    """The settings that a training began with.

    Attributes:
        kind: 'recipe', 'recipes' while several race, 'preset', or "the environment's preset" if no file tells what it began
            with.
        name: The preset's name, several with commas; a path for a file.
        changed: Name of each setting that differs -> the training's value; None if the preset is not one of the package's, or
            recipes race.
    """

    kind: str
    name: str
    changed: dict[str, Any] | None


class RunInfo(NamedTuple):
    """A run, or a checkpoint alone, in whole. A field that no file tells is None, or empty.

    Attributes:
        path: As it was given.
        checkpoint: The file that was read.
        problems: Files that could not be read, and why.
        env, env_kwargs, seed, status, ended: As of `Overview`; a file alone has no status, and tells no end.
        policy: None if no checkpoint tells it.
        generations, timesteps, episodes, budget, seconds, cpu_seconds: Counts of the training so far; those of all trials
            together, except generations.
        trials: Trainings in the checkpoint, of which the best one will be left.
        race: The race of recipes; None without one. Until a rung has ended, the recipe with the best evaluations leads.
        best, result: As of `Overview`.
        base: The settings that it began with.
        changed: Name of each setting that differs from its default -> its value; of a run whose recipes race, the user's.
        trained_on: Workers, and the cluster, of the last session.
        versions: Package -> version that wrote it.
        files: Name -> bytes, of the run folder.
    """

    path: Path
    checkpoint: Path | None
    problems: tuple[str, ...]
    env: str
    env_kwargs: str
    seed: int | None
    status: str
    ended: str
    policy: PolicyInfo | None
    generations: int
    timesteps: int
    episodes: int
    budget: int | None
    seconds: float | None
    cpu_seconds: float | None
    trials: int
    race: Race | None
    best: float | None
    result: Result | None
    base: Base | None
    changed: dict[str, Any]
    trained_on: str
    versions: dict[str, Any]
    files: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return plain values. A number that JSON lacks, such as inf, is a string."""
        race = None if self.race is None else self.race._replace(rungs=[rung._asdict() for rung in self.race.rungs])  # type: ignore[arg-type]
        parts = {"policy": self.policy, "result": self.result, "base": self.base, "race": race}
        asdict = {name: None if part is None else part._asdict() for name, part in parts.items()}
        values: dict[str, Any] = plain({**self._asdict(), **asdict})
        return values


def read_run_info(path: Path) -> RunInfo:
    """Read a run folder or a checkpoint file. In a run folder each file may be damaged or missing.

    Args:
        path: A run folder, or a checkpoint with or without its suffix.

    Raises:
        CheckpointError: There is neither, or the file is damaged; the message says what is there instead.
    """
    if path.is_dir() and (is_run_folder(path) or os.path.lexists(path / PROGRESS)):
        return _of_folder(path)
    file = find_checkpoint(path)
    checkpoint = read_checkpoint(file)
    return _info(path, file, checkpoint, None, {}, [])


def _of_folder(run: Path) -> RunInfo:
    """Return what a run folder tells."""
    problems: list[str] = []
    for name in (CHECKPOINT, BEST):
        try:
            if os.path.lexists(run / name):
                return _info(run, run / name, read_checkpoint(run / name), *overview_and_config(run), problems)
        except CheckpointError as error:
            problems.append(str(error))
    return _info(run, None, Checkpoint({}, {}), *overview_and_config(run), problems)


def _info(
    path: Path,
    file: Path | None,
    checkpoint: Checkpoint,
    seen: Overview | None,
    config: Mapping[str, Any],
    problems: list[str],
) -> RunInfo:
    """Return what a checkpoint, empty without one, and a run folder's overview and config.toml tell together."""
    data, noted = checkpoint.data, config.get("run", {})
    tallies, trainings = counters_in(data), data.get("trainings")
    trainings = [each for each in trainings if isinstance(each, dict)] if isinstance(trainings, list) else []
    settings = seen.settings if seen is not None else as_table(data.get("settings"))
    env = seen.env if seen is not None else text_in(data, "env_name")
    recipe = seen.recipe if seen is not None and seen.recipe else _recipe_of(data)
    race = _race_of(path, data, config)
    is_open = race is not None and not race.winner
    given = seen.given if seen is not None and is_open else None
    policy = None if file is None else _policy_of(checkpoint, problems)
    return RunInfo(
        path=path,
        checkpoint=file,
        problems=(*problems, *([seen.reason] if seen is not None and seen.reason and not problems else [])),
        env=env,
        env_kwargs=seen.env_kwargs if seen is not None and seen.env_kwargs else env_kwargs_in(data),
        seed=seen.seed if seen is not None else _count(data, "seed"),
        status="" if seen is None else seen.status,
        ended="" if seen is None else seen.ended,
        policy=policy,
        generations=seen.generations if seen is not None and seen.generations else _generation_of(trainings),
        timesteps=seen.timesteps if seen is not None and seen.timesteps else timesteps_in(data),
        episodes=sum(_count(each, "num_episodes") for each in tallies),
        budget=seen.budget if seen is not None else _count(settings, "total_timesteps") or None,
        seconds=None if seen is None else seen.seconds,
        cpu_seconds=None if seen is None else seen.cpu_seconds,
        trials=len(trainings),
        race=race,
        best=best_in(data) if seen is None else seen.best,
        result=None if seen is None else seen.result,
        base=_of_a_race(race) if is_open else _base_of(settings, env, recipe, config),
        changed=_changed(settings, Settings()) if given is None else flat_settings(plain(given)),
        trained_on=_machine_of(noted),
        versions=as_table(config.get("versions")) or as_table(data.get("versions")),
        files={} if seen is None else _files_in(path),
    )


# --- the policy -------------------------------------------------------------------------------------------------------


def _policy_of(checkpoint: Checkpoint, problems: list[str]) -> PolicyInfo | None:
    """Return the policy of a checkpoint; None, and a problem, if its description is damaged."""
    recipe = _shown_recipe(checkpoint.data) if len(_trials_in(checkpoint.data)) > 1 else ""
    try:
        trainings = list(one_by_one(checkpoint))
        shown = trainings[min(_shown_place(checkpoint.data), len(trainings) - 1)]
        spec = spec_from(shown)
    except CheckpointMismatch:  # a policy in Python, of which the file holds the parameters
        stored, theta = shown.data["policy"], shown.arrays["trainings"]["0.theta"]
        shape = tuple(stored["obs_shape"])
        return PolicyInfo(recipe, str(stored["kind"]), (), theta.size, shape, bool(stored.get("flattened")), "")
    except CheckpointError as error:
        problems.append(str(error))
        return None
    name, sizes = str(shown.data["settings"]["policy"]), spec.layer_sizes if isinstance(spec, PolicySpec) else ()
    actions = "" if spec.head is None else _actions_in_words(spec.head)
    return PolicyInfo(recipe, name, sizes, spec.num_params, spec.obs_shape, spec.flattened, actions)


def _actions_in_words(head: ActionHead) -> str:
    """Return what an action is, on one line, however many components it has."""
    if head.kind == "categorical":
        return f"{' x '.join(map(str, head.nvec[:8]))}{' x ...' if len(head.nvec) > 8 else ''} choices"
    if head.kind == "binary":
        return f"{head.size} switches"
    alike = len({*head.low}) == len({*head.high}) == 1
    bounds = f"from {head.low[0]:g} to {head.high[0]:g}" if alike else "with bounds of their own"
    return f"{head.size} number{'s' * (head.size != 1)} {bounds}"


# --- the settings -----------------------------------------------------------------------------------------------------


def _base_of(settings: Mapping[str, Any], env: str, recipe: str, config: Mapping[str, Any]) -> Base | None:
    """Return what the settings began with: a recipe that won, the preset that was noted, or else the environment's own."""
    noted = preset_in(config)
    kind, name = "the environment's preset", preset_for(env)
    if recipe:
        kind, name = "recipe", recipe
    elif noted:
        kind, name = "preset", noted
    if not settings or not name:
        return None
    if name not in all_presets():
        return Base(kind, name, None)
    raced = {"trials_fraction": FRACTION} if recipe else {}
    return Base(kind, name, _changed(settings, choose_settings(name, raced)))


def _changed(settings: Mapping[str, Any], base: Settings) -> dict[str, Any]:
    """Return the settings that differ from a base. One that their file lacks, as of an older version, does not count."""
    flat, others = flat_settings(plain(dict(settings))), flat_settings(plain(base.to_dict()))
    lacking = Settings.__dataclass_fields__.keys() - flat.keys()
    return {name: flat.get(name) for name in differing([others, flat]) if name not in lacking} if settings else {}


# --- the race ---------------------------------------------------------------------------------------------------------


def _race_of(path: Path, data: Mapping[str, Any], config: Mapping[str, Any]) -> Race | None:
    """Return the race that a run's config.toml tells of, or else a checkpoint in which several recipes are left."""
    race, left = race_in(config), _trials_in(data)
    if race is None and len(left) > 1:
        recipes = {_count(trial, "number") + 1: text_in(trial, "recipe") for trial in left}
        race = Race(recipes, (), "", "") if all(recipes.values()) else None
    if race is None or race.winner:
        return race
    if len(left) > 1:
        return race._replace(leader=text_in(max(left, key=_evaluated), "recipe"))
    if race.leader:
        return race
    with contextlib.suppress(OSError, CheckpointError):
        return race._replace(leader=_shown_recipe(read_description(path / BEST)))
    return race


def _evaluated(trial: Mapping[str, Any]) -> tuple[float, float]:
    """Return the two means that rank a trial while several race, as in `Selection.showing_best`."""
    found = (number_in(trial, name) for name in ("eval_return", "recent_return"))
    first, second = (-math.inf if value is None else value for value in found)
    return first, second


def _of_a_race(race: Race | None) -> Base | None:
    """Return what the settings of recipes that race begin with."""
    return None if race is None else Base("recipes", ", ".join(race.recipes.values()), None)


def _recipe_of(data: Mapping[str, Any]) -> str:
    """Return the recipe of a checkpoint with a single training; '' without one, or while recipes race."""
    return _shown_recipe(data) if len(_trials_in(data)) == 1 else ""


def _shown_recipe(data: Mapping[str, Any]) -> str:
    """Return the recipe of the trial that a checkpoint shows; '' if it tells none."""
    trials, place = _trials_in(data), _shown_place(data)
    return text_in(trials[place], "recipe") if place < len(trials) else ""


def _shown_place(data: Mapping[str, Any]) -> int:
    return max(0, _count(as_table(data.get("selection")), "focus"))


def _trials_in(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    trials = as_table(data.get("selection")).get("trials")
    return list(map(as_table, trials)) if isinstance(trials, list) else []


# --- the rest ---------------------------------------------------------------------------------------------------------


def _generation_of(trainings: list[dict[str, Any]]) -> int:
    return max((_count(each, "generation") for each in trainings), default=0)


def _machine_of(noted: Mapping[str, Any]) -> str:
    """Return the workers of a run's last session, in words."""
    if cluster := text_in(noted, "cluster"):
        return f"the Ray cluster {cluster}"
    number = number_in(noted, "n_workers")
    if number is None:
        return ""
    return f"{number:.0f} worker process{'es' * (number != 1)}" if number else "one process"


def _files_in(folder: Path) -> dict[str, int]:
    """Return the size of each file of a folder that is not hidden, by name."""
    found: dict[str, int] = {}
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file() and not entry.name.startswith("."):
                found[entry.name] = entry.stat().st_size
    return dict(sorted(found.items()))


def _count(table: Mapping[str, Any], name: str) -> int:
    return int(number_in(table, name) or 0)
