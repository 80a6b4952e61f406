/* SPDX-License-Identifier: MIT */
/* m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  p = p - lr m / (1 - b1^t) r sqrt(1 - b2^t) /
 * (sqrt(v) + eps), and without r and the root while the variance of v cannot be had. Liu et al.,
 * arXiv:1908.03265. */
#include "device/coefficients.h"
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/moment.h"

#define BODY "device/cpu/kernels/radam_body.h"
#include "device/cpu/kernels/each_float.h"
