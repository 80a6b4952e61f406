/* SPDX-License-Identifier: MIT */
/* A step size for each element: times eta_plus where the gradient keeps its sign, times eta_minus where it
 * changes it, and there the gradient counts as 0;  p = p - sign(g) step_size.
 * Riedmiller and Braun, ICNN 1993, without weight backtracking. */
#include "device/coefficients.h"
#include "device/cpu/kernels/kernel.h"

#define REAL float
#define TYPE f32
#include "device/cpu/kernels/rprop_body.h"
#undef REAL
#undef TYPE

#define REAL double
#define TYPE f64
#include "device/cpu/kernels/rprop_body.h"
