/* SPDX-License-Identifier: MIT */
/* An optimizer with two parameter groups, of rates 0.1 and 0.02: the one of the recorded runs. A
 * third parameter is in no group, to be added later. */
#ifndef CZ_TESTS_SCHED_TWO_GROUPS_H
#define CZ_TESTS_SCHED_TWO_GROUPS_H

#include "support/cz_test.h"

#include "czero/sched.h"
#include "optim/optim.h"

#include <math.h>
#include <string.h>

typedef struct subject {
    float values[3], grads[3];
    cz_model *model;
    cz_optim *optim;
} subject;

static inline void make_optim(subject *s, const cz_rule *rule, const cz_hyper *hypers)
{
    static const int64_t one = 1, params[] = {0, 1};
    *s = (subject){.values = {1, 1, 1}};
    assert_ok(cz_model_create(&s->model));
    for (int p = 0; p < 3; p++) {
        const char name[] = {(char)('a' + p), '\0'};
        assert_ok(cz_model_add(s->model, name, &s->values[p], &s->grads[p], CZ_F32, 1, &one));
    }
    const cz_param_group groups[] = {
        {sizeof *groups, &params[0], 1, NULL},
        {sizeof *groups, &params[1], 1, CZ_HYPERS({"lr", 0.02})},
    };
    const cz_optim_options options = {.size = sizeof options, .groups = groups, .group_count = 2};
    assert_ok(cz_optim_create(&s->optim, s->model, rule, hypers, &options));
}

static inline void make_sgd(subject *s)
{
    make_optim(s, cz_rule_sgd(), CZ_HYPERS({"lr", 0.1}, {"momentum", 0.9}));
}

static inline void make_adam(subject *s)
{
    make_optim(s, cz_rule_adam(), CZ_HYPERS({"lr", 0.1}));
}

static inline void destroy(subject *s)
{
    cz_optim_destroy(&s->optim);
    cz_model_destroy(&s->model);
}

static inline double hyper(const subject *s, int64_t group, const char *name)
{
    double value = NAN;
    assert_ok(cz_optim_get_hyper(s->optim, group, name, &value));
    return value;
}

static inline double rate(const subject *s, int64_t group)
{
    return hyper(s, group, "lr");
}

static inline bool has(const subject *s, int64_t group, const char *name)
{
    for (int i = 0; i < cz__optim_hyper_count(s->optim, group); i++)
        if (strcmp(cz_optim_hyper_name(s->optim, group, i), name) == 0)
            return true;
    return false;
}

/* A third group with the third parameter. */
static inline void add_group(subject *s, double lr)
{
    static const int64_t param = 2;
    const cz_param_group group = {sizeof group, &param, 1, CZ_HYPERS({"lr", lr})};
    assert_ok(cz_optim_add_param_group(s->optim, &group));
}

static inline void optim_step(subject *s)
{
    assert_ok(cz_optim_step(s->optim, NULL, NULL));
}

static inline void sched_step(cz_sched *sched)
{
    if (cz_sched_step(sched) != CZ_OK)
        fail_msg("%s", cz_last_error());
}

static inline bool close_to(double a, double b, double relative)
{
    return fabs(a - b) <= relative * fabs(b);
}

static inline double power_of_095(int64_t epoch, int64_t group, void *context)
{
    return pow(0.95, (double)epoch);
}

static inline double factor_097(int64_t epoch, int64_t group, void *context)
{
    return 0.97;
}

/* Every kind that has epochs, with numbers that make it do something in the first 50. */
#define KIND_COUNT 14
static const char *const kind_names[KIND_COUNT] = {
    "step",   "multi_step",     "exponential",   "constant",  "linear", "polynomial", "cosine",
    "lambda", "multiplicative", "warm_restarts", "one_cycle", "cyclic", "sequential", "chained"};

static inline cz_status make_kind(cz_sched **out, cz_optim *optim, int kind, int64_t first_epoch);

static inline cz_status make_composite(cz_sched **out, cz_optim *optim, bool sequential)
{
    cz_sched *members[3] = {NULL};
    cz_status status = make_kind(&members[0], optim, 4, 0);     /* linear */
    THEN(make_kind(&members[1], optim, sequential ? 6 : 2, 0)); /* cosine, exponential */
    THEN(make_kind(&members[2], optim, 0, 0));                  /* step */
    THEN(sequential ? cz_sched_create_sequential(out, members, 3, (const int64_t[]){6, 23})
                    : cz_sched_create_chained(out, members, 3));
    for (int i = 0; i < 3; i++)
        cz_sched_destroy(&members[i]);
    return status;
}

static inline cz_status make_kind(cz_sched **out, cz_optim *optim, int kind, int64_t first_epoch)
{
    static const int64_t milestones[] = {12, 5, 30, 12};
    const cz_sched_options o = {sizeof o, first_epoch};
    cz_sched_one_cycle_options one_cycle = CZ_SCHED_ONE_CYCLE_OPTIONS_INIT;
    cz_sched_cyclic_options cyclic = CZ_SCHED_CYCLIC_OPTIONS_INIT;
    one_cycle.first_epoch = cyclic.first_epoch = first_epoch;
    cyclic.step_size_up = 8;
    cyclic.mode = CZ_SCHED_TRIANGULAR2;
    *out = NULL;
    switch (kind) {
    case 0:
        return cz_sched_create_step(out, optim, 7, 0.5, &o);
    case 1:
        return cz_sched_create_multi_step(out, optim, milestones, 4, 0.3, &o);
    case 2:
        return cz_sched_create_exponential(out, optim, 0.93, &o);
    case 3:
        return cz_sched_create_constant(out, optim, 0.5, 8, &o);
    case 4:
        return cz_sched_create_linear(out, optim, 0.25, 1, 10, &o);
    case 5:
        return cz_sched_create_polynomial(out, optim, 60, 2.5, &o);
    case 6:
        return cz_sched_create_cosine(out, optim, 20, 0.001, &o);
    case 7:
        return cz_sched_create_lambda(out, optim, power_of_095, NULL, &o);
    case 8:
        return cz_sched_create_multiplicative(out, optim, factor_097, NULL, &o);
    case 9:
        return cz_sched_create_warm_restarts(out, optim, 6, 2, 0.001, &o);
    case 10:
        return cz_sched_create_one_cycle(out, optim, 0.1, 60, &one_cycle);
    case 11:
        return cz_sched_create_cyclic(out, optim, 0.01, 0.1, &cyclic);
    default:
        return make_composite(out, optim, kind == 12);
    }
}

static inline cz_sched *new_kind(const subject *s, int kind)
{
    cz_sched *sched;
    if (make_kind(&sched, s->optim, kind, 0) != CZ_OK)
        fail_msg("%s: %s", kind_names[kind], cz_last_error());
    return sched;
}

#endif
