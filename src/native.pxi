# Part of _core.pyx: environments in C.

cdef extern from "numpy/ufuncobject.h":
    ctypedef struct PyUFuncObject:
        int ntypes
        void **functions
        void *const *data
        const char *types

cdef extern from "dlfcn.h" nogil:
    ctypedef struct Dl_info:
        const char *dli_fname
    int dladdr(const void *address, Dl_info *info)

NATIVE_DTYPES = {FASTES_FLOAT64: "float64", FASTES_FLOAT32: "float32", FASTES_UINT8: "uint8", FASTES_INT64: "int64"}


cdef int check_own(name, str function, const void *address) except -1:
    """Refuse a function of the C library, which has some of these names, too: step, error and close."""
    cdef Dl_info found
    if address != NULL and dladdr(address, &found) and found.dli_fname != NULL:
        library = os.path.basename(os.fsdecode(<bytes>found.dli_fname))
        if library.startswith(("libc.", "libc-", "ld-musl", "libSystem")):
            raise ValueError(f"{name}: .{function} is a function of {library}, and not its own: declare its own as static")
    return 0


cdef int take_loop(fastes_ufunc_loop *into, ufunc, int number) except -1:
    """The loop of a NumPy function from one number of this type to another."""
    cdef PyUFuncObject *held = <PyUFuncObject *>ufunc
    cdef int i
    for i in range(held.ntypes):
        if held.types[2 * i] == number and held.types[2 * i + 1] == number:
            into.loop = <void (*)(char **, const intptr_t *, const intptr_t *, void *) noexcept nogil>held.functions[i]
            into.data = <void *>held.data[i] if held.data != NULL else NULL
            return 0
    raise ImportError(f"{ufunc} has no loop for NumPy's type {number}")


take_loop(&fastes_math.sin, np.sin, cnp.NPY_FLOAT64)
take_loop(&fastes_math.cos, np.cos, cnp.NPY_FLOAT64)
take_loop(&fastes_math.sinf, np.sin, cnp.NPY_FLOAT32)
take_loop(&fastes_math.cosf, np.cos, cnp.NPY_FLOAT32)


def classic_env(str name):
    """Return the address of this package's environment in C that is as Gymnasium's class of this name; 0 if there is none."""
    return <size_t>fastes_classic_env(name.encode())


MOST_CHANGES = 8  # of an action, by wrappers


cdef class StepWrappers:
    """What the wrappers of an environment do to its steps.

    Args:
        limit: Steps after which an episode is truncated; 0 for none.
        changes: Of an action, in their order: ("clip", low, high), or ("rescale", intercept, gradient) for
            (action - intercept) / gradient. The arrays are float32, all of one size.
        repeats: Steps of the environment in one, which end with its episode.
        inner_limit: Steps of the environment after which its episode is truncated; 0 for none.
    """
    cdef fastes_wrappers c
    cdef fastes_action_change[8] changes
    cdef object holds

    def __init__(self, int64_t limit=0, changes=(), int64_t repeats=1, int64_t inner_limit=0):
        cdef const float[::1] first, second
        if len(changes) > MOST_CHANGES or repeats < 1 or limit < 0 or inner_limit < 0 or (inner_limit and repeats == 1):
            raise ValueError(
                f"limit = {limit}, repeats = {repeats}, inner_limit = {inner_limit}, {len(changes)} changes: expected limits of 0 or "
                f"more, the inner one with repeats alone, repeats of 1 or more, and at most {MOST_CHANGES} changes"
            )
        self.holds = [(np.array(one, "f4").ravel(), np.array(other, "f4").ravel()) for _, one, other in changes]
        self.c.limit, self.c.repeats, self.c.inner_limit = limit, repeats, inner_limit
        self.c.num_changes, self.c.changes = len(changes), self.changes
        self.c.action_size = self.holds[0][0].size if changes else 0
        for i, (kind, (first, second)) in enumerate(zip([change[0] for change in changes], self.holds, strict=True)):
            check_length("the first numbers of a change", first.shape[0], self.c.action_size)
            check_length("the second numbers of a change", second.shape[0], self.c.action_size)
            self.changes[<int>i].kind = {"clip": FASTES_CLIP, "rescale": FASTES_RESCALE}[kind]
            self.changes[<int>i].first, self.changes[<int>i].second = &first[0], &second[0]

    @property
    def limit(self):
        return self.c.limit


UNWRAPPED = StepWrappers()


cdef enum:
    GUARD = 65536  # bytes
    NEAR_GUARD = 256  # those beside the memory, which every episode looks at
cdef uint8_t[GUARD] unwritten
memset(unwritten, 0xA5, GUARD)


cdef class GuardedMemory:
    """Memory that an environment writes: 0 at first, aligned to 64, and between bytes that it has to leave as they are.

    Attributes:
        inside: uint8 (size,).
    """
    cdef uint8_t[::1] whole
    cdef uint8_t *start
    cdef uint8_t *end
    cdef readonly object inside

    def __init__(self, int64_t size):
        whole = np.zeros(size + 2 * GUARD + 64, dtype=np.uint8)
        cdef size_t first = -whole.ctypes.data % 64 + GUARD
        self.whole, self.inside = whole, whole[first : first + size]
        self.start = &self.whole[first]
        self.end = self.start + size
        memcpy(self.start - GUARD, unwritten, GUARD)
        memcpy(self.end, unwritten, GUARD)

    cdef str passed(self, bint far):
        """Which end was written past, in words; "" for none. far: look at the whole guard, and not only near the memory."""
        cdef size_t size = GUARD if far else NEAR_GUARD
        if memcmp(self.end, unwritten, size):
            return "past the end"
        return "before the start" if memcmp(self.start - size, unwritten, size) else ""


@cython.no_gc_clear  # `env` lies in what it holds, and is read when it dies
cdef class NativeInstance:
    """An environment in C: its memory, and the buffers of a step.

    Attributes:
        observation: The last one, of its dtype and shape: the same memory at each step.
        observation_space, action_space: As dicts: dtype, shape, low and high (arrays), choices (0 for a Box).
        max_episode_steps: 0 for no limit.
        info_names: Names of a step's numbers.
        picture: (height, width), or None if it draws none.
    """
    cdef const fastes_env *env
    cdef fastes_episode e
    cdef GuardedMemory state_memory, observation_memory, action_memory, infos_memory, picture_memory
    cdef void *state
    cdef double[::1] infos
    cdef readonly object name, observation, observation_space, action_space, info_names, picture
    cdef readonly int64_t max_episode_steps
    cdef int64_t action_size  # numbers of an action
    cdef readonly bint is_open
    cdef bint is_playing, is_cut
    cdef object holds
    cdef StepWrappers wrappers

    def __init__(self, size_t address, str name, options, holds=None):
        """address: of a fastes_env. options: name -> number or text. holds: keeps the code at the address loaded.

        Raises ValueError if the fastes_env cannot be used, or does not take the options.
        """
        cdef const fastes_env *env = <const fastes_env *>address
        self.name, self.holds = name, holds
        if env == NULL or env.version != FASTES_ENV_VERSION:
            found = None if env == NULL else env.version
            raise ValueError(f"{name} has version {found}: expected {FASTES_ENV_VERSION}; compile it with the fastes_env.h in fastes.get_include()")
        if env.reset == NULL or env.step == NULL or env.state_size < 0 or env.max_episode_steps < 0:
            raise ValueError(f"{name} has no reset or no step, or a negative state_size or max_episode_steps")
        check_own(name, "reset", <const void *>env.reset)
        check_own(name, "step", <const void *>env.step)
        check_own(name, "make", <const void *>env.make)
        check_own(name, "close", <const void *>env.close)
        check_own(name, "error", <const void *>env.error)
        check_own(name, "info", <const void *>env.info)
        check_own(name, "render", <const void *>env.render)
        self.env = env
        self.observation_space = described_space(&env.observation, f"{name}: observation")
        self.action_space = described_space(&env.action, f"{name}: action")
        if env.observation.choices or env.observation.dtype == FASTES_INT64:
            raise ValueError(f"{name}: observation: expected a Box of float64, float32 or uint8")
        if not env.action.choices and env.action.dtype not in (FASTES_FLOAT32, FASTES_FLOAT64):
            raise ValueError(f"{name}: action: expected a Box of float32 or float64, or choices")
        if (env.info_names == NULL) != (env.info == NULL):
            has, lacks = ("info", "info_names") if env.info_names == NULL else ("info_names", "info")
            raise ValueError(
                f"{name} has {has} and no {lacks}: set .info_names to the names, ended by NULL, and .info to the function that writes "
                "their values; or leave out both"
            )
        self.max_episode_steps = env.max_episode_steps
        self.info_names = ()
        if env.info_names != NULL:
            names, i = [], 0
            while env.info_names[<size_t>i] != NULL:
                names.append((<bytes>env.info_names[<size_t>i]).decode())
                i += 1
            self.info_names = tuple(names)
        self.infos_memory = GuardedMemory(8 * len(self.info_names))
        self.infos = self.infos_memory.inside.view(np.float64)
        self.picture = (env.height, env.width) if env.render != NULL else None
        if env.render != NULL and min(self.picture) < 1:
            raise ValueError(f"{name} has render and a picture of height {env.height} and width {env.width}: expected 1 or more of both")
        self.state_memory = GuardedMemory(env.state_size)
        self.state = self.state_memory.start
        shape, dtype = self.observation_space["shape"], np.dtype(self.observation_space["dtype"])
        self.observation_memory = GuardedMemory(math.prod(shape) * dtype.itemsize)
        self.observation = self.observation_memory.inside.view(dtype).reshape(shape)
        self.action_size = max(math.prod(self.action_space["shape"]), 1)
        self.action_memory = GuardedMemory(self.action_size * np.dtype(self.action_space["dtype"]).itemsize)
        memset(&self.e, 0, sizeof(fastes_episode))
        self.e.env, self.e.state = env, self.state
        self.e.observation = cnp.PyArray_DATA(<cnp.ndarray>self.observation)
        self.e.action = self.action_memory.start
        self.wrap(UNWRAPPED)
        self.make(dict(options))

    cdef make(self, options):
        """Give it its options."""
        cdef fastes_option[64] given
        cdef int32_t count = 0
        cdef int failure
        kept = []
        if options and self.env.make == NULL:
            raise ValueError(f"{self.name} takes no options: {options!r:.200} were passed")
        if len(options) > 64:
            raise ValueError(f"{self.name}: {len(options)} options, expected at most 64")
        for key, value in options.items():
            word = key.encode()
            kept.append(word)
            given[count].name = <bytes>word
            given[count].number, given[count].text = 0.0, NULL
            if isinstance(value, str):
                word = value.encode()
                kept.append(word)
                given[count].text = <bytes>word
            elif isinstance(value, numbers.Real):
                given[count].number = float(value)
            else:
                raise TypeError(f"{self.name}: option {key} = {value!r:.100} is a {type(value).__name__}: expected a number or a text")
            count += 1
        if self.env.make != NULL:
            failure = self.env.make(self.state, given, count)
            if failure:
                raise ValueError(f"{self.name}: make({options!r:.200}) returned {failure}{self.reason()}")
        self.is_open = True

    cdef str reason(self):
        """What the environment says about its last failure."""
        cdef const char *said = NULL
        if self.env.error != NULL:
            said = self.env.error(self.state)
        return "" if said == NULL else ": " + said.decode(errors="replace")

    cdef int wrap(self, StepWrappers wrappers) except -1:
        """Take its steps in these wrappers from now on."""
        cdef bint fits = self.env.action.dtype == FASTES_FLOAT32 and not self.env.action.choices
        if wrappers.c.num_changes:
            if not fits:
                raise ValueError(f"{self.name}: wrappers change its actions, which are no Box of float32")
            check_length("a wrapper's change of actions", wrappers.c.action_size, self.action_size)
        self.wrappers, self.e.wrappers = wrappers, &wrappers.c
        return 0

    cdef int check_free(self) except -1:
        """Raise ValueError if it is closed, or plays: a signal's handler or another thread has called."""
        if not self.is_open:
            raise ValueError(f"{self.name} is closed")
        if self.is_playing:
            raise ValueError(f"{self.name} plays an episode: it can do nothing else until that has ended")
        return 0

    def close(self):
        """Close it; a second call does nothing. An episode that plays ends with an error."""
        if self.is_open and self.is_playing:
            self.is_open = False  # `play` closes it, which may be deep in its memory
        elif self.is_open:
            self.is_open = False
            if self.env.close != NULL:
                self.env.close(self.state)

    def __dealloc__(self):
        if self.is_open and self.env.close != NULL:
            self.env.close(self.state)

    cpdef int check_bounds(self, bint far=False) except -1:
        """Raise RuntimeError if it has written past an end of its state, its observation, its action or its infos.

        far: Look up to 64 KiB away, which takes some 10 us, and not only 256 bytes.
        """
        cdef str passed
        if passed := self.state_memory.passed(far):
            raise RuntimeError(
                f"{self.name} wrote {passed} of its state, which has {self.env.state_size} bytes: set state_size to the size of the "
                "whole struct, such as sizeof(struct my_state), or look for an index that is out of range"
            )
        if passed := self.observation_memory.passed(far):
            raise RuntimeError(
                f"{self.name} wrote {passed} of its observation, which has shape {self.observation.shape} of {self.observation.dtype}, "
                f"{self.observation.nbytes} bytes: give the observation space the shape and dtype that reset and step write, or look "
                "for an index that is out of range"
            )
        if passed := self.action_memory.passed(far):
            shape, dtype = self.action_space["shape"], self.action_space["dtype"]
            raise RuntimeError(
                f"{self.name} wrote {passed} of its action, which has shape {shape} of {dtype}, "
                f"{self.action_memory.inside.size} bytes: step may only read it"
            )
        if passed := self.infos_memory.passed(far):
            raise RuntimeError(
                f"{self.name} wrote {passed} of the values of its info, of which there are {len(self.info_names)}: name in info_names "
                "each value that info writes"
            )
        return 0

    cdef int begin(self) except -1:
        self.check_free()
        self.e.length, self.e.inner_length, self.e.episode_return, self.e.terminated, self.e.truncated = 0, 0, 0.0, 0, 0
        return 0

    cpdef reset(self, uint64_t seed):
        """Begin an episode; `observation` is its first."""
        cdef int failure
        self.begin()
        self.e.random.seed, self.e.random.drawn = seed, 0
        with nogil:
            failure = self.env.reset(self.state, &self.e.random, self.e.observation)
        if failure:
            raise RuntimeError(f"{self.name}: reset with seed {seed} returned {failure}{self.reason()}")

    def begin_at(self, observation not None):
        """Begin an episode whose first observation something else has made."""
        self.begin()
        self.observation[...] = observation

    def step(self, cnp.ndarray action, StepWrappers wrappers not None=UNWRAPPED):
        """Take a step. action: of the space's dtype and shape, C-contiguous. Returns reward, terminated and truncated."""
        cdef double reward = 0.0
        cdef int failure
        self.check_free()
        check_length("the action", cnp.PyArray_SIZE(action), self.action_size)
        if action.dtype.name != self.action_space["dtype"] or not cnp.PyArray_ISCARRAY_RO(action):
            raise TypeError(f"{self.name}: the action has dtype {action.dtype}: expected contiguous {self.action_space['dtype']}")
        if self.env.action.choices and not 0 <= action.item() < self.env.action.choices:
            raise ValueError(f"{self.name}: the action is {action.item()}: expected 0 to {self.env.action.choices - 1}")
        self.wrap(wrappers)
        memcpy(self.e.action, cnp.PyArray_DATA(action), cnp.PyArray_NBYTES(action))
        self.e.terminated = self.e.truncated = 0
        with nogil:
            failure = fastes_step(&self.e, &reward)
        if failure:
            raise RuntimeError(f"{self.name}: step returned {failure}{self.reason()}")
        return reward, bool(self.e.terminated), bool(self.e.truncated)

    @property
    def timed_out(self):
        """Whether a limit has ended the episode."""
        return bool(self.e.truncated and not self.e.terminated)

    def info(self):
        """Return name -> value of the last step."""
        if not self.info_names:
            return {}
        self.check_free()
        self.env.info(self.state, <double *>self.infos_memory.start)
        return {name: self.infos[i] for i, name in enumerate(self.info_names)}

    cdef double succeeded(self, int place) except? -1:
        """Whether the last step's number at a place among the infos is not 0; NaN if it is NaN, or for place -1."""
        if place < 0:
            return <double>NAN
        self.env.info(self.state, <double *>self.infos_memory.start)
        return self.infos[place] if self.infos[place] != self.infos[place] else self.infos[place] != 0.0

    def render(self):
        """Return a picture, uint8 (height, width, 3). RuntimeError if it has written past an end of it."""
        cdef str passed
        self.check_free()
        height, width = self.picture
        size = 3 * height * width
        if self.picture_memory is None:
            self.picture_memory = GuardedMemory(size)
        self.picture_memory.inside[:] = 0
        self.env.render(self.state, self.picture_memory.start)
        if passed := self.picture_memory.passed(True):
            raise RuntimeError(
                f"{self.name} wrote {passed} of its picture, which has {height} x {width} x 3 = {size} bytes: give height and width the "
                "numbers that render draws, or look for an index that is out of range"
            )
        return self.picture_memory.inside.reshape(height, width, 3).copy()

    def reads(self, Actor actor not None):
        """Whether an actor's observations and actions are this environment's as they lie in memory."""
        if self.env.action.choices and (actor.nvec.shape[0] != 1 or actor.nvec[0] != self.env.action.choices or actor.start[0]):
            return False
        return (
            actor.c.num_layers > 0
            and actor.cast is None
            and tuple(actor.obs_shape) == self.observation_space["shape"]
            and np.dtype(self.action_space["dtype"]).num == actor.action_type
            and actor.c.action_size == self.action_size
        )

    def play(self, Actor actor not None, int64_t max_steps, StepWrappers wrappers not None=UNWRAPPED, const int64_t[::1] leave=None):
        """Play an episode that has begun to its end. The actor has its noise and parameters.

        Python is asked for signals every few milliseconds.

        Args:
            actor: One for which `reads` is true.
            max_steps: Steps after which it is cut.
            wrappers: What the environment's wrappers do.
            leave: (1,): a word that another process may set, after which Python's handlers run at once.

        Returns:
            Its return, its length, and whether it was cut.

        Raises:
            RuntimeError: The environment says that it failed.
        """
        if not self.reads(actor):
            raise ValueError(f"{self.name} and the policy differ in spaces")
        self.check_free()  # before `e`, which an episode that plays reads
        self.wrap(wrappers)
        self.e.max_steps = max_steps
        self.e.leave = NULL if leave is None else <int64_t *>&leave[0]
        self.play_out(actor)
        return self.e.episode_return, self.e.length, self.is_cut

    cdef int play_out(self, Actor actor) except -1:
        """`play`, once its arguments are in `e`."""
        cdef fastes_pause pause = FASTES_ASKS
        if not actor.ready or actor.refusal is not None:
            actor.refuse()
        self.check_free()
        self.e.kernels, self.e.policy, self.e.count_moments = kernels, &actor.c, actor.counting
        self.e.steps = &actor.steps[0]
        self.e.float_mode = 0
        actor.set_float_mode_back()
        self.is_playing = True
        try:
            while pause == FASTES_ASKS or pause == FASTES_LEAVES:
                with nogil:
                    pause = fastes_play_on(&self.e)
                if pause == FASTES_LEAVES:
                    self.e.leave = NULL  # handlers run now; they may hold the request back
                PyErr_CheckSignals()
                if actor.refusal is not None:
                    actor.refuse()
                if not self.is_open:
                    raise ValueError(f"{self.name} was closed while it played")
        finally:
            self.is_playing = False
            if not self.is_open and self.env.close != NULL:
                self.env.close(self.state)
        if self.e.float_mode:
            actor.float_mode = self.e.float_mode
        self.check_bounds()
        if pause == FASTES_FAILED:
            raise RuntimeError(f"{self.name}: step {self.e.length + 1} returned {self.e.failure}{self.reason()}")
        self.is_cut = pause == FASTES_CUT
        return 0


cdef class NativeJobs:
    """Plays the jobs of a request's slot in an environment in C: parameters, episodes and results, without Python in between.

    Args:
        slot: A RequestSlot without room for infos, whose candidates have one sigma and perturb all parameters.
        instance, actor: Its `reads` is true of the actor, which has no reference batch.
        wrappers: As of `NativeInstance.play`.
        episode: (1,): a word in which it notes which of a job's episodes it plays.
        leave: As of `NativeInstance.play`.
    """
    cdef NativeInstance instance
    cdef Actor actor
    cdef StepWrappers wrappers
    cdef int64_t num_pairs
    cdef int success  # the place of is_success among the environment's infos; -1 if it has none
    cdef const float[::1] theta, noise
    cdef const int64_t[::1] noise_index, eval_seed, leave
    cdef const int64_t[:, ::1] env_seed
    cdef const uint64_t[:, ::1] action_key
    cdef double[::1] returns, successes
    cdef int64_t[::1] lengths, cuts, episode
    cdef double[:, :, ::1] moments
    cdef uint8_t[::1] masks

    def __init__(self, slot, NativeInstance instance not None, Actor actor not None, StepWrappers wrappers not None, episode, leave):
        if not instance.reads(actor):
            raise ValueError(f"{instance.name} and the policy differ in spaces")
        self.instance, self.actor, self.wrappers, self.episode, self.leave = instance, actor, wrappers, episode, leave
        self.num_pairs = slot.layout.num_pairs
        self.success = instance.info_names.index("is_success") if "is_success" in instance.info_names else -1
        self.theta, self.noise, self.noise_index = slot.theta, slot.noise, slot.noise_index
        self.env_seed, self.action_key, self.eval_seed = slot.env_seed, slot.action_key, slot.eval_seed
        self.returns, self.successes, self.lengths, self.cuts = slot.returns, slot.successes, slot.lengths, slot.cuts
        self.moments, self.masks = slot.moments, slot.masks
        check_length("theta", self.theta.shape[0], actor.num_params)
        check_length("episode", self.episode.shape[0], 1)
        check_length("leave", self.leave.shape[0], 1)
        if self.num_pairs:
            check_length("moments", self.moments.shape[2], actor.obs_size)

    def play(self, int64_t job, double sigma, bint normalize, int64_t max_steps, double action_noise, bint sample, int64_t episodes):
        """Play a job and write its results, but for its time and its flag.

        Args:
            job: Its number.
            sigma: Standard deviation of a candidate's noise.
            normalize: Whether a candidate's observations are counted.
            max_steps, action_noise, sample, episodes: As of EpisodeSettings.

        Raises:
            RuntimeError: The environment says that it failed.
        """
        cdef int64_t pair = job // 2, number, length = 0, cuts = 0, n = self.theta.shape[0]
        cdef bint is_candidate = self.num_pairs > 0
        cdef double total = 0.0, successes = 0.0
        cdef float scale
        cdef fastes_episode *e = &self.instance.e
        if not 0 <= job < self.returns.shape[0] or (is_candidate and episodes > self.env_seed.shape[1]):
            raise ValueError(f"job {job} of {episodes} episodes is out of range")
        if not is_candidate:
            episodes = 1
            memcpy(&self.actor.params[0], &self.theta[0], n * sizeof(float))
        else:
            check_slice(self.noise_index[pair], n, self.noise.shape[0], "noise_index")
            scale = <float>(sigma if job % 2 == 0 else -sigma)
            with nogil:
                kernels.perturb(&self.actor.params[0], &self.theta[0], &self.noise[self.noise_index[pair]], scale, n)
        self.actor.count_moments(is_candidate and normalize)
        for number in range(episodes):
            self.episode[0] = number
            self.actor.begin_episode(self.action_key[pair, number] if is_candidate else 0, action_noise, sample)
            self.instance.reset(self.env_seed[pair, number] if is_candidate else self.eval_seed[job])
            self.instance.wrap(self.wrappers)
            e.max_steps, e.leave = max_steps, <int64_t *>&self.leave[0]
            self.instance.play_out(self.actor)
            total += e.episode_return
            length += e.length
            cuts += self.instance.is_cut
            successes += self.instance.succeeded(self.success)
        self.returns[job], self.lengths[job], self.cuts[job] = total / episodes, length, cuts
        self.successes[job] = successes / episodes
        if is_candidate:
            memcpy(&self.moments[job, 0, 0], &self.actor.moments[0, 0], 2 * self.actor.obs_size * sizeof(double))
            self.masks[job] = 0


cdef bint holds(str dtype, double bound):
    """Whether a dtype has a bound, or, if it is a float, one that is as large."""
    if dtype == "uint8":
        return 0 <= bound <= 255 and bound == <int>bound
    return dtype != "float32" or not isfinite(bound) or isfinite(<float>bound)


cdef described_space(const fastes_space *space, str what):
    """A space as a dict. ValueError if it is none."""
    if space.choices < 0 or not 0 <= space.num_dims <= FASTES_MAX_DIMS or space.dtype not in NATIVE_DTYPES:
        raise ValueError(f"{what} has {space.num_dims} dimensions, {space.choices} choices and dtype {<int>space.dtype}: not a space")
    if space.choices:
        return {"dtype": "int64", "shape": (), "low": None, "high": None, "choices": space.choices}
    shape = tuple(space.shape[i] for i in range(space.num_dims))
    if not shape or min(shape) < 1:
        raise ValueError(f"{what} has shape {shape}: expected at least one value")
    dtype = NATIVE_DTYPES[space.dtype]
    size = math.prod(shape)
    low, high = np.full(size, space.low), np.full(size, space.high)
    for i in range(size):
        if space.lows != NULL:
            low[i] = space.lows[<size_t>i]
        if space.highs != NULL:
            high[i] = space.highs[<size_t>i]
        if not low[i] <= high[i]:
            raise ValueError(f"{what} has the bounds {low[i]} and {high[i]} at place {i}: expected the smaller first")
        if not (holds(dtype, low[i]) and holds(dtype, high[i])):
            numbers = "numbers from 0 to 255, as uint8 has them" if dtype == "uint8" else f"numbers of {dtype}, or infinite ones for none"
            raise ValueError(f"{what} has the bounds {low[i]} and {high[i]} at place {i}: expected {numbers}")
    return {"dtype": dtype, "shape": shape, "low": low.reshape(shape), "high": high.reshape(shape), "choices": 0}


cdef class MadeEnv:
    """A fastes_env of two functions, at `address`."""
    cdef fastes_env env
    cdef double[::1] observation_low, observation_high, action_low, action_high

    def __init__(self, size_t reset, size_t step, observation_space, action_space, int64_t state_size, int64_t max_episode_steps):
        """The spaces are dicts as a NativeInstance has them, low and high flat."""
        memset(&self.env, 0, sizeof(fastes_env))
        self.env.version, self.env.state_size, self.env.max_episode_steps = FASTES_ENV_VERSION, state_size, max_episode_steps
        self.env.reset = <int (*)(void *, fastes_random *, void *) noexcept nogil>reset
        self.env.step = <int (*)(void *, const void *, void *, double *, uint8_t *, uint8_t *) noexcept nogil>step
        self.observation_low, self.observation_high = observation_space["low"], observation_space["high"]
        self.action_low, self.action_high = action_space["low"], action_space["high"]
        take_space(&self.env.observation, observation_space, self.observation_low, self.observation_high)
        take_space(&self.env.action, action_space, self.action_low, self.action_high)

    @property
    def address(self):
        return <size_t>&self.env


cdef int take_space(fastes_space *into, space, double[::1] low, double[::1] high) except -1:
    """Fill a space from a dict, whose bounds are kept elsewhere."""
    shape, names = space["shape"], {name: dtype for dtype, name in NATIVE_DTYPES.items()}
    if space["dtype"] not in names or len(shape) > FASTES_MAX_DIMS:
        raise ValueError(f"a space of dtype {space['dtype']} and shape {shape}: expected {tuple(names)} and at most {FASTES_MAX_DIMS} dimensions")
    into.dtype, into.num_dims, into.choices = names[space["dtype"]], len(shape), space["choices"]
    for i, size in enumerate(shape):
        into.shape[<int>i] = size
    if low.shape[0]:
        into.lows, into.highs = &low[0], &high[0]
    return 0
