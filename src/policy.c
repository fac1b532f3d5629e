/* One step of a policy: observation -> layers -> action. Included once by each variant. */

/* y (out,) = x (in,) . w (in, out) + b (out,). Each output sums its inputs in 4 interleaved parts, (0+1)+(2+3), then b. */
#define DENSE_VECTORS 2 /* vectors of outputs summed side by side */

LANES_INLINE void dense_block(float *y, const float *x, const float *row, const float *b, int32_t in, int64_t out,
                              int vectors) {
    vfloat a[4][DENSE_VECTORS] = {{{0}}};
    int32_t i = 0;
    for (; i + 4 <= in; i += 4, row += 4 * out)
        for (int part = 0; part < 4; part++)
            for (int v = 0; v < vectors; v++) a[part][v] += vload(row + part * out + v * VECTOR_LANES) * x[i + part];
    for (int part = 0; part < 3; part++)
        if (i + part < in)
            for (int v = 0; v < vectors; v++) a[part][v] += vload(row + part * out + v * VECTOR_LANES) * x[i + part];
    for (int v = 0; v < vectors; v++) {
        vfloat sum = (a[0][v] + a[1][v]) + (a[2][v] + a[3][v]);
        if (b) sum += vload(b + v * VECTOR_LANES);
        vstore(y + v * VECTOR_LANES, sum);
    }
}

LANES_INLINE void dense(float *y, const float *x, const float *w, const float *b, int32_t in, int32_t out) {
    int32_t o = 0;
    for (; o + VECTOR_LANES < out; o += DENSE_VECTORS * VECTOR_LANES)
        dense_block(y + o, x, w + o, b ? b + o : 0, in, out, DENSE_VECTORS);
    if (o < out) dense_block(y + o, x, w + o, b ? b + o : 0, in, out, 1);
}

LANES_INLINE void activate(float *y, int32_t n, int32_t activation) {
    for (int32_t i = 0; i < n; i += VECTOR_LANES) {
        vfloat v = vload(y + i);
        vstore(y + i, activation == FASTES_TANH ? vtanh(v) : (vfloat)((vint)v & ~(vint)(v <= 0.0f)));
    }
}

/* Runs all layers on scratch[0]; returns the buffer that holds the last one's output. */
LANES_INLINE float *forward(const fastes_policy *p) {
    const float *w = p->params;
    float *x = p->scratch[0], *y = p->scratch[1];
    for (int32_t layer = 0; layer < p->num_layers; layer++) {
        int32_t in = p->sizes[layer], out = p->sizes[layer + 1];
        const float *b = w + (int64_t)in * out;
        dense(y, x, w, p->use_bias ? b : 0, in, out);
        if (layer + 1 < p->num_layers) activate(y, out, p->activation);
        w = b + (p->use_bias ? out : 0);
        float *t = x;
        x = y;
        y = t;
    }
    return x;
}

/* Uniform words of one step: the counter is (16 * group + lane, step, stream); an episode has fewer than 2^32 steps. */
LANES_INLINE void action_words(const fastes_policy *p, uint64_t group, words16 *w) {
    philox_group(w, group, (uint32_t)p->noise_step, FASTES_STREAM_ACTION, p->noise_key);
}

LANES_INLINE void add_action_noise(const fastes_policy *p, float *y, int32_t n) {
    words16 w;
    float z[32];
    for (int32_t i = 0; i < n; i += 32) {
        action_words(p, (uint64_t)(i / 32), &w);
        box_muller(w.c[0], w.c[1], z);
        for (int32_t k = 0; k < 32 && i + k < n; k++) y[i + k] += z[k] * p->action_noise;
    }
}

/* 23 bits and a half: neither 0 nor 1 */
LANES_INLINE vfloat uniform(const uint32_t *word) {
    return (vto_float((vint)(vload_uint(word) >> 9)) + 0.5f) * 1.1920929e-7f;
}

/* Added to y, Gumbel noise makes its argmax a sample of softmax(y), logistic noise its sign a sample of sigmoid(y). */
LANES_INLINE void add_choice_noise(const fastes_policy *p, float *y, int32_t n) {
    words16 w;
    for (int32_t i = 0; i < n; i += 16) {
        action_words(p, (uint64_t)(i / 16), &w);
        for (int l = 0; l < 16; l += VECTOR_LANES) {
            vfloat u = uniform(w.c[0] + l);
            vfloat z = p->action_kind == FASTES_BINARY ? vlog(u) - vlog(1.0f - u) : -vlog(-vlog(u));
            vstore(y + i + l, vload(y + i + l) + z);
        }
    }
}

LANES_INLINE int32_t argmax(const float *y, int64_t n) {
    int32_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (y[i] > y[best]) best = (int32_t)i;
    return best;
}

LANES_INLINE double clamp(double u, double low, double high) {
    u = u < low ? low : u;
    return u > high ? high : u;
}

LANES_INLINE void put(const fastes_policy *p, void *action, int32_t i, double value) {
    if (p->action_dtype == FASTES_ACTION_FLOAT32) ((float *)action)[i] = (float)value;
    else ((double *)action)[i] = value;
}

/* In double: the bounds of a float64 space are met exactly, and rounding to float32 cannot leave those of a float32 one. */
LANES_INLINE void box_action(const fastes_policy *p, float *y, void *action) {
    if (p->action_kind == FASTES_BOX_SQUASH)
        for (int32_t i = 0; i < p->action_size; i += VECTOR_LANES) vstore(y + i, vtanh(vload(y + i)));
    for (int32_t i = 0; i < p->action_size; i++) {
        double low = p->low[i], high = p->high[i], u = y[i];
        int bounded = low - low == 0.0 && high - high == 0.0;
        if (bounded) u = low + (clamp(u, -1.0, 1.0) + 1.0) * 0.5 * (high - low);
        put(p, action, i, clamp(u, low, high));
    }
}

LANES_INLINE void bins_action(const fastes_policy *p, const float *y, void *action) {
    for (int32_t i = 0; i < p->action_size; i++) {
        int32_t bin = argmax(y + (int64_t)i * p->num_bins, p->num_bins);
        double low = p->low[i], high = p->high[i];
        put(p, action, i, clamp(low + (double)bin / (double)(p->num_bins - 1) * (high - low), low, high));
    }
}

LANES_INLINE void categorical_action(const fastes_policy *p, const float *y, int64_t *action) {
    for (int32_t i = 0; i < p->action_size; i++) {
        action[i] = argmax(y, p->nvec[i]) + p->start[i];
        y += p->nvec[i];
    }
}

LANES_INLINE void binary_action(const fastes_policy *p, const float *y, int8_t *action) {
    for (int32_t i = 0; i < p->action_size; i++) action[i] = y[i] > 0.0f;
}

/* Outputs y (num_outputs,) -> action (action_size,), with the step's noise. Inlined into act: a call costs 3 % of a small one. */
LANES_INLINE void choose_action(fastes_policy *p, float *y, void *action) {
    int32_t outputs = p->num_outputs;
    switch (p->action_kind) {
    case FASTES_BOX_CLIP:
    case FASTES_BOX_SQUASH:
        if (p->action_noise != 0.0f) add_action_noise(p, y, outputs);
        box_action(p, y, action);
        break;
    case FASTES_BOX_BINS:
        bins_action(p, y, action);
        break;
    case FASTES_CATEGORICAL:
        if (p->sample) add_choice_noise(p, y, outputs);
        categorical_action(p, y, (int64_t *)action);
        break;
    default:
        if (p->sample) add_choice_noise(p, y, outputs);
        binary_action(p, y, (int8_t *)action);
    }
    p->noise_step++;
}

static void act(fastes_policy *p, const void *obs, int32_t obs_dtype, void *action, int32_t count_moments) {
    observe(p, obs, obs_dtype, p->scratch[0], count_moments);
    choose_action(p, forward(p), action);
}

static void choose(fastes_policy *p, float *y, void *action) { choose_action(p, y, action); }
