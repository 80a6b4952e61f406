/* SPDX-License-Identifier: MIT */
/* Odd shapes, however they are cut; parameter groups. */
#include "zero/cases.h"
#include "tensor/model.h"
#include "shard/shard.h"
#include "support/spans.h"

/* On any number of ranks; then saved and loaded on another number. */
static void check_travels(cz_test_training training,
                          cz_status (*inspect)(const cz_test_subject *subject, cz_group *group))
{
    training.dtype = CZ_F32;
    for (int world = 1; world <= LARGEST_WORLD; world++) {
        const double max_norm = world % 2 ? 0.5 : 0; /* every other time clipped */
        const stage list[] = {
            {world, training.steps, (cz_partition)(world % 2), 0, max_norm, 0},
            {LARGEST_WORLD + 1 - world, 2, (cz_partition)(world / 2 % 2), 64, max_norm / 2, 0}};
        check_stages(NULL, &training, list, 2, inspect);
    }
}

/* …and in every mode. */
static void check_everywhere(cz_test_training training,
                             cz_status (*inspect)(const cz_test_subject *subject, cz_group *group))
{
    for (int world = 1; world <= LARGEST_WORLD; world++)
        check_all(training, world, inspect);
    check_travels(training, inspect);
}

/* ---- odd shapes ---- */

TEST(groups_with_fewer_elements_than_ranks)
{
    static const int64_t sizes[][3] = {{3, 1, 0}, {1, 1, 0}, {0, 2, 5}, {16, 17, 1}};
    static const int64_t first[] = {0}, second[] = {1}, third[] = {2};
    const cz_param_group groups[] = {{sizeof *groups, first, 1, NULL},
                                     {sizeof *groups, second, 1, NULL},
                                     {sizeof *groups, third, 1, NULL}};
    const cz_rule *rules[] = {cz_rule_adam(), cz_rule_nadam(), cz_rule_adagrad(), cz_rule_adam()};
    for (int k = 0; k < 4; k++)
        check_everywhere((cz_test_training){.param_count = 3,
                                            .sizes = sizes[k],
                                            .rule = rules[k],
                                            .groups = groups,
                                            .group_count = 3,
                                            .steps = 3},
                         NULL);
}

/* Nobody owns an element that is not the program's, and the mode is the one that was asked for. */
static cz_status without_padding(const cz_test_subject *subject, cz_group *group)
{
    const cz_shard_map *map = cz_test_shard_map(subject->zero);
    cz_zero_info info = CZ_ZERO_INFO_INIT;
    int64_t owned = 0;
    for (int r = 0; r < cz_group_size(group); r++)
        owned += cz_test_owned(map, r);
    if (owned != cz__model_element_count(subject->model))
        return cz_fail(CZ_ERR_STATE, "%d elements are owned", (int)owned);
    CZ_TRY(cz_zero_get_info(subject->zero, &info));
    if (cz__shard_map_cuts(map) != (info.partition == CZ_PARTITION_ELEMENTS))
        return cz_fail(CZ_ERR_STATE, "partition %d", (int)info.partition);
    return CZ_OK;
}

/* Sizes that the world size does not divide. */
TEST(sizes_that_the_world_size_does_not_divide)
{
    static const int64_t sizes[][4] = {{7, 1, 10, 100}, {1, 17, 31, 0}, {1009, 2, 15, 33}};
    const cz_rule *rules[] = {cz_rule_adamw(), cz_rule_radam(), cz_rule_adamw()};
    for (int k = 0; k < 3; k++)
        check_everywhere(
            (cz_test_training){.param_count = 4, .sizes = sizes[k], .rule = rules[k], .steps = 5},
            without_padding);
}

/* Cut into elements, ranks differ by one block at most. */
static cz_status is_balanced(const cz_test_subject *subject, cz_group *group)
{
    const cz_shard_map *map = cz_test_shard_map(subject->zero);
    int64_t least = INT64_MAX, most = 0;
    for (int r = 0; r < cz_group_size(group); r++) {
        const int64_t owned = cz_test_owned(map, r);
        least = owned < least ? owned : least;
        most = owned > most ? owned : most;
    }
    if (cz__shard_map_cuts(map) && most - least > 16)
        return cz_fail(CZ_ERR_STATE, "ranks own %d to %d elements", (int)least, (int)most);
    return CZ_OK;
}

/* Fewer parameters than ranks. */
TEST(fewer_parameters_than_ranks)
{
    static const int64_t sizes[] = {1000, 1000, 1000, 1000, 1000};
    for (int64_t count = 1; count <= 5; count += 2)
        check_everywhere(
            (cz_test_training){.param_count = count,
                               .sizes = sizes,
                               .rule = count == 3 ? cz_rule_adadelta() : cz_rule_adam(),
                               .steps = 3},
            is_balanced);
}

/* Equal sizes, another order on each rank: found at create, on all ranks, with the first
 * difference. */
static cz_status shuffled(cz_group *group, cz_model *model)
{
    static const int64_t size = 64;
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    const int rank = cz_group_rank(group);
    float values[8][64] = {0}, gradients[8][64] = {0};
    cz_zero *zero = NULL;
    for (int p = 0; p < 8; p++) {
        const int moved = p < 2 ? p : 2 + (p - 2 + rank) % 6; /* alike up to parameter 2 */
        CZ_TRY(cz_model_add(model, names[moved], values[p], gradients[p], CZ_F32, 1, &size));
    }
    CZ_TRY(expect(cz_zero_create(&zero, group, model, cz_rule_adam(), NULL, NULL), CZ_ERR_MISMATCH,
                  "parameter 2 is 'd' on rank 1, 'c' on rank 0"));
    return zero ? cz_fail(CZ_ERR_STATE, "a handle") : CZ_OK;
}

static cz_status shuffled_body(cz_group *group, void *context)
{
    cz_model *model = NULL;
    CZ_TRY(cz_model_create(&model));
    const cz_status status = shuffled(group, model);
    cz_model_destroy(&model);
    return status;
}

TEST(equal_sizes_registered_in_another_order_on_each_rank)
{
    for (int world = 2; world <= (LARGEST_WORLD < 6 ? LARGEST_WORLD : 6); world++)
        expect_ok(world, 0, shuffled_body, NULL);
}

/* ---- parameter groups ---- */

/* Every hyper-parameter reaches the shard, not only the learning rate. */
static cz_status tune_sgd(const cz_test_subject *subject, int step)
{
    if (step == 3) {
        CZ_TRY(cz_test_set_hyper(subject, 0, "momentum", 0.5));
        CZ_TRY(cz_test_set_hyper(subject, 0, "weight_decay", 0.1));
    }
    return step == 5 ? cz_test_set_hyper(subject, CZ_ALL_GROUPS, "lr", 0.02) : CZ_OK;
}

static cz_status tune_adam(const cz_test_subject *subject, int step)
{
    static const cz_hyper edits[] = {
        {"beta1", 0.5}, {"beta2", 0.75}, {"eps", 0.25}, {"weight_decay", 0.125},
        {"amsgrad", 1}, {"maximize", 1}, {"lr", 0.5}};
    return step >= 1 && step <= 7
               ? cz_test_set_hyper(subject, 0, edits[step - 1].name, edits[step - 1].value)
               : CZ_OK;
}

TEST(every_hyper_parameter_reaches_the_shards)
{
    static const int64_t sizes[] = {100, 30, 7};
    check_everywhere((cz_test_training){.param_count = 3,
                                        .sizes = sizes,
                                        .rule = cz_rule_sgd(),
                                        .hypers = CZ_HYPERS({"lr", 0.1}, {"momentum", 0.9}),
                                        .steps = 8,
                                        .tune = tune_sgd},
                     NULL);
    check_everywhere((cz_test_training){.param_count = 3,
                                        .sizes = sizes,
                                        .rule = cz_rule_adam(),
                                        .steps = 10,
                                        .tune = tune_adam},
                     NULL);
}

/* PyTorch's index: the place in the groups. */
static cz_status indices(const cz_test_subject *subject, cz_group *group)
{
    static const int64_t wanted[] = {0, 2, 4, 1, 3, 5};
    const cz_optim *optim = cz_zero_local_optim(subject->zero);
    int64_t params[6];
    int64_t count = cz_optim_group_params(optim, 0, params, 6);
    count += cz_optim_group_params(optim, 1, params + count, 6 - count);
    for (int64_t i = 0; i < 6; i++)
        if (count != 6 || params[i] != wanted[i])
            return cz_fail(CZ_ERR_STATE, "index %d", (int)i);
    return CZ_OK;
}

/* Interleaved groups: state is found by the parameter, whatever group it is in. */
TEST(groups_whose_members_alternate_in_the_model)
{
    static const int64_t sizes[] = {5, 11, 17, 40, 64, 100}, even[] = {0, 2, 4}, odd[] = {1, 3, 5};
    const cz_param_group groups[] = {{sizeof *groups, even, 3, NULL},
                                     {sizeof *groups, odd, 3, CZ_HYPERS({"lr", 0.5})}};
    check_everywhere((cz_test_training){.param_count = 6,
                                        .sizes = sizes,
                                        .rule = cz_rule_sgd(),
                                        .hypers = CZ_HYPERS({"lr", 0.1}, {"momentum", 0.9}),
                                        .groups = groups,
                                        .group_count = 2,
                                        .steps = 3},
                     indices);
}

/* Several groups at creation, or one after the other: the same, and what one saved the other
 * loads. */
static const int64_t four_sizes[] = {100, 30, 7, 50}, early[] = {0, 1}, late[] = {2, 3};
static cz_param_group two_groups[2];

static cz_status add_second(const cz_test_subject *subject, int step)
{
    if (step != 0)
        return CZ_OK;
    return subject->zero ? cz_zero_add_param_group(subject->zero, &two_groups[1])
                         : cz_optim_add_param_group(subject->optim, &two_groups[1]);
}

/* What one has, the other takes, and has the same state afterwards. */
static cz_status exchange(cz_zero *from, cz_zero *to)
{
    cz_state_dict *saved = NULL, *again = NULL;
    CZ_TRY(cz_zero_consolidate_state_dict(from, CZ_ALL_RANKS));
    CZ_TRY(cz_zero_state_dict(from, &saved));
    cz_status status = cz_zero_load_state_dict(to, saved);
    THEN(cz_zero_consolidate_state_dict(to, CZ_ALL_RANKS));
    THEN(cz_zero_state_dict(to, &again));
    if (status == CZ_OK && !cz_state_dict_equal(saved, again))
        status = cz_fail(CZ_ERR_STATE, "the state is another one");
    cz_state_dict_destroy(&saved);
    cz_state_dict_destroy(&again);
    return status;
}

/* With a second sharded optimizer over the same parameters, built in the one way and in the
 * other. */
static cz_status exchange_with_others(const cz_test_subject *subject, cz_group *group)
{
    for (int64_t given = 1; given <= 2; given++) {
        const cz_zero_options options = {.size = sizeof options,
                                         .partition = CZ_PARTITION_GREEDY,
                                         .groups = two_groups,
                                         .group_count = given};
        cz_zero *other;
        CZ_TRY(cz_zero_create(&other, group, subject->model, cz_rule_adam(), NULL, &options));
        cz_status status = given == 1 ? cz_zero_add_param_group(other, &two_groups[1]) : CZ_OK;
        THEN(exchange(subject->zero, other));
        THEN(exchange(other, subject->zero));
        cz_zero_destroy(&other);
        CZ_TRY(status);
    }
    return CZ_OK;
}

TEST(groups_at_creation_or_added_later_are_alike)
{
    two_groups[0] = (cz_param_group){sizeof *two_groups, early, 2, NULL};
    two_groups[1] = (cz_param_group){sizeof *two_groups, late, 2, CZ_HYPERS({"lr", 0.25})};
    cz_test_training training = {.param_count = 4,
                                 .sizes = four_sizes,
                                 .rule = cz_rule_adam(),
                                 .groups = two_groups,
                                 .group_count = 2,
                                 .steps = 4};
    check_everywhere(training, exchange_with_others);
    training.group_count = 1;
    training.edit = add_second;
    check_travels(training, exchange_with_others);
}
