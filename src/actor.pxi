# Part of _core.pyx: a policy of its own buffers, and what is asked of many of them at once.

cdef enum:
    NUMBERED_DTYPES = 32  # more than NumPy numbers of its own numeric dtypes

cdef int[NUMBERED_DTYPES] obs_dtypes  # OBS_DTYPES by NumPy's number of a dtype, -1 for others: a look-up is one load
for number in range(NUMBERED_DTYPES):
    obs_dtypes[number] = -1
for name, code in OBS_DTYPES.items():
    obs_dtypes[<int>np.dtype(name).num] = code
del number, name, code


cdef int obs_dtype_of(cnp.ndarray array) noexcept:
    """The dtype by which the kernels read an array, or -1 for one that they do not read."""
    cdef int number = cnp.PyArray_TYPE(array)
    return obs_dtypes[number] if 0 <= number < NUMBERED_DTYPES else -1


cdef class Actor:
    """A policy bound to its parameters and buffers: `act(obs)` is one C call.

    Built from a fastes.policies.policy_spec.PolicySpec; starts with zero parameters, no noise and no normalisation. Where the spec has
    no layers (a custom policy's), `observe` and `choose` are the two ends of a step, and something else is between them. It observes
    obs_size of an observation's full_size values: the spec's columns, or all; where the first layer reads an image, those columns
    alone. With virtual batch normalisation it acts once it has a reference batch and has folded it for its parameters.
    """
    cdef fastes_policy c
    cdef readonly int64_t num_params
    cdef readonly int64_t obs_size
    cdef readonly int64_t full_size
    cdef readonly int64_t state_size
    cdef readonly object observation
    cdef bint counting, scalar_action, ready
    cdef int action_type, action_ndim
    cdef cnp.npy_intp[32] action_dims
    cdef object params_array, moments_array, states_array, obs_shape, cast, reference
    cdef int64_t[::1] steps
    cdef float[::1] params, scratch0, scratch1, states, observed, strip, scales, kept
    cdef uint8_t[::1] layers
    cdef double[::1] sums
    cdef int64_t most_kept
    cdef double[::1] mean, inv_std, chosen
    cdef int64_t[::1] columns
    cdef double[:, ::1] moments
    cdef double[::1] low, high
    cdef int64_t[::1] nvec, start
    cdef int64_t[::1] scratch_action

    def __init__(self, spec):
        head = spec.head
        for layer in spec.layers:
            layer.check()
        self.num_params = spec.num_params
        self.obs_size = spec.obs_size
        self.full_size = self.obs_size
        self.obs_shape = spec.obs_shape
        self.params_array = aligned_zeros(self.num_params)
        self.params = self.params_array
        ends = [size for layer in spec.layers for size in (0 if layer.reads_image else layer.inputs, layer.outputs, layer.scratch_size)]
        widest = max(*ends, self.obs_size, 0 if head is None else head.num_outputs)
        self.scratch0 = input_array = aligned_zeros(widest)
        self.scratch1 = aligned_zeros(widest)
        self.observation = input_array[: self.obs_size]
        self.mean = np.zeros(self.obs_size)
        self.inv_std = np.ones(self.obs_size)
        self.moments_array = np.zeros((2, self.obs_size))
        self.moments = self.moments_array
        self.steps = np.zeros(1, dtype=np.int64)
        self.states_array = aligned_zeros(0)
        cdef fastes_policy *c = &self.c
        memset(c, 0, sizeof(fastes_policy))
        c.obs_size = self.obs_size
        c.scratch[0] = &self.scratch0[0]
        c.scratch[1] = &self.scratch1[0]
        c.observed = c.scratch[0]
        c.obs_mean = &self.mean[0]
        c.obs_inv_std = &self.inv_std[0]
        c.moments = &self.moments[0, 0]
        if spec.columns:
            self.take_columns(spec.columns)
        if spec.layers and spec.layers[0].reads_image:
            self.full_size = math.prod(self.obs_shape)
            self.observed = aligned_zeros(self.obs_size)
            c.observed = &self.observed[0]
        c.full_size = self.full_size
        if spec.layers:
            self.take_layers(spec.layers)
        if head is not None:
            self.take_head(head)

    cdef take_columns(self, columns):
        """Which values of an observation of obs_shape it sees."""
        check_length("columns", len(columns), self.obs_size)
        self.full_size = math.prod(self.obs_shape)
        if min(columns) < 0 or max(columns) >= self.full_size:
            raise ValueError(f"columns {min(columns)} to {max(columns)} of observations with {self.full_size} values")
        self.columns = np.array(columns, dtype=np.int64)
        self.chosen = np.zeros(self.obs_size)
        self.c.columns = &self.columns[0]
        self.c.chosen = &self.chosen[0]

    cdef take_layers(self, layers):
        """Each layer as C knows it; the only place that says where its parameters and its memory are."""
        cdef fastes_policy *c = &self.c
        cdef fastes_layer *into
        cdef int64_t at = 0, state_at = 0, inputs = layers[0].inputs if layers[0].reads_image else self.obs_size
        self.layers = np.zeros(len(layers) * sizeof(fastes_layer), dtype=np.uint8)
        self.states_array = aligned_zeros(sum(layer.state_size for layer in layers))
        self.states = self.states_array
        self.take_norms([layer for layer in layers if layer.kind == "virtual_batch_norm"])
        cdef int64_t norm_at = 0
        for i, layer in enumerate(layers):
            check_length(f"layer {i}'s input", layer.inputs, inputs)
            into = <fastes_layer *>&self.layers[0] + <int64_t>i
            into.kind = code_of(LAYER_KINDS, layer.kind, "kind of layer")
            into.activation = code_of(ACTIVATIONS, layer.activation, "activation")
            into.in_, into.out = layer.inputs, layer.outputs
            into.state = &self.states[state_at]
            state_at += layer.state_size
            if "convolution" in layer.kind:
                self.take_convolution(into, layer, i)
            elif layer.kind == "virtual_batch_norm":
                if state_at:
                    raise ValueError(f"layer {i} normalises by a batch of observations, which layers that remember cannot give it")
                self.take_norm(into, layer, norm_at)
                norm_at += layer.channels + FASTES_PAD
            elif layer.kind == "append":
                self.check_append(layer, layers[0])
            for name, shape in layer.parameter_shapes().items():
                self.take_parameter(into, name, &self.params[at])
                at += math.prod(shape)
            inputs = layer.outputs
        check_length("theta", self.num_params, at)
        self.state_size = state_at
        self.ready = self.most_kept == 0
        c.layers = <fastes_layer *>&self.layers[0]
        c.num_layers = len(layers)
        c.num_outputs = inputs

    cdef take_parameter(self, fastes_layer *into, name, const float *place):
        """Where a parameter of a layer is, by the name that the layer gives it."""
        if name == "weight":
            into.weight = place
        elif name == "bias":
            into.bias = place
        elif name == "gamma":
            into.of.batch_norm.gamma = place
        elif name == "beta":
            into.of.batch_norm.beta = place
        else:
            raise ValueError(f"unknown parameter {name!r:.100} of a layer")

    cdef take_convolution(self, fastes_layer *into, layer, int64_t number):
        """The sizes of a convolution, and a strip of the image that it reads."""
        cdef fastes_convolution *of = &into.of.convolution
        of.height, of.width, of.channels = layer.height, layer.width, layer.channels
        of.rows, of.columns, of.filters = layer.rows, layer.columns, layer.filters
        of.kernel, of.stride = layer.kernel, layer.stride
        if not layer.reads_image:
            return
        if number:
            raise ValueError(f"layer {number} reads an image: only the first one can")
        check_slice(layer.first, layer.inputs, self.full_size, "first value of the image")
        of.first, of.channels_first, of.unit = layer.first, layer.channels_first, np.float32(1.0) / np.float32(layer.divisor)
        row = layer.width * layer.channels
        of.strip_rows = min(max((STRIP_VALUES // row - layer.kernel) // layer.stride + 1, 1), layer.rows)
        self.strip = aligned_zeros(row * ((of.strip_rows - 1) * layer.stride + layer.kernel))
        of.strip = &self.strip[0]

    cdef take_norms(self, norms):
        """Memory for all layers of virtual batch normalisation."""
        channels = sum(layer.channels for layer in norms)
        self.most_kept = max([layer.inputs for layer in norms], default=0)
        self.scales = np.zeros(2 * (channels + FASTES_PAD * len(norms)), dtype=np.float32)
        self.sums = np.zeros(2 * max([layer.channels for layer in norms], default=0))

    cdef take_norm(self, fastes_layer *into, layer, int64_t at):
        """The place of its scale and shift; sums are needed by one layer at a time."""
        cdef fastes_batch_norm *of = &into.of.batch_norm
        of.channels = layer.channels
        of.scale = &self.scales[at]
        of.shift = &self.scales[self.scales.shape[0] // 2 + at]
        of.sums = &self.sums[0]

    cdef check_append(self, layer, first):
        """What it appends are the values that the policy observes beside an image."""
        if not first.reads_image:
            raise ValueError("a layer appends observed values: expected a first layer that reads an image")
        check_length("what a layer appends", layer.outputs - layer.inputs, self.obs_size)

    cdef take_head(self, head):
        cdef fastes_policy *c = &self.c
        self.low = np.array(head.low, dtype=np.float64)
        self.high = np.array(head.high, dtype=np.float64)
        self.nvec = np.array(head.nvec, dtype=np.int64)
        self.start = np.array(head.start, dtype=np.int64)
        self.action_ndim = len(head.shape)
        if self.action_ndim > 32:
            raise ValueError(f"the action space has {self.action_ndim} dimensions: expected at most 32")
        for i, dim in enumerate(head.shape):
            self.action_dims[i] = dim
        self.action_type = np.dtype(head.dtype).num
        self.scalar_action = head.scalar
        self.cast = np.dtype(head.cast) if head.cast else None
        self.scratch_action = np.zeros(max(head.size, 1), dtype=np.int64)
        c.action_kind = code_of(ACTION_KINDS, head.kind, "kind of action")
        if head.dtype not in DTYPES_OF_ACTIONS[head.kind]:
            raise ValueError(
                f"{head.kind!r} actions have dtype {head.dtype!r:.100}: expected one of {DTYPES_OF_ACTIONS[head.kind]}"
            )
        c.action_dtype = ACTION_DTYPES[head.dtype]
        c.action_size = head.size
        if c.num_layers:
            check_length("the last layer's output", c.num_outputs, head.num_outputs)
        c.num_outputs = head.num_outputs
        c.num_bins = head.num_bins
        if self.low.shape[0]:
            c.low = &self.low[0]
            c.high = &self.high[0]
        if self.nvec.shape[0]:
            c.nvec = &self.nvec[0]
            c.start = &self.start[0]

    @property
    def parameters(self):
        """This actor's own parameters: a writable float32 view (num_params,)."""
        return self.params_array[: self.num_params]

    def count_steps(self, int64_t[::1] steps not None):
        """From now on each `act` adds one to steps (1,), which another process may watch."""
        check_length("steps", steps.shape[0], 1)
        self.steps = steps

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
        self.reference = array

    def fold(self):
        """To be called when parameters or normaliser have changed: statistics of the reference batch under these.

        Does nothing where no layer is one of virtual batch normalisation. Raises ValueError without a reference batch.
        """
        cdef cnp.ndarray reference
        cdef void *data
        cdef int32_t count
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
        """Why it cannot act: TypeError or ValueError."""
        if not self.c.num_layers:
            raise TypeError("this policy has no layers: call observe and choose, or its own act")
        raise ValueError("this policy has virtual batch normalisation: call set_reference and fold before it acts")

    def begin_episode(self, uint64_t noise_key=0, double action_noise=0.0, bint sample=False):
        """Forget what layers remember, and start the action stream at its beginning.

        That is Gaussian noise on Box actions, or sampled choices.
        """
        if self.state_size:
            memset(&self.states[0], 0, self.state_size * sizeof(float))
        self.c.noise_key = noise_key
        self.c.noise_step = 0
        self.c.action_noise = <float>action_noise
        self.c.sample = sample

    def count_moments(self, bint counting):
        """Whether each observation adds to `moments`; sets them to zero."""
        self.moments[:, :] = 0.0
        self.counting = counting

    @property
    def state(self):
        """What the layers remember of the episode, one layer behind the other: a writable float32 view (state_size,)."""
        return self.states_array[: self.state_size]

    @property
    def observation_moments(self):
        """Sums of obs - mean and of its square since count_moments(): float64 (2, obs_size)."""
        return self.moments_array

    cdef as_numbers(self, obs):
        """An observation of any type as float64, or an error that says what came."""
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

    cdef inline cnp.ndarray as_input(self, obs, fastes_obs_dtype *obs_dtype):
        """An observation as an array that the kernels read; its dtype goes to obs_dtype."""
        cdef int dtype
        cdef cnp.ndarray array
        if type(obs) is not cnp.ndarray:
            obs = self.as_numbers(obs)
        array = <cnp.ndarray>obs
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
        """The action for one observation of the space's shape: an int for Discrete, else a new array of the space."""
        cdef fastes_obs_dtype obs_dtype
        cdef cnp.ndarray array = self.as_input(obs, &obs_dtype)
        cdef void *data = cnp.PyArray_DATA(array)
        if not self.ready:
            self.refuse()
        self.steps[0] += 1
        if self.scalar_action:
            with nogil:
                kernels.act(&self.c, data, obs_dtype, &self.scratch_action[0], self.counting)
            return self.scratch_action[0]
        action = cnp.PyArray_EMPTY(self.action_ndim, self.action_dims, self.action_type, 0)
        cdef void *target = cnp.PyArray_DATA(<cnp.ndarray>action)
        with nogil:
            kernels.act(&self.c, data, obs_dtype, target, self.counting)
        return action if self.cast is None else action.astype(self.cast)

    def observe(self, obs):
        """The first half of `act`: an observation normalised, counted, and a step.

        Returns `observation`, float32 (obs_size,): the same memory each time, which the next call overwrites.
        """
        cdef fastes_obs_dtype obs_dtype
        cdef cnp.ndarray array = self.as_input(obs, &obs_dtype)
        self.steps[0] += 1
        kernels.observe(&self.c, cnp.PyArray_DATA(array), obs_dtype, &self.scratch0[0], self.counting)
        return self.observation

    def choose(self, outputs):
        """The second half of `act`: the action for outputs float32 (num_outputs,), of any shape with as many values."""
        cdef cnp.ndarray array
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
            return self.scratch_action[0]
        action = cnp.PyArray_EMPTY(self.action_ndim, self.action_dims, self.action_type, 0)
        kernels.choose(&self.c, &self.scratch1[0], cnp.PyArray_DATA(<cnp.ndarray>action))
        return action if self.cast is None else action.astype(self.cast)


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
        if not actor.ready:
            actor.refuse()
        if cnp.PyArray_SIZE(obs) // n != actor.full_size:
            raise ValueError(f"observation has shape {np.shape(obs)[1:]}, the policy expects {actor.obs_shape}")
        if cnp.PyArray_TYPE(target) != actor.action_type or cnp.PyArray_SIZE(target) // n != actor.c.action_size:
            raise ValueError(f"actions have shape {np.shape(target)} and dtype {target.dtype}: not what the policy gives")
    for row in range(n):
        actor = <Actor>actors[row]
        actor.steps[0] += 1
        with nogil:
            kernels.act(&actor.c, data + row * obs_bytes, <fastes_obs_dtype>obs_dtype, out + row * action_bytes, actor.counting)
