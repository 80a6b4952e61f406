/* SPDX-License-Identifier: MIT */
/* The first moment of Adam and its relatives: a weighted sum, or PyTorch's linear interpolation,
 * which starts from the nearer end. */
#ifndef CZ_DEVICE_CPU_KERNELS_MOMENT_H
#define CZ_DEVICE_CPU_KERNELS_MOMENT_H

enum moment { SUM, LERP_FROM_OLD, LERP_FROM_NEW };

/* The moment m after the gradient d. `rest` is 1 - take in the type, which is not always `keep`. */
#define CZ_MOMENT(moment, m, d, keep, take, rest)                                                  \
    ((moment) == SUM             ? (m) * (keep) + (take) * (d)                                     \
     : (moment) == LERP_FROM_OLD ? (m) + (take) * ((d) - (m))                                      \
                                 : (d) - ((d) - (m)) * (rest))

/* Which of the three, `take` being in the type. */
#define CZ_MOMENT_OF(lerp, take) (!(lerp) ? SUM : (take) < 0.5f ? LERP_FROM_OLD : LERP_FROM_NEW)

/* CALL(moment), with a constant, for the one that it is. */
#define CZ_FOR_MOMENT(moment, CALL)                                                                \
    do                                                                                             \
        switch (moment) {                                                                          \
        case SUM:                                                                                  \
            CALL(SUM);                                                                             \
            break;                                                                                 \
        case LERP_FROM_OLD:                                                                        \
            CALL(LERP_FROM_OLD);                                                                   \
            break;                                                                                 \
        case LERP_FROM_NEW:                                                                        \
            CALL(LERP_FROM_NEW);                                                                   \
            break;                                                                                 \
        }                                                                                          \
    while (0)

/* The larger one, a NaN if there is one. */
#define CZ_LARGER(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))

#endif
