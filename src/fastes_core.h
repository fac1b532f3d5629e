/* The whole C interface of FastES.
 *
 * Kernels check nothing, allocate nothing, print nothing and keep no state: _core.pyx has checked every argument.
 * Each kernel gives the same bits for every variant (SSE2 as the baseline, AVX2, AVX-512, NEON): arithmetic is IEEE single or double
 * without contraction, the order of every sum is written down here, and log, exp, sin, cos and tanh are our own.
 * tests/helpers/twins/numpy_kernels.py holds a NumPy twin of each.
 */
#ifndef FASTES_CORE_H
#define FASTES_CORE_H

#include <stdint.h>

/* Version of the random streams below. Any change to a drawn bit needs a new one: old runs could not be resumed. */
#define FASTES_STREAM_VERSION 1

/* Last counter word of each Philox stream. */
enum { FASTES_STREAM_TABLE = 0, FASTES_STREAM_PAIR = 1, FASTES_STREAM_EVAL = 2, FASTES_STREAM_ACTION = 3,
       FASTES_STREAM_INIT = 4 };

/* Whole vectors are read and written past the end of a policy's rows: its buffers have this many floats to spare. */
#define FASTES_PAD 32

/* Normals are made in groups of this many: 16 lanes x the 4 words of one Philox block. */
#define FASTES_NORMAL_GROUP 64

/* In a table of greys, which are 0 to 255: the grey of a colour is not known yet. */
#define FASTES_NO_GREY 256

/* How an observation lies in memory. */
typedef enum { FASTES_OBS_FLOAT64 = 0, FASTES_OBS_FLOAT32 = 1, FASTES_OBS_UINT8 = 2 } fastes_obs_dtype;

/* How the last layer's output becomes an action. */
typedef enum {
    FASTES_BOX_CLIP = 0,    /* low + (clip(y, -1, 1) + 1) / 2 * (high - low); y itself if a bound is infinite */
    FASTES_BOX_SQUASH = 1,  /* the same with tanh(y) for clip(y) */
    FASTES_BOX_BINS = 2,    /* num_bins outputs a component; the argmax picks one of num_bins values from low to high */
    FASTES_CATEGORICAL = 3, /* one block of outputs a component (Discrete has one); the argmax, plus its start */
    FASTES_BINARY = 4       /* y > 0 */
} fastes_action_kind;

/* How an action lies in memory: floats for Box, int64 for categorical, int8 for binary actions. */
typedef enum {
    FASTES_ACTION_FLOAT32 = 0,
    FASTES_ACTION_FLOAT64 = 1,
    FASTES_ACTION_INT64 = 2,
    FASTES_ACTION_INT8 = 3
} fastes_action_dtype;

/* relu: +0 if x <= 0. elu: exp(x) - 1 if x < 0. NaN stays. */
typedef enum { FASTES_IDENTITY = 0, FASTES_TANH = 1, FASTES_RELU = 2, FASTES_ELU = 3 } fastes_activation;

/* A dense layer with more weights leaves out inputs that are 0: less memory to read, and other bits for weights that are not finite. It sums
 * FASTES_DENSE_INPUTS inputs at a time, and keeps these sums in rows of FASTES_DENSE_ROW floats. */
#define FASTES_LARGE_MATRIX 131072
#define FASTES_DENSE_INPUTS 64
#define FASTES_DENSE_ROW(out) (((int64_t)(out) + 15) / 16 * 16)

/* Added to the variance in virtual batch normalisation. */
#define FASTES_BATCH_NORM_EPSILON 1e-3

typedef enum {
    FASTES_DENSE = 0,              /* y (out,) = x (in,) . weight (in, out) + bias (out,) */
    FASTES_CONVOLUTION = 1,        /* y (rows, columns, filters) of x (height, width, channels), below */
    FASTES_IMAGE_CONVOLUTION = 2,  /* the same of an image in the observation itself */
    FASTES_VIRTUAL_BATCH_NORM = 3, /* y = x * scale + shift, by channel: x (in / channels, channels) */
    FASTES_APPEND = 4,             /* y (out,) = x (in,), then the observed values (out - in,) */
    FASTES_LSTM = 5,               /* weight (in + out, 4 out), bias (4 out,), state (2 out,): cell_kernels.inc */
    FASTES_GRU = 6,                /* weight (in + out, 3 out), bias (4 out,), state (out,) */
    FASTES_JOIN = 7                /* y (out,) = what the joins before it gave (out - in,), then x (in,), of the same observation */
} fastes_layer_kind;

/* What a convolution or a large dense layer has read and given last, each actor its own. A part whose input is the same gives the same. */
typedef struct {
    int32_t is_kept;      /* whether there is such an input, and the parameters are those of then */
    uint8_t *read;        /* its bytes: of floats, or of an image of bytes */
    float *given;         /* (rows, columns, filters), or the sums that a dense layer adds: (parts, FASTES_DENSE_ROW(out)) */
    /* of a convolution: */
    uint8_t *changed;     /* (height + 1, width): not 0 at pixels that differ in the present input; the last row is for sums of others */
    int32_t *windows;     /* (rows * columns,): numbers of the windows that have such a pixel */
} fastes_kept;

/* weight (kernel, kernel, channels, filters), bias (filters,) or NULL. y[r, c, f] = sum over i, j, k of x[r stride + i, c stride + j, k] *
 * weight[i, j, k, f], in that order, + bias[f]. */
typedef struct {
    int32_t height, width, channels;
    int32_t rows, columns, filters;
    int32_t kernel, stride;

    /* Of an image: (planes, height, width, channels / planes), from value `first` of an observation on, times unit. */
    int32_t planes;
    int64_t first;
    float unit;
    int32_t strip_rows;           /* of outputs that are made at a time */
    float *strip;                 /* ((strip_rows - 1) * stride + kernel, width, channels), each actor its own */
} fastes_convolution;

/* Each channel's scale and shift are folded of gamma and beta (channels,) and of statistics of a reference batch. */
typedef struct {
    int32_t channels;
    const float *gamma, *beta;    /* (channels,), in theta */
    float *scale, *shift;         /* (channels,), each actor its own; readable FASTES_PAD floats past their end */
    double *sums;                 /* (2, channels), for `fold` */
} fastes_batch_norm;

/* Further fields by a layer's kind. */
typedef union {
    fastes_convolution convolution;
    fastes_batch_norm batch_norm;
} fastes_layer_of;

/* A layer of a policy: its computation, its parameters and its memory. Pointers, since offsets cost 3 to 5 % of a step. */
typedef struct {
    fastes_layer_kind kind;
    fastes_activation activation; /* of y */
    int32_t in, out;              /* values that it reads and writes */
    const float *weight, *bias;   /* in theta, of the shape that the kind has, or NULL; readable FASTES_PAD floats past its end */
    float *state;                 /* memory within an episode, one per actor: 0 at the start */
    fastes_kept *kept;            /* NULL: it keeps nothing */
    fastes_layer_of of;
} fastes_layer;

/* A policy bound to its buffers. All pointers belong to the caller. */
typedef struct {
    int64_t full_size;          /* values of an observation */
    int32_t obs_size, num_outputs;  /* values that it observes, which an image is not among, and gives */
    int32_t num_layers;         /* 0: something else turns observations into outputs */
    const fastes_layer *layers; /* (num_layers,): each reads the outputs of the one before it */
    int32_t is_linear;          /* whether it is one dense layer of at most 4 outputs, without activation, that reads all values */
    float *scratch[2];          /* each readable and writable FASTES_PAD floats past the largest layer or obs_size; beside outputs
                                 * an LSTM needs room for 4 out values, a GRU for 6 out */
    float *observed;            /* (obs_size,): the values that it observes. scratch[0], unless the first layer reads an image */
    int32_t num_joined;         /* values that the last join gives; 0 without joins */
    float *joined;              /* (num_joined,), and for `fold` (count, num_joined): what joins have read so far */

    const int64_t *columns;     /* (obs_size,): which values of an observation these are; NULL: all */
    double *chosen;             /* (obs_size,), with columns: the values */

    int32_t normalize;          /* 0: observations reach the first layer as they are */
    const double *obs_mean;     /* (obs_size,) */
    const double *obs_inv_std;  /* (obs_size,) */
    double obs_clip;            /* normalised observations are clipped to +-obs_clip */
    double *moments;            /* (2, obs_size): sums of obs - obs_mean and of its square */

    fastes_action_kind action_kind;
    fastes_action_dtype action_dtype;
    int32_t action_size, num_bins;
    const double *low, *high;   /* (action_size,): Box */
    const int64_t *nvec;        /* (action_size,): categorical, the number of choices */
    const int64_t *start;       /* (action_size,): categorical, added to the choice */

    int32_t sample;             /* categorical: sample from softmax(y) instead of its argmax; binary: from sigmoid(y) */
    float action_noise;         /* Box: standard deviation of Gaussian noise added to y; 0 for none */
    uint64_t noise_key;         /* of this episode's action stream */
    uint64_t noise_step;        /* steps taken: the stream's counter */
} fastes_policy;

/* One side of images whose in pixels become out. Pixel i afterwards covers count[i] of those before, from first[i] on. */
typedef struct {
    int32_t in, out, most;        /* most: the largest of count */
    const int32_t *first, *count; /* (out,) */
    const uint16_t *weight;       /* (out, most): how much it covers of each, in whole parts of the same size; 0 past the last */
    const float *share;           /* (out, most): the same as shares of 1 */
} fastes_resize_side;

/* Images resized by area. The parts of all rows that a pixel covers are at most 257, and of all pixels at most 65536. */
typedef struct {
    fastes_resize_side rows, columns;
    float unit;                   /* 1 over the parts of all pixels that one covers */
    float offset;                 /* added to a sum of parts: 0.5 rounds the halves of four up */
    float sure;                   /* a mean farther than that from a whole number is summed by shares, which decides how it is rounded */
    uint8_t *frame;               /* (rows.in, columns.in) */
    uint16_t *sums;               /* (columns.in + columns.most,): 0 past columns.in */
    int32_t *totals;              /* (columns.out,) */
} fastes_resize;

typedef struct {
    const char *name;

    /* out (count,) = standard normals number start .. start+count-1 of a stream. Box-Muller on Philox4x32-10. */
    void (*normal_fill)(float *out, int64_t start, int64_t count, uint64_t seed, uint32_t stream);

    /* out (n,) = theta (n,) + scale * eps (n,): mirrored reconstruction with scale = +sigma or -sigma. */
    void (*perturb)(float *out, const float *theta, const float *eps, float scale, int64_t n);

    /* The same with a sigma (n,) for each parameter: out = theta + sign * (sigma * eps), sign = 1 or -1. */
    void (*perturb_each)(float *out, const float *theta, const float *eps, const float *sigma, float sign, int64_t n);

    /* out (n,) = sum over j of weights[j] * table[index[j] : index[j] + n], added in the order of j. */
    void (*noise_sum)(float *out, const float *table, const int64_t *index, const float *weights, int64_t num_slices,
                      int64_t n);

    /* The same of eps * eps - 1 for each eps of the table: which way sigma has to go. */
    void (*noise_square_sum)(float *out, const float *table, const int64_t *index, const float *weights, int64_t num_slices,
                             int64_t n);

    /* Either sum of slices that cover a part of out each: slice j is of the values begin[j] to end[j] of out, 0 <= begin <=
     * end <= n, and begins at table[index[j]]. squares: 0 for noise_sum, 1 for noise_square_sum. */
    void (*noise_sum_pieces)(float *out, const float *table, const int64_t *index, const int64_t *begin, const int64_t *end,
                             const float *weights, int64_t num_pieces, int32_t squares, int64_t n);

    /* obs (obs_size,), or longer with columns -> action (action_size,): observe, the layers, choose. */
    void (*act)(fastes_policy *policy, const void *obs, fastes_obs_dtype obs_dtype, void *action, int32_t count_moments);

    /* Virtual batch normalisation: folds statistics of reference (count, full_size), under the present parameters, into the scale
     * and shift of each such layer. Mean and variance are summed in float64 in the order of observations and positions. kept
     * (count, most values that such a layer reads). policy->joined has a row for each observation. */
    void (*fold)(fastes_policy *policy, const void *reference, fastes_obs_dtype obs_dtype, int32_t count, float *kept);

    /* obs (obs_size,), or longer with columns -> x (obs_size,), normalised and clipped. Counts what it reads of obs into moments
     * unless count_moments is 0. */
    void (*observe)(const fastes_policy *policy, const void *obs, fastes_obs_dtype obs_dtype, float *x,
                    int32_t count_moments);

    /* Outputs y (num_outputs,) -> action (action_size,); a step of the action stream. Overwrites y, which has FASTES_PAD
     * floats to spare. */
    void (*choose)(fastes_policy *policy, float *y, void *action);

    /* x (n,) float32 -> sum of x*x in float64, 16 interleaved partial sums folded pairwise. */
    double (*sum_squares)(const float *x, int64_t n);

    /* grey (n,) = table (256,) at colours (n,). Returns whether all are known: a grey that is not is FASTES_NO_GREY in the table. */
    int32_t (*look_up_greys)(uint8_t *grey, const uint8_t *colours, const uint16_t *table, int64_t n);

    /* earlier, latest (rows.in, columns.in) -> out (rows.out, columns.out): the brighter one at each pixel, then means over areas in
     * whole numbers, rounded. Halves, and what floats cannot tell from them, are as OpenCV's float sums decide them. */
    void (*resize_brighter)(const fastes_resize *resize, const uint8_t *earlier, const uint8_t *latest, uint8_t *out);
} fastes_kernels;

/* A variant by name, or NULL if it was not compiled or this CPU cannot run it. */
const fastes_kernels *fastes_variant(const char *name);

/* The widest variant that this CPU runs. */
const fastes_kernels *fastes_best_variant(void);

/* Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): counter (4,), key (2,) -> out (4,). */
void fastes_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* values (n,) -> ranks (n,) float32 in [-0.5, 0.5], the highest value highest; equal values share the mean of their ranks;
 * NaN and infinities all share the lowest. work (2 * n,) is scratch. One value alone ranks 0. */
typedef struct { double key; int64_t index; } fastes_ranked;
void fastes_centered_ranks(float *ranks, const double *values, int64_t n, fastes_ranked *work);

/* Whether all of x (n,) are finite. */
int32_t fastes_all_finite(const double *x, int64_t n);

/* sums (2, n) = moments (jobs, 2, n), added in the order of jobs. A job without observations (counts) is left out, and one with a
 * value that is not finite. totals: observations and jobs that are in the sums, and jobs that are not because of such a value. */
void fastes_sum_moments(double *sums, int64_t totals[3], const double *moments, const int64_t *counts, int64_t jobs, int64_t n);

/* Joins the sums (2, n), about the mean, of `added` observations with mean (n,) and squares (n,) of `count` ones: Chan et al. 1979,
 * equation 2.1. Returns whether all results are finite. */
int32_t fastes_join_moments(double *mean, double *squares, int64_t count, const double *sums, int64_t added, int64_t n);

/* Claims a job of the oldest of count requests that have unclaimed ones; atomic across processes. Request k's word is
 * unclaimed[k * stride] = ticket << 32 | jobs that are not claimed, and tickets grow with time. Returns ticket << 32 | position
 * of the job, counted from the last one (0), and its request in *at; -1 if there is none. */
int64_t fastes_claim(int64_t *unclaimed, int64_t stride, int64_t count, int64_t *at);

/* Publishes everything this process wrote before it. */
void fastes_commit(int64_t *flag, int64_t value);

/* Reads a flag and everything published before it. */
static inline int64_t fastes_committed(const int64_t *flag) { return __atomic_load_n(flag, __ATOMIC_ACQUIRE); }

/* How this thread computes with floats: to nearest, denormals as they are, no traps. An environment, or a library that it loads,
 * may change that, and all that is computed afterwards has other bits. */
enum { FASTES_FLUSHES_TO_ZERO = 4, FASTES_DENORMALS_ARE_ZERO = 8, FASTES_TRAPS = 16 }; /* in addition to 0 to 3, the rounding mode */

/* The way of rounding (0 nearest, 1 down, 2 up, 3 to zero), with the flags above. */
int fastes_float_mode(void);

/* From now on as above. */
void fastes_usual_float_mode(void);

/* Whether it is so; a few cycles. */
#if defined(__x86_64__)
#include <xmmintrin.h>
static inline int fastes_float_mode_is_usual(void) { return (_mm_getcsr() & 0xFFC0u) == 0x1F80u; }
#elif defined(__aarch64__)
static inline int fastes_float_mode_is_usual(void) {
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return control == 0;
}
#else
static inline int fastes_float_mode_is_usual(void) { return fastes_float_mode() == 0; }
#endif

#endif
