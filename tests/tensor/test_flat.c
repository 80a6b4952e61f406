/* SPDX-License-Identifier: MIT */
/* Flat blocks: parameters one after the other in the caller's memory, all of them or none. */
#include "tensor/checks.h"

#include <stdlib.h>

static float memory[64], grads[64];

TEST(flat_blocks)
{
    static const int64_t sizes[] = {3, 0, 5, 1};
    static const char *const names[] = {"w", "e", "b", "s"};
    cz_model *model = new_model();
    assert_ok(cz_model_add(model, "first", memory, NULL, CZ_F32, 0, NULL));
    assert_ok(cz_model_add_flat(model, memory, grads, CZ_F32, 4, names, sizes));
    assert_ok(cz_model_add_flat(model, memory + 9, NULL, CZ_F32, 4, NULL, sizes));
    check_counts(model, 9, 0, 19);
    static const int64_t offsets[] = {0, 3, 3, 8};
    for (int64_t i = 0; i < 4; i++) {
        const cz_tensor *value = cz__model_value(model, 1 + i),
                        *grad = cz__model_gradient(model, 1 + i);
        assert_string_equal(cz__model_name(model, 1 + i), names[i]);
        assert_true(value->data == memory + offsets[i] && grad->data == grads + offsets[i]);
        assert_true(value->dimensions == 1 && value->shape[0] == sizes[i]);
        assert_true(cz__model_value(model, 5 + i)->data == memory + 9 + offsets[i]);
        assert_null(cz__model_gradient(model, 5 + i));
        assert_int_equal(cz__model_block(model, 1 + i), 0);
        assert_int_equal(cz__model_block(model, 5 + i), 1);
    }
    assert_int_equal(cz__model_block(model, 0), -1);
    assert_string_equal(cz__model_name(model, 5), "5"); /* counted over the whole model */
    assert_string_equal(cz__model_name(model, 8), "8");
    cz_model_destroy(&model);
}

TEST(flat_blocks_without_elements)
{
    static const int64_t sizes[] = {0, 0};
    cz_model *model = new_model();
    assert_ok(cz_model_add_flat(model, NULL, NULL, CZ_F32, 0, NULL, NULL));
    check_counts(model, 0, 0, 0);
    assert_ok(cz_model_add_flat(model, NULL, NULL, CZ_F32, 2, NULL, sizes));
    check_counts(model, 2, 0, 0);
    assert_null(cz__model_value(model, 1)->data);
    cz_model_destroy(&model);
}

TEST(flat_is_all_or_nothing)
{
    static const char *const good[] = {"x", "y", "z"}, *const twice[] = {"x", "y", "x"};
    static const char *const taken[] = {"x", "y", "1"}, *const hole[] = {"x", NULL, "z"};
    static const int64_t sizes[] = {1, 2, 3}, negative[] = {1, 2, -1};
    static const int64_t large[] = {INT64_MAX / 8, INT64_MAX / 8, 0};
    const struct {
        void *values;
        const char *const *names;
        const int64_t *sizes;
        int64_t count;
        int dtype;
    } cases[] = {
        {memory, twice, sizes, 3, CZ_F32},   {memory, taken, sizes, 3, CZ_F32},
        {memory, hole, sizes, 3, CZ_F32},    {memory, NULL, sizes, 3, CZ_F32}, /* "1" is taken */
        {memory, good, negative, 3, CZ_F32}, {memory, good, large, 3, CZ_F64},
        {memory, good, NULL, 3, CZ_F32},     {memory, good, sizes, -1, CZ_F32},
        {memory, good, sizes, 3, 99},        {NULL, good, sizes, 3, CZ_F32},
    };
    cz_model *model = new_model();
    assert_ok(cz_model_add(model, "1", memory, NULL, CZ_F32, 0, NULL));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const cz_status status =
            cz_model_add_flat(model, cases[i].values, grads, (cz_dtype)cases[i].dtype,
                              cases[i].count, cases[i].names, cases[i].sizes);
        if (status != CZ_ERR_ARGUMENT)
            fail_msg("case %zu gave %s", i, cz_status_name(status));
        check_counts(model, 1, 0, 1);
        assert_int_equal(cz_model_find(model, "x"), -1);
    }
    assert_int_equal(cz_model_add_flat(model, memory, grads, CZ_F32, INT64_MAX, NULL, sizes),
                     CZ_ERR_MEMORY);
    assert_ok(cz_model_add_flat(model, memory, grads, CZ_F32, 3, good, sizes));
    check_counts(model, 4, 0, 7);
    assert_int_equal(cz__model_block(model, 3), 0); /* failed calls leave no block number */
    cz_model_destroy(&model);
}

/* Many names, so that tables grow in the middle, with the last one taken: all go again. */
TEST(large_flat_blocks_are_taken_back)
{
    enum { COUNT = 3000 };
    int64_t *sizes = calloc(COUNT, sizeof *sizes);
    char last[16];
    cz_model *model = new_model();
    snprintf(last, sizeof last, "%d", COUNT);
    for (int i = 0; i < 7; i++) {
        char name[24];
        snprintf(name, sizeof name, "layer.%d", i);
        assert_ok(cz_model_add_buffer(model, name, memory, CZ_F32, 0, NULL));
    }
    assert_ok(cz_model_add(model, last, memory, NULL, CZ_F32, 0, NULL));
    for (int again = 0; again < 3; again++) {
        assert_int_equal(cz_model_add_flat(model, NULL, NULL, CZ_F32, COUNT, NULL, sizes),
                         CZ_ERR_ARGUMENT);
        check_counts(model, 1, 7, 1);
        for (int i = 1; i < COUNT; i += 97) {
            char name[24];
            snprintf(name, sizeof name, "%d", i);
            assert_int_equal(cz_model_find(model, name), -1);
        }
    }
    assert_ok(cz_model_add_flat(model, NULL, NULL, CZ_F32, COUNT - 1, NULL, sizes));
    check_counts(model, COUNT, 7, 1);
    free(sizes);
    cz_model_destroy(&model);
}
