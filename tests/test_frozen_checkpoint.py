"""Risk: a new FastES does not read, or reads differently, what an older one wrote.

checkpoint_v1.txt is a checkpoint of format version 1 in base64 (CartPole-v1, one hidden layer of 4, three generations). It is
never made again: when it no longer loads, the format has a new version, and this one keeps a reader.
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

OBSERVATIONS = np.array([[x, v, a, w] for x in (-1.0, 1.0) for v in (-1.0, 1.0) for a in (-0.2, 0.2) for w in (-1.0, 1.0)])
ACTIONS = [0, 0, 1, 1, 0, 0, 0, 1, 0, 1, 1, 1, 0, 0, 1, 1]
THETA = "768cb8d6b8063b2b3b652ec7c78fc6abeec80ebad778e80060dbe0929f3ff8a7"  # SHA-256 of its 30 float32


@pytest.fixture
def frozen(tmp_path: Path) -> Path:
    text = (Path(__file__).parent / "checkpoint_v1.txt").read_text()
    (tmp_path / "m.zip").write_bytes(base64.b64decode(text))
    return tmp_path / "m.zip"


def test_an_old_file_is_the_same_model(frozen: Path) -> None:
    with FastES.load(frozen, n_workers=0) as model:
        assert hashlib.sha256(model.theta.tobytes()).hexdigest() == THETA
        assert (model.seed, model.source.name, model.policy_spec.layer_sizes) == (7, "CartPole-v1", (4, 4, 2))
        assert (model.generation, model.num_timesteps, model.eval_timesteps, model.num_episodes) == (3, 1298, 151, 24)
        assert (model.confirm_after, model.budget, model.best_eval_return) == (0, 100_000, 93.0)
        assert (model.normalizer.count, model.normalizer.skipped) == (1298, 0)
        assert model.predict(OBSERVATIONS, deterministic=True)[0].tolist() == ACTIONS
        optimizer = model.strategy.optimizer.state()
        assert np.allclose(optimizer["powers"], [0.9**3, 0.999**3], rtol=1e-14)
        assert all(np.abs(optimizer[name]).max() > 0 for name in ("m", "v"))


def test_an_old_file_goes_on_training(frozen: Path) -> None:
    with FastES.load(frozen, n_workers=0) as model:
        before = model.theta
        records = learn(model, 4)
        assert [record.generation for record in records] == [4]
        assert np.isfinite(model.theta).all()
        assert (model.theta != before).any()
        assert model.num_timesteps > 1298


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
    assert checked == 7
