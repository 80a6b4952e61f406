/* SPDX-License-Identifier: MIT */
/* Rates that fall when a metric does not become better. */
#include "base/float_mode.h"
#include "base/options.h"
#include "base/status.h"
#include "collective/description.h"
#include "device/reduction.h"
#include "optim/optim.h"
#include "sched/object.h"

#include <math.h>

typedef struct plateau_sched {
    cz_sched sched;
    double factor, threshold, eps;
    int64_t patience, cooldown;
    cz__list min_lr;
    int64_t maximize, absolute; /* 0 or 1 */
    cz_group *group;            /* borrowed, may be NULL */
    cz_reduction agree;

    double best; /* an infinity before the first */
    int64_t bad_reports, cooldown_left;
} plateau_sched;

static cz_status check_agree(const cz_sched *sched)
{
    const plateau_sched *s = (const void *)sched;
    if (s->agree != CZ_AVERAGE && s->agree != CZ_MIN && s->agree != CZ_MAX)
        return cz__fail(
            CZ_ERR_UNSUPPORTED,
            "plateau scheduler: agree is reduction %d, wanted CZ_AVERAGE, CZ_MIN or CZ_MAX",
            (int)s->agree);
    return cz__sched_check(sched, !isnan(s->best), "best", s->best, "a number");
}

/* By a part of the best: of its size, so that a negative best has to be passed too. */
static bool is_better(const plateau_sched *s, double metric)
{
    if (s->absolute || isinf(s->best)) /* which no threshold changes */
        return s->maximize ? metric > s->best + s->threshold : metric < s->best - s->threshold;
    const double part =
        (s->best < 0) != (s->maximize != 0) ? 1.0 + s->threshold : 1.0 - s->threshold;
    return s->maximize ? metric > s->best * part : metric < s->best * part;
}

static void reduce(const plateau_sched *s, cz__rates *rates)
{
    for (int64_t g = 0; g < rates->count; g++) {
        const double lr = fmax(rates->lr[g] * s->factor, cz__list_pick(&s->min_lr, g));
        if (rates->lr[g] - lr > s->eps)
            rates->lr[g] = lr;
    }
}

static cz_status take_metric(cz_sched *sched, cz__rates *rates, double metric)
{
    plateau_sched *s = (void *)sched;
    sched->epoch += 1;
    s->bad_reports++;
    if (is_better(s, metric)) {
        s->best = metric;
        s->bad_reports = 0;
    }
    if (s->cooldown_left > 0) {
        s->cooldown_left--;
        s->bad_reports = 0;
    }
    if (s->bad_reports > s->patience) {
        reduce(s, rates);
        s->cooldown_left = s->cooldown;
        s->bad_reports = 0;
    }
    return CZ_OK;
}

static cz_status publish(const cz_sched *sched, int64_t g)
{
    return CZ_OK;
}

static const cz__field fields[] = {
    CZ__SCHED_FIELD(REAL, plateau_sched, factor, CZ__BELOW(0, 1), .range.above = true),
    CZ__SCHED_FIELD(REAL, plateau_sched, threshold, CZ__FROM(0)),
    CZ__SCHED_FIELD(REAL, plateau_sched, eps, CZ__FROM(0)),
    CZ__SCHED_FIELD(INTEGER, plateau_sched, patience, CZ__FROM(0)),
    CZ__SCHED_FIELD(INTEGER, plateau_sched, cooldown, CZ__FROM(0)),
    CZ__SCHED_FIELD(PER_GROUP, plateau_sched, min_lr, CZ__FROM(0)),
    CZ__SCHED_FIELD(INTEGER, plateau_sched, maximize, CZ__FLAG),
    CZ__SCHED_FIELD(INTEGER, plateau_sched, absolute, CZ__FLAG),
    CZ__SCHED_FIELD(REAL, plateau_sched, best, CZ__ANY),
    CZ__SCHED_FIELD(INTEGER, plateau_sched, bad_reports, CZ__FROM(0)),
    CZ__SCHED_FIELD(INTEGER, plateau_sched, cooldown_left, CZ__FROM(0)),
};

/* ---- what ranks have in common ---- */

static void describe_list(cz__description *d, const char *name, const cz__list *list)
{
    cz__describe_number(d, &(cz__subject){"the number of entries", name, -1, NULL, "is"},
                        CZ__FIELD_NUMBER, list->count);
    for (int64_t k = 0; k < list->count; k++)
        cz__describe(d, &(cz__subject){NULL, name, k, NULL, "is"}, CZ__FIELD_REAL, &list->items[k],
                     sizeof list->items[k]);
}

/* On which optimizer, the options, how far it has come, and from which rates it goes on. */
static void describe(cz__description *d, const void *context)
{
    const plateau_sched *s = context;
    const cz_optim *optim = s->sched.optim;
    cz__describe_named_members(d, optim);
    cz__describe_word(d, &(cz__subject){NULL, "option agree", -1, NULL, "is"}, cz__reduction_words,
                      (int64_t)s->agree);
    for (size_t f = 0; f < sizeof fields / sizeof *fields; f++) {
        const void *value = (const char *)s + fields[f].offset;
        const cz__subject subject = {NULL, fields[f].name, -1, NULL, "is"};
        if (fields[f].type == CZ__SCHED_PER_GROUP)
            describe_list(d, fields[f].name, value);
        else if (fields[f].type == CZ__SCHED_REAL)
            cz__describe(d, &subject, CZ__FIELD_REAL, value, sizeof(double));
        else
            cz__describe_number(d, &subject, CZ__FIELD_NUMBER, *(const int64_t *)value);
    }
    for (int64_t g = 0; g < cz__optim_group_count(optim); g++) {
        double lr = 0;
        (void)cz_optim_get_hyper(optim, g, "lr", &lr);
        cz__describe(d, &(cz__subject){"lr", "parameter group", g, NULL, "is"}, CZ__FIELD_REAL, &lr,
                     sizeof lr);
    }
}

static cz_status agree(const cz_sched *sched, double *metric)
{
    const plateau_sched *s = (const void *)sched;
    cz__description room = {0};
    if (!s->group)
        return CZ_OK;
    const cz_status status = cz__agree_on(s->group, "plateau scheduler", describe, s, CZ_OK, &room);
    cz__description_clear(&room);
    return status
               ? status
               : cz_all_reduce(s->group, metric, 1, CZ_F64, s->agree, CZ_LABEL("plateau metric"));
}

static const cz__sched_kind kind = {
    .name = "plateau",
    .size = sizeof(plateau_sched),
    .field_count = sizeof fields / sizeof *fields,
    .fields = fields,
    .check = check_agree,
    .publish = publish,
    .metric = take_metric,
    .agree = agree,
};

const cz__option_table cz__sched_plateau_options = CZ__OPTION_TABLE(
    cz_sched_plateau_options,
    CZ__OPTION(cz_sched_plateau_options, factor, CZ__LOCAL, CZ__ANY, CZ__ZERO_IS(0.1)),
    CZ__OPTION(cz_sched_plateau_options, patience, CZ__LOCAL, CZ__ANY, CZ__ZERO_IS_OR_NONE(10)),
    CZ__OPTION(cz_sched_plateau_options, threshold, CZ__LOCAL, CZ__ANY, CZ__ZERO_IS_OR_NONE(1e-4)),
    CZ__OPTION(cz_sched_plateau_options, cooldown, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_sched_plateau_options, min_lr, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_sched_plateau_options, eps, CZ__LOCAL, CZ__ANY, CZ__ZERO_IS_OR_NONE(1e-8)),
    CZ__OPTION(cz_sched_plateau_options, min_lrs, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_sched_plateau_options, maximize, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_sched_plateau_options, absolute, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_sched_plateau_options, group, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_sched_plateau_options, agree, CZ__LOCAL, CZ__ANY, CZ__ZERO_IS(CZ_AVERAGE)),
    CZ__OPTION(cz_sched_plateau_options, reserved, CZ__LOCAL, CZ__RESERVED));

cz_status cz_sched_create_plateau(cz_sched **out, cz_optim *optim,
                                  const cz_sched_plateau_options *options)
{
    CZ__OWN_FLOATS;
    cz_sched_plateau_options o;
    if (out)
        *out = NULL;
    CZ_TRY(cz__options_read(&o, &cz__sched_plateau_options, options, "plateau scheduler"));
    const plateau_sched draft = {.sched.kind = &kind,
                                 .factor = o.factor,
                                 .threshold = o.threshold,
                                 .eps = o.eps,
                                 .patience = o.patience,
                                 .cooldown = o.cooldown,
                                 .min_lr = cz__list_per_group(&o.min_lr, o.min_lrs, optim),
                                 .maximize = o.maximize,
                                 .absolute = o.absolute,
                                 .group = o.group,
                                 .agree = o.agree,
                                 .best = o.maximize ? -INFINITY : INFINITY};
    return cz__sched_create(out, optim, &draft.sched, 0);
}
