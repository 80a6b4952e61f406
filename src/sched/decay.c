/* SPDX-License-Identifier: MIT */
/* Rates by a formula of the epoch: falling by a factor, ending a number of epochs after they began,
 * the program's own. */
#include <math.h>

#include "base/float_mode.h"
#include "base/memory.h"
#include "base/status.h"
#include "sched/object.h"

/* ---- factors ---- */
/* Rates that fall by a factor: every so many epochs, at given epochs, at each. */

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
    CZ__SCHED_FIELD(INTEGER, step_sched, step_size, CZ__FROM(1)),
    CZ__SCHED_FIELD(REAL, step_sched, gamma, CZ__FROM(0)),
};

static const cz__sched_kind step_kind = {
    .name = "step",
    .size = sizeof(step_sched),
    .field_count = 2,
    .fields = step_fields,
    .rate = step_rate,
    .closed = step_closed,
};

cz_status cz_sched_create_step(cz_sched **out, cz_optim *optim, int64_t step_size, double gamma,
                               const cz_sched_options *options)
{
    CZ__OWN_FLOATS;
    const step_sched draft = {.sched.kind = &step_kind, .step_size = step_size, .gamma = gamma};
    return cz__sched_create_simple(out, optim, &draft.sched, options);
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
    CZ__SCHED_FIELD(LIST, multi_step_sched, milestones, CZ__FROM(0)),
    CZ__SCHED_FIELD(REAL, multi_step_sched, gamma, CZ__FROM(0)),
};

static const cz__sched_kind multi_step_kind = {
    .name = "multi_step",
    .size = sizeof(multi_step_sched),
    .field_count = 2,
    .fields = multi_step_fields,
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

static const cz__field exponential_fields[] = {
    CZ__SCHED_FIELD(REAL, exponential_sched, gamma, CZ__FROM(0))};

static const cz__sched_kind exponential_kind = {
    .name = "exponential",
    .size = sizeof(exponential_sched),
    .field_count = 1,
    .fields = exponential_fields,
    .rate = exponential_rate,
    .closed = exponential_closed,
};

cz_status cz_sched_create_exponential(cz_sched **out, cz_optim *optim, double gamma,
                                      const cz_sched_options *options)
{
    CZ__OWN_FLOATS;
    const exponential_sched draft = {.sched.kind = &exponential_kind, .gamma = gamma};
    return cz__sched_create_simple(out, optim, &draft.sched, options);
}

/* ---- a number of epochs ---- */
/* Rates that end a number of epochs after they began: constant, linear, polynomial. */

typedef struct ramp_sched {
    cz_sched sched;
    double factor;                   /* constant */
    double start_factor, end_factor; /* linear */
    double power;                    /* polynomial */
    int64_t total_iters;
} ramp_sched;

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
    CZ__SCHED_FIELD(REAL, ramp_sched, factor, CZ__ABOVE(0, 1)),
    CZ__SCHED_FIELD(INTEGER, ramp_sched, total_iters, CZ__FROM(1)),
};

static const cz__sched_kind constant_kind = {
    .name = "constant",
    .size = sizeof(ramp_sched),
    .field_count = 2,
    .fields = constant_fields,
    .rate = constant_rate,
    .closed = constant_closed,
};

cz_status cz_sched_create_constant(cz_sched **out, cz_optim *optim, double factor,
                                   int64_t total_iters, const cz_sched_options *options)
{
    CZ__OWN_FLOATS;
    const ramp_sched draft = {
        .sched.kind = &constant_kind, .factor = factor, .total_iters = total_iters};
    return cz__sched_create_simple(out, optim, &draft.sched, options);
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
    CZ__SCHED_FIELD(REAL, ramp_sched, start_factor, CZ__ABOVE(0, 1)),
    CZ__SCHED_FIELD(REAL, ramp_sched, end_factor, CZ__BETWEEN(0, 1)),
    CZ__SCHED_FIELD(INTEGER, ramp_sched, total_iters, CZ__FROM(1)),
};

static const cz__sched_kind linear_kind = {
    .name = "linear",
    .size = sizeof(ramp_sched),
    .field_count = 3,
    .fields = linear_fields,
    .rate = linear_rate,
    .closed = linear_closed,
};

cz_status cz_sched_create_linear(cz_sched **out, cz_optim *optim, double start_factor,
                                 double end_factor, int64_t total_iters,
                                 const cz_sched_options *options)
{
    CZ__OWN_FLOATS;
    const ramp_sched draft = {.sched.kind = &linear_kind,
                              .start_factor = start_factor,
                              .end_factor = end_factor,
                              .total_iters = total_iters};
    return cz__sched_create_simple(out, optim, &draft.sched, options);
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
    CZ__SCHED_FIELD(INTEGER, ramp_sched, total_iters, CZ__FROM(1)),
    CZ__SCHED_FIELD(REAL, ramp_sched, power, CZ__FROM(0)),
};

static const cz__sched_kind polynomial_kind = {
    .name = "polynomial",
    .size = sizeof(ramp_sched),
    .field_count = 2,
    .fields = polynomial_fields,
    .rate = polynomial_rate,
    .closed = polynomial_closed,
};

cz_status cz_sched_create_polynomial(cz_sched **out, cz_optim *optim, int64_t total_iters,
                                     double power, const cz_sched_options *options)
{
    CZ__OWN_FLOATS;
    const ramp_sched draft = {
        .sched.kind = &polynomial_kind, .power = power, .total_iters = total_iters};
    return cz__sched_create_simple(out, optim, &draft.sched, options);
}

/* ---- functions ---- */
/* Rates by a function of the program's: of the base, or of the rate before. */

typedef struct function_sched {
    cz_sched sched;
    cz_sched_function function;
    void *context; /* borrowed */
} function_sched;

static cz_status check_function(const cz_sched *sched)
{
    return ((const function_sched *)(const void *)sched)->function
               ? CZ_OK
               : cz__fail(CZ_ERR_ARGUMENT, "%s scheduler: function is NULL", sched->kind->name);
}

static double call_function(const cz_sched *sched, double epoch, int64_t g)
{
    const function_sched *s = (const void *)sched;
    return s->function((int64_t)epoch, g, s->context);
}

static double lambda_rate(const cz_sched *sched, int64_t g, double lr)
{
    return sched->base[g] * call_function(sched, sched->epoch, g);
}

static double multiplicative_rate(const cz_sched *sched, int64_t g, double lr)
{
    return sched->epoch > 0 ? lr * call_function(sched, sched->epoch, g) : lr;
}

/* There is no factor for epoch 0. */
static double multiplicative_closed(const cz_sched *sched, int64_t g, double lr)
{
    double rate = sched->epoch > 0 ? sched->base[g] : lr;
    for (int64_t t = 1; (double)t <= sched->epoch; t++)
        rate *= call_function(sched, (double)t, g);
    return rate;
}

static const cz__sched_kind lambda_kind = {
    .name = "lambda",
    .size = sizeof(function_sched),
    .check = check_function,
    .rate = lambda_rate,
};

static const cz__sched_kind multiplicative_kind = {
    .name = "multiplicative",
    .size = sizeof(function_sched),
    .check = check_function,
    .rate = multiplicative_rate,
    .closed = multiplicative_closed,
};

static cz_status create_with(cz_sched **out, cz_optim *optim, const cz__sched_kind *kind,
                             cz_sched_function function, void *context,
                             const cz_sched_options *options)
{
    const function_sched draft = {.sched.kind = kind, .function = function, .context = context};
    return cz__sched_create_simple(out, optim, &draft.sched, options);
}

cz_status cz_sched_create_lambda(cz_sched **out, cz_optim *optim, cz_sched_function function,
                                 void *context, const cz_sched_options *options)
{
    CZ__OWN_FLOATS;
    return create_with(out, optim, &lambda_kind, function, context, options);
}

cz_status cz_sched_create_multiplicative(cz_sched **out, cz_optim *optim,
                                         cz_sched_function function, void *context,
                                         const cz_sched_options *options)
{
    CZ__OWN_FLOATS;
    return create_with(out, optim, &multiplicative_kind, function, context, options);
}
