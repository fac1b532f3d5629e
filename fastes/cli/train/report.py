"""How a training ends: its last parameters against its best ones, and the commands that follow."""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fastes.checkpoints.locate import BEST, CHECKPOINT
from fastes.errors import WorkerError
from fastes.model import FastES
from fastes.reports.progress_bar import ProgressBar
from fastes.runs.run_folder import RunFolder
from fastes.runs.video import can_draw
from fastes.system.console import say
from fastes.system.installation import install_command
from fastes.training.evaluation import Evaluation


class Session(NamedTuple):
    """The model's counters when this command began, and the seconds that it has trained since."""

    timesteps: int
    generations: int
    seconds: float


def report(model: FastES, folder: RunFolder, session: Session, interrupted: bool, bar: ProgressBar) -> None:
    """bar: shows how far the judging is, and vanishes."""
    say(_counts(model, session))
    if model.out_of_time:
        say(f"ended by --max-minutes, before its budget; to go on: {resume_command(model, folder.shown)}")
    if interrupted:
        bar.close()
        say(f"stopped by Ctrl-C; to go on: {resume_command(model, folder.shown)}")
    else:
        outcome = model.evaluator.run(choose_best(model, folder, bar))
        bar.close()
        folder.note_result(outcome.kept)
        last = model.theta
        with model.as_judged():
            _tell(model, outcome, is_last=bool((model.theta == last).all()))
    if not folder.draw(model):
        say(f"no learning_curve.png: it needs matplotlib, {install_command('plots')}")
    if not interrupted and not model.out_of_time:
        folder.finish()
    say(f"to play it back: {play_command(model, folder)}")


def _counts(model: FastES, session: Session) -> str:
    """How much was trained: in all, and since the run was resumed."""
    whole = f"{model.num_timesteps} timesteps in {counted(model.generation, 'generation')}"
    if not session.generations:
        return f"{whole}, {session.seconds:.1f} s"
    more = model.num_timesteps - session.timesteps
    since = f"{more} of them in {session.seconds:.1f} s since it was resumed"
    return f"{whole}, {since if more else 'none of them since it was resumed'}"


class Outcome(NamedTuple):
    """Returns of the parameters, over the same noise-free episodes.

    last: of the last parameters.
    best: of those that had the best evaluation in training; None if the last ones are these, solved, or have won a final
        selection.
    """

    last: Evaluation
    best: Evaluation | None

    @property
    def kept(self) -> Evaluation:
        """The evaluation of the parameters in best.zip."""
        return self.last if self.best is None or self.last.mean >= self.best.mean else self.best


def most_judging(model: FastES) -> int:
    """Noise-free episodes that `choose_best` plays at most."""
    return 2 * model.settings.target_episodes


async def choose_best(model: FastES, folder: RunFolder, bar: ProgressBar) -> Outcome:
    """Compare the last parameters with those of the best evaluation over the same seeds; best.zip gets the better ones.

    The last ones of a training that ended by time are those that it was judged to be.
    """
    with model.as_judged():
        return await _choose_best(model, folder, bar)


async def _choose_best(model: FastES, folder: RunFolder, bar: ProgressBar) -> Outcome:
    episodes, best = model.settings.target_episodes, None
    seeds = (
        model.training.fresh_seeds(episodes) if model.solved else np.arange(episodes, dtype=np.int64)
    )  # the confirmation once more
    chosen = model.solved or _has_selected(model)
    has_best = not chosen and (folder.path / BEST).exists()
    bar.judge(model, (1 + has_best) * episodes)
    last = await model.play_seeds(seeds)
    if has_best:
        with FastES.load(folder.path / BEST, n_workers=0) as best_model:  # no environment is built beside those that play
            fits = best_model.settings.normalize_obs == model.settings.normalize_obs
            if not fits:  # a resumed run may have changed it
                if not model.evaluator.is_shared:
                    model.evaluator.close()
                best_model.use_env(model.source)
            evaluator = model.evaluator if fits else best_model.evaluator
            whose = best_model.theta, best_model.normalizer
            playing = evaluator.evaluate(*whose, seeds, model.training.episode_settings()[1])  # as long as the last ones' are
            best = await playing if fits else evaluator.run(playing)
    bar.judge(model, 0)
    outcome = Outcome(last, best)
    if outcome.kept is last:
        folder.keep_as_best(model)
    return outcome


def _tell(model: FastES, outcome: Outcome, is_last: bool) -> None:
    """is_last: whether what was judged are the last parameters, and not those of a trial that was better."""
    last, best, selected = outcome.last, outcome.best, _has_selected(model)
    shown = f"{last.in_words()} over {counted(len(last.returns), 'noise-free episode')}"
    about = _about_target(model, outcome.kept.mean)  # behind what best.zip holds
    if model.solved:
        say(f"solved: {shown} (target {model.target_return:g})")
        return
    who = "winner of the final selection" if selected else "last parameters" if is_last else "best trial"
    say(f"{who}: {shown}{about if outcome.kept is last else ''}")
    if best is not None:
        say(f"best parameters: {best.in_words()} over the same seeds{about if outcome.kept is best else ''}")
        which = "the last" if is_last else "the last parameters"
        say(f"{BEST} holds the better of the two, {CHECKPOINT} {which}")
    elif selected:
        hold = f"{BEST} holds it, {CHECKPOINT} the last parameters" if model.out_of_time else f"{BEST} and {CHECKPOINT} hold it"
        say(hold)


def _has_selected(model: FastES) -> bool:
    """Whether a final selection has chosen the present parameters."""
    archive = model.training.archive
    return archive is not None and archive.has_selected(model.generation)


def _about_target(model: FastES, mean: float) -> str:
    """The target, in brackets: training itself has not confirmed it."""
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


def play_command(model: FastES, folder: RunFolder) -> str:
    """With a video where one can be drawn."""
    video = f" --video {re.split('[/:]', model.source.name)[-1]}.mp4" if can_draw(model) else ""
    return f"fastes play {shlex.quote(str(folder.shown))}{_env_flag(model)}{video}"


def resume_command(model: FastES, path: Path) -> str:
    """The command that goes on with the run."""
    name = _module_id(model)
    return f"fastes train {shlex.quote(name) + ' ' if name else ''}--resume {shlex.quote(str(path))}{model.pool_choice.flags()}"


def replay_command(model: FastES, path: Path, error: WorkerError) -> str:
    return f"fastes replay {shlex.quote(str(path))} --generation {error.generation} --job {error.job}{_env_flag(model)}"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
