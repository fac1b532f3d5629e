"""Risk: the parts of a cluster's pool lose a job, count one twice, or follow another training; all without Ray."""

from __future__ import annotations

import random
import sys
import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import cloudpickle
import numpy as np
import pytest
from faults import SETTINGS, toy
from hypothesis import given
from hypothesis import strategies as st
from pools import with_needs

from fastes import EvolutionStrategy, FastES, _core
from fastes.envs.source import make_env_source
from fastes.errors import ClusterError
from fastes.pools.cluster import node_report
from fastes.pools.cluster.connection import Connection, check_cluster
from fastes.pools.cluster.members import Member, Parameters
from fastes.pools.cluster.messages import (
    CachedState,
    FullState,
    Joined,
    Played,
    Range,
    Step,
    jobs_of,
    runs_of,
    unpack,
)
from fastes.pools.cluster.node import Node
from fastes.pools.cluster.replica import Diverged, NotHeld, Replicas, key_of, key_of_theta
from fastes.pools.cluster.schedule import InFlight, Load, OpenTicket, Schedule, sizes
from fastes.rollout.job import Request
from fastes.rollout.obs_normalizer import MomentSums

# --- jobs ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 500), unique=True))
def test_runs_are_the_jobs_in_their_order(jobs: list[int]) -> None:
    assert jobs_of(runs_of(np.array(jobs, dtype=np.int64))).tolist() == jobs


def test_a_range_of_neighbours_is_one_run() -> None:
    assert runs_of(np.arange(7, 5000)).tolist() == [[7, 5000]]


@pytest.mark.parametrize("seed", range(60))
def test_whatever_nodes_do_each_job_counts_once(seed: int) -> None:
    """Nodes answer in any order, twice, late or never, and are lost and replaced."""
    rng = random.Random(seed)
    jobs, workers = rng.randint(1, 300), [rng.randint(1, 16) for _ in range(rng.randint(1, 5))]
    schedule, number, nodes = Schedule(np.arange(jobs)), 0, dict(enumerate(workers))
    out: list[tuple[int, int]] = []  # range, node
    counted: list[int] = []
    while not schedule.all_done:
        number += 1
        assert number < 20_000, "it does not end"
        node = rng.choice(list(nodes))
        mine = [each for each in out if each[1] == node]
        load = Load(nodes[node], len(mine) % 3, 0, 1000)
        for count in sizes(schedule.waiting, load, sum(nodes.values())) or [0]:
            taken = schedule.take(count) if count else np.array(schedule.late(node, 2.0)[:2], dtype=np.int64)
            if len(taken):
                number += 1
                schedule.give(number, InFlight(node, taken, 1.0))
                out.append((number, node))
        what = rng.random() if number < 1000 else 0.0  # no more disturbances then
        if out and what < 0.7:
            answered = rng.choice(out)
            if rng.random() < 0.8:  # else it will be answered again
                out.remove(answered)
            finished = schedule.finish(answered[0])
            if finished is not None:
                counted += schedule.jobs[finished[1]].tolist()
        elif what < 0.75:
            schedule.lose(node)
        elif what < 0.8 and counted:
            lost = np.array([rng.choice(counted)])
            schedule.undo(schedule.positions(lost))
            counted.remove(lost[0])
    assert sorted(counted) == list(range(jobs))
    assert schedule.waiting == 0 or set(schedule.take(jobs).tolist()) <= set(counted)


def test_ranges_shrink_and_end_in_single_jobs() -> None:
    assert sizes(1000, Load(10, 0, 0, 12), 40) == [120], "whole rounds of ten, half of its share or a little more"
    assert sizes(500, Load(7, 0, 0, 12), 40) == [42]
    assert sizes(100, Load(10, 1, 20, 12), 40) == [10]
    assert sizes(100, Load(10, 2, 20, 12), 40) == [], "two are out, and enough to do"
    assert sizes(60, Load(10, 0, 0, 12), 40) == [1] * 10
    assert sizes(60, Load(10, 2, 7, 12), 40) == [1] * 3
    assert sizes(60, Load(10, 2, 10, 12), 40) == []
    assert sizes(60, Load(10, 0, 0, 2), 40) == [5, 5], "it has all the ranges that it may, and no worker idles"
    assert sizes(60, Load(10, 1, 3, 3), 40) == [4, 3]
    assert sizes(500, Load(10, 0, 0, 12), 10) == [500], "a single node gets all"
    assert sizes(1000, Load(16, 0, 0, 18), 1440) == [16], "two thirds of a round go out: what is left would be many messages"
    assert sizes(720, Load(16, 0, 0, 18), 1440) == [1] * 16


def test_a_slow_node_holds_up_no_generation() -> None:
    schedule = Schedule(np.arange(4))
    schedule.give(1, InFlight("slow", schedule.take(3), late=2.5))
    schedule.give(2, InFlight("fast", schedule.take(1), late=1.5))
    schedule.finish(2)
    assert schedule.late("fast", 2.4) == []
    assert schedule.late("fast", 2.6) == [0, 1, 2]
    assert schedule.late("slow", 2.6) == [], "it has them"
    schedule.give(3, InFlight("fast", np.array([0, 1, 2]), late=9.0))
    schedule.finish(3)
    assert schedule.all_done
    late = schedule.finish(1)
    assert late is not None
    assert late[0].tolist() == [], "nothing of it counts"


def test_a_node_that_is_elsewhere_is_corrected_once_for_all_of_its_ranges() -> None:
    open_, _ = ticket(num_pairs=8)
    asked = [(open_, Parameters(open_, True, None))]
    member = Member("id", "node", 2, None, 8)

    def send(*numbers: int) -> None:
        ranges = [Range(number, open_.number, runs_of(np.array([0]))) for number in numbers]
        member.message(ranges, asked, (open_.number,))

    send(5, 6)
    send(7)
    assert member.distrust(open_.number, 6)
    assert not member.distrust(open_.number, 5), "the same fault"
    send(8)
    assert not member.distrust(open_.number, 7), "it was sent before the whole state"
    assert member.distrust(open_.number, 8), "a fault of the whole state"


def test_a_node_that_owes_something_is_late_by_the_pace_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("fastes.pools.cluster.members.time.monotonic", lambda: clock[0])
    open_, _ = ticket(num_pairs=8)
    member = Member("id", "node", 2, None, 8)
    member.give([1], [open_.schedule.take(4)], open_, None)
    assert not member.is_late(1e9), "nobody knows how long it takes"
    clock[0] = 110.0
    assert member.answered(1) is open_
    assert member.pace(True) == 5.0, "two rounds of two workers"
    assert member.pace(False) is None
    member.give([2, 3], [open_.schedule.take(2), open_.schedule.take(2)], open_, 1.0)
    assert not member.is_late(111.9)
    assert member.is_late(112.1), "half a second, and one and a half rounds"
    assert member.load() == (2, 2, 4, 0)


# --- results ---------------------------------------------------------------------------------------------------------


def ticket(num_pairs: int = 2, **changes: Any) -> tuple[OpenTicket, Any]:
    with FastES(toy(), preset="default", n_workers=0, **{**SETTINGS, "population_size": 2 * num_pairs, **changes}) as model:
        perturbations, spec = model.training.ask(), model.evaluator.pool_spec()
        request = Request(perturbations.theta, model.normalizer, model.training.episode_settings()[0], perturbations)
        return OpenTicket(1, request, spec), spec


def played(number: int, returns: list[float], obs_size: int = 3, rows: bool = True) -> Played:
    count = len(returns)
    moments = np.ones((count, 2, obs_size)) if rows else None
    counts = np.full(count, 9, np.int32)
    return Played(number, np.array(returns), counts, np.full(count, np.nan), 0 * counts, moments, 1.0, 0, "")


def give(open_: OpenTicket, number: int, node: str, jobs: Any) -> None:
    open_.schedule.give(number, InFlight(node, jobs, late=1.0))


def test_late_and_double_results_are_dropped() -> None:
    open_, _ = ticket()
    give(open_, 1, "a", open_.schedule.take(2))
    give(open_, 2, "b", open_.schedule.take(2))
    give(open_, 3, "b", np.array([0, 1]))
    assert open_.book(played(3, [1.0, 2.0]))
    assert open_.book(played(1, [8.0, 8.0])), "late: it was played twice"
    assert not open_.book(played(1, [7.0, 7.0])), "it was answered"
    assert not open_.book(played(99, [7.0, 7.0])), "nobody was asked"
    assert not open_.is_finished
    open_.book(played(2, [3.0, 4.0]))
    assert open_.is_finished
    batch = open_.batch()
    assert batch.returns.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert batch.busy_seconds == 2.0
    assert batch.rerun == 0


def test_infos_are_those_of_the_result_that_came_first() -> None:
    without, spec = ticket()
    open_ = OpenTicket(1, without.request, replace(spec, info_bytes=100))
    infos = [[({"job": job, "from": who},) for job in range(4)] for who in "abc"]
    give(open_, 1, "a", open_.schedule.take(2))
    give(open_, 2, "b", open_.schedule.take(2))
    give(open_, 3, "c", np.array([0, 1]))
    for number, whose, jobs in ((3, 2, (0, 1)), (1, 0, (0, 1)), (2, 1, (2, 3))):
        open_.book(played(number, [1.0, 2.0])._replace(infos=tuple(infos[whose][job] for job in jobs)))
    assert open_.batch().infos == (infos[2][0], infos[2][1], infos[1][2], infos[1][3])


def test_sums_are_asked_for_once_and_again_where_they_are_lost() -> None:
    open_, _ = ticket(num_pairs=600)
    assert not open_.sends_rows
    jobs = open_.schedule.take(1200)
    give(open_, 1, "a", jobs[:700])
    give(open_, 2, "b", jobs[700:])
    open_.book(played(1, [1.0] * 700, rows=False))
    assert open_.sums_to_ask_for() == {}, "not before all are done"
    open_.book(played(2, [1.0] * 500, rows=False))
    asked = open_.sums_to_ask_for()
    assert {node: len(its) for node, its in asked.items()} == {"a": 700, "b": 500}
    assert open_.sums_to_ask_for() == {}
    sums = MomentSums.of(np.ones((1, 2, 3)), np.ones(1, dtype=np.int64))
    open_.add_sums("a", sums)
    open_.lose("b")
    assert not open_.is_finished
    assert open_.schedule.waiting == 500, "only that node had these"
    give(open_, 3, "a", open_.schedule.take(500))
    open_.book(played(3, [1.0] * 500, rows=False))
    assert {node: len(its) for node, its in open_.sums_to_ask_for().items()} == {"a": 500}
    open_.add_sums("a", sums)
    assert open_.is_finished
    assert open_.batch().moments.observations == 2  # type: ignore[union-attr]


# --- states that nodes hold ------------------------------------------------------------------------------------------


def strategy(**changes: Any) -> EvolutionStrategy:
    return EvolutionStrategy(np.linspace(-1.0, 1.0, 50), seed=3, keep_best=False, **{"population_size": 8, **changes})


def step_of(es: EvolutionStrategy, progress: float = 1.0) -> Step:
    before = key_of(es, 0)
    candidates = es.ask(progress)
    es.tell([-float(np.square(x).sum()) for x in candidates])
    assert es.last_tell is not None
    return Step(before, *es.last_tell, key_of(es, 0))


def whole(es: EvolutionStrategy) -> FullState:
    return FullState(cloudpickle.dumps(es), key_of(es, 0))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sigma": "lin_0.1", "learning_rate": lambda progress: 0.01 + 0.1 * progress},
        {"optimizer": "clipup", "max_speed": 0.1, "sigma_adaptation": "per_parameter"},
        {"perturbed_fraction": 0.5, "shaping": "standardized", "weight_decay": 0.01},
    ],
)
def test_a_replica_takes_the_same_steps(changes: dict[str, Any]) -> None:
    es, replicas = strategy(**changes), Replicas()
    replicas.find(whole(es), None)
    for generation in range(4):
        progress = 1.0 - 0.2 * generation
        step = step_of(es, progress)
        found = replicas.find(step, None)
        assert found.theta.tobytes() == es.theta.tobytes()
        assert {name: x.tobytes() for name, x in found.state().items()} == {name: x.tobytes() for name, x in es.state().items()}
        ours, theirs = es.ask(progress), found.ask(progress)
        assert [x.tobytes() for x in ours] == [x.tobytes() for x in theirs]
        assert replicas.theta(key_of_theta(es.theta)).tobytes() == es.theta.tobytes()


def test_another_state_is_noticed_and_not_kept() -> None:
    es, replicas = strategy(), Replicas()
    replicas.find(whole(es), None)
    step = step_of(es)
    wrong = step.fitness.copy()
    wrong[0, 0], wrong[1, 1] = wrong[1, 1], wrong[0, 0]
    with pytest.raises(Diverged, match=r"after generation 1 have the hash [0-9a-f]{32}, expected"):
        replicas.find(step._replace(fitness=wrong), None)
    assert replicas.find(step, None).theta.tobytes() == es.theta.tobytes()
    with pytest.raises(NotHeld):
        replicas.find(step._replace(before=b"x", key=b"y"), None)
    replicas.drop(step.key)
    with pytest.raises(NotHeld):
        replicas.find(CachedState(step.key), None)
    with pytest.raises(NotHeld):
        replicas.theta(key_of_theta(es.theta))


def test_what_was_not_told_is_no_step() -> None:
    """Whoever follows would come to another state."""
    es = strategy()
    for change in (
        lambda: es.restart(es.theta + 1),
        lambda: es.reseed(9),
        lambda: setattr(es, "theta", np.zeros(50)),
        lambda: es.load_state(es.state(), 7),
    ):
        step_of(es)
        change()
        assert es.last_tell is None


# --- nodes that are refused ------------------------------------------------------------------------------------------


def answer_of(spec: Any, wanted: dict[str, str] | None = None, workers: int = 1) -> Joined:
    """What a node says to a spec, without Ray. One that takes it is told to leave."""
    node = Node("node 10.0.0.2", workers)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own = {"fastes": node_report.version_of("fastes")}
        joined: Joined = unpack(node.join(wanted or own, cloudpickle.dumps(spec), EMPTY))
    node.leave()
    return joined


EMPTY = cloudpickle.dumps({})


def spec_of(env: Any = None, **changes: Any) -> Any:
    with FastES(env or toy(), preset="default", n_workers=0, **{**SETTINGS, **changes}) as model:
        return model.evaluator.pool_spec()


def test_other_versions_are_told_in_a_table() -> None:
    wanted = node_report.wanted_versions(make_env_source("CartPole-v1"))
    assert set(wanted) >= {"python", "machine", "fastes", "fastes._core", "numpy", "gymnasium"}
    refusal = answer_of(spec_of(), {**wanted, "numpy": "9.9", "some-package": "1.0"}).refusal
    lines = refusal.splitlines()
    assert lines[0] == "it has other versions, and results depend on these:"
    assert lines[1].split() == ["here", "node", "10.0.0.2"]
    assert lines[2].split() == ["numpy", "9.9", np.__version__]
    assert lines[3].split() == ["some-package", "1.0", "not", "installed"]
    assert len(lines) == 4


@pytest.mark.parametrize(("core", "said"), [({"SOURCE_HASH": "0badc0de"}, "0badc0de"), ({}, "an earlier build")])
def test_a_core_that_was_built_from_other_sources_is_refused(
    core: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node whose files are the same, where nobody has built them since."""
    wanted = {name: node_report.version_of(name) for name in ("fastes", "fastes._core")}
    monkeypatch.setattr(node_report, "version_of", node_report.version_of.__wrapped__)
    monkeypatch.setattr(node_report, "_core", SimpleNamespace(**core))
    refusal = answer_of(spec_of(), wanted).refusal
    assert [line.split(maxsplit=2) for line in refusal.splitlines()[2:]] == [["fastes._core", _core.SOURCE_HASH, said]]


def test_the_environments_package_counts() -> None:
    pytest.importorskip("mujoco")
    assert "mujoco" in node_report.wanted_versions(make_env_source("HalfCheetah-v5"))
    assert "pytest" in node_report.wanted_versions(make_env_source(pytest.main))  # type: ignore[arg-type]


def test_a_node_without_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of("Toy-v0")
    monkeypatch.setitem(sys.modules, "envs_for_tests", None)
    refusal = answer_of(spec).refusal
    assert "envs_for_tests" in refusal
    assert "node" not in refusal, "who says it is told by the driver"


def test_a_node_whose_environment_fails_is_refused() -> None:
    spec = replace(spec_of(), source=make_env_source(toy(build_error="no display")))
    refusal = answer_of(spec).refusal
    assert "no display" in refusal


def test_a_node_with_too_little_memory_is_refused() -> None:
    refusal = answer_of(with_needs(spec_of(), table_size=10**13)).refusal
    assert "not enough memory: 40 TB needed" in refusal
    assert "a noise table of 10,000,000,000,000 values" in refusal


def test_a_node_that_fits_takes_ranges() -> None:
    joined = answer_of(spec_of(), workers=1)
    assert (joined.refusal, joined.max_ranges) == ("", 3)


# --- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cluster", ["", "Auto", "host", "host:", "host:0", "host:70000", "http://host:80", "ray://", "a b:1"])
def test_an_address_that_is_none_is_told(cluster: str) -> None:
    with pytest.raises(ValueError, match=r"cluster = .*: expected 'auto', 'host:port' or 'ray://host:port'"):
        check_cluster(cluster, make_env_source("CartPole-v1"), None)


def test_an_argument_of_another_type_is_told() -> None:
    with pytest.raises(TypeError, match=r"cluster = True is a bool: expected 'auto'"):
        FastES("CartPole-v1", cluster=True)  # type: ignore[arg-type]


def test_what_does_not_go_together_is_told() -> None:
    import gymnasium

    with pytest.raises(ValueError, match=r"n_workers = 4 with cluster = 'auto': each node has a worker per CPU"):
        FastES("CartPole-v1", cluster="auto", n_workers=4)
    envs = gymnasium.make_vec("CartPole-v1", 2)
    with pytest.raises(ValueError, match=r"cluster = 'auto' cannot be used with .*, which lives in this process"):
        FastES(envs, preset="unbiased", cluster="auto")
    envs.close()


def test_missing_ray_is_told_with_what_installs_it(monkeypatch: pytest.MonkeyPatch, no_process: None) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"cluster needs Ray, which cannot be imported \(.*\): pip install .*\[ray\]"):
        FastES("CartPole-v1", cluster="auto")


def test_an_address_where_nobody_listens_is_told_at_once() -> None:
    pytest.importorskip("ray")
    with pytest.raises(ClusterError, match=r"no Ray cluster answers at 'ray://127.0.0.1:9' \(.*refused\)"):
        Connection("ray://127.0.0.1:9")
