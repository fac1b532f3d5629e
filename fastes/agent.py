"""FastES: learn, predict, save, load. The loop, and nothing else."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastes.callbacks import Callback
from fastes.checkpoint import Checkpoint, write_checkpoint
from fastes.cpus import available_cpus
from fastes.envs import Env, EnvArgument, EnvSource, make_env_source
from fastes.envs.wrappers import warn_of_memory
from fastes.episode_cap import EpisodeCap
from fastes.evaluation import Evaluation
from fastes.evaluator import Evaluator
from fastes.figures import OddFigures, make_record
from fastes.fitness import fitness_of
from fastes.generation import booking, count, run_generation, warm_up
from fastes.interrupts import interrupts_wait
from fastes.logger import Record
from fastes.nesting import refuse_training
from fastes.noise import Perturbations, draw_eval_seeds
from fastes.normalizer import ObsNormalizer
from fastes.parallel import Batch
from fastes.policies import POLICIES, AnySpec, CustomPolicy, spec_for
from fastes.policies.custom import check_no_class, check_noise
from fastes.population import Population
from fastes.predictor import Predictor
from fastes.presets import choose_settings
from fastes.replay import replay_job
from fastes.restore import model_state, read_parts, restore_model, settings_among, versions
from fastes.rollback import Rollback
from fastes.rollout import Episode, EpisodeSettings, step_guard
from fastes.sb3.callbacks import all_callbacks
from fastes.sb3.interface import SB3Interface
from fastes.settings import Settings
from fastes.starts import Starts, judge_start
from fastes.strategy import EvolutionStrategy, Update, check_int, check_seed

CallbackArgument = Callback | Callable[..., Any] | Sequence[Any] | None


class FastES(SB3Interface):
    """Evolution Strategies for a Gymnasium environment, on every core.

    >>> from fastes import FastES
    >>> with FastES("CartPole-v1", seed=0) as model:
    ...     model.learn(total_timesteps=20_000).num_timesteps >= 20_000 or model.solved
    True

    env: an environment id, an EnvSpec, an Env (rebuilt from its spec, or copied), a function without arguments that
    returns an Env, or a vector environment (SB3's VecEnv, gymnasium.vector), which is driven as it is. policy: 'MlpPolicy',
    'LinearPolicy', a TorchPolicy or a CallablePolicy; FastES(policy, env), SB3's order, works too. preset: name of the tuned
    settings to start from; None for the environment's own, or the default. n_workers: processes, None for one a usable
    core, 0 for none (a vector environment takes none). seed: int >= 0; None draws one. env_kwargs: for gymnasium.make.
    verbose: 1 prints a line a generation. tensorboard_log, stats_window_size and device ('auto' or 'cpu') mean what they
    mean in SB3. settings: any field of fastes.settings.Settings, such as population_size, sigma, learning_rate.

    What training produces depends on (seed, settings, environment, library versions) alone and on no n_workers.
    Raises ValueError or TypeError for arguments that cannot work, before any process starts.
    """

    def __init__(
        self,
        env: EnvArgument | CustomPolicy,
        policy: str | CustomPolicy | EnvArgument | None = None,
        learning_rate: Any = None,
        *,
        preset: str | None = None,
        n_workers: int | None = None,
        seed: int | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
        verbose: int = 0,
        tensorboard_log: str | None = None,
        stats_window_size: int = 100,
        device: str = "auto",
        **settings: Any,
    ) -> None:
        check_no_class(env, policy)
        if learning_rate is not None:
            settings["learning_rate"] = learning_rate
        if isinstance(env, CustomPolicy) or (isinstance(env, str) and (env in POLICIES or env.endswith("Policy"))):
            if policy is None:
                raise TypeError(f"FastES({env!r}) names a policy but no environment: use FastES(env) or FastES({env!r}, env)")
            env, policy = policy, env
        policy = "MlpPolicy" if policy == "MultiInputPolicy" else policy  # SB3's for Dict; here each space is flattened
        source = make_env_source(env, env_kwargs)  # type: ignore[arg-type]  # it says so when this is no environment
        if source.lanes is not None and source.lanes.normalizes:
            settings.setdefault("normalize_obs", False)
        if policy is not None:
            settings["policy"] = policy.kind if isinstance(policy, CustomPolicy) else policy
        chosen = choose_settings(source.name, preset, settings)
        own = None if source.lanes is not None else source()
        if own is not None:
            warn_of_memory(own)
        try:
            shown: Any = own or source.lanes
            wanted = policy if isinstance(policy, CustomPolicy) else chosen.policy
            spec = spec_for(wanted, shown.observation_space, shown.action_space, chosen.policy_kwargs)
            seed = secrets.randbelow(2**31) if seed is None else check_seed(seed)
            self._init_interface(tensorboard_log, stats_window_size, device)
            self._set_up(source, spec, chosen, seed, n_workers, verbose)
        except BaseException:
            if own is not None:
                with contextlib.suppress(Exception):
                    own.close()
            raise
        self._env: Env | None = own
        self.evaluator.env_shown = True
        self.evaluator.spaces = None if own is None else (own.observation_space, own.action_space)

    def _set_up(
        self, source: EnvSource, spec: AnySpec, settings: Settings, seed: int, n_workers: int | None, verbose: int
    ) -> None:
        self.source, self.policy_spec, self.settings, self.seed, self.verbose = source, spec, settings, seed, verbose
        self.n_workers = self._checked_workers(n_workers)
        self._env = None
        check_noise(spec, settings.action_noise, settings.sample_actions)
        self.strategy = EvolutionStrategy(
            spec.initial_theta(seed),
            settings.sigma,
            settings.learning_rate,
            settings.population_size,
            seed,
            optimizer=settings.optimizer,
            momentum=settings.momentum,
            beta2=settings.beta2,
            max_speed=settings.max_speed,
            weight_decay=settings.weight_decay,
            shaping=settings.shaping,
            top_fraction=settings.top_fraction,
            sigma_adaptation=settings.sigma_adaptation,
            sigma_learning_rate=settings.sigma_learning_rate,
            perturbed_share=settings.perturbed_share,
            episodes=settings.episodes_per_candidate,
            table_size=settings.noise_table_size,
        )
        self.evaluator = Evaluator(source, spec, settings, self.strategy.table, self.n_workers)
        self.normalizer = ObsNormalizer(spec.obs_size, settings.obs_clip, settings.obs_std_floor)
        self.cap = EpisodeCap(settings)
        self.rollback = Rollback(settings)
        self.starts = Starts(settings, spec, self.seed)
        self.population = Population(settings)
        self.num_timesteps = self.eval_timesteps = self.num_episodes = 0
        self.confirm_after = 0
        self.budget = 0  # num_timesteps at which the last `learn` was to end; schedules run towards it
        self.best_eval_return = -math.inf
        self.solved = False
        self._predictor = Predictor(spec, settings.normalize_obs, seed)
        self._odd = OddFigures()
        self.untold: Record | None = None  # of a generation that is booked, while callbacks are told of it

    def _checked_workers(self, n_workers: int | None) -> int:
        """How many processes: none beside a vector environment, which has its own."""
        lanes = self.source.lanes
        self._wanted_workers = available_cpus() if n_workers is None else n_workers
        if n_workers is None:
            return available_cpus() if lanes is None else 0
        if lanes is not None and n_workers:
            raise ValueError(
                f"n_workers = {n_workers!r} cannot be used with {lanes.env}, which is driven as it is: leave it out, or "
                "pass the environment's id, or a function that builds one, as env"
            )
        return check_int("n_workers", n_workers, 0, 4096)

    # --- what it is -------------------------------------------------------------------------------------------------

    @property
    def theta(self) -> npt.NDArray[np.float32]:
        """The policy's parameters, float32 (num_params,), read-only."""
        return self.strategy.theta

    @property
    def num_params(self) -> int:
        return self.policy_spec.num_params

    @property
    def generation(self) -> int:
        """Updates done so far."""
        return self.strategy.generation

    @property
    def env(self) -> Any:
        """An environment of this process, of the kind that workers build for themselves; or the vector environment."""
        if self.source.lanes is not None:
            return self.source.lanes.env
        if self._env is None:
            self._env = self.source()
        return self._env

    @env.deleter
    def env(self) -> None:
        self._env = None

    observation_space = property(lambda self: (self.source.lanes or self.env).observation_space)
    action_space = property(lambda self: (self.source.lanes or self.env).action_space)

    @property
    def target_return(self) -> float:
        """Noise-free return at which `learn` stops; infinity for never."""
        return self.settings.target(self.source.reward_threshold)

    # --- learning ---------------------------------------------------------------------------------------------------

    def learn(
        self,
        total_timesteps: float | None = None,
        callback: CallbackArgument = None,
        log_interval: int | None = 1,
        tb_log_name: str = "FastES",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> FastES:
        """Train until the target return is confirmed, the budget is spent, or a callback says stop.

        total_timesteps: environment steps of candidates, None for settings.total_timesteps; with reset_num_timesteps=False
        they come on top of num_timesteps. callback: see fastes.callbacks; SB3's work unchanged. log_interval: generations
        between writes to the logger, None for none. tb_log_name: of the run in tensorboard_log. progress_bar: show one.

        Raises WorkerError for an exception in an environment. After any exception, Ctrl-C too, the model is as it was
        after its last whole generation: it can be saved, and learn goes on from there.
        """
        refuse_training()
        steps = self.settings.total_timesteps if total_timesteps is None else total_timesteps
        budget = check_int(
            "total_timesteps", int(steps) if isinstance(steps, float) and steps.is_integer() else steps, 1, 10**15
        )
        if reset_num_timesteps:
            self.starts.begun_at -= self.num_timesteps
            self.num_timesteps = self.eval_timesteps = self.num_episodes = self.confirm_after = 0
        self.budget = total = budget + self.num_timesteps
        callbacks = all_callbacks(self, callback, progress_bar)
        self._begin_logging(log_interval, tb_log_name, reset_num_timesteps)
        self.solved, self.untold, begun_at = False, None, self.generation
        self.evaluator.start()
        callbacks.on_start(self, total)
        try:
            self._train(total, callbacks)
        finally:
            callbacks.on_end(self)
        if self.solved and self.generation == begun_at:
            warnings.warn(
                f"nothing was trained: the parameters reach target_return = {self.target_return:g} already. "
                "target_return='none' goes on",
                UserWarning,
                stacklevel=2,
            )
        return self

    def _train(self, total: int, callbacks: Callback) -> None:
        """Generations until num_timesteps has reached total, the target return is confirmed, or a callback says stop."""
        going = self.num_timesteps < total
        finished = time.perf_counter()
        while going:
            judge_start(self, callbacks)
            warm_up(self)
            started, finished = finished, 0.0
            asked, batch = run_generation(self)
            evaluation = Evaluation(batch.eval_returns, batch.eval_lengths, self.eval_seeds())
            with booking(self, evaluation, callbacks) as solved, interrupts_wait():  # as a whole or not at all
                update = None if solved else self._tell(batch, evaluation)
                count(self, batch, solved)
                finished = time.perf_counter()
                self.untold = make_record(self, asked, batch, evaluation, update, finished - started)
                self._note_episodes(batch, evaluation)
            going = callbacks.on_generation(self, self.untold) is not False
            self.untold = None
            self._odd.look(self, asked.generation + 1, batch)
            going = going and not self.solved and self.num_timesteps < total
        if self.num_timesteps >= total:
            judge_start(self, callbacks)

    def running_generation(self, num_pairs: int | None = None) -> Perturbations:
        """The running generation's perturbations, as many as it begins with or num_pairs; schedules run towards the budget."""
        progress_remaining = max(0.0, 1.0 - self.num_timesteps / max(self.budget, 1))
        return self.strategy.ask(progress_remaining, self.population.num_pairs if num_pairs is None else num_pairs)

    def eval_seeds(self) -> npt.NDArray[np.int64]:
        """Environment seeds of this generation's noise-free evaluation."""
        return draw_eval_seeds(self.seed, self.generation, self.settings.eval_episodes)

    def episode_settings(self) -> tuple[EpisodeSettings, EpisodeSettings]:
        """Those of training episodes, and of noise-free ones."""
        settings = self.settings
        limit = settings.max_episode_steps or step_guard(self.budget)
        training = EpisodeSettings(min(self.cap.steps, limit), settings.action_noise, settings.sample_actions)
        return training, EpisodeSettings(limit)

    def _collects_statistics(self) -> bool:
        settings = self.settings
        return settings.normalize_obs and not 0 < settings.obs_freeze_after <= self.normalizer.count

    def _tell(self, batch: Batch, evaluation: Evaluation) -> Update:
        fitness = fitness_of(batch, self.settings, self.generation + 1, self.strategy.progress_remaining)
        merged = self.normalizer.merged(batch.moments, batch.lengths.ravel()) if self._collects_statistics() else None
        theta, update = self.theta, self.strategy.tell(fitness)
        if merged is not None:
            self.normalizer.load_state(merged)
        self.cap.update(batch.lengths // self.settings.episodes_per_candidate)
        best = self.rollback.look(evaluation.mean, theta)
        if best is not None:
            self.strategy.restart(best)
        return update

    def evaluate(self, episodes: int = 20, *, first_seed: int | None = 0) -> Evaluation:
        """Noise-free episodes of the current parameters on the workers; changes nothing.

        Environment seeds are first_seed, first_seed + 1, ...; None draws seeds that no training episode of this run has.
        """
        check_int("episodes", episodes, 1)
        if first_seed is None:
            seeds = draw_eval_seeds(self.seed, 2**32 - 1 - self.generation, episodes)
        else:
            seeds = check_int("first_seed", first_seed, 0, 2**31 - 1 - episodes) + np.arange(episodes, dtype=np.int64)
        return self.evaluator.evaluate(self.theta, self.normalizer, seeds, self.episode_settings())

    def replay(self, generation: int, job: int) -> Episode:
        """Play one job of the running generation again, in this process, as an error or a warning named it.

        generation: the model's next one, generation + 1 (as errors and progress.csv count). job: a candidate's number, or
        population_size + n for its n-th noise-free evaluation episode (behind the largest population, where that is
        adaptive). Returns the mean return of the job's episodes and their total length. What the environment raises comes as
        it is, and what kills a worker kills this process.
        """
        return replay_job(self, generation, job)

    # --- acting -----------------------------------------------------------------------------------------------------

    def predict(
        self,
        observation: Any,
        state: Any = None,  # noqa: ARG002
        episode_start: Any = None,  # noqa: ARG002
        deterministic: bool = False,
    ) -> tuple[Any, None]:
        """The action for one observation, or an array of actions for a batch (n, *observation shape), and None.

        Batches of Dict and Tuple observations are dicts and tuples of such arrays, or lists of observations.
        deterministic=False acts as in training: with the settings' action noise, or sampling when sample_actions is on.
        state and episode_start are there for SB3's signature; the policies have no memory.
        """
        noise = (0.0, False) if deterministic else (self.settings.action_noise, self.settings.sample_actions)
        space = self.observation_space if self.policy_spec.flattened else None
        return self._predictor.act(self.theta, self.normalizer, observation, noise, space), None

    # --- keeping ----------------------------------------------------------------------------------------------------

    def snapshot(self) -> Checkpoint:
        """Everything a checkpoint holds, as copies."""
        return model_state(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint to path ('.zip' is added when missing): whole or not at all, the previous one stays as .bak."""
        write_checkpoint(path, self.snapshot())

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
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
        **settings: Any,
    ) -> FastES:
        """Read a checkpoint; runs no code from it. Training goes on exactly where it was saved.

        env: needed when the checkpoint cannot rebuild its own. policy: the TorchPolicy or CallablePolicy that was trained, of
        which a file holds the parameters only. settings: fields to change, such as a learning_rate that was a function. seed:
        see set_random_seed. custom_objects: SB3's; of these, only settings are taken, and not a learning rate of 0, which
        says that the model will only act. print_system_info: print the versions that the checkpoint was saved with. Raises
        CheckpointError that says what is wrong with the file.
        """
        parts = read_parts(path, env, env_kwargs, policy, {**settings_among(custom_objects or {}), **settings})
        if print_system_info:
            print(f"{path} was saved with {parts.checkpoint.data.get('versions')}, here are {versions()}")
        model = cls.__new__(cls)
        model._init_interface(tensorboard_log, device=device)
        model._set_up(parts.source, parts.spec, parts.settings, parts.seed, n_workers, verbose)
        restore_model(model, parts.checkpoint)
        model.set_random_seed(seed)
        model._look_at_statistics()
        return model

    def close(self) -> None:
        """End the workers and close the environment. The model can still predict, save, and learn again."""
        evaluator, env = getattr(self, "evaluator", None), getattr(self, "_env", None)
        self._env = None
        try:
            if evaluator is not None:
                evaluator.close()
                self._close_vec_env()
        finally:
            if env is not None:
                env.close()

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
