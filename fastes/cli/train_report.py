"""The report at the end of one training or several: last parameters against best ones, and the commands that follow."""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fastes.checkpoints.locate import BEST, CHECKPOINT
from fastes.errors import WorkerError
from fastes.model import FastES
from fastes.pools.pool import run_to_end, side_by_side
from fastes.reports.progress_bar import ProgressBar, SeedsBar
from fastes.runs.curve_picture import plot_curves
from fastes.runs.curves import read_curve
from fastes.runs.run_config import BY_CTRL_C, OUT_OF_TIME
from fastes.runs.run_folder import RunFolder
from fastes.runs.video import can_draw
from fastes.system.console import say
from fastes.system.digits import counted, in_digits
from fastes.system.installation import install_command
from fastes.training.evaluation import Evaluation


class Run(NamedTuple):
    """A model that trains, and its run folder."""

    model: FastES
    folder: RunFolder


class Session(NamedTuple):
    """The model's counters when this command began, and the seconds that it has trained since."""

    timesteps: int
    generations: int
    seconds: float


def report(model: FastES, folder: RunFolder, session: Session, interrupted: bool, bar: ProgressBar) -> None:
    """Report on one training.

    Args:
        model: The model.
        folder: Its run folder.
        session: Its counters when this command began.
        interrupted: Whether Ctrl-C has ended it.
        bar: Shows the progress of judging, and vanishes.
    """
    say(_counts(model, session))
    _note_end(model, folder, interrupted and not model.solved)
    if model.out_of_time:
        say(f"ended by --max-minutes, before its budget; to continue: {resume_command(model, folder.shown)}")
    if interrupted:
        bar.close()
        further = "the target is reached; for the report" if model.solved else "to continue"
        say(f"stopped by Ctrl-C; {further}: {resume_command(model, folder.shown)}")
    else:
        outcome = model.evaluator.run(choose_best(model, folder, bar))
        bar.close()
        folder.note_result(outcome.kept)
        last = model.theta
        with model.as_judged():
            _tell(model, outcome, is_last=np.array_equal(model.theta, last))
    if not folder.draw(model):
        say(f"no learning_curve.png: it needs matplotlib, {install_command('plots')}")
    if not interrupted and not model.out_of_time:
        _finish(model, folder)
    say(f"to play it back: {play_command(model, folder)}")


def _note_end(model: FastES, folder: RunFolder, interrupted: bool) -> None:
    """Note how a run ended before its budget, if that is known."""
    if interrupted:
        folder.note_end(BY_CTRL_C)
    elif model.out_of_time:
        folder.note_end(f"{OUT_OF_TIME}: --max-minutes ended it before its budget")


def _finish(model: FastES, folder: RunFolder) -> None:
    """Note that a run has ended, unless files of its report could not be written: then it can be resumed for that."""
    if missing := folder.unwritten:
        say(f"{' and '.join(missing)} could not be written; once that is possible: {resume_command(model, folder.shown)}")
    else:
        folder.finish()


def _counts(model: FastES, session: Session) -> str:
    """Return how much was trained, in total and since the run was resumed."""
    whole = f"{model.num_timesteps} timesteps in {counted(model.generation, 'generation')}"
    if not session.generations:
        return f"{whole}, {session.seconds:.1f} s"
    more = model.num_timesteps - session.timesteps
    since = f"{more} of them in {session.seconds:.1f} s since it was resumed"
    return f"{whole}, {since if more else 'none of them since it was resumed'}"


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
    chosen = model.solved or _had_final_selection(model)
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


def _had_final_selection(model: FastES) -> bool:
    """Return whether a final selection has chosen the present parameters."""
    archive = model.training.archive
    return archive is not None and archive.had_final_selection(model.generation)


def _tell(model: FastES, outcome: Judgement, is_last: bool) -> None:
    """Print the outcome. is_last: whether the judged parameters are the last ones and not those of a better trial."""
    last, best, selected = outcome.last, outcome.best, _had_final_selection(model)
    number = len(last.returns)
    if model.solved:
        below = "" if last.mean >= model.target_return else ", below the target"
        confirmed = f"confirmed over {counted(number, 'fresh episode')} (target {model.target_return:g})"
        say(f"solved: {confirmed}; over {counted(number, 'other')}: {last.in_words()}{below}")
        return
    shown = f"{last.in_words()} over {counted(number, 'noise-free episode')}"
    about = _about_target(model, outcome.kept.mean)  # goes after the parameters that best.zip holds
    who = "winner of the final selection" if selected else "last parameters" if is_last else "best trial"
    say(f"{who}: {shown}{about if outcome.kept is last else ''}")
    if best is not None:
        say(f"best parameters: {best.in_words()} over the same seeds{about if outcome.kept is best else ''}")
        which = "the last" if is_last else "the last parameters"
        say(f"{BEST} holds the better of the two, {CHECKPOINT} {which}")
    elif selected:
        hold = f"{BEST} holds it, {CHECKPOINT} the last parameters" if model.out_of_time else f"{BEST} and {CHECKPOINT} hold it"
        say(hold)


def _about_target(model: FastES, mean: float) -> str:
    """Return a note about a target that training has not confirmed."""
    if math.isinf(model.target_return):
        return ""
    if mean < model.target_return:
        return f" (target {model.target_return:g} not reached)"
    return f" (target {model.target_return:g} {_reached_here(model)})"


def _reached_here(model: FastES) -> str:
    return (
        "reached here, but the run is not solved: no evaluation in training was confirmed by "
        f"{counted(model.settings.target_episodes, 'episode')} on fresh seeds"
    )


def _module_id(model: FastES) -> str | None:
    """Return the id of an environment that a module registers: a checkpoint names no modules, so commands have to."""
    return model.source.name if ":" in model.source.name else None


def _env_flag(model: FastES) -> str:
    """Return the flag --env for commands that play a run, if they need it."""
    name = _module_id(model)
    return f" --env {shlex.quote(name)}" if name else ""


def play_command(model: FastES, folder: RunFolder) -> str:
    """Return the command that plays a run, with a video if one can be drawn."""
    video = f" --video {re.split('[/:]', model.source.name)[-1]}.mp4" if can_draw(model) else ""
    return f"fastes play {shlex.quote(str(folder.shown))}{_env_flag(model)}{video}"


def resume_command(model: FastES, path: Path) -> str:
    """Return the command that resumes a run."""
    name = _module_id(model)
    return f"fastes train {shlex.quote(name) + ' ' if name else ''}--resume {shlex.quote(str(path))}{model.pool_choice.flags()}"


def replay_command(model: FastES, path: Path, error: WorkerError) -> str:
    """Return the command that plays the episode of an error again."""
    trial = f" --trial {error.trial}" if error.trial else ""
    return f"fastes replay {shlex.quote(str(path))} --generation {error.generation} --job {error.job}{trial}{_env_flag(model)}"


# --- several trainings ------------------------------------------------------------------------------------------------


def report_all(runs: Sequence[Run], seconds: float, interrupted: bool, bar: SeedsBar) -> None:
    """Report on several trainings: a table, a picture, and the commands that follow. See `report`."""
    timesteps, generations = (sum(getattr(model, name) for model, _ in runs) for name in ("num_timesteps", "generation"))
    say(f"{counted(len(runs), 'seed')}: {timesteps} timesteps in {counted(generations, 'generation')}, {seconds:.1f} s")
    outcomes = {} if interrupted else _judge(runs, bar)
    bar.close()
    if interrupted:
        say(f"stopped by Ctrl-C{resume_advice(runs, solved_among(runs))}")
    else:
        if late := [run for run in runs if run.model.out_of_time]:
            say(f"{counted(len(late), 'seed')} ended by --max-minutes, before the budget; to continue:\n{resume_lines(late)}")
        _print_table(runs, outcomes)
    for model, folder in runs:
        if not model.solved:
            _note_end(model, folder, interrupted)
        if not interrupted:
            folder.note_result(outcomes[model.seed].kept)
    picture = draw_all(runs)  # matplotlib takes seconds until it is imported
    for run in runs:
        if not interrupted and not run.model.out_of_time:
            _finish(*run)
    say(f"no learning curves: they need matplotlib, {install_command('plots')}" if picture is None else f"curves: {picture}")
    if not interrupted:
        best = max(runs, key=lambda run: _rank(outcomes[run.model.seed]))
        say(f"to play the best one back: {play_command(best.model, best.folder)}")


def resume_lines(runs: Sequence[Run]) -> str:
    """Return a line per run with the command that resumes it."""
    return "\n".join(f"  seed {model.seed}: {resume_command(model, folder.shown)}" for model, folder in runs)


def solved_among(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.model.solved]


def resume_advice(runs: Sequence[Run], solved: Sequence[Run], how: Callable[[Sequence[Run]], str] = resume_lines) -> str:
    """Return the end of a sentence about all runs, and a line for each that is not solved.

    Args:
        runs: All runs.
        solved: The solved ones, for which nothing is left to do.
        how: Makes the lines.
    """
    left = [run for run in runs if run not in solved]
    said = f"; solved: {', '.join(f'seed {model.seed}' for model, _ in solved)}" if solved else ""
    return f"{said}; to continue:\n{how(left)}" if left else said


def _judge(runs: Sequence[Run], bar: SeedsBar) -> dict[int, Judgement]:
    """Run `choose_best` for all runs side by side."""
    outcomes = run_to_end(side_by_side(*[choose_best(model, folder, bar) for model, folder in runs]))
    return {run.model.seed: outcome for run, outcome in zip(runs, outcomes, strict=True)}


def _rank(outcome: Judgement) -> float:
    """Return the mean return, or -inf if it is NaN."""
    mean = outcome.kept.mean
    return -math.inf if math.isnan(mean) else mean


def _print_table(runs: Sequence[Run], outcomes: dict[int, Judgement]) -> None:
    model = runs[0].model
    target = "" if math.isinf(model.target_return) else f" (target {model.target_return:g})"
    say(f"what each {BEST} holds, over {counted(model.settings.target_episodes, 'noise-free episode')}{target}:")
    rows = [("seed", "timesteps", "return", "worst", "solved", "run folder")]
    means = [outcomes[model.seed].kept.mean for model, _ in runs]
    each = [(kept.mean, kept.std, kept.worst) for kept in (outcomes[model.seed].kept for model, _ in runs)]
    median, *texts = in_digits(float(np.median(means)), *itertools.chain(*each))
    for (model, folder), mean, std, least in zip(runs, texts[::3], texts[1::3], texts[2::3], strict=True):
        solved = "yes" if model.solved else "no" if target else "-"
        rows.append((str(model.seed), str(model.num_timesteps), f"{mean} +- {std}", least, solved, str(folder.shown)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        *numbers, path = row
        print("  ".join([*(f"{text:>{width}}" for text, width in zip(numbers, widths, strict=False)), path]))
    if reached := [model for model, _ in runs if not model.solved and outcomes[model.seed].kept.mean >= model.target_return]:
        seeds = ", ".join(f"seed {model.seed}" for model in reached)
        say(f"{seeds}: target {_reached_here(reached[0])}")
    worst = min(range(len(runs)), key=lambda number: _rank(outcomes[runs[number].model.seed]))
    say(f"median return {median}")
    say(f"worst return {texts[3 * worst]} (seed {runs[worst].model.seed})")


def draw_all(runs: Sequence[Run]) -> Path | None:
    """Draw each learning curve, and all of them in one picture, which is named after the run folders.

    Returns:
        Path of that picture; None without matplotlib.
    """
    curves = []
    for its_model, its in runs:
        if not its.draw(its_model):
            return None
        curve = read_curve(its.path, its.shown)
        curves.append(curve._replace(name=f"seed {its_model.seed}", target=its_model.target_return))
    (first, folder), (last, last_folder) = runs[0], runs[-1]
    name = f"runs-{folder.path.name}-{last_folder.path.name}.png"
    plot_curves(curves, folder.path.parent / name, f"{first.source.name}, seeds {first.seed} to {last.seed}")
    return folder.shown.parent / name
