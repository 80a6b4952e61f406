/* SPDX-License-Identifier: MIT */
/* s = s + g^2;  p = p - lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps).
 * Duchi, Hazan and Singer, JMLR 12 (2011). */
#include "device/coefficients.h"
#include "device/cpu/kernels/kernel.h"

#include <math.h>

#define REAL float
#define TYPE f32
#define ROOT sqrtf
#include "device/cpu/kernels/adagrad_body.h"
#undef REAL
#undef TYPE
#undef ROOT

#define REAL double
#define TYPE f64
#define ROOT sqrt
#include "device/cpu/kernels/adagrad_body.h"
