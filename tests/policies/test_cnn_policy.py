"""Risk: CnnPolicy reads an image wrongly, or what its batch normalisation rests on differs between workers, files and pools."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from envs_for_tests import Toy
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import FrameStackObservation
from images_for_tests import ACTIONS, NORMED, SETTINGS, SMALL, Dots, box, spec
from kernel_cases import normals
from pools import opened, played
from training import assert_same, assert_same_state, learn, train
from twins.numpy_kernels import Actor
from uneven import assert_same_results

from fastes import CheckpointError, CheckpointMismatch, FastES, train_seeds
from fastes.checkpoints.file_format import Checkpoint
from fastes.checkpoints.policy_description import describe_policy, spec_from
from fastes.models.one_pool import one_pool
from fastes.policies.images import image_in
from fastes.policies.layers import Append, Convolution, Dense, ImageConvolution, VirtualBatchNorm
from fastes.policies.named_policies import make_policy_spec
from fastes.rollout.job import Request
from fastes.rollout.job_runner import JobRunner

# --- what it is made of ----------------------------------------------------------------------------------------------


def test_published_networks() -> None:
    a3c, nature = spec(box(84, 84, 4), batch_norm="none"), spec(box(4, 84, 84), cnn="nature", batch_norm=None)
    assert a3c.layer_sizes == (28224, 6400, 2592, 256, 1)
    assert nature.layer_sizes == (28224, 12800, 5184, 3136, 512, 1)
    assert nature.num_params == 1_684_641, "Stable-Baselines3's NatureCNN of 4 channels has 1,684,128, the output 513"
    assert [layer.activation for layer in a3c.layers] == ["relu"] * 3 + ["identity"]
    with_norm = spec(box(84, 84, 4))
    assert with_norm == spec(box(84, 84, 4), batch_norm="virtual")
    assert [type(layer) for layer in with_norm.layers] == [
        *(ImageConvolution, VirtualBatchNorm, Convolution, VirtualBatchNorm, Dense, VirtualBatchNorm, Dense)
    ]
    assert with_norm.num_params == a3c.num_params + 16 + 32 + 256, "a bias becomes gamma and beta"
    assert with_norm.needs_reference
    assert not a3c.needs_reference


def test_policy_kwargs_build_what_they_say() -> None:
    kwargs: dict[str, Any] = {"net_arch": [7], "activation_fn": "ELU", "use_bias": False, "normalize_images": False}
    own = spec(box(20, 20, 3), cnn=((4, 5, 3), [6, 2, 1]), batch_norm="none", **kwargs)
    image, convolution, features, hidden, last = own.layers
    assert image == ImageConvolution(20, 20, 3, 4, 5, 3, "elu", False, 0, 1, 1)
    assert convolution == Convolution(6, 6, 4, 6, 2, 1, "elu", False)
    assert (features, hidden) == (Dense(150, 256, "elu", False), Dense(256, 7, "elu", False))
    assert last == Dense(7, 1, "identity", False)
    assert spec(box(84, 84, 1), cnn="nature", features_extractor_kwargs={"features_dim": 9}).layer_sizes[-2:] == (9, 1)
    normed = spec(box(20, 20, 3), cnn=[(4, 5, 3)], net_arch=[7], batch_norm="virtual").layers
    assert sum(isinstance(layer, VirtualBatchNorm) for layer in normed) == 3


def test_the_first_parameters() -> None:
    own = spec(box(84, 84, 4), batch_norm="virtual")
    theta = own.initial_theta(3)
    views = own.split(theta)
    assert views["layers.0.weight"].shape == (8, 8, 4, 16)
    assert views["layers.0.weight"].std() == pytest.approx(1 / 16, rel=0.05)
    assert views["layers.4.weight"].std() == pytest.approx(1 / np.sqrt(2592), rel=0.05)
    assert views["layers.6.weight"].std() == pytest.approx(0.01 / np.sqrt(256), rel=0.1)
    assert (views["layers.1.gamma"] == 1.0).all()
    assert not views["layers.5.beta"].any()


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (box(84, 80, 4), (0, 84, 80, 4, 1, True)),
        (box(4, 84, 80), (0, 84, 80, 4, 4, True)),
        (box(9, 3, 8), (0, 9, 3, 8, 1, True)),
        (box(12, 13), (0, 12, 13, 1, 1, True)),
        (box(12, 13, 2, high=10), (0, 12, 13, 2, 1, False)),
        (box(12, 13, 2, high=1, dtype=np.float32), (0, 12, 13, 2, 1, False)),
        (spaces.Dict({"b": box(2, 12, 13), "a": spaces.Discrete(5)}), (5, 12, 13, 2, 2, True)),
        (spaces.Tuple([box(3, 4), spaces.Dict({"z": box(12, 13, 2), "a": box(3)})]), (15, 12, 13, 2, 1, True)),
        (spaces.Dict({"a": box(9, 9, 2, dtype=np.float64), "b": box(12, 13, 2)}), (162, 12, 13, 2, 1, True)),
        (box(4, 12, 13, 2), (0, 12, 13, 8, 4, True)),
        (box(4, 2, 12, 13), (0, 12, 13, 8, 8, True)),
        (box(4, 12, 13, 1), (0, 12, 13, 4, 4, True)),
        (spaces.Dict({"a": box(4, 3, 12, 13), "b": box(9)}), (0, 12, 13, 12, 12, True)),
        (spaces.Dict({"a": box(4, 9, 9, 2), "b": box(12, 13, 2)}), (648, 12, 13, 2, 1, True)),
    ],
)
def test_images_are_found(space: spaces.Space[Any], expected: tuple[Any, ...]) -> None:
    assert image_in(space, "CnnPolicy") == expected


@pytest.mark.parametrize(
    ("space", "kwargs", "message"),
    [
        (
            box(17),
            {},
            r"needs images, the observation space is Box.*expected a Box of floats .*integers .*or bool, of shape \(height",
        ),
        (box(2, 3, 4, 5, 6), {}, "needs images"),
        (spaces.Discrete(5), {}, "needs images"),
        (spaces.Dict({"a": box(12, 13)}), {}, "needs images"),
        (
            spaces.Dict({"a": box(9, 9, 3), "b": box(8, 8, 3)}),
            {},
            r"sees one image, .* has 2: \['a'\], \['b'\]\. Use 'MultiInputPolicy'",
        ),
        (box(16, 16, 3), {}, r"its convolution 2 has a kernel of 4 x 4, .* is 3 x 3\. Expected smaller kernels"),
        (
            box(84, 84, 4),
            {"cnn": "natur"},
            r"unknown cnn 'natur': expected one of \('a3c', 'nature'\), .* did you mean 'nature'\?",
        ),
        (box(84, 84, 4), {"cnn": []}, r"cnn = \[\]: expected one of .* or a list of \(filters, kernel, stride\)"),
        (box(84, 84, 4), {"cnn": [(8, 8)]}, "all of ints of at least 1"),
        (box(84, 84, 4), {"cnn": [(8, 8, 0)]}, "all of ints of at least 1"),
        (box(84, 84, 4), {"cnn": 3}, "cnn = 3: expected"),
        (
            box(84, 84, 4),
            {"cnn": [(2**31, 8, 4)]},
            "cnn = .* does not fit .*convolution 1: filters = 2147483648",
        ),
        (box(84, 84, 4), {"cnn": [(2**25, 8, 4)]}, r"cnn = .* convolution 1: outputs = \d+ .* out of range"),
        (
            box(84, 84, 4),
            {"features_extractor_kwargs": {"features_dim": 2**31}},
            "features_dim = .* at most",
        ),
        (box(84, 84, 4), {"net_arch": [True]}, r"net_arch = \[True\]: expected a list of positive layer sizes"),
        (box(84, 84, 4), {"batch_norm": "running"}, r"batch_norm = 'running': expected one of \('virtual', 'none'\), or None"),
        (box(84, 84, 4), {"batch_norm": True}, "batch_norm = True"),
        (box(84, 84, 4), {"features_extractor_kwargs": {"features_dim": 0}}, "features_dim = 0: expected the size of a layer"),
        (box(84, 84, 4), {"features_extractor_kwargs": {"size": 1}}, r"expected \{'features_dim': n\}"),
        (box(84, 84, 4), {"features_extractor_class": "NatureCNN"}, "cnn says which convolutions there are"),
        (
            box(84, 84, 4),
            {"features_dim": 12},
            r"'features_dim'.*; it is features_extractor_kwargs=\{'features_dim': 12\} here",
        ),
        (box(84, 84, 4), {"batch_nrm": 1}, "did you mean 'batch_norm'"),
    ],
)
def test_what_does_not_fit_is_refused(space: spaces.Space[Any], kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        spec(space, **kwargs)


def test_values_that_are_no_numbers_are_refused_with_those_that_are() -> None:
    space = box(9, 9, 3)
    space.dtype = np.dtype(np.complex64)  # Gymnasium's own constructor refuses it, a class of the user's need not
    with pytest.raises(ValueError, match=r"dtype complex64: expected floats \(float16 to float64\), integers .* or bool$"):
        spec(space)


def test_other_arguments_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match=r"obs_columns = '0:9' chooses among .* not of images: leave it out"):
        make_policy_spec("CnnPolicy", box(84, 84, 4), ACTIONS, {}, "0:9")
    with pytest.raises(TypeError, match="normalize_images = 1 is a int: expected True or False"):
        spec(box(84, 84, 4), normalize_images=1)
    for key in ("cnn", "batch_norm", "normalize_images", "features_extractor_kwargs", "features_dim"):
        with pytest.raises(ValueError, match=f"unknown policy_kwargs key '{key}'.*policies that see images: use 'CnnPolicy'"):
            make_policy_spec("MlpPolicy", box(5), ACTIONS, {key: None})


def test_a_dictionary_goes_through_convolutions_and_around_them() -> None:
    own = spec(Dots(dictionary=True).observation_space, **SMALL)
    assert own.layers[2] == Append(12, 5, "identity")
    assert (own.obs_size, own.columns) == (5, (0, 1, 2, 147, 148))


def test_a_policy_survives_its_description() -> None:
    for space in (box(8, 9, 2), Dots(dictionary=True).observation_space):
        for kwargs in (SMALL, NORMED):
            own = spec(space, **kwargs)
            described = json.loads(json.dumps(describe_policy(own)))
            parts = {"parts"} if own.flattened else set[str]()
            assert set(described) == {"layers", "head", "obs_shape", "flattened", *parts}
            arrays = {"trainings": {"0.theta": own.initial_theta(0)}}
            settings = {"policy": "CnnPolicy", "policy_kwargs": kwargs}
            assert spec_from(Checkpoint({"policy": described, "settings": settings}, arrays)) == own
            for change in (
                {"obs_shape": [2]},
                {"layers": described["layers"][1:]},
                {"layers": [{**described["layers"][0], "first": 200}, *described["layers"][1:]]},
                {"layers": [{**described["layers"][0], "kernel": 99}, *described["layers"][1:]]},
                {"layers": [*described["layers"], {"kind": "append", "inputs": 3, "appended": 5, "activation": "tanh"}]},
            ):
                with pytest.raises(CheckpointError, match=r"'policy(\.\w+)*' is .*damaged"):
                    spec_from(Checkpoint({"policy": {**described, **change}, "settings": settings}, arrays))


def test_a_stack_of_frames_is_the_image_of_all_their_channels() -> None:
    stacked = FrameStackObservation(Dots(), 3)
    image, _ = stacked.reset(seed=1)
    stacked.step(np.ones(1))
    image = stacked.step(np.ones(1))[0]
    assert image.shape == (3, 8, 9, 2)
    own, joined = spec(stacked.observation_space, **SMALL), spec(box(8, 9, 6), **SMALL)
    theta = normals(own.num_params, 1)
    actors = own.make_actor(), joined.make_actor()
    for actor in actors:
        actor.parameters[:] = theta
    assert actors[0].act(image) == actors[1].act(np.moveaxis(image, 0, 2).reshape(8, 9, 6)) != 0.0


# --- training --------------------------------------------------------------------------------------------------------


def test_number_of_workers_and_a_pause_change_no_bit(tmp_path: Path) -> None:
    """Of policies with batch normalisation: each candidate has its own statistics of the same reference batch."""
    env = partial(Dots, dictionary=True)
    expected = train(env, 3, **SETTINGS)
    assert_same(expected, train(env, 3, 2, **SETTINGS))
    assert expected.state.arrays["trainings"]["0.normalizer.mean"].shape == (5,), "images have no statistics"
    with FastES(env, n_workers=0, seed=5, target_return="none", preset="default", **SETTINGS) as model:
        learn(model, 1)
        model.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", env, n_workers=1) as model:
        records = learn(model, 3)
        assert_same_state(expected.state, model.snapshot())
        assert records[-1].eval_return == expected.records[-1].eval_return


def test_vector_envs_and_trainings_side_by_side_change_no_bit() -> None:
    expected = [train(Dots, 2, **{**SETTINGS, "seed": seed}) for seed in (5, 6)]
    for num_envs in (1, 3):
        env = SyncVectorEnv([Dots] * num_envs)
        assert_same_results(expected[0], train(env, 2, **SETTINGS))
        env.close()
    steps = max(result.records[-1].timesteps for result in expected)
    models = train_seeds(Dots, [5, 6], total_timesteps=steps, n_workers=0, target_return="none", preset="default", **SETTINGS)
    for model, result in zip(models, expected, strict=True):
        reference = result.state.arrays["reference"]["observations"]
        assert model.training.reference.tobytes() == reference.tobytes()
        with FastES(Dots, n_workers=0, seed=model.seed, target_return="none", preset="default", **SETTINGS) as alone:
            alone.learn(steps)
            assert_same_state(alone.snapshot(), model.snapshot())
    with one_pool(models):
        together = [model.evaluate(2).returns.tolist() for model in models]
    assert together == [model.evaluate(2).returns.tolist() for model in models]
    for model in models:
        model.close()


def test_a_pool_that_was_sent_somewhere_has_the_batch() -> None:
    """As a node of a cluster gets it."""
    with FastES(Dots, n_workers=0, seed=1, preset="default", **SETTINGS) as model:
        sent = cloudpickle.loads(cloudpickle.dumps(model.evaluator.pool_spec(training=False)))
        request = Request(model.theta, model.normalizer, model.training.episode_settings()[1], eval_seeds=np.arange(2))
        pool = opened(sent)
        expected = model.evaluate(2)
        assert played(pool, request).returns.tolist() == expected.returns.tolist()
        pool.close()


@pytest.mark.parametrize("kwargs", [SMALL, NORMED])
def test_it_acts_as_its_twin_and_after_loading(kwargs: dict[str, Any], tmp_path: Path) -> None:
    for env in (Dots, partial(Dots, channels_first=True), partial(Dots, dictionary=True)):
        with FastES(env, n_workers=0, seed=1, preset="default", **{**SETTINGS, "policy_kwargs": kwargs}) as model:
            space = model.observation_space
            space.seed(2)
            observations = [space.sample() for _ in range(4)]
            model.predict(observations[0])  # what it was made for then must not stay
            learn(model, 2)
            actions = [model.predict(each, deterministic=True)[0].tolist() for each in observations]
            batch = model.predict(
                {key: np.stack([each[key] for each in observations]) for key in space.spaces}
                if isinstance(space, spaces.Dict)
                else np.stack(observations),
                deterministic=True,
            )[0]
            assert batch.tolist() == actions
            twin = Actor(model.policy_spec)
            twin.parameters[:] = model.theta
            twin.set_normalizer(model.normalizer.mean, 1.0 / model.normalizer.std, model.normalizer.clip)
            if model.policy_spec.needs_reference:
                twin.set_reference(model.training.reference)
                twin.fold()
            assert [
                twin.act(spaces.flatten(space, each) if model.policy_spec.flattened else each) for each in observations
            ] == (actions)
            model.save(tmp_path / "m")
        with FastES.load(tmp_path / "m", env, n_workers=0) as loaded:
            assert [loaded.predict(each, deterministic=True)[0].tolist() for each in observations] == actions
        acting = type(loaded.policy).load(tmp_path / "m", env=env)
        assert [acting.predict(each, deterministic=True)[0].tolist() for each in observations] == actions
        assert "parameters" in repr(acting)


def test_candidates_between_evaluations_of_one_theta_change_no_result() -> None:
    """Episodes of a theta in a row share the statistics of the batch: the actor may not have become another's meanwhile."""
    with FastES(Dots, n_workers=0, seed=1, preset="default", **SETTINGS) as model:
        training, evaluation = model.training.episode_settings()
        seeds = np.arange(2, dtype=np.int64)
        asked = Request(model.theta, model.normalizer, evaluation, eval_seeds=seeds, generation=0)
        candidates = Request(model.theta, model.normalizer, training, model.strategy.ask())
        pool: Any = opened(model.evaluator.pool_spec())
        pool.place_table(model.strategy.table)
        first, other = pool.submit(asked), pool.submit(candidates)
        runner, slots = JobRunner(pool.spec, pool.block), pool.block.slots
        slot, of_candidates = (next(each for each in slots if bool(each.layout.num_pairs) == pairs) for pairs in (False, True))
        for its_slot, ticket, job in ((slot, first, 0), (of_candidates, other, 0), (slot, first, 1)):
            runner.run(its_slot, ticket, job, lambda error: None)
        assert slot.returns[:2].tolist() == model.evaluate(2).returns.tolist()
        runner.close()
        pool.close()


def test_a_file_is_loaded_with_the_arguments_that_it_was_made_with(tmp_path: Path) -> None:
    """Tuples are lists in a file."""
    given = {**NORMED, "net_arch": (3,), "activation_fn": type("Tanh", (), {})}
    with FastES(Dots, preset="default", n_workers=0, seed=1, **{**SETTINGS, "policy_kwargs": given}) as model:
        model.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", Dots, n_workers=0, policy_kwargs=given) as loaded:
        assert loaded.settings == model.settings
    with pytest.raises(
        CheckpointMismatch, match=r"cannot change on loading: layer 6 would be dense 5 -> 4, .* is dense 5 -> 3\."
    ):
        FastES.load(tmp_path / "m", Dots, n_workers=0, policy_kwargs={**given, "net_arch": (4,)})


@pytest.fixture(scope="module", params=["CnnPolicy", "CnnLstmPolicy"])
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file whose policy sees an image and, beside it, two numbers and a choice."""
    path: Path = tmp_path_factory.mktemp("saved") / "m.zip"
    env = partial(Dots, dictionary=True)
    with FastES(env, preset="default", n_workers=0, seed=1, **{**SETTINGS, "policy": request.param}) as model:
        model.save(path)
    return path


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        (
            {**NORMED, "cnn": [(6, 4, 2), (3, 2, 1)]},
            r"layer 0 would be image_convolution 144 -> 54 \(filters 6\), the checkpoint's is image_convolution 144 -> 36 "
            r"\(filters 4\)",
        ),
        ({**NORMED, "cnn": [(4, 4, 2)]}, r"layer 2 would be append 36 -> 41, the checkpoint's is convolution 36 -> 12"),
        ({**NORMED, "features_extractor_kwargs": {}}, "layer 5 would be dense 17 -> 256, the checkpoint's is dense 17 -> 5"),
        ({**NORMED, "batch_norm": "none"}, r"layer 0 would be .*activation 'relu', use_bias True\), the .*use_bias False\)"),
        ({**NORMED, "normalize_images": False}, r"layer 0 would be .* \(divisor 1\), .* \(divisor 255\)"),
    ],
)
def test_other_layers_of_an_image_than_the_files_are_named(kwargs: dict[str, Any], said: str, saved: Path) -> None:
    with pytest.raises(CheckpointMismatch, match=f"policy_kwargs = .* cannot change on loading: {said}.* start a new run"):
        FastES.load(saved, n_workers=0, policy_kwargs=kwargs)


def test_layers_that_do_not_fit_the_files_image_are_refused(saved: Path) -> None:
    with pytest.raises(
        ValueError, match=r"cnn = .* does not fit images of 8 x 9 x 2: its convolution 1 has a kernel of 10 x 10"
    ):
        FastES.load(saved, n_workers=0, policy_kwargs={"cnn": [(4, 10, 2)]})


def test_no_layers_asked_for_where_the_defaults_do_not_fit_the_image(saved: Path) -> None:
    """a3c's filters of 8 x 8 do not fit, and nobody has asked for them."""
    with pytest.raises(CheckpointMismatch, match=r"policy_kwargs = \{\} cannot change on loading"):
        FastES.load(saved, n_workers=0, policy_kwargs={})


def test_an_environment_with_its_image_elsewhere_does_not_fit(tmp_path: Path) -> None:
    class Moved(Dots):
        def __init__(self) -> None:
            super().__init__(dictionary=True)
            parts = dict(self.observation_space.spaces)
            self.observation_space = spaces.Dict({"aaa": parts.pop("where"), **parts})

    with FastES(partial(Dots, dictionary=True), preset="default", n_workers=0, seed=1, **SETTINGS) as model:
        message = "its image is 8 x 9 with 2 channels in 1 planes, from value 5 of an observation on, .* from value 3 of"
        with pytest.raises(CheckpointMismatch, match=message):
            model.set_env(Moved)
        with pytest.raises(CheckpointMismatch, match="does not fit the policy"):
            model.set_env(Toy)


class Floats(Dots):
    """The same pictures from 0 to 1."""

    def __init__(self, dictionary: bool = False) -> None:
        super().__init__(dictionary=dictionary)
        space, image = self.observation_space, box(8, 9, 2, high=1, dtype=np.float32)
        self.observation_space = spaces.Dict({**space.spaces, "image": image}) if isinstance(space, spaces.Dict) else image

    def _shown(self) -> Any:
        shown = super()._shown()
        if self.dictionary:
            return {**shown, "image": np.float32(shown["image"]) / np.float32(255)}
        return np.float32(shown) / np.float32(255)


@pytest.mark.parametrize("dictionary", [False, True])
def test_an_environment_whose_image_became_floats_does_not_fit(dictionary: bool, tmp_path: Path) -> None:
    bytes_, floats = partial(Dots, dictionary=dictionary), partial(Floats, dictionary=dictionary)
    shown, divided = "float32 from 0 to 1", "bytes from 0 to 255, which it divides by 255"
    for made, other, said in (
        (bytes_, floats, f"its image is {shown}, the policy was made for {divided}$"),
        (floats, bytes_, "its image is uint8 from 0 to 255, the policy was made for values that it takes as they are$"),
    ):
        with FastES(made, preset="default", n_workers=0, seed=1, **SETTINGS) as model:
            model.save(tmp_path / "m")
        with pytest.raises(CheckpointMismatch, match=f"does not fit the policy: {said}"):
            FastES.load(tmp_path / "m", other, n_workers=0)
