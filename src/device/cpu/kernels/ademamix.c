/* SPDX-License-Identifier: MIT */
/* m = b1 m + (1 - b1) g;  s = b3 s + (1 - b3) g;  v = b2 v + (1 - b2) g^2;
 * p = p (1 - lr decay) - lr (m / (1 - b1^t) + alpha s) / (sqrt(v) / sqrt(1 - b2^t) + eps).
 * Pagliardini, Ablin and Grangier, arXiv:2409.03137. */
#include "device/coefficients.h"
#include "device/cpu/kernels/kernel.h"

#define BODY "device/cpu/kernels/ademamix_body.h"
#include "device/cpu/kernels/each_float.h"
