/* SPDX-License-Identifier: MIT */
/* Checkpoints of parameters that are cut at granules: they go from any map to any other, and the
 * index says what theirs is. */
#include "checkpoint/by_checkpoint.h"
#include "checkpoint/quick.h"
#include "czero/archive.h"
#include "io/json.h"
#include "zero/granules.h"

static saving here = {folder, false};
static const handover by_checkpoint = {load_stage, save_stage, &here};

EACH_TEST(set_up, tear_down)

static cz_test_training mixed(const cz_rule *rule)
{
    return (cz_test_training){.param_count = GRANULE_PARAMS,
                              .sizes = granule_sizes,
                              .rows = granule_rows,
                              .dtype = CZ_F32,
                              .rule = rule,
                              .groups = granule_groups,
                              .group_count = GRANULE_GROUPS};
}

TEST(kinds_of_granules_load_on_any_number_of_ranks)
{
    static const int worlds[] = {1, 3, 5, 7, 9};
    const cz_test_training training = mixed(cz_rule_adam());
    for (int k = 0; k < 5; k++) {
        const stage list[] = {{2, 2, CZ_PARTITION_ELEMENTS, 0, 0, 0},
                              {worlds[k], 2, CZ_PARTITION_ELEMENTS, 0, 0, k == 2 ? 5 : 0},
                              {3, 1, CZ_PARTITION_GREEDY, 0, 0, 0},
                              {worlds[4 - k], 1, CZ_PARTITION_ELEMENTS, 0, 0, 0}};
        check_stages(&by_checkpoint, &training, list, 4, NULL);
    }
}

/* ---- from one granule to another ---- */

/* A step on, from the newest generation, if there is one. */
typedef struct leg {
    int64_t granule;
    bool loads;
    uint64_t print[2];
} leg;

static cz_status go(cz_zero *zero, cz_test_memory *memory, cz_group *group, leg *l)
{
    cz_checkpoint *checkpoint = NULL;
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    uint64_t print[2];
    options.zero = zero;
    CZ_TRY(cz_checkpoint_create(&checkpoint, group, folder, &options));
    cz_status status = l->loads ? cz_checkpoint_load(checkpoint, NULL, NULL) : CZ_OK;
    for (int64_t p = 0; p < GRANULE_PARAMS; p++)
        for (int64_t i = 0; i < granule_sizes[p]; i++)
            ((float *)memory->grads[p])[i] = (float)cz_test_gradient(0, l->loads, i);
    THEN(cz_zero_step(zero, NULL, NULL)); /* the same of each rank, and so is the mean */
    THEN(cz_zero_fingerprint(zero, print));
    THEN(cz_checkpoint_save(checkpoint, NULL));
    cz_checkpoint_destroy(&checkpoint);
    if (status == CZ_OK && cz_group_rank(group) == 0)
        memcpy(l->print, print, sizeof print);
    return status;
}

static cz_status run_leg(cz_group *group, void *context)
{
    leg *l = context;
    static const int64_t params[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    const cz_param_group all = {.size = sizeof(cz_param_group),
                                .params = params,
                                .param_count = GRANULE_PARAMS,
                                .granule = l->granule};
    const cz_test_training training = mixed(NULL);
    cz_test_memory memory;
    cz_zero *zero = NULL;
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.groups = &all;
    options.group_count = 1;
    cz_status status = cz_test_memory_create(&memory, &training);
    THEN(cz_zero_create(&zero, group, memory.model, cz_rule_adamw(), NULL, &options));
    THEN(go(zero, &memory, group, l));
    cz_zero_destroy(&zero);
    cz_test_memory_destroy(&memory);
    return status;
}

TEST(a_checkpoint_loads_with_another_granule)
{
    leg first = {0, false, {0}}, second = {0, true, {0}};
    assert_ranks_ok(1, run_leg, &first);
    assert_ranks_ok(1, run_leg, &second);
    for (int a = 0; a < GRANULES; a++)
        for (int b = 0; b < GRANULES; b++) {
            leg from = {granules[a], false, {0}}, to = {granules[b], true, {0}};
            assert_ranks_ok(1 + (a + b) % 4, run_leg, &from);
            assert_memory_equal(from.print, first.print, sizeof first.print);
            assert_ranks_ok(1 + (a + 3 * b) % 5, run_leg, &to);
            assert_memory_equal(to.print, second.print, sizeof second.print);
        }
}

/* ---- what the index says ---- */

static json_t *read_map(void)
{
    char path[FOLDER_BYTES + 64];
    snprintf(path, sizeof path, "%s/00000001-step-0/index.json", folder);
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    json_t *map = json_incref(json_object_get(root, "map"));
    json_decref(root);
    return map;
}

static void has(const json_t *map, const char *member, const char *wanted)
{
    char *text = json_dumps(json_object_get(map, member), JSON_ENCODE_ANY | JSON_COMPACT);
    assert_string_equal(text, wanted);
    free(text);
}

/* 768 in 3 granules, 255 none, 257 one and an element more, 1021 three and 253, 256 one, all from
 * the last parameter on. */
TEST(the_index_says_where_granules_are_and_who_has_what_they_leave)
{
    leg l = {256, false, {0}};
    assert_ranks_ok(2, run_leg, &l);
    json_t *map = read_map();
    has(map, "kind", "\"granules\"");
    has(map, "element_size", "4");
    has(map, "units", "[0,256,1,1,1]");
    assert_int_equal(json_array_size(json_object_get(map, "owners")), GRANULE_PARAMS);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(map, "owners"), 4)), -1);
    assert_true(json_integer_value(json_array_get(json_object_get(map, "owners"), 2)) >= 0);
    json_decref(map);
}

/* What is left of a parameter may be with a rank before those that have its granules. */
TEST(an_archive_says_which_ranks_have_a_parameter)
{
    leg l = {256, false, {0}};
    cz_archive *archive;
    assert_ranks_ok(5, run_leg, &l);
    assert_ok(cz_archive_open(&archive, folder, CZ_NEWEST));
    for (int64_t p = 0; p < GRANULE_PARAMS; p++) {
        cz_archive_tensor tensor = CZ_ARCHIVE_TENSOR_INIT;
        assert_ok(cz_archive_get_tensor(archive, p, &tensor));
        assert_in_range(tensor.first_rank, 0, 4);
        assert_in_range(tensor.last_rank, tensor.first_rank, 4);
        if (granule_sizes[p] <= 256)
            assert_int_equal(tensor.first_rank, tensor.last_rank);
        float values[1021];
        assert_ok(cz_archive_read(archive, p, "exp_avg", 0, granule_sizes[p], values));
    }
    cz_archive_destroy(&archive);
}

/* Nothing new where nothing is asked for: what was written before there were granules is written
 * now. */
TEST(without_granules_the_index_is_as_it_was)
{
    leg l = {1, false, {0}};
    assert_ranks_ok(2, run_leg, &l);
    json_t *map = read_map();
    has(map, "kind", "\"even\"");
    assert_int_equal(json_object_size(map), 4);
    json_decref(map);
}
