/* SPDX-License-Identifier: MIT */
/* The loop of adam.c and adamw.c for one element type: REAL, named TYPE, with its square root ROOT.
 * Adam adds the decay to the gradient, AdamW multiplies the parameter. */

CZ_BODY void CZ_TYPED(adam_loop)(enum decay decay_kind, enum moment moment, bool amsgrad,
                                 int64_t count, REAL *restrict p, const REAL *restrict g,
                                 REAL *restrict m, REAL *restrict v, REAL *restrict v_max,
                                 const double *c)
{
    const REAL rate = (REAL)c[CZ__ADAM_RATE], sign = (REAL)c[CZ__ADAM_SIGN];
    const REAL keep1 = (REAL)c[CZ__ADAM_KEEP1], take1 = (REAL)c[CZ__ADAM_TAKE1];
    const REAL keep2 = (REAL)c[CZ__ADAM_KEEP2], take2 = (REAL)c[CZ__ADAM_TAKE2];
    const REAL root = (REAL)c[CZ__ADAM_ROOT], eps = (REAL)c[CZ__ADAM_EPS];
    const REAL decay = (REAL)c[CZ__ADAM_DECAY];
    const REAL rest1 = (REAL)1 - take1;
    for (int64_t i = 0; i < count; i++) {
        REAL d = sign * g[i], w = p[i], second;
        if (decay_kind == DECAY_GRADIENT)
            d = d + decay * w;
        if (decay_kind == DECAY_PARAMETER)
            w = w * decay;
        m[i] = CZ_MOMENT(moment, m[i], d, keep1, take1, rest1);
        v[i] = v[i] * keep2 + (take2 * d) * d;
        second = v[i];
        if (amsgrad) {
            second = CZ_LARGER(v_max[i], second);
            v_max[i] = second;
        }
        p[i] = w + (rate * m[i]) / (ROOT(second) / root + eps);
    }
}

CZ_BODY void CZ_TYPED(adam_variant)(enum decay decay, int64_t count, void *param, const void *grad,
                                    void *const *slots, const double *coefficients, unsigned flags)
{
#define ADAM_LOOP CZ_TYPED(adam_loop)
#define LOOP(moment, amsgrad)                                                                      \
    ADAM_LOOP(decay, moment, amsgrad, count, param, grad, slots[0], slots[1], slots[2],            \
              coefficients)
#define EITHER(moment) (amsgrad ? LOOP(moment, true) : LOOP(moment, false))
    const bool amsgrad = flags & CZ__ADAM_AMSGRAD;
    CZ_FOR_MOMENT(CZ_MOMENT_OF(flags & CZ__ADAM_LERP, (REAL)coefficients[CZ__ADAM_TAKE1]), EITHER);
#undef EITHER
#undef LOOP
#undef ADAM_LOOP
}
