/* CartPole with a linear policy in a bare loop: examples/native/cartpole.c, without FastES around it.
 *
 * The policy is the whole one that training plays: observations normalised and clipped in double precision, weights, bias, and the larger
 * output. What training adds is left out: statistics of observations, returns, and what other processes may want of it. The compiler
 * knows the environment, its constants and the policy's shape. */
#include "../../examples/native/cartpole.c"

/* Steps of as many episodes; weight (4, 2), bias (2,), mean and inv_std (4,), as a trained policy has them. */
int64_t bare_steps(int64_t episodes, const float *weight, const float *bias, const double *mean, const double *inv_std) {
    struct cartpole state;
    fastes_random random;
    float seen[4];
    int64_t steps = 0;
    make(&state, NULL, 0);
    for (int64_t episode = 0; episode < episodes; episode++) {
        random.seed = (uint64_t)episode;
        random.drawn = 0;
        reset(&state, &random, seen);
        uint8_t terminated = 0, truncated = 0;
        for (int64_t step_of = 0; step_of < 500 && !terminated; step_of++, steps++) {
            float y[2] = {0, 0};
            for (int i = 0; i < 4; i++) {
                double x = (seen[i] - mean[i]) * inv_std[i];
                float clipped = (float)(x < -10 ? -10 : x > 10 ? 10 : x);
                y[0] += clipped * weight[2 * i];
                y[1] += clipped * weight[2 * i + 1];
            }
            int64_t action = y[1] + bias[1] > y[0] + bias[0];
            double reward = 0;
            step(&state, &action, seen, &reward, &terminated, &truncated);
        }
    }
    return steps;
}
