/* SPDX-License-Identifier: MIT */
/* m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  u = m / (1 - b1^t) / (sqrt(v) / sqrt(1 - b2^t)
 * + eps) + decay p;  p = p - lr trust u, where trust = |p| / |u|. You et al., arXiv:1904.00962,
 * algorithm 2. `lamb_moves` is the first of the two passes: it leaves u in a third slot. */
#include "device/coefficients.h"
#include "device/cpu/kernels/kernel.h"

#define BODY "device/cpu/kernels/lamb_body.h"
#include "device/cpu/kernels/each_float.h"
