/* SPDX-License-Identifier: MIT */
/* LARS: as in sgd.h with d = trust (g + decay p), where trust = eta |p| / (|g| + decay |p| + eps).
 * You, Gitman and Ginsburg, arXiv:1708.03888. */
#include "device/cpu/kernels/sgd.h"

CZ_UPDATE(lars, f32)
{
    sgd_variant_f32(true, count, param, grad, slots, coefficients, flags);
}

CZ_UPDATE(lars, f64)
{
    sgd_variant_f64(true, count, param, grad, slots, coefficients, flags);
}
