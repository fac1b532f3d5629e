# Part of _core.pyx: a policy that observes and acts.

cdef enum:
    NUMBERED_DTYPES = 32  # more than the numbers of NumPy's numeric dtypes

cdef extern from "numpy/arrayobject.h":
    object PyArray_Scalar(void *data, cnp.dtype descr, object base)

cdef int[NUMBERED_DTYPES] obs_dtypes  # OBS_DTYPES by NumPy's number of a dtype, -1 for others: a look-up is one load
for number in range(NUMBERED_DTYPES):
    obs_dtypes[number] = -1
for name, code in OBS_DTYPES.items():
    obs_dtypes[<int>np.dtype(name).num] = code
del number, name, code
cdef cnp.dtype INT64 = np.dtype(np.int64)


cdef int obs_dtype_of(cnp.ndarray array) noexcept:
    """Return the dtype by which the kernels read an array, or -1 for one that they do not read."""
    cdef int number = cnp.PyArray_TYPE(array)
    return obs_dtypes[number] if 0 <= number < NUMBERED_DTYPES else -1


cdef class Actor(ActorMemory):
    """A policy bound to its parameters and buffers: `act(obs)` is one C call.

    Built from a fastes.policies.policy_spec.PolicySpec; starts with zero parameters, no noise and no normalisation. If the spec has
    no layers (a custom policy's), `observe` and `choose` are the two ends of a step, and Python computes what lies between. It observes
    obs_size of an observation's full_size values: the spec's columns, or all; if the first layer reads an image, those columns
    alone. With virtual batch normalisation it acts once it has a reference batch and has folded it for its parameters.
    """

    @property
    def parameters(self):
        """This actor's own parameters: a writable float32 view (num_params,). Take it anew, or call `fold`, before each change."""
        self.forget()
        return self.params_array[: self.num_params]

    def count_steps(self, int64_t[::1] steps not None):
        """From now on each `act` adds one to steps (1,), which another process may watch."""
        check_length("steps", steps.shape[0], 1)
        self.steps = steps

    def refuse_with(self, refusal not None):
        """From now on `act`, `observe` and `choose` begin by calling refusal(), which does not return."""
        self.refusal = refusal

    def arrange_with(self, arrange not None):
        """From now on arrange(observation), an array, gives the one that is read: of the first, and of each of another shape.

        It has to give an array of obs_shape. Without it any shape with as many values is read in C order.
        """
        self.arrange = arrange
        self.unseen = True

    def set_normalizer(self, const double[::1] mean not None, const double[::1] inv_std not None, double clip):
        """From now on observations reach the first layer as clip((obs - mean) * inv_std, -clip, clip)."""
        check_length("mean", mean.shape[0], self.obs_size)
        check_length("inv_std", inv_std.shape[0], self.obs_size)
        self.mean[:] = mean
        self.inv_std[:] = inv_std
        self.c.obs_clip = clip
        self.c.normalize = 1

    def set_reference(self, reference not None):
        """The reference batch of virtual batch normalisation: C-contiguous, of one of OBS_DTYPES, (n, *observation shape), n >= 1.

        It is read at each `fold` and must not change. Raises TypeError or ValueError for anything else.
        """
        cdef cnp.ndarray array = reference
        if obs_dtype_of(array) < 0 or not cnp.PyArray_ISCARRAY_RO(array):
            raise TypeError(f"the reference batch has dtype {array.dtype}: expected a C-contiguous array of {tuple(OBS_DTYPES)}")
        if array.ndim < 2 or array.shape[0] < 1 or cnp.PyArray_SIZE(array) != array.shape[0] * self.full_size:
            raise ValueError(f"the reference batch has shape {np.shape(array)}: expected n observations of shape {self.obs_shape}")
        if self.kept is None or self.kept.shape[0] < array.shape[0] * self.most_kept:
            self.kept = np.zeros(array.shape[0] * self.most_kept, dtype=np.float32)
        self.take_joined(self.c.num_joined, array.shape[0])
        self.reference = array

    def fold(self):
        """To be called when parameters or normaliser have changed: statistics of the reference batch under these.

        Does nothing without a layer of virtual batch normalisation. Raises ValueError without a reference batch.
        """
        cdef cnp.ndarray reference
        cdef void *data
        cdef int32_t count
        self.forget()
        if not self.most_kept:
            return
        if self.reference is None:
            raise ValueError("virtual batch normalisation needs a reference batch: call set_reference first")
        reference = self.reference
        data = cnp.PyArray_DATA(reference)
        count = reference.shape[0]
        cdef fastes_obs_dtype obs_dtype = <fastes_obs_dtype>obs_dtype_of(reference)
        with nogil:
            kernels.fold(&self.c, data, obs_dtype, count, &self.kept[0])
        self.ready = True

    cdef refuse(self):
        """Raise the TypeError or ValueError that says why it cannot act, or call its refusal."""
        if self.refusal is not None:
            self.refusal()
        if not self.c.num_layers:
            raise TypeError("this policy has no layers: call observe and choose, or its own act")
        raise ValueError("this policy has virtual batch normalisation: call set_reference and fold before it acts")

    cpdef begin_episode(self, uint64_t noise_key=0, double action_noise=0.0, bint sample=False):
        """Clear the memory of layers, and start the action stream at its beginning.

        That is Gaussian noise on Box actions, or sampled choices.
        """
        self.set_float_mode_back()
        self.forget()
        if self.state_size:
            memset(&self.states[0], 0, self.state_size * sizeof(float))
        self.c.noise_key = noise_key
        self.c.noise_step = 0
        self.c.action_noise = <float>action_noise
        self.c.sample = sample

    cpdef count_moments(self, bint counting):
        """Whether each observation adds to `moments`; sets them to zero."""
        self.moments[:, :] = 0.0
        self.counting = counting

    @property
    def state(self):
        """The memory of the layers, one behind the other: a writable float32 view (state_size,)."""
        return self.states_array[: self.state_size]

    @property
    def observation_moments(self):
        """Sums of obs - mean and of its square since count_moments(): float64 (2, obs_size)."""
        return self.moments_array

    cdef as_numbers(self, obs):
        """Return an observation of any type as float64, or raise an error that says what was passed."""
        try:
            array = np.asarray(obs)
        except ValueError:  # rows of different lengths
            array = np.empty(0, dtype=object)
        if array.dtype.kind == "O" and array.size and all(isinstance(x, numbers.Real) for x in array.flat):
            return array.astype(np.float64)
        if array.dtype.kind not in "fiub":
            kind = f"dtype {array.dtype}" if isinstance(obs, np.ndarray) else f"type {type(obs).__name__}"
            raise ValueError(
                f"observation {repr(obs)[:100]} has {kind} and shape {array.shape}: expected numbers of shape {self.obs_shape}"
            )
        return array.astype(np.float64)

    cdef inline void set_float_mode_back(self) noexcept:
        """Set the usual floating-point mode, which an environment may have changed; float_mode keeps the changed one."""
        if not fastes_float_mode_is_usual():
            self.float_mode = fastes_float_mode()
            fastes_usual_float_mode()

    cdef inline bint has_shape(self, cnp.ndarray array) noexcept:
        """Whether an array is of obs_shape."""
        cdef int axis
        if array.ndim != self.obs_dims.shape[0] - 1:
            return False
        for axis in range(array.ndim):
            if array.shape[axis] != self.obs_dims[axis]:
                return False
        return True

    cdef cnp.ndarray arranged(self, cnp.ndarray array):
        """Return an array as `arrange` gives it, in a dtype that the kernels read."""
        array = self.arrange(array)
        self.unseen = False
        if not self.has_shape(array):
            raise ValueError(f"observation has shape {np.shape(array)}, the policy expects {self.obs_shape}")
        return array if obs_dtype_of(array) >= 0 else self.as_numbers(array)

    cdef inline cnp.ndarray as_input(self, obs, fastes_obs_dtype *obs_dtype):
        """An observation as an array that the kernels read; its dtype goes to obs_dtype."""
        cdef int dtype
        cdef cnp.ndarray array
        self.set_float_mode_back()
        if type(obs) is not cnp.ndarray:
            obs = self.as_numbers(obs)
        array = <cnp.ndarray>obs
        if self.arrange is not None and (self.unseen or not self.has_shape(array)):
            array = self.arranged(array)
        dtype = obs_dtype_of(array)
        if dtype < 0:
            array = self.as_numbers(array)
            dtype = FASTES_OBS_FLOAT64
        obs_dtype[0] = <fastes_obs_dtype>dtype
        if not cnp.PyArray_ISCARRAY_RO(array):
            array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
        if cnp.PyArray_SIZE(array) != self.full_size:
            raise ValueError(f"observation has shape {np.shape(array)}, the policy expects {self.obs_shape}")
        return array

    def act(self, obs):
        """The action for one observation of the space's shape: a number of NumPy for Discrete, else a new array of the space."""
        cdef fastes_obs_dtype obs_dtype
        cdef cnp.ndarray array = self.as_input(obs, &obs_dtype)
        cdef void *data = cnp.PyArray_DATA(array)
        if not self.ready or self.refusal is not None:
            self.refuse()
        self.steps[0] += 1
        if self.scalar_action:
            with nogil:
                kernels.act(&self.c, data, obs_dtype, &self.scratch_action[0], self.counting)
            return self.scalar()
        action = cnp.PyArray_EMPTY(self.action_ndim, self.action_dims, self.action_type, 0)
        cdef void *target = cnp.PyArray_DATA(<cnp.ndarray>action)
        with nogil:
            kernels.act(&self.c, data, obs_dtype, target, self.counting)
        return action if self.cast is None else action.astype(self.cast)

    cdef scalar(self):
        """The action for Discrete as `action_space.sample()` gives it: a number of NumPy, and no int of Python."""
        action = PyArray_Scalar(&self.scratch_action[0], INT64, None)
        return action if self.cast is None else self.cast.type(action)

    def observe(self, obs):
        """The first half of `act`: an observation normalised, counted, and a step.

        Returns `observation`, float32 (obs_size,): the same memory each time, which the next call overwrites.
        """
        cdef fastes_obs_dtype obs_dtype
        cdef cnp.ndarray array = self.as_input(obs, &obs_dtype)
        if self.refusal is not None:
            self.refuse()
        self.steps[0] += 1
        kernels.observe(&self.c, cnp.PyArray_DATA(array), obs_dtype, &self.scratch0[0], self.counting)
        return self.observation

    def choose(self, outputs):
        """The second half of `act`: the action for outputs float32 (num_outputs,), of any shape with as many values."""
        cdef cnp.ndarray array
        if self.refusal is not None:
            self.refuse()
        self.set_float_mode_back()
        if type(outputs) is not cnp.ndarray or cnp.PyArray_TYPE(<cnp.ndarray>outputs) != cnp.NPY_FLOAT32:
            kind = f"dtype {outputs.dtype}" if isinstance(outputs, np.ndarray) else f"type {type(outputs).__name__}"
            raise TypeError(f"the policy's outputs have {kind}: expected a float32 array")
        array = <cnp.ndarray>outputs
        if not cnp.PyArray_ISCARRAY_RO(array):
            array = np.ascontiguousarray(array, dtype=np.float32)
        if cnp.PyArray_SIZE(array) != self.c.num_outputs or not self.c.num_outputs:
            raise ValueError(
                f"the policy's outputs have shape {np.shape(array)}: expected {self.c.num_outputs} values for this action space"
            )
        memcpy(&self.scratch1[0], cnp.PyArray_DATA(array), self.c.num_outputs * sizeof(float))
        if self.scalar_action:
            kernels.choose(&self.c, &self.scratch1[0], &self.scratch_action[0])
            return self.scalar()
        action = cnp.PyArray_EMPTY(self.action_ndim, self.action_dims, self.action_type, 0)
        kernels.choose(&self.c, &self.scratch1[0], cnp.PyArray_DATA(<cnp.ndarray>action))
        return action if self.cast is None else action.astype(self.cast)
