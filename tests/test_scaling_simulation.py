"""Risk: the simulation of many workers gives numbers that nobody can check."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.speed.scaling import many_machines, one_machine
from benchmarks.speed.scaling.cluster import ClusterGeneration, Nodes, Wire, alone
from benchmarks.speed.scaling.cores import Cores, FairCores, RunQueues
from benchmarks.speed.scaling.costs import CHUNK, RESULTS, Costs, Episodes, growing_horizon
from benchmarks.speed.scaling.machine import Kind, Machine, Request
from benchmarks.speed.scaling.many_machines import greedy_seconds
from benchmarks.speed.scaling.plans import whole_training
from benchmarks.speed.scaling.training import Generation, Plan, Way, simulate
from fastes import FastES
from fastes.pools.cluster.messages import Draws, Played, Range, Reply, Step, Terms, Work, pack, runs_of
from fastes.pools.cluster.node import places_for
from fastes.rollout.episode import EpisodeSettings
from fastes.rollout.obs_normalizer import ObsNormalizer
from fastes.settings.preset_loader import choose_settings
from fastes.training.episode_cap import EpisodeCap

COSTS = Costs("HalfCheetah-v5", "", [CHUNK * 30e-6], 1e-4, 1e-4, 0.05, 1e-3, 3e-5, 103, 17, 0.01, [])
FREE = Wire(latency=0.0, message_seconds=0.0, bytes_per_second=math.inf)


def one_training(generations: list[Generation], update_seconds: float = 0.0) -> Plan:
    return Plan([], [], generations, update_seconds)


def wall(plan: Plan, way: Way, cores: Cores, workers: int, spares: int = 0) -> float:
    return simulate(Machine(cores, workers, spares), [plan], way)


@pytest.mark.parametrize("kind", [FairCores, RunQueues])
@pytest.mark.parametrize("lag", [0, 1, 3])
@pytest.mark.parametrize("spares", [0, 2])
def test_one_core_takes_the_sum_of_all_work(kind: type[FairCores] | type[RunQueues], lag: int, spares: int) -> None:
    plan = whole_training(COSTS, choose_settings("HalfCheetah-v5", None, {"total_timesteps": 40_000}), 1000, 0, 1)
    assert wall(plan, Way(lag), kind(1), 1, spares) == pytest.approx(plan.work())
    assert wall(plan, Way(lag, side_by_side=True), kind(1), 1, spares) == pytest.approx(plan.work())


@pytest.mark.parametrize("kind", [FairCores, RunQueues])
def test_work_is_neither_lost_nor_made(kind: type[FairCores] | type[RunQueues]) -> None:
    settings = choose_settings("HalfCheetah-v5", None, {"total_timesteps": 40_000})
    plans = [whole_training(COSTS, settings, 1000, seed, 8) for seed in range(3)]
    cores = kind(8)
    seconds = simulate(Machine(cores, 8, 3), plans, Way(2))
    assert cores.busy == pytest.approx(sum(plan.work() for plan in plans))
    assert cores.busy <= 8 * seconds


def test_cores_without_end_take_the_critical_path() -> None:
    generations = [Generation([1.0, 2.0], [7.0]), Generation([3.0, 1.0], [5.0]), Generation([2.0, 1.0], [4.0])]
    plan = one_training(generations, 0.5)
    assert wall(plan, Way(0), FairCores(100), 100) == 7 + 5 + 4 + 3 * 0.5
    # lag 1: generation 1 waits for the evaluation that began with generation 0, the last one for all
    second = 2 + 0.5
    second_ends = max(second + 3, 0 + 7)
    assert second_ends == 7
    third = second_ends + 0.5
    assert wall(plan, Way(1), FairCores(100), 100) == max(max(third + 2, second + 5) + 0.5, third + 4)
    assert wall(plan, Way(9), FairCores(100), 100) == 2 + 0.5 + 3 + 0.5 + max(2 + 0.5, 4)


def test_candidates_are_claimed_before_evaluations_of_earlier_generations() -> None:
    # one worker: candidate 1, then the evaluation that is due with generation 1, in which its candidate comes first
    plan = one_training([Generation([1.0], [2.0]), Generation([1.0], [2.0])])
    assert wall(plan, Way(1), FairCores(1), 1) == 6.0
    # two workers: an evaluation holds the second one while the next generation's two candidates take turns on the first
    plan = one_training([Generation([1.0, 1.0], [2.0]), Generation([1.0, 1.0], [])])
    assert wall(plan, Way(1), FairCores(2), 2) == 3.0
    # with a spare process the three share two cores: 1.5 for the candidates, then 0.5 more of the evaluation
    plan = one_training([Generation([1.0, 1.0], [2.0])])
    assert wall(plan, Way(1), FairCores(2), 2, 1) == pytest.approx(1.5 + 1.0)


def test_before_lags_evaluations_are_claimed_first() -> None:
    plan = one_training([Generation([1.0, 1.0], [2.0])])
    assert wall(plan, Way(0), FairCores(2), 2) == 2.0


@pytest.mark.parametrize(("kind", "expected"), [(FairCores, [1.5, 1.5, 1.5]), (RunQueues, [1.0, 1.5, 1.5])])
def test_three_processes_on_two_cores(kind: type[FairCores] | type[RunQueues], expected: list[float]) -> None:
    cores, now, ends = kind(2), 0.0, list[float]()
    for _ in range(3):
        cores.start(1.0, lambda: None)
    while end := cores.advance():
        now += end.seconds
        ends.append(now)
    assert ends == pytest.approx(expected)
    assert cores.busy == pytest.approx(3.0)


def test_run_queues_share_worse_than_fair_cores() -> None:
    """Five processes on four cores: 1.25 where all advance alike, 1.5 where two share a core until another is idle."""
    plan = one_training([Generation([1.0] * 5, [])])
    assert wall(plan, Way(0), FairCores(4), 5) == pytest.approx(1.25)
    assert wall(plan, Way(0), RunQueues(4), 5) == pytest.approx(1.5)


def test_the_parent_does_one_thing_at_a_time() -> None:
    plans = [one_training([Generation([1.0], [])] * 2, 0.25) for _ in range(2)]
    assert simulate(Machine(FairCores(8), 8), plans, Way(0)) == pytest.approx(1 + 0.25 + 1 + 0.25 + 0.25)
    assert simulate(Machine(FairCores(8), 8), plans[:1], Way(0)) == pytest.approx(2.5)


def test_starts_one_after_the_other_and_side_by_side() -> None:
    start = [Generation([1.0, 1.0], [])]
    plan = Plan([start, start], [[3.0], [2.0]], [Generation([1.0, 1.0], [])], 0.0)
    assert wall(plan, Way(0), FairCores(4), 4) == (1 + 3) + (1 + 2) + 1
    assert wall(plan, Way(0, side_by_side=True), FairCores(4), 4) == (1 + 3) + 1
    assert wall(plan, Way(0, side_by_side=True), FairCores(2), 2) == (2 + 3) + 1


def test_the_oldest_open_request_comes_first() -> None:
    machine, told = Machine(FairCores(1), 1), list[str]()
    machine.ask(Request(Kind.EVALUATIONS, [1.0], lambda: told.append("evaluation")))
    machine.ask(Request(Kind.CANDIDATES, [1.0, 1.0], lambda: told.append("first")))
    machine.ask(Request(Kind.CANDIDATES, [1.0], lambda: told.append("second")))
    assert machine.run() == 4.0
    assert told == ["first", "second", "evaluation"]


def test_the_horizon_grows_as_training_lets_it() -> None:
    settings = choose_settings("HalfCheetah-v5", None, {"max_episode_steps": 1000})
    cap, caps = EpisodeCap(settings), list[int]()
    for _ in range(400):
        caps.append(cap.steps)
        cap.update(2 * cap.steps, 2, 2)
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


def test_a_cluster_of_one_worker_takes_the_sum_and_what_messages_cost() -> None:
    jobs = [0.3, 0.2, 0.5]
    spent = ClusterGeneration(jobs, Nodes(1, 16, 0.1, 0, 8), FREE).run()
    assert spent.seconds == pytest.approx(alone(jobs, 0.1)) == pytest.approx(1.1)


def test_a_cluster_with_a_worker_a_job_takes_the_longest_one() -> None:
    spent = ClusterGeneration([0.1 * k for k in range(1, 33)], Nodes(32, 16, 0.5, 0, 8), FREE).run()
    assert spent.seconds == pytest.approx(0.5 + 3.2)


def test_a_generation_of_two_nodes_by_hand() -> None:
    """Each gets a job with the returns, tells of its end, and is asked for its sums when all have ended."""
    wire = Wire(latency=1.0, message_seconds=0.25, bytes_per_second=math.inf)
    spent = ClusterGeneration([10.0, 10.0], Nodes(2, 1, 2.0, 0, 8), wire).run()
    # node 1: sent at 0.25, there at 1.25, updated at 3.25, played at 13.25, heard from at 14.25 to 14.5
    # node 2: sent at 0.5, there at 1.5, updated at 3.5, played at 13.5, heard from at 14.5 to 14.75
    # sums: asked for at 15 and 15.25, there at 17 to 17.25, and at 17.25 to 17.5
    assert spent.messages == 2 * 4
    assert spent.seconds == pytest.approx(17.5)


def test_bytes_of_a_cluster() -> None:
    jobs, wire = [1.0] * 100, Wire()
    spent = ClusterGeneration(jobs, Nodes(32, 16, 0.0, 700, 1000), wire).run()
    assert spent.bytes_down + spent.bytes_up == wire.header * spent.messages + 2 * (100 * 8 + 700) + 100 * 24 + 2 * 1000


def test_bytes_are_those_of_packed_messages() -> None:
    wire, obs_size = Wire(), 100
    jobs = np.arange(512)

    def played(count: int) -> int:
        lengths, cuts = np.ones(count, np.int32), np.zeros(count, np.int32)
        returns = np.random.default_rng(0).standard_normal(count)
        answer = Played(1, returns, lengths, np.full(count, np.nan), cuts, None, 1.0, 0, "")
        return len(pack(Reply((answer,), ())))

    assert (played(512) - played(256)) / 256 == wire.episode_up
    assert len(pack(Work(7, (3,), (), (), (Range(1, 3, runs_of(jobs)),)))) == pytest.approx(wire.header, rel=0.1)

    def stepped(candidates: int) -> int:
        step = Step(bytes(16), 1.0, 0, np.random.default_rng(0).standard_normal((candidates // 2, 2)), bytes(16))
        draws = Draws(0, 0, candidates // 2, 0.1, 0, 1.0)
        return len(pack(Terms(1, 0, step, draws, np.zeros(0, np.int64), ObsNormalizer(obs_size), EpisodeSettings(), 0, False)))

    assert (stepped(2000) - stepped(1000)) / 1000 == wire.episode_down
    assert stepped(1000) - 1000 * wire.episode_down == pytest.approx(many_machines.terms_bytes(obs_size), abs=40)


def test_a_node_takes_as_many_ranges_as_the_programs() -> None:
    population = {"population_size": many_machines.LARGE_POPULATION, "noise_table_size": 100_000}
    with FastES("Humanoid-v5", preset="default", n_workers=0, seed=0, **population) as model:
        assert places_for(model.evaluator.pool_spec(), many_machines.PER_NODE) == many_machines.PLACES


def test_equal_jobs_wait_for_no_part_of_a_round() -> None:
    """Ranges are whole rounds of a node, so that no worker idles before the last round."""
    jobs = [1.0] * (7 * 64 - 3)
    assert ClusterGeneration(jobs, Nodes(64, 16, 0.0, 0, 8), FREE).run().seconds == pytest.approx(7.0)
    assert greedy_seconds(jobs, 64) == 7.0


def test_more_nodes_than_jobs_is_no_trouble() -> None:
    spent = ClusterGeneration([1.0] * 5, Nodes(160, 16, 0.0, 0, 8), FREE).run()
    assert spent.seconds == pytest.approx(1.0)


def test_tables_of_the_costs_that_are_kept(tmp_path: Path) -> None:
    cheetah = Costs.load(RESULTS, "HalfCheetah-v5")
    cheetah.save(tmp_path)
    assert Costs.load(tmp_path, "HalfCheetah-v5") == cheetah
    table = one_machine.tables(cheetah, timesteps=20_000)
    assert table.count("lag 2") >= 10
    speeds = [float(cell) for cell in table.splitlines()[4].split("|")[2:-1]]
    assert speeds[0] == 1.0
    assert all(1.0 <= speed < cores * 1.05 for speed, cores in zip(speeds, one_machine.CORES, strict=True))


def test_points_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_machines, "LARGE_POPULATION", 400)
    humanoid = Costs.load(RESULTS, "Humanoid-v5")._replace(large_update_seconds=0.001)
    for stage in many_machines.stages(humanoid, 0.05):
        one, some, many = (many_machines.point(stage, humanoid, workers, Wire()) for workers in (1, 40, 400))
        assert one.efficiency > 0.98, stage.name
        assert one.efficiency > some.efficiency > many.efficiency > 0.0
        assert all(each.efficiency <= each.bound + 1e-9 for each in (one, some, many))
