/* SPDX-License-Identifier: MIT */
/* A step size for each element: times eta_plus where the gradient keeps its sign, times eta_minus
 * where it changes it, and there the gradient counts as 0;  p = p - sign(g) step_size. Riedmiller
 * and Braun, ICNN 1993, without weight backtracking. */
#include "device/coefficients.h"
#include "device/cpu/kernels/kernel.h"

#define BODY "device/cpu/kernels/rprop_body.h"
#include "device/cpu/kernels/each_float.h"
