"""The block of memory that parent and workers share: its arrays and their positions."""

from __future__ import annotations

import errno
import math
import mmap
import os
import tempfile
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastes.rollout.env_calls import CallRecords
from fastes.system.console import fill_standard_descriptors
from fastes.system.limits import OUT_OF_DESCRIPTORS, in_bytes

_NOT_SUPPORTED = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)  # what systems and file systems without fallocate say
_ALIGNMENT = 64  # a cache line: arrays start on one
_NO_NOISE = np.zeros(0, dtype=np.float32)
Arrays = dict[str, tuple[tuple[int, ...], str]]  # name -> (shape, dtype)

# columns of a worker's row
JOB = 0  # the job it runs, or -1
EPISODE = 1  # which episode of that job
SLOT = 2  # the slot of that job
STEPS = 3  # env.step calls of candidates so far, from which the parent sees that it plays
READY = 4  # 1 once its environment is built
LEAVE = 5  # 1 once it has to end; written by the parent
STAGE = 6  # OPEN once it ends on request, CLOSED once its environment is closed
CLAIMING = 7  # 1 from before it claims a job until it has noted which
TICKET = 8  # the ticket under which the job was claimed
EVALUATION_STEPS = 9  # as STEPS, of noise-free episodes
OPEN, CLOSED = 1, 2

TICKET_SHIFT = 32  # a word of `unclaimed` is ticket << 32 | number of unclaimed jobs
UNCLAIMED = (1 << TICKET_SHIFT) - 1

# columns of a slot's words
GENERATION = 0  # as the strategy counts, from 0; -1 for no generation's
MAX_STEPS = 1  # of the request's episodes
SAMPLE = 2  # whether actions are sampled
PER_CANDIDATE = 3  # episodes, at most as many as there is room for
CALLS = 4  # number of the last call that is made on its environments
COMPARED = 5  # whether its first job plays in C and in Python
# and of its numbers
SIGMA = 0  # of the candidates' noise
OBS_CLIP = 1  # where normalised observations are clipped
ACTION_NOISE = 2


@dataclass(frozen=True)
class SlotLayout:
    """Sizes of the slot of one request.

    Attributes:
        num_params: The policy's parameters.
        obs_size: Values of an observation.
        num_pairs: Room for the pairs of a generation, 0 for noise-free episodes of theta.
        episodes: Room for the episodes of each candidate.
        num_evals: Room for noise-free episodes, 0 for candidates.
        num_sigmas: num_params if each parameter has a sigma of its own, else 0.
        window_size: Parameters that a pair perturbs, 0 for all.
        info_bytes: Room for the last info of each candidate's episode, 0 for none.
    """

    num_params: int
    obs_size: int
    num_pairs: int
    episodes: int
    num_evals: int
    num_sigmas: int = 0
    window_size: int = 0
    info_bytes: int = 0

    @property
    def num_jobs(self) -> int:
        return 2 * self.num_pairs + self.num_evals

    def arrays(self) -> Arrays:
        """Return name -> (shape, dtype), in the order of the arrays in the block."""
        jobs = self.num_jobs
        return {
            # written by the parent before it opens the request
            "words": ((6,), "i8"),  # columns: see above
            "numbers": ((3,), "f8"),
            "theta": ((self.num_params,), "f4"),
            "sigma_each": ((self.num_sigmas,), "f4"),
            "obs_mean": ((self.obs_size,), "f8"),
            "obs_inv_std": ((self.obs_size,), "f8"),
            "noise_index": ((self.num_pairs,), "i8"),
            "window_first": ((self.num_pairs if self.window_size else 0,), "i8"),
            "env_seed": ((self.num_pairs, self.episodes), "i8"),
            "action_key": ((self.num_pairs, self.episodes), "u8"),
            "eval_seed": ((self.num_evals,), "i8"),
            "todo": ((jobs,), "i8"),  # the jobs to claim, in reverse order
            # one writer per job: the worker that runs it
            "returns": ((jobs,), "f8"),
            "lengths": ((jobs,), "i8"),
            "successes": ((jobs,), "f8"),
            "cuts": ((jobs,), "i8"),
            "seconds": ((jobs,), "f8"),
            "cpu_seconds": ((jobs,), "f8"),  # stays 0 if the parent plays
            "moments": ((2 * self.num_pairs, 2, self.obs_size), "f8"),
            "infos": ((2 * self.num_pairs, self.episodes, self.info_bytes), "u1"),  # JSON, see last_infos.py
            "masks": ((jobs,), "u1"),  # 1 if the last info of a candidate had an action mask
            "differs": ((1,), "u1"),  # 1 if its first job was compared, and differs in C; see native_episodes.py
            "committed": ((jobs,), "i8"),  # written last: the ticket under which the results were written
        }

    def size(self) -> int:
        """Return the bytes of the slot."""
        return _size_of(self.arrays())


@dataclass(frozen=True)
class TrainingLayout:
    """Sizes of one training's part of the block.

    Attributes:
        candidates: A slot for a request of candidates.
        evaluation: A slot for a request of noise-free episodes.
        num_generations: Places for requests of candidates.
        num_evaluations: Places for requests of noise-free episodes.
        table: The number of its noise table; -1 for none.
        reference: The shape of its reference batch; (0,) for none.
        reference_dtype: The batch's dtype.
    """

    candidates: SlotLayout
    evaluation: SlotLayout
    num_generations: int
    num_evaluations: int
    table: int = -1
    reference: tuple[int, ...] = (0,)
    reference_dtype: str = "u1"


@dataclass(frozen=True)
class BlockLayout:
    """Sizes that determine the position of every array in the block.

    Attributes:
        trainings: Each training's part.
        n_workers: Processes; 0 for a pool without.
        tables: The number of values of each noise table. Several trainings may use one.
    """

    trainings: tuple[TrainingLayout, ...]
    n_workers: int
    tables: tuple[int, ...] = ()

    @property
    def num_generations(self) -> int:
        """Places for requests of candidates, of all trainings. They come first in the block."""
        return sum(training.num_generations for training in self.trainings)

    def slots(self) -> list[tuple[int, SlotLayout]]:
        """Return the training and the layout of each slot: slots for candidates first, then those for noise-free episodes."""
        numbered = list(enumerate(self.trainings))
        candidates = [(number, each.candidates) for number, each in numbered for _ in range(each.num_generations)]
        return candidates + [(number, each.evaluation) for number, each in numbered for _ in range(each.num_evaluations)]

    def shared(self) -> Arrays:
        """Return the arrays that all requests share."""
        slots = sum(training.num_generations + training.num_evaluations for training in self.trainings)
        return {
            "unclaimed": ((slots, 8), "i8"),  # column 0, atomic: ticket << 32 | how many jobs of todo are unclaimed
            "unfinished": ((slots, 8), "i8"),  # column 0, atomic: the same, of jobs that are not done
            "notices": ((8,), "i8"),  # column 0: 1 once a worker has sent a Notice; the parent sets it back to 0
            # one writer per row, the worker itself; except for LEAVE
            "workers": ((max(self.n_workers, 1), 16), "i8"),  # columns: see above
            **{f"table {number}": ((size,), "f4") for number, size in enumerate(self.tables)},
            **{
                f"reference {number}": (training.reference, training.reference_dtype)
                for number, training in enumerate(self.trainings)
            },
        }

    def size(self) -> int:
        """Return the bytes of the block."""
        return max(_size_of(self.shared()) + sum(slot.size() for _, slot in self.slots()), mmap.PAGESIZE)

    def memory(self, actors: int) -> dict[str, int]:
        """Compute the memory that generations take: the block, results once more (they are copied out), actors' parameters.

        Args:
            actors: Actors per training.

        Returns:
            A part in words -> its bytes.
        """
        parts: Counter[str] = Counter()
        for size, count in Counter(self.tables).items():
            parts[f"{'a noise table' if count == 1 else f'{count} noise tables'} of {size:,} values"] = 4 * size * count
        requests: Counter[SlotLayout] = Counter()
        for training in self.trainings:
            requests[training.candidates] += training.num_generations
        counted = sum(parts.values())
        for slot, count in requests.items():
            room = {name: count * _room(*array) for name, array in slot.arrays().items()}
            candidates, moments, seeds = 2 * slot.num_pairs * count, room["moments"], room["env_seed"] + room["action_key"]
            parts[f"{candidates:,} candidates x observations of {slot.obs_size:,} values"] += 2 * moments
            parts[f"{candidates:,} candidates x {slot.episodes:,} episodes"] += 2 * seeds
            counted += moments + seeds
        for training in self.trainings:
            num_params = training.candidates.num_params
            parts[f"{actors} x {num_params:,} parameters"] += 4 * num_params * actors
        references = sum(_room(training.reference, training.reference_dtype) for training in self.trainings)
        parts["reference batches of observations"] = references
        candidates = sum(2 * slot.num_pairs * count for slot, count in requests.items())
        evaluations = sum(training.num_evaluations * training.evaluation.num_evals for training in self.trainings)
        results = f"results of {candidates:,} candidates and {evaluations:,} evaluations"
        return {**parts, results: self.size() - counted - references}


def _room(shape: tuple[int, ...], dtype: str) -> int:
    """Return the bytes from the start of an array to the next one."""
    return -(-math.prod(shape) * np.dtype(dtype).itemsize // _ALIGNMENT) * _ALIGNMENT


class RequestSlot:
    """The arrays of one request, named as in `SlotLayout.arrays`, and those that it shares with other requests.

    Attributes:
        training: The number of the training whose requests it takes.
        unclaimed: The word of its unclaimed jobs, (1,).
        unfinished: The word of its jobs that are not done, (1,).
        noise: The noise table of its candidates, float32 (table_size,); (0,) for none.
        reference: The reference batch of its policy, (n, *observation shape), if the policy needs one.
        calls: The calls that requests make on environments.
    """

    words: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.float64]
    theta: npt.NDArray[np.float32]
    sigma_each: npt.NDArray[np.float32]
    obs_mean: npt.NDArray[np.float64]
    obs_inv_std: npt.NDArray[np.float64]
    noise_index: npt.NDArray[np.int64]
    window_first: npt.NDArray[np.int64]
    env_seed: npt.NDArray[np.int64]
    action_key: npt.NDArray[np.uint64]
    eval_seed: npt.NDArray[np.int64]
    todo: npt.NDArray[np.int64]
    returns: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.int64]
    successes: npt.NDArray[np.float64]
    cuts: npt.NDArray[np.int64]
    seconds: npt.NDArray[np.float64]
    cpu_seconds: npt.NDArray[np.float64]
    moments: npt.NDArray[np.float64]
    infos: npt.NDArray[np.uint8]
    masks: npt.NDArray[np.uint8]
    differs: npt.NDArray[np.uint8]
    committed: npt.NDArray[np.int64]

    def __init__(self, layout: SlotLayout, training: int, memory: mmap.mmap, at: int, number: int, block: SharedBlock) -> None:
        self.layout, self.training = layout, training
        self.unclaimed, self.unfinished = block.unclaimed[number, :1], block.unfinished[number, :1]
        table = block.layout.trainings[training].table
        self.noise = block.tables[table] if table >= 0 else _NO_NOISE
        self.reference, self.calls = block.references[training], block.calls
        for name, array in _laid(layout.arrays(), memory, at).items():
            setattr(self, name, array)


class SharedBlock:
    """The arrays of a layout over a file without a name, which the system removes when the last process that has it open ends.

    The parent makes the block, and workers open its descriptor `fd`.

    Args:
        layout: The sizes.
        fd: The descriptor of a block that exists; None for a new one.
        shared: False for a pool without workers, whose memory a forked copy of the process must not write to.

    Attributes:
        slots: One per request that can be open.
        unclaimed, unfinished, notices, workers: The arrays of `BlockLayout.shared`.
        tables: The noise tables, each float32 (size,).
        references: Each training's reference batch; (0,) for none.
        calls: The calls that requests make on environments.
    """

    def __init__(self, layout: BlockLayout, fd: int | None = None, shared: bool = True) -> None:
        self.layout = layout
        size = layout.size()
        if fd is None:
            fd = anonymous_file(size) if shared else -1
        self.fd = fd
        self.slots: list[RequestSlot] = []
        self.calls = CallRecords()
        try:
            memory = mmap.mmap(self.fd, size, flags=mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            arrays = _laid(layout.shared(), memory, 0)
            self.unclaimed: npt.NDArray[np.int64] = arrays["unclaimed"]
            self.unfinished: npt.NDArray[np.int64] = arrays["unfinished"]
            self.notices: npt.NDArray[np.int64] = arrays["notices"]
            self.workers: npt.NDArray[np.int64] = arrays["workers"]
            self.tables: list[npt.NDArray[np.float32]] = [arrays[f"table {n}"] for n in range(len(layout.tables))]
            self.references = [arrays[f"reference {n}"] for n in range(len(layout.trainings))]
            at = _size_of(layout.shared())
            for number, (training, slot) in enumerate(layout.slots()):
                self.slots.append(RequestSlot(slot, training, memory, at, number, self))
                at += slot.size()
        except BaseException as error:
            self.close()
            if isinstance(error, (OSError, OverflowError)) and getattr(error, "errno", 0) not in OUT_OF_DESCRIPTORS:
                raise no_room(size, error) from error
            raise  # Ctrl-C, or no descriptor left for the mapping

    def close(self) -> None:
        """Close the descriptor; the memory is freed with the last array."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _size_of(arrays: Arrays) -> int:
    """Return the bytes of several arrays."""
    return sum(_room(shape, dtype) for shape, dtype in arrays.values())


def _laid(arrays: Arrays, memory: mmap.mmap, at: int) -> dict[str, npt.NDArray[Any]]:
    """Return name -> array, over memory from byte `at` on."""
    laid = {}
    for name, (shape, dtype) in arrays.items():
        laid[name] = np.frombuffer(memory, dtype, math.prod(shape), at).reshape(shape)
        at += _room(shape, dtype)
    return laid


def anonymous_file(size: int) -> int:
    """Return a descriptor of `size` reserved bytes: a full memory or disk is an OSError here, and never a SIGBUS later."""
    fd, _ = open_nameless()
    try:
        _reserve(fd, size)
    except BaseException as error:  # Ctrl-C, too: this takes a while
        os.close(fd)
        if isinstance(error, (OSError, OverflowError)):
            raise no_room(size, error) from error
        raise
    return fd


def open_nameless() -> tuple[int, str]:
    """Return a descriptor of an empty file without a name, and its kind: 'memfd', or 'a file in /tmp'."""
    fill_standard_descriptors()
    try:
        return os.memfd_create("fastes", os.MFD_CLOEXEC), "memfd"
    except (AttributeError, OSError) as error:  # not Linux, or forbidden
        if getattr(error, "errno", 0) in OUT_OF_DESCRIPTORS:
            raise
        memfd = f"memfd_create: {getattr(error, 'strerror', None) or 'not on this system'}"
    try:
        fd, path = tempfile.mkstemp(prefix="fastes-")
    except FileNotFoundError as error:  # no folder can be written
        raise OSError(
            error.errno, f"no shared memory: {memfd}; {error.strerror}: let TMPDIR name one that can be written"
        ) from error
    os.unlink(path)
    return fd, f"a file in {os.path.dirname(path)}"


def _reserve(fd: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(fd, 0, size)
            return
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
    _write_zeros(fd, size)


def no_room(size: int, error: Exception) -> OSError:
    """Return the error for a block of `size` bytes that cannot be made."""
    number, reason = getattr(error, "errno", None) or errno.ENOMEM, getattr(error, "strerror", None) or error
    return OSError(
        number, f"no room for {in_bytes(size)} of memory ({reason}): use a smaller noise table or population, or fewer workers"
    )


def _write_zeros(fd: int, size: int) -> None:
    chunk = bytes(1 << 20)
    while size > 0:
        size -= os.write(fd, chunk[: min(size, len(chunk))])
    os.lseek(fd, 0, os.SEEK_SET)
