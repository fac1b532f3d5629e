"""Messages between driver and nodes: each is one bytes object, so that its size is what crosses the wire."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastes.rollout.env_calls import EnvCall
from fastes.rollout.episode import EpisodeSettings
from fastes.rollout.last_infos import Info
from fastes.rollout.obs_normalizer import ObsNormalizer

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


class Theta(NamedTuple):
    """A request's parameters, sent as they are.

    Attributes:
        theta: float32 (num_params,).
        sigma_each: A sigma for each parameter, float32 (num_params,); None if all have the same.
    """

    theta: Float32
    sigma_each: Float32 | None


class CachedState(NamedTuple):
    """A request's parameters, as those of a state that the node holds."""

    key: bytes


class Step(NamedTuple):
    """A request's parameters, as those of the state that follows from one that the node holds.

    Attributes:
        before: The key of the state that the node holds.
        progress_remaining, fitness: The arguments of `ask` and `tell` that lead to the next state, see
            es.strategy.LastTell; fitness is float64 (num_pairs, 2).
        key: The key of the next state.
    """

    before: bytes
    progress_remaining: float
    fitness: Float64
    key: bytes


class FullState(NamedTuple):
    """A request's parameters, as those of a pickled strategy that the node holds afterwards."""

    strategy: bytes
    key: bytes


class Draws(NamedTuple):
    """The arguments of the draws of a generation's candidates; see es.perturbations.

    seed: of the noise table and of all draws.
    num_pairs: of the generation, those included that were played before.
    sigma: standard deviation of the noise; the mean, if each parameter has its own.
    window_size: parameters that a pair perturbs, 0 for all.
    progress_remaining: from 1 (start) to 0 (end of the budget), for schedules.
    """

    seed: int
    num_pairs: int
    sigma: float
    window_size: int
    progress_remaining: float


class RequestMessage(NamedTuple):
    """A request without its jobs.

    ticket: of the request, the driver's.
    generation: as the strategy counts, from 0; -1 for none.
    parameters: the way to theta that is the shortest for this node.
    draws: of candidates; None for noise-free episodes of theta on eval_seeds.
    eval_seeds: environment seeds of these, int64 (n,); (0,) for candidates.
    normalizer: whose statistics normalise the observations.
    episodes: settings of the episodes.
    training: the number of the request's training.
    sends_rows: whether every candidate's moments come back with its return; else they are asked for as a sum.
    calls: that environments have been given when they play it, in order.
    """

    ticket: int
    generation: int
    parameters: Theta | CachedState | Step | FullState
    draws: Draws | None
    eval_seeds: Int64
    normalizer: ObsNormalizer
    episodes: EpisodeSettings
    training: int
    sends_rows: bool
    calls: tuple[EnvCall, ...] = ()


class Range(NamedTuple):
    """Jobs of a request for one node.

    number: counts all ranges, so that no late result is taken for another's.
    ticket: of the request.
    runs: of the jobs' numbers, [first, past), int64 (n, 2).
    """

    number: int
    ticket: int
    runs: Int64


class Work(NamedTuple):
    """To a node.

    number: counts those to it, from 0.
    open_tickets: of the driver's requests; all others are over.
    dropped: keys of states to hold no longer.
    requests: those that the node does not know yet.
    ranges: to play.
    """

    number: int
    open_tickets: tuple[int, ...]
    dropped: tuple[bytes, ...]
    requests: tuple[RequestMessage, ...]
    ranges: tuple[Range, ...]


class Played(NamedTuple):
    """The results of a range's n jobs, in their order.

    number: of the range.
    returns: means over a job's episodes, float64 (n,).
    lengths: their total steps, int32 (n,).
    successes: shares of a job's episodes, float64 (n,), NaN if the environment does not report it.
    cuts: how many of a job's episodes were cut, int32 (n,).
    rows: moments of a job's observations, float64 (n, 2, obs_size), if the request's message asks for them; else None.
    busy_seconds: summed over the node's workers.
    rerun: jobs run again because their worker died.
    penalised: the text of one of the exceptions that were made a return of NaN, or ''.
    infos, has_masks: see `Batch`.
    """

    number: int
    returns: Float64
    lengths: npt.NDArray[np.int32]
    successes: Float64
    cuts: npt.NDArray[np.int32]
    rows: Float64 | None
    busy_seconds: float
    rerun: int
    penalised: str
    infos: tuple[tuple[Info, ...], ...] = ()
    has_masks: bool = False


class Failed(NamedTuple):
    """A range ended with an exception. error: pickled, with its cause."""

    number: int
    error: bytes


class StateMismatch(NamedTuple):
    """The node has no such state, or came to another one: it needs a FullState. why: '' for the former."""

    number: int
    why: str


class Reply(NamedTuple):
    """From a node. warned: what its pool has warned of."""

    answers: tuple[Played | Failed | StateMismatch, ...]
    warned: tuple[str, ...]


class Joined(NamedTuple):
    """A node's answer to `join`.

    versions: its versions of the packages that the driver named.
    refusal: why it cannot be used, or ''.
    max_ranges: ranges that it takes at a time; 0 if it is refused.
    """

    versions: dict[str, str]
    refusal: str
    max_ranges: int


def pack(message: Any) -> bytes:
    """A message of this file, or a MomentSums, as one bytes object."""
    return pickle.dumps(message, protocol=5)


def unpack(content: bytes) -> Any:
    """Return the message that `pack` was given. Only for bytes of one's own cluster, which could run any code anyway."""
    return pickle.loads(content)


def runs_of(jobs: Int64) -> Int64:
    """Job numbers as runs [first, past), int64 (n, 2), in the same order."""
    if not len(jobs):
        return np.zeros((0, 2), dtype=np.int64)
    breaks = np.flatnonzero(np.diff(jobs) != 1) + 1
    return np.stack([jobs[np.r_[0, breaks]], jobs[np.r_[breaks - 1, len(jobs) - 1]] + 1], axis=1)


def jobs_of(runs: Int64) -> Int64:
    """The job numbers of runs."""
    return np.concatenate([np.arange(first, past, dtype=np.int64) for first, past in runs.tolist()] or [np.zeros(0, np.int64)])
