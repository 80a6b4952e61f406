/* SPDX-License-Identifier: MIT */
/* What the built-in rules hand to their kernels: places in `coefficients` and bits of `flags`.
 * src/rule/ fills them in, the kernels of each device read them. */
#ifndef CZ_DEVICE_COEFFICIENTS_H
#define CZ_DEVICE_COEFFICIENTS_H

/* SGD and LARS. */
enum cz__sgd_coefficient {
    CZ__SGD_RATE,     /* -lr */
    CZ__SGD_SIGN,     /* of the gradient: -1 to maximize, else 1 */
    CZ__SGD_MOMENTUM, /* what the buffer keeps */
    CZ__SGD_TAKE,     /* 1 - dampening: what it takes of the gradient */
    CZ__SGD_DECAY,    /* weight_decay */
    CZ__SGD_TRUST     /* LARS only: a factor of gradient and decay */
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

/* In the following, SIGN is -1 to maximize, else 1; DECAY is weight_decay, and the flag DECAYS says
 * that it is not 0; LERP is as in Adam. */

enum cz__adamax_coefficient {
    CZ__ADAMAX_RATE, /* -lr / (1 - b1^t) */
    CZ__ADAMAX_SIGN,
    CZ__ADAMAX_KEEP1, /* b1 */
    CZ__ADAMAX_TAKE1, /* 1 - b1 */
    CZ__ADAMAX_KEEP2, /* b2 */
    CZ__ADAMAX_EPS,
    CZ__ADAMAX_DECAY
};
enum cz__adamax_flag { CZ__ADAMAX_LERP = 1, CZ__ADAMAX_DECAYS = 2 };

enum cz__adadelta_coefficient {
    CZ__ADADELTA_RATE, /* -lr */
    CZ__ADADELTA_SIGN,
    CZ__ADADELTA_KEEP, /* rho */
    CZ__ADADELTA_TAKE, /* 1 - rho */
    CZ__ADADELTA_EPS,
    CZ__ADADELTA_DECAY
};
enum cz__adadelta_flag { CZ__ADADELTA_DECAYS = 1 };

enum cz__adagrad_coefficient {
    CZ__ADAGRAD_RATE, /* -lr / (1 + (t - 1) lr_decay) */
    CZ__ADAGRAD_SIGN,
    CZ__ADAGRAD_EPS,
    CZ__ADAGRAD_DECAY
};
enum cz__adagrad_flag { CZ__ADAGRAD_DECAYS = 1 };

enum cz__rmsprop_coefficient {
    CZ__RMSPROP_RATE, /* -lr */
    CZ__RMSPROP_SIGN,
    CZ__RMSPROP_KEEP, /* alpha */
    CZ__RMSPROP_TAKE, /* 1 - alpha */
    CZ__RMSPROP_EPS,
    CZ__RMSPROP_MOMENTUM,
    CZ__RMSPROP_DECAY
};
enum cz__rmsprop_flag { CZ__RMSPROP_LERP = 1, CZ__RMSPROP_DECAYS = 2 };

enum cz__rprop_coefficient {
    CZ__RPROP_SIGN,
    CZ__RPROP_MINUS, /* what a step size is multiplied with where the gradient changed its sign */
    CZ__RPROP_PLUS,  /* and where it kept it */
    CZ__RPROP_MINIMUM,
    CZ__RPROP_MAXIMUM
};

/* NAdam and RAdam, t the step. A decoupled decay is 1 - lr weight_decay, a factor of the
 * parameter. */
enum cz__nadam_coefficient {
    CZ__NADAM_SIGN,
    CZ__NADAM_KEEP1, /* b1 */
    CZ__NADAM_TAKE1, /* 1 - b1 */
    CZ__NADAM_KEEP2, /* b2 */
    CZ__NADAM_TAKE2, /* 1 - b2 */
    CZ__NADAM_EPS,
    CZ__NADAM_DECAY,
    CZ__NADAM_BIAS2,         /* 1 - b2^t */
    CZ__NADAM_RATE_GRADIENT, /* -lr (1 - mu) / (1 - product) */
    CZ__NADAM_RATE_MOMENT    /* -lr mu' / (1 - product mu') */
};
enum cz__nadam_flag { CZ__NADAM_LERP = 1, CZ__NADAM_DECAYS = 2, CZ__NADAM_DECOUPLED = 4 };

enum cz__radam_coefficient {
    CZ__RADAM_SIGN,
    CZ__RADAM_KEEP1, /* b1 */
    CZ__RADAM_TAKE1, /* 1 - b1 */
    CZ__RADAM_KEEP2, /* b2 */
    CZ__RADAM_TAKE2, /* 1 - b2 */
    CZ__RADAM_EPS,
    CZ__RADAM_DECAY,
    CZ__RADAM_BIAS1, /* 1 - b1^t */
    CZ__RADAM_LR,
    CZ__RADAM_ROOT,  /* sqrt(1 - b2^t) */
    CZ__RADAM_FACTOR /* the rectification */
};
enum cz__radam_flag {
    CZ__RADAM_LERP = 1,
    CZ__RADAM_DECAYS = 2,
    CZ__RADAM_DECOUPLED = 4,
    CZ__RADAM_RECTIFIES =
        8 /* the step has a factor, and divides by the root of the second moment */
};

/* In the following a decay is 1 - lr weight_decay, a factor of the parameter, where it is not said
 * otherwise. */

enum cz__lion_coefficient {
    CZ__LION_RATE, /* -lr */
    CZ__LION_SIGN,
    CZ__LION_KEEP1, /* b1, of the mixture whose sign is taken */
    CZ__LION_TAKE1, /* 1 - b1 */
    CZ__LION_KEEP2, /* b2, of the moment */
    CZ__LION_TAKE2, /* 1 - b2 */
    CZ__LION_DECAY
};

enum cz__lamb_coefficient {
    CZ__LAMB_RATE, /* -lr trust; set between the passes */
    CZ__LAMB_SIGN,
    CZ__LAMB_KEEP1,  /* b1 */
    CZ__LAMB_TAKE1,  /* 1 - b1 */
    CZ__LAMB_KEEP2,  /* b2 */
    CZ__LAMB_TAKE2,  /* 1 - b2 */
    CZ__LAMB_FACTOR, /* 1 / (1 - b1^t), or 1 */
    CZ__LAMB_ROOT,   /* sqrt(1 - b2^t), or 1 */
    CZ__LAMB_EPS,
    CZ__LAMB_DECAY /* weight_decay */
};

enum cz__ademamix_coefficient {
    CZ__ADEMAMIX_RATE_FAST, /* -lr / (1 - b1^t) */
    CZ__ADEMAMIX_RATE_SLOW, /* -lr alpha */
    CZ__ADEMAMIX_SIGN,
    CZ__ADEMAMIX_KEEP1, /* b1 */
    CZ__ADEMAMIX_TAKE1, /* 1 - b1 */
    CZ__ADEMAMIX_KEEP2, /* b2 */
    CZ__ADEMAMIX_TAKE2, /* 1 - b2 */
    CZ__ADEMAMIX_KEEP3, /* b3, of the slow moment */
    CZ__ADEMAMIX_TAKE3, /* 1 - b3 */
    CZ__ADEMAMIX_ROOT,  /* sqrt(1 - b2^t) */
    CZ__ADEMAMIX_EPS,
    CZ__ADEMAMIX_DECAY
};

/* Both schedule-free rules; the last four are AdamW's. */
enum cz__schedule_free_coefficient {
    CZ__SCHEDULE_FREE_SIGN,
    CZ__SCHEDULE_FREE_DECAY,  /* weight_decay; the flag says that it is not 0 */
    CZ__SCHEDULE_FREE_MIX,    /* c: the weight of the present step in the mean */
    CZ__SCHEDULE_FREE_RATE_Y, /* -lr (1 - b1 (1 - c)) */
    CZ__SCHEDULE_FREE_RATE_Z, /* -lr */
    CZ__SCHEDULE_FREE_KEEP2,  /* b2 */
    CZ__SCHEDULE_FREE_TAKE2,  /* 1 - b2 */
    CZ__SCHEDULE_FREE_ROOT,   /* sqrt(1 - b2^t) */
    CZ__SCHEDULE_FREE_EPS
};
enum cz__schedule_free_flag { CZ__SCHEDULE_FREE_DECAYS = 1 };

enum cz__adam_mini_coefficient {
    CZ__ADAM_MINI_RATE, /* -lr / (1 - b1^t) / (sqrt(v) / sqrt(1 - b2^t) + eps); set between the
                           passes */
    CZ__ADAM_MINI_SIGN,
    CZ__ADAM_MINI_KEEP, /* b1 */
    CZ__ADAM_MINI_TAKE, /* 1 - b1 */
    CZ__ADAM_MINI_DECAY
};

enum cz__muon_coefficient {
    CZ__MUON_RATE, /* -lr; of a matrix times what its shape says */
    CZ__MUON_SIGN,
    CZ__MUON_TAKE,     /* 1 - momentum: what the buffer takes of the gradient */
    CZ__MUON_MOMENTUM, /* what Nesterov's look ahead takes of the buffer */
    CZ__MUON_DECAY,
    CZ__MUON_EPS,
    CZ__MUON_STEPS, /* of Newton and Schulz; the next three are of their polynomial */
    CZ__MUON_A,
    CZ__MUON_B,
    CZ__MUON_C,
    CZ__MUON_ADJUST /* how the shape changes the rate: adjust_lr_fn */
};
enum cz__muon_flag { CZ__MUON_NESTEROV = 1 };

#endif
