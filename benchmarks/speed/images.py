"""A step of CnnPolicy's networks over torch's on one thread, and the reference pass of virtual batch normalisation.

A second table has MultiInputPolicy's steps, from a Dict to an action, over CnnPolicy's on one image alone.

Refuses to time what does not give the bits of its NumPy twin, in every variant, and what torch computes.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from benchmarks.machine import describe
from benchmarks.speed.kernel_checks import kernels_of, refused_when_different
from benchmarks.speed.timing import interleaved_seconds, median_ratio, repeated
from benchmarks.tables import below_aim, markdown_table
from benchmarks.twins import assert_same_bits, numpy_kernels
from fastes import _core
from fastes.policies.layers import REFERENCE_SIZE, Convolution, VirtualBatchNorm
from fastes.policies.named_policies import make_policy_spec
from fastes.policies.policy_spec import PolicySpec
from fastes.rollout.observations import ObservationReader

ACTIONS = spaces.Box(-np.inf, np.inf, (6,), np.float32)  # an action is what the last layer gives
AIM = 1.0  # of torch's time
STEPS, STEP_SECONDS = 1_000, 300e-6  # of an episode of which the reference pass is a share: four emulated frames a step


class Timed(NamedTuple):
    """A network and what it sees."""

    cnn: str
    channels_first: bool
    batch_norm: str

    @property
    def name(self) -> str:
        return f"{self.cnn}, channels {'first' if self.channels_first else 'last'}, batch norm {self.batch_norm}"

    def spec(self) -> PolicySpec:
        space = spaces.Box(0, 255, (4, 84, 84) if self.channels_first else (84, 84, 4), np.uint8)
        return make_policy_spec("CnnPolicy", space, ACTIONS, {"cnn": self.cnn, "batch_norm": self.batch_norm})


ALL = [Timed(cnn, first, norm) for cnn in ("a3c", "nature") for norm in ("none", "virtual") for first in (False, True)]


def images(spec: PolicySpec, count: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    """Random bytes with blocks of one colour, as pictures have them, all different, (count, *obs_shape)."""
    values = np.random.default_rng(seed).integers(0, 256, (count, *spec.obs_shape), dtype=np.uint8)
    for number, image in enumerate(values):
        image[20:60] = 87 + number
    return values


def parameters(spec: PolicySpec) -> npt.NDArray[np.float32]:
    """The first ones, the last layer's as large as any other's."""
    theta = spec.initial_theta(1)
    theta[-6 * (spec.layers[-1].inputs + 1) : -6] *= np.float32(100)
    return theta


def filled(make: Callable[[PolicySpec], Any], spec: PolicySpec, references: int) -> Any:
    actor = make(spec)
    actor.parameters[:] = parameters(spec)
    if spec.needs_reference:
        actor.set_reference(images(spec, references, 1))
        actor.fold()
    return actor


def check_twins(timed: Timed) -> None:
    """Every variant gives the twin's bits."""
    spec = timed.spec()
    image = images(spec, 1)[0]
    expected = filled(numpy_kernels.Actor, spec, 2).act(image)
    for variant in _core.available_variants():
        with kernels_of(variant), refused_when_different(variant):
            assert_same_bits(timed.name, filled(_core.Actor, spec, 2).act(image), expected)


def torch_step(timed: Timed, actor: Any) -> Callable[[npt.NDArray[np.uint8]], Any]:
    """The same network as a torch.nn.Sequential, from the bytes to an array."""
    import torch

    torch.set_num_threads(1)
    spec, modules = timed.spec(), list[Any]()
    batch = images(spec, REFERENCE_SIZE, 1)
    for layer, views in zip(spec.layers, spec.split_by_layer(actor.parameters), strict=True):
        values = {name: torch.from_numpy(view.copy()) for name, view in views.items()}
        if isinstance(layer, Convolution):
            module: Any = torch.nn.Conv2d(layer.channels, layer.filters, layer.kernel, layer.stride, bias=layer.use_bias)
            values["weight"] = values["weight"].permute(3, 2, 0, 1).contiguous()
        elif isinstance(layer, VirtualBatchNorm):
            kind = torch.nn.BatchNorm2d if layer.inputs > layer.channels else torch.nn.BatchNorm1d
            module = kind(layer.channels, eps=1e-3, momentum=None)
            values = {"weight": values["gamma"], "bias": values["beta"]}
        else:
            if any(isinstance(each, torch.nn.Conv2d) for each in modules) and torch.nn.Flatten not in map(type, modules):
                before = next(each for each in reversed(spec.layers) if isinstance(each, Convolution))
                modules.append(torch.nn.Flatten())
                of_map = values["weight"].reshape(before.rows, before.columns, before.filters, -1)
                values["weight"] = of_map.permute(2, 0, 1, 3).reshape(layer.inputs, -1)
            module = torch.nn.Linear(layer.inputs, layer.outputs, bias="bias" in values)
            values["weight"] = values["weight"].T.contiguous()
        module.load_state_dict(values, strict=False)
        modules.append(module)
        if layer.activation == "relu":
            modules.append(torch.nn.ReLU())
    net = torch.nn.Sequential(*modules)

    def forward(x: npt.NDArray[np.uint8]) -> Any:
        tensor = torch.from_numpy(x)
        return net((tensor if timed.channels_first else tensor.permute(0, 3, 1, 2)).float() / 255)

    with torch.no_grad():
        forward(batch)  # in training mode: its statistics are those of the batch
        _biased_variances(net, batch, forward)
    net.eval()

    def step(image: npt.NDArray[np.uint8]) -> Any:
        with torch.inference_mode():
            return forward(image[np.newaxis])[0].numpy()

    return step


def _biased_variances(net: Any, batch: Any, forward: Callable[[Any], Any]) -> None:
    """Set the biased variances of the batch, as virtual batch normalisation has them; torch keeps unbiased ones."""
    counts = {}
    for module in net:
        if hasattr(module, "running_var"):
            module.register_forward_hook(lambda its, given, _: counts.update({its: given[0].numel() // its.num_features}))
    forward(batch)
    for module, count in counts.items():
        module.running_var *= (count - 1) / count
        module._forward_hooks.clear()


def time_step(timed: Timed, calls: int, repeats: int) -> tuple[str, ...]:
    """A row of the table."""
    spec = timed.spec()
    actor, shown = filled(_core.Actor, spec, REFERENCE_SIZE), images(spec, 16)
    other = torch_step(timed, actor)
    if not np.allclose(actor.act(shown[0]), other(shown[0]), atol=1e-3):
        raise SystemExit(f"nothing is timed: {timed.name} gives {actor.act(shown[0])}, torch {other(shown[0])}")
    turns, of_torch = itertools.cycle(shown), itertools.cycle(shown)  # a screen like the one before it would cost less
    calls_of = {
        "FastES": repeated(lambda: actor.act(next(turns)), calls),
        "torch": repeated(lambda: other(next(of_torch)), calls),
    }
    if spec.needs_reference:
        calls_of["fold"] = actor.fold
    seconds = interleaved_seconds(calls_of, repeats, time.process_time)
    each = {name: statistics.median(times) / (1 if name == "fold" else calls) for name, times in seconds.items()}
    ratio = median_ratio(seconds["FastES"], seconds["torch"])
    fold, share = "-", "-"
    if "fold" in each:
        fold, episode = f"{1e3 * each['fold']:.1f}", STEPS * (each["FastES"] + STEP_SECONDS)
        share = f"{100 * each['fold'] / (each['fold'] + episode):.1f} %"
    times = f"{1e6 * each['FastES']:.0f}", f"{1e6 * each['torch']:.0f}"
    return timed.name, f"{spec.num_params:,}", *times, f"{ratio:.2f}", below_aim(ratio, AIM, ""), fold, share


BYTES, NUMBERS = spaces.Box(0, 255, (84, 84, 4), np.uint8), spaces.Box(-np.inf, np.inf, (8,), np.float32)
PARTS: dict[str, spaces.Space[Any]] = {
    "MultiInputPolicy, an image": BYTES,
    "MultiInputPolicy, an image and 8 numbers": spaces.Dict({"image": BYTES, "numbers": NUMBERS}),
    "MultiInputPolicy, two images and 8 numbers": spaces.Dict({"image": BYTES, "numbers": NUMBERS, "other": BYTES}),
}


def step_of(policy: str, space: spaces.Space[Any]) -> Callable[[], Any]:
    """A step of a policy without batch normalisation, each of another one of 16 observations.

    Raises:
        SystemExit: If a variant does not give the bits of the twin.
    """
    spec, read = make_policy_spec(policy, space, ACTIONS, {"batch_norm": "none"}), ObservationReader(space).read
    space.seed(1)
    seen = [space.sample() for _ in range(16)]
    expected = filled(numpy_kernels.Actor, spec, 2).act(read(seen[0]))
    for variant in _core.available_variants():
        with kernels_of(variant), refused_when_different(variant):
            assert_same_bits(policy, filled(_core.Actor, spec, 2).act(read(seen[0])), expected)
    actor, turns = filled(_core.Actor, spec, 2), itertools.cycle(seen)
    return lambda: actor.act(read(next(turns)))


def time_parts(calls: int, repeats: int) -> list[tuple[str, ...]]:
    """Rows of the second table."""
    steps = {"CnnPolicy, an image": step_of("CnnPolicy", BYTES)}
    steps |= {name: step_of("MultiInputPolicy", space) for name, space in PARTS.items()}
    timed = {name: repeated(step, calls) for name, step in steps.items()}
    seconds = interleaved_seconds(timed, repeats, time.process_time)
    base = seconds["CnnPolicy, an image"]
    return [
        (name, f"{1e6 * statistics.median(times) / calls:.0f}", f"{median_ratio(times, base):.2f}")
        for name, times in seconds.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.images", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few repeats: checks that it runs")
    calls, repeats = (3, 3) if parser.parse_args().quick else (50, 15)
    for timed in ALL:
        check_twins(timed)
    print(f"{describe()}\n\nEvery variant equals its NumPy twin bit for bit. Medians of {repeats} interleaved repeats.\n")
    header = (
        "CnnPolicy, 84 x 84 x 4",
        "parameters",
        "FastES CPU us",
        "torch CPU us",
        "ratio",
        "aim",
        "reference pass ms",
        "its share",
    )
    print(markdown_table(header, [time_step(timed, calls, repeats) for timed in ALL]))
    print(
        f"\nThe share is that of an episode of {STEPS:,} steps whose env.step takes {1e6 * STEP_SECONDS:.0f} us, "
        f"with {_core.variant()} kernels.\n"
    )
    print(markdown_table(("84 x 84 x 4, a3c, no batch norm", "CPU us", "of CnnPolicy's"), time_parts(calls, repeats)))


if __name__ == "__main__":
    main()
