/* SPDX-License-Identifier: MIT */
/* Rates that fall by a factor: every so many epochs, at given epochs, at each. */
#include "base/float_mode.h"
#include "base/memory.h"
#include "sched/object.h"

#include <math.h>

typedef struct step_sched {
    cz_sched sched;
    int64_t step_size;
    double gamma;
} step_sched;

typedef struct multi_step_sched {
    cz_sched sched;
    cz__list milestones;
    double gamma;
} multi_step_sched;

typedef struct exponential_sched {
    cz_sched sched;
    double gamma;
} exponential_sched;

static cz_status check_gamma(const cz_sched *sched, double gamma)
{
    return cz__sched_check(sched, isfinite(gamma) && gamma >= 0, "gamma", gamma, "0 or more");
}

static cz_status step_check(const cz_sched *sched)
{
    const step_sched *s = (const void *)sched;
    CZ_TRY(
        cz__sched_check(sched, s->step_size >= 1, "step_size", (double)s->step_size, "1 or more"));
    return check_gamma(sched, s->gamma);
}

static double step_rate(const cz_sched *sched, int64_t g, double lr)
{
    const step_sched *s = (const void *)sched;
    return sched->epoch == 0 || fmod(sched->epoch, (double)s->step_size) != 0 ? lr : lr * s->gamma;
}

static double step_closed(const cz_sched *sched, int64_t g, double lr)
{
    const step_sched *s = (const void *)sched;
    return sched->base[g] * pow(s->gamma, floor(sched->epoch / (double)s->step_size));
}

static const cz__field step_fields[] = {
    CZ__SCHED_FIELD(INTEGER, step_sched, step_size),
    CZ__SCHED_FIELD(REAL, step_sched, gamma),
};

static const cz__sched_kind step_kind = {
    .name = "step",
    .size = sizeof(step_sched),
    .field_count = 2,
    .fields = step_fields,
    .check = step_check,
    .rate = step_rate,
    .closed = step_closed,
};

cz_status cz_sched_create_step(cz_sched **out, cz_optim *optim, int64_t step_size, double gamma,
                               const cz_sched_options *options)
{
    CZ__OWN_FLOATS;
    int64_t first_epoch;
    CZ_TRY(cz__sched_first_epoch(out, options, &first_epoch));
    const step_sched draft = {.sched.kind = &step_kind, .step_size = step_size, .gamma = gamma};
    return cz__sched_create(out, optim, &draft.sched, first_epoch);
}

static cz_status multi_step_check(const cz_sched *sched)
{
    const multi_step_sched *s = (const void *)sched;
    CZ_TRY(cz__sched_check_list(sched, "milestones", &s->milestones, 0));
    return check_gamma(sched, s->gamma);
}

static double multi_step_rate(const cz_sched *sched, int64_t g, double lr)
{
    const multi_step_sched *s = (const void *)sched;
    int64_t now = 0;
    for (int64_t i = 0; i < s->milestones.count; i++)
        now += s->milestones.items[i] == sched->epoch;
    return now == 0 ? lr : lr * pow(s->gamma, (double)now);
}

static double multi_step_closed(const cz_sched *sched, int64_t g, double lr)
{
    const multi_step_sched *s = (const void *)sched;
    int64_t passed = 0;
    for (int64_t i = 0; i < s->milestones.count; i++)
        passed += s->milestones.items[i] <= sched->epoch;
    return sched->base[g] * pow(s->gamma, (double)passed);
}

static const cz__field multi_step_fields[] = {
    CZ__SCHED_FIELD(LIST, multi_step_sched, milestones),
    CZ__SCHED_FIELD(REAL, multi_step_sched, gamma),
};

static const cz__sched_kind multi_step_kind = {
    .name = "multi_step",
    .size = sizeof(multi_step_sched),
    .field_count = 2,
    .fields = multi_step_fields,
    .check = multi_step_check,
    .rate = multi_step_rate,
    .closed = multi_step_closed,
};

cz_status cz_sched_create_multi_step(cz_sched **out, cz_optim *optim, const int64_t *milestones,
                                     int64_t count, double gamma, const cz_sched_options *options)
{
    CZ__OWN_FLOATS;
    int64_t first_epoch;
    multi_step_sched draft = {.sched.kind = &multi_step_kind, .gamma = gamma};
    CZ_TRY(cz__sched_first_epoch(out, options, &first_epoch));
    CZ_TRY(cz__list_from_integers(&draft.milestones, milestones, count, &draft.sched));
    const cz_status status = cz__sched_create(out, optim, &draft.sched, first_epoch);
    cz__free(draft.milestones.items);
    return status;
}

static cz_status exponential_check(const cz_sched *sched)
{
    return check_gamma(sched, ((const exponential_sched *)(const void *)sched)->gamma);
}

static double exponential_rate(const cz_sched *sched, int64_t g, double lr)
{
    const exponential_sched *s = (const void *)sched;
    return sched->epoch == 0 ? lr : lr * s->gamma;
}

static double exponential_closed(const cz_sched *sched, int64_t g, double lr)
{
    const exponential_sched *s = (const void *)sched;
    return sched->base[g] * pow(s->gamma, sched->epoch);
}

static const cz__field exponential_fields[] = {CZ__SCHED_FIELD(REAL, exponential_sched, gamma)};

static const cz__sched_kind exponential_kind = {
    .name = "exponential",
    .size = sizeof(exponential_sched),
    .field_count = 1,
    .fields = exponential_fields,
    .check = exponential_check,
    .rate = exponential_rate,
    .closed = exponential_closed,
};

cz_status cz_sched_create_exponential(cz_sched **out, cz_optim *optim, double gamma,
                                      const cz_sched_options *options)
{
    CZ__OWN_FLOATS;
    int64_t first_epoch;
    CZ_TRY(cz__sched_first_epoch(out, options, &first_epoch));
    const exponential_sched draft = {.sched.kind = &exponential_kind, .gamma = gamma};
    return cz__sched_create(out, optim, &draft.sched, first_epoch);
}
