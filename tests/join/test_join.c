/* SPDX-License-Identifier: MIT */
/* Uneven inputs, in all permutations, with each rule for the division and each way to step: the
 * bits of one process that does the same work. */
#include <string.h>

#include "czero/czero.h"
#include "support/cz_test.h"
#include "support/joinables.h"
#include "support/training.h"
#include "support/spans.h"

enum { PARAMS = 6, MAX_WORLD = 7 };
static const int64_t sizes[PARAMS] = {40, 0, 131, 7, 300, 64};

typedef enum kind {
    DDP_OPTIM,
    DDP_ZERO,
    ZERO_DDP,
    ZERO_ALONE,
    OVERLAP,
    LATE,
    AT_END,
    HOOK,
    KINDS
} kind;

typedef struct trial {
    int inputs[MAX_WORLD];
    kind kind;
    cz_join_divide divide;
    cz_partition partition;
    bool find_unused, static_graph,
        accumulates; /* the first of two passes, or every other one, reduces nothing */
    int epochs;
    const cz_rule *rule; /* NULL: Adam */
} trial;

typedef struct subject {
    cz_test_memory memory;
    cz_ddp *ddp;
    cz_zero *zero;
    cz_optim *optim;
    cz_join *join;
    int steps;
} subject;

static void clear(subject *s)
{
    if (s->join)
        (void)cz_join_end(&s->join, CZ_ERR_STATE);
    cz_optim_destroy(&s->optim);
    cz_zero_destroy(&s->zero);
    cz_ddp_destroy(&s->ddp);
    cz_test_memory_destroy(&s->memory);
}

static bool has_ddp(const trial *t)
{
    return t->kind != ZERO_ALONE;
}

/* Nobody uses the third parameter in odd batches; the fourth is used on even ranks only. */
static bool unused(const trial *t, int rank, int batch, int p)
{
    return t->find_unused && ((p == 2 && batch % 2) || (p == 3 && rank % 2));
}

static float part(int rank, int batch, int p, int64_t i)
{
    return (float)((rank + 1) * ((i + p + batch) % 5 - 2) + (rank + batch) % 2) / 32;
}

static double weight(int rank)
{
    return rank == 1 ? 4 : 1 + rank % 2;
}

static cz_status create(subject *s, const trial *t, cz_group *group)
{
    const cz_test_training layout = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};
    cz_ddp_options buckets = CZ_DDP_OPTIONS_INIT;
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    CZ_TRY(cz_test_memory_create(&s->memory, &layout));
    if (has_ddp(t) && group) {
        buckets.bucket_bytes = buckets.first_bucket_bytes = 600;
        buckets.find_unused = t->find_unused;
        buckets.static_graph = t->static_graph;
        CZ_TRY(cz_ddp_create(&s->ddp, group, s->memory.model, &buckets));
        if (t->divide == CZ_JOIN_BY_WEIGHT)
            CZ_TRY(cz_ddp_set_weight(s->ddp, weight(cz_group_rank(group))));
        if (t->kind == HOOK)
            CZ_TRY(cz_ddp_register_hook_by_name(s->ddp, "reduce_scatter", NULL));
        options.ddp = s->ddp;
        options.overlap = t->kind == OVERLAP || t->kind == LATE || t->kind == HOOK
                              ? CZ_OVERLAP_INTERLEAVED
                          : t->kind == AT_END ? CZ_OVERLAP_STEP
                                              : CZ_OVERLAP_NONE;
        options.overlap_gather = t->kind == LATE;
    }
    const cz_rule *rule = t->rule ? t->rule : cz_rule_adam();
    options.partition = t->partition;
    if (!group || t->kind == DDP_OPTIM)
        return cz_optim_create(&s->optim, s->memory.model, rule, NULL, NULL);
    CZ_TRY(cz_zero_create(&s->zero, group, s->memory.model, rule, NULL, &options));
    return t->kind == ZERO_ALONE && t->divide == CZ_JOIN_BY_WEIGHT
               ? cz_zero_set_weight(s->zero, weight(cz_group_rank(group)))
               : CZ_OK;
}

static int joinables(subject *s, const trial *t, cz_joinable *out)
{
    if (t->kind == ZERO_ALONE)
        return out[0] = cz_test_join_zero(s->zero), 1;
    if (t->kind == DDP_OPTIM)
        return out[0] = cz_test_join_ddp(s->ddp), out[1] = cz_test_join_optim(s->optim), 2;
    if (t->kind == OVERLAP)
        return out[0] = cz_test_join_ddp(s->ddp), 1;
    out[t->kind == ZERO_DDP] = cz_test_join_ddp(s->ddp);
    out[t->kind != ZERO_DDP] = cz_test_join_zero(s->zero);
    return 2;
}

static cz_status pass(subject *s, const trial *t, int rank, int batch, bool sync)
{
    if (s->ddp)
        CZ_TRY(cz_ddp_begin(s->ddp, sync));
    for (int k = 0; k < PARAMS; k++) {
        const int p = (5 * k + rank) % PARAMS;
        for (int64_t i = 0; i < sizes[p] && !unused(t, rank, batch, p); i++)
            ((float *)s->memory.grads[p])[i] += part(rank, batch, p, i);
        if (s->ddp && !unused(t, rank, batch, p))
            CZ_TRY(cz_ddp_mark_ready(s->ddp, p));
    }
    return s->ddp ? cz_ddp_finish(s->ddp) : CZ_OK;
}

static cz_status one_batch(subject *s, const trial *t, int rank, int batch)
{
    for (int p = 0; p < PARAMS; p++)
        memset(s->memory.grads[p], 0, (size_t)sizes[p] * sizeof(float));
    if (t->accumulates)
        CZ_TRY(pass(s, t, rank, batch, false));
    CZ_TRY(pass(s, t, rank, batch, true));
    if (s->zero)
        return cz_zero_step(s->zero, NULL, NULL);
    CZ_TRY(cz_join_notify(s->join, 1));
    return cz_optim_step(s->optim, NULL, NULL);
}

/* The sum over ranks in the library's one order. */
static float tree(const float *values, int count)
{
    int left = 1;
    if (count == 1)
        return values[0];
    while (2 * left < count)
        left *= 2;
    return tree(values, left) + tree(values + left, count - left);
}

/* What one process does that has the inputs of all. */
static cz_status reference_step(subject *s, const trial *t, int ranks, int batch)
{
    double total = 0;
    int active = 0;
    for (int r = 0; r < ranks; r++) {
        active += t->inputs[r] > batch;
        total += t->inputs[r] > batch ? weight(r) : 0;
    }
    for (int p = 0; p < PARAMS; p++) {
        bool used = false;
        for (int r = 0; r < ranks; r++)
            used = used || (t->inputs[r] > batch && !unused(t, r, batch, p));
        CZ_TRY(cz_model_set_gradient(
            s->memory.model, p,
            used || !has_ddp(t) || t->kind == DDP_OPTIM ? s->memory.grads[p] : NULL));
        for (int64_t i = 0; i < sizes[p]; i++) {
            float parts[MAX_WORLD] = {0};
            for (int r = 0; r < ranks; r++) {
                const double share = t->divide == CZ_JOIN_BY_WORLD    ? 1
                                     : t->divide == CZ_JOIN_BY_ACTIVE ? (double)ranks / active
                                                                      : weight(r) * ranks / total;
                if (t->inputs[r] > batch && !unused(t, r, batch, p))
                    parts[r] = part(r, batch, p, i) * (t->accumulates ? 2 : 1) * (float)share;
            }
            ((float *)s->memory.grads[p])[i] = tree(parts, ranks) / (float)ranks;
        }
    }
    return cz_optim_step(s->optim, NULL, NULL);
}

static cz_status compare(const subject *s, const subject *reference, int epoch)
{
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[p]; i++) {
            const float got = ((const float *)s->memory.values[p])[i];
            const float wanted = ((const float *)reference->memory.values[p])[i];
            if (got != wanted)
                return cz_fail(CZ_ERR_STATE, "epoch %d: parameter %d[%d] is %.9g, wanted %.9g",
                               epoch, p, (int)i, (double)got, (double)wanted);
        }
    return CZ_OK;
}

static cz_status epoch(subject *s, subject *reference, cz_group *group, const trial *t, int number)
{
    const int ranks = cz_group_size(group), rank = cz_group_rank(group);
    cz_join_options options = CZ_JOIN_OPTIONS_INIT;
    cz_joinable list[2];
    int longest = 0;
    options.divide = t->divide;
    CZ_TRY(cz_join_begin(&s->join, group, list, joinables(s, t, list), &options));
    for (int b = 0; b < t->inputs[rank]; b++)
        CZ_TRY(one_batch(s, t, rank, b));
    CZ_TRY(cz_join_end(&s->join, CZ_OK));
    for (int r = 0; r < ranks; r++)
        longest = t->inputs[r] > longest ? t->inputs[r] : longest;
    for (int b = 0; b < longest; b++)
        CZ_TRY(reference_step(reference, t, ranks, b));
    return compare(s, reference, number);
}

static cz_status train(subject *s, subject *reference, cz_group *group, const trial *t)
{
    CZ_TRY(create(s, t, group));
    CZ_TRY(create(reference, t, NULL));
    for (int e = 0; e < t->epochs; e++)
        CZ_TRY(epoch(s, reference, group, t, e));
    return CZ_OK;
}

static cz_status body(cz_group *group, void *context)
{
    subject s = {0}, reference = {0};
    const cz_status status = train(&s, &reference, group, context);
    clear(&s);
    clear(&reference);
    return status;
}

/* In two sub-groups at a time, whose ranks are numbered backwards. */
static cz_status split_body(cz_group *group, void *context)
{
    cz_group *part = NULL;
    CZ_TRY(cz_group_split(group, cz_group_rank(group) % 2, -cz_group_rank(group), &part));
    const cz_status status = body(part, context);
    cz_group_destroy(&part);
    return status;
}

TEST(sub_groups)
{
    char why[256];
    for (int k = 0; k < KINDS; k++) {
        trial t = {.inputs = {2, 0, 3}, .kind = (enum kind)k, .divide = k % 2, .epochs = 2};
        if (cz_test_run_ranks(5, split_body, &t, why) != CZ_OK)
            fail_msg("kind %d: %s", k, why);
    }
}

static void run(int world, const trial *t)
{
    char why[256];
    if (cz_test_run_ranks(world, body, (void *)(uintptr_t)t, why) != CZ_OK)
        fail_msg("world size %d, inputs %d %d %d, kind %d, divide %d, unused %d, static %d, twice "
                 "%d: %s",
                 world, t->inputs[0], t->inputs[1], t->inputs[2], (int)t->kind, (int)t->divide,
                 t->find_unused, t->static_graph, t->accumulates, why);
}

/* All inputs of 0 to 2 batches on 3 ranks. */
TEST(all_permutations)
{
    for (int code = 0; code < 27; code++)
        for (int k = 0; k < KINDS; k++)
            for (int divide = 0; divide < 3; divide++) {
                trial t = {.inputs = {code % 3, code / 3 % 3, code / 9},
                           .kind = (enum kind)k,
                           .divide = (cz_join_divide)divide,
                           .partition = (cz_partition)(code % 2),
                           .find_unused = (code + k) % 3 == 1,
                           .static_graph = (code + k) % 3 == 2 && code % 2,
                           .accumulates = (code + divide) % 2,
                           .epochs = 2};
                run(3, &t);
            }
}

TEST(ranks_with_different_numbers_of_inputs)
{
    for (int k = 0; k < KINDS; k++)
        for (int divide = 0; divide < 2; divide++)
            run(3, &(trial){.inputs = {5, 3, 4},
                            .kind = (enum kind)k,
                            .divide = (cz_join_divide)divide,
                            .epochs = 2});
}

TEST(other_worlds)
{
    static const int worlds[] = {1, 2, 5, 7};
    for (size_t w = 0; w < 4; w++)
        for (int k = 0; k < KINDS; k++)
            for (int divide = 0; divide < 3; divide++)
                run(worlds[w], &(trial){.inputs = {2, 4, 0, 1, 3, 3, 2},
                                        .kind = (enum kind)k,
                                        .divide = (cz_join_divide)divide,
                                        .epochs = 2});
}

/* Sums over parameters, and scalars of parameters, on ranks that only accompany. */
TEST(rules_with_sums_and_scalars)
{
    const cz_rule *rules[] = {cz_rule_lamb(), cz_rule_adam_mini(), cz_rule_schedule_free_adamw()};
    for (int r = 0; r < 3; r++)
        for (int k = 0; k < KINDS; k++) {
            if (rules[r]->sum_count > 0 && (k == OVERLAP || k == LATE || k == HOOK))
                continue; /* their updates need all of a gradient */
            run(3, &(trial){.inputs = {2, 0, 3},
                            .kind = (enum kind)k,
                            .divide = (cz_join_divide)(k % 2),
                            .epochs = 2,
                            .rule = rules[r]});
        }
}

/* Weights without a join: 3 and 1, gradients 8 and 4; and nobody has any. */
static cz_status weights(subject *s, cz_group *group)
{
    const trial t = {.kind = DDP_ZERO};
    const int rank = cz_group_rank(group);
    cz_step_result result = CZ_STEP_RESULT_INIT;
    CZ_TRY(create(s, &t, group));
    for (int round = 0; round < 3; round++) {
        CZ_TRY(cz_ddp_set_weight(s->ddp, round == 0 ? 3 - 2 * rank : round == 1 ? rank : 0));
        for (int64_t i = 0; i < sizes[2]; i++)
            ((float *)s->memory.grads[2])[i] = rank ? 4 : 8;
        CZ_TRY(cz_ddp_begin(s->ddp, true));
        for (int p = 0; p < PARAMS; p++)
            CZ_TRY(cz_ddp_mark_ready(s->ddp, p));
        CZ_TRY(cz_ddp_finish(s->ddp));
        cz_span_iterator spans;
        cz_span span;
        cz_span_iterate(cz_test_shard_map(s->zero), rank, &spans);
        while (cz_span_next(&spans, &span))
            for (int64_t i = span.begin; span.param == 2 && i < span.end && round < 2; i++)
                if (((float *)s->memory.grads[2])[i] != (round ? 4.0F : 7.0F))
                    return cz_fail(CZ_ERR_STATE, "round %d: the mean is %g", round,
                                   (double)((float *)s->memory.grads[2])[i]);
        CZ_TRY(cz_zero_step(s->zero, NULL, &result));
        if (result.skipped != (round == 2))
            return cz_fail(CZ_ERR_STATE, "round %d: skipped is %d", round, (int)result.skipped);
    }
    return CZ_OK;
}

RANK_BODY(weights, subject, clear, group)

TEST(means_weighted_by_batch_sizes)
{
    assert_ranks_ok(2, weights_body, NULL);
}
