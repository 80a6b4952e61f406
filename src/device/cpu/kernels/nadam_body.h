/* SPDX-License-Identifier: MIT */
/* The loop of nadam.c for one element type: REAL, named TYPE, with its square root ROOT. */

CZ_BODY void CZ_TYPED(nadam_loop)(enum moment moment, bool decays, bool decoupled, int64_t count,
                                  REAL *restrict p, const REAL *restrict g, REAL *restrict m,
                                  REAL *restrict v, const double *c)
{
    const REAL sign = (REAL)c[CZ__NADAM_SIGN], eps = (REAL)c[CZ__NADAM_EPS];
    const REAL keep1 = (REAL)c[CZ__NADAM_KEEP1], take1 = (REAL)c[CZ__NADAM_TAKE1];
    const REAL keep2 = (REAL)c[CZ__NADAM_KEEP2], take2 = (REAL)c[CZ__NADAM_TAKE2];
    const REAL decay = (REAL)c[CZ__NADAM_DECAY], rest1 = (REAL)1 - take1;
    const REAL bias2 = (REAL)c[CZ__NADAM_BIAS2];
    const REAL rate_gradient = (REAL)c[CZ__NADAM_RATE_GRADIENT];
    const REAL rate_moment = (REAL)c[CZ__NADAM_RATE_MOMENT];
    for (int64_t i = 0; i < count; i++) {
        REAL d = sign * g[i], w = p[i];
        if (decays && decoupled)
            w = w * decay;
        if (decays && !decoupled)
            d = d + decay * w;
        m[i] = CZ_MOMENT(moment, m[i], d, keep1, take1, rest1);
        v[i] = v[i] * keep2 + (take2 * d) * d;
        const REAL root = ROOT(v[i] / bias2) + eps;
        w = w + (rate_gradient * d) / root;
        p[i] = w + (rate_moment * m[i]) / root;
    }
}

CZ_BODY void CZ_TYPED(nadam_moment)(enum moment moment, int64_t count, void *param,
                                    const void *grad, void *const *slots,
                                    const double *coefficients, unsigned flags)
{
#define NADAM_LOOP CZ_TYPED(nadam_loop)
#define LOOP(decays, decoupled)                                                                    \
    NADAM_LOOP(moment, decays, decoupled, count, param, grad, slots[0], slots[1], coefficients)
    if (!(flags & CZ__NADAM_DECAYS))
        LOOP(false, false);
    else
        flags &CZ__NADAM_DECOUPLED ? LOOP(true, true) : LOOP(true, false);
#undef LOOP
#undef NADAM_LOOP
}

CZ_UPDATE(nadam, TYPE)
{
#define NADAM_MOMENT CZ_TYPED(nadam_moment)
#define MOMENT(moment) NADAM_MOMENT(moment, count, param, grad, slots, coefficients, flags)
    CZ_FOR_MOMENT(CZ_MOMENT_OF(flags & CZ__NADAM_LERP, (REAL)coefficients[CZ__NADAM_TAKE1]),
                  MOMENT);
#undef MOMENT
#undef NADAM_MOMENT
}
