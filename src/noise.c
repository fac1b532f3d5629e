/* Noise table: fill, mirrored reconstruction, weighted sum. Included once by each variant. */

/* Four uniform words for each of 16 counters: word w of lane l in c[w][l]. */
typedef struct { uint32_t c[4][16]; } words16;

/* Philox4x32-10 of the counters (16 * group + lane, middle, stream) under a key. */
LANES_INLINE void philox_group(words16 *w, uint64_t group, uint32_t middle, uint32_t stream, uint64_t key) {
    for (int l = 0; l < 16; l++) {
        uint64_t block = group * 16 + (uint64_t)l;
        w->c[0][l] = (uint32_t)block;
        w->c[1][l] = (uint32_t)(block >> 32);
    }
    for (int l = 0; l < 16; l += VECTOR_LANES) {
        vuint c0 = vload_uint(w->c[0] + l), c1 = vload_uint(w->c[1] + l), c2 = (vuint){0} + middle, c3 = (vuint){0} + stream;
        uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
        for (int round = 0; round < 10; round++) {
            vuint high0, low0, high1, low1;
            vmul_wide(c0, 0xD2511F53u, &high0, &low0);
            vmul_wide(c2, 0xCD9E8D57u, &high1, &low1);
            c0 = high1 ^ c1 ^ k0;
            c1 = low1;
            c2 = high0 ^ c3 ^ k1;
            c3 = low0;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        vstore_uint(w->c[0] + l, c0);
        vstore_uint(w->c[1] + l, c1);
        vstore_uint(w->c[2] + l, c2);
        vstore_uint(w->c[3] + l, c3);
    }
}

/* 16 + 16 uniform words -> 32 normals: sqrt(-2 log u) * (cos, sin)(2 pi v). u has 31 bits and is never 0. */
LANES_INLINE void box_muller(const uint32_t u[16], const uint32_t v[16], float *out) {
    for (int l = 0; l < 16; l += VECTOR_LANES) {
        vfloat s, c;
        vfloat radius = vsqrt(vlog(vto_float((vint)((vload_uint(u + l) >> 1) | 1)) * 4.6566129e-10f) * -2.0f);
        vsincos(vload_uint(v + l), &s, &c);
        vstore(out + l, radius * c);
        vstore(out + 16 + l, radius * s);
    }
}

/* Group g holds the normals 64g .. 64g+63. */
LANES_INLINE void normal_group(float *out, uint64_t group, uint64_t seed, uint32_t stream) {
    words16 w;
    philox_group(&w, group, 0, stream, seed);
    box_muller(w.c[0], w.c[1], out);
    box_muller(w.c[2], w.c[3], out + 32);
}

static void normal_fill(float *out, int64_t start, int64_t count, uint64_t seed, uint32_t stream) {
    float group[FASTES_NORMAL_GROUP];
    int64_t done = 0;
    while (done < count) {
        int64_t at = start + done, skip = at % FASTES_NORMAL_GROUP, take = FASTES_NORMAL_GROUP - skip;
        if (take > count - done) take = count - done;
        if (take == FASTES_NORMAL_GROUP) {
            normal_group(out + done, (uint64_t)(at / FASTES_NORMAL_GROUP), seed, stream);
        } else {
            normal_group(group, (uint64_t)(at / FASTES_NORMAL_GROUP), seed, stream);
            memcpy(out + done, group + skip, (size_t)take * sizeof(float));
        }
        done += take;
    }
}

static void perturb(float *out, const float *theta, const float *eps, float scale, int64_t n) {
    int64_t i = 0;
    for (; i + VECTOR_LANES <= n; i += VECTOR_LANES) vstore(out + i, vload(theta + i) + vload(eps + i) * scale);
    for (; i < n; i++) out[i] = theta[i] + eps[i] * scale;
}

static void perturb_each(float *out, const float *theta, const float *eps, const float *sigma, float sign, int64_t n) {
    int64_t i = 0;
    for (; i + VECTOR_LANES <= n; i += VECTOR_LANES)
        vstore(out + i, vload(theta + i) + vload(eps + i) * vload(sigma + i) * sign);
    for (; i < n; i++) out[i] = theta[i] + eps[i] * sigma[i] * sign;
}

/* The part of the sum kept in cache while slices stream past it, and how many slices stream together. */
#define SUM_BLOCK 16384
#define SUM_STREAMS 4

/* out += w * eps for each slice, or w * (eps * eps - 1); streams and squares are constants where this is called. */
LANES_INLINE void add_slices(float *out, const float *const *x, const float *w, int streams, int squares, int64_t n) {
    int64_t i = 0;
    for (; i + VECTOR_LANES <= n; i += VECTOR_LANES) {
        vfloat acc = vload(out + i);
        for (int s = 0; s < streams; s++) {
            vfloat eps = vload(x[s] + i);
            acc += (squares ? eps * eps - 1.0f : eps) * w[s];
        }
        vstore(out + i, acc);
    }
    for (; i < n; i++) {
        float acc = out[i];
        for (int s = 0; s < streams; s++) acc += (squares ? x[s][i] * x[s][i] - 1.0f : x[s][i]) * w[s];
        out[i] = acc;
    }
}

LANES_INLINE void sum_slices(float *out, const float *table, const int64_t *index, const float *weights, int64_t num_slices,
                             int squares, int64_t n) {
    memset(out, 0, (size_t)n * sizeof(float));
    for (int64_t at = 0; at < n; at += SUM_BLOCK) {
        int64_t size = n - at < SUM_BLOCK ? n - at : SUM_BLOCK, j = 0;
        const float *x[SUM_STREAMS];
        for (; j + SUM_STREAMS <= num_slices; j += SUM_STREAMS) {
            for (int s = 0; s < SUM_STREAMS; s++) x[s] = table + index[j + s] + at;
            add_slices(out + at, x, weights + j, SUM_STREAMS, squares, size);
        }
        for (; j < num_slices; j++) {
            x[0] = table + index[j] + at;
            add_slices(out + at, x, weights + j, 1, squares, size);
        }
    }
}

static void noise_sum(float *out, const float *table, const int64_t *index, const float *weights, int64_t num_slices,
                      int64_t n) {
    sum_slices(out, table, index, weights, num_slices, 0, n);
}

static void noise_square_sum(float *out, const float *table, const int64_t *index, const float *weights, int64_t num_slices,
                             int64_t n) {
    sum_slices(out, table, index, weights, num_slices, 1, n);
}

/* Adds slices of n values that wait to be added together, and forgets them. */
LANES_INLINE void add_waiting(float *out, const float *const *x, const float *w, int *waiting, int squares, int64_t n) {
    if (*waiting == SUM_STREAMS) add_slices(out, x, w, SUM_STREAMS, squares, n);
    else
        for (int s = 0; s < *waiting; s++) add_slices(out, x + s, w + s, 1, squares, n);
    *waiting = 0;
}

LANES_INLINE void sum_pieces(float *out, const float *table, const int64_t *index, const int64_t *begin, const int64_t *end,
                             const float *weights, int64_t num_pieces, int squares, int64_t n) {
    memset(out, 0, (size_t)n * sizeof(float));
    for (int64_t at = 0; at < n; at += SUM_BLOCK) {
        int64_t stop = n - at < SUM_BLOCK ? n : at + SUM_BLOCK;
        const float *x[SUM_STREAMS];
        float w[SUM_STREAMS];
        int waiting = 0;
        for (int64_t j = 0; j < num_pieces; j++) {
            int64_t first = begin[j] > at ? begin[j] : at, past = end[j] < stop ? end[j] : stop;
            if (first >= past) continue;
            x[waiting] = table + index[j] + (first - begin[j]);
            w[waiting] = weights[j];
            if (first == at && past == stop) {
                if (++waiting == SUM_STREAMS) add_waiting(out + at, x, w, &waiting, squares, stop - at);
            } else {
                const float *part = x[waiting];
                add_waiting(out + at, x, w, &waiting, squares, stop - at); /* what comes first is added first */
                add_slices(out + first, &part, weights + j, 1, squares, past - first);
            }
        }
        add_waiting(out + at, x, w, &waiting, squares, stop - at);
    }
}

static void noise_sum_pieces(float *out, const float *table, const int64_t *index, const int64_t *begin, const int64_t *end,
                             const float *weights, int64_t num_pieces, int32_t squares, int64_t n) {
    if (squares) sum_pieces(out, table, index, begin, end, weights, num_pieces, 1, n);
    else sum_pieces(out, table, index, begin, end, weights, num_pieces, 0, n);
}
