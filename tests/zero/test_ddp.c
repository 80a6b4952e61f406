/* SPDX-License-Identifier: MIT */
/* A sharded optimizer on a data-parallel model: gradients are reduced to their owners during the
 * backward pass. The bits of one unsharded optimizer on the mean gradient, for every partition,
 * cap, order of marks, number of micro-batches, with parameters frozen, unused, and shards made
 * anew. */
#include <string.h>

#include "czero/hooks.h"
#include "support/cz_test.h"
#include "support/training.h"

enum { PARAMS = 8, STEPS = 7 };
static const int64_t sizes[PARAMS] = {40, 0, 3, 131, 7, 16, 300, 64};

typedef struct trial {
    size_t bucket_bytes;
    cz_partition partition;
    bool find_unused, flat, views;
    double max_norm;
    cz_overlap overlap;
    bool late, all_reduce, static_graph, hook;
} trial;

typedef struct subject {
    cz_test_memory memory;
    void *values[PARAMS];
    cz_ddp *ddp;
    cz_zero *zero;
    cz_optim *optim;
} subject;

static void moved(int64_t param, void *value, void *context)
{
    ((subject *)context)->values[param] = value;
}

static void clear(subject *s)
{
    cz_optim_destroy(&s->optim);
    cz_zero_destroy(&s->zero);
    cz_ddp_destroy(&s->ddp);
    cz_test_memory_destroy(&s->memory);
}

static int micro_batches(int step)
{
    static const int counts[STEPS] = {4, 1, 2, 1, 3, 1, 2};
    return counts[step];
}

static bool frozen(int step, int p)
{
    return (p == 4 && step >= 2 && step < 4) || (p == 6 && step == 5);
}

/* Nobody uses the third one in odd steps; the fifth one is used on rank 0 only in some. In a static
 * graph it is the same in all steps, and the last one is used twice. */
static bool unused(const trial *t, int rank, int step, int p)
{
    if (t->static_graph)
        return p == 2 || (p == 5 && rank > 0);
    return t->find_unused && ((p == 2 && step % 2) || (p == 5 && step % 3 == 1 && rank > 0));
}

/* What micro-batch `m` adds on a rank: exact in every order. */
static double part(int rank, int step, int m, int p, int64_t i)
{
    return (double)((rank + 1) * ((i + p + step) % 5 - 2) + m) / 32;
}

static double mean(const trial *t, int ranks, int step, int p, int64_t i)
{
    double sum = 0;
    for (int r = 0; r < ranks; r++)
        for (int m = 0; m < micro_batches(step) && !unused(t, r, step, p); m++)
            sum += part(r, step, m, p, i);
    return (double)((float)sum / (float)ranks);
}

static cz_status create(subject *s, const trial *t, cz_group *group)
{
    static const int owners[PARAMS] = {0};
    const cz_test_training layout = {
        .param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32, .flat = t->flat};
    cz_ddp_options buckets = CZ_DDP_OPTIONS_INIT;
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    buckets.bucket_bytes = t->bucket_bytes;
    buckets.first_bucket_bytes = t->bucket_bytes / 2 + 1;
    buckets.find_unused = t->find_unused;
    buckets.all_reduce = t->all_reduce;
    buckets.static_graph = t->static_graph;
    options.partition = t->partition;
    options.owners = t->partition == CZ_PARTITION_GIVEN ? owners : NULL;
    options.owner_count = t->partition == CZ_PARTITION_GIVEN ? PARAMS : 0;
    options.parameters_as_bucket_view = t->views;
    options.moved = moved;
    options.moved_context = s;
    CZ_TRY(cz_test_memory_create(&s->memory, &layout));
    memcpy(s->values, s->memory.values, sizeof s->values);
    if (!group)
        return cz_optim_create(&s->optim, s->memory.model, cz_rule_adam(), NULL, NULL);
    CZ_TRY(cz_ddp_create(&s->ddp, group, s->memory.model, &buckets));
    options.ddp = s->ddp;
    options.overlap = t->overlap;
    options.overlap_gather = t->late;
    if (t->hook)
        CZ_TRY(cz_ddp_register_hook_by_name(s->ddp, t->all_reduce ? "all_reduce" : "reduce_scatter",
                                            NULL));
    return cz_zero_create(&s->zero, group, s->memory.model, cz_rule_adam(), NULL, &options);
}

static cz_status backward(subject *s, cz_group *group, const trial *t, int step)
{
    const int rank = cz_group_rank(group), last = micro_batches(step) - 1;
    static const int strides[] = {1, 3, 5, 7};
    CZ_TRY(cz_zero_zero_grad(s->zero, false));
    for (int m = 0; m <= last; m++) {
        CZ_TRY(cz_ddp_begin(s->ddp, m == last));
        for (int k = 0; k < PARAMS; k++) {
            const int p = (k * strides[(rank + step) % 4] + rank) % PARAMS;
            for (int64_t i = 0; i < sizes[p] && !unused(t, rank, step, p); i++)
                ((float *)s->memory.grads[p])[i] += (float)part(rank, step, m, p, i);
            for (int n = 0; n < (t->static_graph && p == 7 ? 2 : !unused(t, rank, step, p)); n++)
                CZ_TRY(cz_ddp_mark_ready(s->ddp, p));
        }
        CZ_TRY(cz_ddp_finish(s->ddp));
    }
    return CZ_OK;
}

static cz_status reference_step(subject *s, const trial *t, int ranks, int step,
                                const cz_step_options *options)
{
    for (int p = 0; p < PARAMS; p++) {
        bool any = false;
        for (int r = 0; r < ranks; r++)
            any = any || !unused(t, r, step, p);
        CZ_TRY(cz_model_set_gradient(s->memory.model, p, any ? s->memory.grads[p] : NULL));
        for (int64_t i = 0; i < sizes[p]; i++)
            ((float *)s->memory.grads[p])[i] = (float)mean(t, ranks, step, p, i);
    }
    return cz_optim_step(s->optim, options, NULL);
}

/* All values, or, where they arrive late, those that are asked for: all in some order, one, or
 * none. */
static cz_status compare(subject *s, const subject *reference, const trial *t, int step)
{
    const int count = t->late && step % 3 ? step % 3 == 1 : PARAMS;
    for (int k = 0; k < count; k++) {
        const int p = t->late ? (5 * k + 6) % PARAMS : k;
        CZ_TRY(cz_zero_wait_param(s->zero, p));
        if (memcmp(s->values[p], reference->values[p], (size_t)sizes[p] * sizeof(float)) != 0)
            return cz_fail(CZ_ERR_STATE, "step %d: parameter %d differs", step, p);
    }
    return CZ_OK;
}

static cz_status train(subject *s, subject *reference, cz_group *group, const trial *t)
{
    cz_step_options options = CZ_STEP_OPTIONS_INIT;
    options.max_norm = t->max_norm;
    CZ_TRY(create(s, t, group));
    CZ_TRY(create(reference, t, NULL));
    if (cz_zero_step(s->zero, NULL, NULL) != CZ_ERR_STATE)
        return cz_fail(CZ_ERR_STATE, "a step without a pass");
    if (t->overlap == CZ_OVERLAP_STEP)
        CZ_TRY(cz_zero_set_overlap(s->zero, CZ_OVERLAP_STEP, &options));
    for (int step = 0; step < STEPS; step++) {
        for (int p = 0; p < PARAMS; p++) {
            CZ_TRY(cz_model_set_requires_grad(s->memory.model, p, !frozen(step, p)));
            CZ_TRY(cz_model_set_requires_grad(reference->memory.model, p, !frozen(step, p)));
        }
        if (step == 4)
            CZ_TRY(cz_zero_reshard(s->zero, CZ_PARTITION_GREEDY, NULL, 0));
        if (step == 5)
            CZ_TRY(cz_zero_reshard(s->zero, CZ_PARTITION_ELEMENTS, NULL, 0));
        CZ_TRY(backward(s, group, t, step));
        CZ_TRY(cz_zero_step(s->zero, t->overlap ? NULL : &options, NULL));
        CZ_TRY(reference_step(reference, t, cz_group_size(group), step, &options));
        CZ_TRY(compare(s, reference, t, step));
    }
    cz_zero_info info = CZ_ZERO_INFO_INIT;
    CZ_TRY(cz_zero_get_info(s->zero, &info));
    return info.overlap_status == (t->overlap ? CZ_OVERLAP_INITIALIZED : CZ_OVERLAP_UNINITIALIZED)
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "overlap status %d", (int)info.overlap_status);
}

static cz_status body(cz_group *group, void *context)
{
    subject s = {0}, reference = {0};
    const cz_status status = train(&s, &reference, group, context);
    clear(&s);
    clear(&reference);
    return status;
}

TEST(the_bits_of_one_process)
{
    static const size_t caps[] = {1, 256, 1024, 1 << 20};
    static const int worlds[] = {1, 2, 3, 5, 7};
    char why[256];
    static const trial modes[] = {
        {.overlap = CZ_OVERLAP_NONE},
        {.overlap = CZ_OVERLAP_INTERLEAVED},
        {.overlap = CZ_OVERLAP_STEP},
        {.overlap = CZ_OVERLAP_INTERLEAVED, .late = true},
        {.overlap = CZ_OVERLAP_INTERLEAVED, .all_reduce = true, .static_graph = true},
        {.overlap = CZ_OVERLAP_STEP, .hook = true, .all_reduce = true},
        {.overlap = CZ_OVERLAP_INTERLEAVED, .hook = true, .static_graph = true},
        {.overlap = CZ_OVERLAP_INTERLEAVED, .hook = true, .late = true, .all_reduce = true},
        {.overlap = CZ_OVERLAP_NONE, .hook = true}};
    enum { MODES = sizeof modes / sizeof *modes };
    for (size_t c = 0; c < sizeof caps / sizeof *caps; c++)
        for (int flags = 0; flags < 3 * MODES; flags++)
            for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
                trial t = modes[flags / 3];
                t.bucket_bytes = caps[c];
                t.partition = (cz_partition)(flags % 3);
                t.find_unused = (flags + (int)w) & 1;
                t.flat = (flags + (int)c) & 2;
                t.views = (flags + (int)c) & 4;
                t.max_norm = t.overlap != CZ_OVERLAP_INTERLEAVED && (flags & 1) ? 0.5 : 0;
                if (cz_test_run_ranks(worlds[w], body, &t, why) != CZ_OK)
                    fail_msg("world size %d, cap %zu, flags %d: %s", worlds[w], caps[c], flags,
                             why);
            }
}

/* Values asked for in another order than that of storage, one of them, or none before the next
 * step. */
TEST(values_are_waited_for_in_any_order)
{
    for (int world = 2; world <= 5; world++)
        for (int hook = 0; hook < 2; hook++) {
            trial t = {.bucket_bytes = 600,
                       .overlap = CZ_OVERLAP_INTERLEAVED,
                       .late = true,
                       .hook = hook != 0};
            assert_ranks_ok(world, body, &t);
        }
}

/* Shards made anew after a pass drop what it reduced; in the middle of one nothing is touched. */
static cz_status between_passes(subject *s, cz_group *group)
{
    const trial t = {.bucket_bytes = 64};
    CZ_TRY(create(s, &t, group));
    CZ_TRY(backward(s, group, &t, 0));
    CZ_TRY(cz_zero_reshard(s->zero, CZ_PARTITION_GREEDY, NULL, 0));
    if (cz_zero_step(s->zero, NULL, NULL) != CZ_ERR_STATE)
        return cz_fail(CZ_ERR_STATE, "a step on gradients of the old owners");
    CZ_TRY(backward(s, group, &t, 1));
    CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    cz_zero *second;
    options.ddp = s->ddp;
    if (cz_zero_create(&second, group, s->memory.model, cz_rule_adam(), NULL, &options) !=
        CZ_ERR_STATE)
        return cz_fail(CZ_ERR_STATE, "a second optimizer on one ddp");
    CZ_TRY(cz_ddp_begin(s->ddp, true));
    if (cz_zero_reshard(s->zero, CZ_PARTITION_ELEMENTS, NULL, 0) != CZ_ERR_STATE ||
        cz_zero_consolidate_state_dict(s->zero, 0) != CZ_ERR_STATE)
        return cz_fail(CZ_ERR_STATE, "shards in the middle of a pass");
    for (int p = 0; p < PARAMS - 1; p++)
        CZ_TRY(cz_ddp_mark_ready(s->ddp, p));
    cz_zero_destroy(&s->zero); /* with buckets in flight */
    CZ_TRY(cz_ddp_mark_ready(s->ddp, PARAMS - 1));
    return cz_ddp_finish(s->ddp) == CZ_ERR_STATE && cz_ddp_begin(s->ddp, true) == CZ_ERR_STATE
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "a pass whose optimizer is gone");
}

RANK_BODY(between_passes, subject, clear, group)

TEST(only_between_passes)
{
    for (int world = 1; world <= 5; world += 2)
        assert_ranks_ok(world, between_passes_body, NULL);
}

/* What cannot be combined. */
static cz_status refused(subject *s, cz_group *group)
{
    const trial t = {.bucket_bytes = 64};
    const cz_test_training other = {.param_count = 1, .sizes = sizes, .dtype = CZ_F32};
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    cz_step_options step = CZ_STEP_OPTIONS_INIT;
    cz_test_memory memory;
    cz_zero *zero;
    CZ_TRY(create(s, &t, group));
    CZ_TRY(cz_test_memory_create(&memory, &other));
    options.ddp = s->ddp;
    cz_status status = cz_zero_create(&zero, group, memory.model, cz_rule_adam(), NULL, &options);
    cz_test_memory_destroy(&memory);
    if (status != CZ_ERR_ARGUMENT || !strstr(cz_last_error(), "over another model"))
        return cz_fail(CZ_ERR_STATE, "got %s", cz_status_name(status));
    options.ddp = NULL;
    options.overlap = 1;
    status = cz_zero_create(&zero, group, s->memory.model, cz_rule_adam(), NULL, &options);
    if (status != CZ_ERR_ARGUMENT || !strstr(cz_last_error(), "needs option ddp"))
        return cz_fail(CZ_ERR_STATE, "got %s", cz_status_name(status));
    cz_zero_destroy(&s->zero);
    options.ddp = s->ddp;
    CZ_TRY(cz_zero_create(&s->zero, group, s->memory.model, cz_rule_adam(), NULL, &options));
    status = cz_zero_step(s->zero, &step, NULL);
    if (status != CZ_ERR_ARGUMENT || !strstr(cz_last_error(), "set_overlap"))
        return cz_fail(CZ_ERR_STATE, "got %s", cz_status_name(status));
    if (cz_group_rank(group) == 0) /* ranks differ in a value: known before the pass */
        CZ_TRY(cz_optim_set_hyper(cz_zero_local_optim(s->zero), 0, "lr", 0.5));
    status = cz_group_size(group) > 1 ? cz_ddp_begin(s->ddp, true) : CZ_ERR_MISMATCH;
    return status == CZ_ERR_MISMATCH ? CZ_OK : cz_fail(CZ_ERR_STATE, "got %d", (int)status);
}

RANK_BODY(refused, subject, clear, group)

TEST(what_cannot_be_combined)
{
    for (int world = 1; world <= 3; world++)
        assert_ranks_ok(world, refused_body, NULL);
}
