/* Vectors as wide as the variant's registers. Every use is lane by lane, so the width changes no bit. */
#ifndef FASTES_LANES_H
#define FASTES_LANES_H

#include "fastes_core.h"
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define LANES_INLINE static inline __attribute__((always_inline))

#endif
