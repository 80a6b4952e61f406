/* SPDX-License-Identifier: MIT */
/* One training in legs: each on its own number of ranks, with its own partition and order of parameters,
 * started from the dictionary of the leg before. Whatever the legs, parameters and dictionary have the
 * bits of one unsharded optimizer that never stopped; in between parameters are frozen, hyper-parameters
 * change, a parameter group is added, shards are made anew. */
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
    const cz_rule *rule;
    const cz_hyper *hypers;
    cz_dtype dtype;
    cz_state_dict *dicts[STEPS + 1];
    void *values[STEPS + 1][PARAMS];
} course;

/* What travels from leg to leg: parameters by name, the dictionary, which step comes next. */
typedef struct luggage {
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

static void model_clear(world_model *m)
{
    cz_model_destroy(&m->model);
    for (int k = 0; k < PARAMS; k++) {
        free(m->values[k]);
        free(m->grads[k]);
    }
}

static cz_status model_create(world_model *m, cz_dtype dtype, int order, void *const *values)
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
static cz_status set_gradients(const world_model *m, cz_dtype dtype, int rank, int world, int step)
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
static void make_groups(grouping *g, const world_model *m)
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

static cz_status set(cz_optim *optim, int64_t group, const char *name, double value)
{
    return cz_optim_set_hyper(optim, group, name, value);
}

static bool frozen(int step, int p)
{
    return (p == 3 && step >= 2 && step < 5) || (p == 0 && step >= 4 && step < 9);
}

static cz_status before_step(const cz_test_subject *subject, const world_model *m,
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

static void start_values(cz_dtype dtype, void **values)
{
    for (int p = 0; p < PARAMS; p++) {
        values[p] = calloc((size_t)sizes[p] + 1, cz_dtype_size(dtype));
        for (int64_t i = 0; i < sizes[p]; i++)
            cz_test_store(values[p], dtype, i, (double)(i % 13 - 6) / 16);
    }
}

static void keep_values(const world_model *m, cz_dtype dtype, void **values)
{
    for (int p = 0; p < PARAMS; p++) {
        values[p] = calloc((size_t)sizes[p] + 1, cz_dtype_size(dtype));
        memcpy(values[p], m->values[p], (size_t)sizes[p] * cz_dtype_size(dtype));
    }
}

static void free_values(void **values)
{
    for (int p = 0; p < PARAMS; p++)
        free(values[p]);
}

static void run_reference(course *c)
{
    world_model m;
    grouping g;
    cz_test_subject subject = {0};
    start_values(c->dtype, c->values[0]);
    assert_int_equal(model_create(&m, c->dtype, 1, c->values[0]), CZ_OK);
    make_groups(&g, &m);
    const cz_optim_options options = {sizeof options, g.groups, 2};
    assert_int_equal(cz_optim_create(&subject.optim, m.model, c->rule, c->hypers, &options), CZ_OK);
    for (int step = 0; step < STEPS; step++) {
        assert_int_equal(before_step(&subject, &m, &g, step), CZ_OK);
        assert_int_equal(set_gradients(&m, c->dtype, 0, 1, step), CZ_OK);
        assert_int_equal(cz_optim_step(subject.optim, NULL, NULL), CZ_OK);
        keep_values(&m, c->dtype, c->values[step + 1]);
        assert_int_equal(cz_optim_state_dict(subject.optim, &c->dicts[step + 1]), CZ_OK);
    }
    cz_optim_destroy(&subject.optim);
    model_clear(&m);
}

static void course_clear(course *c)
{
    free_values(c->values[0]);
    for (int step = 1; step <= STEPS; step++) {
        free_values(c->values[step]);
        cz_state_dict_destroy(&c->dicts[step]);
    }
}

/* ---- a leg ---- */

static cz_status compare(const luggage *l, const world_model *m, cz_zero *zero, cz_group *group)
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

static cz_status run_leg(const luggage *l, cz_group *group, world_model *m, cz_zero **zero)
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
    if (l->dict)
        CZ_TRY(cz_zero_load_state_dict(*zero, l->dict));
    const cz_test_subject subject = {m->model, NULL, *zero};
    for (int step = l->step; step < l->step + now->steps; step++) {
        CZ_TRY(before_step(&subject, m, &g, step)); /* the dictionary was made before it */
        CZ_TRY(set_gradients(m, l->course->dtype, cz_group_rank(group), now->world, step));
        CZ_TRY(cz_zero_step(*zero, NULL, NULL));
    }
    return compare(l, m, *zero, group);
}

static cz_status leg_body(cz_group *group, void *context)
{
    world_model m = {0};
    cz_zero *zero = NULL;
    const cz_status status = run_leg(context, group, &m, &zero);
    cz_zero_destroy(&zero);
    model_clear(&m);
    return status;
}

static void run_course(const course *c, const leg *legs, int count)
{
    luggage l = {.course = c};
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

/* ---- tests ---- */

static void with_course(const cz_rule *rule, const cz_hyper *hypers, cz_dtype dtype,
                        void (*test)(const course *))
{
    course c = {.rule = rule, .hypers = hypers, .dtype = dtype};
    run_reference(&c);
    test(&c);
    course_clear(&c);
}

/* From every world size to every other. */
static void all_pairs(const course *c)
{
    static const int orders[] = {1, 2, 4, 5, 7, 8};
    for (int from = 1; from <= 9; from++)
        for (int to = 1; to <= 9; to++) {
            const leg legs[] = {
                {from, 3 + (from + to) % 7, (cz_partition)((from + to) % 3), orders[from % 6]},
                {to, STEPS, (cz_partition)((from + 2 * to + 1) % 3), orders[to % 6]}};
            run_course(c, legs, 2);
        }
}

static void many_legs(const course *c)
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

static void test_adam_between_all_world_sizes(void **state)
{
    with_course(cz_rule_adam(), CZ_HYPERS({"lr", 0.5}, {"amsgrad", 1}), CZ_F32, all_pairs);
}

static void test_many_legs(void **state)
{
    with_course(cz_rule_adamw(), CZ_HYPERS({"lr", 0.5}), CZ_F64, many_legs);
    with_course(cz_rule_sgd(), CZ_HYPERS({"lr", 0.5}, {"momentum", 0.75}, {"nesterov", 1}), CZ_F32,
                many_legs);
    with_course(cz_rule_sgd(), CZ_HYPERS({"lr", 0.5}), CZ_F32, many_legs);
}

/* Slots that start with a value, scalars of a parameter, state from creation on. */
static void test_all_rules(void **state)
{
    with_course(cz_rule_adamax(), CZ_HYPERS({"lr", 0.5}), CZ_F32, many_legs);
    with_course(cz_rule_adadelta(), NULL, CZ_F32, many_legs);
    with_course(cz_rule_adagrad(), CZ_HYPERS({"lr", 0.5}, {"initial_accumulator_value", 0.5}),
                CZ_F32, many_legs);
    with_course(cz_rule_rmsprop(), CZ_HYPERS({"lr", 0.5}, {"centered", 1}, {"momentum", 0.5}),
                CZ_F32, many_legs);
    with_course(cz_rule_rprop(), CZ_HYPERS({"lr", 0.5}), CZ_F64, many_legs);
    with_course(cz_rule_nadam(), CZ_HYPERS({"lr", 0.5}), CZ_F32, many_legs);
    with_course(cz_rule_radam(), CZ_HYPERS({"lr", 0.5}), CZ_F64, many_legs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adam_between_all_world_sizes),
        cmocka_unit_test(test_many_legs),
        cmocka_unit_test(test_all_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
