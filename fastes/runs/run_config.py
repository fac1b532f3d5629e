"""The names of a run folder's files, and its config.toml."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fastes.errors import WorkerError, summary_of
from fastes.settings.preset_loader import tomllib

PROGRESS, CONFIG, CURVE = "progress.csv", "config.toml", "learning_curve.png"
FINAL_SELECTION, NOTES = "final_selection.csv", "notes.txt"
_TOO_LARGE = 1e300  # an int of TOML may have more digits than a float can hold


def read_config(path: Path) -> dict[str, Any] | None:
    """Return the tables of a config.toml, or None if there is no such file or it was damaged.

    Raises:
        OSError: If the file cannot be read.
    """
    if not path.is_file():  # a folder, or a pipe, on which reading would wait
        return None
    try:
        config: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):  # not TOML, not UTF-8, endless numbers, endless tables
        return None
    tables = all(isinstance(config.get(name, {}), dict) for name in ("run", "settings", "versions"))
    earlier = config.get("earlier", [])
    if not tables or not isinstance(earlier, list) or not all(isinstance(start, dict) for start in earlier):
        return None
    return config


class Result(NamedTuple):
    """The noise-free return of the parameters that a training has kept.

    Attributes:
        mean, std, worst: Statistics of `episodes` episodes; -inf and NaN if a return was not finite.
    """

    mean: float
    std: float
    worst: float
    episodes: int


OUT_OF_TIME, BY_CTRL_C = "out of time", "stopped by Ctrl-C"
_FAILED, _LONGEST = "failed", 300  # characters of an error


def failed_with(error: BaseException) -> str:
    """Return, for config.toml, how a run ended that raised an error: the first line of that. A worker's names its own type."""
    said = str(error) if isinstance(error, WorkerError) else summary_of(error)
    line = said.strip().partition("\n")[0]
    return f"{_FAILED}: {line if len(line) <= _LONGEST else f'{line[:_LONGEST]} ...'}"


def ended_in(run: Mapping[str, Any]) -> str:
    """Return how a run ended, as a config's table [run] has it; '' if its budget ended it, or nothing is known."""
    target = number_in(run, "target_return")
    solved = "solved" if target is None else f"solved, target {target:g}"
    return "; ".join(filter(None, (solved if run.get("solved") is True else "", text_in(run, "ended"))))


def ending_word(run: Mapping[str, Any]) -> str:
    """Return 'failed' or 'out of time' for a run that ended so; '' for any other."""
    how = text_in(run, "ended")
    return next((word for word in (_FAILED, OUT_OF_TIME) if how.startswith(word)), "")


class LastEvaluation(NamedTuple):
    """The evaluation that was reported when training ended.

    Attributes:
        trial: Its trial, from 1.
        at: Timesteps that its parameters had been trained with.
        mean: Mean noise-free return.
    """

    trial: int
    at: float
    mean: float


def last_evaluation_in(run: Mapping[str, Any]) -> LastEvaluation | None:
    """Return the evaluation that a config's table [run] has; None without one."""
    noted = as_table(run.get("last_evaluation"))
    trial, at, mean = (number_in(noted, name) for name in ("trial", "at_timesteps", "mean"))
    return None if trial is None or at is None or mean is None else LastEvaluation(int(trial), at, mean)


class Leader(NamedTuple):
    """The trial that training showed when it ended.

    Attributes:
        number: From 1.
        generation: Its generations.
    """

    number: int
    generation: int


def leader_in(run: Mapping[str, Any]) -> Leader | None:
    """Return the leader that a config's table [run] has; None before the end."""
    noted = as_table(run.get("leader"))
    number, generation = number_in(noted, "trial"), number_in(noted, "generation")
    return None if number is None or generation is None else Leader(int(number), int(generation))


def result_in(run: Mapping[str, Any]) -> Result | None:
    """Return the result in a config's table [run], as `RunFolder.note_result` has written it, if there is one."""
    noted = run.get("result")
    if not isinstance(noted, dict):
        return None
    values: list[Any] = [noted.get(name) for name in ("mean", "std", "worst")]
    scores = [value for value in values if isinstance(value, float) or as_number(value) is not None]
    episodes = number_in(noted, "episodes")
    if episodes is None or len(scores) < len(values):
        return None
    mean, std, worst = map(float, scores)
    return Result(mean, std, worst, int(episodes))


def sessions_in(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the tables of each session of a run, the present one last."""
    return [*config.get("earlier", []), config]


def preset_in(config: Mapping[str, Any]) -> str:
    """Return the preset that a run began with, which a session that resumed it has not noted; '' if no session has."""
    return next(filter(None, (text_in(as_table(session.get("run")), "preset") for session in sessions_in(config))), "")


def number_in(table: Mapping[str, Any], name: str) -> float | None:
    """Return a finite number of a table; None if it has none there."""
    return as_number(table.get(name))


def text_in(table: Mapping[str, Any], name: str) -> str:
    """Return a text of a table; '' if it has none there."""
    value = table.get(name)
    return value if isinstance(value, str) else ""


def as_number(value: object) -> float | None:
    """Return a value of a file, which anybody may have edited, if it is a finite number."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _TOO_LARGE else None


def number_or(value: object, otherwise: float) -> float:
    """Return a value of a file as `as_number` does, or another number."""
    found = as_number(value)
    return otherwise if found is None else found


def as_table(value: object) -> dict[str, Any]:
    """Return a value of a file if it is a table, or else an empty one."""
    return value if isinstance(value, dict) else {}


def without_surrogates(value: Any) -> Any:
    """Return a value whose strings have escapes for bytes that are not text, since TOML is UTF-8."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, Mapping):
        return {key: without_surrogates(inner) for key, inner in value.items()}
    return [without_surrogates(inner) for inner in value] if isinstance(value, list) else value
