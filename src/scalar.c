/* Functions without a vector variant: the choice of a variant, single draws, ranks, and the workers' counters. */
#include "fastes_core.h"
#include <stddef.h>
#include <string.h>

extern const fastes_kernels fastes_kernels_baseline;
#if defined(__x86_64__)
extern const fastes_kernels fastes_kernels_avx2, fastes_kernels_avx512;
#endif

const fastes_kernels *fastes_variant(const char *name) {
    if (strcmp(name, "baseline") == 0) return &fastes_kernels_baseline;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (strcmp(name, "avx2") == 0 && __builtin_cpu_supports("avx2")) return &fastes_kernels_avx2;
    if (strcmp(name, "avx512") == 0 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
        return &fastes_kernels_avx512;
#endif
    return NULL;
}

const fastes_kernels *fastes_best_variant(void) {
    const fastes_kernels *best = fastes_variant("avx512");
    if (!best) best = fastes_variant("avx2");
    return best ? best : &fastes_kernels_baseline;
}

void fastes_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Non-finite values compare as equal to each other and below everything else. */
static int below(double a, double b) {
    int a_finite = a - a == 0.0, b_finite = b - b == 0.0;
    if (!a_finite || !b_finite) return !a_finite && b_finite;
    return a < b;
}

void fastes_centered_ranks(float *ranks, const double *values, int64_t n, int64_t *work) {
    int64_t *order = work, *merged = work + n;
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int64_t width = 1; width < n; width *= 2) { /* bottom-up merge sort */
        for (int64_t left = 0; left < n; left += 2 * width) {
            int64_t mid = left + width < n ? left + width : n, end = left + 2 * width < n ? left + 2 * width : n;
            int64_t a = left, b = mid;
            for (int64_t k = left; k < end; k++)
                merged[k] = a < mid && (b >= end || !below(values[order[b]], values[order[a]])) ? order[a++] : order[b++];
        }
        int64_t *t = order;
        order = merged;
        merged = t;
    }
    for (int64_t first = 0, last; first < n; first = last + 1) {
        for (last = first; last + 1 < n && !below(values[order[first]], values[order[last + 1]]); last++) {}
        double rank = n > 1 ? 0.5 * (double)(first + last) / (double)(n - 1) - 0.5 : 0.0;
        for (int64_t k = first; k <= last; k++) ranks[order[k]] = (float)rank;
    }
}

int64_t fastes_claim(int64_t *counter) { return __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }

void fastes_commit(int64_t *flag, int64_t value) { __atomic_store_n(flag, value, __ATOMIC_RELEASE); }

int64_t fastes_committed(const int64_t *flag) { return __atomic_load_n(flag, __ATOMIC_ACQUIRE); }
