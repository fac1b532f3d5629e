/* Gymnasium's MuJoCo robots (v5) in C, with the same bits: the physics is MuJoCo's own mj_step, on the memory of the Gymnasium environment,
 * which builds model, spaces and constants; rewards, ends and first states are the operations of its classes in their order. */
#include "mujoco_tasks.h"
#include "numpy_random.h"
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

static const double *const NONE = 0;

/* np.sum of contiguous numbers, fewer than 128: NumPy's pairwise sum. */
#define PAIRWISE_SUM(name, number)                                                                           \
    static number name(const number *x, int64_t n) {                                                         \
        number sum = 0;                                                                                      \
        int64_t i = 0;                                                                                       \
        if (n >= 8) {                                                                                        \
            number r[8];                                                                                     \
            for (int k = 0; k < 8; k++) r[k] = x[k];                                                         \
            for (i = 8; i < n - n % 8; i += 8)                                                               \
                for (int k = 0; k < 8; k++) r[k] += x[i + k];                                                \
            sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));                         \
        }                                                                                                    \
        for (; i < n; i++) sum += x[i];                                                                      \
        return sum;                                                                                          \
    }
PAIRWISE_SUM(sum_of, double)
PAIRWISE_SUM(sum_off, float)

static double clipped(double x, double low, double high) {
    x = x < low ? low : x; /* NaN stays, as in np.clip */
    return x > high ? high : x;
}

static double square_sum(const double *x, int64_t n, double low, double high) {
    double squares[FASTES_MOST_SUMMED];
    for (int64_t i = 0; i < n; i++) {
        double value = clipped(x[i], low, high);
        squares[i] = value * value;
    }
    return sum_of(squares, n);
}

/* weight * np.sum(np.square(action)) of a float32 action, as float32. */
static float control_cost(const mujoco_task *t, const float *action) {
    float squares[FASTES_MOST_SUMMED];
    for (int64_t i = 0; i < t->num_actions; i++) squares[i] = action[i] * action[i];
    return (float)t->control_weight * sum_off(squares, t->num_actions);
}

static int is_finite(const double *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return 0;
    return 1;
}

static int are_within(const double *x, int64_t n, double low, double high) {
    for (int64_t i = 0; i < n; i++)
        if (!(low < x[i] && x[i] < high)) return 0;
    return 1;
}

static int is_healthy(const mujoco_task *t) {
    const double *q = t->qpos;
    switch (t->kind) {
    case MUJOCO_HOPPER:
        return are_within(q + 2, t->nq - 2, t->state_low, t->state_high) &&
               are_within(t->qvel, t->nv, t->state_low, t->state_high) && t->z_low < q[1] && q[1] < t->z_high &&
               t->angle_low < q[2] && q[2] < t->angle_high;
    case MUJOCO_WALKER:
        return t->z_low < q[1] && q[1] < t->z_high && t->angle_low < q[2] && q[2] < t->angle_high;
    case MUJOCO_ANT:
        return is_finite(q, t->nq) && is_finite(t->qvel, t->nv) && t->z_low <= q[2] && q[2] <= t->z_high;
    case MUJOCO_HUMANOID:
        return t->z_low < q[2] && q[2] < t->z_high;
    case MUJOCO_DESCRIBED:
        for (int32_t i = 0; i < t->num_ranges; i++)
            if (!are_within(t->ranges[i].at, 1, t->ranges[i].low, t->ranges[i].high)) return 0;
        break;
    case MUJOCO_CHEETAH: case MUJOCO_SWIMMER: case MUJOCO_STANDUP: case MUJOCO_PENDULUM: case MUJOCO_DOUBLE_PENDULUM: case MUJOCO_REACHER: case MUJOCO_PUSHER:
        break;
    }
    return 1;
}

/* x of what has to move on. */
static double place(const mujoco_task *t) {
    if (t->kind != MUJOCO_HUMANOID) return *t->position;
    double moment = 0;
    for (int64_t body = 0; body < t->num_bodies; body++) moment += t->body_mass[body] * t->position[3 * body];
    return moment / sum_of(t->body_mass, t->num_bodies);
}

/* np.linalg.norm. */
static double norm(const mujoco_task *t, const double *x, intptr_t n) {
    double square;
    t->dot((char *)x, sizeof *x, (char *)x, sizeof *x, (char *)&square, n, 0);
    return sqrt(square);
}

static double distance(const mujoco_task *t, const double *from, const double *to, int64_t n) {
    double apart[MUJOCO_MOST_DIMS];
    for (int64_t i = 0; i < n; i++) apart[i] = from[i] - to[i];
    return norm(t, apart, (intptr_t)n);
}

static void observe(const mujoco_task *t, double *seen) {
    for (int32_t i = 0; i < t->num_parts; i++) {
        const mujoco_part *part = t->parts + i;
        const double *x = part->from;
        const int64_t n = part->count;
        switch (part->as) {
        case MUJOCO_AS_IT_IS:
            for (int64_t k = 0; k < n; k++) seen[k] = x[k];
            break;
        case MUJOCO_CLIPPED:
            for (int64_t k = 0; k < n; k++) seen[k] = clipped(x[k], part->low, part->high);
            break;
        case MUJOCO_LESS:
            for (int64_t k = 0; k < n; k++) seen[k] = x[k] - part->less[k];
            break;
        case MUJOCO_SIN: case MUJOCO_COS:
            fastes_call_loop(part->as == MUJOCO_SIN ? &fastes_math.sin : &fastes_math.cos, x, seen, (intptr_t)n);
            break;
        }
        seen += n;
    }
}

/* MuJoCo's errors do not return: without a handler that jumps, they end the process. */
static _Thread_local jmp_buf *stepping;
static _Thread_local char said[256];

static void take_error(const char *message) {
    snprintf(said, sizeof said, "%s", message);
    if (stepping) longjmp(*stepping, 1);
    fprintf(stderr, "ERROR: %s\n", message); /* as MuJoCo does */
    exit(EXIT_FAILURE);
}

void (*fastes_mujoco_error_handler(void))(const char *) { return take_error; }

static const char *error(void *state) {
    (void)state;
    return said;
}

static double no_time(void) { return 0; }

/* Does work in MuJoCo. Returns 1 if that ended with an error.
 *
 * MuJoCo's package has each part of a step timed, for a profile in data.timer that takes a sixth of the step itself: in C it is not
 * kept. The package's clock alone is exchanged, and for a function: other threads may be about to call it. It is the process's: a step
 * that another thread takes meanwhile is not timed, either, or wrongly. */
static int in_mujoco(const mujoco_task *t, void (*work)(const mujoco_task *)) {
    jmp_buf here;
    int failed = 0;
    if (t->usual_clock && *t->clock == t->usual_clock) *t->clock = no_time;
    if (setjmp(here)) {
        failed = 1;
    } else {
        stepping = &here;
        work(t);
    }
    stepping = 0;
    if (t->usual_clock && *t->clock == no_time) *t->clock = t->usual_clock;
    return failed;
}

static void advance(const mujoco_task *t) {
    for (int64_t i = 0; i < t->frame_skip; i++) t->mj_step(t->model, t->data);
    if (t->reads_forces) t->mj_rnePostConstraint(t->model, t->data);
}

static void clear(const mujoco_task *t) { t->mj_resetData(t->model, t->data); }
static void settle(const mujoco_task *t) { t->mj_forward(t->model, t->data); }

/* The first state, as reset_model of the kind's class draws it. */
static void draw_state(const mujoco_task *t, pcg64 *rng) {
    double *q = t->qpos, *v = t->qvel;
    const int aims = t->kind == MUJOCO_REACHER || t->kind == MUJOCO_PUSHER;
    const double place = t->kind == MUJOCO_REACHER ? 0.1 : t->reset_scale, speed = aims ? 0.005 : t->reset_scale;
    for (int64_t i = 0; i < t->nq; i++)
        q[i] = t->kind == MUJOCO_PUSHER ? t->init_qpos[i] : t->init_qpos[i] + pcg64_uniform(rng, -place, place);
    double *tail = aims ? q + t->nq - 4 : q;
    if (t->kind == MUJOCO_REACHER) {
        do
            for (int i = 2; i < 4; i++) tail[i] = pcg64_uniform(rng, -0.2, 0.2);
        while (!(norm(t, tail + 2, 2) < 0.2));
    } else if (t->kind == MUJOCO_PUSHER) {
        do {
            tail[0] = pcg64_uniform(rng, -0.3, 0.0);
            tail[1] = pcg64_uniform(rng, -0.2, 0.2);
        } while (!(norm(t, tail, 2) > 0.17));
        tail[2] = tail[3] = 0.0;
    }
    for (int64_t i = 0; i < t->nv; i++) v[i] = t->init_qvel[i] + pcg64_uniform(rng, -speed, speed);
    for (int64_t i = t->nv - (t->kind == MUJOCO_PUSHER ? 4 : 2); aims && i < t->nv; i++) v[i] = 0.0;
}

static int reset(void *state, fastes_random *random, void *observation) {
    const mujoco_task *t = state;
    pcg64 rng;
    if (in_mujoco(t, clear)) return 1;
    pcg64_seed(&rng, (uint32_t)random->seed);
    draw_state(t, &rng);
    if (in_mujoco(t, settle)) return 1;
    observe(t, observation);
    return 0;
}

static int step(void *state, const void *action, void *observation, double *reward, uint8_t *terminated, uint8_t *truncated) {
    (void)truncated;
    const mujoco_task *t = state;
    const float *a = action;
    const double before = t->position == NONE ? 0 : place(t);
    for (int64_t i = 0; i < t->num_actions; i++) t->ctrl[i] = a[i];
    if (in_mujoco(t, advance)) return 1;
    observe(t, observation);
    const double speed = t->position == NONE ? 0 : (place(t) - before) / t->dt;
    const double forward = t->forward_weight * speed;
    const int healthy = is_healthy(t);
    const double alive = healthy ? t->healthy_reward : 0.0;
    switch (t->kind) {
    case MUJOCO_CHEETAH: case MUJOCO_SWIMMER:
        *reward = forward - (double)control_cost(t, a);
        break;
    case MUJOCO_HOPPER: case MUJOCO_WALKER:
        *reward = forward + alive - (double)control_cost(t, a);
        break;
    case MUJOCO_DESCRIBED:
        *reward = forward + alive - (double)control_cost(t, a);
        for (int32_t i = 0; i < t->num_distances; i++) {
            const mujoco_distance *d = t->distances + i;
            *reward = *reward - d->weight * distance(t, d->from, d->to, d->count);
        }
        break;
    case MUJOCO_ANT: {
        double contact = t->contact_weight * square_sum(t->cfrc_ext, 6 * t->num_bodies, t->contact_low, t->contact_high);
        *reward = forward + alive - ((double)control_cost(t, a) + contact);
        break;
    }
    case MUJOCO_HUMANOID: case MUJOCO_STANDUP: {
        double control = t->control_weight * square_sum(t->ctrl, t->num_actions, -INFINITY, INFINITY);
        double contact = t->contact_weight * square_sum(t->cfrc_ext, 6 * t->num_bodies, -INFINITY, INFINITY);
        contact = clipped(contact, t->contact_low, t->contact_high);
        *reward = t->kind == MUJOCO_HUMANOID ? forward + alive - (control + contact)
                                             : t->qpos[2] / t->timestep - control - contact + 1;
        break;
    }
    case MUJOCO_PENDULUM:
        *terminated = !is_finite(t->qpos, t->nq) || !is_finite(t->qvel, t->nv) || fabs(t->qpos[1]) > 0.2;
        *reward = !*terminated;
        break;
    case MUJOCO_DOUBLE_PENDULUM: {
        double x = t->first[0], y = t->first[2];
        *terminated = y <= 1;
        double apart = 0.01 * fastes_squared(x) + fastes_squared(y - 2);
        double moves = 1e-3 * fastes_squared(t->qvel[1]) + 5e-3 * fastes_squared(t->qvel[2]);
        *reward = (*terminated ? 0.0 : t->healthy_reward) - apart - moves;
        break;
    }
    case MUJOCO_REACHER: case MUJOCO_PUSHER: {
        float squares[FASTES_MOST_SUMMED];
        for (int64_t i = 0; i < t->num_actions; i++) squares[i] = a[i] * a[i];
        float control = -sum_off(squares, t->num_actions) * (float)t->control_weight;
        double apart = -distance(t, t->first, t->second, 3) * t->distance_weight;
        *reward = apart + (double)control;
        if (t->kind == MUJOCO_PUSHER) *reward = *reward + -distance(t, t->first, t->third, 3) * t->near_weight;
        break;
    }
    }
    if (t->ends_if_unhealthy) *terminated = !healthy;
    return 0;
}

void fastes_take_mujoco_task(fastes_env *env, int64_t num_values, int64_t num_actions, const double *lows, const double *highs) {
    const fastes_env made = {
        .version = FASTES_ENV_VERSION, .state_size = sizeof(mujoco_task),
        .observation = FASTES_BOX(FASTES_FLOAT64, num_values, -INFINITY, INFINITY),
        .action = {FASTES_FLOAT32, 1, {num_actions}, -INFINITY, INFINITY, lows, highs, 0}, .reset = reset, .step = step, .error = error,
    };
    *env = made;
}
