/* SPDX-License-Identifier: MIT */
/* Hooks: what they see, what becomes of what they leave in the buffer, and what happens when one
 * fails on one rank only. */
#include <stdio.h>
#include <string.h>

#include "czero/hooks.h"
#include "support/cz_test.h"
#include "support/training.h"
#include "ddp/ddp.h"
#include "tensor/model.h"

enum { PARAMS = 9, CALLS = 64 };
static const int64_t sizes[PARAMS] = {40, 0, 3, 131, 7, 16, 300, 1, 64};

typedef struct trial {
    size_t bucket_bytes;
    bool flat, find_unused;
    cz_hook hook;     /* run NULL: by name */
    const char *name; /* NULL: none */
} trial;

typedef struct subject {
    cz_test_memory memory;
    cz_ddp *ddp;
    cz_group *group; /* borrowed, of the test */
    int calls;       /* of the hook, in this pass */
    int order[CALLS];
    int fails_in; /* the call that fails, counted from 0; -1: none */
    bool starts;  /* it starts something before */
    char wrong[128];
} subject;

static void clear(subject *s)
{
    cz_ddp_destroy(&s->ddp);
    cz_test_memory_destroy(&s->memory);
}

static cz_status create(subject *s, cz_group *group, const trial *t)
{
    const cz_test_training layout = {
        .param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32, .flat = t->flat};
    cz_ddp_options options = CZ_DDP_OPTIONS_INIT;
    options.bucket_bytes = options.first_bucket_bytes = t->bucket_bytes;
    options.find_unused = t->find_unused;
    s->group = group;
    s->fails_in = -1;
    CZ_TRY(cz_test_memory_create(&s->memory, &layout));
    CZ_TRY(cz_ddp_create(&s->ddp, group, s->memory.model, &options));
    if (t->name)
        return cz_ddp_register_hook_by_name(s->ddp, t->name, NULL);
    cz_hook hook = t->hook;
    hook.state = s;
    return hook.run ? cz_ddp_register_hook(s->ddp, &hook) : CZ_OK;
}

static float part(int rank, int pass, int p, int64_t i)
{
    return (float)((rank + 1) * ((i + p + pass) % 5 - 2)) / 32;
}

static bool frozen(int pass, int p)
{
    return p == 4 && pass == 1;
}

static bool unused(const trial *t, int rank, int p)
{
    return t->find_unused && (p == 5 || (p == 3 && rank % 2 == 1));
}

static cz_status one_pass(subject *s, const trial *t, int pass)
{
    const int rank = cz_group_rank(s->group);
    s->calls = 0;
    for (int p = 0; p < PARAMS; p++) {
        CZ_TRY(cz_model_set_requires_grad(s->memory.model, p, !frozen(pass, p)));
        for (int64_t i = 0; i < sizes[p]; i++)
            ((float *)s->memory.grads[p])[i] = unused(t, rank, p) ? 77 : part(rank, pass, p, i);
    }
    CZ_TRY(cz_ddp_begin(s->ddp, true));
    for (int k = 0; k < PARAMS; k++) {
        static const int strides[] = {1, 2, 4, 5};
        const int p = (k * strides[(rank + pass) % 4] + rank) % PARAMS;
        if (!unused(t, rank, p))
            CZ_TRY(cz_ddp_mark_ready(s->ddp, p));
    }
    return cz_ddp_finish(s->ddp);
}

static float wanted(const subject *s, const trial *t, int pass, int p, int64_t i)
{
    const int ranks = cz_group_size(s->group), rank = cz_group_rank(s->group);
    const float mine = unused(t, rank, p) ? 77 : part(rank, pass, p, i);
    float sum = 0;
    bool any = false;
    for (int r = 0; r < ranks; r++) {
        sum += unused(t, r, p) ? 0 : part(r, pass, p, i);
        any = any || !unused(t, r, p);
    }
    if (!any || frozen(pass, p) ||
        (t->name && strcmp(t->name, "no_op") == 0 && !unused(t, rank, p)))
        return mine;
    return t->name && strcmp(t->name, "no_op") == 0 ? 0 : sum / (float)ranks;
}

static cz_status compare(const subject *s, const trial *t, int pass)
{
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[p]; i++) {
            const float got = ((const float *)s->memory.grads[p])[i];
            if (got != wanted(s, t, pass, p, i))
                return cz_fail(CZ_ERR_STATE, "pass %d: gradient %d[%d] is %g, wanted %g", pass, p,
                               (int)i, (double)got, (double)wanted(s, t, pass, p, i));
        }
    return CZ_OK;
}

/* ---- a hook that looks at everything ---- */

static void look(subject *s, cz_bucket *bucket, const trial *t)
{
    const float *buffer = cz__bucket_buffer(bucket);
    int64_t offset = 0;
    for (int64_t k = 0; k < cz__bucket_param_count(bucket); k++) {
        const int64_t p = cz__bucket_param(bucket, k);
        if (cz__bucket_offset(bucket, k) != offset || !cz__model_requires_grad(s->memory.model, p))
            snprintf(s->wrong, sizeof s->wrong, "parameter %d", (int)p);
        for (int64_t i = 0; i < sizes[p]; i++)
            if (buffer[offset + i] != ((const float *)s->memory.grads[p])[i] &&
                !(t->find_unused && buffer[offset + i] == 0))
                snprintf(s->wrong, sizeof s->wrong, "element %d of %d", (int)i, (int)p);
        offset += sizes[p];
    }
    if (cz__bucket_count(bucket) != offset || cz__bucket_dtype(bucket) != CZ_F32)
        snprintf(s->wrong, sizeof s->wrong, "%d elements", (int)cz__bucket_count(bucket));
    if (cz__bucket_param(bucket, -1) != -1 || cz__bucket_offset(bucket, 1000) != -1)
        snprintf(s->wrong, sizeof s->wrong, "places that do not exist");
    if (t->flat && !t->find_unused && s->memory.grads[PARAMS - 1] &&
        cz__bucket_param_count(bucket) == PARAMS &&
        buffer != s->memory.grads[cz__bucket_param(bucket, 0)])
        snprintf(s->wrong, sizeof s->wrong, "a flat block was copied");
}

static trial looked_at; /* by all ranks alike */

/* In three operations: to rank 0, there to the mean, and back. */
static cz_status divide(cz_status status, void *context)
{
    cz_bucket *bucket = context;
    cz_group *group = cz__bucket_group(bucket);
    float *buffer = cz__bucket_buffer(bucket);
    if (status != CZ_OK)
        return status;
    for (int64_t i = 0; i < cz__bucket_count(bucket); i++)
        buffer[i] /= (float)cz_group_size(group);
    return cz_broadcast(group, buffer, cz__bucket_count(bucket), CZ_F32, 0, NULL);
}

static cz_status by_rank_0(void *state, cz_bucket *bucket)
{
    subject *s = state;
    cz_work *work;
    look(s, bucket, &looked_at);
    s->order[s->calls++] = cz__bucket_index(bucket);
    CZ_TRY(cz_reduce(cz__bucket_group(bucket), cz__bucket_buffer(bucket), cz__bucket_buffer(bucket),
                     cz__bucket_count(bucket), CZ_F32, CZ_SUM, 0, CZ_START("sums", &work)));
    const cz_status status = cz_work_then(work, divide, bucket);
    cz_work_destroy(&work);
    return status;
}

/* Each rank does its own slice with operations on all of the buffer. */
static cz_status own_slice(void *state, cz_bucket *bucket)
{
    subject *s = state;
    look(s, bucket, &looked_at);
    s->order[s->calls++] = cz__bucket_index(bucket);
    if (!cz__bucket_map(bucket))
        snprintf(s->wrong, sizeof s->wrong, "no map");
    return cz_bucket_reduce(bucket, CZ_AVERAGE);
}

static cz_status passes(subject *s, cz_group *group, const trial *t)
{
    CZ_TRY(create(s, group, t));
    for (int pass = 0; pass < 4; pass++) {
        CZ_TRY(one_pass(s, t, pass));
        CZ_TRY(compare(s, t, pass));
        if (s->wrong[0])
            return cz_fail(CZ_ERR_STATE, "pass %d: the hook saw %s", pass, s->wrong);
        if (t->hook.run && s->calls == 0)
            return cz_fail(CZ_ERR_STATE, "the hook was not called");
        int64_t first[CALLS];
        for (int k = 0; k < s->calls; k++)
            first[k] = s->order[k];
        CZ_TRY(cz_broadcast(group, first, s->calls, CZ_I64, 0, NULL));
        for (int k = 0; k < s->calls; k++)
            if (first[k] != s->order[k])
                return cz_fail(CZ_ERR_STATE, "call %d is for bucket %d, on rank 0 for %d", k,
                               s->order[k], (int)first[k]);
    }
    return CZ_OK;
}

RANK_BODY(passes, subject, clear, group, context)

static void run(int world, cz_rank_main body, const trial *t)
{
    looked_at = *t;
    assert_ranks_ok(world, body, (void *)(uintptr_t)t);
}

TEST(results)
{
    const trial hooks[] = {
        {.name = NULL},
        {.name = "all_reduce"},
        {.name = "reduce_scatter"},
        {.name = "no_op"},
        {.hook = {sizeof(cz_hook), "by rank 0", CZ_HOOK_WHOLE, by_rank_0, NULL, NULL}},
        {.hook = {sizeof(cz_hook), "own slice", CZ_HOOK_SLICE, own_slice, NULL, NULL}}};
    static const size_t caps[] = {1, 300, 1 << 20};
    for (size_t h = 0; h < sizeof hooks / sizeof *hooks; h++)
        for (size_t c = 0; c < 3; c++)
            for (int flags = 0; flags < 4; flags++)
                for (int world = 1; world <= 7; world += world < 3 ? 1 : 2) {
                    trial t = hooks[h];
                    t.bucket_bytes = caps[c];
                    t.flat = flags & 1;
                    t.find_unused = flags & 2;
                    run(world, passes_body, &t);
                }
}

/* ---- failures ---- */

static cz_status failing(void *state, cz_bucket *bucket)
{
    subject *s = state;
    cz_group *group = cz__bucket_group(bucket);
    const bool fails =
        s->calls++ == s->fails_in && cz_group_rank(group) == cz_group_size(group) / 2;
    if (fails && !s->starts)
        return cz_fail(CZ_ERR_UNSUPPORTED, "no luck");
    CZ_TRY(cz_all_reduce(group, cz__bucket_buffer(bucket), cz__bucket_count(bucket), CZ_F32,
                         CZ_AVERAGE, NULL));
    if (fails)
        return cz_fail(CZ_ERR_UNSUPPORTED, "no luck");
    return cz_barrier(group, NULL);
}

static cz_status failures(subject *s, cz_group *group, const trial *t)
{
    CZ_TRY(create(s, group, t));
    for (int call = 0; call < 4; call++)
        for (int starts = 0; starts < 2; starts++) {
            s->fails_in = call;
            s->starts = starts;
            const cz_status status = one_pass(s, t, 0);
            if (status == CZ_OK)
                return cz_fail(CZ_ERR_STATE, "call %d failed and the pass did not", call);
            if (!strstr(cz_last_error(), "'unlucky' failed in bucket") ||
                !strstr(cz_last_error(), "parameter 'p") || !strstr(cz_last_error(), "no luck"))
                return cz_fail(CZ_ERR_STATE, "call %d: '%.150s'", call, cz_last_error());
            s->fails_in = -1;
            CZ_TRY(one_pass(s, t, 2));
            CZ_TRY(compare(s, t, 2));
        }
    s->fails_in = 0; /* destroyed after a failure */
    return one_pass(s, t, 0) == CZ_OK ? cz_fail(CZ_ERR_STATE, "no failure") : CZ_OK;
}

RANK_BODY(failures, subject, clear, group, context)

TEST(a_hook_that_fails_on_one_rank)
{
    const trial t = {.bucket_bytes = 64,
                     .hook = {sizeof(cz_hook), "unlucky", CZ_HOOK_WHOLE, failing, NULL, NULL}};
    for (int world = 1; world <= 7; world += world < 3 ? 1 : 2)
        run(world, failures_body, &t);
}

/* ---- what is refused ---- */

static cz_status nothing(void *state, cz_bucket *bucket)
{
    return CZ_OK;
}

static cz_status refused(subject *s, cz_group *group)
{
    const trial t = {.bucket_bytes = 64};
    cz_hook hook = CZ_HOOK_INIT;
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    cz_zero_info info = CZ_ZERO_INFO_INIT;
    cz_zero *zero = NULL;
    CZ_TRY(create(s, group, &t));
    CZ_TRY(expect(cz_ddp_register_hook(NULL, &hook), CZ_ERR_ARGUMENT, "ddp is NULL"));
    CZ_TRY(expect(cz_ddp_register_hook(s->ddp, NULL), CZ_ERR_ARGUMENT, "hook is NULL"));
    CZ_TRY(expect(cz_ddp_register_hook(s->ddp, &hook), CZ_ERR_ARGUMENT, "run is NULL"));
    hook.run = nothing;
    CZ_TRY(expect(cz_ddp_register_hook(s->ddp, &hook), CZ_ERR_ARGUMENT, "needs a name"));
    hook.name = "idle";
    hook.result = (cz_hook_result)2;
    CZ_TRY(expect(cz_ddp_register_hook(s->ddp, &hook), CZ_ERR_ARGUMENT, "result is 2"));
    CZ_TRY(expect(cz_ddp_register_hook_by_name(s->ddp, "nop", NULL), CZ_ERR_ARGUMENT,
                  "no hook 'nop'; there are all_reduce, reduce_scatter, no_op, "));
    CZ_TRY(
        expect(cz_ddp_register_hook_by_name(s->ddp, "no_op", s), CZ_ERR_ARGUMENT, "has no state"));
    CZ_TRY(expect(cz_ddp_register_hook_by_name(s->ddp, "zero_step", NULL), CZ_ERR_ARGUMENT,
                  "wants as its state a sharded optimizer"));
    options.ddp = s->ddp;
    CZ_TRY(cz_zero_create(&zero, group, s->memory.model, cz_rule_sgd(), CZ_HYPERS({"lr", 0.5}),
                          &options));
    cz_status status = expect(cz_ddp_register_hook_by_name(s->ddp, "all_reduce", NULL),
                              CZ_ERR_UNSUPPORTED, "hook 'all_reduce' reduces whole buckets");
    THEN(expect(cz_ddp_register_hook_by_name(s->ddp, "zero_step_interleaved", zero), CZ_OK, ""));
    THEN(cz_zero_get_info(zero, &info));
    if (status == CZ_OK && info.overlap != CZ_OVERLAP_INTERLEAVED)
        status = cz_fail(CZ_ERR_STATE, "overlap %d", (int)info.overlap);
    cz_zero_destroy(&zero);
    CZ_TRY(status);
    CZ_TRY(cz_ddp_begin(s->ddp, false));
    hook.result = CZ_HOOK_WHOLE;
    CZ_TRY(expect(cz_ddp_register_hook(s->ddp, &hook), CZ_ERR_STATE, "a pass has begun"));
    CZ_TRY(cz_ddp_finish(s->ddp));
    if (cz_group_rank(group) == cz_group_size(group) - 1)
        hook.name = "busy";
    CZ_TRY(cz_ddp_register_hook(s->ddp, &hook));
    CZ_TRY(expect(cz_ddp_register_hook(s->ddp, &hook), CZ_ERR_STATE, "there is a hook already"));
    CZ_TRY(expect(cz_zero_create(&zero, group, s->memory.model, cz_rule_adam(), NULL, &options),
                  CZ_ERR_UNSUPPORTED, "reduces whole buckets"));
    return cz_group_size(group) == 1
               ? CZ_OK
               : expect(cz_ddp_begin(s->ddp, true), CZ_ERR_MISMATCH, "its hook is");
}

RANK_BODY(refused, subject, clear, group)

TEST(what_is_refused)
{
    const trial t = {.bucket_bytes = 64};
    for (int world = 1; world <= 3; world++)
        run(world, refused_body, &t);
    int found = 0;
    int k = 0;
    for (; cz_hook_name(k); k++)
        found += strcmp(cz_hook_name(k), "no_op") == 0;
    assert_int_equal(found, 1);
    assert_null(cz_hook_name(k + 1));
    assert_null(cz_hook_name(-1));
}
