/* The kernels compiled for the platform's baseline: SSE2 on x86-64, NEON on arm64. */
#include "variant.h"

#define FASTES_VARIANT baseline
#define VECTOR_LANES 4
#include "kernel_table.inc"
