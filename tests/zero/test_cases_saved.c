/* SPDX-License-Identifier: MIT */
/* state that is put together, saved (here: kept in memory) and loaded. */
#include "zero/saved.h"
#include "tensor/model.h"

/* ---- no state that is not whole, or not the present one ---- */

typedef struct sharded {
    cz_test_memory memory;
    cz_zero *zero;
    cz_state_dict *dict;
} sharded;

static void clear(sharded *s)
{
    cz_state_dict_destroy(&s->dict);
    cz_zero_destroy(&s->zero);
    cz_test_memory_destroy(&s->memory);
}

#define BODY(name) RANK_BODY(name, sharded, clear, group, context)

static cz_status open_subject(sharded *s, cz_group *group, const cz_test_training *t)
{
    const cz_zero_options options = {.size = sizeof options, .partition = t->partition};
    CZ_TRY(cz_test_memory_create(&s->memory, t));
    return cz_zero_create(&s->zero, group, s->memory.model, t->rule, NULL, &options);
}

static cz_status read_early(sharded *s, cz_group *group, const void *training)
{
    const int rank = cz_group_rank(group), last = cz_group_size(group) - 1;
    CZ_TRY(open_subject(s, group, training));
    CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    CZ_TRY(expect(cz_zero_state_dict(s->zero, &s->dict), CZ_ERR_STATE, "nothing is consolidated"));
    CZ_TRY(expect(cz_optim_state_dict(cz_zero_local_optim(s->zero), &s->dict), CZ_ERR_STATE,
                  "part of a sharded optimizer"));
    CZ_TRY(cz_zero_consolidate_state_dict(s->zero, last));
    for (int steps = 1; steps <= 2; steps++) {
        char sentence[64] = "was consolidated on rank";
        if (rank == last)
            snprintf(sentence, sizeof sentence, "is %d steps old", steps);
        CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
        CZ_TRY(expect(cz_zero_state_dict(s->zero, &s->dict), CZ_ERR_STATE, sentence));
        if (s->dict)
            return cz_fail(CZ_ERR_STATE, "a dictionary after an error");
    }
    CZ_TRY(cz_zero_consolidate_state_dict(s->zero, CZ_ALL_RANKS));
    return cz_zero_state_dict(s->zero, &s->dict);
}
BODY(read_early)

TEST(state_that_was_not_gathered_is_refused)
{
    static const int64_t sizes[] = {40, 3, 100};
    for (int partition = 0; partition < 2; partition++)
        for (int world = 1; world <= LARGEST_WORLD; world++)
            expect_ok(world, 0, read_early_body,
                      &(cz_test_training){.param_count = 3,
                                          .sizes = sizes,
                                          .dtype = CZ_F32,
                                          .rule = cz_rule_adam(),
                                          .partition = (cz_partition)partition});
}

/* A snapshot: what later steps do is not in it. */
static cz_status snapshot(sharded *s, cz_group *group, const void *training)
{
    cz_state_dict *copy = NULL;
    CZ_TRY(open_subject(s, group, training));
    for (int64_t i = 0; i < 40; i++)
        cz_test_store(s->memory.grads[0], CZ_F32, i, 1);
    CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    CZ_TRY(cz_zero_consolidate_state_dict(s->zero, CZ_ALL_RANKS));
    CZ_TRY(cz_zero_state_dict(s->zero, &s->dict));
    CZ_TRY(cz_state_dict_copy(&copy, s->dict));
    cz_status status = cz_zero_step(s->zero, NULL, NULL);
    if (status == CZ_OK && !cz_state_dict_equal(copy, s->dict))
        status = cz_fail(CZ_ERR_STATE, "a step changed the dictionary");
    cz_state_dict_destroy(&copy);
    return status;
}
BODY(snapshot)

TEST(a_dictionary_is_a_snapshot)
{
    static const int64_t sizes[] = {40, 3, 100};
    for (int world = 1; world <= LARGEST_WORLD; world++)
        expect_ok(world, 0, snapshot_body,
                  &(cz_test_training){
                      .param_count = 3, .sizes = sizes, .dtype = CZ_F32, .rule = cz_rule_adam()});
}

/* ---- another number of ranks; other segments, the same number ---- */

TEST(state_loads_on_any_number_of_ranks)
{
    const char *name;
    for (int k = 0; (name = cz_rule_name(k)); k++)
        for (int to = 1; to <= LARGEST_WORLD; to++) {
            const cz_test_training training = some_training(name, to % 3 ? CZ_F32 : CZ_F64);
            const int from = k == 0 ? 2 : 1 + (to + k) % LARGEST_WORLD;
            const stage list[] = {{from, 5, (cz_partition)(k % 2), 0, 0, 0},
                                  {to, 5, (cz_partition)(to % 2), 0, 0, 0},
                                  {from, 1, CZ_PARTITION_GREEDY, 0, 0, 0}};
            check_stages(NULL, &training, list, 3, NULL);
        }
}

TEST(state_loads_with_other_segments)
{
    check_segments(NULL);
}

/* ---- every element of the state says whose it is ---- */

static const int64_t tagged_sizes[][3] = {{5, 7, 11}, {33, 1, 70}, {0, 16, 17}};
static const char *const moments[] = {"exp_avg", "exp_avg_sq"};

static float tag(int64_t param, int64_t i, int slot)
{
    return (float)(1000 * param + i) + (float)slot / 2;
}

/* The dictionary of an unsharded optimizer, tags instead of moments. */
static void make_tagged(cz_state_dict **dict, const cz_test_training *t)
{
    const cz_state_dict *all, *entry;
    cz_test_memory memory;
    cz_optim *optim;
    assert_ok(cz_test_memory_create(&memory, t));
    assert_ok(cz_optim_create(&optim, memory.model, t->rule, NULL, NULL));
    assert_ok(cz_optim_step(optim, NULL, NULL));
    assert_ok(cz_optim_state_dict(optim, dict));
    assert_ok(cz_state_dict_get_dict(*dict, "state", &all));
    for (int64_t p = 0; p < t->param_count; p++)
        for (int slot = 0; slot < 2; slot++) {
            cz_tensor tensor;
            assert_ok(cz_state_dict_get_dict(all, cz__model_name(memory.model, p), &entry));
            assert_ok(cz_state_dict_get_tensor(entry, moments[slot], &tensor));
            for (int64_t i = 0; i < t->sizes[p]; i++)
                ((float *)tensor.data)[i] = tag(p, i, slot);
        }
    cz_optim_destroy(&optim);
    cz_test_memory_destroy(&memory);
}

static cz_status check_tags(const sharded *s, int rank)
{
    cz_span_iterator iterator;
    cz_span span;
    cz_span_iterate(cz_test_shard_map(s->zero), rank, &iterator);
    while (cz_span_next(&iterator, &span))
        for (int64_t i = span.begin; i < span.end; i++)
            for (int slot = 0; slot < 2; slot++) {
                const void *data;
                int64_t count;
                CZ_TRY(cz_optim_state(cz_zero_local_optim(s->zero), span.param, moments[slot], i,
                                      &data, &count));
                if (!data || *(const float *)data != tag(span.param, i, slot))
                    return cz_fail(CZ_ERR_STATE, "%s of parameter %d, element %d", moments[slot],
                                   (int)span.param, (int)i);
            }
    return CZ_OK;
}

typedef struct tagged {
    cz_test_training training;
    const cz_state_dict *dict;
    cz_state_dict *saved; /* by rank 0 */
} tagged;

static cz_status carry_tags(sharded *s, cz_group *group, void *context)
{
    tagged *t = context;
    CZ_TRY(open_subject(s, group, &t->training));
    CZ_TRY(cz_zero_load_state_dict(s->zero, t->dict));
    CZ_TRY(check_tags(s, cz_group_rank(group)));
    CZ_TRY(cz_zero_reshard(s->zero, (cz_partition)!t->training.partition, NULL, 0));
    CZ_TRY(check_tags(s, cz_group_rank(group)));
    CZ_TRY(cz_zero_consolidate_state_dict(s->zero, 0));
    return cz_group_rank(group) == 0 ? cz_zero_state_dict(s->zero, &t->saved) : CZ_OK;
}
BODY(carry_tags)

TEST(no_element_of_the_state_is_shifted)
{
    static const int worlds[] = {4, 2, 3, 7, 1, 5};
    for (int k = 0; k < 3; k++) {
        cz_state_dict *first, *present;
        tagged t = {.training = {.param_count = 3,
                                 .sizes = tagged_sizes[k],
                                 .dtype = CZ_F32,
                                 .rule = cz_rule_adam()}};
        make_tagged(&first, &t.training);
        assert_ok(cz_state_dict_copy(&present, first));
        for (int w = 0; w < 6; w++) {
            t.training.partition = (cz_partition)(w % 2);
            t.dict = present;
            expect_ok(worlds[w], 64, carry_tags_body, &t);
            assert_true(cz_state_dict_equal(t.saved, first));
            cz_state_dict_destroy(&present);
            present = t.saved;
        }
        cz_state_dict_destroy(&present);
        cz_state_dict_destroy(&first);
    }
}

/* ---- step counts ---- */

TEST(step_counts_are_loaded)
{
    const char *name;
    for (int k = 0; (name = cz_rule_name(k)); k++)
        for (int world = 1; world <= LARGEST_WORLD; world++) {
            cz_test_training training = late_training(name);
            const stage list[] = {
                {world, 10, (cz_partition)(k % 2), 0, 0, 0},
                {1 + (world + k) % LARGEST_WORLD, 1, CZ_PARTITION_GREEDY, 0, 0, 0}};
            const bool adam = strcmp(name, "adam") == 0 || strcmp(name, "adamw") == 0;
            training.hypers = adam ? CZ_HYPERS({"amsgrad", world % 2}) : some_hypers;
            check_stages(NULL, &training, list, 2, check_counts);
        }
}
