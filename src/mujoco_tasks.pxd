# The declarations of mujoco_tasks.h, which describes them.
from libc.stdint cimport int32_t, int64_t, intptr_t
from native_episode cimport fastes_env

cdef extern from "mujoco_tasks.h" nogil:
    enum:
        FASTES_MOST_SUMMED, MUJOCO_MOST_TERMS, MUJOCO_MOST_DIMS
    ctypedef enum mujoco_kind:
        MUJOCO_CHEETAH, MUJOCO_HOPPER, MUJOCO_WALKER, MUJOCO_ANT, MUJOCO_HUMANOID, MUJOCO_STANDUP, MUJOCO_PENDULUM
        MUJOCO_DOUBLE_PENDULUM, MUJOCO_REACHER, MUJOCO_PUSHER, MUJOCO_SWIMMER, MUJOCO_DESCRIBED
    ctypedef enum mujoco_as:
        MUJOCO_AS_IT_IS, MUJOCO_CLIPPED, MUJOCO_SIN, MUJOCO_COS, MUJOCO_LESS
    ctypedef struct mujoco_part:
        mujoco_as as_ "as"
        const double *from_ "from"
        const double *less
        int64_t count
        double low, high
    ctypedef struct mujoco_range:
        const double *at
        double low, high
    ctypedef struct mujoco_distance:
        const double *from_ "from"
        const double *to
        int64_t count
        double weight
    ctypedef double (*mujoco_clock)() noexcept nogil
    ctypedef struct mujoco_task:
        mujoco_kind kind
        void *model
        void *data
        void (*mj_step)(const void *, void *) noexcept nogil
        void (*mj_rnePostConstraint)(const void *, void *) noexcept nogil
        void (*mj_resetData)(const void *, void *) noexcept nogil
        void (*mj_forward)(const void *, void *) noexcept nogil
        void (*dot)(char *, intptr_t, char *, intptr_t, char *, intptr_t, void *) noexcept nogil
        mujoco_clock *clock
        mujoco_clock usual_clock
        int64_t frame_skip, nq, nv, num_actions, num_bodies
        double *ctrl
        double *qpos
        double *qvel
        const double *cfrc_ext
        const double *body_mass
        const double *init_qpos
        const double *init_qvel
        const double *position
        const double *first
        const double *second
        const double *third
        double dt, timestep, forward_weight, control_weight, contact_weight, distance_weight, near_weight, healthy_reward, reset_scale
        double z_low, z_high, angle_low, angle_high, state_low, state_high, contact_low, contact_high
        int32_t ends_if_unhealthy, num_parts, reads_forces
        mujoco_part parts[8]
        int32_t num_ranges, num_distances
        mujoco_range ranges[8]
        mujoco_distance distances[8]
    void *fastes_mujoco_error_handler()
    void fastes_take_mujoco_task(fastes_env *, int64_t, int64_t, const double *, const double *)
