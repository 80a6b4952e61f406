/* SPDX-License-Identifier: MIT */
/* A training in stages that goes on from the checkpoint of the stage before: other world sizes,
 * partitions, orders. */
#include "checkpoint/by_checkpoint.h"
#include "zero/eventful.h"

static char folder[FOLDER_BYTES];
static saving how = {folder, false};
static const handover by_checkpoint = {load_stage, save_stage, &how};

static int set_up(void **state)
{
    how.later = false;
    make_folder(folder);
    return 0;
}

static int tear_down(void **state)
{
    remove_folder(folder);
    return 0;
}

EACH_TEST(set_up, tear_down)

TEST(adam_between_world_sizes)
{
    static const int worlds[] = {1, 3, 7, 2, 5};
    const cz_test_training training =
        eventful(cz_rule_adam(), CZ_HYPERS({"lr", 0.5}, {"amsgrad", 1}), CZ_F32);
    check_pairs(&by_checkpoint, &training, worlds, SANITIZED ? 3 : 5);
}

TEST(checkpoints_go_through_many_stages)
{
    check_many(&by_checkpoint, cz_rule_adamw(), CZ_HYPERS({"lr", 0.5}), CZ_F64);
    check_many(&by_checkpoint, cz_rule_sgd(),
               CZ_HYPERS({"lr", 0.5}, {"momentum", 0.75}, {"nesterov", 1}), CZ_F32);
    check_many(&by_checkpoint, cz_rule_sgd(), CZ_HYPERS({"lr", 0.5}), CZ_F32);
}

TEST(checkpoints_of_every_rule_go_through_stages)
{
    check_all_rules(&by_checkpoint);
}

TEST(asynchronous_saves_have_the_moment_of_the_call)
{
    how.later = true;
    check_many(&by_checkpoint, cz_rule_adamw(), CZ_HYPERS({"lr", 0.5}), CZ_F32);
}
