"""A step of MlpLstmPolicy's cells over torch's LSTMCell and GRUCell on one thread.

Refuses to time what does not give the bits of its NumPy twin, in every variant, and what torch computes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from benchmarks.machine import describe
from benchmarks.speed.kernel_checks import kernels_of, refused_when_different
from benchmarks.speed.timing import interleaved_seconds, median_ratio, repeated
from benchmarks.tables import below_aim, markdown_table
from benchmarks.twins import assert_same_bits, numpy_kernels
from fastes import _core
from fastes.policies.named_policies import make_policy_spec
from fastes.policies.policy_spec import PolicySpec

ACTIONS = spaces.Box(-np.inf, np.inf, (6,), np.float32)  # an action is what the last layer gives
AIM = 1.0  # of torch's time
CHECKED = 5  # steps


class Timed(NamedTuple):
    """A policy: values of an observation, cell, units."""

    inputs: int
    cell: str
    units: int

    @property
    def name(self) -> str:
        return f"{self.inputs}, {self.cell.upper()} of {self.units}, 6"

    def spec(self) -> PolicySpec:
        space = spaces.Box(-np.inf, np.inf, (self.inputs,), np.float32)
        kwargs = {"cell": self.cell, "lstm_hidden_size": self.units}
        return make_policy_spec("MlpLstmPolicy", space, ACTIONS, kwargs)


ALL = [Timed(inputs, cell, units) for inputs, units in ((17, 32), (17, 64), (256, 256)) for cell in ("lstm", "gru")]


def filled(make: Callable[[PolicySpec], Any], spec: PolicySpec) -> Any:
    """An actor with random parameters."""
    actor = make(spec)
    actor.parameters[:] = np.random.default_rng(0).standard_normal(spec.num_params) * 0.1
    return actor


def observations(timed: Timed) -> npt.NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal((CHECKED, timed.inputs)).astype(np.float32)


def check_twins(timed: Timed) -> None:
    """Every variant gives the twin's bits."""
    twin = filled(numpy_kernels.Actor, timed.spec())
    expected = [twin.act(each) for each in observations(timed)]
    for variant in _core.available_variants():
        with kernels_of(variant), refused_when_different(variant):
            actor = filled(_core.Actor, timed.spec())
            for each, action in zip(observations(timed), expected, strict=True):
                assert_same_bits(timed.name, actor.act(each), action)


def torch_step(timed: Timed) -> Callable[[npt.NDArray[np.float32]], Any]:
    """The same policy of a torch cell and a Linear, from an observation to an array."""
    import torch

    torch.set_num_threads(1)
    spec = timed.spec()
    of_cell, of_last = spec.split_by_layer(filled(_core.Actor, spec).parameters)
    cell = (torch.nn.LSTMCell if timed.cell == "lstm" else torch.nn.GRUCell)(timed.inputs, timed.units)
    last, gates = torch.nn.Linear(timed.units, 6), len(cell.bias_ih)
    bias_h = np.zeros(gates, np.float32)
    bias_h[gates - (len(of_cell["bias"]) - gates) :] = of_cell["bias"][gates:]  # a GRU's fourth block is n's, of h
    values = of_cell["weight"][: timed.inputs].T, of_cell["weight"][timed.inputs :].T, of_cell["bias"][:gates], bias_h
    with torch.no_grad():
        for parameter, value in zip(cell.parameters(), values, strict=True):
            parameter.copy_(torch.from_numpy(value.copy()))
        last.weight.copy_(torch.from_numpy(of_last["weight"].T.copy()))
        last.bias.copy_(torch.from_numpy(of_last["bias"].copy()))
    hidden: Any = None

    def step(observation: npt.NDArray[np.float32]) -> Any:
        nonlocal hidden
        with torch.inference_mode():
            hidden = cell(torch.from_numpy(observation)[None], hidden)
            return last(hidden[0] if timed.cell == "lstm" else hidden)[0].numpy()

    return step


def time_step(timed: Timed, calls: int, repeats: int) -> tuple[str, ...]:
    """A row of the table."""
    spec, rows = timed.spec(), observations(timed)
    actor, other = filled(_core.Actor, spec), torch_step(timed)
    for row in rows:
        if not np.allclose(found := actor.act(row), expected := other(row), atol=1e-4):
            raise SystemExit(f"nothing is timed: {timed.name} gives {found}, torch {expected}")
    ways = {"FastES": repeated(lambda: actor.act(rows[0]), calls), "torch": repeated(lambda: other(rows[0]), calls)}
    seconds = interleaved_seconds(ways, repeats, time.process_time)
    times = (f"{1e6 * statistics.median(each) / calls:.2f}" for each in seconds.values())
    ratio = median_ratio(seconds["FastES"], seconds["torch"])
    return timed.name, f"{spec.num_params:,}", *times, f"{ratio:.3f}", below_aim(ratio, AIM, "")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.recurrent", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few repeats: checks that it runs")
    calls, repeats = (20, 3) if parser.parse_args().quick else (2_000, 15)
    for timed in ALL:
        check_twins(timed)
    print(f"{describe()}\n\nEvery variant equals its NumPy twin bit for bit. Medians of {repeats} interleaved repeats.\n")
    header = ("inputs, cell, actions", "parameters", "FastES CPU us", "torch CPU us", "ratio", "aim")
    print(markdown_table(header, [time_step(timed, calls, repeats) for timed in ALL]))


if __name__ == "__main__":
    main()
