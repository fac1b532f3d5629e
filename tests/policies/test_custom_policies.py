"""Risk: a candidate's parameters do not reach the user's module or function, what training gives depends on the number of
workers, the user's own module changes, or a policy that does not fit is met late or by a riddle."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from envs_for_tests import AnySpaces, Toy
from faults import caught_warnings
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from processes import environment
from training import assert_same, assert_same_state, learn, train

from fastes import CallablePolicy, CheckpointError, FastES, TorchPolicy, WorkerError, _core
from fastes.checkpoints.file_format import Checkpoint
from fastes.checkpoints.reader import read_checkpoint
from fastes.checkpoints.writer import write_checkpoint
from fastes.cli.main import main
from fastes.errors import CheckpointMismatch
from fastes.policies.choose_policy import spec_for

TINY: dict[str, Any] = {
    "population_size": 8,
    "preset": "default",
    "seed": 5,
    "target_return": "none",
    "noise_table_size": 50_000,
}
BOX = spaces.Box(-np.inf, np.inf, (3,), np.float64)
PUSH = spaces.Box(-1.0, 1.0, (2,), np.float32)


def linear(parameters: np.ndarray, observation: np.ndarray) -> np.ndarray:
    """For Toy: two pushes from three observations."""
    return np.tanh(parameters.reshape(2, 3) @ observation).astype(np.float32)


def policy_that_fails(parameters: np.ndarray, observation: np.ndarray) -> np.ndarray:
    raise KeyError("the function fails")


def left_or_right(parameters: np.ndarray, observation: np.ndarray) -> int:
    return int(parameters @ observation > 0)


# --- functions ------------------------------------------------------------------------------------------------------


def test_a_function_gets_the_candidates_parameters_and_the_normalised_observation() -> None:
    seen: list[tuple[Any, Any]] = []
    policy = CallablePolicy(lambda parameters, observation: (parameters, observation), 4)
    actor = spec_for(policy, spaces.Box(0, 255, (2, 3), np.uint8), PUSH).make_actor()
    actor.set_normalizer(np.full(6, 2.0), np.full(6, 0.5), 3.0)
    for value in (1.0, -2.0):
        actor.parameters[:] = value
        seen.append(actor.act(np.arange(6, dtype=np.uint8).reshape(2, 3) + 4))
        assert (seen[-1][0] == value).all()
    parameters, observation = seen[0]
    assert parameters.dtype == observation.dtype == np.float32
    assert observation.tolist() == [[1.0, 1.5, 2.0], [2.5, 3.0, 3.0]], "(observation - 2) / 2, clipped to 3, in its own shape"
    with pytest.raises(ValueError, match="read-only"):
        parameters[0] = 0.0
    seen[1][1][:] = -9.0
    assert observation[0, 0] == 1.0, "an observation that the function keeps is its own"


def test_a_function_without_normalisation_gets_what_the_environment_gave() -> None:
    found = []

    class Echo(AnySpaces):
        def step(self, action: Any) -> Any:
            found.append(action)
            return super().step(self.action_space.sample())

    env = partial(Echo, spaces.Box(0, 255, (2,), np.uint8), PUSH)
    with FastES(env, CallablePolicy(lambda _, observation: observation, 1), n_workers=0, normalize_obs=False, **TINY) as model:
        learn(model, 1)
        assert model.predict(np.array([7, 255], np.uint8))[0].tolist() == [7.0, 255.0]
    assert found[0].dtype == np.float32
    assert (found[0] == found[0].round()).all()


@pytest.mark.parametrize("n_workers", [1, 2])
def test_a_function_gives_the_same_bits_on_any_number_of_workers(n_workers: int) -> None:
    policy = CallablePolicy(linear, 6, np.linspace(-1, 1, 6))
    assert_same(train(Toy, 3, n_workers, policy=policy), train(Toy, 3, 0, policy=policy))


def test_a_function_that_draws_from_numpy_is_reproducible() -> None:
    policy = CallablePolicy(lambda p, o: linear(p, o) + np.random.normal(0, 0.1, 2).astype(np.float32), 6)  # noqa: NPY002
    assert_same(train(Toy, 2, 0, policy=policy), train(Toy, 2, 1, policy=policy))


def test_a_function_acts_in_discrete_spaces_and_predicts_batches() -> None:
    with FastES(CallablePolicy(left_or_right, 4), "CartPole-v1", n_workers=0, **TINY) as model:
        learn(model, 2)
        assert model.predict(np.zeros(4))[0] in (0, 1)
        actions, _ = model.predict(np.random.default_rng(0).standard_normal((5, 4)))
        assert actions.shape == (5,)
        assert set(model.get_parameters()["policy"]) == {"parameters"}


def test_a_function_may_act_where_no_head_can() -> None:
    actions = spaces.Dict({"push": spaces.Box(0, 9, (1,), np.int32), "turn": spaces.Discrete(3)})
    env = partial(AnySpaces, spaces.Discrete(4), actions)

    def act(parameters: np.ndarray, observation: np.ndarray) -> dict[str, Any]:
        return {"push": np.array([int(observation.argmax())], np.int32), "turn": int(abs(parameters[0])) % 3}

    with FastES(env, CallablePolicy(act, 1), n_workers=0, **TINY) as model:
        learn(model, 1)
        assert actions.contains(model.predict(2)[0])


def test_a_batch_of_tuples_of_unlike_parts_is_an_array_of_tuples() -> None:
    actions = spaces.Tuple([spaces.Discrete(3), spaces.Box(-9, 9, (2,), np.float32)])

    def act(_: np.ndarray, observation: np.ndarray) -> tuple[int, np.ndarray]:
        return int(observation.argmax()) % 3, np.ones(2, np.float32)

    with FastES(partial(AnySpaces, spaces.Discrete(4), actions), CallablePolicy(act, 1), n_workers=0, **TINY) as model:
        batch = model.predict(np.arange(3))[0]
        assert batch.shape == (3,)
        assert all(actions.contains(action) for action in batch)
    two = spaces.MultiDiscrete([3, 2])
    policy = CallablePolicy(lambda _, observation: (int(observation.argmax()) % 3, 1), 1)
    with FastES(partial(AnySpaces, spaces.Discrete(4), two), policy, n_workers=0, **TINY) as model:
        assert model.predict(np.arange(3))[0].tolist() == [[0, 1], [1, 1], [2, 1]]


class Broken(Toy):
    """Its first step raises."""

    def step(self, action: Any) -> Any:
        raise KeyError("the environment fails")


@pytest.mark.parametrize("n_workers", [0, 1])
def test_what_raised_is_named(n_workers: int) -> None:
    with FastES(Toy, CallablePolicy(policy_that_fails, 6), n_workers=n_workers, **TINY) as model:
        message = r"KeyError: 'the function fails'\n\[in the policy: Toy, generation 1"
        with pytest.raises(WorkerError, match=message) as caught:
            learn(model, 1)
        assert "policy_that_fails" in str(caught.value)
    with FastES(Broken, CallablePolicy(linear, 6), n_workers=n_workers, **TINY) as model:
        message = r"KeyError: 'the environment fails'\n\[in the environment: Broken, generation 1"
        with pytest.raises(WorkerError, match=message):
            learn(model, 1)


class HomeOnly:
    """Comes back in this process alone."""

    def __init__(self) -> None:
        self.process = os.getpid()

    def __setstate__(self, state: dict[str, Any]) -> None:
        if os.getpid() != state["process"]:
            raise OSError("this is not home")

    def __call__(self, parameters: np.ndarray, observation: np.ndarray) -> np.ndarray:
        return linear(parameters, observation)


def test_a_function_that_does_not_come_back_in_a_worker_is_named() -> None:
    policy = CallablePolicy(HomeOnly(), 6)
    words = r"OSError: this is not home\n\[in the policy: Toy, while it was built"
    with FastES(Toy, policy, n_workers=1, **TINY) as model, pytest.raises(WorkerError, match=words):
        learn(model, 1)


def test_a_function_that_raises_can_be_penalised() -> None:
    policy = CallablePolicy(lambda p, o: linear(p, o) if p[0] > 0 else policy_that_fails(p, o), 6, np.full(6, 1e-6))
    with caught_warnings() as warned, FastES(Toy, policy, n_workers=0, on_env_error="penalise", **TINY) as model:
        records = learn(model, 1)
    assert 0 < records[0].num_nonfinite < 8
    assert any("the function fails" in text for text in warned)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((3, 4), TypeError, "cannot be called"),
        ((linear, 0), ValueError, "num_params = 0"),
        ((linear, 2.5), ValueError, "num_params = 2.5"),
        ((linear, True), ValueError, "num_params = True"),
        ((linear, 6, np.zeros(5)), ValueError, r"theta0 has shape \(5,\): expected 6"),
        ((linear, 1, [np.nan]), ValueError, "finite"),
        ((threading.Lock().__enter__, 1), TypeError, "cannot be copied into the workers: TypeError: cannot pickle"),
    ],
)
def test_a_function_that_cannot_be_a_policy_is_refused(arguments: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        CallablePolicy(*arguments)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"action_noise": 0.1}, "action_noise = 0.1 cannot reach a CallablePolicy"),
        ({"sample_actions": True}, "sample_actions = True cannot reach a CallablePolicy"),
        ({"policy_kwargs": {"action_mapping": "squash"}}, "policy_kwargs = .*squash.* cannot reach a CallablePolicy"),
    ],
)
def test_what_cannot_reach_a_function_is_refused(settings: dict[str, Any], words: str, no_process: None) -> None:
    with pytest.raises(ValueError, match=words):
        FastES(Toy, CallablePolicy(linear, 6), **TINY, **settings)


def test_the_caller_keeps_theta0(tmp_path: Path) -> None:
    theta0 = np.ones(6, np.float32)
    policy = CallablePolicy(linear, 6, theta0)
    theta0[:] = 7.0
    first = train(Toy, 2, 0, policy=policy)
    assert_same(first, train(Toy, 2, 0, policy=policy))
    with FastES(Toy, policy, n_workers=0, **TINY) as model:
        assert (model.theta == 1.0).all()


@pytest.mark.parametrize("name", ["TorchPolicy", "CallablePolicy"])
def test_the_name_alone_says_what_to_pass(name: str) -> None:
    with pytest.raises(ValueError, match=rf"pass an object, as in FastES\(env, fastes.{name}"):
        FastES(Toy, name, preset="unbiased")
    with pytest.raises(TypeError, match="names a policy but no environment"):
        FastES(CallablePolicy(linear, 6), preset="default")
    with pytest.raises(TypeError, match=r"is a function: expected 'MlpPolicy'.*fastes\.CallablePolicy"):
        FastES(Toy, linear, preset="unbiased")  # type: ignore[arg-type]


# --- keeping --------------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    with FastES(Toy, CallablePolicy(linear, 6), n_workers=0, **TINY) as model:
        learn(model, 2)
        model.save(tmp_path / "function.zip")
    return tmp_path / "function.zip"


def test_a_checkpoint_holds_no_code(saved: Path) -> None:
    content = saved.read_bytes()
    assert b"cloudpickle" not in content
    assert b"linear" not in content
    data = read_checkpoint(saved).data
    assert data["settings"]["policy"] == "CallablePolicy"
    assert data["policy"]["parameters"] == [["parameters", [6]]]


def test_loading_goes_on_with_the_same_bits(saved: Path) -> None:
    policy = CallablePolicy(linear, 6)
    with FastES(Toy, policy, n_workers=0, **TINY) as model:
        learn(model, 4)
        whole = model.snapshot()
    with FastES.load(saved, Toy, 1, policy=policy) as model:
        learn(model, 4)
        assert_same_state(model.snapshot(), whole)


def test_loading_without_its_policy_says_what_to_pass(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CheckpointMismatch, match=r"is a CallablePolicy, .*FastES.load\(path, policy=CallablePolicy"):
        FastES.load(saved)
    for command in (["play", str(saved)], ["eval", str(saved)], ["replay", str(saved), "--generation", "3", "--job", "0"]):
        assert main(command) != 0
        assert "load it in Python" in capsys.readouterr().err
    folder = saved.parent / "run"
    folder.mkdir()
    saved.rename(folder / "checkpoint.zip")
    assert main(["train", "--resume", str(folder), "--total-timesteps", "100000"]) != 0
    assert "load it in Python" in capsys.readouterr().err


def test_loading_with_another_policy_names_the_difference(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointMismatch, match=r"'parameters' has shape \(5,\), the checkpoint's has \(6,\)"):
        FastES.load(saved, policy=CallablePolicy(linear, 5))
    with pytest.raises(CheckpointMismatch, match="policy"):
        FastES.load(saved, policy="MlpPolicy")
    other = partial(AnySpaces, spaces.Box(-1, 1, (4,)), PUSH)
    with pytest.raises(CheckpointMismatch, match=r"observations \(4,\)"):
        FastES.load(saved, other, policy=CallablePolicy(linear, 6))
    with pytest.raises(ValueError, match="cannot reach a CallablePolicy"):
        FastES.load(saved, policy=CallablePolicy(linear, 6), action_noise=0.1)
    with FastES(Toy, n_workers=0, **TINY) as model:
        model.save(tmp_path / "named.zip")
    with pytest.raises(CheckpointMismatch, match=r"whose policy is the MlpPolicy .* load it without policy="):
        FastES.load(tmp_path / "named.zip", policy=CallablePolicy(linear, 6))


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "EvilPolicy"},
        {"kind": ["CallablePolicy"]},
        {"kind": "TorchPolicy"},
        {"parameters": [["parameters", [7]]]},
        {"parameters": [["parameters", [-6]]]},
        {"parameters": [["parameters", [6.0]]]},
        {"parameters": [["parameters", [6, 2**31]]]},
        {"parameters": [["parameters", 6]]},
        {"parameters": [["parameters", [6]], ["parameters", [6]]]},
        {"parameters": [[6, [6]]]},
        {"parameters": None},
        {"parameters": "parameters"},
        {"parameters": []},
        {"head": {}},
        {"head": "clip"},
        {"obs_shape": [0]},
        {"obs_shape": [2**40]},
        {"obs_shape": [-3]},
        {"obs_shape": [[3]]},
        {"obs_shape": 3},
        {"flattened": 1},
        {"module": "os"},
        {"layer_sizes": [3, 2]},
    ],
    ids=str,
)
@pytest.mark.parametrize("passed", [False, True])
def test_a_checkpoint_that_contradicts_itself_is_refused(saved: Path, change: dict[str, Any], passed: bool) -> None:
    data, arrays = read_checkpoint(saved)
    write_checkpoint(saved, Checkpoint({**data, "policy": {**data["policy"], **change}}, arrays))
    with pytest.raises(CheckpointError, match=r"'policy(\.\w+)*' (is|misses) .*damaged"):
        FastES.load(saved, policy=CallablePolicy(linear, 6) if passed else None)


# --- torch modules --------------------------------------------------------------------------------------------------


def torch_and_mlp(inputs: int = 3, outputs: int = 2, seed: int = 0) -> tuple[Any, Any]:
    torch = pytest.importorskip("torch")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return torch, torch.nn.Sequential(torch.nn.Linear(inputs, 8), torch.nn.Tanh(), torch.nn.Linear(8, outputs))


def test_parameters_are_views_of_one_buffer() -> None:
    torch, module = torch_and_mlp()
    actor: Any = spec_for(TorchPolicy(module), BOX, PUSH).make_actor()
    start, end = actor.parameters.ctypes.data, actor.parameters.ctypes.data + actor.parameters.nbytes
    assert all(start <= parameter.data_ptr() < end for parameter in actor.module.parameters())
    theta0 = np.concatenate([parameter.detach().numpy().ravel() for parameter in module.parameters()])
    assert (actor.parameters == theta0).all()
    table, obs = np.random.default_rng(0).standard_normal(500).astype(np.float32), np.array([0.3, -0.2, 0.9])
    for scale in (0.1, -0.1):
        _core.perturb(actor.parameters, theta0, table, 3, scale)
        torch.nn.utils.vector_to_parameters(
            torch.from_numpy(theta0 + np.float32(scale) * table[3 : 3 + len(theta0)]), module.parameters()
        )
        with torch.no_grad():
            expected = module(torch.tensor([[0.3, -0.2, 0.9]])).clamp(-1, 1).numpy()[0]
        assert actor.act(obs) == pytest.approx(expected, abs=1e-6)
        assert np.abs(expected).max() < 1.0, "no bound hides a difference"


def test_a_step_leaves_no_graph_and_two_actors_share_nothing() -> None:
    torch, module = torch_and_mlp()
    spec = spec_for(TorchPolicy(module), BOX, PUSH)
    first, second = spec.make_actor(), spec.make_actor()
    before = second.act(np.ones(3)).copy()
    first.parameters[:] = 0.0
    assert (first.act(np.ones(3)) == 0.0).all()
    assert (second.act(np.ones(3)) == before).all()
    assert not first.module(torch.ones(1, 3)).requires_grad  # type: ignore[attr-defined]


def test_the_users_module_is_not_changed() -> None:
    torch, module = torch_and_mlp()
    policy, before = TorchPolicy(module), [parameter.detach().clone() for parameter in module.parameters()]
    with FastES(Toy, policy, n_workers=0, **TINY) as model:
        learn(model, 2)
        assert all((a == b).all() for a, b in zip(module.parameters(), before, strict=True))
        assert module.training
        assert all(parameter.requires_grad for parameter in module.parameters())
        trained = model.policy_spec.module_with(model.theta)  # type: ignore[union-attr]
        assert (torch.nn.utils.parameters_to_vector(trained.parameters()).detach().numpy() == model.theta).all()
        assert trained.training
        assert all(parameter.requires_grad for parameter in trained.parameters())
        theta = model.theta.copy()
        with torch.no_grad():
            trained[0].weight.zero_()
        assert (model.theta == theta).all(), "the trained module has memory of its own"
        with pytest.raises(ValueError, match=r"theta has shape \(3,\): expected"):
            model.policy_spec.module_with(np.zeros(3, np.float32))  # type: ignore[union-attr]
    with torch.no_grad():
        module[0].weight.zero_()
    assert policy.for_spaces(BOX, PUSH).initial_theta(0)[0] != 0.0, "what the user does later does not reach the policy"


def test_the_trained_module_acts_as_predict_does() -> None:
    torch, module = torch_and_mlp()
    with FastES(Toy, TorchPolicy(module), n_workers=0, **TINY) as model:
        learn(model, 2)
        obs = np.array([0.4, -0.3, 0.2])
        normalised = np.clip(
            (obs - model.normalizer.mean) / model.normalizer.std, -model.normalizer.clip, model.normalizer.clip
        )
        trained = model.policy_spec.module_with(model.theta).eval()  # type: ignore[union-attr]
        outputs = trained(torch.tensor(normalised, dtype=torch.float32)[None]).detach().clamp(-1, 1).numpy()[0]
        assert model.predict(obs, deterministic=True)[0] == pytest.approx(outputs, abs=1e-5)


def test_tied_parameters_are_one() -> None:
    torch, _ = torch_and_mlp()

    class Tied(torch.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3, bias=False)
            self.second.weight = self.first.weight
            self.last = torch.nn.Linear(3, 2, bias=False)

        def forward(self, x: Any) -> Any:
            return self.last(self.second(self.first(x)))

    spec = spec_for(TorchPolicy(Tied()), BOX, PUSH)
    assert spec.parameter_shapes() == {"first.weight": (3, 3), "last.weight": (2, 3)}
    actor: Any = spec.make_actor()
    actor.parameters[:] = np.concatenate([2 * np.eye(3).ravel(), [1, 0, 0, 0, 1, 0]]).astype(np.float32) / 10
    assert actor.act(np.array([10.0, -5.0, 0.0])) == pytest.approx([0.04, -0.02])
    assert actor.module.second.weight is actor.module.first.weight


def test_frozen_parameters_and_buffers_stay() -> None:
    torch, module = torch_and_mlp()
    module[0].requires_grad_(False)
    module.insert(1, torch.nn.BatchNorm1d(8))
    module.append(torch.nn.Dropout(0.9))
    policy = TorchPolicy(module)
    with FastES(Toy, policy, n_workers=0, **TINY) as model:
        assert set(model.policy_spec.parameter_shapes()) == {"1.weight", "1.bias", "3.weight", "3.bias"}
        learn(model, 2)
        trained = model.policy_spec.module_with(model.theta)  # type: ignore[union-attr]
    assert (trained[0].weight == module[0].weight).all()
    assert (trained[3].weight != module[3].weight).all()
    assert trained[1].num_batches_tracked == 0, "eval mode: statistics do not move, nothing is dropped"


def test_frozen_values_that_differ_are_refused_on_loading(tmp_path: Path) -> None:
    """They are in no file: a module that draws them anew would act otherwise."""
    torch, _ = torch_and_mlp()

    def features(seed: int) -> Any:
        torch.manual_seed(seed)
        frozen = torch.nn.Linear(3, 8).requires_grad_(False)
        return torch.nn.Sequential(frozen, torch.nn.BatchNorm1d(8), torch.nn.Tanh(), torch.nn.Linear(8, 2))

    with FastES(Toy, TorchPolicy(features(0)), n_workers=0, **TINY) as model:
        learn(model, 2)
        model.save(tmp_path / "m")
        expected = model.evaluate(3).returns
    with pytest.raises(CheckpointMismatch, match=r"'0.weight', '0.bias' is not trained, so the file lacks its values"):
        FastES.load(tmp_path / "m", Toy, policy=TorchPolicy(features(1)), n_workers=0)
    used = features(0)
    used(torch.randn(4, 3))
    with pytest.raises(CheckpointMismatch, match=r"'1.running_mean', '1.running_var' is not trained"):
        FastES.load(tmp_path / "m", Toy, policy=TorchPolicy(used), n_workers=0)
    same = features(0)
    same[1].num_batches_tracked += 1
    with FastES.load(tmp_path / "m", Toy, policy=TorchPolicy(same), n_workers=0) as model:
        assert (model.evaluate(3).returns == expected).all()


def test_buffers_that_are_drawn_for_each_episode_are_no_part_of_the_policy(tmp_path: Path) -> None:
    torch, _ = torch_and_mlp()

    class Noisy(torch.nn.Linear):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__(3, 2)
            self.register_buffer("epsilon", torch.zeros(2))

        def reset(self) -> None:
            self.epsilon = torch.randn(2)

        def forward(self, x: Any) -> Any:
            return super().forward(x) + 0.1 * self.epsilon

    with FastES(Toy, TorchPolicy(Noisy()), n_workers=0, **TINY) as model:
        learn(model, 1)
        model.save(tmp_path / "m")
    FastES.load(tmp_path / "m", Toy, policy=TorchPolicy(Noisy()), n_workers=0).close()


def test_a_module_may_keep_what_it_sees() -> None:
    torch, _ = torch_and_mlp()

    class Differences(torch.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.dense, self.before = torch.nn.Linear(3, 2), None

        def reset(self) -> None:
            self.before = None

        def forward(self, x: Any) -> Any:
            before, self.before = self.before, x
            return self.dense(x if before is None else x - before)

    module, seen = Differences(), [np.full(3, value) for value in (0.1, 0.4, 0.2)]
    actor = spec_for(TorchPolicy(module), BOX, PUSH).make_actor()
    acted = [actor.act(obs) for obs in seen]
    with torch.no_grad():
        expected = [module(torch.tensor(obs[None], dtype=torch.float32)).clamp(-1, 1).numpy()[0] for obs in seen]
    assert np.array(acted) == pytest.approx(np.array(expected), abs=1e-6)


def test_a_module_for_all_values_is_told_of_obs_columns() -> None:
    torch, _ = torch_and_mlp()
    with pytest.raises(ValueError, match=r"cannot be multiplied .*\. obs_columns chooses 2 of 3 values; 'all' leaves all"):
        FastES(Toy, TorchPolicy(torch.nn.Linear(3, 2)), n_workers=0, obs_columns="0:2", **TINY)


def test_same_bits_on_any_number_of_workers_and_threads() -> None:
    torch, module = torch_and_mlp()
    policy, threads = TorchPolicy(module), torch.get_num_threads()
    settings: dict[str, Any] = {"policy": policy, "action_noise": 0.1}
    torch.set_num_threads(4)
    try:
        state = torch.get_rng_state()
        here = train(Toy, 3, 0, **settings)
        assert torch.get_num_threads() == 4, "the caller's"
        assert (torch.get_rng_state() == state).all(), "the caller's"
        assert_same(train(Toy, 3, 1, **settings), here)
        assert_same(train(Toy, 3, 2, **settings), here)
    finally:
        torch.set_num_threads(threads)


def test_episodes_in_this_process_have_one_thread() -> None:
    """Small modules add in one thread anyway: what the module sees is what counts."""
    torch, module = torch_and_mlp()
    threads, seen = torch.get_num_threads(), []

    class Watching(Toy):
        def step(self, action: Any) -> Any:
            seen.append(torch.get_num_threads())
            return super().step(action)

    torch.set_num_threads(3)
    try:
        with FastES(Watching, TorchPolicy(module), n_workers=0, **TINY) as model:
            learn(model, 1)
            model.predict(np.zeros(3))
            assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)
    assert set(seen) == {1}


def test_a_module_that_draws_is_reproducible() -> None:
    torch, _ = torch_and_mlp()

    class Drawing(torch.nn.Linear):  # type: ignore[name-defined,misc]
        def forward(self, x: Any) -> Any:
            return super().forward(x) + 0.1 * torch.randn(1, 2)

    policy = TorchPolicy(Drawing(3, 2))
    assert_same(train(Toy, 2, 0, policy=policy), train(Toy, 2, 2, policy=policy))


def test_resuming_gives_the_same_bits(tmp_path: Path) -> None:
    _, module = torch_and_mlp()
    with FastES(Toy, TorchPolicy(module), n_workers=0, **TINY) as model:
        learn(model, 2)
        model.save(tmp_path / "half")
        learn(model, 4)
        whole = model.snapshot()
    assert "torch" in whole.data["versions"], "results depend on it"
    _, other = torch_and_mlp(seed=9)
    with FastES.load(tmp_path / "half", Toy, 1, policy=TorchPolicy(other)) as model:
        learn(model, 4)
        assert_same_state(model.snapshot(), whole)


def test_loading_a_module_that_does_not_fit_names_the_difference(tmp_path: Path) -> None:
    torch, module = torch_and_mlp()
    with FastES(Toy, TorchPolicy(module), n_workers=0, **TINY) as model:
        model.save(tmp_path / "m")
    cases = [
        (
            torch.nn.Sequential(torch.nn.Linear(3, 9), torch.nn.Tanh(), torch.nn.Linear(9, 2)),
            r"'0.weight' has shape \(9, 3\).*\(8, 3\)",
        ),
        (torch.nn.Sequential(*module[:2], torch.nn.Linear(8, 2, bias=False)), r"no parameter '2.bias', the checkpoint has one"),
        (
            torch.nn.Sequential(*module, torch.nn.PReLU()),
            r"it has a parameter '3.weight' of shape \(1,\), the checkpoint has none",
        ),
    ]
    for other, words in cases:
        with pytest.raises(CheckpointMismatch, match=words):
            FastES.load(tmp_path / "m", policy=TorchPolicy(other))
    with pytest.raises(CheckpointMismatch, match="expected a TorchPolicy"):
        FastES.load(tmp_path / "m", policy=CallablePolicy(linear, 6))
    widened = torch.nn.Sequential(*module, torch.nn.Flatten(0))
    with FastES.load(tmp_path / "m", policy=TorchPolicy(widened)) as model:
        assert model.predict(np.zeros(3))[0].shape == (2,), "outputs may come without the batch axis"


def test_get_and_set_parameters_know_the_modules_names() -> None:
    _, module = torch_and_mlp()
    with FastES(Toy, TorchPolicy(module), n_workers=0, **TINY) as model:
        parameters = model.get_parameters()
        assert {name: array.shape for name, array in parameters["policy"].items()} == {
            name: tuple(parameter.shape) for name, parameter in module.named_parameters()
        }
        assert (parameters["policy"]["0.weight"] == module[0].weight.detach().numpy()).all()
        before = model.predict(np.ones(3), deterministic=True)[0].copy()
        parameters["policy"]["2.bias"] += 0.25
        model.set_parameters(parameters)
        assert model.predict(np.ones(3), deterministic=True)[0] == pytest.approx(before + 0.25, abs=1e-6)


class Unreadable:
    """Pickles, and does not come back."""

    def __reduce__(self) -> Any:
        return (int, ("no number",))


def broken_modules() -> list[Any]:
    torch, _ = torch_and_mlp()
    nn = torch.nn

    def with_attribute(value: Any) -> Any:
        module = nn.Linear(3, 2)
        module.resource = value
        return module

    infinite = nn.Linear(3, 2)
    infinite.bias.data[0] = np.inf
    return [
        (linear, TypeError, "is a function: expected a torch.nn.Module"),
        (nn.Tanh(), ValueError, "Tanh has no parameters to train"),
        (nn.Linear(3, 2).requires_grad_(False), ValueError, "no parameters to train.*requires_grad=True"),
        (nn.Linear(3, 2).double(), ValueError, r"'weight' .* is torch.float64: .*module.float\(\)"),
        (nn.Linear(3, 2).half(), ValueError, "is torch.float16"),
        (nn.Linear(3, 2, device="meta"), ValueError, r"on meta: call module.cpu\(\)"),
        (nn.LazyLinear(2), ValueError, "'weight' .* has no shape yet: call the module once"),
        (infinite, ValueError, "not all finite"),
        (with_attribute(threading.Lock()), TypeError, "module Linear cannot be copied into the workers: .*__getstate__"),
        (with_attribute(Unreadable()), TypeError, "module Linear cannot be copied into the workers: ValueError"),
    ]


@pytest.mark.parametrize("case", range(10))
def test_a_module_that_cannot_be_a_policy_is_refused(case: int) -> None:
    module, error, words = broken_modules()[case]
    with pytest.raises(error, match=words):
        TorchPolicy(module)


def unfit_modules() -> list[Any]:
    torch, _ = torch_and_mlp()
    nn = torch.nn

    class Otherwise(nn.Linear):  # type: ignore[name-defined,misc]
        def __init__(self, change: Any) -> None:
            super().__init__(3, 2)
            self.change = change

        def forward(self, x: Any) -> Any:
            return self.change(super().forward(x))

    expected = r"expected float32 \(1, 2\) or \(2,\), a number for each component"
    return [
        (nn.Linear(3, 4), rf"returned float32 \(1, 4\) for a float32 tensor \(1, 3\): {expected}"),
        (nn.Linear(4, 2), r"the module Linear raised for a float32 tensor \(1, 3\): RuntimeError: .*shapes"),
        (Otherwise(lambda y: (y, None)), rf"returned a tuple .*{expected}"),
        (Otherwise(lambda y: y.double()), rf"returned float64 \(1, 2\) .*{expected}"),
        (Otherwise(lambda y: y.T), rf"returned float32 \(2, 1\) .*{expected}"),
        (Otherwise(lambda y: y + torch.zeros(2, requires_grad=True)), "outputs with a gradient"),
    ]


@pytest.mark.parametrize("case", range(6))
def test_outputs_that_do_not_fit_are_named_when_the_model_is_made(case: int, no_process: None) -> None:
    module, words = unfit_modules()[case]
    with pytest.raises(ValueError, match=words):
        FastES(Toy, TorchPolicy(module), n_workers=2, **TINY)


@pytest.mark.parametrize(
    ("space", "kwargs", "width", "meaning"),
    [
        (spaces.Discrete(4), {}, 4, "a logit for each choice"),
        (spaces.MultiDiscrete([3, 2]), {}, 5, "a logit for each choice"),
        (spaces.MultiBinary(3), {}, 3, "a logit for each switch"),
        (PUSH, {"action_mapping": "squash"}, 2, "a number for each component"),
        (PUSH, {"action_mapping": "bins", "num_bins": 5}, 10, "5 logits for each component"),
    ],
)
def test_every_head_takes_a_modules_outputs(space: Any, kwargs: dict[str, Any], width: int, meaning: str) -> None:
    torch, _ = torch_and_mlp()
    env = partial(AnySpaces, BOX, space)
    with FastES(env, TorchPolicy(torch.nn.Linear(3, width)), n_workers=0, policy_kwargs=kwargs, **TINY) as model:
        learn(model, 1)
        assert space.contains(model.predict(np.zeros(3))[0])
        batch, _ = model.predict(np.zeros((4, 3)))
        assert len(batch) == 4
        assert batch.dtype == space.dtype
    with pytest.raises(ValueError, match=rf"expected float32 \(1, {width}\) or \({width},\), {meaning}"):
        FastES(env, TorchPolicy(torch.nn.Linear(3, width + 1)), n_workers=0, policy_kwargs=kwargs, **TINY)


def test_policy_kwargs_of_named_policies_mean_nothing_here() -> None:
    _, module = torch_and_mlp()
    with pytest.raises(ValueError, match="'net_arch' means nothing to a TorchPolicy"):
        FastES(Toy, TorchPolicy(module), policy_kwargs={"net_arch": [4]}, **TINY)


def test_images_and_dicts_reach_the_module_in_their_shape() -> None:
    torch, _ = torch_and_mlp()
    image = spaces.Box(0, 255, (2, 6, 6), np.uint8)
    convolution = torch.nn.Sequential(
        torch.nn.Conv2d(2, 3, 3), torch.nn.ReLU(inplace=True), torch.nn.Flatten(), torch.nn.Linear(48, 2)
    )
    convolution = convolution.to(memory_format=torch.channels_last)
    env = partial(AnySpaces, image, PUSH)
    policy = TorchPolicy(convolution)
    assert_same(train(env, 2, 0, policy=policy), train(env, 2, 1, policy=policy))
    actor = spec_for(policy, image, PUSH).make_actor()
    picture = image.sample()
    expected = convolution(torch.from_numpy(picture.astype(np.float32))[None]).detach().clamp(-1, 1).numpy()[0]
    assert actor.act(picture) == pytest.approx(expected, abs=1e-4)
    keyed = spaces.Dict({"where": spaces.Box(-1, 1, (2,)), "which": spaces.Discrete(3)})
    with FastES(partial(AnySpaces, keyed, PUSH), TorchPolicy(torch.nn.Linear(5, 2)), n_workers=0, **TINY) as model:
        learn(model, 1)
        assert model.predict(keyed.sample())[0].shape == (2,)
        assert model.predict([keyed.sample(), keyed.sample()])[0].shape == (2, 2)


@pytest.mark.parametrize("n_workers", [0, 1])
def test_a_module_that_raises_later_is_named_as_the_policy(n_workers: int) -> None:
    torch, _ = torch_and_mlp()

    class Fragile(torch.nn.Linear):  # type: ignore[name-defined,misc]
        def forward(self, x: Any) -> Any:
            if x.abs().sum() > 0:  # the check is made with zeros
                raise ArithmeticError("the module fails")
            return super().forward(x)

    message = r"ArithmeticError: the module fails\n\[in the policy: Toy"
    policy = TorchPolicy(Fragile(3, 2))
    with FastES(Toy, policy, n_workers=n_workers, **TINY) as model, pytest.raises(WorkerError, match=message):
        learn(model, 1)


def test_importing_fastes_and_a_function_policy_import_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys, fastes; from fastes import CallablePolicy, TorchPolicy, FastES\n"
        "policy = CallablePolicy(lambda p, o: int(p @ o > 0), 4)\n"
        "model = FastES('CartPole-v1', policy, n_workers=1, population_size=4, seed=0)\n"
        "with model: model.learn(50)\n"
        "assert 'torch' not in sys.modules"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr


def test_a_module_of_a_script_needs_no_guard(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\n"
        "from fastes import FastES, TorchPolicy\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = torch.nn.Linear(4, 2)\n"
        "    def forward(self, x):\n"
        "        return self.layer(x)\n"
        "with FastES('CartPole-v1', TorchPolicy(Net()), n_workers=2, population_size=4, seed=0) as model:\n"
        "    model.learn(50)\n"
        "    print(type(model.policy_spec.module_with(model.theta)).__name__)\n"
    )
    result = subprocess.run([sys.executable, script], env=environment(), capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "Net\n"


# --- vector environments --------------------------------------------------------------------------------------------


def custom(kind: str) -> Any:
    return CallablePolicy(linear, 6, np.linspace(-1, 1, 6)) if kind == "function" else TorchPolicy(torch_and_mlp()[1])


@pytest.mark.parametrize("kind", ["function", "module"])
@pytest.mark.parametrize("num_envs", [1, 3])
def test_vector_envs_change_no_bit(kind: str, num_envs: int) -> None:
    env, own = SyncVectorEnv([Toy] * num_envs), {"policy": custom(kind), "episodes_per_candidate": 2}
    results = train(Toy, 2, 0, **own), train(env, 2, None, **own)  # type: ignore[arg-type]
    for result in results:
        result.state.data.update(env=None, env_name="")
    assert_same(*results)
    env.close()


def test_vector_envs_name_the_policy_and_refuse_actions_that_are_no_arrays() -> None:
    env = SyncVectorEnv([Toy] * 2)
    message = r"the function fails.*\n\[in the policy, on SyncVectorEnv"
    with FastES(env, CallablePolicy(policy_that_fails, 6), **TINY) as model, pytest.raises(WorkerError, match=message):
        learn(model, 1)
    env.close()
    actions = spaces.Dict({"turn": spaces.Discrete(3)})
    env = SyncVectorEnv([partial(AnySpaces, BOX, actions)] * 2)
    policy = CallablePolicy(lambda p, o: {"turn": 1}, 1)
    with FastES(env, policy, **TINY) as model, pytest.raises(ValueError, match="has no shape: expected one in a vector"):
        learn(model, 1)
    env.close()


@pytest.mark.parametrize("kind", ["function", "module"])
def test_another_environment_has_to_fit(kind: str) -> None:
    with FastES(Toy, custom(kind), n_workers=0, **TINY) as model:
        model.set_env(partial(Toy, length=10))
        learn(model, 1)
        with pytest.raises(CheckpointMismatch, match=r"observations \(4,\)"):
            model.set_env(partial(AnySpaces, spaces.Box(-1, 1, (4,)), PUSH))


# --- learning -------------------------------------------------------------------------------------------------------


def test_a_module_learns_cartpole() -> None:
    _, module = torch_and_mlp(4, 2)
    settings: dict[str, Any] = {"preset": "default", "population_size": 32, "sigma": 0.2, "learning_rate": 0.1}
    with FastES("CartPole-v1", TorchPolicy(module), n_workers=0, seed=1, target_return=400.0, **settings) as model:
        before = model.evaluate(20).mean
        model.learn(150_000)
        assert model.solved, f"{before} at first, {model.evaluate(20).mean} after {model.num_timesteps} steps"


def test_a_function_learns_cartpole() -> None:
    with FastES("CartPole-v1", CallablePolicy(left_or_right, 4), n_workers=0, seed=1, target_return=450.0) as model:
        model.learn(100_000)
        assert model.solved


@pytest.mark.parametrize(
    "by_place", [lambda net: (net, "CartPole-v1"), lambda net: ("CartPole-v1", net)], ids=["first", "second"]
)
def test_a_bare_module_is_to_be_wrapped(by_place: Any) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"a Linear is a torch module: wrap it, as in FastES\(env, TorchPolicy\(module\)\)"):
        FastES(*by_place(torch.nn.Linear(4, 2)), n_workers=0)
