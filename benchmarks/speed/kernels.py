"""Speed of each C kernel over NumPy, torch and the machine's memory. Refuses to time what it has not verified."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.machine import describe
from benchmarks.speed.kernel_checks import check_kernels, kernels_of
from benchmarks.speed.noise_sum import time_noise_sum
from benchmarks.speed.policy_steps import POLICIES, core_step, steps
from benchmarks.speed.timing import interleaved_seconds, median_ratio, repeated
from benchmarks.tables import against_aim, below_aim, markdown_table
from fastes import _core
from fastes.es.noise_table import NoiseTable, Windows, window_size
from fastes.es.perturbations import Perturbations, write_candidate

Float32 = npt.NDArray[np.float32]

PERTURB_AIM = 0.9
SHARES = (1.0, 0.5, 0.1, 0.01)


class Sizes(NamedTuple):
    """Sizes of what is timed, and how often.

    table, fill: values.
    num_params, slices: of the weighted sum.
    calls: steps a timing.
    repeats: timings of each.
    """

    table: int = 250_000_000
    num_params: int = 1_700_000
    slices: int = 512
    fill: int = 1 << 24
    calls: int = 20_000
    repeats: int = 7


QUICK = Sizes(table=4_000_000, num_params=100_000, slices=64, fill=1 << 18, calls=500, repeats=3)


def time_fill(sizes: Sizes) -> str:
    out = np.empty(sizes.fill, dtype=np.float32)
    generator, table = np.random.default_rng(0), NoiseTable(sizes.fill, 1)
    seconds = interleaved_seconds(
        {
            "normal_fill, 1 thread": lambda: _core.normal_fill(out, 1),
            "NoiseTable.place, 2 threads": lambda: table.place(out),
            "NumPy standard_normal(float32)": lambda: generator.standard_normal(dtype=np.float32, out=out),
        },
        sizes.repeats,
    )
    return f"### Table fill: {sizes.fill:,} normals\n\n" + _against_last(seconds, sizes.fill, "ns a value", 1e9)


def time_perturb(size: int, repeats: int) -> str:
    rng = np.random.default_rng(0)
    theta, table = rng.standard_normal(size, dtype=np.float32), rng.standard_normal(4 * size, dtype=np.float32)
    out, calls, sigma = np.empty_like(theta), max(1, 2_000_000 // size), np.float32(0.02)
    seconds = interleaved_seconds(
        {
            "perturb": repeated(lambda: _core.perturb(out, theta, table, 7, 0.02), calls),
            "a copy of theta": repeated(lambda: np.copyto(out, theta), calls),
            "NumPy theta + sigma * eps": repeated(lambda: theta + sigma * table[7 : 7 + size], calls),
        },
        repeats,
    )
    return f"### Mirrored reconstruction of {size:,} parameters\n\n" + _against_last(seconds, calls, "us a candidate", 1e6)


def time_perturb_from_memory(size: int, repeats: int) -> str:
    """The kernel on arrays that no cache holds, over the bandwidth of a copy of the same ones: both read and write."""
    rng = np.random.default_rng(0)
    theta, noise = (rng.standard_normal(size, dtype=np.float32) for _ in range(2))
    out = np.empty_like(theta)
    volumes = {"perturb": 12e-9 * size, "a copy of theta": 8e-9 * size}  # GB, two arrays read or one, and one written
    seconds = interleaved_seconds(
        {"perturb": lambda: _core.perturb(out, theta, noise, 0, 0.02), "a copy of theta": lambda: np.copyto(out, theta)},
        repeats,
    )
    rates = {name: [volumes[name] / time for time in times] for name, times in seconds.items()}
    share = median_ratio(rates["perturb"], rates["a copy of theta"])
    rows = [
        (name, f"{1e3 * statistics.median(seconds[name]):.1f}", f"{statistics.median(rates[name]):.1f}", aim)
        for name, aim in (("perturb", f"{share:.2f}, {against_aim(share, PERTURB_AIM)}"), ("a copy of theta", ""))
    ]
    header = ("what", "ms", "GB/s", "share of the copy's bandwidth")
    return f"### Perturbation of {size:,} parameters, from memory\n\n" + markdown_table(header, rows)


def perturbations_of(share: float, theta: Float32, table: NoiseTable, pairs: int) -> Perturbations:
    """A generation in which each pair perturbs such a share of theta."""
    rng, size = np.random.default_rng(3), window_size(share, len(theta))
    index = rng.integers(0, table.size - len(theta) + 1, pairs)
    windows = Windows(rng.integers(0, len(theta), pairs), size) if size else None
    zeros = np.zeros((pairs, 1), dtype=np.int64)
    return Perturbations(0, 0.02, theta, table, index, zeros, zeros.astype(np.uint64), None, windows)


def write_each(out: Float32, perturbations: Perturbations) -> None:
    """The first candidate of each pair, one after the other in the same memory, as workers do."""
    windows, table = perturbations.windows, perturbations.table.values
    for pair, at in enumerate(perturbations.noise_index.tolist()):
        window = None if windows is None else (int(windows.first[pair]), windows.size)
        write_candidate(out, perturbations.theta, table, at, perturbations.sigma, 0, window)


def time_shares(sizes: Sizes) -> str:
    """The time that perturbed_fraction saves per candidate, and per pair of the weighted sum."""
    table, pairs = NoiseTable(min(sizes.table, 30 * sizes.num_params), 1), 32
    theta, weights = np.zeros(sizes.num_params, dtype=np.float32), np.ones(pairs, dtype=np.float32)
    candidates: dict[str, Callable[[], Any]] = {}
    sums: dict[str, Callable[[], Any]] = {}
    for share in SHARES:
        these = perturbations_of(share, theta, table, pairs)
        found = these.table.weighted_sum(these.noise_index, weights, len(theta), these.windows)
        if not np.allclose(found, sum(these[2 * pair] for pair in range(pairs)) / 0.02, atol=1e-4):
            raise SystemExit(f"nothing is timed: with a share of {share:g} the sum is not that of the candidates' noise")
        candidates[f"{share:g}"] = partial(write_each, np.empty_like(theta), these)
        sums[f"{share:g}"] = partial(table.weighted_sum, these.noise_index, weights, len(theta), these.windows)
    of_candidates, of_sums = (interleaved_seconds(ways, sizes.repeats) for ways in (candidates, sums))
    rows = []
    for name in candidates:
        cells = [f"{1e6 * statistics.median(seconds[name]) / pairs:.0f}" for seconds in (of_candidates, of_sums)]
        over = [f"{median_ratio(seconds['1'], seconds[name]):.1f}" for seconds in (of_candidates, of_sums)]
        rows.append((name, cells[0], over[0], cells[1], over[1]))
    header = ("perturbed_fraction", "us a candidate", "times as fast", "us a pair of the sum", "times as fast")
    return f"### Shares of {sizes.num_params:,} parameters that a pair perturbs\n\n" + markdown_table(header, rows)


def time_ranks(count: int, sizes: Sizes) -> tuple[str, ...]:
    """A row of the table of ranks."""
    values, calls = np.random.default_rng(0).standard_normal(count), max(1, sizes.calls // count)
    seconds = interleaved_seconds(
        {
            "core": repeated(lambda: _core.centered_ranks(values), calls),
            "NumPy": repeated(lambda: np.argsort(np.argsort(values)) / (count - 1) - 0.5, calls),
        },
        sizes.repeats,
    )
    each = [f"{1e6 * statistics.median(times) / calls:.1f}" for times in seconds.values()]
    return f"{count:,}", *each, f"{median_ratio(seconds['NumPy'], seconds['core']):.1f}"


def time_all_ranks(sizes: Sizes) -> str:
    header = ("returns", "centered_ranks us", "NumPy argsort twice us", "ratio")
    title = "### Centred ranks (ties share a rank, NaN ranks worst; NumPy does neither)\n\n"
    return title + markdown_table(header, [time_ranks(count, sizes) for count in (64, 1_000, 20_000)])


def time_act(sizes: Sizes) -> str:
    rows = []
    for name, policy in POLICIES.items():
        ways = steps(policy)
        seconds = interleaved_seconds({way: repeated(step, sizes.calls) for way, step in ways.items()}, sizes.repeats)
        each = {way: 1e6 * statistics.median(times) / sizes.calls for way, times in seconds.items()}
        over = {way: f"{median_ratio(times, seconds['FastES']):.0f}" for way, times in seconds.items()}
        aim = below_aim(each["FastES"], policy.aim_us, "us") if policy.aim_us else ""
        cells = [f"{each[way]:.2f}" if way in each else "-" for way in ("FastES", "NumPy", "torch")]
        rows.append((name, *cells, over["NumPy"], over.get("torch", "-"), aim))
    header = ("policy", "Actor.act us", "NumPy us", "torch us", "over NumPy", "over torch", "aim")
    return "### One step of a policy, called from Python\n\n" + markdown_table(header, rows)


def time_variants(sizes: Sizes) -> str:
    """The hot kernels in every compiled variant that this CPU runs; all give the same bits."""
    size, slices = min(sizes.num_params, 200_000), 64
    table = np.random.default_rng(0).standard_normal(min(sizes.table, 8 * size), dtype=np.float32)
    index = np.random.default_rng(1).integers(0, len(table) - size + 1, slices)
    weights, out = np.ones(slices, dtype=np.float32), np.empty(size, dtype=np.float32)
    begin = np.random.default_rng(2).integers(0, size - size // 10 + 1, slices)
    small, calls = out[:5_702], max(1, sizes.calls // 20)
    work: dict[str, tuple[Callable[[], Any], int]] = {
        f"noise_sum, {slices} slices of {size:,}": (lambda: _core.noise_sum(out, table, index, weights), 1),
        f"noise_square_sum, {slices} slices of {size:,}": (lambda: _core.noise_square_sum(out, table, index, weights), 1),
        f"noise_sum_pieces, {slices} tenths of {size:,}": (
            lambda: _core.noise_sum_pieces(out, table, index, begin, begin + size // 10, weights, False),
            1,
        ),
        f"normal_fill, {size:,}": (lambda: _core.normal_fill(out, 1), 1),
        "perturb, 5,702": (repeated(lambda: _core.perturb(small, table[:5_702], table, 7, 0.02), calls), calls),
        "perturb_each, 5,702": (
            repeated(lambda: _core.perturb_each(small, table[:5_702], table, 7, table[:5_702], 0), calls),
            calls,
        ),
        f"sum_squares, {size:,}": (lambda: _core.sum_squares(out), 1),
        **{f"act, {name}": (repeated(core_step(policy), calls), calls) for name, policy in POLICIES.items()},
    }
    variants = _core.available_variants()
    rows = []
    for name, (call, per) in work.items():
        seconds = interleaved_seconds({variant: partial(run_with, variant, call) for variant in variants}, sizes.repeats)
        medians = [f"{1e6 * statistics.median(seconds[variant]) / per:.2f}" for variant in variants]
        rows.append((name, *medians, f"{median_ratio(seconds[variants[0]], seconds[variants[-1]]):.1f}"))
    header = ("kernel", *(f"{variant} us" for variant in variants), f"{variants[-1]} over {variants[0]}")
    return "### Variants\n\n" + markdown_table(header, rows)


def run_with(variant: str, call: Callable[[], Any]) -> None:
    with kernels_of(variant):
        call()


def _against_last(seconds: dict[str, list[float]], count: int, unit: str, scale: float) -> str:
    """A table of seconds per count, with ratios over the last entry, which is the baseline."""
    *_, baseline = seconds.values()
    rows = [
        (name, f"{scale * statistics.median(times) / count:.2f}", f"{median_ratio(baseline, times):.1f}")
        for name, times in seconds.items()
    ]
    return markdown_table(("what", unit, "ratio"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.kernels", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small arrays and few repeats: checks that it runs, for CI")
    sizes = QUICK if parser.parse_args().quick else Sizes()
    check_kernels()
    print(
        f"{describe()}\n\nEvery kernel of variants {', '.join(_core.available_variants())} equals its NumPy twin bit for bit. "
        f"Medians of {sizes.repeats} interleaved repeats."
    )
    sections: tuple[Callable[[], str], ...] = (
        lambda: time_noise_sum(sizes.table, sizes.num_params, sizes.slices, sizes.repeats),
        lambda: time_fill(sizes),
        lambda: time_perturb(5_702, sizes.repeats),
        lambda: time_perturb(sizes.num_params, sizes.repeats),
        lambda: time_perturb_from_memory(sizes.table // 8, sizes.repeats),
        lambda: time_shares(sizes),
        lambda: time_act(sizes),
        lambda: time_all_ranks(sizes),
        lambda: time_variants(sizes),
    )
    for section in sections:
        print(f"\n{section()}", flush=True)


if __name__ == "__main__":
    main()
