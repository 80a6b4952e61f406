/* SPDX-License-Identifier: MIT */
/* m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  p = p - lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 -
 * b2^t) + eps); AMSGrad has the largest v so far in its place. What adam.c and adamw.c share. */
#ifndef CZ_DEVICE_CPU_KERNELS_ADAM_H
#define CZ_DEVICE_CPU_KERNELS_ADAM_H

#include "device/coefficients.h"
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/moment.h"

#include <math.h>

enum decay { DECAY_NONE, DECAY_GRADIENT, DECAY_PARAMETER };

#define REAL float
#define TYPE f32
#define ROOT sqrtf
#include "device/cpu/kernels/adam_body.h"
#undef REAL
#undef TYPE
#undef ROOT

#define REAL double
#define TYPE f64
#define ROOT sqrt
#include "device/cpu/kernels/adam_body.h"
#undef REAL
#undef TYPE
#undef ROOT

#endif
