"""The end of one training: its last parameters against its best ones, over the same noise-free episodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastes.checkpoints.locate import BEST
from fastes.model import FastES
from fastes.reports.progress_bar import ProgressBar
from fastes.runs.run_folder import RunFolder
from fastes.training.evaluation import Evaluation


class Judgement(NamedTuple):
    """Evaluations of a training's parameters over the same noise-free episodes.

    Attributes:
        last: The last parameters.
        best: The parameters of the best evaluation in training; None if the last ones are these, are solved, or have won a
            final selection.
    """

    last: Evaluation
    best: Evaluation | None

    @property
    def kept(self) -> Evaluation:
        """The evaluation of the parameters in best.zip."""
        return self.last if self.best is None or self.last.mean >= self.best.mean else self.best


def most_judging(model: FastES) -> int:
    """Return the largest number of noise-free episodes that `choose_best` plays."""
    return 2 * model.settings.target_episodes


async def choose_best(model: FastES, folder: RunFolder, bar: ProgressBar) -> Judgement:
    """Compare the last parameters with the best ones over the same seeds, and write the better ones to best.zip.

    If max_minutes ended the training, the last parameters are those of `as_judged`.
    """
    with model.as_judged():
        return await _choose_best(model, folder, bar)


async def _choose_best(model: FastES, folder: RunFolder, bar: ProgressBar) -> Judgement:
    episodes, best = model.settings.target_episodes, None
    seeds = np.arange(episodes, dtype=np.int64)  # not those that confirmed a target: these were selected for passing
    chosen = model.solved or has_selected(model)
    has_best = not chosen and folder.has_best()
    bar.judge(model, (1 + has_best) * episodes)
    last = await model.play_seeds(seeds)
    if has_best:
        with FastES.load(folder.path / BEST, n_workers=0) as best_model:  # builds no environment
            same_statistics = best_model.settings.normalize_obs == model.settings.normalize_obs
            fits = same_statistics and best_model.policy_spec == model.policy_spec  # another recipe of a race may have it
            if not fits:  # a resumed run may have changed the statistics
                if not model.evaluator.is_shared:
                    model.evaluator.close()
                best_model.use_env(model.source)
            player = model if fits else best_model
            evaluator, number = player.evaluator, player.selection.present.number
            whose = best_model.theta, best_model.normalizer
            playing = evaluator.evaluate(*whose, seeds, model.training.episode_settings()[1], number)  # of the same length
            best = await playing if fits else evaluator.run(playing)
    bar.judge(model, 0)
    outcome = Judgement(last, best)
    if outcome.kept is last:
        folder.keep_as_best(model)
    return outcome


def has_selected(model: FastES) -> bool:
    """Return whether a final selection has chosen the present parameters."""
    archive = model.training.archive
    return archive is not None and archive.has_selected(model.generation)
