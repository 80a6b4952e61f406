/* SPDX-License-Identifier: MIT */
/* One cycle: up to a large rate and down to almost nothing, momentum the other way. Smith and Topin,
 * "Super-Convergence", arXiv:1708.07120. */
#include "base/float_mode.h"
#include "base/options.h"
#include "base/status.h"
#include "sched/object.h"

#include <inttypes.h>
#include <math.h>

typedef struct one_cycle_sched {
    cz_sched sched;
    cz__list max_lr;
    int64_t total_steps;
    double pct_start, base_momentum, max_momentum, div_factor, final_div_factor;
    int64_t linear, three_phase, fixed_momentum; /* 0 or 1 */
} one_cycle_sched;

static cz_status check_options(const cz_sched *sched)
{
    const one_cycle_sched *s = (const void *)sched;
    const double up = s->div_factor, down = s->final_div_factor;
    CZ_TRY(cz__sched_check(sched, s->pct_start >= 0 && s->pct_start <= 1, "pct_start", s->pct_start,
                           "0 … 1"));
    CZ_TRY(cz__sched_check(sched, isfinite(up) && up > 0, "div_factor", up, "above 0"));
    CZ_TRY(cz__sched_check(sched, isfinite(down) && down > 0, "final_div_factor", down, "above 0"));
    CZ_TRY(cz__sched_check_momentum(sched, s->base_momentum, s->max_momentum));
    CZ_TRY(cz__sched_check_flag(sched, "linear", s->linear));
    CZ_TRY(cz__sched_check_flag(sched, "three_phase", s->three_phase));
    return cz__sched_check_flag(sched, "fixed_momentum", s->fixed_momentum);
}

static cz_status check(const cz_sched *sched)
{
    const one_cycle_sched *s = (const void *)sched;
    CZ_TRY(cz__sched_check_list(sched, "max_lr", &s->max_lr, 0));
    CZ_TRY(cz__sched_check(sched, s->total_steps >= 1, "total_steps", (double)s->total_steps,
                           "1 or more"));
    return check_options(sched);
}

static cz_status check_epoch(const cz_sched *sched)
{
    const int64_t total = ((const one_cycle_sched *)(const void *)sched)->total_steps;
    return sched->epoch <= (double)total
               ? CZ_OK
               : cz__fail(CZ_ERR_STATE,
                          "one_cycle scheduler: epoch %.0f is beyond its %" PRId64 " steps",
                          sched->epoch, total);
}

/* A leg from one value to another; times are real numbers. */
typedef struct leg {
    double begin, end;
    int lr_from, lr_to, momentum_from, momentum_to;
} leg;

enum { INITIAL, MAXIMUM, LAST }; /* rates */
enum { LOW, HIGH };              /* momenta */

/* The leg that the epoch is in: the first that does not end before it, or the last. */
static leg find_leg(const one_cycle_sched *s)
{
    const double n = (double)s->total_steps;
    const double up = s->pct_start * n - 1, back = 2 * s->pct_start * n - 2;
    if (s->sched.epoch <= up)
        return (leg){0, up, INITIAL, MAXIMUM, HIGH, LOW};
    if (!s->three_phase)
        return (leg){up, n - 1, MAXIMUM, LAST, LOW, HIGH};
    if (s->sched.epoch <= back)
        return (leg){up, back, MAXIMUM, INITIAL, LOW, HIGH};
    return (leg){back, n - 1, INITIAL, LAST, HIGH, HIGH};
}

/* A leg without length is at its end, and so is what comes after the last one. Lines that end near 0 may
 * round to something below. */
static double along(const one_cycle_sched *s, const leg *l, double from, double to)
{
    const double length = l->end - l->begin;
    const double x = length > 0 ? fmin((s->sched.epoch - l->begin) / length, 1) : 1;
    if (!s->linear)
        return to + (from - to) / 2.0 * (cos(M_PI * x) + 1);
    const double value = (to - from) * x + from;
    return value < 0 ? 0 : value;
}

static double initial_of(const cz_sched *sched, int64_t g)
{
    const one_cycle_sched *s = (const void *)sched;
    return cz__list_pick(&s->max_lr, g) / s->div_factor;
}

static double last_of(const cz_sched *sched, int64_t g)
{
    return initial_of(sched, g) / ((const one_cycle_sched *)(const void *)sched)->final_div_factor;
}

static double rate(const cz_sched *sched, int64_t g, double lr)
{
    const one_cycle_sched *s = (const void *)sched;
    const leg l = find_leg(s);
    const double rates[] = {[INITIAL] = initial_of(sched, g),
                            [MAXIMUM] = cz__list_pick(&s->max_lr, g),
                            [LAST] = last_of(sched, g)};
    return along(s, &l, rates[l.lr_from], rates[l.lr_to]);
}

static double momentum(const cz_sched *sched, int64_t g)
{
    const one_cycle_sched *s = (const void *)sched;
    const leg l = find_leg(s);
    const double momenta[] = {[LOW] = s->base_momentum, [HIGH] = s->max_momentum};
    return along(s, &l, momenta[l.momentum_from], momenta[l.momentum_to]);
}

static bool drives_momentum(const cz_sched *sched)
{
    return !((const one_cycle_sched *)(const void *)sched)->fixed_momentum;
}

static cz_status publish(const cz_sched *sched, int64_t g)
{
    const one_cycle_sched *s = (const void *)sched;
    CZ_TRY(cz_optim_add_hyper(sched->optim, g, "initial_lr", initial_of(sched, g)));
    CZ_TRY(cz_optim_add_hyper(sched->optim, g, "max_lr", cz__list_pick(&s->max_lr, g)));
    CZ_TRY(cz_optim_add_hyper(sched->optim, g, "min_lr", last_of(sched, g)));
    if (!sched->momentum_name)
        return CZ_OK;
    CZ_TRY(cz_optim_add_hyper(sched->optim, g, "max_momentum", s->max_momentum));
    return cz_optim_add_hyper(sched->optim, g, "base_momentum", s->base_momentum);
}

static const cz__field fields[] = {
    CZ__SCHED_FIELD(PER_GROUP, one_cycle_sched, max_lr),
    CZ__SCHED_FIELD(INTEGER, one_cycle_sched, total_steps),
    CZ__SCHED_FIELD(REAL, one_cycle_sched, pct_start),
    CZ__SCHED_FIELD(REAL, one_cycle_sched, base_momentum),
    CZ__SCHED_FIELD(REAL, one_cycle_sched, max_momentum),
    CZ__SCHED_FIELD(REAL, one_cycle_sched, div_factor),
    CZ__SCHED_FIELD(REAL, one_cycle_sched, final_div_factor),
    CZ__SCHED_FIELD(INTEGER, one_cycle_sched, linear),
    CZ__SCHED_FIELD(INTEGER, one_cycle_sched, three_phase),
    CZ__SCHED_FIELD(INTEGER, one_cycle_sched, fixed_momentum),
};

static const cz__sched_kind kind = {
    .name = "one_cycle",
    .size = sizeof(one_cycle_sched),
    .field_count = sizeof fields / sizeof *fields,
    .fields = fields,
    .check = check,
    .check_epoch = check_epoch,
    .rate = rate,
    .momentum = momentum,
    .drives_momentum = drives_momentum,
    .base = initial_of,
    .publish = publish,
};

cz_status cz_sched_create_one_cycle(cz_sched **out, cz_optim *optim, double max_lr,
                                    int64_t total_steps, const cz_sched_one_cycle_options *options)
{
    CZ__OWN_FLOATS;
    static const cz_sched_one_cycle_options defaults = CZ_SCHED_ONE_CYCLE_OPTIONS_INIT;
    cz_sched_one_cycle_options o;
    if (out)
        *out = NULL;
    CZ_TRY(cz__options_read(&o, sizeof o, options ? options : &defaults,
                            "cz_sched_one_cycle_options"));
    if (o.reserved != 0)
        return cz__fail(CZ_ERR_ARGUMENT, "cz_sched_one_cycle_options: reserved is %d, wanted 0",
                        (int)o.reserved);
    const one_cycle_sched draft = {.sched.kind = &kind,
                                   .max_lr = cz__list_per_group(&max_lr, o.max_lrs, optim),
                                   .total_steps = total_steps,
                                   .pct_start = o.pct_start,
                                   .base_momentum = o.base_momentum,
                                   .max_momentum = o.max_momentum,
                                   .div_factor = o.div_factor,
                                   .final_div_factor = o.final_div_factor,
                                   .linear = o.linear,
                                   .three_phase = o.three_phase,
                                   .fixed_momentum = o.fixed_momentum};
    return cz__sched_create(out, optim, &draft.sched, o.first_epoch);
}
