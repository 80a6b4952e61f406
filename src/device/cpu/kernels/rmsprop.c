/* SPDX-License-Identifier: MIT */
/* s = alpha s + (1 - alpha) g^2;  p = p - lr g / (sqrt(s) + eps). Centered: a = alpha a + (1 -
 * alpha) g, and s - a^2 for s. With momentum: b = momentum b + g / (sqrt(s) + eps);  p = p - lr b.
 * Tieleman and Hinton, Neural Networks for Machine Learning, lecture 6.5 (2012); centered: Graves,
 * arXiv:1308.0850. */
#include "device/coefficients.h"
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/moment.h"

#define BODY "device/cpu/kernels/rmsprop_body.h"
#include "device/cpu/kernels/each_float.h"
