"""A model as what is beside its loop knows it: callbacks, run folders, playback. FastES is one."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fastes.checkpoints.file_format import Checkpoint
from fastes.checkpoints.writer import write_checkpoint, write_into
from fastes.envs.source import EnvSource
from fastes.es.strategy import EvolutionStrategy
from fastes.models.checkpointing import checkpoint_of, warn_of_functions
from fastes.models.from_config import FromConfig
from fastes.models.one_thread import OneThread
from fastes.models.saved_names import check_saved_names
from fastes.models.user_attributes import ATTRIBUTES, attributes_of
from fastes.policies.choose_policy import AnySpec
from fastes.policies.layers.recurrent_state import State
from fastes.pools.pool import Pool
from fastes.rollout.job import StepsPlayed
from fastes.rollout.obs_normalizer import ObsNormalizer
from fastes.rollout.predictor import Predictor
from fastes.settings.preset_fit import registered_target
from fastes.settings.settings import Settings
from fastes.training.archive.snapshots import Archive
from fastes.training.episode_cap import EpisodeCap
from fastes.training.evaluation import Evaluation, Pending
from fastes.training.evaluator import Evaluator
from fastes.training.population import Population
from fastes.training.record import Record
from fastes.training.starts.starts import Starts
from fastes.training.state import TrainingState


def _counter(name: str) -> Any:
    """A counter of the state; one that is set is set in a new state."""

    def get(model: Model) -> Any:
        return getattr(model.state.counters, name)

    def put(model: Model, value: Any) -> None:
        with model.alone(f"setting {name}"):
            model.state = model.state.counting(**{name: value})

    return property(get, put)


class Model(FromConfig):
    """A training's state, with its parts as attributes, and what trains it.

    Attributes: state, which is replaced as a whole; source, of environments; evaluator; pool; verbose.
    """

    state: TrainingState
    source: EnvSource
    evaluator: Evaluator
    pool: Pool
    verbose: int
    _predictor: Predictor
    _one_thread: OneThread
    observation_space: Any
    out_of_time = False  # whether max_minutes ended the last `learn`
    max_minutes = math.inf  # of the last `learn`
    ends_at = math.inf  # time.monotonic() at which max_minutes ends it
    _pool_steps = StepsPlayed()  # of the evaluator's pool when steps were booked last
    dropped_steps = StepsPlayed()  # that count nowhere: of the proof that a training is solved, and of candidates meanwhile

    num_timesteps: int = _counter("num_timesteps")
    eval_timesteps: int = _counter("eval_timesteps")
    num_episodes: int = _counter("num_episodes")
    confirm_after: int = _counter("confirm_after")
    budget: int = _counter("budget")
    best_eval_return: float = _counter("best_eval_return")

    @property
    def theta(self) -> npt.NDArray[np.float32]:
        """The policy's parameters, float32 (num_params,), read-only."""
        return self.state.strategy.theta

    @property
    def num_params(self) -> int:
        return self.state.spec.num_params

    @property
    def generation(self) -> int:
        """Updates done so far."""
        return self.state.strategy.generation

    @property
    def settings(self) -> Settings:
        return self.state.settings

    @property
    def policy_spec(self) -> AnySpec:
        return self.state.spec

    @property
    def seed(self) -> int:
        return self.state.seed

    @property
    def strategy(self) -> EvolutionStrategy:
        return self.state.strategy

    @property
    def normalizer(self) -> ObsNormalizer:
        return self.state.normalizer

    @property
    def cap(self) -> EpisodeCap:
        return self.state.cap

    @property
    def population(self) -> Population:
        return self.state.population

    @property
    def starts(self) -> Starts:
        return self.state.starts

    @property
    def archive(self) -> Archive:
        return self.state.archive

    @property
    def n_workers(self) -> int:
        """Processes that play: on a cluster those of its nodes at this moment, 0 if this process plays."""
        return self.pool.n_workers

    def steps_played(self) -> StepsPlayed:
        """num_timesteps and eval_timesteps, with the steps of episodes that are played at this moment: any thread may ask.

        Where several trainings share a pool (`train_seeds`), only what is booked: evaluator.steps_played() has all of theirs.
        """
        counters, booked = self.state.counters, self._pool_steps  # in the order opposite to that in which they are set
        played = booked if self.evaluator.is_shared else self.evaluator.steps_played()
        return StepsPlayed(
            counters.num_timesteps + max(0, played.candidates - booked.candidates),
            counters.eval_timesteps + max(0, played.evaluations - booked.evaluations),
        )

    @property
    def solved(self) -> bool:
        """Whether the last generation proved theta solved."""
        return self.state.solved

    @property
    def unreported_record(self) -> Record | None:
        """The statistics of a generation that is booked, while callbacks are told of it."""
        report = self.state.report
        return None if report is None or self.state.is_reported else report.record

    @property
    def last_episodes(self) -> list[tuple[float, int]]:
        """(return, length) of the last generation's training episodes, in job order."""
        return [] if self.state.report is None else self.state.report.episodes

    @property
    def last_successes(self) -> list[float]:
        """1.0 or 0.0 for each of these episodes, NaN where the environment does not tell."""
        return [] if self.state.report is None else self.state.report.successes

    @property
    def last_infos(self) -> list[dict[str, Any]]:
        """The scalars in the info of each of these episodes' last step.

        [] unless `info_keywords` names some, or a callback of SB3's kind has the steps told.
        """
        return [] if self.state.report is None else self.state.report.infos

    @property
    def info_keywords(self) -> tuple[str, ...]:
        """Keys of infos that ep_info_buffer and Monitor files have beside r, l and t."""
        return ()

    @property
    def last_evaluation(self) -> Evaluation | None:
        """The noise-free episodes that were told last, of `last_evaluation_of`; None before the first."""
        return self.state.told_last[-1].evaluation if self.state.told_last else None

    @property
    def last_evaluation_of(self) -> Pending | None:
        """Whose the episodes of `last_evaluation` are; None before the first.

        Its generation counts from 0, and its timesteps are those that its theta had been trained with.
        """
        return self.state.told_last[-1].pending if self.state.told_last else None

    @property
    def target_return(self) -> float:
        """Noise-free return at which `learn` stops; infinity for never."""
        return self.settings.target(registered_target(self.source, self.settings))

    def alone(self, what: str) -> AbstractContextManager[None]:
        """A block that works on the state or the workers: FastESError while another thread does. what: as in 'learn()'."""
        return self._one_thread.using(what)

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Any, State | None]:
        """See FastES.predict."""
        settings, space = self.settings, self.observation_space if self.policy_spec.flattened else None
        noise = (0.0, False) if deterministic else (settings.action_noise, settings.sample_actions)
        now = self.state  # a thread that trains replaces it at any moment: parameters and statistics are those of one
        given = observation, noise, space, state, episode_start
        vector_env = self.source.vector_env
        with self._predictor.lock:
            self._predictor.bounded = vector_env is None or not vector_env.normalizes
            return self._predictor.act(now.strategy.theta, now.normalizer, *given)

    def note_episode_limit(self) -> None:
        """Ask an environment how long its episodes are at most, unless that is known: `state` cuts those without a limit."""
        if self.state.cuts_endless_episodes and self.source.vector_env is None:
            self.state = self.state.limited(self.evaluator.look().episode_limit)

    def _use_reference(self) -> None:
        """Act and evaluate with the state's reference batch."""
        self.evaluator.reference = self._predictor.reference = self.state.reference

    def snapshot(self, exclude: Collection[str] = (), include: Collection[str] = ()) -> Checkpoint:
        """Everything a checkpoint holds, as copies. exclude, include: names of attributes that were set on the model."""
        checkpoint = checkpoint_of(self.state, self.source)
        if attributes := attributes_of(self, exclude, include):
            checkpoint.data[ATTRIBUTES] = attributes
        return checkpoint

    def save(
        self,
        path: str | os.PathLike[str] | IO[bytes],
        exclude: Iterable[str] | None = None,
        include: Iterable[str] | None = None,
    ) -> None:
        """Write a checkpoint to path ('.zip' is added when missing): whole or not at all, the previous one stays as .bak.

        path: or a binary file that is open for writing, such as io.BytesIO().
        exclude, include: names of attributes that you have set on the model. Those that are numbers, words, None, or lists
            and dicts of these are saved, as in SB3, and `load` sets them again; include those that begin with an underscore.
            A checkpoint always holds the whole training. ValueError for a part of it that is to be left out, and for what it
            cannot hold; TypeError for an included attribute of another kind, a warning for one that is not included.
        """
        snapshot = self.snapshot(*check_saved_names(exclude, include))
        warn_of_functions(self.settings, os.fspath(path) if isinstance(path, (str, os.PathLike)) else "file")
        if isinstance(path, (str, os.PathLike)):
            write_checkpoint(path, snapshot)
        else:
            write_into(path, snapshot)
