/* SPDX-License-Identifier: MIT */
/* Adam, weight decay added to the gradient: g = g + decay p, then as in adam.h.
 * Kingma and Ba, arXiv:1412.6980; AMSGrad: Reddi et al., arXiv:1904.09237. */
#include "device/cpu/kernels/adam.h"

CZ_UPDATE(adam, f32)
{
    if (flags & CZ__ADAM_DECAYS)
        adam_variant_f32(DECAY_GRADIENT, count, param, grad, slots, coefficients, flags);
    else
        adam_variant_f32(DECAY_NONE, count, param, grad, slots, coefficients, flags);
}

CZ_UPDATE(adam, f64)
{
    if (flags & CZ__ADAM_DECAYS)
        adam_variant_f64(DECAY_GRADIENT, count, param, grad, slots, coefficients, flags);
    else
        adam_variant_f64(DECAY_NONE, count, param, grad, slots, coefficients, flags);
}
