/* SPDX-License-Identifier: MIT */
/* The table of a custom backend: what is refused, with which sentence and with whose endpoint;
 * older and newer tables; every allocation fails in turn. */
#include "group/group_test.h"
#include "group/internal.h"

static int times_left;

static void count_leave(void *endpoint, const char *why)
{
    times_left++;
}

static cz_backend counting(void)
{
    cz_backend table = cz__backend_self;
    table.name = "counting";
    table.leave = count_leave;
    return table;
}

/* `word`: what the sentence says. A refused table leaves the endpoint to its owner. */
static void refuse(const cz_backend *table, cz_status status, const char *word)
{
    cz_group *group = (cz_group *)(uintptr_t)table;
    int endpoint = 0;
    times_left = 0;
    assert_int_equal(cz_group_create_custom(&group, 0, 1, table, &endpoint, NULL), status);
    assert_null(group);
    assert_int_equal(times_left, 0);
    if (!strstr(cz_last_error(), word))
        fail_msg("\"%s\" does not say \"%s\"", cz_last_error(), word);
}

TEST(tables_without_a_required_entry_are_refused)
{
    static const struct {
        const char *name;
        size_t offset;
    } required[] = {{"start", offsetof(cz_backend, start)},
                    {"post_send", offsetof(cz_backend, post_send)},
                    {"post_receive", offsetof(cz_backend, post_receive)},
                    {"test", offsetof(cz_backend, test)},
                    {"withdraw", offsetof(cz_backend, withdraw)},
                    {"break_group", offsetof(cz_backend, break_group)},
                    {"broken", offsetof(cz_backend, broken)},
                    {"announce", offsetof(cz_backend, announce)},
                    {"announced", offsetof(cz_backend, announced)},
                    {"leave", offsetof(cz_backend, leave)},
                    {"name", offsetof(cz_backend, name)}};
    for (size_t i = 0; i < sizeof required / sizeof *required; i++) {
        cz_backend bad = counting();
        char word[32];
        memset((char *)&bad + required[i].offset, 0, sizeof(void *));
        snprintf(word, sizeof word, "'%s'", required[i].name);
        refuse(&bad, CZ_ERR_ARGUMENT, word);
        refuse(&bad, CZ_ERR_ARGUMENT, bad.name ? "'counting'" : "'?'");
    }
}

TEST(versions_and_sizes)
{
    cz_backend bad = counting();
    bad.abi = CZ_BACKEND_ABI + 1;
    refuse(&bad, CZ_ERR_UNSUPPORTED, "ABI 2, this library has 1");
    bad.size = 0; /* of another version nothing else is looked at */
    refuse(&bad, CZ_ERR_UNSUPPORTED, "ABI 2");
    for (size_t size = 0; size < offsetof(cz_backend, poll); size++) {
        char word[32];
        bad = counting();
        bad.size = size;
        snprintf(word, sizeof word, "has %zu bytes", size);
        refuse(&bad, CZ_ERR_ARGUMENT, word);
    }
    bad = counting();
    bad.inline_only = true;
    refuse(&bad, CZ_ERR_ARGUMENT, "needs poll");
}

static void poll_nothing(void *endpoint)
{
}

static int unknown_called;

static void unknown(void *endpoint)
{
    unknown_called++;
}

/* A newer table is longer, an older one ends before some optional entry, or in the middle of one;
 * what is behind its end is not looked at. */
TEST(other_lengths)
{
    struct {
        cz_backend table;
        void (*unknown)(void *endpoint);
        char more[64];
    } newer = {.table = counting(), .unknown = unknown};
    newer.table.poll = poll_nothing;
    for (size_t size = offsetof(cz_backend, poll); size <= sizeof newer; size++) {
        cz_group *group = NULL, *sub = NULL;
        int endpoint = 0, value = 4;
        newer.table.size = size;
        times_left = 0;
        assert_ok(cz_group_create_custom(&group, 0, 1, &newer.table, &endpoint, NULL));
        assert_ok(cz_all_reduce(group, &value, 1, CZ_I32, CZ_SUM, NULL));
        assert_int_equal(cz_group_split(group, 0, 0, &sub),
                         size >= offsetof(cz_backend, all_reduce) ? CZ_OK : CZ_ERR_UNSUPPORTED);
        cz_group_destroy(&sub);
        cz_group_destroy(&group);
        assert_int_equal(times_left, size >= offsetof(cz_backend, all_reduce) ? 2 : 1);
    }
    assert_int_equal(unknown_called, 0);
}

/* Here the endpoint is left. */
TEST(wrong_places)
{
    static const int places[][2] = {{1, 1}, {-1, 1}, {0, 0}, {0, -1}, {5, 4}, {0, 4097}};
    const cz_backend table = counting();
    int endpoint = 0;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        cz_group *group = NULL;
        char word[32];
        times_left = 0;
        snprintf(word, sizeof word, "rank %d of %d", places[i][0], places[i][1]);
        assert_int_equal(
            cz_group_create_custom(&group, places[i][0], places[i][1], &table, &endpoint, NULL),
            CZ_ERR_ARGUMENT);
        assert_non_null(strstr(cz_last_error(), word));
        assert_true(!group && times_left == 1);
    }
    cz_group *group = NULL;
    const cz_group_options bad = {.size = sizeof bad, .segment_bytes = 65};
    assert_int_equal(cz_group_create_custom(&group, 0, 1, &table, &endpoint, &bad),
                     CZ_ERR_ARGUMENT);
    assert_true(!group && times_left == 2);
}

TEST(no_memory)
{
    const cz_backend table = counting();
    const int64_t held = cz_test_allocations_held();
    bool failed = true;
    for (int64_t n = 1; failed; n++) {
        cz_group *group = NULL;
        int endpoint = 0;
        times_left = 0;
        cz_test_fail_allocation(n);
        const cz_status status = cz_group_create_custom(&group, 0, 1, &table, &endpoint, NULL);
        failed = cz_test_allocation_reset();
        assert_int_equal(status, failed ? CZ_ERR_MEMORY : CZ_OK);
        assert_int_equal(times_left, failed);
        cz_group_destroy(&group);
        assert_int_equal(times_left, 1);
        assert_int_equal(cz_test_allocations_held(), held);
    }
}
