/* A robot of Gymnasium's MuJoCo family, as C steps it. */
#ifndef FASTES_MUJOCO_TASKS_H
#define FASTES_MUJOCO_TASKS_H

#include "native_episode.h"

#define FASTES_MOST_SUMMED 127 /* numbers in a sum: above, NumPy adds in blocks */

typedef enum {
    MUJOCO_CHEETAH = 0, /* forward reward less the cost of control */
    MUJOCO_HOPPER = 1,
    MUJOCO_WALKER = 2,
    MUJOCO_ANT = 3,
    MUJOCO_HUMANOID = 4,
    MUJOCO_STANDUP = 5,
    MUJOCO_PENDULUM = 6,
    MUJOCO_DOUBLE_PENDULUM = 7,
    MUJOCO_REACHER = 8,
    MUJOCO_PUSHER = 9,
    MUJOCO_SWIMMER = 10, /* as the cheetah, but for its first state */
    MUJOCO_DESCRIBED = 11 /* FastES's MujocoTask: ranges and distances are its own */
} mujoco_kind;

typedef enum { MUJOCO_AS_IT_IS = 0, MUJOCO_CLIPPED = 1, MUJOCO_SIN = 2, MUJOCO_COS = 3, MUJOCO_LESS = 4 } mujoco_as;

/* Values of an observation, one part behind the other: from (count,), clipped, its sine or cosine, or less another array. */
typedef struct {
    mujoco_as as;
    const double *from, *less;
    int64_t count;
    double low, high;
} mujoco_part;

/* A number that is healthy between two others. */
typedef struct { const double *at; double low, high; } mujoco_range;

/* Two points (count,), whose distance costs weight times it. */
typedef struct { const double *from, *to; int64_t count; double weight; } mujoco_distance;

enum { MUJOCO_MOST_TERMS = 8, MUJOCO_MOST_DIMS = 8 }; /* ranges, distances, parts; numbers of a point */

typedef double (*mujoco_clock)(void);

/* Pointers are into MuJoCo's own arrays; numbers are constants of the Gymnasium environment. */
typedef struct {
    mujoco_kind kind;
    void *model, *data;
    void (*mj_step)(const void *, void *);
    void (*mj_rnePostConstraint)(const void *, void *);
    void (*mj_resetData)(const void *, void *);
    void (*mj_forward)(const void *, void *);
    void (*dot)(char *, intptr_t, char *, intptr_t, char *, intptr_t, void *); /* NumPy's, of float64 */
    mujoco_clock *clock, usual_clock; /* where MuJoCo looks for its clock, and the one that its package has put there, or NULL */
    int64_t frame_skip, nq, nv, num_actions, num_bodies;
    double *ctrl, *qpos, *qvel;
    const double *cfrc_ext, *body_mass, *init_qpos, *init_qvel;
    const double *position;               /* x of what moves on; of Humanoid the bodies' centres of mass (num_bodies, 3); or NULL */
    const double *first, *second, *third; /* (3,): IDP's tip; Reacher's fingertip and target; Pusher's object, goal and tip */
    double dt, timestep, forward_weight, control_weight, contact_weight, distance_weight, near_weight, healthy_reward, reset_scale;
    double z_low, z_high, angle_low, angle_high, state_low, state_high, contact_low, contact_high;
    int32_t ends_if_unhealthy, num_parts;
    int32_t reads_forces; /* of contacts, which mj_step does not compute */
    mujoco_part parts[MUJOCO_MOST_TERMS];
    int32_t num_ranges, num_distances; /* of a described one */
    mujoco_range ranges[MUJOCO_MOST_TERMS];
    mujoco_distance distances[MUJOCO_MOST_TERMS];
} mujoco_task;

/* For MuJoCo's mju_user_error: ends a step with an error, which the environment's `error` tells. */
void (*fastes_mujoco_error_handler(void))(const char *);

/* Fills the definition of such an environment, whose state is a mujoco_task. Gymnasium resets the kinds that draw
 * normal numbers: the cheetah, the ant and the double pendulum. */
void fastes_take_mujoco_task(fastes_env *env, int64_t num_values, int64_t num_actions, const double *lows, const double *highs);

#endif
