/* SPDX-License-Identifier: MIT */
/* Making an optimizer: what is refused and in which words, parameter groups, memory that is not
 * there. */
#include "optim/optim.h"
#include "support/cz_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SGD cz_rule_sgd(), CZ_HYPERS({"lr", 0.1}, {"momentum", 0.9})

static float values[4][40], grads[4][40];

/* Parameters a (35), b (13), c (1), d (0). */
static cz_model *make_model(void)
{
    static const int64_t counts[] = {35, 13, 1, 0};
    static const char *const names[] = {"a", "b", "c", "d"};
    cz_model *model;
    assert_ok(cz_model_create(&model));
    for (int p = 0; p < 4; p++)
        assert_ok(cz_model_add(model, names[p], values[p], grads[p], CZ_F32, 1, &counts[p]));
    return model;
}

static cz_status create(cz_model *model, const cz_param_group *groups, int64_t count)
{
    const cz_optim_options options = {sizeof options, groups, count, 0, 0};
    cz_optim *optim = (cz_optim *)&options;
    const cz_status status = cz_optim_create(&optim, model, SGD, &options);
    if (status != CZ_OK)
        assert_null(optim);
    cz_optim_destroy(&optim);
    assert_null(optim);
    return status;
}

static void expect_refusal_as(cz_status wanted, cz_model *model, const cz_param_group *groups,
                              int64_t count, const char *word)
{
    assert_int_equal(create(model, groups, count), wanted);
    if (!strstr(cz_last_error(), word))
        fail_msg("\"%s\" does not say \"%s\"", cz_last_error(), word);
}

static void expect_refusal(cz_model *model, const cz_param_group *groups, int64_t count,
                           const char *word)
{
    expect_refusal_as(CZ_ERR_ARGUMENT, model, groups, count, word);
}

#define GROUP(...)                                                                                 \
    {                                                                                              \
        sizeof(cz_param_group), (const int64_t[]){__VA_ARGS__},                                    \
            sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t), NULL                         \
    }

TEST(groups_that_are_refused)
{
    cz_model *model = make_model();
    expect_refusal(model, (cz_param_group[]){GROUP(0, 1, 0)}, 1,
                   "'a' is twice in parameter group 0");
    expect_refusal(model, (cz_param_group[]){GROUP(0, 1), GROUP(2, 1)}, 2,
                   "'b' is in parameter groups 0 and 1");
    expect_refusal(model, (cz_param_group[]){GROUP(0), GROUP(4)}, 2, "lists parameter 4");
    expect_refusal(model, (cz_param_group[]){GROUP(-1)}, 1, "lists parameter -1");
    expect_refusal(
        model,
        (cz_param_group[]){
            {.size = sizeof(cz_param_group), .params = NULL, .param_count = 2, .hypers = NULL}},
        1, "NULL");
    expect_refusal(
        model,
        (cz_param_group[]){
            {.size = sizeof(cz_param_group), .params = NULL, .param_count = -1, .hypers = NULL}},
        1, "-1");
    expect_refusal(
        model,
        (cz_param_group[]){
            {.size = sizeof(cz_param_group), .params = NULL, .param_count = 0, .hypers = NULL}},
        1, "no parameters");
    expect_refusal(model, (cz_param_group[]){GROUP(0)}, 0, "no parameters");
    expect_refusal(model, (cz_param_group[]){GROUP(0)}, -1, "group_count is -1");
    expect_refusal(model, NULL, 1, "NULL");
    expect_refusal(model, (cz_param_group[]){{0, NULL, 0, NULL}}, 1, "cz_param_group");
    expect_refusal(model, (cz_param_group[]){{4097, NULL, 0, NULL}, GROUP(0)}, 2,
                   "cz_param_group: size is 4097");
    expect_refusal(model, (cz_param_group[]){{SIZE_MAX / 2, NULL, 0, NULL}, GROUP(0)}, 2,
                   "cz_param_group");
    assert_ok(create(model, NULL, 0));
    assert_ok(create(
        model,
        (cz_param_group[]){
            GROUP(2),
            {.size = sizeof(cz_param_group), .params = NULL, .param_count = 0, .hypers = NULL}},
        2));
    cz_model_destroy(&model);
}

TEST(arguments)
{
    cz_model *model = make_model(), *empty;
    cz_optim *optim = NULL;
    cz_rule stranger = *cz_rule_sgd();
    assert_ok(cz_model_create(&empty));
    assert_int_equal(cz_optim_create(&optim, NULL, SGD, NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_create(&optim, model, NULL, NULL, NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_create(&optim, empty, SGD, NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_create(&optim, model, cz_rule_sgd(), NULL, NULL), CZ_ERR_ARGUMENT);
    assert_non_null(strstr(cz_last_error(), "lr has no default"));
    assert_int_equal(
        cz_optim_create(&optim, model, cz_rule_adamw(), CZ_HYPERS({"beta1", 1.5}), NULL),
        CZ_ERR_ARGUMENT);
    assert_string_equal(cz_last_error(), "adamw: beta1 is 1.5, allowed is 0 <= beta1 < 1");
    assert_int_equal(
        cz_optim_create(&optim, model, cz_rule_sgd(), CZ_HYPERS({"lr", 1}, {"nesterov", 1}), NULL),
        CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_create(&optim, model, cz_rule_adam(), CZ_HYPERS({"lr", NAN}), NULL),
                     CZ_ERR_ARGUMENT);
    stranger.name = "stranger";
    assert_int_equal(cz_optim_create(&optim, model, &stranger, CZ_HYPERS({"lr", 1}), NULL),
                     CZ_ERR_UNSUPPORTED);
    assert_non_null(strstr(cz_last_error(), "no kernel of rule stranger for f32"));
    stranger.abi = 2;
    assert_int_equal(cz_optim_create(&optim, model, &stranger, CZ_HYPERS({"lr", 1}), NULL),
                     CZ_ERR_UNSUPPORTED);
    assert_null(optim);
    const int64_t one = 1; /* none of these froze the model */
    assert_ok(cz_model_add(model, "e", values[3], NULL, CZ_F32, 1, &one));
    assert_ok(cz_optim_create(&optim, model, SGD, NULL));
    assert_int_equal(cz_model_add(model, "f", values[3], NULL, CZ_F32, 1, &one), CZ_ERR_STATE);
    cz_optim_destroy(&optim);
    assert_ok(cz_model_add(model, "f", values[3], NULL, CZ_F32, 1, &one));
    cz_optim_destroy(NULL);
    cz_optim_destroy(&optim);
    cz_model_destroy(&empty);
    cz_model_destroy(&model);
}

TEST(types_differ)
{
    static double wide[3];
    static uint16_t half[6];
    const int64_t three = 3;
    cz_optim *optim;
    cz_model *model = make_model();
    assert_ok(cz_model_add(model, "wide", wide, wide, CZ_F64, 1, &three));
    expect_refusal(model, NULL, 0, "'wide' is f64, 'a' is f32");
    assert_ok(create(model, (cz_param_group[]){GROUP(0, 1)}, 1)); /* it is in none */
    assert_ok(create(model, (cz_param_group[]){GROUP(4)}, 1));
    cz_model_destroy(&model);
    assert_ok(cz_model_create(&model));
    assert_ok(cz_model_add(model, "half", half, half + 3, CZ_BF16, 1, &three));
    assert_ok(cz_model_add(model, "wide", wide, wide, CZ_F64, 1, &three));
    expect_refusal(model, NULL, 0, "'wide' is f64, 'half' is bf16");
    cz_model_destroy(&model);
    assert_ok(cz_model_create(&model));
    assert_ok(cz_model_add(model, "count", half, half, CZ_I32, 1, &three));
    assert_int_equal(cz_optim_create(&optim, model, SGD, NULL), CZ_ERR_UNSUPPORTED);
    assert_non_null(strstr(cz_last_error(), "no kernel of rule sgd for i32"));
    cz_model_destroy(&model);
}

TEST(devices_and_layouts_differ)
{
    cz_device other = *cz_device_cpu();
    other.name = "other";
    cz_model *model = make_model();
    cz_tensor tensor = {.data = values[0],
                        .dtype = CZ_F32,
                        .layout = CZ_DENSE,
                        .dimensions = 1,
                        .shape = {5},
                        .device = &other};
    assert_ok(cz_model_add_tensor(model, "there", &tensor, &tensor));
    expect_refusal(model, NULL, 0, "'there' is on device other, 'a' on cpu");
    cz_model_destroy(&model);
    model = make_model();
    tensor.data = values[3];
    tensor.device = cz_device_cpu(); /* NULL means the same */
    assert_ok(cz_model_add_tensor(model, "here", &tensor, &tensor));
    assert_ok(create(model, NULL, 0));
    tensor.layout = CZ_SPARSE_ROWS;
    assert_ok(cz_model_add_tensor(model, "rows", &tensor, &tensor));
    tensor.data = values[2];
    expect_refusal_as(CZ_ERR_UNSUPPORTED, model, NULL, 0, "'rows' is sparse");
    cz_model_destroy(&model);
}

/* A program of a later version, whose groups are longer; only the first says so. */
TEST(longer_groups)
{
    struct later {
        cz_param_group known;
        int64_t more;
    } groups[2] = {{{sizeof(struct later), (int64_t[]){1}, 1, NULL}, 0},
                   {{0, (int64_t[]){3, 0}, 2, CZ_HYPERS({"lr", 0.5})}, 0}};
    const cz_optim_options options = {sizeof options, &groups[0].known, 2, 0, 0};
    cz_model *model = make_model();
    cz_optim *optim;
    double lr;
    int64_t count;
    assert_ok(cz_optim_create(&optim, model, SGD, &options));
    assert_int_equal(cz__optim_group_count(optim), 2);
    const int64_t *params = cz__optim_group_params(optim, 1, &count);
    assert_true(count == 2 && params[0] == 3 && params[1] == 0);
    assert_int_equal(cz__optim_group_of(optim, 0), 1);
    assert_int_equal(cz__optim_group_of(optim, 1), 0);
    assert_int_equal(cz__optim_group_of(optim, 2), -1);
    assert_int_equal(cz__optim_group_of(optim, 4), -1);
    assert_int_equal(cz__optim_group_of(optim, -1), -1);
    assert_ok(cz_optim_get_hyper(optim, 0, "lr", &lr));
    assert_true(lr == 0.1);
    assert_ok(cz_optim_get_hyper(optim, 1, "lr", &lr));
    assert_true(lr == 0.5);
    cz_optim_destroy(&optim);
    for (int k = 0; k < 2; k++) {
        groups[k].more = 7;
        assert_int_equal(cz_optim_create(&optim, model, SGD, &options), CZ_ERR_UNSUPPORTED);
        groups[k].more = 0;
    }
    cz_model_destroy(&model);
}

TEST(state_is_reserved_without_gaps)
{
    cz_model *model = make_model();
    cz_optim *optim;
    const size_t before = cz_memory_bytes(CZ_MEMORY_STATE);
    assert_ok(cz_optim_create(&optim, model, cz_rule_adamw(), NULL, NULL));
    const size_t bytes =
        140 + 52 + 4; /* one slot; without gaps, but each slot begins a cache line */
    assert_int_equal(cz__optim_state_bytes(optim), 2 * bytes);
    assert_int_equal(cz_memory_bytes(CZ_MEMORY_STATE), before + 2 * 256);
    cz_optim_destroy(&optim);
    assert_int_equal(cz_memory_bytes(CZ_MEMORY_STATE), before);
    assert_ok(cz_model_set_requires_grad(model, 0, false));
    assert_ok(cz_optim_create(&optim, model, cz_rule_adam(), CZ_HYPERS({"amsgrad", 1}), NULL));
    assert_int_equal(cz__optim_state_bytes(optim), 3 * (52 + 4)); /* frozen ones have none */
    cz_optim_destroy(&optim);
    assert_ok(cz_optim_create(&optim, model, cz_rule_sgd(), CZ_HYPERS({"lr", 1}), NULL));
    assert_int_equal(cz__optim_state_bytes(optim), 0);
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
}

/* The model first, then the optimizers on it; the tensors were gone before. */
TEST(the_model_is_destroyed_first)
{
    const int64_t held = cz_test_allocations_held();
    const int64_t count = 5;
    float *memory = calloc(5, sizeof *memory);
    cz_model *model;
    cz_optim *first, *second;
    assert_ok(cz_model_create(&model));
    assert_ok(cz_model_add(model, "a", memory, memory, CZ_F32, 1, &count));
    assert_ok(cz_optim_create(&first, model, SGD, NULL));
    assert_ok(cz_optim_create(&second, model, SGD, NULL));
    free(memory);
    const int64_t all = cz_test_allocations_held();
    cz_model_destroy(&model);
    assert_int_equal(cz_test_allocations_held(), all);
    cz_optim_destroy(&first);
    cz_optim_destroy(&second);
    assert_int_equal(cz_test_allocations_held(), held);
}

TEST(every_allocation_fails_in_turn)
{
    const int64_t one = 1;
    const cz_param_group groups[] = {GROUP(0, 3), GROUP(1)};
    const cz_optim_options options = {sizeof options, groups, 2, 0, 0};
    cz_model *model = make_model();
    const int64_t held = cz_test_allocations_held();
    int64_t n = 1;
    for (;; n++) {
        cz_optim *optim;
        cz_test_fail_allocation(n);
        const cz_status status =
            cz_optim_create(&optim, model, cz_rule_adamw(), NULL, n % 2 ? &options : NULL);
        if (!cz_test_allocation_reset()) {
            assert_ok(status);
            cz_optim_destroy(&optim);
            if (n > 30)
                break;
            continue;
        }
        assert_int_equal(status, CZ_ERR_MEMORY);
        assert_null(optim);
        assert_int_equal(cz_test_allocations_held(), held);
    }
    assert_int_equal(cz_test_allocations_held(), held);
    assert_ok(cz_model_add(model, "e", values[3], NULL, CZ_F32, 1, &one)); /* thawed */
    cz_model_destroy(&model);
}
