# Part of _core.pyx: Gymnasium's robots, stepped by MuJoCo from C.

MUJOCO_KINDS = {
    "cheetah": MUJOCO_CHEETAH, "hopper": MUJOCO_HOPPER, "walker": MUJOCO_WALKER, "ant": MUJOCO_ANT, "humanoid": MUJOCO_HUMANOID,
    "standup": MUJOCO_STANDUP, "pendulum": MUJOCO_PENDULUM, "double_pendulum": MUJOCO_DOUBLE_PENDULUM,
    "reacher": MUJOCO_REACHER, "pusher": MUJOCO_PUSHER, "swimmer": MUJOCO_SWIMMER, "described": MUJOCO_DESCRIBED,
}
MUJOCO_PARTS = {
    "as it is": MUJOCO_AS_IT_IS, "clipped": MUJOCO_CLIPPED, "sin": MUJOCO_SIN, "cos": MUJOCO_COS, "less": MUJOCO_LESS,
}


cdef double *in_arrays(cnp.ndarray array) except NULL:
    """Where the numbers of one of MuJoCo's arrays begin; TypeError unless they are float64, one behind the other."""
    if cnp.PyArray_TYPE(array) != cnp.NPY_FLOAT64 or not cnp.PyArray_IS_C_CONTIGUOUS(array) or not cnp.PyArray_SIZE(array):
        raise TypeError(f"an array of MuJoCo has dtype {array.dtype} and shape {np.shape(array)}: expected contiguous float64")
    return <double *>cnp.PyArray_DATA(array)


cdef class MujocoDefinition:
    """The fastes_env of a robot, whose sizes are its model's."""
    cdef fastes_env env
    cdef double[::1] low, high
    cdef object arrays  # whose memory the task reads

    def __init__(self, int64_t num_values, low, high, arrays):
        self.low, self.high, self.arrays = low, high, arrays
        fastes_take_mujoco_task(&self.env, num_values, self.low.shape[0], &self.low[0], &self.high[0])


def mujoco_instance(str name, str kind, numbers, arrays, parts, low, high, size_t model, size_t data, functions, clock,
                    ranges=(), distances=()):
    """A robot that steps in C.

    Args:
        name: In messages.
        kind: One of MUJOCO_KINDS.
        numbers: Fields of mujoco_task by name.
        arrays: name -> MuJoCo's float64 array, for the pointers of mujoco_task; they stay where they are.
        parts: The observation: (one of MUJOCO_PARTS, array, the array that is subtracted or None, low, high) each.
        low, high: Bounds of actions, float64 (actions,).
        model, data: Addresses of MjModel and MjData.
        functions: Addresses of mj_step, mj_rnePostConstraint, mj_resetData and mj_forward.
        clock: The address of mjcb_time, and what its package has put there, or 0.
        ranges: Of a described one: (array of one number, low, high) each, all of them within while it is healthy.
        distances: Of a described one: (array, array, weight) each.

    Raises:
        TypeError, ValueError: Something is not as expected.
    """
    cdef mujoco_task *task
    cdef mujoco_part *into
    cdef NativeInstance made
    if len(ranges) > MUJOCO_MOST_TERMS or len(distances) > MUJOCO_MOST_TERMS:
        raise ValueError(f"{len(ranges)} ranges and {len(distances)} distances are more than C has room for")
    if not 0 < len(parts) <= MUJOCO_MOST_TERMS or not len(low) == len(high) == arrays["ctrl"].size <= FASTES_MOST_SUMMED:
        raise ValueError(f"{len(parts)} parts of an observation and {arrays['ctrl'].size} actuators are more than C has room for")
    if arrays["init_qpos"].size != arrays["qpos"].size or arrays["init_qvel"].size != arrays["qvel"].size:
        raise ValueError("init_qpos or init_qvel has another size than qpos or qvel")
    if numbers["reads_forces"] and 6 * numbers["num_bodies"] > FASTES_MOST_SUMMED:
        raise ValueError(f"{numbers['num_bodies']} bodies are more than C has room for")
    definition = MujocoDefinition(sum(part[1].size for part in parts), low, high, (arrays, parts, ranges, distances))
    made = NativeInstance(<size_t>&(<MujocoDefinition>definition).env, name, {}, definition)
    task = <mujoco_task *>made.state
    task.kind = code_of(MUJOCO_KINDS, kind, "kind of robot")
    task.model, task.data = <void *>model, <void *>data
    task.mj_step, task.mj_rnePostConstraint = function_at(functions[0]), function_at(functions[1])
    task.mj_resetData, task.mj_forward = function_at(functions[2]), function_at(functions[3])
    task.clock, task.usual_clock = <mujoco_clock *><size_t>clock[0], <mujoco_clock><size_t>clock[1]
    task.dot = <void (*)(char *, intptr_t, char *, intptr_t, char *, intptr_t, void *) noexcept nogil>dot_of_numpy()
    task.frame_skip, task.num_bodies, task.num_actions = numbers["frame_skip"], numbers["num_bodies"], len(low)
    task.nq, task.nv = arrays["qpos"].size, arrays["qvel"].size
    task.dt, task.timestep = numbers["dt"], numbers["timestep"]
    task.forward_weight, task.control_weight = numbers["forward_weight"], numbers["control_weight"]
    task.contact_weight, task.distance_weight = numbers["contact_weight"], numbers["distance_weight"]
    task.near_weight, task.healthy_reward = numbers["near_weight"], numbers["healthy_reward"]
    task.z_low, task.z_high = numbers["z"]
    task.angle_low, task.angle_high = numbers["angle"]
    task.state_low, task.state_high = numbers["state"]
    task.contact_low, task.contact_high = numbers["contact"]
    task.ends_if_unhealthy, task.reads_forces = numbers["ends_if_unhealthy"], numbers["reads_forces"]
    task.reset_scale = numbers["reset_scale"]
    task.ctrl, task.qpos, task.qvel = in_arrays(arrays["ctrl"]), in_arrays(arrays["qpos"]), in_arrays(arrays["qvel"])
    task.init_qpos, task.init_qvel = in_arrays(arrays["init_qpos"]), in_arrays(arrays["init_qvel"])
    task.cfrc_ext, task.body_mass = in_arrays(arrays["cfrc_ext"]), in_arrays(arrays["body_mass"])
    task.position = in_arrays(arrays["position"]) if "position" in arrays else NULL
    task.first = in_arrays(arrays["first"]) if "first" in arrays else NULL
    task.second = in_arrays(arrays["second"]) if "second" in arrays else NULL
    task.third = in_arrays(arrays["third"]) if "third" in arrays else NULL
    task.num_ranges, task.num_distances = len(ranges), len(distances)
    for i, (array, least, most) in enumerate(ranges):
        task.ranges[<int>i].at, task.ranges[<int>i].low, task.ranges[<int>i].high = in_arrays(array), least, most
    for i, (array, other, weight) in enumerate(distances):
        if array.size != other.size or array.size > MUJOCO_MOST_DIMS:
            raise ValueError(f"a distance between points of {array.size} and {other.size} numbers")
        task.distances[<int>i].from_, task.distances[<int>i].to = in_arrays(array), in_arrays(other)
        task.distances[<int>i].count, task.distances[<int>i].weight = array.size, weight
    task.num_parts = len(parts)
    for i, (how, array, less, least, most) in enumerate(parts):
        into = &task.parts[<int>i]
        into.as_ = code_of(MUJOCO_PARTS, how, "part of an observation")
        into.from_, into.count, into.low, into.high = in_arrays(array), array.size, least, most
        into.less = NULL if less is None else in_arrays(less)
    return made


ctypedef void (*of_mujoco)(const void *, void *) noexcept nogil


cdef of_mujoco function_at(size_t address):
    """MuJoCo's function at an address."""
    return <of_mujoco>address


def mujoco_error_handler():
    """Return the address of a function for MuJoCo's mju_user_error."""
    return <size_t>fastes_mujoco_error_handler()


cdef extern from *:
    """
    static void *dot_of_float64(void) {
        PyArray_Descr *descr = PyArray_DescrFromType(NPY_FLOAT64);
        void *found = (void *)PyDataType_GetArrFuncs(descr)->dotfunc;
        Py_DECREF(descr);
        return found;
    }
    """
    void *dot_of_float64()


cdef void *dot_of_numpy():
    """NumPy's dot of float64, which np.linalg.norm calls."""
    return dot_of_float64()
