/* SPDX-License-Identifier: MIT */
#include "support/stages.h"

#include <string.h>

#include "group/group_test.h"

enum { MOST_PARAMS = 16, MOST_GROUPS = 4 };

static const stage *present(const stages *s)
{
    return &s->list[s->now];
}

/* Where in a model that was made in that order parameter `param` is. */
static int64_t place_of(const cz_test_training *t, int64_t param)
{
    int64_t place = 0;
    while (t->order > 0 && place * t->order % t->param_count != param)
        place++;
    return t->order > 0 ? place : param;
}

/* Of both signs, and of a parameter's own. Sums over ranks are exact, and so is their mean. */
static double gradient(int rank, int world, int step, int64_t param, int64_t i)
{
    const double mean = (double)((i + param + step) % 11 - 5) / 32;
    return mean + (2.0 * rank - (world - 1)) / 64;
}

typedef struct grouping {
    cz_param_group groups[MOST_GROUPS];
    int64_t members[MOST_GROUPS][MOST_PARAMS];
} grouping;

static void make_groups(grouping *g, const cz_test_training *t)
{
    for (int64_t k = 0; k < t->group_count; k++) {
        g->groups[k] = t->groups[k];
        g->groups[k].params = g->members[k];
        for (int64_t m = 0; m < t->groups[k].param_count; m++)
            g->members[k][m] = place_of(t, t->groups[k].params[m]);
    }
}

/* Of an optimizer that is made before step `begin`. */
static int64_t first_group_count(const cz_test_training *t, int begin)
{
    const bool later = t->last_group_at > 0 && begin <= t->last_group_at;
    return t->group_count - later;
}

static cz_status edit(const cz_test_training *t, const cz_test_subject *subject, int step)
{
    return t->edit ? t->edit(subject, step) : CZ_OK;
}

/* Whatever happens before a step. */
static cz_status change(const cz_test_training *t, const grouping *g,
                        const cz_test_subject *subject, int step)
{
    if (t->last_group_at > 0 && step == t->last_group_at) {
        const cz_param_group *last = &g->groups[t->group_count - 1];
        CZ_TRY(subject->zero ? cz_zero_add_param_group(subject->zero, last)
                             : cz_optim_add_param_group(subject->optim, last));
    }
    CZ_TRY(edit(t, subject, step));
    return t->tune ? t->tune(subject, step) : CZ_OK;
}

/* Of a rank, or with -1 the mean, rounded once. */
static cz_status set_gradients(const cz_test_training *t, const cz_test_memory *memory, int rank,
                               int world, int step)
{
    for (int64_t p = 0; p < t->param_count; p++) {
        bool any = false, has[MANY_RANKS];
        for (int r = 0; r < world; r++) {
            has[r] = !t->has_gradient || t->has_gradient(r, step, p);
            any |= has[r] && (rank < 0 || r == rank);
        }
        CZ_TRY(cz_model_set_gradient(memory->model, place_of(t, p), any ? memory->grads[p] : NULL));
        for (int64_t i = 0; i < t->sizes[p]; i++) {
            double sum = 0;
            for (int r = 0; r < world; r++)
                sum += has[r] ? gradient(r, world, step, p, i) : 0;
            const double mean =
                t->dtype == CZ_F64 ? sum / world : (double)((float)sum / (float)world);
            cz_test_store(memory->grads[p], t->dtype, i,
                          rank < 0 ? mean : gradient(rank, world, step, p, i));
        }
    }
    return CZ_OK;
}

static size_t bytes_of(const cz_test_training *t, int64_t param)
{
    return (size_t)t->sizes[param] * cz_dtype_size(t->dtype);
}

static void copy_values(const cz_test_training *t, const cz_test_memory *to,
                        const cz_test_memory *from)
{
    for (int64_t p = 0; p < t->param_count; p++)
        memcpy(to->values[p], from->values[p], bytes_of(t, p));
}

static cz_status run_reference(stages *s, const cz_test_memory *memory, cz_optim **optim)
{
    const cz_test_training *t = s->training;
    grouping g;
    make_groups(&g, t);
    const cz_optim_options options = {sizeof options, t->groups ? g.groups : NULL,
                                      first_group_count(t, 0), 0, 0};
    cz_test_subject subject = {memory->model, NULL, NULL};
    CZ_TRY(edit(t, &subject, -1));
    CZ_TRY(cz_optim_create(optim, memory->model, t->rule, t->hypers, &options));
    subject.optim = *optim;
    for (int k = 0, step = 0; k < s->count; k++) {
        const cz_step_options clipped = {.size = sizeof clipped, .max_norm = s->list[k].max_norm};
        for (int end = step + s->list[k].steps; step < end; step++) {
            CZ_TRY(change(t, &g, &subject, step));
            CZ_TRY(set_gradients(t, memory, -1, s->list[k].world, step));
            CZ_TRY(cz_optim_step(*optim, &clipped, NULL));
        }
        CZ_TRY(cz_optim_state_dict(*optim, &s->dicts[k]));
        CZ_TRY(cz_test_memory_create(&s->memories[k], t));
        copy_values(t, &s->memories[k], memory);
    }
    return CZ_OK;
}

/* On every rank in turn, or on all. */
static cz_status compare_dict(const stages *s, cz_zero *zero, cz_group *group, int to)
{
    cz_state_dict *dict = NULL;
    CZ_TRY(cz_zero_consolidate_state_dict(zero, to));
    if (to != CZ_ALL_RANKS && to != cz_group_rank(group))
        return expect(cz_zero_state_dict(zero, &dict), CZ_ERR_STATE, "was consolidated on rank");
    CZ_TRY(cz_zero_state_dict(zero, &dict));
    const bool same = cz_state_dict_equal(dict, s->dicts[s->now]);
    cz_state_dict_destroy(&dict);
    return same ? CZ_OK : cz_fail(CZ_ERR_STATE, "stage %d: the dictionary differs", s->now);
}

static cz_status compare(const stages *s, const cz_test_memory *memory, cz_zero *zero,
                         cz_group *group)
{
    const cz_test_training *t = s->training;
    for (int64_t p = 0; p < t->param_count; p++)
        if (memcmp(memory->values[p], s->memories[s->now].values[p], bytes_of(t, p)) != 0)
            return cz_fail(CZ_ERR_STATE, "stage %d: parameter %d differs", s->now, (int)p);
    CZ_TRY(compare_dict(s, zero, group, CZ_ALL_RANKS));
    return compare_dict(s, zero, group, s->now % cz_group_size(group));
}

static cz_status make_optimizer(const stages *s, const cz_test_training *t, const grouping *g,
                                const cz_test_memory *memory, cz_group *group, cz_zero **zero)
{
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    int owners[MOST_PARAMS];
    options.partition = present(s)->partition;
    options.groups = t->groups ? g->groups : NULL;
    options.group_count = first_group_count(t, s->begin);
    if (options.partition == CZ_PARTITION_GIVEN) {
        for (int64_t p = 0; p < t->param_count; p++)
            owners[place_of(t, p)] = (int)((p * p + 1) % present(s)->world);
        options.owners = owners;
        options.owner_count = t->param_count;
    }
    return cz_zero_create(zero, group, memory->model, t->rule, t->hypers, &options);
}

/* What happened in earlier stages, happens again unless the optimizer was made with it: frozen
 * parameters and added groups are the program's. What is handed over has the rest. */
static cz_status go_on(const stages *s, const cz_test_training *t, const cz_test_memory *memory,
                       cz_group *group, cz_zero *zero)
{
    const cz_test_subject subject = {memory->model, NULL, zero};
    const int repeated = t->last_group_at > 0 ? 0 : s->begin;
    for (int step = 0; step < repeated; step++)
        CZ_TRY(edit(t, &subject, step));
    if (!s->by) {
        copy_values(t, memory, &s->memories[s->now - 1]);
        return cz_zero_load_state_dict(zero, s->dicts[s->now - 1]);
    }
    for (int64_t p = 0; p < t->param_count; p++)
        memset(memory->values[p], 0xff, bytes_of(t, p));
    return s->by->load(s, group, zero);
}

static cz_status run_stage(const stages *s, cz_test_memory *memory, cz_group *group, cz_zero **zero)
{
    cz_test_training t = *s->training;
    const stage *now = present(s);
    const int made_at = t.last_group_at > 0 ? s->begin : -1;
    grouping g;
    t.order = now->shuffle;
    CZ_TRY(cz_test_memory_create(memory, &t));
    make_groups(&g, &t);
    CZ_TRY(edit(&t, &(cz_test_subject){memory->model, NULL, NULL}, made_at));
    CZ_TRY(make_optimizer(s, &t, &g, memory, group, zero));
    if (s->now > 0)
        CZ_TRY(go_on(s, &t, memory, group, *zero));
    const cz_test_subject subject = {memory->model, NULL, *zero};
    const cz_step_options options = {.size = sizeof options, .max_norm = now->max_norm};
    for (int step = s->begin; step < s->end; step++) {
        CZ_TRY(change(&t, &g, &subject, step));
        if (now->shuffle && (step == s->begin + 1 || step == s->begin + 2))
            CZ_TRY(cz_zero_reshard(
                *zero, step == s->begin + 1 ? CZ_PARTITION_GREEDY : CZ_PARTITION_ELEMENTS, NULL,
                0));
        CZ_TRY(set_gradients(&t, memory, cz_group_rank(group), now->world, step));
        CZ_TRY(cz_zero_step(*zero, &options, NULL));
    }
    CZ_TRY(compare(s, memory, *zero, group));
    if (s->by)
        CZ_TRY(s->by->save(s, group, *zero));
    return s->inspect && s->now == s->count - 1 ? s->inspect(&subject, group) : CZ_OK;
}

static cz_status stage_body(cz_group *group, void *context)
{
    cz_test_memory memory = {0};
    cz_zero *zero = NULL;
    const cz_status status = run_stage(context, &memory, group, &zero);
    cz_zero_destroy(&zero);
    cz_test_memory_destroy(&memory);
    return status;
}

void check_stages(const handover *by, const cz_test_training *training, const stage *list,
                  int count, cz_status (*inspect)(const cz_test_subject *subject, cz_group *group))
{
    stages s = {.training = training, .list = list, .count = count, .inspect = inspect, .by = by};
    cz_test_memory memory = {0};
    cz_optim *optim = NULL;
    assert_ok(cz_test_memory_create(&memory, training));
    assert_ok(run_reference(&s, &memory, &optim));
    for (; s.now < count; s.now++) {
        s.begin = s.end;
        s.end += list[s.now].steps;
        expect_ok(list[s.now].world, list[s.now].segment_bytes, stage_body, &s);
    }
    cz_optim_destroy(&optim);
    cz_test_memory_destroy(&memory);
    for (int k = 0; k < count; k++) {
        cz_state_dict_destroy(&s.dicts[k]);
        cz_test_memory_destroy(&s.memories[k]);
    }
}
