/* CartPole as Barto, Sutton and Anderson (1983) have it, in C: a template for an environment of your own.
 *
 *     cc -O3 -shared -fPIC -I"$(python -c 'import fastes; print(fastes.get_include())')" cartpole.c -o cartpole.so -lm
 *     fastes train ./cartpole.so:CartPole --total-timesteps 100000
 */
#include <fastes_env.h>
#include <string.h>

struct cartpole {
    double x, speed, angle, turn; /* m, m/s, rad, rad/s */
    double gravity;               /* m/s^2, an option */
};

static void observe(const struct cartpole *s, float *observation) {
    observation[0] = (float)s->x;
    observation[1] = (float)s->speed;
    observation[2] = (float)s->angle;
    observation[3] = (float)s->turn;
}

static int make(void *state, const fastes_option *options, int32_t num_options) {
    struct cartpole *s = state;
    s->gravity = 9.8;
    for (int32_t i = 0; i < num_options; i++) {
        if (strcmp(options[i].name, "gravity") || options[i].text) return 1; /* it has no other, and no text */
        s->gravity = options[i].number;
    }
    return 0;
}

static const char *error(void *state) {
    (void)state;
    return "its only option is gravity, a number";
}

static int reset(void *state, fastes_random *random, void *observation) {
    struct cartpole *s = state;
    s->x = fastes_uniform(random, -0.05, 0.05);
    s->speed = fastes_uniform(random, -0.05, 0.05);
    s->angle = fastes_uniform(random, -0.05, 0.05);
    s->turn = fastes_uniform(random, -0.05, 0.05);
    observe(s, observation);
    return 0;
}

static int step(void *state, const void *action, void *observation, double *reward, uint8_t *terminated, uint8_t *truncated) {
    (void)truncated; /* FastES counts the steps */
    struct cartpole *s = state;
    const double cart = 1.0, pole = 0.1, half = 0.5, seconds = 0.02;
    double force = *(const int64_t *)action == 1 ? 10.0 : -10.0;
    double push = (force + pole * half * s->turn * s->turn * sin(s->angle)) / (cart + pole);
    double fall = (s->gravity * sin(s->angle) - cos(s->angle) * push) /
                  (half * (4.0 / 3.0 - pole * cos(s->angle) * cos(s->angle) / (cart + pole)));
    double drive = push - pole * half * fall * cos(s->angle) / (cart + pole);
    s->x += seconds * s->speed;
    s->speed += seconds * drive;
    s->angle += seconds * s->turn;
    s->turn += seconds * fall;
    *reward = 1.0;
    *terminated = fabs(s->x) > 2.4 || fabs(s->angle) > 12 * 3.141592653589793 / 180;
    observe(s, observation);
    return 0;
}

FASTES_ENV(CartPole) = {
    .version = FASTES_ENV_VERSION, .state_size = sizeof(struct cartpole), .max_episode_steps = 500,
    .observation = FASTES_BOX(FASTES_FLOAT32, 4, -INFINITY, INFINITY), .action = FASTES_DISCRETE(2),
    .reset = reset, .step = step, .make = make, .error = error,
};
