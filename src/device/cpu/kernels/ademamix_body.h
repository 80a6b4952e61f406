/* SPDX-License-Identifier: MIT */
/* The loop of ademamix.c for one element type: REAL, named TYPE. */

CZ_BODY void CZ_TYPED(ademamix_loop)(int64_t count, REAL *restrict p, const REAL *restrict g,
                                     REAL *restrict m, REAL *restrict s, REAL *restrict v,
                                     const double *c)
{
    const REAL fast = (REAL)c[CZ__ADEMAMIX_RATE_FAST], slow = (REAL)c[CZ__ADEMAMIX_RATE_SLOW];
    const REAL sign = (REAL)c[CZ__ADEMAMIX_SIGN], decay = (REAL)c[CZ__ADEMAMIX_DECAY];
    const REAL keep1 = (REAL)c[CZ__ADEMAMIX_KEEP1], take1 = (REAL)c[CZ__ADEMAMIX_TAKE1];
    const REAL keep2 = (REAL)c[CZ__ADEMAMIX_KEEP2], take2 = (REAL)c[CZ__ADEMAMIX_TAKE2];
    const REAL keep3 = (REAL)c[CZ__ADEMAMIX_KEEP3], take3 = (REAL)c[CZ__ADEMAMIX_TAKE3];
    const REAL root = (REAL)c[CZ__ADEMAMIX_ROOT], eps = (REAL)c[CZ__ADEMAMIX_EPS];
    for (int64_t i = 0; i < count; i++) {
        const REAL d = sign * g[i];
        m[i] = m[i] * keep1 + take1 * d;
        s[i] = s[i] * keep3 + take3 * d;
        v[i] = v[i] * keep2 + (take2 * d) * d;
        p[i] = p[i] * decay + (fast * m[i] + slow * s[i]) / (ROOT(v[i]) / root + eps);
    }
}

CZ_UPDATE(ademamix, TYPE)
{
    CZ_TYPED(ademamix_loop)(count, param, grad, slots[0], slots[1], slots[2], coefficients);
}
