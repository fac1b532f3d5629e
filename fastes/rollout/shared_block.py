"""One anonymous block of memory that parent and workers map: what is in it, and where."""

from __future__ import annotations

import errno
import math
import mmap
import os
import tempfile
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastes.system.descriptors import fill_standard_descriptors
from fastes.system.limits import OUT_OF_DESCRIPTORS
from fastes.system.memory import in_bytes

_NOT_SUPPORTED = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)  # what systems and file systems without fallocate say
_ALIGNMENT = 64  # a cache line: arrays start on one

# columns of a worker's row
JOB = 0  # the job it runs, or -1
EPISODE = 1  # which episode of that job
ENTERED = 2  # the last round in which it began to claim jobs
READY = 4  # 1 once its environment is built
STEPS = 3  # env.step calls so far: whoever watches sees that it goes on
LEAVE = 5  # 1 once it has to leave; written by the parent
STAGE = 6  # OPEN once it leaves when it is asked to, CLOSED once its environment is closed
OPEN, CLOSED = 1, 2


@dataclass(frozen=True)
class Layout:
    """Sizes that determine every array's place.

    num_params: of the policy.
    obs_size: values of an observation.
    num_pairs: room for the pairs of a generation.
    episodes: of each candidate.
    num_evals: room for evaluation jobs.
    n_workers: processes, 0 for a pool without.
    table_size: values of the noise table.
    num_sigmas: num_params where each parameter has a sigma of its own, else 0.
    window_size: parameters that a pair perturbs, 0 for all.
    """

    num_params: int
    obs_size: int
    num_pairs: int
    episodes: int
    num_evals: int
    n_workers: int
    table_size: int
    num_sigmas: int = 0
    window_size: int = 0

    @property
    def num_jobs(self) -> int:
        return 2 * self.num_pairs + self.num_evals

    def arrays(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Name -> (shape, dtype), in the order in which they lie in the block."""
        jobs, slots = self.num_jobs, max(self.n_workers, 1)
        return {
            # written by the parent before it wakes the workers
            "theta": ((self.num_params,), "f4"),
            "sigma_each": ((self.num_sigmas,), "f4"),
            "obs_mean": ((self.obs_size,), "f8"),
            "obs_inv_std": ((self.obs_size,), "f8"),
            "noise_index": ((self.num_pairs,), "i8"),
            "window_first": ((self.num_pairs if self.window_size else 0,), "i8"),
            "env_seed": ((self.num_pairs, self.episodes), "i8"),
            "action_key": ((self.num_pairs, self.episodes), "u8"),
            "eval_seed": ((self.num_evals,), "i8"),
            "todo": ((jobs,), "i8"),  # the jobs of this round
            # shared
            "next_todo": ((1,), "i8"),  # atomic: round << 32 | position in todo of the next unclaimed job
            # one writer a slot: the worker that runs the job
            "returns": ((jobs,), "f8"),
            "lengths": ((jobs,), "i8"),
            "successes": ((jobs,), "f8"),
            "seconds": ((jobs,), "f8"),
            "moments": ((2 * self.num_pairs, 2, self.obs_size), "f8"),
            "committed": ((jobs,), "i8"),  # written last: the round in which the slot was filled
            # one writer a row: the worker itself, but for LEAVE
            "workers": ((slots, 8), "i8"),  # columns: see below
            "noise": ((self.table_size,), "f4"),
        }

    def offsets(self) -> tuple[dict[str, int], int]:
        """Where each array starts, and the block's size, in bytes."""
        at, places = 0, {}
        for name, (shape, dtype) in self.arrays().items():
            places[name] = at
            size = math.prod(shape) * np.dtype(dtype).itemsize
            at += -(-size // _ALIGNMENT) * _ALIGNMENT
        return places, max(at, mmap.PAGESIZE)

    def memory(self, actors: int) -> dict[str, int]:
        """What a generation takes, in words -> bytes: the block, results twice (they are copied out), actors' parameters."""
        places, size = self.offsets()
        candidates, moments = f"{2 * self.num_pairs:,} candidates", places["committed"] - places["moments"]
        seeds = places["eval_seed"] - places["env_seed"]
        parts = {
            f"a noise table of {self.table_size:,} values": size - places["noise"],
            f"{candidates} x observations of {self.obs_size:,} values": 2 * moments,
            f"{candidates} x {self.episodes:,} episodes": 2 * seeds,
            f"{actors} x {self.num_params:,} parameters": 4 * self.num_params * actors,
        }
        return {**parts, f"results of {candidates} and {self.num_evals:,} evaluations": places["noise"] - moments - seeds}


class Block:
    """The arrays of a layout over a file without a name: gone when the last process that has it open ends.

    The parent makes it, workers open its descriptor `fd`.

    shared: False for a pool that has no workers, whose memory a forked copy of the process must not write into.

    Attributes are the arrays of `Layout.arrays`.
    """

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
    next_todo: npt.NDArray[np.int64]
    returns: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.int64]
    successes: npt.NDArray[np.float64]
    seconds: npt.NDArray[np.float64]
    moments: npt.NDArray[np.float64]
    committed: npt.NDArray[np.int64]
    workers: npt.NDArray[np.int64]
    noise: npt.NDArray[np.float32]

    def __init__(self, layout: Layout, fd: int | None = None, shared: bool = True) -> None:
        self.layout = layout
        places, size = layout.offsets()
        self.fd = fd if fd is not None else anonymous_file(size) if shared else -1
        try:
            memory = mmap.mmap(self.fd, size, flags=mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError) as error:
            self.close()
            if getattr(error, "errno", 0) in OUT_OF_DESCRIPTORS:  # a mapping keeps a descriptor of its own
                raise
            raise no_room(size, error) from error
        for name, (shape, dtype) in layout.arrays().items():
            count = math.prod(shape)
            setattr(self, name, np.frombuffer(memory, dtype, count, places[name]).reshape(shape))

    def close(self) -> None:
        """Close the descriptor; the memory goes when the last array does."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def anonymous_file(size: int) -> int:
    """A descriptor of size bytes that really exist: a full memory or disk is an OSError here and never a SIGBUS later."""
    fill_standard_descriptors()
    try:
        fd = os.memfd_create("fastes", os.MFD_CLOEXEC)
    except (AttributeError, OSError) as error:  # not Linux, or forbidden
        if getattr(error, "errno", 0) in OUT_OF_DESCRIPTORS:
            raise
        fd, path = tempfile.mkstemp(prefix="fastes-")
        os.unlink(path)
    try:
        _reserve(fd, size)
    except (OSError, OverflowError) as error:
        os.close(fd)
        raise no_room(size, error) from error
    return fd


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
