/* SPDX-License-Identifier: MIT */
/* The loop of adadelta.c for one element type: REAL, named TYPE, with its square root ROOT. */

CZ_BODY void CZ_TYPED(adadelta_loop)(bool decays, int64_t count, REAL *restrict p,
                                     const REAL *restrict g, REAL *restrict s, REAL *restrict a,
                                     const double *c)
{
    const REAL rate = (REAL)c[CZ__ADADELTA_RATE], sign = (REAL)c[CZ__ADADELTA_SIGN];
    const REAL keep = (REAL)c[CZ__ADADELTA_KEEP], take = (REAL)c[CZ__ADADELTA_TAKE];
    const REAL eps = (REAL)c[CZ__ADADELTA_EPS], decay = (REAL)c[CZ__ADADELTA_DECAY];
    for (int64_t i = 0; i < count; i++) {
        REAL d = sign * g[i];
        if (decays)
            d = d + decay * p[i];
        s[i] = s[i] * keep + (take * d) * d;
        const REAL delta = (ROOT(a[i] + eps) / ROOT(s[i] + eps)) * d;
        a[i] = a[i] * keep + (take * delta) * delta;
        p[i] = p[i] + rate * delta;
    }
}

CZ_UPDATE(adadelta, TYPE)
{
    if (flags & CZ__ADADELTA_DECAYS)
        CZ_TYPED(adadelta_loop)(true, count, param, grad, slots[0], slots[1], coefficients);
    else
        CZ_TYPED(adadelta_loop)(false, count, param, grad, slots[0], slots[1], coefficients);
}
