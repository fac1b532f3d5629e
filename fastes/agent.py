"""FastES: what a user calls."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, Any

import numpy as np

from fastes import _core
from fastes.envs.closing import close_env
from fastes.envs.rebuild import check_for_workers
from fastes.envs.seen import look_at
from fastes.envs.source import Env, EnvArgument, EnvSource, make_env_source
from fastes.errors import check_flag, check_int, check_name, check_seed
from fastes.es.perturbations import check_episodes
from fastes.loop import Loop
from fastes.models.arguments import (
    changed_settings,
    check_kinds,
    checked_minutes,
    checked_timesteps,
    env_and_policy,
    refuse_arguments,
    spec_of,
)
from fastes.models.checkpointing import checked_objects, print_versions, read_parts, restore_state, settings_among, versions
from fastes.models.model_copy import Copied, pack, unpack
from fastes.models.one_thread import OneThread
from fastes.models.reference_batch import draw_reference
from fastes.models.replay import replay_job
from fastes.models.user_attributes import set_attributes
from fastes.policies.choose_policy import AnySpec, check_model_memory, check_no_class
from fastes.policies.custom_policy import CustomPolicy
from fastes.policies.layers.recurrent_state import State
from fastes.pools.make_pool import PoolChoice, make_pool
from fastes.pools.processes.nested_training import refuse_training
from fastes.reports.callbacks import Callback
from fastes.reports.training_warnings import StatisticsWarnings
from fastes.rollout.env_calls import CalledEnv
from fastes.rollout.episode import Episode
from fastes.rollout.predictor import Predictor
from fastes.sb3.callbacks import all_callbacks, reads_infos
from fastes.settings.keywords import ChangedSettings, SettingsDict, Unpack
from fastes.settings.preset_fit import misfit, tell_of_misfit, tell_of_target
from fastes.settings.preset_loader import choose_settings, preset_for
from fastes.settings.settings import Settings
from fastes.settings.step_length import warn_of_step_length
from fastes.system.console import output_lasts
from fastes.system.descriptors import fill_standard_descriptors
from fastes.system.forks import keep_unused
from fastes.training.evaluation import Evaluation
from fastes.training.evaluator import Evaluator
from fastes.training.generation import evaluate
from fastes.training.state import TrainingState

CallbackArgument = Callback | Callable[..., Any] | Sequence[Any] | None


class FastES(Loop):
    """Evolution Strategies for a Gymnasium environment, on every core.

    >>> from fastes import FastES
    >>> with FastES("CartPole-v1", seed=0) as model:
    ...     model.learn(total_timesteps=20_000).num_timesteps >= 20_000 or model.solved
    True

    env: an environment id, an EnvSpec, an Env (rebuilt from its spec, or copied), a function without arguments, or of the
        worker's index, that returns an Env, or a vector environment (SB3's VecEnv, gymnasium.vector), which is driven as it is.
    policy: 'MlpPolicy', 'LinearPolicy', 'CnnPolicy', 'MlpLstmPolicy', 'CnnLstmPolicy', a TorchPolicy or a CallablePolicy;
        FastES(policy, env), SB3's order, works, too.
    learning_rate: the setting of that name, in SB3's place.
    preset: name of the settings to start from; None for the environment's own, else 'general', or 'default' for a network.
    n_workers: processes; None for one a usable core, 0 for none. A vector environment takes none.
    cluster: 'auto', 'host:port' or 'ray://host:port' of a Ray cluster, whose nodes play in place of processes here.
    seed: int >= 0; None draws one.
    env_kwargs: for gymnasium.make.
    verbose: 1 prints a row of statistics about once per second, 2 one per generation.
    tensorboard_log: folder for TensorBoard; None for no such log.
    stats_window_size: training episodes that ep_info_buffer keeps.
    info_keywords: keys of infos that ep_info_buffer and Monitor files get from each episode's last step, as those of SB3's
        Monitor, which are known where it is around env.
    device: 'auto' or 'cpu', which are the same.
    settings: any field of fastes.settings.settings.Settings, such as population_size, sigma, learning_rate.

    What training produces depends on (seed, settings, environment, library versions) alone, and on no n_workers or cluster.
    Raises ValueError or TypeError for arguments that cannot work, before any process starts, OSError for a model, or in learn
    a generation, that needs more memory than there is, ImportError for a cluster without Ray, and in learn ClusterError for
    one that does not answer or has lost all nodes.
    """

    def __init__(
        self,
        env: EnvArgument | CustomPolicy,
        policy: str | CustomPolicy | EnvArgument | None = None,
        learning_rate: Any = None,
        *,
        preset: str | None = None,
        n_workers: int | None = None,
        cluster: str | None = None,
        seed: int | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
        verbose: int = 0,
        tensorboard_log: str | None = None,
        stats_window_size: int = 100,
        device: str = "auto",
        info_keywords: Iterable[str] = (),
        **settings: Unpack[SettingsDict],
    ) -> None:
        fill_standard_descriptors()
        check_kinds(verbose, tensorboard_log)
        check_no_class(env, policy)
        given, wanted = env_and_policy(env, policy)
        source = make_env_source(given, env_kwargs)
        changes = changed_settings(settings, source, wanted, learning_rate)
        own = None if source.vector_env is not None else source()
        try:
            shown: Any = source.vector_env if own is None else own
            if own is not None:
                check_for_workers(own, n_workers, stacklevel=2)
            name = source.preset_name(shown.observation_space)
            odd = misfit(name, source, shown.observation_space, shown.action_space)
            chosen = choose_settings(name, preset, changes, verbose, not odd)
            tell_of_misfit(name, odd, source, preset, chosen, stacklevel=2)
            spec = spec_of(wanted, chosen, shown)
            under = preset if preset is not None else preset_for("" if odd else name, changes)
            warn_of_step_length(under, chosen, changes, spec.num_params, stacklevel=2)
            seed = secrets.randbelow(2**31) if seed is None else check_seed(seed)
            self._init_interface(tensorboard_log, stats_window_size, device, info_keywords)
            self._set_up(source, spec, chosen, seed, verbose, PoolChoice(n_workers, cluster))
            self._draw_reference(own)
            self.evaluator.env_shown, self.evaluator.seen = True, None if own is None else look_at(own)
        finally:  # none is kept beside those that play: it may hold a port or a licence
            if own is not None:
                close_env(own, source.name)

    def _set_up(
        self,
        source: EnvSource,
        spec: AnySpec,
        settings: Settings,
        seed: int,
        verbose: int,
        choice: PoolChoice,
    ) -> None:
        self.source, self.verbose = source, verbose
        self.pool_choice, self.pool = choice, make_pool(source, choice)
        self._env: CalledEnv | None = None
        check_model_memory(spec, settings.archive_size)
        with _core.UsualFloats():
            self.state = TrainingState(settings, spec, seed, source.episode_limit)
        vars(self).update(settings=settings, seed=seed)  # W&B and others list vars(model); the properties come first
        self.evaluator = Evaluator(source, spec, settings, self.state.strategy.table, self.pool, self.state.env_calls)
        self._predictor = Predictor(spec, settings.normalize_obs, seed)
        self._odd = StatisticsWarnings()
        self._one_thread = OneThread()

    def _draw_reference(self, own: Env | None) -> None:
        """Play for the reference batch of a policy that needs one, in the vector environment where there is no other."""
        env: Any = self.source.vector_env if own is None else own
        self.state.reference = draw_reference(self.policy_spec, self.source, env, self.seed, self.settings.on_env_error)
        self._use_reference()

    # --- what it is -------------------------------------------------------------------------------------------------

    @property
    def env(self) -> Any:
        """The vector environment that was given; else an environment of this process, built when it is first asked for.

        It is one more than those that play.
        """
        if self.source.vector_env is not None:
            return self.source.vector_env.env
        if self._env is None:
            self._env = CalledEnv(self.evaluator.build, self.state.env_calls)
        return self._env.get()

    @env.deleter
    def env(self) -> None:
        self._env = None

    observation_space = property(lambda self: (self.source.vector_env or self.evaluator.look()).observation_space)
    action_space = property(lambda self: (self.source.vector_env or self.evaluator.look()).action_space)

    # --- learning ---------------------------------------------------------------------------------------------------

    def learn(
        self,
        total_timesteps: float | None = None,
        callback: CallbackArgument = None,
        log_interval: int | None = 1,
        tb_log_name: str = "FastES",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
        *,
        max_minutes: float | None = None,
        **removed: Any,
    ) -> FastES:
        """Train until the target return is confirmed, the budget or the time is spent, or a callback says stop.

        total_timesteps: environment steps of candidates; None for settings.total_timesteps.
        callback: see fastes.reports.callbacks; SB3's work unchanged.
        log_interval: generations between writes to the logger; None for none.
        tb_log_name: of the run in tensorboard_log.
        reset_num_timesteps: False goes on counting: total_timesteps come on top, and 0 only judges a start that is left over.
        progress_bar: show one.
        max_minutes: end after the generation that runs then, at least one; None for no limit. Schedules follow total_timesteps
            all the same. The training is a prefix of the longer one: `learn` with reset_num_timesteps=False goes on bit for bit
            as if it had not been ended, so the model keeps its last parameters. What is judged at the end (`starts`,
            `archive_size`) is what the model is within `with model.as_judged():`. Then model.out_of_time is True.

        Raises WorkerError for an exception in an environment. After any exception, Ctrl-C too, the model is as it was
        after its last whole generation: it can be saved, and learn goes on from there.
        """
        given = total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar
        with self.alone("learn()"):  # `run` lets go of requests that nobody waits for
            trained = self.evaluator.run(self.learn_async(*given, max_minutes=max_minutes, **removed))
        if not trained:
            self._warn_of_no_training()
        return self

    async def learn_async(
        self,
        total_timesteps: float | None = None,
        callback: CallbackArgument = None,
        log_interval: int | None = 1,
        tb_log_name: str = "FastES",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
        *,
        max_minutes: float | None = None,
        **removed: Any,
    ) -> bool:
        """`learn` as a coroutine, for several trainings on one pool (fastes.seeds). Returns whether anything was trained."""
        refuse_training()
        refuse_arguments(removed)
        check_flag("reset_num_timesteps", reset_num_timesteps)
        check_flag("progress_bar", progress_bar)
        check_name("tb_log_name", tb_log_name)
        budget = checked_timesteps(total_timesteps, self.settings, least=1 if reset_num_timesteps else 0)
        minutes = checked_minutes(max_minutes)
        ends_at = time.monotonic() + 60.0 * minutes
        with self.alone("learn()"), output_lasts():
            self.state = self.state.begun(budget, reset_num_timesteps)
            total, begun_at = self.num_timesteps + budget, self.generation
            self.max_minutes = minutes
            callbacks = all_callbacks(self, callback, progress_bar)
            self._begin_logging(log_interval, tb_log_name, reset_num_timesteps)
            self._warn_of_mask_method()
            self._tell_of_changes()
            if self.info_keywords or reads_infos(callbacks):
                self.evaluator.tell_infos(self.info_keywords)
            if self.source.vector_env is None:
                self.evaluator.look()  # before there are workers: callbacks ask for the spaces
            self.note_episode_limit()
            self.evaluator.start()
            callbacks.on_start(self, total)
            try:
                await self._train(total, callbacks, ends_at)
            finally:
                self._note_episodes()
                callbacks.on_end(self)
        of = self.last_evaluation_of  # where generations have followed, training goes back to what it proved solved
        return not self.solved or of is None or of.generation > begun_at

    def _tell_of_changes(self) -> None:
        """Warn of what was set in environments that the script has in hand, and that do not play."""
        if self.source.given is not None:
            self.source.given.tell_of_changes(self.evaluator.build)
        if self._env is not None:
            self._env.tell_of_changes()

    def _warn_of_no_training(self) -> None:
        warnings.warn(
            f"nothing was trained: the parameters reach target_return = {self.target_return:g} already. "
            "target_return='none' (--target-return none) goes on",
            UserWarning,
            stacklevel=3,
        )

    def evaluate(self, episodes: int = 20, *, first_seed: int | None = 0) -> Evaluation:
        """Noise-free episodes of the current parameters on the workers; changes nothing.

        Environment seeds are first_seed, first_seed + 1, ...; None draws seeds that no training episode of this run has.
        """
        check_int("episodes", episodes, 1)
        if first_seed is None:
            seeds = self.state.fresh_seeds(episodes)
        else:
            check_episodes(episodes)
            seeds = check_int("first_seed", first_seed, 0, 2**31 - 1 - episodes) + np.arange(episodes, dtype=np.int64)
        with self.alone("evaluate()"):
            self._tell_of_changes()
            self.note_episode_limit()
            return self.evaluator.run(evaluate(self.state, self.evaluator, seeds))

    def replay(self, generation: int, job: int) -> Episode:
        """Play one job of the running generation again, in this process, as an error or a warning named it.

        generation: the model's next one, generation + 1 (as errors and progress.csv count).
        job: a candidate's number, or population_size + n for its n-th noise-free evaluation episode (behind the largest
            population, where that is adaptive).

        Returns the mean return of the job's episodes and their total length. What the environment raises comes as it is, and
        what kills a worker kills this process.
        """
        with self.alone("replay()"):
            self.note_episode_limit()
            self.evaluator.close()  # the environment that is built for it is the only one
            return replay_job(self.state, self.evaluator, generation, job)

    # --- acting -----------------------------------------------------------------------------------------------------

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, State | None]:
        """The action for one observation as an array, () for Discrete, or those of a batch (n, *observation shape); a state.

        Batches of Dict and Tuple observations are dicts and tuples of such arrays, or lists of observations.
        deterministic=False acts as in training: with the settings' action noise, or sampling when sample_actions is on.
        state: a recurrent policy's, as returned last: (h, c) or (h,), each float32 (cells, n, units); None where all begin.
        episode_start: where an episode begins, a flag for all or one a row, for policies that remember.
        """
        return super().predict(observation, state, episode_start, deterministic)

    # --- keeping ----------------------------------------------------------------------------------------------------

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str] | IO[bytes],
        env: EnvArgument | None = None,
        n_workers: int | None = None,
        *,
        policy: str | CustomPolicy | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        tensorboard_log: str | None = None,
        device: str = "auto",
        custom_objects: Mapping[str, Any] | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,  # noqa: ARG003
        cluster: str | None = None,
        info_keywords: Iterable[str] = (),
        **settings: Unpack[ChangedSettings],
    ) -> FastES:
        """Read a checkpoint; runs no code from it. Training goes on exactly where it was saved.

        path: of the checkpoint, of a run folder, or a binary file that is open. A run folder means its best.zip, as for
            `fastes eval`; to go on training, load the checkpoint.zip in it.
        env: needed when the checkpoint cannot rebuild its own.
        n_workers, verbose, tensorboard_log, device, cluster, info_keywords: as in FastES.
        policy: the TorchPolicy or CallablePolicy that was trained, of which a file holds the parameters only.
        env_kwargs: for gymnasium.make; given with env.
        seed: see set_random_seed.
        custom_objects: what replaces the file's, by name, as in SB3: settings, seed, and attributes that were set on the
            model. Other names change nothing, nor does a learning rate of 0, which says that the model will only act.
        print_system_info: print the versions here, and those that the checkpoint was saved with.
        force_reset: SB3's, changes nothing: every episode starts with a reset.
        settings: fields to change, such as a learning_rate that was a function.

        Raises CheckpointError that says what is wrong with the file.
        """
        replaced = checked_objects(custom_objects)
        if print_system_info:
            print_versions("CURRENT SYSTEM INFO", versions(torch=True))
        changes = {**settings_among(replaced), **settings}
        parts = read_parts(path, env, n_workers, env_kwargs, policy, changes)
        if print_system_info:
            print_versions("SAVED MODEL SYSTEM INFO", parts.checkpoint.data.get("versions"))
        model = cls.__new__(cls)
        model._init_interface(tensorboard_log, device=device, info_keywords=info_keywords)
        model._set_up(parts.source, parts.spec, parts.settings, parts.seed, verbose, PoolChoice(n_workers, cluster))
        restore_state(model.state, parts.checkpoint)
        set_attributes(model, parts.checkpoint, replaced)
        if left_out := model.state.env_calls.left_out():
            model._warn(
                f"the checkpoint does not hold {', '.join(left_out)}, which environments were given: call it again on "
                "model.get_env() before learn or evaluate"
            )
        model._use_reference()
        model.set_random_seed(replaced.get("seed") if seed is None else seed)
        model._check_statistics()
        if env is not None:
            tell_of_target(model.source, model.settings, stacklevel=2)
        if changes:  # what an environment differs in is looked up in its module, which loading does not need otherwise
            under = preset_for("" if model.source.differences else model.source.name, {"policy": model.settings.policy})
            warn_of_step_length(under, model.settings, changes, model.num_params, stacklevel=2)
        return model

    @classmethod
    def from_copied(cls, copied: Copied) -> FastES:
        """The copy that fastes.models.model_copy has described."""
        model = cls.__new__(cls)
        model._init_interface(**copied.interface)
        model._set_up(copied.source, copied.spec, copied.settings, copied.seed, copied.verbose, copied.pool_choice)
        restore_state(model.state, copied.checkpoint)
        set_attributes(model, copied.checkpoint, {})
        model.state.env_calls.restore(copied.env_calls)
        model._use_reference()
        return model

    def with_seed(self, seed: int) -> FastES:
        """A new model: what this one was when it was new, but with another seed."""
        model = type(self).__new__(type(self))
        model._init_interface(self.tensorboard_log, self.stats_window_size, info_keywords=self.given_keywords)
        model._set_up(self.source, self.policy_spec, self.settings, check_seed(seed), self.verbose, self.pool_choice)
        model.evaluator.env_shown, model.evaluator.seen = self.evaluator.env_shown, self.evaluator.seen
        if self.policy_spec.needs_reference:
            env = self.evaluator.build()
            try:
                model._draw_reference(env)
            finally:
                close_env(env, self.source.name)
        return model

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, in this process or in another, is what save and load give."""
        interface = {
            "tensorboard_log": self.tensorboard_log,
            "stats_window_size": self.stats_window_size,
            "info_keywords": self.given_keywords,
        }
        copied = Copied(
            kind=type(self),
            checkpoint=self.snapshot(),
            source=self.source,
            spec=self.policy_spec,
            settings=self.settings,
            seed=self.seed,
            pool_choice=self.pool_choice,
            verbose=self.verbose,
            interface=interface,
            env_calls=self.state.env_calls.made,
        )
        return unpack, (pack(copied),)

    def close(self) -> None:
        """End the workers and close the environment. The model can still predict, save, and learn again.

        What the environment's close raises is a RuntimeWarning. FastESError while another thread is in learn or evaluate.
        """
        if not hasattr(self, "_one_thread"):  # it was never set up
            return
        with self.alone("close()"):
            env, self._env = self._env, None
            try:
                self.evaluator.close()
                self._close_vec_env()
            finally:
                if env is not None:
                    env.close()

    def leave_to_parent(self) -> None:
        """See forks.Owner: a forked copy neither uses nor closes the environment, which may hold a window or a socket."""
        keep_unused(self.__dict__.get("_env"), self._vec_env)
        self._env = self._vec_env = None
        self._shown_env = None, None

    def __enter__(self) -> FastES:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def __repr__(self) -> str:
        return (
            f"FastES({self.source.name!r}, generation={self.generation}, num_timesteps={self.num_timesteps}, seed={self.seed})"
        )
