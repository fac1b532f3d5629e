/* The kernels compiled for any processor of an architecture without further variants: SSE2 on x86-64. */
#include "variant.h"

#if !defined(__aarch64__)
#define FASTES_VARIANT baseline
#define VECTOR_LANES 4
#include "kernel_table.inc"
#endif
