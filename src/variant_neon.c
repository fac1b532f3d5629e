/* The kernels compiled for NEON, which every processor of arm64 has. */
#include "variant.h"

#if defined(__aarch64__)
#define FASTES_VARIANT neon
#define VECTOR_LANES 4
#include "kernel_table.inc"
#endif
