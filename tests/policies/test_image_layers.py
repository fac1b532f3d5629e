"""Risk: a convolution or virtual batch normalisation computes something else than its twin, or reads beside its map."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from kernel_cases import actors, awkward, check_steps, normals, unbounded
from twins import numpy_kernels
from twins.numpy_layers import DENSE_INPUTS, LARGE_MATRIX

from fastes import _core
from fastes.policies.layers import IDENTITY, Append, Convolution, Dense, ImageConvolution, Layer, VirtualBatchNorm
from fastes.policies.policy_spec import PolicySpec

Shape = tuple[int, int, int]
Filters = tuple[tuple[int, int, int], ...]  # filters, kernel, stride


def image_policy(
    shape: Shape, filters: Filters, norm: bool = False, channels_first: bool = False, vector: int = 0
) -> PolicySpec:
    """Convolutions of an image (height, width, channels), a dense layer. vector: values behind the image that are appended."""
    height, width, channels = shape
    first, layers = ImageConvolution(*shape, *filters[0], "elu", True, 0, shape[2] if channels_first else 1, 255), list[Layer]()
    for k, each in enumerate(filters):
        layer = first if k == 0 else Convolution(height, width, channels, *each, "relu", True)
        layers.append(replace(layer, activation=IDENTITY, use_bias=False) if norm else layer)
        height, width, channels = layer.rows, layer.columns, layer.filters
        layers += [VirtualBatchNorm(layer.outputs, channels, "relu")] if norm else []
    layers += [Append(layers[-1].outputs, vector, IDENTITY)] if vector else []
    layers.append(Dense(layers[-1].outputs, 3, IDENTITY, True))
    size = first.inputs
    obs_shape = (size + vector,) if vector else (shape[2], *shape[:2]) if channels_first else shape
    return PolicySpec(tuple(layers), unbounded(3), obs_shape, columns=tuple(range(size, size + vector)))


def images(spec: PolicySpec, n: int, dtype: str = "u1", seed: int = 0) -> np.ndarray[Any, Any]:
    values = np.random.default_rng(seed).uniform(0, 256, (n, *spec.obs_shape))
    return values.astype(dtype)


def filled(make: Any, spec: PolicySpec, theta: np.ndarray | None = None, reference: np.ndarray | None = None) -> Any:
    actor = make(spec)
    actor.parameters[:] = normals(spec.num_params, 3) / np.float32(4) if theta is None else theta
    if spec.obs_size:
        actor.set_normalizer(np.linspace(100, 150, spec.obs_size), np.linspace(0.01, 0.02, spec.obs_size), 0.7)
        actor.count_moments(True)
    if spec.needs_reference:
        actor.set_reference(images(spec, 4, seed=9) if reference is None else reference)
        actor.fold()
    return actor


def check(name: str, spec: PolicySpec, observations: Any, theta: np.ndarray | None = None) -> None:
    check_steps(name, tuple(filled(make, spec, theta) for make in (_core.Actor, numpy_kernels.Actor)), observations)


NETWORKS: dict[str, tuple[Shape, Filters]] = {
    "two": ((12, 9, 4), ((5, 3, 2), (17, 2, 1))),
    "one position": ((3, 3, 2), ((16, 3, 1),)),
    "kernel of 1": ((4, 2, 1), ((33, 1, 1), (1, 2, 2))),
    "rest of a stride": ((11, 8, 3), ((16, 4, 3), (64, 2, 3))),
}


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_convolutions_are_their_twins(variant: str, name: str, norm: bool) -> None:
    for channels_first, dtype, vector in ((False, "u1", 0), (True, "u1", 0), (False, "f8", 2), (True, "f4", 3)):
        spec = image_policy(*NETWORKS[name], norm, channels_first, vector)
        check(f"{variant} {name} {channels_first} {dtype}", spec, images(spec, 2, dtype))


def nearly_the_same(spec: PolicySpec, dtype: str) -> list[np.ndarray[Any, Any]]:
    """Images that differ from the one before at some values: one alone, none, all, and at random."""
    (image,), rng = images(spec, 1, dtype), np.random.default_rng(5)
    shown = [image]
    places = [[at] for at in (*range(0, image.size, 5), -1)] + [[], [*range(image.size)]]
    places += [rng.integers(0, image.size, 5).tolist() for _ in range(9)]
    for changed in places:
        image = image.copy()
        image.flat[changed] = 255 - image.flat[changed]
        shown.append(image)
    return [*shown, shown[0]]


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_kept_of_the_image_before_changes_no_bit(variant: str, name: str, norm: bool) -> None:
    for channels_first, dtype, vector in ((False, "u1", 0), (True, "u1", 2), (True, "f4", 0)):
        spec = image_policy(*NETWORKS[name], norm, channels_first, vector)
        check(f"{variant} {name} {channels_first} {dtype}", spec, nearly_the_same(spec, dtype))


@pytest.mark.parametrize("dtypes", [("u1", "f4", "u1"), ("f8", "u1", "f8")])
def test_nothing_is_kept_from_one_dtype_to_another(dtypes: tuple[str, ...]) -> None:
    spec = image_policy((6, 5, 2), ((4, 3, 1), (8, 2, 1)))
    shown = images(spec, len(dtypes))
    shown[2] = shown[0]
    check("dtypes", spec, [image.astype(dtype) for image, dtype in zip(shown, dtypes, strict=True)])


@pytest.mark.parametrize("large", [False, True])
def test_nothing_is_kept_from_one_theta_to_another(large: bool) -> None:
    """However an actor is told of it."""
    layer = Dense(300, 450, "relu", True)
    spec = PolicySpec((layer,), unbounded(450), (300,)) if large else image_policy((6, 5, 2), ((4, 3, 1), (8, 2, 1)))
    actor, image = filled(_core.Actor, spec), images(spec, 1)[0]
    view = actor.parameters

    def told(theta: np.ndarray) -> None:
        actor.parameters[:] = theta

    def folded(theta: np.ndarray) -> None:
        view[:] = theta
        actor.fold()

    def begun(theta: np.ndarray) -> None:
        view[:] = theta
        actor.begin_episode()

    for seed, load in enumerate((told, folded, begun)):
        actor.act(image)
        theta = normals(spec.num_params, 20 + seed)
        load(theta)
        assert actor.act(image).tobytes() == filled(_core.Actor, spec, theta).act(image).tobytes(), load


def test_wide_images_go_through_a_strip_of_a_few_rows(variant: str) -> None:
    """The strip's length is a matter of memory: here it has room for one, two and three rows of outputs at a time."""
    for width in (_core.STRIP_VALUES // 2, _core.STRIP_VALUES // 3, _core.STRIP_VALUES // 4):
        spec = image_policy((5, width, 1), ((2, 2, 1), (1, 4, 97)))
        check(f"{variant} width {width}", spec, images(spec, 1))


def test_awkward_parameters_and_pixels(variant: str) -> None:
    for norm in (False, True):
        spec = image_policy((7, 6, 2), ((5, 3, 2), (18, 2, 1)), norm)
        check(variant, spec, awkward(3 * 84).reshape(3, 7, 6, 2), awkward(spec.num_params, 1))


LARGE = pytest.mark.parametrize(
    "layer", [Dense(300, 450, "relu", True), Dense(1100, 600, IDENTITY, False), Dense(130, 1030, "tanh", True)]
)


@LARGE
def test_large_dense_layers_leave_out_zeros(variant: str, layer: Dense) -> None:
    spec = PolicySpec((layer,), unbounded(layer.outputs), (layer.inputs,))
    assert layer.inputs * layer.outputs > LARGE_MATRIX
    x = normals(layer.inputs)
    x[::3] = 0.0
    theta = normals(spec.num_params, 3)
    check_steps(variant, actors(spec, theta), [x, np.zeros_like(x), np.full_like(x, -0.0)])
    theta[layer.outputs * 3 : layer.outputs * 4] = np.nan  # weights of an input that is 0
    check_steps(variant, actors(spec, theta), [x])
    x[[1, 2]] = np.nan, np.inf
    check_steps(variant, actors(spec, theta), [x])


@LARGE
def test_what_is_kept_of_large_dense_layers_changes_no_bit(variant: str, layer: Dense) -> None:
    spec, x = PolicySpec((layer,), unbounded(layer.outputs), (layer.inputs,)), normals(layer.inputs)
    shown = [x]
    past = layer.inputs
    for changed in ([0], [], [DENSE_INPUTS - 1], [DENSE_INPUTS], [past - 1], [1, past - 2], [*range(past)]):
        x = x.copy()
        x[changed] = normals(len(changed), 7)
        shown.append(x)
    check_steps(variant, actors(spec, normals(spec.num_params, 3)), [*shown, shown[0]])


@pytest.mark.parametrize("planes", [4, 2])
def test_how_channels_lie_changes_no_bit(planes: int) -> None:
    """As the first dimension, or in a stack of two images with the last ones of each."""
    for norm in (False, True):
        last = image_policy((12, 9, 4), NETWORKS["two"][1], norm)
        layers, shape = (replace(last.layers[0], planes=planes), *last.layers[1:]), (planes, 12, 9, 4 // planes)
        moved_to = replace(last, layers=layers, obs_shape=shape)
        observations = images(last, 3)
        moved = np.ascontiguousarray(np.moveaxis(observations.reshape(3, 12, 9, planes, -1), 3, 1))
        one, other = filled(_core.Actor, last, reference=observations), filled(_core.Actor, moved_to, reference=moved)
        twin = filled(numpy_kernels.Actor, moved_to, reference=moved)
        for image, stack in zip(observations, moved, strict=True):
            assert one.act(image).tobytes() == other.act(stack).tobytes() == twin.act(stack).tobytes()


def test_bytes_are_0_to_1() -> None:
    spec = image_policy((2, 2, 1), ((1, 1, 1),))
    actor = _core.Actor(spec)
    actor.parameters[:] = [1.0, 0.0, *np.eye(4, 3).ravel(), 0.0, 0.0, 0.0]
    assert actor.act(np.array([0, 51, 255, 7], np.uint8)) == pytest.approx([0.0, 0.2, 1.0])
    raw = _core.Actor(replace(spec, layers=(replace(spec.layers[0], divisor=1), *spec.layers[1:])))
    raw.parameters[:] = actor.parameters
    assert raw.act(np.array([0.0, 0.2, 1.0, 0.5])) == pytest.approx([0.0, 0.2, 1.0])


def test_the_batch_itself_is_normalised() -> None:
    """Behind gamma 1 and beta 0 the values of the reference batch have mean 0 and variance 1, channel by channel."""
    spec = image_policy((9, 8, 3), ((6, 3, 2),), norm=True)
    batch = images(spec, 20)
    norm = replace(spec.layers[1], activation=IDENTITY)
    outputs = norm.outputs
    seen = PolicySpec((spec.layers[0], norm), unbounded(outputs), spec.obs_shape)
    theta = seen.initial_theta(3)
    theta[: 27 * 6] *= 100.0
    values = np.array([filled(_core.Actor, seen, theta, batch).act(image) for image in batch]).reshape(-1, 6)
    assert values.mean(axis=0) == pytest.approx(np.zeros(6), abs=1e-4)
    assert values.std(axis=0) == pytest.approx(np.ones(6), abs=1e-3)


def test_wider_and_narrower_layers_share_the_memory_of_a_batch(variant: str) -> None:
    layers = [Dense(7, 19, IDENTITY, False), VirtualBatchNorm(19, 19, "tanh"), Dense(19, 44, IDENTITY, False)]
    layers += [VirtualBatchNorm(44, 11, "relu"), Dense(44, 3, IDENTITY, True), VirtualBatchNorm(3, 3, IDENTITY)]
    spec = PolicySpec(tuple(layers), unbounded(3), (7,))
    batch = normals(5 * 7).reshape(5, 7)
    pair = tuple(filled(make, spec, reference=batch) for make in (_core.Actor, numpy_kernels.Actor))
    check_steps(variant, pair, normals(28, 4).reshape(4, 7))


def test_statistics_follow_parameters_and_batch_when_they_are_folded() -> None:
    spec = image_policy((6, 5, 2), ((4, 3, 1),), norm=True)
    actor, image = filled(_core.Actor, spec), images(spec, 1)[0]
    before = actor.act(image).tobytes()
    actor.fold()
    assert actor.act(image).tobytes() == before
    actor.set_reference(images(spec, 4, seed=10))
    actor.fold()
    assert actor.act(image).tobytes() != before
    other = filled(_core.Actor, spec, reference=images(spec, 4, seed=10))
    assert actor.act(image).tobytes() == other.act(image).tobytes()


def test_an_actor_without_its_batch_says_so() -> None:
    spec = image_policy((6, 5, 2), ((4, 3, 1),), norm=True)
    actor, image = _core.Actor(spec), images(spec, 1)[0]
    with pytest.raises(ValueError, match="needs a reference batch: call set_reference first"):
        actor.fold()
    actor.set_reference(images(spec, 2))
    for act in (lambda: actor.act(image), lambda: _core.act_rows([actor], image[None], np.zeros((1, 3), np.float32))):
        with pytest.raises(ValueError, match="call set_reference and fold before it acts"):
            act()
    for batch in (images(spec, 0), np.zeros((2, 5, 5, 2)), images(spec, 1)[0, 0, 0]):
        with pytest.raises(ValueError, match=r"reference batch has shape .* expected n observations of shape \(6, 5, 2\)"):
            actor.set_reference(batch)
    for odd in (images(spec, 2, "i4"), images(spec, 4)[::2]):
        with pytest.raises(TypeError, match="expected a C-contiguous array of"):
            actor.set_reference(odd)
    _core.Actor(image_policy((6, 5, 2), ((4, 3, 1),))).fold()


IMAGE = image_policy((6, 5, 2), ((4, 3, 1),), vector=2)


@pytest.mark.parametrize(
    ("layer", "changes", "message"),
    [
        (0, {"kernel": 6}, "a kernel of 6 x 6 does not fit a map of 6 x 5"),
        (0, {"stride": 0}, "stride = 0 of a image_convolution layer is out of range"),
        (0, {"divisor": 0}, "divisor = 0 of"),
        (0, {"first": 3}, "first value of the image = 3 is out of range: the table has 62 values, the policy needs 60"),
        (0, {"first": -1}, "first = -1 of an image is out of range"),
        (0, {"width": 2**20, "height": 2**20}, r"inputs = \d+ of a image_convolution layer is out of range"),
        (1, {"appended": 3}, "what a layer appends has 3 values, expected 2"),
    ],
)
def test_sizes_that_the_core_must_not_see(layer: int, changes: dict[str, Any], message: str) -> None:
    layers = list(IMAGE.layers)
    layers[layer] = replace(layers[layer], **changes)
    with pytest.raises(ValueError, match=message):
        _core.Actor(replace(IMAGE, layers=tuple(layers)))


def test_images_are_read_by_the_first_layer_alone() -> None:
    again = ImageConvolution(4, 3, 4, 1, 1, 1, IDENTITY, True, 0, 1, 255)
    with pytest.raises(ValueError, match="layer 1 reads an image: only the first one can"):
        _core.Actor(PolicySpec((IMAGE.layers[0], again), unbounded(12), (62,), columns=(60, 61)))
    with pytest.raises(ValueError, match="expected a first layer that reads an image"):
        _core.Actor(PolicySpec((Append(3, 2, IDENTITY),), unbounded(5), (3,)))
    with pytest.raises(ValueError, match="what a layer appends has 2 values, expected 1"):
        _core.Actor(replace(IMAGE, columns=(60,)))
    with pytest.raises(ValueError, match="3 channels do not lie in 2 planes of an image"):
        ImageConvolution(6, 7, 3, 5, 3, 2, "relu", True, 0, 2, 255).check()
    with pytest.raises(ValueError, match="10 values are not a multiple of 4 channels"):
        _core.Actor(PolicySpec((VirtualBatchNorm(10, 4, IDENTITY),), unbounded(10), (10,)))


@pytest.mark.parametrize(("channels_first", "norm"), [*product([False, True], [False, True])])
def test_torch_computes_the_same(channels_first: bool, norm: bool) -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    spec = image_policy((20, 18, 4), ((8, 5, 3), (16, 2, 1)), norm, channels_first)
    theta = spec.initial_theta(1)
    batch, image = images(spec, 16), images(spec, 1, seed=2)[0]
    actor = filled(_core.Actor, spec, theta, batch)

    def forward(x: Any) -> Any:
        x = torch.from_numpy(x).float() / 255
        x = x if channels_first else x.permute(0, 3, 1, 2)
        for layer, views in zip(spec.layers, spec.split_by_layer(theta), strict=True):
            values = {name: torch.from_numpy(view) for name, view in views.items()}
            if isinstance(layer, Convolution):
                x = functional.conv2d(x, values["weight"].permute(3, 2, 0, 1), values.get("bias"), layer.stride)
            elif isinstance(layer, VirtualBatchNorm):
                x = functional.batch_norm(x, None, None, values["gamma"], values["beta"], training=True, eps=1e-3)
            else:
                x = x.permute(0, 2, 3, 1).flatten(1) @ values["weight"] + values["bias"]
            x = {"relu": functional.relu, "elu": functional.elu, IDENTITY: lambda y: y}[layer.activation](x)
        return x.numpy()

    if norm:
        expected = forward(batch)
        found = np.array([actor.act(each) for each in batch])
    else:
        expected, found = forward(image[None])[0], actor.act(image)
    assert found == pytest.approx(expected, abs=2e-5)
