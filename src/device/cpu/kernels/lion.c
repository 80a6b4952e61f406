/* SPDX-License-Identifier: MIT */
/* p = p (1 - lr decay) - lr sign(b1 m + (1 - b1) g);  then m = b2 m + (1 - b2) g.
 * Chen et al., arXiv:2302.06675. */
#include "device/coefficients.h"
#include "device/cpu/kernels/kernel.h"

#define BODY "device/cpu/kernels/lion_body.h"
#include "device/cpu/kernels/each_float.h"
