/* SPDX-License-Identifier: MIT */
/* The loop of rmsprop.c for one element type: REAL, named TYPE, with its square root ROOT. The
 * momentum buffer b is used if there is one, and the mean a if it is centered. */

CZ_BODY void CZ_TYPED(rmsprop_loop)(bool centered, enum moment mean, bool momentum, bool decays,
                                    int64_t count, REAL *restrict p, const REAL *restrict g,
                                    REAL *restrict s, REAL *restrict b, REAL *restrict a,
                                    const double *c)
{
    const REAL rate = (REAL)c[CZ__RMSPROP_RATE], sign = (REAL)c[CZ__RMSPROP_SIGN];
    const REAL keep = (REAL)c[CZ__RMSPROP_KEEP], take = (REAL)c[CZ__RMSPROP_TAKE];
    const REAL eps = (REAL)c[CZ__RMSPROP_EPS], decay = (REAL)c[CZ__RMSPROP_DECAY];
    const REAL factor = (REAL)c[CZ__RMSPROP_MOMENTUM], rest = (REAL)1 - take;
    for (int64_t i = 0; i < count; i++) {
        REAL d = sign * g[i];
        if (decays)
            d = d + decay * p[i];
        s[i] = s[i] * keep + (take * d) * d;
        REAL square = s[i];
        if (centered) {
            a[i] = CZ_MOMENT(mean, a[i], d, keep, take, rest);
            square = square - a[i] * a[i];
        }
        const REAL root = ROOT(square) + eps;
        if (momentum) {
            b[i] = b[i] * factor + d / root;
            p[i] = p[i] + rate * b[i];
        } else {
            p[i] = p[i] + (rate * d) / root;
        }
    }
}

CZ_BODY void CZ_TYPED(rmsprop_mean)(bool centered, enum moment mean, int64_t count, void *param,
                                    const void *grad, void *const *slots,
                                    const double *coefficients, unsigned flags)
{
#define RMSPROP_LOOP CZ_TYPED(rmsprop_loop)
#define LOOP(momentum, decays)                                                                     \
    RMSPROP_LOOP(centered, mean, momentum, decays, count, param, grad, slots[0], slots[1],         \
                 slots[2], coefficients)
    const bool decays = flags & CZ__RMSPROP_DECAYS;
    if (slots[1])
        decays ? LOOP(true, true) : LOOP(true, false);
    else
        decays ? LOOP(false, true) : LOOP(false, false);
#undef LOOP
#undef RMSPROP_LOOP
}

CZ_UPDATE(rmsprop, TYPE)
{
#define RMSPROP_MEAN CZ_TYPED(rmsprop_mean)
#define MEAN(centered, mean)                                                                       \
    RMSPROP_MEAN(centered, mean, count, param, grad, slots, coefficients, flags)
#define CENTERED(mean) MEAN(true, mean)
    if (!slots[2])
        MEAN(false, SUM);
    else
        CZ_FOR_MOMENT(CZ_MOMENT_OF(flags & CZ__RMSPROP_LERP, (REAL)coefficients[CZ__RMSPROP_TAKE]),
                      CENTERED);
#undef CENTERED
#undef MEAN
#undef RMSPROP_MEAN
}
