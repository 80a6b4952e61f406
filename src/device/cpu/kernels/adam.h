/* SPDX-License-Identifier: MIT */
/* m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  p = p - lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 -
 * b2^t) + eps); AMSGrad has the largest v so far in its place. What adam.c and adamw.c share. */
#ifndef CZ_DEVICE_CPU_KERNELS_ADAM_H
#define CZ_DEVICE_CPU_KERNELS_ADAM_H

#include "device/coefficients.h"
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/moment.h"

enum decay { DECAY_NONE, DECAY_GRADIENT, DECAY_PARAMETER };

#define BODY "device/cpu/kernels/adam_body.h"
#include "device/cpu/kernels/each_float.h"

#endif
