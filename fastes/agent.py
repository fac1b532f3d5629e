"""Agent: a model that learns, acts, and is saved and loaded. FastES adds Stable-Baselines3's names to it."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import FrameType
from typing import IO, TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from fastes import _core
from fastes.checkpoints.file_format import Checkpoint
from fastes.checkpoints.writer import write_anywhere
from fastes.envs.closing import close_env
from fastes.envs.given.rebuild import check_for_workers
from fastes.envs.source import Env, EnvArgument, EnvSource, make_env_source
from fastes.errors import FastESError, check_flag, check_int, check_seed, first_few, warn_user
from fastes.es.perturbations import check_episodes
from fastes.es.strategy import EvolutionStrategy
from fastes.models.arguments import (
    changed_settings,
    check_verbose,
    checked_minutes,
    checked_timesteps,
    refuse_arguments,
    spec_of,
)
from fastes.models.checkpointing import (
    Parts,
    calls_to_keep,
    check_memory_of_trainings,
    checkpoint_of,
    read_parts,
    selection_from,
    warn_of_functions,
)
from fastes.models.env_fit import Kind, check_env_fits
from fastes.models.model_copy import Copied, pack, unpack
from fastes.models.reference_batch import draw_reference
from fastes.models.replay import replay_job
from fastes.policies.choose_policy import check_no_class
from fastes.policies.custom_policy import AnySpec, CustomPolicy
from fastes.policies.layers import State
from fastes.pools.make_pool import make_local_pool, make_pool
from fastes.pools.pool import Pool, PoolChoice
from fastes.pools.processes.nested_training import refuse_training
from fastes.reports.callbacks import Callback, CallbackListener, as_callbacks
from fastes.reports.console_log import ConsoleLog
from fastes.reports.kept_evaluations import KeptEvaluations
from fastes.reports.live_curve import live_curve
from fastes.reports.model_in_words import model_in_rows
from fastes.reports.monitor_files import MonitorFile, checked_keywords
from fastes.reports.progress_bar import ProgressBar
from fastes.reports.trackers.by_name import reporter_named
from fastes.reports.training_warnings import StatisticsWarnings
from fastes.rollout.batch import StepsPlayed
from fastes.rollout.called_env import CalledEnv
from fastes.rollout.env_calls import EnvCalls
from fastes.rollout.episode import Episode
from fastes.rollout.obs_normalizer import ObsNormalizer
from fastes.rollout.predictor import Predictor
from fastes.runs.curve_picture import draw_curves
from fastes.runs.curves import Curve, RungEnd, title_of
from fastes.settings.config_file import arguments_from
from fastes.settings.keywords import ChangedSettings, SettingsDict, Unpack
from fastes.settings.preset_fit import misfit, registered_target, tell_of_misfit, tell_of_target, warn_of_step_length
from fastes.settings.preset_loader import preset_for
from fastes.settings.recipes import AUTO, PLAIN, Recipe, alive_bonus_of, choose_recipes
from fastes.settings.settings import Settings
from fastes.system.console import fill_standard_descriptors, output_errors_tolerated
from fastes.system.exclusive_use import ExclusiveUse
from fastes.system.forks import never_finalise, register_for_forks
from fastes.system.html_tables import html_table
from fastes.system.installation import install_command
from fastes.training.evaluation import Evaluation, PendingEvaluation
from fastes.training.evaluator import Evaluator
from fastes.training.player import Player
from fastes.training.record import Record
from fastes.training.selection import Selection, Trial, trial_seed
from fastes.training.trainer import Trainer, trainings_of
from fastes.training.training import Training

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fastes.runs.playback import Playback
    from fastes.tuning.tune import Tuned


class StepwiseCallback(Protocol):
    """A callback that is called at each step, as those of Stable-Baselines3 are."""

    def init_callback(self, model: Any) -> None: ...

    def on_step(self) -> bool: ...


CallbackArgument = Callback | StepwiseCallback | Callable[..., Any] | str | Sequence[Any] | None
_Agent = TypeVar("_Agent", bound="Agent")
_NAMED = 3  # calls in a message
_ROW_SECONDS = 1.0  # between rows of statistics
LINE_SECONDS = 10.0  # between lines of a progress bar in a file or a pipe


class Agent:
    """A model without Stable-Baselines3's names. Its arguments and errors are those of FastES (sb3/adapter.py).

    Training depends only on seed, settings, environment and library versions, not on n_workers or cluster.

    Attributes:
        source: Builds the environments.
        trainer: Runs the trainings.
        pool: Plays episodes.
        pool_choice: The arguments that the pool was made from.
        evaluator: Opens the pool, and knows the environment.
        verbose: The argument.
        base_preset: Name of the preset that the settings were taken from, or of the first recipe; '' for a loaded model.
        given_settings: The settings that were given to the constructor, or to `load`.
        given_keywords: The argument info_keywords.
        max_minutes: The argument of the last `learn`; infinity for none.
        kept_evaluations: Those of this model's training, for `plot`.
    """

    source: EnvSource
    trainer: Trainer
    pool: Pool
    pool_choice: PoolChoice
    verbose: int
    given_keywords: tuple[str, ...]
    evaluator: Evaluator
    max_minutes: float
    kept_evaluations: KeptEvaluations
    base_preset: str = ""
    given_settings: Mapping[str, Any]
    _env: CalledEnv | None
    _predictors: dict[int, Predictor]
    _acting_seed: int
    _exclusive_use: ExclusiveUse
    _warnings: dict[int, StatisticsWarnings]

    def __init__(
        self,
        env: EnvArgument,
        policy: str | CustomPolicy | None = None,
        *,
        preset: str | os.PathLike[str] | None = AUTO,
        n_workers: int | None = None,
        cluster: str | None = None,
        seed: int | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
        verbose: int = 0,
        info_keywords: Iterable[str] = (),
        **settings: Unpack[SettingsDict],
    ) -> None:
        fill_standard_descriptors()
        check_verbose(verbose)
        check_no_class(env, policy)
        source = make_env_source(env, env_kwargs)
        changes = changed_settings(settings, source, policy)
        keywords = checked_keywords(info_keywords)
        with _env_of(source) as own:
            if source.vector_env is None:
                check_for_workers(own, n_workers)
            name = source.preset_name(own.observation_space)
            odd = misfit(name, source, own.observation_space, own.action_space) if preset == AUTO else ""
            spaces = own.observation_space, own.action_space
            recipes = choose_recipes(preset, "" if odd else name, *spaces, changes, alive_bonus_of(own))
            is_race = preset == AUTO and changes.get("trials") != 1
            base, kinds = _kinds_of(recipes, policy, own, 0 if is_race else 1)
            spec, chosen, recipe = kinds[0]
            settings_are = "recipes race, and their settings are" if recipe else f"the settings of {base!r} are"
            tell_of_misfit(name, odd, source, settings_are, chosen)
            warn_of_step_length(base, chosen, changes, spec.num_params)
            seed = secrets.randbelow(2**31) if seed is None else check_seed(seed)
            selection = _new_selection(source, kinds, seed, own)
            self._set_up(source, selection, PoolChoice(n_workers, cluster), verbose, keywords)
            self.evaluator.env_shown = True
            if source.vector_env is None:
                self.evaluator.see(own)
            self.base_preset, self.given_settings = base, changes

    def _set_up(
        self, source: EnvSource, selection: Selection, choice: PoolChoice, verbose: int, keywords: tuple[str, ...]
    ) -> None:
        """Initialise a model whose trainings exist: a new one, a loaded one, or a copy."""
        self.source, self.verbose, self.given_keywords = source, verbose, keywords
        self.pool_choice, self.pool = choice, make_pool(source, choice)
        self.max_minutes, self.kept_evaluations = math.inf, KeptEvaluations()
        self.given_settings: Mapping[str, Any] = {}
        self._env = None
        self.evaluator = Evaluator(source, trainings_of(selection), self.pool)
        self.trainer = Trainer(selection, self.evaluator)
        self._predictors, self._acting_seed = {}, selection.seed
        self._exclusive_use, self._warnings = ExclusiveUse(), {}
        register_for_forks(self)

    # --- learning -----------------------------------------------------------------------------------------------------

    def learn(
        self: _Agent,
        total_timesteps: float | None = None,
        callback: CallbackArgument = None,
        *,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
        max_minutes: float | None = None,
        **removed: NoReturn,
    ) -> _Agent:
        """Train; see FastES.learn."""
        learning = self.learn_async(
            total_timesteps,
            callback,
            reset_num_timesteps=reset_num_timesteps,
            progress_bar=progress_bar,
            max_minutes=max_minutes,
            **removed,
        )
        with contextlib.closing(learning), self.alone("learn()"):
            trained = self.evaluator.run(learning)
        if not trained:
            warn_user(
                f"the parameters from before this training reach target_return = {self.target_return:g} already, and are kept. "
                "target_return='none' (--target-return none) continues",
                UserWarning,
            )
        return self

    async def learn_async(
        self,
        total_timesteps: float | None = None,
        callback: CallbackArgument = None,
        *,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
        max_minutes: float | None = None,
        **removed: NoReturn,
    ) -> bool:
        """`learn` as a coroutine, for several models on one pool (seeds.py). Returns False if earlier parameters are kept."""
        refuse_training()
        refuse_arguments(removed)
        if self._is_learning(sys._getframe().f_back):
            raise FastESError(
                "learn() was called by a callback of learn(), for the same model or one that trains with it: train a copy, "
                "copy.deepcopy(model), or return False from its callbacks to end that training, and learn then"
            )
        check_flag("reset_num_timesteps", reset_num_timesteps)
        check_flag("progress_bar", progress_bar)
        budget = checked_timesteps(total_timesteps, self.settings, least=1 if reset_num_timesteps else 0)
        self.max_minutes = checked_minutes(max_minutes)
        ends_at = time.monotonic() + 60.0 * self.max_minutes
        with self.alone("learn()"), output_errors_tolerated():
            callbacks = self._all_callbacks(callback, progress_bar, is_new=reset_num_timesteps)  # may refuse the user's
            self.trainer.selection, self.trainer.unreported = self.selection.with_budget(budget, reset_num_timesteps), None
            if reset_num_timesteps:
                self.cpu_seconds = 0.0
            begun_at = {trial.number: trial.training.generation for trial in self.selection.trials}
            self._start_pool(with_infos=bool(self.info_keywords) or any(each.reads_infos for each in callbacks))
            self.trainer.target_return = self.target_return
            started: list[Callback] = []
            try:
                for each in callbacks:
                    each.on_start(self, self.num_timesteps + budget)
                    started.append(each)
                await self.trainer.run(CallbackListener(self, callbacks, self._warnings, self.target_return), ends_at)
            finally:
                with contextlib.ExitStack() as ends:  # each ends, also if another one fails
                    for each in reversed(started):
                        ends.callback(each.on_end, self)
        is_spent = self.num_timesteps >= self.selection.budget
        if budget and is_spent and not self.solved and not self.generation:
            warn_user(
                f"nothing was trained: {self.num_timesteps:,} timesteps went into the first candidates, and total_timesteps "
                f"is {budget:,}. Give {10 * self.num_timesteps:,} or more",
                UserWarning,
            )
        of = self.last_evaluation_of  # a solved training goes back to the parameters of this evaluation
        return not self.solved or of is None or of.generation > begun_at.get(self.selection.present.number, 0)

    def _is_learning(self, frame: FrameType | None) -> bool:
        """Whether a frame's callers include `learn_async` of a model on the same pool; a flag could outlive an interrupt."""
        while frame is not None:
            if frame.f_code is Agent.learn_async.__code__ and frame.f_locals["self"].evaluator.pool is self.evaluator.pool:
                return True
            frame = frame.f_back
        return False

    def _start_pool(self, with_infos: bool) -> None:
        """Open the pool for training. with_infos: whether generations come with the infos of last steps."""
        self._warn_of_changes()
        if with_infos:
            self.evaluator.collect_infos(self.info_keywords)
        if self.source.vector_env is None:
            self.evaluator.look()  # callbacks ask for the spaces, and before there are workers an environment is cheap
        self.note_episode_limit()
        self.evaluator.start()

    def _all_callbacks(self, callback: CallbackArgument, progress_bar: bool, is_new: bool) -> list[Callback]:
        """Return the callbacks of the model's arguments, and the user's."""
        callbacks = [self.kept_evaluations, *self._as_callbacks(callback, is_new)]
        if self.source.monitor_file is not None:
            callbacks.insert(0, MonitorFile(self.source.monitor_file))
        if self.verbose:
            callbacks.insert(0, ConsoleLog(seconds=_ROW_SECONDS if self.verbose == 1 else 0.0))
        if progress_bar:
            callbacks.append(ProgressBar(line_seconds=LINE_SECONDS))
            if (curve := live_curve(self.plot)) is not None:
                callbacks.append(curve)
        return callbacks

    def _as_callbacks(self, callback: Any, is_new: bool) -> list[Callback]:  # noqa: ARG002
        """Convert the user's argument. is_new: whether counters begin at 0."""
        return as_callbacks(callback, reporter_named)

    def plot(self) -> Figure:
        """Draw the learning curve of this model's training so far, as `fastes plot` draws that of a run folder.

        Evaluations are kept in memory, not in checkpoints: the curve of a loaded model or a copy begins there.
        A training with more than 16,384 evaluations is drawn with every second or n-th.

        Returns:
            A Matplotlib figure, which a notebook shows; `figure.savefig("curve.png")` writes it. pyplot does not know it.

        Raises:
            ImportError: Without Matplotlib (extra `plots`).
            FastESError: Before the first evaluation.
        """
        curve = self.curve()
        if not len(curve.steps):
            raise FastESError(
                f"{self!r} has no evaluations to plot: learn() makes them, and a checkpoint does not hold them. "
                "`fastes plot RUN` draws a run folder"
            )
        try:
            return draw_curves([curve], title_of([curve]))
        except ImportError as error:
            raise ImportError(f"plot() needs Matplotlib: {install_command('plots')}") from error

    def curve(self) -> Curve:
        """Return the learning curve of `plot` as numbers."""
        kept = self.kept_evaluations
        steps, returns, trials = kept.columns()
        rung_ends, name = tuple(RungEnd(*end) for end in kept.rung_ends), f"{self.source.name}, seed {self.seed}"
        shown = self.selection.showing_best().present.number + 1
        return Curve(name, steps, returns, self.target_return, trials, rung_ends, dict(kept.recipes), shown=shown)

    def as_judged(self) -> AbstractContextManager[None]:
        """Within the block, a model whose training max_minutes has ended has what the end of its budget would have chosen.

        Other models are unchanged.
        """
        return self.trainer.as_judged()

    def evaluate(self, episodes: int = 20, *, first_seed: int | None = 0) -> Evaluation:
        """Play noise-free episodes of the current parameters on the workers. The model does not change.

        Args:
            episodes: Number of episodes.
            first_seed: Environment seeds are first_seed, first_seed + 1, ...; None draws seeds that no training episode of
                this run has.
        """
        check_int("episodes", episodes, 1)
        if first_seed is None:
            seeds = self.training.fresh_seeds(episodes)
        else:
            check_episodes(episodes)
            seeds = check_int("first_seed", first_seed, 0, 2**31 - 1 - episodes) + np.arange(episodes, dtype=np.int64)
        with self.alone("evaluate()"):
            self._warn_of_changes()
            self.note_episode_limit()
            return self.evaluator.run(self.play_seeds(seeds))

    async def play_seeds(self, seeds: npt.NDArray[np.int64], endless_limit: int | None = None) -> Evaluation:
        """`evaluate` as a coroutine.

        Args:
            seeds: Environment seeds, int64 (n,).
            endless_limit: Steps after which episodes end that have no limit; None for those of the training.
        """
        player, of = Player(self.evaluator, self.selection.present.number), self.training
        if endless_limit is not None and of.cuts_endless_episodes:
            return await player.evaluate(of, seeds, limit=endless_limit)
        return await player.evaluate(of, seeds)

    def replay(self, generation: int, job: int, *, trial: int | None = None) -> Episode:
        """Play one job of the next generation again in this process, to see its error.

        The environment's exception passes through, and whatever kills a worker kills this process.

        Args:
            generation: The model's generation + 1, as errors and progress.csv count.
            job: A candidate's number, or population_size + n for the n-th noise-free evaluation episode (after the largest
                population, if that is adaptive).
            trial: The trial that the error names, from 1, if several are left.

        Returns:
            The mean return of the job's episodes and their total length.
        """
        with self.alone("replay()"):
            self.note_episode_limit()
            self.evaluator.close()  # so that only one environment is open
            return replay_job(make_local_pool(self.evaluator.source), self.training_of(trial), self.evaluator, generation, job)

    def training_of(self, trial: int | None) -> Training:
        """Return the training of a trial, from 1; None means the only one. ValueError if it is not among those left."""
        left = {each.number + 1: each.training for each in self.selection.trials}
        if trial is None and len(left) == 1:
            return self.training
        if trial not in left:
            raise ValueError(f"trial = {trial!r}: expected one of the trials that are left, {sorted(left)}")
        return left[trial]

    def play(
        self,
        episodes: int = 1,
        *,
        first_seed: int = 0,
        video: str | os.PathLike[str] | None = None,
        render: bool = False,
        max_frames: int | None = None,
        max_seconds: float | None = 30.0,
    ) -> Playback:
        """Play noise-free episodes in this process, as `fastes play` does. A notebook shows them as a video.

        Args:
            episodes: Number of episodes.
            first_seed: Environment seed of the first one; the others have the seeds that follow.
            video: An mp4 or a GIF to write. None draws no video, except in a notebook, which keeps it in the output.
            render: Open a window instead.
            max_frames, max_seconds: The longest video; episodes are always played to their end. None for no limit.

        Returns:
            A list with the (env_seed, episode_return, length, frames) of each.

        Raises:
            RenderError: If the environment cannot be drawn. It is a FastESError.
        """
        from fastes.runs.playback import play_back  # a training does not wait for it

        check_int("episodes", episodes, 1)
        check_int("first_seed", first_seed, 0, 2**31 - 1 - episodes)
        check_flag("render", render)
        with self.alone("play()"):
            return play_back(self, episodes, first_seed, video, render, max_frames, max_seconds)

    # --- acting -------------------------------------------------------------------------------------------------------

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Any, State | None]:
        """Choose the action for an observation, or the actions for a batch.

        Args:
            observation: One observation, or a batch (n, *observation shape). Batches of Dict and Tuple observations are dicts
                and tuples of arrays, or lists of observations.
            state: A recurrent policy's state from the last call, (h, c) or (h,), each float32 (cells, n, units); None at the
                start of all episodes.
            episode_start: Whether an episode begins, for all rows or per row; for recurrent policies.
            deterministic: False acts as in training, with the settings' action noise, or sampling if sample_actions is on.

        Returns:
            The action, an array of shape () for Discrete, or the actions (n, ...), and the next state.
        """
        trial = self.selection.present  # read once: a thread that trains may replace it
        training = trial.training
        space = self.observation_space if training.spec.flattened else None
        predictor, settings = self._predictor_of(trial), training.settings
        noise = (0.0, False) if deterministic else (settings.action_noise, settings.sample_actions)
        with predictor.lock:
            predictor.bounded = not self.source.normalizes_obs
            return predictor.act(training.strategy.theta, training.normalizer, observation, noise, space, state, episode_start)

    def _predictor_of(self, trial: Trial) -> Predictor:
        """The predictor of a trial, whose policy may be another than that of the others."""
        if trial.number not in self._predictors:
            training = trial.training
            predictor = Predictor(training.spec, training.settings.normalize_obs, self._acting_seed)
            predictor.reference = training.reference
            self._predictors[trial.number] = predictor
        return self._predictors[trial.number]

    def set_theta(self, theta: npt.ArrayLike, normalizer: ObsNormalizer | None = None) -> None:
        """Replace the parameters. Other trials end, and the archive is emptied.

        Args:
            theta: Parameters (num_params,).
            normalizer: Statistics of observations; None for the present ones.
        """
        selection = self.selection.with_winner()
        self.trainer.replace_selection(selection.with_training(selection.training.with_parameters(theta, normalizer)))

    def set_obs_statistics(self, mean: npt.ArrayLike, std: npt.ArrayLike, count: int) -> None:
        """Set the statistics that observations are normalised by.

        Args:
            mean: Means (values of an observation,).
            std: Standard deviations (values of an observation,).
            count: Number of observations behind them. The larger it is, the less training changes them.

        Raises:
            ValueError: For other shapes, values that are not finite, a std below obs_std_floor, and with normalize_obs=False.
        """
        if not self.settings.normalize_obs:
            raise ValueError("normalize_obs is off: statistics of observations would change nothing")
        with self.alone("set_obs_statistics()"):
            self.set_theta(self.theta, self.normalizer.given(mean, std, count))

    def use_seed(self, seed: int) -> None:
        """Draw noise and environment seeds from another seed. Parameters stay."""
        with self.alone("set_random_seed()"):
            seed = check_seed(seed)
            selection = self.selection.with_seed(seed)
            self.evaluator.close()
            self.trainer.replace_selection(selection)
            self._acting_seed = seed
            for predictor in self._predictors.values():
                predictor.seed(seed)

    # --- saving and copying -------------------------------------------------------------------------------------------

    def snapshot(self) -> Checkpoint:
        """Return the content of a checkpoint, as copies."""
        return checkpoint_of(self.selection, self.source)

    def save(self, path: str | os.PathLike[str] | IO[bytes]) -> None:
        """Write a checkpoint; see FastES.save."""
        self._write(path, self.snapshot())

    def _write(self, path: str | os.PathLike[str] | IO[bytes], snapshot: Checkpoint) -> None:
        warn_of_functions(self.settings, os.fspath(path) if isinstance(path, (str, os.PathLike)) else "file")
        write_anywhere(path, snapshot)

    @classmethod
    def load(
        cls: type[_Agent],
        path: str | os.PathLike[str] | IO[bytes],
        env: EnvArgument | None = None,
        n_workers: int | None = None,
        *,
        policy: str | CustomPolicy | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        cluster: str | None = None,
        info_keywords: Iterable[str] = (),
        **settings: Unpack[ChangedSettings],
    ) -> _Agent:
        """Read a checkpoint; see FastES.load."""
        parts = read_parts(path, env, n_workers, env_kwargs, policy, dict(settings))
        model = cls.from_parts(parts, PoolChoice(n_workers, cluster), verbose, checked_keywords(info_keywords))
        model._finish_loading(seed, settings, env is not None)
        return model

    @classmethod
    def from_parts(
        cls: type[_Agent], parts: Parts, choice: PoolChoice, verbose: int = 0, keywords: tuple[str, ...] = ()
    ) -> _Agent:
        """Make a model of a checkpoint's content, or of a copy's."""
        model = cls.__new__(cls)
        selection = selection_from(parts.checkpoint, parts.kinds, parts.source.episode_limit)
        model._set_up(parts.source, selection, choice, verbose, keywords)
        return model

    def _finish_loading(self, seed: int | None, changes: Mapping[str, Any], other_env: bool) -> None:
        """Take another seed, and warn of anything unexpected in a loaded model.

        Args:
            seed: See `load`.
            changes: Settings that were changed.
            other_env: Whether an environment was given.
        """
        if left_out := self.training.env_calls.left_out():
            warn_user(
                f"the checkpoint does not hold {first_few(left_out, _NAMED)}, which environments were given: make that again "
                "on model.get_env() before learn or evaluate",
                UserWarning,
            )
        self.given_settings = changes
        if seed is not None and seed != self.seed:
            self.use_seed(seed)
        if other_env:
            tell_of_target(self.source, self.settings)
        if changes:  # `differences` imports the environment's module, which loading does not need otherwise
            own = None if self.source.differences else preset_for(self.source.name)
            warn_of_step_length(self.selection.present.recipe or own or PLAIN, self.settings, changes, self.num_params)

    @classmethod
    def from_config(cls: type[_Agent], path: str | os.PathLike[str], env: Any = None, **changes: Any) -> _Agent:
        """Make a model with the settings of a file: a run folder's config.toml, or the preset file of `fastes tune`.

        Args:
            path: The file, or a run folder. A run's environment arguments, wrappers and seed are taken, too; modules of
                wrappers that were named with `--wrapper` are imported.
            env: An environment in place of the file's.
            changes: Arguments of the constructor in place of the file's, such as settings, seed or n_workers.

        Raises:
            ValueError: If the file holds no settings; TypeError likewise.
            OSError: If the file cannot be read.
        """
        return cls(**arguments_from(path, env, changes))

    @classmethod
    def tune(
        cls,
        env: EnvArgument,
        policy: str | CustomPolicy | None = None,
        *,
        n_trials: int | None = None,
        max_minutes: float | None = None,
        study: str | os.PathLike[str] | None = None,
        seed: int = 0,
        n_seeds: int = 3,
        sampler: Any = "tpe",
        pruner: Any = "median",
        parallel: int = 4,
        episodes: int = 10,
        n_workers: int | None = None,
        cluster: str | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
        verbose: int = 1,
        **settings: Unpack[SettingsDict],
    ) -> Tuned:
        """Search for settings with Optuna (extra `tune`), beginning with the known good ones.

        The same call with the same `study` resumes after a kill or Ctrl-C: trials that are finished stay, others run again.

        Args:
            env, policy, n_workers, cluster, env_kwargs: As of the constructor.
            n_trials: Candidates in all, earlier ones included; None for 40, or as many as max_minutes allow.
            max_minutes: No batch of candidates begins that would exceed them, and with little time fewer are played off; None
                for no limit. The first batch and the report have no limit.
            study: Optuna's journal file; preset, table and plots get its name. None for a study in memory, without files.
            seed: The first seed that candidates are trained with; everything follows from it.
            n_seeds: Trainings of each candidate, with successive seeds.
            sampler: 'tpe', 'random', or an Optuna sampler.
            pruner: 'median', 'halving', 'hyperband', 'none', or an Optuna pruner. It gets each candidate's mean return
                after 1, 2 and 4 eighths of its budget.
            parallel: Candidates of a batch, which train side by side. It changes what is drawn; n_workers does not.
            episodes: Noise-free episodes of an evaluation.
            verbose: 0 prints nothing.
            settings: Settings that all candidates keep. total_timesteps is the budget of each training; without it that of the
                environment's preset, or 200,000.

        Returns:
            The best settings, and their score on seeds that no choice was made on.

        Raises:
            ImportError: Without Optuna.
            TypeError, ValueError: For arguments that cannot work, and a study of another search.
            FolderInUse: If another process works on the study.
        """
        from fastes.tuning.tune import tune  # a training does not wait for it

        arguments = {"n_workers": n_workers, "cluster": cluster, "env_kwargs": env_kwargs}
        return tune(
            cls,
            env,
            policy,
            n_trials=n_trials,
            max_minutes=max_minutes,
            study=study,
            seed=seed,
            n_seeds=n_seeds,
            sampler=sampler,
            pruner=pruner,
            parallel=parallel,
            episodes=episodes,
            verbose=verbose,
            arguments=arguments,
            fixed=dict(settings),
        )

    @classmethod
    def from_copied(cls: type[_Agent], copied: Copied) -> _Agent:
        """Make a copy of its description (models/model_copy.py)."""
        parts = Parts(copied.checkpoint, copied.source, copied.kinds)
        model = cls.from_parts(parts, copied.pool_choice, copied.verbose, copied.info_keywords)
        model.training.env_calls.restore(copied.env_calls)
        return model

    def with_seed(self: _Agent, seed: int) -> _Agent:
        """Make a new model with the same arguments, except for the seed."""
        model = type(self).__new__(type(self))
        kinds = self._kinds()
        env: Any = self.evaluator.build() if any(kind.spec.needs_reference for kind in kinds) else None
        try:
            selection = _new_selection(self.source, kinds, check_seed(seed), env)
        finally:
            if env is not None:
                close_env(env, self.source.name)
        model._set_up(self.source, selection, self.pool_choice, self.verbose, self.given_keywords)
        model.evaluator.env_shown, model.evaluator.seen = self.evaluator.env_shown, self.evaluator.seen
        model.base_preset, model.given_settings = self.base_preset, self.given_settings
        return model

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy the model, also into another process: the copy is what save and load would give."""
        return unpack, (pack(self._copied()),)

    def _kinds(self) -> tuple[Kind, ...]:
        """Policy and settings of each training that is left."""
        return tuple(Kind(trial.training.spec, trial.training.settings, trial.recipe) for trial in self.selection.trials)

    def _copied(self) -> Copied:
        return Copied(
            kind=type(self),
            checkpoint=self.snapshot(),
            source=self.source,
            kinds=self._kinds(),
            pool_choice=self.pool_choice,
            verbose=self.verbose,
            info_keywords=self.given_keywords,
            env_calls=calls_to_keep(self.selection)[0],
        )

    # --- environment --------------------------------------------------------------------------------------------------

    @property
    def env(self) -> Any:
        """The vector environment that was given, or an additional environment of this process, built at first use."""
        if self.source.vector_env is not None:
            return self.source.vector_env.env
        if self._env is None:
            self._env = CalledEnv(self.evaluator.build, self.training.env_calls)
        return self._env.get()

    @env.deleter
    def env(self) -> None:
        self._env = None

    @property
    def observation_space(self) -> Any:
        return (self.source.vector_env or self.evaluator.look()).observation_space

    @property
    def action_space(self) -> Any:
        return (self.source.vector_env or self.evaluator.look()).action_space

    def note_episode_limit(self) -> None:
        """Look up the environment's limit of steps, if it is not known. Endless episodes are cut."""
        if self.training.cuts_endless_episodes and self.source.vector_env is None:
            limit = self.evaluator.look().episode_limit
            if limit != self.training.episode_limit:
                self.trainer.replace_selection(self.selection.with_episode_limit(limit))

    def _warn_of_changes(self) -> None:
        """Warn of attributes that the script has set in environments that do not play."""
        if self.source.given is not None:
            self.source.given.warn_of_changes(self.evaluator.build)
        if self._env is not None:
            self._env.warn_of_changes()

    def use_env(self, env: EnvArgument | EnvSource) -> None:
        """Train on another environment with the same spaces; CheckpointMismatch if they differ.

        The archive is emptied. The best evaluation and the trials' scores stay, because the environment may be the same one,
        as after `load`. Make a new model if rewards mean something else.
        """
        with self.alone("set_env()"):
            if self.evaluator.is_shared:
                raise FastESError(
                    "set_env() was called while the model trains with others on one pool of workers: call it before or after "
                    "that training"
                )
            self.close()  # so that only one environment is open
            source = env if isinstance(env, EnvSource) else make_env_source(env)
            check_env_fits(source, self._kinds(), self.pool_choice.n_workers)
            choice = self.pool_choice if source.vector_env is None else self.pool_choice._replace(n_workers=None)
            pool = make_pool(source, choice)
            evaluator = Evaluator(source, trainings_of(self.selection), pool)
            evaluator.collect_infos_like(self.evaluator)
            selection = self.selection.in_new_env().with_episode_limit(source.episode_limit)
            if source.vector_env is None and selection.training.cuts_endless_episodes:  # perhaps an environment knows a limit
                selection = selection.with_episode_limit(evaluator.look().episode_limit)
            self.source, self.evaluator, self.pool = source, evaluator, pool
            self.trainer.move(selection, evaluator)
        tell_of_target(source, self.settings)

    # --- closing ------------------------------------------------------------------------------------------------------

    def alone(self, what: str) -> AbstractContextManager[None]:
        """A block that uses trainings or workers; FastESError if another thread is in one. what: its name, as in 'learn()'."""
        return self._exclusive_use.using(what)

    def close(self) -> None:
        """End the workers and close the environment. The model can still predict, save, and learn again.

        An exception of the environment's close becomes a RuntimeWarning. FastESError while another thread is in learn or
        evaluate.
        """
        if not hasattr(self, "_exclusive_use"):  # the constructor has failed
            return
        with self.alone("close()"):
            env, self._env = self._env, None
            try:
                self.evaluator.close()
            finally:
                if env is not None:
                    env.close()

    def reset_after_fork(self) -> None:
        """See forks.Owner: a forked copy does not use or close the environment, which may hold a window or a socket."""
        never_finalise(self.__dict__.get("_env"))
        self._env = None

    def __enter__(self: _Agent) -> _Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.source.name!r}, generation={self.generation}, num_timesteps={self.num_timesteps}, "
            f"seed={self.seed})"
        )

    def _repr_html_(self) -> str:
        """Return a table, which a notebook shows."""
        return html_table(type(self).__name__, model_in_rows(self))

    # --- parts --------------------------------------------------------------------------------------------------------

    @property
    def selection(self) -> Selection:
        """The trainings: several trials until one is left, or a single one."""
        return self.trainer.selection

    @property
    def training(self) -> Training:
        """The training whose policy acts. In a callback it is the one that the event belongs to."""
        return self.trainer.selection.training

    @training.setter
    def training(self, training: Training) -> None:
        self.trainer.replace_selection(self.selection.with_training(training))

    @property
    def settings(self) -> Settings:
        return self.training.settings

    @property
    def policy_spec(self) -> AnySpec:
        return self.training.spec

    @property
    def strategy(self) -> EvolutionStrategy:
        return self.training.strategy

    @property
    def normalizer(self) -> ObsNormalizer:
        """The statistics of observations."""
        return self.training.normalizer

    @property
    def seed(self) -> int:
        return self.selection.seed

    @property
    def theta(self) -> npt.NDArray[np.float32]:
        """The policy's parameters, float32 (num_params,), read-only."""
        return self.training.strategy.theta

    @property
    def num_params(self) -> int:
        return self.training.spec.num_params

    # --- tallies ------------------------------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """Updates of theta so far."""
        return self.training.generation

    @property
    def num_timesteps(self) -> int:
        """Environment steps of candidates, of all trials."""
        return self.selection.num_timesteps

    @property
    def eval_timesteps(self) -> int:
        """Environment steps of noise-free episodes, of all trials."""
        return self.selection.counters.eval_timesteps

    @property
    def num_episodes(self) -> int:
        """Episodes of candidates, of all trials."""
        return self.selection.counters.num_episodes

    @property
    def budget(self) -> int:
        """num_timesteps at which the last `learn` was to end; 0 before the first."""
        return self.selection.budget

    @property
    def best_eval_return(self) -> float:
        """The highest mean noise-free return so far, of all trials; -inf before the first."""
        return self.selection.counters.best_eval_return

    @property
    def target_return(self) -> float:
        """Noise-free return at which `learn` stops; infinity for never."""
        return self.settings.target(registered_target(self.source, self.settings))

    @property
    def solved(self) -> bool:
        """Whether theta has reached the target on fresh episodes."""
        return self.training.solved

    @property
    def out_of_time(self) -> bool:
        """Whether max_minutes ended the last `learn`."""
        return self.trainer.out_of_time

    @property
    def ends_at(self) -> float:
        """time.monotonic() at which max_minutes ends `learn`."""
        return self.trainer.ends_at

    @property
    def dropped_steps(self) -> StepsPlayed:
        """Steps that belong to no training: those of the proof that theta is solved, and of candidates at that time."""
        return self.trainer.dropped_steps

    def steps_played(self) -> StepsPlayed:
        """Return num_timesteps and eval_timesteps including the steps of running episodes, in any thread."""
        return self.trainer.steps_played()

    @property
    def cpu_seconds(self) -> float:
        """CPU time of this process and its workers in this training so far. Run folders hold it, checkpoints do not."""
        return self.trainer.cpu_seconds

    @cpu_seconds.setter
    def cpu_seconds(self, seconds: float) -> None:
        self.trainer.cpu_seconds = seconds

    @property
    def n_workers(self) -> int:
        """Number of worker processes: 0 if this process plays, on a cluster the present number of its nodes' processes."""
        return self.pool.n_workers

    # --- the last generation ------------------------------------------------------------------------------------------

    @property
    def unreported_record(self) -> Record | None:
        """The statistics of a committed generation that callbacks have not all received."""
        return self.trainer.unreported

    @property
    def last_episodes(self) -> list[tuple[float, int]]:
        """(return, length) of the last generation's training episodes, in job order."""
        return [] if self.training.report is None else self.training.report.episodes

    @property
    def last_successes(self) -> list[float]:
        """1.0 or 0.0 for each of these episodes, NaN if the environment reports no success."""
        return [] if self.training.report is None else self.training.report.successes

    @property
    def last_infos(self) -> list[dict[str, Any]]:
        """The scalars in the last info of each of these episodes; [] unless `info_keywords` or a callback needs them."""
        return [] if self.training.report is None else self.training.report.infos

    @property
    def last_evaluation(self) -> Evaluation | None:
        """The last noise-free episodes that were reported; None before the first."""
        latest = self.training.latest_evaluations
        return latest[-1].evaluation if latest else None

    @property
    def last_evaluation_of(self) -> PendingEvaluation | None:
        """The parameters that `last_evaluation` played; None before the first.

        The generation counts from 0, and timesteps are those that theta had been trained with.
        """
        latest = self.training.latest_evaluations
        return latest[-1].pending if latest else None

    @property
    def info_keywords(self) -> tuple[str, ...]:
        """Keys of infos for Monitor files: the argument's, and those of SB3's Monitor around the environment."""
        return tuple(dict.fromkeys((*self.given_keywords, *self.source.info_keywords, *self.source.found_keywords)))


def _kinds_of(recipes: Sequence[Recipe], policy: str | CustomPolicy | None, env: Any, most: int) -> tuple[str, list[Kind]]:
    """Return the name of the first recipe that the policy can have, and policy and settings of each training.

    Args:
        recipes: Those whose settings the user's changes allow.
        policy: The user's.
        env: An environment, for its spaces.
        most: How many recipes may train; 0 for all. A single one trains as often as its `trials` say, several in turn.
    """
    kinds, refused = list[Kind](), list[ValueError]()
    for recipe in recipes:
        try:
            kinds.append(Kind(spec_of(policy, recipe.settings, env), recipe.settings, recipe.name))
        except ValueError as error:  # the policy cannot have its noise, or the recipe's policy not the user's keywords
            refused.append(error)
        if len(kinds) == most > 0:
            break
    if not kinds:
        raise refused[0]
    base, trials = kinds[0].recipe, kinds[0].settings.trials
    if len(kinds) == 1:
        return base, [kinds[0]._replace(recipe="")] * trials
    trials = trials if trials > 1 else len(kinds)
    kinds = [kind._replace(settings=kind.settings.changed(trials=trials)) for kind in kinds]
    return base, [kinds[n % len(kinds)] for n in range(trials)]


def _new_selection(source: EnvSource, kinds: Sequence[Kind], seed: int, env: Env | Any) -> Selection:
    """Make the trainings of a new model.

    Args:
        source: Source of the environments.
        kinds: Policy and settings of each training; those of the first say how they are reduced to one.
        seed: The model's seed.
        env: An environment for drawing the reference batch, if a policy needs one.
    """
    check_memory_of_trainings(kinds)
    settings, calls = kinds[0].settings, EnvCalls()
    needing = [kind.spec for kind in kinds if kind.spec.needs_reference]
    reference = draw_reference(needing[0], source, env, seed, settings.on_env_error) if needing else None
    with _core.UsualFloats():
        trainings = [
            Training.start(
                kind.settings,
                kind.spec,
                trial_seed(seed, number),
                source.episode_limit,
                reference if kind.spec.needs_reference else None,
                calls,
            )
            for number, kind in enumerate(kinds)
        ]
    return Selection.start(trainings, seed, settings.rungs, settings.trials_fraction, [kind.recipe for kind in kinds])


@contextlib.contextmanager
def _env_of(source: EnvSource) -> Iterator[Any]:
    """Yield the vector environment that was given, or an environment that is closed before others are built.

    It may hold a port or a licence.
    """
    if source.vector_env is not None:
        yield source.vector_env
        return
    env = source()
    try:
        yield env
    finally:
        close_env(env, source.name)
