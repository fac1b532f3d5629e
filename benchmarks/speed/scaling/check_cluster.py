"""The simulated cluster beside a real one of Ray: several nodes on this machine, whose episodes take time and no CPU.

It checks how jobs are handed out. Messages are a hundredth of these generations.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.speed.scaling.check import STEP_SECONDS, Compared, Sleeper
from benchmarks.speed.scaling.clock import FOREVER
from benchmarks.speed.scaling.cluster import ClusterGeneration, Nodes, Wire
from benchmarks.speed.scaling.costs import Costs
from benchmarks.speed.scaling.many_machines import moment_bytes, terms_bytes
from fastes import Callback, FastES
from fastes.training.record import Record

SHAPES = ((2, 4, 64, False), (2, 4, 64, True), (4, 4, 200, False), (4, 4, 200, True))  # nodes, workers, candidates, falls
_SHORTEST, _LONGEST = 5, 20  # steps
_SKIPPED = 3  # generations: environments are made, and an evaluation plays beside candidates
_OBS_SIZE = 2


class Stumbler(Sleeper):
    """Its episodes end after the steps that the seed says. The time of all of it is known beforehand."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        first = super().reset(seed=seed, options=options)
        self.length = self.rng.randint(_SHORTEST, _LONGEST)
        return first

    def step(self, action: Any) -> Any:
        observation, reward, _, _, info = super().step(action)
        return observation, reward, self.steps >= self.length, False, info

    def seconds(self, seed: int) -> float:
        """Of an episode."""
        self.reset(seed=seed)
        return self.length * STEP_SECONDS * self.factor


class Walker(Stumbler):
    """All of its episodes have the same steps."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        first = super().reset(seed=seed, options=options)
        self.length = _LONGEST
        return first


@contextmanager
def local_cluster(nodes: int, workers: int) -> Iterator[str]:
    """The address of a Ray cluster on this machine, with so many nodes of so many workers."""
    os.environ["RAY_AUTH_MODE"] = "token"  # nobody else is to use it
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # one a process: Ray keeps it
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.getcwd(), before)))
    import ray
    from ray._common.utils import reset_ray_address
    from ray.cluster_utils import Cluster

    node = {"num_cpus": workers, "object_store_memory": 100 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        for _ in range(nodes - 1):
            cluster.add_node(**node)
        yield cluster.address
    finally:
        ray.shutdown()
        cluster.shutdown()
        reset_ray_address()
        os.environ["PYTHONPATH"] = before


class Watch(Callback):
    """Wall seconds of generations, and the environment seeds of each one's candidates, (count, population)."""

    def __init__(self, count: int) -> None:
        self.count, self.seconds, self.seeds = count, list[float](), list[list[int]]()

    def on_start(self, model: FastES, total_timesteps: int) -> None:  # noqa: ARG002
        self._note(model)

    def on_generation(self, model: FastES, record: Record) -> bool:
        self.seconds.append(record.seconds)
        self._note(model)
        return len(self.seconds) < self.count

    def _note(self, model: FastES) -> None:
        self.seeds.append([int(seed) for seed in model.state.perturbations().env_seed[:, 0] for _ in range(2)])


def check_cluster(costs: Costs, nodes: int, workers: int, candidates: int, falls: bool, wire: Wire, count: int = 8) -> Compared:
    """Generations on the real cluster, and simulated with episodes of the same seeds."""
    env = Stumbler if falls else Walker
    settings: dict[str, Any] = {"preset": "default", "policy": "LinearPolicy", "population_size": candidates, "seed": 0}
    watch = Watch(count + _SKIPPED)
    with (
        local_cluster(nodes, workers) as address,
        FastES(env, cluster=address, target_return="none", eval_every=FOREVER, **settings) as model,
    ):
        model.learn(FOREVER, watch)
    clock, ratios = env(), list[float]()
    shape = Nodes(nodes * workers, workers, 0.0, terms_bytes(_OBS_SIZE), moment_bytes(_OBS_SIZE), workers + 2)
    for real, seeds in list(zip(watch.seconds, watch.seeds, strict=False))[_SKIPPED:]:
        jobs = [clock.seconds(seed) + costs.job_seconds for seed in seeds]
        ratios.append((ClusterGeneration(jobs, shape, wire).run().seconds + costs.update_seconds) / real)
    what = f"Ray, {nodes} nodes, {candidates} candidates that {'fall' if falls else 'do not fall'}"
    return Compared(what, nodes * workers, ratios, [1.0])
