/* SPDX-License-Identifier: MIT */
/* Parameters over the same memory: refused by name wherever one of them is in a group, and only
 * there. */
#include "optim/optim.h"
#include "support/cz_test.h"

#include <string.h>

static float memory[100], grads[300];

/* Elements [begin, end) of the memory. */
typedef struct piece {
    int begin, end;
} piece;

static cz_model *make_model(const piece *pieces, int count)
{
    cz_model *model;
    assert_ok(cz_model_create(&model));
    for (int p = 0, at = 0; p < count; p++) {
        const char name[] = {(char)('a' + p), 0};
        const int64_t size = pieces[p].end - pieces[p].begin;
        assert_ok(
            cz_model_add(model, name, memory + pieces[p].begin, grads + at, CZ_F32, 1, &size));
        at += (int)size;
    }
    return model;
}

/* NULL: it is created. The first `members` parameters are in groups. */
static void check(const piece *pieces, int count, int members, const char *sentence)
{
    static const int64_t all[] = {0, 1, 2, 3, 4};
    const cz_param_group first = {sizeof first, all, members, NULL};
    const cz_optim_options options = {sizeof options, &first, 1, 0, 0};
    cz_model *model = make_model(pieces, count);
    cz_optim *optim = NULL;
    const cz_status status = cz_optim_create(&optim, model, cz_rule_adam(), NULL, &options);
    assert_int_equal(status, sentence ? CZ_ERR_ARGUMENT : CZ_OK);
    if (sentence)
        assert_string_equal(cz_last_error(), sentence);
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
}

#define PIECES(members, sentence, ...)                                                             \
    check((const piece[]){__VA_ARGS__}, sizeof((const piece[]){__VA_ARGS__}) / sizeof(piece),      \
          members, sentence)
#define SAME(a, b) "optim: parameters " a " and " b " have values in the same memory"

TEST(memories_that_overlap_are_refused_with_both_names)
{
    PIECES(2, SAME("0 'a'", "1 'b'"), {10, 20}, {10, 20});
    PIECES(2, SAME("0 'a'", "1 'b'"), {10, 20}, {19, 30});
    PIECES(2, SAME("0 'a'", "1 'b'"), {10, 20}, {0, 11});
    PIECES(3, SAME("0 'a'", "1 'b'"), {0, 50}, {30, 31}, {50, 60});
    PIECES(4, SAME("0 'a'", "3 'd'"), {0, 50}, {60, 70}, {50, 60}, {49, 50});
    PIECES(5, SAME("2 'c'", "4 'e'"), {90, 100}, {80, 90}, {20, 40}, {40, 60}, {0, 21});
}

TEST(neighbours_and_empty_ones)
{
    PIECES(3, NULL, {10, 20}, {20, 30}, {0, 10});
    PIECES(5, NULL, {10, 20}, {15, 15}, {15, 15}, {10, 10}, {20, 20});
}

TEST(in_no_group)
{
    PIECES(1, SAME("0 'a'", "1 'b'"), {10, 20}, {10, 20});
    PIECES(1, SAME("0 'a'", "2 'c'"), {40, 50}, {0, 10}, {5, 45});
    PIECES(1, NULL, {0, 10}, {10, 20}, {10, 20}, {5, 5}); /* nobody writes there */
    PIECES(2, SAME("1 'b'", "3 'd'"), {0, 10}, {20, 30}, {40, 90}, {10, 21}, {50, 60});
}

/* Two that nobody trains; then one of them is to be. */
TEST(a_group_that_is_added)
{
    const piece pieces[] = {{0, 10}, {20, 30}, {25, 35}, {35, 40}};
    cz_model *model = make_model(pieces, 4);
    cz_param_group first = CZ_PARAM_GROUP_INIT, bad = CZ_PARAM_GROUP_INIT,
                   good = CZ_PARAM_GROUP_INIT;
    first.params = (const int64_t[]){0};
    bad.params = (const int64_t[]){3, 2};
    good.params = (const int64_t[]){3};
    first.param_count = good.param_count = 1;
    bad.param_count = 2;
    const cz_optim_options options = {sizeof options, &first, 1, 0, 0};
    cz_optim *optim;
    assert_ok(cz_optim_create(&optim, model, cz_rule_adam(), NULL, &options));
    assert_int_equal(cz_optim_add_param_group(optim, &bad), CZ_ERR_ARGUMENT);
    assert_string_equal(cz_last_error(), SAME("1 'b'", "2 'c'"));
    assert_int_equal(cz__optim_group_count(optim), 1);
    assert_ok(cz_optim_add_param_group(optim, &good));
    assert_ok(cz_optim_step(optim, NULL, NULL));
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
}

/* The same number is another place on another device. */
TEST(another_device)
{
    cz_device other = *cz_device_cpu();
    cz_model *model = make_model((const piece[]){{0, 10}}, 1);
    const cz_tensor there = {
        .data = memory, .dtype = CZ_F32, .dimensions = 1, .shape = {10}, .device = &other};
    cz_optim *optim;
    assert_ok(cz_model_add_tensor(model, "there", &there, NULL));
    assert_ok(cz_optim_create(&optim, model, cz_rule_adam(), NULL, NULL));
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
}
