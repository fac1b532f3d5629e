"""Training steps per second of FastES over what the same cores do when they only step environments."""

from __future__ import annotations

import argparse
import statistics
import time
from typing import NamedTuple

from benchmarks.machine import describe
from benchmarks.speed.bare_loops import BareLoops, BareRate
from benchmarks.speed.timing import median_ratio
from benchmarks.tables import against_aim, markdown_table, median_and_range
from fastes import Callback, FastES
from fastes.settings.preset_loader import DEFAULT, preset_for
from fastes.system.limits import available_cpus
from fastes.training.record import Record

# env -> share of the bare loops that training is meant to reach
AIMS = {"HalfCheetah-v5": 0.92, "Humanoid-v5": 0.97, "CartPole-v1": 0.85}
UTILISATION_AIM = {"HalfCheetah-v5": 0.95}
_FOREVER = 10**12
_PRESETS = {"Humanoid-v5": DEFAULT}  # whose network is the paper's; the others have their own presets


class TrainingRate(NamedTuple):
    """How fast workers play in a stretch of training.

    Attributes:
        steps_per_second: Environment steps of the pool, also in generations that the end of the stretch cuts off.
        evaluation_share: Share of these steps that noise-free episodes made.
        utilisation: Share of the wall time that workers spent in episodes; noise-free ones by their share of steps.
        episode_length: Mean steps of a candidate's episode.
        sigma: Of the last generation.
    """

    steps_per_second: float
    evaluation_share: float
    utilisation: float
    episode_length: float
    sigma: float


class StopAfter(Callback):
    """Ends training with the generation in which the time is up, and keeps the records."""

    def __init__(self, seconds: float) -> None:
        self.end = time.perf_counter() + seconds
        self.records: list[Record] = []

    def on_generation(self, model: FastES, record: Record) -> bool:  # noqa: ARG002
        self.records.append(record)
        return time.perf_counter() < self.end


def train_for(model: FastES, seconds: float) -> TrainingRate:
    """Continue training for some seconds, whole generations; the clock covers everything that `learn` does."""
    before = model.evaluator.steps_played()
    stop, started = StopAfter(seconds), time.perf_counter()
    model.learn(_FOREVER, stop, reset_num_timesteps=False)
    wall, after = time.perf_counter() - started, model.evaluator.steps_played()
    training, evaluation = after.candidates - before.candidates, after.evaluations - before.evaluations
    records, share = stop.records, evaluation / (training + evaluation)
    in_candidates = sum(r.utilisation * r.seconds for r in records) / sum(r.seconds for r in records)
    return TrainingRate(
        (training + evaluation) / wall,
        share,
        min(in_candidates / (1.0 - share), 1.0),
        statistics.mean(r.episode_length for r in records),
        records[-1].sigma,
    )


def measure(env: str, n_workers: int, seconds: float, repeats: int, random: bool) -> tuple[list[TrainingRate], list[BareRate]]:
    """Training and bare loops in turn, (repeats,) each, after a stretch of training off the record."""
    training, bare = [], []
    preset = _PRESETS.get(env, preset_for(env) or DEFAULT)
    with FastES(env, preset=preset, n_workers=n_workers, seed=0, target_return="none") as model:
        loops = BareLoops(model, n_workers)
        try:
            sigma = train_for(model, seconds).sigma
            loops.measure(model, sigma, 0.1, random)
            for _ in range(repeats):
                training.append(train_for(model, seconds))
                bare.append(loops.measure(model, training[-1].sigma, seconds, random))
        finally:
            loops.close()
    return training, bare


def table_row(env: str, training: list[TrainingRate], bare: list[BareRate]) -> list[str]:
    rates = [t.steps_per_second for t in training]
    ratios = [t / b.with_resets for t, b in zip(rates, bare, strict=True)]
    utilisation = statistics.median(t.utilisation for t in training)
    aims = [against_aim(statistics.median(ratios), AIMS[env])] if env in AIMS else []
    if env in UTILISATION_AIM:
        aims.append(f"utilisation {against_aim(utilisation, UTILISATION_AIM[env])}")
    return [
        env,
        f"{statistics.median(rates):,.0f}",
        f"{statistics.median(t.evaluation_share for t in training):.1%}",
        f"{statistics.median(b.with_resets for b in bare):,.0f}",
        median_and_range(ratios),
        f"{median_ratio(rates, [b.stepping for b in bare]):.2f}",
        f"{utilisation:.1%}",
        f"{training[-1].episode_length:.0f} / {bare[-1].episode_length:.0f}",
        ", ".join(aims),
    ]


HEADER = (
    "env",
    "FastES steps/s",
    "of it evaluation",
    "bare loops steps/s",
    "ratio",
    "ratio, resets off the clock",
    "utilisation",
    "episode length / bare",
    "aim",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.throughput", description=__doc__)
    parser.add_argument("--envs", nargs="+", default=list(AIMS), metavar="ID", help=f"default: {' '.join(AIMS)}")
    parser.add_argument("--seconds", type=float, default=6.0, help="seconds of each stretch (default: 6)")
    parser.add_argument("--repeats", type=int, default=5, help="stretches of each kind, taken in turn (default: 5)")
    parser.add_argument("--workers", type=int, default=available_cpus(), help="worker processes (default: one a usable core)")
    parser.add_argument(
        "--random-actions", action="store_true", help="bare loops replay uniformly drawn actions, not those of candidates"
    )
    parser.add_argument("--peers", action="store_true", help="then compare with ARS and PPO on HalfCheetah-v5 (minutes)")
    arguments = parser.parse_args()
    print(
        f"{describe()}\n\n{arguments.workers} workers against {arguments.workers} bare loops, "
        f"medians of {arguments.repeats} stretches of {arguments.seconds:g} s each, taken in turn.\n"
    )
    rows = []
    for env in arguments.envs:
        results = measure(env, arguments.workers, arguments.seconds, arguments.repeats, arguments.random_actions)
        rows.append(table_row(env, *results))
    print(markdown_table(HEADER, rows), flush=True)
    if arguments.peers:
        from benchmarks.speed.peers import compare

        table = compare(arguments.workers, arguments.seconds, arguments.repeats, lambda *of: train_for(*of).steps_per_second)
        print(f"\n{table}")


if __name__ == "__main__":
    main()
