/* SPDX-License-Identifier: MIT */
/* The loop of adam_mini.c for one element type: REAL, named TYPE. The denominator is in the
 * rate. */

CZ_BODY void CZ_TYPED(adam_mini_loop)(int64_t count, REAL *restrict p, const REAL *restrict g,
                                      REAL *restrict m, const double *c)
{
    const REAL rate = (REAL)c[CZ__ADAM_MINI_RATE], sign = (REAL)c[CZ__ADAM_MINI_SIGN];
    const REAL keep = (REAL)c[CZ__ADAM_MINI_KEEP], take = (REAL)c[CZ__ADAM_MINI_TAKE];
    const REAL decay = (REAL)c[CZ__ADAM_MINI_DECAY];
    for (int64_t i = 0; i < count; i++) {
        m[i] = m[i] * keep + take * (sign * g[i]);
        p[i] = p[i] * decay + rate * m[i];
    }
}

CZ_UPDATE(adam_mini, TYPE)
{
    CZ_TYPED(adam_mini_loop)(count, param, grad, slots[0], coefficients);
}
