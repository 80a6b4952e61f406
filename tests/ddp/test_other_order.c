/* SPDX-License-Identifier: MIT */
/* Two data-parallel models whose passes begin in another order on one rank: they wait in groups of
 * their own, until the timeout; whoever reads the line in the log or the sentence then knows
 * both. */
#include <string.h>

#include "czero/czero.h"
#include "group/group_test.h"
#include "support/training.h"

enum { PARAMS = 1 };
static const int64_t sizes[PARAMS] = {40};
static const cz_test_training layout = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};

static atomic_int lines;

static void count_lines(cz_log_level level, const char *line, void *context)
{
    if (strstr(line, "is in a call on ddp 2 of group 'world', this rank in one on ddp 1 of group"))
        atomic_fetch_add(&lines, 1);
}

static cz_status each_rank(cz_group *group, void *arg)
{
    cz_test_memory memories[2];
    cz_ddp *ddps[2];
    const int rank = cz_group_rank(group);
    char words[128];
    for (int k = 0; k < 2; k++) {
        CZ_TRY(cz_test_memory_create(&memories[k], &layout));
        CZ_TRY(cz_ddp_create(&ddps[k], group, memories[k].model, NULL));
    }
    const cz_status status = cz_ddp_begin(ddps[rank == 1], true);
    snprintf(words, sizeof words,
             "is in a call on ddp %d of group 'world', this rank in one on ddp %d",
             rank == 1 ? 1 : 2, rank == 1 ? 2 : 1);
    CHECK(status == CZ_ERR_TIMEOUT || status == CZ_ERR_PEER, "%s", cz_status_name(status));
    CHECK(status == CZ_ERR_PEER || strstr(cz_last_error(), words), "%.250s, wanted: %s",
          cz_last_error(), words);
    for (int k = 0; k < 2; k++) {
        cz_ddp_destroy(&ddps[k]);
        cz_test_memory_destroy(&memories[k]);
    }
    return CZ_OK;
}

TEST(a_timeout_names_both_objects)
{
    outcome outcomes[MANY_RANKS];
    const cz_group_options options = {
        .size = sizeof options, .timeout_seconds = 2, .warn_seconds = 0.5};
    cz_log_set_sink(count_lines, NULL);
    for (int world = 2; world <= 3; world++) {
        atomic_store(&lines, 0);
        run_ranks(world, &options, each_rank, NULL, outcomes);
        for (int r = 0; r < world; r++)
            if (outcomes[r].status != CZ_OK)
                fail_msg("rank %d of %d: %s", r, world, outcomes[r].sentence);
        assert_true(atomic_load(&lines) > 0);
    }
    cz_log_set_sink(NULL, NULL);
}
