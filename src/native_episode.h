/* Whole episodes of an environment in C (fastes_env.h), without Python. */
#ifndef FASTES_NATIVE_EPISODE_H
#define FASTES_NATIVE_EPISODE_H

#include "fastes_core.h"
#include "fastes_env.h"

/* What an episode waits for, or how it ended. */
typedef enum {
    FASTES_ASKS = 0,   /* Python, whether a signal has come */
    FASTES_OVER = 1,   /* terminated or truncated */
    FASTES_CUT = 2,    /* max_steps steps */
    FASTES_FAILED = 3, /* the environment returned another number than 0, which `failure` keeps */
    FASTES_LEAVES = 4  /* *leave is not 0 */
} fastes_pause;

/* What a wrapper does to the numbers of an action, which are float32. */
typedef struct {
    enum { FASTES_CLIP = 0 /* first to second */, FASTES_RESCALE = 1 /* (x - first) / second */ } kind;
    const float *first, *second;
} fastes_action_change;

/* What the wrappers of an environment do to its steps. */
typedef struct {
    int64_t limit;       /* steps after which an episode is truncated; 0 for none */
    int64_t repeats;     /* steps of the environment in one, which end with its episode */
    int64_t inner_limit; /* steps of the environment after which its episode is truncated; 0 for none */
    int64_t action_size, num_changes;
    const fastes_action_change *changes; /* in their order */
} fastes_wrappers;

/* An episode. All pointers belong to the caller. */
typedef struct {
    const fastes_env *env;
    void *state, *observation, *action; /* the environment's, and a step's */
    fastes_random random;
    const fastes_wrappers *wrappers;

    const fastes_kernels *kernels;
    fastes_policy *policy;
    int32_t count_moments;
    int64_t max_steps;      /* after which FastES cuts it */
    int64_t *steps;         /* grows by 1 before each step; another process may watch it */
    const int64_t *leave;   /* another process may set it; NULL: none does */

    double episode_return;
    int64_t length, inner_length; /* steps, and those of the environment inside its wrappers */
    uint8_t terminated, truncated;
    int32_t failure, float_mode; /* float_mode: in which the environment left the processor, 0 if always in the usual one */
} fastes_episode;

/* Steps the wrapped environment with the action in `action`, which the wrappers change. Returns what the environment returns. */
int fastes_step(fastes_episode *episode, double *reward);

/* Goes on from the last observation until it ends, or until some milliseconds have passed. */
fastes_pause fastes_play_on(fastes_episode *episode);

/* The environments of this package, by the names of Gymnasium's classes; NULL for another name. */
const fastes_env *fastes_classic_env(const char *name);

/* NumPy's loop for a function of one number, as PyUFuncObject holds it: bits as on the Python side of the same machine. */
typedef struct {
    void (*loop)(char **arguments, const intptr_t *count, const intptr_t *strides, void *data);
    void *data;
} fastes_ufunc_loop;

/* Of sin and cos, in float64 and float32, which the classic environments need. */
typedef struct { fastes_ufunc_loop sin, cos, sinf, cosf; } fastes_numpy_math;
extern fastes_numpy_math fastes_math;

/* y (count,) = the function of x (count,), both float64. */
static inline void fastes_call_loop(const fastes_ufunc_loop *f, const double *x, double *y, intptr_t count) {
    char *arguments[2] = {(char *)x, (char *)y};
    const intptr_t strides[2] = {sizeof *x, sizeof *y};
    f->loop(arguments, &count, strides, f->data);
}

/* x ** 2 of Python and of NumPy's scalars: libm's pow, which is not always x * x, as the compiler would have it. */
extern double (*volatile fastes_power)(double, double);
static inline double fastes_squared(double x) { return fastes_power(x, 2.0); }

#endif
