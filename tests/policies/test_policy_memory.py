"""Risk: what a policy remembers of one episode leaks into the next, so that results depend on the number of workers; or a
policy without a memory is warned of one."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from envs_for_tests import Toy
from gymnasium.vector import SyncVectorEnv
from training import assert_same, train

from fastes import CallablePolicy, FastES, TorchPolicy
from fastes.runs.video import play

torch = pytest.importorskip("torch")

SETTINGS: dict[str, Any] = {"population_size": 8, "noise_table_size": 50_000}


class Remembering(torch.nn.Module):
    """For Toy: what it does follows from a running sum of what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)
        self.seen = torch.zeros(3)

    def forward(self, observation: Any) -> Any:
        self.seen = 0.9 * self.seen + observation.reshape(3)
        return self.layer(self.seen)


class Forgetting(Remembering):
    def reset(self) -> None:
        self.seen = torch.zeros(3)


class Beginning(Remembering):
    """Its reset is another thing."""

    def begin_episode(self) -> None:
        self.seen = torch.zeros(3)

    def reset(self) -> None:
        raise AssertionError("begin_episode goes before it")


class FirstMemory(Remembering):
    """What it remembers as an episode begins is trained, and made by reset alone."""

    def __init__(self) -> None:
        super().__init__()
        del self.seen
        self.first = torch.nn.Parameter(torch.zeros(3))

    def reset(self) -> None:
        self.seen = self.first.clone()


class FirstMemoryAtOnce(FirstMemory):
    def __init__(self) -> None:
        super().__init__()
        self.reset()  # of parameters with a gradient


class Gated(torch.nn.Module):
    """Its reset is a layer, as in a cell with a reset gate."""

    def __init__(self) -> None:
        super().__init__()
        self.reset = torch.nn.Linear(3, 2)

    def forward(self, observation: Any) -> Any:
        return self.reset(observation)


class Sum:
    """The same as a function's stand-in, with a way to begin anew."""

    def __init__(self) -> None:
        self.seen = np.zeros(3)

    def __call__(self, parameters: Any, observation: Any) -> Any:
        self.seen = 0.9 * self.seen + observation
        return np.tanh(parameters.reshape(2, 3) @ self.seen).astype(np.float32)

    def act(self, parameters: Any, observation: Any) -> Any:
        return self(parameters, observation)

    def reset(self) -> None:
        self.seen = np.zeros(3)


class EndlessSum(Sum):
    reset = None  # type: ignore[assignment]


def with_list() -> Any:
    seen = [np.zeros(3)]

    def remember(parameters: Any, observation: Any) -> Any:
        seen[0] = 0.9 * seen[0] + observation
        return np.tanh(parameters.reshape(2, 3) @ seen[0]).astype(np.float32)

    return remember


def with_variable() -> Any:
    seen = 0.0

    def add(parameters: Any, observation: Any) -> Any:
        nonlocal seen
        seen += float(observation[0])
        return np.tanh(parameters.reshape(2, 3) @ observation + seen).astype(np.float32)

    return add


def with_weights() -> Any:
    weights = np.ones(3)
    return lambda parameters, observation: np.tanh(parameters.reshape(2, 3) @ (weights * observation)).astype(np.float32)


def keep(seen: Any, parameters: Any, observation: Any) -> Any:
    seen.append(observation)
    return np.tanh(parameters.reshape(2, 3) @ observation).astype(np.float32)


CALLED: list[Any] = []


def keep_nothing(parameters: Any, observation: Any) -> Any:
    """It is imported: what it changes is not copied, and it is not called where a policy is made."""
    CALLED.append(observation)
    return np.tanh(parameters.reshape(2, 3) @ observation).astype(np.float32)


def module(kind: Any) -> Any:
    torch.manual_seed(3)
    return kind()


def policies() -> dict[str, Any]:
    return {
        "reset": TorchPolicy(module(Forgetting)),
        "begin_episode": TorchPolicy(module(Beginning)),
        "of a submodule": TorchPolicy(torch.nn.Sequential(module(Forgetting), torch.nn.Tanh())),
        "an object": CallablePolicy(Sum(), 6, np.linspace(-1, 1, 6)),
        "a method": CallablePolicy(Sum().act, 6, np.linspace(-1, 1, 6)),
    }


@pytest.mark.parametrize(
    "kind", [each if each in ("reset", "an object") else pytest.param(each, marks=pytest.mark.slow) for each in policies()]
)
def test_what_is_remembered_ends_with_the_episode_on_every_pool(kind: str) -> None:
    policy = policies()[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one = train(Toy, 3, 0, policy=policy, **SETTINGS)
        assert_same(one, train(Toy, 3, 2, policy=policy, **SETTINGS))
        vector = train(SyncVectorEnv([Toy] * 3), 3, policy=policy, **SETTINGS)
    assert vector.state.arrays["trainings"]["0.theta"].tobytes() == one.state.arrays["trainings"]["0.theta"].tobytes()


def test_predict_forgets_where_an_episode_begins_and_each_row_by_itself() -> None:
    with FastES(Toy, TorchPolicy(module(Forgetting)), preset="default", n_workers=0, seed=0, normalize_obs=False) as model:
        rows = np.eye(3)

        def act(observation: Any, start: Any = None) -> list[Any]:
            return model.predict(observation, episode_start=start, deterministic=True)[0].tolist()

        first = act(rows[0], True)
        assert act(rows[0]) != first, "it remembers"
        assert act(rows[0], [True]) == act(rows[0], np.array([True])) == first
        together = act(rows, np.ones(3, dtype=bool))
        assert together == [act(row, True) for row in rows]
        act(rows, np.ones(3, dtype=bool))
        again = act(rows, np.array([True, False, True]))
        assert [one == other for one, other in zip(again, together, strict=True)] == [True, False, True]


@pytest.mark.parametrize("of", [FirstMemory, FirstMemoryAtOnce])
def test_a_fresh_model_begins_an_episode_with_its_own_parameters(of: type[FirstMemory], tmp_path: Path) -> None:
    settings: dict[str, Any] = {"preset": "default", "n_workers": 0, "seed": 0, "normalize_obs": False, **SETTINGS}
    with FastES(Toy, TorchPolicy(module(of)), **settings) as model:
        model.learn(500)
        model.save(tmp_path / "model.zip")
        begun = model.predict(np.eye(3), episode_start=True, deterministic=True)[0]
    with FastES.load(tmp_path / "model.zip", Toy, policy=TorchPolicy(module(of)), n_workers=0) as model:
        assert model.predict(np.eye(3), deterministic=True)[0].tolist() == begun.tolist()


def test_episodes_that_are_played_forget() -> None:
    with FastES(Toy, TorchPolicy(module(Forgetting)), preset="default", n_workers=0, seed=0) as model:
        both = [episode[:3] for episode in play(model, 2, first_seed=4)]
        assert both == [play(model, 1, first_seed=seed)[0][:3] for seed in (4, 5)]
        assert [each[1] for each in both] == model.evaluate(2, first_seed=4).returns.tolist()


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (lambda: TorchPolicy(module(Remembering)), ("module Remembering remembers", "reset() or begin_episode()", "workers")),
        (lambda: TorchPolicy(torch.nn.Sequential(module(Remembering))), ("module Sequential remembers",)),
        (lambda: CallablePolicy(EndlessSum(), 6), ("EndlessSum object remembers", "reset()")),
        (lambda: CallablePolicy(EndlessSum().act, 6), ("EndlessSum object remembers", "reset()")),
        (lambda: CallablePolicy(with_list(), 6), ("function 'remember' remembers", "as an object that is called")),
        (lambda: CallablePolicy(with_variable(), 6), ("function 'add' remembers",)),
        (lambda: CallablePolicy(partial(keep, []), 6), ("function 'partial' remembers",)),
    ],
)
def test_a_memory_that_nothing_clears_is_told_of(policy: Any, told: tuple[str, ...]) -> None:
    with pytest.warns(UserWarning, match=r"reset\(\)") as caught, FastES(Toy, policy(), preset="unbiased", n_workers=0, seed=0):
        pass
    (warning,) = caught
    assert all(word in str(warning.message) for word in told), warning.message
    assert warning.filename == __file__


def test_a_memory_that_reset_leaves_is_told_of() -> None:
    class Half(Remembering):
        def reset(self) -> None:
            """Clears nothing."""

    with (
        pytest.warns(UserWarning, match=r"also after its reset\(\)"),
        FastES(Toy, TorchPolicy(module(Half)), preset="default", n_workers=0),
    ):
        pass


class Quiet(torch.nn.Module):
    """It draws, caches, keeps what it showed last, and has statistics, but remembers nothing that changes what it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)
        self.table: Any = None

    def forward(self, observation: Any) -> Any:
        if self.table is None:
            self.table = torch.ones(2)
        self.shown = self.norm(self.layer(observation)) * self.table
        return self.shown + 0.1 * torch.randn(2) + float(np.random.normal())  # noqa: NPY002


@pytest.mark.parametrize(
    "policy",
    [
        lambda: TorchPolicy(torch.nn.Linear(3, 2)),
        lambda: TorchPolicy(Quiet()),
        lambda: TorchPolicy(Gated()),
        lambda: CallablePolicy(Sum(), 6),
        lambda: CallablePolicy(with_weights(), 6),
        lambda: CallablePolicy(keep_nothing, 6),
    ],
)
def test_a_policy_without_a_memory_is_not_warned_of(policy: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = policy()
        state = torch.get_rng_state()
        with FastES(Toy, made, preset="unbiased", n_workers=0, seed=0):
            pass
    assert torch.equal(torch.get_rng_state(), state)
    assert not CALLED


def test_a_reset_that_changes_the_parameters_is_refused() -> None:
    class Anew(torch.nn.Linear):
        def reset(self) -> None:
            self.reset_parameters()

    with pytest.raises(ValueError, match=r"module Anew changes its parameters in reset\(\)"):
        FastES(Toy, TorchPolicy(Anew(3, 2)), preset="default", n_workers=0)
