/* SPDX-License-Identifier: MIT */
/* The loop of adamax.c for one element type: REAL, named TYPE. */

CZ_BODY void CZ_TYPED(adamax_loop)(enum moment moment, bool decays, int64_t count, REAL *restrict p,
                                   const REAL *restrict g, REAL *restrict m, REAL *restrict u,
                                   const double *c)
{
    const REAL rate = (REAL)c[CZ__ADAMAX_RATE], sign = (REAL)c[CZ__ADAMAX_SIGN];
    const REAL keep1 = (REAL)c[CZ__ADAMAX_KEEP1], take1 = (REAL)c[CZ__ADAMAX_TAKE1];
    const REAL keep2 = (REAL)c[CZ__ADAMAX_KEEP2], eps = (REAL)c[CZ__ADAMAX_EPS];
    const REAL decay = (REAL)c[CZ__ADAMAX_DECAY], rest1 = (REAL)1 - take1;
    for (int64_t i = 0; i < count; i++) {
        REAL d = sign * g[i];
        if (decays)
            d = d + decay * p[i];
        m[i] = CZ_MOMENT(moment, m[i], d, keep1, take1, rest1);
        const REAL kept = u[i] * keep2, seen = ABSOLUTE(d) + eps;
        u[i] = CZ_LARGER(kept, seen);
        p[i] = p[i] + (rate * m[i]) / u[i];
    }
}

CZ_UPDATE(adamax, TYPE)
{
#define ADAMAX_LOOP CZ_TYPED(adamax_loop)
#define LOOP(moment, decays)                                                                       \
    ADAMAX_LOOP(moment, decays, count, param, grad, slots[0], slots[1], coefficients)
#define EITHER(moment) (decays ? LOOP(moment, true) : LOOP(moment, false))
    const bool decays = flags & CZ__ADAMAX_DECAYS;
    CZ_FOR_MOMENT(CZ_MOMENT_OF(flags & CZ__ADAMAX_LERP, (REAL)coefficients[CZ__ADAMAX_TAKE1]),
                  EITHER);
#undef EITHER
#undef LOOP
#undef ADAMAX_LOOP
}
