# Part of _core.pyx: many policies in one call.

def act_rows(list actors not None, observations not None, actions not None):
    """actions[i] = actors[i].act(observations[i]) for rows of C-contiguous arrays, in one call.

    actors: one Actor a row. observations: one of OBS_DTYPES, (n, full_size or more dimensions); actions: (n, *action
    shape) of the kernel's dtype. Raises ValueError or TypeError for anything else.
    """
    cdef cnp.ndarray obs = observations, target = actions
    cdef int64_t n = len(actors), row, obs_bytes, action_bytes
    cdef int obs_dtype = obs_dtype_of(obs)
    cdef Actor actor
    cdef char *data
    cdef char *out
    if obs_dtype < 0:
        raise TypeError(f"observations have dtype {obs.dtype}: expected one of {tuple(OBS_DTYPES)}")
    if not cnp.PyArray_ISCARRAY_RO(obs) or not cnp.PyArray_ISCARRAY(target):
        raise ValueError("observations and actions must be C-contiguous arrays, and actions writable")
    if n == 0:
        return
    if obs.ndim < 1 or obs.shape[0] != n or target.ndim < 1 or target.shape[0] != n:
        raise ValueError(f"{n} actors for observations {np.shape(obs)} and actions {np.shape(target)}: expected one row each")
    obs_bytes, action_bytes = cnp.PyArray_NBYTES(obs) // n, cnp.PyArray_NBYTES(target) // n
    data, out = <char *>cnp.PyArray_DATA(obs), <char *>cnp.PyArray_DATA(target)
    for row in range(n):
        if not isinstance(actors[row], Actor):  # None, too, which Cython lets pass as an Actor
            raise TypeError(f"actors[{row}] = {actors[row]!r:.100} is a {type(actors[row]).__name__}: expected an Actor")
        actor = <Actor>actors[row]
        if not actor.ready or actor.refusal is not None:
            actor.refuse()
        if cnp.PyArray_SIZE(obs) // n != actor.full_size:
            raise ValueError(f"observation has shape {np.shape(obs)[1:]}, the policy expects {actor.obs_shape}")
        if cnp.PyArray_TYPE(target) != actor.action_type or cnp.PyArray_SIZE(target) // n != actor.c.action_size:
            raise ValueError(f"actions have shape {np.shape(target)} and dtype {target.dtype}: not what the policy gives")
    for row in range(n):
        actor = <Actor>actors[row]
        actor.steps[0] += 1
        actor.set_float_mode_back()
        with nogil:
            kernels.act(&actor.c, data + row * obs_bytes, <fastes_obs_dtype>obs_dtype, out + row * action_bytes, actor.counting)
