"""Steps of a core that trains on an Atari game from pixels, over the emulator alone and over SB3's PPO on the same game.

Refuses to time what does not play the episodes that the environment and `predict` give one step after the other.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import ale_py
import gymnasium
import numpy as np

from benchmarks.machine import describe
from benchmarks.options import COUNT
from benchmarks.peers.sb3_peer import with_objects
from benchmarks.peers.zoo import settings_for
from benchmarks.speed.atari import Floor, of_sb3
from benchmarks.tables import against_aim, markdown_table, median_and_range
from fastes import FastES
from fastes.envs.atari.options import ale_id
from fastes.envs.import_hook import ATARI

NETWORKS: dict[str, dict[str, Any]] = {
    "the preset's": {},
    "a3c": {"cnn": "a3c"},
    "nature": {"cnn": "nature"},
}
FLOOR_AIM, PPO_AIM = 0.85, 1.5
CANDIDATES, LONGEST = 8, 1_000  # of a generation, and steps of an episode

Stretch = Callable[[], int]  # plays for a while and gives the environment steps that it took


def trained(game: str, policy_kwargs: dict[str, Any]) -> FastES:
    """One process, which plays, updates and evaluates."""
    return FastES(
        ale_id(game),
        "CnnPolicy",
        n_workers=0,
        seed=0,
        policy_kwargs=policy_kwargs,
        population_size=CANDIDATES,
        learning_rate=1e-9,
        max_episode_steps=LONGEST,
        episode_cap="none",
        episodes_per_candidate=1,
        eval_every=4,
        target_return="none",
        total_timesteps=10**9,
    )


def check(model: FastES, game: str) -> None:
    """SystemExit where the rollout in C plays another episode than the environment and predict."""
    env = gymnasium.make(ATARI, game=game, max_episode_steps=LONGEST)
    (observation, _), points, over = env.reset(seed=5), 0.0, False
    while not over:
        action, _ = model.predict(observation)
        observation, reward, terminated, truncated, _ = env.step(action)
        points, over = points + float(reward), terminated or truncated
    env.close()
    found = model.evaluate(1, first_seed=5).returns[0]
    if found != points:
        raise SystemExit(f"nothing is timed: {game} gives {points} by predict and {found} by evaluate")


def training(model: FastES) -> Stretch:
    """A generation, with what belongs to it."""

    def stretch() -> int:
        before = model.num_timesteps + model.eval_timesteps
        model.learn(callback=lambda *_: False, reset_num_timesteps=False)
        return model.num_timesteps + model.eval_timesteps - before

    return stretch


def floor(game: str, steps: int) -> Stretch:
    """Drawn actions, for as many steps of four frames."""
    emulator = Floor(game)
    actions = np.random.default_rng(0).integers(len(emulator.actions), size=steps).tolist()
    emulator.reset(0)

    def stretch() -> int:
        for action in actions:
            _, over = emulator.step(action)
            if over:
                emulator.reset(0)
        return steps

    return stretch


def ppo(game: str) -> Stretch:
    """A rollout and its epochs, with RL Zoo's settings, on one thread."""
    import torch
    from stable_baselines3 import PPO

    torch.set_num_threads(1)
    settings = settings_for("ppo", "Atari")
    arguments = with_objects(settings.arguments, lambda: 1.0, torch.nn)
    model = PPO(settings.policy, of_sb3(game, settings.n_envs), seed=0, device="cpu", **arguments)
    steps = arguments["n_steps"] * settings.n_envs

    def stretch() -> int:
        model.learn(steps, reset_num_timesteps=False)
        return steps

    return stretch


def rates(ways: dict[str, Stretch], repeats: int) -> dict[str, list[float]]:
    """Steps a CPU second of each, (repeats,), taken in turn. Each goes once before, off the clock."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(repeats + 1):
        for name, stretch in ways.items():
            began = time.process_time()
            steps = stretch()
            if repeat:
                found[name].append(steps / (time.process_time() - began))
    return found


def ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    return [a / b for a, b in zip(over, under, strict=True)]


def rows(game: str, repeats: int) -> list[list[str]]:
    ways = {"the emulator, screens, resize": floor(game, CANDIDATES * LONGEST)}
    parameters = {}
    for name, policy_kwargs in NETWORKS.items():
        model = trained(game, policy_kwargs)
        check(model, game)
        ways[f"FastES, {name} network"], parameters[f"FastES, {name} network"] = training(model), f"{model.num_params:,}"
    if importlib.util.find_spec("stable_baselines3") is not None:
        ways["SB3 PPO"] = ppo(game)
    found = rates(ways, repeats)
    (_, lowest), *_ = found.items()
    peer = found.get("SB3 PPO")
    table = []
    for name, each in found.items():
        ours = name in parameters
        of_floor, of_ppo = ratios(each, lowest), ratios(each, peer) if peer else []
        table.append(
            [
                game,
                name,
                parameters.get(name, ""),
                f"{statistics.median(each):,.0f}",
                median_and_range(of_floor),
                against_aim(statistics.median(of_floor), FLOOR_AIM) if ours else "",
                median_and_range(of_ppo) if of_ppo else "",
                against_aim(statistics.median(of_ppo), PPO_AIM) if ours and of_ppo else "",
            ]
        )
    return table


HEADER = ("game", "who", "parameters", "steps/s", "over the emulator's", "aim", "over PPO's", "aim")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.atari_training", description=__doc__)
    parser.add_argument("--games", nargs="+", default=["pong", "freeway"], metavar="ROM", help="default: pong freeway")
    parser.add_argument("--repeats", type=COUNT, default=5, help="stretches of each kind, taken in turn (default: 5)")
    arguments = parser.parse_args()
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    print(f"{describe()}, ale-py {ale_py.__version__}; steps of four frames a CPU second of one core\n")
    table = [row for game in arguments.games for row in rows(game, arguments.repeats)]
    print(markdown_table(HEADER, table))


if __name__ == "__main__":
    main()
