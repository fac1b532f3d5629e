"""Risk: Atari's ids are unknown although ale_py is there, or a dense network is built on raw images without a word."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from envs_for_tests import AnySpaces
from gymnasium import Space, registry, spaces

from fastes import CallablePolicy, EnvironmentUnavailable, FastES
from fastes.policies.named_policies import make_policy_spec

ACTIONS = spaces.Discrete(2)
ALE_PY = """
import gymnasium
from gymnasium import spaces
import numpy as np

class Fake(gymnasium.Env):
    observation_space, action_space = spaces.Box(0, 255, (4,), np.uint8), spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.integers(0, 255, 4, dtype=np.uint8), {}

    def step(self, action):
        self.steps += 1
        return self.np_random.integers(0, 255, 4, dtype=np.uint8), float(action), self.steps == 5, False, {}

for name in ("ALE/Fake-v5", "FakeNoFrameskip-v4", "Fake-v4", "Fake-ram-v4"):
    gymnasium.register(name, entry_point="ale_py:Fake")
"""


@pytest.fixture
def _ale_py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of that name, which registers when it is imported."""
    (tmp_path / "ale_py.py").write_text(ALE_PY)
    monkeypatch.delitem(sys.modules, "ale_py", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("ALE/Fake-v5", "FakeNoFrameskip-v4", "Fake-v4", "Fake-ram-v4"):
        monkeypatch.setitem(registry, name, None)
        del registry[name]
    yield
    sys.modules.pop("ale_py", None)


@pytest.mark.usefixtures("_ale_py")
@pytest.mark.parametrize("name", ["ALE/Fake-v5", "FakeNoFrameskip-v4", "Fake-v4", "Fake-ram-v4"])
def test_atari_is_found_without_an_import(name: str, tmp_path: Path) -> None:
    with FastES(name, n_workers=1, population_size=4, seed=0) as model:
        model.learn(40)
        model.save(tmp_path / "model")
    del registry[name], sys.modules["ale_py"]
    with FastES.load(tmp_path / "model", n_workers=0) as loaded:
        assert loaded.source.name == name
        assert loaded.evaluate(2).returns.shape == (2,)


@pytest.fixture
def _no_ale_py(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it had never been installed: another test may have imported it."""
    monkeypatch.setitem(sys.modules, "ale_py", None)
    for name in [name for name, made in registry.items() if str(made.entry_point).startswith("ale_py")]:
        monkeypatch.delitem(registry, name)


@pytest.mark.usefixtures("_no_ale_py")
def test_atari_that_is_not_installed_is_named() -> None:
    for name in ("ALE/Nothing-v5", "NothingNoFrameskip-v4", "NothingDeterministic-v0", "Nothing-ramNoFrameskip-v4"):
        with pytest.raises(EnvironmentUnavailable, match=r"may need: pip install .*\[atari\]"):
            FastES(name, n_workers=0)
    for name in ("Xyzzyplugh-v0", "Pong-v4", "Pong-v5", "pong", "space_invaders"):
        with pytest.raises(EnvironmentUnavailable, match=r"game of Atari needs: pip install .*\[atari\]"):
            FastES(name, n_workers=0)
    with pytest.raises(EnvironmentUnavailable, match="import the package that registers it"):
        FastES("Xyzzyplugh-v0", preset="unbiased", n_workers=0)


@pytest.mark.usefixtures("_no_ale_py")
def test_what_is_no_game_is_not_told_of_atari() -> None:
    for name in ("cartpole", "CartPole-v5", "Xyzzyplugh-v1", "other/Pong-v5", "HalfCheeta-v5", "envs_for_tests:Tooy-v0"):
        with pytest.raises(EnvironmentUnavailable, match="not registered") as caught:
            FastES(name, n_workers=0)
        assert "Atari" not in str(caught.value)


@pytest.mark.usefixtures("_ale_py")
def test_a_mistyped_id_of_atari_is_met_with_the_right_one() -> None:
    for name in ("ALE/Fkae-v5", "ALE/fake", "FakeNoFrameskip-v0", "Fake-v5", "fake-v5", "fake", "FAKE", "fkae"):
        with pytest.raises(EnvironmentUnavailable, match="did you mean 'ALE/Fake-v5'") as caught:
            FastES(name, n_workers=0)
        assert name in ("ALE/Fkae-v5", "fkae") or " or " not in str(caught.value), "this one alone"


@pytest.mark.usefixtures("_ale_py")
def test_a_game_is_not_put_in_the_place_of_what_resembles_it() -> None:
    for name, expected in (("cartpole", "CartPole-v1"), ("Hoper-v4", "Hopper-v4")):
        with pytest.raises(EnvironmentUnavailable, match=f"did you mean '{expected}'") as caught:
            FastES(name, n_workers=0)
        assert "ALE" not in str(caught.value)


def image(*shape: int, dtype: type = np.uint8) -> Space:
    return spaces.Box(0, 255, shape, dtype)


@pytest.mark.parametrize(
    ("space", "told"),
    [
        (image(210, 160, 3), True),
        (image(84, 84, 1), True),
        (image(101, 100, dtype=np.float32), True),
        (spaces.Dict({"picture": image(64, 64, 3), "speed": spaces.Box(-1, 1, (2,))}), True),
        (spaces.Tuple([image(2, 30, 30), spaces.Discrete(3)]), True),
        (spaces.Dict({"codes": image(15, 15, 5), "speed": spaces.Box(-1, 1, (2,))}), False),
        (image(7, 7, 3), False),
        (image(128), False),
        (spaces.Box(-np.inf, np.inf, (376,), np.float64), False),
    ],
)
def test_a_dense_network_on_raw_images_is_told_of(space: Space, told: bool) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        FastES(lambda: AnySpaces(space, ACTIONS), preset="default", n_workers=0, policy_kwargs={"net_arch": [2]}).close()
    better = "'CnnPolicy'" if isinstance(space, spaces.Box) else "'MultiInputPolicy'"
    messages = [str(each.message) for each in caught if "convolution" in str(each.message)]
    assert len(messages) == told
    assert all(word in message for message in messages for word in ("MlpPolicy", "grey", better))
    assert all(each.filename == __file__ for each in caught if "convolution" in str(each.message))


def test_many_inputs_that_are_no_image_are_not_called_one() -> None:
    with pytest.warns(UserWarning, match=r"gets 20,000 inputs from observations .*: show fewer numbers") as caught:
        FastES(
            lambda: AnySpaces(spaces.Discrete(20_000), ACTIONS), preset="default", policy="LinearPolicy", n_workers=0
        ).close()
    assert not any("raw images" in str(each.message) for each in caught)


def test_a_policy_that_sees_images_is_not_told_of_them() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for policy in ("CnnPolicy", "MultiInputPolicy"):
            FastES(policy, lambda: AnySpaces(image(84, 84, 4), ACTIONS), n_workers=0).close()
        FastES(
            lambda: AnySpaces(image(84, 84, 4), ACTIONS), CallablePolicy(lambda p, o: 0, 1), preset="default", n_workers=0
        ).close()


def test_convolutions_that_no_part_has_use_for_are_told_of() -> None:
    space = spaces.Dict({"picture": spaces.Box(0, 1, (16, 16, 1)), "speed": spaces.Box(-1, 1, (2,))})
    with pytest.warns(UserWarning, match=r"MultiInputPolicy does not use cnn, as Dict.*'normalize_images': False"):
        make_policy_spec("MultiInputPolicy", space, ACTIONS, {"cnn": [(2, 8, 8)], "net_arch": [2]})


def test_floats_that_are_no_image_without_a_word_are_told_of() -> None:
    """As SB3 has it, floats are images only if they are not to be divided."""
    space = spaces.Dict({"picture": spaces.Box(0, 1, (64, 64, 3)), "speed": spaces.Box(-1, 1, (2,))})
    small: dict[str, Any] = {"cnn": [(2, 8, 8)], "net_arch": [2]}
    with pytest.warns(UserWarning, match=r"MultiInputPolicy gets 12,290 inputs .* policy_kwargs=\{'normalize_images': False\}"):
        FastES(
            "MultiInputPolicy", lambda: AnySpaces(space, ACTIONS), preset="default", n_workers=0, policy_kwargs=small
        ).close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small["normalize_images"] = False
        FastES(
            "MultiInputPolicy", lambda: AnySpaces(space, ACTIONS), preset="default", n_workers=0, policy_kwargs=small
        ).close()
