"""EvolutionStrategy beside CMA-ES (cmaes, pycma) on plain functions: values, evaluations, time for each candidate."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np

from benchmarks.machine import describe
from benchmarks.tables import amount, markdown_table
from fastes import EvolutionStrategy

SOLVED = 1e-6


class Method(NamedTuple):
    """make: of (start, seed), an (ask, tell): candidates, and what takes their values, smaller is better."""

    name: str
    make: Callable[[Any, int], tuple[Callable[[float], Sequence[Any]], Callable[[Sequence[Any], list[float]], None]]]


def sphere(x: Any) -> float:
    return float(np.sum(np.square(x, dtype=np.float64)))


def rosenbrock(x: Any) -> float:
    x = np.asarray(x, dtype=np.float64)
    return float(np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2))


def ours(**settings: Any) -> Callable[[Any, int], Any]:
    def make(start: Any, seed: int) -> Any:
        es = EvolutionStrategy(start, seed=seed, **settings)

        def tell(_: Any, values: list[float]) -> None:
            es.tell([-value for value in values])

        return es.ask, tell

    return make


def cmaes_of(kind: str) -> Callable[[Any, int], Any]:
    def make(start: Any, seed: int) -> Any:
        import cmaes

        es = getattr(cmaes, kind)(mean=np.array(start, dtype=np.float64), sigma=0.5, seed=seed)

        def tell(candidates: Any, values: list[float]) -> None:
            es.tell(list(zip(candidates, values, strict=True)))

        return lambda _: [es.ask() for _ in range(es.population_size)], tell

    return make


def pycma(start: Any, seed: int) -> Any:
    import cma

    es = cma.CMAEvolutionStrategy(np.array(start, dtype=np.float64), 0.5, {"seed": seed + 1, "verbose": -9})
    return lambda _: es.ask(), es.tell


DEFAULTS = Method("FastES, defaults", ours())
FALLING = Method(
    "FastES, falling sigma and step", ours(sigma="exp_0.1_0.001", learning_rate="exp_0.05_0.0005", population_size=20)
)
CMAES, PYCMA = Method("cmaes CMA", cmaes_of("CMA")), Method("pycma", pycma)
SEPARABLE = Method("cmaes SepCMA", cmaes_of("SepCMA"))


def run(
    method: Method, function: Callable[[Any], float], start: Any, seed: int, evaluations: int
) -> tuple[float, float, float]:
    """The best value; evaluations until it was SOLVED, infinite for never; microseconds of ask and tell for each candidate."""
    ask, tell = method.make(start, seed)
    best, solved, done, own = math.inf, math.inf, 0, 0.0
    while done < evaluations and best > SOLVED:
        began = time.perf_counter()
        candidates = list(ask(1.0 - done / evaluations))
        own += time.perf_counter() - began
        values = [function(candidate) for candidate in candidates]
        began = time.perf_counter()
        tell(candidates, values)
        own += time.perf_counter() - began
        done += len(values)
        best = min(best, *values)
    if best <= SOLVED:
        solved = done
    return best, solved, 1e6 * own / done


def rows_of(task: str, function: Callable[[Any], float], start: Any, evaluations: int, methods: Sequence[Method]) -> list[Any]:
    rows = []
    for method in methods:
        found = np.array([run(method, function, start, seed, evaluations) for seed in range(3)])
        best, solved, own = np.median(found, axis=0)
        spread = f"{found[:, 0].min():.2g} to {found[:, 0].max():.2g}"
        told = "never" if math.isinf(solved) else amount(solved)
        rows.append([task, method.name, amount(evaluations), f"{best:.2g}", spread, told, f"{own:.1f}"])
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    argparse.ArgumentParser(prog="python -m benchmarks.learning.black_box", description=__doc__).parse_args()
    small = (DEFAULTS, FALLING, CMAES, PYCMA)
    rows = rows_of("sphere, 10-D", sphere, np.full(10, 3.0), 64_000, small)
    rows += rows_of("Rosenbrock, 10-D", rosenbrock, np.zeros(10), 64_000, small)
    rows += rows_of("sphere, 1,000-D", sphere, np.full(1000, 1.0), 240, (DEFAULTS, SEPARABLE, CMAES))
    rows += rows_of("sphere, 1,000-D", sphere, np.full(1000, 1.0), 32_000, (DEFAULTS, FALLING, SEPARABLE))
    rows += rows_of("sphere, 100,000-D", sphere, np.full(100_000, 1.0), 1_000, (DEFAULTS, SEPARABLE))
    header = ("function", "method", "evaluations", "best value", "3 seeds", f"evaluations to {SOLVED:g}", "us a candidate")
    print(describe())
    print(", ".join(f"{name} {metadata.version(name)}" for name in ("fastes", "cmaes", "cma", "numpy")))
    print(markdown_table(header, rows))


if __name__ == "__main__":
    main()
