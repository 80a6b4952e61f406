/* SPDX-License-Identifier: MIT */
/* The loops of lamb.c for one element type: REAL, named TYPE. */

CZ_BODY REAL CZ_TYPED(lamb_move)(REAL p, REAL m, REAL v, const double *c)
{
    const REAL root = (REAL)c[CZ__LAMB_ROOT], eps = (REAL)c[CZ__LAMB_EPS];
    return (m * (REAL)c[CZ__LAMB_FACTOR]) / (ROOT(v) / root + eps) + (REAL)c[CZ__LAMB_DECAY] * p;
}

CZ_BODY void CZ_TYPED(lamb_first)(int64_t count, const REAL *restrict p, const REAL *restrict g,
                                  REAL *restrict m, REAL *restrict v, REAL *restrict u,
                                  const double *c)
{
    const REAL sign = (REAL)c[CZ__LAMB_SIGN];
    const REAL keep1 = (REAL)c[CZ__LAMB_KEEP1], take1 = (REAL)c[CZ__LAMB_TAKE1];
    const REAL keep2 = (REAL)c[CZ__LAMB_KEEP2], take2 = (REAL)c[CZ__LAMB_TAKE2];
    for (int64_t i = 0; i < count; i++) {
        const REAL d = sign * g[i];
        m[i] = m[i] * keep1 + take1 * d;
        v[i] = v[i] * keep2 + (take2 * d) * d;
        u[i] = CZ_TYPED(lamb_move)(p[i], m[i], v[i], c);
    }
}

CZ_BODY void CZ_TYPED(lamb_second)(int64_t count, REAL *restrict p, const REAL *restrict m,
                                   const REAL *restrict v, const double *c)
{
    const REAL rate = (REAL)c[CZ__LAMB_RATE];
    for (int64_t i = 0; i < count; i++)
        p[i] = p[i] + rate * CZ_TYPED(lamb_move)(p[i], m[i], v[i], c);
}

CZ_UPDATE(lamb_moves, TYPE)
{
    CZ_TYPED(lamb_first)(count, param, grad, slots[0], slots[1], slots[2], coefficients);
}

CZ_UPDATE(lamb, TYPE)
{
    CZ_TYPED(lamb_second)(count, param, slots[0], slots[1], coefficients);
}
