"""Risk: MultiInputPolicy flattens an image in silence, mixes images up, or its bits depend on workers, files or kernels."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from images_for_tests import ACTIONS, NORMED, SMALL, Cameras, box
from kernel_cases import check_steps
from training import assert_same, assert_same_state, learn, train
from twins.numpy_kernels import Actor
from uneven import assert_same_results

from fastes import CheckpointError, CheckpointMismatch, FastES, _core
from fastes.checkpoints.file_format import Checkpoint
from fastes.checkpoints.policy_description import describe_policy, spec_from
from fastes.policies.images import LEAST_SIDE, holds_image, images_in
from fastes.policies.layers import Append, Convolution, Dense, ImageConvolution, Join, VirtualBatchNorm, check_layers
from fastes.policies.named_policies import make_policy_spec
from fastes.policies.policy_keywords import MultiInputKeywords
from fastes.policies.policy_spec import PolicySpec

SETTINGS: dict[str, Any] = {"policy": "MultiInputPolicy", "policy_kwargs": NORMED, "population_size": 4, "eval_episodes": 2}


def spec(space: spaces.Space[Any], policy: str = "MultiInputPolicy", **kwargs: Any) -> PolicySpec:
    return make_policy_spec(policy, space, ACTIONS, kwargs)


def observations(space: spaces.Space[Any], n: int, seed: int = 2) -> list[Any]:
    space.seed(seed)
    return [space.sample() for _ in range(n)]


# --- which parts are images ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "found"),
    [
        (spaces.Dict({"b": box(2, 30, 31), "a": spaces.Discrete(5)}), [(5, 30, 31, 2, 2, True)]),
        (
            spaces.Dict({"b": box(40, 30, 3), "a": box(2, 30, 31), "c": box(7)}),
            [(0, 30, 31, 2, 2, True), (1860, 40, 30, 3, 1, True)],
        ),
        (
            spaces.Tuple([box(4), spaces.Dict({"z": box(20, 21, 1)}), box(4, 20, 22, 1)]),
            [(4, 20, 21, 1, 1, True), (424, 20, 22, 4, 4, True)],
        ),
        (box(30, 30, 3), [(0, 30, 30, 3, 1, True)]),
        (spaces.Dict({"a": box(7, 7, 3), "b": spaces.Discrete(4)}), []),  # MiniGrid's
        (spaces.Dict({"a": box(19, 30, 3)}), []),
        (spaces.Dict({"a": box(30, 30)}), []),
        (spaces.Dict({"a": box(30, 30, 3, high=10)}), []),
        (spaces.Dict({"a": box(30, 30, 3, high=1, dtype=np.float32)}), []),
        (box(30), []),
        (spaces.Discrete(3), []),
    ],
)
def test_images_are_those_of_sb3_unless_they_are_small(space: spaces.Space[Any], found: list[tuple[Any, ...]]) -> None:
    assert list(images_in(space, MultiInputKeywords())) == found
    assert holds_image(space) == bool(found)


def test_listed_convolutions_make_an_image_of_what_they_fit() -> None:
    space = spaces.Dict({"a": box(7, 7, 3), "b": box(3, 3, 2)})
    for cnn, expected in (([(4, 3, 1)], 2), ([(4, 4, 1)], 1), ([(4, 3, 2), (4, 3, 1)], 1), ([(4, 8, 1)], 0), ("a3c", 0)):
        assert len(images_in(space, MultiInputKeywords(cnn=cnn))) == expected
    with pytest.raises(ValueError, match=r"cnn = 'nature' does not fit observations Dict.* kernel of 3 x 3, .* is 2 x 3"):
        spec(spaces.Dict({"a": box(LEAST_SIDE + 12, 40, 3)}), cnn="nature")


def test_any_box_of_three_dimensions_is_an_image_that_is_not_divided() -> None:
    for image in (box(30, 30, 3, high=1, dtype=np.float32), box(30, 30, 3, high=10)):
        (seen,) = spec(spaces.Dict({"a": image}), normalize_images=False).images
        assert (seen.height, seen.divisor) == (30, 1)


def test_an_observation_that_no_policy_sees_holds_no_image() -> None:
    assert not holds_image(spaces.Dict({"a": spaces.Sequence(spaces.Discrete(2)), "b": box(30, 30, 3)}))


# --- what it is made of ----------------------------------------------------------------------------------------------


def test_each_image_has_features_beside_which_the_values_stand() -> None:
    own = spec(Cameras().observation_space, **SMALL, net_arch=[7])
    assert [type(layer) for layer in own.layers] == [
        *(ImageConvolution, Convolution, Dense, Join) * 2,
        *(Append, Dense, Dense),
    ]
    far, near = own.images
    assert (far.first, far.planes, far.activation) == (3, 1, "relu")
    assert (near.first, near.planes) == (3 + 20 * 22 * 3, 2)
    assert own.layers[3:8:4] == (Join(5, 0, "identity"), Join(5, 5, "identity"))
    assert own.layers[8:] == (Append(10, 4, "identity"), Dense(14, 7, "tanh", True), Dense(7, 1, "identity", True))
    assert own.columns == (0, 1, 2, own.obs_shape[0] - 1)


def test_one_image_needs_no_join_and_a_box_is_one() -> None:
    for space in (box(84, 84, 4), spaces.Dict({"a": box(84, 84, 4)})):
        own, cnn = spec(space), make_policy_spec("CnnPolicy", space, ACTIONS)
        assert own.layers[: len(cnn.layers) - 1] == cnn.layers[:-1]
        assert [layer.outputs for layer in own.layers if isinstance(layer, Dense)] == [256, 64, 64, 1]


def test_defaults_and_names_are_those_of_sb3() -> None:
    space = Cameras().observation_space
    named = {"features_extractor_kwargs": {"cnn_output_dim": 5}, "cnn": NORMED["cnn"]}
    assert spec(space, **named) == spec(space, **NORMED)
    assert [layer.outputs for layer in spec(space, **NORMED).layers if isinstance(layer, Dense)] == [5, 5, 64, 64, 1]
    with pytest.raises(ValueError, match=r"expected \{'features_dim': n\}"):
        spec(space, features_extractor_kwargs={"cnn_output_dim": 5, "features_dim": 5})


@pytest.mark.parametrize("lstm", ["", "Lstm"])
def test_without_an_image_it_is_the_policy_of_dense_layers(lstm: str) -> None:
    for space in (spaces.Dict({"a": box(7, 7, 3), "b": spaces.Discrete(4)}), box(4)):
        assert spec(space, f"MultiInput{lstm}Policy") == make_policy_spec(f"Mlp{lstm}Policy", space, ACTIONS)


def test_columns_are_chosen_only_without_an_image() -> None:
    flat = spaces.Dict({"a": box(7, 7, 3), "b": spaces.Discrete(4)})
    assert make_policy_spec("MultiInputPolicy", flat, ACTIONS, {}, "0:9").columns == tuple(range(9))
    with pytest.raises(ValueError, match=r"obs_columns = '0:9' chooses among .* not of images"):
        make_policy_spec("MultiInputPolicy", Cameras().observation_space, ACTIONS, NORMED, "0:9")


def test_cells_stand_behind_all_features() -> None:
    own = spec(Cameras().observation_space, "MultiInputLstmPolicy", **NORMED, lstm_hidden_size=3)
    assert [layer.kind for layer in own.layers[-3:]] == ["append", "lstm", "dense"]
    assert own.layers[-2].inputs == 14


# --- what it computes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["MultiInputPolicy", "MultiInputLstmPolicy"])
@pytest.mark.parametrize("kwargs", [SMALL, NORMED], ids=["plain", "normed"])
def test_it_is_its_twin(variant: str, kwargs: dict[str, Any], policy: str) -> None:
    """Of three images of uneven sizes, so that rows of one observation cannot pass for another's."""
    space = spaces.Tuple([box(12, 10, 2), box(3), Cameras().observation_space])
    own = spec(space, policy, **kwargs, net_arch=[6, 3])
    pair = _core.Actor(own), Actor(own)
    seen = [spaces.flatten(space, each) for each in observations(space, 9)]
    for actor in pair:
        actor.parameters[:] = own.initial_theta(4) * np.float32(3)
        actor.set_normalizer(np.linspace(-1, 100, own.obs_size), np.linspace(0.01, 0.5, own.obs_size), 2.0)
        actor.count_moments(True)
        if own.needs_reference:
            actor.set_reference(np.array(seen[4:]))
            actor.fold()
    first = check_steps(variant, pair, seen[:4])
    assert len({action.tobytes() for action in first}) == 4
    for actor in pair:
        actor.begin_episode()
    assert pair[0].act(seen[0]).tobytes() == first[0].tobytes(), "folding and acting leave nothing behind"


def test_every_part_reaches_the_action() -> None:
    space = Cameras().observation_space
    own = spec(space, **SMALL, activation_fn="relu")
    actor = own.make_actor()
    actor.parameters[:] = own.initial_theta(1) * np.float32(2)
    whole, other = observations(space, 2)
    action = actor.act(spaces.flatten(space, whole))
    for key in ("far", "near", "sign"):
        assert actor.act(spaces.flatten(space, {**whole, key: other[key]})) != action, key


def test_it_is_torchs_network() -> None:
    torch = pytest.importorskip("torch")
    functional, space = torch.nn.functional, Cameras().observation_space
    own = spec(space, **SMALL, net_arch=[7])
    actor, (whole,) = own.make_actor(), observations(space, 1)
    actor.parameters[:] = own.initial_theta(1) * np.float32(2)
    views = [{name: torch.from_numpy(view) for name, view in each.items()} for each in own.split_by_layer(actor.parameters)]

    def features(image: Any, layers: list[dict[str, Any]]) -> Any:
        x = torch.from_numpy(image).float()[None] / 255
        for layer, stride in zip(layers[:2], (2, 1), strict=True):
            x = functional.relu(functional.conv2d(x, layer["weight"].permute(3, 2, 0, 1), layer["bias"], stride))
        return functional.relu(x.permute(0, 2, 3, 1).flatten() @ layers[2]["weight"] + layers[2]["bias"])

    far, near = features(whole["far"].transpose(2, 0, 1).copy(), views[:3]), features(whole["near"], views[4:7])
    beside = spaces.flatten(space, {**whole})[list(own.columns)]
    x = torch.cat([far, near, torch.from_numpy(beside).float()])
    x = torch.tanh(x @ views[9]["weight"] + views[9]["bias"]) @ views[10]["weight"] + views[10]["bias"]
    assert actor.act(spaces.flatten(space, whole)) == pytest.approx(np.clip(x.numpy(), -1, 1), abs=1e-5)


def test_parameters_have_the_order_of_torch_behind_each_map() -> None:
    with FastES(Cameras, n_workers=0, seed=1, preset="default", **SETTINGS) as model:
        named = model.get_parameters()["policy"]
        model.set_parameters({"policy": {name: value.copy() for name, value in named.items()}})
        assert all((value == model.get_parameters()["policy"][name]).all() for name, value in named.items())
        layers, views = model.policy_spec.layers, model.policy_spec.split_by_layer(model.theta)
        second = 7 + next(i for i, layer in enumerate(layers[7:]) if isinstance(layer, Dense))
        of = layers[second - 2]
        assert isinstance(of, Convolution)
        own = views[second]["weight"].reshape(of.rows, of.columns, of.filters, -1)
        assert (named[f"layers.{second}.weight"] == own.transpose(3, 2, 0, 1).reshape(5, -1)).all()


# --- training, files and predictions ---------------------------------------------------------------------------------


def test_number_of_workers_and_a_pause_change_no_bit(tmp_path: Path) -> None:
    expected = train(Cameras, 3, **SETTINGS)
    assert_same(expected, train(Cameras, 3, 2, **SETTINGS))
    assert expected.state.arrays["trainings"]["0.normalizer.mean"].shape == (4,), "images have no statistics"
    with FastES(Cameras, n_workers=0, seed=5, target_return="none", preset="default", **SETTINGS) as model:
        learn(model, 1)
        model.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", Cameras, n_workers=1) as model:
        learn(model, 3)
        assert_same_state(expected.state, model.snapshot())


def test_vector_environments_change_no_bit() -> None:
    expected = train(Cameras, 2, **SETTINGS)
    env = SyncVectorEnv([Cameras] * 3)
    assert_same_results(expected, train(env, 2, **SETTINGS))
    env.close()


@pytest.mark.parametrize("policy", ["MultiInputPolicy", "MultiInputLstmPolicy"])
@pytest.mark.parametrize("kwargs", [SMALL, NORMED], ids=["plain", "normed"])
def test_single_and_stacked_observations_give_the_same_actions_as_a_file(
    kwargs: dict[str, Any], policy: str, tmp_path: Path
) -> None:
    settings = {**SETTINGS, "policy": policy, "policy_kwargs": kwargs}
    with FastES(Cameras, n_workers=0, seed=1, preset="default", **settings) as model:
        learn(model, 2)
        seen = observations(model.observation_space, 4)
        actions = [model.predict(each, deterministic=True)[0].tolist() for each in seen]
        stacked = {key: np.stack([each[key] for each in seen]) for key in seen[0]}
        assert model.predict(stacked, deterministic=True)[0].tolist() == actions
        model.save(tmp_path / "m")
        theta = model.theta.tobytes()
    with FastES.load(tmp_path / "m", n_workers=0, env=Cameras) as loaded:
        assert loaded.theta.tobytes() == theta
        assert loaded.policy_spec == model.policy_spec
        assert [loaded.predict(each, deterministic=True)[0].tolist() for each in seen] == actions


def test_a_policy_survives_its_description() -> None:
    for kwargs in (SMALL, NORMED):
        own = spec(Cameras().observation_space, **kwargs)
        described = json.loads(json.dumps(describe_policy(own)))
        arrays = {"trainings": {"0.theta": own.initial_theta(0)}}
        settings = {"policy": "MultiInputPolicy", "policy_kwargs": kwargs}
        assert spec_from(Checkpoint({"policy": described, "settings": settings}, arrays)) == own
        layers = described["layers"]
        joins = [i for i, layer in enumerate(layers) if layer["kind"] == "join"]
        second = joins[0] + 1
        for at, change in (
            (joins[0], {"before": 1}),
            (joins[1], {"before": 4}),
            (joins[1], {"before": -1}),
            (second, {"first": 3}),  # where the first one lies
            (second, {"first": 3 + 20 * 22 * 3 + 2}),
        ):
            damaged = [{**layer, **(change if i == at else {})} for i, layer in enumerate(layers)]
            with pytest.raises(CheckpointError, match=r"'policy(\.\w+)*' is .*damaged"):
                spec_from(Checkpoint({"policy": {**described, "layers": damaged}, "settings": settings}, arrays))


def test_layers_that_join_wrongly_are_refused() -> None:
    """In a file, and in the core: an image whose features nothing keeps, and features that are put beside others' place."""
    own = spec(Cameras().observation_space, **SMALL)
    for odd, message in (
        ((*own.layers[:3], *own.layers[4:]), "layer 3 reads an image: only the first one can, and one behind a join"),
        ((*own.layers[:7], Join(5, 4, "identity"), Append(9, 4, "identity")), "layer 7.* values, expected 5"),
        ((*own.layers[:7], Join(5, 6, "identity"), Append(11, 4, "identity")), "layer 7.* values, expected 5"),
    ):
        with pytest.raises(ValueError, match=message):
            check_layers(odd, 4)
        with pytest.raises(ValueError, match=message):
            _core.Actor(replace(own, layers=odd))
    with pytest.raises(ValueError, match="before = -1 of a join layer"):
        Join(5, -1, "identity").check()


def test_an_environment_with_other_images_does_not_fit(tmp_path: Path) -> None:
    class Other(Cameras):
        """Both pictures of another shape, and as many values."""

        def __init__(self, far: spaces.Box) -> None:
            super().__init__()
            self.observation_space = spaces.Dict({**self.observation_space.spaces, "far": far})

    with FastES(Cameras, preset="default", n_workers=0, seed=1, **SETTINGS) as model:
        model.save(tmp_path / "m")
    for far, said in (
        (box(22, 20, 3), "its image is 22 x 20 with 3 channels in 1 planes, from value 3 of .* made for 20 x 22"),
        (box(1320), "have 1 image, the policy was made for 2 images"),
    ):
        with pytest.raises(CheckpointMismatch, match=f"does not fit the policy: .*{said}"):
            FastES.load(tmp_path / "m", partial(Other, far), n_workers=0)
    for kwargs, said in (
        ({**NORMED, "cnn": [(6, 4, 2), (3, 2, 1)]}, r"layer 0 would be .*\(filters 6\)"),
        ({**NORMED, "net_arch": [3]}, r"layer \d+ would be dense 14 -> 3"),
    ):
        with pytest.raises(CheckpointMismatch, match=f"policy_kwargs = .* cannot change on loading: {said}"):
            FastES.load(tmp_path / "m", n_workers=0, policy_kwargs=kwargs)


def test_batch_normalisation_stands_behind_each_hidden_layer() -> None:
    own = spec(Cameras().observation_space, **NORMED, net_arch=[7, 3])
    assert sum(isinstance(layer, VirtualBatchNorm) for layer in own.layers) == 2 * 3 + 2
    assert own.joined == 10
    assert own.values_kept == math.prod((9, 10, 4)) + 10


# --- learning --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_images_and_the_vector_are_used() -> None:
    """Without one of them an episode cannot return more than -2."""
    settings: dict[str, Any] = {**SETTINGS, "policy_kwargs": {**NORMED, "net_arch": [8]}, "population_size": 32}
    with FastES(Cameras, n_workers=0, seed=1, preset="default", **settings) as model:
        model.learn(10_000)
        assert model.evaluate(40, first_seed=100).mean > -0.5
