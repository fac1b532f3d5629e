"""Specs, requests and results: the same for every kind of pool."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import numpy.typing as npt

from fastes.envs.likeness import alike
from fastes.envs.source import EnvSource, Pair
from fastes.errors import warn_user
from fastes.es.perturbations import Perturbations
from fastes.policies.action_head import BOX_MAPPINGS, make_action_head
from fastes.policies.custom_policy import AnySpec
from fastes.policies.policy_spec import obs_shape_of, parts_of
from fastes.rollout.batch import Batch
from fastes.rollout.env_calls import EnvCall
from fastes.rollout.episode import EpisodeSettings
from fastes.rollout.last_infos import Info, read_info
from fastes.rollout.native_episodes import is_compared
from fastes.rollout.obs_normalizer import ObsNormalizer
from fastes.rollout.shared_block import (
    ACTION_NOISE,
    CALLS,
    COMPARED,
    GENERATION,
    MAX_STEPS,
    OBS_CLIP,
    PER_CANDIDATE,
    SAMPLE,
    SIGMA,
    BlockLayout,
    RequestSlot,
    SharedBlock,
    SlotLayout,
    TrainingLayout,
)

PENALISE = "penalise"
NO_SEEDS = np.zeros(0, dtype=np.int64)
_NO_BATCH = np.zeros(0, dtype=np.uint8)


@dataclass(frozen=True)
class TrainingNeeds:
    """The needs of one training on a pool: its policy, and the room that its requests take.

    Trainings on one pool may differ in all of this.

    Attributes:
        policy: Builds the actor.
        num_pairs: Room for the pairs of a generation, 0 for evaluation only; a request may have fewer.
        episodes: Room for the episodes of each candidate; a request may have fewer.
        num_evals: Room for the noise-free episodes of one request.
        normalize_obs: Whether observations are normalised.
        table_size: Values of the noise table, 0 for evaluation only.
        table_seed: The seed that the noise table is drawn from. Trainings whose table_size and table_seed are equal share
            one table.
        sigma_each: Whether each parameter has a sigma of its own.
        window_size: Parameters that a pair perturbs, 0 for all.
        num_generations: How many requests of candidates may be open at a time.
        num_evaluations: How many requests of noise-free episodes may be open at a time.
        reference: The reference batch, (n, *observation shape), for a policy that needs one. Workers have it in the block.
        name: 'trial 2' for messages, if there are several; else ''.
    """

    policy: AnySpec
    num_pairs: int
    episodes: int
    num_evals: int
    normalize_obs: bool
    table_size: int = 0
    table_seed: int = 0
    sigma_each: bool = False
    window_size: int = 0
    num_generations: int = 1
    num_evaluations: int = 1
    reference: npt.NDArray[Any] | None = field(default=None, compare=False, repr=False)
    name: str = ""

    def layout(self, info_bytes: int, table: int) -> TrainingLayout:
        """The sizes of the training's part of a block.

        Args:
            info_bytes: Room for the last info of each candidate's episode.
            table: The number of the training's noise table; -1 for none.
        """
        num_params, obs_size = self.policy.num_params, self.policy.obs_size
        sigmas = num_params if self.sigma_each else 0
        reference = _NO_BATCH if self.reference is None else self.reference
        return TrainingLayout(
            candidates=SlotLayout(num_params, obs_size, self.num_pairs, self.episodes, 0, sigmas, self.window_size, info_bytes),
            evaluation=SlotLayout(num_params, obs_size, 0, self.episodes, self.num_evals),
            num_generations=self.num_generations if self.num_pairs else 0,
            num_evaluations=self.num_evaluations,
            table=table,
            reference=reference.shape,
            reference_dtype=reference.dtype.str,
        )


@dataclass(frozen=True)
class PoolSpec:
    """The needs of a pool: how to build the environment, and the needs of each training.

    Attributes:
        source: Builds the environment.
        trainings: The needs of each training; `Request.training` is a position in it.
        on_env_error: 'stop' lets an exception of the environment end the request, 'penalise' makes it a return of NaN.
        step_timeout: Seconds without an env.step after which a worker counts as hung; None learns it from the episodes.
        worker_max_episodes: Episodes after which a new process replaces a worker; 0 for never.
        env_shown: Whether the parent has built an environment, so that workers do not repeat what building it prints.
        info_bytes: Room for the last info of each candidate's episode, 0 if no callback reads them.
        info_keywords: The keys that are kept if the room is short.
        spaces: The observation and action space of the parent's environment; None if it built none, or if the spaces cannot
            be compared.
        evaluations_first: Whether noise-free episodes begin before candidates that wait at the same time. That is best if the
            next generation waits for their results.
        first_worker: The number of the pool's first environment; the others follow.
        native: Whether environments step in C if they can: a setting.
    """

    source: EnvSource
    trainings: tuple[TrainingNeeds, ...]
    on_env_error: str = "stop"
    step_timeout: float | None = None
    worker_max_episodes: int = 0
    env_shown: bool = True
    info_bytes: int = 0
    info_keywords: tuple[str, ...] = ()
    spaces: Pair | None = None
    evaluations_first: bool = False
    first_worker: int = 0
    native: str = "auto"

    @property
    def tables(self) -> list[tuple[int, int]]:
        """The size and the seed of each noise table: one for all trainings that have the same of both."""
        return list(dict.fromkeys((each.table_size, each.table_seed) for each in self.trainings if each.table_size))

    def table_of(self, training: int) -> int:
        """Return the position of a training's noise table in `tables`; -1 if it has none."""
        needs = self.trainings[training]
        return self.tables.index((needs.table_size, needs.table_seed)) if needs.table_size else -1

    def layout(self, n_workers: int) -> BlockLayout:
        """Return the sizes of a block for n_workers workers."""
        parts = [each.layout(self.info_bytes, self.table_of(number)) for number, each in enumerate(self.trainings)]
        return BlockLayout(tuple(parts), n_workers, tuple(size for size, _ in self.tables))

    def block(self, n_workers: int, shared: bool = True) -> SharedBlock:
        """Make a block for a pool with n_workers workers, and copy the reference batches into it."""
        block = SharedBlock(self.layout(n_workers), shared=shared)
        for number, training in enumerate(self.trainings):
            if training.reference is not None:
                block.references[number][...] = training.reference
        return block

    def without_references(self) -> PoolSpec:
        """Return the spec without reference batches, for processes that find them in the block."""
        return replace(self, trainings=tuple(replace(each, reference=None) for each in self.trainings))

    def check_spaces(self, env: Any) -> None:
        """Compare the spaces of an environment with those of the first one, or with the policies if there is none.

        Raises:
            ValueError: If they differ, with the spaces of both.
        """
        found = env.observation_space, env.action_space
        if self.spaces is not None:
            if all(map(alike, found, self.spaces)):
                return
            first = self.spaces
            expected = f"the observation space {first[0]} and the action space {first[1]}, as the one that was built first"
        else:
            unfit = next((each.policy for each in self.trainings if not _fits(each.policy, found)), None)
            if unfit is None:
                return
            observations = unfit.parts or f"observations of shape {unfit.obs_shape}"
            expected = f"{observations} and {unfit.head}, as the policy was made for"
        raise ValueError(
            f"{self.source.name!r} was built with the observation space {found[0]} and the action space {found[1]}: expected "
            f"{expected}. Each build has to give the same spaces, in every process"
        )


def _fits(policy: AnySpec, found: Pair) -> bool:
    """Whether a policy takes such observations and gives such actions."""
    if obs_shape_of(found[0]) != (policy.obs_shape, policy.flattened) or policy.parts not in ("", parts_of(found[0])):
        return False
    head = policy.head
    if head is None:
        return True
    mapping = head.kind if head.kind in BOX_MAPPINGS else "clip"
    try:
        return head.fits(make_action_head(found[1], mapping, head.num_bins or 10))
    except ValueError:
        return False


def comparable(pair: Pair | None) -> Pair | None:
    """Return the spaces; None if they differ from their own copies, as spaces without `__eq__` do."""
    try:
        return pair if pair is not None and all(map(alike, pair, pickle.loads(cloudpickle.dumps(pair)))) else None
    except Exception:
        return None


class Request(NamedTuple):
    """A request to a pool: a generation's candidates, or noise-free episodes of theta on eval_seeds.

    Attributes:
        theta: float32 (num_params,).
        normalizer: Its statistics normalise the observations.
        episodes: The settings of the episodes.
        perturbations: The generation's; None for noise-free episodes.
        eval_seeds: Environment seeds of noise-free episodes, int64 (n,), n at most `TrainingNeeds.num_evals`.
        generation: The generation that theta is evaluated for, as the strategy counts, from 0; -1 for none.
        first_pair: The first pair to play; an earlier request of the generation had those before it.
        jobs: Numbers of the jobs to run, int64 (n,); None for all.
        training: The request's training, a position in `PoolSpec.trainings`.
        strategy: The EvolutionStrategy in the state that drew the candidates, for pools whose nodes repeat its steps.
        calls: The calls that are made on environments before they play the request, in order.
        compared: Whether `is_compared` decides if an episode in C is compared with the same one in Python; if not, none is.
    """

    theta: npt.NDArray[np.float32]
    normalizer: ObsNormalizer
    episodes: EpisodeSettings
    perturbations: Perturbations | None = None
    eval_seeds: npt.NDArray[np.int64] = NO_SEEDS
    generation: int = -1
    first_pair: int = 0
    jobs: npt.NDArray[np.int64] | None = None
    training: int = 0
    strategy: Any = None
    calls: tuple[EnvCall, ...] = ()
    compared: bool = True

    def job_numbers(self) -> npt.NDArray[np.int64]:
        """Return the numbers of the jobs to run, in the order of claiming."""
        if self.jobs is not None:
            return np.array(self.jobs, dtype=np.int64)
        if self.perturbations is None:
            return np.arange(len(self.eval_seeds), dtype=np.int64)
        return np.arange(2 * self.first_pair, len(self.perturbations), dtype=np.int64)

    def shape_of_results(self, jobs: npt.NDArray[np.int64]) -> tuple[int, ...]:
        """Return the shape of results of these jobs: (-1, 2) if they are whole pairs of candidates, else (-1,)."""
        if self.perturbations is None:
            return (-1,)
        return (-1, 2) if self.jobs is None or len(jobs) == 2 * len(np.unique(jobs // 2)) else (-1,)


class RequestScalars(NamedTuple):
    """The numbers of a request that are not arrays.

    Attributes:
        ticket: The ticket under which jobs were claimed; 0 if the pool claims none.
        generation: As the strategy counts, from 0; -1 for none.
        sigma: The standard deviation of the candidates' noise.
        obs_clip: The limit at which normalised observations are clipped.
        episodes: The settings of the episodes.
    """

    ticket: int
    generation: int
    sigma: float
    obs_clip: float
    episodes: EpisodeSettings

    @classmethod
    def of(cls, slot: RequestSlot, ticket: int) -> RequestScalars:
        """Read the numbers from a request's slot."""
        words, numbers = slot.words, slot.numbers
        episodes = EpisodeSettings(
            max_steps=int(words[MAX_STEPS]),
            action_noise=float(numbers[ACTION_NOISE]),
            sample=bool(words[SAMPLE]),
            per_candidate=int(words[PER_CANDIDATE]),
        )
        return cls(ticket, int(words[GENERATION]), float(numbers[SIGMA]), float(numbers[OBS_CLIP]), episodes)


class EpisodeDescription(NamedTuple):
    """An episode that failed: a text, and the attributes of its exception.

    Attributes:
        text: The episode in words.
        generation: As in progress.csv, from 1; 0 for none.
        job: Its number for `replay`. Evaluations follow the candidates.
        env_seed: Its environment seed.
        trial: The number in the name of its training; None without a name.
        replay: The Python call that plays it again in one process.
    """

    text: str
    generation: int
    job: int
    env_seed: int
    trial: int | None
    replay: str


def describe_episode(spec: PoolSpec, slot: RequestSlot, job: int, episode: int) -> EpisodeDescription:
    """Describe an episode of a job."""
    generation = int(slot.words[GENERATION]) + 1
    if slot.layout.num_pairs:
        seed, told = int(slot.env_seed[job // 2, episode]), job
        what = f"candidate {job} (pair {job // 2}, side {job % 2})"
    else:
        seed, told = int(slot.eval_seed[job]), 2 * spec.trainings[slot.training].num_pairs + job
        what = f"evaluation episode {job}"
    name = spec.trainings[slot.training].name
    trial = int(name.removeprefix("trial ")) if name else None
    when = (f"{name}, " if name else "") + (f"generation {generation}, " if generation > 0 else "")
    evaluated = f"model.evaluate(1, first_seed={seed}), with n_workers=0"
    which = f", trial={trial}" if trial else ""
    replay = f"model.replay({generation}, {told}{which})" if generation > 0 else evaluated
    return EpisodeDescription(f"{spec.source.name}, {when}{what}, env seed {seed}", generation, told, seed, trial, replay)


def warn_of_penalty(known: set[str], summary: str, where: str, trace: str) -> None:
    """Warn that an exception was made a return of NaN, once for each type of exception.

    Args:
        known: The types that were reported, to which this one is added.
        summary: The type, a colon, the message.
        where: The episode in words.
        trace: The traceback.
    """
    kind = summary.partition(":")[0]
    if kind in known:
        return
    known.add(kind)
    warn_user(f"{summary}: this episode ranks worst [{where}]\n{trace}")


def publish(slot: RequestSlot, request: Request) -> npt.NDArray[np.int64]:
    """Write a request into its slot, and return its jobs in the order of claiming."""
    perturbations, normalizer, settings = request.perturbations, request.normalizer, request.episodes
    generation = request.generation if perturbations is None else perturbations.generation
    words, numbers = slot.words, slot.numbers
    words[GENERATION], words[CALLS] = generation, slot.calls.number(request.calls)
    words[COMPARED] = request.compared and is_compared(generation)
    words[MAX_STEPS], words[SAMPLE], words[PER_CANDIDATE] = settings.max_steps, settings.sample, settings.per_candidate
    numbers[SIGMA] = 0.0 if perturbations is None else perturbations.sigma
    numbers[OBS_CLIP], numbers[ACTION_NOISE] = normalizer.clip, settings.action_noise
    slot.differs[0] = 0
    slot.theta[:] = request.theta
    slot.obs_mean[:] = normalizer.mean
    slot.obs_inv_std[:] = 1.0 / normalizer.std
    if perturbations is None:
        slot.eval_seed[: len(request.eval_seeds)] = request.eval_seeds
    else:
        pairs = perturbations.num_pairs
        slot.noise_index[:pairs] = perturbations.noise_index
        if perturbations.sigma_each is not None:
            slot.sigma_each[:] = perturbations.sigma_each
        if perturbations.windows is not None:
            slot.window_first[:pairs] = perturbations.windows.first
        slot.env_seed[:pairs] = perturbations.env_seed
        slot.action_key[:pairs] = perturbations.action_key
    return request.job_numbers()


def collect(slot: RequestSlot, request: Request, jobs: npt.NDArray[np.int64], rerun: int, penalised: str) -> Batch:
    """Copy a finished request's results out of its slot; (n,) if it had single candidates instead of pairs."""
    shape = request.shape_of_results(jobs)
    which = slice(int(jobs[0]), int(jobs[-1]) + 1) if request.jobs is None and len(jobs) else jobs  # a slice is found faster
    return Batch(
        returns=slot.returns[which].reshape(shape).copy(),
        lengths=slot.lengths[which].reshape(shape).copy(),
        successes=slot.successes[which].reshape(shape).copy(),
        cuts=slot.cuts[which].reshape(shape).copy(),
        moments=slot.moments[which if slot.layout.num_pairs else jobs[:0]].copy(),
        busy_seconds=float(slot.seconds[which].sum()),
        rerun=rerun,
        penalised=penalised,
        per_candidate=request.episodes.per_candidate,
        infos=_infos_in(slot, jobs, request.episodes.per_candidate),
        has_masks=bool(slot.layout.num_pairs and slot.masks[which].any()),
        cpu_seconds=float(slot.cpu_seconds[which].sum()),
        differs=bool(slot.differs[0]),
    )


def _infos_in(slot: RequestSlot, jobs: npt.NDArray[np.int64], per_candidate: int) -> tuple[tuple[Info, ...], ...]:
    """Read the last infos of the jobs' episodes; () if the slot has no room for them."""
    if not slot.layout.num_pairs or not slot.layout.info_bytes:
        return ()
    return tuple(tuple(map(read_info, slot.infos[job, :per_candidate])) for job in jobs.tolist())
