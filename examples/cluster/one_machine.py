"""Train on a Ray cluster, which this script starts on one machine: the result is that of workers without Ray, bit for bit."""

import numpy as np
import ray

from fastes import FastES

ray.init("local", num_cpus=2, include_dashboard=False)
with FastES("CartPole-v1", cluster="auto", seed=0) as on_cluster, FastES("CartPole-v1", n_workers=2, seed=0) as on_workers:
    on_cluster.learn(20_000)
    on_workers.learn(20_000)
    print("return", on_cluster.evaluate(10).mean, "the same parameters:", np.array_equal(on_cluster.theta, on_workers.theta))
ray.shutdown()
