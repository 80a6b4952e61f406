/* SPDX-License-Identifier: MIT */
/* s = s + g^2;  p = p - lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps).
 * Duchi, Hazan and Singer, JMLR 12 (2011). */
#include "device/coefficients.h"
#include "device/cpu/kernels/kernel.h"

#define BODY "device/cpu/kernels/adagrad_body.h"
#include "device/cpu/kernels/each_float.h"
