"""Runs jobs, one after the other: one environment, and one actor per training."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from fastes import _core
from fastes.envs.closing import close_env
from fastes.envs.native.twins import Twin, python_because, twin_of
from fastes.envs.source import Env
from fastes.es.perturbations import write_candidate
from fastes.policies.custom_policy import AnySpec
from fastes.rollout.env_calls import FORGET, has_left_c, in_force, make_call
from fastes.rollout.episode import Episode, EpisodeSettings, run_episode
from fastes.rollout.job import PENALISE, PoolSpec, RequestScalars, TrainingNeeds
from fastes.rollout.last_infos import has_mask, write_info
from fastes.rollout.native_episodes import Compared, difference_in_words, run_native_episode
from fastes.rollout.observations import Notify, ObservationReader, warn
from fastes.rollout.shared_block import (
    CALLS,
    COMPARED,
    EPISODE,
    EVALUATION_STEPS,
    JOB,
    LEAVE,
    STEPS,
    RequestSlot,
    SharedBlock,
    SlotLayout,
)
from fastes.system.forks import CopiesEndHere, end_copy, register_for_forks

_ROUNDINGS = ("", "rounds down", "rounds up", "rounds to zero")
_FLAGS = {"flushes to zero": "flushes denormals to zero", "denormals are zero": "reads denormals as zero", "traps": "traps"}
_CPU_EVERY = 0.01  # seconds
_NO_SCALARS = RequestScalars(0, -1, 0.0, 0.0, EpisodeSettings())


def make_actor(needs: TrainingNeeds, reader: ObservationReader) -> _core.Actor:
    """Make a training's actor, which reads observations as the reader arranges them."""
    actor = needs.policy.make_actor()
    if reader.arrange is not None:
        actor.arrange_with(reader.arrange)
    return actor


def begin_request(actor: _core.Actor, needs: TrainingNeeds, slot: RequestSlot, scalars: RequestScalars) -> None:
    """Give an actor a request's normaliser and reference batch, if its training has them."""
    if needs.normalize_obs:
        actor.set_normalizer(slot.obs_mean, slot.obs_inv_std, scalars.obs_clip)
    if needs.policy.needs_reference:
        actor.set_reference(slot.reference)


class _TrainingActor:
    """One training's actor, and the request that it was last prepared for.

    Attributes:
        needs: The training's.
        actor: Plays its candidates and evaluations.
        load_parameters: Gives the actor what a job evaluates.
        scalars: The request whose normaliser and reference batch the actor has.
        counted: The column of the worker's row in which the actor counts its steps.
        folded: The ticket of the evaluation for whose theta the actor has the reference batch's statistics, else 0.
        twin: The environment's, if this actor can play in it; None to play in Python.
    """

    def __init__(self, needs: TrainingNeeds, layout: SlotLayout, row: npt.NDArray[np.int64], reader: ObservationReader) -> None:
        self._row, self._jobs = row, dict[RequestSlot, _core.NativeJobs | None]()
        self.needs, self.needs_reference = needs, needs.policy.needs_reference
        self.actor = make_actor(needs, reader)
        self.counted = STEPS
        self.actor.count_steps(row[STEPS : STEPS + 1])
        self.load_parameters = parameter_loader(layout, needs.policy)
        self.scalars = _NO_SCALARS
        self.folded = 0
        self.twin: Twin | None = None

    def use_twin(self, found: Twin | str, reads_infos: bool = False) -> str:
        """Play in this twin from now on if that can be. Returns why not, as `python_because` does; '' if it does."""
        why = python_because(found, self.actor, reads_infos)
        self.twin = None if why or isinstance(found, str) else found
        self._jobs = {}
        return why

    def jobs_in_c(self, slot: RequestSlot) -> _core.NativeJobs | None:
        """Return what plays a slot's jobs in C as a whole; None if Python has a part in each."""
        if slot not in self._jobs:
            self._jobs[slot] = self._made_for(slot)
        return self._jobs[slot]

    def _made_for(self, slot: RequestSlot) -> _core.NativeJobs | None:
        layout, twin = slot.layout, self.twin
        is_plain = not (layout.num_sigmas or layout.window_size or layout.info_bytes or self.needs_reference)
        if twin is None or twin.whole is not None or not is_plain or has_mask(dict.fromkeys(twin.instance.info_names)):
            return None
        episode, leave = self._row[EPISODE : EPISODE + 1], self._row[LEAVE : LEAVE + 1]
        return _core.NativeJobs(slot, twin.instance, self.actor, twin.wrappers, episode, leave)


class JobRunner:
    """Runs jobs of any request in a block with one environment.

    Every training's actor is made at the start, so that a policy that cannot be built is an error before any job.

    An environment that has a twin plays in it, in C. The first job of a request whose slot says COMPARED plays in both; a
    difference is noted in the slot, and the request is played again in Python (`Evaluator`), as are a training's later ones
    (`Trainer`). This runner decides nothing: which jobs play in C must not depend on the jobs that it got.

    Args:
        spec: The pool's.
        block: The memory of requests and results.
        index: This runner's row of the block's `workers`, in which it notes what it is doing.
        uninterruptible: A context in which no signal interrupts building: half an environment could not be closed.
        notify: Receives warnings about the environment, each of which is shown once.
        is_process: Whether this process does nothing but run these jobs, so that all its CPU time is theirs.
    """

    def __init__(
        self,
        spec: PoolSpec,
        block: SharedBlock,
        index: int = 0,
        uninterruptible: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
        notify: Notify = warn,
        is_process: bool = False,
    ) -> None:
        self._notify, self._told_of_floats = notify, False
        self._is_process = is_process
        self._cpu_seconds, self._cpu_read_at = 0.0, -math.inf  # CPU time of the process when it was read last, and when
        self.spec, self.block, self.row, self.uninterruptible = spec, block, block.workers[index], uninterruptible
        self._may_rebuild = spec.on_env_error == PENALISE or spec.worker_max_episodes > 0
        self._copies_end = CopiesEndHere(f"the environment {spec.source.name}")
        self.wrap_evaluation_env: Callable[[Env], Any] = lambda env: env  # for noise-free episodes
        self.env, self._called = self._build(), 0  # the number of the last call that was made on it
        self._has_left_c = False  # by one of these calls
        try:
            reader = ObservationReader(self.env.observation_space, self._notify)
            self.flatten = reader.flatten
            self._players = [
                _TrainingActor(needs, layout.candidates, self.row, reader)
                for needs, layout in zip(spec.trainings, block.layout.trainings, strict=True)
            ]
            self._find_twin()
        except BaseException:
            self.close()
            raise
        self._episodes = 0  # that this environment has played
        register_for_forks(self)

    def reset_after_fork(self) -> None:
        """End a forked copy that returns from env.step or env.reset: it would play the same episode once more."""
        for player in self._players:
            player.actor.refuse_with(lambda: end_copy(self._copies_end.what))

    def _begin(self, player: _TrainingActor, slot: RequestSlot, ticket: int) -> RequestScalars:
        """Prepare the actor and the environment for a request, unless the last job was of the same one."""
        if player.scalars.ticket != ticket:
            player.scalars = RequestScalars.of(slot, ticket)
            begin_request(player.actor, player.needs, slot, player.scalars)
        if self._called != (wanted := int(slot.words[CALLS])):
            with self._copies_end:
                self._give_calls(wanted)
        return player.scalars

    def run(self, slot: RequestSlot, ticket: int, job: int, on_penalty: Callable[[Exception], None]) -> None:
        """Run a job that was claimed under a ticket, and write its results; the commit flag comes last.

        Args:
            slot: The request's.
            ticket: The ticket.
            job: The job's number.
            on_penalty: Gets an exception that is made a return of NaN, before the job counts as done.

        Raises:
            Exception: Any other. The job stays uncommitted, and its number in the worker's row.
        """
        started, row, candidate = time.perf_counter(), self.row, bool(slot.layout.num_pairs)
        player = self._players[slot.training]
        if player.counted != (counted := STEPS if candidate else EVALUATION_STEPS):
            player.actor.count_steps(row[counted : counted + 1])
            player.counted = counted
        row[EPISODE] = 0
        row[JOB] = job
        scalars = self._begin(player, slot, ticket)
        plays_in_c = _plays_in_c(player.twin, slot, job) and not self._may_rebuild
        in_c = player.jobs_in_c(slot) if plays_in_c else None
        if in_c is not None:
            with self._copies_end:
                in_c.play(job, scalars.sigma, player.needs.normalize_obs, *scalars.episodes)
        else:
            self._run_in_python(player, slot, job, scalars, on_penalty)
        self._episodes += scalars.episodes.per_candidate if candidate else 1
        if (mode := _core.set_floats_back() or player.actor.float_mode) and not self._told_of_floats:
            self._told_of_floats = True
            self._notify("floats", _change_of_floats(f"the environment {self.spec.source.name}", mode))
        ended = time.perf_counter()
        slot.seconds[job] = ended - started
        if self._is_process:
            slot.cpu_seconds[job] = self._new_cpu_seconds(ended)
        _core.commit(slot.committed, job, ticket)
        _core.commit(row, JOB, -1)  # a process that sees this sees the flag, too

    def _new_cpu_seconds(self, now: float) -> float:
        """Return the CPU time of the process since it was read last, the first time since it began; 0 if that was just now.

        Reading is a system call, which takes longer than a short episode in C. now: time.perf_counter().
        """
        if now - self._cpu_read_at < _CPU_EVERY:
            return 0.0
        before, self._cpu_seconds, self._cpu_read_at = self._cpu_seconds, time.process_time(), now
        return self._cpu_seconds - before

    def _run_in_python(
        self,
        player: _TrainingActor,
        slot: RequestSlot,
        job: int,
        scalars: RequestScalars,
        on_penalty: Callable[[Exception], None],
    ) -> None:
        """Play a job and write its results."""
        candidate, steps_before = bool(slot.layout.num_pairs), int(self.row[player.counted])
        try:
            with self._copies_end:
                played = (self._run_candidate if candidate else self._run_evaluation)(player, slot, job, scalars)
        except Exception as error:
            if self.spec.on_env_error != PENALISE:
                raise
            on_penalty(error)
            played = Episode(math.nan, int(self.row[player.counted]) - steps_before)
            if candidate:
                slot.moments[job] = math.nan
                slot.infos[job : job + 1] = 0
            self._rebuild()
        slot.returns[job], slot.lengths[job], slot.successes[job], slot.cuts[job] = played[:4]

    def _run_candidate(self, player: _TrainingActor, slot: RequestSlot, job: int, scalars: RequestScalars) -> Episode:
        actor, pair, episodes = player.actor, job // 2, scalars.episodes.per_candidate
        player.folded = 0
        player.load_parameters(actor, slot, job, scalars.sigma)
        actor.count_moments(player.needs.normalize_obs)
        total, length, successes, cuts = 0.0, 0, 0.0, 0
        for episode in range(episodes):
            self.row[EPISODE] = episode
            seed, key = int(slot.env_seed[pair, episode]), int(slot.action_key[pair, episode])
            result = self._play(player, slot, job, seed, scalars.episodes, key)
            total, length = total + result.episode_return, length + result.length
            successes, cuts = successes + result.success, cuts + result.cut
            if slot.layout.info_bytes:
                write_info(slot.infos[job, episode], result.info, self.spec.info_keywords, result.timed_out)
            slot.masks[job] = has_mask(result.info)
        slot.moments[job] = actor.observation_moments
        return Episode(total / episodes, length, successes / episodes, cuts)

    def _run_evaluation(self, player: _TrainingActor, slot: RequestSlot, job: int, scalars: RequestScalars) -> Episode:
        actor, seed = player.actor, int(slot.eval_seed[job])
        if player.folded != scalars.ticket:
            player.load_parameters(actor, slot, job, scalars.sigma)
            player.folded = scalars.ticket if player.needs_reference else 0
        actor.count_moments(False)
        return self._play(player, slot, job, seed, scalars.episodes, wrap=self.wrap_evaluation_env)

    def _play(
        self,
        player: _TrainingActor,
        slot: RequestSlot,
        job: int,
        seed: int,
        settings: EpisodeSettings,
        key: int = 0,
        wrap: Callable[[Env], Any] = lambda env: env,
    ) -> Episode:
        """Play an episode of a job in C if the environment has a twin, in both if it is compared, else in Python, wrapped."""
        twin = player.twin
        if twin is not None and _plays_in_c(twin, slot, job):
            return run_native_episode(twin, player.actor, seed, settings, key, self.row[LEAVE : LEAVE + 1])
        if twin is None:
            return run_episode(wrap(self.env), player.actor, seed, settings, key, self.flatten)
        both = Compared(self.env, twin)
        episode = run_episode(both, player.actor, seed, settings, key, self.flatten)
        if both.difference:
            slot.differs[0] = 1
            self._notify("native", difference_in_words(self.spec.source.name, both.difference))
        return episode

    def _find_twin(self) -> None:
        """Look for the environment's twin: it is another one after each change."""
        is_off = self._has_left_c or self.spec.native == "off"
        found = "not in C" if is_off else twin_of(self.env)
        reasons = [player.use_twin(found, self.spec.info_bytes > 0) for player in self._players]
        if self.spec.native == "on" and not is_off and any(reasons):
            why, name = next(filter(None, reasons)), self.spec.source.name
            raise ValueError(f"native = 'on': {name} does not step in C: {why}; native = 'auto' steps it in Python")

    def plays_natively(self, slot: RequestSlot) -> bool:
        """Whether it plays a request in C alone, so that no code in Python comes near signals, random states and threads."""
        in_c = all(_plays_in_c(player.twin, slot, 0) for player in self._players)
        return in_c and not self._may_rebuild and self._called == int(slot.words[CALLS])

    @property
    def is_worn(self) -> bool:
        """Whether the environment has played as many episodes as one may."""
        return 0 < self.spec.worker_max_episodes <= self._episodes

    def renew(self) -> None:
        """Build a new environment, and count its episodes from 0."""
        self._rebuild()
        self._episodes = 0

    def _rebuild(self) -> None:
        """Replace the environment: the exception may have left the old one in any state."""
        with self.uninterruptible():
            self.close()
            self.env, self._called, self._has_left_c = self._build(), 0, False
        self._find_twin()

    def _give_calls(self, wanted: int) -> None:
        """Make the calls up to a number on the environment, which is rebuilt if other calls were made on it."""
        way = self.block.calls.way(self._called, wanted)
        if way is None or FORGET in [call.kind for call in way]:
            self._rebuild()
            way = self.block.calls.way(0, wanted) or []
        for call in in_force(way):
            self.env = make_call(self.env, call)
        self._called = wanted
        self._has_left_c = has_left_c(self.block.calls.way(0, wanted) or [])
        self.spec.check_spaces(self.env)
        self._find_twin()

    def _build(self) -> Env:
        env = self.spec.source()
        try:
            self.spec.check_spaces(env)
        except BaseException:
            close_env(env, self.spec.source.name)
            raise
        return env

    def close(self) -> None:
        """Close the environment; an exception in that becomes a warning."""
        close_env(self.env, self.spec.source.name)


def _plays_in_c(twin: Twin | None, slot: RequestSlot, job: int) -> bool:
    """Whether a job plays in C alone. twin: the environment's, None for none."""
    return twin is not None and (twin.is_same or bool(job) or not slot.words[COMPARED])


Load = Callable[[_core.Actor, RequestSlot, int, float], None]


def parameter_loader(layout: SlotLayout, policy: AnySpec) -> Load:
    """Return the function that loads a job's parameters into an actor. It is chosen once: a plain search runs no other code."""
    load: Load = load_with_options if layout.num_sigmas or layout.window_size else load_parameters
    return partial(load_and_fold, load) if policy.needs_reference else load


def load_and_fold(load: Load, actor: _core.Actor, slot: RequestSlot, job: int, sigma: float) -> None:
    """Load the parameters, and compute the reference batch's statistics for them."""
    load(actor, slot, job, sigma)
    actor.fold()


def load_parameters(actor: _core.Actor, slot: RequestSlot, job: int, sigma: float) -> None:
    """Load the parameters that a job evaluates: theta + sigma * eps, theta - sigma * eps, or theta itself."""
    if not slot.layout.num_pairs:
        actor.parameters[:] = slot.theta
        return
    scale = sigma if job % 2 == 0 else -sigma
    _core.perturb(actor.parameters, slot.theta, slot.noise, int(slot.noise_index[job // 2]), scale)


def load_with_options(actor: _core.Actor, slot: RequestSlot, job: int, sigma: float) -> None:
    """Load the same with a sigma for each parameter, or with a window for each pair, if the slot has them."""
    layout, (pair, side) = slot.layout, divmod(job, 2)
    if not layout.num_pairs:
        actor.parameters[:] = slot.theta
        return
    each = slot.sigma_each if layout.num_sigmas else sigma
    window = (int(slot.window_first[pair]), layout.window_size) if layout.window_size else None
    write_candidate(actor.parameters, slot.theta, slot.noise, int(slot.noise_index[pair]), each, side, window)


def _change_of_floats(what: str, mode: int) -> str:
    """The warning about code that has changed the float mode. mode: as _core.float_mode returns it, not 0."""
    found = [_ROUNDINGS[mode & 3], *(said for name, said in _FLAGS.items() if mode & _core.FLOAT_FLAGS[name])]
    return (
        f"{what} has changed how its process computes with floats (it {', '.join(filter(None, found))}): FastES sets that back "
        "before each reset, action and update, since results would depend on which process played what. A library that was "
        "compiled with -ffast-math does it when it is loaded"
    )
