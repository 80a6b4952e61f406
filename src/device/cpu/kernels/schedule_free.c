/* SPDX-License-Identifier: MIT */
/* The gradient g is one at y, the parameter; z is where plain steps lead, its weighted mean x what
 * to evaluate with, and y = (1 - b1) z + b1 x. A step d is g, or with AdamW's second moment
 * g / (sqrt(v) / sqrt(1 - b2^t) + eps), and decay y more:
 * y = y + c (z - y) - lr (1 - b1 (1 - c)) d;  z = z - lr d, where c is the weight of the new z in
 * x. Defazio et al., arXiv:2405.15682. */
#include "device/coefficients.h"
#include "device/cpu/kernels/kernel.h"

#define BODY "device/cpu/kernels/schedule_free_body.h"
#include "device/cpu/kernels/each_float.h"
