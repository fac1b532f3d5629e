"""FastES: the agent with the names that Stable-Baselines3's callbacks, tools and scripts use."""

from __future__ import annotations

import difflib
import math
import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import IO, TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import gymnasium
import numpy as np
import numpy.typing as npt

from fastes.agent import Agent, CallbackArgument
from fastes.checkpoints.file_format import Checkpoint
from fastes.envs.closing import close_env
from fastes.envs.source import EnvArgument, EnvSource
from fastes.errors import check_int, check_name, shown, suggest, warn_user
from fastes.es.schedules import make_schedule
from fastes.models.checkpointing import print_versions, read_parts, versions, was_normalized
from fastes.models.model_copy import Copied
from fastes.models.parameters import named_parameters, theta_with
from fastes.policies.custom_policy import CustomPolicy
from fastes.policies.policy_keywords import POLICIES
from fastes.pools.pool import PoolChoice
from fastes.reports.callbacks import Callback, as_callbacks
from fastes.reports.event_files import check_tensorboard
from fastes.reports.logged_names import LOGGED
from fastes.reports.monitor_files import checked_keywords, keywords_in
from fastes.reports.trackers.by_name import reporter_named
from fastes.rollout.last_infos import LEFT_OUT, ROOM
from fastes.sb3 import logger as logging
from fastes.sb3.callbacks import step_callback
from fastes.sb3.policy import Policy, check_device, device
from fastes.sb3.saved_attributes import ATTRIBUTES, attributes_of, check_saved_names, set_attributes
from fastes.sb3.training_envs import TrainingEnvs, as_sb3_shows, training_envs_kind
from fastes.settings.foreign_names import ANSWERS
from fastes.settings.keywords import ChangedSettings, SettingsDict, Unpack
from fastes.settings.recipes import AUTO
from fastes.settings.settings import setting_names
from fastes.system.forks import never_finalise
from fastes.training.record import Record, Report
from fastes.training.selection import Selection

_MASKS = "action_masks"  # the method that sb3-contrib's MaskablePPO calls
_NO_BUFFER = "ES keeps no transitions, only returns"
_NO_CRITIC = "ES trains one network and no critic: model.policy has its parameters"
_INTERNAL = "it is inside SB3's algorithms: subclass fastes.Callback, or write the loop with fastes.EvolutionStrategy"
_ABSENT = {
    **dict.fromkeys(("replay_buffer", "rollout_buffer", "save_replay_buffer", "load_replay_buffer"), _NO_BUFFER),
    **dict.fromkeys(("actor", "critic", "critic_target", "q_net", "q_net_target", "log_ent_coef"), _NO_CRITIC),
    **dict.fromkeys(("train", "collect_rollouts", "_setup_model", "_setup_learn", "_store_transition"), _INTERNAL),
    "action_noise": "SB3's is an object with a state; here it is the number model.settings.action_noise",
    "exploration_rate": "candidates explore by the noise on their parameters: model.settings.sigma",
}


_TYPO = 0.8  # difflib's likeness of a short name with one wrong letter

_Model = TypeVar("_Model", bound="FastES")


class _Noted(NamedTuple):
    """A generation's training episodes, and the seconds from the start of `learn` to their end."""

    report: Report
    elapsed: float


class _Recent(NamedTuple):
    """The last training episodes.

    Attributes:
        last: The report that was noted last, also by an earlier `learn`.
        noted: As many of the last reports as fill the buffers, the oldest first.
    """

    last: Report | None = None
    noted: tuple[_Noted, ...] = ()


class _Buffers(NamedTuple):
    """SB3's buffers of episodes, and the reports that they were filled from."""

    noted: tuple[_Noted, ...]
    infos: deque[dict[str, Any]]
    successes: deque[float]


class FastES(Agent):
    """Evolution Strategies for a Gymnasium environment, on every core.

    >>> from fastes import FastES
    >>> with FastES("CartPole-v1", seed=0) as model:
    ...     model.learn(total_timesteps=20_000).num_timesteps >= 20_000 or model.solved
    True

    Args:
        env: An environment id, an EnvSpec, an Env (rebuilt from its spec, or copied), a function of no arguments or of the
            worker's index that returns an Env, or a vector environment (SB3's VecEnv, gymnasium.vector), which is used itself.
        policy: 'MlpPolicy', 'LinearPolicy', 'CnnPolicy', 'MultiInputPolicy', 'MlpLstmPolicy', 'CnnLstmPolicy',
            'MultiInputLstmPolicy', a TorchPolicy or a CallablePolicy; None for the policy of the settings. SB3's order,
            FastES(policy, env), works, too, and either can be named.
        learning_rate: The setting of that name, at SB3's position.
        preset: 'auto' for the environment's tuned settings, or a race of recipes if it has none, which the best one wins; None
            for one plain recipe; or the name or TOML file of the settings to start from.
        n_workers: Processes; None for one per usable core, 0 for none. A vector environment takes none.
        cluster: 'auto', 'host:port' or 'ray://host:port' of a Ray cluster, whose nodes play instead of processes here.
        seed: int >= 0; None draws one.
        env_kwargs: Arguments for gymnasium.make.
        verbose: 1 prints a row of statistics about once per second, 2 one per generation.
        tensorboard_log: Folder for TensorBoard; None for no such log.
        stats_window_size: Number of training episodes that ep_info_buffer keeps.
        device: 'auto' or 'cpu', which are the same.
        info_keywords: Keys of infos that ep_info_buffer and Monitor files get from each episode's last step, in addition to
            those of an SB3 Monitor around env.
        settings: Any field of fastes.settings.settings.Settings, such as population_size, sigma, learning_rate.

    Training depends only on seed, settings, environment and library versions, not on n_workers or cluster.

    Attributes:
        ep_info_buffer: deque of {'r', 'l', 't' and the info_keywords} of the last stats_window_size training episodes (of
            candidates: with noise on the parameters).
        ep_success_buffer: Their is_success, if infos have one.

    Raises:
        ValueError: For arguments that cannot work, before any process starts; TypeError likewise.
        OSError: For a model, or in learn a generation, that needs more memory than there is.
        ImportError: For a cluster without Ray.
        ClusterError: In learn, if a cluster does not answer or has lost all nodes.
    """

    use_sde = False
    sde_sample_freq = -1
    policy_class = Policy
    _last_obs = None  # every episode begins with a reset: nothing is kept from the one before
    _last_original_obs = None
    _last_episode_starts = None
    tensorboard_log: str | None
    stats_window_size: int
    log_interval: int | None
    tb_log_name: str
    logger_was_set: bool
    _said: set[str]
    _logger: Any
    _vec_env: Any
    _shown_env: tuple[Any, Any]  # the environment of get_env, and what as_sb3_shows made of it
    _learn_started: float
    _timesteps_at_start: int
    _recent: _Recent
    _shown: _Buffers

    def __init__(
        self,
        env_or_policy: EnvArgument | CustomPolicy | None = None,
        policy_or_env: str | CustomPolicy | EnvArgument | None = None,
        /,
        learning_rate: Any = None,
        *,
        env: EnvArgument | None = None,
        policy: str | CustomPolicy | None = None,
        preset: str | os.PathLike[str] | None = AUTO,
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
        given, wanted = env_and_policy(env_or_policy, policy_or_env, env, policy)
        _check_tensorboard_log(tensorboard_log)
        check_device(device)
        window = check_int("stats_window_size", stats_window_size, 1)
        if learning_rate is not None:
            settings["learning_rate"] = learning_rate  # type: ignore[typeddict-unknown-key]
        super().__init__(
            given,
            wanted,
            preset=preset,
            n_workers=n_workers,
            cluster=cluster,
            seed=seed,
            env_kwargs=env_kwargs,
            verbose=verbose,
            info_keywords=info_keywords,
            **settings,
        )
        self._log_to(tensorboard_log, window)

    def _set_up(
        self, source: EnvSource, selection: Selection, choice: PoolChoice, verbose: int, keywords: tuple[str, ...]
    ) -> None:
        super()._set_up(source, selection, choice, verbose, keywords)
        self._said = set()
        self.log_interval = 1
        self.tb_log_name = "FastES"
        self._logger = None
        self.logger_was_set = False
        self._vec_env = None
        self._shown_env = None, None
        self._learn_started, self._timesteps_at_start = time.monotonic(), 0
        vars(self).update(settings=self.settings, seed=self.seed)  # W&B lists vars(model); the properties come first
        self._log_to(None, 100)

    def _log_to(self, tensorboard_log: str | None, window: int) -> None:
        self.tensorboard_log, self.stats_window_size = tensorboard_log, window
        self._recent, self._shown = _Recent(), _Buffers((), deque(maxlen=window), deque(maxlen=window))

    @property
    def num_timesteps(self) -> int:
        """Environment steps of candidates, of all trials. It can be set, as in SB3."""
        return self.selection.num_timesteps

    @num_timesteps.setter
    def num_timesteps(self, value: int) -> None:
        with self.alone("setting num_timesteps"):
            self.trainer.replace_selection(self.selection.with_num_timesteps(check_int("num_timesteps", value, 0)))

    @property
    def device(self) -> Any:
        """torch.device('cpu') if torch is imported, because scripts ask for its type, else 'cpu'."""
        return device()

    # --- learning ---------------------------------------------------------------------------------------------------

    def learn(  # SB3's order of arguments
        self,
        total_timesteps: float | None = None,
        callback: CallbackArgument = None,
        log_interval: int | None = 1,
        tb_log_name: str = "FastES",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
        *,
        max_minutes: float | None = None,
        **removed: NoReturn,
    ) -> FastES:
        """Train until the target return is confirmed, the budget or the time is spent, or a callback says stop.

        If several trials or recipes are left then, the model shows the one with the best recent evaluations.

        Args:
            total_timesteps: Environment steps of candidates; None for settings.total_timesteps.
            callback: A Callback (fastes.reports.callbacks) or one of SB3's, a function of (model, record), the name of a
                reporter ('tensorboard', 'wandb', 'trackio'), or a list of these.
            log_interval: Generations between writes to the logger; None for none.
            tb_log_name: Name of the run in tensorboard_log.
            reset_num_timesteps: False continues counting: total_timesteps are added, and 0 only chooses among the trials that
                are left.
            progress_bar: Show a progress bar, in a notebook with Matplotlib also the learning curve.
            max_minutes: End after the generation that runs then, at least one; None for no limit. Schedules still follow
                total_timesteps, so that the training is a prefix of the longer one: `learn` with reset_num_timesteps=False
                continues it bit for bit. model.out_of_time is then True, and the model keeps its last parameters. Within
                `with model.as_judged():` it has those that the end of a budget would choose (`trials`, `archive_size`). That
                choice takes time of its own: about 350 episodes for an archive of 8.

        Raises:
            WorkerError: For an exception in an environment. After any exception, including Ctrl-C, the model is as it was after
                its last complete generation: it can be saved, and learn continues from there.
        """
        check_name("tb_log_name", tb_log_name)
        interval = None if log_interval is None else check_int("log_interval", log_interval, 1)
        with self.alone("learn()"):
            self.log_interval, self.tb_log_name = interval, tb_log_name
            return super().learn(
                total_timesteps,
                callback,
                reset_num_timesteps=reset_num_timesteps,
                progress_bar=progress_bar,
                max_minutes=max_minutes,
                **removed,
            )

    def _as_callbacks(self, callback: Any, is_new: bool) -> list[Callback]:
        given = as_callbacks(callback, lambda each: reporter_named(each) or step_callback(each))
        return [_Session(is_new), *given, _Rows()]

    def begin_logging(self, is_new: bool) -> None:
        """Start the clock and the logger of a call of `learn`.

        Args:
            is_new: Whether the buffers of episodes are emptied and the logger begins a new run.
        """
        self._learn_started, self._timesteps_at_start = time.monotonic(), self.num_timesteps
        if is_new:
            self._recent = _Recent(self._recent.last)
        if not self.logger_was_set:
            self._logger = logging.configure_run(0, self.tensorboard_log, self.tb_log_name, is_new)
        self._warn_of_mask_method()

    # --- parameters -------------------------------------------------------------------------------------------------

    def get_parameters(self) -> dict[str, dict[str, npt.NDArray[np.float32]]]:
        """Return {'policy': {name: array}}, copies under torch's names and in torch's orientation.

        `layers.0.weight` is (outputs, inputs), as in torch.nn.Linear, or (filters, channels, kernel, kernel) for a
        convolution; a dense layer after one reads its map in torch's order. Cells have weight_ih, weight_hh, bias_ih and
        bias_hh, as torch.nn.LSTMCell and GRUCell.
        """
        return {"policy": named_parameters(self.policy_spec, self.strategy.theta)}

    def set_parameters(
        self, parameters: Mapping[str, Mapping[str, npt.ArrayLike]], exact_match: bool = True, device: str = "auto"
    ) -> None:
        """Set the policy's parameters.

        Args:
            parameters: As `get_parameters` returns them: arrays, tensors or lists of torch's shapes.
            exact_match: False keeps the parameters that are not named.
            device: 'auto' or 'cpu'.

        Raises:
            ValueError: For unknown names, for other shapes and, with exact_match, for missing names.
            TypeError: For anything but dicts, such as a file's path.
        """
        check_device(device)
        given = parameters.get("policy", {}) if isinstance(parameters, Mapping) else parameters
        if not isinstance(given, Mapping):
            raise TypeError(
                f"set_parameters() got {given!r:.100}, a {type(given).__name__}: expected {{'policy': {{name: array}}}} as "
                "get_parameters() returns it; those of a file are FastES.load(path).get_parameters()"
            )
        if odd := sorted(set(parameters) - {"policy"}):
            raise ValueError(
                f"set_parameters() got {odd}: expected {{'policy': {{name: array}}}}, there is no other network "
                "(fastes.import_policy takes models of SB3)"
            )
        with self.alone("set_parameters()"):
            self.set_theta(theta_with(self.policy_spec, self.theta, given, exact_match, ("set_parameters()", "exact_match")))

    @property
    def policy(self) -> Policy:
        """Parameters and actions under the names of SB3's policies."""
        return Policy(self)

    @property
    def policy_kwargs(self) -> dict[str, Any]:
        """A copy of the setting."""
        return dict(self.settings.policy_kwargs)

    @property
    def learning_rate(self) -> Any:
        """The setting, a number or a schedule."""
        return self.settings.learning_rate

    @property
    def lr_schedule(self) -> Callable[[float], float]:
        """The learning rate as a function of the remaining progress, from 1 to 0."""
        return make_schedule("learning_rate", self.settings.learning_rate)

    def set_random_seed(self, seed: int | None = None) -> None:
        """Draw noise and environment seeds from another seed. Parameters stay. None changes nothing."""
        if seed is not None and seed != self.seed:
            self.use_seed(seed)

    def use_seed(self, seed: int) -> None:
        super().use_seed(seed)
        vars(self).update(seed=self.seed)

    # --- environment ------------------------------------------------------------------------------------------------

    @property
    def n_envs(self) -> int:
        """Number of environments of the vector environment that was given, else 1."""
        return self.source.vector_env.num_envs if self.source.vector_env is not None else 1

    def get_env(self) -> Any:
        """Return the vector environment that was given, or a TrainingEnvs, which stands for all environments of the training.

        It is an SB3 VecEnv if SB3 was imported before the call. Callbacks know it as `training_env`. Its set_attr, env_method
        and set_options reach every environment that plays. A VecEnv of images with channels last is wrapped in SB3's
        VecTransposeImage.
        """
        if self.source.vector_env is not None:
            return self._as_sb3_shows(self.source.vector_env.env)
        kind = training_envs_kind()
        if not isinstance(self._vec_env, kind):  # none yet, or one from before SB3 was imported
            self._vec_env = kind(self.evaluator, self.seed)
        return self._as_sb3_shows(self._vec_env)

    def _as_sb3_shows(self, env: Any) -> Any:
        """Wrap an environment as SB3 does, in the same object each time."""
        if self._shown_env[0] is not env:
            self._shown_env = env, as_sb3_shows(env)
        return self._shown_env[1]

    def set_env(self, env: EnvArgument, force_reset: bool = True) -> None:  # noqa: ARG002
        """Train on another environment with the same spaces; CheckpointMismatch if they differ.

        The archive is emptied. The best evaluation and the trials' scores stay. Make a new model if rewards mean something
        else.

        Args:
            env: See FastES.
            force_reset: No effect: every episode begins with a reset.
        """
        is_shown = env is self._shown_env[1] and self._shown_env[0] is self._vec_env  # with a wrapper around it
        is_own = env is not None and (is_shown or (isinstance(env, TrainingEnvs) and env.stands_for(self.evaluator)))
        was_normalized = self.source.normalizes_obs
        with self.alone("set_env()"):
            self.use_env(self.source if is_own else env)
            self._vec_env = None
            self._check_statistics(was_normalized)

    def _check_statistics(self, was_normalized: bool) -> None:
        """Warn of wrappers whose statistics do not fit a trained model.

        Args:
            was_normalized: Whether a wrapper around the environments before normalised observations.
        """
        vector_env = self.source.vector_env
        if vector_env is None or not vector_env.normalizes:
            if was_normalized and self.strategy.generation and not self._env_normalizes_itself():
                self._warn(
                    "the policy was trained on observations that a wrapper around its environments had normalised, and "
                    f"{self.source.name} has them as they are: pass a vector environment with the wrapper and its statistics, "
                    "as VecNormalize.load(path, venv) makes it"
                )
            return
        if self.settings.normalize_obs:
            self._warn(f"{vector_env} normalises observations, and so does the model: they are normalised twice")
        if self.strategy.generation and vector_env.has_seen_nothing():
            self._warn(
                f"{vector_env} normalises observations by statistics that are new, and a checkpoint does not hold those of "
                "the training: load them as well, as with VecNormalize.load(path, venv)"
            )

    def _env_normalizes_itself(self) -> bool:
        """Whether a wrapper around each environment, and not around all, normalises observations."""
        vector_env = self.source.vector_env
        kinds = self.evaluator.look().kinds if vector_env is None else vector_env.wrapped_in
        each = [{kind} if isinstance(kind, str) else {base.__name__ for base in kind.__mro__} for kind in kinds]
        return any("NormalizeObservation" in names for names in each)

    def _warn(self, message: str) -> None:
        warn_user(message, UserWarning)

    def get_vec_normalize_env(self) -> Any:
        """Return the VecNormalize of the VecEnv that was given, or None: then FastES normalises."""
        return next(iter(getattr(self.source.vector_env, "statistics", ())), None)

    def close(self) -> None:
        """End the workers and close the environments. The model can still predict, save, and learn again."""
        vec_env, self._vec_env, self._shown_env = self.__dict__.get("_vec_env"), None, (None, None)
        try:
            super().close()
        finally:
            if hasattr(vec_env, "close"):
                close_env(vec_env, self.source.name)

    def reset_after_fork(self) -> None:
        super().reset_after_fork()
        never_finalise(self.__dict__.get("_vec_env"))
        self._vec_env, self._shown_env = None, (None, None)

    # --- keeping ----------------------------------------------------------------------------------------------------

    def snapshot(self, exclude: Collection[str] = (), include: Collection[str] = ()) -> Checkpoint:
        """Return the content of a checkpoint, as copies. exclude, include: see `save`."""
        checkpoint = super().snapshot()
        if attributes := attributes_of(self, exclude, include):
            checkpoint.data[ATTRIBUTES] = attributes
        return checkpoint

    def save(
        self,
        path: str | os.PathLike[str] | IO[bytes],
        exclude: Iterable[str] | None = None,
        include: Iterable[str] | None = None,
    ) -> None:
        """Write a checkpoint, completely or not at all. The previous file stays as .bak.

        Args:
            path: The file, to which '.zip' is added if it is missing, or a binary file that is open for writing, such as
                io.BytesIO().
            exclude: Names of attributes that you have set on the model and that are not saved. Other attributes are, as in SB3,
                if they are numbers, strings, None, or lists and dicts of these, and `load` sets them again.
            include: Names of attributes to save that begin with an underscore.

        Raises:
            ValueError: If a part of the training is excluded, or something included that a checkpoint cannot hold.
            TypeError: If an included attribute has another type; for other attributes that is a warning.
        """
        self._write(path, self.snapshot(*check_saved_names(exclude, include)))

    @classmethod
    def load(
        cls: type[_Model],
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
    ) -> _Model:
        """Read a checkpoint, without running code from it. Training continues exactly from where it was saved.

        Args:
            path: A checkpoint, a run folder, or an open binary file. A run folder means its best.zip, as for `fastes eval`; to
                continue training, load its checkpoint.zip.
            env: The environment; needed if the checkpoint cannot rebuild it.
            n_workers, verbose, tensorboard_log, device, cluster, info_keywords: See FastES.
            policy: The TorchPolicy or CallablePolicy that was trained; a file holds only its parameters.
            env_kwargs: Arguments for gymnasium.make; only with env.
            seed: See set_random_seed.
            custom_objects: Replacements by name, as in SB3: settings, seed, and attributes that were set on the model. Other
                names have no effect, nor has a learning rate of 0, with which SB3 marks a model that only acts.
            print_system_info: Print the versions here, and those that the checkpoint was saved with.
            force_reset: No effect: every episode begins with a reset.
            settings: Settings to change, such as a learning_rate that was a function.

        Raises:
            CheckpointError: If the file does not fit, with the reason.
        """
        replaced = _checked_objects(custom_objects)
        _check_tensorboard_log(tensorboard_log)
        check_device(device)
        if print_system_info:
            print_versions("CURRENT SYSTEM INFO", versions(torch=True))
        changes: dict[str, Any] = {**_settings_among(replaced), **settings}
        parts = read_parts(path, env, n_workers, env_kwargs, policy, dict(changes))
        if print_system_info:
            print_versions("SAVED MODEL SYSTEM INFO", parts.checkpoint.data.get("versions"))
        model = cls.from_parts(parts, PoolChoice(n_workers, cluster), verbose, checked_keywords(info_keywords))
        model._log_to(tensorboard_log, 100)
        set_attributes(model, parts.checkpoint, replaced)
        model._finish_loading(replaced.get("seed") if seed is None else seed, changes, env is not None)
        model._check_statistics(env is not None and was_normalized(parts.checkpoint))
        return model

    @classmethod
    def from_copied(cls: type[_Model], copied: Copied) -> _Model:
        model = super().from_copied(copied)
        model._log_to(*copied.extras)
        set_attributes(model, copied.checkpoint, {})
        return model

    def _copied(self) -> Copied:
        return super()._copied()._replace(extras=(self.tensorboard_log, self.stats_window_size))

    def with_seed(self: _Model, seed: int) -> _Model:
        model = super().with_seed(seed)
        model._log_to(self.tensorboard_log, self.stats_window_size)
        return model

    # --- statistics -------------------------------------------------------------------------------------------------

    @property
    def logger(self) -> Any:
        """The logger that was set, or FastES's own, which has the interface of SB3's."""
        if self._logger is None:
            self._logger = logging.configure_run(self.verbose, self.tensorboard_log, self.tb_log_name, True)
        return self._logger

    def set_logger(self, logger: Any) -> None:
        """Use a logger of SB3 (stable_baselines3.common.logger.configure) or of fastes.sb3.logger.configure."""
        self._logger, self.logger_was_set = logger, True

    @property
    def elapsed(self) -> float:
        """Seconds since `learn` was called."""
        return time.monotonic() - self._learn_started

    @property
    def start_time(self) -> int:
        """Time at which `learn` was called, in nanoseconds since 1970."""
        return time.time_ns() - int(1e9 * self.elapsed)

    @property
    def ep_info_buffer(self) -> deque[dict[str, Any]]:
        """{'r', 'l', 't'} of the last training episodes, with the info_keywords that their last infos had."""
        return self._buffers().infos

    @property
    def ep_success_buffer(self) -> deque[float]:
        """Their is_success, if infos have one."""
        return self._buffers().successes

    def _buffers(self) -> _Buffers:
        """Return the buffers, which are filled when they are read for the first time after a generation."""
        noted, window = self._recent.noted, self.stats_window_size
        if noted is not self._shown.noted:
            infos, successes = deque[dict[str, Any]](maxlen=window), deque[float](maxlen=window)
            for report, elapsed in noted:
                episodes = [{"r": r, "l": length, "t": elapsed} for r, length in report.episodes]
                for episode, info in zip(episodes, report.infos, strict=False):  # there are none if nobody reads them
                    episode.update(keywords_in(info, self.info_keywords))
                infos.extend(each for each in episodes if math.isfinite(each["r"]))  # that of a failed one would make means NaN
                successes.extend(success for success in report.successes if not math.isnan(success))
            self._shown = _Buffers(noted, infos, successes)
        return self._shown

    def note_episodes(self) -> None:
        """Note the episodes of the last committed generation for the buffers, once."""
        report, (last, noted) = self.training.report, self._recent
        if report is None or report is last:
            return
        noted = (*noted, _Noted(report, round(self.elapsed, 6)))
        while sum(each.report.num_finite for each in noted[1:]) >= self.stats_window_size:
            noted = noted[1:]
        self._recent = _Recent(report, noted)
        if report.has_masks:
            self._warn_of_masks("info['action_mask']")
        if report.infos_of_candidates:
            self._warn_of_infos(report)

    def _warn_of_infos(self, report: Report) -> None:
        """Warn once of each keyword that no info had, and of infos that were too long."""
        infos = report.infos
        for name in self.info_keywords:
            if name not in self._said and not any(keywords_in(info, (name,)) for info in infos):
                self._said.add(name)
                known = sorted({key for info in infos for key in info})
                self._warn(
                    f"info_keywords has {name!r}, and no episode's last info had it as a number, a truth value or a word: they "
                    f"had {known}"
                )
        left = max((info.get(LEFT_OUT, 0) for info in infos), default=0)
        if left and LEFT_OUT not in self._said:
            self._said.add(LEFT_OUT)
            self._warn(
                f"{left} items of an episode's last info had no room in {ROOM} bytes: name those that you need in "
                "info_keywords, which come first"
            )

    def _warn_of_masks(self, where: str) -> None:
        """Warn once that action masks are not used. where: what offers them."""
        if _MASKS not in self._said:
            self._said.add(_MASKS)
            self._warn(
                f"the environment offers action masks ({where}), and FastES uses none: candidates choose among all actions. If "
                "step() takes any of them, as Taxi's does, that is fine; if not, let it do nothing, or end the episode, for "
                "one that is not allowed, or show the mask in a Dict observation to a CallablePolicy"
            )

    def _warn_of_mask_method(self) -> None:
        """Warn of environments with the method that sb3-contrib's MaskablePPO asks for masks, if one was seen here."""
        vector_env, seen = self.source.vector_env, self.evaluator.seen
        if (seen is not None and _MASKS in seen.names) or (vector_env is not None and vector_env.has_method(_MASKS)):
            self._warn_of_masks(f"{_MASKS}()")

    def dump_logs(self, iteration: int = 0) -> None:
        """Write the values that SB3's algorithms write at each iteration, and all others that were recorded."""
        logger, steps = self.logger, self.num_timesteps - self._timesteps_at_start
        if iteration:
            logger.record("time/iterations", iteration, exclude="tensorboard")
        infos, successes = self.ep_info_buffer, self.ep_success_buffer
        if infos:
            logger.record("rollout/ep_rew_mean", sum(info["r"] for info in infos) / len(infos))
            logger.record("rollout/ep_len_mean", sum(info["l"] for info in infos) / len(infos))
        if successes:
            logger.record("rollout/success_rate", sum(successes) / len(successes))
        logger.record("time/fps", int(steps / max(self.elapsed, 1e-9)))
        logger.record("time/time_elapsed", int(self.elapsed), exclude="tensorboard")
        logger.record("time/total_timesteps", self.num_timesteps, exclude="tensorboard")
        logger.dump(step=self.num_timesteps)

    def _dump_logs(self, *arguments: Any) -> None:
        """SB3's older name."""
        warn_user("model._dump_logs() is deprecated, as in SB3: use model.dump_logs()", UserWarning)
        self.dump_logs(*arguments)

    # --- SB3's private names, which its callbacks read --------------------------------------------------------------

    _total_timesteps = property(lambda self: self.budget)
    _num_timesteps_at_start = property(lambda self: self._timesteps_at_start)
    _current_progress_remaining = property(lambda self: max(0.0, 1.0 - self.num_timesteps / max(self.budget, 1)))
    _episode_num = property(lambda self: self.num_episodes)
    _n_updates = property(lambda self: self.generation)
    _stats_window_size = property(lambda self: self.stats_window_size)
    _custom_logger = property(lambda self: self.logger_was_set)
    _vec_normalize_env = property(lambda self: self.get_vec_normalize_env())

    def __setattr__(self, name: str, value: Any) -> None:
        if name in setting_names() and type(self).__module__.startswith("fastes."):  # a class of the user's may have its own
            raise AttributeError(
                f"{name} = {shown(value)} was set on a model, whose settings are fixed: make it by FastES(env, {name}=...), or "
                f"continue with it by FastES.load(path, {name}=...)"
            )
        super().__setattr__(name, value)

    if not TYPE_CHECKING:  # otherwise a type checker would accept any name

        def __getattr__(self, name: str) -> Any:
            if (reason := _reason(name)) is not None:
                raise AttributeError(f"{type(self).__name__} has no attribute {name!r}: {reason}")
            return object.__getattribute__(self, name)  # the original error, which may be a property's


class _Session(Callback):
    """One call of `learn`: fills the buffers of episodes before other callbacks read them.

    Args:
        is_new: Whether buffers and logger are reset.
    """

    def __init__(self, is_new: bool) -> None:
        self._is_new = is_new

    def on_start(self, model: FastES, total_timesteps: int) -> None:  # noqa: ARG002
        model.begin_logging(self._is_new)

    def on_generation(self, model: FastES, record: Record) -> None:  # noqa: ARG002
        model.note_episodes()

    def on_end(self, model: FastES) -> None:
        model.note_episodes()


class _Rows(Callback):
    """The logger's rows in one call of `learn`, after the callbacks that record values of their own for them."""

    def __init__(self) -> None:
        self._iterations = 0
        self._evaluated: Record | None = None  # the last record with an evaluation
        self._seen: Record | None = None

    def on_generation(self, model: FastES, record: Record) -> None:
        self._iterations, self._seen = self._iterations + 1, record
        if record.eval_generation:
            self._evaluated = record
        is_due = model.log_interval and self._iterations % model.log_interval == 0
        if is_due and (model.logger_was_set or model.logger.output_formats):
            self._log(model, record)

    def _log(self, model: FastES, record: Record) -> None:
        for key, field in LOGGED.items():
            source = self._evaluated if field.startswith("eval_") else record
            if source is not None:
                model.logger.record(key, getattr(source, field))
        if model.settings.episode_cap != "none":
            model.logger.record("es/episodes_cut", record.episodes_cut)
        if model.settings.trials > 1:
            model.logger.record("es/trial", record.trial)
        model.dump_logs(self._iterations)

    def on_end(self, model: FastES) -> None:
        if model.unreported_record is not None and model.unreported_record is not self._seen:
            self.on_generation(model, model.unreported_record)  # an exception in an earlier callback came first


def env_and_policy(first: Any, second: Any, env: Any = None, policy: Any = None) -> tuple[Any, Any]:
    """Return the environment and the policy (or None).

    Args:
        first, second: The two in either order, or the one that is not named.
        env, policy: The named ones.

    Raises:
        TypeError: Something is there twice.
    """
    by_place = [each for each in (first, second) if each is not None]
    torch = sys.modules.get("torch")
    if torch is not None and (modules := [each for each in (*by_place, env, policy) if isinstance(each, torch.nn.Module)]):
        name = type(modules[0]).__name__
        raise TypeError(f"a {name} is a torch module: wrap it, as in FastES(env, TorchPolicy(module))")
    if env is None and policy is None:
        env, policy, by_place = first, second, []
    elif policy is None and by_place:
        policy = by_place.pop(0)
    elif env is None and by_place:
        env = by_place.pop(0)
    if by_place:
        raise TypeError(f"FastES got {shown(by_place[0])} in addition to an environment and a policy: use FastES(env, policy)")
    if isinstance(env, CustomPolicy) or (isinstance(env, str) and _means_policy(env)):
        if policy is None:
            hint = suggest(env, POLICIES) if isinstance(env, str) and env not in POLICIES else ""
            raise TypeError(f"FastES({env!r}) names a policy but no environment: use FastES(env) or FastES({env!r}, env){hint}")
        env, policy = policy, env
    return env, policy


def _means_policy(name: str) -> bool:
    """Return whether a name is a policy's, or so similar to one that no environment is meant."""
    if name.endswith("Policy"):
        return True
    known = [policy.casefold() for policy in POLICIES]
    close = difflib.get_close_matches(name.casefold(), known, n=1, cutoff=_TYPO)
    return bool(close) and name not in gymnasium.registry and not re.search(r"[:/]|-v\d+$", name)


def _check_tensorboard_log(tensorboard_log: object) -> None:
    if not isinstance(tensorboard_log, (str, os.PathLike, type(None))):
        raise TypeError(
            f"tensorboard_log = {tensorboard_log!r:.200} is a {type(tensorboard_log).__name__}: expected a path, or None"
        )
    if tensorboard_log is not None:
        check_tensorboard()


def _checked_objects(custom_objects: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return SB3's custom_objects as a dict; TypeError for anything but a mapping of names."""
    if custom_objects is None:
        return {}
    if not isinstance(custom_objects, Mapping) or any(not isinstance(name, str) for name in custom_objects):
        raise TypeError(f"custom_objects = {custom_objects!r:.100}: expected a dict by name, as in {{'learning_rate': 0.01}}")
    return dict(custom_objects)


def _settings_among(custom_objects: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings among SB3's custom_objects, without a learning rate of 0, which marks a model that only acts."""
    found = {key: value for key, value in custom_objects.items() if key in setting_names()}
    if found.get("learning_rate") == 0.0:
        del found["learning_rate"]
    return found


def _reason(name: str) -> str | None:
    """Return why a model lacks an attribute of SB3's models; None for any other name."""
    if name in setting_names() and name not in _ABSENT:
        return f"it is a setting, model.settings.{name}"
    return _ABSENT.get(name, ANSWERS.get(name, "").removesuffix(": leave it out") or None)
