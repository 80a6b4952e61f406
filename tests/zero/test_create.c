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

/* What one rank is told instead, and what all ranks get. */
typedef struct attempt {
    const story *odd; /* NULL: all ranks are told the same, and it works */
    int odd_rank;
    cz_status status;
    char sentence[200];
} attempt;

static cz_status make(const attempt *a, cz_group *group, cz_model **model, cz_zero **zero)
{
    double memory[6 * ROOM] = {0};
    const story *s = a->odd && cz_group_rank(group) == a->odd_rank ? a->odd : &usual;
    CZ_TRY(make_model(s, model, memory));
    const cz_status got = create(s, group, *model, zero);
    CZ_TRY(expect(got, a->status, a->sentence));
    CHECK((got == CZ_OK) == (*zero != NULL), "a handle after %s", cz_status_name(got));
    /* The list is free again: nothing stands on it. */
    CHECK(got == CZ_OK || cz_model_add_buffer(*model, "late", memory, CZ_F32, 0, NULL) == CZ_OK,
          "the model stayed frozen");
    return CZ_OK;
}

static cz_status make_and_clear(const attempt *a, cz_group *group)
{
    cz_model *model = NULL;
    cz_zero *zero = NULL;
    const cz_status status = make(a, group, &model, &zero);
    cz_zero_destroy(&zero);
    cz_model_destroy(&model);
    return status;
}

static cz_status attempt_body(cz_group *group, void *context)
{
    const attempt usually = {.status = CZ_OK};
    CZ_TRY(make_and_clear(context, group));
    return make_and_clear(&usually, group); /* the group goes on */
}

static void run(const attempt *a)
{
    const int64_t held = cz_test_allocations_held();
    assert_ranks_ok(WORLD, attempt_body, (void *)a);
    assert_int_equal(cz_test_allocations_held(), held);
}

/* Rank 0 speaks of the lowest rank that is told something else than itself. */
static void expect_mismatch(const story *odd, const char *what, const char *its,
                            const char *usually)
{
    for (int rank = 0; rank < WORLD; rank++) {
        attempt a = {.odd = odd, .odd_rank = rank, .status = CZ_ERR_MISMATCH};
        snprintf(a.sentence, sizeof a.sentence, "%s %s on rank %d, %s on rank 0", what,
                 rank ? its : usually, rank ? rank : 1, rank ? usually : its);
        run(&a);
    }
}

static void expect_refusal(const story *odd, cz_status status, const char *sentence)
{
    for (int rank = 0; rank < WORLD; rank++) {
        attempt a = {.odd = odd, .odd_rank = rank, .status = status};
        snprintf(a.sentence, sizeof a.sentence, "%s", sentence);
        run(&a);
    }
}

/* With `s` as usual but for a change. */
#define DIFFER(change, ...)                                                                        \
    do {                                                                                           \
        story s = usual;                                                                           \
        change;                                                                                    \
        expect_mismatch(&s, __VA_ARGS__);                                                          \
    } while (0)
#define REFUSE(change, ...)                                                                        \
    do {                                                                                           \
        story s = usual;                                                                           \
        change;                                                                                    \
        expect_refusal(&s, __VA_ARGS__);                                                           \
    } while (0)

TEST(every_field_is_compared)
{
    DIFFER((s.param_count = s.options.owner_count = 3, s.member_count[1] = 1, s.members[1][0] = 2),
           "the number of parameters is", "3", "4");
    DIFFER(s.names[2] = "weights", "parameter 2 is", "'weights'", "'w2'");
    DIFFER((s.names[0] = "b1", s.names[1] = "w1"), "parameter 0 is", "'b1'", "'w1'");
    DIFFER(s.shapes[2][0] = 12, "parameter 2 'w2' has shape", "[12]", "[10]");
    DIFFER((s.shapes[0][0] = 4, s.shapes[0][1] = 3), "parameter 0 'w1' has shape", "[4, 3]",
           "[3, 4]");
    DIFFER(s.dimensions[3] = 0, "parameter 3 'b2' has shape", "[]", "[1]");
    DIFFER(s.flat = true, "parameter 0 'w1' has shape", "[12]", "[3, 4]"); /* one block */
    DIFFER(s.dtype = CZ_F64, "parameter 0 'w1' has type", "f64", "f32");
    DIFFER(s.frozen = true, "parameter 1 'b1' is", "frozen", "trainable");
    DIFFER(s.group_count = 1, "the number of parameter groups is", "1", "2");
    DIFFER(s.member_count[1] = 1, "size of parameter group 1 is", "1", "2");
    DIFFER((s.members[0][0] = 1, s.members[0][1] = 0), "a member of parameter group 0 is parameter",
           "1", "0");
    DIFFER(s.hypers[0].value = 0.1, "lr of parameter group 0 is", "0.1", "0.01");
    DIFFER(s.group_hypers[0].value = 0.25, "weight_decay of parameter group 1 is", "0.25", "0.1");
    DIFFER(s.rule = cz_rule_adamw(), "the rule is", "'adamw'", "'adam'");
    DIFFER(s.options.partition = CZ_PARTITION_GREEDY, "option partition is", "greedy", "given");
    DIFFER(s.options.gradients = CZ_GRADIENTS_REDUCED, "option gradients is", "reduced", "local");
    DIFFER(s.owners[3] = 1, "the owner of parameter 3 'b2' is given as", "1", "0");
    DIFFER(s.buffer_count = 0, "the number of buffers is", "0", "1");
    DIFFER(s.buffer_name = "variance", "buffer 0 is", "'variance'", "'mean'");
    DIFFER(s.buffer_shape = 5, "buffer 0 'mean' has shape", "[5]", "[4]");
}

TEST(what_one_rank_does_wrong)
{
    REFUSE(s.no_out = true, CZ_ERR_ARGUMENT, "out is NULL");
    REFUSE(s.no_model = true, CZ_ERR_ARGUMENT, "model is NULL");
    REFUSE(s.no_rule = true, CZ_ERR_ARGUMENT, "rule");
    REFUSE(s.hypers[0].value = -1, CZ_ERR_ARGUMENT, "lr");
    REFUSE(s.hypers[0].value = NAN, CZ_ERR_ARGUMENT, "lr");
    REFUSE(s.hypers[0].name = "speed", CZ_ERR_ARGUMENT, "speed");
    REFUSE(s.options.partition = (cz_partition)7, CZ_ERR_ARGUMENT, "option partition is 7");
    REFUSE(s.options.gradients = (cz_gradients)-1, CZ_ERR_ARGUMENT, "option gradients is -1");
    REFUSE(s.options.size = 3, CZ_ERR_ARGUMENT, "cz_zero_options");
    REFUSE(s.options.size = SIZE_MAX / 2, CZ_ERR_ARGUMENT, "cz_zero_options");
    REFUSE(s.sparse = true, CZ_ERR_UNSUPPORTED, "parameter 4 'stranger' is sparse");
    REFUSE(s.elsewhere = true, CZ_ERR_UNSUPPORTED,
           "parameter 4 'stranger' is on device other, the group moves memory of cpu");
    REFUSE(s.overlapping = true, CZ_ERR_ARGUMENT,
           "parameters 1 'b1' and 2 'w2' have values in the same memory");
    REFUSE(s.members[1][0] = 0, CZ_ERR_ARGUMENT, "");
    REFUSE(s.members[1][0] = 9, CZ_ERR_ARGUMENT, "9");
    REFUSE(s.dtype = CZ_I32, CZ_ERR_UNSUPPORTED, "i32");
    REFUSE(s.owners[2] = WORLD, CZ_ERR_ARGUMENT,
           "the owner of parameter 2 'w2' is rank 3, the group has 3 ranks");
    REFUSE(s.owners[2] = -1, CZ_ERR_ARGUMENT, "trainable parameter 2 'w2' has no owner");
    REFUSE(s.options.owner_count = 3, CZ_ERR_ARGUMENT,
           "owner_count is 3, the model has 4 parameters");
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
    assert_null(zero);
    cz_test_memory_destroy(&memory);
    cz_group_destroy(&group);
}
