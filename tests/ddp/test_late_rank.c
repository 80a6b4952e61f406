/* SPDX-License-Identifier: MIT */
/* A rank that does not come to a pass: the others wait for it as long as the timeout, once. Each
 * wait has a sentence of its own, so whoever waits again says another. */
#include "czero/czero.h"
#include "group/group_test.h"
#include "support/training.h"

static const double TIMEOUT = 1.5;
static const int64_t sizes[] = {40, 40};
static const cz_test_training layout = {.param_count = 2, .sizes = sizes, .dtype = CZ_F32};
static atomic_int through; /* ranks that have seen it */

typedef struct trial {
    cz_ddp_options options;
    int64_t marks;          /* so many parameters are used */
    const char *waits_with; /* the operation that the rank does not come to first */
} trial;

/* All but the last rank. */
static cz_status pass_alone(cz_ddp *ddp, const trial *t)
{
    for (int64_t p = 0; p < t->marks; p++)
        (void)cz_ddp_mark_ready(ddp, p);
    cz_status status = cz_ddp_finish(ddp);
    CHECK(status == CZ_ERR_TIMEOUT, "the pass ends with %s", cz_status_name(status));
    CHECK(strstr(cz_last_error(), "did not come within 1.5 s") &&
              strstr(cz_last_error(), t->waits_with),
          "%.250s", cz_last_error());
    status = cz_ddp_begin(ddp, true);
    CHECK(status == CZ_ERR_TIMEOUT, "the next one begins with %s", cz_status_name(status));
    const char *place = strstr(cz_last_error(), "(in ddp 1 of group 'world')");
    CHECK(place && !strstr(place + 1, "(in "), "said twice: %.250s", cz_last_error());
    CHECK(strstr(cz_last_error(), t->waits_with), "it waited again: %.250s", cz_last_error());
    return CZ_OK;
}

static cz_status each_rank(cz_group *group, void *arg)
{
    const trial *t = arg;
    cz_test_memory memory;
    cz_ddp *ddp;
    const int last = cz_group_size(group) - 1;
    CZ_TRY(cz_test_memory_create(&memory, &layout));
    CZ_TRY(cz_ddp_create(&ddp, group, memory.model, &t->options));
    CZ_TRY(cz_ddp_begin(ddp, true));
    cz_status status = CZ_OK;
    if (cz_group_rank(group) < last)
        status = pass_alone(ddp, t);
    else
        (void)comes(&through, last);
    atomic_fetch_add(&through, 1);
    cz_ddp_destroy(&ddp);
    cz_test_memory_destroy(&memory);
    return status;
}

static void expect_one_timeout(trial t)
{
    outcome outcomes[MANY_RANKS];
    const cz_group_options options = {.size = sizeof options, .timeout_seconds = TIMEOUT};
    const int world = 3;
    atomic_store(&through, 0);
    run_ranks(world, &options, each_rank, &t, outcomes);
    for (int r = 0; r < world; r++)
        if (outcomes[r].status != CZ_OK)
            fail_msg("rank %d: %s", r, outcomes[r].sentence);
}

TEST(a_pass_waits_once_for_a_rank_that_does_not_come)
{
    (void)state;
    expect_one_timeout((trial){CZ_DDP_OPTIONS_INIT, 2, "'bucket 0, 'p1''"});
}

TEST(the_look_at_unused_parameters_is_the_only_wait_too)
{
    (void)state;
    trial t = {CZ_DDP_OPTIONS_INIT, 1, "'ddp: used parameters'"};
    t.options.find_unused = 1; /* so the bucket starts when that has failed */
    expect_one_timeout(t);
}
