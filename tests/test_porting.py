"""Risk: a policy that comes from another library, or goes to one, acts otherwise there than here."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from training import label, learn

from fastes import FastES, TorchPolicy, import_policy

NONE = np.inf
BOX = spaces.Box(np.array([-0.4, -1.0, 0.0, -NONE], np.float32), np.array([0.4, 2.0, 5.0, NONE], np.float32))
FINITE = spaces.Box(np.array([-0.4, -1.0, 0.0, -3.0], np.float32), np.array([0.4, 2.0, 5.0, 3.0], np.float32))
BOUNDED = spaces.Box(np.array([[-0.4], [-1.0], [0.0]]), np.array([[0.4], [2.0], [5.0]]), dtype=np.float64)
ACTIONS = {
    "box": BOX,
    "bounded": BOUNDED,
    "choice": spaces.Discrete(3, start=-1),
    "choices": spaces.MultiDiscrete([3, 2], dtype=np.int32, start=[1, 0]),
    "switches": spaces.MultiBinary(3),
}
INPUTS = 5
SETTINGS: dict[str, Any] = {"preset": "default", "n_workers": 0, "seed": 0, "target_return": "none"}


class Shaped(gymnasium.Env[Any, Any]):
    """Observations of 5 numbers, and actions of any space."""

    observation_space = spaces.Box(-np.inf, np.inf, (INPUTS,), np.float32)

    def __init__(self, actions: Any = BOX) -> None:
        self.action_space = actions

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self._observed(), {}

    def step(self, action: Any) -> Any:
        return self._observed(), float(np.sum(action)), bool(self.np_random.random() < 0.2), False, {}

    def _observed(self) -> Any:
        return self.np_random.normal(size=INPUTS).astype(np.float32)


def env_of(actions: Any) -> Callable[[], Shaped]:
    return lambda: Shaped(actions)


def observations(count: int = 300) -> Any:
    return (np.random.default_rng(3).normal(size=(count, INPUTS)) * 2.0).astype(np.float32)


def acted(model: Any) -> Any:
    return model.predict(observations(), deterministic=True)[0]


def assert_same_actions(found: Any, expected: Any) -> None:
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert len(np.unique(expected)) > 1, "or this shows nothing"
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5)


# --- out --------------------------------------------------------------------------------------------------------------

EXPORTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "mlp": ("MlpPolicy", "box", {"policy_kwargs": {"net_arch": [6, 6]}}),
    "elu without bias": ("MlpPolicy", "box", {"policy_kwargs": {"net_arch": [6], "activation_fn": "elu", "use_bias": False}}),
    "linear": ("LinearPolicy", "box", {}),
    "raw observations": ("MlpPolicy", "box", {"policy_kwargs": {"activation_fn": "relu"}, "normalize_obs": False}),
    "columns": ("MlpPolicy", "box", {"obs_columns": "4,0:2"}),
    "squash": ("MlpPolicy", "bounded", {"policy_kwargs": {"action_mapping": "squash"}}),
    "bins": ("MlpPolicy", "bounded", {"policy_kwargs": {"action_mapping": "bins", "num_bins": 4}}),
    "choice": ("LinearPolicy", "choice", {}),
    "choices": ("MlpPolicy", "choices", {}),
    "switches": ("MlpPolicy", "switches", {}),
}


@pytest.fixture(params=EXPORTS.values(), ids=list(EXPORTS))
def trained(request: pytest.FixtureRequest) -> Any:
    """A model whose outputs reach the bounds, with statistics that matter."""
    policy, actions, more = request.param
    with FastES(env_of(ACTIONS[actions]), policy, **{**SETTINGS, "obs_clip": 2.0, **more}) as model:
        draw = np.random.default_rng(1)
        if model.settings.normalize_obs:
            size = model.normalizer.obs_size
            model.set_obs_statistics(draw.normal(size=size), draw.uniform(0.5, 2.0, size), 100)
        model.policy.load_from_vector(draw.normal(size=model.num_params) * 0.8)
        yield model


def numpy_actions(arrays: dict[str, Any], x: Any) -> Any:
    """What to_arrays documents, of observations (n, values), as float64 (n, components)."""
    x = x[:, arrays["columns"]] if "columns" in arrays else x
    if "mean" in arrays:
        x = np.clip((x - arrays["mean"]) / arrays["std"], -arrays["clip"], arrays["clip"])
    between = {
        "tanh": np.tanh,
        "relu": lambda v: np.maximum(v, 0),
        "elu": lambda v: np.where(v > 0, v, np.expm1(np.minimum(v, 0))),
    }
    layers = sum(name.endswith("weight") for name in arrays)
    for i in range(layers):
        x = x @ arrays[f"layers.{i}.weight"].T + arrays.get(f"layers.{i}.bias", 0.0)
        x = between[str(arrays["activation_fn"])](x) if i < layers - 1 else x
    outputs = str(arrays["outputs"])
    if outputs == "logits" and "nvec" in arrays:
        parts = np.split(x, np.cumsum(arrays["nvec"])[:-1], axis=1)
        return np.stack([part.argmax(axis=1) for part in parts], axis=1) + arrays["start"]
    if outputs == "logits":
        return x > 0
    low, high = arrays["low"], arrays["high"]
    if outputs == "bins":
        bins = int(arrays["num_bins"])
        return low + x.reshape(len(x), -1, bins).argmax(axis=2) / (bins - 1) * (high - low)
    x = np.tanh(x) if outputs == "tanh" else x
    bounded = np.isfinite(low)
    with np.errstate(invalid="ignore"):
        return np.where(bounded, low + (np.clip(x, -1, 1) + 1) / 2 * (high - low), x)


def test_arrays_say_all_that_an_action_takes(trained: FastES) -> None:
    expected = acted(trained)
    found = numpy_actions(trained.policy.to_arrays(), observations())
    assert_same_actions(found.reshape(expected.shape).astype(expected.dtype), expected)


def test_arrays_come_back_from_a_file(trained: FastES, tmp_path: Path) -> None:
    np.savez(tmp_path / "policy.npz", **trained.policy.to_arrays())
    trained.save(tmp_path / "model")
    with import_policy(tmp_path / "policy.npz", trained.source.factory, **SETTINGS) as model:
        assert_same_actions(acted(model), acted(trained))
        state, again = trained.policy.state_dict(), model.policy.state_dict()
        assert list(state) == list(again)
        assert all(state[name].tobytes() == again[name].tobytes() for name in state)


def test_a_torch_module_acts_the_same(trained: FastES) -> None:
    torch = pytest.importorskip("torch")
    drawn = torch.get_rng_state()
    module = trained.policy.to_torch()
    assert torch.equal(torch.get_rng_state(), drawn)
    expected = acted(trained)
    assert_same_actions(module(torch.as_tensor(observations())).detach().numpy(), expected)
    assert list(module.state_dict()) == list(trained.policy.state_dict())
    trained.policy.load_from_vector(trained.policy.parameters_to_vector() * 0.5)
    module.load_state_dict({name: torch.as_tensor(value) for name, value in trained.policy.state_dict().items()})
    assert_same_actions(module(torch.as_tensor(observations())).detach().numpy(), acted(trained))


def test_an_onnx_model_acts_the_same(trained: FastES, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    reference = pytest.importorskip("onnx.reference")
    buffer = io.BytesIO()
    trained.policy.to_onnx(buffer)
    trained.policy.to_onnx(tmp_path / "policy.onnx")
    assert (tmp_path / "policy.onnx").read_bytes() == buffer.getvalue()
    expected = acted(trained)
    (found,) = reference.ReferenceEvaluator(str(tmp_path / "policy.onnx")).run(None, {"observation": observations()})
    assert_same_actions(found, expected)
    try:
        import onnxruntime
    except ImportError:
        return
    session = onnxruntime.InferenceSession(buffer.getvalue(), providers=["CPUExecutionProvider"])
    assert_same_actions(session.run(["action"], {"observation": observations()})[0], expected)
    assert session.run(None, {"observation": observations(1)})[0].shape == expected[:1].shape


def test_what_cannot_go_out_is_said() -> None:
    with FastES(env_of(BOX), "MlpLstmPolicy", **SETTINGS) as model:
        for way in (model.policy.to_arrays, model.policy.to_torch, lambda: model.policy.to_onnx("x")):
            with pytest.raises(ValueError, match=r"a MlpLstmPolicy is more than dense layers.*state_dict\(\)"):
                way()
    torch = pytest.importorskip("torch")
    said = r"a TorchPolicy is .*model.policy_spec.module_with\(model.theta\) is its module"
    with (
        FastES(env_of(BOX), TorchPolicy(torch.nn.Linear(INPUTS, 4)), **SETTINGS) as model,
        pytest.raises(ValueError, match=said),
    ):
        model.policy.to_torch()


# --- in: arrays -------------------------------------------------------------------------------------------------------


def ars_arrays(actions: int = 4) -> tuple[Any, Any, Any]:
    draw = np.random.default_rng(0)
    return draw.normal(size=(actions, INPUTS)), draw.normal(size=INPUTS), draw.uniform(0.01, 3.0, INPUTS)


WEIGHT, MEAN, STD = ars_arrays()


def ars_actions(weight: Any, mean: Any, std: Any, space: spaces.Box = BOX) -> Any:
    """As run_policy.py of github.com/modestyachts/ARS acts, clipped to the space; float64."""
    actions = [np.clip(np.dot(weight, (ob - mean) / std), np.ravel(space.low), np.ravel(space.high)) for ob in observations()]
    return np.array(actions).reshape(-1, *space.shape).astype(space.dtype)


def test_ars_acts_as_it_does_where_it_comes_from() -> None:
    weight, mean, std = ars_arrays()
    std[2] = 1e-3  # below the floor that FastES has else
    for given in ((weight, mean, std), np.array([weight, mean, std, 0], dtype=object)[:3]):
        with import_policy(given, env_of(BOX), **SETTINGS) as model:
            assert model.settings.policy == "LinearPolicy"
            assert_same_actions(acted(model), ars_actions(weight, mean, std))
    with import_policy((weight[:3], mean, std), env_of(BOUNDED), **SETTINGS) as model:
        assert_same_actions(acted(model), ars_actions(weight[:3], mean, std, BOUNDED))
    with import_policy(weight, env_of(BOX), mean=mean, std=std, **SETTINGS) as model:
        assert_same_actions(acted(model), ars_actions(weight, mean, std))
    with import_policy(weight[:3].tolist(), env_of(BOUNDED), mean=mean, std=std, **SETTINGS) as model:
        assert_same_actions(acted(model), ars_actions(weight[:3], mean, std, BOUNDED))
    with import_policy((weight, None, None), env_of(BOX), **SETTINGS) as model:
        assert_same_actions(acted(model), ars_actions(weight, np.zeros(INPUTS), np.ones(INPUTS)))


def test_what_is_far_from_the_mean_is_not_clipped_and_a_constant_does_not_count() -> None:
    """ARS has no clip, and an infinite std for what was constant."""
    weight, mean, std = ars_arrays()
    std[:] = 1e-3
    std[1] = np.inf
    low = spaces.Box(-1e9, 1e9, (4,), np.float64)
    with import_policy((weight, mean, std), env_of(low), **SETTINGS) as model:
        assert_same_actions(acted(model), ars_actions(weight, mean, std, low))


def test_symmetric_bounds_need_no_bias_and_others_get_one() -> None:
    weight, mean, std = ars_arrays(3)
    for space, biased in ((spaces.Box(-2.0, 2.0, (3,)), False), (BOUNDED, True)):
        with import_policy((weight, mean, std), env_of(space), **SETTINGS) as model:
            assert ("layers.0.bias" in model.policy.state_dict()) == biased
            assert_same_actions(acted(model), ars_actions(weight, mean, std, space))


def test_a_file_of_objects_is_not_read(tmp_path: Path) -> None:
    class Harm:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "run",)

    items = np.empty(3, dtype=object)
    items[:] = [Harm(), Harm(), Harm()]
    np.savez(tmp_path / "lin_policy_plus.npz", items)
    with pytest.raises(
        ValueError, match=r"can run any code.*allow_pickle=True\)\['arr_0'\].*import_policy\(\(weight, mean, std\)"
    ):
        import_policy(tmp_path / "lin_policy_plus.npz", env_of(BOX))
    assert not (tmp_path / "run").exists()


def test_what_is_no_file_of_arrays_is_said(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("weights")
    np.savez(tmp_path / "whole.npz", weight=WEIGHT)
    (tmp_path / "half.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:200])
    np.save(tmp_path / "half.npy", WEIGHT)
    (tmp_path / "half.npy").write_bytes((tmp_path / "half.npy").read_bytes()[:200])
    for name, shape in (("open.npy", "(((((("), ("vast.npy", f"({10**15},)")):
        header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
        (tmp_path / name).write_bytes(b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + header.encode())
    for name, said in (
        ("text.npz", "cannot be read.*numpy.savez"),
        ("half.npz", "cannot be read"),
        ("half.npy", "cannot be read"),
        ("open.npy", "cannot be read"),
        ("vast.npy", "cannot be read"),
    ):
        with pytest.raises(ValueError, match=f"{name}.*{said}"):
            import_policy(tmp_path / name, env_of(BOX))
    for name in ("whole.npz", "one.npy", "one.npz"):
        np.save(tmp_path / "one.npy", WEIGHT)
        np.savez(tmp_path / "one.npz", WEIGHT)
        with import_policy(str(tmp_path / name), env_of(BOX), **SETTINGS) as model:
            assert_same_actions(acted(model), ars_actions(WEIGHT, np.zeros(INPUTS), np.ones(INPUTS)))


def mlp(**more: Any) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    sizes = [(6, INPUTS), (6, 6), (4, 6)]
    layers = {f"layers.{i}.weight": draw.normal(size=size) for i, size in enumerate(sizes)}
    return {**layers, "layers.1.bias": draw.normal(size=6), **more}


def test_layers_are_taken_as_torch_has_them() -> None:
    """The square one, too, which shows by no shape which way round it is."""
    given = mlp(activation_fn="relu", outputs="actions")
    x = observations().astype(np.float64)
    for i in range(3):
        x = x @ given[f"layers.{i}.weight"].T + given.get(f"layers.{i}.bias", 0.0)
        x = np.maximum(x, 0.0) if i < 2 else x
    with import_policy(given, env_of(BOX), **SETTINGS) as model:
        assert_same_actions(acted(model), np.clip(x, BOX.low, BOX.high).astype(np.float32))
    named = {name: value for name, value in given.items() if name.startswith("layers")}
    with import_policy(named, env_of(BOX), activation_fn="relu", outputs="actions", **SETTINGS) as model:
        assert_same_actions(acted(model), np.clip(x, BOX.low, BOX.high).astype(np.float32))


@pytest.mark.parametrize(
    ("given", "more", "kind", "said"),
    [
        (
            WEIGHT.T,
            {},
            ValueError,
            r"\(5, 4\), reads 4 observation values, the environment has 5: expected \(outputs,",
        ),
        (WEIGHT[:3], {}, ValueError, "3 outputs, the environment needs 4, a number for each component"),
        ((WEIGHT, MEAN[:3], STD[:3]), {}, ValueError, "of 3 observation values"),
        ((WEIGHT, MEAN, -STD), {}, ValueError, r"std\[0\] = -.*expected positive"),
        ((WEIGHT, MEAN, STD * np.nan), {}, ValueError, r"std\[0\] = nan"),
        ((WEIGHT, MEAN * np.inf, STD), {}, ValueError, "mean has values that are not finite"),
        (WEIGHT * np.nan, {}, ValueError, "layer 0 has values that are not finite"),
        (WEIGHT, {"mean": MEAN}, ValueError, "only mean was given: pass mean and std, or none"),
        (WEIGHT, {"clip": 3.0}, ValueError, "only clip was given"),
        ((WEIGHT, None, STD), {}, ValueError, "only std was given"),
        ({"weight": WEIGHT, "clip": 3.0}, {}, ValueError, "only clip was given"),
        (
            {"weight": WEIGHT, "mean": MEAN, "std": STD, "clip": MEAN},
            {},
            ValueError,
            "clip = array.*expected one positive number",
        ),
        ((WEIGHT, MEAN, STD * 1e200), {}, ValueError, r"std\[0\] = .*e\+200: expected numbers from 1e-140"),
        ((WEIGHT, MEAN, STD * 1e-200), {}, ValueError, r"std\[0\] = .*e-200: expected numbers from 1e-140"),
        (WEIGHT * 1e39, {}, ValueError, "layer 0 has values that are not finite: expected finite numbers of float32"),
        (WEIGHT, {"outputs": "angles"}, ValueError, "outputs = 'angles': expected one of"),
        (WEIGHT, {"outputs": "logits"}, ValueError, "logits of choices, the environment has actions"),
        (WEIGHT, {"policy": "MlpPolicy"}, TypeError, "policy = 'MlpPolicy' follows from the policy that is imported"),
        (mlp(), {}, ValueError, "activation_fn='tanh'"),
        (mlp(), {"activation_fn": "tanh"}, ValueError, "pass outputs='actions'"),
        (mlp(outputs="actions"), {"activation_fn": "gelu"}, ValueError, "activation_fn = 'gelu'.*TorchPolicy"),
        (mlp() | {"layers.1.bias": np.zeros(2)}, {"activation_fn": "tanh"}, ValueError, "bias of layer 1 has shape"),
        (mlp() | {"layers.2.weight": np.zeros((6, 4))}, {"activation_fn": "tanh"}, ValueError, "with .T if"),
        (mlp() | {"layers.0.weight_ih": np.zeros(2)}, {"activation_fn": "tanh"}, ValueError, "'layers.0.weight_ih'"),
        ({"lstm_actor.weight_ih_l0": WEIGHT}, {}, ValueError, "only policies of dense layers"),
        ({"features_extractor.scale": MEAN, "action_net.weight": WEIGHT}, {}, ValueError, "only policies of dense layers"),
        ({0: WEIGHT}, {}, TypeError, "the arrays have the name 0"),
        (mlp(outputs=np.array(["unit", "tanh"])), {"activation_fn": "tanh"}, ValueError, "outputs = array.*expected one of"),
        (mlp(activation_fn=np.array(["tanh", "relu"])), {"outputs": "unit"}, ValueError, "activation_fn = array"),
        (mlp(columns=np.array([0.5, 1.0])), {"activation_fn": "tanh"}, ValueError, "columns = array.*expected whole numbers"),
        (mlp(num_bins=np.array([2, 3])), {"activation_fn": "tanh"}, ValueError, "expected one whole number"),
        (
            {"weight": WEIGHT, "low": BOX.low * 2},
            {},
            ValueError,
            r"low = \[-0.8.*the environment has actions .* from -0.4 to 0.4",
        ),
        ({"kernel": WEIGHT}, {}, ValueError, r"names \['kernel'\]: expected layers.0.weight"),
        ({}, {}, ValueError, "expected layers.0.weight"),
        ([WEIGHT, WEIGHT], {}, TypeError, "expected a model or policy of SB3"),
        ([], {}, TypeError, "expected a model or policy of SB3"),
        (None, {}, TypeError, "got None, of type NoneType: expected a model or policy of SB3"),
        (FastES, {}, TypeError, "expected a model or policy of SB3"),
        ([["1.0"] * INPUTS] * 4, {}, TypeError, "the weights of layer 0 have '1.0' at 0, 0, a str"),
        ("policy.zip", {}, ValueError, r"PPO.load\(path\)"),
        ("none.npz", {}, FileNotFoundError, "none.npz"),
    ],
    ids=label,
)
def test_what_does_not_fit_is_said(given: Any, more: dict[str, Any], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        import_policy(given, env_of(BOX), n_workers=0, **more)


def test_training_goes_on_from_what_was_imported(tmp_path: Path) -> None:
    weight, mean, std = ars_arrays()
    small = {**SETTINGS, "population_size": 4, "noise_table_size": 1000}
    with import_policy((weight, mean, std), env_of(BOX), **small) as model:
        learn(model, 2)
        assert model.normalizer.mean == pytest.approx(mean), "statistics stay, since the weights are for these"
        assert model.normalizer.std == pytest.approx(std)
        model.save(tmp_path / "m")
        with FastES.load(tmp_path / "m", env_of(BOX), n_workers=0) as again:
            assert acted(again).tobytes() == acted(model).tobytes()
    with import_policy((weight, mean, std), env_of(BOX), obs_freeze_after=0, **small) as model:
        learn(model, 2)
        assert model.normalizer.count > 1_000_000
        assert (model.normalizer.mean != mean).any()


# --- statistics -------------------------------------------------------------------------------------------------------


def test_statistics_are_read_only_and_can_be_set() -> None:
    with FastES(env_of(BOX), "LinearPolicy", **{**SETTINGS, "population_size": 4}) as model:
        learn(model, 1)
        for array in (model.normalizer.mean, model.normalizer.std, model.normalizer.squares):
            with pytest.raises(ValueError, match="read-only"):
                array[:] = 2.0
        for name in ("mean", "std", "squares"):
            with pytest.raises(AttributeError, match=r"setter|set attribute"):
                setattr(model.normalizer, name, np.ones(INPUTS))
        before, count = acted(model), model.normalizer.count
        model.set_obs_statistics(np.full(INPUTS, 1.5), np.full(INPUTS, 0.5), count)
        assert model.normalizer.mean.tolist() == [1.5] * INPUTS
        assert model.normalizer.std.tolist() == [0.5] * INPUTS
        assert (acted(model) != before).any(), "predict follows, though as many were observed"
        learn(model, 2)
        assert (model.normalizer.mean != 1.5).any()
        for mean, std, said in (
            (np.zeros(2), np.ones(INPUTS), r"mean has shape \(2,\): expected \(5,\)"),
            (np.zeros(INPUTS), np.full(INPUTS, 0.001), r"std\[0\] = 0.001 is below obs_std_floor = 0.01"),
            (np.zeros(INPUTS), np.full(INPUTS, np.inf), "std has values that are not finite"),
        ):
            with pytest.raises(ValueError, match=said):
                model.set_obs_statistics(mean, std, 10)
    with FastES(env_of(BOX), normalize_obs=False, **SETTINGS) as model, pytest.raises(ValueError, match="normalize_obs is off"):
        model.set_obs_statistics(np.zeros(INPUTS), np.ones(INPUTS), 10)


# --- in: Stable-Baselines3 and sb3-contrib ---------------------------------------------------------------------------


class Idle:
    """In place of an optimiser, which no test here needs: torch's import what takes seconds."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


def sb3_model(name: str, env: Any, policy: str = "MlpPolicy", spread: float = 0.3, **more: Any) -> Any:
    """An untrained algorithm whose outputs reach the bounds; with a smaller spread fewer do."""
    torch, sb3 = pytest.importorskip("torch"), pytest.importorskip("stable_baselines3")
    home = sb3 if hasattr(sb3, name) else pytest.importorskip("sb3_contrib")
    more, kwargs = {**more}, copy.deepcopy(more.get("policy_kwargs", {}))
    if name != "ARS":
        kwargs["optimizer_class"] = Idle
    if name in ("PPO", "A2C", "RecurrentPPO"):
        kwargs["ortho_init"] = False  # which takes seconds beside busy processes
    if name in ("SAC", "TQC"):
        more["ent_coef"] = 0.1  # learned, it has an optimiser of its own
    algorithm = getattr(home, name)(policy, env, seed=0, device="cpu", **more | {"policy_kwargs": kwargs})
    with torch.no_grad():
        for parameter in algorithm.policy.parameters():
            parameter += torch.randn_like(parameter) * spread
    return algorithm


SMALL = {"policy_kwargs": {"net_arch": [8, 8]}}
SB3: list[tuple[str, Any, str, dict[str, Any], dict[str, Any] | None]] = [
    ("PPO", FINITE, "MlpPolicy", {}, {"activation_fn": "tanh"}),
    ("PPO", BOUNDED, "MlpPolicy", {"policy_kwargs": {"net_arch": []}}, {}),
    ("PPO", FINITE, "MlpPolicy", {"use_sde": True}, {"activation_fn": "tanh", "outputs": "actions"}),
    (
        "PPO",
        BOUNDED,
        "MlpPolicy",
        {"use_sde": True, "policy_kwargs": {"squash_output": True}},
        {"activation_fn": "tanh", "outputs": "tanh"},
    ),
    ("PPO", spaces.Discrete(3), "MlpPolicy", {}, {"activation_fn": "tanh"}),
    ("A2C", spaces.MultiDiscrete([3, 2]), "MlpPolicy", {}, {"activation_fn": "tanh"}),
    ("SAC", BOUNDED, "MlpPolicy", SMALL, {"activation_fn": "relu"}),
    ("SAC", BOUNDED, "MlpPolicy", {"policy_kwargs": {"net_arch": []}}, {}),
    ("TD3", BOUNDED, "MlpPolicy", SMALL, {"activation_fn": "relu"}),
    ("DQN", spaces.Discrete(3), "MlpPolicy", SMALL, {"activation_fn": "relu"}),
    ("ARS", FINITE, "LinearPolicy", {}, {"outputs": "actions"}),
    ("ARS", BOUNDED, "MlpPolicy", {}, {"activation_fn": "relu", "outputs": "tanh"}),
    ("ARS", spaces.Discrete(3), "MlpPolicy", {}, {"activation_fn": "relu"}),
    ("TQC", BOUNDED, "MlpPolicy", SMALL, {"activation_fn": "relu"}),
]


@pytest.mark.parametrize(("name", "space", "policy", "more", "said"), SB3, ids=label)
def test_actors_of_sb3_act_the_same(name: str, space: Any, policy: str, more: dict[str, Any], said: Any) -> None:
    if isinstance(space, spaces.Box) and name not in ("PPO", "ARS"):  # these want float32
        space = spaces.Box(space.low.astype(np.float32), space.high.astype(np.float32))
    algorithm = sb3_model(name, Shaped(space), policy, **more)
    expected = algorithm.predict(observations(), deterministic=True)[0]
    sources: list[tuple[Any, dict[str, Any]]] = [(algorithm, {}), (algorithm.policy, {})]
    sources += [(algorithm.policy.state_dict(), said)]
    for source, how in sources:
        with import_policy(source, env_of(space), **how, **SETTINGS) as model:
            assert_same_actions(acted(model).astype(expected.dtype), expected)


class Screen(Shaped):
    """An image that is not square, its channels last."""

    observation_space = spaces.Box(0, 255, (44, 52, 3), np.uint8)

    def _observed(self) -> Any:
        return self.np_random.integers(0, 256, (44, 52, 3), dtype=np.uint8)


@pytest.mark.parametrize("name", ["PPO", "SAC", "DQN"])
def test_actors_that_see_act_the_same(name: str) -> None:
    space = spaces.Discrete(3) if name == "DQN" else FINITE
    more: dict[str, Any] = {"policy_kwargs": {"features_extractor_kwargs": {"features_dim": 16}}}
    if name != "PPO":
        more["buffer_size"] = 10
        more["policy_kwargs"]["net_arch"] = [8]
    algorithm = sb3_model(name, Screen(space), "CnnPolicy", 0.3 if name == "DQN" else 0.1, **more)
    draw, across = np.random.default_rng(0), np.linspace(0.0, 1.0, 52)[:, None]
    shades = draw.uniform(size=(40, 1, 1, 3)) * across ** draw.uniform(0.0, 3.0, (40, 1, 1, 1))  # images that differ
    images = (draw.integers(0, 256, (40, 44, 52, 3)) * shades).astype(np.uint8)
    expected = algorithm.predict(images, deterministic=True)[0]
    if isinstance(space, spaces.Box):
        assert ((expected > space.low) & (expected < space.high)).mean() > 0.9, "bounds show nothing"
        assert (expected.std(axis=0) > 0.03).all()
    else:
        assert len(np.unique(expected)) > 1
    with import_policy(algorithm, lambda: Screen(space), noise_table_size=200_000, **SETTINGS) as model:
        assert model.settings.policy == "CnnPolicy"
        found = model.predict(images, deterministic=True)[0]
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    with pytest.raises(ValueError, match=r"features_extractor\.cnn.*only policies of dense layers"):
        import_policy(algorithm.policy.state_dict(), lambda: Screen(space), activation_fn="relu", **SETTINGS)


def test_an_actor_that_remembers_acts_the_same() -> None:
    kwargs = {"lstm_hidden_size": 6, "n_lstm_layers": 2, "net_arch": [7]}
    algorithm = sb3_model("RecurrentPPO", Shaped(FINITE), "MlpLstmPolicy", policy_kwargs=kwargs)
    state: Any = None
    remembered: Any = None
    starts = np.ones(10, dtype=bool)
    with import_policy(algorithm, env_of(FINITE), **SETTINGS) as model:
        for rows in observations(60).reshape(6, 10, INPUTS):
            expected, state = algorithm.predict(rows, state, starts, deterministic=True)
            found, remembered = model.predict(rows, remembered, starts, deterministic=True)
            assert_same_actions(found, expected)
            for ours, theirs in zip(remembered, state, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
            starts = np.arange(10) % 3 == 0


def test_statistics_come_from_vec_normalize() -> None:
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    normalizing = VecNormalize(DummyVecEnv([env_of(FINITE)]), clip_obs=1.5)
    normalizing.reset()
    for _ in range(50):
        normalizing.step(np.zeros((1, 4)))
    algorithm = sb3_model("PPO", normalizing)
    expected = algorithm.predict(normalizing.normalize_obs(observations()), deterministic=True)[0]
    with import_policy(algorithm, env_of(FINITE), **SETTINGS) as model:
        assert_same_actions(acted(model), expected)
        assert model.normalizer.count == int(normalizing.obs_rms.count)
    with import_policy(algorithm.policy, env_of(FINITE), vec_normalize=normalizing, **SETTINGS) as model:
        assert_same_actions(acted(model), expected)
    normalizing.training = False
    with import_policy(algorithm, normalizing, **{**SETTINGS, "n_workers": None}) as model:
        assert not model.settings.normalize_obs, "the environment does it"
        found = model.predict(normalizing.normalize_obs(observations()), deterministic=True)[0]
        assert_same_actions(found, expected)
    with pytest.raises(ValueError, match="normalises observations itself"):
        import_policy(algorithm, normalizing, mean=MEAN, std=STD)
    with pytest.raises(TypeError, match="leave these out"):
        import_policy(algorithm, env_of(FINITE), vec_normalize=normalizing, mean=MEAN, std=STD)


def test_a_sequential_of_torch_is_taken() -> None:
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(INPUTS, 4), torch.nn.ELU(), torch.nn.Linear(4, 4, bias=False))
    with torch.no_grad():
        expected = net(torch.as_tensor(observations())).clamp(torch.as_tensor(FINITE.low), torch.as_tensor(FINITE.high)).numpy()
    for source, how in ((net, {}), (net.state_dict(), {"activation_fn": torch.nn.ELU})):
        with import_policy(source, env_of(FINITE), outputs="actions", **how, **SETTINGS) as model:
            assert_same_actions(acted(model), expected)
    rounded = {name: value.bfloat16() for name, value in net.state_dict().items()}
    with import_policy(rounded, env_of(FINITE), outputs="actions", activation_fn="elu", **SETTINGS) as model:
        np.testing.assert_allclose(acted(model), expected, atol=0.1)
    with pytest.raises(ValueError, match="pass outputs='actions'"):
        import_policy(net, env_of(FINITE))
    with pytest.raises(TypeError, match="activation_fn = 'tanh': Sequential has its own"):
        import_policy(net, env_of(FINITE), activation_fn="tanh")


def test_what_no_policy_here_can_be_is_said() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("stable_baselines3")
    nn = torch.nn
    small = {"policy_kwargs": {"net_arch": [8]}}
    limited = sb3_model("SAC", Shaped(spaces.Box(-1.0, 1.0, (4,))), use_sde=True, **small)
    first, last = nn.Linear(INPUTS, 4), nn.Linear(4, 4)
    for source, said in (
        (limited, r"SACPolicy has Hardtanh\(min_val=-2.0"),
        (limited.policy.state_dict(), "'actor.mu.0.weight': SAC with use_sde limits"),
        (sb3_model("PPO", Shaped(FINITE), use_sde=True, policy_kwargs={"net_arch": []}).policy.state_dict(), "pass outputs="),
        (sb3_model("PPO", Shaped(FINITE), policy_kwargs={"activation_fn": nn.GELU}), "ActorCriticPolicy has GELU"),
        (nn.Sequential(first, nn.Tanh(), nn.Linear(4, 4), nn.ReLU(), last), r"\['tanh', 'relu'\] between its layers"),
        (nn.Sequential(first, last), r"\[None\] between its layers"),
        (nn.Sequential(first, nn.ELU(0.5), last), "has ELU"),
        (nn.Sequential(first, nn.Tanh(), last, nn.ReLU()), "relu behind its last layer"),
        (sb3_model("DQN", Shaped(spaces.Discrete(3, start=2)), **small), "choices from 0 on, its action space begins at 2"),
        (nn.Sequential(nn.Conv1d(1, 1, 1), first), "Conv1d"),
        (nn.Sequential(nn.ReLU(), first), "has ReLU"),
        (nn.Sequential(), "0 dense layers"),
        (nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.ReLU(), first, nn.ReLU(), last), "square kernels without padding"),
        (nn.Sequential(nn.LSTM(INPUTS, 4, bidirectional=True), last), "one direction"),
        (nn.Sequential(first, nn.Tanh(), nn.LSTM(4, 4), last), "has LSTM"),
    ):
        with pytest.raises(ValueError, match=said):
            import_policy(source, env_of(FINITE), n_workers=0)
    with pytest.raises(ValueError, match=r"trained on actions .*from -1 to 1.*the environment has actions"):
        import_policy(sb3_model("PPO", Shaped(spaces.Box(-1.0, 1.0, (4,)))), env_of(FINITE), n_workers=0)
    with pytest.raises(ValueError, match="outputs = 'actions': Sequential has tanh behind its last layer"):
        import_policy(nn.Sequential(first, nn.Tanh()), env_of(FINITE), outputs="actions")
    with pytest.raises(ValueError, match="outputs = 'tanh': those of ActorCriticPolicy are 'actions'"):
        import_policy(sb3_model("PPO", Shaped(FINITE)), env_of(FINITE), n_workers=0, outputs="tanh")


def test_a_missing_file_is_named_with_what_is_beside_it(tmp_path: Path) -> None:
    np.savez(tmp_path / "weights.npz", np.zeros((1, 3)))
    with pytest.raises(FileNotFoundError, match=r"there is no .*weight\.npz; .* contains: weights\.npz$"):
        import_policy(str(tmp_path / "weight.npz"), "Pendulum-v1")
    with pytest.raises(TypeError, match="got 3, of type int: expected"):
        import_policy(3, "Pendulum-v1")
