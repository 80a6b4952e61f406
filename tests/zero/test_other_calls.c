/* SPDX-License-Identifier: MIT */
/* Ranks that are in different calls of the library: all are told so, also where the calls begin
 * alike, and the group goes on. */
#include "zero/cases.h"

static const int64_t sizes[] = {40, 3};
static const cz_test_training layout = {.param_count = 2, .sizes = sizes, .dtype = CZ_F32};

typedef struct scene {
    cz_group *group;
    cz_test_memory memory;
    cz_zero *zero;
} scene;

static cz_status create_zero(scene *s)
{
    cz_zero *zero = NULL;
    const cz_status status =
        cz_zero_create(&zero, s->group, s->memory.model, cz_rule_adam(), NULL, NULL);
    cz_zero_destroy(&zero);
    return status;
}

static cz_status create_ddp(scene *s)
{
    cz_ddp *ddp = NULL;
    const cz_status status = cz_ddp_create(&ddp, s->group, s->memory.model, NULL);
    cz_ddp_destroy(&ddp);
    return status;
}

static cz_status share(scene *s)
{
    cz_shared *shared = NULL;
    const cz_status status = cz_shared_create(&shared, s->group, 64, NULL);
    cz_shared_destroy(&shared);
    return status;
}

static cz_status step(scene *s)
{
    return cz_zero_step(s->zero, NULL, NULL);
}

static cz_status consolidate(scene *s)
{
    return cz_zero_consolidate_state_dict(s->zero, 0);
}

static cz_status check_replicas(scene *s)
{
    return cz_zero_check_replicas(s->zero);
}

static cz_status reshard(scene *s)
{
    return cz_zero_reshard(s->zero, CZ_PARTITION_ELEMENTS, NULL, 0);
}

/* Of no parameters. */
static cz_status add_group(scene *s)
{
    const cz_param_group none = CZ_PARAM_GROUP_INIT;
    return cz_zero_add_param_group(s->zero, &none);
}

static cz_status split(scene *s)
{
    cz_group *part = NULL;
    const cz_status status = cz_group_split(s->group, 0, 0, &part);
    cz_group_destroy(&part);
    return status;
}

static cz_status sum(scene *s)
{
    float one[3] = {1, 1, 1};
    return cz_all_reduce(s->group, one, 3, CZ_F32, CZ_SUM, NULL);
}

static cz_status (*const calls[])(scene *) = {
    create_zero,    create_ddp, share,     step,  consolidate,
    check_replicas, reshard,    add_group, split, sum};
enum { CALLS = sizeof calls / sizeof *calls };

static cz_status call_all_pairs(scene *s)
{
    const int last = cz_group_size(s->group) - 1;
    for (int a = 0; a < CALLS; a++)
        for (int b = 0; b < CALLS; b++) {
            const cz_status status = calls[cz_group_rank(s->group) < last ? a : b](s);
            CHECK(status == (a == b ? CZ_OK : CZ_ERR_MISMATCH), "calls %d and %d: %s (%s)", a, b,
                  cz_status_name(status), status == CZ_OK ? "" : cz_last_error());
            CZ_TRY(cz_barrier(s->group, NULL));
        }
    return CZ_OK;
}

static cz_status each_rank(cz_group *group, void *arg)
{
    scene s = {.group = group};
    CZ_TRY(cz_test_memory_create(&s.memory, &layout));
    cz_status status = cz_zero_create(&s.zero, group, s.memory.model, cz_rule_adam(), NULL, NULL);
    THEN(call_all_pairs(&s));
    cz_zero_destroy(&s.zero);
    cz_test_memory_destroy(&s.memory);
    return status;
}

TEST(ranks_in_different_calls_are_told_so)
{
    for (int world = 2; world <= LARGEST_WORLD; world += 3)
        expect_ok(world, 0, each_rank, NULL);
}
