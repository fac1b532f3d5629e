"""Steps of a core on Atari games: FastES's environment, Gymnasium's wrappers, SB3's, ale-py's, and the floor."""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import ale_py
import cv2
import gymnasium
import numpy as np
from ale_py import roms
from ale_py.vector_env import AtariVectorEnv
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from benchmarks.machine import describe
from benchmarks.options import COUNT
from benchmarks.tables import markdown_table, median_and_range
from fastes._core import AreaResize, Greys
from fastes.envs.atari.options import ale_id
from fastes.envs.import_hook import ATARI

GAMES = ("pong", "breakout", "seaquest", "freeway")
SKIP, STACK = 4, 4
_CHECKED = 60  # steps


class Rate(NamedTuple):
    """CPU seconds of a step, and of a reset with a seed; steps for each reset."""

    step: float
    reset: float
    length: float


class Floor:
    """The emulator, two grey screens a step and their resize, by the kernels of FastES: no screens take less."""

    def __init__(self, game: str) -> None:
        self.ale = ale_py.ALEInterface()
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.loadROM(roms.get_rom_path(game))
        self.actions = self.ale.getMinimalActionSet()
        self.screens = np.zeros((2, *self.ale.getScreenDims()), np.uint8)
        self.small = np.zeros((84, 84), np.uint8)
        self.colours, self.greys = self.screens[0].copy(), Greys()
        self.make_small = AreaResize(self.ale.getScreenDims(), self.small.shape).brighter

    def reset(self, seed: int) -> int:  # noqa: ARG002
        self.ale.reset_game()
        return 1

    def step(self, action: int) -> tuple[int, bool]:
        ale, (earlier, latest) = self.ale, self.screens
        for _ in range(SKIP - 1):
            ale.act(self.actions[action])
        self.read(earlier)
        ale.act(self.actions[action])
        self.read(latest)
        self.make_small(earlier, latest, self.small)
        return 1, ale.game_over()

    def read(self, grey: np.ndarray) -> None:
        self.ale.getScreen(self.colours)
        if not self.greys.look_up(self.colours, grey):
            self.ale.getScreenGrayscale(grey)
            self.greys.learn(self.colours, grey)


class OfOpenCV(Floor):
    """The same with ale-py's greys and OpenCV's resize."""

    def __init__(self, game: str) -> None:
        super().__init__(game)
        self.read = self.ale.getScreenGrayscale
        self.make_small = self.resize

    def resize(self, earlier: np.ndarray, latest: np.ndarray, small: np.ndarray) -> None:
        np.maximum(earlier, latest, out=latest)
        cv2.resize(latest, small.shape, small, interpolation=cv2.INTER_AREA)


class Single:
    """One environment of Gymnasium's kind."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self.env = env

    def reset(self, seed: int) -> int:
        self.env.reset(seed=seed)
        return 1

    def step(self, action: int) -> tuple[int, bool]:
        _, _, terminated, truncated, _ = self.env.step(action)
        return 1, terminated or truncated


def of_sb3(game: str, n_envs: int, **wrapper_kwargs: Any) -> Any:
    """SB3's make_atari_env, with four screens in an observation."""
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    name = game.title().replace("_", "")
    return VecFrameStack(make_atari_env(f"{name}NoFrameskip-v4", n_envs=n_envs, wrapper_kwargs=wrapper_kwargs), STACK)


class OfSb3:
    """One environment of SB3, whole games and raw rewards."""

    def __init__(self, game: str) -> None:
        self.env = of_sb3(game, 1, terminal_on_life_loss=False, clip_reward=False)

    def reset(self, seed: int) -> int:
        self.env.seed(seed)
        self.env.reset()
        return 1

    def step(self, action: int) -> tuple[int, bool]:
        return 1, bool(self.env.step(np.array([action]))[2][0])


class Vector:
    """ale-py's vector environment on one thread. A game that is over starts again alone, with a seed, as FastES has it."""

    def __init__(self, game: str, num_envs: int) -> None:
        self.env = AtariVectorEnv(game, num_envs, num_threads=1, reward_clipping=False)
        self.num_envs = num_envs
        self.over = np.ones(num_envs, dtype=bool)

    def reset(self, seed: int) -> int:
        count = int(self.over.sum())
        self.env.reset(seed=np.arange(seed, seed + count), options={"reset_mask": self.over})
        return count

    def step(self, action: int) -> tuple[int, bool]:
        _, _, terminated, truncated, _ = self.env.step(np.full(self.num_envs, action))
        self.over = terminated | truncated
        return self.num_envs, bool(self.over.any())


def ours(game: str, **options: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make(ATARI, game=game, disable_env_checker=True, **options)


def wrapped(game: str, **options: Any) -> gymnasium.Env[Any, Any]:
    env = gymnasium.make(ale_id(game), frameskip=1, repeat_action_probability=0.0, disable_env_checker=True)
    return FrameStackObservation(AtariPreprocessing(env, **options), STACK)


def of_memory(game: str) -> gymnasium.Env[Any, Any]:
    return gymnasium.make(ale_id(game), obs_type="ram", repeat_action_probability=0.0, disable_env_checker=True)


def contenders(game: str) -> dict[str, Callable[[], Any]]:
    """Name -> what makes one. The floor comes first."""
    found: dict[str, Callable[[], Any]] = {
        "emulator, screens, resize": lambda: Floor(game),
        "the same by ale-py and OpenCV": lambda: OfOpenCV(game),
        "FastES": lambda: Single(ours(game)),
        "Gymnasium AtariPreprocessing": lambda: Single(wrapped(game)),
        "ale-py AtariVectorEnv, 1 game": lambda: Vector(game, 1),
        "ale-py AtariVectorEnv, 8 games": lambda: Vector(game, 8),
        "FastES, the memory": lambda: Single(ours(game, obs_type="ram")),
        "ale-py, the memory": lambda: Single(of_memory(game)),
    }
    if importlib.util.find_spec("stable_baselines3") is not None:
        found["SB3 make_atari_env"] = lambda: OfSb3(game)
    return found


def _played(env: gymnasium.Env[Any, Any], seed: int) -> Iterator[tuple[Any, float]]:
    """Observation and reward of each step until the last but one."""
    yield env.reset(seed=seed)[0], 0.0
    actions = np.random.default_rng(seed).integers(env.action_space.n, size=_CHECKED)  # type: ignore[attr-defined]
    for action in actions.tolist():
        observation, reward, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            return
        yield observation, float(reward)


def _same(mine: gymnasium.Env[Any, Any], theirs: gymnasium.Env[Any, Any], seed: int) -> bool:
    """Whether both play the same episode."""
    steps = zip(_played(mine, seed), _played(theirs, seed), strict=True)
    return all(reward == other and np.array_equal(a, b) for (a, reward), (b, other) in steps)


def check(game: str) -> None:
    """SystemExit unless FastES plays Gymnasium's episodes, with ale-py's memory and the frames of its vector environment."""
    mine, theirs = ours(game, fire_reset=False), wrapped(game)
    for seed in (0, 1):
        if not _same(mine, theirs, seed):
            raise SystemExit(f"{game}, seed {seed}: the episodes of FastES and Gymnasium differ")
    if not _same(ours(game, fire_reset=False, noop_max=0, obs_type="ram"), of_memory(game), 0):
        raise SystemExit(f"{game}: the memories of FastES and ale-py differ")
    vector = AtariVectorEnv(game, 1, noop_max=0, use_fire_reset=False, reward_clipping=False)
    mine = ours(game, fire_reset=False, noop_max=0)
    mine.reset(seed=0), vector.reset(seed=0)
    for number in range(_CHECKED):
        a, reward, *_ = mine.step(number % 3)
        b, other, *_ = vector.step(np.array([number % 3]))
        if reward != other[0] or (number >= STACK and not np.array_equal(a, b[0])):
            raise SystemExit(f"{game}: the frames of FastES and AtariVectorEnv differ")


def timed(env: Any, actions: list[int], seed: int) -> Rate:
    """Time steps by the CPU time of the whole process, threads included: other programs do not count."""
    began, resetting, steps, resets = time.process_time(), 0.0, 0, 0
    over = True
    for action in actions:
        if over:
            before = time.process_time()
            resets += env.reset(seed + resets)
            resetting += time.process_time() - before
        count, over = env.step(action)
        steps += count
    return Rate((time.process_time() - began - resetting) / steps, resetting / resets, steps / resets)


def measure(game: str, steps: int, repeats: int) -> dict[str, list[Rate]]:
    """All in turn, after a stretch that is not counted. Drawn actions, the same for all; steps: of all games of a stretch."""
    envs = {name: make() for name, make in contenders(game).items()}
    number = len(Floor(game).actions)
    rates: dict[str, list[Rate]] = {name: [] for name in envs}
    for repeat in range(repeats + 1):
        for name, env in envs.items():
            env.over = np.ones(env.num_envs, dtype=bool) if isinstance(env, Vector) else None
            count = steps // getattr(env, "num_envs", 1)
            rate = timed(env, np.random.default_rng(repeat).integers(number, size=count).tolist(), 1000 * repeat)
            if repeat:
                rates[name].append(rate)
    return rates


def rows(game: str, rates: dict[str, list[Rate]]) -> list[list[str]]:
    floor, *_ = rates.values()
    length = statistics.median(rate.length for rate in rates["FastES"])
    return [
        [
            game,
            name,
            f"{1e6 * statistics.median(rate.step for rate in each):.0f}",
            median_and_range([low.step / rate.step for low, rate in zip(floor, each, strict=True)]),
            f"{1e3 * statistics.median(rate.reset for rate in each):.1f}",
            f"{statistics.median(1.0 / (rate.step + rate.reset / length) for rate in each):,.0f}",
        ]
        for name, each in rates.items()
    ]


HEADER = ("game", "environment", "us a step", "floor over it", "ms a reset", "steps/s with resets")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.atari", description=__doc__)
    parser.add_argument("--games", nargs="+", default=list(GAMES), metavar="ROM", help=f"default: {' '.join(GAMES)}")
    parser.add_argument("--steps", type=COUNT, default=600, help="of each stretch, of 4 frames (default: 600)")
    parser.add_argument("--repeats", type=COUNT, default=7, help="stretches of each kind, taken in turn (default: 7)")
    arguments = parser.parse_args()
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    cv2.setNumThreads(0)  # one core for all
    print(f"{describe()}, ale-py {ale_py.__version__}, OpenCV {cv2.__version__}\n")
    table = []
    for game in arguments.games:
        check(game)
        table += rows(game, measure(game, arguments.steps, arguments.repeats))
    print(markdown_table(HEADER, table))


if __name__ == "__main__":
    main()
