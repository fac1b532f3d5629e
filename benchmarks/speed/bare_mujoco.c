/* MuJoCo's steps under recorded actions, and nothing else. */
#include <stdint.h>
#include <string.h>

typedef void (*stepper)(const void *model, void *data);

/* actions: (steps, size), each held for `skip` steps. ctrl: (size,), the data's. */
void bare_steps(stepper mj_step, const void *model, void *data, double *ctrl, const double *actions, int64_t steps, int64_t size,
                int64_t skip) {
    for (int64_t i = 0; i < steps; i++) {
        memcpy(ctrl, actions + i * size, (size_t)size * sizeof *ctrl);
        for (int64_t k = 0; k < skip; k++) mj_step(model, data);
    }
}
