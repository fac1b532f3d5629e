"""Risk: what scripts read from SB3's `model.policy`, write into it or keep of it means something else here."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from envs_for_tests import Toy
from faults import SETTINGS, toy
from gymnasium import spaces
from training import learn

from fastes import CallablePolicy, CheckpointError, FastES, TorchPolicy
from fastes.sb3.policy import Policy

PLAIN = {**SETTINGS, "policy_kwargs": {}}


def model(**more: Any) -> FastES:
    return FastES(toy(), preset="default", n_workers=0, **{**SETTINGS, **more})


def test_a_state_dict_goes_from_one_model_to_another() -> None:
    with model(seed=1) as first, model(seed=2) as second:
        state = first.policy.state_dict()
        assert list(state) == list(first.get_parameters()["policy"])
        state["layers.0.weight"] += 0.5
        assert not (first.policy.state_dict()["layers.0.weight"] == state["layers.0.weight"]).any(), "it is a copy"
        second.policy.load_state_dict(state)
        for name, value in second.policy.state_dict().items():
            assert (value == state[name]).all()
        assert sorted(second.policy.parameters_to_vector()) == sorted(second.theta)
        first.policy.load_from_vector(second.policy.parameters_to_vector())
        assert (first.theta == second.theta).all()
        assert sum(parameter.size for parameter in first.policy.parameters()) == first.num_params
        with pytest.raises(ValueError, match="read-only"):
            next(first.policy.parameters())[...] = 0.0


def test_what_does_not_match_is_named() -> None:
    with model() as agent:
        before = agent.theta.copy()
        bias = {"layers.0.bias": np.ones(agent.get_parameters()["policy"]["layers.0.bias"].shape)}
        with pytest.raises(ValueError, match=r"missing: \['layers\.0\.weight', .*strict=False takes a part"):
            agent.policy.load_state_dict(bias)
        with pytest.raises(ValueError, match=r"missing: .*'layers\.0\.weight'.*unknown: \['extra'\]"):
            agent.set_parameters({"policy": {**bias, "extra": np.ones(1)}})
        with pytest.raises(ValueError, match=r"set_parameters\(\) got \['policy.optimizer'\]"):
            agent.set_parameters({**agent.get_parameters(), "policy.optimizer": {}})
        with pytest.raises(ValueError, match=r"'layers\.0\.bias' is 'big'"):
            agent.policy.load_state_dict({"layers.0.bias": "big"}, strict=False)
        with pytest.raises(TypeError, match=r"load_state_dict\(\) got 'x.zip', a str"):
            agent.policy.load_state_dict("x.zip")  # type: ignore[arg-type]
        assert (agent.theta == before).all()
        agent.policy.load_state_dict(bias, strict=False)
        assert (agent.policy.state_dict()["layers.0.bias"] == 1.0).all()


def test_a_policy_is_kept_and_acts_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    observations = np.random.default_rng(0).normal(size=(5, 3))
    with model(normalize_obs=True) as agent:
        learn(agent, 3)
        agent.policy.save(tmp_path / "policy")
        expected = agent.predict(observations, deterministic=True)[0]
        alone = Policy.load(tmp_path / "policy")
        assert (alone.predict(observations, deterministic=True)[0] == expected).all(), "statistics of observations are in it"
        again = agent.policy.load(tmp_path / "policy.zip")
        assert (again.parameters_to_vector() == agent.policy.parameters_to_vector()).all()
        assert agent.policy == agent.policy != again
        assert (alone.device, alone.training, alone.squash_output) == ("cpu", False, False)
        again.load_from_vector(np.zeros(agent.num_params))
        buffer = io.BytesIO()
        again.save(buffer)
        assert not Policy.load(buffer).parameters_to_vector().any()
        assert agent.theta.any()
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        Policy.load(tmp_path / "none")
    assert "torch" not in sys.modules


class Named(gymnasium.ObservationWrapper[Any, Any, Any]):
    def __init__(self) -> None:
        super().__init__(Toy())
        self.observation_space = spaces.Dict({"place": self.env.observation_space})

    def observation(self, observation: Any) -> Any:
        return {"place": observation}


def test_flattened_observations_need_the_environments_space(tmp_path: Path) -> None:
    with FastES(Named, preset="default", n_workers=0, **SETTINGS) as agent:
        agent.save(tmp_path / "m")
        observation = {"place": np.ones(3)}
        with pytest.raises(ValueError, match="env"):
            Policy.load(tmp_path / "m").predict(observation)
        alone = Policy.load(tmp_path / "m", env=Named)
        assert alone.observation_space == agent.observation_space
        assert alone.action_space == agent.action_space
        assert (alone.predict(observation, deterministic=True)[0] == agent.predict(observation, deterministic=True)[0]).all()


def test_modes_and_devices_of_torch_are_taken() -> None:
    with model() as agent:
        policy = agent.policy
        policy.set_training_mode(True)
        assert policy.eval() is policy.train() is policy.to("cpu") is policy
        assert not policy.training
        with pytest.raises(ValueError, match="cuda"):
            policy.to("cuda")
        with pytest.raises(AttributeError, match="no 'optimizer': it is not a torch module"):
            _ = policy.optimizer
        with pytest.raises(AttributeError, match="'Policy' object has no attribute 'frobnicate'"):
            _ = policy.frobnicate
        assert repr(policy) == f"Policy(MlpPolicy: 3 - 4 - 2, {agent.num_params} parameters)"
        assert agent.policy_class is Policy


def test_a_torch_policys_state_dict_is_its_modules(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    module[0].bias.requires_grad_(False)
    with FastES(toy(), TorchPolicy(module), preset="default", n_workers=0, **PLAIN) as agent:
        learn(agent, 1)
        state = agent.policy.state_dict()
        assert list(state) == list(module.state_dict())
        assert all(isinstance(value, torch.Tensor) for value in state.values())
        module.load_state_dict(state)
        assert sum(p.numel() for p in agent.policy.parameters()) == agent.num_params + 4
        state["0.weight"] = state["0.weight"] + 1.0
        agent.policy.load_state_dict(state)
        assert torch.equal(agent.policy.state_dict()["0.weight"], state["0.weight"])
        theta = agent.theta.copy()
        with pytest.raises(RuntimeError, match="Missing key"):
            agent.policy.load_state_dict({"0.weight": state["0.weight"]})
        with pytest.raises(ValueError, match=r"'0\.bias' is not trained"):
            agent.policy.load_state_dict({"0.bias": state["0.bias"] + 1.0}, strict=False)
        agent.set_parameters(agent.get_parameters())
        assert (agent.theta == theta).all()
        agent.policy.save(tmp_path / "p")
        alone = Policy.load(tmp_path / "p", policy=TorchPolicy(module))
        assert torch.equal(alone.state_dict()["0.weight"], state["0.weight"])


def test_tensors_are_parameters_too() -> None:
    torch = pytest.importorskip("torch")
    with model() as agent:
        agent.policy.load_state_dict({n: torch.nn.Parameter(torch.ones(v.shape)) for n, v in agent.policy.state_dict().items()})
        assert (agent.theta == 1.0).all()


class Pixels(gymnasium.Env[Any, Any]):
    """An image and two numbers, or bytes of an image alone; actions are three numbers."""

    action_space = spaces.Box(-1.0, 1.0, (3,))

    def __init__(self, beside: bool = False) -> None:
        image = spaces.Box(0, 255, (9, 11, 2), np.uint8)
        self.observation_space = spaces.Dict({"image": image, "speed": spaces.Box(-1, 1, (2,))}) if beside else image

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 0.0, True, False, {}


def randomised(policy: Any) -> None:
    policy.load_from_vector(np.random.default_rng(5).normal(size=len(policy.parameters_to_vector())) * 0.3)


CONVOLUTIONS = {"cnn": [(4, 3, 2), (5, 2, 1)], "features_extractor_kwargs": {"features_dim": 6}}


def test_a_convolutional_policys_parameters_are_torchs() -> None:
    """Its map is flattened as torch flattens it, or the layer behind it would read each number in another place."""
    torch = pytest.importorskip("torch")
    kwargs = {**CONVOLUTIONS, "batch_norm": "none"}
    with FastES(Pixels, "CnnPolicy", preset="default", n_workers=0, **{**SETTINGS, "policy_kwargs": kwargs}) as agent:
        randomised(agent.policy)
        images = np.random.default_rng(2).integers(0, 256, (10, 9, 11, 2), dtype=np.uint8)
        net = torch.nn.Module()
        net.layers = torch.nn.ModuleList(
            [torch.nn.Conv2d(2, 4, 3, 2), torch.nn.Conv2d(4, 5, 2, 1), torch.nn.Linear(60, 6), torch.nn.Linear(6, 3)]
        )
        net.load_state_dict({name: torch.as_tensor(value) for name, value in agent.policy.state_dict().items()})
        x = torch.as_tensor(images).permute(0, 3, 1, 2) / 255
        for layer in net.layers[:3]:
            x = torch.relu(layer(x.flatten(1) if isinstance(layer, torch.nn.Linear) else x))
        expected = net.layers[3](x).clip(-1, 1).detach().numpy()
        assert agent.predict(images, deterministic=True)[0] == pytest.approx(expected, abs=1e-5)
        agent.policy.load_state_dict(net.state_dict())
        assert agent.predict(images, deterministic=True)[0] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_recurrent_policys_parameters_are_torchs(cell: str) -> None:
    torch = pytest.importorskip("torch")
    kwargs = {"cell": cell, "lstm_hidden_size": 4, "n_lstm_layers": 2, "net_arch": [4]}
    more = {"policy_kwargs": kwargs, "normalize_obs": False}
    with FastES(toy(), "MlpLstmPolicy", preset="default", n_workers=0, **{**SETTINGS, **more}) as agent:
        randomised(agent.policy)
        state = agent.policy.state_dict()
        names = [f"layers.0.{name}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        assert list(state)[:4] == names
        kind = torch.nn.LSTMCell if cell == "lstm" else torch.nn.GRUCell
        net = torch.nn.Module()
        net.layers = torch.nn.ModuleList([kind(3, 4), kind(4, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)])
        with torch.no_grad():
            for name, parameter in net.named_parameters():
                parameter += torch.as_tensor(state[name])  # both biases of each gate are used
        agent.policy.load_state_dict(net.state_dict())
        memory: Any = None
        of_net: list[Any] = [None, None]
        for observation in np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32):
            action, memory = agent.predict(observation, memory, deterministic=True)
            x = torch.as_tensor(observation)[None]
            for i in range(2):
                of_net[i] = net.layers[i](x, of_net[i])
                x = of_net[i][0] if cell == "lstm" else of_net[i]
            expected = net.layers[3](torch.tanh(net.layers[2](x))).clip(-1, 1).detach().numpy()[0]
            assert action == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("policy", "env", "kwargs"),
    [
        ("MlpPolicy", toy(), {"net_arch": [3, 3]}),
        ("LinearPolicy", toy(), {}),
        ("MlpLstmPolicy", toy(), {"lstm_hidden_size": 3, "n_lstm_layers": 2}),
        ("MlpLstmPolicy", toy(), {"lstm_hidden_size": 3, "cell": "gru"}),
        ("CnnPolicy", Pixels, CONVOLUTIONS),
        ("CnnLstmPolicy", lambda: Pixels(beside=True), {**CONVOLUTIONS, "lstm_hidden_size": 3}),
    ],
)
def test_parameters_come_back_to_the_last_bit_and_a_part_changes_no_other(policy: str, env: Any, kwargs: Any) -> None:
    with FastES(env, policy, preset="default", n_workers=0, **{**SETTINGS, "policy_kwargs": kwargs}) as agent:
        given = np.random.default_rng(1).normal(size=agent.num_params).astype(np.float32)
        given[::7] = -0.0
        agent.set_theta(given)
        state, vector = agent.policy.state_dict(), agent.policy.parameters_to_vector()
        agent.policy.load_state_dict(state)
        assert agent.theta.tobytes() == given.tobytes()
        agent.policy.load_from_vector(vector)
        assert agent.theta.tobytes() == given.tobytes()
        for name, value in state.items():
            agent.set_parameters({"policy": {name: value + 1.0}}, exact_match=False)
            after = agent.policy.state_dict()
            if "bias_hh" in name:  # it is added to the other one
                name = name.replace("bias_hh", "bias_ih")
            changed = [other for other in state if after[other].tobytes() != state[other].tobytes()]
            assert set(changed) <= {name, name.replace("bias_ih", "bias_hh")}, name
            assert changed
            agent.policy.load_state_dict(state)


def test_a_vector_of_another_length_is_refused() -> None:
    with model() as agent, pytest.raises(ValueError, match=r"shape \(3,\): expected \(\d+,\), all parameters in torch's order"):
        agent.policy.load_from_vector([1, 2, 3])


def test_a_callable_policys_parameters_have_one_name() -> None:
    with FastES(toy(), CallablePolicy(lambda p, o: p[:2], 2), preset="default", n_workers=0, **PLAIN) as agent:
        agent.policy.load_state_dict({"parameters": [1.0, 2.0]})
        assert agent.policy.predict(np.zeros(3))[0].tolist() == [1.0, 2.0]
