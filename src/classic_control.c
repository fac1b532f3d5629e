/* Gymnasium's classic control in C, with the same bits: the same operations in the same order and precision as its classes do them under
 * NumPy 2. Constants are options, which FastES reads off a Gymnasium environment. sin and cos are NumPy's own loops, or libm's as there. */
#include "native_episode.h"
#include "numpy_random.h"
#include <string.h>

#define PI 3.141592653589793

fastes_numpy_math fastes_math;

static double call(const fastes_ufunc_loop *f, double x) {
    double y;
    fastes_call_loop(f, &x, &y, 1);
    return y;
}

static float callf(const fastes_ufunc_loop *f, float x) {
    float y;
    char *arguments[2] = {(char *)&x, (char *)&y};
    const intptr_t count = 1, strides[2] = {sizeof x, sizeof y};
    f->loop(arguments, &count, strides, f->data);
    return y;
}

double (*volatile fastes_power)(double, double) = pow;
static float (*volatile powerf)(float, float) = powf;

static double np_sin(double x) { return call(&fastes_math.sin, x); }
static double np_cos(double x) { return call(&fastes_math.cos, x); }
static double within(double x, double low, double high) { return x < low ? low : x > high ? high : x; }
static float withinf(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

/* Writes an option into the field of its name. fields: the state's first ones, doubles, in the order of names. */
static int take(double *fields, const char *const *names, const fastes_option *options, int32_t num_options) {
    for (int32_t i = 0; i < num_options; i++) {
        int32_t at = 0;
        while (names[at] && strcmp(names[at], options[i].name)) at++;
        if (!names[at] || options[i].text) return 1;
        fields[at] = options[i].number;
    }
    return 0;
}

static const char *unknown_option(void *state) {
    (void)state;
    return "its only options are numbers, by the names of the attributes of Gymnasium's class";
}


/* --- CartPole ---------------------------------------------------------------------------------------------------------------------- */

typedef struct {
    double gravity, masspole, total_mass, length, polemass_length, force_mag, tau, theta_threshold_radians, x_threshold;
    double is_euler, sutton_barto_reward;
    double x, x_dot, theta, theta_dot;
} cartpole;

static const char *const cartpole_names[] = {"gravity", "masspole", "total_mass", "length", "polemass_length", "force_mag", "tau",
                                             "theta_threshold_radians", "x_threshold", "is_euler", "sutton_barto_reward", NULL};

static int cartpole_make(void *state, const fastes_option *options, int32_t num_options) {
    const cartpole usual = {9.8, 0.1, 0.1 + 1.0, 0.5, 0.1 * 0.5, 10.0, 0.02, 12 * 2 * PI / 360, 2.4, 1, 0, 0, 0, 0, 0};
    memcpy(state, &usual, sizeof usual);
    return take(state, cartpole_names, options, num_options);
}

static void cartpole_observe(const cartpole *s, float *observation) {
    observation[0] = (float)s->x;
    observation[1] = (float)s->x_dot;
    observation[2] = (float)s->theta;
    observation[3] = (float)s->theta_dot;
}

static int cartpole_reset(void *state, fastes_random *random, void *observation) {
    cartpole *s = state;
    pcg64 rng;
    pcg64_seed(&rng, (uint32_t)random->seed);
    s->x = pcg64_uniform(&rng, -0.05, 0.05);
    s->x_dot = pcg64_uniform(&rng, -0.05, 0.05);
    s->theta = pcg64_uniform(&rng, -0.05, 0.05);
    s->theta_dot = pcg64_uniform(&rng, -0.05, 0.05);
    cartpole_observe(s, observation);
    return 0;
}

static int cartpole_step(void *state, const void *action, void *observation, double *reward, uint8_t *terminated, uint8_t *truncated) {
    (void)truncated;
    cartpole *s = state;
    double force = *(const int64_t *)action == 1 ? s->force_mag : -s->force_mag;
    double costheta = np_cos(s->theta), sintheta = np_sin(s->theta);
    double temp = (force + s->polemass_length * (s->theta_dot * s->theta_dot) * sintheta) / s->total_mass;
    double thetaacc = (s->gravity * sintheta - costheta * temp) /
                      (s->length * (4.0 / 3.0 - s->masspole * (costheta * costheta) / s->total_mass));
    double xacc = temp - s->polemass_length * thetaacc * costheta / s->total_mass;
    if (s->is_euler != 0) {
        s->x = s->x + s->tau * s->x_dot;
        s->x_dot = s->x_dot + s->tau * xacc;
        s->theta = s->theta + s->tau * s->theta_dot;
        s->theta_dot = s->theta_dot + s->tau * thetaacc;
    } else {
        s->x_dot = s->x_dot + s->tau * xacc;
        s->x = s->x + s->tau * s->x_dot;
        s->theta_dot = s->theta_dot + s->tau * thetaacc;
        s->theta = s->theta + s->tau * s->theta_dot;
    }
    *terminated = s->x < -s->x_threshold || s->x > s->x_threshold || s->theta < -s->theta_threshold_radians ||
                  s->theta > s->theta_threshold_radians;
    *reward = s->sutton_barto_reward == 0 ? 1.0 : *terminated ? -1.0 : 0.0;
    cartpole_observe(s, observation);
    return 0;
}

/* --- Pendulum ---------------------------------------------------------------------------------------------------------------------- */

typedef struct {
    double max_speed, max_torque, dt, g, m, l;
    double pull; /* 3.0 / (m * l ** 2) */
    double theta, theta_dot;
} pendulum;

static const char *const pendulum_names[] = {"max_speed", "max_torque", "dt", "g", "m", "l", NULL};

static int pendulum_make(void *state, const fastes_option *options, int32_t num_options) {
    const pendulum usual = {8, 2.0, 0.05, 10.0, 1.0, 1.0, 0, 0, 0};
    pendulum *s = state;
    *s = usual;
    if (take(state, pendulum_names, options, num_options)) return 1;
    s->pull = 3.0 / (s->m * fastes_squared(s->l));
    return 0;
}

static void pendulum_observe(const pendulum *s, float *observation) {
    observation[0] = (float)np_cos(s->theta);
    observation[1] = (float)np_sin(s->theta);
    observation[2] = (float)s->theta_dot;
}

static int pendulum_reset(void *state, fastes_random *random, void *observation) {
    pendulum *s = state;
    pcg64 rng;
    pcg64_seed(&rng, (uint32_t)random->seed);
    s->theta = pcg64_uniform(&rng, -PI, PI);
    s->theta_dot = pcg64_uniform(&rng, -1.0, 1.0);
    pendulum_observe(s, observation);
    return 0;
}

static int pendulum_step(void *state, const void *action, void *observation, double *reward, uint8_t *terminated, uint8_t *truncated) {
    (void)terminated, (void)truncated;
    pendulum *s = state;
    float u = withinf(*(const float *)action, (float)-s->max_torque, (float)s->max_torque);
    double turn = fmod(s->theta + PI, 2 * PI);
    if (turn < 0) turn += 2 * PI;
    double angle = turn - PI;
    *reward = -(fastes_squared(angle) + 0.1 * fastes_squared(s->theta_dot) + (double)(0.001f * powerf(u, 2.0f)));
    double falls = 3 * s->g / (2 * s->l) * np_sin(s->theta);
    double faster = s->theta_dot + (falls + (double)((float)s->pull * u)) * s->dt;
    s->theta_dot = within(faster, -s->max_speed, s->max_speed);
    s->theta = s->theta + s->theta_dot * s->dt;
    pendulum_observe(s, observation);
    return 0;
}

/* --- Acrobot ----------------------------------------------------------------------------------------------------------------------- */

typedef struct {
    double dt, m1, m2, l1, lc1, lc2, inertia, most_1, most_2, torque[3], is_nips;
    double l1_squared, lc1_squared, lc2_squared;
    double s[4];
} acrobot;

static const char *const acrobot_names[] = {"dt", "LINK_MASS_1", "LINK_MASS_2", "LINK_LENGTH_1", "LINK_COM_POS_1", "LINK_COM_POS_2",
                                            "LINK_MOI", "MAX_VEL_1", "MAX_VEL_2", "torque_0", "torque_1", "torque_2", "is_nips", NULL};

static int acrobot_make(void *state, const fastes_option *options, int32_t num_options) {
    const acrobot usual = {0.2, 1, 1, 1, 0.5, 0.5, 1, 4 * PI, 9 * PI, {-1, 0, 1}, 0, 0, 0, 0, {0, 0, 0, 0}};
    acrobot *p = state;
    *p = usual;
    if (take(state, acrobot_names, options, num_options)) return 1;
    p->l1_squared = fastes_squared(p->l1);
    p->lc1_squared = fastes_squared(p->lc1);
    p->lc2_squared = fastes_squared(p->lc2);
    return 0;
}

static int acrobot_reset(void *state, fastes_random *random, void *observation) {
    acrobot *s = state;
    float *seen = observation, drawn[4];
    pcg64 rng;
    pcg64_seed(&rng, (uint32_t)random->seed);
    for (int i = 0; i < 4; i++) s->s[i] = drawn[i] = (float)pcg64_uniform(&rng, -0.1, 0.1);
    for (int i = 0; i < 2; i++) {
        seen[2 * i] = callf(&fastes_math.cosf, drawn[i]);
        seen[2 * i + 1] = callf(&fastes_math.sinf, drawn[i]);
        seen[4 + i] = drawn[2 + i];
    }
    return 0;
}

/* dy (4,) of y (4,) under a torque. */
static void acrobot_move(const acrobot *p, const double *y, double torque, double *dy) {
    const double g = 9.8, m1 = p->m1, m2 = p->m2, l1 = p->l1, lc1 = p->lc1, lc2 = p->lc2, i1 = p->inertia, i2 = p->inertia;
    double of[3] = {y[1], y[0] + y[1] - PI / 2.0, y[0] - PI / 2}, cosines[3];
    fastes_call_loop(&fastes_math.cos, of, cosines, 3);
    double cos2 = cosines[0], sin2 = np_sin(y[1]);
    double d1 = m1 * p->lc1_squared + m2 * (p->l1_squared + p->lc2_squared + 2 * l1 * lc2 * cos2) + i1 + i2;
    double d2 = m2 * (p->lc2_squared + l1 * lc2 * cos2) + i2;
    double phi2 = m2 * lc2 * g * cosines[1];
    double phi1 = -m2 * l1 * lc2 * fastes_squared(y[3]) * sin2 - 2 * m2 * l1 * lc2 * y[3] * y[2] * sin2 +
                  (m1 * lc1 + m2 * l1) * g * cosines[2] + phi2;
    double below = m2 * p->lc2_squared + i2 - fastes_squared(d2) / d1, above = torque + d2 / d1 * phi1;
    if (p->is_nips == 0) above = above - m2 * l1 * lc2 * fastes_squared(y[2]) * sin2;
    dy[0] = y[2];
    dy[1] = y[3];
    dy[3] = (above - phi2) / below;
    dy[2] = -(d2 * dy[3] + phi1) / d1;
}

static double turned_back(double x) {
    const double turn = PI - -PI;
    while (x > PI) x = x - turn;
    while (x < -PI) x = x + turn;
    return x;
}

static int acrobot_step(void *state, const void *action, void *observation, double *reward, uint8_t *terminated, uint8_t *truncated) {
    (void)truncated;
    acrobot *p = state;
    float *seen = observation;
    double *s = p->s, torque = p->torque[*(const int64_t *)action], half = p->dt / 2.0, k[4][4], y[4];
    acrobot_move(p, s, torque, k[0]);
    for (int i = 0; i < 4; i++) y[i] = s[i] + half * k[0][i];
    acrobot_move(p, y, torque, k[1]);
    for (int i = 0; i < 4; i++) y[i] = s[i] + half * k[1][i];
    acrobot_move(p, y, torque, k[2]);
    for (int i = 0; i < 4; i++) y[i] = s[i] + p->dt * k[2][i];
    acrobot_move(p, y, torque, k[3]);
    for (int i = 0; i < 4; i++) s[i] = s[i] + p->dt / 6.0 * (k[0][i] + 2 * k[1][i] + 2 * k[2][i] + k[3][i]);
    s[0] = turned_back(s[0]);
    s[1] = turned_back(s[1]);
    s[2] = within(s[2], -p->most_1, p->most_1);
    s[3] = within(s[3], -p->most_2, p->most_2);
    double of[3] = {s[0], s[1] + s[0], s[1]}, cosines[3], sines[2];
    fastes_call_loop(&fastes_math.cos, of, cosines, 3);
    fastes_call_loop(&fastes_math.sin, s, sines, 2);
    *terminated = -cosines[0] - cosines[1] > 1.0;
    *reward = *terminated ? 0.0 : -1.0;
    seen[0] = (float)cosines[0];
    seen[1] = (float)sines[0];
    seen[2] = (float)cosines[2];
    seen[3] = (float)sines[1];
    seen[4] = (float)s[2];
    seen[5] = (float)s[3];
    return 0;
}

/* --- MountainCar, with choices and with a force -------------------------------------------------------------------------------------- */

typedef struct {
    double min_position, max_position, max_speed, goal_position, goal_velocity, force, gravity;
    double position, velocity;
    int64_t steps;
} mountain_car;

static const char *const mountain_car_names[] = {"min_position", "max_position", "max_speed", "goal_position", "goal_velocity",
                                                 "force", "gravity", NULL};
static const char *const continuous_car_names[] = {"min_position", "max_position", "max_speed", "goal_position", "goal_velocity", "power", NULL};

static int mountain_car_make(void *state, const fastes_option *options, int32_t num_options) {
    const mountain_car usual = {-1.2, 0.6, 0.07, 0.5, 0, 0.001, 0.0025, 0, 0, 0};
    memcpy(state, &usual, sizeof usual);
    return take(state, mountain_car_names, options, num_options);
}

static int continuous_car_make(void *state, const fastes_option *options, int32_t num_options) {
    const mountain_car usual = {-1.2, 0.6, 0.07, 0.45, 0, 0.0015, 0, 0, 0, 0};
    memcpy(state, &usual, sizeof usual);
    return take(state, continuous_car_names, options, num_options);
}

static int mountain_car_reset(void *state, fastes_random *random, void *observation) {
    mountain_car *s = state;
    float *seen = observation;
    pcg64 rng;
    pcg64_seed(&rng, (uint32_t)random->seed);
    s->position = pcg64_uniform(&rng, -0.6, -0.4);
    s->velocity = 0;
    s->steps = 0;
    seen[0] = (float)s->position;
    seen[1] = 0;
    return 0;
}

static int mountain_car_step(void *state, const void *action, void *observation, double *reward, uint8_t *terminated,
                             uint8_t *truncated) {
    (void)truncated;
    mountain_car *s = state;
    float *seen = observation;
    double faster = (double)(*(const int64_t *)action - 1) * s->force + cos(3 * s->position) * -s->gravity;
    s->velocity = within(s->velocity + faster, -s->max_speed, s->max_speed);
    s->position = within(s->position + s->velocity, s->min_position, s->max_position);
    if (s->position == s->min_position && s->velocity < 0) s->velocity = 0;
    *terminated = s->position >= s->goal_position && s->velocity >= s->goal_velocity;
    *reward = -1.0;
    seen[0] = (float)s->position;
    seen[1] = (float)s->velocity;
    return 0;
}

/* A number that is a float32, or a constant of Python in its place: NumPy compares the first with float32, Python the second. */
typedef struct { float value; int is_constant; double constant; } mixed;

static mixed held_within(float value, double low, double high) {
    mixed x = {value, 0, 0};
    if (value > (float)high) x = (mixed){(float)high, 1, high};
    if (value < (float)low) x = (mixed){(float)low, 1, low};
    return x;
}

static int is_at_least(mixed x, double least) { return x.is_constant ? x.constant >= least : x.value >= (float)least; }

/* The change of the velocity: float32, but float64 if Python's min and max give one of their bounds in place of the action. */
static double pushed(const mountain_car *s, float force, double angle) {
    double slope = 0.0025 * cos(angle);
    if (force < -1) return -s->force - slope;
    if (force > 1) return s->force - slope;
    float push = force * (float)s->force;
    return push - (float)slope;
}

/* Its state is float64 up to the first step, and float32 then. */
static int continuous_car_step(void *state, const void *action, void *observation, double *reward, uint8_t *terminated,
                               uint8_t *truncated) {
    (void)truncated;
    mountain_car *s = state;
    float *seen = observation, force = *(const float *)action;
    if (s->steps++ == 0) {
        double velocity = within(s->velocity + pushed(s, force, 3 * s->position), -s->max_speed, s->max_speed);
        double position = within(s->position + velocity, s->min_position, s->max_position);
        if (position == s->min_position && velocity < 0) velocity = 0;
        *terminated = position >= s->goal_position && velocity >= s->goal_velocity;
        seen[0] = (float)position;
        seen[1] = (float)velocity;
    } else {
        float turned = (float)s->position, faster = (float)pushed(s, force, (double)(3 * turned));
        mixed velocity = held_within((float)s->velocity + faster, -s->max_speed, s->max_speed);
        mixed position = held_within(turned + velocity.value, s->min_position, s->max_position);
        if (position.value == (float)s->min_position && velocity.value < 0) velocity = (mixed){0, 1, 0};
        *terminated = is_at_least(position, s->goal_position) && is_at_least(velocity, s->goal_velocity);
        seen[0] = position.value;
        seen[1] = velocity.value;
    }
    *reward = (*terminated ? 100.0 : 0.0) - fastes_squared(force) * 0.1;
    s->position = seen[0];
    s->velocity = seen[1];
    return 0;
}

/* --- by name ------------------------------------------------------------------------------------------------------------------------- */

#define CLASSIC(size, acts, resets, type, steps)                                                                        \
    {.version = FASTES_ENV_VERSION, .state_size = sizeof(type), .observation = FASTES_BOX(FASTES_FLOAT32, size, -INFINITY, INFINITY), \
     .action = acts, .reset = resets##_reset, .step = steps##_step, .make = steps##_make, .error = unknown_option}

static const fastes_env cartpole_env = CLASSIC(4, FASTES_DISCRETE(2), cartpole, cartpole, cartpole);
static const fastes_env pendulum_env = CLASSIC(3, FASTES_BOX(FASTES_FLOAT32, 1, -2, 2), pendulum, pendulum, pendulum);
static const fastes_env acrobot_env = CLASSIC(6, FASTES_DISCRETE(3), acrobot, acrobot, acrobot);
static const fastes_env mountain_car_env = CLASSIC(2, FASTES_DISCRETE(3), mountain_car, mountain_car, mountain_car);
static const fastes_env continuous_car_env = CLASSIC(2, FASTES_BOX(FASTES_FLOAT32, 1, -1, 1), mountain_car, mountain_car, continuous_car);

const fastes_env *fastes_classic_env(const char *name) {
    static const struct { const char *name; const fastes_env *env; } known[] = {
        {"CartPoleEnv", &cartpole_env}, {"PendulumEnv", &pendulum_env}, {"AcrobotEnv", &acrobot_env},
        {"MountainCarEnv", &mountain_car_env}, {"Continuous_MountainCarEnv", &continuous_car_env},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i].name) == 0) return known[i].env;
    return NULL;
}
