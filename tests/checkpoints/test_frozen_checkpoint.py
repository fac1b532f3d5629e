"""Risk: a new FastES does not read, or reads differently, what an older one wrote.

checkpoint_v1.txt is a checkpoint of format version 1 in base64: CartPole-v1, one hidden layer of 4, two trials after three and
two generations, each with an evaluation that waits, a snapshot, an adaptive cap, an adaptive population and an adaptive sigma.
Once a FastES that writes this format is released, the file is never made again: when it no longer loads, the format has a new
version, and this one keeps a reader.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from training import learn

from fastes import FastES
from fastes.training.counters import Counters

OBSERVATIONS = np.array([[x, v, a, w] for x in (-1.0, 1.0) for v in (-1.0, 1.0) for a in (-0.2, 0.2) for w in (-1.0, 1.0)])
ACTIONS = [0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]
THETAS = (  # SHA-256 of the 30 float32 of each trial
    "6be22ddbc5729acc2e5cbd8c65b7d4397f0b4a09c992ba9cfb31a0d6dc031a2e",
    "362f9dcc7def6cf37f9dbb767f16919d3307a9438c3b45576f9d5c4c2a5015e7",
)


@pytest.fixture
def frozen(tmp_path: Path) -> Path:
    text = (Path(__file__).parent / "checkpoint_v1.txt").read_text()
    (tmp_path / "m.zip").write_bytes(base64.b64decode(text))
    return tmp_path / "m.zip"


def test_an_old_file_is_the_same_model(frozen: Path) -> None:
    with FastES.load(frozen, n_workers=0) as model:
        assert (model.seed, model.source.name, model.policy_spec.layer_sizes) == (7, "CartPole-v1", (4, 4, 2))
        assert (model.generation, model.num_timesteps, model.eval_timesteps, model.num_episodes) == (3, 1948, 227, 80)
        assert (model.budget, model.best_eval_return) == (100_000, 117.0)
        assert (model.normalizer.count, model.normalizer.skipped) == (1079, 0)
        assert model.predict(OBSERVATIONS, deterministic=True)[0].tolist() == ACTIONS


def test_an_old_file_has_the_same_trials(frozen: Path) -> None:
    with FastES.load(frozen, n_workers=0) as model:
        selection, trainings = model.selection, [trial.training for trial in model.selection.trials]
    assert [(trial.number, trial.rung_timesteps) for trial in selection.trials] == [(0, 1079), (1, 869)]
    assert (selection.rung, selection.sizes, selection.fraction) == (0, (2,), 0.2)
    assert tuple(hashlib.sha256(each.strategy.theta.tobytes()).hexdigest() for each in trainings) == THETAS
    assert [(each.seed, each.generation) for each in trainings] == [(7, 3), (2177342782468422684, 2)]
    assert [each.counters for each in trainings] == [
        Counters(1079, 110, 56, 0, 90_000, 81.0, warm_up_timesteps=176),
        Counters(869, 117, 24, 0, 90_000, 117.0, warm_up_timesteps=151),
    ]
    assert [(each.cap and each.cap.steps, each.population and each.population.first) for each in trainings] == [
        (49, 2),
        (89, 1),
    ]


def test_an_old_file_has_the_same_optimisers_evaluations_and_snapshots(frozen: Path) -> None:
    with FastES.load(frozen, n_workers=0) as model:
        trainings = [trial.training for trial in model.selection.trials]
    sigmas = [float(each.strategy.state()["sigma"][0]) for each in trainings]
    assert sigmas == pytest.approx([0.0502123, 0.0501585], rel=1e-5)
    for training in trainings:
        optimizer, steps = training.strategy.optimizer.state(), training.generation
        assert np.allclose(optimizer["powers"], [0.9**steps, 0.999**steps], rtol=1e-14)
        assert all(np.abs(optimizer[name]).max() > 0 for name in ("m", "v"))
    waiting = [pending for each in trainings for pending in each.pending]
    assert [(each.generation, each.timesteps, each.already_reported, each.calls) for each in waiting] == [
        (2, 694, True, 0),
        (1, 513, False, 0),
    ]
    assert waiting[1].returns.tolist() == [10, 15, 91, 19, 64, 9, 57, 91]
    snapshots = [snapshot for each in trainings if each.archive for snapshot in each.archive.snapshots]
    assert [(each.generation, each.timesteps, each.evaluation, each.total, each.evaluations) for each in snapshots] == [
        (0, 176, 81.0, 110.0, 3),
        (0, 151, 117.0, 117.0, 1),
    ]


def test_an_old_file_goes_on_training(frozen: Path) -> None:
    with FastES.load(frozen, n_workers=0) as model:
        before = model.theta
        records = learn(model, 4)
        assert [(record.trial, record.generation) for record in records] == [(2, 3), (1, 4)], (
            "the trial after the one that came last"
        )
        assert np.isfinite(model.theta).all()
        assert (model.theta != before).any()
        assert model.num_timesteps > 1948


def test_the_description_is_enough_to_check_a_file(frozen: Path) -> None:
    """docs/reference/checkpoint-format.md, followed without the package: every array has the checksum that `data` says."""
    kinds = {"F32": "<f4", "F64": "<f8", "I64": "<i8"}
    with zipfile.ZipFile(frozen) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    data, checked = json.loads(members.pop("data")), 0
    assert (data["format"], data["format_version"]) == ("fastes-checkpoint", 1)
    for name, content in members.items():
        group = data["checksums"][name.removesuffix(".safetensors")]
        (length,) = struct.unpack_from("<Q", content)
        header = json.loads(content[8 : 8 + length])
        header.pop("__metadata__", None)
        assert set(header) == set(group)
        for array, entry in header.items():
            begin, end = entry["data_offsets"]
            numbers = ", ".join(map(str, entry["shape"])) + ("," if len(entry["shape"]) == 1 else "")
            described = f"{kinds[entry['dtype']]} ({numbers})\n".encode() + content[8 + length + begin : 8 + length + end]
            assert hashlib.sha256(described).hexdigest() == group[array]
            checked += 1
    assert checked == 34
