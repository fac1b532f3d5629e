# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The border between NumPy and C: checks every argument once, then calls the kernels of fastes_core.h."""
import numbers
import os

import numpy as np

cimport numpy as cnp
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cnp.import_array()

cdef extern from "fastes_core.h" nogil:
    enum:
        FASTES_PAD
        FASTES_STREAM_VERSION, FASTES_STREAM_TABLE, FASTES_STREAM_PAIR, FASTES_STREAM_EVAL, FASTES_STREAM_INIT
        FASTES_OBS_FLOAT64, FASTES_OBS_FLOAT32, FASTES_OBS_UINT8
        FASTES_TANH, FASTES_RELU
        FASTES_BOX_CLIP, FASTES_BOX_SQUASH, FASTES_BOX_BINS, FASTES_CATEGORICAL, FASTES_BINARY
        FASTES_ACTION_FLOAT32, FASTES_ACTION_FLOAT64, FASTES_ACTION_INT64, FASTES_ACTION_INT8
    ctypedef struct fastes_policy:
        int32_t obs_size, num_outputs, num_layers, activation, use_bias
        const int32_t *sizes
        const float *params
        float *scratch[2]
        int32_t normalize
        const double *obs_mean
        const double *obs_inv_std
        double obs_clip
        double *moments
        int32_t action_kind, action_dtype, action_size, num_bins
        const double *low
        const double *high
        const int64_t *nvec
        const int64_t *start
        int32_t sample
        float action_noise
        uint64_t noise_key, noise_step
    ctypedef struct fastes_kernels:
        const char *name
        void (*normal_fill)(float *, int64_t, int64_t, uint64_t, uint32_t) noexcept nogil
        void (*perturb)(float *, const float *, const float *, float, int64_t) noexcept nogil
        void (*perturb_each)(float *, const float *, const float *, const float *, float, int64_t) noexcept nogil
        void (*noise_sum)(float *, const float *, const int64_t *, const float *, int64_t, int64_t) noexcept nogil
        void (*noise_square_sum)(float *, const float *, const int64_t *, const float *, int64_t, int64_t) noexcept nogil
        void (*noise_sum_pieces)(float *, const float *, const int64_t *, const int64_t *, const int64_t *, const float *,
                                 int64_t, int32_t, int64_t) noexcept nogil
        void (*act)(fastes_policy *, const void *, int32_t, void *, int32_t) noexcept nogil
        void (*observe)(const fastes_policy *, const void *, int32_t, float *, int32_t) noexcept nogil
        void (*choose)(fastes_policy *, float *, void *) noexcept nogil
        double (*sum_squares)(const float *, int64_t) noexcept nogil
    const fastes_kernels *fastes_variant(const char *)
    const fastes_kernels *fastes_best_variant()
    void fastes_philox(const uint32_t *, const uint32_t *, uint32_t *)
    ctypedef struct fastes_ranked:
        double key
        int64_t index
    void fastes_centered_ranks(float *, const double *, int64_t, fastes_ranked *)
    int64_t fastes_claim(int64_t *, int64_t, int64_t)
    void fastes_commit(int64_t *, int64_t)
    int64_t fastes_committed(const int64_t *)

STREAM_VERSION = FASTES_STREAM_VERSION
STREAM_TABLE = FASTES_STREAM_TABLE
STREAM_PAIR = FASTES_STREAM_PAIR
STREAM_EVAL = FASTES_STREAM_EVAL
STREAM_INIT = FASTES_STREAM_INIT

ACTIVATIONS = {"tanh": FASTES_TANH, "relu": FASTES_RELU}
ACTION_KINDS = {
    "clip": FASTES_BOX_CLIP, "squash": FASTES_BOX_SQUASH, "bins": FASTES_BOX_BINS,
    "categorical": FASTES_CATEGORICAL, "binary": FASTES_BINARY,
}
ACTION_DTYPES = {
    "float32": FASTES_ACTION_FLOAT32, "float64": FASTES_ACTION_FLOAT64, "int64": FASTES_ACTION_INT64,
    "int8": FASTES_ACTION_INT8,
}
VARIANTS = ("baseline", "avx2", "avx512")

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

    All float32 (n,). Where all sigmas are equal, the bits are those of `perturb`.
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


def claim(int64_t[::1] counter not None, int64_t round_number, int64_t limit):
    """The next position below limit of a job counter (1,) in shared memory, or -1 when there is none in this round.

    The counter holds round << 32 | position; `commit(counter, 0, round << 32)` opens a round.
    """
    check_length("counter", counter.shape[0], 1)
    return fastes_claim(&counter[0], round_number, limit)


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


def aligned_zeros(int64_t count):
    """Zeros (count,) float32 that begin where a cache line does, with FASTES_PAD floats to spare behind them.

    Libraries that read these buffers (MKL, oneDNN) may add in another order elsewhere.
    """
    memory = np.zeros(count + FASTES_PAD + 16, dtype=np.float32)
    skip = -(memory.ctypes.data // 4) % 16
    return memory[skip : skip + count + FASTES_PAD]


cdef class Actor:
    """A policy bound to its parameters and buffers: `act(obs)` is one C call.

    Built from a fastes.policies.PolicySpec; starts with zero parameters, no noise and no normalisation. Where the spec has
    no layers (a custom policy's), `observe` and `choose` are the two ends of a step, and something else is between them.
    """
    cdef fastes_policy c
    cdef readonly int64_t num_params
    cdef readonly int64_t obs_size
    cdef readonly object observation
    cdef bint counting, scalar_action
    cdef int action_type, action_ndim
    cdef cnp.npy_intp[32] action_dims
    cdef object params_array, moments_array, obs_shape, cast
    cdef int64_t[::1] steps
    cdef float[::1] params, scratch0, scratch1
    cdef int32_t[::1] sizes
    cdef double[::1] mean, inv_std
    cdef double[:, ::1] moments
    cdef double[::1] low, high
    cdef int64_t[::1] nvec, start
    cdef int64_t[::1] scratch_action

    def __init__(self, spec):
        head = spec.head
        self.num_params = spec.num_params
        self.obs_size = spec.obs_size
        self.obs_shape = spec.obs_shape
        self.params_array = aligned_zeros(self.num_params)
        self.params = self.params_array
        widest = max(*spec.layer_sizes, self.obs_size, 0 if head is None else head.num_outputs)
        self.scratch0 = input_array = aligned_zeros(widest)
        self.scratch1 = aligned_zeros(widest)
        self.observation = input_array[: self.obs_size]
        self.mean = np.zeros(self.obs_size)
        self.inv_std = np.ones(self.obs_size)
        self.moments_array = np.zeros((2, self.obs_size))
        self.moments = self.moments_array
        self.steps = np.zeros(1, dtype=np.int64)
        self.sizes = np.array(spec.layer_sizes or (self.obs_size,), dtype=np.int32)
        cdef fastes_policy *c = &self.c
        memset(c, 0, sizeof(fastes_policy))
        c.obs_size = self.obs_size
        c.num_layers = <int32_t>self.sizes.shape[0] - 1
        if c.num_layers:
            c.num_outputs = self.sizes[c.num_layers]
            c.activation = ACTIVATIONS[spec.activation]
            c.use_bias = spec.use_bias
        c.sizes = &self.sizes[0]
        c.params = &self.params[0]
        c.scratch[0] = &self.scratch0[0]
        c.scratch[1] = &self.scratch1[0]
        c.obs_mean = &self.mean[0]
        c.obs_inv_std = &self.inv_std[0]
        c.moments = &self.moments[0, 0]
        if head is not None:
            self.take_head(head)

    cdef take_head(self, head):
        cdef fastes_policy *c = &self.c
        self.low = np.array(head.low, dtype=np.float64)
        self.high = np.array(head.high, dtype=np.float64)
        self.nvec = np.array(head.nvec, dtype=np.int64)
        self.start = np.array(head.start, dtype=np.int64)
        self.action_ndim = len(head.shape)
        if self.action_ndim > 32:
            raise ValueError(f"the action space has {self.action_ndim} dimensions: expected at most 32")
        for i, dim in enumerate(head.shape):
            self.action_dims[i] = dim
        self.action_type = np.dtype(head.dtype).num
        self.scalar_action = head.scalar
        self.cast = np.dtype(head.cast) if head.cast else None
        self.scratch_action = np.zeros(max(head.size, 1), dtype=np.int64)
        c.action_kind = ACTION_KINDS[head.kind]
        c.action_dtype = ACTION_DTYPES[head.dtype]
        c.action_size = head.size
        if not c.num_layers:
            c.num_outputs = head.num_outputs
        c.num_bins = head.num_bins
        if self.low.shape[0]:
            c.low = &self.low[0]
            c.high = &self.high[0]
        if self.nvec.shape[0]:
            c.nvec = &self.nvec[0]
            c.start = &self.start[0]

    @property
    def parameters(self):
        """This actor's own parameters: a writable float32 view (num_params,)."""
        return self.params_array[: self.num_params]

    def count_steps(self, int64_t[::1] steps not None):
        """From now on each `act` adds one to steps (1,), which another process may watch."""
        check_length("steps", steps.shape[0], 1)
        self.steps = steps

    def set_normalizer(self, const double[::1] mean not None, const double[::1] inv_std not None, double clip):
        """From now on observations reach the first layer as clip((obs - mean) * inv_std, -clip, clip)."""
        check_length("mean", mean.shape[0], self.obs_size)
        check_length("inv_std", inv_std.shape[0], self.obs_size)
        self.mean[:] = mean
        self.inv_std[:] = inv_std
        self.c.obs_clip = clip
        self.c.normalize = 1

    def begin_episode(self, uint64_t noise_key=0, double action_noise=0.0, bint sample=False):
        """Start the episode's action stream at its beginning: Gaussian noise on Box actions, or sampled choices."""
        self.c.noise_key = noise_key
        self.c.noise_step = 0
        self.c.action_noise = <float>action_noise
        self.c.sample = sample

    def count_moments(self, bint counting):
        """Whether each observation adds to `moments`; sets them to zero."""
        self.moments[:, :] = 0.0
        self.counting = counting

    @property
    def observation_moments(self):
        """Sums of obs - mean and of its square since count_moments(): float64 (2, obs_size)."""
        return self.moments_array

    cdef as_numbers(self, obs):
        """An observation of any type as float64, or an error that says what came."""
        try:
            array = np.asarray(obs)
        except ValueError:  # rows of different lengths
            array = np.empty(0, dtype=object)
        if array.dtype.kind == "O" and array.size and all(isinstance(x, numbers.Real) for x in array.flat):
            return array.astype(np.float64)
        if array.dtype.kind not in "fiub":
            kind = f"dtype {array.dtype}" if isinstance(obs, np.ndarray) else f"type {type(obs).__name__}"
            raise ValueError(
                f"observation {repr(obs)[:100]} has {kind} and shape {array.shape}: expected numbers of shape {self.obs_shape}"
            )
        return array.astype(np.float64)

    cdef inline cnp.ndarray as_input(self, obs, int32_t *obs_dtype):
        """An observation as an array that the kernels read; its dtype goes to obs_dtype."""
        cdef int kind
        cdef cnp.ndarray array
        if type(obs) is not cnp.ndarray:
            obs = self.as_numbers(obs)
        array = <cnp.ndarray>obs
        kind = cnp.PyArray_TYPE(array)
        if kind == cnp.NPY_FLOAT64:
            obs_dtype[0] = FASTES_OBS_FLOAT64
        elif kind == cnp.NPY_FLOAT32:
            obs_dtype[0] = FASTES_OBS_FLOAT32
        elif kind == cnp.NPY_UINT8:
            obs_dtype[0] = FASTES_OBS_UINT8
        else:
            array = self.as_numbers(obs)
            obs_dtype[0] = FASTES_OBS_FLOAT64
        if not cnp.PyArray_ISCARRAY_RO(array):
            array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
        if cnp.PyArray_SIZE(array) != self.obs_size:
            raise ValueError(f"observation has shape {np.shape(array)}, the policy expects {self.obs_shape}")
        return array

    def act(self, obs):
        """The action for one observation of the space's shape: an int for Discrete, else a new array of the space."""
        cdef int32_t obs_dtype
        cdef cnp.ndarray array = self.as_input(obs, &obs_dtype)
        cdef void *data = cnp.PyArray_DATA(array)
        if not self.c.num_layers:
            raise TypeError("this policy has no layers: call observe and choose")
        self.steps[0] += 1
        if self.scalar_action:
            with nogil:
                kernels.act(&self.c, data, obs_dtype, &self.scratch_action[0], self.counting)
            return self.scratch_action[0]
        action = cnp.PyArray_EMPTY(self.action_ndim, self.action_dims, self.action_type, 0)
        cdef void *target = cnp.PyArray_DATA(<cnp.ndarray>action)
        with nogil:
            kernels.act(&self.c, data, obs_dtype, target, self.counting)
        return action if self.cast is None else action.astype(self.cast)

    def observe(self, obs):
        """The first half of `act`: an observation normalised, counted, and a step.

        Returns `observation`, float32 (obs_size,): the same memory each time, which the next call overwrites.
        """
        cdef int32_t obs_dtype
        cdef cnp.ndarray array = self.as_input(obs, &obs_dtype)
        self.steps[0] += 1
        kernels.observe(&self.c, cnp.PyArray_DATA(array), obs_dtype, &self.scratch0[0], self.counting)
        return self.observation

    def choose(self, outputs):
        """The second half of `act`: the action for outputs float32 (num_outputs,), of any shape with as many values."""
        cdef cnp.ndarray array
        if type(outputs) is not cnp.ndarray or cnp.PyArray_TYPE(<cnp.ndarray>outputs) != cnp.NPY_FLOAT32:
            kind = f"dtype {outputs.dtype}" if isinstance(outputs, np.ndarray) else f"type {type(outputs).__name__}"
            raise TypeError(f"the policy's outputs have {kind}: expected a float32 array")
        array = <cnp.ndarray>outputs
        if not cnp.PyArray_ISCARRAY_RO(array):
            array = np.ascontiguousarray(array, dtype=np.float32)
        if cnp.PyArray_SIZE(array) != self.c.num_outputs or not self.c.num_outputs:
            raise ValueError(
                f"the policy's outputs have shape {np.shape(array)}: expected {self.c.num_outputs} values for this action space"
            )
        memcpy(&self.scratch1[0], cnp.PyArray_DATA(array), self.c.num_outputs * sizeof(float))
        if self.scalar_action:
            kernels.choose(&self.c, &self.scratch1[0], &self.scratch_action[0])
            return self.scratch_action[0]
        action = cnp.PyArray_EMPTY(self.action_ndim, self.action_dims, self.action_type, 0)
        kernels.choose(&self.c, &self.scratch1[0], cnp.PyArray_DATA(<cnp.ndarray>action))
        return action if self.cast is None else action.astype(self.cast)


def act_rows(list actors not None, observations not None, actions not None):
    """actions[i] = actors[i].act(observations[i]) for rows of C-contiguous arrays, in one call.

    actors: one Actor a row. observations: float64, float32 or uint8 (n, obs_size or more dimensions); actions: (n, *action
    shape) of the kernel's dtype. Raises ValueError or TypeError for anything else.
    """
    cdef cnp.ndarray obs = observations, target = actions
    cdef int64_t n = len(actors), row, obs_bytes, action_bytes
    cdef int32_t obs_dtype
    cdef int kind = cnp.PyArray_TYPE(obs)
    cdef Actor actor
    cdef char *data
    cdef char *out
    if kind == cnp.NPY_FLOAT64:
        obs_dtype = FASTES_OBS_FLOAT64
    elif kind == cnp.NPY_FLOAT32:
        obs_dtype = FASTES_OBS_FLOAT32
    elif kind == cnp.NPY_UINT8:
        obs_dtype = FASTES_OBS_UINT8
    else:
        raise TypeError(f"observations have dtype {obs.dtype}: expected float64, float32 or uint8")
    if not cnp.PyArray_ISCARRAY_RO(obs) or not cnp.PyArray_ISCARRAY(target):
        raise ValueError("observations and actions must be C-contiguous arrays, and actions writable")
    if n == 0:
        return
    if obs.ndim < 1 or obs.shape[0] != n or target.ndim < 1 or target.shape[0] != n:
        raise ValueError(f"{n} actors for observations {np.shape(obs)} and actions {np.shape(target)}: expected one row each")
    obs_bytes, action_bytes = cnp.PyArray_NBYTES(obs) // n, cnp.PyArray_NBYTES(target) // n
    data, out = <char *>cnp.PyArray_DATA(obs), <char *>cnp.PyArray_DATA(target)
    for row in range(n):
        if not isinstance(actors[row], Actor):  # None, too, which Cython lets pass as an Actor
            raise TypeError(f"actors[{row}] = {actors[row]!r:.100} is a {type(actors[row]).__name__}: expected an Actor")
        actor = <Actor>actors[row]
        if not actor.c.num_layers:
            raise TypeError("this policy has no layers: call its own act")
        if cnp.PyArray_SIZE(obs) // n != actor.obs_size:
            raise ValueError(f"observation has shape {np.shape(obs)[1:]}, the policy expects {actor.obs_shape}")
        if cnp.PyArray_TYPE(target) != actor.action_type or cnp.PyArray_SIZE(target) // n != actor.c.action_size:
            raise ValueError(f"actions have shape {np.shape(target)} and dtype {target.dtype}: not what the policy gives")
    for row in range(n):
        actor = <Actor>actors[row]
        actor.steps[0] += 1
        with nogil:
            kernels.act(&actor.c, data + row * obs_bytes, obs_dtype, out + row * action_bytes, actor.counting)
