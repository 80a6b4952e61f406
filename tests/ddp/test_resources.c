/* SPDX-License-Identifier: MIT */
/* Every allocation and every call of the system fails in turn, on whichever rank makes it, through
 * what a training makes, does and ends: sub-group, shared memory, model, data-parallel passes with
 * a hook, sharded optimizer, averager, state. All ranks see it at the same call, nothing is left,
 * and the same work then works and has the same bits. */
#include "czero/averaging.h"
#include "czero/hooks.h"
#include "czero/shared.h"
#include "czero/zero.h"
#include "support/cz_test.h"
#include "support/system_calls.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 3, COUNT = 40, PARAMS = 2 };

typedef struct things {
    cz_group *world, *sub;
    cz_shared *shared;
    cz_model *model;
    cz_ddp *ddp;
    cz_zero *zero;
    cz_averager *averager;
    cz_state_dict *dict;
    float values[PARAMS][COUNT], grads[PARAMS][COUNT];
} things;

/* How far a rank came, and why no further. */
typedef struct ending {
    int place;
    bool alone; /* in a local call */
    cz_status status;
    char sentence[200];
} ending;

typedef struct trial {
    bool of_system;
    int64_t n;
    atomic_bool failed;
    pthread_barrier_t all;
    ending endings[RANKS];
    float values[PARAMS][COUNT];
} trial;

/* A local call may fail on one rank alone; the others must learn of it before they go on. */
static cz_status tell(things *t, ending *e, cz_status status)
{
    int32_t bad = status != CZ_OK;
    e->alone = bad;
    if (bad)
        snprintf(e->sentence, sizeof e->sentence, "%s", cz_last_error());
    CZ_TRY(cz_all_reduce(t->world, &bad, 1, CZ_I32, CZ_MAX, NULL));
    if (status != CZ_OK)
        return status;
    e->alone = bad;
    return bad ? cz_fail(CZ_ERR_MEMORY, "another rank could not") : CZ_OK;
}

static cz_status make_model(things *t)
{
    static const int64_t shape[] = {COUNT};
    CZ_TRY(cz_model_create(&t->model));
    for (int p = 0; p < PARAMS; p++) {
        for (int i = 0; i < COUNT; i++) {
            t->values[p][i] = (float)(i + p) / 8;
            t->grads[p][i] = (float)(cz_group_rank(t->world) + i % 5) / 4;
        }
        CZ_TRY(cz_model_add(t->model, p ? "bias" : "weight", t->values[p], t->grads[p], CZ_F32, 1,
                            shape));
    }
    return CZ_OK;
}

static cz_status run_pass(things *t)
{
    cz_status marked = CZ_OK;
    CZ_TRY(cz_ddp_begin(t->ddp, true));
    for (int64_t p = PARAMS - 1; p >= 0; p--)
        if (marked == CZ_OK)
            marked = cz_ddp_mark_ready(t->ddp, p);
    const cz_status ended = cz_ddp_finish(t->ddp);
    return ended != CZ_OK ? ended : marked;
}

#define PLACE(call)                                                                                \
    do {                                                                                           \
        e->place++;                                                                                \
        CZ_TRY(call);                                                                              \
    } while (0)

static cz_status work(things *t, ending *e)
{
    PLACE(cz_group_split(t->world, 0, 0, &t->sub));
    PLACE(cz_shared_create(&t->shared, t->world, 4096, NULL));
    PLACE(tell(t, e, make_model(t)));
    PLACE(cz_ddp_create(&t->ddp, t->world, t->model, NULL));
    PLACE(tell(t, e, cz_ddp_register_hook_by_name(t->ddp, "fp16_compress", NULL)));
    PLACE(cz_zero_create(&t->zero, t->sub, t->model, cz_rule_adamw(), NULL, NULL));
    PLACE(cz_averager_create_periodic(&t->averager, t->world, t->model, 1, NULL));
    for (int step = 0; step < 2; step++) {
        PLACE(run_pass(t));
        PLACE(cz_zero_step(t->zero, NULL, NULL));
        PLACE(cz_averager_average(t->averager, NULL));
    }
    PLACE(cz_zero_consolidate_state_dict(t->zero, CZ_ALL_RANKS));
    PLACE(tell(t, e, cz_zero_state_dict(t->zero, &t->dict)));
    PLACE(cz_zero_load_state_dict(t->zero, t->dict));
    PLACE(cz_zero_check_replicas(t->zero));
    return CZ_OK;
}

static void end(things *t)
{
    cz_state_dict_destroy(&t->dict);
    cz_averager_destroy(&t->averager);
    cz_zero_destroy(&t->zero);
    cz_ddp_destroy(&t->ddp);
    cz_model_destroy(&t->model);
    cz_shared_destroy(&t->shared);
    cz_group_destroy(&t->sub);
}

static cz_status try_work(trial *tried, cz_group *world, bool spoiled)
{
    const int rank = cz_group_rank(world);
    ending *e = &tried->endings[rank];
    things t = {.world = world};
    memset(e, 0, sizeof *e);
    pthread_barrier_wait(&tried->all);
    if (rank == 0 && spoiled && tried->of_system)
        cz_test_fail_system_call(tried->n, tried->n % 2 ? ENOMEM : EMFILE, false);
    else if (rank == 0 && spoiled)
        cz_test_fail_allocation(tried->n);
    pthread_barrier_wait(&tried->all);
    e->status = work(&t, e);
    if (e->status != CZ_OK)
        snprintf(e->sentence, sizeof e->sentence, "%s", cz_last_error());
    if (rank == 0 && !spoiled)
        memcpy(tried->values, t.values, sizeof t.values);
    else if (e->status == CZ_OK && memcmp(tried->values, t.values, sizeof t.values) != 0)
        e->status = cz_fail(CZ_ERR_INTERNAL, "other bits");
    end(&t);
    pthread_barrier_wait(&tried->all);
    if (rank == 0 && spoiled)
        atomic_store(&tried->failed,
                     tried->of_system ? cz_test_system_call_reset() : cz_test_allocation_reset());
    pthread_barrier_wait(&tried->all);
    return CZ_OK;
}

static cz_status compare_endings(const trial *t, int rank)
{
    const ending *mine = &t->endings[rank], *first = &t->endings[0];
    if (mine->status != CZ_OK && mine->status != CZ_ERR_MEMORY && mine->status != CZ_ERR_IO)
        return cz_fail(CZ_ERR_STATE, "place %d: %s: %s", mine->place, cz_status_name(mine->status),
                       mine->sentence);
    if (mine->status != CZ_OK && !atomic_load(&t->failed))
        return cz_fail(CZ_ERR_STATE, "place %d: nothing failed: %s", mine->place, mine->sentence);
    if (mine->place != first->place || (mine->status == CZ_OK) != (first->status == CZ_OK))
        return cz_fail(CZ_ERR_STATE, "place %d: %s \"%.80s\"; rank 0: place %d: %s \"%.80s\"",
                       mine->place, cz_status_name(mine->status), mine->sentence, first->place,
                       cz_status_name(first->status), first->sentence);
    if (!mine->alone && !first->alone && strcmp(mine->sentence, first->sentence) != 0)
        return cz_fail(CZ_ERR_STATE, "place %d: \"%.90s\"; rank 0: \"%.90s\"", mine->place,
                       mine->sentence, first->sentence);
    return CZ_OK;
}

static cz_status body(cz_group *world, void *context)
{
    trial *t = context;
    const int rank = cz_group_rank(world);
    CZ_TRY(try_work(t, world, false));
    for (int64_t n = 1;; n++) {
        if (rank == 0)
            t->n = n;
        CZ_TRY(try_work(t, world, true));
        const cz_status compared = compare_endings(t, rank);
        pthread_barrier_wait(&t->all);
        if (compared != CZ_OK)
            return cz_fail(compared, "%s %d (%s): %.210s", t->of_system ? "call" : "allocation",
                           (int)n, t->of_system ? cz_test_system_call_failed() : "",
                           cz_last_error());
        if (!atomic_load(&t->failed))
            return CZ_OK;
        if (cz_barrier(world, NULL) != CZ_OK)
            return cz_fail(CZ_ERR_STATE, "%d: the group is of no use: %.200s", (int)n,
                           cz_last_error());
    }
}

static void run(bool of_system)
{
    for (int ranks = 1; ranks <= RANKS; ranks++) {
        trial t = {.of_system = of_system};
        pthread_barrier_init(&t.all, NULL, (unsigned)ranks);
        const cz_test_holdings before = cz_test_holdings_now();
        assert_ranks_ok(ranks, body, &t);
        const cz_test_holdings after = cz_test_holdings_now();
        assert_int_equal(after.files, before.files);
        assert_int_equal(after.threads, before.threads);
        assert_int_equal(cz_test_allocations_held(), 0);
        pthread_barrier_destroy(&t.all);
    }
}

TEST(all_ranks_see_a_failed_allocation_and_the_next_training_works)
{
    run(false);
}

TEST(all_ranks_see_a_failed_system_call_and_the_next_training_works)
{
    run(true);
}

/* ---- ranks that cannot start ---- */

static cz_status only_start(cz_group *world, void *context)
{
    return cz_barrier(world, NULL);
}

TEST(a_launch_without_memory_or_threads_says_so)
{
    for (int of_system = 0; of_system < 2; of_system++)
        for (int64_t n = 1;; n++) {
            const cz_launch_options options = {
                .size = sizeof options, .ranks = RANKS, .timeout_seconds = 20};
            const cz_test_holdings before = cz_test_holdings_now();
            if (of_system)
                cz_test_fail_system_call(n, EAGAIN, false);
            else
                cz_test_fail_allocation(n);
            const cz_status status = cz_launch(only_start, NULL, &options);
            const bool failed =
                of_system ? cz_test_system_call_reset() : cz_test_allocation_reset();
            const cz_test_holdings after = cz_test_holdings_now();
            if (status != CZ_OK && status != CZ_ERR_MEMORY)
                fail_msg("%d: %s: %s", (int)n, cz_status_name(status), cz_last_error());
            assert_int_equal(after.files, before.files);
            assert_int_equal(after.threads, before.threads);
            assert_int_equal(cz_test_allocations_held(), 0);
            assert_true(status == CZ_OK || failed);
            if (!failed)
                break;
        }
}

static void quiet(cz_log_level level, const char *line, void *context)
{
}

int main(void)
{
    cz_log_set_sink(quiet, NULL);
    return cz_test_run(NULL, NULL);
}
