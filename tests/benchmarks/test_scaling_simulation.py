"""Risk: the simulation of many workers gives numbers that nobody can check."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("simpy")

from benchmarks.speed.scaling import tables
from benchmarks.speed.scaling.costs import CHUNK, RESULTS, Costs, Episodes, growing_horizon
from benchmarks.speed.scaling.machine import Kind, Machine
from benchmarks.speed.scaling.training import Generation, Plan, Way, plan_of, simulate
from fastes.rollout.batch import Batch
from fastes.settings.preset_loader import choose_settings
from fastes.training.episode_cap import EpisodeCap

COSTS = Costs("HalfCheetah-v5", "", [CHUNK * 30e-6], 1e-4, 1e-4, 0.05, 1e-3, 3e-5)


def one_training(generations: list[Generation], update_seconds: float = 0.0) -> Plan:
    return Plan([], [], generations, update_seconds)


def short_training(seed: int, processes: int) -> Plan:
    return plan_of(COSTS, choose_settings("HalfCheetah-v5", {"total_timesteps": 40_000}), 1000, seed, processes)


def wall(plan: Plan, way: Way, cores: int, workers: int, spares: int = 0) -> float:
    return simulate(Machine(cores, workers, spares), [plan], way)


@pytest.mark.parametrize("lag", [0, 1, 3])
@pytest.mark.parametrize("spares", [0, 2])
def test_one_core_takes_the_sum_of_all_work(lag: int, spares: int) -> None:
    plan = short_training(0, 1)
    assert wall(plan, Way(lag), 1, 1, spares) == pytest.approx(plan.work())
    assert wall(plan, Way(lag, side_by_side=True), 1, 1, spares) == pytest.approx(plan.work())


def test_work_is_neither_lost_nor_made() -> None:
    plans, machine = [short_training(seed, 8) for seed in range(3)], Machine(8, 8, 3)
    seconds = simulate(machine, plans, Way(2))
    assert machine.cores.busy == pytest.approx(sum(plan.work() for plan in plans))
    assert machine.cores.busy <= 8 * seconds


def test_cores_without_end_take_the_critical_path() -> None:
    generations = [Generation([1.0, 2.0], [7.0]), Generation([3.0, 1.0], [5.0]), Generation([2.0, 1.0], [4.0])]
    plan = one_training(generations, 0.5)
    assert wall(plan, Way(0), 100, 100) == 7 + 5 + 4 + 3 * 0.5
    # lag 1: generation 1 waits for the evaluation that began with generation 0, the last one for all
    second_ends = max(2 + 0.5 + 3, 0 + 7)
    assert second_ends == 7
    third = second_ends + 0.5
    assert wall(plan, Way(1), 100, 100) == max(max(third + 2, 2 + 0.5 + 5) + 0.5, third + 4)
    assert wall(plan, Way(9), 100, 100) == 2 + 0.5 + 3 + 0.5 + max(2 + 0.5, 4)


def test_candidates_are_claimed_before_evaluations_of_earlier_generations() -> None:
    # one worker: candidate 1, then the evaluation that is due with generation 1, in which its candidate comes first
    plan = one_training([Generation([1.0], [2.0]), Generation([1.0], [2.0])])
    assert wall(plan, Way(1), 1, 1) == 6.0
    # two workers: an evaluation holds the second one while the next generation's two candidates take turns on the first
    plan = one_training([Generation([1.0, 1.0], [2.0]), Generation([1.0, 1.0], [])])
    assert wall(plan, Way(1), 2, 2) == 3.0
    # with a spare worker the three share two cores: 1.5 for the candidates, then 0.5 more of the evaluation
    plan = one_training([Generation([1.0, 1.0], [2.0])])
    assert wall(plan, Way(1), 2, 2, 1) == pytest.approx(1.5 + 1.0)


def test_without_a_lag_evaluations_are_claimed_first() -> None:
    assert wall(one_training([Generation([1.0, 1.0], [2.0])]), Way(0), 2, 2) == 2.0


@pytest.mark.parametrize(("needs", "expected"), [([1.0] * 3, [1.5] * 3), ([1.0, 2.0, 3.0], [1.5, 2.5, 3.5])])
def test_three_processes_on_two_cores(needs: list[float], expected: list[float]) -> None:
    """All advance alike: at two thirds of a core until the first ends, then at a whole one."""
    machine, ends = Machine(2, 3), list[float]()
    for seconds in needs:
        ended = machine.cores.run(seconds)
        assert ended.callbacks is not None
        ended.callbacks.append(lambda _: ends.append(machine.env.now))
    machine.env.run()
    assert ends == pytest.approx(expected)
    assert machine.cores.busy == pytest.approx(sum(needs))


def test_the_parent_does_one_thing_at_a_time() -> None:
    plans = [one_training([Generation([1.0], [])] * 2, 0.25) for _ in range(2)]
    assert simulate(Machine(8, 8), plans, Way(0)) == pytest.approx(1 + 0.25 + 1 + 0.25 + 0.25)
    assert simulate(Machine(8, 8), plans[:1], Way(0)) == pytest.approx(2.5)


def test_trials_one_after_the_other_and_side_by_side() -> None:
    trial = [Generation([1.0, 1.0], [])]
    plan = Plan([trial, trial], [[3.0], [2.0]], [Generation([1.0, 1.0], [])], 0.0)
    assert wall(plan, Way(0), 4, 4) == (1 + 3) + (1 + 2) + 1
    assert wall(plan, Way(0, side_by_side=True), 4, 4) == (1 + 3) + 1
    assert wall(plan, Way(0, side_by_side=True), 2, 2) == (2 + 3) + 1


def test_the_oldest_open_request_comes_first() -> None:
    machine, ended = Machine(1, 1), list[str]()
    requests = {
        "first": machine.play(Kind.CANDIDATES, [1.0]),
        "evaluation": machine.play(Kind.EVALUATIONS, [1.0]),
        "second": machine.play(Kind.CANDIDATES, [1.0, 1.0]),
        "third": machine.play(Kind.CANDIDATES, [1.0]),
    }
    for name, request in requests.items():
        assert request.callbacks is not None
        request.callbacks.append(lambda _, name=name: ended.append(name))
    machine.env.run()
    assert machine.env.now == 5.0
    assert ended == ["first", "second", "third", "evaluation"]


def test_the_horizon_grows_as_training_lets_it() -> None:
    settings = choose_settings("HalfCheetah-v5", {"max_episode_steps": 1000})
    cap, caps = EpisodeCap.start(settings), list[int]()
    assert cap is not None
    steps = np.full((1, 2), cap.steps)
    batch = Batch(np.zeros((1, 2)), steps, np.zeros((1, 2)), np.ones((1, 2), np.int64), np.zeros((0, 2, 1)), 0.0, 0, "")
    for _ in range(400):
        caps.append(cap.steps)
        cap = cap.after(batch)
    assert growing_horizon(settings.episode_cap_start, settings.episode_cap_factor, 1000)[:400] == caps


def test_job_times() -> None:
    costs = COSTS._replace(chunk_seconds=[1.0, 2.0], reset_seconds=0.5, job_seconds=0.25, spread=0.0)
    assert costs.job(0) == 0.75
    assert costs.job(CHUNK) == 1.75
    assert costs.job(2 * CHUNK) == 3.75
    assert costs.job(3 * CHUNK + CHUNK // 5) == pytest.approx(5.75 + 0.4)
    assert Episodes(costs, 0).jobs([CHUNK] * 2) == [1.75, 1.75]
    drawn = Episodes(costs._replace(spread=0.1), 0).jobs([CHUNK] * 4000)
    assert sum(drawn) / 4000 == pytest.approx(1.75, rel=0.01)


def test_the_guide_has_the_speeds_that_the_kept_costs_give(tmp_path: Path) -> None:
    """'13.8 times the speed of one core, and 14.5 with its trials side by side; with --eval-lag 1 it is 12.4.'"""
    costs = Costs.load(RESULTS, "HalfCheetah-v5")
    costs.save(tmp_path)
    assert Costs.load(tmp_path, "HalfCheetah-v5") == costs
    one = tables.seconds(costs, tables.ONE_CORE, 1)
    text = (Path(__file__).parents[2] / "docs" / "guide" / "many-cores.md").read_text(encoding="utf-8")
    for name in ("eval_lag 1", "eval_lag 2", tables.PRESET.name):
        (setup,) = (setup for setup in tables.SETUPS if setup.name == name)
        assert f"{one / tables.seconds(costs, setup, 16):.1f}" in text, name


def test_the_table_of_a_short_training() -> None:
    lines = tables.speed_table(COSTS, timesteps=20_000).splitlines()
    assert len(lines) == 2 + len(tables.SETUPS)
    speeds = [float(cell) for cell in lines[2].split("|")[2:-1]]
    assert speeds[0] == 1.0
    assert all(1.0 <= speed < cores * 1.05 for speed, cores in zip(speeds, tables.CORES, strict=True))
