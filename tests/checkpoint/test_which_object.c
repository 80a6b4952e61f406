/* SPDX-License-Identifier: MIT */
/* Two checkpoints of one model over one group: a call that is on the first one here and on the
 * second one there is refused by all ranks, with both names, and nothing is written. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "czero/czero.h"
#include "support/cz_test.h"
#include "support/training.h"

enum { PARAMS = 2 };
static const int64_t sizes[PARAMS] = {40, 7};
static const cz_test_training layout = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};

typedef struct twins {
    char folders[2][160];
    cz_test_memory memory;
    cz_zero *zero;
    cz_checkpoint *checkpoints[2];
} twins;

static cz_status save(twins *t, int which)
{
    cz_save_options options = CZ_SAVE_OPTIONS_INIT;
    options.step = 3;
    return cz_checkpoint_save(t->checkpoints[which], &options);
}

static cz_status save_async(twins *t, int which)
{
    cz_save_options options = CZ_SAVE_OPTIONS_INIT;
    options.step = 4;
    return cz_checkpoint_save_async(t->checkpoints[which], &options);
}

static cz_status wait_for(twins *t, int which)
{
    return cz_checkpoint_wait(t->checkpoints[which]);
}

static cz_status load(twins *t, int which)
{
    return cz_checkpoint_load(t->checkpoints[which], NULL, NULL);
}

static cz_status export(twins *t, int which)
{
    char path[200];
    snprintf(path, sizeof path, "%s.safetensors", t->folders[which]);
    return cz_checkpoint_export(t->checkpoints[which], path, NULL);
}

static const struct {
    const char *name;
    cz_status (*call)(twins *t, int which);
} calls[] = {{"save", save},
             {"save_async", save_async},
             {"wait", wait_for},
             {"load", load},
             {"export", export}};

static cz_status cross(twins *t, cz_group *group, int k)
{
    const cz_status status = calls[k].call(t, cz_group_rank(group) == 1);
    CHECK(status == CZ_ERR_MISMATCH &&
              strstr(cz_last_error(), "checkpoint 2 of group 'world' on rank 1, checkpoint 1 of "
                                      "group 'world' on rank 0"),
          "%s: %s '%.200s'", calls[k].name, cz_status_name(status), cz_last_error());
    for (int which = 0; which < 2; which++) {
        CHECK(k > 0 || access(t->folders[which], F_OK) != 0, "%s was written", t->folders[which]);
        CZ_TRY(cz_barrier(group, NULL));
        CZ_TRY(calls[k].call(t, which));
    }
    return CZ_OK;
}

static cz_status each_rank(cz_group *group, void *arg)
{
    twins t = {0};
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    CZ_TRY(cz_test_memory_create(&t.memory, &layout));
    CZ_TRY(cz_zero_create(&t.zero, group, t.memory.model, cz_rule_adam(), NULL, NULL));
    options.zero = t.zero;
    for (int k = 0; k < 2; k++) {
        snprintf(t.folders[k], sizeof t.folders[k], "%s/which-object-%d-%d-%d", CZ_TEST_BINARY_DIR,
                 (int)getpid(), cz_group_size(group), k);
        CZ_TRY(cz_checkpoint_create(&t.checkpoints[k], group, t.folders[k], &options));
    }
    cz_status status = CZ_OK;
    for (size_t k = 0; k < sizeof calls / sizeof *calls && status == CZ_OK; k++)
        status = cross(&t, group, (int)k);
    for (int k = 0; k < 2; k++)
        cz_checkpoint_destroy(&t.checkpoints[k]);
    cz_zero_destroy(&t.zero);
    cz_test_memory_destroy(&t.memory);
    return status;
}

TEST(calls_on_two_checkpoints_in_another_order_are_refused)
{
    char command[256];
    for (int world = 2; world <= 3; world++)
        assert_ranks_ok(world, each_rank, NULL);
    snprintf(command, sizeof command, "rm -rf '%s/which-object-%d'*", CZ_TEST_BINARY_DIR,
             (int)getpid());
    assert_int_equal(system(command), 0);
}
