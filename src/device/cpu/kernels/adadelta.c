/* SPDX-License-Identifier: MIT */
/* s = rho s + (1 - rho) g^2;  d = sqrt(a + eps) / sqrt(s + eps) g;  a = rho a + (1 - rho) d^2;
 * p = p - lr d. Zeiler, arXiv:1212.5701. */
#include "device/coefficients.h"
#include "device/cpu/kernels/kernel.h"

#include <math.h>

#define REAL float
#define TYPE f32
#define ROOT sqrtf
#include "device/cpu/kernels/adadelta_body.h"
#undef REAL
#undef TYPE
#undef ROOT

#define REAL double
#define TYPE f64
#define ROOT sqrt
#include "device/cpu/kernels/adadelta_body.h"
