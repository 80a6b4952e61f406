/* SPDX-License-Identifier: MIT */
/* The model: what is added is found, and an addition that fails leaves nothing. */
#include "tensor/checks.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static float memory[64], grads[64];

TEST(what_was_added)
{
    static const int64_t shape[] = {2, 3};
    cz_model *model = new_model();
    char name[] = "weight";
    assert_ok(cz_model_add(model, name, memory, grads, CZ_F32, 2, shape));
    name[0] = '?'; /* names are copied */
    assert_ok(cz_model_add(model, "scale", memory + 6, NULL, CZ_F32, 0, NULL));
    assert_ok(cz_model_add_buffer(model, "mean", memory + 7, CZ_I32, 1, shape));
    check_counts(model, 2, 1, 7); /* buffers do not count as elements */
    assert_string_equal(cz__model_name(model, 0), "weight");
    const cz_tensor *value = cz__model_value(model, 0), *grad = cz__model_gradient(model, 0);
    assert_true(value->data == memory && value->dtype == CZ_F32 && value->layout == CZ_DENSE);
    assert_true(value->dimensions == 2 && value->shape[0] == 2 && value->shape[1] == 3);
    assert_null(value->device);
    assert_true(grad->data == grads && grad->shape[1] == 3);
    assert_null(cz__model_gradient(model, 1));
    assert_int_equal(cz_tensor_count(cz__model_value(model, 1)), 1);
    assert_true(cz__model_buffer(model, 0)->data == memory + 7);
    cz_model_param found = CZ_MODEL_PARAM_INIT; /* where buffers follow the parameters */
    assert_ok(cz_model_get_param(model, 2, &found));
    assert_string_equal(found.name, "mean");
    assert_true(found.value->data == memory + 7 && !found.gradient && !found.requires_grad);
    assert_int_equal(cz_model_get_param(model, 3, &found), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_model_find(model, "mean"), -1); /* a buffer is no parameter */
    assert_int_equal(cz_model_find(model, "?eight"), -1);
    cz_model_destroy(&model);
    assert_null(model);
}

TEST(indices_that_do_not_exist)
{
    cz_model *model = new_model();
    cz_model *const models[] = {NULL, model};
    static const int64_t indices[] = {-1, 0, INT64_MAX, INT64_MIN};
    for (int m = 0; m < 2; m++)
        for (size_t i = 0; i < 4; i++) {
            assert_null(cz__model_name(models[m], indices[i]));
            assert_null(cz__model_value(models[m], indices[i]));
            assert_null(cz__model_gradient(models[m], indices[i]));
            assert_null(cz__model_buffer(models[m], indices[i]));
            assert_null(cz__model_buffer_name(models[m], indices[i]));
            assert_false(cz__model_requires_grad(models[m], indices[i]));
            assert_int_equal(cz__model_block(models[m], indices[i]), -1);
            assert_int_equal(cz_model_set_requires_grad(models[m], indices[i], true),
                             CZ_ERR_ARGUMENT);
            assert_int_equal(cz_model_set_gradient(models[m], indices[i], grads), CZ_ERR_ARGUMENT);
        }
    assert_int_equal(cz_model_find(model, "x"), -1);
    assert_int_equal(cz_model_find(model, NULL), -1);
    assert_int_equal(cz__model_param_count(NULL), -1);
    assert_int_equal(cz__model_buffer_count(NULL), -1);
    assert_int_equal(cz__model_element_count(NULL), -1);
    cz_model_destroy(&model);
    cz_model_destroy(&model);
    cz_model_destroy(NULL);
}

TEST(bad_additions_leave_nothing)
{
    static const int64_t one[] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, negative[] = {-1};
    static const int64_t huge[] = {INT64_MAX / 4, 2}, overflow[] = {INT64_MAX, 2};
    cz_model *model = new_model();
    assert_ok(cz_model_add(model, "a", memory, NULL, CZ_F32, 1, one));
    assert_ok(cz_model_add_buffer(model, "b", memory, CZ_F32, 1, one));
    const struct {
        const char *name;
        void *value;
        int dtype;
        int dimensions;
        const int64_t *shape;
    } cases[] = {
        {NULL, memory, CZ_F32, 1, one},    {"", memory, CZ_F32, 1, one},
        {"a", memory, CZ_F32, 1, one}, /* taken by a parameter */
        {"b", memory, CZ_F32, 1, one}, /* taken by a buffer */
        {"c", NULL, CZ_F32, 1, one},       {"c", NULL, CZ_F32, 0, NULL},
        {"c", memory, 0, 1, one},          {"c", memory, 99, 1, one},
        {"c", memory, CZ_F32, -1, one},    {"c", memory, CZ_F32, 9, one},
        {"c", memory, CZ_F32, 1, NULL},    {"c", memory, CZ_F32, 1, negative},
        {"c", memory, CZ_F32, 2, huge}, /* its bytes do not fit */
        {"c", memory, CZ_U8, 2, overflow},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const cz_dtype dtype = (cz_dtype)cases[i].dtype;
        if (cz_model_add(model, cases[i].name, cases[i].value, NULL, dtype, cases[i].dimensions,
                         cases[i].shape) != CZ_ERR_ARGUMENT ||
            cz_model_add_buffer(model, cases[i].name, cases[i].value, dtype, cases[i].dimensions,
                                cases[i].shape) != CZ_ERR_ARGUMENT)
            fail_msg("case %zu was taken", i);
        check_counts(model, 1, 1, 1);
    }
    assert_int_equal(cz_model_add_tensor(model, "c", NULL, NULL), CZ_ERR_ARGUMENT);
    cz_model_destroy(&model);
}

TEST(the_number_of_all_elements_fits)
{
    static const int64_t half[] = {INT64_MAX / 2}, rest[] = {2};
    cz_model *model = new_model();
    assert_ok(cz_model_add(model, "a", memory, NULL, CZ_U8, 1, half));
    assert_ok(cz_model_add(model, "b", memory, NULL, CZ_U8, 1, half));
    assert_int_equal(cz_model_add(model, "c", memory, NULL, CZ_U8, 1, rest), CZ_ERR_ARGUMENT);
    check_counts(model, 2, 0, INT64_MAX - 1);
    cz_model_destroy(&model);
}

TEST(tensors)
{
    cz_device other = *cz_device_cpu();
    cz_tensor value = {.data = memory, .dtype = CZ_F32, .dimensions = 2, .shape = {2, 3}};
    cz_model *model = new_model();
    for (int difference = 0; difference < 6; difference++) {
        cz_tensor grad = value;
        grad.data = grads;
        grad.shape[5] = 77; /* beyond the dimensions: says nothing */
        switch (difference) {
        case 0:
            grad.dtype = CZ_F64;
            break;
        case 1:
            grad.layout = CZ_SPARSE_ROWS;
            break;
        case 2:
            grad.dimensions = 1;
            break;
        case 3:
            grad.shape[1] = 4;
            break;
        case 4:
            grad.device = &other;
            break;
        default:
            grad.device = cz_device_cpu();
            break; /* the same as NULL */
        }
        assert_int_equal(cz_model_add_tensor(model, "w", &value, &grad),
                         difference < 5 ? CZ_ERR_ARGUMENT : CZ_OK);
        check_counts(model, difference < 5 ? 0 : 1, 0, difference < 5 ? 0 : 6);
    }
    value.layout = (cz_layout)2;
    assert_int_equal(cz_model_add_tensor(model, "x", &value, NULL), CZ_ERR_ARGUMENT);
    value.layout = CZ_SPARSE_ROWS; /* taken here; whoever cannot use it says so */
    assert_ok(cz_model_add_tensor(model, "x", &value, &value));
    assert_int_equal(cz_model_zero_grad(model), CZ_ERR_UNSUPPORTED);
    cz_model_destroy(&model);
}

/* A table of another meaning, one that ends too early, one with a hole. */
TEST(device_tables)
{
    cz_device tables[11];
    for (int i = 0; i < 11; i++)
        tables[i] = *cz_device_cpu();
    tables[0].abi = CZ_DEVICE_ABI + 1;
    tables[0].name = (const char *)8;                    /* not to be read */
    tables[1].size = offsetof(cz_device, copy_once) - 1; /* which is optional */
    tables[2].name = NULL;
    tables[3].allocate = NULL;
    tables[4].release = NULL;
    tables[5].copy = NULL;
    tables[6].zero = NULL;
    tables[7].reduce = NULL;
    tables[8].find_update = NULL;
    tables[9].fill = NULL;
    tables[10].add_squares = NULL;
    cz_model *model = new_model();
    for (int i = 0; i < 11; i++) {
        const cz_tensor value = {.data = memory, .dtype = CZ_F32, .device = &tables[i]};
        if (cz_model_add_tensor(model, "w", &value, NULL) !=
            (i < 2 ? CZ_ERR_UNSUPPORTED : CZ_ERR_ARGUMENT))
            fail_msg("table %d was taken", i);
        assert_non_null(strstr(cz_last_error(), "the device of \"w\""));
        check_counts(model, 0, 0, 0);
    }
    const cz_tensor value = {.data = memory, .dtype = CZ_F32, .device = &tables[1]};
    tables[1].size = offsetof(cz_device, copy_once); /* an older one */
    assert_ok(cz_model_add_tensor(model, "v", &value, NULL));
    tables[1].size = sizeof(cz_device) + 8; /* a newer one */
    assert_ok(cz_model_add_tensor(model, "w", &value, NULL));
    cz_model_destroy(&model);
}

TEST(empty_parameters)
{
    static const int64_t empty[] = {3, 0};
    const cz_tensor nothing = {.dtype = CZ_F64, .dimensions = 2, .shape = {3, 0}};
    cz_model *model = new_model();
    assert_ok(cz_model_add(model, "a", NULL, NULL, CZ_F32, 2, empty));
    assert_ok(cz_model_add_tensor(model, "b", &nothing, &nothing));
    assert_non_null(cz__model_gradient(model, 1)); /* present, with no elements */
    assert_null(cz__model_gradient(model, 0));
    assert_non_null(cz__model_gradient_address(model, 1));
    assert_null(cz__model_gradient_address(model, 0));
    assert_null(cz__model_gradient_address(model, 2));
    assert_ok(cz_model_zero_grad(model));
    check_counts(model, 2, 0, 0);
    cz_model_destroy(&model);
}

static cz_status build(cz_model *model)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    const int64_t params = cz__model_param_count(model), buffers = cz__model_buffer_count(model);
    cz_status status = cz_model_add_flat(model, memory, grads, CZ_F32, 10, NULL, sizes);
    if (status != CZ_OK) {
        check_counts(model, params, buffers, 0);
        return status;
    }
    for (int i = 0; i < 20; i++) {
        char name[16];
        snprintf(name, sizeof name, "b%d", i);
        status = cz_model_add_buffer(model, name, memory, CZ_F32, 0, NULL);
        if (status == CZ_OK)
            continue;
        check_counts(model, 10, i, 55);
        return status;
    }
    status = cz_model_add(model, "w", memory, NULL, CZ_F32, 0, NULL);
    check_counts(model, status == CZ_OK ? 11 : 10, 20, status == CZ_OK ? 56 : 55);
    return status;
}

TEST(every_allocation_fails)
{
    cz_model *model = new_model();
    cz_model_destroy(&model);
    const int64_t held = cz_test_allocations_held();
    for (int64_t n = 1;; n++) {
        cz_test_fail_allocation(n);
        cz_status status = cz_model_create(&model);
        if (status != CZ_OK)
            assert_null(model);
        else
            status = build(model);
        const bool failed = cz_test_allocation_reset();
        assert_int_equal(status, failed ? CZ_ERR_MEMORY : CZ_OK);
        cz_model_destroy(&model);
        assert_int_equal(cz_test_allocations_held(), held);
        if (!failed) {
            assert_true(n > 30);
            break;
        }
    }
}

TEST(frozen_lists)
{
    static const int64_t sizes[] = {1};
    cz_model *model = new_model();
    assert_ok(cz_model_add(model, "a", memory, NULL, CZ_F32, 0, NULL));
    cz__model_freeze(model);
    cz__model_freeze(model);
    cz__model_thaw(model); /* one still stands on it */
    const cz_tensor value = *cz__model_value(model, 0);
    assert_int_equal(cz_model_add(model, "b", memory, NULL, CZ_F32, 0, NULL), CZ_ERR_STATE);
    assert_int_equal(cz_model_add_buffer(model, "b", memory, CZ_F32, 0, NULL), CZ_ERR_STATE);
    assert_int_equal(cz_model_add_tensor(model, "b", &value, NULL), CZ_ERR_STATE);
    assert_int_equal(cz_model_add_flat(model, memory, NULL, CZ_F32, 1, NULL, sizes), CZ_ERR_STATE);
    check_counts(model, 1, 0, 1);
    assert_ok(cz_model_set_gradient(model, 0, grads)); /* no change of the list */
    assert_ok(cz_model_set_requires_grad(model, 0, false));
    cz__model_thaw(model);
    assert_ok(cz_model_add(model, "b", memory, NULL, CZ_F32, 0, NULL));
    cz_model_destroy(&model);
}

/* Destroyed by the program while optimizers stand on it: freed when the last has left. */
TEST(destroyed_while_frozen)
{
    const int64_t before = cz_test_allocations_held();
    cz_model *model = new_model(), *kept = model;
    assert_ok(cz_model_add(model, "a", memory, NULL, CZ_F32, 0, NULL));
    cz__model_freeze(model);
    cz__model_freeze(model);
    const int64_t held = cz_test_allocations_held();
    cz_model_destroy(&model);
    assert_null(model);
    assert_int_equal(cz_test_allocations_held(), held);
    cz__model_thaw(kept);
    assert_int_equal(cz_test_allocations_held(), held);
    cz__model_thaw(kept);
    assert_int_equal(cz_test_allocations_held(), before);
}

TEST(gradients_come_and_go)
{
    static const int64_t sizes[] = {4, 3, 2};
    cz_model *model = new_model();
    assert_ok(cz_model_add_flat(model, memory, grads, CZ_F32, 3, NULL, sizes));
    for (int64_t p = 0; p < 3; p++)
        assert_true(cz__model_requires_grad(model, p));
    assert_ok(cz_model_set_requires_grad(model, 2, false));
    assert_false(cz__model_requires_grad(model, 2));
    assert_ok(cz_model_set_gradient(model, 1, NULL));
    assert_null(cz__model_gradient(model, 1));
    assert_ok(cz_model_set_gradient(model, 0, grads + 20));
    assert_true(cz__model_gradient(model, 0)->data == grads + 20);
    assert_true(cz__model_gradient_address(model, 0) == grads + 20);
    assert_int_equal(cz__model_gradient(model, 0)->shape[0], 4);

    for (int i = 0; i < 64; i++)
        grads[i] = 1;
    assert_ok(cz_model_zero_grad(model));
    for (int i = 0; i < 64; i++) /* those that are present, frozen ones too, and nothing else */
        assert_true(grads[i] == ((i >= 7 && i < 9) || (i >= 20 && i < 24) ? 0 : 1));
    cz_model_destroy(&model);
}

/* A gradient may be of another type than its value, as long as neither is f64 or of integers. */
TEST(gradients_of_another_type)
{
    static const cz_dtype types[] = {CZ_F32, CZ_F64, CZ_F16, CZ_BF16, CZ_I32};
    cz_model *model = new_model();
    for (int v = 0; v < 5; v++)
        for (int g = 0; g < 5; g++) {
            char name[32];
            snprintf(name, sizeof name, "%d %d", v, g);
            const cz_tensor value = {memory, types[v], CZ_DENSE, 1, {3}, NULL};
            const cz_tensor grad = {grads, types[g], CZ_DENSE, 1, {3}, NULL};
            const bool narrow = types[v] != CZ_F64 && types[g] != CZ_F64 && types[v] != CZ_I32 &&
                                types[g] != CZ_I32;
            const cz_status wanted = narrow || v == g ? CZ_OK : CZ_ERR_ARGUMENT;
            assert_int_equal(cz_model_add_tensor(model, name, &value, &grad), wanted);
            if (wanted == CZ_OK) {
                const int64_t param = cz_model_find(model, name);
                assert_int_equal(cz__model_gradient(model, param)->dtype, types[g]);
                assert_int_equal(cz__model_gradient_dtype(model, param), types[g]);
                assert_ok(cz_model_set_gradient(model, param, NULL));
                assert_ok(cz_model_set_gradient(model, param, grads + 1));
                assert_int_equal(cz__model_gradient(model, param)->dtype, types[g]);
                assert_int_equal(cz__model_value(model, param)->dtype, types[v]);
            } else {
                assert_non_null(strstr(cz_last_error(), "differ in type"));
            }
        }
    const cz_tensor value = {memory, CZ_BF16, CZ_DENSE, 1, {3}, NULL};
    const cz_tensor later = {NULL, CZ_F32, CZ_DENSE, 1, {3}, NULL};
    assert_ok(cz_model_add_tensor(model, "later", &value, &later));
    const int64_t param = cz_model_find(model, "later");
    assert_null(cz__model_gradient(model, param));
    assert_ok(cz_model_set_gradient(model, param, grads));
    assert_int_equal(cz__model_gradient(model, param)->dtype, CZ_F32);
    assert_int_equal(cz__model_check_gradients(model, "part"), CZ_ERR_UNSUPPORTED);
    assert_string_equal(cz_last_error(), "part: the gradient of '0 2' is f16, its value f32: here "
                                         "they have one type");
    cz_model_destroy(&model);
}

TEST(many_names_are_found_fast)
{
    enum { COUNT = 1000000 }; /* a search through the list would take hours */
    static char names[COUNT][24];
    const char **list = malloc(COUNT * sizeof *list);
    int64_t *sizes = calloc(COUNT, sizeof *sizes);
    cz_model *model = new_model();
    for (int i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof names[i], "h.%d.%d.weight", i / 12, i % 12);
        list[i] = names[i];
    }
    for (int i = 0; i < COUNT / 2; i++) /* one by one, then the others together */
        assert_ok(cz_model_add(model, names[i], memory, NULL, CZ_F32, 0, NULL));
    assert_ok(cz_model_add_flat(model, NULL, NULL, CZ_F32, COUNT / 2, list + COUNT / 2, sizes));
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(cz_model_find(model, names[i]), i);
    cz_model_destroy(&model);
    free(list);
    free(sizes);
}
