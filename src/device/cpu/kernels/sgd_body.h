/* SPDX-License-Identifier: MIT */
/* The loop of sgd.c and lars.c for one element type: REAL, named TYPE. */

CZ_BODY void CZ_TYPED(sgd_loop)(bool scaled, enum buffer buffer, bool nesterov, bool decays,
                                int64_t count, REAL *restrict p, const REAL *restrict g,
                                REAL *restrict b, const double *c)
{
    const REAL rate = (REAL)c[CZ__SGD_RATE], sign = (REAL)c[CZ__SGD_SIGN];
    const REAL momentum = (REAL)c[CZ__SGD_MOMENTUM], take = (REAL)c[CZ__SGD_TAKE];
    const REAL decay = (REAL)c[CZ__SGD_DECAY], trust = (REAL)c[CZ__SGD_TRUST];
    for (int64_t i = 0; i < count; i++) {
        REAL d = sign * g[i];
        if (decays)
            d = d + decay * p[i];
        if (scaled)
            d = d * trust;
        if (buffer == NEW)
            b[i] = d;
        if (buffer == OLD)
            b[i] = b[i] * momentum + take * d;
        if (buffer != NONE)
            d = nesterov ? d + momentum * b[i] : b[i];
        p[i] = p[i] + rate * d;
    }
}

CZ_BODY void CZ_TYPED(sgd_variant)(bool scaled, int64_t count, void *param, const void *grad,
                                   void *const *slots, const double *coefficients, unsigned flags)
{
#define SGD_LOOP CZ_TYPED(sgd_loop)
#define LOOP(buffer, nesterov, decays)                                                             \
    SGD_LOOP(scaled, buffer, nesterov, decays, count, param, grad, slots[0], coefficients)
    const bool nesterov = flags & CZ__SGD_NESTEROV, decays = flags & CZ__SGD_DECAYS;
    if (!slots[0])
        decays ? LOOP(NONE, false, true) : LOOP(NONE, false, false);
    else if (flags & CZ_UPDATE_FIRST && nesterov)
        decays ? LOOP(NEW, true, true) : LOOP(NEW, true, false);
    else if (flags & CZ_UPDATE_FIRST)
        decays ? LOOP(NEW, false, true) : LOOP(NEW, false, false);
    else if (nesterov)
        decays ? LOOP(OLD, true, true) : LOOP(OLD, true, false);
    else
        decays ? LOOP(OLD, false, true) : LOOP(OLD, false, false);
#undef LOOP
#undef SGD_LOOP
}
