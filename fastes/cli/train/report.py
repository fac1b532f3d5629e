"""How a training ends: its last parameters against its best ones, and the commands that follow."""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from fastes.agent import FastES
from fastes.errors import WorkerError
from fastes.runs.run_folder import BEST, CHECKPOINT, RunFolder
from fastes.system.installation import install_command


class Session(NamedTuple):
    """What the model had counted when this command began, and the seconds that it has trained since."""

    timesteps: int
    generations: int
    seconds: float


def report(model: FastES, folder: RunFolder, session: Session, interrupted: bool) -> None:
    path = shlex.quote(str(folder.shown))
    print(_counts(model, session))
    if interrupted:
        print(f"stopped by Ctrl-C; to go on: {resume_command(model, folder.shown)}")
    else:
        _choose_best(model, folder)
    if not folder.draw(model):
        print(f"no learning_curve.png: it needs matplotlib, {install_command('plots')}")
    if not interrupted:
        folder.finish()
    print(f"to play it back: fastes play {path}{_env_flag(model)} --video {re.split('[/:]', model.source.name)[-1]}.mp4")


def _counts(model: FastES, session: Session) -> str:
    """How much was trained: in all, and since the run was resumed."""
    whole = f"{model.num_timesteps} timesteps in {counted(model.generation, 'generation')}"
    if not session.generations:
        return f"{whole}, {session.seconds:.1f} s"
    more = model.num_timesteps - session.timesteps
    since = f"{more} of them in {session.seconds:.1f} s since it was resumed"
    return f"{whole}, {since if more else 'none of them since it was resumed'}"


def _choose_best(model: FastES, folder: RunFolder) -> None:
    """Compare the last parameters with those of the best evaluation over the same seeds; best.zip gets the better ones."""
    episodes = model.settings.target_episodes
    last = model.evaluate(episodes, first_seed=None if model.solved else 0)  # None: the confirmation once more
    if model.solved:
        folder.keep_as_best(model)
        target = f"target {model.target_return:g}"
        print(f"solved: return {last.mean:.1f} +- {last.std:.1f} over {episodes} noise-free episodes ({target})")
        return
    model.close()
    print(f"last parameters: return {last.mean:.1f} +- {last.std:.1f} over {episodes} noise-free episodes")
    if not (folder.path / BEST).exists():
        folder.keep_as_best(model)
        return
    with FastES.load(folder.path / BEST, _module_id(model), model.n_workers) as best_model:
        best_model.evaluator.env_shown = True
        best = best_model.evaluate(episodes)
    print(f"best parameters: return {best.mean:.1f} +- {best.std:.1f} over the same seeds")
    if last.mean >= best.mean:
        folder.keep_as_best(model)
    print(f"{BEST} holds the better of the two, {CHECKPOINT} the last{_about_target(model, max(last.mean, best.mean))}")


def _about_target(model: FastES, mean: float) -> str:
    """What of the target is left, in brackets: training itself has not confirmed it."""
    if math.isinf(model.target_return):
        return ""
    if mean < model.target_return:
        return f" (target {model.target_return:g} not reached)"
    return (
        f" (target {model.target_return:g} reached here, but the run is not solved: no evaluation in training was confirmed "
        f"by {counted(model.settings.target_episodes, 'episode')} on fresh seeds)"
    )


def _module_id(model: FastES) -> str | None:
    """The id of an environment that a module has to be imported for: a checkpoint names none, so the command line has to."""
    return model.source.name if ":" in model.source.name else None


def _env_flag(model: FastES) -> str:
    """--env for the commands that play a run, where they need it."""
    name = _module_id(model)
    return f" --env {shlex.quote(name)}" if name else ""


def resume_command(model: FastES, path: Path) -> str:
    """What goes on with the run."""
    name = _module_id(model)
    return f"fastes train {shlex.quote(name) + ' ' if name else ''}--resume {shlex.quote(str(path))}"


def replay_command(model: FastES, path: Path, error: WorkerError) -> str:
    return f"fastes replay {shlex.quote(str(path))} --generation {error.generation} --job {error.job}{_env_flag(model)}"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
