/* SPDX-License-Identifier: MIT */
/* Whole dictionaries: nesting, deep copies, comparison, and allocations that fail at every
 * point. */
#include "state/sample.h"

#include <string.h>

TEST(a_copy_is_equal_and_its_own)
{
    cz_state_dict *dict = new_sample(), *copy = NULL, *part = NULL;
    assert_ok(cz_state_dict_copy(&copy, dict));
    assert_true(cz_state_dict_equal(dict, copy) && cz_state_dict_equal(copy, dict));
    for (int64_t i = 0; i < cz_state_dict_count(dict); i++) /* the order is kept */
        assert_string_equal(cz_state_dict_key(dict, i), cz_state_dict_key(copy, i));
    cz_tensor view;
    assert_ok(cz_state_dict_get_tensor(inside(inside(copy, "state"), "w1"), "exp_avg", &view));
    *(float *)view.data = 2;
    assert_false(cz_state_dict_equal(dict, copy));
    /* a copy of a nested one is an outermost one: paths begin there */
    assert_ok(cz_state_dict_copy(&part, inside(dict, "state")));
    cz_state_dict_destroy(&dict);
    cz_state_dict_destroy(&copy);
    int64_t integer;
    assert_int_equal(cz_state_dict_get_integer(inside(part, "w1"), "exp_avg", &integer),
                     CZ_ERR_ARGUMENT);
    assert_string_equal(cz_last_error(),
                        "state dictionary: 'w1/exp_avg' is a tensor, wanted an integer");
    cz_state_dict_destroy(&part);
    assert_int_equal(cz_state_dict_copy(&part, NULL), CZ_ERR_ARGUMENT);
}

/* Each of these is one difference. */
static cz_status differ(cz_state_dict *dict, int which)
{
    const char *const other[] = {"a", "", "another"};
    cz_tensor tensor = sample_tensor();
    float numbers[6];
    switch (which) {
    case 0:
        return cz_state_dict_set_integer(dict, "epoch", 0);
    case 1:
        return cz_state_dict_set_real(dict, "epoch", (double)INT64_MIN); /* another kind */
    case 2:
        return cz_state_dict_set_real(inside(inside(dict, "param_groups"), "0"), "lr", 0.0);
    case 3:
        return cz_state_dict_set_text(dict, "name", "adam");
    case 4:
        return cz_state_dict_set_texts(dict, "names", sample_texts, 2);
    case 5:
        return cz_state_dict_set_texts(dict, "names", other, 3);
    case 6:
        tensor.shape[0] = 3;
        tensor.shape[1] = 2;
        break;
    case 7:
        tensor.dimensions = 1;
        tensor.shape[0] = 6;
        break;
    case 8:
        tensor.dtype = CZ_I32;
        break;
    case 9:
        memcpy(numbers, sample_numbers, sizeof numbers);
        numbers[1] = 0; /* was -0 */
        tensor.data = numbers;
        break;
    case 10:
        return cz_state_dict_remove(dict, "name");
    default:
        CZ_TRY(cz_state_dict_remove(dict, "name"));
        return cz_state_dict_set_text(dict, "Name", "adamw");
    }
    return cz_state_dict_set_tensor(inside(inside(dict, "state"), "w1"), "exp_avg", &tensor);
}

TEST(one_difference_is_seen)
{
    cz_state_dict *dict = new_sample();
    for (int which = 0; which < 12; which++) {
        cz_state_dict *other = new_sample();
        assert_ok(differ(other, which));
        if (cz_state_dict_equal(dict, other) || cz_state_dict_equal(other, dict))
            fail_msg("difference %d is not seen", which);
        cz_state_dict_destroy(&other);
    }
    assert_true(cz_state_dict_equal(NULL, NULL));
    assert_false(cz_state_dict_equal(dict, NULL));
    assert_false(cz_state_dict_equal(NULL, dict));
    assert_true(cz_state_dict_equal(dict, dict));
    /* in another order: the last key takes the place of the first, which is added again */
    cz_state_dict *turned = new_sample();
    assert_ok(cz_state_dict_remove(turned, "epoch"));
    assert_string_equal(cz_state_dict_key(turned, 0), "state");
    assert_ok(cz_state_dict_set_integer(turned, "epoch", INT64_MIN));
    assert_true(cz_state_dict_equal(dict, turned));
    cz_state_dict_destroy(&turned);
    cz_state_dict_destroy(&dict);
}

TEST(nesting_ends_somewhere)
{
    cz_state_dict *dict = new_dict(), *at = dict, *copy = NULL;
    for (int depth = 2; depth <= CZ_STATE_MAX_DEPTH; depth++)
        assert_ok(cz_state_dict_add_dict(at, "d", &at));
    cz_state_dict *deepest = at;
    assert_int_equal(cz_state_dict_add_dict(deepest, "d", &at), CZ_ERR_ARGUMENT);
    assert_ptr_equal(at, deepest);
    assert_non_null(strstr(cz_last_error(), "'d/d/d/"));
    assert_ok(cz_state_dict_copy(&copy, dict));
    assert_true(cz_state_dict_equal(copy, dict));
    cz_state_dict_destroy(&copy);
    /* a nested one cannot be destroyed, only removed */
    at = inside(dict, "d");
    cz_state_dict_destroy(&at);
    assert_null(at);
    assert_int_equal(cz_state_dict_kind(inside(dict, "d"), "d"), CZ_STATE_DICT);
    assert_ok(cz_state_dict_remove(dict, "d"));
    assert_int_equal(cz_state_dict_count(dict), 0);
    cz_state_dict_destroy(&dict);
}

/* Copied under a key, also over what is there; of another dictionary or of this one. */
TEST(a_dictionary_goes_into_another)
{
    cz_state_dict *dict = new_dict(), *sample = new_sample(), *at = dict;
    assert_ok(cz_state_dict_set_text(dict, "sched", "what was there"));
    assert_ok(cz_state_dict_set_dict(dict, "sched", sample));
    assert_true(cz_state_dict_equal(inside(dict, "sched"), sample));
    assert_ok(cz_state_dict_set_dict(dict, "again", inside(dict, "sched")));
    assert_ok(cz_state_dict_set_integer(inside(dict, "sched"), "epoch", 1));
    assert_true(cz_state_dict_equal(inside(dict, "again"), sample));
    assert_int_equal(cz_state_dict_set_dict(dict, "again", NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_state_dict_set_dict(dict, "", sample), CZ_ERR_ARGUMENT);
    for (int64_t n = 1, failed = 1; failed; n++) {
        cz_test_fail_allocation(n);
        const cz_status status = cz_state_dict_set_dict(dict, "sched", sample);
        failed = cz_test_allocation_reset();
        assert_int_equal(status, failed ? CZ_ERR_MEMORY : CZ_OK);
        assert_int_equal(cz_state_dict_equal(inside(dict, "sched"), sample), !failed);
    }
    /* the sample has three levels: they end where nesting does, or would be one too deep */
    for (int depth = 2; depth <= CZ_STATE_MAX_DEPTH - 3; depth++)
        assert_ok(cz_state_dict_add_dict(at, "d", &at));
    assert_ok(cz_state_dict_set_dict(at, "fits", sample));
    assert_ok(cz_state_dict_add_dict(at, "d", &at));
    assert_int_equal(cz_state_dict_set_dict(at, "deeper", sample), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_state_dict_kind(at, "deeper"), CZ_STATE_NONE);
    cz_state_dict_destroy(&sample);
    cz_state_dict_destroy(&dict);
}

static cz_status make_sample(cz_state_dict **out)
{
    CZ_TRY(cz_state_dict_create(out));
    return fill_sample(*out);
}

TEST(without_memory_to_make_one)
{
    const int64_t held = cz_test_allocations_held();
    for (int64_t n = 1;; n++) {
        cz_state_dict *dict = NULL;
        cz_test_fail_allocation(n);
        const cz_status status = make_sample(&dict);
        const bool failed = cz_test_allocation_reset();
        assert_int_equal(status, failed ? CZ_ERR_MEMORY : CZ_OK);
        cz_state_dict_destroy(&dict);
        assert_int_equal(cz_test_allocations_held(), held);
        if (!failed)
            break;
    }
}

/* A key for which neither the list nor the table has room: after the 8th, 16th. */
TEST(without_memory_to_change_one)
{
    cz_state_dict *dict = new_sample(), *before = NULL, *copy = NULL;
    for (int i = 0; i < 10; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        assert_ok(cz_state_dict_copy(&before, dict));
        for (int64_t n = 1;; n++) {
            cz_test_fail_allocation(n);
            const cz_status status = cz_state_dict_set_text(dict, key, "new");
            if (!cz_test_allocation_reset()) {
                assert_ok(status);
                break;
            }
            assert_int_equal(status, CZ_ERR_MEMORY);
            assert_true(cz_state_dict_equal(dict, before));
        }
        cz_state_dict_destroy(&before);
    }
    const int64_t held = cz_test_allocations_held();
    for (int64_t n = 1;; n++) {
        cz_test_fail_allocation(n);
        const cz_status status = cz_state_dict_copy(&copy, dict);
        if (!cz_test_allocation_reset()) {
            assert_ok(status);
            break;
        }
        assert_int_equal(status, CZ_ERR_MEMORY);
        assert_null(copy);
        assert_int_equal(cz_test_allocations_held(), held);
    }
    assert_true(cz_state_dict_equal(copy, dict));
    /* a sentence without memory for the path still names the key */
    cz_test_fail_allocation(1);
    double real;
    assert_int_equal(cz_state_dict_get_real(dict, "name", &real), CZ_ERR_ARGUMENT);
    assert_true(cz_test_allocation_reset());
    assert_string_equal(cz_last_error(), "state dictionary: 'name' is a text, wanted a real");
    cz_state_dict_destroy(&copy);
    cz_state_dict_destroy(&dict);
}
