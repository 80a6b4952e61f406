/* SPDX-License-Identifier: MIT */
/* The loops of muon.c for one element type: REAL, named TYPE. */

CZ_BODY void CZ_TYPED(muon_moves_loop)(enum moment moment, enum moment ahead, bool nesterov,
                                       int64_t count, const REAL *restrict g, REAL *restrict b,
                                       REAL *restrict move, const double *c)
{
    const REAL sign = (REAL)c[CZ__MUON_SIGN], take = (REAL)c[CZ__MUON_TAKE];
    const REAL far = (REAL)c[CZ__MUON_MOMENTUM];
    for (int64_t i = 0; i < count; i++) {
        const REAL d = sign * g[i];
        b[i] = CZ_MOMENT(moment, b[i], d, 0, take, 1 - take);
        move[i] = nesterov ? CZ_MOMENT(ahead, d, b[i], 0, far, 1 - far) : b[i];
    }
}

CZ_UPDATE(muon_moves, TYPE)
{
    const bool nesterov = flags & CZ__MUON_NESTEROV;
    const enum moment moment = CZ_MOMENT_OF(true, (REAL)coefficients[CZ__MUON_TAKE]);
    const enum moment ahead = CZ_MOMENT_OF(true, (REAL)coefficients[CZ__MUON_MOMENTUM]);
    CZ_TYPED(muon_moves_loop)
    (moment, ahead, nesterov, count, grad, slots[0], slots[1], coefficients);
}

CZ_BODY void CZ_TYPED(muon_loop)(int64_t count, REAL *restrict p, const REAL *restrict move,
                                 const double *c)
{
    const REAL rate = (REAL)c[CZ__MUON_RATE], decay = (REAL)c[CZ__MUON_DECAY];
    for (int64_t i = 0; i < count; i++)
        p[i] = p[i] * decay + rate * move[i];
}

CZ_UPDATE(muon, TYPE)
{
    CZ_TYPED(muon_loop)(count, param, grad, coefficients);
}
