/* SPDX-License-Identifier: MIT */
/* Stochastic gradient descent, as in sgd.h. Robbins and Monro, Ann. Math. Statist. 22 (1951);
 * Sutskever et al., ICML 2013. */
#include "device/cpu/kernels/sgd.h"

CZ_UPDATE(sgd, f32)
{
    sgd_variant_f32(false, count, param, grad, slots, coefficients, flags);
}

CZ_UPDATE(sgd, f64)
{
    sgd_variant_f64(false, count, param, grad, slots, coefficients, flags);
}
