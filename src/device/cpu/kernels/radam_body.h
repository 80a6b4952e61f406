/* SPDX-License-Identifier: MIT */
/* The loop of radam.c for one element type: REAL, named TYPE, with its square root ROOT. */

CZ_BODY void CZ_TYPED(radam_loop)(enum moment moment, bool decays, bool decoupled, bool rectifies,
                                  int64_t count, REAL *restrict p, const REAL *restrict g,
                                  REAL *restrict m, REAL *restrict v, const double *c)
{
    const REAL sign = (REAL)c[CZ__RADAM_SIGN], eps = (REAL)c[CZ__RADAM_EPS];
    const REAL keep1 = (REAL)c[CZ__RADAM_KEEP1], take1 = (REAL)c[CZ__RADAM_TAKE1];
    const REAL keep2 = (REAL)c[CZ__RADAM_KEEP2], take2 = (REAL)c[CZ__RADAM_TAKE2];
    const REAL decay = (REAL)c[CZ__RADAM_DECAY], rest1 = (REAL)1 - take1;
    const REAL bias1 = (REAL)c[CZ__RADAM_BIAS1], lr = (REAL)c[CZ__RADAM_LR];
    const REAL root = (REAL)c[CZ__RADAM_ROOT], factor = (REAL)c[CZ__RADAM_FACTOR];
    for (int64_t i = 0; i < count; i++) {
        REAL d = sign * g[i], w = p[i];
        if (decays && decoupled)
            w = w * decay;
        if (decays && !decoupled)
            d = d + decay * w;
        m[i] = CZ_MOMENT(moment, m[i], d, keep1, take1, rest1);
        v[i] = v[i] * keep2 + (take2 * d) * d;
        REAL move = m[i] / bias1 * lr;
        if (rectifies)
            move = move * ((REAL)1 / (ROOT(v[i]) + eps) * root) * factor;
        p[i] = w - move;
    }
}

CZ_BODY void CZ_TYPED(radam_moment)(enum moment moment, int64_t count, void *param,
                                    const void *grad, void *const *slots,
                                    const double *coefficients, unsigned flags)
{
#define RADAM_LOOP CZ_TYPED(radam_loop)
#define LOOP(decays, decoupled, rectifies)                                                         \
    RADAM_LOOP(moment, decays, decoupled, rectifies, count, param, grad, slots[0], slots[1],       \
               coefficients)
    const bool rectifies = flags & CZ__RADAM_RECTIFIES;
    if (!(flags & CZ__RADAM_DECAYS))
        rectifies ? LOOP(false, false, true) : LOOP(false, false, false);
    else if (flags & CZ__RADAM_DECOUPLED)
        rectifies ? LOOP(true, true, true) : LOOP(true, true, false);
    else
        rectifies ? LOOP(true, false, true) : LOOP(true, false, false);
#undef LOOP
#undef RADAM_LOOP
}

CZ_UPDATE(radam, TYPE)
{
#define RADAM_MOMENT CZ_TYPED(radam_moment)
#define MOMENT(moment) RADAM_MOMENT(moment, count, param, grad, slots, coefficients, flags)
    CZ_FOR_MOMENT(CZ_MOMENT_OF(flags & CZ__RADAM_LERP, (REAL)coefficients[CZ__RADAM_TAKE1]),
                  MOMENT);
#undef MOMENT
#undef RADAM_MOMENT
}
