"""The plain NumPy twin of every C kernel, bit for bit: the executable specification of src/.

Names and signatures are those of fastes._core, so that either can be called in the other's place. Arithmetic is float32
where arrays are float32 (a Python number beside one is rounded to float32 first), in exactly the order written here.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from fastes._core import STREAM_PAIR, STREAM_TABLE
from twins.numpy_layers import ACTIVATIONS, LAYERS, Array, Memory, batch_scale_and_shift, clip, tanh

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
UInt32 = npt.NDArray[np.uint32]
UInt64 = npt.NDArray[np.uint64]
UInt8 = npt.NDArray[np.uint8]

STREAM_ACTION = 3  # FASTES_STREAM_ACTION
NORMAL_GROUP = 64  # FASTES_NORMAL_GROUP


def philox(counters: UInt32, seed: int) -> UInt32:
    """Twin of fastes_philox: Philox4x32-10 (Salmon et al. 2011) of counters (n, 4) under the key seed, as (n, 4)."""
    c0, c1, c2, c3 = (counters[:, word].astype(np.uint64) for word in range(4))
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        p0, p1 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ np.uint64(k0), p1 & low, (p0 >> 32) ^ c3 ^ np.uint64(k1), p0 & low
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)


def draw_words(seed: int, generation: int, count: int, episode: int, stream: int) -> UInt32:
    counters = np.empty((count, 4), dtype=np.uint32)
    counters[:, 0] = np.arange(count)
    counters[:, 1], counters[:, 2], counters[:, 3] = generation, episode, stream
    return philox(counters, seed)


def draw_pairs(seed: int, generation: int, count: int, episodes: int, places: int) -> tuple[Int64, Int64, UInt64]:
    def joined(high: UInt32, low: UInt32) -> UInt64:
        return high.astype(np.uint64) << np.uint64(32) | low

    words = draw_words(seed, generation, count, 0, STREAM_PAIR)
    noise_index = (joined(words[:, 0], words[:, 1]) % np.uint64(places)).astype(np.int64)
    env_seed, action_key = np.empty((count, episodes), dtype=np.int64), np.empty((count, episodes), dtype=np.uint64)
    for episode in range(episodes):
        words = draw_words(seed, generation, count, episode + 1, STREAM_PAIR)
        env_seed[:, episode], action_key[:, episode] = words[:, 0] >> 1, joined(words[:, 1], words[:, 2])
    return noise_index, env_seed, action_key


def sum_moments(moments: Float64, counts: Int64) -> tuple[Float64, int, int, int]:
    """Added in the order of jobs."""
    seen, finite = counts > 0, np.isfinite(moments).all(axis=(1, 2))
    usable, sums = seen & finite, np.zeros(moments.shape[1:])
    for each in moments[usable]:
        sums += each
    return sums, int(counts[usable].sum()), int(usable.sum()), int((seen & ~finite).sum())


def join_moments(mean: Float64, squares: Float64, count: int, sums: Float64, added: int) -> tuple[Float64, Float64] | None:
    """Chan et al. 1979, equation 2.1."""
    total = count + added
    with np.errstate(over="ignore", invalid="ignore"):
        shift = sums[0] / added  # mean of the new observations, less the mean so far
        spread = np.maximum(sums[1] - sums[0] * shift, 0.0)
        means = mean + shift * (added / total)
        deviations = squares + spread + shift * shift * (count * (added / total))
    return (means, deviations) if np.isfinite(means).all() and np.isfinite(deviations).all() else None


def stream_words(first: int, count: int, middle: int, stream: int, key: int) -> UInt32:
    """Twin of philox_group: words (count, 4) of the counters (block low, block high, middle, stream), block = first, ..."""
    blocks = np.arange(first, first + count, dtype=np.uint64)
    counters = np.empty((count, 4), dtype=np.uint32)
    counters[:, 0] = blocks & np.uint64(0xFFFFFFFF)
    counters[:, 1] = blocks >> np.uint64(32)
    counters[:, 2] = middle
    counters[:, 3] = stream
    return philox(counters, key)


def log(x: Array) -> Array:
    """Twin of vlog. x = 2^e m, m in [sqrt(1/2), sqrt(2)), log m = 2 atanh(s), s = (m - 1)/(m + 1)."""
    bits = x.view(np.int32) - 0x3F3504F3
    e = (bits >> 23).astype(np.float32)
    m = ((bits & 0x7FFFFF) + 0x3F3504F3).view(np.float32)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    series = z * (0.33333333 + z * (0.2 + z * (0.14285715 + z * 0.11111111)))
    return e * 0.69314718 + (s + s * series) * 2.0


def sincos(turn: UInt32) -> tuple[Array, Array]:
    """Twin of vsincos: sine and cosine of turn / 2^32 of a full circle, by Taylor series about the nearest quarter."""
    quarter = (turn + np.uint32(0x20000000)).view(np.int32) >> 30
    t = (turn - (quarter.view(np.uint32) << 30)).view(np.int32).astype(np.float32) * 1.4629180792671596e-9  # 2 pi / 2^32
    z = t * t
    s = t + t * z * (-0.16666667 + z * (8.3333333e-3 + z * (-1.9841270e-4 + z * 2.7557319e-6)))
    c = 1.0 + z * (-0.5 + z * (4.1666667e-2 + z * (-1.3888889e-3 + z * (2.4801587e-5 + z * -2.7557319e-7))))
    odd = quarter & 1 != 0
    sin, cos = np.where(odd, c, s), np.where(odd, s, c)
    return np.where(quarter & 2 != 0, -sin, sin), np.where((quarter + 1) & 2 != 0, -cos, cos)


def box_muller(u: UInt32, v: UInt32) -> Array:
    """Twin of box_muller: words (n, 16), (n, 16) -> normals (n, 32), sqrt(-2 log u) * (cos, sin)(2 pi v)."""
    uniform = ((u >> 1) | 1).view(np.int32).astype(np.float32) * np.float32(2**-31)
    radius = np.sqrt(log(uniform) * -2.0)
    sin, cos = sincos(v)
    return np.concatenate([radius * cos, radius * sin], axis=1)


def normal_fill(out: Float32, seed: int, start: int = 0, stream: int = STREAM_TABLE) -> None:
    """Twin of normal_fill: out (n,) = normals number start, start + 1, ... of a stream.

    Normals 64g .. 64g+63 come from the Philox blocks 16g .. 16g+15: 32 from their words 0 and 1, 32 from words 2 and 3.
    """
    first, end = start // NORMAL_GROUP, -(-(start + len(out)) // NORMAL_GROUP)
    words = stream_words(16 * first, 16 * (end - first), 0, stream, seed).reshape(-1, 16, 4)
    halves = box_muller(words[:, :, 0], words[:, :, 1]), box_muller(words[:, :, 2], words[:, :, 3])
    skip = start - NORMAL_GROUP * first
    out[:] = np.concatenate(halves, axis=1).ravel()[skip : skip + len(out)]


@np.errstate(all="ignore")
def perturb(out: Float32, theta: Float32, table: Float32, noise_index: int, scale: float) -> None:
    """Twin of perturb: out (n,) = theta + eps * scale, eps = table[noise_index : noise_index + n]."""
    out[:] = theta + table[noise_index : noise_index + len(theta)] * np.float32(scale)


@np.errstate(all="ignore")
def perturb_each(out: Float32, theta: Float32, table: Float32, noise_index: int, sigma: Float32, side: int) -> None:
    """Twin of perturb_each: out (n,) = theta + eps * sigma * (1 or, for side 1, -1), eps as in perturb."""
    out[:] = theta + table[noise_index : noise_index + len(theta)] * sigma * np.float32(1 - 2 * side)


@np.errstate(all="ignore")
def noise_sum(out: Float32, table: Float32, noise_index: Int64, weights: Float32) -> None:
    """Twin of noise_sum: out (n,) = 0 + weights[0] * eps_0 + weights[1] * eps_1 + ..., added from left to right."""
    out[:] = 0.0
    for index, weight in zip(noise_index, weights, strict=True):
        out += table[index : index + len(out)] * weight


@np.errstate(all="ignore")
def noise_square_sum(out: Float32, table: Float32, noise_index: Int64, weights: Float32) -> None:
    """Twin of noise_square_sum: out (n,) = 0 + weights[0] * (eps_0 * eps_0 - 1) + ..., added from left to right."""
    out[:] = 0.0
    for index, weight in zip(noise_index, weights, strict=True):
        eps = table[index : index + len(out)]
        out += (eps * eps - np.float32(1)) * weight


@np.errstate(all="ignore")
def noise_sum_pieces(
    out: Float32, table: Float32, noise_index: Int64, begin: Int64, end: Int64, weights: Float32, squares: bool
) -> None:
    """Twin of noise_sum_pieces: out (n,) = 0, to which each piece adds weight * eps or weight * (eps * eps - 1) in its turn."""
    out[:] = 0.0
    for index, first, past, weight in zip(noise_index, begin, end, weights, strict=True):
        eps = table[index : index + past - first]
        out[first:past] += (eps * eps - np.float32(1) if squares else eps) * weight


def sum_squares(x: Float32) -> float:
    """Twin of sum_squares: 16 interleaved sums of x * x in float64, folded 8 + 8, 4 + 4, 2 + 2, 1 + 1."""
    padded = np.zeros(-(-len(x) // 16) * 16)
    padded[: len(x)] = x
    lanes = np.zeros(16)
    for row in (padded * padded).reshape(-1, 16):
        lanes += row
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    return float(lanes[0])


class Greys:
    """Twin of look_up_greys, behind the interface of fastes._core.Greys."""

    def __init__(self) -> None:
        self.known: dict[int, int] = {}

    def look_up(self, colours: UInt8, grey: UInt8) -> bool:
        if unknown := set(colours.ravel().tolist()) - set(self.known):
            return not unknown
        grey[:] = [[self.known[colour] for colour in row] for row in colours.tolist()]
        return True

    def learn(self, colours: UInt8, grey: UInt8) -> None:
        self.known.update(zip(colours.ravel().tolist(), grey.ravel().tolist(), strict=True))


class AreaResize:
    """Twin of resize_brighter, behind the interface of fastes._core.AreaResize: OpenCV's INTER_AREA as it is, in float32."""

    def __init__(self, shape: tuple[int, int], out_shape: tuple[int, int]) -> None:
        self.shape, self.out_shape = shape, out_shape

    def brighter(self, earlier: UInt8, latest: UInt8, out: UInt8) -> None:
        frame, (height, width), (rows, columns) = np.maximum(earlier, latest), self.shape, self.out_shape
        if height % rows == 0 and width % columns == 0:
            blocks = frame.astype(np.int32).reshape(rows, height // rows, columns, width // columns)
            totals, size = blocks.sum(axis=(1, 3)), blocks.shape[1] * blocks.shape[3]
            means = totals.astype(np.float32) * (np.float32(1) / np.float32(size))
            out[:] = (totals + 2) // 4 if blocks.shape[1::2] == (2, 2) else np.rint(means)
            return
        narrow = add_shares(frame.T.astype(np.float32), columns).T
        out[:] = np.rint(add_shares(narrow, rows))


def add_shares(x: Float32, after: int) -> Float32:
    """x (before, n) -> (after, n): each row is a sum of what it covers, in order, times its share of it."""
    before = len(x)
    sums, scale = np.zeros((after, x.shape[1]), dtype=np.float32), 1.0 / (after / before)
    for i in range(after):
        begin, end = i * scale, i * scale + scale
        length = min(scale, before - begin)
        last = min(math.floor(end), before - 1)
        first = min(math.ceil(begin), last)
        if first - begin > 1e-6:  # and no rounding error; OpenCV has 1e-3, the least that sides of 1,000 can leave
            sums[i] += x[first - 1] * np.float32((first - begin) / length)
        for whole in range(first, last):
            sums[i] += x[whole] * np.float32(1.0 / length)
        if end - last > 1e-6:
            sums[i] += x[last] * np.float32(min(end - last, 1.0, length) / length)
    return sums


def centered_ranks(values: Float64) -> Float32:
    """Twin of fastes_centered_ranks: mean rank / (n - 1) - 0.5; equal values share a rank, non-finite ones the lowest."""
    _, group, size = np.unique(np.where(np.isfinite(values), values, -np.inf), return_inverse=True, return_counts=True)
    last = np.cumsum(size) - 1
    first = last - size + 1
    ranks = 0.5 * (first + last) / (len(values) - 1) - 0.5 if len(values) > 1 else np.zeros(len(size))
    return ranks[group].astype(np.float32)


def argmax(y: Float32) -> int:
    """Twin of argmax: the first of the largest; a NaN never replaces what came before it and is never replaced."""
    best = 0
    for i in range(1, len(y)):
        if y[i] > y[best]:
            best = i
    return best


def box_action(y: Float32, low: Float64, high: Float64) -> Float64:
    """Twin of box_action: low + (clip(y, -1, 1) + 1) / 2 * (high - low) in float64, or y where a bound is infinite; clipped."""
    unit = clip(y.astype(np.float64), -1, 1)
    spanned = low + (unit + 1.0) * 0.5 * (high - low)
    return clip(np.where(np.isfinite(low) & np.isfinite(high), spanned, y), low, high)


def bins_action(y: Float32, low: Float64, high: Float64) -> Float64:
    """Twin of bins_action: row i of y (size, num_bins) picks low + bin / (num_bins - 1) * (high - low)."""
    bins = np.array([argmax(row) for row in y], dtype=np.float64)
    return clip(low + bins / (y.shape[1] - 1) * (high - low), low, high)


def box_noise(count: int, key: int, step: int) -> Float32:
    """Twin of add_action_noise: 32 normals from words 0 and 1 of every 16 blocks; the step is the third counter word."""
    words = stream_words(0, -(-count // 32) * 16, step, STREAM_ACTION, key).reshape(-1, 16, 4)
    return box_muller(words[:, :, 0], words[:, :, 1]).ravel()[:count]


def choice_noise(count: int, key: int, step: int, binary: bool) -> Array:
    """Twin of add_choice_noise, u = ((word 0 of block i >> 9) + 1/2) / 2^23.

    Gumbel: argmax(y - log(-log u)) is a sample of softmax(y). Logistic: y + log u - log(1 - u) > 0 one of sigmoid(y).
    """
    words = stream_words(0, count, step, STREAM_ACTION, key)
    u = ((words[:, 0] >> 9).astype(np.float32) + 0.5) * np.float32(2**-23)
    return log(u) - log(1 - u) if binary else -log(-log(u))


class Actor:
    """Twin of act, forward, choose and observe in src/*_kernels.inc, behind the interface of fastes._core.Actor."""

    def __init__(self, spec: Any) -> None:
        self.spec, self.head = spec, spec.head
        self.low, self.high = np.array(self.head.low), np.array(self.head.high)
        self.parameters: Float32 = np.zeros(spec.num_params, dtype=np.float32)
        self.observation_moments: Float64 = np.zeros((2, spec.obs_size))
        self.normalizer: tuple[Float64, Float64, float] | None = None
        self.counting = False
        self.observation: Array = np.zeros(0, dtype=np.float32)  # the last one, flat, and what was observed of it
        self.observed: Float32 = np.zeros(0, dtype=np.float32)
        self.reads_image = bool(spec.layers) and spec.layers[0].reads_image
        self.joined: Float32 = np.zeros(sum(layer.inputs for layer in spec.layers if layer.kind == "join"), dtype=np.float32)
        self.memories = [Memory(np.zeros(layer.state_size, dtype=np.float32)) for layer in spec.layers]
        self.begin_episode()

    def set_normalizer(self, mean: Float64, inv_std: Float64, clip: float) -> None:
        self.normalizer = mean.copy(), inv_std.copy(), clip

    def count_moments(self, counting: bool) -> None:
        self.observation_moments[:] = 0.0
        self.counting = counting

    def begin_episode(self, noise_key: int = 0, action_noise: float = 0.0, sample: bool = False) -> None:
        self.key, self.action_noise, self.sample, self.step = noise_key, np.float32(action_noise), sample, 0
        for memory in self.memories:
            memory.state[:] = 0.0

    def set_reference(self, reference: npt.NDArray[Any]) -> None:
        self.reference = reference.copy()

    @np.errstate(all="ignore")
    def fold(self) -> None:
        """Twin of fold: each layer of virtual batch normalisation gets its statistics before the batch goes on."""
        counting, self.counting = self.counting, False
        all_parameters = self.spec.split_by_layer(self.parameters)
        for i, layer in enumerate(self.spec.layers):
            if layer.kind == "virtual_batch_norm":
                inputs = np.stack([self.forward(self.observe(obs), i) for obs in self.reference])
                memory = self.memories[i]
                memory.scale, memory.shift = batch_scale_and_shift(layer, inputs, all_parameters[i])
        self.counting = counting

    @np.errstate(all="ignore")
    def act(self, obs: Any) -> Any:
        """An int for Discrete, else an array of the action space's dtype and shape."""
        return self.choose(self.forward(self.observe(obs)))

    @np.errstate(all="ignore")
    def observe(self, obs: Any) -> Float32:
        """clip((obs - mean) * inv_std) in float64, then float32; counts d = obs - mean and d * d. No normaliser: obs."""
        self.observation, self.observed = np.ravel(obs), self._observed(obs)
        return self.observed

    def _observed(self, obs: Any) -> Float32:
        obs = np.asarray(obs).astype(np.float64).ravel()
        obs = obs[list(self.spec.columns)] if self.spec.columns or self.reads_image else obs
        if self.normalizer is None:
            return np.asarray(obs, dtype=np.float32)
        mean, inv_std, limit = self.normalizer
        d = obs - mean
        if self.counting:
            self.observation_moments += np.stack([d, d * d])
        return clip(d * inv_std, -limit, limit).astype(np.float32)

    def forward(self, x: Float32, past: int | None = None) -> Float32:
        """Twin of run_layers, of what was observed last: all layers, or those before number past, each with its activation."""
        all_parameters = self.spec.split_by_layer(self.parameters)
        for layer, parameters, memory in list(zip(self.spec.layers, all_parameters, self.memories, strict=True))[:past]:
            memory.observation, memory.observed, memory.joined = self.observation, self.observed, self.joined
            x = ACTIVATIONS[layer.activation](LAYERS[layer.kind](layer, x, parameters, memory))
        return x

    @np.errstate(all="ignore")
    def choose(self, outputs: Float32) -> Any:
        """The outputs (num_outputs,) as an action, with the step's noise."""
        action = self.components(outputs.ravel())
        self.step += 1
        return (
            action.astype(np.int64)[0]
            if self.head.scalar
            else action.astype(self.head.cast or self.head.dtype).reshape(self.head.shape)
        )

    def components(self, y: Float32) -> npt.NDArray[Any]:
        """The outputs y as action components (size,); bins take no noise."""
        kind, count = self.head.kind, len(y)
        if kind in ("clip", "squash"):
            if self.action_noise != 0.0:
                y = y + box_noise(count, self.key, self.step) * self.action_noise
            return box_action(tanh(y) if kind == "squash" else y, self.low, self.high)
        if kind == "bins":
            return bins_action(y.reshape(-1, self.head.num_bins), self.low, self.high)
        if kind not in ("categorical", "binary"):
            raise ValueError(f"unknown kind of action {kind!r}")
        if self.sample:
            y = y + choice_noise(count, self.key, self.step, binary=kind == "binary")
        if kind == "binary":
            return np.greater(y, 0)
        blocks = np.split(y, np.cumsum(self.head.nvec)[:-1])
        return np.array([argmax(block) + start for block, start in zip(blocks, self.head.start, strict=True)], dtype=np.int64)
