/* SPDX-License-Identifier: MIT */
/* Creation: whatever is wrong or different on one rank is the same error on all, nothing is left
 * behind, and the group goes on. */
#include <math.h>
#include <string.h>

#include "support/cz_test.h"
#include "support/training.h"

enum { WORLD = 3, ROOM = 32 };

/* Everything that create is told, before one rank changes a thing. */
typedef struct story {
    const char *names[4];
    int dimensions[4];
    int64_t shapes[4][2];
    cz_dtype dtype;
    bool flat, frozen;
    int64_t param_count, buffer_count, buffer_shape;
    const char *buffer_name;
    int64_t members[2][4], member_count[2], group_count;
    cz_hyper hypers[3], group_hypers[2];
    const cz_rule *rule;
    cz_zero_options options;
    int owners[4];
    bool no_out, no_model, no_rule;
    bool sparse, elsewhere; /* one more parameter, in no group */
    bool overlapping;       /* the values of b1 and w2 are */
} story;

static const story usual = {
    .names = {"w1", "b1", "w2", "b2"},
    .dimensions = {2, 1, 1, 1},
    .shapes = {{3, 4}, {12}, {10}, {1}},
    .dtype = CZ_F32,
    .param_count = 4,
    .buffer_count = 1,
    .buffer_name = "mean",
    .buffer_shape = 4,
    .members = {{0, 1}, {3, 2}},
    .member_count = {2, 2},
    .group_count = 2,
    .hypers = {{"lr", 0.01}, {NULL, 0}},
    .group_hypers = {{"weight_decay", 0.1}, {NULL, 0}},
    .options = {.size = sizeof(cz_zero_options), .partition = CZ_PARTITION_GIVEN},
    .owners = {0, 1, 2, 0},
};

/* A parameter that the ranks cannot exchange. */
static cz_status add_stranger(const story *s, cz_model *model, void *memory)
{
    static cz_device other;
    other = *cz_device_cpu();
    other.name = "other";
    cz_tensor stranger = {.data = memory, .dtype = CZ_F32, .dimensions = 1, .shape = {3}};
    if (s->sparse)
        stranger.layout = CZ_SPARSE_ROWS;
    else
        stranger.device = &other;
    return cz_model_add_tensor(model, "stranger", &stranger, NULL);
}

static cz_status make_model(const story *s, cz_model **model, double *memory)
{
    const int64_t flat_sizes[] = {12, 12, 10, 1};
    CZ_TRY(cz_model_create(model));
    if (s->flat)
        CZ_TRY(cz_model_add_flat(*model, memory, memory, s->dtype, s->param_count, s->names,
                                 flat_sizes));
    for (int64_t p = 0; p < s->param_count && !s->flat; p++) {
        double *value = s->overlapping && p == 2 ? memory + ROOM : memory + p * ROOM;
        CZ_TRY(cz_model_add(*model, s->names[p], value, value, s->dtype, s->dimensions[p],
                            s->shapes[p]));
    }
    if (s->buffer_count)
        CZ_TRY(cz_model_add_buffer(*model, s->buffer_name, memory + 5 * ROOM, s->dtype, 1,
                                   &s->buffer_shape));
    if (s->sparse || s->elsewhere)
        CZ_TRY(add_stranger(s, *model, memory + 4 * ROOM));
    return cz_model_set_requires_grad(*model, 1, !s->frozen);
}

static cz_status create(const story *s, cz_group *group, cz_model *model, cz_zero **zero)
{
    cz_param_group groups[2];
    for (int g = 0; g < 2; g++)
        groups[g] = (cz_param_group){sizeof *groups, s->members[g], s->member_count[g],
                                     g == 1 ? s->group_hypers : NULL};
    cz_zero_options options = s->options;
    options.groups = groups;
    options.group_count = s->group_count;
    if (options.partition == CZ_PARTITION_GIVEN) {
        options.owners = s->owners;
        options.owner_count = options.owner_count ? options.owner_count : 4;
    }
    return cz_zero_create(s->no_out ? NULL : zero, group, s->no_model ? NULL : model,
                          s->no_rule ? NULL
                          : s->rule  ? s->rule
                                     : cz_rule_adam(),
                          s->hypers, &options);
}

/* A change that rank `odd_rank` makes, and what all ranks get. */
typedef struct change {
    void (*apply)(story *s);
    cz_status status;
    const char *sentence; /* on a rank above 0 */
    const char *mirrored; /* on rank 0; NULL: the same */
    int odd_rank;
} change;

static cz_status attempt(const change *c, cz_group *group, cz_model **model, cz_zero **zero)
{
    double memory[6 * ROOM] = {0};
    story s = usual;
    if (cz_group_rank(group) == c->odd_rank && c->apply)
        c->apply(&s);
    CZ_TRY(make_model(&s, model, memory));
    const cz_status got = create(&s, group, *model, zero);
    const char *sentence = c->odd_rank == 0 && c->mirrored ? c->mirrored : c->sentence;
    if (got != c->status || (got != CZ_OK && !strstr(cz_last_error(), sentence)))
        return cz_fail(CZ_ERR_STATE, "got %s '%.120s', wanted %s '%s'", cz_status_name(got),
                       got == CZ_OK ? "" : cz_last_error(), cz_status_name(c->status), sentence);
    if ((got == CZ_OK) != (*zero != NULL))
        return cz_fail(CZ_ERR_STATE, "a handle after %s", cz_status_name(got));
    /* The list is free again: nothing stands on it. */
    if (got != CZ_OK && cz_model_add_buffer(*model, "late", memory, CZ_F32, 0, NULL) != CZ_OK)
        return cz_fail(CZ_ERR_STATE, "the model stayed frozen");
    return CZ_OK;
}

static cz_status attempt_and_clear(const change *c, cz_group *group)
{
    cz_model *model = NULL;
    cz_zero *zero = NULL;
    const cz_status status = attempt(c, group, &model, &zero);
    cz_zero_destroy(&zero);
    cz_model_destroy(&model);
    return status;
}

static cz_status change_body(cz_group *group, void *context)
{
    const change no_change = {.status = CZ_OK};
    CZ_TRY(attempt_and_clear(context, group));
    return attempt_and_clear(&no_change, group); /* the group goes on */
}

static void check_changes(change *changes, size_t count)
{
    static const int odd_ranks[] = {1, 2, 0};
    for (size_t k = 0; k < count; k++)
        for (size_t r = 0; r < sizeof odd_ranks / sizeof *odd_ranks; r++) {
            const int64_t held = cz_test_allocations_held();
            char why[256];
            changes[k].odd_rank = odd_ranks[r];
            if (cz_test_run_ranks(WORLD, change_body, &changes[k], why) != CZ_OK)
                fail_msg("change %d on rank %d: %s", (int)k, odd_ranks[r], why);
            assert_int_equal(cz_test_allocations_held(), held);
        }
}

#define COUNT(changes) (sizeof(changes) / sizeof *(changes))

static void fewer_params(story *s)
{
    s->param_count = 3;
    s->options.owner_count = 3;
    s->member_count[1] = 1;
    s->members[1][0] = 2;
}
static void other_name(story *s)
{
    s->names[2] = "weights";
}
static void other_order(story *s)
{
    s->names[0] = "b1";
    s->names[1] = "w1";
}
static void other_shape(story *s)
{
    s->shapes[2][0] = 12;
}
static void turned_shape(story *s)
{
    s->shapes[0][0] = 4;
    s->shapes[0][1] = 3;
}
static void scalar_shape(story *s)
{
    s->dimensions[3] = 0;
}
static void other_dtype(story *s)
{
    s->dtype = CZ_F64;
}
static void frozen(story *s)
{
    s->frozen = true;
}
static void one_group(story *s)
{
    s->group_count = 1;
}
static void smaller_group(story *s)
{
    s->member_count[1] = 1;
}
static void turned_group(story *s)
{
    s->members[0][0] = 1;
    s->members[0][1] = 0;
}
static void other_lr(story *s)
{
    s->hypers[0].value = 0.1;
}
static void other_decay(story *s)
{
    s->group_hypers[0].value = 0.25;
}
static void other_rule(story *s)
{
    s->rule = cz_rule_adamw();
}
static void other_partition(story *s)
{
    s->options.partition = CZ_PARTITION_GREEDY;
}
static void other_gradients(story *s)
{
    s->options.gradients = CZ_GRADIENTS_REDUCED;
}
static void other_owner(story *s)
{
    s->owners[3] = 1;
}
static void no_buffer(story *s)
{
    s->buffer_count = 0;
}
static void other_buffer_name(story *s)
{
    s->buffer_name = "variance";
}
static void other_buffer_shape(story *s)
{
    s->buffer_shape = 5;
}

/* "%d" stands for the odd rank or for rank 1, whoever speaks first: sentences leave it out. */
TEST(every_field_is_compared)
{
    change changes[] = {
        {fewer_params, CZ_ERR_MISMATCH, "the number of parameters is 3 on rank",
         "the number of parameters is 4 on rank 1, 3 on rank 0", 0},
        {other_name, CZ_ERR_MISMATCH, "parameter 2 is 'weights' on rank",
         "parameter 2 is 'w2' on rank 1, 'weights' on rank 0", 0},
        {other_order, CZ_ERR_MISMATCH, "parameter 0 is 'b1' on rank",
         "parameter 0 is 'w1' on rank 1, 'b1' on rank 0", 0},
        {other_shape, CZ_ERR_MISMATCH, "parameter 2 'w2' has shape [12] on rank",
         "parameter 2 'w2' has shape [10] on rank 1, [12] on rank 0", 0},
        {turned_shape, CZ_ERR_MISMATCH, "parameter 0 'w1' has shape [4, 3] on rank",
         "parameter 0 'w1' has shape [3, 4] on rank 1, [4, 3] on rank 0", 0},
        {scalar_shape, CZ_ERR_MISMATCH, "parameter 3 'b2' has shape [] on rank",
         "parameter 3 'b2' has shape [1] on rank 1, [] on rank 0", 0},
        {other_dtype, CZ_ERR_MISMATCH, "parameter 0 'w1' has type f64 on rank",
         "parameter 0 'w1' has type f32 on rank 1, f64 on rank 0", 0},
        {frozen, CZ_ERR_MISMATCH, "parameter 1 'b1' is frozen on rank",
         "parameter 1 'b1' is trainable on rank 1, frozen on rank 0", 0},
        {one_group, CZ_ERR_MISMATCH, "the number of parameter groups is 1 on rank",
         "the number of parameter groups is 2 on rank 1, 1 on rank 0", 0},
        {smaller_group, CZ_ERR_MISMATCH, "size of parameter group 1 is 1 on rank",
         "size of parameter group 1 is 2 on rank 1, 1 on rank 0", 0},
        {turned_group, CZ_ERR_MISMATCH, "a member of parameter group 0 is parameter 1 on rank",
         "a member of parameter group 0 is parameter 0 on rank 1, 1 on rank 0", 0},
        {other_lr, CZ_ERR_MISMATCH, "lr of parameter group 0 is 0.1 on rank",
         "lr of parameter group 0 is 0.01 on rank 1, 0.1 on rank 0", 0},
        {other_decay, CZ_ERR_MISMATCH, "weight_decay of parameter group 1 is 0.25 on rank",
         "weight_decay of parameter group 1 is 0.1 on rank 1, 0.25 on rank 0", 0},
        {other_rule, CZ_ERR_MISMATCH, "the rule is 'adamw' on rank",
         "the rule is 'adam' on rank 1, 'adamw' on rank 0", 0},
        {other_partition, CZ_ERR_MISMATCH, "option partition is greedy on rank",
         "option partition is given on rank 1, greedy on rank 0", 0},
        {other_gradients, CZ_ERR_MISMATCH, "option gradients is reduced on rank",
         "option gradients is local on rank 1, reduced on rank 0", 0},
        {other_owner, CZ_ERR_MISMATCH, "the owner of parameter 3 'b2' is given as 1 on rank",
         "the owner of parameter 3 'b2' is given as 0 on rank 1, 1 on rank 0", 0},
        {no_buffer, CZ_ERR_MISMATCH, "the number of buffers is 0 on rank",
         "the number of buffers is 1 on rank 1, 0 on rank 0", 0},
        {other_buffer_name, CZ_ERR_MISMATCH, "buffer 0 is 'variance' on rank",
         "buffer 0 is 'mean' on rank 1, 'variance' on rank 0", 0},
        {other_buffer_shape, CZ_ERR_MISMATCH, "buffer 0 'mean' has shape [5] on rank",
         "buffer 0 'mean' has shape [4] on rank 1, [5] on rank 0", 0},
    };
    check_changes(changes, COUNT(changes));
}

/* A flat block and the same parameters one by one cut differently. */
static void flat_vectors(story *s)
{
    s->flat = true;
}

TEST(flat_and_separate_memory_differ)
{
    change changes[] = {{flat_vectors, CZ_ERR_MISMATCH, "parameter 0 'w1' ", NULL, 0}};
    check_changes(changes, COUNT(changes));
}

static void no_out(story *s)
{
    s->no_out = true;
}
static void sparse(story *s)
{
    s->sparse = true;
}
static void overlapping(story *s)
{
    s->overlapping = true;
}
static void elsewhere(story *s)
{
    s->elsewhere = true;
}
static void huge_size(story *s)
{
    s->options.size = SIZE_MAX / 2;
}
static void no_model(story *s)
{
    s->no_model = true;
}
static void no_rule(story *s)
{
    s->no_rule = true;
}
static void bad_lr(story *s)
{
    s->hypers[0].value = -1;
}
static void nan_lr(story *s)
{
    s->hypers[0].value = NAN;
}
static void unknown_hyper(story *s)
{
    s->hypers[0].name = "speed";
}
static void bad_partition(story *s)
{
    s->options.partition = (cz_partition)7;
}
static void bad_gradients(story *s)
{
    s->options.gradients = (cz_gradients)-1;
}
static void bad_size(story *s)
{
    s->options.size = 3;
}
static void twice(story *s)
{
    s->members[1][0] = 0;
}
static void outside(story *s)
{
    s->members[1][0] = 9;
}
static void half(story *s)
{
    s->dtype = CZ_I32;
}
static void owner_outside(story *s)
{
    s->owners[2] = WORLD;
}
static void no_owner(story *s)
{
    s->owners[2] = -1;
}
static void few_owners(story *s)
{
    s->options.owner_count = 3;
}

TEST(what_one_rank_does_wrong)
{
    change changes[] = {
        {no_out, CZ_ERR_ARGUMENT, "out is NULL", NULL, 0},
        {no_model, CZ_ERR_ARGUMENT, "model is NULL", NULL, 0},
        {no_rule, CZ_ERR_ARGUMENT, "rule", NULL, 0},
        {bad_lr, CZ_ERR_ARGUMENT, "lr", NULL, 0},
        {nan_lr, CZ_ERR_ARGUMENT, "lr", NULL, 0},
        {unknown_hyper, CZ_ERR_ARGUMENT, "speed", NULL, 0},
        {bad_partition, CZ_ERR_ARGUMENT, "option partition is 7", NULL, 0},
        {bad_gradients, CZ_ERR_ARGUMENT, "option gradients is -1", NULL, 0},
        {bad_size, CZ_ERR_ARGUMENT, "cz_zero_options", NULL, 0},
        {huge_size, CZ_ERR_ARGUMENT, "cz_zero_options", NULL, 0},
        {sparse, CZ_ERR_UNSUPPORTED, "parameter 4 'stranger' is sparse", NULL, 0},
        {elsewhere, CZ_ERR_UNSUPPORTED,
         "parameter 4 'stranger' is on device other, the group moves memory of cpu", NULL, 0},
        {overlapping, CZ_ERR_ARGUMENT,
         "parameters 1 'b1' and 2 'w2' have values in the same memory", NULL, 0},
        {twice, CZ_ERR_ARGUMENT, "", NULL, 0},
        {outside, CZ_ERR_ARGUMENT, "9", NULL, 0},
        {half, CZ_ERR_UNSUPPORTED, "i32", NULL, 0},
        {owner_outside, CZ_ERR_ARGUMENT,
         "the owner of parameter 2 'w2' is rank 3, the group has 3 ranks", NULL, 0},
        {no_owner, CZ_ERR_ARGUMENT, "trainable parameter 2 'w2' has no owner", NULL, 0},
        {few_owners, CZ_ERR_ARGUMENT, "owner_count is 3, the model has 4 parameters", NULL, 0},
    };
    check_changes(changes, COUNT(changes));
}

TEST(owners_without_their_option)
{
    const cz_test_training small = {.param_count = 1, .sizes = (int64_t[]){3}, .dtype = CZ_F32};
    const int owner = 0;
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    cz_test_memory memory;
    cz_group *group = NULL;
    cz_zero *zero = NULL;
    assert_ok(cz_group_create_self(&group, NULL));
    assert_ok(cz_test_memory_create(&memory, &small));
    options.owners = &owner;
    options.owner_count = 1;
    assert_int_equal(cz_zero_create(&zero, group, memory.model, cz_rule_adam(), NULL, &options),
                     CZ_ERR_ARGUMENT);
    options.owners = NULL;
    options.partition = CZ_PARTITION_GIVEN;
    assert_int_equal(cz_zero_create(&zero, group, memory.model, cz_rule_adam(), NULL, &options),
                     CZ_ERR_ARGUMENT);
    assert_int_equal(cz_zero_create(&zero, NULL, memory.model, cz_rule_adam(), NULL, NULL),
                     CZ_ERR_ARGUMENT);
    assert_int_equal(cz_zero_create(NULL, group, memory.model, cz_rule_adam(), NULL, NULL),
                     CZ_ERR_ARGUMENT);
    assert_null(zero);
    cz_test_memory_destroy(&memory);
    cz_group_destroy(&group);
}
