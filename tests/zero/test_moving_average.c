/* SPDX-License-Identifier: MIT */
/* Moving averages on shards: the bits of a plain loop over values, for any number of ranks, cut,
 * type and place of the step; what is evaluated on every rank, and back; and a training that has
 * the same bits as if nobody had looked. */
#include "czero/ddp.h"
#include "group/group_test.h"
#include "support/spans.h"
#include "base/half.h"

#include <math.h>
#include <stdlib.h>

enum { PARAMS = 6, MOST = 2600, STEPS = 7, LOOKS = 2 };
static const int64_t counts[PARAMS] = {40, 0, 3, MOST, 131, 64};
enum { FROZEN = 4, ABSENT = 2 }; /* from the start; in every third step */
static const int look_at[LOOKS] = {1, 4};

typedef struct way {
    cz_partition partition;
    cz_overlap overlap;
    bool ddp, late;
} way;

typedef struct run {
    const cz_rule *rule;
    cz_dtype dtype;
    cz_master master;
    cz_moving_average average;
    int threads;
    way way;
    bool looks;
    uint64_t print[2]; /* of a run on one rank, that others are compared with */
} run;

/* One rank's. */
typedef struct trainer {
    run *r;
    cz_group *group;
    cz_model *model;
    cz_ddp *ddp;
    cz_zero *zero;
    void *values[PARAMS], *gradients[PARAMS], *before[PARAMS];
    double *plain[PARAMS]; /* averages by a plain loop, in the type that they have */
    int64_t updates[PARAMS], averaged[PARAMS];
} trainer;

static double load(cz_dtype dtype, const void *from, int64_t i)
{
    return dtype == CZ_F64   ? ((const double *)from)[i]
           : dtype == CZ_F32 ? (double)((const float *)from)[i]
                             : (double)cz__f32_from_bf16(((const uint16_t *)from)[i]);
}

static void store(cz_dtype dtype, void *to, int64_t i, double value)
{
    if (dtype == CZ_F64)
        ((double *)to)[i] = value;
    else if (dtype == CZ_F32)
        ((float *)to)[i] = (float)value;
    else
        ((uint16_t *)to)[i] = cz__bf16_from_f32((float)value);
}

/* ---- the plain loop ---- */

static double weight_of(const cz_moving_average *a, double decay, int64_t averaged)
{
    const double n = (double)averaged;
    if (a->kind == CZ_MOVING_AVERAGE_MEAN)
        return 1 / (n + 1);
    return 1 - (a->warm_up && (1 + n) / (10 + n) < decay ? (1 + n) / (10 + n) : decay);
}

/* What is averaged: the value, or its master. */
static cz_status trained_value(const trainer *t, int64_t p, int64_t i, double *value)
{
    const void *master;
    int64_t count;
    *value = load(t->r->dtype, t->values[p], i);
    if (t->r->dtype != CZ_BF16 || t->r->master == CZ_MASTER_NONE)
        return CZ_OK;
    CZ_TRY(cz_optim_state(cz_zero_local_optim(t->zero), p, "master_param", i, &master, &count));
    *value = (double)*(const float *)master;
    return CZ_OK;
}

static cz_status average_span(trainer *t, const cz_span *span, double weight)
{
    for (int64_t i = span->begin; i < span->end; i++) {
        double value, *a = &t->plain[span->param][i];
        CZ_TRY(trained_value(t, span->param, i, &value));
        if (t->averaged[span->param] == 0)
            *a = value;
        else if (t->r->dtype == CZ_F64)
            *a = *a + weight * (value - *a);
        else
            *a = (double)((float)*a + (float)weight * ((float)value - (float)*a));
    }
    return CZ_OK;
}

static bool has_gradient(int step, int64_t p)
{
    return p != ABSENT || step % 3 != 1;
}

static cz_status average_plainly(trainer *t, int step, double decay)
{
    const cz_moving_average *a = &t->r->average;
    bool due[PARAMS] = {0};
    cz_span_iterator iterator;
    cz_span span;
    for (int p = 0; p < PARAMS; p++) {
        if (p == FROZEN || !has_gradient(step, p))
            continue;
        const int64_t after = ++t->updates[p] - a->start;
        due[p] = after > 0 && after % (a->every ? a->every : 1) == 0;
    }
    cz_span_iterate(cz_test_shard_map(t->zero), cz_group_rank(t->group), &iterator);
    while (cz_span_next(&iterator, &span))
        if (due[span.param])
            CZ_TRY(average_span(t, &span, weight_of(a, decay, t->averaged[span.param])));
    for (int p = 0; p < PARAMS; p++)
        t->averaged[p] += due[p];
    return CZ_OK;
}

/* ---- looking ---- */

static bool same(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

/* The slot is the plain loop's, before values are exchanged with it. */
static cz_status check_slot(const trainer *t, const cz_span *span)
{
    const cz_dtype wide = t->r->dtype == CZ_F64 ? CZ_F64 : CZ_F32;
    const void *data;
    int64_t count;
    double n = 0;
    const cz_optim *optim = cz_zero_local_optim(t->zero);
    CZ_TRY(cz_optim_state(optim, span->param, "average", span->begin, &data, &count));
    if (!data != (t->averaged[span->param] == 0))
        return cz_fail(CZ_ERR_INTERNAL, "parameter %d: an average%s", (int)span->param,
                       data ? "" : " is missing");
    CZ_TRY(cz_optim_scalar(optim, span->param, "n_averaged", &n));
    if (data && n != (double)t->averaged[span->param])
        return cz_fail(CZ_ERR_INTERNAL, "parameter %d: %g averaged", (int)span->param, n);
    for (int64_t i = 0; data && i < span->end - span->begin; i++)
        if (!same(load(wide, data, i), t->plain[span->param][span->begin + i]))
            return cz_fail(CZ_ERR_INTERNAL,
                           "element %d of parameter %d: average %.9g, plainly %.9g",
                           (int)(span->begin + i), (int)span->param, load(wide, data, i),
                           t->plain[span->param][span->begin + i]);
    return CZ_OK;
}

/* And what is evaluated is the average, rounded to the value's type. */
static cz_status check_values(const trainer *t, const cz_span *span)
{
    for (int64_t i = span->begin; i < span->end; i++) {
        double rounded = 0;
        store(t->r->dtype, &rounded, 0, t->plain[span->param][i]);
        const double wanted = t->averaged[span->param]
                                  ? load(t->r->dtype, &rounded, 0)
                                  : load(t->r->dtype, t->before[span->param], i);
        if (!same(load(t->r->dtype, t->values[span->param], i), wanted))
            return cz_fail(CZ_ERR_INTERNAL, "element %d of parameter %d: %.9g evaluated, not %.9g",
                           (int)i, (int)span->param, load(t->r->dtype, t->values[span->param], i),
                           wanted);
    }
    return CZ_OK;
}

static cz_status check_spans(const trainer *t,
                             cz_status (*check)(const trainer *t, const cz_span *span))
{
    cz_span_iterator iterator;
    cz_span span;
    cz_span_iterate(cz_test_shard_map(t->zero), cz_group_rank(t->group), &iterator);
    while (cz_span_next(&iterator, &span))
        CZ_TRY(check(t, &span));
    return CZ_OK;
}

static cz_status check_refusals(const trainer *t)
{
    uint64_t print[2];
    cz_param_group group = CZ_PARAM_GROUP_INIT;
    const char *const words = "cz_zero_evaluate(…, false) brings back";
    if (!t->r->way.overlap)
        CZ_TRY(expect(cz_zero_step(t->zero, NULL, NULL), CZ_ERR_STATE, words));
    CZ_TRY(expect(cz_zero_consolidate_state_dict(t->zero, 0), CZ_ERR_STATE, words));
    CZ_TRY(expect(cz_zero_fingerprint(t->zero, print), CZ_ERR_STATE, words));
    CZ_TRY(expect(cz_zero_reshard(t->zero, CZ_PARTITION_GREEDY, NULL, 0), CZ_ERR_STATE, words));
    CZ_TRY(expect(cz_zero_add_param_group(t->zero, &group), CZ_ERR_STATE, words));
    return CZ_OK;
}

static cz_status look(trainer *t)
{
    const size_t size = cz_dtype_size(t->r->dtype);
    CZ_TRY(cz_zero_evaluate(t->zero, false)); /* they are back */
    for (int p = 0; p < PARAMS; p++)
        memcpy(t->before[p], t->values[p], (size_t)counts[p] * size);
    CZ_TRY(check_spans(t, check_slot));
    for (int twice = 0; twice < 2; twice++)
        CZ_TRY(cz_zero_evaluate(t->zero, true));
    CZ_TRY(check_spans(t, check_values));
    CZ_TRY(cz_zero_check_replicas(t->zero));
    CZ_TRY(check_refusals(t));
    CZ_TRY(cz_zero_evaluate(t->zero, false));
    CZ_TRY(check_spans(t, check_slot));
    for (int p = 0; p < PARAMS; p++)
        if (memcmp(t->before[p], t->values[p], (size_t)counts[p] * size) != 0)
            return cz_fail(CZ_ERR_INTERNAL, "parameter %d does not come back", p);
    return CZ_OK;
}

/* ---- the training ---- */

/* Sums over ranks are exact, and so are means. */
static void make_gradients(trainer *t, int step)
{
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < counts[p]; i++)
            store(t->r->dtype, t->gradients[p], i,
                  ((double)((i * 7 + p * 3 + step * 5) % 13) - 6) / 16);
}

static cz_status step(trainer *t, int number)
{
    if (!t->ddp)
        for (int p = 0; p < PARAMS; p++)
            CZ_TRY(cz_model_set_gradient(t->model, p,
                                         has_gradient(number, p) ? t->gradients[p] : NULL));
    if (!t->ddp)
        return cz_zero_step(t->zero, NULL, NULL);
    CZ_TRY(cz_ddp_begin(t->ddp, true));
    make_gradients(t, number);
    for (int p = PARAMS - 1; p >= 0; p--)
        if (p != FROZEN && has_gradient(number, p))
            CZ_TRY(cz_ddp_mark_ready(t->ddp, p));
    CZ_TRY(cz_ddp_finish(t->ddp));
    CZ_TRY(cz_zero_step(t->zero, NULL, NULL));
    for (int p = 0; p < PARAMS; p++)
        CZ_TRY(cz_zero_wait_param(t->zero, p));
    return CZ_OK;
}

static cz_status create(trainer *t)
{
    static const char *const names[PARAMS] = {"a", "b", "c", "d", "e", "f"};
    const size_t size = cz_dtype_size(t->r->dtype);
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    cz_ddp_options buckets = CZ_DDP_OPTIONS_INIT;
    CZ_TRY(cz_model_create(&t->model));
    for (int p = 0; p < PARAMS; p++) {
        t->values[p] = calloc((size_t)counts[p] + 1, size);
        t->before[p] = calloc((size_t)counts[p] + 1, size);
        t->gradients[p] = calloc((size_t)counts[p] + 1, size);
        t->plain[p] = calloc((size_t)counts[p] + 1, sizeof(double));
        for (int64_t i = 0; i < counts[p]; i++)
            store(t->r->dtype, t->values[p], i, sin((double)(i + 31 * p)));
        CZ_TRY(cz_model_add(t->model, names[p], t->values[p], t->gradients[p], t->r->dtype, 1,
                            &counts[p]));
    }
    CZ_TRY(cz_model_set_requires_grad(t->model, FROZEN, false));
    buckets.bucket_bytes = buckets.first_bucket_bytes = 300;
    buckets.find_unused = 1;
    if (t->r->way.ddp)
        CZ_TRY(cz_ddp_create(&t->ddp, t->group, t->model, &buckets));
    options.ddp = t->ddp;
    options.partition = t->r->way.partition;
    options.overlap = t->r->way.overlap;
    options.overlap_gather = t->r->way.late;
    options.threads = t->r->threads;
    options.master = t->r->master;
    options.average = &t->r->average;
    return cz_zero_create(&t->zero, t->group, t->model, t->r->rule, CZ_HYPERS({"lr", 0.05}),
                          &options);
}

static cz_status train_all(trainer *t)
{
    double decay = t->r->average.decay;
    int next = 0;
    CZ_TRY(create(t));
    for (int s = 0; s < STEPS; s++) {
        if (s == 4 && t->r->average.kind == CZ_MOVING_AVERAGE_EMA) {
            decay = 0.5 * (decay + 1);
            CZ_TRY(cz_optim_set_hyper(cz_zero_local_optim(t->zero), 0, "average_decay", decay));
        }
        make_gradients(t, s);
        CZ_TRY(step(t, s));
        CZ_TRY(average_plainly(t, s, decay));
        if (t->r->looks && next < LOOKS && s == look_at[next]) {
            next++;
            CZ_TRY(look(t));
        }
    }
    uint64_t print[2];
    CZ_TRY(check_spans(t, check_slot));
    CZ_TRY(cz_zero_fingerprint(t->zero, print));
    if (cz_group_size(t->group) == 1 && !t->r->looks)
        memcpy(t->r->print, print, sizeof print);
    return memcmp(t->r->print, print, sizeof print) == 0
               ? CZ_OK
               : cz_fail(CZ_ERR_INTERNAL, "other bits than on one rank without a look");
}

static cz_status train(cz_group *group, void *context)
{
    trainer t = {.r = context, .group = group};
    const cz_status status = train_all(&t);
    cz_zero_destroy(&t.zero);
    cz_ddp_destroy(&t.ddp);
    cz_model_destroy(&t.model);
    for (int p = 0; p < PARAMS; p++) {
        free(t.values[p]);
        free(t.before[p]);
        free(t.gradients[p]);
        free(t.plain[p]);
    }
    return status;
}

static const way ways[] = {
    {CZ_PARTITION_ELEMENTS, CZ_OVERLAP_NONE, false, false},
    {CZ_PARTITION_GREEDY, CZ_OVERLAP_NONE, false, false},
    {CZ_PARTITION_ELEMENTS, CZ_OVERLAP_INTERLEAVED, true, false},
    {CZ_PARTITION_BUCKETS, CZ_OVERLAP_INTERLEAVED, true, true},
    {CZ_PARTITION_BUCKET_PIECES, CZ_OVERLAP_STEP, true, false},
    {CZ_PARTITION_GREEDY, CZ_OVERLAP_NONE, true, false},
};
enum { WAYS = sizeof ways / sizeof *ways };

/* On one rank without a look, then in all ways on the numbers of ranks in turn, with looks. */
static void check(run r, const char *what)
{
    static const int worlds[] = {1, 2, 3, 5, 7};
    char why[256];
    if (cz_test_run_ranks(1, train, &r, why) != CZ_OK)
        fail_msg("%s, one rank: %s", what, why);
    r.looks = true;
    for (int k = 0; k < WAYS + 4; k++) {
        const int world = worlds[k % 5];
        r.way = ways[k % WAYS];
        if (r.rule->sum_count > 0 && r.way.overlap == CZ_OVERLAP_INTERLEAVED)
            r.way.overlap = CZ_OVERLAP_STEP;
        r.way.late = r.way.late && r.way.overlap == CZ_OVERLAP_INTERLEAVED;
        r.threads = k % 2 ? 3 : 1;
        if (cz_test_run_ranks(world, train, &r, why) != CZ_OK)
            fail_msg("%s, way %d, world size %d: %s", what, k % WAYS, world, why);
    }
}

static cz_moving_average ema(double decay)
{
    cz_moving_average average = CZ_MOVING_AVERAGE_INIT;
    average.decay = decay;
    return average;
}

static cz_moving_average mean(int64_t start, int64_t every)
{
    cz_moving_average average = CZ_MOVING_AVERAGE_INIT;
    average.kind = CZ_MOVING_AVERAGE_MEAN;
    average.start = start;
    average.every = every;
    return average;
}

TEST(an_exponential_average_has_the_bits_of_a_plain_loop)
{
    run r = {.rule = cz_rule_adamw(), .dtype = CZ_F32, .average = ema(0.9)};
    check(r, "ema");
    r.average.warm_up = 1;
    r.average.decay = 0.999;
    check(r, "with warm-up");
    r.dtype = CZ_F64;
    check(r, "f64");
}

TEST(a_mean_from_some_step_on_has_the_bits_of_a_plain_loop)
{
    run r = {.rule = cz_rule_sgd(), .dtype = CZ_F32, .average = mean(0, 0)};
    check(r, "mean");
    r.average = mean(2, 2);
    check(r, "from the fourth on, every other");
}

TEST(of_16_bits_the_master_is_averaged)
{
    const run r = {.rule = cz_rule_adamw(), .dtype = CZ_BF16, .average = ema(0.75)};
    check(r, "bf16");
}

TEST(without_masters_what_was_rounded_is_averaged_and_comes_back)
{
    const run r = {
        .rule = cz_rule_adam(), .dtype = CZ_BF16, .master = CZ_MASTER_NONE, .average = ema(0.75)};
    check(r, "bf16 without masters");
}

TEST(rules_with_partial_sums)
{
    run r = {.rule = cz_rule_lamb(), .dtype = CZ_F32, .average = ema(0.8)};
    check(r, "lamb");
    r.dtype = CZ_BF16;
    check(r, "lamb, bf16");
}

/* ---- ranks that differ ---- */

static cz_status differ(cz_group *group, void *context)
{
    static const char *const sentences[] = {
        "average of parameter group 0 is mean on rank 1, ema on rank 0",
        "average.warm_up of parameter group 0 is 1 on rank 1, 0 on rank 0",
        "average.start of parameter group 0 is 4 on rank 1, 0 on rank 0",
        "average.every of parameter group 0 is 2 on rank 1, 1 on rank 0",
        "average_decay of parameter group 0 is 0.5 on rank 1, 0.999 on rank 0"};
    float values[4] = {0}, gradients[4] = {0};
    const int64_t four = 4;
    cz_model *model = NULL;
    cz_zero *zero = NULL;
    cz_status status = cz_model_create(&model);
    if (!status)
        status = cz_model_add(model, "w", values, gradients, CZ_F32, 1, &four);
    for (int k = 0; !status && k < 6; k++) {
        cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
        cz_moving_average average = CZ_MOVING_AVERAGE_INIT;
        const bool other = cz_group_rank(group) == 1;
        average.kind = k == 0 && other ? CZ_MOVING_AVERAGE_MEAN : CZ_MOVING_AVERAGE_EMA;
        average.warm_up = k == 1 && other;
        average.start = k == 2 && other ? 4 : 0;
        average.every = k == 3 && other ? 2 : 0;
        average.decay = k == 4 && other ? 0.5 : 0.999;
        options.average = &average;
        status = cz_zero_create(&zero, group, model, cz_rule_adam(), NULL, &options);
        if (k < 5)
            status = expect(status, CZ_ERR_MISMATCH, sentences[k]);
    }
    if (!status)
        status = expect(cz_zero_evaluate(zero, cz_group_rank(group) != 1), CZ_ERR_MISMATCH,
                        "the wish is what trains on rank 1, what is evaluated on rank 0");
    if (!status)
        status = cz_zero_step(zero, NULL, NULL);
    cz_zero_destroy(&zero);
    cz_model_destroy(&model);
    return status;
}

TEST(ranks_that_differ_are_told_in_what)
{
    char why[256];
    if (cz_test_run_ranks(2, differ, NULL, why) != CZ_OK)
        fail_msg("%s", why);
}

/* ---- without memory ---- */

/* Nothing is changed, on any rank, and the next try goes well. */
static cz_status fail_at(cz_group *group, void *context)
{
    const int *at = context;
    run r = {
        .rule = cz_rule_adam(), .dtype = CZ_BF16, .master = CZ_MASTER_NONE, .average = ema(0.5)};
    trainer t = {.r = &r, .group = group};
    cz_status status = create(&t);
    for (int s = 0; !status && s < 2; s++) {
        make_gradients(&t, s);
        status = step(&t, s);
        status = status ? status : average_plainly(&t, s, 0.5);
    }
    if (!status)
        status = cz_barrier(group, NULL);
    if (!status && cz_group_rank(group) == 0)
        cz_test_fail_allocation(*at);
    if (!status)
        status = cz_barrier(group, NULL);
    if (!status) {
        status = cz_zero_evaluate(t.zero, true);
        const bool failed = status == CZ_ERR_MEMORY;
        status = cz_barrier(group, NULL);
        if (cz_group_rank(group) == 0 && cz_test_allocation_reset() != failed)
            status = cz_fail(CZ_ERR_INTERNAL, "without memory it %s", failed ? "fails" : "goes on");
        if (!status && failed)
            status = check_spans(&t, check_slot);
    }
    if (!status)
        status = look(&t);
    cz_zero_destroy(&t.zero);
    cz_model_destroy(&t.model);
    for (int p = 0; p < PARAMS; p++) {
        free(t.values[p]);
        free(t.before[p]);
        free(t.gradients[p]);
        free(t.plain[p]);
    }
    return status;
}

TEST(without_memory_nothing_is_changed)
{
    char why[256];
    for (int at = 1; at < 12; at++)
        if (cz_test_run_ranks(2, fail_at, &at, why) != CZ_OK)
            fail_msg("allocation %d: %s", at, why);
}
