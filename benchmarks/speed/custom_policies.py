"""The time of a step of a custom policy over its own forward. Refuses to time a policy that acts unlike the bare module."""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from benchmarks.machine import describe
from benchmarks.speed.timing import interleaved_seconds, median_ratio, repeated
from benchmarks.tables import markdown_table
from fastes import CallablePolicy, TorchPolicy
from fastes.policies.choose_policy import spec_for

AIM = 1.20  # of the bare forward
CLIP = 5.0


class Sizes(NamedTuple):
    """How long to measure.

    calls: steps a timing.
    repeats: timings of each.
    """

    calls: int = 2_000
    repeats: int = 31


QUICK = Sizes(calls=20, repeats=3)


class TimedModule(NamedTuple):
    """A module, the spaces it acts between, and whether observations are normalised (and counted)."""

    module: nn.Module
    observations: spaces.Box
    actions: spaces.Space[Any]
    normalize: bool = True


def tanh_layers(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def modules() -> dict[str, TimedModule]:
    torch.manual_seed(0)
    box, actions = spaces.Box(-np.inf, np.inf, (17,), np.float64), spaces.Box(-1.0, 1.0, (6,), np.float32)
    convolutions = nn.Sequential(
        nn.Conv2d(4, 8, 8, stride=4),
        nn.ReLU(),
        nn.Conv2d(8, 16, 4, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 9 * 9, 6),
    )
    images = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    return {
        "MLP 17-64-64-6 tanh, normalised": TimedModule(tanh_layers(17, 64, 64, 6), box, actions),
        "MLP 17-256-256-6 tanh, normalised": TimedModule(tanh_layers(17, 256, 256, 6), box, actions),
        "CNN 4 x 84 x 84 uint8, normalised": TimedModule(convolutions, images, spaces.Discrete(6)),
        "CNN 4 x 84 x 84 uint8, as it is": TimedModule(convolutions, images, spaces.Discrete(6), normalize=False),
    }


def ways(timed: TimedModule) -> dict[str, Callable[[], Any]]:
    """A step of the policy, and the module alone, on a tensor made beforehand.

    Raises SystemExit unless both give the same action, for two sets of parameters.
    """
    actor: Any = spec_for(TorchPolicy(timed.module), timed.observations, timed.actions).make_actor()
    rng = np.random.default_rng(1)
    mean, inv_std = rng.standard_normal(actor.obs_size), rng.uniform(0.5, 2.0, actor.obs_size)
    observation = timed.observations.sample()
    seen = observation.ravel().astype(np.float64)
    if timed.normalize:
        actor.set_normalizer(mean, inv_std, CLIP)
        actor.count_moments(True)
        seen = np.clip((seen - mean) * inv_std, -CLIP, CLIP)
    tensor = torch.from_numpy(seen.astype(np.float32)).reshape(1, *observation.shape)
    module = timed.module.eval()
    for scale in (1.0, -0.5):
        actor.parameters[:] *= np.float32(scale)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.mul_(scale)
            outputs = module(tensor)
        expected = int(outputs.argmax()) if isinstance(timed.actions, spaces.Discrete) else outputs.clamp(-1, 1).numpy()[0]
        if not np.allclose(actor.act(observation), expected, atol=1e-5):
            raise SystemExit(f"nothing is timed: the policy acts {actor.act(observation)}, the module alone {expected}")
    return {"act": lambda: actor.act(observation), "forward": lambda: module(tensor)}


def time_modules(sizes: Sizes) -> str:
    rows = []
    for name, timed in modules().items():
        steps = ways(timed)
        with torch.no_grad():
            seconds = interleaved_seconds({way: repeated(step, sizes.calls) for way, step in steps.items()}, sizes.repeats)
        act, forward = (1e6 * statistics.median(seconds[way]) / sizes.calls for way in ("act", "forward"))
        ratio = median_ratio(seconds["act"], seconds["forward"])
        verdict = f"<= {AIM:.2f}: {'met' if ratio <= AIM else 'missed'}"
        rows.append((name, f"{forward:.1f}", f"{act:.1f}", f"{act - forward:.1f}", f"{ratio:.2f}", verdict))
    return markdown_table(("module", "forward us", "act us", "overhead us", "ratio", "aim"), rows)


def time_function(sizes: Sizes) -> str:
    """One row: a function that does nothing, so the number is what the policy adds to any function."""
    action = np.zeros(6, dtype=np.float32)
    policy = CallablePolicy(lambda *_: action, 6)
    box = spaces.Box(-np.inf, np.inf, (17,), np.float64)
    actor: Any = spec_for(policy, box, spaces.Box(-1.0, 1.0, (6,))).make_actor()
    observation = box.sample()
    if (actor.act(observation) != action).any():
        raise SystemExit(f"nothing is timed: the policy acts {actor.act(observation)}, the function {action}")
    bare = repeated(lambda: action, sizes.calls)
    seconds = interleaved_seconds({"act": repeated(lambda: actor.act(observation), sizes.calls), "bare": bare}, sizes.repeats)
    added = statistics.median(a - b for a, b in zip(seconds["act"], seconds["bare"], strict=True))
    return f"A CallablePolicy adds {1e6 * added / sizes.calls:.2f} us to its function (17 observations)."


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.custom_policies", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few calls and repeats: checks that it runs, for CI")
    sizes = QUICK if parser.parse_args().quick else Sizes()
    torch.set_num_threads(1)
    print(f"{describe()}\n\nMedians of {sizes.repeats} interleaved repeats of {sizes.calls} steps; torch has one thread.\n")
    print(time_modules(sizes), flush=True)
    print(f"\n{time_function(sizes)}")


if __name__ == "__main__":
    main()
