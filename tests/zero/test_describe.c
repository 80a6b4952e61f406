/* SPDX-License-Identifier: MIT */
/* What create refuses before it compares is in the description all the same. */
#include <string.h>

#include "support/cz_test.h"
#include "support/training.h"
#include "tensor/entries.h"
#include "zero/zero.h"

static const int64_t sizes[] = {3, 5};
static const cz_test_training small = {.param_count = 2, .sizes = sizes, .dtype = CZ_F32};

typedef struct rank_trial {
    cz_group *group;
    cz_test_memory memory;
    cz_zero *zero;
} rank_trial;

static void trial_create(rank_trial *trial)
{
    static float mean[4];
    const int64_t four = 4;
    assert_ok(cz_group_create_self(&trial->group, NULL));
    assert_ok(cz_test_memory_create(&trial->memory, &small));
    assert_ok(cz_model_add_buffer(trial->memory.model, "mean", mean, CZ_F32, 1, &four));
    assert_ok(cz_zero_create(&trial->zero, trial->group, trial->memory.model, cz_rule_adam(), NULL,
                             NULL));
}

static void trial_destroy(rank_trial *trial)
{
    cz_zero_destroy(&trial->zero);
    cz_test_memory_destroy(&trial->memory);
    cz_group_destroy(&trial->group);
}

static const cz_zero_options plain = CZ_ZERO_OPTIONS_INIT;

/* The first difference to what the optimizer looked like before. */
static void expect_difference(const cz_zero *zero, const cz__description *before,
                              const char *sentence)
{
    cz__description against = {
        .others = before->bytes, .other_count = before->count, .rank = 1, .part = "zero"};
    cz__describe_all(&against, &(cz__creation){zero, &plain});
    assert_int_equal(against.status, sentence ? CZ_ERR_MISMATCH : CZ_OK);
    if (sentence && !strstr(cz_last_error(), sentence))
        fail_msg("\"%s\" does not say \"%s\"", cz_last_error(), sentence);
}

TEST(layout_and_device_are_compared)
{
    rank_trial trial = {0};
    cz__description before = {0};
    cz_device other = *cz_device_cpu();
    trial_create(&trial);
    cz_tensor *value = &trial.memory.model->params.items[1].value;
    cz_tensor *buffer = &trial.memory.model->buffers.items[0].value;
    cz__describe_all(&before, &(cz__creation){trial.zero, &plain});
    expect_difference(trial.zero, &before, NULL);
    value->layout = CZ_SPARSE_ROWS;
    expect_difference(trial.zero, &before, "parameter 1 'p1' is sparse on rank 1, dense on rank 0");
    value->layout = CZ_DENSE;
    other.name = "other";
    buffer->device = &other;
    expect_difference(trial.zero, &before,
                      "buffer 0 'mean' is on device 'other' on rank 1, 'cpu' on rank 0");
    cz__description_clear(&before);
    trial_destroy(&trial);
}

/* The program cannot make such buffers yet. */
TEST(buffers_are_looked_at_as_well)
{
    rank_trial trial = {0};
    cz_zero *second = NULL;
    trial_create(&trial);
    trial.memory.model->buffers.items[0].value.layout = CZ_SPARSE_ROWS;
    assert_int_equal(
        cz_zero_create(&second, trial.group, trial.memory.model, cz_rule_adam(), NULL, NULL),
        CZ_ERR_UNSUPPORTED);
    assert_non_null(strstr(cz_last_error(), "buffer 0 'mean' is sparse"));
    trial_destroy(&trial);
}
