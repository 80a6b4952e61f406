/* SPDX-License-Identifier: MIT */
/* Trainings with a known outcome. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "support/cz_test.h"
#include "support/training.h"
#include "support/spans.h"
#include "tensor/model.h"
#include "shard/shard.h"
#include "optim/optim.h"

double cz_test_gradient(int rank, int step, int64_t i)
{
    return (rank + 1.0) * (step + 1.0) * (double)(i % 7 + 1) / 64;
}

/* ---- gradients ---- */

static bool has_gradient(const cz_test_training *t, int rank, int step, int64_t param)
{
    return !t->has_gradient || t->has_gradient(rank, step, param);
}

/* The mean over ranks, rounded once, as one element. False: no rank has a gradient. */
static bool mean(const cz_test_training *t, int world_size, int step, int64_t param, int64_t i,
                 double *value)
{
    bool any = false;
    double sum = 0;
    for (int r = 0; r < world_size; r++)
        if (has_gradient(t, r, step, param)) {
            any = true;
            sum += cz_test_gradient(r, step, i);
        }
    *value = t->dtype == CZ_F64 ? sum / world_size : (double)((float)sum / (float)world_size);
    return any;
}

/* Every element of every parameter, from rank `rank` or, with -1, the mean. */
static cz_status set_gradients(const cz_test_training *t, const cz_test_memory *memory, int rank,
                               int world_size, int step)
{
    for (int64_t p = 0; p < t->param_count; p++) {
        double value;
        const bool present =
            rank < 0 ? mean(t, world_size, step, p, 0, &value) : has_gradient(t, rank, step, p);
        CZ_TRY(cz_model_set_gradient(memory->model, p, present ? memory->grads[p] : NULL));
        for (int64_t i = 0; i < t->sizes[p]; i++) {
            if (rank < 0)
                mean(t, world_size, step, p, i, &value);
            else
                value = cz_test_gradient(rank, step, i);
            cz_test_store(memory->grads[p], t->dtype, i, value);
        }
    }
    return CZ_OK;
}

/* What is already reduced: the mean on the owner, nonsense elsewhere. */
static cz_status set_reduced_gradients(const cz_test_training *t, const cz_test_memory *memory,
                                       const cz_test_subject *subject, cz_group *group, int step)
{
    CZ_TRY(set_gradients(t, memory, -1, cz_group_size(group), step));
    for (int64_t p = 0; p < t->param_count; p++)
        for (int64_t i = 0; i < t->sizes[p]; i++) {
            cz_span span;
            const bool owned = cz__shard_map_locate(cz_test_shard_map(subject->zero), p, i, &span);
            if (!owned || span.rank != cz_group_rank(group))
                cz_test_store(memory->grads[p], t->dtype, i, NAN);
        }
    return CZ_OK;
}

/* ---- the reference ---- */

typedef struct reference {
    const cz_test_training *training;
    cz_test_memory memory;
    cz_optim *optim;
    cz_status (*inspect)(const cz_test_subject *subject, cz_group *group);
} reference;

static cz_status edit(const cz_test_training *t, const cz_test_subject *subject, int step)
{
    if (t->edit)
        CZ_TRY(t->edit(subject, step));
    return t->tune && step >= 0 ? t->tune(subject, step) : CZ_OK;
}

static cz_step_options options_of(const cz_test_training *t, int step)
{
    return (cz_step_options){.size = sizeof(cz_step_options),
                             .argument = t->argument ? t->argument(step) : NULL};
}

cz_status cz_test_set_hyper(const cz_test_subject *subject, int64_t param_group, const char *name,
                            double value)
{
    return subject->zero
               ? cz_optim_set_hyper(cz_zero_local_optim(subject->zero), param_group, name, value)
               : cz_optim_set_hyper(subject->optim, param_group, name, value);
}

static cz_status train_reference(reference *ref, int world_size)
{
    const cz_test_training *t = ref->training;
    CZ_TRY(cz_test_memory_create(&ref->memory, t));
    cz_test_subject subject = {ref->memory.model, NULL, NULL};
    CZ_TRY(edit(t, &subject, -1));
    const cz_optim_options options = {sizeof options, t->groups, t->group_count, 0, 0};
    CZ_TRY(cz_optim_create(&ref->optim, ref->memory.model, t->rule, t->hypers, &options));
    subject.optim = ref->optim;
    for (int step = 0; step < t->steps; step++) {
        CZ_TRY(edit(t, &subject, step));
        CZ_TRY(set_gradients(t, &ref->memory, -1, world_size, step));
        const cz_step_options told = options_of(t, step);
        CZ_TRY(cz_optim_step(ref->optim, &told, NULL));
    }
    return CZ_OK;
}

/* ---- the ranks ---- */

static cz_status compare_params(const reference *ref, const cz_test_memory *memory, int rank)
{
    const cz_test_training *t = ref->training;
    for (int64_t p = 0; p < t->param_count; p++)
        for (int64_t i = 0; i < t->sizes[p]; i++) {
            const double got = cz_test_load(memory->values[p], t->dtype, i);
            const double wanted = cz_test_load(ref->memory.values[p], t->dtype, i);
            if (memcmp(&got, &wanted, sizeof got) != 0)
                return cz_fail(CZ_ERR_STATE,
                               "rank %d: parameter %" PRId64 " element %" PRId64
                               " is %.9g, wanted %.9g",
                               rank, p, i, got, wanted);
        }
    return CZ_OK;
}

static cz_status compare_slot(const reference *ref, const cz_optim *optim, const cz_span *span,
                              const char *slot)
{
    const size_t size = cz_dtype_size(ref->training->dtype);
    for (int64_t i = span->begin; i < span->end; i++) {
        const void *got = NULL, *wanted = NULL;
        int64_t count;
        CZ_TRY(cz_optim_state(optim, span->param, slot, i, &got, &count));
        CZ_TRY(cz_optim_state(ref->optim, span->param, slot, i, &wanted, &count));
        if (!got != !wanted || (got && memcmp(got, wanted, size) != 0))
            return cz_fail(CZ_ERR_STATE,
                           "rank %d: %s of parameter %" PRId64 " element %" PRId64
                           " is %s, wanted %s",
                           span->rank, slot, span->param, i, got ? "other" : "absent",
                           wanted ? "present" : "absent");
    }
    return CZ_OK;
}

/* On every owner. */
static cz_status compare_scalar(const reference *ref, const cz_optim *optim, const cz_span *span,
                                const char *slot)
{
    double got = (double)cz__optim_step_count(optim, span->param);
    double wanted = (double)cz__optim_step_count(ref->optim, span->param);
    if (strcmp(slot, "step") != 0) {
        CZ_TRY(cz_optim_scalar(optim, span->param, slot, &got));
        CZ_TRY(cz_optim_scalar(ref->optim, span->param, slot, &wanted));
    }
    if (memcmp(&got, &wanted, sizeof got) != 0)
        return cz_fail(CZ_ERR_STATE, "rank %d: %s of parameter %" PRId64 " is %.9g, wanted %.9g",
                       span->rank, slot, span->param, got, wanted);
    return CZ_OK;
}

static cz_status compare_state(const reference *ref, const cz_zero *zero, int rank)
{
    const cz_optim *optim = cz_zero_local_optim(zero);
    cz_span_iterator iterator;
    cz_span span;
    for (int64_t p = 0; p < ref->training->param_count; p++) {
        const int64_t got = cz__optim_step_count(optim, p),
                      wanted = cz__optim_step_count(ref->optim, p);
        if (cz__shard_map_home(cz_test_shard_map(zero), p) == rank && got != wanted)
            return cz_fail(CZ_ERR_STATE,
                           "rank %d: parameter %" PRId64 " made %" PRId64 " steps, wanted %" PRId64,
                           rank, p, got, wanted);
    }
    cz_span_iterate(cz_test_shard_map(zero), rank, &iterator);
    while (cz_span_next(&iterator, &span)) {
        const cz_rule *rule = cz__optim_rule_of(optim, span.param);
        for (int s = 0; s < rule->slot_count; s++)
            CZ_TRY(rule->slots[s].kind == CZ_SLOT_ELEMENT
                       ? compare_slot(ref, optim, &span, rule->slots[s].name)
                       : compare_scalar(ref, optim, &span, rule->slots[s].name));
    }
    return CZ_OK;
}

static bool in_group(const cz_test_training *t, int64_t param)
{
    bool found = t->group_count == 0;
    for (int64_t g = 0; g < t->group_count; g++)
        for (int64_t k = 0; k < t->groups[g].param_count; k++)
            found |= t->groups[g].params[k] == param;
    return found;
}

/* After a step, the owned spans of a gradient may be the mean; all else is as it was. */
static cz_status compare_gradients(const reference *ref, const cz_test_memory *memory,
                                   const cz_zero *zero, cz_group *group, int step)
{
    const cz_test_training *t = ref->training;
    const int rank = cz_group_rank(group);
    for (int64_t p = 0; p < t->param_count; p++) {
        const bool trained = cz__model_requires_grad(memory->model, p) && in_group(t, p);
        for (int64_t i = 0; i < t->sizes[p]; i++) {
            cz_span span;
            double wanted = cz_test_gradient(rank, step, i);
            const double got = cz_test_load(memory->grads[p], t->dtype, i);
            const bool own =
                cz__shard_map_locate(cz_test_shard_map(zero), p, i, &span) && span.rank == rank;
            if (own && trained && has_gradient(t, rank, step, p))
                mean(t, cz_group_size(group), step, p, i, &wanted);
            if (got != wanted)
                return cz_fail(CZ_ERR_STATE,
                               "rank %d: gradient %" PRId64 " element %" PRId64
                               " is %.9g, wanted %.9g",
                               rank, p, i, got, wanted);
        }
    }
    return CZ_OK;
}

static cz_status one_step(const reference *ref, cz_test_memory *memory,
                          const cz_test_subject *subject, cz_group *group, int step)
{
    const cz_test_training *t = ref->training;
    const cz_step_options options = options_of(t, step);
    CZ_TRY(edit(t, subject, step));
    if (t->gradients == CZ_GRADIENTS_REDUCED) {
        CZ_TRY(set_reduced_gradients(t, memory, subject, group, step));
        return cz_zero_step(subject->zero, &options, NULL);
    }
    CZ_TRY(set_gradients(t, memory, cz_group_rank(group), cz_group_size(group), step));
    CZ_TRY(cz_zero_step(subject->zero, &options, NULL));
    return compare_gradients(ref, memory, subject->zero, group, step);
}

static cz_status train_rank(const reference *ref, cz_test_memory *memory, cz_zero **zero,
                            cz_group *group)
{
    const cz_test_training *t = ref->training;
    const int rank = cz_group_rank(group);
    CZ_TRY(t->shared ? cz_test_memory_share(memory, t, group) : cz_test_memory_create(memory, t));
    cz_test_subject subject = {memory->model, NULL, NULL};
    CZ_TRY(edit(t, &subject, -1));
    const cz_zero_options options = {.size = sizeof options,
                                     .partition = t->partition,
                                     .gradients = t->gradients,
                                     .groups = t->groups,
                                     .group_count = t->group_count,
                                     .owners = t->owners,
                                     .owner_count = t->owners ? t->param_count : 0};
    CZ_TRY(cz_zero_create(zero, group, memory->model, t->rule, t->hypers, &options));
    subject.zero = *zero;
    for (int step = 0; step < t->steps; step++)
        CZ_TRY(one_step(ref, memory, &subject, group, step));
    CZ_TRY(compare_params(ref, memory, rank));
    CZ_TRY(compare_state(ref, *zero, rank));
    return ref->inspect ? ref->inspect(&subject, group) : CZ_OK;
}

static cz_status rank_body(cz_group *group, void *context)
{
    cz_test_memory memory = {0};
    cz_zero *zero = NULL;
    const cz_status status = train_rank(context, &memory, &zero, group);
    cz_zero_destroy(&zero);
    cz_test_memory_destroy(&memory);
    return status;
}

cz_status cz_test_train(const cz_test_training *training, int world_size,
                        cz_status (*inspect)(const cz_test_subject *subject, cz_group *group),
                        char why[256])
{
    reference ref = {.training = training, .inspect = inspect};
    cz_status status = train_reference(&ref, world_size);
    if (status == CZ_OK)
        status = cz_test_run_ranks(world_size, rank_body, &ref, why);
    else
        snprintf(why, 256, "reference: %s", cz_last_error());
    cz_optim_destroy(&ref.optim);
    cz_test_memory_destroy(&ref.memory);
    return status;
}
