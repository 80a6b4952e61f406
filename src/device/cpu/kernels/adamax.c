/* SPDX-License-Identifier: MIT */
/* m = b1 m + (1 - b1) g;  u = max(b2 u, |g| + eps);  p = p - lr / (1 - b1^t) m / u.
 * Kingma and Ba, arXiv:1412.6980, section 7.1. */
#include "device/coefficients.h"
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/moment.h"

#define BODY "device/cpu/kernels/adamax_body.h"
#include "device/cpu/kernels/each_float.h"
