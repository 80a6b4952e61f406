/* SPDX-License-Identifier: MIT */
/* Many keys: all are found, whatever was removed before them. */
#include "state/sample.h"

#include <string.h>

enum { MANY = SANITIZED ? 100 * 1000 : 1000 * 1000 };

static const char *key_of(int64_t i)
{
    static char key[32];
    snprintf(key, sizeof key, "layers.%lld.weight", (long long)i);
    return key;
}

/* Each key as integer i, unless `gone` says that it was removed. */
static void check_all(const cz_state_dict *dict, const char *gone, int64_t count)
{
    int64_t there = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t value = -1;
        if (gone[i]) {
            if (cz_state_dict_kind(dict, key_of(i)) != CZ_STATE_NONE)
                fail_msg("key %lld is there still", (long long)i);
            continue;
        }
        if (cz_state_dict_get_integer(dict, key_of(i), &value) != CZ_OK || value != i)
            fail_msg("key %lld has value %lld", (long long)i, (long long)value);
        there++;
    }
    assert_int_equal(cz_state_dict_count(dict), there);
    for (int64_t i = 0; i < there; i++)
        if (cz_state_dict_kind(dict, cz_state_dict_key(dict, i)) != CZ_STATE_INTEGER)
            fail_msg("key number %lld is not found", (long long)i);
}

static void fill(cz_state_dict *dict, char *gone, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        assert_ok(cz_state_dict_set_integer(dict, key_of(i), i));
    memset(gone, 0, (size_t)count);
}

TEST(a_million_keys)
{
    char *gone = malloc(MANY);
    cz_state_dict *dict = new_dict(), *copy = NULL;
    fill(dict, gone, MANY);
    check_all(dict, gone, MANY);
    assert_ok(cz_state_dict_copy(&copy, dict));
    assert_true(cz_state_dict_equal(copy, dict));
    for (int64_t i = 0; i < MANY; i++)
        if (i % 3 != 1) { /* from the front: the dear end of a list */
            assert_ok(cz_state_dict_remove(copy, key_of(i)));
            gone[i] = 1;
        }
    check_all(copy, gone, MANY);
    fill(copy, gone, MANY); /* and they can come back */
    assert_true(cz_state_dict_equal(dict, copy));
    cz_state_dict_destroy(&copy);
    cz_state_dict_destroy(&dict);
    free(gone);
}

/* Around the size at which the table begins, every removal from every size. */
TEST(few_keys)
{
    char gone[20];
    for (int64_t count = 1; count <= 20; count++)
        for (int64_t first = 0; first < count; first++) {
            cz_state_dict *dict = new_dict();
            fill(dict, gone, count);
            for (int64_t k = 0; k < count; k++) {
                const int64_t i = (first + 7 * k) % count;
                if (!gone[i])
                    assert_ok(cz_state_dict_remove(dict, key_of(i)));
                gone[i] = 1;
                check_all(dict, gone, count);
            }
            fill(dict, gone, count);
            check_all(dict, gone, count);
            cz_state_dict_destroy(&dict);
        }
}
