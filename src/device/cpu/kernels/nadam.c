/* SPDX-License-Identifier: MIT */
/* m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  n = sqrt(v / (1 - b2^t)) + eps; p = p - lr (1 -
 * mu) / (1 - product) g / n - lr mu' / (1 - product mu') m / n, with mu = b1 (1 - 0.96^(t
 * momentum_decay) / 2), mu' that of the next step, and the product of all mu so far. Dozat, ICLR
 * workshop 2016. */
#include "device/coefficients.h"
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/moment.h"

#define BODY "device/cpu/kernels/nadam_body.h"
#include "device/cpu/kernels/each_float.h"
