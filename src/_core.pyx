# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The border between NumPy and C: checks every argument once, then calls the kernels of fastes_core.h."""
import math
import numbers
import os

import numpy as np

cimport cython
cimport numpy as cnp
from cpython.exc cimport PyErr_CheckSignals
from fastes_core cimport *
from libc.math cimport NAN, isfinite
from libc.stdint cimport int32_t, int64_t, intptr_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset
from mujoco_tasks cimport *
from native_episode cimport *

cnp.import_array()

cdef extern from "fenv.h" nogil:
    ctypedef struct fenv_t:
        pass
    int fegetenv(fenv_t *)
    int fesetenv(const fenv_t *)

cdef extern from *:
    const char *FASTES_SOURCE_HASH  # setup.py's

SOURCE_HASH = FASTES_SOURCE_HASH.decode()
STREAM_VERSION = FASTES_STREAM_VERSION
STREAM_TABLE = FASTES_STREAM_TABLE
STREAM_PAIR = FASTES_STREAM_PAIR
STREAM_EVAL = FASTES_STREAM_EVAL
STREAM_INIT = FASTES_STREAM_INIT

LAYER_KINDS = {
    "dense": FASTES_DENSE, "convolution": FASTES_CONVOLUTION, "image_convolution": FASTES_IMAGE_CONVOLUTION,
    "virtual_batch_norm": FASTES_VIRTUAL_BATCH_NORM, "append": FASTES_APPEND, "lstm": FASTES_LSTM, "gru": FASTES_GRU,
    "join": FASTES_JOIN,
}
ACTIVATIONS = {"tanh": FASTES_TANH, "relu": FASTES_RELU, "elu": FASTES_ELU, "identity": FASTES_IDENTITY}
OBS_DTYPES = {"float64": FASTES_OBS_FLOAT64, "float32": FASTES_OBS_FLOAT32, "uint8": FASTES_OBS_UINT8}
ACTION_KINDS = {
    "clip": FASTES_BOX_CLIP, "squash": FASTES_BOX_SQUASH, "bins": FASTES_BOX_BINS,
    "categorical": FASTES_CATEGORICAL, "binary": FASTES_BINARY,
}
ACTION_DTYPES = {
    "float32": FASTES_ACTION_FLOAT32, "float64": FASTES_ACTION_FLOAT64, "int64": FASTES_ACTION_INT64,
    "int8": FASTES_ACTION_INT8,
}
# The dtypes that the kernels write for each kind.
DTYPES_OF_ACTIONS = {
    "clip": ("float32", "float64"), "squash": ("float32", "float64"), "bins": ("float32", "float64"),
    "categorical": ("int64",), "binary": ("int8",),
}
STRIP_VALUES = 8192  # of an image that are there as floats at a time: 32 KB, which the cache near the core holds
VARIANTS = ("baseline", "neon", "avx2", "avx512")  # a processor runs those of its architecture; the widest come last

cdef const fastes_kernels *kernels = fastes_best_variant()


def available_variants():
    """Names of the compiled kernel variants that this CPU runs."""
    return [name for name in VARIANTS if fastes_variant(name.encode()) != NULL]


def variant():
    """Name of the kernel variant in use."""
    return kernels.name.decode()


def use_variant(str name):
    """Use the kernels of this variant from now on (all give the same bits); "auto" is the widest one."""
    global kernels
    cdef const fastes_kernels *chosen = fastes_best_variant() if name == "auto" else fastes_variant(name.encode())
    if chosen == NULL:
        raise ValueError(
            f"kernel variant {name!r} cannot run here: choose 'auto' or one of {available_variants()}"
        )
    kernels = chosen


if os.environ.get("FASTES_KERNELS"):
    try:
        use_variant(os.environ["FASTES_KERNELS"])
    except ValueError as error:
        raise ValueError(f"environment variable FASTES_KERNELS: {error}") from None


cdef int check_slice(int64_t index, int64_t length, int64_t table_size, str name) except -1:
    if index < 0 or index > table_size - length:
        raise ValueError(
            f"{name} = {index} is out of range: the table has {table_size} values, the policy needs {length}"
        )
    return 0


def code_of(codes, name, what):
    """The number that C knows a name by; ValueError for a name that it does not know."""
    if name not in codes:
        raise ValueError(f"unknown {what} {name!r:.100}: expected one of {tuple(codes)}")
    return codes[name]


def check_length(name, int64_t got, int64_t expected):
    if got != expected:
        raise ValueError(f"{name} has {got} values, expected {expected}")


def normal_fill(float[::1] out not None, uint64_t seed, int64_t start=0, uint32_t stream=FASTES_STREAM_TABLE):
    """Write standard normals number start, start + 1, ... of stream (seed, stream) into out (n,) float32.

    A value depends on nothing but seed, stream and its number, so parts may be filled in any order by any thread.
    """
    if start < 0:
        raise ValueError(f"start = {start} is negative: expected the number of the first value, 0 or more")
    cdef int64_t n = out.shape[0]
    if start > 2**62:
        raise ValueError(f"start = {start} is out of range: expected at most 2**62")
    if n:
        with nogil:
            kernels.normal_fill(&out[0], start, n, seed, stream)


def perturb(float[::1] out not None, const float[::1] theta not None, const float[::1] table not None,
            int64_t noise_index, float scale):
    """out = theta + scale * table[noise_index : noise_index + n]; all float32, out and theta (n,)."""
    cdef int64_t n = theta.shape[0]
    check_length("out", out.shape[0], n)
    check_slice(noise_index, n, table.shape[0], "noise_index")
    if n:
        with nogil:
            kernels.perturb(&out[0], &theta[0], &table[noise_index], scale, n)


def perturb_each(float[::1] out not None, const float[::1] theta not None, const float[::1] table not None,
                 int64_t noise_index, const float[::1] sigma not None, int side):
    """out = theta + sigma * eps for side 0, theta - sigma * eps for side 1, eps = table[noise_index : noise_index + n].

    All float32 (n,). If all sigmas are equal, the bits are those of `perturb`.
    """
    cdef int64_t n = theta.shape[0]
    check_length("out", out.shape[0], n)
    check_length("sigma", sigma.shape[0], n)
    check_slice(noise_index, n, table.shape[0], "noise_index")
    if side not in (0, 1):
        raise ValueError(f"side = {side} is out of range: a pair has sides 0 and 1")
    if n:
        with nogil:
            kernels.perturb_each(&out[0], &theta[0], &table[noise_index], &sigma[0], 1 - 2 * side, n)


def noise_sum(float[::1] out not None, const float[::1] table not None, const int64_t[::1] noise_index not None,
              const float[::1] weights not None):
    """out (n,) = sum over j, in order, of weights[j] * table[noise_index[j] : noise_index[j] + n]; float32."""
    cdef int64_t n = out.shape[0], num_slices = check_slices(n, table, noise_index, weights)
    if num_slices and n:
        with nogil:
            kernels.noise_sum(&out[0], &table[0], &noise_index[0], &weights[0], num_slices, n)
    elif n:
        memset(&out[0], 0, n * sizeof(float))


def noise_square_sum(float[::1] out not None, const float[::1] table not None, const int64_t[::1] noise_index not None,
                     const float[::1] weights not None):
    """out (n,) = sum over j, in order, of weights[j] * (eps * eps - 1), eps the slices of `noise_sum`; float32."""
    cdef int64_t n = out.shape[0], num_slices = check_slices(n, table, noise_index, weights)
    if num_slices and n:
        with nogil:
            kernels.noise_square_sum(&out[0], &table[0], &noise_index[0], &weights[0], num_slices, n)
    elif n:
        memset(&out[0], 0, n * sizeof(float))


cdef int64_t check_slices(int64_t n, const float[::1] table, const int64_t[::1] noise_index, const float[::1] weights) except -1:
    """How many slices there are, each of n values within the table, and each with a weight."""
    cdef int64_t num_slices = noise_index.shape[0], j
    check_length("weights", weights.shape[0], num_slices)
    for j in range(num_slices):
        if noise_index[j] < 0 or noise_index[j] > table.shape[0] - n:
            check_slice(noise_index[j], n, table.shape[0], f"noise_index[{j}]")
    return num_slices


def noise_sum_pieces(float[::1] out not None, const float[::1] table not None, const int64_t[::1] noise_index not None,
                     const int64_t[::1] begin not None, const int64_t[::1] end not None, const float[::1] weights not None,
                     bint squares):
    """out (n,) = sum over j, in order, of slices that cover a part each; float32. The others are (num_pieces,).

    Piece j adds weights[j] * eps to out[begin[j] : end[j]], eps = the slice of that length at noise_index[j]. squares: with
    eps * eps - 1 in place of eps.
    """
    cdef int64_t n = out.shape[0], num_pieces = noise_index.shape[0], j
    check_length("begin", begin.shape[0], num_pieces)
    check_length("end", end.shape[0], num_pieces)
    check_length("weights", weights.shape[0], num_pieces)
    for j in range(num_pieces):
        if begin[j] < 0 or end[j] < begin[j] or end[j] > n:
            raise ValueError(f"piece {j} = {begin[j]} to {end[j]} is out of range: the sum has {n} values")
        if noise_index[j] < 0 or noise_index[j] > table.shape[0] - (end[j] - begin[j]):
            check_slice(noise_index[j], end[j] - begin[j], table.shape[0], f"noise_index[{j}]")
    if num_pieces and n and table.shape[0]:
        with nogil:
            kernels.noise_sum_pieces(&out[0], &table[0], &noise_index[0], &begin[0], &end[0], &weights[0], num_pieces, squares, n)
    elif n:
        memset(&out[0], 0, n * sizeof(float))


def sum_squares(const float[::1] x not None):
    """Sum of squares of x (n,) float32, as a float; the same bits on every machine."""
    cdef double result = 0
    if x.shape[0]:
        with nogil:
            result = kernels.sum_squares(&x[0], x.shape[0])
    return result


def centered_ranks(const double[::1] values not None):
    """Ranks of values (n,) float64 as float32 in [-0.5, 0.5]; ties share their mean rank, non-finite values the lowest."""
    cdef int64_t n = values.shape[0]
    ranks = np.empty(n, dtype=np.float32)
    cdef float[::1] r = ranks
    cdef char[::1] work = np.empty(2 * n * sizeof(fastes_ranked), dtype=np.int8)
    if n:
        with nogil:
            fastes_centered_ranks(&r[0], &values[0], n, <fastes_ranked *>&work[0])
    return ranks


def sum_moments(const double[:, :, ::1] moments not None, const int64_t[::1] counts not None):
    """Sum the moments of jobs in their order, without those that have no observations, or one that is not finite.

    Args:
        moments: Sums of each job's observations and of their squares, float64 (jobs, 2, n).
        counts: Observations of each job, int64 (jobs,).

    Returns:
        The sums, float64 (2, n); the observations and the jobs that are in them; the jobs with a value that is not finite.
    """
    cdef int64_t jobs = moments.shape[0], n = moments.shape[2]
    cdef int64_t totals[3]
    check_length("counts", counts.shape[0], jobs)
    if moments.shape[1] != 2:
        raise ValueError(f"moments has {moments.shape[1]} rows a job, expected 2")
    sums = np.zeros((2, n))
    cdef double *into = <double *>cnp.PyArray_DATA(sums)
    totals[0] = totals[1] = totals[2] = 0
    if jobs:
        with nogil:
            fastes_sum_moments(into, totals, &moments[0, 0, 0], &counts[0], jobs, n)
    return sums, totals[0], totals[1], totals[2]


def join_moments(const double[::1] mean not None, const double[::1] squares not None, int64_t count,
                 const double[:, ::1] sums not None, int64_t added):
    """Join sums about the mean with the statistics so far (Chan et al. 1979, equation 2.1).

    Args:
        mean, squares: Of `count` observations, and their squared deviations from it, summed; float64 (n,).
        sums: Of `added` > 0 further observations less the mean, and of its squares, float64 (2, n).

    Returns:
        The mean and the squares of all, float64 (n,); None if one of them is not finite.
    """
    cdef int64_t n = mean.shape[0]
    check_length("squares", squares.shape[0], n)
    check_length("sums", sums.shape[1], n)
    if sums.shape[0] != 2 or count < 0 or added < 1:
        raise ValueError(f"sums has {sums.shape[0]} rows of {added} observations after {count}: expected 2, at least 1 and 0")
    means, deviations = np.array(mean), np.array(squares)
    if n and not fastes_join_moments(
        <double *>cnp.PyArray_DATA(means), <double *>cnp.PyArray_DATA(deviations), count, &sums[0, 0], added, n
    ):
        return None
    return means, deviations


def philox(const uint32_t[:, ::1] counters not None, uint64_t seed):
    """Philox4x32-10 of counters (n, 4) uint32 under the key seed, as uint32 (n, 4)."""
    cdef int64_t n = counters.shape[0], i
    if counters.shape[1] != 4:
        raise ValueError(f"counters has {counters.shape[1]} columns, expected 4")
    words = np.empty((n, 4), dtype=np.uint32)
    cdef uint32_t[:, ::1] w = words
    cdef uint32_t key[2]
    key[0] = <uint32_t>seed
    key[1] = <uint32_t>(seed >> 32)
    for i in range(n):
        fastes_philox(&counters[i, 0], key, &w[i, 0])
    return words


def draw_words(uint64_t seed, uint32_t generation, int64_t count, uint32_t episode, uint32_t stream):
    """Words (count, 4) uint32 of a stream: Philox4x32-10 of the counters (number, generation, episode, stream), number = 0, ..."""
    words = np.empty((count, 4), dtype=np.uint32)
    cdef uint32_t *word = <uint32_t *>cnp.PyArray_DATA(words)
    cdef int64_t number
    for number in range(count):
        draw(&word[4 * number], seed, <uint32_t>number, generation, episode, stream)
    return words


def draw_pairs(uint64_t seed, uint32_t generation, int64_t count, int64_t episodes, uint64_t places):
    """A generation's draws: functions of (seed, generation, pair) and, for the last two, the episode.

    Returns:
        noise_index below `places`, int64 (count,); env_seed below 2^31, int64 (count, episodes); action_key, uint64 of that shape.
    """
    if places < 1:
        raise ValueError("places = 0 is out of range: expected at least one")
    noise_index, shape = np.empty(count, dtype=np.int64), (count, episodes)
    env_seed, action_key = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.uint64)
    cdef int64_t *index = <int64_t *>cnp.PyArray_DATA(noise_index)
    cdef int64_t *seeds = <int64_t *>cnp.PyArray_DATA(env_seed)
    cdef uint64_t *keys = <uint64_t *>cnp.PyArray_DATA(action_key)
    cdef uint32_t words[4]
    cdef int64_t pair, episode
    for pair in range(count):
        draw(words, seed, <uint32_t>pair, generation, 0, FASTES_STREAM_PAIR)
        index[pair] = <int64_t>((<uint64_t>words[0] << 32 | words[1]) % places)
        for episode in range(episodes):
            draw(words, seed, <uint32_t>pair, generation, <uint32_t>(episode + 1), FASTES_STREAM_PAIR)
            seeds[pair * episodes + episode] = words[0] >> 1
            keys[pair * episodes + episode] = <uint64_t>words[1] << 32 | words[2]
    return noise_index, env_seed, action_key


cdef void draw(uint32_t *words, uint64_t seed, uint32_t number, uint32_t generation, uint32_t episode, uint32_t stream) noexcept nogil:
    """The words (4,) of one counter."""
    cdef uint32_t key[2]
    cdef uint32_t counter[4]
    key[0], key[1] = <uint32_t>seed, <uint32_t>(seed >> 32)
    counter[0], counter[1], counter[2], counter[3] = number, generation, episode, stream
    fastes_philox(counter, key, words)


def claim(int64_t[:, ::1] unclaimed not None, int64_t first, int64_t past):
    """Claim a job of the oldest request that has unclaimed ones, among rows first to past - 1 of words in shared memory.

    Column 0 of row k holds ticket << 32 | number of unclaimed jobs; `commit` of such a word opens a request. Returns the row,
    the ticket and the position of the job, which counts down to 0; or None if every job is claimed.
    """
    if not 0 <= first <= past <= unclaimed.shape[0] or unclaimed.shape[1] < 1:
        raise ValueError(f"rows {first} to {past} are out of range: there are {unclaimed.shape[0]}")
    if first == past:
        return None
    cdef int64_t row = 0
    cdef int64_t word = fastes_claim(&unclaimed[first, 0], unclaimed.shape[1], past - first, &row)
    return None if word < 0 else (first + row, word >> 32, word & 0xffffffff)


def commit(int64_t[::1] flags not None, int64_t slot, int64_t value):
    """Store value in flags[slot] after everything this process wrote before."""
    if not 0 <= slot < flags.shape[0]:
        raise ValueError(f"slot = {slot} is out of range: there are {flags.shape[0]} slots")
    fastes_commit(&flags[slot], value)


def committed(const int64_t[::1] flags not None, int64_t slot):
    """Read flags[slot], and with it everything its writer wrote before."""
    if not 0 <= slot < flags.shape[0]:
        raise ValueError(f"slot = {slot} is out of range: there are {flags.shape[0]} slots")
    return fastes_committed(&flags[slot])


def uncommitted(const int64_t[::1] flags not None, const int64_t[:] jobs not None, int64_t least):
    """Return those of jobs, int64 (n,), whose flag is below least; all that the writers of the other flags wrote before is readable."""
    cdef int64_t i, job, count = 0
    cdef int64_t[::1] left = np.empty(jobs.shape[0], dtype=np.int64)
    for i in range(jobs.shape[0]):
        job = jobs[i]
        if not 0 <= job < flags.shape[0]:
            raise ValueError(f"slot = {job} is out of range: there are {flags.shape[0]} slots")
        if fastes_committed(&flags[job]) < least:
            left[count] = job
            count += 1
    return np.asarray(left[:count])


def float_mode():
    """How this thread computes with floats: the way of rounding (0 nearest, 1 down, 2 up, 3 to zero), with FLOAT_FLAGS."""
    return fastes_float_mode()


cdef class UsualFloats:
    """Within it this thread rounds to nearest, keeps denormals, and traps nothing; afterwards as before."""
    cdef fenv_t before

    def __enter__(self):
        fegetenv(&self.before)
        fastes_usual_float_mode()
        return self

    def __exit__(self, *_):
        fesetenv(&self.before)


def set_floats_back():
    """From now on this thread computes as within UsualFloats. Returns how it did before, as `float_mode`: 0 for the same way."""
    if fastes_float_mode_is_usual():
        return 0
    mode = fastes_float_mode()
    fastes_usual_float_mode()
    return mode


FLOAT_FLAGS = {
    "flushes to zero": FASTES_FLUSHES_TO_ZERO, "denormals are zero": FASTES_DENORMALS_ARE_ZERO, "traps": FASTES_TRAPS,
}


def aligned_zeros(int64_t count):
    """Return zeros (count,) float32 at the start of a cache line, with FASTES_PAD spare floats behind them.

    Libraries that read these buffers (MKL, oneDNN) may add in another order elsewhere.
    """
    memory = np.zeros(count + FASTES_PAD + 16, dtype=np.float32)
    skip = -(memory.ctypes.data // 4) % 16
    return memory[skip : skip + count + FASTES_PAD]


include "actor_memory.pxi"
include "actor.pxi"
include "actor_rows.pxi"
include "screen.pxi"
include "native.pxi"
include "mujoco_tasks.pxi"
