/* Included by a variant before its target is set: intrinsics are declared for the compiler's own target. */
#ifndef FASTES_VARIANT_H
#define FASTES_VARIANT_H

#include "fastes_core.h"
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define KERNEL_INLINE static inline __attribute__((always_inline))

#endif
