# The declarations of fastes_core.h, which describes them.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "fastes_core.h" nogil:
    enum:
        FASTES_PAD, FASTES_NO_GREY, FASTES_LARGE_MATRIX, FASTES_DENSE_INPUTS
        FASTES_STREAM_VERSION, FASTES_STREAM_TABLE, FASTES_STREAM_PAIR, FASTES_STREAM_EVAL, FASTES_STREAM_INIT
    int64_t FASTES_DENSE_ROW(int64_t out)
    ctypedef enum fastes_obs_dtype:
        FASTES_OBS_FLOAT64, FASTES_OBS_FLOAT32, FASTES_OBS_UINT8
    ctypedef enum fastes_action_kind:
        FASTES_BOX_CLIP, FASTES_BOX_SQUASH, FASTES_BOX_BINS, FASTES_CATEGORICAL, FASTES_BINARY
    ctypedef enum fastes_action_dtype:
        FASTES_ACTION_FLOAT32, FASTES_ACTION_FLOAT64, FASTES_ACTION_INT64, FASTES_ACTION_INT8
    ctypedef enum fastes_activation:
        FASTES_IDENTITY, FASTES_TANH, FASTES_RELU, FASTES_ELU
    ctypedef enum fastes_layer_kind:
        FASTES_DENSE, FASTES_CONVOLUTION, FASTES_IMAGE_CONVOLUTION, FASTES_VIRTUAL_BATCH_NORM, FASTES_APPEND, FASTES_LSTM
        FASTES_GRU, FASTES_JOIN
    ctypedef struct fastes_kept:
        int32_t is_kept
        uint8_t *read
        float *given
        uint8_t *changed
        int32_t *windows
    ctypedef struct fastes_convolution:
        int32_t height, width, channels, rows, columns, filters, kernel, stride, planes, strip_rows
        int64_t first
        float unit
        float *strip
    ctypedef struct fastes_batch_norm:
        int32_t channels
        const float *gamma
        const float *beta
        float *scale
        float *shift
        double *sums
    ctypedef union fastes_layer_of:
        fastes_convolution convolution
        fastes_batch_norm batch_norm
    ctypedef struct fastes_layer:
        fastes_layer_kind kind
        fastes_activation activation
        int32_t in_ "in", out
        const float *weight
        const float *bias
        float *state
        fastes_kept *kept
        fastes_layer_of of
    ctypedef struct fastes_policy:
        int64_t full_size
        int32_t obs_size, num_outputs, num_layers
        const fastes_layer *layers
        int32_t is_linear
        float *scratch[2]
        float *observed
        int32_t num_joined
        float *joined
        const int64_t *columns
        double *chosen
        int32_t normalize
        const double *obs_mean
        const double *obs_inv_std
        double obs_clip
        double *moments
        fastes_action_kind action_kind
        fastes_action_dtype action_dtype
        int32_t action_size, num_bins
        const double *low
        const double *high
        const int64_t *nvec
        const int64_t *start
        int32_t sample
        float action_noise
        uint64_t noise_key, noise_step
    ctypedef struct fastes_resize_side:
        int32_t in_ "in", out, most
        const int32_t *first
        const int32_t *count
        const uint16_t *weight
        const float *share
    ctypedef struct fastes_resize:
        fastes_resize_side rows, columns
        float unit, offset, sure
        uint8_t *frame
        uint16_t *sums
        int32_t *totals
    ctypedef struct fastes_kernels:
        const char *name
        void (*normal_fill)(float *, int64_t, int64_t, uint64_t, uint32_t) noexcept nogil
        void (*perturb)(float *, const float *, const float *, float, int64_t) noexcept nogil
        void (*perturb_each)(float *, const float *, const float *, const float *, float, int64_t) noexcept nogil
        void (*noise_sum)(float *, const float *, const int64_t *, const float *, int64_t, int64_t) noexcept nogil
        void (*noise_square_sum)(float *, const float *, const int64_t *, const float *, int64_t, int64_t) noexcept nogil
        void (*noise_sum_pieces)(float *, const float *, const int64_t *, const int64_t *, const int64_t *, const float *,
                                 int64_t, int32_t, int64_t) noexcept nogil
        void (*act)(fastes_policy *, const void *, fastes_obs_dtype, void *, int32_t) noexcept nogil
        void (*fold)(fastes_policy *, const void *, fastes_obs_dtype, int32_t, float *) noexcept nogil
        void (*observe)(const fastes_policy *, const void *, fastes_obs_dtype, float *, int32_t) noexcept nogil
        void (*choose)(fastes_policy *, float *, void *) noexcept nogil
        double (*sum_squares)(const float *, int64_t) noexcept nogil
        int32_t (*look_up_greys)(uint8_t *, const uint8_t *, const uint16_t *, int64_t) noexcept nogil
        void (*resize_brighter)(const fastes_resize *, const uint8_t *, const uint8_t *, uint8_t *) noexcept nogil
    const fastes_kernels *fastes_variant(const char *)
    const fastes_kernels *fastes_best_variant()
    void fastes_philox(const uint32_t *, const uint32_t *, uint32_t *)
    ctypedef struct fastes_ranked:
        double key
        int64_t index
    void fastes_centered_ranks(float *, const double *, int64_t, fastes_ranked *)
    bint fastes_all_finite(const double *, int64_t)
    void fastes_sum_moments(double *, int64_t *, const double *, const int64_t *, int64_t, int64_t)
    bint fastes_join_moments(double *, double *, int64_t, const double *, int64_t, int64_t)
    int64_t fastes_claim(int64_t *unclaimed, int64_t stride, int64_t count, int64_t *at)
    void fastes_commit(int64_t *, int64_t)
    int64_t fastes_committed(const int64_t *)
    int FASTES_FLUSHES_TO_ZERO, FASTES_DENORMALS_ARE_ZERO, FASTES_TRAPS
    int fastes_float_mode()
    void fastes_usual_float_mode()
    bint fastes_float_mode_is_usual()
