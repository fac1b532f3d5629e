/* Environments in C for FastES: an environment is a constant `fastes_env` in a shared library, and this file is all it needs.
 *
 * Whole episodes run without Python: FastES calls reset once and step until an episode ends, with buffers that it owns. `state` points to
 * the environment's own memory, state_size bytes aligned to 64, which are 0 before make. No function prints, exits or keeps the buffers;
 * step and reset allocate nothing. Several environments may exist in a process, one call at a time each.
 *
 * reset, step and make return 0, or another number if they cannot do it: error() then says why.
 *
 *     #include <fastes_env.h>
 *
 *     FASTES_ENV(Name) = {
 *         .version = FASTES_ENV_VERSION, .state_size = sizeof(struct my_state), .max_episode_steps = 500,
 *         .observation = FASTES_BOX(FASTES_FLOAT32, 4, -INFINITY, INFINITY), .action = FASTES_DISCRETE(2),
 *         .reset = reset, .step = step,
 *     };
 *
 *     cc -O3 -shared -fPIC -I"$(python -c 'import fastes; print(fastes.get_include())')" name.c -o name.so -lm
 *     fastes train ./name.so:Name
 */
#ifndef FASTES_ENV_H
#define FASTES_ENV_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#define FASTES_ENV_VERSION 1

/* How values lie in memory. An observation is one of the first three. */
typedef enum { FASTES_FLOAT64 = 0, FASTES_FLOAT32 = 1, FASTES_UINT8 = 2, FASTES_INT64 = 3 } fastes_dtype;

#define FASTES_MAX_DIMS 4

/* Observations or actions: a Box, or choices from 0 to choices - 1 as one int64. */
typedef struct {
    fastes_dtype dtype;
    int32_t num_dims;
    int64_t shape[FASTES_MAX_DIMS];
    double low, high;           /* of all values of a Box; infinite for none */
    const double *lows, *highs; /* of each value, in C order; NULL: low and high */
    int64_t choices;            /* 0 for a Box */
} fastes_space;

#define FASTES_BOX(dtype, size, low, high) {dtype, 1, {size}, low, high, NULL, NULL, 0}
#define FASTES_DISCRETE(choices) {FASTES_INT64, 0, {0}, 0, 0, NULL, NULL, choices}

/* A random stream, which is a function of the episode's seed and of the number of values drawn so far. */
typedef struct {
    uint64_t seed;
    uint64_t drawn;
} fastes_random;

/* 64 random bits: SplitMix64 (Steele et al. 2014, "Fast splittable pseudorandom number generators"). */
static inline uint64_t fastes_random_bits(fastes_random *random) {
    uint64_t z = (random->seed + 1) * UINT64_C(0xD1342543DE82EF95) + ++random->drawn * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* Uniform in [low, high). */
static inline double fastes_uniform(fastes_random *random, double low, double high) {
    return low + (high - low) * ((double)(fastes_random_bits(random) >> 11) * 0x1p-53);
}

/* Standard normal: Box-Muller, of two values. */
static inline double fastes_normal(fastes_random *random) {
    double radius = sqrt(-2.0 * log(1.0 - fastes_uniform(random, 0.0, 1.0)));
    return radius * cos(6.283185307179586 * fastes_uniform(random, 0.0, 1.0));
}

/* An argument by name, from env_kwargs: a number (True and False are 1 and 0), or a text if `text` is not NULL. */
typedef struct {
    const char *name;
    double number;
    const char *text;
} fastes_option;

typedef struct {
    int32_t version;           /* FASTES_ENV_VERSION */
    int64_t state_size;        /* bytes of `state` */
    int64_t max_episode_steps; /* steps after which FastES truncates an episode; 0 for no limit */
    fastes_space observation, action;

    /* Begins an episode. The stream is valid until the next reset, and may be kept for that long. */
    int (*reset)(void *state, fastes_random *random, void *observation);

    /* A step. action is float * or double * for a Box of that dtype, and one int64_t for choices. reward, terminated and truncated
     * are 0 before. */
    int (*step)(void *state, const void *action, void *observation, double *reward, uint8_t *terminated, uint8_t *truncated);

    /* All that follows may be NULL. */
    int (*make)(void *state, const fastes_option *options, int32_t num_options);
    void (*close)(void *state);
    const char *(*error)(void *state); /* why the last call failed */

    /* Numbers of a step's info, "is_success" for example: names, ended by NULL, and a function that writes their values. Both, or
     * neither. */
    const char *const *info_names;
    void (*info)(void *state, double *values);

    /* A picture, (height, width, 3). */
    int32_t height, width;
    void (*render)(void *state, uint8_t *pixels);
} fastes_env;

/* Defines an environment that FastES finds by this name in the library. */
#ifdef __cplusplus
#define FASTES_ENV(name) extern "C" __attribute__((visibility("default"))) const fastes_env name
#else
#define FASTES_ENV(name) __attribute__((visibility("default"))) const fastes_env name
#endif

#endif
