/* SPDX-License-Identifier: MIT */
/* State dictionaries as JSON: every value comes back with its bits, in its place; what is no
 * dictionary is refused with its path. */
#include "checkpoint/json_memory.h"
#include "state/sample.h"

#include "io/json.h"

#include <math.h>
#include <string.h>

/* Tensors on the way: kept under their names in another dictionary. */
static cz_status keep(const char *name, const cz_tensor *tensor, void *kept)
{
    return cz_state_dict_set_tensor(kept, name, tensor);
}

static cz_status bring(const char *name, cz_state_dict *dict, const char *key, void *kept)
{
    cz_tensor tensor;
    void *data;
    CZ_TRY(cz_state_dict_get_tensor(kept, name, &tensor));
    CZ_TRY(
        cz_state_dict_add_tensor(dict, key, tensor.dtype, tensor.dimensions, tensor.shape, &data));
    memcpy(data, tensor.data, (size_t)cz_tensor_count(&tensor) * cz_dtype_size(tensor.dtype));
    return CZ_OK;
}

/* In the same order, too. */
static bool same_order(const cz_state_dict *a, const cz_state_dict *b)
{
    for (int64_t i = 0; i < cz_state_dict_count(a); i++) {
        const char *key = cz_state_dict_key(a, i);
        const cz_state_dict *x = NULL, *y = NULL;
        if (strcmp(key, cz_state_dict_key(b, i)) != 0)
            return false;
        if (cz_state_dict_kind(a, key) == CZ_STATE_DICT &&
            (cz_state_dict_get_dict(a, key, &x) != CZ_OK ||
             cz_state_dict_get_dict(b, key, &y) != CZ_OK || !same_order(x, y)))
            return false;
    }
    return true;
}

/* To text and back: equal. The text is for free(). */
static char *through_text(const cz_state_dict *dict)
{
    cz_state_dict *kept = new_dict(), *back = NULL;
    json_t *json = NULL;
    if (cz__dict_to_json(&json, dict, "at:", keep, kept) != CZ_OK)
        fail_msg("%s", cz_last_error());
    char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    json = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    if (cz__dict_from_json(&back, json, "FILE", bring, kept) != CZ_OK)
        fail_msg("%s", cz_last_error());
    json_decref(json);
    assert_true(cz_state_dict_equal(dict, back) && same_order(dict, back));
    cz_state_dict_destroy(&back);
    cz_state_dict_destroy(&kept);
    return text;
}

TEST(the_text_of_every_kind)
{
    cz_state_dict *dict = new_sample(), *child;
    const cz_tensor tensor = sample_tensor();
    assert_ok(cz_state_dict_set_texts(dict, "no texts", NULL, 0));
    assert_ok(cz_state_dict_set_integer(dict, "$x", 1));
    assert_ok(cz_state_dict_set_text(dict, "$", "ü\n\""));
    assert_ok(cz_state_dict_add_dict(dict, "$tensor", &child));
    assert_ok(cz_state_dict_set_text(child, "$real", "nan"));
    assert_ok(cz_state_dict_add_dict(dict, "empty", &child));
    assert_ok(cz_state_dict_set_tensor(dict, "$$", &tensor));
    char *text = through_text(dict);
    assert_string_equal(
        text, "{\"epoch\":-9223372036854775808,\"rate\":0.10000000000000001,\"name\":\"adamw\","
              "\"names\":[\"a\",\"\",\"a longer one\"],"
              "\"param_groups\":{\"0\":{\"lr\":{\"$real\":\"-0\"}}},"
              "\"state\":{\"w1\":{\"exp_avg\":{\"$tensor\":\"at:state/w1/exp_avg\"}}},"
              "\"no texts\":[],\"$$x\":1,\"$$\":\"ü\\n\\\"\",\"$$tensor\":{\"$$real\":\"nan\"},"
              "\"empty\":{},\"$$$\":{\"$tensor\":\"at:$$\"}}");
    free(text);
    cz_state_dict_destroy(&dict);
    dict = new_dict();
    text = through_text(dict);
    assert_string_equal(text, "{}");
    free(text);
    cz_state_dict_destroy(&dict);
}

static double from_bits(uint64_t bits)
{
    double real;
    memcpy(&real, &bits, sizeof real);
    return real;
}

TEST(every_number_keeps_its_bits)
{
    static const int64_t integers[] = {
        0, -1, INT64_MIN, INT64_MAX, INT64_MAX - 1, 1LL << 53, (1LL << 53) + 1};
    const double reals[] = {0.0,
                            -0.0,
                            1.0,
                            -3.0,
                            0.1,
                            1e308,
                            -1e308,
                            1.7976931348623157e308,
                            5e-324,
                            -5e-324,
                            2.2250738585072014e-308,
                            1e23,
                            9007199254740993.0,
                            1e17,
                            1e16,
                            123456789012345678.0,
                            INFINITY,
                            -INFINITY,
                            from_bits(CZ__DICT_JSON_NAN),
                            from_bits(0xfff8000000000000),
                            from_bits(0x7ff8000000000001),
                            from_bits(0x7ff0000000000001),
                            from_bits(0xffffffffffffffff)};
    cz_state_dict *dict = new_dict();
    char key[24];
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
        snprintf(key, sizeof key, "integer %zu", i);
        assert_ok(cz_state_dict_set_integer(dict, key, integers[i]));
    }
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        snprintf(key, sizeof key, "real %zu", i);
        assert_ok(cz_state_dict_set_real(dict, key, reals[i]));
    }
    uint64_t bits = 88172645463325252u; /* xorshift; about one in 1000 is no number */
    for (int i = 0; i < 20000; i++) {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        snprintf(key, sizeof key, "bits %d", i);
        assert_ok(cz_state_dict_set_real(dict, key, from_bits(bits)));
    }
    char *text = through_text(dict);
    assert_non_null(strstr(text, "{\"$real\":\"nan\"}"));
    assert_non_null(strstr(text, "{\"$real\":\"-inf\"}"));
    assert_non_null(strstr(text, "{\"$real\":\"0x7ff8000000000001\"}"));
    assert_non_null(strstr(text, "{\"$real\":\"0xffffffffffffffff\"}"));
    free(text);
    cz_state_dict_destroy(&dict);
}

TEST(nested_as_deep_as_can_be)
{
    cz_state_dict *dict = new_dict(), *at = dict, *back = NULL;
    for (int depth = 2; depth <= CZ_STATE_MAX_DEPTH; depth++)
        assert_ok(cz_state_dict_add_dict(at, "d", &at));
    assert_ok(cz_state_dict_set_real(at, "lr", 0.1));
    char *text = through_text(dict);
    json_t *json = json_loads(text, 0, NULL);
    json_t *deeper = json_pack("{s:o}", "d", json);
    assert_int_equal(cz__dict_from_json(&back, deeper, "FILE", NULL, NULL), CZ_ERR_FORMAT);
    assert_non_null(strstr(cz_last_error(), "FILE: 'd/d/d/d/d/"));
    assert_non_null(strstr(cz_last_error(), "nested too deep, there are at most 64 levels"));
    assert_null(back);
    json_decref(deeper);
    free(text);
    cz_state_dict_destroy(&dict);
}

/* It is levels that are counted, not dictionaries. */
TEST(many_beside_each_other)
{
    cz_state_dict *dict = new_dict(), *child;
    char key[24];
    for (int i = 0; i < 3 * CZ_STATE_MAX_DEPTH; i++) {
        snprintf(key, sizeof key, "%d", i);
        assert_ok(cz_state_dict_add_dict(dict, key, &child));
        assert_ok(cz_state_dict_set_integer(child, key, i));
    }
    free(through_text(dict));
    cz_state_dict_destroy(&dict);
}

TEST(no_prefix_no_visitor_no_dictionary)
{
    cz_state_dict *dict = new_sample();
    json_t *json = NULL;
    assert_ok(cz__dict_to_json(&json, dict, NULL, NULL, NULL));
    const json_t *w1 = json_object_get(json_object_get(json, "state"), "w1");
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(w1, "exp_avg"), "$tensor")),
        "state/w1/exp_avg");
    json_decref(json);
    assert_ok(cz__dict_to_json(&json, NULL, "x", NULL, NULL));
    assert_true(json_is_object(json) && json_object_size(json) == 0);
    json_decref(json);
    cz_state_dict_destroy(&dict);
}

static cz_status stop(const char *name, const cz_tensor *tensor, void *context)
{
    return cz_fail(CZ_ERR_STATE, "no room for %s", name);
}

static cz_status stop_bringing(const char *name, cz_state_dict *dict, const char *key,
                               void *context)
{
    return cz_fail(CZ_ERR_IO, "%s cannot be had for %s", name, key);
}

TEST(what_callbacks_say_is_returned)
{
    cz_state_dict *dict = new_sample(), *back = (cz_state_dict *)0x1;
    json_t *json = (json_t *)0x1;
    assert_int_equal(cz__dict_to_json(&json, dict, "a/", stop, NULL), CZ_ERR_STATE);
    assert_string_equal(cz_last_error(), "no room for a/state/w1/exp_avg");
    assert_null(json);
    assert_ok(cz__dict_to_json(&json, dict, "a/", NULL, NULL));
    assert_int_equal(cz__dict_from_json(&back, json, "FILE", stop_bringing, NULL), CZ_ERR_IO);
    assert_string_equal(cz_last_error(), "a/state/w1/exp_avg cannot be had for exp_avg");
    assert_null(back);
    json_decref(json);
    cz_state_dict_destroy(&dict);
}

TEST(texts_that_json_cannot_have)
{
    const char *const texts[] = {"good", "bad \xff"};
    cz_state_dict *dict = new_dict(), *child;
    json_t *json = (json_t *)0x1;
    assert_ok(cz_state_dict_add_dict(dict, "a", &child));
    assert_ok(cz_state_dict_set_text(child, "b", texts[1]));
    assert_int_equal(cz__dict_to_json(&json, dict, "", NULL, NULL), CZ_ERR_ARGUMENT);
    assert_string_equal(cz_last_error(), "state dictionary: 'a/b' holds a text that is not UTF-8");
    assert_null(json);
    assert_ok(cz_state_dict_set_texts(child, "b", texts, 2));
    assert_int_equal(cz__dict_to_json(&json, dict, "", NULL, NULL), CZ_ERR_ARGUMENT);
    assert_ok(cz_state_dict_set_integer(child, "b", 1));
    assert_ok(cz_state_dict_set_integer(child, "\xc3", 1));
    assert_int_equal(cz__dict_to_json(&json, dict, "p", NULL, NULL), CZ_ERR_ARGUMENT);
    assert_string_equal(cz_last_error(), "state dictionary: 'a/?' has a key that is not UTF-8");
    assert_int_equal(cz__dict_to_json(&json, child, "\x80", NULL, NULL), CZ_ERR_ARGUMENT);
    cz_state_dict_destroy(&dict);
}

TEST(what_is_no_dictionary)
{
    static const struct {
        const char *json, *sentence;
    } wrong[] = {
        {"[]", "FILE: the dictionary is something else than an object"},
        {"1", "FILE: the dictionary is something else than an object"},
        {"null", "FILE: the dictionary is something else than an object"},
        {"{\"$tensor\":\"a\"}", "FILE: the dictionary is something else than an object"},
        {"{\"$real\":\"nan\"}", "FILE: the dictionary is something else than an object"},
        {"{\"a\":1,\"$b\":1}", "FILE: the dictionary is something else than an object"},
        {"{\"\":1}", "FILE: the dictionary has an empty key"},
        {"{\"a\":{\"\":1}}", "FILE: 'a' has an empty key"},
        {"{\"a\":{\"b\":true}}", "FILE: 'a/b' is true, false or null, which no value is"},
        {"{\"a\":false}", "FILE: 'a' is true, false or null, which no value is"},
        {"{\"a\":null}", "FILE: 'a' is true, false or null, which no value is"},
        {"{\"a\":[1]}", "FILE: 'a' is a list with something else than a text in it"},
        {"{\"a\":[\"b\",[]]}", "FILE: 'a' is a list with something else than a text in it"},
        {"{\"a\":[\"b\\u0000\"]}", "FILE: 'a' is a list with something else than a text in it"},
        {"{\"a\":\"b\\u0000c\"}", "FILE: 'a' is a text with a NUL in it"},
        {"{\"a\":{\"$\":1}}", "FILE: 'a' has a key with a single $"},
        {"{\"a\":{\"$int\":1}}", "FILE: 'a' has a key with a single $"},
        {"{\"a\":{\"$tensor\":1}}", "FILE: 'a' has a key with a single $"},
        {"{\"a\":{\"$tensor\":\"x\\u0000\"}}", "FILE: 'a' has a key with a single $"},
        {"{\"a\":{\"$real\":1.0}}", "FILE: 'a' has a key with a single $"},
        {"{\"a\":{\"b\":1,\"$real\":\"nan\"}}", "FILE: 'a' has a key with a single $"},
        {"{\"a\":{\"$real\":\"nan\",\"$tensor\":\"x\"}}", "FILE: 'a' has a key with a single $"},
        {"{\"a\":{\"$tensor\":\"x\"}}", "FILE: 'a' is a tensor, where none can be"},
        {"{\"a\":{\"$real\":\"\"}}", "FILE: 'a' is a \"$real\" other than"},
        {"{\"a\":{\"$real\":\"1.5\"}}", "FILE: 'a' is a \"$real\" other than"},
        {"{\"a\":{\"$real\":\"NaN\"}}", "FILE: 'a' is a \"$real\" other than"},
        {"{\"a\":{\"$real\":\"0x7ff8\"}}", "FILE: 'a' is a \"$real\" other than"},
        {"{\"a\":{\"$real\":\"0x7FF8000000000001\"}}", "FILE: 'a' is a \"$real\" other than"},
        {"{\"a\":{\"$real\":\"0x7ff80000000000011\"}}", "FILE: 'a' is a \"$real\" other than"},
        {"{\"a\":{\"$real\":\" 0x7ff8000000000001\"}}", "FILE: 'a' is a \"$real\" other than"},
        {"{\"a\":{\"$real\":\"0x7ff0000000000000\"}}", "FILE: 'a' is a \"$real\" other than"},
        {"{\"a\":{\"$real\":\"0x3ff0000000000000\"}}", "FILE: 'a' is a \"$real\" other than"},
        {"{\"\\u001b[0m\":null}", "FILE: '?[0m' is true"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        json_t *json = json_loads(wrong[i].json, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        cz_state_dict *dict = (cz_state_dict *)0x1;
        assert_non_null(json);
        if (cz__dict_from_json(&dict, json, "FILE", NULL, NULL) != CZ_ERR_FORMAT)
            fail_msg("%s was not refused", wrong[i].json);
        if (strncmp(cz_last_error(), wrong[i].sentence, strlen(wrong[i].sentence)) != 0)
            fail_msg("%s is refused with %s", wrong[i].json, cz_last_error());
        assert_null(dict);
        json_decref(json);
    }
    cz_state_dict *dict;
    assert_int_equal(cz__dict_from_json(&dict, NULL, "FILE", NULL, NULL), CZ_ERR_FORMAT);
}

/* One allocation after the other fails, of the library's or of jansson's. */
TEST(without_memory)
{
    cz_state_dict *dict = new_sample(), *kept = new_dict();
    json_t *json = NULL;
    assert_ok(cz_state_dict_set_integer(dict, "$x", 1));
    assert_ok(cz__dict_to_json(&json, dict, "at:", keep, kept));
    json_decref(json);
    const int64_t held = cz_test_allocations_held();
    for (int whose = 0; whose < 2; whose++)
        for (int64_t n = 1;; n++) {
            cz_state_dict *back = NULL;
            cz_test_fail_allocation(whose == 0 ? n : 0);
            json_fail_allocation(whose == 1 ? (long)n : 0);
            json = NULL;
            cz_status status = cz__dict_to_json(&json, dict, "at:", NULL, NULL);
            assert_true((status == CZ_OK) == (json != NULL));
            THEN(cz__dict_from_json(&back, json, "FILE", bring, kept));
            assert_true((status == CZ_OK) == (back != NULL));
            const bool failed = cz_test_allocation_reset() + json_allocation_reset() > 0;
            assert_int_equal(status, failed ? CZ_ERR_MEMORY : CZ_OK);
            assert_true(failed || cz_state_dict_equal(dict, back));
            json_decref(json);
            cz_state_dict_destroy(&back);
            assert_int_equal(cz_test_allocations_held(), held);
            assert_int_equal(json_held, 0);
            if (!failed)
                break;
        }
    cz_state_dict_destroy(&dict);
    cz_state_dict_destroy(&kept);
}
