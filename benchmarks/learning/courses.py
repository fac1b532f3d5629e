"""Aims of presets, and budgets that differ from the preset's own: the only place for both."""

from __future__ import annotations

import math
from typing import NamedTuple

from fastes.settings.preset_loader import choose_settings

_NO_AIM = math.nan


class Course(NamedTuple):
    """An environment.

    aim: return whose first evaluation `presets` dates.

    timesteps: of the runs that are reported, 0 for the preset's own.
    trpo, ppo: largest ratio of FastES's wall time to the peer's that `race` aims at.
    episodes: of an evaluation on the way of a race; more where the start of an episode decides more than the policy does.
    against_trpo, against_ppo: steps in a race against this peer where the usual ones ended below its score: runs of their
        own, over which schedules and trials stretch, within half of the peer's time.
    """

    aim: float
    timesteps: int = 0
    trpo: float = _NO_AIM
    ppo: float = _NO_AIM
    episodes: int = 10
    against_trpo: int = 0
    against_ppo: int = 0


COURSES = {
    "CartPole-v1": Course(475.0, timesteps=100_000),
    "Acrobot-v1": Course(-90.0),
    "MountainCar-v0": Course(-110.0),
    "MountainCarContinuous-v0": Course(90.0),
    "Pendulum-v1": Course(-200.0),
    "LunarLander-v3": Course(200.0),
    "LunarLanderContinuous-v3": Course(200.0),
    "BipedalWalker-v3": Course(280.0),
    "fastes/Catch-v0": Course(1.0),
    "InvertedPendulum-v5": Course(1000.0, timesteps=300_000, trpo=0.1, ppo=0.5),
    "Swimmer-v5": Course(350.0, trpo=0.1, ppo=0.5, against_trpo=5_000_000),
    "HalfCheetah-v5": Course(4500.0, trpo=0.1, ppo=0.5, against_ppo=8_000_000),
    "InvertedDoublePendulum-v5": Course(9300.0, trpo=0.1, ppo=0.5),
    "Reacher-v5": Course(-5.0, trpo=0.1, ppo=0.5, episodes=100),
    "Hopper-v5": Course(3400.0, timesteps=4_000_000, trpo=0.5, ppo=0.5),
    "Walker2d-v5": Course(3500.0, trpo=0.5, ppo=0.5),
    "Ant-v5": Course(3000.0, trpo=0.5, ppo=0.5),
    "HumanoidStandup-v5": Course(100_000.0, ppo=0.5, episodes=5),
    "Pusher-v5": Course(-35.0, ppo=0.5, episodes=50),
}
RACED = [env for env, course in COURSES.items() if not math.isnan(course.ppo)]


def course_of(env: str) -> Course:
    """Return the course of an environment, or one without aims if it has none."""
    return COURSES.get(env, Course(_NO_AIM))


def reported_timesteps(env: str) -> int:
    """Budget of the runs that presets and README report."""
    return course_of(env).timesteps or preset_timesteps(env)


def preset_timesteps(env: str) -> int:
    """The budget of the environment's preset: its schedules and trials are shares of it."""
    return choose_settings(env, {}).total_timesteps
