/* SPDX-License-Identifier: MIT */
/* Flat blocks: parameters one after the other in the caller's memory, all of them or none. */
#include "tensor/checks.h"

#include "czero/optim.h"

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

/* ---- with shapes ---- */

static void check_view(const cz_model *model, int64_t param, const char *name, int64_t offset,
                       int dimensions, const int64_t *shape)
{
    const cz_tensor *value = cz__model_value(model, param);
    const cz_tensor *grad = cz__model_gradient(model, param);
    assert_string_equal(cz__model_name(model, param), name);
    assert_true(value->data == memory + offset && grad->data == grads + offset);
    assert_int_equal(value->dimensions, dimensions);
    assert_memory_equal(value->shape, shape, (size_t)dimensions * sizeof *shape);
    assert_memory_equal(grad->shape, shape, (size_t)dimensions * sizeof *shape);
    assert_int_equal(cz__model_block(model, param), cz__model_block(model, 1));
}

TEST(views_have_shapes_and_are_cut_into_layers)
{
    static const cz_view views[] = {{"wte", 0, 2, {4, 3}},
                                    {"h.*.weight", 3, 2, {2, 3}},
                                    {"h.*.bias", 3, 1, {2}},
                                    {"empty.*", 2, 2, {0, 7}},
                                    {"scale", 0, 0, {0}}};
    cz_model *model = new_model();
    assert_ok(cz_model_add(model, "first", memory, NULL, CZ_F32, 0, NULL));
    assert_ok(cz_model_add_views(model, memory, grads, CZ_F32, views, 5));
    check_counts(model, 1 + 1 + 3 + 3 + 2 + 1, 0, 1 + 12 + 18 + 6 + 0 + 1);
    check_view(model, 1, "wte", 0, 2, (int64_t[]){4, 3});
    check_view(model, 2, "h.0.weight", 12, 2, (int64_t[]){2, 3});
    check_view(model, 4, "h.2.weight", 24, 2, (int64_t[]){2, 3});
    check_view(model, 5, "h.0.bias", 30, 1, (int64_t[]){2});
    check_view(model, 7, "h.2.bias", 34, 1, (int64_t[]){2});
    check_view(model, 9, "empty.1", 36, 2, (int64_t[]){0, 7});
    check_view(model, 10, "scale", 36, 0, NULL);
    cz_model_destroy(&model);
}

TEST(views_are_all_or_nothing)
{
    static const cz_view bad[] = {
        {"w", 2, 1, {3}},
        {"w.*", 0, 1, {3}},
        {"w.*.*", 2, 1, {3}},
        {"w.*", -1, 1, {3}},
        {NULL, 0, 1, {3}},
        {"", 0, 1, {3}},
        {"w", 0, 9, {1, 1, 1, 1, 1, 1, 1, 1}},
        {"w", 0, -1, {3}},
        {"w", 0, 2, {3, -1}},
        {"w", 0, 2, {INT64_MAX, 2}},
        {"w.*", INT64_MAX / 2, 1, {INT64_MAX / 2}},
        {"w.*", 2, 1, {INT64_MAX / 8}},
        {"taken.*", 3, 1, {1}}, /* the last one is */
        {"good.*", 1, 1, {1}},  /* as the first view's */
    };
    cz_model *model = new_model();
    assert_ok(cz_model_add(model, "taken.2", memory, NULL, CZ_F32, 0, NULL));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const cz_view views[] = {{"good.*", 2, 1, {2}}, bad[i]};
        const cz_status status = cz_model_add_views(model, memory, grads, CZ_F32, views, 2);
        if (status != CZ_ERR_ARGUMENT)
            fail_msg("case %zu gave %s", i, cz_status_name(status));
        check_counts(model, 1, 0, 1);
        assert_int_equal(cz_model_find(model, "good.0"), -1);
    }
    static const cz_view good[] = {{"good.*", 2, 1, {2}}};
    assert_int_equal(cz_model_add_views(model, memory, grads, CZ_F32, NULL, 1), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_model_add_views(model, memory, grads, CZ_F32, good, -1), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_model_add_views(model, NULL, grads, CZ_F32, good, 1), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_model_add_views(model, memory, grads, (cz_dtype)99, good, 1),
                     CZ_ERR_ARGUMENT);
    assert_ok(cz_model_add_views(model, NULL, NULL, CZ_F32, NULL, 0));
    assert_ok(cz_model_add_views(model, memory, grads, CZ_F32, good, 1));
    check_counts(model, 3, 0, 5);
    cz_model_destroy(&model);
}

/* ---- gradients that come later ---- */

TEST(gradients_of_a_block_are_set_together_and_those_of_no_other)
{
    static const cz_view views[] = {{"a", 0, 2, {2, 2}}, {"b.*", 2, 1, {3}}};
    static const int64_t offsets[] = {0, 4, 7}, sizes[] = {1, 1};
    cz_model *model = new_model();
    assert_ok(cz_model_add_flat(model, memory, grads + 50, CZ_F32, 2, NULL, sizes));
    assert_ok(cz_model_add_views(model, memory + 2, NULL, CZ_F32, views, 2));
    assert_ok(cz_model_add_flat(model, memory + 20, NULL, CZ_F32, 2, NULL, sizes));
    assert_ok(cz_model_add(model, "alone", memory + 30, NULL, CZ_F32, 0, NULL));
    for (int64_t of = 2; of < 5; of++) { /* by any of its parameters */
        assert_ok(cz_model_set_gradients_flat(model, of, grads + of));
        for (int64_t p = 0; p < 3; p++)
            assert_true(cz__model_gradient(model, 2 + p)->data == grads + of + offsets[p]);
        assert_ok(cz_model_set_gradients_flat(model, of, NULL));
        for (int64_t p = 0; p < 3; p++)
            assert_null(cz__model_gradient(model, 2 + p));
    }
    assert_true(cz__model_gradient(model, 1)->data == grads + 51);
    assert_null(cz__model_gradient(model, 5));
    assert_int_equal(cz_model_set_gradients_flat(model, 7, grads), CZ_ERR_ARGUMENT);
    assert_non_null(strstr(cz_last_error(), "'alone' is in no flat block"));
    assert_int_equal(cz_model_set_gradients_flat(model, 8, grads), CZ_ERR_ARGUMENT);
    cz_model_destroy(&model);
}

/* In the manner of llm.c: the first backward pass has the memory. */
TEST(a_step_before_gradients_are_there_says_so_and_goes_on_when_they_are)
{
    static const cz_view views[] = {{"w.*", 2, 1, {4}}};
    cz_model *model = new_model();
    cz_optim *optim;
    for (int i = 0; i < 8; i++)
        grads[i] = memory[i] = 1;
    assert_ok(cz_model_add_views(model, memory, NULL, CZ_F32, views, 1));
    assert_ok(cz_optim_create(&optim, model, cz_rule_sgd(), CZ_HYPERS({"lr", 0.5}), NULL));
    assert_int_equal(cz_optim_step(optim, NULL, NULL), CZ_ERR_STATE);
    assert_non_null(strstr(cz_last_error(), "cz_model_set_gradients_flat()"));
    cz_step_options allow = CZ_STEP_OPTIONS_INIT;
    allow.allow_no_gradients = 1;
    assert_ok(cz_optim_step(optim, &allow, NULL));
    assert_true(memory[0] == 1 && memory[7] == 1);
    assert_ok(cz_model_set_gradients_flat(model, 0, grads));
    assert_ok(cz_optim_step(optim, NULL, NULL));
    assert_true(memory[0] == 0.5f && memory[7] == 0.5f);
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
}
