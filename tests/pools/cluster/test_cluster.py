"""Risk: a training on a Ray cluster ends elsewhere than one on this machine, or not at all when nodes come and go."""

from __future__ import annotations

import contextlib
import copy
import importlib
import logging
import os
import random
import re
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calls_on_envs import CALLS, Curriculum, make
from calls_on_envs import SETTINGS as CALLED
from envs_for_tests import ToyError
from exclusive_env import Exclusive, built
from faults import SETTINGS, caught_warnings, seed_of, toy
from pools import opened
from processes import environment, started_script, wait_until
from training import Result, assert_same, assert_same_state, learn, train
from uneven import Uneven

from fastes import FastES, WorkerError, train_seeds
from fastes.errors import ClusterError
from fastes.es.optimizers import SGD
from fastes.pools.cluster import members
from fastes.pools.cluster.members import Member
from fastes.pools.cluster.messages import Step, Work, pack, unpack
from fastes.pools.cluster.ray_pool import RayPool
from fastes.pools.pool import Pool, run_to_end, side_by_side
from fastes.rollout.job import Request
from fastes.system.interrupts import signal_handlers_kept

os.environ.setdefault("RAY_gcs_rpc_server_connect_timeout_s", "60")  # on a busy machine
os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))  # nobody else is to use these clusters
ray = pytest.importorskip("ray")
from ray._common.utils import reset_ray_address  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 100 << 20}


def new_cluster(**head: Any) -> Cluster:
    """Its nodes find the modules of the tests, as those of a real one find what is installed there."""
    with pytest.MonkeyPatch.context() as patch, signal_handlers_kept():  # Ray's for SIGTERM would outlive the test
        patch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
        return Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False, **head})


def added(cluster: Cluster, **node: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch, signal_handlers_kept():  # Ray's for SIGTERM would outlive the test
        patch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
        return cluster.add_node(**{**NODE, **node})


def end(cluster: Cluster) -> None:
    """Without it, Ray would take the next `auto` for this cluster."""
    ray.shutdown()
    cluster.shutdown()
    reset_ray_address()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes with a core each."""
    made = new_cluster()
    added(made)
    yield made
    end(made)


@pytest.fixture
def emptied() -> Iterator[Cluster]:
    """One that has no core at its head, and one node that tests take away."""
    made = new_cluster(num_cpus=0)
    yield made
    end(made)


def train_on(cluster: Cluster, env: Any, generations: int, **settings: Any) -> Result:
    """What training.train does on this machine."""
    with FastES(env, cluster=cluster.address, **{"seed": 5, "target_return": "none", "preset": "default", **settings}) as model:
        return Result(*reversed((learn(model, generations), model.snapshot())))


def scalars(monkeypatch: pytest.MonkeyPatch, wanted: bool) -> None:
    """Let nodes follow the updates, or send them theta, whatever is less."""
    monkeypatch.setattr(RayPool, "follows", lambda self, request: wanted)


class Sent:
    """Messages to nodes, counted by the kind of parameters that they bring."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kinds: list[str] = []
        original = members.request_message

        def noting(open_: Any, parameters: Any) -> Any:
            self.kinds.append(type(parameters).__name__)
            return original(open_, parameters)

        monkeypatch.setattr(members, "request_message", noting)


class Falling(SGD):
    """An optimiser of the user's: each step is shorter than the one before."""

    def __init__(self, num_params: int) -> None:
        super().__init__(num_params, 0.0)
        self.scale = np.ones(1)

    def step(self, gradient: Any, learning_rate: float) -> Any:
        self.scale *= 0.9
        return super().step(gradient, float(learning_rate * self.scale[0]))

    def state(self) -> Any:
        return {**super().state(), "scale": self.scale.copy()}

    def load_state(self, state: Any) -> None:
        super().load_state(state)
        self.scale = state["scale"].copy()


def differences(returns: Any) -> Any:
    half = 0.05 * (returns[:, 0] - returns[:, 1])
    return np.stack([half, -half], axis=1)


VARIED: dict[str, dict[str, Any]] = {
    "recurrent": {"policy": "MlpLstmPolicy", "policy_kwargs": {"lstm_hidden_size": 3}},
    "adaptive-sigma": {
        "optimizer": "clipup",
        "max_speed": 0.1,
        "sigma_adaptation": "per_parameter",
        "episodes_per_candidate": "lin_2_4",
    },
    "adaptive-population": {
        "perturbed_fraction": 0.4,
        "obs_columns": "2,0",
        "generation_timesteps": 150,
        "max_population_size": 24,
        "obs_warmup": True,
    },
    "own-optimizer": {"optimizer": Falling, "shaping": differences},
}


@pytest.mark.parametrize(
    ("settings", "follow"),
    [
        *(pytest.param(settings, True, id=f"{name}-scalars") for name, settings in VARIED.items()),
        pytest.param(VARIED["adaptive-population"], False, id="adaptive-population-theta"),
        # nodes are told no more of these than theta
        *(
            pytest.param(VARIED[name], False, id=f"{name}-theta", marks=pytest.mark.slow)
            for name in ("recurrent", "adaptive-sigma", "own-optimizer")
        ),
    ],
)
def test_a_cluster_gives_the_bits_of_one_machine(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, follow: bool, settings: dict[str, Any]
) -> None:
    expected = train(Uneven, 4, **{**SETTINGS, **settings})
    scalars(monkeypatch, follow)
    sent = Sent(monkeypatch)
    assert_same(expected, train_on(cluster, Uneven, 4, **{**SETTINGS, **settings}))
    if follow:
        assert sent.kinds.count("FullState") <= 2, "each node gets one whole state, and follows from there"
        assert "Step" in sent.kinds
        assert "Theta" not in sent.kinds
    else:
        assert set(sent.kinds) == {"Theta"}


class Says(Uneven):
    """Says in info with which seed an episode began, and which action it allows."""

    def step(self, action: Any) -> Any:
        *rest, _ = super().step(action)
        return *rest, {"seed": -1 if self.env_seed is None else self.env_seed, "action_mask": [1, 1]}


def test_infos_come_from_all_nodes_in_job_order(cluster: Cluster) -> None:
    own = {**SETTINGS, "episodes_per_candidate": 2, "info_keywords": ("seed",)}
    told = []
    for where in ({"n_workers": 0}, {"cluster": cluster.address}):
        with caught_warnings() as messages, FastES(Says, preset="default", **where, **own) as model:  # type: ignore[arg-type]
            learn(model, 2)
            told.append(model.last_infos)
        assert sum("action masks" in message for message in messages) == 1
    assert told[0] == told[1]
    assert len({info["seed"] for info in told[0]}) == 8, "4 pairs of 2 episodes"


def test_trials_are_followed_each_by_its_own_states(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**SETTINGS, "trials": 2, "trials_fraction": 0.5}
    scalars(monkeypatch, True)

    def result(**where: Any) -> Any:
        with FastES(Uneven, **{**settings, "preset": "default"}, **where) as model:
            model.learn(1500)
            return model.snapshot()

    assert_same_state(result(n_workers=0), result(cluster=cluster.address))


def test_many_candidates_cost_few_bytes_each(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Under 64 bytes for each episode and node, up and down, beside a constant: Algorithm 2 of the paper."""
    traffic: dict[int, list[int]] = {}
    collect = RayPool.collect

    def noting(pool: RayPool, number: int) -> Any:
        open_ = pool.open_tickets[number]
        if open_.is_candidates:
            traffic.setdefault(len(open_.schedule.jobs), []).append(open_.down + open_.up)
        return collect(pool, number)

    monkeypatch.setattr(RayPool, "collect", noting)
    scalars(monkeypatch, True)
    short = toy(length=8)
    for population in (1200, 2400):
        settings = {**SETTINGS, "population_size": population}
        expected = train(short, 3, **settings)
        with caplog.at_level(logging.INFO, "fastes.cluster"):
            assert_same(expected, train_on(cluster, short, 3, **settings))
    few, many = (traffic[population][1:] for population in (1200, 2400))
    each = (max(many) - min(few)) / 1200 / 2  # two nodes
    assert 0 < each < 64
    assert max(many) < 2 * (64 * 2400 + 50_000)
    assert re.search(r"generation 3: [\d.]+ kB down, [\d.]+ kB up, 2 nodes \(theta is .*, the fitness .*\)", caplog.text)


DIFFERENT: list[dict[str, Any]] = [
    {"policy": "LinearPolicy", "policy_kwargs": {}, "population_size": 6, "normalize_obs": False},
    {"normalize_obs": True},
    {"normalize_obs": False, "noise_table_size": 6000},
    {"policy_kwargs": {"net_arch": [5]}, "seed": 8, "sigma_adaptation": "per_parameter", "episodes_per_candidate": 2},
]


async def _trained(pool: Pool, model: FastES, training: int) -> list[bytes]:
    """Four generations, each with its evaluation: the parameters and the returns of each."""
    candidates, evaluation = model.training.episode_settings()
    strategy, results = model.strategy, []
    pool.place_table(strategy.table, training)
    for number in range(4):
        normalizer, seeds = copy.copy(model.normalizer), model.training.eval_seeds(number)
        asked = Request(strategy.theta, normalizer, candidates, strategy.ask(), training=training, strategy=strategy)
        noise_free = Request(
            strategy.theta, normalizer, evaluation, eval_seeds=seeds, generation=number, training=training, strategy=strategy
        )
        tickets = pool.submit(asked), pool.submit(noise_free)
        batch, judged = [await pool.result(ticket) for ticket in tickets]
        strategy.tell(batch.returns.ravel())
        if model.settings.normalize_obs:
            model.normalizer.merge(batch.moments, batch.lengths.ravel())
        results.append(b"".join([strategy.theta.tobytes(), batch.returns.tobytes(), judged.returns.tobytes()]))
    strategy.table.release()
    return results


@pytest.mark.parametrize("follow", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["scalars", "theta"])
def test_trainings_that_differ_in_policy_and_settings_share_a_cluster(
    follow: bool, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second and the third have one seed and one theta, and other noise tables and statistics."""
    scalars(monkeypatch, follow)
    sent, expected = Sent(monkeypatch), []

    def models() -> list[FastES]:
        return [FastES(Uneven, n_workers=0, preset="default", **{**SETTINGS, **each}) for each in DIFFERENT]

    for model in models():
        with model:
            pool = opened(model.evaluator.pool_spec())
            expected.append(run_to_end(_trained(pool, model, 0)))
            pool.close()
    together, ray_pool = models(), RayPool(cluster.address)
    spec = replace(together[0].evaluator.pool_spec(), trainings=tuple(model.evaluator.needs()[0] for model in together))
    try:
        ray_pool.open(spec)
        with caught_warnings() as messages:
            found = run_to_end(side_by_side(*[_trained(ray_pool, model, number) for number, model in enumerate(together)]))
    finally:
        ray_pool.close()
        for model in together:
            model.close()
    assert found == expected
    assert not [message for message in messages if "waiting for a node" not in message], "each node follows each training"
    kinds = set(sent.kinds)
    assert {"Step", "FullState", "CachedState"} <= kinds if follow else kinds == {"Theta"}, kinds


def test_a_node_that_comes_to_another_state_is_corrected(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = train(Uneven, 5, **SETTINGS)
    scalars(monkeypatch, True)
    original, wrong = Member.message, list[str]()

    def corrupting(member: Member, *arguments: Any) -> bytes:
        work: Work = unpack(original(member, *arguments))
        asked = list(work.requests)
        for number, request in enumerate(asked):
            if isinstance(step := request.parameters, Step) and not wrong:
                wrong.append(member.name)
                asked[number] = request._replace(parameters=step._replace(fitness=step.fitness[::-1].copy()))
        return pack(work._replace(requests=tuple(asked)))

    monkeypatch.setattr(Member, "message", corrupting)
    with caught_warnings() as messages:
        assert_same(expected, train_on(cluster, Uneven, 5, **SETTINGS))
    told = [message for message in messages if "have the hash" in message]
    assert len(told) == 1
    assert told[0].startswith(f"{wrong[0]}: its parameters after generation ")
    assert told[0].endswith("it is sent all of them, results do not change")


@pytest.mark.slow
def test_nodes_that_never_agree_are_sent_theta(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = train(Uneven, 8, **SETTINGS)
    scalars(monkeypatch, True)
    monkeypatch.setattr("fastes.pools.cluster.members.key_of", lambda *_: bytes(16))
    with caught_warnings() as messages:
        assert_same(expected, train_on(cluster, Uneven, 8, **SETTINGS))
    assert 3 <= len([message for message in messages if "have the hash" in message]) <= 6


# --- nodes come and go -----------------------------------------------------------------------------------------------


def once_after(monkeypatch: pytest.MonkeyPatch, seconds: float, do: Callable[[], Any]) -> None:
    """Do something in the middle of a generation that is under way, so many seconds after its first jobs went out."""
    look, times = members.Membership.look, list[float]()

    def with_something(nodes: members.Membership) -> None:
        if any(member.ranges for member in nodes.ready()):
            times.append(time.monotonic())
            if len(times) > 1 and times[-1] > times[0] + seconds:
                times[:] = [float("inf")]
                do()
        look(nodes)

    monkeypatch.setattr(members.Membership, "look", with_something)


@pytest.mark.slow
def test_one_node_is_killed_and_one_comes_in_the_middle_of_a_generation(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 jobs of 0.1 to 0.4 s."""
    settings = {**SETTINGS, "population_size": 40}
    slow = toy(step_seconds=0.02)
    expected = train(slow, 3, n_workers=4, **settings)
    scalars(monkeypatch, True)
    doomed = added(cluster)
    members: list[list[int]] = []

    def note(model: FastES, record: Any) -> bool:
        members.append(sorted(member.workers for member in nodes_of(model).ready()))
        return record.generation < 3

    once_after(monkeypatch, 1.5, lambda: (cluster.remove_node(doomed, allow_graceful=False), added(cluster, num_cpus=2)))
    with caught_warnings() as messages, FastES(slow, cluster=cluster.address, preset="default", **settings) as model:
        wait_for_nodes(model, 3)
        model.learn(10**9, note)
        result = model.snapshot()
    cluster.remove_node(next(node for node in cluster.worker_nodes if node.get_resource_and_label_spec().num_cpus == 2))
    assert any(re.match(r"node \S+ \(\w+\) is lost; others play its jobs, results do not change", m) for m in messages)
    assert members[-1] == [1, 1, 2]
    assert_same_state(expected.state, result)


def nodes_of(model: FastES) -> members.Membership:
    pool = model.evaluator.pool
    assert isinstance(pool, RayPool)
    assert pool.nodes is not None
    return pool.nodes


def wait_for_nodes(model: FastES, count: int) -> None:
    deadline, pool = time.monotonic() + 60, model.evaluator.start()
    assert isinstance(pool, RayPool)
    while len(nodes_of(model).ready()) < count:
        assert time.monotonic() < deadline
        pool.turn(nodes_of(model))


@pytest.mark.slow
def test_without_nodes_a_training_waits_and_then_ends_whole(emptied: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    env = toy(step_seconds=0.01)  # a generation outlasts what notices the death of a node
    expected = train(env, 4, n_workers=2, **SETTINGS)
    monkeypatch.setattr(members, "WAIT_FOR_NODES", 3.0)
    monkeypatch.setattr(members, "SAY_AFTER", 1.0)
    node = added(emptied)
    with FastES(env, cluster=emptied.address, preset="default", **SETTINGS) as model:
        learn(model, 2)
        emptied.remove_node(node, allow_graceful=False)
        with caught_warnings() as messages, pytest.raises(ClusterError, match=r"no node of the cluster .* for \d seconds"):
            learn(model, 4)
        assert any("waiting for a node" in message for message in messages)
        assert model.generation == 2
        added(emptied)
        learn(model, 4)
        assert_same_state(expected.state, model.snapshot())


@pytest.mark.slow
def test_a_killed_driver_goes_on_from_its_checkpoint(cluster: Cluster, tmp_path: Path) -> None:
    """Its actors end with it, so that their cores are free for the next one."""
    code = f"""
        from faults import SETTINGS, toy
        from fastes import FastES
        model = FastES(toy(step_seconds=0.01), cluster={cluster.address!r}, preset="default", **SETTINGS)
        def note(model, record):
            model.save("model.zip")
            print(record.generation, flush=True)
        model.learn(10**9, note)
    """
    with started_script(code, tmp_path) as driver:
        assert driver.stdout is not None
        while driver.stdout.readline().strip() != "3":
            assert driver.poll() is None
    env = toy(step_seconds=0.01)
    expected = train(env, 6, n_workers=2, **SETTINGS)
    with FastES.load(tmp_path / "model.zip", env, cluster=cluster.address) as model:
        assert model.generation >= 3
        learn(model, 6)
        assert_same_state(expected.state, model.snapshot())


@pytest.mark.slow
def test_interrupts_at_any_moment_lose_no_answer(cluster: Cluster) -> None:
    """What a node said, or was sent, in the moment of Ctrl-C must not be waited for in the next `learn`."""
    env, rng, interrupts = toy(step_seconds=0.001), random.Random(0), 0
    expected = train(env, 30, n_workers=2, **SETTINGS)
    with FastES(env, cluster=cluster.address, preset="default", **SETTINGS) as model:
        learn(model, 1)
        while model.generation < 30:
            timer = threading.Timer(rng.uniform(0.05, 0.5), os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            try:
                learn(model, 30)
            except KeyboardInterrupt:
                interrupts += 1
            finally:
                with contextlib.suppress(KeyboardInterrupt):
                    timer.cancel()
                    timer.join()
        assert interrupts >= 3
        assert_same_state(expected.state, model.snapshot())


def test_several_seeds_share_a_cluster(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    scalars(monkeypatch, True)
    sent = Sent(monkeypatch)
    settings = {**SETTINGS, "preset": "default"}
    del settings["seed"]
    models = train_seeds(Uneven, 3, total_timesteps=400, cluster=cluster.address, **settings)
    for model in models:
        with FastES(Uneven, n_workers=0, seed=model.seed, **settings) as alone:
            alone.learn(400)
            assert_same_state(alone.snapshot(), model.snapshot())
        model.close()
    assert sent.kinds.count("Step") > sent.kinds.count("FullState")  # a whole one for a node that had no job of the last state


@pytest.mark.slow
def test_a_client_elsewhere_trains_through_the_heads_port() -> None:
    """As from a laptop: its driver runs on the head, by Ray's client."""
    port = free_port()
    made = new_cluster(ray_client_server_port=port)
    try:
        wait_until(lambda: listens(port), "the client's server is there")
        with FastES(Uneven, cluster=f"ray://127.0.0.1:{port}", preset="default", **SETTINGS) as model:
            learn(model, 3)
            assert_same_state(train(Uneven, 3, **SETTINGS).state, model.snapshot())
    finally:
        end(made)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as found:
        return found.connect_ex(("127.0.0.1", port)) == 0


# --- nodes that cannot be used, and errors ---------------------------------------------------------------------------


def test_other_versions_end_a_training_before_it_begins(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "wanted_versions", lambda source: {"numpy": "9.9"})
    with caught_warnings() as messages, pytest.raises(ClusterError) as caught:
        train_on(cluster, toy(), 1, **SETTINGS)
    text = str(caught.value)
    assert "can be used\nnode " in text
    assert text.count("it has other versions, and results depend on these:") == 2
    assert re.search(rf"numpy +9\.9 +{re.escape(np.__version__)}", text)
    assert len([message for message in messages if "is not used: it has other versions" in message]) == 2


def test_an_environment_that_nodes_do_not_have_is_told(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A module that is a file here, which only this machine's interpreters find."""
    (tmp_path / "only_here.py").write_text("from envs_for_tests import Toy\n\n\nclass Env(Toy):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("only_here")
    monkeypatch.setitem(sys.modules, "only_here", module)  # and away with it afterwards
    with caught_warnings(), pytest.raises(ClusterError, match=r"(?s)can be used.*No module named 'only_here'.*runtime_env"):
        train_on(cluster, module.Env, 1, **SETTINGS)


def test_an_exception_in_an_environment_is_the_one_of_a_local_training(cluster: Cluster) -> None:
    env = toy(fail_seeds=[seed_of(1, 2)])
    errors = []
    for where in ({"n_workers": 1}, {"cluster": cluster.address}):
        with FastES(env, preset="default", **SETTINGS, **where) as model, pytest.raises(WorkerError) as caught:
            learn(model, 3)
        errors.append(caught.value)
        assert model.generation == 1
    here, there = errors
    assert str(here).splitlines()[0] == str(there).splitlines()[0]
    assert "to play this episode again in one process: model.replay(2, " in str(there).splitlines()[1]
    assert (here.generation, here.env_seed) == (there.generation, there.env_seed)
    assert {here.job, there.job} <= {4, 5}, "both sides of the pair fail, one of them first"
    assert isinstance(there.__cause__, ToyError)


def test_what_a_nodes_pool_warns_of_is_told_here(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("fastes.pools.cluster.members.GRACE", 60.0)  # nobody else plays it meanwhile
    env = toy(kill_seeds=[seed_of(1, 2)], marker=str(tmp_path / "once"))
    with caught_warnings() as messages:
        result = train_on(cluster, env, 3, **SETTINGS)
    assert any(re.match(r"node \S+ \(\w+\): worker 0 died by signal SIGKILL in .*, generation 2", m) for m in messages)
    expected = train(toy(), 3, **SETTINGS)
    assert expected.records[-1].theta_norm == result.records[-1].theta_norm
    assert sum(record.jobs_rerun for record in result.records) == 1


@pytest.mark.slow
def test_a_connection_that_was_there_stays(cluster: Cluster) -> None:
    with signal_handlers_kept():
        ray.init(address=cluster.address, logging_level=logging.ERROR)
    try:
        with FastES(toy(), cluster="auto", preset="default", **SETTINGS) as model:
            learn(model, 1)
        assert ray.is_initialized()
        assert ray.get(ray.remote(lambda: 7).remote()) == 7
    finally:
        ray.shutdown()


def test_environments_of_all_nodes_are_given_calls_and_have_numbers_of_their_own(cluster: Cluster, tmp_path: Path) -> None:
    states, returns = [], []
    for address in (None, cluster.address):
        curriculum = Curriculum(CALLS)
        with FastES(make, n_workers=0 if address is None else None, cluster=address, **CALLED) as model:
            model.learn(24 * 8, curriculum)
            states.append(model.snapshot())
            returns.append(curriculum.returns)
    assert returns[0] == returns[1]
    assert_same_state(states[0], states[1])
    with FastES(lambda number: Exclusive(str(tmp_path), number), cluster=cluster.address, **CALLED) as model:
        model.learn(24)
        wait_until(lambda: {1, 2} <= set(built(tmp_path)), "both nodes build")
