/* SPDX-License-Identifier: MIT */
/* Half a cosine down, once or again and again: Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent
 * with Warm Restarts", arXiv:1608.03983, equation 5. */
#include "base/float_mode.h"
#include "base/status.h"
#include "sched/object.h"

#include <math.h>

typedef struct cosine_sched {
    cz_sched sched;
    double eta_min;
    int64_t t_max;       /* cosine */
    int64_t t_0, t_mult; /* warm restarts */
} cosine_sched;

static cz_status check_eta_min(const cz_sched *sched)
{
    const double eta_min = ((const cosine_sched *)(const void *)sched)->eta_min;
    return cz__sched_check(sched, isfinite(eta_min) && eta_min >= 0, "eta_min", eta_min,
                           "0 or more");
}

static cz_status cosine_check(const cz_sched *sched)
{
    const int64_t t_max = ((const cosine_sched *)(const void *)sched)->t_max;
    CZ_TRY(cz__sched_check(sched, t_max >= 1, "t_max", (double)t_max, "1 or more"));
    return check_eta_min(sched);
}

/* The ratio of two neighbouring epochs above eta_min; one after a minimum has none, it is an addition. */
static double cosine_rate(const cz_sched *sched, int64_t g, double lr)
{
    const cosine_sched *s = (const void *)sched;
    const double t = sched->epoch, n = (double)s->t_max;
    if (t == 0)
        return lr;
    if (fmod(t - 1 - n, 2 * n) == 0)
        return lr + (sched->base[g] - s->eta_min) * (1 - cos(M_PI / n)) / 2;
    return (1 + cos(M_PI * t / n)) / (1 + cos(M_PI * (t - 1) / n)) * (lr - s->eta_min) + s->eta_min;
}

static double cosine_closed(const cz_sched *sched, int64_t g, double lr)
{
    const cosine_sched *s = (const void *)sched;
    return s->eta_min +
           (sched->base[g] - s->eta_min) * (1 + cos(M_PI * sched->epoch / (double)s->t_max)) / 2;
}

static const cz__field cosine_fields[] = {
    CZ__SCHED_FIELD(INTEGER, cosine_sched, t_max),
    CZ__SCHED_FIELD(REAL, cosine_sched, eta_min),
};

static const cz__sched_kind cosine_kind = {
    .name = "cosine",
    .size = sizeof(cosine_sched),
    .field_count = 2,
    .fields = cosine_fields,
    .check = cosine_check,
    .rate = cosine_rate,
    .closed = cosine_closed,
    .resumes_closed = true,
};

cz_status cz_sched_create_cosine(cz_sched **out, cz_optim *optim, int64_t t_max, double eta_min,
                                 const cz_sched_options *options)
{
    CZ__OWN_FLOATS;
    int64_t first_epoch;
    CZ_TRY(cz__sched_first_epoch(out, options, &first_epoch));
    const cosine_sched draft = {.sched.kind = &cosine_kind, .t_max = t_max, .eta_min = eta_min};
    return cz__sched_create(out, optim, &draft.sched, first_epoch);
}

static cz_status warm_restarts_check(const cz_sched *sched)
{
    const cosine_sched *s = (const void *)sched;
    CZ_TRY(cz__sched_check(sched, s->t_0 >= 1, "t_0", (double)s->t_0, "1 or more"));
    CZ_TRY(cz__sched_check(sched, s->t_mult >= 1, "t_mult", (double)s->t_mult, "1 or more"));
    return check_eta_min(sched);
}

/* Cycle i has t_0 t_mult^i epochs: walk to the one that the epoch is in. Whole numbers stay exact, which
 * a logarithm would not promise. */
static double warm_restarts_rate(const cz_sched *sched, int64_t g, double lr)
{
    const cosine_sched *s = (const void *)sched;
    double length = (double)s->t_0, t = sched->epoch;
    if (s->t_mult == 1)
        t = fmod(t, length);
    while (t >= length) {
        t -= length;
        length *= (double)s->t_mult;
    }
    return s->eta_min + (sched->base[g] - s->eta_min) * (1 + cos(M_PI * t / length)) / 2;
}

static const cz__field warm_restarts_fields[] = {
    CZ__SCHED_FIELD(INTEGER, cosine_sched, t_0),
    CZ__SCHED_FIELD(INTEGER, cosine_sched, t_mult),
    CZ__SCHED_FIELD(REAL, cosine_sched, eta_min),
};

static const cz__sched_kind warm_restarts_kind = {
    .name = "warm_restarts",
    .size = sizeof(cosine_sched),
    .field_count = 3,
    .fields = warm_restarts_fields,
    .check = warm_restarts_check,
    .rate = warm_restarts_rate,
    .fractions = true,
};

cz_status cz_sched_create_warm_restarts(cz_sched **out, cz_optim *optim, int64_t t_0,
                                        int64_t t_mult, double eta_min,
                                        const cz_sched_options *options)
{
    CZ__OWN_FLOATS;
    int64_t first_epoch;
    CZ_TRY(cz__sched_first_epoch(out, options, &first_epoch));
    const cosine_sched draft = {
        .sched.kind = &warm_restarts_kind, .t_0 = t_0, .t_mult = t_mult, .eta_min = eta_min};
    return cz__sched_create(out, optim, &draft.sched, first_epoch);
}
