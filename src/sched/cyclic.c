/* SPDX-License-Identifier: MIT */
/* Rates that fall and rise again: cosines, a triangle wave, one cycle. */
#include <inttypes.h>
#include <math.h>

#include "base/float_mode.h"
#include "base/options.h"
#include "base/status.h"
#include "sched/object.h"

/* ---- cosines ---- */
/* Half a cosine down, once or again and again: Loshchilov and Hutter, "SGDR: Stochastic Gradient
 * Descent with Warm Restarts", arXiv:1608.03983, equation 5. */

typedef struct cosine_sched {
    cz_sched sched;
    double eta_min;
    int64_t t_max;       /* cosine */
    int64_t t_0, t_mult; /* warm restarts */
} cosine_sched;

/* The ratio of two neighbouring epochs above eta_min; one after a minimum has none, it is an
 * addition. */
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
    CZ__SCHED_FIELD(INTEGER, cosine_sched, t_max, CZ__FROM(1)),
    CZ__SCHED_FIELD(REAL, cosine_sched, eta_min, CZ__FROM(0)),
};

static const cz__sched_kind cosine_kind = {
    .name = "cosine",
    .size = sizeof(cosine_sched),
    .field_count = 2,
    .fields = cosine_fields,
    .rate = cosine_rate,
    .closed = cosine_closed,
    .resumes_closed = true,
};

cz_status cz_sched_create_cosine(cz_sched **out, cz_optim *optim, int64_t t_max, double eta_min,
                                 const cz_sched_options *options)
{
    CZ__OWN_FLOATS;
    const cosine_sched draft = {.sched.kind = &cosine_kind, .t_max = t_max, .eta_min = eta_min};
    return cz__sched_create_simple(out, optim, &draft.sched, options);
}

/* Cycle i has t_0 t_mult^i epochs: walk to the one that the epoch is in. Whole numbers stay exact,
 * which a logarithm would not promise. */
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
    CZ__SCHED_FIELD(INTEGER, cosine_sched, t_0, CZ__FROM(1)),
    CZ__SCHED_FIELD(INTEGER, cosine_sched, t_mult, CZ__FROM(1)),
    CZ__SCHED_FIELD(REAL, cosine_sched, eta_min, CZ__FROM(0)),
};

static const cz__sched_kind warm_restarts_kind = {
    .name = "warm_restarts",
    .size = sizeof(cosine_sched),
    .field_count = 3,
    .fields = warm_restarts_fields,
    .rate = warm_restarts_rate,
    .fractions = true,
};

cz_status cz_sched_create_warm_restarts(cz_sched **out, cz_optim *optim, int64_t t_0,
                                        int64_t t_mult, double eta_min,
                                        const cz_sched_options *options)
{
    CZ__OWN_FLOATS;
    const cosine_sched draft = {
        .sched.kind = &warm_restarts_kind, .t_0 = t_0, .t_mult = t_mult, .eta_min = eta_min};
    return cz__sched_create_simple(out, optim, &draft.sched, options);
}

/* ---- triangles ---- */
/* A triangle wave between two rates, momentum the other way. Smith, "Cyclical Learning Rates for
 * Training Neural Networks", arXiv:1506.01186, section 3. */

typedef struct cyclic_sched {
    cz_sched sched;
    cz__list base_lr, max_lr;
    int64_t step_size_up, step_size_down; /* 0: as many as up */
    double gamma, base_momentum, max_momentum;
    int64_t mode, fixed_momentum;
} cyclic_sched;

/* How far up the wave is, and how high this cycle's wave goes: parts of the distance between base
 * and maximum. */
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

static double cyclic_rate(const cz_sched *sched, int64_t g, double lr)
{
    const cyclic_sched *s = (const void *)sched;
    double height, scale;
    find_wave(s, &height, &scale);
    const double base = sched->base[g];
    return base + (cz__list_pick(&s->max_lr, g) - base) * height * scale;
}

static double cyclic_momentum(const cz_sched *sched, int64_t g)
{
    const cyclic_sched *s = (const void *)sched;
    double height, scale;
    find_wave(s, &height, &scale);
    return s->max_momentum - (s->max_momentum - s->base_momentum) * height * scale;
}

static bool cyclic_drives_momentum(const cz_sched *sched)
{
    return !((const cyclic_sched *)(const void *)sched)->fixed_momentum;
}

static const cz__field cyclic_fields[] = {
    CZ__SCHED_FIELD(PER_GROUP, cyclic_sched, base_lr, CZ__FROM(0)),
    CZ__SCHED_FIELD(PER_GROUP, cyclic_sched, max_lr, CZ__FROM(0)),
    CZ__SCHED_FIELD(INTEGER, cyclic_sched, step_size_up, CZ__FROM(1)),
    CZ__SCHED_FIELD(INTEGER, cyclic_sched, step_size_down, CZ__FROM(0)),
    CZ__SCHED_FIELD(REAL, cyclic_sched, gamma, CZ__FROM(0)),
    CZ__SCHED_FIELD(REAL, cyclic_sched, base_momentum, CZ__BELOW(0, 1)),
    CZ__SCHED_FIELD(REAL, cyclic_sched, max_momentum, CZ__BELOW(0, 1)),
    CZ__SCHED_FIELD(INTEGER, cyclic_sched, mode, CZ__BETWEEN(0, CZ_SCHED_EXP_RANGE)),
    CZ__SCHED_FIELD(INTEGER, cyclic_sched, fixed_momentum, CZ__FLAG),
};

static const cz__sched_kind cyclic_kind = {
    .name = "cyclic",
    .size = sizeof(cyclic_sched),
    .field_count = sizeof cyclic_fields / sizeof *cyclic_fields,
    .fields = cyclic_fields,
    .rate = cyclic_rate,
    .momentum = cyclic_momentum,
    .drives_momentum = cyclic_drives_momentum,
    .base = base_of,
};

const cz__option_table cz__sched_cyclic_options = CZ__OPTION_TABLE(
    cz_sched_cyclic_options, CZ__OPTION(cz_sched_cyclic_options, first_epoch, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_sched_cyclic_options, step_size_up, CZ__LOCAL, CZ__ANY, CZ__ZERO_IS(2000)),
    CZ__OPTION(cz_sched_cyclic_options, step_size_down, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_sched_cyclic_options, gamma, CZ__LOCAL, CZ__ANY, CZ__ZERO_IS_OR_NONE(1)),
    CZ__OPTION(cz_sched_cyclic_options, base_momentum, CZ__LOCAL, CZ__ANY,
               CZ__ZERO_IS_OR_NONE(0.8)),
    CZ__OPTION(cz_sched_cyclic_options, max_momentum, CZ__LOCAL, CZ__ANY, CZ__ZERO_IS_OR_NONE(0.9)),
    CZ__OPTION(cz_sched_cyclic_options, base_lrs, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_sched_cyclic_options, max_lrs, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_sched_cyclic_options, mode, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_sched_cyclic_options, fixed_momentum, CZ__LOCAL, CZ__ANY));

cz_status cz_sched_create_cyclic(cz_sched **out, cz_optim *optim, double base_lr, double max_lr,
                                 const cz_sched_cyclic_options *options)
{
    CZ__OWN_FLOATS;
    cz_sched_cyclic_options o;
    if (out)
        *out = NULL;
    CZ_TRY(cz__options_read(&o, &cz__sched_cyclic_options, options, "cyclic scheduler"));
    const cyclic_sched draft = {.sched.kind = &cyclic_kind,
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

/* ---- one cycle ---- */
/* One cycle: up to a large rate and down to almost nothing, momentum the other way. Smith and
 * Topin, "Super-Convergence", arXiv:1708.07120. */

typedef struct one_cycle_sched {
    cz_sched sched;
    cz__list max_lr;
    int64_t total_steps;
    double pct_start, base_momentum, max_momentum, div_factor, final_div_factor;
    int64_t linear, three_phase, fixed_momentum; /* 0 or 1 */
} one_cycle_sched;

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

/* A leg without length is at its end, and so is what comes after the last one. Lines that end near
 * 0 may round to something below. */
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

static double one_cycle_rate(const cz_sched *sched, int64_t g, double lr)
{
    const one_cycle_sched *s = (const void *)sched;
    const leg l = find_leg(s);
    const double rates[] = {[INITIAL] = initial_of(sched, g),
                            [MAXIMUM] = cz__list_pick(&s->max_lr, g),
                            [LAST] = last_of(sched, g)};
    return along(s, &l, rates[l.lr_from], rates[l.lr_to]);
}

static double one_cycle_momentum(const cz_sched *sched, int64_t g)
{
    const one_cycle_sched *s = (const void *)sched;
    const leg l = find_leg(s);
    const double momenta[] = {[LOW] = s->base_momentum, [HIGH] = s->max_momentum};
    return along(s, &l, momenta[l.momentum_from], momenta[l.momentum_to]);
}

static bool one_cycle_drives_momentum(const cz_sched *sched)
{
    return !((const one_cycle_sched *)(const void *)sched)->fixed_momentum;
}

static cz_status publish(const cz_sched *sched, int64_t g)
{
    const one_cycle_sched *s = (const void *)sched;
    CZ_TRY(cz_optim_add_hyper(sched->optim, g, "initial_lr", initial_of(sched, g)));
    CZ_TRY(cz_optim_add_hyper(sched->optim, g, "max_lr", cz__list_pick(&s->max_lr, g)));
    CZ_TRY(cz_optim_add_hyper(sched->optim, g, "min_lr", last_of(sched, g)));
    if (!sched->drives_momentum)
        return CZ_OK;
    CZ_TRY(cz_optim_add_hyper(sched->optim, g, "max_momentum", s->max_momentum));
    return cz_optim_add_hyper(sched->optim, g, "base_momentum", s->base_momentum);
}

static const cz__field one_cycle_fields[] = {
    CZ__SCHED_FIELD(PER_GROUP, one_cycle_sched, max_lr, CZ__FROM(0)),
    CZ__SCHED_FIELD(INTEGER, one_cycle_sched, total_steps, CZ__FROM(1)),
    CZ__SCHED_FIELD(REAL, one_cycle_sched, pct_start, CZ__BETWEEN(0, 1)),
    CZ__SCHED_FIELD(REAL, one_cycle_sched, base_momentum, CZ__BELOW(0, 1)),
    CZ__SCHED_FIELD(REAL, one_cycle_sched, max_momentum, CZ__BELOW(0, 1)),
    CZ__SCHED_FIELD(REAL, one_cycle_sched, div_factor, CZ__ABOVE(0, INT64_MAX)),
    CZ__SCHED_FIELD(REAL, one_cycle_sched, final_div_factor, CZ__ABOVE(0, INT64_MAX)),
    CZ__SCHED_FIELD(INTEGER, one_cycle_sched, linear, CZ__FLAG),
    CZ__SCHED_FIELD(INTEGER, one_cycle_sched, three_phase, CZ__FLAG),
    CZ__SCHED_FIELD(INTEGER, one_cycle_sched, fixed_momentum, CZ__FLAG),
};

static const cz__sched_kind one_cycle_kind = {
    .name = "one_cycle",
    .size = sizeof(one_cycle_sched),
    .field_count = sizeof one_cycle_fields / sizeof *one_cycle_fields,
    .fields = one_cycle_fields,
    .check_epoch = check_epoch,
    .rate = one_cycle_rate,
    .momentum = one_cycle_momentum,
    .drives_momentum = one_cycle_drives_momentum,
    .base = initial_of,
    .publish = publish,
};

const cz__option_table cz__sched_one_cycle_options = CZ__OPTION_TABLE(
    cz_sched_one_cycle_options,
    CZ__OPTION(cz_sched_one_cycle_options, first_epoch, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_sched_one_cycle_options, pct_start, CZ__LOCAL, CZ__ANY, CZ__ZERO_IS_OR_NONE(0.3)),
    CZ__OPTION(cz_sched_one_cycle_options, base_momentum, CZ__LOCAL, CZ__ANY,
               CZ__ZERO_IS_OR_NONE(0.85)),
    CZ__OPTION(cz_sched_one_cycle_options, max_momentum, CZ__LOCAL, CZ__ANY,
               CZ__ZERO_IS_OR_NONE(0.95)),
    CZ__OPTION(cz_sched_one_cycle_options, div_factor, CZ__LOCAL, CZ__ANY, CZ__ZERO_IS(25)),
    CZ__OPTION(cz_sched_one_cycle_options, final_div_factor, CZ__LOCAL, CZ__ANY, CZ__ZERO_IS(1e4)),
    CZ__OPTION(cz_sched_one_cycle_options, max_lrs, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_sched_one_cycle_options, linear, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_sched_one_cycle_options, three_phase, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_sched_one_cycle_options, fixed_momentum, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_sched_one_cycle_options, reserved, CZ__LOCAL, CZ__RESERVED));

cz_status cz_sched_create_one_cycle(cz_sched **out, cz_optim *optim, double max_lr,
                                    int64_t total_steps, const cz_sched_one_cycle_options *options)
{
    CZ__OWN_FLOATS;
    cz_sched_one_cycle_options o;
    if (out)
        *out = NULL;
    CZ_TRY(cz__options_read(&o, &cz__sched_one_cycle_options, options, "one_cycle scheduler"));
    const one_cycle_sched draft = {.sched.kind = &one_cycle_kind,
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
