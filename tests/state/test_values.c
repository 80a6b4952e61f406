/* SPDX-License-Identifier: MIT */
/* Values of every kind: what was put in comes out, what is wrong is refused with its path. */
#include "state/sample.h"

#include <string.h>

TEST(what_was_put_in_comes_out)
{
    cz_state_dict *dict = new_sample();
    int64_t integer = 0;
    double real = 0;
    const char *text = NULL;
    const char *const *texts;
    cz_tensor view;
    assert_ok(cz_state_dict_get_integer(dict, "epoch", &integer));
    assert_true(integer == INT64_MIN);
    assert_ok(cz_state_dict_get_real(dict, "rate", &real));
    assert_true(real == 0.1);
    assert_ok(cz_state_dict_get_real(dict, "epoch", &real)); /* an integer will do */
    assert_true(real == (double)INT64_MIN);
    assert_ok(cz_state_dict_get_text(dict, "name", &text));
    assert_string_equal(text, "adamw");
    assert_ok(cz_state_dict_get_texts(dict, "names", &texts, &integer));
    assert_int_equal(integer, 3);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(texts[i], sample_texts[i]);
        assert_ptr_not_equal(texts[i], sample_texts[i]);
    }
    const cz_state_dict *w1 = inside(inside(dict, "state"), "w1");
    assert_ok(cz_state_dict_get_tensor(w1, "exp_avg", &view));
    assert_true(view.dtype == CZ_F32 && view.layout == CZ_DENSE && !view.device);
    assert_true(view.dimensions == 2 && view.shape[0] == 2 && view.shape[1] == 3);
    assert_int_equal((uintptr_t)view.data % 64, 0);
    assert_memory_equal(view.data, sample_numbers, sizeof sample_numbers);
    assert_int_equal(cz_memory_bytes(CZ_MEMORY_STATE_DICT), sizeof sample_numbers);
    cz_state_dict_destroy(&dict);
    assert_null(dict);
    assert_int_equal(cz_memory_bytes(CZ_MEMORY_STATE_DICT), 0);
}

/* Every kind is replaced by every kind, under the same key and in the same place. */
static cz_status put(cz_state_dict *dict, const char *key, cz_state_kind kind)
{
    const cz_tensor tensor = sample_tensor();
    cz_state_dict *child;
    switch (kind) {
    case CZ_STATE_INTEGER:
        return cz_state_dict_set_integer(dict, key, 7);
    case CZ_STATE_REAL:
        return cz_state_dict_set_real(dict, key, 7.5);
    case CZ_STATE_TEXT:
        return cz_state_dict_set_text(dict, key, "seven");
    case CZ_STATE_TEXTS:
        return cz_state_dict_set_texts(dict, key, sample_texts, 2);
    case CZ_STATE_TENSOR:
        return cz_state_dict_set_tensor(dict, key, &tensor);
    default:
        CZ_TRY(cz_state_dict_add_dict(dict, key, &child));
        return cz_state_dict_set_real(child, "inner", 1);
    }
}

TEST(every_kind_replaces_every_kind)
{
    for (int from = CZ_STATE_INTEGER; from <= CZ_STATE_DICT; from++)
        for (int to = CZ_STATE_INTEGER; to <= CZ_STATE_TENSOR; to++) {
            cz_state_dict *dict = new_dict();
            char key[] = "k";
            assert_ok(put(dict, key, (cz_state_kind)from));
            assert_ok(put(dict, "other", CZ_STATE_REAL));
            key[0] = '?'; /* keys are copied */
            assert_int_equal(cz_state_dict_kind(dict, "k"), from);
            assert_ok(put(dict, "k", (cz_state_kind)to));
            assert_int_equal(cz_state_dict_kind(dict, "k"), to);
            assert_int_equal(cz_state_dict_count(dict), 2);
            assert_string_equal(cz_state_dict_key(dict, 0), "k");
            cz_state_dict_destroy(&dict);
        }
}

/* What belongs to the dictionary may be given to it, also as what it replaces. */
TEST(its_own_values_as_arguments)
{
    cz_state_dict *dict = new_dict();
    const char *text;
    const char *const *texts;
    int64_t count;
    cz_tensor view = sample_tensor();
    assert_ok(cz_state_dict_set_text(dict, "a", "a"));
    assert_ok(cz_state_dict_get_text(dict, "a", &text));
    assert_ok(cz_state_dict_set_text(dict, text, text)); /* key, value: the value */
    assert_ok(cz_state_dict_get_text(dict, "a", &text));
    assert_string_equal(text, "a");
    assert_ok(cz_state_dict_set_texts(dict, "a", &text, 1));
    assert_ok(cz_state_dict_get_texts(dict, "a", &texts, &count));
    assert_true(count == 1 && strcmp(texts[0], "a") == 0);
    assert_ok(cz_state_dict_set_tensor(dict, "t", &view));
    assert_ok(cz_state_dict_get_tensor(dict, "t", &view));
    view.dimensions = 1; /* its first two elements */
    assert_ok(cz_state_dict_set_tensor(dict, "t", &view));
    assert_ok(cz_state_dict_get_tensor(dict, "t", &view));
    assert_memory_equal(view.data, sample_numbers, 2 * sizeof(float));
    assert_int_equal(cz_memory_bytes(CZ_MEMORY_STATE_DICT), 2 * sizeof(float));
    assert_ok(cz_state_dict_remove(dict, cz_state_dict_key(dict, 0)));
    assert_ok(cz_state_dict_remove(dict, cz_state_dict_key(dict, 0)));
    assert_int_equal(cz_state_dict_count(dict), 0);
    cz_state_dict_destroy(&dict);
}

TEST(tensors_filled_in_place)
{
    static const int64_t shape[] = {3, 0, 5}, large[] = {1 << 20};
    cz_state_dict *dict = new_dict();
    cz_tensor view;
    void *data = NULL;
    assert_ok(cz_state_dict_add_tensor(dict, "scalar", CZ_F64, 0, NULL, &data));
    assert_true(*(double *)data == 0);
    *(double *)data = 4;
    assert_ok(cz_state_dict_get_tensor(dict, "scalar", &view));
    assert_true(*(const double *)view.data == 4 && view.dimensions == 0);
    assert_ok(cz_state_dict_add_tensor(dict, "empty", CZ_I64, 3, shape, &data));
    assert_non_null(data);
    assert_ok(cz_state_dict_get_tensor(dict, "empty", &view));
    assert_int_equal(cz_tensor_count(&view), 0);
    view.data = NULL; /* allowed where there are no elements */
    assert_ok(cz_state_dict_set_tensor(dict, "empty too", &view));
    assert_ok(cz_state_dict_add_tensor(dict, "large", CZ_F32, 1, large, &data));
    for (int64_t i = 0; i < large[0]; i += 1021)
        assert_true(((const float *)data)[i] == 0);
    assert_int_equal(cz_state_dict_add_tensor(dict, "large", CZ_F32, 1, large, &data),
                     CZ_ERR_STATE);
    assert_int_equal(cz_memory_bytes(CZ_MEMORY_STATE_DICT), 8 + (4 << 20));
    cz_state_dict_destroy(&dict);
}

TEST(what_cannot_be_put_in)
{
    static const int64_t huge[] = {INT64_MAX / 4, 2}, overflow[] = {INT64_MAX, INT64_MAX};
    static const int64_t below[] = {3, -1}, one[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    const char *const hole[] = {"a", NULL};
    cz_state_dict *dict = new_sample(), *before = NULL, *child = (cz_state_dict *)0x1;
    void *data = (void *)0x1;
    cz_tensor tensor = sample_tensor();
    assert_ok(cz_state_dict_copy(&before, dict));

    assert_int_equal(cz_state_dict_set_integer(dict, NULL, 1), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_state_dict_set_real(dict, "", 1), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_state_dict_set_text(dict, "name", NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_state_dict_set_texts(dict, "names", NULL, 1), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_state_dict_set_texts(dict, "names", sample_texts, -1), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_state_dict_set_texts(dict, "names", hole, 2), CZ_ERR_ARGUMENT);
    assert_string_equal(cz_last_error(),
                        "state dictionary: 'names' is given 2 texts, number 1 is NULL");
    assert_int_equal(cz_state_dict_set_tensor(dict, "epoch", NULL), CZ_ERR_ARGUMENT);
    tensor.layout = CZ_SPARSE_ROWS;
    assert_int_equal(cz_state_dict_set_tensor(dict, "epoch", &tensor), CZ_ERR_UNSUPPORTED);
    tensor = sample_tensor();
    const cz_device elsewhere = *cz_device_cpu();
    tensor.device = &elsewhere;
    assert_int_equal(cz_state_dict_set_tensor(dict, "epoch", &tensor), CZ_ERR_UNSUPPORTED);
    tensor = sample_tensor();
    tensor.data = NULL;
    assert_int_equal(cz_state_dict_set_tensor(dict, "epoch", &tensor), CZ_ERR_ARGUMENT);
    tensor = sample_tensor();
    tensor.dtype = (cz_dtype)77;
    assert_int_equal(cz_state_dict_set_tensor(dict, "epoch", &tensor), CZ_ERR_ARGUMENT);

    const struct {
        int dtype, dimensions;
        const int64_t *shape;
    } forms[] = {{CZ_F32, -1, one}, {CZ_F32, 9, one},     {CZ_F32, 2, NULL}, {CZ_F32, 2, below},
                 {CZ_F32, 2, huge}, {CZ_U8, 2, overflow}, {0, 1, one}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (cz_state_dict_add_tensor(dict, "new", (cz_dtype)forms[i].dtype, forms[i].dimensions,
                                     forms[i].shape, &data) != CZ_ERR_ARGUMENT)
            fail_msg("form %zu was taken", i);
    assert_int_equal(cz_state_dict_add_tensor(dict, "new", CZ_F32, 1, one, NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_state_dict_add_dict(dict, "new", NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_state_dict_add_dict(dict, "epoch", &child), CZ_ERR_STATE);
    assert_true(data == (void *)0x1 && child == (cz_state_dict *)0x1);
    assert_true(cz_state_dict_equal(dict, before));
    cz_state_dict_destroy(&dict);
    cz_state_dict_destroy(&before);
}

TEST(what_cannot_be_read_says_where)
{
    cz_state_dict *dict = new_sample();
    const cz_state_dict *w1 = inside(inside(dict, "state"), "w1"), *child = NULL;
    double real = 5;
    int64_t integer = 5;
    const char *text = NULL;
    const char *const *texts;
    cz_tensor view;
    assert_int_equal(cz_state_dict_get_real(w1, "exp_avg", &real), CZ_ERR_ARGUMENT);
    assert_string_equal(cz_last_error(),
                        "state dictionary: 'state/w1/exp_avg' is a tensor, wanted a real");
    assert_int_equal(cz_state_dict_get_tensor(w1, "exp_avg_sq", &view), CZ_ERR_ARGUMENT);
    assert_string_equal(cz_last_error(),
                        "state dictionary: 'state/w1/exp_avg_sq' is not there, wanted a tensor");
    assert_int_equal(cz_state_dict_get_integer(dict, "rate", &integer), CZ_ERR_ARGUMENT);
    assert_string_equal(cz_last_error(), "state dictionary: 'rate' is a real, wanted an integer");
    assert_int_equal(cz_state_dict_get_text(dict, "names", &text), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_state_dict_get_texts(dict, "name", &texts, &integer), CZ_ERR_ARGUMENT);
    assert_string_equal(cz_last_error(),
                        "state dictionary: 'name' is a text, wanted a list of texts");
    assert_int_equal(cz_state_dict_get_texts(dict, "names", NULL, &integer), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_state_dict_get_texts(dict, "names", &texts, NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_state_dict_get_dict(dict, "name", &child), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_state_dict_get_real(dict, "rate", NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_state_dict_get_real(dict, NULL, &real), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_state_dict_remove(dict, "nothing"), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_state_dict_kind(dict, NULL), CZ_STATE_NONE);
    assert_int_equal(cz_state_dict_kind(NULL, "name"), CZ_STATE_NONE);
    assert_int_equal(cz_state_dict_kind(dict, ""), CZ_STATE_NONE);
    assert_null(cz_state_dict_key(dict, -1));
    assert_null(cz_state_dict_key(dict, cz_state_dict_count(dict)));
    assert_null(cz_state_dict_key(NULL, 0));
    assert_int_equal(cz_state_dict_count(NULL), -1);
    assert_true(real == 5 && integer == 5 && !text && !child);
    cz_state_dict_destroy(&dict);
    cz_state_dict_destroy(&dict);
    cz_state_dict_destroy(NULL);
}
