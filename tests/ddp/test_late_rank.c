/* SPDX-License-Identifier: MIT */
/* A rank that does not come to a pass: the others wait for it as long as the timeout, once. */
#include <time.h>

#include "czero/czero.h"
#include "group/group_test.h"
#include "support/training.h"

static const double TIMEOUT = 1.5;
static const int64_t sizes[] = {40, 40};
static const cz_test_training layout = {.param_count = 2, .sizes = sizes, .dtype = CZ_F32};
static atomic_int through; /* ranks that have seen it */

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* All but the last rank. */
static cz_status pass_alone(cz_ddp *ddp)
{
    const double start = seconds();
    (void)cz_ddp_mark_ready(ddp, 0);
    (void)cz_ddp_mark_ready(ddp, 1);
    cz_status status = cz_ddp_finish(ddp);
    CHECK(status == CZ_ERR_TIMEOUT, "the pass ends with %s", cz_status_name(status));
    CHECK(strstr(cz_last_error(), "did not come within 1.5 s"), "%.250s", cz_last_error());
    status = cz_ddp_begin(ddp, true);
    CHECK(status == CZ_ERR_TIMEOUT, "the next one begins with %s", cz_status_name(status));
    CHECK(seconds() - start < 1.8 * TIMEOUT, "it took %.1f s", seconds() - start);
    return CZ_OK;
}

static cz_status each_rank(cz_group *group, void *arg)
{
    cz_test_memory memory;
    cz_ddp *ddp;
    const int last = cz_group_size(group) - 1;
    CZ_TRY(cz_test_memory_create(&memory, &layout));
    CZ_TRY(cz_ddp_create(&ddp, group, memory.model, arg));
    CZ_TRY(cz_ddp_begin(ddp, true));
    cz_status status = CZ_OK;
    if (cz_group_rank(group) < last)
        status = pass_alone(ddp);
    else
        (void)comes(&through, last);
    atomic_fetch_add(&through, 1);
    cz_ddp_destroy(&ddp);
    cz_test_memory_destroy(&memory);
    return status;
}

static void expect_one_timeout(const cz_ddp_options *ddp)
{
    outcome outcomes[MANY_RANKS];
    const cz_group_options options = {.size = sizeof options, .timeout_seconds = TIMEOUT};
    const int world = 3;
    atomic_store(&through, 0);
    run_ranks(world, &options, each_rank, (void *)ddp, outcomes);
    for (int r = 0; r < world; r++)
        if (outcomes[r].status != CZ_OK)
            fail_msg("rank %d: %s", r, outcomes[r].sentence);
}

static void test_a_pass_waits_once_for_a_rank_that_does_not_come(void **state)
{
    (void)state;
    expect_one_timeout(NULL);
}

static void test_the_look_at_unused_parameters_is_the_only_wait_too(void **state)
{
    (void)state;
    cz_ddp_options options = CZ_DDP_OPTIONS_INIT;
    options.find_unused = 1;
    expect_one_timeout(&options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pass_waits_once_for_a_rank_that_does_not_come),
        cmocka_unit_test(test_the_look_at_unused_parameters_is_the_only_wait_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
