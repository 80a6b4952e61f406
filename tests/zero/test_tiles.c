/* SPDX-License-Identifier: MIT */
/* Steps that go over tiles in one pass or in two: parameters and what is left of the gradients have
 * the bits of one unsharded process, whatever has to be known before the first update, and wherever
 * gradients come from. */
#include <math.h>
#include <string.h>

#include "support/cz_test.h"
#include "support/training.h"
#include "support/spans.h"
#include "zero/zero.h"
#include "shard/shard.h"

enum { PARAMS = 7, STEPS = 3, ODD_STEP = 1 };
static const int64_t sizes[PARAMS] = {9011, 0, 3, 4200, 131, 64, 700};

typedef enum origin { LOCAL, REDUCED, DDP, ORIGINS } origin;

typedef struct trial {
    const cz_rule *rule;
    const cz_hyper *hypers;
    cz_dtype dtype;
    cz_partition partition;
    origin origin;
    /* LOCAL: which gradients a rank has is its own; REDUCED: owners have theirs only. */
    bool scattered;
    double max_norm;
    bool skips, norm;
    double odd; /* not 0: the last rank's element in the middle of parameter 3, in one step */
} trial;

typedef struct subject {
    cz_test_memory memory;
    cz_ddp *ddp;
    cz_zero *zero;
    cz_optim *optim;
} subject;

static void clear(subject *s)
{
    cz_optim_destroy(&s->optim);
    cz_zero_destroy(&s->zero);
    cz_ddp_destroy(&s->ddp);
    cz_test_memory_destroy(&s->memory);
}

static cz_status create(subject *s, const trial *t, cz_group *group)
{
    const cz_test_training training = {.param_count = PARAMS, .sizes = sizes, .dtype = t->dtype};
    const cz_ddp_options buckets = {.size = sizeof buckets, .bucket_bytes = 40000};
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.partition = t->partition;
    options.gradients = t->origin == REDUCED ? CZ_GRADIENTS_REDUCED : CZ_GRADIENTS_LOCAL;
    CZ_TRY(cz_test_memory_create(&s->memory, &training));
    if (!group)
        return cz_optim_create(&s->optim, s->memory.model, t->rule, t->hypers, NULL);
    if (t->origin == DDP)
        CZ_TRY(cz_ddp_create(&s->ddp, group, s->memory.model, &buckets));
    options.ddp = s->ddp;
    return cz_zero_create(&s->zero, group, s->memory.model, t->rule, t->hypers, &options);
}

/* Parameter 5 is nowhere in one step; others are on some ranks only. */
static bool has(const trial *t, int rank, int step, int p)
{
    if (t->origin == DDP)
        return true;
    return !(p == 5 && step == 1) &&
           !(t->origin == LOCAL && t->scattered && p != 3 && (rank + p + step) % 3 == 0);
}

/* Of the lowest rank; the others have a multiple. Sums over ranks are exact. */
static double element(int step, int p, int64_t i)
{
    return (double)((i + p + step) % 7 - 3) / 64;
}

static int multiples(const trial *t, int ranks, int step, int p)
{
    int sum = 0;
    for (int r = 0; r < ranks; r++)
        sum += has(t, r, step, p) ? r + 1 : 0;
    return sum;
}

static void store(const trial *t, const subject *s, int step, int p, int multiple, int ranks)
{
    for (int64_t i = 0; i < sizes[p]; i++) {
        const double sum = multiple * element(step, p, i);
        cz_test_store(s->memory.grads[p], t->dtype, i,
                      t->dtype == CZ_F64 ? sum / ranks : (double)((float)sum / (float)ranks));
    }
}

static bool owns(const cz_zero *zero, int rank, int p)
{
    cz_span_iterator iterator;
    cz_span span;
    cz_span_iterate(cz_test_shard_map(zero), rank, &iterator);
    while (cz_span_next(&iterator, &span))
        if (span.param == p)
            return true;
    return sizes[p] == 0 && cz__shard_map_home(cz_test_shard_map(zero), p) == rank;
}

static cz_status fill(const trial *t, const subject *s, cz_group *group, int step)
{
    const int ranks = cz_group_size(group), rank = cz_group_rank(group);
    for (int p = 0; p < PARAMS; p++) {
        const bool there = has(t, rank, step, p) &&
                           !(t->origin == REDUCED && t->scattered && !owns(s->zero, rank, p));
        CZ_TRY(cz_model_set_gradient(s->memory.model, p, there ? s->memory.grads[p] : NULL));
        if (t->origin == REDUCED)
            store(t, s, step, p, multiples(t, ranks, step, p), ranks);
        else
            store(t, s, step, p, rank + 1, 1);
    }
    if (t->odd != 0 && step == ODD_STEP && (t->origin == REDUCED || rank == ranks - 1))
        cz_test_store(s->memory.grads[3], t->dtype, 2100, t->odd);
    return CZ_OK;
}

static cz_status fill_reference(const trial *t, const subject *s, int ranks, int step)
{
    for (int p = 0; p < PARAMS; p++) {
        const int multiple = multiples(t, ranks, step, p);
        CZ_TRY(cz_model_set_gradient(s->memory.model, p, multiple ? s->memory.grads[p] : NULL));
        store(t, s, step, p, multiple, ranks);
    }
    if (t->odd != 0 && step == ODD_STEP)
        cz_test_store(s->memory.grads[3], t->dtype, 2100, t->odd);
    return CZ_OK;
}

static cz_status pass(const subject *s)
{
    CZ_TRY(cz_ddp_begin(s->ddp, true));
    for (int p = 0; p < PARAMS; p++)
        CZ_TRY(cz_ddp_mark_ready(s->ddp, p));
    return cz_ddp_finish(s->ddp);
}

/* What is owned of a gradient that is here is the reference's; the rest is this rank's own. */
static cz_status compare_gradients(const trial *t, const subject *s, const subject *reference,
                                   cz_group *group, int step)
{
    const int rank = cz_group_rank(group);
    const size_t size = cz_dtype_size(t->dtype);
    cz_span_iterator iterator;
    cz_span span;
    cz_span_iterate(cz_test_shard_map(s->zero), rank, &iterator);
    while (cz_span_next(&iterator, &span)) {
        const int p = (int)span.param;
        const size_t begin = (size_t)span.begin * size, bytes = (size_t)span.end * size - begin;
        if (!cz__model_gradient(s->memory.model, p))
            continue;
        if (memcmp((char *)s->memory.grads[p] + begin, (char *)reference->memory.grads[p] + begin,
                   bytes) != 0)
            return cz_fail(CZ_ERR_STATE, "step %d: gradient %d differs", step, p);
        if (t->origin == LOCAL && span.end < sizes[p] && t->odd == 0 &&
            cz_test_load(s->memory.grads[p], t->dtype, span.end) !=
                (rank + 1) * element(step, p, span.end))
            return cz_fail(CZ_ERR_STATE, "step %d: gradient %d was changed", step, p);
    }
    return CZ_OK;
}

static cz_status compare(const trial *t, const subject *s, const subject *reference,
                         cz_group *group, int step)
{
    for (int p = 0; p < PARAMS; p++)
        if (memcmp(s->memory.values[p], reference->memory.values[p],
                   (size_t)sizes[p] * cz_dtype_size(t->dtype)) != 0)
            return cz_fail(CZ_ERR_STATE, "step %d: parameter %d differs", step, p);
    return compare_gradients(t, s, reference, group, step);
}

static cz_status compare_results(const cz_step_result *got, const cz_step_result *wanted)
{
    if (got->skipped == wanted->skipped &&
        (got->norm == wanted->norm || (isnan(got->norm) && isnan(wanted->norm))))
        return CZ_OK;
    return cz_fail(CZ_ERR_STATE, "norm %.17g, wanted %.17g, skipped: %d", got->norm, wanted->norm,
                   (int)got->skipped);
}

/* Bytes that are there whether tiles are used or not. */
static cz_status look_at_trace(const trial *t, const subject *s, int updates)
{
    cz_trace_totals totals[CZ__TRACE_POINTS];
    for (int point = 0; point < CZ__TRACE_POINTS; point++) {
        totals[point] = (cz_trace_totals)CZ_TRACE_TOTALS_INIT;
        CZ_TRY(cz_zero_trace(s->zero, (cz_trace_point)point, &totals[point]));
    }
    const int64_t sums = t->rule->sum_count > 0 ? updates : 0;
    if (totals[CZ_TRACE_UPDATE].count != updates + sums || totals[CZ_TRACE_SYNC].count != updates ||
        (t->origin == LOCAL && !t->norm && !t->skips && t->max_norm == 0 &&
         totals[CZ_TRACE_REDUCE].bytes != totals[CZ_TRACE_SYNC].bytes))
        return cz_fail(CZ_ERR_STATE, "the trace has %d updates, %d times sync",
                       (int)totals[CZ_TRACE_UPDATE].count, (int)totals[CZ_TRACE_SYNC].count);
    const cz_trace_totals *fused =
        &totals[CZ_TRACE_FUSED]; /* has the time of what it did together */
    const bool timed =
        totals[CZ_TRACE_SYNC].seconds != 0 || (sums == 0 && totals[CZ_TRACE_UPDATE].seconds != 0);
    if (fused->count > 0 && (fused->count != updates || fused->bytes > 0 || timed))
        return cz_fail(CZ_ERR_STATE, "the trace has %d passes in one, of %g s", (int)fused->count,
                       fused->seconds);
    return CZ_OK;
}

static cz_status train(const trial *t, subject *s, subject *reference, cz_group *group)
{
    const int ranks = cz_group_size(group);
    int updates = STEPS;
    const cz_step_options options = {.size = sizeof options,
                                     .max_norm = t->max_norm,
                                     .skip_nonfinite = t->skips,
                                     .norm = t->norm};
    CZ_TRY(create(s, t, group));
    CZ_TRY(create(reference, t, NULL));
    for (int step = 0; step < STEPS; step++) {
        cz_step_result result = CZ_STEP_RESULT_INIT, wanted = CZ_STEP_RESULT_INIT;
        CZ_TRY(fill(t, s, group, step));
        CZ_TRY(fill_reference(t, reference, ranks, step));
        if (s->ddp)
            CZ_TRY(pass(s));
        CZ_TRY(cz_zero_step(s->zero, &options, &result));
        CZ_TRY(cz_optim_step(reference->optim, &options, &wanted));
        CZ_TRY(compare_results(&result, &wanted));
        CZ_TRY(compare(t, s, reference, group, step));
        updates -= wanted.skipped;
        if (s->zero->in_tiles != (ranks > 1))
            return cz_fail(CZ_ERR_STATE, "step %d: tiles were %sused", step,
                           ranks > 1 ? "not " : "");
    }
    return look_at_trace(t, s, updates);
}

static cz_status body(cz_group *group, void *context)
{
    subject s = {0}, reference = {0};
    const cz_status status = train(context, &s, &reference, group);
    clear(&s);
    clear(&reference);
    return status;
}

/* Every third pair of an origin and partition with a number of ranks, others each time: three times
 * have all. */
static void everywhere(trial t)
{
    static const int worlds[] = {1, 2, 3, 5, 7};
    static size_t round;
    char why[256];
    round++;
    for (int mode = 0; mode < 2 * ORIGINS; mode++)
        for (size_t w = (round + (size_t)mode) % 3; w < sizeof worlds / sizeof *worlds; w += 3) {
            t.origin = (origin)(mode / 2);
            t.partition = mode % 2 ? CZ_PARTITION_GREEDY : CZ_PARTITION_ELEMENTS;
            t.scattered = (w + (size_t)mode / 2) % 2;
            if (cz_test_run_ranks(worlds[w], body, &t, why) != CZ_OK)
                fail_msg("%s, world size %d, partition %d, gradients %d: %s", t.rule->name,
                         worlds[w], (int)t.partition, (int)t.origin, why);
        }
}

static void with_rules(trial t)
{
    const cz_hyper *momentum = CZ_HYPERS({"lr", 0.25}, {"momentum", 0.5});
    const cz_rule *rules[] = {cz_rule_sgd(),  cz_rule_adamw(), cz_test_probe_rule(),
                              cz_rule_lion(), cz_rule_lamb(),  cz_rule_schedule_free_adamw()};
    for (size_t k = 0; k < sizeof rules / sizeof *rules; k++) {
        t.rule = rules[k];
        t.hypers = k == 0 ? momentum : NULL;
        t.dtype = k == 1 ? CZ_F64 : CZ_F32;
        everywhere(t);
    }
}

TEST(nothing_to_wait_for)
{
    with_rules((trial){0});
}

TEST(clipped)
{
    with_rules((trial){.max_norm = 0.75});
    with_rules((trial){.max_norm = 1e6});
}

TEST(skipped)
{
    with_rules((trial){.skips = true, .odd = NAN});
    with_rules((trial){.skips = true, .max_norm = 2, .odd = INFINITY});
}

TEST(not_finite_and_not_skipped)
{
    everywhere((trial){.rule = cz_rule_adam(), .dtype = CZ_F32, .max_norm = 2, .odd = INFINITY});
    everywhere((trial){.rule = cz_rule_adam(), .dtype = CZ_F32, .norm = true, .odd = INFINITY});
}
