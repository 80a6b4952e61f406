/* SPDX-License-Identifier: MIT */
/* What ranks say to each other while inputs are uneven: who shadows what and when, early ends,
 * failures on one rank in the body or in a shadow, and that nothing of it is left afterwards. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "czero/czero.h"
#include "support/cz_test.h"
#include "support/joinables.h"
#include "support/training.h"
#include "join/join.h"

/* ---- the program's own joinables ---- */

typedef struct thing {
    cz_group *group;
    cz_join *join;
    int number;
    int64_t sum; /* of what all ranks contributed */
    int shadows, finished, abandoned;
    bool was_last;
    int last;
    int fails_at; /* the shadow that fails, counted from 1 */
} thing;

static cz_status enter(void *object, cz_join *join, int number)
{
    thing *t = object;
    t->join = join;
    t->number = number;
    return CZ_OK;
}

static cz_status add(thing *t, int64_t mine)
{
    CZ_TRY(cz_all_reduce(t->group, &mine, 1, CZ_I64, CZ_SUM, NULL));
    t->sum += mine;
    return CZ_OK;
}

static cz_status shadow(void *object, cz_join *join)
{
    thing *t = object;
    CZ_TRY(add(t, 0));
    return ++t->shadows == t->fails_at ? cz_fail(CZ_ERR_UNSUPPORTED, "no more shadows") : CZ_OK;
}

static cz_status finish(void *object, cz_join *join)
{
    thing *t = object;
    cz_join_info info = CZ_JOIN_INFO_INIT;
    CZ_TRY(cz_join_get_info(join, &info));
    t->finished++;
    t->was_last = info.is_last != 0;
    t->last = info.last;
    return cz_barrier(t->group, NULL);
}

static void abandon(void *object, cz_status status)
{
    ((thing *)object)->abandoned++;
}

static cz_status use(thing *t)
{
    CZ_TRY(cz_join_notify(t->join, t->number));
    return add(t, 1);
}

static cz_joinable joinable(thing *t, const char *name)
{
    return (cz_joinable){sizeof(cz_joinable), name, t, enter, shadow, finish, abandon};
}

/* Rank r has 2 (r + 1) inputs, and in each uses the first thing once, the second in every other
 * one. */
static cz_status trace(cz_group *group, void *context)
{
    thing a = {.group = group}, b = {.group = group};
    const int rank = cz_group_rank(group), ranks = cz_group_size(group);
    cz_join *join;
    CZ_TRY(cz_join_begin(&join, group, (cz_joinable[]){joinable(&a, "a"), joinable(&b, "b")}, 2,
                         NULL));
    if (a.join != join || b.join != join || b.number != 1)
        return cz_fail(CZ_ERR_STATE, "entered as %d", b.number);
    for (int k = 0; k < 2 * (rank + 1); k++) {
        if (k % 2)
            CZ_TRY(use(&b));
        CZ_TRY(use(&a));
        if (cz__join_active_count(join) != ranks - k / 2)
            return cz_fail(CZ_ERR_STATE, "input %d: %d ranks are active", k,
                           cz__join_active_count(join));
    }
    CZ_TRY(cz_join_end(&join, CZ_OK));
    const int left = ranks - rank - 1;
    if (join || a.join || b.join || a.shadows != 2 * left || b.shadows != left)
        return cz_fail(CZ_ERR_STATE, "%d and %d shadows", a.shadows, b.shadows);
    if (a.sum != ranks * (ranks + 1) || b.sum != ranks * (ranks + 1) / 2)
        return cz_fail(CZ_ERR_STATE, "sums %d and %d", (int)a.sum, (int)b.sum);
    if (a.finished != 1 || b.finished != 1 || a.was_last != (left == 0) || b.last != ranks - 1)
        return cz_fail(CZ_ERR_STATE, "finished %d, last %d", a.finished, b.last);
    a.shadows = 0;
    CZ_TRY(cz_join_begin(&join, group, (cz_joinable[]){joinable(&a, "a")}, 1, NULL));
    CZ_TRY(use(&a)); /* even inputs: all are last */
    CZ_TRY(cz_join_end(&join, CZ_OK));
    if (a.shadows != 0 || !a.was_last || a.last != ranks - 1)
        return cz_fail(CZ_ERR_STATE, "even inputs: %d shadows", a.shadows);
    cz_join_options options = CZ_JOIN_OPTIONS_INIT;
    options.disabled = 1;
    CZ_TRY(cz_join_begin(&join, group, (cz_joinable[]){joinable(&a, "a")}, 1, &options));
    for (int k = 0; k < 3; k++)
        CZ_TRY(use(&a));
    CZ_TRY(cz_join_end(&join, CZ_OK));
    return a.shadows == 0 && a.finished == 2 ? CZ_OK
                                             : cz_fail(CZ_ERR_STATE, "disabled and finished");
}

TEST(trace)
{
    for (int world = 1; world <= 7; world++)
        assert_ranks_ok(world, trace, NULL);
}

static cz_status early(cz_group *group, void *context)
{
    thing a = {.group = group};
    const int rank = cz_group_rank(group), odd = cz_group_size(group) / 2;
    cz_join_options options = CZ_JOIN_OPTIONS_INIT;
    cz_join *join;
    cz_status status = CZ_OK;
    int used = 0;
    options.end_early = 1;
    CZ_TRY(cz_join_begin(&join, group, (cz_joinable[]){joinable(&a, "a")}, 1, &options));
    for (int k = 0; k < (rank == odd ? 2 : 4) && status == CZ_OK; k++)
        used += (status = use(&a)) == CZ_OK;
    status = cz_join_end(&join, status);
    char sentence[64];
    snprintf(sentence, sizeof sentence, "rank %d has no more inputs", odd);
    if (cz_group_size(group) == 1)
        return status;
    CZ_TRY(expect(status, CZ_ERR_STATE, sentence));
    if (used != 2 || a.shadows || a.finished || a.join)
        return cz_fail(CZ_ERR_STATE, "%d inputs were used", used);
    return cz_barrier(group, NULL);
}

TEST(early_end)
{
    for (int world = 1; world <= 5; world++)
        assert_ranks_ok(world, early, NULL);
}

/* A rank fails before its k-th use while others go on, or have joined, or while its shadow runs. */
static cz_status failure(cz_group *group, void *context)
{
    const int rank = cz_group_rank(group), odd = cz_group_size(group) - 1;
    for (int k = 0; k < 4; k++)
        for (int in_shadow = 0; in_shadow < 2; in_shadow++) {
            thing a = {.group = group, .fails_at = in_shadow && rank == 0 ? k + 1 : 0};
            cz_join *join;
            cz_status status = CZ_OK;
            CZ_TRY(cz_join_begin(&join, group, (cz_joinable[]){joinable(&a, "a")}, 1, NULL));
            for (int n = 0; n < (rank == 0 ? 1 : 6) && status == CZ_OK; n++)
                status = rank == odd && n == k && !in_shadow
                             ? cz_fail(CZ_ERR_UNSUPPORTED, "the data is bad")
                             : use(&a);
            const bool own = rank == odd && !in_shadow && (odd > 0 || k == 0);
            status = cz_join_end(&join, status);
            if (odd == 0 && (in_shadow || k > 0)) { /* alone: nobody to shadow, one input */
                CZ_TRY(status);
                continue;
            }
            CZ_TRY(
                expect(status, CZ_ERR_UNSUPPORTED,
                       in_shadow ? "rank 0: a, as a shadow: no more shadows" : "the data is bad"));
            if (a.join || a.finished || a.abandoned != own)
                return cz_fail(CZ_ERR_STATE, "finished %d, abandoned %d", a.finished, a.abandoned);
        }
    return cz_barrier(group, NULL);
}

TEST(failures)
{
    for (int world = 1; world <= 5; world++)
        assert_ranks_ok(world, failure, NULL);
}

static cz_status different(cz_group *group, void *context)
{
    thing a = {.group = group}, b = {.group = group};
    cz_join *join;
    CZ_TRY(cz_join_begin(&join, group, (cz_joinable[]){joinable(&a, "a"), joinable(&b, "b")}, 2,
                         NULL));
    cz_status status = cz_group_rank(group) == 1 ? use(&b) : use(&a);
    if (status == CZ_ERR_MISMATCH) /* and ever after */
        status = use(&a);
    return expect(cz_join_end(&join, status), CZ_ERR_MISMATCH, "is about to use");
}

static cz_status refused(cz_group *group, void *context)
{
    static const int64_t sizes[] = {5};
    const cz_test_training layout = {.param_count = 1, .sizes = sizes, .dtype = CZ_F32};
    const int rank = cz_group_rank(group);
    cz_join_options options = CZ_JOIN_OPTIONS_INIT;
    cz_test_memory memory;
    cz_ddp *ddp = NULL;
    cz_zero *zero = NULL;
    cz_join *join, *second;
    cz_joinable of_ddp;
    cz_status status;
    CZ_TRY(expect(cz_join_begin(&join, NULL, NULL, 0, NULL), CZ_ERR_ARGUMENT, "group is NULL"));
    CZ_TRY(expect(cz_join_begin(&join, group, NULL, 0, NULL), CZ_ERR_ARGUMENT, "0 joinables"));
    options.divide = (cz_join_divide)3;
    of_ddp = cz_test_join_ddp(NULL);
    CZ_TRY(expect(cz_join_begin(&join, group, &of_ddp, 1, &options), CZ_ERR_ARGUMENT,
                  "option divide is 3"));
    options.divide = (cz_join_divide)(rank % 2);
    CZ_TRY(
        expect(cz_join_begin(&join, group, &of_ddp, 1, &options), CZ_ERR_ARGUMENT, "ddp is NULL"));
    CZ_TRY(cz_test_memory_create(&memory, &layout));
    status = cz_ddp_create(&ddp, group, memory.model, NULL);
    THEN(cz_zero_create(&zero, group, memory.model, cz_rule_adam(), NULL, NULL));
    of_ddp = cz_test_join_ddp(ddp);
    if (status == CZ_OK && cz_group_size(group) > 1)
        status = expect(cz_join_begin(&join, group, &of_ddp, 1, &options), CZ_ERR_MISMATCH,
                        "option divide is");
    options.divide = CZ_JOIN_BY_WEIGHT;
    cz_joinable of_zero = cz_test_join_zero(zero);
    THEN(cz_join_begin(&join, group, &of_zero, 1, &options));
    if (status == CZ_OK) /* no weight was set */
        status =
            expect(cz_zero_step(zero, NULL, NULL), CZ_ERR_ARGUMENT, "see cz_zero_set_weight()");
    THEN(cz_join_end(&join, CZ_OK));
    THEN(cz_join_begin(&join, group, &of_ddp, 1, &options));
    THEN(expect(cz_join_begin(&second, group, &of_ddp, 1, &options), CZ_ERR_STATE,
                "has joined already"));
    if (status == CZ_OK) /* no weight was set */
        status = expect(cz_ddp_begin(ddp, true), CZ_ERR_ARGUMENT, "see cz_ddp_set_weight()");
    THEN(cz_join_end(&join, CZ_OK));
    THEN(expect(cz_join_end(&join, CZ_OK), CZ_ERR_ARGUMENT, "join is NULL"));
    THEN(expect(cz_join_end(&join, cz_fail(CZ_ERR_UNSUPPORTED, "no join was begun")),
                CZ_ERR_UNSUPPORTED, "no join was begun"));
    if (status == CZ_OK &&
        rank == 0) /* on a part of the group only: nothing is exchanged any more */
        status = cz_ddp_begin(ddp, false);
    cz_zero_destroy(&zero);
    cz_ddp_destroy(&ddp);
    cz_test_memory_destroy(&memory);
    return status;
}

/* Unsharded optimizers have no group by which they are known: what they are of tells them apart. */
static cz_status other_optimizers(cz_group *group, void *context)
{
    static const int64_t one = 1;
    static const char *const names[] = {"a", "b"};
    const int odd = cz_group_rank(group) == 1;
    float values[2] = {0}, grads[2] = {0};
    cz_model *models[2] = {NULL, NULL};
    cz_optim *optims[2] = {NULL, NULL};
    cz_joinable joinables[2] = {CZ_JOINABLE_INIT, CZ_JOINABLE_INIT};
    cz_join *join = NULL;
    cz_status status = CZ_OK;
    for (int k = 0; k < 2; k++) {
        THEN(cz_model_create(&models[k]));
        THEN(cz_model_add(models[k], names[k], &values[k], &grads[k], CZ_F32, 1, &one));
        THEN(cz_optim_create(&optims[k], models[k], cz_rule_sgd(), CZ_HYPERS({"lr", 0.1}), NULL));
    }
    for (int k = 0; k < 2; k++)
        THEN(cz_optim_joinable(optims[odd ? 1 - k : k], &joinables[k]));
    THEN(expect(cz_join_begin(&join, group, joinables, 2, NULL), CZ_ERR_MISMATCH,
                "is 'b' on rank 1, 'a' on rank 0"));
    for (int k = 0; k < 2; k++)
        THEN(cz_optim_joinable(optims[k], &joinables[k]));
    if (odd)
        THEN(cz_optim_set_hyper(optims[1], 0, "lr", 0.2));
    THEN(expect(cz_join_begin(&join, group, joinables, 2, NULL), CZ_ERR_MISMATCH,
                "lr of parameter group 0 is 0.2 on rank 1, 0.1 on rank 0"));
    THEN(cz_optim_set_hyper(optims[1], 0, "lr", 0.2));
    THEN(cz_join_begin(&join, group, joinables, 2, NULL));
    THEN(cz_join_end(&join, CZ_OK));
    for (int k = 0; k < 2; k++) {
        cz_optim_destroy(&optims[k]);
        cz_model_destroy(&models[k]);
    }
    return status;
}

TEST(unsharded_optimizers_that_differ_are_not_joined)
{
    assert_ranks_ok(2, other_optimizers, NULL);
}

TEST(what_is_refused)
{
    for (int world = 1; world <= 3; world++)
        assert_ranks_ok(world, refused, NULL);
    for (int world = 2; world <= 5; world++)
        assert_ranks_ok(world, different, NULL);
}

/* ---- failures in a pass ---- */

enum { PARAMS = 4 };
static const int64_t sizes[PARAMS] = {40, 131, 7, 64};

typedef struct moment {
    int batch,
        place; /* the body of the last rank fails here: before the pass, in its middle, after it */
    cz_overlap overlap;
} moment;

static cz_status batch(cz_ddp *ddp, cz_zero *zero, cz_test_memory *memory, int fails)
{
    if (fails == 0)
        return cz_fail(CZ_ERR_UNSUPPORTED, "the data is bad");
    CZ_TRY(cz_ddp_begin(ddp, true));
    for (int p = 0; p < PARAMS; p++) {
        if (fails == 1 && p == 2)
            return cz_fail(CZ_ERR_UNSUPPORTED, "the data is bad");
        memset(memory->grads[p], 0, (size_t)sizes[p] * sizeof(float));
        CZ_TRY(cz_ddp_mark_ready(ddp, p));
    }
    CZ_TRY(cz_ddp_finish(ddp));
    if (fails == 2)
        return cz_fail(CZ_ERR_UNSUPPORTED, "the data is bad");
    return cz_zero_step(zero, NULL, NULL);
}

static cz_status train(cz_group *group, const moment *m, cz_ddp **ddp, cz_zero **zero,
                       cz_test_memory *memory)
{
    const int rank = cz_group_rank(group), odd = cz_group_size(group) - 1;
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    cz_ddp_options buckets = CZ_DDP_OPTIONS_INIT;
    cz_join *join;
    buckets.bucket_bytes = buckets.first_bucket_bytes = 64;
    CZ_TRY(cz_ddp_create(ddp, group, memory->model, &buckets));
    options.ddp = *ddp;
    options.overlap = m->overlap;
    CZ_TRY(cz_zero_create(zero, group, memory->model, cz_rule_adam(), NULL, &options));
    for (int round = 0; round < 2; round++) { /* the second time all goes well */
        cz_status status = CZ_OK;
        CZ_TRY(cz_join_begin(&join, group,
                             (cz_joinable[]){cz_test_join_ddp(*ddp), cz_test_join_zero(*zero)}, 2,
                             NULL));
        for (int b = 0; b < (rank == 0 ? 1 : 3) && status == CZ_OK; b++)
            status = batch(*ddp, *zero, memory,
                           round == 0 && rank == odd && b == m->batch ? m->place : -1);
        status = cz_join_end(&join, status);
        CZ_TRY(expect(status, round ? CZ_OK : CZ_ERR_UNSUPPORTED, "the data is bad"));
    }
    return CZ_OK;
}

static cz_status in_a_pass(cz_group *group, void *context)
{
    const cz_test_training layout = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};
    cz_test_memory memory;
    cz_ddp *ddp = NULL;
    cz_zero *zero = NULL;
    CZ_TRY(cz_test_memory_create(&memory, &layout));
    const cz_status status = train(group, context, &ddp, &zero, &memory);
    cz_zero_destroy(&zero);
    cz_ddp_destroy(&ddp);
    cz_test_memory_destroy(&memory);
    return status;
}

TEST(failures_in_a_pass)
{
    for (int world = 2; world <= 5; world++)
        for (int b = 0; b < 3; b++)
            for (int place = 0; place < 3; place++)
                for (int overlap = 0; overlap < 3; overlap++)
                    assert_ranks_ok(world, in_a_pass, &(moment){b, place, (cz_overlap)overlap});
}

/* ---- very uneven ---- */

static atomic_int warnings;

static void count(cz_log_level level, const char *line, void *context)
{
    if (level == CZ_LOG_WARN && strstr(line, "inputs are very uneven"))
        atomic_fetch_add(&warnings, 1);
}

static cz_status uneven(cz_group *group, void *context)
{
    thing a = {.group = group};
    cz_join *join;
    CZ_TRY(cz_join_begin(&join, group, (cz_joinable[]){joinable(&a, "a")}, 1, NULL));
    for (int k = 0; k < 1500 && cz_group_rank(group) == 1; k++)
        CZ_TRY(use(&a));
    return cz_join_end(&join, CZ_OK);
}

TEST(very_uneven)
{
    cz_log_set_sink(count, NULL);
    assert_ranks_ok(2, uneven, NULL);
    cz_log_set_sink(NULL, NULL);
    assert_int_equal(warnings, 1);
}

/* As a program has it that was compiled before the last field was added. */
typedef struct shorter_joinable {
    size_t size;
    const char *name;
    void *object;
    cz_status (*enter)(void *object, cz_join *join, int number);
    cz_status (*shadow)(void *object, cz_join *join);
    cz_status (*finish)(void *object, cz_join *join);
} shorter_joinable;

static cz_status shorter(cz_group *group, void *context)
{
    thing a = {.group = group}, b = {.group = group};
    const shorter_joinable list[] = {{sizeof *list, "a", &a, enter, shadow, finish},
                                     {sizeof *list, "b", &b, enter, shadow, finish}};
    cz_join *join;
    CZ_TRY(cz_join_begin(&join, group, (const cz_joinable *)(const void *)list, 2, NULL));
    for (int k = 0; k <= cz_group_rank(group); k++)
        CZ_TRY(use(&b));
    CZ_TRY(cz_join_end(&join, CZ_OK));
    return a.finished == 1 && b.finished == 1 && b.number == 1
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "finished %d and %d", a.finished, b.finished);
}

TEST(arrays_of_shorter_structs_are_read)
{
    for (int world = 1; world <= 3; world++)
        assert_ranks_ok(world, shorter, NULL);
}
