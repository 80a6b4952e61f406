/* SPDX-License-Identifier: MIT */
/* Dictionaries, added groups and new shards of a sharded optimizer: what is refused, on one rank or
 * on all; snapshots that are old; memory that is out on one rank; what is held and what travels. */
#include <inttypes.h>
#include <string.h>

#include "support/cz_test.h"
#include "support/training.h"
#include "support/spans.h"
#include "zero/zero.h"
#include "shard/shard.h"

static const int64_t sizes[] = {40, 0, 3, 131, 7, 16};
enum { PARAMS = sizeof sizes / sizeof *sizes };
static const cz_test_training small = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};

typedef struct subject {
    cz_test_memory memory;
    cz_zero *zero;
    cz_state_dict *dict;
} subject;

static void clear(subject *s)
{
    cz_state_dict_destroy(&s->dict);
    cz_zero_destroy(&s->zero);
    cz_test_memory_destroy(&s->memory);
}

/* The first four parameters are in a group. */
static cz_status create(subject *s, cz_group *group, cz_partition partition)
{
    static const int64_t members[] = {0, 1, 2, 3};
    static const int owners[] = {0, 0, 0, 0, -1, -1};
    const cz_param_group first = {sizeof first, members, 4, NULL};
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.partition = partition;
    options.groups = &first;
    options.group_count = 1;
    options.owners = partition == CZ_PARTITION_GIVEN ? owners : NULL;
    options.owner_count = partition == CZ_PARTITION_GIVEN ? PARAMS : 0;
    CZ_TRY(cz_test_memory_create(&s->memory, &small));
    return cz_zero_create(&s->zero, group, s->memory.model, cz_rule_adam(), NULL, &options);
}

#define BODY(name) RANK_BODY(name, subject, clear, group)

/* ---- handing out ---- */

static cz_status snapshots(subject *s, cz_group *group)
{
    const int rank = cz_group_rank(group), ranks = cz_group_size(group);
    CZ_TRY(create(s, group, CZ_PARTITION_ELEMENTS));
    CZ_TRY(expect(cz_zero_state_dict(s->zero, &s->dict), CZ_ERR_STATE, "nothing is consolidated"));
    CZ_TRY(cz_zero_consolidate_state_dict(s->zero, 0)); /* before the first step: no state */
    CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    CZ_TRY(expect(cz_zero_state_dict(s->zero, &s->dict), CZ_ERR_STATE,
                  rank == 0 ? "1 steps old" : "was consolidated on rank 0"));
    CZ_TRY(cz_zero_consolidate_state_dict(s->zero, ranks - 1));
    if (rank == ranks - 1) {
        CZ_TRY(cz_zero_state_dict(s->zero, &s->dict));
        cz_state_dict *again;
        CZ_TRY(expect(cz_zero_state_dict(s->zero, &again), CZ_ERR_STATE, "nothing is consolid"));
        cz_state_dict_destroy(&s->dict);
    }
    CZ_TRY(expect(cz_zero_consolidate_state_dict(s->zero, ranks), CZ_ERR_ARGUMENT, "to rank "));
    CZ_TRY(expect(cz_zero_consolidate_state_dict(s->zero, -2), CZ_ERR_ARGUMENT, "to rank -2"));
    CZ_TRY(cz_zero_consolidate_state_dict(s->zero, CZ_ALL_RANKS));
    CZ_TRY(cz_zero_reshard(s->zero, CZ_PARTITION_GREEDY, NULL, 0));
    CZ_TRY(expect(cz_zero_state_dict(s->zero, &s->dict), CZ_ERR_STATE, "nothing is consolidated"));
    CZ_TRY(cz_zero_consolidate_state_dict(s->zero, CZ_ALL_RANKS));
    CZ_TRY(cz_zero_consolidate_state_dict(s->zero, CZ_ALL_RANKS)); /* frees the one before */
    CZ_TRY(cz_zero_state_dict(s->zero, &s->dict));
    CZ_TRY(cz_zero_load_state_dict(s->zero, s->dict));
    return cz_zero_step(s->zero, NULL, NULL);
}
BODY(snapshots)

static cz_status ranks_differ(subject *s, cz_group *group)
{
    const int rank = cz_group_rank(group), odd = 1;
    CZ_TRY(create(s, group, CZ_PARTITION_ELEMENTS));
    CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    CZ_TRY(expect(cz_zero_consolidate_state_dict(s->zero, rank == odd ? 0 : CZ_ALL_RANKS),
                  CZ_ERR_MISMATCH, "the receiver is rank "));
    CZ_TRY(expect(cz_zero_consolidate_state_dict(s->zero, rank == odd ? 77 : 0), CZ_ERR_ARGUMENT,
                  rank == odd ? "to rank 77" : "rank 1: zero consolidate: to rank 77"));
    if (rank == odd)
        CZ_TRY(cz_optim_set_hyper(cz_zero_local_optim(s->zero), 0, "lr", 0.5));
    CZ_TRY(expect(cz_zero_consolidate_state_dict(s->zero, 0), CZ_ERR_MISMATCH,
                  "lr of parameter group 0 is 0.5 on rank 1, 0.001 on rank 0"));
    CZ_TRY(cz_optim_set_hyper(cz_zero_local_optim(s->zero), 0, "lr", 0.001));
    CZ_TRY(cz_zero_consolidate_state_dict(s->zero, CZ_ALL_RANKS));
    CZ_TRY(cz_zero_state_dict(s->zero, &s->dict));
    CZ_TRY(expect(cz_zero_load_state_dict(s->zero, rank == odd ? NULL : s->dict), CZ_ERR_ARGUMENT,
                  "the state dictionary is NULL"));
    cz_state_dict *groups;
    const cz_state_dict *found;
    CZ_TRY(cz_state_dict_get_dict(s->dict, "param_groups", &found));
    CZ_TRY(cz_state_dict_get_dict(found, "0", &found));
    groups = (cz_state_dict *)found;
    if (rank == odd)
        CZ_TRY(cz_state_dict_set_real(groups, "lr", 0.75));
    CZ_TRY(expect(cz_zero_load_state_dict(s->zero, s->dict), CZ_ERR_MISMATCH,
                  "param_groups/0/lr of the state dictionary is 0.75 on rank 1, 0.001 on rank 0"));
    CZ_TRY(cz_state_dict_set_real(groups, "lr", 0.001));
    const cz_state_dict *entry;
    cz_tensor average;
    CZ_TRY(cz_state_dict_get_dict(s->dict, "state", &entry));
    CZ_TRY(cz_state_dict_get_dict(entry, "p0", &entry));
    CZ_TRY(cz_state_dict_get_tensor(entry, "exp_avg", &average));
    if (rank == odd) /* an element that rank 0 owns */
        ((uint32_t *)average.data)[0] ^= 1;
    CZ_TRY(expect(cz_zero_load_state_dict(s->zero, s->dict), CZ_ERR_MISMATCH,
                  "state/p0/exp_avg of the state dictionary has elements of fingerprint"));
    double lr;
    CZ_TRY(cz_optim_get_hyper(cz_zero_local_optim(s->zero), 0, "lr", &lr));
    if (lr != 0.001)
        return cz_fail(CZ_ERR_STATE, "lr is %g", lr);
    return cz_zero_step(s->zero, NULL, NULL);
}
BODY(ranks_differ)

/* ---- groups and shards ---- */

static cz_status groups_differ(subject *s, cz_group *group)
{
    const bool odd = cz_group_rank(group) == cz_group_size(group) - 1;
    const cz_param_group right = {sizeof right, (int64_t[]){4, 5}, 2, CZ_HYPERS({"lr", 0.5})};
    const cz_param_group other = {sizeof other, (int64_t[]){4, 5}, 2, CZ_HYPERS({"lr", 0.25})};
    const cz_param_group taken = {sizeof taken, (int64_t[]){4, 3}, 2, NULL};
    const cz_param_group empty = {sizeof empty, NULL, 0, NULL};
    CZ_TRY(create(s, group, CZ_PARTITION_GIVEN));
    CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    CZ_TRY(expect(cz_zero_add_param_group(s->zero, odd ? &taken : &right), CZ_ERR_ARGUMENT,
                  "'p3' is in parameter groups 0 and 1"));
    CZ_TRY(expect(cz_zero_add_param_group(s->zero, odd ? &other : &right), CZ_ERR_MISMATCH,
                  "lr of parameter group 1 is 0."));
    CZ_TRY(expect(cz_zero_add_param_group(s->zero, odd ? NULL : &right), CZ_ERR_ARGUMENT,
                  "the parameter group is NULL"));
    if (cz__zero_group_count(s->zero) != 1)
        return cz_fail(CZ_ERR_STATE, "a group was added");
    CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    CZ_TRY(cz_zero_add_param_group(s->zero, &right));
    CZ_TRY(cz_zero_add_param_group(s->zero, &empty));
    if (cz__zero_group_count(s->zero) != 3 ||
        cz__shard_map_home(cz_test_shard_map(s->zero), 3) != 0)
        return cz_fail(CZ_ERR_STATE, "%d groups", (int)cz__zero_group_count(s->zero));
    CZ_TRY(expect(cz_zero_add_param_group(s->zero, &right), CZ_ERR_ARGUMENT, "'p4' is in"));
    return cz_zero_step(s->zero, NULL, NULL);
}
BODY(groups_differ)

static cz_status shards_differ(subject *s, cz_group *group)
{
    const bool odd = cz_group_rank(group) == 1;
    int owners[PARAMS] = {1, 1, 0, 0, 0, 0};
    CZ_TRY(create(s, group, CZ_PARTITION_GREEDY));
    CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    CZ_TRY(
        expect(cz_zero_reshard(s->zero, odd ? CZ_PARTITION_GREEDY : CZ_PARTITION_ELEMENTS, NULL, 0),
               CZ_ERR_MISMATCH, "option partition is greedy on rank 1, elements on rank 0"));
    CZ_TRY(expect(cz_zero_reshard(s->zero, (cz_partition)7, NULL, 0), CZ_ERR_ARGUMENT, "is 7"));
    CZ_TRY(expect(cz_zero_reshard(s->zero, CZ_PARTITION_GIVEN, NULL, 0), CZ_ERR_ARGUMENT,
                  "owners is NULL"));
    CZ_TRY(expect(cz_zero_reshard(s->zero, CZ_PARTITION_GIVEN, owners, PARAMS - 1), CZ_ERR_ARGUMENT,
                  "owner_count is 5"));
    if (odd)
        owners[2] = 1;
    CZ_TRY(expect(cz_zero_reshard(s->zero, CZ_PARTITION_GIVEN, owners, PARAMS), CZ_ERR_MISMATCH,
                  "the owner of parameter 2 'p2' is given as 1 on rank 1, 0 on rank 0"));
    owners[2] = 0;
    CZ_TRY(cz_zero_reshard(s->zero, CZ_PARTITION_GIVEN, owners, PARAMS));
    for (int p = 0; p < 4; p++)
        if (cz__shard_map_home(cz_test_shard_map(s->zero), p) != owners[p])
            return cz_fail(CZ_ERR_STATE, "the home of p%d is %d", p,
                           cz__shard_map_home(cz_test_shard_map(s->zero), p));
    return cz_zero_step(s->zero, NULL, NULL);
}
BODY(shards_differ)

TEST(what_is_refused)
{
    for (int world = 2; world <= 5; world += 3) {
        assert_ranks_ok(world, snapshots_body, NULL);
        assert_ranks_ok(world, ranks_differ_body, NULL);
        assert_ranks_ok(world, groups_differ_body, NULL);
        assert_ranks_ok(world, shards_differ_body, NULL);
    }
    assert_ranks_ok(1, snapshots_body, NULL);
}

/* ---- memory that is out on one rank ---- */

static _Thread_local int64_t until_failure;

static void *allocate(size_t bytes, size_t alignment, void *context)
{
    if (until_failure > 0 && --until_failure == 0)
        return NULL;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void release(void *memory, size_t bytes, void *context)
{
    free(memory);
}

/* Try until it works; each failure is CZ_ERR_MEMORY on all ranks and leaves the state as it was. */
static cz_status insist(subject *s, cz_group *group, cz_status (*what)(subject *))
{
    const bool odd = cz_group_rank(group) == 1;
    cz_status status = CZ_ERR_MEMORY;
    for (int64_t n = 1; status != CZ_OK; n++) {
        until_failure = odd ? n : 0;
        status = what(s);
        until_failure = 0;
        if (status != CZ_OK && status != CZ_ERR_MEMORY)
            return expect(status, CZ_OK, "");
        if (n > 400)
            return cz_fail(CZ_ERR_STATE, "no end of failures");
    }
    return CZ_OK;
}

static cz_status consolidate_all(subject *s)
{
    return cz_zero_consolidate_state_dict(s->zero, CZ_ALL_RANKS);
}
static cz_status consolidate_one(subject *s)
{
    return cz_zero_consolidate_state_dict(s->zero, 1);
}
static cz_status load_it(subject *s)
{
    return cz_zero_load_state_dict(s->zero, s->dict);
}
static cz_status reshard_it(subject *s)
{
    return cz_zero_reshard(s->zero, CZ_PARTITION_ELEMENTS, NULL, 0);
}
static cz_status add_to_it(subject *s)
{
    const cz_param_group right = {sizeof right, (int64_t[]){4, 5}, 2, NULL};
    return cz_zero_add_param_group(s->zero, &right);
}

static cz_status without_memory(subject *s, cz_group *group)
{
    cz_state_dict *after = NULL;
    CZ_TRY(create(s, group, CZ_PARTITION_GREEDY));
    CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    CZ_TRY(insist(s, group, consolidate_one));
    CZ_TRY(insist(s, group, consolidate_all));
    CZ_TRY(cz_zero_state_dict(s->zero, &s->dict));
    CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    CZ_TRY(insist(s, group, load_it));
    CZ_TRY(insist(s, group, reshard_it));
    CZ_TRY(consolidate_all(s));
    CZ_TRY(cz_zero_state_dict(s->zero, &after));
    const bool same = cz_state_dict_equal(after, s->dict);
    cz_state_dict_destroy(&after);
    if (!same)
        return cz_fail(CZ_ERR_STATE, "the state is another one");
    CZ_TRY(insist(s, group, add_to_it));
    if (cz__zero_group_count(s->zero) != 2)
        return cz_fail(CZ_ERR_STATE, "%d groups", (int)cz__zero_group_count(s->zero));
    return cz_zero_step(s->zero, NULL, NULL);
}
BODY(without_memory)

TEST(memory_out_on_one_rank)
{
    const cz_allocator own = {sizeof(cz_allocator), allocate, release, NULL};
    assert_ok(cz_set_allocator(&own));
    assert_ranks_ok(2, without_memory_body, NULL);
    assert_ranks_ok(3, without_memory_body, NULL);
    assert_ok(cz_set_allocator(NULL));
}

/* ---- what consolidation holds beside the state ---- */

enum { BIG = 4 << 20 };

static cz_status big_consolidation(cz_group *group, subject *s)
{
    static const int64_t counts[] = {BIG, BIG, BIG, BIG};
    const cz_test_training big = {.param_count = 4, .sizes = counts, .dtype = CZ_F32};
    CZ_TRY(cz_test_memory_create(&s->memory, &big));
    CZ_TRY(cz_zero_create(&s->zero, group, s->memory.model, cz_rule_adam(), NULL, NULL));
    CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    CZ_TRY(cz_barrier(group, NULL));
    if (cz_group_rank(group) == 0)
        cz_memory_reset_peak();
    CZ_TRY(cz_barrier(group, NULL));
    const size_t before = cz_memory_bytes(CZ_MEMORY_STAGING) + cz_memory_bytes(CZ_MEMORY_GENERAL);
    CZ_TRY(cz_barrier(group, NULL));
    CZ_TRY(cz_zero_consolidate_state_dict(s->zero, 0));
    CZ_TRY(cz_barrier(group, NULL));
    const size_t peak =
        cz_memory_peak_bytes(CZ_MEMORY_STAGING) + cz_memory_peak_bytes(CZ_MEMORY_GENERAL);
    const size_t result = cz_memory_bytes(CZ_MEMORY_STATE_DICT);
    const size_t limit = (size_t)cz_group_size(group) * ((size_t)64 << 20);
    if (result < (size_t)BIG * 4 * 4 * 2 || cz_memory_peak_bytes(CZ_MEMORY_STATE_DICT) > result)
        return cz_fail(CZ_ERR_STATE, "the result holds %zu bytes, at most %zu", result,
                       cz_memory_peak_bytes(CZ_MEMORY_STATE_DICT));
    if (peak - before > limit)
        return cz_fail(CZ_ERR_STATE, "%zu bytes beside the state", peak - before);
    return CZ_OK;
}

static cz_status big_body(cz_group *group, void *context)
{
    subject s = {0};
    const cz_status status = big_consolidation(group, &s);
    const cz_status everybody = cz_barrier(group, NULL); /* counters are of the whole process */
    clear(&s);
    return status != CZ_OK ? status : everybody;
}

TEST(consolidation_is_streamed)
{
    assert_ranks_ok(4, big_body, NULL);
}
