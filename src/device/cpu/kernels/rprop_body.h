/* SPDX-License-Identifier: MIT */
/* The loop of rprop.c for one element type: REAL, named TYPE. A NaN is no change of sign and moves
 * nothing. */

CZ_UPDATE(rprop, TYPE)
{
    REAL *restrict p = param, *restrict prev = slots[0], *restrict size = slots[1];
    const REAL *restrict g = grad;
    const double *c = coefficients;
    const REAL sign = (REAL)c[CZ__RPROP_SIGN];
    const REAL minus = (REAL)c[CZ__RPROP_MINUS], plus = (REAL)c[CZ__RPROP_PLUS];
    const REAL minimum = (REAL)c[CZ__RPROP_MINIMUM], maximum = (REAL)c[CZ__RPROP_MAXIMUM];
    for (int64_t i = 0; i < count; i++) {
        const REAL d = sign * g[i], product = d * prev[i];
        const REAL factor = product > 0 ? plus : product < 0 ? minus : (REAL)1;
        const REAL wanted = size[i] * factor, raised = wanted < minimum ? minimum : wanted;
        const REAL kept = factor == minus ? (REAL)0 : d;
        const REAL direction = kept > 0 ? (REAL)1 : kept < 0 ? (REAL)-1 : (REAL)0;
        size[i] = raised > maximum ? maximum : raised;
        p[i] = p[i] - direction * size[i];
        prev[i] = kept;
    }
}
