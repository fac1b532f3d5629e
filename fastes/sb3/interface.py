"""The names by which SB3's callbacks, helpers and scripts know an algorithm. FastES inherits them."""

from __future__ import annotations

import math
import time
import warnings
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt

from fastes.envs.closing import close_env
from fastes.envs.source import EnvArgument, make_env_source
from fastes.errors import check_int, check_seed, level_outside
from fastes.models.checkpointing import check_env_fits
from fastes.models.parameters import named_parameters, theta_with
from fastes.pools.make_pool import PoolChoice, make_pool
from fastes.pools.pool import Pool
from fastes.rollout.action_masks import METHOD, masks_are_not_used
from fastes.rollout.last_infos import LEFT_OUT, ROOM
from fastes.sb3 import logger as logging
from fastes.sb3.attributes import SB3Attributes
from fastes.sb3.episode_infos import checked_keywords, keywords_in
from fastes.sb3.event_files import check_tensorboard
from fastes.sb3.policy import Policy, check_device, device
from fastes.sb3.training_envs import as_sb3_shows, training_envs
from fastes.settings.preset_fit import tell_of_target
from fastes.system.forks import tell_of_forks
from fastes.training.evaluator import Evaluator
from fastes.training.record import Report

Env = gymnasium.Env[Any, Any]


class _Recent(NamedTuple):
    """The last training episodes, up to those of a report."""

    report: Report | None
    infos: deque[dict[str, Any]]
    successes: deque[float]


class SB3Interface(SB3Attributes):
    """What a Stable-Baselines3 algorithm has beside learn, predict, save and load.

    Attributes: ep_info_buffer, deque of {'r', 'l', 't' and the info_keywords} of the last stats_window_size training episodes
    (of candidates: with noise on the parameters); ep_success_buffer, their is_success, where infos have one; tensorboard_log;
    logger.
    """

    pool_choice: PoolChoice
    pool: Pool

    def _init_interface(
        self,
        tensorboard_log: str | None = None,
        stats_window_size: int = 100,
        device: str = "auto",
        info_keywords: Iterable[str] = (),
    ) -> None:
        check_device(device)
        if tensorboard_log is not None:
            check_tensorboard()
        self.tensorboard_log = tensorboard_log
        window = check_int("stats_window_size", stats_window_size, 1)
        self.stats_window_size = window
        self.given_keywords = checked_keywords(info_keywords)
        self._said: set[str] = set()
        self._recent = _Recent(None, deque(maxlen=window), deque(maxlen=window))
        self.log_interval: int | None = 1
        self.tb_log_name = "FastES"
        self._logger: Any = None
        self.logger_was_set = False
        self._vec_env: Any = None
        self._shown_env: tuple[Any, Any] = None, None  # what get_env had to show, and how it showed it
        self._learn_started, self._timesteps_at_start = time.monotonic(), 0
        tell_of_forks(self)

    @property
    def device(self) -> Any:
        """Where policies run: torch.device('cpu') where torch is in use, which scripts ask for its type; else 'cpu'."""
        return device()

    @property
    def learning_rate(self) -> Any:
        """The setting: a number or a schedule."""
        return self.settings.learning_rate

    @property
    def env(self) -> Any:
        """An environment of this process."""
        raise NotImplementedError

    def close(self) -> None:
        """End the workers."""
        raise NotImplementedError

    def leave_to_parent(self) -> None:
        """See forks.Owner."""
        raise NotImplementedError

    def get_parameters(self) -> dict[str, dict[str, npt.NDArray[np.float32]]]:
        """{'policy': parameter name -> array}, copies, under torch's names and in torch's orientation.

        `layers.0.weight` is (outputs, inputs), as torch.nn.Linear has it, and (filters, channels, kernel, kernel) of a
        convolution; a dense layer behind one reads its map as torch flattens it. Cells have weight_ih, weight_hh, bias_ih and
        bias_hh, as torch.nn.LSTMCell and GRUCell have them.
        """
        return {"policy": named_parameters(self.policy_spec, self.strategy.theta)}

    def set_parameters(
        self, parameters: Mapping[str, Mapping[str, npt.ArrayLike]], exact_match: bool = True, device: str = "auto"
    ) -> None:
        """Set the policy's parameters from what `get_parameters` returns: arrays, tensors or lists of torch's shapes.

        exact_match: False leaves parameters that are not named as they are. ValueError that says which names are unknown, or
        with exact_match missing, and for other shapes; TypeError for anything but dicts, a file's path among them.
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
            self.state = self.state.given(
                theta_with(self.policy_spec, self.theta, given, exact_match, ("set_parameters()", "exact_match"))
            )

    def set_obs_statistics(self, mean: npt.ArrayLike, std: npt.ArrayLike, count: int) -> None:
        """Set the statistics by which observations are normalised, (values that are observed,) each.

        count: observations that they are of: training goes on from there, and the more there are, the less it moves them.

        ValueError for other shapes, values that are not finite, a std below obs_std_floor, and with normalize_obs=False.
        """
        if not self.settings.normalize_obs:
            raise ValueError("normalize_obs is off: statistics of observations would change nothing")
        with self.alone("set_obs_statistics()"):
            self.state = self.state.given(self.theta, self.normalizer.given(mean, std, count))

    # --- environment ------------------------------------------------------------------------------------------------

    @property
    def n_envs(self) -> int:
        """Environments of the vector environment that was given, else 1."""
        return self.source.vector_env.num_envs if self.source.vector_env is not None else 1

    def get_env(self) -> Any:
        """The vector environment that was given; else what stands for all environments of the training: see TrainingEnvs.

        An SB3 VecEnv where SB3 is in use. Callbacks know it as `training_env`: its set_attr, env_method and set_options reach
        every environment that plays. Where images have their channels last, a VecEnv has SB3's VecTransposeImage around it.
        """
        if self.source.vector_env is not None:
            return self._as_sb3_shows(self.source.vector_env.env)
        if self._vec_env is None:
            self._vec_env = training_envs(self.evaluator, self.seed)
        return self._as_sb3_shows(self._vec_env)

    def _as_sb3_shows(self, env: Any) -> Any:
        """The same object each time."""
        if self._shown_env[0] is not env:
            self._shown_env = env, as_sb3_shows(env)
        return self._shown_env[1]

    def set_env(self, env: EnvArgument, force_reset: bool = True) -> None:  # noqa: ARG002
        """Train on another environment with the same spaces; CheckpointMismatch for other ones.

        The archive of the one before is forgotten. Scores stay, of the best evaluation and of starts: it may be the same one
        again, as after `load`. Begin with a new model where rewards mean something else.
        Every episode starts with a reset, so force_reset changes nothing.
        """
        with self.alone("set_env()"):
            is_own = env is not None and env is self._vec_env
            self.close()  # no environment is beside the one that is built now
            source = self.source if is_own else make_env_source(env)
            check_env_fits(source, self.policy_spec, self.settings, self.pool_choice.n_workers, stacklevel=2)
            is_driven = source.vector_env is not None  # as it is, without workers
            pool = make_pool(source, self.pool_choice._replace(n_workers=None) if is_driven else self.pool_choice)
            how = self.policy_spec, self.settings, self.strategy.table, pool, self.state.env_calls
            evaluator = Evaluator(source, *how)
            self.source, self.evaluator, self.pool, self._vec_env = source, evaluator, pool, None
            self.state = self.state.in_new_env()
            self._use_reference()
            self._check_statistics()
        tell_of_target(source, self.settings, stacklevel=2)

    def _check_statistics(self) -> None:
        """Warn of wrappers whose statistics do not fit a model that was trained before."""
        vector_env = self.source.vector_env
        if vector_env is None or not vector_env.normalizes:
            return
        if self.settings.normalize_obs:
            self._warn(f"{vector_env} normalises observations, and so does the model: they are normalised twice")
        if self.strategy.generation and vector_env.has_seen_nothing():
            self._warn(
                f"{vector_env} normalises observations by statistics that are new, and a checkpoint does not hold those of "
                "the training: load them as well, as with VecNormalize.load(path, venv)"
            )

    def _warn(self, message: str) -> None:
        warnings.warn(message, UserWarning, stacklevel=level_outside())

    def _close_vec_env(self) -> None:
        """Close what get_env has built; one that was given is its owner's."""
        vec_env, self._vec_env, self._shown_env = self._vec_env, None, (None, None)
        if hasattr(vec_env, "close"):
            close_env(vec_env, self.source.name)

    def get_vec_normalize_env(self) -> Any:
        """The VecNormalize of the VecEnv that was given, None where there is none: FastES normalises by itself then."""
        return next(iter(getattr(self.source.vector_env, "statistics", ())), None)

    @property
    def policy(self) -> Policy:
        """Its parameters and actions by the names that SB3's policies have."""
        return Policy(self)

    policy_class = Policy

    def set_random_seed(self, seed: int | None = None) -> None:
        """Draw noise and environment seeds from another seed from now on; parameters stay. None changes nothing."""
        if seed is None or seed == self.seed:
            return
        with self.alone("set_random_seed()"):
            state = self.state.reseeded(check_seed(seed))
            self.evaluator.close()
            self.state = state
            vars(self).update(seed=seed)
            self._predictor.seed(seed)
            self.evaluator.table = self.strategy.table

    # --- statistics -------------------------------------------------------------------------------------------------

    @property
    def logger(self) -> Any:
        """SB3's Logger when set_logger was called with one, else FastES's own with the same interface."""
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

    def _begin_logging(self, log_interval: int | None, tb_log_name: str, reset_num_timesteps: bool) -> None:
        self.log_interval = None if log_interval is None else check_int("log_interval", log_interval, 1)
        self.tb_log_name = tb_log_name
        self._learn_started, self._timesteps_at_start = time.monotonic(), self.num_timesteps
        if reset_num_timesteps:
            self.ep_info_buffer.clear()
            self.ep_success_buffer.clear()
        if not self.logger_was_set:
            self._logger = logging.configure_run(0, self.tensorboard_log, tb_log_name, reset_num_timesteps)

    @property
    def info_keywords(self) -> tuple[str, ...]:
        """Those that were given, and those of SB3's Monitor around the environment."""
        return tuple(dict.fromkeys((*self.given_keywords, *self.source.info_keywords, *self.source.found_keywords)))

    @property
    def ep_info_buffer(self) -> deque[dict[str, Any]]:
        """{'r', 'l', 't'} of the last training episodes, with the info_keywords that their last infos had."""
        return self._recent.infos

    @property
    def ep_success_buffer(self) -> deque[float]:
        """Their is_success, where infos have one."""
        return self._recent.successes

    def _note_episodes(self) -> None:
        """Those of a generation that is booked, once."""
        report, recent = self.state.report, self._recent
        if report is None or report is recent.report:
            return
        elapsed = round(self.elapsed, 6)
        infos, successes = recent.infos.copy(), recent.successes.copy()
        # an episode that failed has a return of NaN, and no mean would be a number while it is among the last
        keywords = self.info_keywords
        told = report.infos or [{}] * len(report.episodes)
        infos.extend(
            {"r": r, "l": length, "t": elapsed, **keywords_in(info, keywords)}
            for (r, length), info in zip(report.episodes, told, strict=True)
            if math.isfinite(r)
        )
        successes.extend(success for success in report.successes if not math.isnan(success))
        self._recent = _Recent(report, infos, successes)
        self._warn_of_infos(report)

    def _warn_of_infos(self, report: Report) -> None:
        """Once of each keyword that no info had, of infos that had no room, and of action masks."""
        if report.has_masks:
            self._warn_of_masks("info['action_mask']")
        for name in self.info_keywords:
            if report.infos and name not in self._said and not any(keywords_in(i, (name,)) for i in report.infos):
                self._said.add(name)
                known = sorted({key for info in report.infos for key in info})
                self._warn(
                    f"info_keywords has {name!r}, and no episode's last info had it as a number, a truth value or a word: they "
                    f"had {known}"
                )
        left = max((info.get(LEFT_OUT, 0) for info in report.infos), default=0)
        if left and LEFT_OUT not in self._said:
            self._said.add(LEFT_OUT)
            self._warn(
                f"{left} items of an episode's last info had no room in {ROOM} bytes: name those that you need in "
                "info_keywords, which come first"
            )

    def _warn_of_masks(self, where: str) -> None:
        """Once that action masks are not used. where: what offers them."""
        if METHOD not in self._said:
            self._said.add(METHOD)
            self._warn(masks_are_not_used(where))

    def _warn_of_mask_method(self) -> None:
        """Of environments that have the method of sb3-contrib's MaskablePPO, as far as one was seen here."""
        vector_env, seen = self.source.vector_env, self.evaluator.seen
        if (seen is not None and METHOD in seen.names) or (vector_env is not None and vector_env.has_method(METHOD)):
            self._warn_of_masks(f"{METHOD}()")

    def dump_logs(self, iteration: int = 0) -> None:
        """Write what SB3's algorithms write each iteration, and whatever else was recorded."""
        logger, steps = self.logger, self.num_timesteps - self._timesteps_at_start
        if iteration:
            logger.record("time/iterations", iteration, exclude="tensorboard")
        if self.ep_info_buffer:
            returns = [info["r"] for info in self.ep_info_buffer]
            logger.record("rollout/ep_rew_mean", sum(returns) / len(returns))
            logger.record("rollout/ep_len_mean", sum(info["l"] for info in self.ep_info_buffer) / len(self.ep_info_buffer))
        if self.ep_success_buffer:
            logger.record("rollout/success_rate", sum(self.ep_success_buffer) / len(self.ep_success_buffer))
        logger.record("time/fps", int(steps / max(self.elapsed, 1e-9)))
        logger.record("time/time_elapsed", int(self.elapsed), exclude="tensorboard")
        logger.record("time/total_timesteps", self.num_timesteps, exclude="tensorboard")
        logger.dump(step=self.num_timesteps)

    def _dump_logs(self, *arguments: Any) -> None:
        """SB3's older name."""
        warnings.warn("model._dump_logs() is deprecated, as in SB3: use model.dump_logs()", UserWarning, stacklevel=2)
        self.dump_logs(*arguments)
