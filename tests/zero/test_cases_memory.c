/* SPDX-License-Identifier: MIT */
/* What a sharded optimizer holds. There is no estimate to compare with yet; what the headers
 * promise is compared with what is counted. */
#include "zero/cases.h"

/* Of what a rank may have beside, 36 KiB are the group's room for small data. */
enum { PARAMS = 6, SEGMENT = 64 << 10, SLACK = 108 << 10 };
static const int64_t sizes[PARAMS] = {300000, 1, 0, 65536, 200001, 64};
static const cz_test_training layout = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};

static size_t elements(void)
{
    size_t sum = 0;
    for (int p = 0; p < PARAMS; p++)
        sum += (size_t)sizes[p];
    return sum;
}

/* Adam has two slots. */
static size_t whole_state(void)
{
    return 2 * elements() * sizeof(float);
}

/* An operation may need 2 size + 1 segments; memory for them is had in powers of two. */
static size_t staging_limit(size_t world)
{
    return 2 * (2 * world + 1) * SEGMENT;
}

/* What an unsharded optimizer adds: state, and tables. */
static void measure_plain(size_t *state, size_t *tables)
{
    cz_test_memory memory;
    cz_optim *optim;
    assert_ok(cz_test_memory_create(&memory, &layout));
    *state = cz_memory_bytes(CZ_MEMORY_STATE);
    *tables = cz_memory_bytes(CZ_MEMORY_GENERAL);
    assert_ok(cz_optim_create(&optim, memory.model, cz_rule_adam(), NULL, NULL));
    assert_ok(cz_optim_step(optim, NULL, NULL));
    *state = cz_memory_bytes(CZ_MEMORY_STATE) - *state;
    *tables = cz_memory_bytes(CZ_MEMORY_GENERAL) - *tables;
    cz_optim_destroy(&optim);
    cz_test_memory_destroy(&memory);
}

static cz_status check_peak(cz_memory_kind kind, const char *name, size_t limit)
{
    const size_t peak = cz_memory_peak_bytes(kind);
    return peak <= limit
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "%s: %zu bytes, allowed are %zu", name, peak, limit);
}

static cz_status hold(cz_group *group, cz_test_memory *memory, cz_zero **zero,
                      cz_partition partition)
{
    const cz_zero_options options = {.size = sizeof options, .partition = partition};
    const size_t world = (size_t)cz_group_size(group);
    CZ_TRY(cz_test_memory_create(memory, &layout));
    CZ_TRY(cz_zero_create(zero, group, memory->model, cz_rule_adam(), NULL, &options));
    for (int step = 0; step < 3; step++)
        CZ_TRY(cz_zero_step(*zero, NULL, NULL));
    CZ_TRY(cz_barrier(group, NULL));
    CZ_TRY(check_peak(CZ_MEMORY_STATE, "state", whole_state() + world * PARAMS * 2 * 64));
    CZ_TRY(check_peak(CZ_MEMORY_GRADIENT, "gradients", 0));
    CZ_TRY(check_peak(CZ_MEMORY_STAGING, "staging", world * staging_limit(world)));
    CZ_TRY(check_peak(CZ_MEMORY_GENERAL, "tables", world * SLACK));
    CZ_TRY(cz_zero_consolidate_state_dict(*zero, 0));
    CZ_TRY(cz_barrier(group, NULL));
    CZ_TRY(check_peak(CZ_MEMORY_STATE, "state", whole_state() + world * PARAMS * 2 * 64));
    return check_peak(CZ_MEMORY_STATE_DICT, "dictionary", whole_state() + SLACK);
}

static cz_status hold_body(cz_group *group, void *context)
{
    cz_test_memory memory = {0};
    cz_zero *zero = NULL;
    const cz_status status = hold(group, &memory, &zero, *(const cz_partition *)context);
    const cz_status everybody = cz_barrier(group, NULL); /* the counters are of the process */
    cz_zero_destroy(&zero);
    cz_test_memory_destroy(&memory);
    return status != CZ_OK ? status : everybody;
}

TEST(memory_is_what_the_headers_say)
{
    static const int worlds[] = {1, 2, 4, 8};
    for (int k = 0; k < (SLOW ? 3 : 4); k++)
        for (int partition = 0; partition < 2; partition++) {
            cz_memory_reset_peak();
            expect_ok(worlds[k], SEGMENT, hold_body, &(cz_partition){(cz_partition)partition});
        }
}

/* One rank has the state of the unsharded optimizer, and no more beside it than the segments and
 * tables. */
static cz_status alone(cz_group *group, void *context)
{
    cz_test_memory memory;
    cz_zero *zero;
    cz_zero_info info = CZ_ZERO_INFO_INIT;
    const size_t *plain = context;
    CZ_TRY(cz_test_memory_create(&memory, &layout));
    const size_t before = cz_memory_bytes(CZ_MEMORY_GENERAL) + cz_memory_bytes(CZ_MEMORY_STAGING);
    CZ_TRY(cz_zero_create(&zero, group, memory.model, cz_rule_adam(), NULL, NULL));
    CZ_TRY(cz_zero_step(zero, NULL, NULL));
    CZ_TRY(cz_zero_get_info(zero, &info));
    const size_t state = cz_memory_bytes(CZ_MEMORY_STATE);
    const size_t more =
        cz_memory_bytes(CZ_MEMORY_GENERAL) + cz_memory_bytes(CZ_MEMORY_STAGING) - before;
    cz_zero_destroy(&zero);
    cz_test_memory_destroy(&memory);
    CHECK(state == plain[0] && info.state_bytes == whole_state(),
          "%zu bytes of state, %zu unsharded", state, plain[0]);
    CHECK(more <= plain[1] + staging_limit(1) + SLACK, "%zu bytes beside it, %zu unsharded", more,
          plain[1]);
    return CZ_OK;
}

TEST(one_rank_takes_no_more_than_unsharded)
{
    size_t plain[2];
    measure_plain(&plain[0], &plain[1]);
    expect_ok(1, SEGMENT, alone, plain);
}
