"""Risk: a layer computes something else than its twin, or a kind that is not known is taken for one that is."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium import spaces
from kernel_cases import actors, awkward, check_steps, mlp, normals, unbounded
from twins import numpy_kernels, numpy_layers

from fastes import _core
from fastes.es.fitness_shaping import shape_returns
from fastes.es.optimizers import make_optimizer
from fastes.policies.action_head import BOX_MAPPINGS, KINDS, ActionHead, make_action_head
from fastes.policies.layers import (
    IDENTITY,
    Append,
    Convolution,
    Dense,
    Gru,
    ImageConvolution,
    Join,
    Layer,
    Lstm,
    VirtualBatchNorm,
    check_layers,
    dense_layers,
    describe_layers,
    described_layers,
    first_difference,
    layer_sizes,
)
from fastes.policies.layers import KINDS as LAYERS
from fastes.policies.policy_spec import PolicySpec

# One of each kind, by its name, behind the layers that it needs.
IMAGE = ImageConvolution(6, 7, 3, 5, 3, 2, "relu", use_bias=True, first=1, planes=1, divisor=255)
ONE_LAYER: dict[str, tuple[Layer, ...]] = {
    "dense": (Dense(5, 19, "tanh", use_bias=True),),
    "convolution": (Convolution(5, 6, 3, 18, 3, 2, "elu", use_bias=True),),
    "image_convolution": (IMAGE,),
    "virtual_batch_norm": (VirtualBatchNorm(24, 6, "relu"),),
    "append": (IMAGE, Append(IMAGE.outputs, 4, "tanh")),
    "lstm": (Lstm(5, 19),),
    "gru": (Gru(5, 19),),
    "join": (IMAGE, Join(IMAGE.outputs, 0, "relu"), IMAGE, Join(IMAGE.outputs, IMAGE.outputs, "tanh")),
}


def policy(*layers: Layer) -> PolicySpec:
    """Observations are what the first layer reads, or an image between two values and two values more."""
    first = layers[0]
    size, columns = (first.inputs + 4, (0, first.inputs + 1, first.inputs + 2, 0)) if first.reads_image else (first.inputs, ())
    return PolicySpec(layers, unbounded(layers[-1].outputs), (size,), columns=columns)


def test_each_kind_has_a_twin() -> None:
    assert set(ONE_LAYER) == set(_core.LAYER_KINDS) == set(numpy_layers.LAYERS) == set(LAYERS)
    assert set(_core.ACTIVATIONS) == set(numpy_layers.ACTIVATIONS)
    assert set(KINDS) == set(_core.ACTION_KINDS) == set(_core.DTYPES_OF_ACTIONS) >= set(BOX_MAPPINGS)
    assert {dtype for dtypes in _core.DTYPES_OF_ACTIONS.values() for dtype in dtypes} == set(_core.ACTION_DTYPES)


@pytest.mark.parametrize("values", [normals, awkward])
@pytest.mark.parametrize("kind", ONE_LAYER)
def test_a_layer_is_its_twin(variant: str, kind: str, values: Callable[[int, int], np.ndarray]) -> None:
    spec = policy(*ONE_LAYER[kind])
    theta = values(spec.num_params, 1)
    pair = actors(spec, theta)
    shapes = [{name: view.shape for name, view in views.items()} for views in spec.split_by_layer(theta)]
    assert shapes == [layer.parameter_shapes() for layer in spec.layers]
    observations = normals(5 * spec.obs_shape[0]).reshape(5, -1)
    for actor in pair if spec.needs_reference else ():
        actor.set_reference(observations[:3])
        actor.fold()
    check_steps(f"{variant} {kind}", pair, observations)


def test_layers_need_not_be_alike(variant: str) -> None:
    spec = policy(
        Dense(7, 33, "elu", True), Dense(33, 5, "identity", False), Dense(5, 16, "relu", True), Dense(16, 3, "tanh", True)
    )
    check_steps(f"{variant}, four layers", actors(spec, normalizer=True), normals(70).reshape(10, 7))
    names = [*("layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.2.weight", "layers.2.bias")]
    assert list(spec.parameter_shapes()) == [*names, "layers.3.weight", "layers.3.bias"]
    assert not any(view.any() for name, view in spec.split(spec.initial_theta(3)).items() if name.endswith("bias"))


def in_a_file(layers: tuple[Layer, ...]) -> dict[str, Any]:
    described: dict[str, Any] = json.loads(json.dumps(describe_layers(layers)))
    return described


@pytest.mark.parametrize("use_bias", [True, False])
def test_dense_layers_are_described_as_they_always_were(use_bias: bool) -> None:
    layers = dense_layers((4, 8, 2), "relu", use_bias)
    assert layer_sizes(layers) == (4, 8, 2)
    assert in_a_file(layers) == {"layer_sizes": [4, 8, 2], "activation": "relu", "use_bias": use_bias}
    assert described_layers(in_a_file(layers)) == layers
    one = dense_layers((4, 2), "relu", use_bias)
    assert in_a_file(one) == {"layer_sizes": [4, 2], "activation": "tanh", "use_bias": use_bias}
    assert described_layers(in_a_file(one)) == one


LAST = Dense(8, 2, IDENTITY, True)
DIFFER: list[tuple[Layer, ...]] = [
    *(layers for kind, layers in ONE_LAYER.items() if kind != "dense"),
    (
        IMAGE,
        VirtualBatchNorm(IMAGE.outputs, 5, "relu"),
        Append(IMAGE.outputs, 3, IDENTITY),
        Dense(IMAGE.outputs + 3, 2, IDENTITY, True),
    ),
    (Dense(4, 8, "relu", True), Dense(8, 2, "tanh", True)),
    (Dense(4, 8, "relu", True), Dense(8, 2, IDENTITY, False)),
    (Dense(4, 8, IDENTITY, True), LAST),
    (Dense(4, 8, "relu", True), Dense(8, 8, "elu", True), LAST),
]


@pytest.mark.parametrize("layers", DIFFER)
def test_layers_that_differ_are_described_one_by_one(layers: tuple[Layer, ...]) -> None:
    assert set(in_a_file(layers)) == {"layers"}
    assert described_layers(in_a_file(layers)) == layers


@pytest.mark.parametrize("key", ["kind", "inputs", "outputs", "activation", "use_bias"])
def test_a_damaged_description_of_a_layer_is_refused(key: str) -> None:
    for value in (None, -1, 0, 1.0, 2**31, "dense ", [1], {}, True, "left out"):
        described = in_a_file(DIFFER[-1])
        if described["layers"][0][key] is value:
            continue
        described["layers"][0][key] = value
        if value == "left out":
            del described["layers"][0][key]
        with pytest.raises(ValueError, match="layer"):
            check_layers(described_layers(described), 0)
    for layers in ([], None, [None], {}, "layers", [{**in_a_file(DIFFER[-1])["layers"][0], "more": 1}]):
        with pytest.raises(ValueError, match="layer"):
            described_layers({"layers": layers})


def test_elu_is_that_of_the_library_of_mathematics(variant: str) -> None:
    x = np.concatenate([np.linspace(-20, 3, 4001), -np.logspace(-30, 1.3, 400)]).astype(np.float32)
    actor = _core.Actor(policy(Dense(1, 1, "elu", use_bias=False)))
    actor.parameters[:] = 1.0
    exact = np.where(x > 0, x, np.expm1(x.astype(np.float64)))
    assert np.array([actor.act(value[None])[0] for value in x]) == pytest.approx(exact, rel=3e-7)


# Kinds that do not exist


@dataclass(frozen=True)
class Odd(Dense):
    kind: ClassVar[str] = "odd"


@dataclass(frozen=True)
class Remembering(Dense):
    state_size: ClassVar[int] = 3


def test_each_layer_has_its_own_state_which_an_episode_begins_without() -> None:
    actor = _core.Actor(policy(Remembering(4, 5, "tanh", True), Dense(5, 6, "tanh", True), Remembering(6, 2, IDENTITY, True)))
    assert (actor.state_size, actor.state.shape) == (6, (6,))
    actor.state[:] = 7.0
    actor.act(np.ones(4))
    assert (actor.state == 7.0).all(), "dense layers leave theirs as it is"
    actor.begin_episode()
    assert not actor.state.any()
    assert _core.Actor(policy(Dense(4, 2, IDENTITY, True))).state.shape == (0,)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ((Odd(4, 2, "tanh", True),), r"unknown kind of layer 'odd': expected one of \('dense', "),
        ((Dense(4, 8, "swish", True), Dense(8, 2, "tanh", True)), r"unknown activation 'swish': expected one of .*'relu'"),
        ((Dense(4, 2, "swish", True),), "unknown activation 'swish'"),
        ((Dense(4, 8, "tanh", True), Dense(9, 2, "tanh", True)), "layer 1's input has 9 values, expected 8"),
        ((Dense(0, 2, "tanh", True),), "inputs = 0 of a dense layer is out of range: expected 1 to 2147483647"),
    ],
)
def test_layers_that_the_core_does_not_know_are_refused(layers: tuple[Layer, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _core.Actor(policy(*layers))


def test_a_last_layer_that_does_not_fit_the_actions_is_refused() -> None:
    spec = mlp(4, (8,), unbounded(2))
    with pytest.raises(ValueError, match="the last layer's output has 2 values, expected 3"):
        _core.Actor(replace(spec, head=unbounded(3)))


HEADS = {
    "clip": make_action_head(spaces.Box(-1.0, 1.0, (2,))),
    "squash": make_action_head(spaces.Box(-1.0, 1.0, (2,), dtype=np.float64), "squash"),
    "bins": make_action_head(spaces.Box(-1.0, 1.0, (2,)), "bins"),
    "categorical": make_action_head(spaces.MultiDiscrete([2, 3])),
    "binary": make_action_head(spaces.MultiBinary(3)),
}


@pytest.mark.parametrize("kind", HEADS)
def test_actions_that_the_core_does_not_know_are_refused(kind: str) -> None:
    def actor(**changes: Any) -> _core.Actor:
        head: ActionHead = replace(HEADS[kind], **changes)
        return _core.Actor(mlp(4, (), head))

    actor()
    with pytest.raises(ValueError, match=r"unknown kind of action 'argmin': expected one of \('clip'"):
        actor(kind="argmin")
    fitting = _core.DTYPES_OF_ACTIONS[kind]
    for dtype in {*_core.ACTION_DTYPES, "int32", "float16"} - set(fitting):
        with pytest.raises(ValueError, match=f"'{kind}' actions have dtype '{dtype}': expected one of "):
            actor(dtype=dtype)
    twin = numpy_kernels.Actor(mlp(4, (), replace(HEADS[kind], kind="argmin")))
    with pytest.raises(ValueError, match="unknown kind of action 'argmin'"):
        twin.act(np.zeros(4))


def test_unknown_shapings_and_optimizers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown shaping 'standardised': expected one of .*'standardized'"):
        shape_returns(np.array([[1.0, 2.0]]), 0.1, "standardised")
    with pytest.raises(ValueError, match=r"unknown optimizer 'no-such': expected one of .*'adam'"):
        make_optimizer("no-such", 3, 0.9, 0.999, 0.0)


def test_what_differs_between_layers_of_a_kind_is_named() -> None:
    wider = replace(IMAGE, kernel=2, stride=1)
    assert first_difference((wider,), (IMAGE,)) == (
        "layer 0 would be image_convolution 126 -> 150 (kernel 2, stride 1), the checkpoint's is image_convolution 126 -> 30 "
        "(kernel 3, stride 2)"
    )
    assert first_difference((Dense(3, 4, "tanh", True), Lstm(4, 5)), (Dense(3, 4, "tanh", True), Gru(4, 5))) == (
        "layer 1 would be lstm 4 -> 5, the checkpoint's is gru 4 -> 5"
    )
