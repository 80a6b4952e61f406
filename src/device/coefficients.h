/* SPDX-License-Identifier: MIT */
/* What the built-in rules hand to their kernels: places in `coefficients` and bits of `flags`.
 * src/rule/ fills them in, the kernels of each device read them. */
#ifndef CZ_DEVICE_COEFFICIENTS_H
#define CZ_DEVICE_COEFFICIENTS_H

enum cz__sgd_coefficient {
    CZ__SGD_RATE,     /* -lr */
    CZ__SGD_SIGN,     /* of the gradient: -1 to maximize, else 1 */
    CZ__SGD_MOMENTUM, /* what the buffer keeps */
    CZ__SGD_TAKE,     /* 1 - dampening: what it takes of the gradient */
    CZ__SGD_DECAY     /* weight_decay */
};
enum cz__sgd_flag {
    CZ__SGD_NESTEROV = 1, /* look ahead by the momentum */
    CZ__SGD_DECAYS = 2    /* weight_decay is not 0 */
};

/* Adam and AdamW; b1, b2 are the betas, t the step. */
enum cz__adam_coefficient {
    CZ__ADAM_RATE,  /* -lr / (1 - b1^t) */
    CZ__ADAM_SIGN,  /* of the gradient: -1 to maximize, else 1 */
    CZ__ADAM_KEEP1, /* b1 */
    CZ__ADAM_TAKE1, /* 1 - b1 */
    CZ__ADAM_KEEP2, /* b2 */
    CZ__ADAM_TAKE2, /* 1 - b2 */
    CZ__ADAM_ROOT,  /* sqrt(1 - b2^t) */
    CZ__ADAM_EPS,
    CZ__ADAM_DECAY /* Adam: weight_decay; AdamW: 1 - lr weight_decay, a factor of the parameter */
};
enum cz__adam_flag {
    CZ__ADAM_AMSGRAD = 1, /* the third slot keeps the largest second moment */
    CZ__ADAM_LERP = 2,    /* first moment by linear interpolation */
    CZ__ADAM_DECAYS = 4   /* Adam only: weight_decay is not 0 */
};

#endif
