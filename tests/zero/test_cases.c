/* SPDX-License-Identifier: MIT */
/* Faults that users of other systems reported, as far as the sharded optimizer alone can have them. */
#include <string.h>

#include "support/cz_test.h"
#include "support/training.h"

static void check(const cz_test_training *training, int world_size,
                  cz_status (*inspect)(const cz_test_subject *subject, cz_group *group))
{
    char why[256];
    if (cz_test_train(training, world_size, inspect, why) != CZ_OK)
        fail_msg("partition %d, world size %d: %s", (int)training->partition, world_size, why);
}

/* Cut into elements and whole, gradients local and reduced. */
static void check_all(cz_test_training training, int world_size,
                      cz_status (*inspect)(const cz_test_subject *subject, cz_group *group))
{
    for (int mode = 0; mode < 4; mode++) {
        training.dtype = CZ_F32;
        training.partition = mode % 2 ? CZ_PARTITION_GREEDY : CZ_PARTITION_ELEMENTS;
        training.gradients = mode / 2 ? CZ_GRADIENTS_REDUCED : CZ_GRADIENTS_LOCAL;
        check(&training, world_size, inspect);
    }
}

/* A group with fewer elements than ranks. */
static void case_A1(void **state)
{
    static const int64_t sizes[] = {3, 1}, first[] = {0}, second[] = {1};
    const cz_param_group groups[] = {{sizeof *groups, first, 1, NULL},
                                     {sizeof *groups, second, 1, NULL}};
    check_all((cz_test_training){.param_count = 2,
                                 .sizes = sizes,
                                 .rule = cz_rule_adam(),
                                 .groups = groups,
                                 .group_count = 2,
                                 .steps = 3},
              4, NULL);
}

/* Sizes that the world size does not divide. */
static void case_A3(void **state)
{
    static const int64_t sizes[] = {7, 1, 10, 100};
    check_all(
        (cz_test_training){.param_count = 4, .sizes = sizes, .rule = cz_rule_adamw(), .steps = 5},
        3, NULL);
}

/* Cut into elements, ranks differ by one block at most. */
static cz_status is_balanced(const cz_test_subject *subject, cz_group *group)
{
    const cz_shard_map *map = cz_zero_shard_map(subject->zero);
    int64_t least = INT64_MAX, most = 0;
    for (int r = 0; r < cz_group_size(group); r++) {
        const int64_t owned = cz_shard_map_owned(map, r);
        least = owned < least ? owned : least;
        most = owned > most ? owned : most;
    }
    if (cz_shard_map_cuts(map) && most - least > 16)
        return cz_fail(CZ_ERR_STATE, "ranks own %d to %d elements", (int)least, (int)most);
    return CZ_OK;
}

/* Fewer parameters than ranks. */
static void case_A5(void **state)
{
    static const int64_t sizes[] = {1000, 1000, 1000, 1000, 1000};
    check_all(
        (cz_test_training){.param_count = 5, .sizes = sizes, .rule = cz_rule_adam(), .steps = 3}, 8,
        is_balanced);
}

/* Equal sizes, another order on each rank: found at create, on all ranks, with the first difference. */
static cz_status shuffled(cz_group *group, cz_model *model)
{
    static const int64_t size = 64;
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    const int rank = cz_group_rank(group);
    float values[64] = {0};
    cz_zero *zero = NULL;
    for (int p = 0; p < 8; p++) {
        const int moved = p < 2 ? p : 2 + (p - 2 + rank) % 6; /* alike up to parameter 2 */
        CZ_TRY(cz_model_add(model, names[moved], values, values, CZ_F32, 1, &size));
    }
    const cz_status status = cz_zero_create(&zero, group, model, cz_rule_adam(), NULL, NULL);
    if (status != CZ_ERR_MISMATCH || zero ||
        !strstr(cz_last_error(), "parameter 2 is 'd' on rank 1, 'c' on rank 0"))
        return cz_fail(CZ_ERR_STATE, "got %s: %.100s", cz_status_name(status), cz_last_error());
    return CZ_OK;
}

static cz_status shuffled_body(cz_group *group, void *context)
{
    cz_model *model = NULL;
    CZ_TRY(cz_model_create(&model));
    const cz_status status = shuffled(group, model);
    cz_model_destroy(&model);
    return status;
}

static void case_A8(void **state)
{
    char why[256];
    if (cz_test_run_ranks(4, shuffled_body, NULL, why) != CZ_OK)
        fail_msg("%s", why);
}

/* Every hyper-parameter reaches the shard, not only the learning rate. */
static cz_status edit_B1(const cz_test_subject *subject, int step)
{
    if (step == 3) {
        CZ_TRY(cz_test_set_hyper(subject, 0, "momentum", 0.5));
        CZ_TRY(cz_test_set_hyper(subject, 0, "weight_decay", 0.1));
    }
    return step == 5 ? cz_test_set_hyper(subject, CZ_ALL_GROUPS, "lr", 0.02) : CZ_OK;
}

static void case_B1(void **state)
{
    static const int64_t sizes[] = {100, 30, 7};
    const cz_test_training training = {.param_count = 3,
                                       .sizes = sizes,
                                       .rule = cz_rule_sgd(),
                                       .hypers = CZ_HYPERS({"lr", 0.1}, {"momentum", 0.9}),
                                       .steps = 8,
                                       .edit = edit_B1};
    check_all(training, 2, NULL);
    check_all(training, 3, NULL);
}

/* Interleaved groups: state is found by the parameter, whatever group it is in. */
static void case_B3(void **state)
{
    static const int64_t sizes[] = {5, 11, 17, 40, 64, 100}, even[] = {0, 2, 4}, odd[] = {1, 3, 5};
    const cz_param_group groups[] = {{sizeof *groups, even, 3, NULL},
                                     {sizeof *groups, odd, 3, CZ_HYPERS({"lr", 0.5})}};
    check_all((cz_test_training){.param_count = 6,
                                 .sizes = sizes,
                                 .rule = cz_rule_sgd(),
                                 .hypers = CZ_HYPERS({"lr", 0.1}, {"momentum", 0.9}),
                                 .groups = groups,
                                 .group_count = 2,
                                 .steps = 3},
              2, NULL);
}

/* Several groups given at creation. */
static void case_B5(void **state)
{
    static const int64_t sizes[] = {100, 30, 7, 50}, first[] = {0, 1}, second[] = {2, 3};
    const cz_param_group groups[] = {{sizeof *groups, first, 2, NULL},
                                     {sizeof *groups, second, 2, CZ_HYPERS({"lr", 0.25})}};
    check_all((cz_test_training){.param_count = 4,
                                 .sizes = sizes,
                                 .rule = cz_rule_adam(),
                                 .groups = groups,
                                 .group_count = 2,
                                 .steps = 4},
              3, NULL);
}

static cz_status freeze_every_third(const cz_test_subject *subject, int step)
{
    for (int64_t p = 0; step < 0 && p < 9; p += 3)
        CZ_TRY(cz_model_set_requires_grad(subject->model, p, false));
    return CZ_OK;
}

/* State for trainable parameters only: in bytes, and when asked for. */
static cz_status has_state_where_trained(const cz_test_subject *subject, cz_group *group)
{
    const cz_shard_map *map = cz_zero_shard_map(subject->zero);
    int64_t elements = 0;
    cz_span_iterator iterator;
    cz_span span;
    cz_span_iterate(map, cz_group_rank(group), &iterator);
    while (cz_span_next(&iterator, &span)) {
        const void *data = NULL;
        int64_t count;
        const bool trained = cz_model_requires_grad(subject->model, span.param);
        CZ_TRY(cz_optim_state(cz_zero_local_optim(subject->zero), span.param, "exp_avg", span.begin,
                              &data, &count));
        if (trained != (data != NULL))
            return cz_fail(CZ_ERR_STATE, "state of parameter %d", (int)span.param);
        elements += trained ? span.end - span.begin : 0;
    }
    const int64_t bytes = (int64_t)cz_zero_state_bytes(subject->zero);
    if (bytes != 8 * elements)
        return cz_fail(CZ_ERR_STATE, "%d bytes for %d elements", (int)bytes, (int)elements);
    return CZ_OK;
}

/* Frozen parameters break no table. */
static void case_J1(void **state)
{
    static const int64_t sizes[] = {10, 20, 30, 40, 50, 60, 70, 80, 90};
    check_all((cz_test_training){.param_count = 9,
                                 .sizes = sizes,
                                 .rule = cz_rule_adam(),
                                 .steps = 5,
                                 .edit = freeze_every_third},
              2, has_state_where_trained);
}

/* Unused on all ranks: not decayed, not moved by its momentum; used on one: others count as zeros. */
static bool marked_J3(int rank, int step, int64_t param)
{
    if (param != 1 || step < 2)
        return true;
    return step == 5 && rank == 1;
}

static void case_J3(void **state)
{
    static const int64_t sizes[] = {40, 33};
    cz_test_training training = {
        .param_count = 2,
        .sizes = sizes,
        .dtype = CZ_F32,
        .rule = cz_rule_sgd(),
        .hypers = CZ_HYPERS({"lr", 0.1}, {"momentum", 0.9}, {"weight_decay", 0.1}),
        .has_gradient = marked_J3};
    for (training.steps = 2; training.steps <= 6; training.steps++)
        for (int partition = 0; partition < 2; partition++) {
            training.partition = (cz_partition)partition;
            check(&training, 2, NULL);
            check(&training, 3, NULL);
        }
}

/* 90 % frozen; one of those is unfrozen at step 5: zero moments from there, no other state lost. */
static cz_status edit_J8(const cz_test_subject *subject, int step)
{
    for (int64_t p = 1; step < 0 && p < 10; p++)
        CZ_TRY(cz_model_set_requires_grad(subject->model, p, false));
    return step == 5 ? cz_model_set_requires_grad(subject->model, 4, true) : CZ_OK;
}

static void case_J8(void **state)
{
    static const int64_t sizes[] = {90, 90, 90, 90, 90, 90, 90, 90, 90, 90};
    cz_test_training training = {
        .param_count = 10, .sizes = sizes, .rule = cz_rule_adam(), .edit = edit_J8};
    training.steps = 5;
    check_all(training, 4, has_state_where_trained);
    training.steps = 10;
    check_all(training, 4, has_state_where_trained);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_A1), cmocka_unit_test(case_A3), cmocka_unit_test(case_A5),
        cmocka_unit_test(case_A8), cmocka_unit_test(case_B1), cmocka_unit_test(case_B3),
        cmocka_unit_test(case_B5), cmocka_unit_test(case_J1), cmocka_unit_test(case_J3),
        cmocka_unit_test(case_J8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
