"""Risk: a recurrent cell is not the cell that its name says, or one's memory reaches into another's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_cases import actors, check_steps, normals, unbounded
from twins.same_bits import assert_same_bits

from fastes import _core
from fastes.policies.layers import (
    CELLS,
    IDENTITY,
    MOST_VALUES,
    Cell,
    Dense,
    Layer,
    VirtualBatchNorm,
    check_layers,
    described_layers,
)
from fastes.policies.policy_spec import PolicySpec


def policy(*layers: Layer) -> PolicySpec:
    return PolicySpec(layers, unbounded(layers[-1].outputs), (layers[0].inputs,))


@pytest.mark.parametrize("name", CELLS)
def test_cells_of_all_widths(variant: str, name: str) -> None:
    for units in (1, 2, 3, 5, 8, 9, 16, 17, 33, 213):  # fewer than a vector's lanes, as many, more, and large matrices
        spec = policy(CELLS[name](3, units), CELLS[name](units, units), Dense(units, 2, IDENTITY, use_bias=True))
        kernel, twin = actors(spec, normalizer=True)
        for episode in range(2):
            kernel.begin_episode(), twin.begin_episode()
            check_steps(f"{variant} {name} {units}, episode {episode}", (kernel, twin), normals(6).reshape(2, 3))
            memory = np.concatenate([each.state for each in twin.memories])
            assert_same_bits(f"{variant} {name} {units}'s memory", kernel.state, memory)


def torch_parameters(cell: Any, module: Any) -> np.ndarray:
    """What ours has for torch's cell, as its docstring says."""
    of_x, of_h, bias_x, bias_h = (view.detach().numpy() for view in module.parameters())
    bias = bias_x + bias_h
    if cell.kind == "gru":
        n = slice(2 * cell.outputs, None)
        bias = np.concatenate([bias[: 2 * cell.outputs], bias_x[n], bias_h[n]])
    return np.concatenate([of_x.T.ravel(), of_h.T.ravel(), bias])


@pytest.mark.parametrize("name", CELLS)
def test_cells_are_those_of_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    cell: Cell = CELLS[name](5, 19)
    module = {"lstm": torch.nn.LSTMCell, "gru": torch.nn.GRUCell}[name](5, 19)
    actor = _core.Actor(policy(cell))
    actor.parameters[:] = torch_parameters(cell, module)
    hidden: Any = None
    with torch.no_grad():
        for row in 2.0 * normals(100).reshape(20, 5):
            hidden = module(torch.from_numpy(row)[None], hidden)
            h, *others = hidden if name == "lstm" else (hidden,)
            assert actor.act(row) == pytest.approx(h[0].numpy(), abs=1e-6)
            assert actor.state == pytest.approx(torch.cat([h[0], *(other[0] for other in others)]).numpy(), abs=1e-6)


@pytest.mark.parametrize("name", CELLS)
def test_first_parameters(name: str) -> None:
    """Weights N(0, 1/fan_in), fan_in counting the memory; the bias that keeps the memory is 1, others 0."""
    spec = policy(CELLS[name](28, 100), Dense(100, 3, IDENTITY, use_bias=True))
    views = spec.split(spec.initial_theta(3))
    assert float(views["layers.0.weight"].std()) == pytest.approx(1 / np.sqrt(128), rel=0.02)
    assert views["layers.0.bias"].tolist() == [0.0] * 100 + [1.0] * 100 + [0.0] * 200
    assert float(views["layers.1.weight"].std()) == pytest.approx(0.01 / 10, rel=0.2)


def test_what_the_core_must_not_see() -> None:
    for inputs, outputs in ((0, 3), (3, 0), (3, MOST_VALUES // 6 + 1), (MOST_VALUES + 1, 3), (3, True)):
        for kind in CELLS.values():
            with pytest.raises(ValueError, match=r"of a (lstm|gru) layer is out of range: expected 1 to"):
                kind(inputs, outputs).check()
    layer = {"kind": "lstm", "inputs": 3, "outputs": 4}
    assert described_layers({"layers": [layer]}) == (CELLS["lstm"](3, 4),)
    for other in ({"kind": "gru", "inputs": 4, "outputs": 4}, {"kind": "lstm", "inputs": 4, "outputs": 5}):
        with pytest.raises(ValueError, match=r"recurrent layers differ: .*lstm of 4 values.*; expected all of one kind"):
            check_layers(described_layers({"layers": [layer, other]}), 0)
    behind = CELLS["gru"](3, 4), VirtualBatchNorm(4, 4, "tanh")
    for refuse in (lambda: check_layers(behind, 0), lambda: _core.Actor(policy(*behind))):
        with pytest.raises(ValueError, match="layer 1 normalises by a batch of observations"):
            refuse()
    with pytest.raises(ValueError, match="layer"):
        described_layers({"layers": [{**layer, "activation": "tanh"}]})
