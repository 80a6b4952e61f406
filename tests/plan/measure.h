/* SPDX-License-Identifier: MIT */
/* A training that is made as it was planned, so that both can be compared. */
#ifndef CZ_TEST_MEASURE_H
#define CZ_TEST_MEASURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "czero/ddp.h"
#include "czero/hooks.h"
#include "czero/plan.h"
#include "czero/zero.h"
#include "support/cz_test.h"

#ifndef LARGE
#define LARGE 200000 /* elements */
#endif

enum { PARAMS = 24, BUFFERS = 2, SMALL_PARAM = 37, BUFFER_ELEMENTS = 1000 };

/* Matrices, vectors and something odd. */
static inline int64_t size_of(int64_t param)
{
    return param % 3 == 0 ? LARGE : param % 3 == 1 ? 1024 + 4 * param : SMALL_PARAM;
}

typedef struct training {
    cz_group *group;
    cz_model *model;
    cz_parts *parts;
    cz_ddp *ddp;
    cz_zero *zero;
    cz_optim *optim;
    float *memory; /* owned: values, gradients, buffers */
} training;

static inline void training_close(training *t)
{
    cz_zero_destroy(&t->zero);
    cz_optim_destroy(&t->optim);
    cz_ddp_destroy(&t->ddp);
    cz_parts_destroy(&t->parts);
    cz_model_destroy(&t->model);
    free(t->memory);
    t->memory = NULL;
}

static inline bool is_frozen(int64_t param)
{
    return param == 5 || param == 9;
}

static inline cz_status make_model(training *t)
{
    int64_t all = 0;
    const int64_t buffer = BUFFER_ELEMENTS;
    char name[24];
    for (int64_t p = 0; p < PARAMS; p++)
        all += 2 * size_of(p);
    t->memory = calloc((size_t)(all + BUFFERS * buffer), sizeof *t->memory);
    if (!t->memory)
        return cz_fail(CZ_ERR_MEMORY, "no memory");
    float *at = t->memory;
    CZ_TRY(cz_model_create(&t->model));
    for (int64_t p = 0; p < PARAMS; p++, at += 2 * size_of(p - 1)) {
        const int64_t size = size_of(p);
        snprintf(name, sizeof name, "layer%d.weight", (int)p);
        CZ_TRY(cz_model_add(t->model, name, at, at + size, CZ_F32, 1, &size));
        CZ_TRY(cz_model_set_requires_grad(t->model, p, !is_frozen(p)));
    }
    for (int b = 0; b < BUFFERS; b++, at += buffer) {
        snprintf(name, sizeof name, "buffer%d", b);
        CZ_TRY(cz_model_add_buffer(t->model, name, at, CZ_F32, 1, &buffer));
    }
    return CZ_OK;
}

static inline void moved(int64_t param, void *value, void *context)
{
}

static inline bool is_in(const cz_param_group *group, int64_t param)
{
    for (int64_t k = 0; k < group->param_count; k++)
        if (group->params[k] == param)
            return true;
    return false;
}

static inline cz_status training_open(training *t, cz_group *group, const cz_plan_options *o)
{
    *t = (training){.group = group};
    CZ_TRY(make_model(t));
    const cz_parts_options parts = {sizeof parts, o->parts, 0};
    cz_ddp_options ddp = CZ_DDP_OPTIONS_INIT;
    if (o->parts > 0)
        CZ_TRY(cz_parts_create(&t->parts, group, t->model, &parts));
    ddp.parts = t->parts;
    ddp.bucket_bytes = o->bucket_bytes;
    ddp.first_bucket_bytes = o->first_bucket_bytes;
    ddp.all_reduce = o->all_reduce;
    if (o->ddp)
        CZ_TRY(cz_ddp_create(&t->ddp, group, t->model, &ddp));
    if (o->wire)
        CZ_TRY(cz_ddp_register_hook_by_name(
            t->ddp, o->wire == CZ_F16 ? "fp16_compress" : "bf16_compress", NULL));
    const cz_moving_average average = CZ_MOVING_AVERAGE_INIT;
    cz_param_group groups[] = {CZ_PARAM_GROUP_INIT, CZ_PARAM_GROUP_INIT};
    int64_t rest[PARAMS];
    cz_optim_options optim = CZ_OPTIM_OPTIONS_INIT;
    cz_zero_options zero = CZ_ZERO_OPTIONS_INIT;
    if (o->group_count > 0) { /* one, and what is in none has the optimizer's rule */
        groups[0] = o->groups[0];
        groups[1].params = rest;
        for (int64_t p = 0; p < PARAMS; p++)
            if (!is_in(&groups[0], p))
                rest[groups[1].param_count++] = p;
        optim.groups = zero.groups = groups;
        optim.group_count = zero.group_count = 2;
    }
    optim.average = o->average ? &average : NULL;
    if (o->unsharded)
        return cz_optim_create(&t->optim, t->model, o->rule, o->hypers, &optim);
    zero.partition = o->partition;
    zero.parts = t->parts;
    zero.ddp = t->ddp;
    zero.overlap = o->overlap;
    zero.parameters_as_bucket_view = o->views;
    zero.moved = o->views ? moved : NULL;
    int64_t all[PARAMS];
    cz_param_group whole = CZ_PARAM_GROUP_INIT;
    for (int64_t p = 0; p < PARAMS; p++)
        all[p] = p;
    whole.params = all;
    whole.param_count = PARAMS;
    whole.granule = o->granule;
    if (o->granule) {
        zero.groups = &whole;
        zero.group_count = 1;
    }
    zero.average = optim.average;
    return cz_zero_create(&t->zero, group, t->model, o->rule, o->hypers, &zero);
}

/* Gradients are complete in the order of the fixed layout. */
static inline cz_status training_pass(training *t)
{
    if (!t->ddp)
        return t->parts ? cz_parts_add(t->parts) : CZ_OK;
    CZ_TRY(cz_ddp_begin(t->ddp, !t->parts || cz_parts_is_last(t->parts)));
    for (int64_t p = PARAMS - 1; p >= 0; p--)
        CZ_TRY(cz_ddp_mark_ready(t->ddp, p));
    return cz_ddp_finish(t->ddp);
}

static inline cz_status training_step(training *t)
{
    for (int i = 0; i == 0 || cz_parts_own(t->parts, i) >= 0; i++)
        CZ_TRY(training_pass(t));
    return t->zero ? cz_zero_step(t->zero, NULL, NULL) : cz_optim_step(t->optim, NULL, NULL);
}

/* The same, as a plan reads it. */
static inline cz_plan *make_plan(const cz_plan_options *o)
{
    training t = {0};
    cz_shapes *shapes;
    cz_plan *plan;
    assert_ok(make_model(&t));
    assert_ok(cz_shapes_from_model(&shapes, t.model));
    if (cz_plan_create(&plan, shapes, o) != CZ_OK)
        fail_msg("%s", cz_last_error());
    cz_shapes_destroy(&shapes);
    training_close(&t);
    return plan;
}

/* The ways gradients and values go. */
typedef struct way {
    const char *name;
    int32_t unsharded, ddp, all_reduce;
    cz_overlap overlap;
    cz_partition partition;
    cz_dtype wire;
    int32_t views;
    int32_t average;
} way;

static const way ways[] = {
    {"zero", 0, 0, 0, CZ_OVERLAP_NONE, CZ_PARTITION_ELEMENTS, (cz_dtype)0, 0},
    {"zero, greedy, averages", 0, 0, 0, CZ_OVERLAP_NONE, CZ_PARTITION_GREEDY, (cz_dtype)0, 0, 1},
    {"ddp", 1, 1, 0, CZ_OVERLAP_NONE, CZ_PARTITION_ELEMENTS, (cz_dtype)0, 0},
    {"ddp and zero", 0, 1, 0, CZ_OVERLAP_NONE, CZ_PARTITION_ELEMENTS, (cz_dtype)0, 0},
    {"interleaved", 0, 1, 0, CZ_OVERLAP_INTERLEAVED, CZ_PARTITION_ELEMENTS, (cz_dtype)0, 0},
    {"step", 0, 1, 0, CZ_OVERLAP_STEP, CZ_PARTITION_BUCKETS, (cz_dtype)0, 0},
    {"pieces", 0, 1, 0, CZ_OVERLAP_INTERLEAVED, CZ_PARTITION_BUCKET_PIECES, (cz_dtype)0, 0},
    {"all-reduce", 0, 1, 1, CZ_OVERLAP_INTERLEAVED, CZ_PARTITION_ELEMENTS, (cz_dtype)0, 0},
    {"ddp, f16, averages", 1, 1, 0, CZ_OVERLAP_NONE, CZ_PARTITION_ELEMENTS, CZ_F16, 0, 1},
    {"zero, bf16", 0, 1, 1, CZ_OVERLAP_NONE, CZ_PARTITION_ELEMENTS, CZ_BF16, 0},
    {"views", 0, 1, 0, CZ_OVERLAP_STEP, CZ_PARTITION_GREEDY, (cz_dtype)0, 1, 1},
};
enum { WAYS = sizeof ways / sizeof *ways };

static inline cz_plan_options options_of(const way *w, int world_size, size_t bucket_bytes)
{
    cz_plan_options o = CZ_PLAN_OPTIONS_INIT;
    o.world_size = world_size;
    o.unsharded = w->unsharded;
    o.ddp = w->ddp;
    o.all_reduce = w->all_reduce;
    o.overlap = w->overlap;
    o.partition = w->partition;
    o.wire = w->wire;
    o.views = w->views;
    o.average = w->average;
    o.bucket_bytes = o.first_bucket_bytes = bucket_bytes;
    o.rule = cz_rule_adamw();
    o.in_process = 1;
    return o;
}

/* The same in that many parts. */
static inline cz_plan_options options_in_parts(const way *w, int world_size, size_t bucket_bytes,
                                               int parts)
{
    cz_plan_options o = options_of(w, world_size, bucket_bytes);
    o.parts = parts;
    return o;
}

#endif
