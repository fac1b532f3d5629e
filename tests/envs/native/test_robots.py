"""Risk: Gymnasium's robots have other bits in C, or step there although something about them was changed."""

from __future__ import annotations

import contextlib
import gc
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import gymnasium.envs.mujoco
import numpy as np
import pytest
from natively import SETTINGS, assert_same_natively
from other_gymnasium import as_of
from training import train

from fastes import FastES, MujocoTask
from fastes.envs.native.twins import Twin, twin_of
from fastes.rollout.native_episodes import Compared

mujoco = pytest.importorskip("mujoco")
ASSETS = Path(gymnasium.envs.mujoco.__file__).parent / "assets"

OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("HalfCheetah-v5", {}),
    ("HalfCheetah-v5", {"frame_skip": 3, "forward_reward_weight": 2.0, "ctrl_cost_weight": 0.3}),
    ("HalfCheetah-v5", {"exclude_current_positions_from_observation": False, "reset_noise_scale": 0.4}),
    ("Hopper-v5", {}),
    ("Hopper-v5", {"healthy_state_range": (-3.0, 3.0), "healthy_angle_range": (-0.5, 0.5), "healthy_reward": 2.5}),
    ("Hopper-v5", {"terminate_when_unhealthy": False, "exclude_current_positions_from_observation": False}),
    ("Walker2d-v5", {}),
    ("Walker2d-v5", {"healthy_z_range": (0.2, 3.0), "healthy_angle_range": (-2.0, 2.0), "ctrl_cost_weight": 0.1}),
    ("Swimmer-v5", {}),
    ("Swimmer-v5", {"frame_skip": 2, "ctrl_cost_weight": 0.01}),
    ("Ant-v5", {}),
    ("Ant-v5", {"include_cfrc_ext_in_observation": False, "main_body": "torso", "contact_cost_weight": 0.1}),
    ("Ant-v5", {"contact_force_range": (-0.2, 0.3), "terminate_when_unhealthy": False}),
    ("Humanoid-v5", {}),
    (
        "Humanoid-v5",
        {"include_cinert_in_observation": False, "contact_cost_range": (-1.0, 0.001), "healthy_z_range": (0.3, 2.0)},
    ),
    ("HumanoidStandup-v5", {}),
    ("HumanoidStandup-v5", {"include_cvel_in_observation": False, "impact_cost_weight": 1e-3}),
    ("InvertedPendulum-v5", {}),
    ("InvertedDoublePendulum-v5", {}),
    ("InvertedDoublePendulum-v5", {"healthy_reward": 3.0}),
    ("Reacher-v5", {}),
    ("Reacher-v5", {"reward_dist_weight": 2.0, "reward_control_weight": 0.3}),
    ("Pusher-v5", {}),
    ("Pusher-v5", {"reward_near_weight": 0.9, "reward_control_weight": 0.3}),
]


def timed(data: Any) -> float:
    """The time of all steps, as MuJoCo has measured it."""
    return float(data.timer.duration[int(mujoco.mjtTimer.mjTIMER_STEP)])


def is_timed() -> bool:
    """Whether this version of MuJoCo's package has steps timed."""
    model = mujoco.MjModel.from_xml_string("<mujoco/>")
    data = mujoco.MjData(model)
    mujoco.mj_step(model, data)
    return timed(data) > 0.0


needs_clock = pytest.mark.skipif(not is_timed(), reason="this version of MuJoCo's package has no clock")


def made(env_id: str, **kwargs: Any) -> Any:
    return gymnasium.make(env_id, disable_env_checker=True, **kwargs)


def compare(env: Any, episodes: int = 4, steps: int = 120) -> None:
    """Play episodes of random actions, small, usual and extreme ones, in both."""
    found = twin_of(env)
    assert isinstance(found, Twin), found
    both, space = Compared(env, found), env.action_space
    for seed in range(episodes):
        both.reset(seed=seed)
        draw = np.random.default_rng(seed)
        for _ in range(steps):
            action = draw.uniform(space.low, space.high) * (0.2, 1.0)[seed % 2]
            if seed == 2:
                action = draw.choice([space.low, space.high])
            _, _, terminated, truncated, _ = both.step(action.astype(np.float32))
            if terminated or truncated:
                break
        assert not both.difference


@pytest.mark.parametrize(("env_id", "kwargs"), OPTIONS)
def test_the_same_bits_in_c(env_id: str, kwargs: dict[str, Any]) -> None:
    compare(made(env_id, **kwargs))


@pytest.mark.parametrize("env_id", ["Hopper-v5", "Humanoid-v5", "Swimmer-v5", "Reacher-v5", "Pusher-v5"])
def test_first_states_of_many_seeds(env_id: str) -> None:
    env = made(env_id)
    env.unwrapped.init_qvel[:] += 0.25
    found = twin_of(env)
    assert isinstance(found, Twin)
    for seed in (*range(300), 2**32 - 1):
        there = env.reset(seed=seed)[0].tobytes()
        found.begin(seed)
        assert found.instance.observation.tobytes() == there, seed


@needs_clock
def test_steps_in_c_are_not_timed_and_others_are() -> None:
    env = made("Hopper-v5")
    found, data = twin_of(env), env.unwrapped.data
    assert isinstance(found, Twin)
    env.reset(seed=0)
    env.step(np.zeros(3, np.float32))
    before = timed(data)
    found.instance.step(np.zeros(3, np.float32))
    assert before > 0.0
    assert timed(data) == before
    env.step(np.zeros(3, np.float32))
    assert timed(data) > before


class Timed(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Its reward is 1 if MuJoCo has timed a step."""

    def step(self, action: Any) -> Any:
        observation, _, *rest = self.env.step(action)
        return observation, float(timed(self.unwrapped.data) > 0.0), *rest  # type: ignore[attr-defined]


def timed_robot() -> Any:
    return Timed(made("InvertedPendulum-v5"))


@pytest.mark.slow
@needs_clock
def test_workers_step_in_python_untimed_too() -> None:
    with FastES(timed_robot, n_workers=1, preset="linear", max_episode_steps=3, seed=0) as model:
        assert model.evaluate(2).returns.tolist() == [0.0, 0.0]
        model.learn(50)
        assert model.last_episodes[0] == (0.0, 3)
    env = timed_robot()
    env.reset(seed=0)
    assert env.step(np.zeros(1, np.float32))[1] == 1.0


def test_a_clock_of_the_users_own_stays(tmp_path: Path) -> None:
    code = (
        "import mujoco\nfrom fastes.envs.native.mujoco import leave_untimed\nticks = []\n"
        "mujoco.set_mjcb_time(lambda: ticks.append(1) or 1.0 * len(ticks))\nleave_untimed()\n"
        "model = mujoco.MjModel.from_xml_string('<mujoco/>')\nmujoco.mj_step(model, mujoco.MjData(model))\nassert ticks\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, timeout=120)


def test_a_model_that_was_changed_steps_as_it_is() -> None:
    env = made("HalfCheetah-v5")
    env.unwrapped.model.body_mass[:] *= 1.7
    env.unwrapped.model.opt.gravity[2] = -3.0
    compare(env)


@pytest.mark.parametrize(
    ("n_workers", "env_id", "more"),
    [
        (0, "Hopper-v5", {"action_noise": 0.1, "episodes_per_candidate": 2}),
        pytest.param(2, "HalfCheetah-v5", {"episode_cap": "grow", "episode_cap_start": 50}, marks=pytest.mark.slow),
        (0, "Humanoid-v5", {"obs_columns": "0:45", "max_episode_steps": 20}),
    ],
)
def test_a_training_has_the_same_bits(n_workers: int, env_id: str, more: dict[str, Any]) -> None:
    assert_same_natively(env_id, 5, n_workers, **more)


def test_what_may_be_another_task_steps_in_python() -> None:
    from gymnasium.envs.mujoco.hopper_v5 import HopperEnv

    class Higher(HopperEnv):
        pass

    assert "Higher" in str(twin_of(Higher()))
    env = made("Hopper-v5")
    env.unwrapped._get_rew = lambda *_: (1.0, {})
    assert "_get_rew was replaced" in str(twin_of(env))
    assert "HopperEnv" in str(twin_of(made("Hopper-v4")))


def test_another_version_of_gymnasium_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from gymnasium.envs.mujoco.hopper_v5 import HopperEnv

    before = HopperEnv.control_cost

    def control_cost(self: Any, action: Any) -> Any:
        return before(self, action) + 1.0

    monkeypatch.setattr(HopperEnv, "control_cost", as_of(before, control_cost))
    with pytest.warns(
        RuntimeWarning, match=rf"reward in step 1 is .* \(gymnasium .*, mujoco {re.escape(mujoco.__version__)}\)"
    ):
        train("Hopper-v5", 1, 0, **SETTINGS)


def test_an_error_of_mujoco_ends_the_episode_and_not_the_process(tmp_path: Path) -> None:
    """With too little memory a contact is an error, which MuJoCo itself ends the process for."""
    usual = ASSETS / "hopper.xml"
    said = list[str]()
    for size in (*range(2048, 4096, 256), *range(4096, 40960, 2048)):  # versions of MuJoCo differ in what a reset needs
        scarce = tmp_path / f"hopper{size}.xml"
        scarce.write_text(usual.read_text().replace("<worldbody>", f"<size memory='{size}'/><worldbody>", 1))
        with contextlib.suppress(ValueError, mujoco.FatalError):
            found = twin_of(made("Hopper-v5", xml_file=str(scarce)))
            assert isinstance(found, Twin)
            try:
                found.begin(0)
                for _ in range(300):
                    found.instance.step(np.ones(3, np.float32))
            except RuntimeError as error:
                said.append(str(error))
    assert said
    assert all("HopperEnv: " in each and " returned 1: mj_stackAlloc" in each for each in said)


def test_callbacks_of_mujoco_mean_python() -> None:
    env = made("Hopper-v5")
    mujoco.set_mjcb_passive(lambda *_: None)
    try:
        assert "mjcb_passive is set" in str(twin_of(env))
    finally:
        mujoco.set_mjcb_passive(None)


def test_a_circle_of_references_is_freed() -> None:
    """The collector clears what a robot in C is made of before it frees that itself."""
    for _ in range(20):
        circle: list[Any] = [twin_of(made("Hopper-v5"))]
        circle.append(circle)
    del circle
    gc.collect()


def test_constants_that_are_set_later_count() -> None:
    with FastES("Hopper-v5", n_workers=0, native="on", **SETTINGS) as model:
        model.learn(30)
        model.get_env().set_attr("_healthy_z_range", (50.0, 60.0))
        model.learn(30, reset_num_timesteps=False)
        assert {length for _, length in model.last_episodes} == {1}


DESCRIBED: list[tuple[str, dict[str, Any]]] = [
    ("hopper.xml", {}),
    (
        "hopper.xml",
        {
            "frame_skip": 4,
            "observe": ["qpos[1:]", ("qvel", -10, 10), "body:torso", "qvel[-1]"],
            "moves": "body:torso[0]",
            "forward_reward_weight": 1.5,
            "ctrl_cost_weight": 1e-3,
            "healthy": {"qpos[1]": (0.7, 2.0), "qpos[2]": (-0.2, 0.2)},
            "healthy_reward": 1.0,
            "reset_noise_scale": 5e-3,
        },
    ),
    (
        "reacher.xml",
        {
            "frame_skip": 2,
            "observe": ["qpos[:2]", "body:fingertip[:2]"],
            "distances": [("body:fingertip", "body:target", 1.0), ("body:fingertip[:2]", [0.1, 0.05], 0.5)],
            "healthy": {"qvel[0]": (-20.0, 20.0)},
            "healthy_reward": 0.25,
            "terminate_when_unhealthy": False,
            "ctrl_cost_weight": 0.1,
            "reset_noise_scale": 0.1,
        },
    ),
]


@pytest.mark.parametrize(("xml", "kwargs"), DESCRIBED)
def test_a_described_task_has_the_same_bits_in_c(xml: str, kwargs: dict[str, Any]) -> None:
    compare(MujocoTask(str(ASSETS / xml), **kwargs))


def test_a_described_hopper_is_gymnasiums() -> None:
    described = {
        "observe": ["qpos[1:]", ("qvel", -10.0, 10.0)],
        "moves": "qpos[0]",
        "ctrl_cost_weight": 1e-3,
        "healthy": {"qpos[1]": (0.7, float("inf")), "qpos[2]": (-0.2, 0.2)},
        "healthy_reward": 1.0,
        "reset_noise_scale": 5e-3,
        "frame_skip": 4,
    }
    ours, theirs = MujocoTask(str(ASSETS / "hopper.xml"), **described), gymnasium.make("Hopper-v5").unwrapped
    draw = np.random.default_rng(0)
    for seed in range(4):
        steps = [ours.reset(seed=seed)[0].tobytes() == theirs.reset(seed=seed)[0].tobytes()]
        over = False
        while not over:
            action = draw.uniform(-1.0, 1.0, 3).astype(np.float32)
            mine, others = ours.step(action), theirs.step(action)
            steps.append(mine[0].tobytes() == others[0].tobytes() and mine[1:3] == others[1:3])
            over = bool(others[2])
        assert len(steps) > 5
        assert all(steps)


def test_a_training_on_a_described_task_has_the_same_bits() -> None:
    xml, kwargs = DESCRIBED[1]
    assert_same_natively(lambda: MujocoTask(str(ASSETS / xml), **kwargs), 5, 2, max_episode_steps=50)


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"observe": ["qpso"]}, "'qpso' is not a place: expected qpos"),
        ({"observe": ["qposition"]}, "'qposition' is not a place"),
        ({"observe": ["qpos[-]"]}, "is not a place"),
        ({"observe": ["qpos[]"]}, "is not a place"),
        ({"observe": []}, "observe has 0 entries: expected 1 to 8"),
        ({"observe": "qpos"}, "observe = 'qpos' is a text: expected a list of places"),
        ({"observe": [0]}, "observe has 0, a int: expected qpos"),
        ({"observe": [("qpos", 1.0)]}, r"observe has \('qpos', 1.0\): expected a place, or"),
        ({"observe": [("qpos", 1.0, -1.0)]}, "observe has the limits .*the smaller first"),
        ({"observe": [("qpos", None, 1.0)]}, "observe has the limits"),
        ({"observe": ["qpos[99]"]}, "has no numbers: qpos has 6"),
        ({"observe": ["body:trunk"]}, "'body:trunk': .*Invalid name 'trunk'.*torso"),
        ({"observe": ["sensor:tilt"]}, "'sensor:tilt': Invalid name 'tilt'. Valid names:"),
        ({"moves": "qpos"}, r"'qpos' has 6 numbers: expected one, such as qpos\[0\]"),
        ({"moves": "body:torso[0:2]"}, r"has 2 numbers: expected one, such as body:torso\[0\]"),
        ({"moves": ["qpos[0]"]}, "moves has .*, a list: expected"),
        ({"healthy": {"body:torso": (0.0, 1.0)}}, "'body:torso' has 3 numbers: expected one"),
        ({"healthy": {"qpos[1]": (2.0, 1.0)}}, "healthy has the limits .*the smaller first"),
        ({"healthy": {"qpos[1]": 1.0}}, "healthy has the limits 1.0: expected two numbers"),
        ({"healthy": {f"qvel[{k}:{k + 1}]": (0.0, 1.0) for k in range(9)}}, "healthy has 9 entries: expected at most 8"),
        ({"distances": [("body:torso", [0.0], 1.0)]}, "points of 3 and 1 numbers"),
        ({"distances": [("qpos", "qvel")]}, r"distances has \('qpos', 'qvel'\): expected"),
        ({"distances": [("qpos[0]", [float("nan")], 1.0)]}, "expected finite numbers"),
        ({"frame_skip": 0}, "frame_skip = 0: expected 1 or more"),
    ],
)
def test_a_wrong_description_is_an_error_in_words(kwargs: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        MujocoTask(str(ASSETS / "hopper.xml"), **kwargs)


def test_a_description_does_not_change_with_the_callers_lists() -> None:
    observe = ["qpos"]
    env = MujocoTask(str(ASSETS / "hopper.xml"), observe=observe, frame_skip=np.int64(4))  # type: ignore[arg-type]
    observe.append("qvel")
    assert pickle.loads(pickle.dumps(env)).observation_space == env.observation_space
    assert isinstance(twin_of(env), Twin)


def test_a_robot_of_many_bodies_steps_in_c(tmp_path: Path) -> None:
    bodies = "".join(f"<body pos='{k} 0 0'><joint type='slide'/><geom size='0.1'/></body>" for k in range(30))
    actuator = "<actuator><general joint='x' ctrlrange='-1 1'/></actuator>"
    first = "<body pos='-1 0 0'><joint name='x' type='slide'/><geom size='0.1'/></body>"
    (tmp_path / "many.xml").write_text(f"<mujoco><worldbody>{first}{bodies}</worldbody>{actuator}</mujoco>")
    compare(MujocoTask(str(tmp_path / "many.xml")))


def test_an_actuator_without_a_range_is_an_error_in_words(tmp_path: Path) -> None:
    body = "<worldbody><body><joint name='x' type='slide'/><geom size='0.1'/></body></worldbody>"
    for actuators, words in (
        ("<motor name='pull' joint='x'/>", r"the actuators \['pull'\] without a range"),
        ("", "no actuators"),
    ):
        (tmp_path / "loose.xml").write_text(f"<mujoco>{body}<actuator>{actuators}</actuator></mujoco>")
        with pytest.raises(ValueError, match=words):
            MujocoTask(str(tmp_path / "loose.xml"))


def test_sensors_and_sites_are_places(tmp_path: Path) -> None:
    (tmp_path / "ball.xml").write_text(
        "<mujoco><worldbody><body name='ball' pos='0 0 1'><joint name='x' type='slide' axis='1 0 0'/><geom size='0.1'/>"
        "<site name='top' pos='0 0 0.1'/></body></worldbody><actuator><motor joint='x' ctrlrange='-1 1'/></actuator>"
        "<sensor><jointvel joint='x'/><framelinacc name='felt' objtype='site' objname='top'/></sensor></mujoco>"
    )
    env = MujocoTask(str(tmp_path / "ball.xml"), observe=["site:top", "sensor:felt", "sensordata[0]"], moves="site:top[0]")
    compare(env)
    seen = env.reset(seed=0)[0]
    assert seen.shape == (7,)
    assert seen[2] == 1.1
    assert np.array_equal(seen[3:6], env.data.sensordata[1:])
    again = pickle.loads(pickle.dumps(env))
    assert again.reset(seed=0)[0].tobytes() == seen.tobytes()
