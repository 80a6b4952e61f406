/* SPDX-License-Identifier: MIT */
/* What the tests of trainings share: a training in every mode, and journeys: a training in legs, each on
 * its own number of ranks, that goes on from the dictionary of the leg before. */
#ifndef CZ_TEST_CASES_H
#define CZ_TEST_CASES_H

#include "group/group_test.h"
#include "support/training.h"

/* Cut into elements and whole, gradients local and reduced. */
static inline void check_all(cz_test_training training, int world_size,
                             cz_status (*inspect)(const cz_test_subject *subject, cz_group *group))
{
    for (int mode = 0; mode < 4; mode++) {
        char why[256];
        training.dtype = CZ_F32;
        training.partition = mode % 2 ? CZ_PARTITION_GREEDY : CZ_PARTITION_ELEMENTS;
        training.gradients = mode / 2 ? CZ_GRADIENTS_REDUCED : CZ_GRADIENTS_LOCAL;
        if (cz_test_train(&training, world_size, inspect, why) != CZ_OK)
            fail_msg("%s, mode %d, world size %d: %s", training.rule->name, mode, world_size, why);
    }
}

/* ---- journeys ---- */

enum { MOST_LEGS = 4 };

typedef struct leg {
    int world, steps;
    cz_partition partition;
    size_t segment_bytes; /* of the group; 0: the default */
    double max_norm;      /* gradients are clipped to it; 0: they are not */
} leg;

struct journey;

/* How a leg goes on from the one before, parameters included, and what it leaves; NULL: the dictionary in memory. */
typedef struct passage {
    cz_status (*load)(const struct journey *j, cz_group *group, cz_zero *zero);
    cz_status (*save)(const struct journey *j, cz_group *group, cz_zero *zero);
} passage;

typedef struct journey {
    const cz_test_training *training; /* its partition, gradients and steps do not count */
    const leg *legs;
    int leg_count;
    cz_status (*inspect)(const cz_test_subject *subject, cz_group *group); /* at the end */
    const struct passage *passage;
    /* What the unsharded optimizer, which never stopped, has after each leg. */
    cz_state_dict *dicts[MOST_LEGS];
    cz_test_memory memories[MOST_LEGS];
    int now; /* the leg */
} journey;

static inline int first_step(const journey *j, int place)
{
    int step = 0;
    for (int k = 0; k < place; k++)
        step += j->legs[k].steps;
    return step;
}

static inline cz_status edit(const journey *j, const cz_test_subject *subject, int step)
{
    return j->training->edit ? j->training->edit(subject, step) : CZ_OK;
}

static inline bool has_gradient(const journey *j, int rank, int step, int64_t param)
{
    return !j->training->has_gradient || j->training->has_gradient(rank, step, param);
}

/* Of a rank, or with -1 the mean, rounded once. */
static inline cz_status set_gradients(const journey *j, const cz_test_memory *memory, int rank,
                                      int world, int step)
{
    const cz_test_training *t = j->training;
    for (int64_t p = 0; p < t->param_count; p++) {
        bool any = false;
        for (int r = 0; r < world; r++)
            any |= (rank < 0 || r == rank) && has_gradient(j, r, step, p);
        CZ_TRY(cz_model_set_gradient(memory->model, p, any ? memory->grads[p] : NULL));
        for (int64_t i = 0; i < t->sizes[p]; i++) {
            double sum = 0;
            for (int r = 0; r < world; r++)
                sum += has_gradient(j, r, step, p) ? cz_test_gradient(r, step, i) : 0;
            const double mean =
                t->dtype == CZ_F64 ? sum / world : (double)((float)sum / (float)world);
            cz_test_store(memory->grads[p], t->dtype, i,
                          rank < 0 ? mean : cz_test_gradient(rank, step, i));
        }
    }
    return CZ_OK;
}

static inline void copy_values(const cz_test_training *t, const cz_test_memory *to,
                               const cz_test_memory *from)
{
    for (int64_t p = 0; p < t->param_count; p++)
        memcpy(to->values[p], from->values[p], (size_t)t->sizes[p] * cz_dtype_size(t->dtype));
}

static inline cz_status reference_legs(journey *j, const cz_test_memory *memory, cz_optim **optim)
{
    const cz_test_training *t = j->training;
    const cz_optim_options options = {sizeof options, t->groups, t->group_count, 0, 0};
    cz_test_subject subject = {memory->model, NULL, NULL};
    CZ_TRY(edit(j, &subject, -1));
    CZ_TRY(cz_optim_create(optim, memory->model, t->rule, t->hypers, &options));
    subject.optim = *optim;
    for (int k = 0, step = 0; k < j->leg_count; k++) {
        for (; step < first_step(j, k + 1); step++) {
            CZ_TRY(edit(j, &subject, step));
            CZ_TRY(set_gradients(j, memory, -1, j->legs[k].world, step));
            const cz_step_options step_options = {.size = sizeof step_options,
                                                  .max_norm = j->legs[k].max_norm};
            CZ_TRY(cz_optim_step(*optim, &step_options, NULL));
        }
        CZ_TRY(cz_optim_state_dict(*optim, &j->dicts[k]));
        CZ_TRY(cz_test_memory_create(&j->memories[k], t));
        copy_values(t, &j->memories[k], memory);
    }
    return CZ_OK;
}

/* On every rank in turn, or on all. */
static inline cz_status compare_dict(const journey *j, cz_zero *zero, cz_group *group, int to)
{
    cz_state_dict *dict = NULL;
    CZ_TRY(cz_zero_consolidate_state_dict(zero, to));
    if (to != CZ_ALL_RANKS && to != cz_group_rank(group))
        return expect(cz_zero_state_dict(zero, &dict), CZ_ERR_STATE, "was consolidated on rank");
    CZ_TRY(cz_zero_state_dict(zero, &dict));
    const bool same = cz_state_dict_equal(dict, j->dicts[j->now]);
    cz_state_dict_destroy(&dict);
    return same ? CZ_OK : cz_fail(CZ_ERR_STATE, "leg %d: the dictionary differs", j->now);
}

static inline cz_status compare(const journey *j, const cz_test_memory *memory, cz_zero *zero,
                                cz_group *group)
{
    const cz_test_training *t = j->training;
    for (int64_t p = 0; p < t->param_count; p++)
        if (memcmp(memory->values[p], j->memories[j->now].values[p],
                   (size_t)t->sizes[p] * cz_dtype_size(t->dtype)) != 0)
            return cz_fail(CZ_ERR_STATE, "leg %d: parameter %d differs", j->now, (int)p);
    CZ_TRY(compare_dict(j, zero, group, CZ_ALL_RANKS));
    return compare_dict(j, zero, group, j->now % cz_group_size(group));
}

/* What happened in earlier legs, happens again: frozen parameters and added groups are the program's. The
 * dictionary has the rest. */
static inline cz_status start(const journey *j, const cz_test_memory *memory, cz_group *group,
                              cz_zero **zero)
{
    const cz_test_training *t = j->training;
    const cz_zero_options options = {.size = sizeof options,
                                     .partition = j->legs[j->now].partition,
                                     .groups = t->groups,
                                     .group_count = t->group_count};
    cz_test_subject subject = {memory->model, NULL, NULL};
    CZ_TRY(edit(j, &subject, -1));
    CZ_TRY(cz_zero_create(zero, group, memory->model, t->rule, t->hypers, &options));
    if (j->now == 0)
        return CZ_OK;
    subject.zero = *zero;
    for (int step = 0; step < first_step(j, j->now); step++)
        CZ_TRY(edit(j, &subject, step));
    if (j->passage)
        return j->passage->load(j, group, *zero);
    copy_values(t, memory, &j->memories[j->now - 1]);
    return cz_zero_load_state_dict(*zero, j->dicts[j->now - 1]);
}

static inline cz_status travel(const journey *j, cz_test_memory *memory, cz_group *group,
                               cz_zero **zero)
{
    CZ_TRY(cz_test_memory_create(memory, j->training));
    CZ_TRY(start(j, memory, group, zero));
    const cz_test_subject subject = {memory->model, NULL, *zero};
    const cz_step_options options = {.size = sizeof options, .max_norm = j->legs[j->now].max_norm};
    for (int step = first_step(j, j->now); step < first_step(j, j->now + 1); step++) {
        CZ_TRY(edit(j, &subject, step));
        CZ_TRY(set_gradients(j, memory, cz_group_rank(group), cz_group_size(group), step));
        CZ_TRY(cz_zero_step(*zero, &options, NULL));
    }
    CZ_TRY(compare(j, memory, *zero, group));
    if (j->passage)
        CZ_TRY(j->passage->save(j, group, *zero));
    return j->inspect && j->now == j->leg_count - 1 ? j->inspect(&subject, group) : CZ_OK;
}

static inline cz_status leg_body(cz_group *group, void *context)
{
    cz_test_memory memory = {0};
    cz_zero *zero = NULL;
    const cz_status status = travel(context, &memory, group, &zero);
    cz_zero_destroy(&zero);
    cz_test_memory_destroy(&memory);
    return status;
}

/* After each leg, parameters and consolidated state have the bits of the unsharded optimizer. */
static inline void check_journey_by(const passage *way, const cz_test_training *training,
                                    const leg *legs, int leg_count,
                                    cz_status (*inspect)(const cz_test_subject *subject,
                                                         cz_group *group))
{
    journey j = {.training = training,
                 .legs = legs,
                 .leg_count = leg_count,
                 .inspect = inspect,
                 .passage = way};
    cz_test_memory memory = {0};
    cz_optim *optim = NULL;
    assert_ok(cz_test_memory_create(&memory, training));
    if (reference_legs(&j, &memory, &optim) != CZ_OK)
        fail_msg("%s: the reference: %s", training->rule->name, cz_last_error());
    for (; j.now < leg_count; j.now++)
        expect_ok(legs[j.now].world, legs[j.now].segment_bytes, leg_body, &j);
    cz_optim_destroy(&optim);
    cz_test_memory_destroy(&memory);
    for (int k = 0; k < leg_count; k++) {
        cz_state_dict_destroy(&j.dicts[k]);
        cz_test_memory_destroy(&j.memories[k]);
    }
}

static inline void check_journey(const cz_test_training *training, const leg *legs, int leg_count,
                                 cz_status (*inspect)(const cz_test_subject *subject,
                                                      cz_group *group))
{
    check_journey_by(NULL, training, legs, leg_count, inspect);
}

#endif
