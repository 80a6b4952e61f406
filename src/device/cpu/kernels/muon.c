/* SPDX-License-Identifier: MIT */
/* Before the matrix products b = lerp(b, g, 1 - u), move = lerp(g, b, u) or b;  after them
 * p = p (1 - lr decay) - lr move.  Jordan et al., "Muon" (2024); products: src/rule/muon.c. */
#include "device/coefficients.h"
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/moment.h"

#define BODY "device/cpu/kernels/muon_body.h"
#include "device/cpu/kernels/each_float.h"
