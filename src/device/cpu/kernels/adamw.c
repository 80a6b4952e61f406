/* SPDX-License-Identifier: MIT */
/* AdamW: Adam with the parameter shrunk first, p = p (1 - lr decay), then as in adam.h.
 * Loshchilov and Hutter, arXiv:1711.05101. */
#include "device/cpu/kernels/adam.h"

CZ_UPDATE(adamw, f32)
{
    adam_variant_f32(DECAY_PARAMETER, count, param, grad, slots, coefficients, flags);
}

CZ_UPDATE(adamw, f64)
{
    adam_variant_f64(DECAY_PARAMETER, count, param, grad, slots, coefficients, flags);
}
