"""One anonymous block of memory that parent and workers map: what is in it, and where."""

from __future__ import annotations

import errno
import math
import mmap
import os
import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastes.rollout.env_calls import CallRecords
from fastes.system.descriptors import fill_standard_descriptors
from fastes.system.limits import OUT_OF_DESCRIPTORS
from fastes.system.memory import in_bytes

_NOT_SUPPORTED = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)  # what systems and file systems without fallocate say
_ALIGNMENT = 64  # a cache line: arrays start on one
Arrays = dict[str, tuple[tuple[int, ...], str]]  # name -> (shape, dtype)

# columns of a worker's row
JOB = 0  # the job it runs, or -1
EPISODE = 1  # which episode of that job
PLACE = 2  # whose job it is
STEPS = 3  # env.step calls of candidates so far: whoever watches sees that it goes on
READY = 4  # 1 once its environment is built
LEAVE = 5  # 1 once it has to leave; written by the parent
STAGE = 6  # OPEN once it leaves when it is asked to, CLOSED once its environment is closed
CLAIMING = 7  # 1 from before it claims a job until it has noted which
TICKET = 8  # under which the job was claimed
EVALUATION_STEPS = 9  # as STEPS, of noise-free episodes
SAID = 10  # 1 once it has sent something to be said; the parent makes it 0
OPEN, CLOSED = 1, 2

TICKET_SHIFT = 32  # a word of `unclaimed` is ticket << 32 | number of unclaimed jobs
UNCLAIMED = (1 << TICKET_SHIFT) - 1

# columns of a place's words
NUM_TABLE = 0  # which noise table
GENERATION = 1  # as the strategy counts, from 0; -1 for no generation's
MAX_STEPS = 2  # of the request's episodes
SAMPLE = 3  # whether actions are sampled
PER_CANDIDATE = 4  # episodes, at most as many as there is room for
CALLS = 5  # number of the last call that its environments have been given
# and of its numbers
SIGMA = 0  # of the candidates' noise
OBS_CLIP = 1  # where normalised observations are clipped
ACTION_NOISE = 2


@dataclass(frozen=True)
class PlaceLayout:
    """Sizes of the place of one request.

    num_params: of the policy.
    obs_size: values of an observation.
    num_pairs: room for the pairs of a generation, 0 for noise-free episodes of theta.
    episodes: room for those of each candidate.
    num_evals: room for noise-free episodes, 0 for candidates.
    num_sigmas: num_params where each parameter has a sigma of its own, else 0.
    window_size: parameters that a pair perturbs, 0 for all.
    info_bytes: room for the last info of each candidate's episode, 0 for none.
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
        """Name -> (shape, dtype), in the order in which they lie in the block."""
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
            "todo": ((jobs,), "i8"),  # the jobs that are to be claimed, the first of them last
            # one writer a slot: the worker that runs the job
            "returns": ((jobs,), "f8"),
            "lengths": ((jobs,), "i8"),
            "successes": ((jobs,), "f8"),
            "cuts": ((jobs,), "i8"),
            "seconds": ((jobs,), "f8"),
            "moments": ((2 * self.num_pairs, 2, self.obs_size), "f8"),
            "infos": ((2 * self.num_pairs, self.episodes, self.info_bytes), "u1"),  # JSON, see last_infos.py
            "masks": ((jobs,), "u1"),  # 1 where the last info of a candidate had an action mask
            "committed": ((jobs,), "i8"),  # written last: the ticket under which the slot was filled
        }


@dataclass(frozen=True)
class Layout:
    """Sizes that determine every array's place.

    candidates, evaluation: the two kinds of places.
    num_generations: places for requests of candidates.
    num_evaluations: places for requests of noise-free episodes.
    n_workers: processes, 0 for a pool without.
    table_size: values of a noise table.
    num_tables: noise tables.
    references: shape of the reference batches, one for each noise table; (0,) for none.
    reference_dtype: theirs.
    """

    candidates: PlaceLayout
    evaluation: PlaceLayout
    num_generations: int
    num_evaluations: int
    n_workers: int
    table_size: int
    num_tables: int = 1
    references: tuple[int, ...] = (0,)
    reference_dtype: str = "u1"

    def places(self) -> list[PlaceLayout]:
        """Those of candidates come first."""
        return [self.candidates] * self.num_generations + [self.evaluation] * self.num_evaluations

    def shared(self) -> Arrays:
        """What all requests share."""
        places = self.num_generations + self.num_evaluations
        return {
            "unclaimed": ((places, 8), "i8"),  # column 0, atomic: ticket << 32 | how many jobs of todo are unclaimed
            # one writer a row: the worker itself, but for LEAVE
            "workers": ((max(self.n_workers, 1), 16), "i8"),  # columns: see above
            "noise": ((self.num_tables, self.table_size), "f4"),
            "references": (self.references, self.reference_dtype),
        }

    def size(self) -> int:
        """Of the block, in bytes."""
        parts = [*(place.arrays() for place in self.places()), self.shared()]
        return max(sum(_room(shape, dtype) for part in parts for shape, dtype in part.values()), mmap.PAGESIZE)

    def memory(self, actors: int) -> dict[str, int]:
        """What a generation takes, in words -> bytes: the block, results twice (they are copied out), actors' parameters."""
        place, tables, requests = self.candidates, self.num_tables, self.num_generations
        room = {name: requests * _room(*array) for name, array in place.arrays().items()}
        candidates = f"{2 * place.num_pairs * requests:,} candidates"
        references = _room(self.references, self.reference_dtype)
        moments, seeds = room["moments"], room["env_seed"] + room["action_key"]
        noise = tables * 4 * self.table_size
        parts = {
            f"{'a noise table' if tables == 1 else f'{tables} noise tables'} of {self.table_size:,} values": noise,
            f"{candidates} x observations of {place.obs_size:,} values": 2 * moments,
            f"{candidates} x {place.episodes:,} episodes": 2 * seeds,
            f"{actors} x {place.num_params:,} parameters": 4 * place.num_params * actors,
            "reference batches of observations": references,
        }
        evaluations = self.num_evaluations * self.evaluation.num_evals
        results = self.size() - noise - moments - seeds - references
        return {**parts, f"results of {candidates} and {evaluations:,} evaluations": results}


def _room(shape: tuple[int, ...], dtype: str) -> int:
    """Bytes of an array, up to where the next one may start."""
    return -(-math.prod(shape) * np.dtype(dtype).itemsize // _ALIGNMENT) * _ALIGNMENT


class Place:
    """The arrays of one request, under the names of `PlaceLayout.arrays`, and what it shares with the others.

    unclaimed: (1,), the word of its unclaimed jobs. calls: those of all requests.
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
    moments: npt.NDArray[np.float64]
    infos: npt.NDArray[np.uint8]
    masks: npt.NDArray[np.uint8]
    committed: npt.NDArray[np.int64]

    def __init__(self, layout: PlaceLayout, memory: mmap.mmap, at: int, unclaimed: npt.NDArray[np.int64], block: Block) -> None:
        self.layout, self.unclaimed = layout, unclaimed
        self._tables, self._references, self.calls = block.noise, block.references, block.calls
        _lay(self, layout.arrays(), memory, at)

    @property
    def noise(self) -> npt.NDArray[np.float32]:
        """The noise table of its candidates, float32 (table_size,)."""
        table: npt.NDArray[np.float32] = self._tables[self.words[NUM_TABLE]]
        return table

    @property
    def reference(self) -> npt.NDArray[Any]:
        """The reference batch of its policy, (n, *observation shape), where the policy needs one."""
        batch: npt.NDArray[Any] = self._references[self.words[NUM_TABLE]]
        return batch


class Block:
    """The arrays of a layout over a file without a name: gone when the last process that has it open ends.

    The parent makes it, workers open its descriptor `fd`. shared: False for a pool that has no workers, whose memory a forked
    copy of the process must not write into.

    places: of the requests. calls: that their environments are given. Other attributes are the arrays of `Layout.shared`.
    """

    unclaimed: npt.NDArray[np.int64]
    workers: npt.NDArray[np.int64]
    noise: npt.NDArray[np.float32]
    references: npt.NDArray[Any]

    def __init__(self, layout: Layout, fd: int | None = None, shared: bool = True) -> None:
        self.layout = layout
        size = layout.size()
        self.fd = fd if fd is not None else anonymous_file(size) if shared else -1
        self.places: list[Place] = []
        self.calls = CallRecords()
        try:
            memory = mmap.mmap(self.fd, size, flags=mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            at = _lay(self, layout.shared(), memory, 0)
            for number, place in enumerate(layout.places()):
                self.places.append(Place(place, memory, at, self.unclaimed[number, :1], self))
                at += sum(_room(*array) for array in place.arrays().values())
        except BaseException as error:
            self.close()
            if isinstance(error, (OSError, OverflowError)) and getattr(error, "errno", 0) not in OUT_OF_DESCRIPTORS:
                raise no_room(size, error) from error
            raise  # Ctrl-C, or no descriptor left for the mapping

    def close(self) -> None:
        """Close the descriptor; the memory goes when the last array does."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _lay(owner: object, arrays: Arrays, memory: mmap.mmap, at: int) -> int:
    """Make arrays over memory from byte `at` on attributes of owner; returns where the next one may start."""
    for name, (shape, dtype) in arrays.items():
        setattr(owner, name, np.frombuffer(memory, dtype, math.prod(shape), at).reshape(shape))
        at += _room(shape, dtype)
    return at


def anonymous_file(size: int) -> int:
    """A descriptor of size bytes that really exist: a full memory or disk is an OSError here and never a SIGBUS later."""
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
    """A descriptor of an empty file that has no name, and what it is: 'memfd', or 'a file in /tmp' where there is none."""
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
    """What to say when a block of size bytes cannot be made."""
    number, reason = getattr(error, "errno", None) or errno.ENOMEM, getattr(error, "strerror", None) or error
    return OSError(
        number, f"no room for {in_bytes(size)} of memory ({reason}): use a smaller noise table or population, or fewer workers"
    )


def _write_zeros(fd: int, size: int) -> None:
    chunk = bytes(1 << 20)
    while size > 0:
        size -= os.write(fd, chunk[: min(size, len(chunk))])
    os.lseek(fd, 0, os.SEEK_SET)
