/* Environments that behave, and some that do not: NATIVE_ENVS of native_library.py compiles them. */
#include <fastes_env.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    fastes_random *random;
    double at, steps, fails_at, waits, hangs_at, interrupts_at, forks_at, crashes_at, exits_at, shift;
} walk;

static int make(void *state, const fastes_option *options, int32_t num_options) {
    walk *s = state;
    s->fails_at = s->hangs_at = s->interrupts_at = s->forks_at = s->crashes_at = s->exits_at = -1;
    for (int32_t i = 0; i < num_options; i++) {
        const char *name = options[i].name;
        if (!strcmp(name, "fails_at")) s->fails_at = options[i].number;
        else if (!strcmp(name, "hangs_at")) s->hangs_at = options[i].number;
        else if (!strcmp(name, "interrupts_at")) s->hangs_at = s->interrupts_at = options[i].number;
        else if (!strcmp(name, "forks_at")) s->forks_at = options[i].number;
        else if (!strcmp(name, "crashes_at")) s->crashes_at = options[i].number;
        else if (!strcmp(name, "exits_at")) s->exits_at = options[i].number;
        else if (!strcmp(name, "crashes")) raise(SIGFPE);
        else if (!strcmp(name, "waits")) s->waits = options[i].number;
        else if (!strcmp(name, "way")) s->shift = strcmp(options[i].text, "left") ? 1 : -1;
        else return 2;
    }
    return 0;
}

static const char *error(void *state) {
    return ((walk *)state)->steps > 0 ? "it fell into a hole" : "an unknown option";
}

static int reset(void *state, fastes_random *random, void *observation) {
    walk *s = state;
    double *seen = observation;
    s->random = random;
    s->steps = 0;
    s->at = seen[0] = fastes_uniform(random, -1, 1);
    seen[1] = s->shift;
    return 0;
}

static int step(void *state, const void *action, void *observation, double *reward, uint8_t *terminated, uint8_t *truncated) {
    walk *s = state;
    double *seen = observation;
    s->steps++;
    if (s->waits > 0) {
        struct timespec t = {0, (long)(1e9 * s->waits)};
        nanosleep(&t, NULL);
    }
    if (s->steps == s->interrupts_at) kill(getppid(), SIGINT); /* as a user who has waited long enough */
    while (s->steps == s->hangs_at) nanosleep(&(struct timespec){0, 1000000}, NULL);
    if (s->steps == s->forks_at && fork() < 0) return 8;
    if (s->steps == s->fails_at) return 7;
    if (s->steps == s->crashes_at) raise(SIGSEGV);
    if (s->steps == s->exits_at) exit(0);
    s->at += 0.1 * ((const float *)action)[0] + 0.01 * fastes_normal(s->random);
    seen[0] = s->at;
    seen[1] = s->shift;
    *reward = -s->at * s->at;
    *terminated = s->at > 3 || s->at < -3;
    *truncated = s->steps == 40;
    return 0;
}

static int step_on(void *state, const void *action, void *observation, double *reward, uint8_t *terminated, uint8_t *truncated) {
    int failure = step(state, action, observation, reward, terminated, truncated);
    *terminated = *truncated = 0;
    return failure;
}

static const char *const info_names[] = {"is_success", "place", NULL};

static void info(void *state, double *values) {
    const walk *s = state;
    values[0] = s->at > -0.1 && s->at < 0.1;
    values[1] = s->at;
}

static void render(void *state, uint8_t *pixels) {
    (void)state;
    memset(pixels, 128, 8 * 12 * 3);
}

#define WALK(v)                                                                                                              \
    {.version = v, .state_size = sizeof(walk), .observation = FASTES_BOX(FASTES_FLOAT64, 2, -INFINITY, INFINITY),             \
     .action = FASTES_BOX(FASTES_FLOAT32, 1, -1, 1), .reset = reset, .step = step, .make = make, .error = error,              \
     .info_names = info_names, .info = info, .height = 8, .width = 12, .render = render, .max_episode_steps = 50}

FASTES_ENV(Walk) = WALK(FASTES_ENV_VERSION);

#define ENDLESS(limit)                                                                                                        \
    {.version = FASTES_ENV_VERSION, .state_size = sizeof(walk), .make = make, .reset = reset, .step = step_on,                \
     .observation = FASTES_BOX(FASTES_FLOAT64, 2, -INFINITY, INFINITY), .action = FASTES_BOX(FASTES_FLOAT32, 1, -1, 1),       \
     .max_episode_steps = limit}

FASTES_ENV(Endless) = ENDLESS(0);
FASTES_ENV(Short) = ENDLESS(7);
FASTES_ENV(Older) = WALK(FASTES_ENV_VERSION - 1);
FASTES_ENV(Unfinished) = {.version = FASTES_ENV_VERSION, .observation = FASTES_BOX(FASTES_FLOAT32, 1, 0, 1)};
FASTES_ENV(Whole) = {.version = FASTES_ENV_VERSION, .observation = FASTES_BOX(FASTES_INT64, 1, 0, 1),
                     .action = FASTES_DISCRETE(2), .reset = reset, .step = step};

#define HALF_INFO(half)                                                                                                       \
    {.version = FASTES_ENV_VERSION, .state_size = sizeof(walk), .make = make, .reset = reset, .step = step,                   \
     .observation = FASTES_BOX(FASTES_FLOAT64, 2, -INFINITY, INFINITY), .action = FASTES_BOX(FASTES_FLOAT32, 1, -1, 1), half}

FASTES_ENV(NamesAlone) = HALF_INFO(.info_names = info_names);
FASTES_ENV(InfoAlone) = HALF_INFO(.info = info);

/* They write more than they say. */
#define WIDER(bytes, values, names, steps)                                                                                    \
    {.version = FASTES_ENV_VERSION, .state_size = bytes, .make = make, .reset = reset, .step = steps,                         \
     .observation = FASTES_BOX(FASTES_FLOAT64, values, -INFINITY, INFINITY), .action = FASTES_BOX(FASTES_FLOAT32, 1, -1, 1),  \
     .info_names = names, .info = info, .max_episode_steps = 50}

static const char *const one_name[] = {"is_success", NULL};

static int step_before(void *state, const void *action, void *observation, double *reward, uint8_t *terminated, uint8_t *truncated) {
    volatile int64_t before = -1;
    ((double *)observation)[before] = 0;
    return step(state, action, observation, reward, terminated, truncated);
}

static int step_far(void *state, const void *action, void *observation, double *reward, uint8_t *terminated, uint8_t *truncated) {
    volatile int64_t far = 5000;
    ((double *)observation)[far] = 0;
    return step(state, action, observation, reward, terminated, truncated);
}

FASTES_ENV(WiderState) = WIDER(sizeof(void *), 2, info_names, step);
FASTES_ENV(WiderObservation) = WIDER(sizeof(walk), 1, info_names, step);
FASTES_ENV(WiderInfo) = WIDER(sizeof(walk), 2, one_name, step);
FASTES_ENV(Before) = WIDER(sizeof(walk), 2, info_names, step_before);
FASTES_ENV(Far) = WIDER(sizeof(walk), 2, info_names, step_far);

static int step_action(void *state, const void *action, void *observation, double *reward, uint8_t *terminated, uint8_t *truncated) {
    volatile int64_t behind = 1;
    ((float *)action)[behind] = 7;
    return step(state, action, observation, reward, terminated, truncated);
}

FASTES_ENV(WiderAction) = WIDER(sizeof(walk), 2, info_names, step_action);

static void render_wider(void *state, uint8_t *pixels) {
    (void)state;
    memset(pixels, 255, 8 * 12 * 3 + 4096);
}

#define DRAWN(rows, columns)                                                                                                  \
    {.version = FASTES_ENV_VERSION, .state_size = sizeof(walk), .make = make, .reset = reset, .step = step,                   \
     .observation = FASTES_BOX(FASTES_FLOAT64, 2, -INFINITY, INFINITY), .action = FASTES_BOX(FASTES_FLOAT32, 1, -1, 1),       \
     .max_episode_steps = 50, .height = rows, .width = columns, .render = render_wider}

FASTES_ENV(WiderPicture) = DRAWN(8, 12);
FASTES_ENV(NoPicture) = DRAWN(0, 12);

/* Bounds that are none. */
#define BOUNDED(type, low, high)                                                                                              \
    {.version = FASTES_ENV_VERSION, .state_size = sizeof(walk), .make = make, .reset = reset, .step = step,                   \
     .observation = FASTES_BOX(type, 16, low, high), .action = FASTES_BOX(FASTES_FLOAT32, 1, -1, 1)}

FASTES_ENV(EndlessBytes) = BOUNDED(FASTES_UINT8, -INFINITY, INFINITY);
FASTES_ENV(LargeFloats) = BOUNDED(FASTES_FLOAT32, 0, 1e300);
FASTES_ENV(Swapped) = BOUNDED(FASTES_FLOAT64, 1, -1);

/* Its steps pay less from the 91st on: what it keeps is outside of `state`. */
static int step_tired(void *state, const void *action, void *observation, double *reward, uint8_t *terminated, uint8_t *truncated) {
    static int64_t taken;
    int failure = step(state, action, observation, reward, terminated, truncated);
    *reward = ++taken > 90 ? 0.5 : 1.0;
    *terminated = ((walk *)state)->steps == 20;
    return failure;
}

FASTES_ENV(Tired) = WIDER(sizeof(walk), 2, info_names, step_tired);

/* A picture whose brightest column says what to do. */
typedef struct { fastes_random *random; int32_t bright, steps; } picture;

static int draw_picture(void *state, fastes_random *random, void *observation) {
    picture *s = state;
    if (random) s->random = random;
    s->bright = (int32_t)(fastes_random_bits(s->random) % 2);
    memset(observation, 20, 12 * 12);
    for (int row = 0; row < 12; row++) memset((uint8_t *)observation + 12 * row + 6 * s->bright, 200, 6);
    return 0;
}

static int look(void *state, const void *action, void *observation, double *reward, uint8_t *terminated, uint8_t *truncated) {
    picture *s = state;
    *reward = *(const int64_t *)action == s->bright;
    *terminated = ++s->steps % 10 == 0;
    (void)truncated;
    return draw_picture(state, NULL, observation);
}

FASTES_ENV(Picture) = {.version = FASTES_ENV_VERSION, .state_size = sizeof(picture),
                       .observation = {FASTES_UINT8, 3, {12, 12, 1}, 0, 255, NULL, NULL, 0}, .action = FASTES_DISCRETE(2),
                       .reset = draw_picture, .step = look};
