/* SPDX-License-Identifier: MIT */
/* A triangle wave between two rates, momentum the other way. Smith, "Cyclical Learning Rates for Training
 * Neural Networks", arXiv:1506.01186, section 3. */
#include "base/float_mode.h"
#include "base/options.h"
#include "base/status.h"
#include "sched/object.h"

#include <math.h>

typedef struct cyclic_sched {
    cz_sched sched;
    cz__list base_lr, max_lr;
    int64_t step_size_up, step_size_down; /* 0: as many as up */
    double gamma, base_momentum, max_momentum;
    int64_t mode, fixed_momentum;
} cyclic_sched;

static cz_status check(const cz_sched *sched)
{
    const cyclic_sched *s = (const void *)sched;
    const bool known = s->mode >= CZ_SCHED_TRIANGULAR && s->mode <= CZ_SCHED_EXP_RANGE;
    CZ_TRY(cz__sched_check_list(sched, "base_lr", &s->base_lr, 0));
    CZ_TRY(cz__sched_check_list(sched, "max_lr", &s->max_lr, 0));
    CZ_TRY(cz__sched_check(sched, s->step_size_up >= 1, "step_size_up", (double)s->step_size_up,
                           "1 or more"));
    CZ_TRY(cz__sched_check(sched, s->step_size_down >= 0, "step_size_down",
                           (double)s->step_size_down, "0 or more"));
    CZ_TRY(cz__sched_check(sched, isfinite(s->gamma) && s->gamma >= 0, "gamma", s->gamma,
                           "0 or more"));
    CZ_TRY(cz__sched_check(sched, known, "mode", (double)s->mode, "a value of cz_sched_cycle"));
    CZ_TRY(cz__sched_check_flag(sched, "fixed_momentum", s->fixed_momentum));
    return cz__sched_check_momentum(sched, s->base_momentum, s->max_momentum);
}

/* How far up the wave is, and how high this cycle's wave goes: parts of the distance between base and
 * maximum. */
static void find_wave(const cyclic_sched *s, double *height, double *scale)
{
    const double up = (double)s->step_size_up, t = s->sched.epoch;
    const double down = s->step_size_down > 0 ? (double)s->step_size_down : up;
    const double total = up + down, ratio = up / total;
    const double cycle = floor(1 + t / total);
    const double x = 1.0 + t / total - cycle;
    *height = x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
    *scale = 1;
    if (s->mode == CZ_SCHED_TRIANGULAR2)
        *scale = 1 / pow(2.0, cycle - 1);
    if (s->mode == CZ_SCHED_EXP_RANGE)
        *scale = pow(s->gamma, t);
}

static double base_of(const cz_sched *sched, int64_t g)
{
    return cz__list_pick(&((const cyclic_sched *)(const void *)sched)->base_lr, g);
}

static double rate(const cz_sched *sched, int64_t g, double lr)
{
    const cyclic_sched *s = (const void *)sched;
    double height, scale;
    find_wave(s, &height, &scale);
    const double base = sched->base[g];
    return base + (cz__list_pick(&s->max_lr, g) - base) * height * scale;
}

static double momentum(const cz_sched *sched, int64_t g)
{
    const cyclic_sched *s = (const void *)sched;
    double height, scale;
    find_wave(s, &height, &scale);
    return s->max_momentum - (s->max_momentum - s->base_momentum) * height * scale;
}

static bool drives_momentum(const cz_sched *sched)
{
    return !((const cyclic_sched *)(const void *)sched)->fixed_momentum;
}

static const cz__field fields[] = {
    CZ__SCHED_FIELD(PER_GROUP, cyclic_sched, base_lr),
    CZ__SCHED_FIELD(PER_GROUP, cyclic_sched, max_lr),
    CZ__SCHED_FIELD(INTEGER, cyclic_sched, step_size_up),
    CZ__SCHED_FIELD(INTEGER, cyclic_sched, step_size_down),
    CZ__SCHED_FIELD(REAL, cyclic_sched, gamma),
    CZ__SCHED_FIELD(REAL, cyclic_sched, base_momentum),
    CZ__SCHED_FIELD(REAL, cyclic_sched, max_momentum),
    CZ__SCHED_FIELD(INTEGER, cyclic_sched, mode),
    CZ__SCHED_FIELD(INTEGER, cyclic_sched, fixed_momentum),
};

static const cz__sched_kind kind = {
    .name = "cyclic",
    .size = sizeof(cyclic_sched),
    .field_count = sizeof fields / sizeof *fields,
    .fields = fields,
    .check = check,
    .rate = rate,
    .momentum = momentum,
    .drives_momentum = drives_momentum,
    .base = base_of,
};

cz_status cz_sched_create_cyclic(cz_sched **out, cz_optim *optim, double base_lr, double max_lr,
                                 const cz_sched_cyclic_options *options)
{
    CZ__OWN_FLOATS;
    static const cz_sched_cyclic_options defaults = CZ_SCHED_CYCLIC_OPTIONS_INIT;
    cz_sched_cyclic_options o;
    if (out)
        *out = NULL;
    CZ_TRY(
        cz__options_read(&o, sizeof o, options ? options : &defaults, "cz_sched_cyclic_options"));
    const cyclic_sched draft = {.sched.kind = &kind,
                                .base_lr = cz__list_per_group(&base_lr, o.base_lrs, optim),
                                .max_lr = cz__list_per_group(&max_lr, o.max_lrs, optim),
                                .step_size_up = o.step_size_up,
                                .step_size_down = o.step_size_down,
                                .gamma = o.gamma,
                                .base_momentum = o.base_momentum,
                                .max_momentum = o.max_momentum,
                                .mode = o.mode,
                                .fixed_momentum = o.fixed_momentum};
    return cz__sched_create(out, optim, &draft.sched, o.first_epoch);
}
