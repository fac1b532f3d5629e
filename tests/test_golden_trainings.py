"""Risk: another processor, compiler or NumPy gives other bits. Digests of trainings are stored here, made on x86-64.

A training's bits follow from its environment's, so this one computes with what IEEE 754 defines alone. wheels/aarch64.py runs
the same tests on arm64. A digest changes when the random streams, a kernel's arithmetic or what a setting does is changed on
purpose: then for all processors.
"""

from __future__ import annotations

import pytest
from golden_trainings import CASES, GENERATIONS, digest_of, trained
from training import assert_same

from fastes import _core

DIGESTS = {
    "mlp": "21c19c8eec8537d6",
    "squash": "c801b53848f3c79f",
    "bins": "4b215547d323b1bd",
    "linear": "edd4f0d2b4220dca",
    "lstm": "e598b5f44f9b1ccc",
    "gru": "4bf7e829513f4704",
    "cnn": "fd196dcd0df1c0e4",
}


@pytest.mark.parametrize("name", _core.available_variants())
@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("kernels")
def test_a_training_has_its_digest(case: str, name: str) -> None:
    _core.use_variant(name)
    result = trained(case, 0)
    assert len(result.records) == GENERATIONS
    assert digest_of(result) == DIGESTS[case]


@pytest.mark.parametrize("n_workers", [1, 2])
def test_workers_change_no_bit_of_it(n_workers: int) -> None:
    result = trained("mlp", n_workers)
    assert digest_of(result) == DIGESTS["mlp"]
    assert_same(trained("mlp", 0), result)
