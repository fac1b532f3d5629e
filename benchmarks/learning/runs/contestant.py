"""One run of one contestant, in this process: `python -m benchmarks.learning.runs.contestant JSON`; records on stdout."""

from __future__ import annotations

import json
import sys
import zlib
from typing import TYPE_CHECKING, Any

from benchmarks.child_process import Write, records_to_stdout
from benchmarks.learning.runs.clock import Budget, Clock
from benchmarks.learning.runs.evaluation import Task, Watch
from fastes.policies.obs_columns import ALL
from fastes.settings.preset_loader import choose_settings, preset_for
from fastes.settings.recipes import PLAIN
from fastes.settings.settings import Settings

if TYPE_CHECKING:
    from fastes import FastES


class Acting:
    """Noise-free actions of a model, which may remember what it saw since `begin`."""

    def __init__(self, model: FastES) -> None:
        self.model = model
        self.begin()

    def begin(self) -> None:
        self.state, self.begins = None, True

    def act(self, observation: Any) -> Any:
        action, self.state = self.model.predict(observation, self.state, self.begins, deterministic=True)
        self.begins = False
        return action


def run_fastes(task: Task, cores: int, clock: Clock, write: Write) -> None:
    """FastES with its preset. Its own noise-free evaluations are on the clock, and their steps count."""
    from fastes import Callback, FastES
    from fastes.training.record import Record

    class Follow(Callback):
        def __init__(self, watch: Watch) -> None:
            self.watch = watch

        def on_generation(self, model: FastES, record: Record) -> bool:  # noqa: ARG002
            steps = model.num_timesteps + model.eval_timesteps
            to_come = int(model.num_timesteps / max(clock.share(steps), 1e-9)) - model.num_timesteps
            model.trainer.selection = model.selection.with_budget(to_come, anew=False)  # schedules follow the clock
            return self.watch.check(steps)

    clock.start()
    preset = preset_for(task.env) or PLAIN
    with FastES(task.env, preset=preset, n_workers=cores, seed=task.seed, target_return="none") as model:
        settings = fingerprint(model.settings)  # of several trials the best one's take their place
        acting = Acting(model)
        watch = Watch(task, clock, acting.act, write, acting.begin)
        if watch.check(0):
            model.learn(task.budget.steps or 10**15, Follow(watch))  # trials are parts of it, as far as it is known
        source = f"preset {preset}"
        source += f", sees observations {model.settings.obs_columns} alone" if model.settings.obs_columns != ALL else ""
        note = f"{source} ({settings}); {cores} workers"
        watch.finish(model.num_timesteps + model.eval_timesteps, note)


def fingerprint(settings: Settings) -> str:
    """Return eight hexadecimal digits that tell rows from before a change of a preset from those after it.

    Only settings that differ from their defaults count, so that a new setting, and one that is dropped, leaves old rows valid.
    When evaluations play, and how often, changes no parameters. The budget has a column of its own.
    """
    defaults = Settings().to_dict()
    no_matter = ("eval_lag", "eval_every", "total_timesteps")
    values = {name: value for name, value in settings.to_dict().items() if value != defaults[name] and name not in no_matter}
    return f"{zlib.crc32(json.dumps(values, sort_keys=True).encode()):08x}"


def preset_fingerprint(preset: str) -> str:
    """The fingerprint of a preset as it is today, trained to the end of its budget as benchmarks do."""
    return fingerprint(choose_settings(preset, {"target_return": "none"}))


class TimeUp(Exception):
    """Ends `learn`: ARS does not listen to a callback that says stop."""


def run_peer(task: Task, cores: int, clock: Clock, write: Write, way: tuple[bool, int]) -> None:
    """A peer with Zoo's settings; evaluated between an update and the next rollout."""
    from stable_baselines3.common.callbacks import BaseCallback

    from benchmarks.peers.sb3_peer import Way, make_peer
    from benchmarks.peers.zoo import settings_for

    settings, chosen = settings_for(task.algo, task.env), Way(*way)
    # ARS's workers report when a generation is over: stopping there would throw it away just before its update
    may_stop_inside = bool(task.budget.seconds) and not (task.algo == "ars" and chosen.processes)

    class Follow(BaseCallback):
        def _on_rollout_start(self) -> None:
            if not watch.check(self.model.num_timesteps):
                raise TimeUp

        def _on_step(self) -> bool:
            if may_stop_inside and clock.wall >= task.budget.seconds:
                raise TimeUp  # parameters are as they were when this rollout began
            return True

    def remaining() -> float:
        return 1.0 - clock.share(peer.model.num_timesteps) if peer else 1.0

    peer = None
    clock.start()
    peer = make_peer(task.algo, task.env, task.seed, settings, chosen, cores, remaining)
    watch = Watch(task, clock, peer.act, write, lambda: None)
    try:
        peer.model.learn(callback=Follow(), **peer.learn)
    except TimeUp:
        note = f"{settings.source}; {chosen.describe(task.algo, settings.n_envs, cores)}"
        watch.finish(peer.model.num_timesteps, note)
    peer.end()


def import_first(algo: str) -> None:
    """Imports are not on the clock."""
    if algo == "fastes":
        import fastes.agent
        import fastes.pools.processes.process_pool  # noqa: F401
    else:
        import sb3_contrib  # noqa: F401
        import torch._dynamo  # noqa: F401  torch imports it with the first optimiser: a second or more


def main() -> None:
    given = json.loads(sys.argv[1])
    write = records_to_stdout()
    task = Task(**{**given["task"], "budget": Budget(*given["task"]["budget"])})
    import_first(task.algo)
    clock = Clock(task.budget)
    if task.algo == "fastes":
        run_fastes(task, given["cores"], clock, write)
    else:
        run_peer(task, given["cores"], clock, write, given["way"])


if __name__ == "__main__":
    main()
