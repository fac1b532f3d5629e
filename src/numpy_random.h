/* Uniform numbers as np.random.default_rng(seed) draws them: SeedSequence, then PCG64 (O'Neill 2014). */
#ifndef FASTES_NUMPY_RANDOM_H
#define FASTES_NUMPY_RANDOM_H

#include <stdint.h>

typedef struct { unsigned __int128 state, increment; } pcg64;

static inline uint32_t seed_hash(uint32_t value, uint32_t *constant, uint32_t factor) {
    value ^= *constant;
    *constant *= factor;
    value *= *constant;
    return value ^ value >> 16;
}

static inline void pcg64_step(pcg64 *rng) {
    const unsigned __int128 factor = (unsigned __int128)UINT64_C(0x2360ED051FC65DA4) << 64 | UINT64_C(0x4385DF649FCCF645);
    rng->state = rng->state * factor + rng->increment;
}

/* As SeedSequence(seed) seeds it. */
static inline void pcg64_seed(pcg64 *rng, uint32_t seed) {
    uint32_t pool[4], constant = 0x43B0D7E5u;
    for (int i = 0; i < 4; i++) pool[i] = seed_hash(i ? 0 : seed, &constant, 0x931E8875u);
    for (int from = 0; from < 4; from++) {
        for (int to = 0; to < 4; to++) {
            if (from == to) continue;
            uint32_t mixed = 0xCA01F9DDu * pool[to] - 0x4973F715u * seed_hash(pool[from], &constant, 0x931E8875u);
            pool[to] = mixed ^ mixed >> 16;
        }
    }
    uint64_t words[4];
    constant = 0x8B51F9DDu;
    for (int i = 0; i < 4; i++) {
        uint64_t low = seed_hash(pool[2 * i % 4], &constant, 0x58F38DEDu);
        words[i] = low | (uint64_t)seed_hash(pool[(2 * i + 1) % 4], &constant, 0x58F38DEDu) << 32;
    }
    rng->state = 0;
    rng->increment = ((unsigned __int128)words[2] << 64 | words[3]) << 1 | 1;
    pcg64_step(rng);
    rng->state += (unsigned __int128)words[0] << 64 | words[1];
    pcg64_step(rng);
}

/* Generator.uniform(low, high). */
static inline double pcg64_uniform(pcg64 *rng, double low, double high) {
    pcg64_step(rng);
    uint64_t folded = (uint64_t)(rng->state >> 64) ^ (uint64_t)rng->state;
    int turn = (int)(rng->state >> 122);
    uint64_t bits = folded >> turn | folded << (-turn & 63);
    return low + (high - low) * ((double)(bits >> 11) * 0x1p-53);
}

#endif
