/* SPDX-License-Identifier: MIT */
/* Trainings that go on from a checkpoint with other ranks, cuts, segments and buckets. Other orders
 * of parameters are in test_differences.c. */
#include "checkpoint/by_checkpoint.h"
#include "checkpoint/exports.h"
#include "checkpoint/quick.h"
#include "zero/saved.h"

static saving here = {folder, false};
static const handover by_checkpoint = {load_stage, save_stage, &here};

/* ---- what is saved is whole, and of the moment, whatever was gathered before ---- */

EACH_TEST(set_up, tear_down)

TEST(a_save_is_whole_whatever_was_gathered)
{
    const cz_test_training training = some_training("adam", CZ_F32);
    for (int world = 2; world <= 5; world++) {
        const stage list[] = {{world, 1, CZ_PARTITION_ELEMENTS, 0, 0, 0},
                              {1, 1, CZ_PARTITION_ELEMENTS, 0, 0, 0},
                              {world, 1, CZ_PARTITION_GREEDY, 0, 0, 0},
                              {1, 1, CZ_PARTITION_ELEMENTS, 0, 0, 0}};
        check_stages(&by_checkpoint, &training, list, 4, NULL);
    }
}

/* Nothing that is short is loaded: a rank's part is gone, or its elements are. */
static cz_status load_short(cz_group *group, void *context)
{
    small s;
    const char *const *words = context;
    cz_status status = small_open(&s, group, folder, 5, 2);
    THEN(small_step(&s));
    THEN(small_remember(&s));
    THEN(small_expect(cz_checkpoint_load(s.checkpoint, NULL, NULL), ~ONE(CZ_OK), words[0],
                      words[1]));
    THEN(small_unchanged(&s));
    small_close(&s);
    return status;
}

static cz_status save_small(cz_group *group, void *context)
{
    small s;
    cz_status status = small_open(&s, group, folder, 1, 2);
    THEN(small_step(&s));
    THEN(small_save(&s, 1, false));
    small_close(&s);
    return status;
}

TEST(a_generation_without_a_part_is_not_loaded)
{
    char path[FOLDER_BYTES + 64];
    const char *elements[] = {"rank-00001-of-00002.safetensors", "cannot be opened"};
    const char *mark[] = {"the part of rank 1 of 2 is missing", "has no complete generation"};
    assert_ranks_ok(2, save_small, NULL);
    snprintf(path, sizeof path, "%s/00000001-step-1/rank-00001-of-00002.safetensors", folder);
    assert_int_equal(unlink(path), 0);
    for (int world = 1; world <= 3; world++)
        assert_ranks_ok(world, load_short, elements);
    snprintf(path, sizeof path, "%s/00000001-step-1/rank-00001-of-00002.json", folder);
    assert_int_equal(unlink(path), 0);
    for (int world = 1; world <= 3; world++)
        assert_ranks_ok(world, load_short, mark);
}

/* ---- another number of ranks ---- */

TEST(checkpoints_load_on_any_number_of_ranks)
{
    static const int worlds[] = {1, 3, 4, 8};
    const cz_test_training training = some_training("adam", CZ_F32);
    for (int k = 0; k < 4; k++) {
        const stage list[] = {{2, 5, CZ_PARTITION_ELEMENTS, 0, 0, 0},
                              {worlds[k], 5, (cz_partition)(k % 2), 0, 0, 0},
                              {2, 1, CZ_PARTITION_GREEDY, 0, 0, 0}};
        check_stages(&by_checkpoint, &training, list, 3, NULL);
    }
}

/* ---- every element of the state says whose it is ---- */

static const int64_t tagged_sizes[] = {5, 7, 11};
static const char *const moments[] = {"exp_avg", "exp_avg_sq"};

/* Set, or compare. */
static cz_status visit_tags(cz_zero *zero, int rank, bool set)
{
    cz_span_iterator iterator;
    cz_span span;
    cz_span_iterate(cz_test_shard_map(zero), rank, &iterator);
    while (cz_span_next(&iterator, &span))
        for (int64_t i = span.begin; i < span.end; i++)
            for (int slot = 0; slot < 2; slot++) {
                const void *data;
                int64_t count;
                const float tag = (float)(1000 * span.param + i) + (float)slot / 2;
                CZ_TRY(cz_optim_state(cz_zero_local_optim(zero), span.param, moments[slot], i,
                                      &data, &count));
                if (set)
                    *(float *)(uintptr_t)data = tag;
                else if (!data || *(const float *)data != tag)
                    return cz_fail(CZ_ERR_STATE, "%s of parameter %d, element %d", moments[slot],
                                   (int)span.param, (int)i);
            }
    return CZ_OK;
}

static cz_status tag_with(cz_group *group, cz_zero *zero, bool first)
{
    cz_checkpoint *checkpoint = NULL;
    cz_status status = open_checkpoint(group, zero, folder, &checkpoint);
    THEN(first ? visit_tags(zero, cz_group_rank(group), true)
               : cz_checkpoint_load(checkpoint, NULL, NULL));
    THEN(visit_tags(zero, cz_group_rank(group), false));
    THEN(cz_checkpoint_save(checkpoint, NULL));
    cz_checkpoint_destroy(&checkpoint);
    return status;
}

typedef struct tagging {
    cz_partition partition;
    bool first;
} tagging;

static cz_status tag_body(cz_group *group, void *context)
{
    const tagging *t = context;
    const cz_test_training training = {
        .param_count = 3, .sizes = tagged_sizes, .dtype = CZ_F32, .rule = cz_rule_adam()};
    const cz_zero_options options = {.size = sizeof options, .partition = t->partition};
    cz_test_memory memory = {0};
    cz_zero *zero = NULL;
    cz_status status = cz_test_memory_create(&memory, &training);
    THEN(cz_zero_create(&zero, group, memory.model, training.rule, NULL, &options));
    THEN(cz_zero_step(zero, NULL, NULL));
    THEN(tag_with(group, zero, t->first));
    cz_zero_destroy(&zero);
    cz_test_memory_destroy(&memory);
    return status;
}

TEST(no_element_of_a_checkpoint_is_shifted)
{
    static const int worlds[] = {4, 2, 3, 7, 1, 5};
    for (int k = 0; k < 6; k++)
        assert_ranks_ok(worlds[k], tag_body, &((tagging){(cz_partition)(k % 2), k == 0}));
}

/* ---- step counts ---- */

TEST(checkpoints_keep_step_counts)
{
    for (int world = 1; world <= 5; world++) {
        cz_test_training training = late_training("adam");
        const stage list[] = {{world, 10, (cz_partition)(world % 2), 0, 0, 0},
                              {1 + world % 5, 1, CZ_PARTITION_GREEDY, 0, 0, 0}};
        training.hypers = CZ_HYPERS({"amsgrad", world % 2});
        check_stages(&by_checkpoint, &training, list, 2, check_counts);
    }
}

/* ---- other segments and buckets, the same number of ranks ---- */

TEST(checkpoints_load_with_other_segments)
{
    check_segments(&by_checkpoint);
}

typedef struct bucketing {
    size_t cap;
    cz_partition partition;
    int from, until; /* steps */
} bucketing;

static bool same_params(const trainee *a, const trainee *b)
{
    bool same = true;
    for (int p = 0; p < EXPORT_PARAMS; p++)
        same = same && memcmp(a->values[p], b->values[p],
                              (size_t)export_params[p].count * sizeof(float)) == 0;
    return same;
}

static cz_status same_as_unsharded(trainee *s, cz_group *group, int until)
{
    static const manner unsharded = {.unsharded = true};
    trainee *reference = malloc(sizeof *reference);
    cz_state_dict *wanted = NULL, *found = NULL;
    cz_status status = trainee_open(reference, group, &unsharded, 0);
    for (int step = 0; status == CZ_OK && step < until; step++)
        status = trainee_step(reference, step);
    THEN(cz_optim_state_dict(reference->optim, &wanted));
    THEN(cz_zero_consolidate_state_dict(s->zero, CZ_ALL_RANKS));
    THEN(cz_zero_state_dict(s->zero, &found));
    if (status == CZ_OK && (!same_params(reference, s) || !cz_state_dict_equal(wanted, found)))
        status = cz_fail(CZ_ERR_STATE, "other bits after step %d", until);
    cz_state_dict_destroy(&wanted);
    cz_state_dict_destroy(&found);
    trainee_close(reference);
    free(reference);
    return status;
}

static cz_status go_on(trainee *s, cz_checkpoint *checkpoint, const bucketing *b)
{
    cz_save_options options = CZ_SAVE_OPTIONS_INIT;
    options.step = b->until;
    if (b->from > 0)
        CZ_TRY(cz_checkpoint_load(checkpoint, NULL, NULL));
    for (int step = b->from; step < b->until; step++)
        CZ_TRY(trainee_step(s, step));
    return cz_checkpoint_save(checkpoint, &options);
}

static cz_status bucket_body(cz_group *group, void *context)
{
    const bucketing *b = context;
    const manner how = {.partition = b->partition, .cap = b->cap};
    trainee *s = malloc(sizeof *s);
    cz_checkpoint *checkpoint = NULL;
    cz_status status = trainee_open(s, group, &how, b->from > 0 ? 7 : 0);
    THEN(open_checkpoint(group, s->zero, folder, &checkpoint));
    THEN(go_on(s, checkpoint, b));
    THEN(same_as_unsharded(s, group, b->until));
    cz_checkpoint_destroy(&checkpoint);
    trainee_close(s);
    free(s);
    return status;
}

TEST(checkpoints_load_with_other_buckets)
{
    static const size_t caps[] = {1 << 20, 64, 1 << 16, 256, SIZE_MAX / 4, 1};
    for (int world = 1; world <= 5; world += 1 + SANITIZED)
        for (int k = 0; k < 6; k++)
            assert_ranks_ok(world, bucket_body,
                            &((bucketing){caps[k], (cz_partition)(k % 2), 2 * k, 2 * k + 2}));
}
