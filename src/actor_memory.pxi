# Part of _core.pyx: the memory of a policy, and the pointers of its C structs.

cdef bint keeps(layer):
    """Whether a layer keeps what it has read and given."""
    return "convolution" in layer.kind or layer.kind == "dense" and layer.inputs * layer.outputs > FASTES_LARGE_MATRIX


cdef tuple kept_sizes(layer):
    """For a layer that keeps: the bytes that it reads, and marks as changed, the floats that it gives, and its windows."""
    if layer.kind == "dense":
        parts, row = -(-layer.inputs // FASTES_DENSE_INPUTS), FASTES_DENSE_ROW(layer.outputs)
        return layer.inputs * sizeof(float), 0, parts * row, 0
    each = 1 if layer.reads_image else sizeof(float)
    return layer.inputs * each, (layer.height + 1) * layer.width, layer.outputs, layer.rows * layer.columns


cdef class ActorMemory:
    """Of an Actor: parameters, buffers and layers, checked and allocated once, from a spec."""
    cdef fastes_policy c
    cdef readonly int64_t num_params
    cdef readonly int64_t obs_size
    cdef readonly int64_t full_size
    cdef readonly int64_t state_size
    cdef readonly object observation
    cdef bint counting, scalar_action, ready, unseen
    cdef readonly int float_mode  # the mode before it was set back; 0 if it never had to be
    cdef object arrange
    cdef object refusal  # called instead of observing, once it is set
    cdef int action_type, action_ndim
    cdef cnp.npy_intp[32] action_dims
    cdef object params_array, moments_array, states_array, obs_shape, cast, reference
    cdef int64_t[::1] steps
    cdef float[::1] params, scratch0, scratch1, states, observed, joined, strip, scales, kept
    cdef uint8_t[::1] layers, kept_structs, kept_bytes
    cdef float[::1] kept_outputs
    cdef int32_t[::1] kept_windows
    cdef double[::1] sums
    cdef int64_t most_kept, num_kept
    cdef double[::1] mean, inv_std, chosen
    cdef int64_t[::1] columns, obs_dims
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
        self.obs_dims = np.array((*self.obs_shape, 0), dtype=np.int64)  # the last one is no dimension: () has none
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
        """Fill the C struct of each layer; only here its parameters and its memory are located."""
        cdef fastes_policy *c = &self.c
        cdef fastes_layer *into
        cdef int64_t at = 0, state_at = 0, inputs = layers[0].inputs if layers[0].reads_image else self.obs_size
        self.layers = np.zeros(len(layers) * sizeof(fastes_layer), dtype=np.uint8)
        self.states_array = aligned_zeros(sum(layer.state_size for layer in layers))
        self.states = self.states_array
        self.take_norms([layer for layer in layers if layer.kind == "virtual_batch_norm"])
        self.strip = aligned_zeros(max([layer.strip_size for layer in layers if layer.reads_image], default=0))
        self.take_kept([layer for layer in layers if keeps(layer)])
        self.take_joined(sum(layer.inputs for layer in layers if layer.kind == "join"), 1)
        cdef int64_t norm_at = 0, joined_at = 0, keeping = 0
        for i, layer in enumerate(layers):
            if not layer.reads_image:
                check_length(f"layer {i}'s input", layer.inputs, inputs)
            elif i and layers[i - 1].kind != "join":
                raise ValueError(f"layer {i} reads an image: only the first one can, and one behind a join")
            into = <fastes_layer *>&self.layers[0] + <int64_t>i
            into.kind = code_of(LAYER_KINDS, layer.kind, "kind of layer")
            into.activation = code_of(ACTIVATIONS, layer.activation, "activation")
            into.in_, into.out = layer.inputs, layer.outputs
            into.state = &self.states[state_at]
            state_at += layer.state_size
            if keeps(layer):
                into.kept = <fastes_kept *>&self.kept_structs[0] + keeping
                keeping += 1
            if "convolution" in layer.kind:
                self.take_convolution(into, layer)
            elif layer.kind == "virtual_batch_norm":
                if state_at:
                    raise ValueError(f"layer {i} normalises by a batch of observations, which layers that remember cannot give it")
                self.take_norm(into, layer, norm_at)
                norm_at += layer.channels + FASTES_PAD
            elif layer.kind == "append":
                self.check_append(layer, layers[0])
            elif layer.kind == "join":
                check_length(f"what is joined before layer {i}", layer.before, joined_at)
                joined_at += layer.inputs
            for name, shape in layer.parameter_shapes().items():
                self.take_parameter(into, name, &self.params[at])
                at += math.prod(shape)
            inputs = layer.outputs
        check_length("theta", self.num_params, at)
        self.state_size = state_at
        self.ready = self.most_kept == 0
        c.layers = <fastes_layer *>&self.layers[0]
        c.num_layers = len(layers)
        c.is_linear = (
            c.columns == NULL
            and [(layer.kind, layer.activation) for layer in layers] == [("dense", "identity")]
            and inputs <= 4
            and layers[0].inputs * inputs <= FASTES_LARGE_MATRIX
        )
        c.num_outputs = inputs

    cdef take_parameter(self, fastes_layer *into, name, const float *place):
        """Set the pointer to a parameter of a layer, by the name that the layer gives it."""
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

    cdef take_convolution(self, fastes_layer *into, layer):
        """The sizes of a convolution, and the strip in which it reads an image, all images one after the other."""
        cdef fastes_convolution *of = &into.of.convolution
        of.height, of.width, of.channels = layer.height, layer.width, layer.channels
        of.rows, of.columns, of.filters = layer.rows, layer.columns, layer.filters
        of.kernel, of.stride = layer.kernel, layer.stride
        if not layer.reads_image:
            return
        check_slice(layer.first, layer.inputs, self.full_size, "first value of the image")
        of.first, of.planes, of.unit = layer.first, layer.planes, np.float32(1.0) / np.float32(layer.divisor)
        of.strip_rows = layer.strip_rows
        of.strip = &self.strip[0]

    cdef take_kept(self, layers):
        """Memory for what convolutions and large dense layers have read and given."""
        cdef fastes_kept *into
        cdef int64_t byte_at = 0, output_at = 0, window_at = 0
        sizes = [kept_sizes(layer) for layer in layers]
        num_read, num_marks, num_given, num_windows = (sum(each) for each in zip(*sizes)) if sizes else (0, 0, 0, 0)
        self.num_kept = len(layers)
        self.kept_structs = np.zeros(len(layers) * sizeof(fastes_kept), dtype=np.uint8)
        self.kept_bytes = np.zeros(num_read + num_marks, dtype=np.uint8)
        self.kept_outputs = aligned_zeros(num_given)
        self.kept_windows = np.zeros(num_windows, dtype=np.int32)
        for i, (read, marks, given, windows) in enumerate(sizes):
            into = <fastes_kept *>&self.kept_structs[0] + <int64_t>i
            into.read = &self.kept_bytes[byte_at]
            byte_at += read
            into.given = &self.kept_outputs[output_at]
            output_at += given
            if not windows:
                continue
            into.changed = &self.kept_bytes[byte_at]
            byte_at += marks
            into.windows = &self.kept_windows[window_at]
            window_at += windows

    cdef inline void forget(self) noexcept:
        """What layers have given is no longer theirs: the parameters may have changed."""
        cdef fastes_kept *kept
        cdef int64_t i
        if self.num_kept:
            kept = <fastes_kept *>&self.kept_structs[0]
            for i in range(self.num_kept):
                kept[i].is_kept = 0

    cdef take_joined(self, int64_t num_joined, int64_t rows):
        """Memory for what the layers that join have read: a row for a step, or one for each observation of a reference batch."""
        if self.joined is None or self.joined.shape[0] < rows * num_joined:
            self.joined = aligned_zeros(rows * num_joined)
            self.c.joined = &self.joined[0]
        self.c.num_joined = num_joined

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
        """Check that it appends the values that the policy observes in addition to an image."""
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
