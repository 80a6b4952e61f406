/* SPDX-License-Identifier: MIT */
/* Ranks that are in different calls, or in one call on different objects of equal shape: all are
 * told so, with the names of the objects, nothing is changed, and the group goes on. Objects that
 * belong together have the same ranks. */
#include <string.h>

#include "czero/averaging.h"
#include "support/cz_test.h"
#include "support/joinables.h"
#include "support/training.h"

enum { PARAMS = 3 };
static const int64_t sizes[PARAMS] = {40, 7, 100};
static const cz_test_training layout = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};

/* Two of each, alike but for their names. */
typedef struct twins {
    cz_group *group;
    cz_test_memory memories[2];
    cz_zero *zeros[2];
    cz_averager *averagers[2];
    cz_state_dict *dict;
} twins;

static cz_status step(twins *t, int which)
{
    return cz_zero_step(t->zeros[which], NULL, NULL);
}

static cz_status consolidate(twins *t, int which)
{
    return cz_zero_consolidate_state_dict(t->zeros[which], 0);
}

static cz_status broadcast(twins *t, int which)
{
    return cz_zero_broadcast_parameters(t->zeros[which], 0);
}

static cz_status check_replicas(twins *t, int which)
{
    return cz_zero_check_replicas(t->zeros[which]);
}

static cz_status load(twins *t, int which)
{
    return cz_zero_load_state_dict(t->zeros[which], t->dict);
}

static cz_status reshard(twins *t, int which)
{
    return cz_zero_reshard(t->zeros[which], CZ_PARTITION_GREEDY, NULL, 0);
}

static cz_status add_group(twins *t, int which)
{
    const cz_param_group none = CZ_PARAM_GROUP_INIT; /* of no parameters */
    return cz_zero_add_param_group(t->zeros[which], &none);
}

static cz_status average(twins *t, int which)
{
    return cz_averager_average(t->averagers[which], NULL);
}

static cz_status join(twins *t, int which)
{
    cz_join *join;
    const cz_joinable joinable = cz_test_join_zero(t->zeros[which]);
    CZ_TRY(cz_join_begin(&join, t->group, &joinable, 1, NULL));
    return cz_join_end(&join, CZ_OK);
}

static cz_status create_zero(twins *t, int which)
{
    cz_zero *zero = NULL;
    const cz_status status =
        cz_zero_create(&zero, t->group, t->memories[which].model, cz_rule_adam(), NULL, NULL);
    cz_zero_destroy(&zero);
    return status;
}

static cz_status create_ddp(twins *t, int which)
{
    cz_ddp *ddp = NULL;
    const cz_status status = cz_ddp_create(&ddp, t->group, t->memories[which].model, NULL);
    cz_ddp_destroy(&ddp);
    return status;
}

static cz_status share(twins *t, int which)
{
    cz_shared *shared = NULL;
    const cz_status status = cz_shared_create(&shared, t->group, 64, NULL);
    cz_shared_destroy(&shared);
    return status;
}

static cz_status split(twins *t, int which)
{
    cz_group *part = NULL;
    const cz_status status = cz_group_split(t->group, 0, 0, &part);
    cz_group_destroy(&part);
    return status;
}

static cz_status sum(twins *t, int which)
{
    float one[3] = {1, 1, 1};
    return cz_all_reduce(t->group, one, 3, CZ_F32, CZ_SUM, NULL);
}

static const struct {
    const char *name, *object; /* of none: NULL */
    cz_status (*call)(twins *t, int which);
} calls[] = {{"step", "optimizer", step},
             {"consolidate", "optimizer", consolidate},
             {"broadcast", "optimizer", broadcast},
             {"check_replicas", "optimizer", check_replicas},
             {"load", "optimizer", load},
             {"reshard", "optimizer", reshard},
             {"average", "averager", average},
             {"join", "optimizer", join},
             {"add_group", "optimizer", add_group},
             {"create_zero", NULL, create_zero},
             {"create_ddp", NULL, create_ddp},
             {"share", NULL, share},
             {"split", NULL, split},
             {"sum", NULL, sum}};
enum { CALLS = sizeof calls / sizeof *calls };

static cz_status twins_create(twins *t, cz_group *group)
{
    const int64_t some[PARAMS - 1] = {0, 1};
    const cz_param_group first = {.size = sizeof first, .params = some, .param_count = PARAMS - 1};
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.groups = &first;
    options.group_count = 1;
    *t = (twins){.group = group};
    for (int k = 0; k < 2; k++) {
        CZ_TRY(cz_test_memory_create(&t->memories[k], &layout));
        CZ_TRY(cz_zero_create(&t->zeros[k], group, t->memories[k].model, cz_rule_adam(), NULL,
                              &options));
        CZ_TRY(cz_averager_create_periodic(&t->averagers[k], group, t->memories[k].model, 2, NULL));
    }
    CZ_TRY(cz_zero_consolidate_state_dict(t->zeros[0], CZ_ALL_RANKS));
    return cz_zero_state_dict(t->zeros[0], &t->dict);
}

static void twins_destroy(twins *t)
{
    cz_state_dict_destroy(&t->dict);
    for (int k = 0; k < 2; k++) {
        cz_averager_destroy(&t->averagers[k]);
        cz_zero_destroy(&t->zeros[k]);
        cz_test_memory_destroy(&t->memories[k]);
    }
}

static cz_status cross(twins *t, int k)
{
    const int rank = cz_group_rank(t->group);
    char mine[96], theirs[96];
    snprintf(theirs, sizeof theirs, "%s 2 of group 'world' on rank 1", calls[k].object);
    snprintf(mine, sizeof mine, "%s 1 of group 'world' on rank 0", calls[k].object);
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[p]; i++)
            for (int which = 0; which < 2; which++)
                cz_test_store(t->memories[which].grads[p], CZ_F32, i, which ? 100 : 1);
    const cz_status status = calls[k].call(t, rank == 1);
    CHECK(status == CZ_ERR_MISMATCH, "%s: %s '%s'", calls[k].name, cz_status_name(status),
          cz_last_error());
    CHECK(strstr(cz_last_error(), mine) && strstr(cz_last_error(), theirs), "%s: %.250s",
          calls[k].name, cz_last_error());
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[p]; i++)
            for (int which = 0; which < 2; which++)
                CHECK(cz_test_load(t->memories[which].grads[p], CZ_F32, i) == (which ? 100 : 1),
                      "%s: a gradient was changed", calls[k].name);
    for (int which = 0; which < 2; which++)
        CZ_TRY(calls[k].call(t, which));
    return CZ_OK;
}

static cz_status each_rank_crosses(cz_group *group, void *arg)
{
    twins t;
    cz_status status = twins_create(&t, group);
    for (int k = 0; k < CALLS && calls[k].object && status == CZ_OK; k++)
        status = cross(&t, k);
    twins_destroy(&t);
    return status;
}

TEST(calls_on_two_objects_in_another_order_are_refused)
{
    static const int worlds[] = {2, 3, 5};
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++)
        assert_ranks_ok(worlds[w], each_rank_crosses, NULL);
}

/* Without a word to others where it is not its turn, or with an error of its own. */
static bool may_end_here(int k)
{
    return calls[k].call == average || calls[k].call == load;
}

static cz_status call_all_pairs(twins *t)
{
    const int last = cz_group_size(t->group) - 1;
    for (int a = 0; a < CALLS; a++)
        for (int b = 0; b < CALLS; b++) {
            if (may_end_here(a) || may_end_here(b))
                continue;
            const cz_status status = calls[cz_group_rank(t->group) < last ? a : b].call(t, 0);
            CHECK(status == (a == b ? CZ_OK : CZ_ERR_MISMATCH), "%s and %s: %s (%s)", calls[a].name,
                  calls[b].name, cz_status_name(status), status == CZ_OK ? "" : cz_last_error());
            CZ_TRY(cz_barrier(t->group, NULL));
        }
    return CZ_OK;
}

static cz_status each_rank_calls_another(cz_group *group, void *arg)
{
    twins t;
    cz_status status = twins_create(&t, group);
    THEN(call_all_pairs(&t));
    twins_destroy(&t);
    return status;
}

TEST(ranks_in_different_calls_are_told_so)
{
    assert_ranks_ok(2, each_rank_calls_another, NULL);
    assert_ranks_ok(5, each_rank_calls_another, NULL);
}

/* Ranks 0 1 | 2 3 for the optimizer, 0 3 | 2 1 for the ddp: each rank has the same number and as
 * many others in both. */
static cz_status each_rank_binds(cz_group *group, void *arg)
{
    static const int colors[] = {0, 1, 1, 0};
    const int rank = cz_group_rank(group);
    cz_group *rows = NULL, *others = NULL, *again = NULL;
    cz_test_memory memory;
    cz_ddp *ddp = NULL;
    cz_zero *zero = NULL;
    cz_join *join = NULL;
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    CZ_TRY(cz_test_memory_create(&memory, &layout));
    CZ_TRY(cz_group_split(group, rank / 2, 0, &rows));
    CZ_TRY(cz_group_split(group, rank / 2, 0, &again));
    CZ_TRY(cz_group_split(group, colors[rank], rank == 1 ? 9 : rank, &others));
    CHECK(cz_group_rank(rows) == cz_group_rank(others), "ranks are wrong");
    CZ_TRY(cz_ddp_create(&ddp, others, memory.model, NULL));
    options.ddp = ddp;
    cz_status status = cz_zero_create(&zero, rows, memory.model, cz_rule_adam(), NULL, &options);
    CHECK(status == CZ_ERR_MISMATCH && strstr(cz_last_error(), "option ddp is ddp 1 of group"),
          "%s: %.200s", cz_status_name(status), cz_last_error());
    const cz_joinable joinable = cz_test_join_ddp(ddp);
    status = cz_join_begin(&join, rows, &joinable, 1, NULL);
    CHECK(status == CZ_ERR_MISMATCH && strstr(cz_last_error(), "joinable 0 is ddp 1 of group"),
          "%s: %.200s", cz_status_name(status), cz_last_error());
    cz_ddp_destroy(&ddp);
    CZ_TRY(cz_ddp_create(&ddp, again, memory.model, NULL)); /* another group, the same ranks */
    options.ddp = ddp;
    CZ_TRY(cz_zero_create(&zero, rows, memory.model, cz_rule_adam(), NULL, &options));
    cz_zero_destroy(&zero);
    cz_ddp_destroy(&ddp);
    cz_test_memory_destroy(&memory);
    cz_group_destroy(&rows);
    cz_group_destroy(&again);
    cz_group_destroy(&others);
    return CZ_OK;
}

TEST(an_optimizer_and_its_ddp_have_the_same_ranks)
{
    assert_ranks_ok(4, each_rank_binds, NULL);
}
