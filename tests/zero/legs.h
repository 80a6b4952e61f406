/* SPDX-License-Identifier: MIT */
/* One training in legs: each on its own number of ranks, with its own partition and order of parameters,
 * started from what the leg before has left. Whatever the legs, parameters and dictionary have the
 * bits of one unsharded optimizer that never stopped; in between parameters are frozen, hyper-parameters
 * change, a parameter group is added, shards are made anew. How state gets from leg to leg is the test's. */
#ifndef CZ_TEST_LEGS_H
#define CZ_TEST_LEGS_H

#include <inttypes.h>
#include <string.h>

#include "support/cz_test.h"
#include "support/training.h"

enum { PARAMS = 9, STEPS = 12, ADDED_FROM = 6, ADDED_AT = 7 };

static const int64_t sizes[PARAMS] = {40, 0, 1, 131, 7, 16, 64, 33, 5};

typedef struct leg {
    int world, steps;
    cz_partition partition;
    int order; /* parameter at place k of the model: k * order mod PARAMS; order prime to PARAMS */
} leg;

/* The rule, the same for all legs, and what the reference has after each step. */
typedef struct course {
    const struct travel *way;
    const cz_rule *rule;
    const cz_hyper *hypers;
    cz_dtype dtype;
    cz_state_dict *dicts[STEPS + 1];
    void *values[STEPS + 1][PARAMS];
} course;

struct luggage;

/* How a leg goes on from the one before, once parameters and optimizer are made (not in the first leg), and what it
 * leaves at its end. */
typedef struct travel {
    cz_status (*go_on)(const struct luggage *l, cz_group *group, cz_zero *zero);
    cz_status (*leave)(const struct luggage *l, cz_group *group, cz_zero *zero); /* NULL: nothing */
    bool brings_values; /* parameters too: those here begin as something else */
    void *context;
} travel;

/* What travels from leg to leg: parameters by name, the dictionary, which step comes next. */
typedef struct luggage {
    const travel *way;
    const course *course;
    const leg *leg;
    int step;
    void *values[PARAMS];
    const cz_state_dict *dict; /* NULL: at the start */
} luggage;

static const char *const names[PARAMS] = {"p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8"};

/* ---- a model whose parameters are in some order ---- */

typedef struct world_model {
    cz_model *model;
    int64_t place[PARAMS]; /* in the model, of "p0", … */
    void *values[PARAMS], *grads[PARAMS];
} world_model;

static inline void model_clear(world_model *m)
{
    cz_model_destroy(&m->model);
    for (int k = 0; k < PARAMS; k++) {
        free(m->values[k]);
        free(m->grads[k]);
    }
}

static inline cz_status model_create(world_model *m, cz_dtype dtype, int order, void *const *values)
{
    const size_t size = cz_dtype_size(dtype);
    *m = (world_model){0};
    CZ_TRY(cz_model_create(&m->model));
    for (int k = 0; k < PARAMS; k++) {
        const int p = k * order % PARAMS;
        m->place[p] = k;
        m->values[p] = calloc((size_t)sizes[p] + 1, size);
        m->grads[p] = calloc((size_t)sizes[p] + 1, size);
        memcpy(m->values[p], values[p], (size_t)sizes[p] * size);
        CZ_TRY(cz_model_add(m->model, names[p], m->values[p], m->grads[p], dtype, 1, &sizes[p]));
    }
    return CZ_OK;
}

/* Ranks differ so that every partial sum and the mean are exact; some gradients are missing. */
static inline cz_status set_gradients(const world_model *m, cz_dtype dtype, int rank, int world,
                                      int step)
{
    for (int p = 0; p < PARAMS; p++) {
        const bool missing = (step * 5 + p * 3) % 7 == 0;
        CZ_TRY(cz_model_set_gradient(m->model, m->place[p], missing ? NULL : m->grads[p]));
        for (int64_t i = 0; i < sizes[p]; i++) {
            const double mean = (double)((i + p + step) % 11 - 5) / 32;
            const double apart = (2.0 * rank - (world - 1)) / 64;
            cz_test_store(m->grads[p], dtype, i, mean + apart);
        }
    }
    return CZ_OK;
}

/* ---- parameter groups and what happens before a step ---- */

typedef struct grouping {
    int64_t members[3][PARAMS];
    cz_param_group groups[3];
} grouping;

/* Even ones, odd ones, and those that come later. */
static inline void make_groups(grouping *g, const world_model *m)
{
    static const cz_hyper odd[] = {{"lr", 0.25}, {NULL, 0}};
    int64_t count[3] = {0};
    for (int p = 0; p < PARAMS; p++) {
        const int k = p >= ADDED_FROM ? 2 : p % 2;
        g->members[k][count[k]++] = m->place[p];
    }
    for (int k = 0; k < 3; k++)
        g->groups[k] =
            (cz_param_group){sizeof g->groups[k], g->members[k], count[k], k == 1 ? odd : NULL};
}

static inline cz_status set(cz_optim *optim, int64_t group, const char *name, double value)
{
    return cz_optim_set_hyper(optim, group, name, value);
}

static inline bool frozen(int step, int p)
{
    return (p == 3 && step >= 2 && step < 5) || (p == 0 && step >= 4 && step < 9);
}

static inline cz_status before_step(const cz_test_subject *subject, const world_model *m,
                                    const grouping *g, int step)
{
    cz_optim *optim = subject->zero ? cz_zero_local_optim(subject->zero) : subject->optim;
    if (step == ADDED_AT)
        CZ_TRY(subject->zero ? cz_zero_add_param_group(subject->zero, &g->groups[2])
                             : cz_optim_add_param_group(optim, &g->groups[2]));
    for (int p = 0; p < PARAMS; p++)
        CZ_TRY(cz_model_set_requires_grad(m->model, m->place[p], !frozen(step, p)));
    if (step == 3)
        CZ_TRY(set(optim, 0, "lr", 0.125));
    if (step == 4)
        CZ_TRY(cz_optim_add_hyper(optim, 1, "initial_lr", 0.5));
    double present;
    if (step == 8 && cz_optim_get_hyper(optim, 0, "weight_decay", &present) == CZ_OK)
        CZ_TRY(set(optim, CZ_ALL_GROUPS, "weight_decay", 0.0625));
    if (subject->zero && step == 9)
        CZ_TRY(cz_zero_reshard(subject->zero, CZ_PARTITION_ELEMENTS, NULL, 0));
    if (subject->zero && step == 10)
        CZ_TRY(cz_zero_reshard(subject->zero, CZ_PARTITION_GREEDY, NULL, 0));
    return CZ_OK;
}

/* ---- the reference ---- */

static inline void start_values(cz_dtype dtype, void **values)
{
    for (int p = 0; p < PARAMS; p++) {
        values[p] = calloc((size_t)sizes[p] + 1, cz_dtype_size(dtype));
        for (int64_t i = 0; i < sizes[p]; i++)
            cz_test_store(values[p], dtype, i, (double)(i % 13 - 6) / 16);
    }
}

static inline void keep_values(const world_model *m, cz_dtype dtype, void **values)
{
    for (int p = 0; p < PARAMS; p++) {
        values[p] = calloc((size_t)sizes[p] + 1, cz_dtype_size(dtype));
        memcpy(values[p], m->values[p], (size_t)sizes[p] * cz_dtype_size(dtype));
    }
}

static inline void free_values(void **values)
{
    for (int p = 0; p < PARAMS; p++)
        free(values[p]);
}

static inline void run_reference(course *c)
{
    world_model m;
    grouping g;
    cz_test_subject subject = {0};
    start_values(c->dtype, c->values[0]);
    assert_ok(model_create(&m, c->dtype, 1, c->values[0]));
    make_groups(&g, &m);
    const cz_optim_options options = {sizeof options, g.groups, 2, 0, 0};
    assert_ok(cz_optim_create(&subject.optim, m.model, c->rule, c->hypers, &options));
    for (int step = 0; step < STEPS; step++) {
        assert_ok(before_step(&subject, &m, &g, step));
        assert_ok(set_gradients(&m, c->dtype, 0, 1, step));
        assert_ok(cz_optim_step(subject.optim, NULL, NULL));
        keep_values(&m, c->dtype, c->values[step + 1]);
        assert_ok(cz_optim_state_dict(subject.optim, &c->dicts[step + 1]));
    }
    cz_optim_destroy(&subject.optim);
    model_clear(&m);
}

static inline void course_clear(course *c)
{
    free_values(c->values[0]);
    for (int step = 1; step <= STEPS; step++) {
        free_values(c->values[step]);
        cz_state_dict_destroy(&c->dicts[step]);
    }
}

/* ---- a leg ---- */

static inline cz_status compare(const luggage *l, const world_model *m, cz_zero *zero,
                                cz_group *group)
{
    const size_t size = cz_dtype_size(l->course->dtype);
    const int end = l->step + l->leg->steps;
    cz_state_dict *dict = NULL;
    for (int p = 0; p < PARAMS; p++)
        if (memcmp(m->values[p], l->course->values[end][p], (size_t)sizes[p] * size) != 0)
            return cz_fail(CZ_ERR_STATE, "parameter p%d differs after step %d", p, end);
    const int to = end % 2 ? CZ_ALL_RANKS : cz_group_size(group) - 1;
    CZ_TRY(cz_zero_consolidate_state_dict(zero, to));
    if (to != CZ_ALL_RANKS && to != cz_group_rank(group))
        return cz_zero_state_dict(zero, &dict) == CZ_ERR_STATE && !dict
                   ? CZ_OK
                   : cz_fail(CZ_ERR_STATE, "a rank that received nothing has a dictionary");
    CZ_TRY(cz_zero_state_dict(zero, &dict));
    const bool same = cz_state_dict_equal(dict, l->course->dicts[end]);
    cz_state_dict_destroy(&dict);
    return same ? CZ_OK : cz_fail(CZ_ERR_STATE, "the dictionary after step %d differs", end);
}

static inline cz_status run_leg(const luggage *l, cz_group *group, world_model *m, cz_zero **zero)
{
    const leg *now = l->leg;
    grouping g;
    int owners[PARAMS];
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    CZ_TRY(model_create(m, l->course->dtype, now->order, l->values));
    make_groups(&g, m);
    for (int p = 0; p < PARAMS; p++) {
        owners[p] = (p * p + 1) % now->world;
        CZ_TRY(cz_model_set_requires_grad(m->model, m->place[p], !frozen(l->step, p)));
    }
    options.partition = now->partition;
    options.groups = g.groups;
    options.group_count = l->step > ADDED_AT ? 3 : 2;
    if (now->partition == CZ_PARTITION_GIVEN) {
        options.owners = owners;
        options.owner_count = PARAMS;
    }
    CZ_TRY(cz_zero_create(zero, group, m->model, l->course->rule, l->course->hypers, &options));
    for (int p = 0; l->dict && l->way->brings_values && p < PARAMS; p++)
        memset(m->values[p], 0xff, (size_t)sizes[p] * cz_dtype_size(l->course->dtype));
    if (l->dict)
        CZ_TRY(l->way->go_on(l, group, *zero));
    const cz_test_subject subject = {m->model, NULL, *zero};
    for (int step = l->step; step < l->step + now->steps; step++) {
        CZ_TRY(before_step(&subject, m, &g, step)); /* the dictionary was made before it */
        CZ_TRY(set_gradients(m, l->course->dtype, cz_group_rank(group), now->world, step));
        CZ_TRY(cz_zero_step(*zero, NULL, NULL));
    }
    CZ_TRY(compare(l, m, *zero, group));
    return l->way->leave ? l->way->leave(l, group, *zero) : CZ_OK;
}

static inline cz_status leg_body(cz_group *group, void *context)
{
    world_model m = {0};
    cz_zero *zero = NULL;
    const cz_status status = run_leg(context, group, &m, &zero);
    cz_zero_destroy(&zero);
    model_clear(&m);
    return status;
}

static inline void run_course(const course *c, const leg *legs, int count)
{
    luggage l = {.course = c, .way = c->way};
    char why[256];
    for (int k = 0; k < count && l.step < STEPS; k++) {
        leg now = legs[k];
        if (k == count - 1 || now.steps > STEPS - l.step)
            now.steps = STEPS - l.step;
        l.leg = &now;
        l.dict = l.step > 0 ? c->dicts[l.step] : NULL;
        memcpy(l.values, c->values[l.step], sizeof l.values);
        if (cz_test_run_ranks(now.world, leg_body, &l, why) != CZ_OK)
            fail_msg("%s, leg %d from step %d on %d ranks, partition %d: %s", c->rule->name, k,
                     l.step, now.world, (int)now.partition, why);
        l.step += now.steps;
    }
}

static inline void with_course(const travel *way, const cz_rule *rule, const cz_hyper *hypers,
                               cz_dtype dtype, void (*test)(const course *))
{
    course c = {.way = way, .rule = rule, .hypers = hypers, .dtype = dtype};
    run_reference(&c);
    test(&c);
    course_clear(&c);
}

static inline void many_legs(const course *c)
{
    static const leg there[] = {{3, 2, CZ_PARTITION_ELEMENTS, 1}, {5, 2, CZ_PARTITION_GREEDY, 4},
                                {1, 2, CZ_PARTITION_GREEDY, 8},   {7, 1, CZ_PARTITION_GIVEN, 2},
                                {2, 2, CZ_PARTITION_ELEMENTS, 5}, {9, 3, CZ_PARTITION_ELEMENTS, 7}};
    static const leg whole[] = {{4, STEPS, CZ_PARTITION_GIVEN, 1}};
    run_course(c, there, 6);
    run_course(c, whole, 1);
    for (int world = 1; world <= 7; world += 2)
        for (int partition = 0; partition < 3; partition++)
            run_course(c, &(leg){world, STEPS, (cz_partition)partition, 2}, 1);
}

#endif
