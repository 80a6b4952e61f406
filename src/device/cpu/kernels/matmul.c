/* SPDX-License-Identifier: MIT */
/* c = alpha a b + beta addend, for matrices row by row in memory.
 *
 * Blocks of both factors are copied into panels that caches hold: of a MR rows side by side, of b
 * NR columns. A tile of MR x NR elements of c stays in registers while it goes along them. An
 * element is the sum over blocks of DEPTH products, each added up one after the other; so tiles,
 * which are of another size at each level, are in no bit. */
#include "device/cpu/kernels/kernel.h"

#include <string.h>

/* How long a vector is, and how many rows of them registers hold. */
#if defined __AVX512F__
enum { VECTOR = 64, MR = 8 };
#elif defined __AVX__
enum { VECTOR = 32, MR = 4 };
#else
enum { VECTOR = 16, MR = 4 };
#endif

enum { DEPTH = 256, BYTES_OF_A = 256 << 10, BYTES_OF_B = 768 << 10, MIRRORED = 32 };
_Static_assert(BYTES_OF_A + BYTES_OF_B <= CZ_MATMUL_SCRATCH,
               "both panels are in the scratch memory");

#define BODY "device/cpu/kernels/matmul_body.h"
#include "device/cpu/kernels/each_float.h"
