"""How much of a gradient estimate is signal, by sigma and horizon: what limits a training from this checkpoint on.

A pair gives w_j eps_j, w_j the difference of its shaped returns. The mean of N pairs is the gradient S plus noise, of squared
length |S|^2 + V/N: at N = V/|S|^2 pairs half of it is signal. Products of different pairs estimate |S|^2 without bias.
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
from fastes.es.schedules import ANY_NUMBER, make_schedule

_DRAWN_AS = 2**31  # a number that no generation has, so that no training saw these candidates
_SURE = 2.0  # standard errors from which a signal is one

Float64 = NDArray[np.float64]


class Signal(NamedTuple):
    """pairs: of an estimate half of which is signal. at_least: that so many were not enough to see any, and more are needed."""

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


def signal_of(weights: Float64, noise: Float64) -> Signal:
    """weights: (pairs,), 2 or more; noise: eps of each pair, (pairs, num_params)."""
    count, num_params = noise.shape
    squares = float((weights**2 * (noise**2).sum(axis=1)).sum())
    if not squares:
        return Signal(math.inf, False)  # all candidates are as good as each other
    total = weights @ noise
    signal = (float(total @ total) - squares) / (count * (count - 1))
    spread = squares / count - max(signal, 0.0)
    error = spread * math.sqrt(2.0 / num_params) / count  # of the signal, where there is none
    seen = signal > _SURE * error
    return Signal(spread / (signal if seen else _SURE * error), not seen)


def measure(path: str, sigma: float, horizon: int, num_pairs: int) -> Measured:
    """Play candidates around a checkpoint's parameters, an episode each; both sides of a pair share its seed."""
    with FastES.load(path, n_workers=0, max_episode_steps=horizon, archive_size=0, target_return="none") as model:
        settings = model.settings
        bonus = make_schedule("alive_bonus", settings.alive_bonus, ANY_NUMBER)(model.state.progress_remaining)
        strategy = model.strategy.changed(sigma=sigma, sigma_adaptation="none", perturbed_share=1.0)
        drawn = strategy.ask(num_pairs=num_pairs, drawn_as=_DRAWN_AS)
        fitness, steps = np.empty((num_pairs, 2)), np.empty((num_pairs, 2))
        noise = np.empty((num_pairs, model.num_params))
        for job, candidate in enumerate(drawn):
            pair, side = divmod(job, 2)
            model.strategy.restart(candidate)
            played = model.evaluate(1, first_seed=int(drawn.env_seed[pair, 0]) % 2**30)
            steps[pair, side] = played.timesteps
            fitness[pair, side] = played.mean - bonus * played.timesteps
            if side == 0:
                noise[pair] = (candidate - drawn.theta) / sigma
    weights = shape_returns(fitness, sigma, settings.shaping).weights.astype(np.float64)
    return Measured(sigma, horizon, fitness.mean(), fitness.std(), steps.mean(), signal_of(weights, noise))


def table(rows: Sequence[Measured]) -> str:
    header = ("sigma", "horizon", "fitness", "steps", "pairs for half signal", "million steps for them")
    lines = []
    for row in rows:
        sign = "> " if row.signal.at_least else ""
        lines.append(
            (
                *(f"{row.sigma:g}", str(row.horizon or "whole"), f"{row.fitness:.0f} +- {row.std:.0f}", f"{row.steps:.0f}"),
                *(f"{sign}{row.signal.pairs:,.0f}", f"{sign}{2e-6 * row.signal.pairs * row.steps:.2f}"),
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
