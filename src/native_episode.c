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

static void change_action(const fastes_wrappers *wrappers, float *action) {
    for (int64_t k = 0; k < wrappers->num_changes; k++) {
        const fastes_action_change *change = &wrappers->changes[k];
        const float *first = change->first, *second = change->second;
        for (int64_t i = 0; i < wrappers->action_size; i++) {
            float x = action[i];
            if (change->kind == FASTES_RESCALE) {
                action[i] = (x - first[i]) / second[i];
            } else if (x == x) { /* a zero becomes the bound's zero, as in np.clip; NaN stays */
                x = x > first[i] ? x : first[i];
                action[i] = x < second[i] ? x : second[i];
            }
        }
    }
}

/* inline in play_on's loop, where most environments have no such wrappers */
static inline int step_wrapped(fastes_episode *e, double *reward) {
    const fastes_wrappers *wrappers = e->wrappers;
    int failure = 0;
    if (wrappers->num_changes) change_action(wrappers, (float *)e->action);
    if (wrappers->repeats == 1) {
        failure = e->env->step(e->state, e->action, e->observation, reward, &e->terminated, &e->truncated);
    } else {
        double each = 0.0;
        *reward = 0.0;
        for (int64_t k = 0; k < wrappers->repeats && !failure && !(e->terminated | e->truncated); k++) {
            each = 0.0;
            failure = e->env->step(e->state, e->action, e->observation, &each, &e->terminated, &e->truncated);
            *reward += each;
            if (++e->inner_length == wrappers->inner_limit) e->truncated = 1;
        }
    }
    if (failure) return failure;
    if (++e->length == wrappers->limit) e->truncated = 1;
    return 0;
}

int fastes_step(fastes_episode *episode, double *reward) { return step_wrapped(episode, reward); }

fastes_pause fastes_play_on(fastes_episode *e) {
    const fastes_env *env = e->env;
    const fastes_obs_dtype dtype = (fastes_obs_dtype)env->observation.dtype;
    int64_t began = now(), looked = began, between = 1, left = 1;
    while (e->length < e->max_steps) {
        double reward = 0.0;
        ++*e->steps;
        e->kernels->act(e->policy, e->observation, dtype, e->action, e->count_moments);
        e->failure = step_wrapped(e, &reward);
        if (!fastes_float_mode_is_usual()) {
            e->float_mode = fastes_float_mode();
            fastes_usual_float_mode();
        }
        if (e->failure) return FASTES_FAILED;
        e->episode_return += reward;
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
