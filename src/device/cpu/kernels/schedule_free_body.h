/* SPDX-License-Identifier: MIT */
/* The loop of schedule_free.c for one element type: REAL, named TYPE. */

CZ_BODY void CZ_TYPED(schedule_free_loop)(bool adaptive, bool first, bool decays, int64_t count,
                                          REAL *restrict y, const REAL *restrict g,
                                          REAL *restrict z, REAL *restrict v, const double *c)
{
    const REAL sign = (REAL)c[CZ__SCHEDULE_FREE_SIGN], decay = (REAL)c[CZ__SCHEDULE_FREE_DECAY];
    const REAL mix = (REAL)c[CZ__SCHEDULE_FREE_MIX];
    const REAL rate_y = (REAL)c[CZ__SCHEDULE_FREE_RATE_Y];
    const REAL rate_z = (REAL)c[CZ__SCHEDULE_FREE_RATE_Z];
    const REAL keep2 = (REAL)c[CZ__SCHEDULE_FREE_KEEP2], take2 = (REAL)c[CZ__SCHEDULE_FREE_TAKE2];
    const REAL root = (REAL)c[CZ__SCHEDULE_FREE_ROOT], eps = (REAL)c[CZ__SCHEDULE_FREE_EPS];
    for (int64_t i = 0; i < count; i++) {
        const REAL here = y[i], there = first ? here : z[i];
        REAL d = sign * g[i];
        if (adaptive) {
            v[i] = v[i] * keep2 + (take2 * d) * d;
            d = d / (ROOT(v[i]) / root + eps);
        }
        if (decays)
            d = d + decay * here;
        y[i] = (here + mix * (there - here)) + rate_y * d;
        z[i] = there + rate_z * d;
    }
}

#define SCHEDULE_FREE_LOOP CZ_TYPED(schedule_free_loop)
#define LOOP(adaptive, first, decays)                                                              \
    SCHEDULE_FREE_LOOP(adaptive, first, decays, count, param, grad, slots[0],                      \
                       adaptive ? slots[1] : NULL, coefficients)
#define EITHER(adaptive)                                                                           \
    do {                                                                                           \
        const bool decays = flags & CZ__SCHEDULE_FREE_DECAYS;                                      \
        if (flags & CZ_UPDATE_FIRST)                                                               \
            decays ? LOOP(adaptive, true, true) : LOOP(adaptive, true, false);                     \
        else                                                                                       \
            decays ? LOOP(adaptive, false, true) : LOOP(adaptive, false, false);                   \
    } while (0)

CZ_UPDATE(schedule_free_sgd, TYPE)
{
    EITHER(false);
}

CZ_UPDATE(schedule_free_adamw, TYPE)
{
    EITHER(true);
}
#undef EITHER
#undef LOOP
#undef SCHEDULE_FREE_LOOP
