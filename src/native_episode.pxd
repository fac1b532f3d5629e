# The declarations of fastes_env.h and native_episode.h, which describe them.
from fastes_core cimport fastes_kernels, fastes_policy
from libc.stdint cimport int32_t, int64_t, intptr_t, uint8_t, uint64_t

cdef extern from "native_episode.h" nogil:
    enum:
        FASTES_ENV_VERSION, FASTES_MAX_DIMS
    ctypedef enum fastes_dtype:
        FASTES_FLOAT64, FASTES_FLOAT32, FASTES_UINT8, FASTES_INT64
    ctypedef struct fastes_space:
        fastes_dtype dtype
        int32_t num_dims
        int64_t shape[4]
        double low, high
        const double *lows
        const double *highs
        int64_t choices
    ctypedef struct fastes_random:
        uint64_t seed, drawn
    ctypedef struct fastes_option:
        const char *name
        double number
        const char *text
    ctypedef struct fastes_env:
        int32_t version
        int64_t state_size, max_episode_steps
        fastes_space observation, action
        int (*reset)(void *, fastes_random *, void *) noexcept nogil
        int (*step)(void *, const void *, void *, double *, uint8_t *, uint8_t *) noexcept nogil
        int (*make)(void *, const fastes_option *, int32_t) noexcept nogil
        void (*close)(void *) noexcept nogil
        const char *(*error)(void *) noexcept nogil
        const char *const *info_names
        void (*info)(void *, double *) noexcept nogil
        int32_t height, width
        void (*render)(void *, uint8_t *) noexcept nogil
    ctypedef enum fastes_pause:
        FASTES_ASKS, FASTES_OVER, FASTES_CUT, FASTES_FAILED, FASTES_LEAVES
    enum:
        FASTES_CLIP, FASTES_RESCALE
    ctypedef struct fastes_action_change:
        int kind
        const float *first
        const float *second
    ctypedef struct fastes_wrappers:
        int64_t limit, repeats, inner_limit, action_size, num_changes
        const fastes_action_change *changes
    ctypedef struct fastes_episode:
        const fastes_env *env
        void *state
        void *observation
        void *action
        fastes_random random
        const fastes_wrappers *wrappers
        const fastes_kernels *kernels
        fastes_policy *policy
        int32_t count_moments
        int64_t max_steps
        int64_t *steps
        const int64_t *leave
        double episode_return
        int64_t length, inner_length
        uint8_t terminated, truncated
        int32_t failure, float_mode
    int fastes_step(fastes_episode *, double *)
    fastes_pause fastes_play_on(fastes_episode *)
    const fastes_env *fastes_classic_env(const char *)
    ctypedef struct fastes_ufunc_loop:
        void (*loop)(char **, const intptr_t *, const intptr_t *, void *) noexcept nogil
        void *data
    ctypedef struct fastes_numpy_math:
        fastes_ufunc_loop sin, cos, sinf, cosf
    fastes_numpy_math fastes_math
