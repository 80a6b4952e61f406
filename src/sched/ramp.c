/* SPDX-License-Identifier: MIT */
/* Rates that end a number of epochs after they began: constant, linear, polynomial. */
#include "base/float_mode.h"
#include "base/status.h"
#include "sched/object.h"

#include <math.h>

typedef struct ramp_sched {
    cz_sched sched;
    double factor;                   /* constant */
    double start_factor, end_factor; /* linear */
    double power;                    /* polynomial */
    int64_t total_iters;
} ramp_sched;

static cz_status check_total(const cz_sched *sched)
{
    const ramp_sched *s = (const void *)sched;
    return cz__sched_check(sched, s->total_iters >= 1, "total_iters", (double)s->total_iters,
                           "1 or more");
}

static cz_status constant_check(const cz_sched *sched)
{
    const ramp_sched *s = (const void *)sched;
    CZ_TRY(cz__sched_check(sched, s->factor > 0 && s->factor <= 1, "factor", s->factor,
                           "above 0, at most 1"));
    return check_total(sched);
}

static double constant_rate(const cz_sched *sched, int64_t g, double lr)
{
    const ramp_sched *s = (const void *)sched;
    if (sched->epoch == 0)
        return lr * s->factor;
    return sched->epoch == (double)s->total_iters ? lr * (1.0 / s->factor) : lr;
}

static double constant_closed(const cz_sched *sched, int64_t g, double lr)
{
    const ramp_sched *s = (const void *)sched;
    const double over = sched->epoch >= (double)s->total_iters;
    return sched->base[g] * (s->factor + over * (1 - s->factor));
}

static const cz__field constant_fields[] = {
    CZ__SCHED_FIELD(REAL, ramp_sched, factor),
    CZ__SCHED_FIELD(INTEGER, ramp_sched, total_iters),
};

static const cz__sched_kind constant_kind = {
    .name = "constant",
    .size = sizeof(ramp_sched),
    .field_count = 2,
    .fields = constant_fields,
    .check = constant_check,
    .rate = constant_rate,
    .closed = constant_closed,
};

cz_status cz_sched_create_constant(cz_sched **out, cz_optim *optim, double factor,
                                   int64_t total_iters, const cz_sched_options *options)
{
    CZ__OWN_FLOATS;
    int64_t first_epoch;
    CZ_TRY(cz__sched_first_epoch(out, options, &first_epoch));
    const ramp_sched draft = {
        .sched.kind = &constant_kind, .factor = factor, .total_iters = total_iters};
    return cz__sched_create(out, optim, &draft.sched, first_epoch);
}

static cz_status linear_check(const cz_sched *sched)
{
    const ramp_sched *s = (const void *)sched;
    CZ_TRY(cz__sched_check(sched, s->start_factor > 0 && s->start_factor <= 1, "start_factor",
                           s->start_factor, "above 0, at most 1"));
    CZ_TRY(cz__sched_check(sched, s->end_factor >= 0 && s->end_factor <= 1, "end_factor",
                           s->end_factor, "0 … 1"));
    return check_total(sched);
}

/* On the way to 0 the last step can round to something below it. */
static double above_zero(double rate)
{
    return rate < 0 ? 0 : rate;
}

static double linear_rate(const cz_sched *sched, int64_t g, double lr)
{
    const ramp_sched *s = (const void *)sched;
    const double t = sched->epoch, n = (double)s->total_iters;
    const double change = s->end_factor - s->start_factor;
    if (t == 0)
        return lr * s->start_factor;
    if (t > n)
        return lr;
    return above_zero(lr * (1.0 + change / (n * s->start_factor + (t - 1) * change)));
}

static double linear_closed(const cz_sched *sched, int64_t g, double lr)
{
    const ramp_sched *s = (const void *)sched;
    const double n = (double)s->total_iters, change = s->end_factor - s->start_factor;
    return above_zero(sched->base[g] * (s->start_factor + change * fmin(n, sched->epoch) / n));
}

static const cz__field linear_fields[] = {
    CZ__SCHED_FIELD(REAL, ramp_sched, start_factor),
    CZ__SCHED_FIELD(REAL, ramp_sched, end_factor),
    CZ__SCHED_FIELD(INTEGER, ramp_sched, total_iters),
};

static const cz__sched_kind linear_kind = {
    .name = "linear",
    .size = sizeof(ramp_sched),
    .field_count = 3,
    .fields = linear_fields,
    .check = linear_check,
    .rate = linear_rate,
    .closed = linear_closed,
};

cz_status cz_sched_create_linear(cz_sched **out, cz_optim *optim, double start_factor,
                                 double end_factor, int64_t total_iters,
                                 const cz_sched_options *options)
{
    CZ__OWN_FLOATS;
    int64_t first_epoch;
    CZ_TRY(cz__sched_first_epoch(out, options, &first_epoch));
    const ramp_sched draft = {.sched.kind = &linear_kind,
                              .start_factor = start_factor,
                              .end_factor = end_factor,
                              .total_iters = total_iters};
    return cz__sched_create(out, optim, &draft.sched, first_epoch);
}

static cz_status polynomial_check(const cz_sched *sched)
{
    const ramp_sched *s = (const void *)sched;
    CZ_TRY(cz__sched_check(sched, isfinite(s->power) && s->power >= 0, "power", s->power,
                           "0 or more"));
    return check_total(sched);
}

static double polynomial_rate(const cz_sched *sched, int64_t g, double lr)
{
    const ramp_sched *s = (const void *)sched;
    const double t = sched->epoch, n = (double)s->total_iters;
    if (t == 0 || t > n)
        return lr;
    return lr * pow((1.0 - t / n) / (1.0 - (t - 1) / n), s->power);
}

static double polynomial_closed(const cz_sched *sched, int64_t g, double lr)
{
    const ramp_sched *s = (const void *)sched;
    const double n = (double)s->total_iters;
    return sched->base[g] * pow(1.0 - fmin(n, sched->epoch) / n, s->power);
}

static const cz__field polynomial_fields[] = {
    CZ__SCHED_FIELD(INTEGER, ramp_sched, total_iters),
    CZ__SCHED_FIELD(REAL, ramp_sched, power),
};

static const cz__sched_kind polynomial_kind = {
    .name = "polynomial",
    .size = sizeof(ramp_sched),
    .field_count = 2,
    .fields = polynomial_fields,
    .check = polynomial_check,
    .rate = polynomial_rate,
    .closed = polynomial_closed,
};

cz_status cz_sched_create_polynomial(cz_sched **out, cz_optim *optim, int64_t total_iters,
                                     double power, const cz_sched_options *options)
{
    CZ__OWN_FLOATS;
    int64_t first_epoch;
    CZ_TRY(cz__sched_first_epoch(out, options, &first_epoch));
    const ramp_sched draft = {
        .sched.kind = &polynomial_kind, .power = power, .total_iters = total_iters};
    return cz__sched_create(out, optim, &draft.sched, first_epoch);
}
