/* SPDX-License-Identifier: MIT */
/* Buckets of a data-parallel model that belong to ranks whole, or in pieces of whole parameters:
 * who owns what, and the bits of one unsharded process whatever happens to the shards. */
#include <string.h>

#include "support/cz_test.h"
#include "support/passes.h"
#include "support/spans.h"
#include "zero/zero.h"
#include "ddp/ddp.h"
#include "shard/shard.h"

enum { PARAMS = 9 };
static const int64_t sizes[PARAMS] = {40, 0, 3, 131, 7, 16, 300, 1, 64};
static const int64_t members[] = {0, 2, 3, 4, 6, 8, 7}, later[] = {1, 5};
static const cz_param_group first[] = {{sizeof *first, members, 7, NULL}};

/* ---- who owns what ---- */

typedef struct layout {
    cz_partition partition;
    size_t bucket_bytes;
} layout;

typedef struct subject {
    cz_test_memory memory;
    cz_ddp *ddp;
    cz_zero *zero;
} owned;

static cz_status create(owned *s, cz_group *group, const layout *l)
{
    const cz_test_training training = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};
    cz_ddp_options buckets = CZ_DDP_OPTIONS_INIT;
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    buckets.bucket_bytes = buckets.first_bucket_bytes = l->bucket_bytes;
    CZ_TRY(cz_test_memory_create(&s->memory, &training));
    for (int64_t p = 0; p < PARAMS; p++) /* in no group, and frozen in one */
        CZ_TRY(cz_model_set_requires_grad(s->memory.model, p, p != 1 && p != 5 && p != 3));
    CZ_TRY(cz_ddp_create(&s->ddp, group, s->memory.model, &buckets));
    options.partition = l->partition;
    options.groups = first;
    options.group_count = 1;
    options.ddp = s->ddp;
    return cz_zero_create(&s->zero, group, s->memory.model, cz_rule_adam(), NULL, &options);
}

static cz_status expect_home(const owned *s, int64_t param, int bucket, int world)
{
    const int home = cz__shard_map_home(cz_test_shard_map(s->zero), param);
    const bool ours = param != 1 && param != 5;
    if (ours ? home != bucket % world : home != -1)
        return cz_fail(CZ_ERR_STATE, "parameter %d of bucket %d lives on rank %d", (int)param,
                       bucket, home);
    return CZ_OK;
}

/* What is trained of a bucket: in runs of one owner each, of which no rank has two. */
static cz_status expect_runs(const owned *s, int bucket)
{
    uint64_t seen = 0;
    int last = -1;
    for (int64_t k = 0; k < cz__ddp_bucket_param_count(s->ddp, bucket); k++) {
        const int64_t p = cz__ddp_bucket_param(s->ddp, bucket, k);
        if (!cz__zero_is_trained(s->zero, p))
            continue;
        const int home = cz__shard_map_home(cz_test_shard_map(s->zero), p);
        if (home < 0 || (home != last && seen >> home & 1u))
            return cz_fail(CZ_ERR_STATE, "rank %d has two pieces of bucket %d", home, bucket);
        seen |= (uint64_t)1 << home;
        last = home;
    }
    return CZ_OK;
}

static cz_status owners(owned *s, cz_group *group, const layout *l)
{
    cz_zero_info info = CZ_ZERO_INFO_INIT;
    const int world = cz_group_size(group);
    CZ_TRY(create(s, group, l));
    for (int b = 0; b < cz__ddp_bucket_count(s->ddp); b++) {
        for (int64_t k = 0;
             l->partition == CZ_PARTITION_BUCKETS && k < cz__ddp_bucket_param_count(s->ddp, b); k++)
            CZ_TRY(expect_home(s, cz__ddp_bucket_param(s->ddp, b, k), b, world));
        if (l->partition == CZ_PARTITION_BUCKET_PIECES)
            CZ_TRY(expect_runs(s, b));
    }
    if (cz__shard_map_home(cz_test_shard_map(s->zero), 3) < 0 ||
        cz__shard_map_home(cz_test_shard_map(s->zero), 1) != -1)
        return cz_fail(CZ_ERR_STATE, "owners of what is frozen, and of what is in no group");
    CZ_TRY(cz_zero_get_info(s->zero, &info));
    return info.partition == l->partition
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "partition %d", (int)info.partition);
}

static cz_status owners_body(cz_group *group, void *context)
{
    owned s = {0};
    const cz_status status = owners(&s, group, context);
    cz_zero_destroy(&s.zero);
    cz_ddp_destroy(&s.ddp);
    cz_test_memory_destroy(&s.memory);
    return status;
}

TEST(who_owns_what)
{
    static const size_t caps[] = {1, 64, 600, 1 << 20};
    char why[256];
    for (size_t c = 0; c < 4; c++)
        for (int world = 1; world <= 7; world++)
            for (int k = 0; k < 2; k++) {
                layout l = {k ? CZ_PARTITION_BUCKETS : CZ_PARTITION_BUCKET_PIECES, caps[c]};
                if (cz_test_run_ranks(world, owners_body, &l, why) != CZ_OK)
                    fail_msg("world size %d, cap %zu, %d: %s", world, caps[c], k, why);
            }
}

/* ---- without a data-parallel model ---- */

static cz_status expect_refusal(cz_status status, cz_partition partition)
{
    const char *wanted = partition == CZ_PARTITION_BUCKETS
                             ? "CZ_PARTITION_BUCKETS, which needs option ddp"
                             : "CZ_PARTITION_BUCKET_PIECES, which needs option ddp";
    return status == CZ_ERR_ARGUMENT && strstr(cz_last_error(), wanted)
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "got %s", cz_status_name(status));
}

static cz_status refused_body(cz_group *group, void *context)
{
    const cz_test_training training = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};
    cz_test_memory memory;
    cz_zero *zero = NULL, *refused = NULL;
    CZ_TRY(cz_test_memory_create(&memory, &training));
    cz_status status = cz_zero_create(&zero, group, memory.model, cz_rule_adam(), NULL, NULL);
    for (int k = 0; k < 2 && status == CZ_OK; k++) {
        cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
        options.partition = k ? CZ_PARTITION_BUCKETS : CZ_PARTITION_BUCKET_PIECES;
        status = expect_refusal(
            cz_zero_create(&refused, group, memory.model, cz_rule_adam(), NULL, &options),
            options.partition);
        THEN(expect_refusal(cz_zero_reshard(zero, options.partition, NULL, 0), options.partition));
    }
    cz_zero_destroy(&zero);
    cz_test_memory_destroy(&memory);
    return status;
}

TEST(refused_without_buckets)
{
    for (int world = 1; world <= 3; world++)
        assert_ranks_ok(world, refused_body, NULL);
}

/* ---- the bits of one process ---- */

/* Two parameters are in no group at first, and frozen; a third one is frozen at times. */
static cz_status grow_and_freeze(const cz_test_subject *subject, int step)
{
    if (step < 0) {
        CZ_TRY(cz_model_set_requires_grad(subject->model, 1, false));
        return cz_model_set_requires_grad(subject->model, 5, false);
    }
    if (step == 3) {
        const cz_param_group group = {sizeof group, later, 2, CZ_HYPERS({"lr", 0.125})};
        CZ_TRY(subject->zero ? cz_zero_add_param_group(subject->zero, &group)
                             : cz_optim_add_param_group(subject->optim, &group));
        CZ_TRY(cz_model_set_requires_grad(subject->model, 1, true));
        CZ_TRY(cz_model_set_requires_grad(subject->model, 5, true));
    }
    return cz_model_set_requires_grad(subject->model, 6, step != 1 && step != 2);
}

/* Through all partitions and back, some of them twice. */
static cz_status reshard(const cz_test_subject *subject, cz_group *group, int step)
{
    static const cz_partition there[] = {CZ_PARTITION_BUCKET_PIECES, CZ_PARTITION_GREEDY,
                                         CZ_PARTITION_BUCKETS,       CZ_PARTITION_ELEMENTS,
                                         CZ_PARTITION_BUCKET_PIECES, CZ_PARTITION_BUCKETS,
                                         CZ_PARTITION_BUCKET_PIECES, CZ_PARTITION_GIVEN};
    static const int given[PARAMS] = {0};
    const cz_partition partition = there[step % 8];
    const bool given_here = partition == CZ_PARTITION_GIVEN;
    return cz_zero_reshard(subject->zero, partition, given_here ? given : NULL,
                           given_here ? PARAMS : 0);
}

static void train(size_t cap, int world, int mode)
{
    static const cz_overlap overlaps[] = {CZ_OVERLAP_NONE, CZ_OVERLAP_INTERLEAVED, CZ_OVERLAP_STEP};
    cz_test_passes t = {.param_count = PARAMS,
                        .sizes = sizes,
                        .dtype = mode % 3 ? CZ_F32 : CZ_F64,
                        .flat = mode & 1,
                        .views = (mode & 2) != 0,
                        .late = (mode & 4) != 0,
                        .rule = cz_rule_adam(),
                        .groups = first,
                        .group_count = 1,
                        .buckets = CZ_DDP_OPTIONS_INIT,
                        .edit = grow_and_freeze,
                        .visit = mode & 4 ? reshard : NULL};
    const cz_partition partition = mode & 1 ? CZ_PARTITION_BUCKETS : CZ_PARTITION_BUCKET_PIECES;
    const cz_test_stretch stretches[] = {
        {world, 5, partition, overlaps[mode % 3]},
        {8 - world, 2, CZ_PARTITION_BUCKET_PIECES, overlaps[(mode + 1) % 3]},
        {world % 3 + 1, 2, CZ_PARTITION_ELEMENTS, overlaps[mode % 3]},
        {world, 2, CZ_PARTITION_BUCKETS, overlaps[(mode + 2) % 3]},
        {0, 0, CZ_PARTITION_ELEMENTS, CZ_OVERLAP_NONE}};
    char why[256];
    t.buckets.bucket_bytes = cap;
    t.buckets.first_bucket_bytes = cap / 2 + 1;
    t.buckets.all_reduce = mode % 5 == 0;
    if (cz_test_passes_run(&t, stretches, why) != CZ_OK)
        fail_msg("world size %d, cap %zu, mode %d: %s", world, cap, mode, why);
}

TEST(the_bits_of_one_process)
{
    static const size_t caps[] = {1, 300, 1200, 1 << 20};
    static const int worlds[] = {1, 2, 3, 5, 7};
    for (size_t c = 0; c < 4; c++)
        for (size_t w = 0; w < 5; w++)
            for (int mode = 0; mode < 8; mode++)
                train(caps[c], worlds[w], mode);
}
