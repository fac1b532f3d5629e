"""Agent: a model that trains, acts and is kept. FastES is one with Stable-Baselines3's names around it."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import time
import warnings
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import IO, Any, TypeVar

import numpy as np
import numpy.typing as npt

from fastes import _core
from fastes.checkpoints.file_format import Checkpoint
from fastes.checkpoints.writer import write_anywhere
from fastes.envs.closing import close_env
from fastes.envs.given.rebuild import check_for_workers
from fastes.envs.layers import look_at
from fastes.envs.source import Env, EnvArgument, EnvSource, make_env_source
from fastes.errors import check_flag, check_int, check_seed, level_outside
from fastes.es.perturbations import check_episodes
from fastes.es.strategy import EvolutionStrategy
from fastes.models.acting import act, replay_job
from fastes.models.arguments import (
    arguments_from,
    changed_settings,
    check_verbose,
    checked_minutes,
    checked_timesteps,
    refuse_arguments,
    spec_of,
)
from fastes.models.checkpointing import Parts, check_env_fits, checkpoint_of, read_parts, selection_from, warn_of_functions
from fastes.models.model_copy import Copied, pack, unpack
from fastes.models.reference_batch import draw_reference
from fastes.policies.choose_policy import check_model_memory, check_no_class
from fastes.policies.custom_policy import AnySpec, CustomPolicy
from fastes.policies.layers import State
from fastes.pools.make_pool import make_local_pool, make_pool
from fastes.pools.pool import Pool, PoolChoice
from fastes.pools.processes.nested_training import refuse_training
from fastes.reports.callbacks import Callback, CallbackList, CallbackListener, as_callback
from fastes.reports.console_log import ConsoleLog
from fastes.reports.monitor_files import MonitorFile, checked_keywords
from fastes.reports.progress_bar import ProgressBar
from fastes.reports.training_warnings import StatisticsWarnings
from fastes.rollout.batch import StepsPlayed
from fastes.rollout.episode import Episode
from fastes.rollout.obs_normalizer import ObsNormalizer
from fastes.rollout.predictor import Predictor
from fastes.settings.keywords import ChangedSettings, SettingsDict, Unpack
from fastes.settings.preset_fit import misfit, registered_target, tell_of_misfit, tell_of_target, warn_of_step_length
from fastes.settings.preset_loader import choose_settings, preset_for
from fastes.settings.settings import Settings
from fastes.system.console import fill_standard_descriptors, output_lasts
from fastes.system.forks import keep_unused, tell_of_forks
from fastes.system.one_thread import OneThread
from fastes.training.evaluation import Evaluation, PendingEvaluation
from fastes.training.evaluator import CalledEnv, Evaluator
from fastes.training.player import Player
from fastes.training.record import Record
from fastes.training.selection import Selection, trial_seed
from fastes.training.trainer import Trainer, trainings_of
from fastes.training.training import Training

CallbackArgument = Callback | Callable[..., Any] | Sequence[Any] | None
_Agent = TypeVar("_Agent", bound="Agent")
_ROW_SECONDS = 1.0  # between rows of statistics
_LINE_SECONDS = 10.0  # between lines of a progress bar in a file or a pipe


class Agent:
    """Evolution Strategies for a Gymnasium environment, on every core.

    Args:
        env: An environment id, an EnvSpec, an Env (rebuilt from its spec, or copied), a function without arguments, or of the
            worker's index, that returns an Env, or a vector environment (SB3's VecEnv, gymnasium.vector), which is driven as
            it is.
        policy: 'MlpPolicy', 'LinearPolicy', 'CnnPolicy', 'MlpLstmPolicy', 'CnnLstmPolicy', a TorchPolicy or a
            CallablePolicy; None for the one that the settings name.
        preset: Name of the settings to start from; None for the environment's own, else 'general', or 'default' for a network.
        n_workers: Processes; None for one per usable core, 0 for none. A vector environment takes none.
        cluster: 'auto', 'host:port' or 'ray://host:port' of a Ray cluster, whose nodes play in place of processes here.
        seed: int >= 0; None draws one.
        env_kwargs: For gymnasium.make.
        verbose: 1 prints a row of statistics about once per second, 2 one per generation.
        info_keywords: Keys of infos that Monitor files get from each episode's last step, beside those of an SB3 Monitor
            around env.
        settings: Any field of fastes.settings.settings.Settings, such as population_size, sigma, learning_rate.

    Training depends on (seed, settings, environment, library versions) alone, and on no n_workers or cluster.

    Attributes:
        source: Builds the environments.
        trainer: Runs the trainings.
        pool, pool_choice: Plays episodes; the arguments that it was made from.
        evaluator: Opens the pool, and knows the environment.
        verbose: The argument.
        max_minutes: Of the last `learn`; infinity for no limit.

    Raises:
        ValueError: For arguments that cannot work, before any process starts; TypeError likewise.
        OSError: For a model, or in learn a generation, that needs more memory than there is.
        ImportError: For a cluster without Ray.
        ClusterError: In learn, if a cluster does not answer or has lost all nodes.
    """

    source: EnvSource
    trainer: Trainer
    pool: Pool
    pool_choice: PoolChoice
    verbose: int

    def __init__(
        self,
        env: EnvArgument,
        policy: str | CustomPolicy | None = None,
        *,
        preset: str | None = None,
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
        own = None if source.vector_env is not None else source()
        try:
            shown: Any = source.vector_env if own is None else own
            if own is not None:
                check_for_workers(own, n_workers)
            name = source.preset_name(shown.observation_space)
            odd = misfit(name, source, shown.observation_space, shown.action_space)
            chosen = choose_settings(name, preset, changes, verbose, not odd)
            tell_of_misfit(name, odd, source, preset, chosen)
            spec = spec_of(policy, chosen, shown)
            under = preset if preset is not None else preset_for("" if odd else name, changes)
            warn_of_step_length(under, chosen, changes, spec.num_params)
            seed = secrets.randbelow(2**31) if seed is None else check_seed(seed)
            selection = _new_selection(source, spec, chosen, seed, shown)
            self._set_up(source, selection, PoolChoice(n_workers, cluster), verbose, keywords)
            self.evaluator.env_shown, self.evaluator.seen = True, None if own is None else look_at(own)
        finally:  # none is kept beside those that play: it may hold a port or a licence
            if own is not None:
                close_env(own, source.name)

    def _set_up(
        self, source: EnvSource, selection: Selection, choice: PoolChoice, verbose: int, keywords: tuple[str, ...]
    ) -> None:
        """The constructor, once it is known what to construct. `load` and copies begin here."""
        self.source, self.verbose, self.given_keywords = source, verbose, keywords
        self.pool_choice, self.pool = choice, make_pool(source, choice)
        self.max_minutes = math.inf
        self._env: CalledEnv | None = None
        self.evaluator = Evaluator(source, trainings_of(selection), self.pool)
        self.trainer = Trainer(selection, self.evaluator)
        training = selection.training
        self._predictor = Predictor(training.spec, training.settings.normalize_obs, selection.seed)
        self._predictor.reference = training.reference
        self._one_thread, self._warnings = OneThread(), dict[int, StatisticsWarnings]()
        tell_of_forks(self)

    # --- parts ------------------------------------------------------------------------------------------------------

    @property
    def selection(self) -> Selection:
        """The trainings: one, or several trials until one of them is left."""
        return self.trainer.selection

    @property
    def training(self) -> Training:
        """The training that the model acts with: while several trials go on, the one that an event is of."""
        return self.trainer.selection.training

    @training.setter
    def training(self, training: Training) -> None:
        self.trainer.take(self.selection.with_training(training))

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

    # --- tallies ----------------------------------------------------------------------------------------------------

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
        """Whether the last generation proved theta solved."""
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
        """Steps that count nowhere: of the proof that a training is solved, and of candidates meanwhile."""
        return self.trainer.dropped_steps

    def steps_played(self) -> StepsPlayed:
        """num_timesteps and eval_timesteps, with the steps of episodes that play at this moment: any thread may ask."""
        return self.trainer.steps_played()

    @property
    def n_workers(self) -> int:
        """Processes that play: on a cluster those of its nodes at this moment, 0 if this process plays."""
        return self.pool.n_workers

    # --- the last generation ----------------------------------------------------------------------------------------

    @property
    def unreported_record(self) -> Record | None:
        """The statistics of a generation that is committed, while callbacks get them."""
        report = self.training.report
        return None if report is None or self.training.is_reported else report.record

    @property
    def last_episodes(self) -> list[tuple[float, int]]:
        """(return, length) of the last generation's training episodes, in job order."""
        return [] if self.training.report is None else self.training.report.episodes

    @property
    def last_successes(self) -> list[float]:
        """1.0 or 0.0 for each of these episodes, NaN if the environment does not tell."""
        return [] if self.training.report is None else self.training.report.successes

    @property
    def last_infos(self) -> list[dict[str, Any]]:
        """The scalars in the info of each of these episodes' last step.

        [] unless `info_keywords` names some, or a callback of SB3's kind reads the steps.
        """
        return [] if self.training.report is None else self.training.report.infos

    @property
    def last_evaluation(self) -> Evaluation | None:
        """The noise-free episodes that were reported last, of `last_evaluation_of`; None before the first."""
        latest = self.training.latest_evaluations
        return latest[-1].evaluation if latest else None

    @property
    def last_evaluation_of(self) -> PendingEvaluation | None:
        """The parameters of `last_evaluation`; None before the first.

        Its generation counts from 0, and its timesteps are those that its theta had been trained with.
        """
        latest = self.training.latest_evaluations
        return latest[-1].pending if latest else None

    @property
    def info_keywords(self) -> tuple[str, ...]:
        """Keys of infos for Monitor files: those that were given, and those of SB3's Monitor around the environment."""
        return tuple(dict.fromkeys((*self.given_keywords, *self.source.info_keywords, *self.source.found_keywords)))

    # --- environment ------------------------------------------------------------------------------------------------

    @property
    def env(self) -> Any:
        """The vector environment that was given; else an environment of this process, built when it is first asked for.

        It is one more than those that play.
        """
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
        """Ask an environment how long its episodes are at most, unless that is known: those without a limit are cut."""
        if self.training.cuts_endless_episodes and self.source.vector_env is None:
            limit = self.evaluator.look().episode_limit
            if limit != self.training.episode_limit:
                self.trainer.take(self.selection.with_episode_limit(limit))

    def _tell_of_changes(self) -> None:
        """Warn of attributes that were set in environments that the script has in hand, and that do not play."""
        if self.source.given is not None:
            self.source.given.tell_of_changes(self.evaluator.build)
        if self._env is not None:
            self._env.tell_of_changes()

    def use_env(self, env: EnvArgument | EnvSource) -> None:
        """Train on another environment with the same spaces from now on; CheckpointMismatch for other ones.

        The archive of the one before is emptied. Scores stay, of the best evaluation and of trials: it may be the same one
        again, as after `load`. Begin with a new model if rewards mean something else.
        """
        with self.alone("set_env()"):
            self.close()  # no environment is beside the one that is built now
            source = env if isinstance(env, EnvSource) else make_env_source(env)
            check_env_fits(source, self.policy_spec, self.settings, self.pool_choice.n_workers)
            is_driven = source.vector_env is not None  # as it is, without workers
            choice = self.pool_choice._replace(n_workers=None) if is_driven else self.pool_choice
            pool = make_pool(source, choice)
            evaluator = Evaluator(source, trainings_of(self.selection), pool)
            evaluator.tell_as(self.evaluator)
            self.source, self.evaluator, self.pool = source, evaluator, pool
            self.trainer.move(self.selection.in_new_env(), evaluator)
        tell_of_target(source, self.settings)

    # --- learning ---------------------------------------------------------------------------------------------------

    def learn(
        self: _Agent,
        total_timesteps: float | None = None,
        callback: CallbackArgument = None,
        *,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
        max_minutes: float | None = None,
        **removed: Any,
    ) -> _Agent:
        """Train until the target return is confirmed, the budget or the time is spent, or a callback says stop.

        Args:
            total_timesteps: Environment steps of candidates; None for settings.total_timesteps.
            callback: See fastes.reports.callbacks.
            reset_num_timesteps: False goes on counting: total_timesteps come on top, and 0 only chooses among trials that are
                left over.
            progress_bar: Show one.
            max_minutes: End after the generation that runs then, at least one; None for no limit. Schedules follow
                total_timesteps all the same. The training is a prefix of the longer one: `learn` with
                reset_num_timesteps=False goes on bit for bit as if it had not been ended, so the model keeps its last
                parameters. What is chosen at the end (`trials`, `archive_size`) is what the model is within
                `with model.as_judged():`. Then model.out_of_time is True.

        Raises:
            WorkerError: For an exception in an environment. After any exception, Ctrl-C too, the model is as it was after its
                last whole generation: it can be saved, and learn goes on from there.
        """
        learning = self.learn_async(
            total_timesteps,
            callback,
            reset_num_timesteps=reset_num_timesteps,
            progress_bar=progress_bar,
            max_minutes=max_minutes,
            **removed,
        )
        self._drive(learning)
        return self

    def _drive(self, learning: Coroutine[Any, Any, bool]) -> None:
        with contextlib.closing(learning), self.alone("learn()"):
            trained = self.evaluator.run(learning)
        if not trained:
            warnings.warn(
                f"nothing was trained: the parameters reach target_return = {self.target_return:g} already. "
                "target_return='none' (--target-return none) goes on",
                UserWarning,
                stacklevel=level_outside(),
            )

    async def learn_async(
        self,
        total_timesteps: float | None = None,
        callback: CallbackArgument = None,
        *,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
        max_minutes: float | None = None,
        **removed: Any,
    ) -> bool:
        """`learn` as a coroutine, for several models on one pool (fastes.seeds). Returns whether anything was trained."""
        refuse_training()
        refuse_arguments(removed)
        check_flag("reset_num_timesteps", reset_num_timesteps)
        check_flag("progress_bar", progress_bar)
        budget = checked_timesteps(total_timesteps, self.settings, least=1 if reset_num_timesteps else 0)
        self.max_minutes = checked_minutes(max_minutes)
        ends_at = time.monotonic() + 60.0 * self.max_minutes
        with self.alone("learn()"), output_lasts():
            self.trainer.selection = self.selection.with_budget(budget, reset_num_timesteps)
            begun_at = {trial.number: trial.training.generation for trial in self.selection.trials}
            callbacks = self._all_callbacks(callback, progress_bar, is_new=reset_num_timesteps)
            self._tell_of_changes()
            if self.info_keywords or callbacks.reads_infos:
                self.evaluator.tell_infos(self.info_keywords)
            if self.source.vector_env is None:
                self.evaluator.look()  # before there are workers: callbacks ask for the spaces
            self.note_episode_limit()
            self.evaluator.start()
            self.trainer.target_return = self.target_return
            callbacks.on_start(self, self.num_timesteps + budget)
            try:
                await self.trainer.run(CallbackListener(self, callbacks, self._warnings), ends_at)
            finally:
                callbacks.on_end(self)
        of = self.last_evaluation_of  # if generations have followed, training goes back to what it proved solved
        return not self.solved or of is None or of.generation > begun_at.get(self.selection.present.number, 0)

    def _all_callbacks(self, callback: CallbackArgument, progress_bar: bool, is_new: bool) -> CallbackList:
        """The model's own callbacks, and the user's."""
        callbacks = [self._as_callback(callback, is_new)]
        if self.source.monitor_file is not None:
            callbacks.insert(0, MonitorFile(self.source.monitor_file))
        if self.verbose:
            callbacks.insert(0, ConsoleLog(seconds=_ROW_SECONDS if self.verbose == 1 else 0.0))
        if progress_bar:
            callbacks.append(ProgressBar(line_seconds=_LINE_SECONDS))
        return CallbackList(callbacks)

    def _as_callback(self, callback: Any, is_new: bool) -> Callback:  # noqa: ARG002
        """The user's callback argument as one callback. is_new: whether the counters begin at 0."""
        return as_callback(callback)

    def as_judged(self) -> AbstractContextManager[None]:
        """Meanwhile the model is the one that the end of a whole budget would have chosen.

        For a training that max_minutes ended. Afterwards it is as training goes on again. Of any other it changes nothing.
        """
        return self.trainer.as_judged()

    def evaluate(self, episodes: int = 20, *, first_seed: int | None = 0) -> Evaluation:
        """Play noise-free episodes of the current parameters on the workers; changes nothing.

        Args:
            episodes: How many.
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
            self._tell_of_changes()
            self.note_episode_limit()
            return self.evaluator.run(self.play_seeds(seeds))

    async def play_seeds(self, seeds: npt.NDArray[np.int64]) -> Evaluation:
        """`evaluate` as a coroutine. seeds: environment seeds, int64 (n,)."""
        return await Player(self.evaluator, self.selection.present.number).evaluate(self.training, seeds)

    def replay(self, generation: int, job: int, *, trial: int | None = None) -> Episode:
        """Play one job of the running generation again, in this process, as an error or a warning named it.

        Args:
            generation: The model's next one, generation + 1 (as errors and progress.csv count).
            job: A candidate's number, or population_size + n for its n-th noise-free evaluation episode (behind the largest
                population, if that is adaptive).
            trial: The trial that the error names, from 1, if several are left.

        Returns:
            The mean return of the job's episodes and their total length. The environment's exception comes as it is, and what
            kills a worker kills this process.
        """
        with self.alone("replay()"):
            self.note_episode_limit()
            self.evaluator.close()  # the environment that is built for it is the only one
            return replay_job(make_local_pool(self.evaluator.source), self.training_of(trial), self.evaluator, generation, job)

    def training_of(self, trial: int | None) -> Training:
        """The training of a trial, from 1; the only one for None. ValueError if several are left, or it is not."""
        left = {each.number + 1: each.training for each in self.selection.trials}
        if trial is None and len(left) == 1:
            return self.training
        if trial not in left:
            raise ValueError(f"trial = {trial!r}: expected one of the trials that are left, {sorted(left)}")
        return left[trial]

    # --- acting -----------------------------------------------------------------------------------------------------

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Any, State | None]:
        """The action for one observation as an array, () for Discrete, or those of a batch (n, *observation shape); a state.

        Args:
            observation: One, or a batch. Batches of Dict and Tuple observations are dicts and tuples of arrays, or lists of
                observations.
            state: A recurrent policy's, as returned last: (h, c) or (h,), each float32 (cells, n, units); None if all begin.
            episode_start: Whether an episode begins, a flag for all or one per row, for policies that remember.
            deterministic: False acts as in training: with the settings' action noise, or sampling if sample_actions is on.
        """
        training = self.training  # a thread that trains replaces it at any moment: parameters and statistics are those of one
        space = self.observation_space if training.spec.flattened else None
        return act(training, self.source, self._predictor, space, observation, state, episode_start, deterministic)

    def set_theta(self, theta: npt.ArrayLike, normalizer: ObsNormalizer | None = None) -> None:
        """Go on from other parameters. Trials that are left end, and the archive is emptied.

        Args:
            theta: (num_params,).
            normalizer: Other statistics of observations; None for the present ones.
        """
        training = self.training.with_parameters(theta, normalizer)
        self.trainer.take(self.selection.decided().with_training(training))

    def set_obs_statistics(self, mean: npt.ArrayLike, std: npt.ArrayLike, count: int) -> None:
        """Set the statistics by which observations are normalised.

        Args:
            mean: (values that are observed,).
            std: (values that are observed,).
            count: Observations that they are of: training goes on from there, and the more there are, the less it moves them.

        Raises:
            ValueError: For other shapes, values that are not finite, a std below obs_std_floor, and with normalize_obs=False.
        """
        if not self.settings.normalize_obs:
            raise ValueError("normalize_obs is off: statistics of observations would change nothing")
        with self.alone("set_obs_statistics()"):
            self.set_theta(self.theta, self.normalizer.given(mean, std, count))

    def use_seed(self, seed: int) -> None:
        """Draw noise and environment seeds from another seed from now on; parameters stay."""
        with self.alone("set_random_seed()"):
            selection = self.selection.with_seed(check_seed(seed))
            self.evaluator.close()
            self.trainer.take(selection)
            self._predictor.seed(seed)

    # --- keeping ----------------------------------------------------------------------------------------------------

    def snapshot(self) -> Checkpoint:
        """Everything that a checkpoint holds, as copies."""
        return checkpoint_of(self.selection, self.source)

    def save(self, path: str | os.PathLike[str] | IO[bytes]) -> None:
        """Write a checkpoint, whole or not at all; the previous one stays as .bak.

        Args:
            path: '.zip' is added if it is missing; or a binary file that is open for writing, such as io.BytesIO().
        """
        snapshot = self.snapshot()
        self.warn_of_functions(path)
        write_anywhere(path, snapshot)

    def warn_of_functions(self, path: str | os.PathLike[str] | IO[bytes]) -> None:
        """Warn of settings that are functions or classes, which no file holds. path: the file that is written."""
        warn_of_functions(self.settings, os.fspath(path) if isinstance(path, (str, os.PathLike)) else "file")

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
        """Read a checkpoint; runs no code from it. Training goes on exactly where it was saved.

        Args:
            path: Of the checkpoint, of a run folder, or a binary file that is open. A run folder means its best.zip, as for
                `fastes eval`; to go on training, load the checkpoint.zip in it.
            env: Needed if the checkpoint cannot rebuild its own.
            n_workers, verbose, cluster, info_keywords: As of the constructor.
            policy: The TorchPolicy or CallablePolicy that was trained, of which a file holds the parameters only.
            env_kwargs: For gymnasium.make; given with env.
            seed: Draw from another seed from now on.
            settings: Fields to change, such as a learning_rate that was a function.

        Raises:
            CheckpointError: With the reason, if the file does not fit.
        """
        parts = read_parts(path, env, n_workers, env_kwargs, policy, dict(settings))
        model = cls._from_parts(parts, PoolChoice(n_workers, cluster), verbose, checked_keywords(info_keywords))
        model._finish_loading(seed, settings, env is not None)
        return model

    @classmethod
    def _from_parts(cls: type[_Agent], parts: Parts, choice: PoolChoice, verbose: int, keywords: tuple[str, ...]) -> _Agent:
        """The model of a checkpoint, or of a copy."""
        model = cls.__new__(cls)
        selection = selection_from(parts.checkpoint, parts.settings, parts.spec, parts.source.episode_limit)
        model._set_up(parts.source, selection, choice, verbose, keywords)
        return model

    def _finish_loading(self, seed: int | None, changes: Mapping[str, Any], other_env: bool) -> None:
        """Take another seed, and warn of what a user may not expect of a loaded model.

        Args:
            seed: See `load`.
            changes: Settings that were changed.
            other_env: Whether an environment was given.
        """
        if left_out := self.training.env_calls.left_out():
            warnings.warn(
                f"the checkpoint does not hold {', '.join(left_out)}, which environments were given: call it again on "
                "model.get_env() before learn or evaluate",
                UserWarning,
                stacklevel=level_outside(),
            )
        if seed is not None and seed != self.seed:
            self.use_seed(seed)
        if other_env:
            tell_of_target(self.source, self.settings)
        if changes:  # what an environment differs in is looked up in its module, which loading does not need otherwise
            under = preset_for("" if self.source.differences else self.source.name, {"policy": self.settings.policy})
            warn_of_step_length(under, self.settings, changes, self.num_params)

    @classmethod
    def from_config(cls: type[_Agent], path: str | os.PathLike[str], env: Any = None, **changes: Any) -> _Agent:
        """A new model with the settings of a file: a run folder's config.toml, or the best.toml of a search.

        Args:
            path: Of the file, or a run folder; a run's environment arguments, wrappers and seed are taken, too. Of a run that
                was given wrappers by name (`--wrapper`) their modules are imported.
            env: Another environment than the file's.
            changes: Any argument of the constructor, a setting or seed or n_workers; they go before what the file says.

        Raises:
            ValueError: For a file that holds no settings; TypeError likewise.
            OSError: For a file that cannot be read.
        """
        return cls(**arguments_from(path, env, changes))

    @classmethod
    def from_copied(cls: type[_Agent], copied: Copied) -> _Agent:
        """The copy that fastes.models.model_copy has described."""
        parts = Parts(copied.checkpoint, copied.source, copied.spec, copied.settings)
        model = cls._from_parts(parts, copied.pool_choice, copied.verbose, copied.info_keywords)
        model.training.env_calls.restore(copied.env_calls)
        return model

    def with_seed(self: _Agent, seed: int) -> _Agent:
        """A new model: this one as it was when it was new, but with another seed."""
        model = type(self).__new__(type(self))
        env: Any = self.evaluator.build() if self.policy_spec.needs_reference else None
        try:
            selection = _new_selection(self.source, self.policy_spec, self.settings, check_seed(seed), env)
        finally:
            if env is not None:
                close_env(env, self.source.name)
        model._set_up(self.source, selection, self.pool_choice, self.verbose, self.given_keywords)
        model.evaluator.env_shown, model.evaluator.seen = self.evaluator.env_shown, self.evaluator.seen
        return model

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, in this process or in another, is what save and load give."""
        return unpack, (pack(self._copied()),)

    def _copied(self) -> Copied:
        return Copied(
            kind=type(self),
            checkpoint=self.snapshot(),
            source=self.source,
            spec=self.policy_spec,
            settings=self.settings,
            pool_choice=self.pool_choice,
            verbose=self.verbose,
            info_keywords=self.given_keywords,
            env_calls=self.training.env_calls.made,
        )

    def alone(self, what: str) -> AbstractContextManager[None]:
        """A block that works on the trainings or the workers: FastESError while another thread does. what: as in 'learn()'."""
        return self._one_thread.using(what)

    def close(self) -> None:
        """End the workers and close the environment. The model can still predict, save, and learn again.

        An exception of the environment's close becomes a RuntimeWarning. FastESError while another thread is in learn or
        evaluate.
        """
        if not hasattr(self, "_one_thread"):  # it was never set up
            return
        with self.alone("close()"):
            env, self._env = self._env, None
            try:
                self.evaluator.close()
            finally:
                if env is not None:
                    env.close()

    def reset_after_fork(self) -> None:
        """See forks.Owner: a forked copy neither uses nor closes the environment, which may hold a window or a socket."""
        keep_unused(self.__dict__.get("_env"))
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


def _new_selection(source: EnvSource, spec: AnySpec, settings: Settings, seed: int, env: Env | Any) -> Selection:
    """The trials of a new model, which differ in their seeds.

    Args:
        source: Of the environments.
        spec: The policy's.
        settings: All of them.
        seed: The model's.
        env: An environment in which a policy that needs a reference batch can draw it.
    """
    check_model_memory(spec, settings.archive_size, settings.trials)
    reference = draw_reference(spec, source, env, seed, settings.on_env_error)
    with _core.UsualFloats():
        first = Training.start(settings, spec, seed, source.episode_limit, reference)
        others = (trial_seed(seed, number) for number in range(1, settings.trials))
        trainings = [first, *(_sibling(first, its_seed) for its_seed in others)]
    return Selection.start(trainings, seed, settings.rungs, settings.trials_fraction)


def _sibling(first: Training, seed: int) -> Training:
    """A training that differs from the first one in its seed."""
    return Training.start(first.settings, first.spec, seed, first.episode_limit, first.reference, first.env_calls)
