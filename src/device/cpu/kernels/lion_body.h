/* SPDX-License-Identifier: MIT */
/* The loop of lion.c for one element type: REAL, named TYPE. */

CZ_BODY void CZ_TYPED(lion_loop)(int64_t count, REAL *restrict p, const REAL *restrict g,
                                 REAL *restrict m, const double *c)
{
    const REAL rate = (REAL)c[CZ__LION_RATE], sign = (REAL)c[CZ__LION_SIGN];
    const REAL keep1 = (REAL)c[CZ__LION_KEEP1], take1 = (REAL)c[CZ__LION_TAKE1];
    const REAL keep2 = (REAL)c[CZ__LION_KEEP2], take2 = (REAL)c[CZ__LION_TAKE2];
    const REAL decay = (REAL)c[CZ__LION_DECAY];
    for (int64_t i = 0; i < count; i++) {
        const REAL d = sign * g[i], mixed = m[i] * keep1 + take1 * d;
        REAL way = mixed; /* a zero and a NaN stay what they are */
        if (mixed > 0)
            way = 1;
        if (mixed < 0)
            way = -1;
        p[i] = p[i] * decay + rate * way;
        m[i] = m[i] * keep2 + take2 * d;
    }
}

CZ_UPDATE(lion, TYPE)
{
    CZ_TYPED(lion_loop)(count, param, grad, slots[0], coefficients);
}
