/* SPDX-License-Identifier: MIT */
/* m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) mean(g^2), one number for the whole parameter;
 * p = p (1 - lr decay) - lr / (1 - b1^t) / (sqrt(v) / sqrt(1 - b2^t) + eps) m.
 * Zhang et al., arXiv:2406.16793. */
#include "device/coefficients.h"
#include "device/cpu/kernels/kernel.h"

#define BODY "device/cpu/kernels/adam_mini_body.h"
#include "device/cpu/kernels/each_float.h"
