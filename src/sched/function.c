/* SPDX-License-Identifier: MIT */
/* Rates by a function of the program's: of the base, or of the rate before. */
#include "base/float_mode.h"
#include "base/status.h"
#include "sched/object.h"

typedef struct function_sched {
    cz_sched sched;
    cz_sched_function function;
    void *context; /* borrowed */
} function_sched;

static cz_status check(const cz_sched *sched)
{
    return ((const function_sched *)(const void *)sched)->function
               ? CZ_OK
               : cz__fail(CZ_ERR_ARGUMENT, "%s scheduler: function is NULL", sched->kind->name);
}

static double call(const cz_sched *sched, double epoch, int64_t g)
{
    const function_sched *s = (const void *)sched;
    return s->function((int64_t)epoch, g, s->context);
}

static double lambda_rate(const cz_sched *sched, int64_t g, double lr)
{
    return sched->base[g] * call(sched, sched->epoch, g);
}

static double multiplicative_rate(const cz_sched *sched, int64_t g, double lr)
{
    return sched->epoch > 0 ? lr * call(sched, sched->epoch, g) : lr;
}

/* There is no factor for epoch 0. */
static double multiplicative_closed(const cz_sched *sched, int64_t g, double lr)
{
    double rate = sched->epoch > 0 ? sched->base[g] : lr;
    for (int64_t t = 1; (double)t <= sched->epoch; t++)
        rate *= call(sched, (double)t, g);
    return rate;
}

static const cz__sched_kind lambda_kind = {
    .name = "lambda",
    .size = sizeof(function_sched),
    .check = check,
    .rate = lambda_rate,
};

static const cz__sched_kind multiplicative_kind = {
    .name = "multiplicative",
    .size = sizeof(function_sched),
    .check = check,
    .rate = multiplicative_rate,
    .closed = multiplicative_closed,
};

static cz_status create(cz_sched **out, cz_optim *optim, const cz__sched_kind *kind,
                        cz_sched_function function, void *context, const cz_sched_options *options)
{
    int64_t first_epoch;
    CZ_TRY(cz__sched_first_epoch(out, options, &first_epoch));
    const function_sched draft = {.sched.kind = kind, .function = function, .context = context};
    return cz__sched_create(out, optim, &draft.sched, first_epoch);
}

cz_status cz_sched_create_lambda(cz_sched **out, cz_optim *optim, cz_sched_function function,
                                 void *context, const cz_sched_options *options)
{
    CZ__OWN_FLOATS;
    return create(out, optim, &lambda_kind, function, context, options);
}

cz_status cz_sched_create_multiplicative(cz_sched **out, cz_optim *optim,
                                         cz_sched_function function, void *context,
                                         const cz_sched_options *options)
{
    CZ__OWN_FLOATS;
    return create(out, optim, &multiplicative_kind, function, context, options);
}
