/* SPDX-License-Identifier: MIT */
/* The loop of adagrad.c for one element type: REAL, named TYPE, with its square root ROOT. */

CZ_BODY void CZ_TYPED(adagrad_loop)(bool decays, int64_t count, REAL *restrict p,
                                    const REAL *restrict g, REAL *restrict s, const double *c)
{
    const REAL rate = (REAL)c[CZ__ADAGRAD_RATE], sign = (REAL)c[CZ__ADAGRAD_SIGN];
    const REAL eps = (REAL)c[CZ__ADAGRAD_EPS], decay = (REAL)c[CZ__ADAGRAD_DECAY];
    for (int64_t i = 0; i < count; i++) {
        REAL d = sign * g[i];
        if (decays)
            d = d + decay * p[i];
        s[i] = s[i] + d * d;
        p[i] = p[i] + (rate * d) / (ROOT(s[i]) + eps);
    }
}

CZ_UPDATE(adagrad, TYPE)
{
    if (flags & CZ__ADAGRAD_DECAYS)
        CZ_TYPED(adagrad_loop)(true, count, param, grad, slots[0], coefficients);
    else
        CZ_TYPED(adagrad_loop)(false, count, param, grad, slots[0], coefficients);
}
