"""Compare two run folders bit for bit: arrays, counters, settings, best so far, progress statistics."""

from __future__ import annotations

import copy
import csv
import io
import json
from pathlib import Path
from typing import Any

from benchmarks.twins import assert_same_bits
from fastes.checkpoints.file_format import Checkpoint
from fastes.checkpoints.locate import BEST, CHECKPOINT
from fastes.checkpoints.reader import read_checkpoint
from fastes.runs.run_config import PROGRESS
from fastes.training.record import Record

_TIMES = {"seconds", "cpu_seconds", "steps_per_second", "utilisation", "jobs_rerun"}  # statistics that the clock decides


def folder_differences(calm: Path, chaos: Path) -> list[str]:
    """Differences between two trainings of equally many generations, in words."""
    found = []
    for name in (CHECKPOINT, BEST):
        states = read_checkpoint(chaos / name), read_checkpoint(calm / name)
        found += [f"{name}: {text}" for text in state_differences(*states)]
    statistics = (chaos / PROGRESS).read_text(encoding="utf-8"), (calm / PROGRESS).read_text(encoding="utf-8")
    return found + [f"{PROGRESS}: {text}" for text in progress_differences(*statistics)]


def state_differences(chaos: Checkpoint, calm: Checkpoint) -> list[str]:
    found = []
    actual, expected = _flat(chaos), _flat(calm)
    for name in sorted(actual.keys() ^ expected.keys()):
        found.append(f"only one of them has {name}")
    for name in sorted(actual.keys() & expected.keys()):
        try:
            assert_same_bits(name, actual[name], expected[name])
        except AssertionError as error:
            found.append(str(error))
    for key in sorted(chaos.data.keys() | calm.data.keys()):
        a, b = (json.dumps(state.data.get(key), sort_keys=True) for state in (chaos, calm))
        if a != b:
            found.append(f"{key} = {a}, expected {b}")
    return found


def progress_differences(chaos: str, calm: str) -> list[str]:
    """Two progress.csv files, row by row, without the statistics of the clock; no generation may be missing or twice."""
    actual, expected = _rows(chaos), _rows(calm)
    found = [] if len(actual) == len(expected) else [f"{len(actual)} rows, expected {len(expected)}"]
    for number, (a, b) in enumerate(zip(actual, expected, strict=False), start=1):
        if b["generation"] != str(number):
            found.append(f"row {number} is generation {b['generation']}")
        found += [f"generation {number}: {key} = {a[key]}, expected {b[key]}" for key in b if a[key] != b[key]]
    return found[:10]


def check_comparer(folder: Path) -> None:
    """SystemExit unless a changed bit, a changed counter, a lost row and a changed statistic are each found in a run folder."""
    state = read_checkpoint(folder / CHECKPOINT)
    flipped, counted = copy.deepcopy(state), copy.deepcopy(state)
    flipped.arrays["trainings"]["0.theta"].view("uint32")[-1] ^= 1
    counted.data["trainings"][0]["counters"]["eval_timesteps"] += 1
    progress = (folder / PROGRESS).read_text(encoding="utf-8")
    *before, last = progress.splitlines(keepends=True)
    fields = last.split(",")
    fields[Record._fields.index("theta_norm")] += "1"
    differences = {
        "a flipped bit": state_differences(flipped, state),
        "a counter": state_differences(counted, state),
        "a lost row": progress_differences("".join(before), progress),
        "a statistic": progress_differences("".join([*before, ",".join(fields)]), progress),
    }
    same = [*state_differences(copy.deepcopy(state), state), *progress_differences(progress, progress)]
    missed = [name for name, found in differences.items() if len(found) != 1]
    if missed or same:
        raise SystemExit(f"the comparison is broken: it does not find {missed} and finds {same} where nothing differs")


def _flat(state: Checkpoint) -> dict[str, Any]:
    return {f"{group}.{name}": array for group, arrays in state.arrays.items() for name, array in arrays.items()}


def _rows(text: str) -> list[dict[str, str]]:
    rows = csv.DictReader(io.StringIO(text))
    return [{key: value for key, value in row.items() if key not in _TIMES} for row in rows]
