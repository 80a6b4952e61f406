/* SPDX-License-Identifier: MIT */
/* d = g + decay p;  b = momentum b + (1 - dampening) d, at first b = d;  p = p - lr b, with
 * Nesterov p - lr (d + momentum b), without momentum p - lr d. What sgd.c and lars.c share. */
#ifndef CZ_DEVICE_CPU_KERNELS_SGD_H
#define CZ_DEVICE_CPU_KERNELS_SGD_H

#include "device/coefficients.h"
#include "device/cpu/kernels/kernel.h"

/* The momentum buffer: not in use, to be made from this gradient, or there already. */
enum buffer { NONE, NEW, OLD };

#define BODY "device/cpu/kernels/sgd_body.h"
#include "device/cpu/kernels/each_float.h"

#endif
