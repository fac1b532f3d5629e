"""Estimators that were tried and are no part of the package, as FastES's strategy with perturbations that are written out.

The noise of a generation is the plain strategy's own, so that all variants start from the same draws. They use LAPACK and
libm: unlike FastES they give other bits on other machines. Only `Explicit` and `Averaged` train exactly as FastES does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fastes import EvolutionStrategy, _core
from fastes.noise import NoiseTable, Perturbations
from fastes.shaping import shape_returns
from fastes.strategy import Update

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]


class Directions(NoiseTable):
    """The table of one generation: its first values are the perturbations, row after row, and its sum is the strategy's.

    source: the table that they are drawn from, of the same size.
    """

    def __init__(self, source: NoiseTable, strategy: Explicit) -> None:
        super().__init__(source.size, source.seed)
        self.source, self.strategy = source, strategy
        self.rows: Float32 = np.zeros((0, 1), dtype=np.float32)

    @property
    def values(self) -> Float32:
        return self.rows.ravel()

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """Where each row begins."""
        return np.arange(len(self.rows), dtype=np.int64) * self.rows.shape[1]

    def place_once(self, buffer: Float32) -> None:
        buffer[: self.rows.size] = self.values

    def weighted_sum(self, noise_index: Any, weights: Float32, *_: Any) -> Float32:  # type: ignore[override]  # noqa: ARG002
        return self.strategy.combine(weights)


class Explicit(EvolutionStrategy):
    """FastES's own strategy; subclasses change the directions, or how what they gave is added up."""

    table: Directions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, plain in (("sigma_adaptation", "none"), ("perturbed_share", 1.0)):
            if kwargs.get(name, plain) != plain:
                raise ValueError(f"{name} = {kwargs[name]!r}: estimators know one sigma, and perturb all parameters")
        needed = self.num_pairs * len(self.theta)
        if needed > self.table.size:
            raise ValueError(
                f"{self.num_pairs} pairs of {len(self.theta)} parameters are more than the table's {self.table.size}"
            )
        self.table = Directions(self.table, self)
        self.forget()

    def __copy__(self) -> Explicit:
        """Itself: a study's strategy is changed in place, and what a generation of it leaves half done is thrown away."""
        return self

    def forget(self) -> None:
        """Drop what is remembered of earlier generations: theta is another one now."""

    def restart(self, theta: npt.ArrayLike) -> None:
        super().restart(theta)
        self.forget()

    def load_state(self, state: Mapping[str, Float32 | Float64], generation: int) -> None:
        super().load_state(state, generation)
        self.forget()

    @property
    def evaluated(self) -> Float32:
        """The parameters that count as the result, float32 (num_params,)."""
        return self.theta

    def ask(self, progress_remaining: float = 1.0, num_pairs: int | None = None) -> Perturbations:
        asked = super().ask(progress_remaining, num_pairs)
        size, table = len(self.theta), self.table.source.values
        drawn = np.stack([table[start : start + size] for start in asked.noise_index])
        self.table.rows = np.ascontiguousarray(self.directions(drawn), dtype=np.float32)
        self.table.rows.flags.writeable = False
        return replace(asked, noise_index=self.table.starts)

    def directions(self, drawn: Float32) -> Float32 | Float64:
        """This generation's perturbations (pairs, num_params) from independent standard normals of that shape."""
        return drawn

    def combine(self, weights: Float32) -> Float32:
        """sum_j weights[j] * eps_j, float32 (num_params,), by FastES's kernel; weights (pairs,), zeros are not read."""
        used = np.flatnonzero(weights)
        total = np.empty(len(self.theta), dtype=np.float32)
        _core.noise_sum(total, self.table.values, self.table.starts[used], np.ascontiguousarray(weights[used]))
        return total


class Orthogonal(Explicit):
    """Antithetic pairs whose directions are orthogonal, in blocks of at most num_params (Choromanski et al. 2018).

    Each keeps the length of the normal that it was made from, so that one alone is still a standard normal.
    """

    def directions(self, drawn: Float32) -> Float64:
        return np.concatenate([orthogonalized(drawn[at : at + drawn.shape[1]]) for at in range(0, len(drawn), drawn.shape[1])])


def orthogonalized(block: Float32) -> Float64:
    """Orthogonal rows with the lengths of the given ones, uniform in direction; at most as many as columns."""
    exact = block.astype(np.float64)
    columns, triangle = np.linalg.qr(exact.T)
    signs = np.where(np.diag(triangle) < 0.0, -1.0, 1.0)  # or the distribution of directions would not be uniform
    return (columns * signs).T * np.linalg.norm(exact, axis=1)[:, np.newaxis]


class Guided(Explicit):
    """Half of the variance lies in the span of past gradient estimates (Maheswaranathan et al. 2019, guided ES, alpha = 1/2).

    The covariance alpha I + (1 - alpha) n/k U U' has the trace n of the plain one; as in the paper, the estimate is this
    covariance times a gradient.
    """

    ALPHA, MEMORY = 0.5, 4  # the paper's tradeoff; past estimates that span the subspace, at most

    def forget(self) -> None:
        self.past: list[Float64] = []

    def directions(self, drawn: Float32) -> Float32 | Float64:
        basis = span_of(self.past)
        if basis is None:
            return drawn
        within = np.random.default_rng([self.seed, self.generation]).standard_normal((len(drawn), basis.shape[1]))
        return guided_directions(drawn.astype(np.float64), within, basis, self.ALPHA)

    def combine(self, weights: Float32) -> Float32:
        total = super().combine(weights)
        self.past = [*self.past, total.astype(np.float64)][-self.MEMORY :]
        return total


def span_of(vectors: Sequence[Float64]) -> Float64 | None:
    """An orthonormal basis (num_params, k) of what the vectors span, each counted alike; None where all are zero."""
    lengths = [float(np.linalg.norm(vector)) for vector in vectors]
    kept = [vector / length for vector, length in zip(vectors, lengths, strict=True) if length > 0.0]
    if not kept:
        return None
    left, sizes, _ = np.linalg.svd(np.stack(kept, axis=1), full_matrices=False)
    basis: Float64 = left[:, sizes > 1e-6 * sizes[0]]
    return basis


def guided_directions(drawn: Float64, within: Float64, basis: Float64, alpha: float) -> Float64:
    """Normals of covariance alpha I + (1 - alpha) n/k U U' from standard ones: drawn (pairs, n), within (pairs, k)."""
    size, rank = basis.shape
    directions: Float64 = np.sqrt(alpha) * drawn + np.sqrt((1.0 - alpha) * size / rank) * within @ basis.T
    return directions


class Reused(Explicit):
    """The previous generation's candidates count again, weighted by how likely today's distribution would draw them.

    Weights are today's density over that of the mixture of both generations (multiple importance sampling's balance
    heuristic): at most 2, unbiased, and 0 for what has become unlikely. Both generations' returns are shaped together.
    """

    def forget(self) -> None:
        self.before: tuple[Float64, Float64, Float64, float] | None = None  # candidates, fitness, theta, sigma
        self.fitness: Float64 = np.zeros((0, 2))
        self.sigma = 0.0

    def ask(self, progress_remaining: float = 1.0, num_pairs: int | None = None) -> Perturbations:
        asked = super().ask(progress_remaining, num_pairs)
        self.sigma = asked.sigma
        return asked

    def tell(self, returns: npt.ArrayLike | Sequence[float]) -> Update:
        self.fitness = np.array(returns, dtype=np.float64).reshape(-1, 2)
        steps = self.sigma * self.table.rows.astype(np.float64)
        theta = self.theta.astype(np.float64)
        update = super().tell(returns)
        self.before = (theta + np.stack([steps, -steps], axis=1), self.fitness, theta, self.sigma)
        return update

    def combine(self, weights: Float32) -> Float32:
        if self.before is None:
            return super().combine(weights)
        candidates, fitness, theta_before, sigma_before = self.before
        theta, steps = self.theta.astype(np.float64), self.sigma * self.table.rows.astype(np.float64)
        everyone = np.concatenate([theta + np.stack([steps, -steps], axis=1), candidates])  # (pairs of both, 2, num_params)
        shaped = shape_returns(np.concatenate([self.fitness, fitness]), self.sigma, self.shaping, self.top_fraction)
        own = shape_returns(self.fitness, self.sigma, self.shaping, self.top_fraction).scale  # `tell` multiplies by this one
        importance = mixture_weights(everyone, (theta, self.sigma), (theta_before, sigma_before))
        directions = (everyone - theta) / self.sigma
        total = np.einsum("js,jsp->p", importance * shaped.shaped, directions)
        return (total * (shaped.scale / own)).astype(np.float32)


def mixture_weights(candidates: Float64, now: tuple[Float64, float], before: tuple[Float64, float]) -> Float64:
    """N(now) / (N(now) / 2 + N(before) / 2) of candidates (..., num_params); now, before: mean and standard deviation."""
    size = candidates.shape[-1]
    log_now, log_before = (
        -np.sum((candidates - mean) ** 2, axis=-1) / (2.0 * sigma**2) - size * np.log(sigma) for mean, sigma in (now, before)
    )
    weights: Float64 = 2.0 / (1.0 + np.exp(np.clip(log_before - log_now, -700.0, 700.0)))
    return weights


class Averaged(Explicit):
    """Trains as FastES does; what counts is an exponential moving average of theta (Polyak and Juditsky 1992).

    The average is divided by the weight that it has collected, as Adam's moments are, so that it starts at the first update.
    """

    DECAY = 0.8

    def forget(self) -> None:
        self.collected, self.weight = np.zeros(len(self.theta)), 0.0
        self._evaluated = self.theta

    @property
    def evaluated(self) -> Float32:
        return self._evaluated

    def tell(self, returns: npt.ArrayLike | Sequence[float]) -> Update:
        update = super().tell(returns)
        self.collected = self.DECAY * self.collected + (1.0 - self.DECAY) * self.theta
        self.weight = self.DECAY * self.weight + 1.0 - self.DECAY
        self._evaluated = (self.collected / self.weight).astype(np.float32)
        return update


STRATEGIES: dict[str, type[Explicit]] = {
    "plain": Explicit,
    "orthogonal": Orthogonal,
    "guided": Guided,
    "reused": Reused,
    "averaged": Averaged,
}
