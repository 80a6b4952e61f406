/* SPDX-License-Identifier: MIT */
/* A training in legs that goes on from the checkpoint of the leg before: other world sizes, partitions, orders. */
#include "checkpoint/folder.h"
#include "czero/checkpoint.h"
#include "zero/legs.h"

typedef struct trip {
    char folder[FOLDER_BYTES];
    bool later; /* saves are asynchronous, and training goes on before they end */
} trip;

static cz_status open_checkpoint(const luggage *l, cz_group *group, cz_zero *zero,
                                 cz_checkpoint **checkpoint)
{
    const trip *t = l->way->context;
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    options.zero = zero;
    return cz_checkpoint_create(checkpoint, group, t->folder, &options);
}

static cz_status load(const luggage *l, cz_group *group, cz_zero *zero)
{
    cz_checkpoint *checkpoint = NULL;
    cz_load_result result = CZ_LOAD_RESULT_INIT;
    CZ_TRY(open_checkpoint(l, group, zero, &checkpoint));
    cz_status status = cz_checkpoint_load(checkpoint, NULL, &result);
    if (status == CZ_OK && result.step != l->step)
        status =
            cz_fail(CZ_ERR_STATE, "step %d was saved, %d is loaded", l->step, (int)result.step);
    cz_state_dict_destroy(&result.common);
    cz_state_dict_destroy(&result.own);
    cz_checkpoint_destroy(&checkpoint);
    return status;
}

static cz_status save(const luggage *l, cz_group *group, cz_zero *zero)
{
    const trip *t = l->way->context;
    cz_checkpoint *checkpoint = NULL;
    cz_save_options options = CZ_SAVE_OPTIONS_INIT;
    options.step = l->step + l->leg->steps;
    CZ_TRY(open_checkpoint(l, group, zero, &checkpoint));
    cz_status status = t->later ? cz_checkpoint_save_async(checkpoint, &options)
                                : cz_checkpoint_save(checkpoint, &options);
    if (status == CZ_OK && t->later)
        status = cz_zero_step(zero, NULL, NULL); /* which the file must not have */
    if (status == CZ_OK)
        status = cz_checkpoint_wait(checkpoint);
    cz_checkpoint_destroy(&checkpoint);
    return status;
}

static void along(bool later, const cz_rule *rule, const cz_hyper *hypers, cz_dtype dtype,
                  void (*test)(const course *))
{
    trip t = {.later = later};
    const travel by_checkpoint = {
        .go_on = load, .leave = save, .brings_values = true, .context = &t};
    make_folder(t.folder);
    with_course(&by_checkpoint, rule, hypers, dtype, test);
    remove_folder(t.folder);
}

/* From every world size to every other, in time. */
static void pairs(const course *c)
{
    static const int worlds[] = {1, 2, 3, 5, 7}, orders[] = {1, 2, 4, 5, 7, 8};
    for (int from = 0; from < 5; from += 1 + SANITIZED)
        for (int to = 0; to < 5; to += 1 + SANITIZED) {
            const leg legs[] = {
                {worlds[from], 3 + (from + to) % 7, (cz_partition)((from + to) % 3), orders[from]},
                {worlds[to], STEPS, (cz_partition)((from + 2 * to + 1) % 3), orders[to + 1]}};
            run_course(c, legs, 2);
        }
}

TEST(adam_between_world_sizes)
{
    along(false, cz_rule_adam(), CZ_HYPERS({"lr", 0.5}, {"amsgrad", 1}), CZ_F32, pairs);
}

TEST(many_legs)
{
    along(false, cz_rule_adamw(), CZ_HYPERS({"lr", 0.5}), CZ_F64, many_legs);
    along(false, cz_rule_sgd(), CZ_HYPERS({"lr", 0.5}, {"momentum", 0.75}, {"nesterov", 1}), CZ_F32,
          many_legs);
    along(false, cz_rule_sgd(), CZ_HYPERS({"lr", 0.5}), CZ_F32, many_legs);
}

TEST(all_rules)
{
    along(false, cz_rule_adamax(), CZ_HYPERS({"lr", 0.5}), CZ_F32, many_legs);
    along(false, cz_rule_adadelta(), NULL, CZ_F32, many_legs);
    along(false, cz_rule_adagrad(), CZ_HYPERS({"lr", 0.5}, {"initial_accumulator_value", 0.5}),
          CZ_F32, many_legs);
    along(false, cz_rule_rmsprop(), CZ_HYPERS({"lr", 0.5}, {"centered", 1}, {"momentum", 0.5}),
          CZ_F32, many_legs);
    along(false, cz_rule_rprop(), CZ_HYPERS({"lr", 0.5}), CZ_F64, many_legs);
    along(false, cz_rule_nadam(), CZ_HYPERS({"lr", 0.5}), CZ_F32, many_legs);
    along(false, cz_rule_radam(), CZ_HYPERS({"lr", 0.5}), CZ_F64, many_legs);
}

TEST(asynchronous_saves_have_the_moment_of_the_call)
{
    along(true, cz_rule_adamw(), CZ_HYPERS({"lr", 0.5}), CZ_F32, many_legs);
}
