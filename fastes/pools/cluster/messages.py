"""Messages between driver and nodes. Each is one bytes object, whose size is the traffic."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastes.number_array import Float32, Float64, Int64
from fastes.rollout.env_calls import EnvCall
from fastes.rollout.episode import EpisodeSettings
from fastes.rollout.last_infos import Info
from fastes.rollout.obs_normalizer import ObsNormalizer


class Theta(NamedTuple):
    """A request's parameters themselves.

    Attributes:
        theta: float32 (num_params,).
        sigma_each: A sigma for each parameter, float32 (num_params,); None if all have the same.
    """

    theta: Float32
    sigma_each: Float32 | None


class CachedState(NamedTuple):
    """A request's parameters as a reference to a state that the node holds."""

    key: bytes


class Step(NamedTuple):
    """A request's parameters as the step from a state that the node holds.

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
    """A request's parameters as a pickled strategy, which the node holds from then on."""

    strategy: bytes
    key: bytes


class Draws(NamedTuple):
    """The arguments of the draws of a generation's candidates; see es.perturbations.

    Attributes:
        seed: The seed of the noise table and of all draws.
        num_pairs: The generation's pairs, with those that an earlier request had.
        sigma: Standard deviation of the noise; the mean, if each parameter has its own.
        window_size: Parameters that a pair perturbs, 0 for all.
        progress_remaining: From 1 (start) to 0 (end of the budget), for schedules.
    """

    seed: int
    num_pairs: int
    sigma: float
    window_size: int
    progress_remaining: float


class RequestMessage(NamedTuple):
    """A request without its jobs.

    Attributes:
        ticket: The driver's ticket.
        generation: As the strategy counts, from 0; -1 for none.
        parameters: theta in the shortest form for this node.
        draws: The draws of candidates; None for noise-free episodes of theta on eval_seeds.
        eval_seeds: Environment seeds of these, int64 (n,); (0,) for candidates.
        normalizer: Its statistics normalise the observations.
        episodes: The settings of the episodes.
        training: The number of the request's training.
        sends_rows: Whether each candidate's moments are returned with its results; otherwise the driver asks for their sum.
        calls: The calls that are made on environments before they play the request, in order.
        compared: See `Request`.
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
    compared: bool = True


class Range(NamedTuple):
    """Jobs of a request for one node.

    Attributes:
        number: Counts all ranges, so that a late result is never taken for another range's.
        ticket: The request's.
        runs: Runs of job numbers, [first, past), int64 (n, 2).
    """

    number: int
    ticket: int
    runs: Int64


class Work(NamedTuple):
    """A message to a node.

    Attributes:
        number: Counts the messages to the node, from 0.
        open_tickets: The driver's open requests; all others are over.
        dropped: Keys of states that the node should drop.
        requests: Requests that the node does not know yet.
        ranges: Ranges to play.
    """

    number: int
    open_tickets: tuple[int, ...]
    dropped: tuple[bytes, ...]
    requests: tuple[RequestMessage, ...]
    ranges: tuple[Range, ...]


class Played(NamedTuple):
    """The results of a range's n jobs, in their order.

    Attributes:
        number: The range's.
        returns: Means over a job's episodes, float64 (n,).
        lengths: Their total steps, int32 (n,).
        successes: Fractions of a job's episodes, float64 (n,), NaN if the environment reports none.
        cuts: A job's episodes that were cut, int32 (n,).
        rows: Moments of a job's observations, float64 (n, 2, obs_size), if the request's message asks for them; else None.
        busy_seconds: Seconds of playing, summed over the node's workers.
        rerun: Jobs run again because their worker died.
        penalised: The text of an exception that was made a return of NaN, or ''.
        infos, has_masks, cpu_seconds, differs: See `Batch`.
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
    cpu_seconds: float = 0.0
    differs: bool = False


class Failed(NamedTuple):
    """A range ended with an exception. error: the pickled exception, with its cause."""

    number: int
    error: bytes


class StateMismatch(NamedTuple):
    """The node needs a FullState: it has no such state, or computed another one. why: '' in the first case."""

    number: int
    why: str


class Reply(NamedTuple):
    """A message from a node. warned: the warnings of its pool."""

    answers: tuple[Played | Failed | StateMismatch, ...]
    warned: tuple[str, ...]


class Joined(NamedTuple):
    """A node's answer to `join`.

    Attributes:
        versions: Its versions of the packages that the driver named.
        refusal: The reason why it cannot be used, or ''.
        max_ranges: Ranges that it takes at a time; 0 if it is refused.
    """

    versions: dict[str, str]
    refusal: str
    max_ranges: int


def pack(message: Any) -> bytes:
    """Return a message of this file, or a MomentSums, as one bytes object."""
    return pickle.dumps(message, protocol=5)


def unpack(content: bytes) -> Any:
    """Return the message that `pack` was given. The bytes have to be from the user's own cluster: pickle can run any code."""
    return pickle.loads(content)


def runs_of(jobs: Int64) -> Int64:
    """Return job numbers as runs [first, past), int64 (n, 2), in the same order."""
    if not len(jobs):
        return np.zeros((0, 2), dtype=np.int64)
    breaks = np.flatnonzero(np.diff(jobs) != 1) + 1
    return np.stack([jobs[np.r_[0, breaks]], jobs[np.r_[breaks - 1, len(jobs) - 1]] + 1], axis=1)


def jobs_of(runs: Int64) -> Int64:
    """Return the job numbers of runs, int64 (n,)."""
    return np.concatenate([np.arange(first, past, dtype=np.int64) for first, past in runs.tolist()] or [np.zeros(0, np.int64)])
