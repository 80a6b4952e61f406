/* SPDX-License-Identifier: MIT */
/* s = rho s + (1 - rho) g^2;  d = sqrt(a + eps) / sqrt(s + eps) g;  a = rho a + (1 - rho) d^2;
 * p = p - lr d. Zeiler, arXiv:1212.5701. */
#include "device/coefficients.h"
#include "device/cpu/kernels/kernel.h"

#define BODY "device/cpu/kernels/adadelta_body.h"
#include "device/cpu/kernels/each_float.h"
