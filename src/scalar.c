/* Functions without a vector variant: the choice of a variant, single draws, ranks, and the workers' counters. */
#include "fastes_core.h"
#include <fenv.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#if defined(__aarch64__)
#define LEAST fastes_kernels_neon
#else
#define LEAST fastes_kernels_baseline
#endif
extern const fastes_kernels LEAST; /* the variant that every processor of this architecture runs */
#if defined(__x86_64__)
extern const fastes_kernels fastes_kernels_avx2, fastes_kernels_avx512;
#endif

const fastes_kernels *fastes_variant(const char *name) {
    if (strcmp(name, LEAST.name) == 0) return &LEAST;
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
    return best ? best : &LEAST;
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

/* Stable merge of a[0..na) and b[0..nb) into out, without a branch on the comparison. */
static void merge(fastes_ranked *out, const fastes_ranked *a, int64_t na, const fastes_ranked *b, int64_t nb) {
    while (na > 0 && nb > 0) {
        int second = b->key < a->key;
        const fastes_ranked *next = second ? b : a;
        *out++ = *next;
        a += !second;
        na -= !second;
        b += second;
        nb -= second;
    }
    memcpy(out, na > 0 ? a : b, (size_t)(na > 0 ? na : nb) * sizeof *out);
}

#define SHORT_RUN 8

static void insertion_sort(fastes_ranked *a, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        fastes_ranked x = a[i];
        int64_t k = i;
        for (; k > 0 && x.key < a[k - 1].key; k--) a[k] = a[k - 1];
        a[k] = x;
    }
}

void fastes_centered_ranks(float *ranks, const double *values, int64_t n, fastes_ranked *work) {
    fastes_ranked *sorted = work, *other = work + n;
    for (int64_t i = 0; i < n; i++) {
        sorted[i].key = values[i] - values[i] == 0.0 ? values[i] : -INFINITY;
        sorted[i].index = i;
    }
    for (int64_t left = 0; left < n; left += SHORT_RUN) insertion_sort(sorted + left, n - left < SHORT_RUN ? n - left : SHORT_RUN);
    for (int64_t width = SHORT_RUN; width < n; width *= 2) {
        for (int64_t left = 0; left < n; left += 2 * width) {
            int64_t mid = left + width < n ? left + width : n, end = left + 2 * width < n ? left + 2 * width : n;
            merge(other + left, sorted + left, mid - left, sorted + mid, end - mid);
        }
        fastes_ranked *t = sorted;
        sorted = other;
        other = t;
    }
    for (int64_t first = 0, last; first < n; first = last + 1) {
        for (last = first; last + 1 < n && sorted[last + 1].key == sorted[first].key; last++) {}
        double rank = n > 1 ? 0.5 * (double)(first + last) / (double)(n - 1) - 0.5 : 0.0;
        for (int64_t k = first; k <= last; k++) ranks[sorted[k].index] = (float)rank;
    }
}

int32_t fastes_all_finite(const double *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (x[i] - x[i] != 0.0) return 0;
    return 1;
}

void fastes_sum_moments(double *sums, int64_t totals[3], const double *moments, const int64_t *counts, int64_t jobs, int64_t n) {
    totals[0] = totals[1] = totals[2] = 0;
    for (int64_t i = 0; i < 2 * n; i++) sums[i] = 0.0;
    for (int64_t job = 0; job < jobs; job++) {
        const double *own = moments + 2 * n * job;
        if (counts[job] <= 0) continue;
        if (!fastes_all_finite(own, 2 * n)) {
            totals[2]++;
            continue;
        }
        for (int64_t i = 0; i < 2 * n; i++) sums[i] += own[i];
        totals[0] += counts[job];
        totals[1]++;
    }
}

int32_t fastes_join_moments(double *mean, double *squares, int64_t count, const double *sums, int64_t added, int64_t n) {
    double share = (double)added / (double)(count + added), both = (double)count * share;
    for (int64_t i = 0; i < n; i++) {
        double shift = sums[i] / (double)added; /* mean of the new observations, less the mean so far */
        double spread = sums[n + i] - sums[i] * shift;
        squares[i] = squares[i] + (spread < 0.0 ? 0.0 : spread) + shift * shift * both;
        mean[i] = mean[i] + shift * share;
    }
    return fastes_all_finite(mean, n) && fastes_all_finite(squares, n);
}

int64_t fastes_claim(int64_t *unclaimed, int64_t stride, int64_t count, int64_t *at)
{
    for (;;) {
        int64_t oldest = INT64_MAX, place = -1;
        for (int64_t k = 0; k < count; k++) {
            int64_t word = __atomic_load_n(&unclaimed[k * stride], __ATOMIC_ACQUIRE);
            if ((word & 0xffffffff) && word < oldest) {
                oldest = word;
                place = k;
            }
        }
        if (place < 0) return -1;
        if (__atomic_compare_exchange_n(&unclaimed[place * stride], &oldest, oldest - 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            *at = place;
            return oldest - 1;
        }
    }
}

void fastes_commit(int64_t *flag, int64_t value) { __atomic_store_n(flag, value, __ATOMIC_RELEASE); }

int fastes_float_mode(void) {
    int mode;
    switch (fegetround()) {
#ifdef FE_DOWNWARD
    case FE_DOWNWARD: mode = 1; break;
#endif
#ifdef FE_UPWARD
    case FE_UPWARD: mode = 2; break;
#endif
#ifdef FE_TOWARDZERO
    case FE_TOWARDZERO: mode = 3; break;
#endif
    default: mode = 0;
    }
#if defined(__x86_64__)
    unsigned control = _mm_getcsr();
    mode = (int)(control >> 13 & 3u); /* fegetround asks the x87, which computes nothing here */
    if (control & 0x8000u) mode |= FASTES_FLUSHES_TO_ZERO;
    if (control & 0x0040u) mode |= FASTES_DENORMALS_ARE_ZERO;
    if ((control & 0x1F80u) != 0x1F80u) mode |= FASTES_TRAPS;
#elif defined(__aarch64__)
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    if (control & (1u << 24)) mode |= FASTES_FLUSHES_TO_ZERO | FASTES_DENORMALS_ARE_ZERO; /* one bit for both */
    if (control & 0x9F00u) mode |= FASTES_TRAPS;
#endif
    return mode;
}

void fastes_usual_float_mode(void) {
    fesetenv(FE_DFL_ENV);
#if defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0)); /* the C library leaves some bits as they are */
#endif
}
