"""One run of the study of own tasks, in this process: `python -m benchmarks.learning.own_task_run JSON`; its Row on stdout."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from benchmarks.child_process import answer_once
from benchmarks.learning.runs.clock import ended_cpu_seconds
from benchmarks.learning.runs.evaluation import FINAL_SEEDS, play
from benchmarks.machine import versions
from fastes.settings.preset_loader import tomllib

EPISODES = 20
_NATURE_SIDE = 36  # pixels: the smallest picture that SB3's CnnPolicy takes
_MANY = 1000  # parameters beyond which CMA-ES keeps variances alone
_CMA_SIGMA = 0.5

Env = gymnasium.Env[Any, Any]


class OwnTask(NamedTuple):
    """An environment of the study, as own_tasks.toml has it.

    Attributes:
        split: 'choose', on which recipes may be chosen, or 'held out', which are looked at once.
        group: Tasks whose mean is a line of the table.
        steps: The budget.
        zero: Return that scores 0: of random actions, or of the best action that never changes if that is higher.
        one: Return that scores 1 unless a method of the study reaches more; None for the best of the study.
        module: Registers the environment when it is imported.
        wrappers: 'module:class', innermost first.
    """

    name: str
    split: str
    group: str
    steps: int
    zero: float
    one: float | None = None
    module: str = ""
    env: str = ""
    kwargs: dict[str, Any] = {}  # noqa: RUF012
    wrappers: tuple[str, ...] = ()

    @property
    def is_installed(self) -> bool:
        return not self.module or importlib.util.find_spec(self.module) is not None

    def make(self) -> Env:
        if self.module == "shimmy":
            _fit_dm_control()
        if self.module:
            importlib.import_module(self.module)
        env = gymnasium.make(self.env or self.name, disable_env_checker=True, **self.kwargs)
        for wrapper in self.wrappers:
            module, name = wrapper.split(":")
            env = getattr(importlib.import_module(module), name)(env)
        return env


class Row(NamedTuple):
    """A line of the CSV file.

    Attributes:
        steps: That were played, evaluations during training included.
        cpu: Seconds of training, all its processes.
        score: Mean return of 20 noise-free episodes on seeds that no training has; std is theirs.
    """

    task: str
    method: str
    seed: int
    steps: int
    cpu: float
    score: float
    std: float
    versions: str


class Learnt(NamedTuple):
    """A trained policy: where it plays, its noise-free action, what begins an episode, and the steps that it took."""

    env: Env
    act: Callable[[Any], Any]
    begin: Callable[[], object]
    steps: int


@cache
def read_tasks() -> dict[str, OwnTask]:
    """The tasks by their names, in the file's order."""
    found = tomllib.loads(Path(__file__).with_name("own_tasks.toml").read_text(encoding="utf-8"))
    return {
        name: OwnTask(name, split, group, **fields)
        for split, groups in found.items()
        for group, tasks in groups.items()
        for name, fields in tasks.items()
    }


def play_row(name: str, method: str, seed: int, steps: int) -> Row:
    """Train on a task with a method, then evaluate.

    Args:
        method: 'auto', 'recipe:<preset>', 'ppo', 'trpo', 'a2c', 'ars', 'cma', 'random' or 'fixed'.
        steps: The training's; a method ends with the generation or the rollout in which it has taken them.
    """
    task, before = read_tasks()[name], ended_cpu_seconds()
    kind, _, preset = method.partition(":")
    of_sb3 = dict.fromkeys(("ppo", "trpo", "a2c", "ars"), learn_sb3)
    peers = {**of_sb3, "cma": learn_cma, "random": random_actions, "fixed": fixed_action}
    learnt = peers.get(kind, learn_fastes)(task, preset or kind, seed, steps)
    cpu = round(ended_cpu_seconds() - before, 1)
    returns = play(learnt.env, learnt.act, range(FINAL_SEEDS, FINAL_SEEDS + EPISODES), learnt.begin)
    told = versions(*metadata.packages_distributions().get(task.module, [])[:1])
    return Row(name, method, seed, learnt.steps, cpu, round(float(np.mean(returns)), 4), round(float(np.std(returns)), 4), told)


def learn_fastes(task: OwnTask, preset: str, seed: int, steps: int) -> Learnt:
    """FastES on a function that builds the environment, as a user has it whose environment no preset knows."""
    from benchmarks.learning.runs.contestant import Acting
    from fastes import FastES

    model = FastES(task.make, preset=preset, n_workers=0, seed=seed)
    model.learn(steps)
    acting = Acting(model)
    return Learnt(task.make(), acting.act, acting.begin, model.num_timesteps + model.eval_timesteps)


def learn_sb3(task: OwnTask, algo: str, seed: int, steps: int) -> Learnt:
    """PPO, TRPO, A2C, or ARS with a linear policy, with the defaults of their libraries; ARS sees a Dict as a flat vector."""
    import torch
    from sb3_contrib import ARS, TRPO
    from stable_baselines3 import A2C, PPO
    from stable_baselines3.common.preprocessing import is_image_space

    torch.set_num_threads(1)
    env = task.make()
    space: Any = env.observation_space
    if algo == "ars":
        env = gymnasium.wrappers.FlattenObservation(env) if isinstance(space, spaces.Dict) else env
        model: Any = ARS("LinearPolicy", env, seed=seed)
    else:
        sees = is_image_space(space) and min(sorted(space.shape)[-2:]) >= _NATURE_SIDE
        policy = "MultiInputPolicy" if isinstance(space, spaces.Dict) else "CnnPolicy" if sees else "MlpPolicy"
        model = {"ppo": PPO, "trpo": TRPO, "a2c": A2C}[algo](policy, env, seed=seed, device="cpu")
    model.learn(steps)
    return Learnt(env, lambda seen: model.predict(seen, deterministic=True)[0][()], lambda: None, model.num_timesteps)


def learn_cma(task: OwnTask, _: str, seed: int, steps: int) -> Learnt:
    """CMA-ES of the package cmaes on a linear policy with bias; a generation's candidates play the same episode.

    With more than 1000 parameters it is sep-CMA-ES. The mean of the last distribution is evaluated.
    """
    from cmaes import CMA, SepCMA

    env = task.make()
    width, heads = spaces.flatdim(env.observation_space) + 1, _outputs(env.action_space)
    mean = np.zeros(width * heads)
    search: Any = (SepCMA if len(mean) > _MANY else CMA)(mean, _CMA_SIGMA, seed=seed)
    random, used = np.random.default_rng(seed), 0

    def act(theta: Any, seen: Any) -> Any:
        nonlocal used
        used += 1
        inputs = np.append(spaces.flatten(env.observation_space, seen), 1.0)
        return _as_action(env.action_space, theta.reshape(heads, width) @ inputs)

    while used < steps:
        episode, candidates = int(random.integers(2**31)), [search.ask() for _ in range(search.population_size)]
        search.tell([(theta, -play(env, partial(act, theta), range(episode, episode + 1))[0]) for theta in candidates])
    return Learnt(env, partial(act, search.mean), lambda: None, used)


def random_actions(task: OwnTask, _: str, seed: int, steps: int) -> Learnt:  # noqa: ARG001
    """Uniformly random actions, without training."""
    env = task.make()
    env.action_space.seed(seed)
    return Learnt(env, lambda _: env.action_space.sample(), lambda: None, 0)


def fixed_action(task: OwnTask, _: str, seed: int, steps: int) -> Learnt:  # noqa: ARG001
    """The best of actions that never change: each choice of a Discrete, else the least, the most and nothing."""
    env = task.make()
    space: Any = env.action_space
    if isinstance(space, spaces.Discrete):
        actions: list[Any] = [int(space.start) + k for k in range(int(space.n))]
    elif isinstance(space, spaces.MultiDiscrete):
        actions = [np.zeros_like(space.nvec), space.nvec - 1]
    else:
        nothing = np.clip(np.zeros(space.shape, space.dtype), space.low, space.high)
        actions = [nothing, space.low, space.high] if space.is_bounded() else [nothing]
    best = max(actions, key=lambda action: sum(play(env, lambda _: action, range(seed, seed + EPISODES))))
    return Learnt(env, lambda _: best, lambda: None, 0)


def _outputs(space: Any) -> int:
    """Outputs that a linear policy needs for an action."""
    return int(np.prod(space.shape)) if isinstance(space, spaces.Box) else spaces.flatdim(space)


def _as_action(space: Any, outputs: Any) -> Any:
    """The largest output's choice; for a Box, -1 to 1 stretched to its bounds, or cut off where it has none."""
    if isinstance(space, spaces.Discrete):
        return int(np.argmax(outputs)) + int(space.start)
    if isinstance(space, spaces.MultiDiscrete):
        return np.array([np.argmax(part) for part in np.split(outputs, np.cumsum(space.nvec)[:-1])])
    outputs = outputs.reshape(space.shape)
    if space.is_bounded():
        outputs = space.low + (np.clip(outputs, -1.0, 1.0) + 1.0) / 2.0 * (space.high - space.low)
    return np.clip(outputs, space.low, space.high).astype(space.dtype)


def _fit_dm_control() -> None:
    """Drop the fields of MuJoCo's structures that dm_control 1.0.50 asks for and MuJoCo 4 no longer has."""
    import mujoco
    from dm_control.mujoco.wrapper.mjbindings import sizes

    for kind, fields in {mujoco.MjModel: sizes.array_sizes["mjmodel"], mujoco.MjData: sizes.array_sizes["mjdata"]}.items():
        for name in [name for name in fields if not hasattr(kind, name)]:
            del fields[name]


if __name__ == "__main__":
    answer_once(lambda given: play_row(**given)._asdict())
