"""Risk: the environment that comes along is not there, is not what its docstring says, or is not learned."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from processes import environment, run_fastes, run_script
from training import assert_same, train

from fastes import FastES
from fastes.envs.import_hook import register_envs
from fastes.envs.tasks.cyclic_mdp import CyclicMDP
from fastes.runs.video import play

ID = "fastes/CyclicMDP-v0"
RIGHT = (1, 2, 0)  # in states 1, 2, 3
MADE = f"assert gymnasium.make({ID!r}).unwrapped.spec.id == {ID!r}"


def walk(env: gymnasium.Env[Any, Any], steps: int) -> list[Any]:
    """What the right actions meet from a reset on."""
    env.reset(seed=0)
    return [env.step(RIGHT[at % 3]) for at in range(steps)]


def at_state(state: int) -> CyclicMDP:
    """A new environment, walked to state 0, 1 or 2."""
    env = CyclicMDP()
    walk(env, state)
    return env


# --- the environment --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", range(3))
@pytest.mark.parametrize("action", range(3))
def test_each_action_in_each_state(state: int, action: int) -> None:
    obs, reward, terminated, truncated, info = at_state(state).step(np.int64(action))
    right = action == RIGHT[state]
    assert reward == ((1.0, 1.0, 2.0)[state] if right else -1.0)
    assert obs.tolist() == np.eye(3)[(state + right) % 3].tolist()
    assert (obs.dtype, obs.shape) == (np.float32, (3,))
    assert (terminated, truncated, info) == (not right, False, {})
    assert type(reward) is float


def test_no_action_is_right_in_two_states() -> None:
    """A policy that does not look at its observation cannot walk the cycle."""
    assert len(set(RIGHT)) == 3
    for action in range(3):
        env = CyclicMDP()
        env.reset()
        assert any(env.step(action)[2] for _ in range(3))


@pytest.mark.parametrize("action", [3, -1, 0.5, None, "1"])
def test_no_other_action_is_taken(action: Any) -> None:
    with pytest.raises(ValueError, match=r"action = .* expected 0, 1 or 2"):
        at_state(1).step(action)


def test_an_observation_belongs_to_the_caller() -> None:
    env = CyclicMDP()
    env.reset()[0][:] = 7.0
    env.step(1)[0][:] = 7.0
    assert env.step(0)[0].tolist() == [0.0, 1.0, 0.0]
    assert env.reset()[0].tolist() == [1.0, 0.0, 0.0]


def test_nothing_is_random_and_a_reset_starts_over() -> None:
    env, actions = CyclicMDP(), np.random.default_rng(0).integers(0, 3, 200)
    seen = []
    for seed in (0, 1):
        steps = [env.reset(seed=seed)[0].tolist()]
        for action in actions:
            obs, reward, terminated, *_ = env.step(action)
            steps.append((obs.tolist(), reward, terminated))
            if terminated:
                env.reset()
        seen.append(steps)
    assert seen[0] == seen[1]


@pytest.mark.parametrize(("cap", "best"), [(None, 132.0), (1, 1.0), (2, 2.0), (3, 4.0), (100, 133.0), (101, 134.0)])
def test_the_best_return_under_a_cap(cap: int | None, best: float) -> None:
    env = gymnasium.make(ID, max_episode_steps=cap)
    steps = walk(env, cap or 99)
    assert sum(step[1] for step in steps) == best
    assert [step[3] for step in steps] == [False] * (len(steps) - 1) + [True]
    assert not any(step[2] for step in steps)
    spec = gymnasium.spec(ID)
    assert spec.max_episode_steps == 99
    assert spec.reward_threshold == 132.0


def test_the_class_has_no_cap() -> None:
    assert not any(step[2] or step[3] for step in walk(CyclicMDP(), 1000))


def test_the_checker_of_gymnasium_is_content() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(ID).unwrapped)
        check_env(gymnasium.make(ID, render_mode="ansi").unwrapped)
        check_env(gymnasium.make(ID, render_mode="rgb_array").unwrapped)


def test_it_draws_its_state_as_text() -> None:
    env = gymnasium.make(ID, render_mode="ansi")
    env.reset()
    env.step(1)
    assert env.render() == " 1  [2]  3 "
    assert CyclicMDP().render() is None


def test_its_frames_show_the_present_state() -> None:
    env = gymnasium.make(ID, render_mode="rgb_array")
    env.reset()
    seen = []
    for action in RIGHT:
        frame = env.render()
        assert (frame.dtype, frame.shape) == (np.uint8, (32, 96, 3))
        seen.append(frame[16, 16::32].tolist())
        env.step(action)
    present, other = seen[0][:2]
    assert present != other
    assert seen == [[present if square == state else other for square in range(3)] for state in range(3)]


def test_a_mode_that_it_cannot_draw_in_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match=r"render_mode = 'human': expected 'ansi' \(text\), 'rgb_array'"):
        CyclicMDP(render_mode="human")


def test_sb3_makes_it_by_its_name() -> None:
    """SB3 asks for frames, and makes do without them only after a TypeError."""
    make_vec_env = pytest.importorskip("stable_baselines3.common.env_util").make_vec_env
    env = make_vec_env(ID, 2, seed=0)
    try:
        assert env.reset().tolist() == [[1.0, 0.0, 0.0]] * 2
        assert env.render().shape[-1] == 3
    finally:
        env.close()


# --- its registration -------------------------------------------------------------------------------------------------

IN_FRONT = """
    import sys
    from importlib.machinery import PathFinder

    class InFront:
        def find_spec(self, name, path=None, target=None):
            return PathFinder.find_spec(name, path, target) if name.startswith("gymnasium") else None
"""


@pytest.mark.parametrize(
    "code",
    [
        f"import fastes\nimport gymnasium\n{MADE}",
        f"import gymnasium\nimport fastes\n{MADE}",
        f"import gymnasium.envs.registration, fastes\n{MADE}",
        f"import gymnasium\nassert gymnasium.make('fastes:{ID}').unwrapped.spec.id == {ID!r}",
        f"import fastes.envs.source, gymnasium\n{MADE}",
        f"from fastes import FastES\nimport gymnasium\n{MADE}",
        f"import importlib.util, fastes\nimportlib.util.find_spec('gymnasium.envs')\nimport gymnasium\n{MADE}",
        f"import sys, fastes\nfor name in [*sys.modules]:\n    if name.startswith('fastes'): del sys.modules[name]\n"
        f"import fastes, gymnasium\n{MADE}",
        f"import fastes, gymnasium, importlib\nimportlib.reload(fastes)\n{MADE}",
        f"import fastes, gymnasium\ngymnasium.make_vec({ID!r}, num_envs=2, vectorization_mode='async').close()",
    ],
    ids=["before", "after", "within", "module:id", "envs", "FastES", "probed", "twice", "reloaded", "vectorised"],
)
def test_it_is_registered_however_it_is_imported(code: str, tmp_path: Path) -> None:
    result = run_script(f"if __name__ == '__main__':\n{_indented(code)}", tmp_path)
    assert (result.returncode, result.stderr) == (0, "")


def _indented(code: str) -> str:
    return "\n".join(f"    {line}" for line in code.splitlines())


def test_an_import_hook_in_front_hides_gymnasium_only_until_fastes_is_used(tmp_path: Path) -> None:
    code = f"""{IN_FRONT}
    import fastes
    sys.meta_path.insert(0, InFront())
    import gymnasium
    assert {ID!r} not in gymnasium.registry
    from fastes import FastES
    {MADE}
    """
    result = run_script(code, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")


def test_importing_fastes_imports_no_gymnasium_and_changes_nothing_of_it() -> None:
    code = (
        "import sys, fastes; assert not {'gymnasium', 'numpy'} & set(sys.modules); import gymnasium, inspect; "
        "from importlib.machinery import SourceFileLoader as Loader; assert type(gymnasium.envs.__loader__) is Loader; "
        "assert 'CartPole-v1' in inspect.getsource(gymnasium.envs) and 'CartPole-v1' in gymnasium.registry"
    )
    result = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")


def test_registering_again_changes_nothing() -> None:
    before = gymnasium.registry[ID]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register_envs()
        register_envs()
    assert gymnasium.registry[ID] is before


def test_a_worker_can_make_it() -> None:
    """By its id, as a factory does, to which no spec comes from the parent."""

    def make() -> gymnasium.Env[Any, Any]:
        import gymnasium

        return gymnasium.make("fastes/CyclicMDP-v0")

    settings = {"preset": "default", "population_size": 8}
    assert_same(train(make, 2, 0, **settings), train(make, 2, 2, **settings))


# --- training ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_cycle_is_found(seed: int) -> None:
    with FastES(ID, seed=seed, n_workers=0) as model:
        assert model.evaluate(1).mean < 132.0
        model.learn(50_000)
        assert model.solved
        assert set(model.evaluate(5).returns.tolist()) == {132.0}


def test_a_cap_of_the_users_is_trained_and_kept(tmp_path: Path) -> None:
    with FastES(ID, seed=0, n_workers=0, env_kwargs={"max_episode_steps": 30}, target_return=40.0) as model:
        model.learn(50_000)
        assert model.solved
        model.save(tmp_path / "short.zip")
    with FastES.load(tmp_path / "short.zip", n_workers=0) as model:
        result = model.evaluate(2)
    assert (result.returns.tolist(), result.lengths.tolist()) == ([40.0, 40.0], [30, 30])


@pytest.mark.slow
def test_a_checkpoint_is_evaluated_by_a_new_process(tmp_path: Path) -> None:
    trained = run_fastes("train", ID, "--seed", "0", "--workers", "0", "--total-timesteps", "50000", cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    assert re.search(r"^solved: .* others: return 132\.0 \+- 0\.0, worst 132\.0$", trained.stdout, re.MULTILINE)
    (checkpoint,) = tmp_path.glob("runs/**/checkpoint.zip")
    for arguments in (["--workers", "0"], ["--workers", "2", "--checkpoint", "best"]):
        result = run_fastes("eval", str(checkpoint.parent), "--episodes", "4", *arguments, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        assert "mean 132.00  std 0.00  min 132.00  max 132.00  mean length 99.0" in result.stdout


def test_a_video_of_it_has_a_frame_a_step(tmp_path: Path) -> None:
    with FastES(ID, seed=0, n_workers=0) as model:
        ((*_, length, frames),) = play(model, 1, video=tmp_path / "new.mp4")
    assert frames == length + 1, "and one with its whole return"
    assert (tmp_path / "new.mp4").stat().st_size > 500
