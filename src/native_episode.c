/* The steps of an episode: policy, environment, and what another process may want. */
#include "native_episode.h"
#include <time.h>

_Static_assert((int)FASTES_FLOAT64 == (int)FASTES_OBS_FLOAT64 && (int)FASTES_FLOAT32 == (int)FASTES_OBS_FLOAT32 &&
                   (int)FASTES_UINT8 == (int)FASTES_OBS_UINT8, "dtypes of environments and of kernels");

enum { MOST_STEPS = 1024 };  /* between two looks at the clock */
static const int64_t PATIENCE = 5000000;  /* nanoseconds between two questions to Python */

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

fastes_pause fastes_play_on(fastes_episode *e) {
    const fastes_env *env = e->env;
    const fastes_obs_dtype dtype = (fastes_obs_dtype)env->observation.dtype;
    int64_t began = now(), looked = began, between = 1, left = 1;
    while (e->length < e->max_steps) {
        double reward = 0.0;
        ++*e->steps;
        e->kernels->act(e->policy, e->observation, dtype, e->action, e->count_moments);
        e->failure = env->step(e->state, e->action, e->observation, &reward, &e->terminated, &e->truncated);
        if (!fastes_float_mode_is_usual()) {
            e->float_mode = fastes_float_mode();
            fastes_usual_float_mode();
        }
        if (e->failure) return FASTES_FAILED;
        e->episode_return += reward;
        e->length++;
        if (e->length == e->limit) e->truncated = 1;
        if (e->terminated | e->truncated) return FASTES_OVER;
        if (e->leave && fastes_committed(e->leave)) return FASTES_LEAVES;
        if (--left == 0) {
            int64_t time = now();
            if (time - began > PATIENCE) return FASTES_ASKS;
            between = time - looked > PATIENCE / 16 ? 1 : between < MOST_STEPS ? 2 * between : MOST_STEPS;
            looked = time;
            left = between;
        }
    }
    return FASTES_CUT;
}
