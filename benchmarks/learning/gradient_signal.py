"""How much of a gradient estimate is signal, by sigma and horizon: what limits a training from this checkpoint on.

A pair gives w_j eps_j, w_j the difference of its shaped returns. The mean of N pairs is the gradient S plus noise, of squared
length |S|^2 + V/N: at N = V/|S|^2 pairs half of it is signal. Products of different pairs estimate |S|^2, without bias but for
the shaping, which compares pairs with each other. Sigma is one for all parameters, also where the training has one for each;
episodes are noise-free ones, one a candidate.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.machine import describe
from benchmarks.options import COUNT, above_zero, at_least
from benchmarks.tables import markdown_table
from fastes import FastES
from fastes.errors import FastESError
from fastes.es.fitness_shaping import shape_returns
from fastes.training.fitness import alive_bonus_at

_DRAWN_AS = 2**31  # a number that no generation has, so that no training saw these candidates
_SURE = 2.0  # standard errors from which a signal is one

Float64 = NDArray[np.float64]


class Signal(NamedTuple):
    """pairs: of an estimate half of which is signal. at_least: that none was seen, and so many is the least that fits."""

    pairs: float
    at_least: bool


class Measured(NamedTuple):
    """horizon: steps at which episodes were cut, 0 for none. fitness, std, steps: of a candidate's episode."""

    sigma: float
    horizon: int
    fitness: float
    std: float
    steps: float
    signal: Signal


def signal_of(weights: Float64, squares: Float64, total: Float64) -> Signal:
    """weights: w_j, (pairs,), 2 or more; squares: |eps_j|^2, (pairs,); total: sum_j w_j eps_j, (num_params,)."""
    count = len(weights)
    of_pairs = float(weights**2 @ squares)
    if not of_pairs:
        return Signal(math.inf, False)  # all candidates are as good as each other
    signal = max((float(total @ total) - of_pairs) / (count * (count - 1)), 0.0)
    spread = of_pairs / count - signal
    error = _SURE * spread * math.sqrt(2.0 / len(total)) / count  # of a signal that is 0
    seen = signal > error
    return Signal(spread / (signal if seen else signal + error), not seen)


def measure(path: str, sigma: float, horizon: int, num_pairs: int) -> Measured:
    """Play candidates around a checkpoint's parameters, an episode each; both sides of a pair share its seed."""
    with FastES.load(path, n_workers=0, max_episode_steps=horizon, archive_size=0, target_return="none") as model:
        settings = model.settings
        bonus = alive_bonus_at(settings, model.state.progress_remaining)
        strategy = model.strategy.changed(sigma=sigma, sigma_adaptation="none", perturbed_share=1.0)
        drawn = strategy.ask(num_pairs=num_pairs, drawn_as=_DRAWN_AS)
        fitness, steps, squares = np.empty((num_pairs, 2)), np.empty((num_pairs, 2)), np.empty(num_pairs)
        for job, candidate in enumerate(drawn):
            pair, side = divmod(job, 2)
            squares[pair] = np.square((candidate - drawn.theta) / sigma, dtype=np.float64).sum()
            model.strategy.restart(candidate)
            played = model.evaluate(1, first_seed=int(drawn.env_seed[pair, 0]) % 2**30)
            steps[pair, side] = played.timesteps
            fitness[pair, side] = played.mean - bonus * played.timesteps
    weights = shape_returns(fitness, sigma, settings.shaping, settings.top_fraction).weights
    total = drawn.table.weighted_sum(drawn.noise_index, weights, len(drawn.theta)).astype(np.float64)
    signal = signal_of(weights.astype(np.float64), squares, total)
    return Measured(sigma, horizon, fitness.mean(), fitness.std(), steps.mean(), signal)


def _in_two_digits(number: float) -> str:
    """'3,100': the estimate knows no more."""
    return f"{float(f'{number:.1e}'):,.0f}" if math.isfinite(number) else "none is enough"


def table(rows: Sequence[Measured]) -> str:
    header = ("sigma", "horizon", "fitness", "steps", "pairs for half signal", "million steps for them")
    lines = []
    for row in rows:
        sign = "> " if row.signal.at_least else ""
        lines.append(
            (
                *(f"{row.sigma:g}", str(row.horizon or "whole"), f"{row.fitness:.0f} +- {row.std:.0f}", f"{row.steps:.0f}"),
                *(f"{sign}{_in_two_digits(row.signal.pairs)}", f"{sign}{2e-6 * row.signal.pairs * row.steps:.2f}"),
            )
        )
    return markdown_table(header, lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.gradient_signal", description=__doc__)
    parser.add_argument("checkpoint", help="such as runs/Humanoid-v5/1/checkpoint.zip")
    parser.add_argument("--pairs", type=at_least(2), default=1000, help="mirrored pairs to play for each row (default: 1000)")
    parser.add_argument("--sigma", type=above_zero, nargs="+", required=True, help="standard deviations of the noise")
    parser.add_argument(
        "--horizon", type=COUNT, nargs="*", default=[], help="further rows, with episodes cut after so many steps"
    )
    given = parser.parse_args(arguments)
    try:
        rows = [measure(given.checkpoint, sigma, cut, given.pairs) for sigma in given.sigma for cut in (*given.horizon, 0)]
    except FastESError as error:
        raise SystemExit(str(error)) from None
    print(describe())
    print(f"{given.checkpoint}, {given.pairs} pairs a row; fitness is the return of a candidate without its alive bonus\n")
    print(table(rows))


if __name__ == "__main__":
    main()
