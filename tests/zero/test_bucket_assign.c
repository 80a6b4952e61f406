/* SPDX-License-Identifier: MIT */
/* Which rank owns what of which bucket: the recorded cases, to the end where the recording stops
 * with an assertion; and any buckets at all. */
#include "zero/deal.h"

#include <stdio.h>
#include <string.h>

#include "support/cz_test.h"

enum { MOST = 64, RANKS = 64 };

typedef struct buckets {
    cz__bucket_lists lists;
    int world_size;
    int64_t begins[MOST + 1], params[MOST], elements[MOST];
    int owners[MOST];
    int64_t order[MOST], loads[RANKS];
} buckets;

static void add_bucket(buckets *b, const int64_t *elements, int64_t count)
{
    const int64_t begin = b->begins[b->lists.count];
    assert_true(begin + count <= MOST);
    for (int64_t k = 0; k < count; k++) {
        b->params[begin + k] = begin + k;
        b->elements[begin + k] = elements[k];
        b->owners[begin + k] = -1;
        b->order[begin + k] = -1;
    }
    b->begins[++b->lists.count] = begin + count;
    b->lists.begins = b->begins;
    b->lists.params = b->params;
    b->lists.elements = b->elements;
}

static void open_case(buckets *b, const cz_test_case *c)
{
    *b = (buckets){.world_size = (int)*cz_test_case_i64(c, "world_size", NULL)};
    for (;;) {
        char key[32];
        int64_t count;
        snprintf(key, sizeof key, "bucket%d.numel", b->lists.count);
        const int64_t *elements = cz_test_case_i64(c, key, &count);
        if (!elements)
            break;
        add_bucket(b, elements, count);
    }
    assert_true(b->lists.count > 0);
}

/* The recorded piece number `piece` of a kind; NULL: there are no more. */
static const int64_t *recorded(const cz_test_case *c, const char *kind, int piece)
{
    char key[32];
    int64_t count;
    snprintf(key, sizeof key, "%s.piece%d", kind, piece);
    const int64_t *values = cz_test_case_i64(c, key, &count);
    assert_true(!values || count == 4);
    return values;
}

/* The recorded pieces, in their order; after a failure the last one has all that follows in its
 * bucket. Returns how many parameters were compared. */
static int64_t compare(const buckets *b, const cz_test_case *c, const char *kind, bool fails,
                       bool ordered)
{
    int64_t compared = 0;
    for (int piece = 0; recorded(c, kind, piece); piece++) {
        const int64_t *p = recorded(c, kind, piece);
        const int64_t begin = b->begins[p[0]] + p[2];
        const bool cut_short = fails && !recorded(c, kind, piece + 1);
        const int64_t end = cut_short ? b->begins[p[0] + 1] : begin + p[3];
        for (int64_t k = begin; k < end; k++, compared++) {
            if (b->owners[k] != p[1])
                fail_msg("%s, %s piece %d: rank %d, wanted %d", cz_test_case_name(c), kind, piece,
                         b->owners[k], (int)p[1]);
            if (ordered)
                assert_int_equal(b->order[compared], k);
        }
    }
    return compared;
}

/* All are assigned, nobody has two pieces of a bucket, loads are what was dealt out. */
static void check_pieces(const buckets *b)
{
    const int64_t total = b->begins[b->lists.count];
    int64_t loads[RANKS] = {0};
    bool dealt[MOST] = {false};
    for (int k = 0; k < b->lists.count; k++) {
        bool has_piece[RANKS] = {false};
        for (int64_t p = b->begins[k]; p < b->begins[k + 1]; p++) {
            const int owner = b->owners[p];
            assert_in_range(owner, 0, b->world_size - 1);
            if (p > b->begins[k] && owner == b->owners[p - 1])
                assert_true(has_piece[owner]);
            else
                assert_false(has_piece[owner]);
            has_piece[owner] = true;
            loads[owner] += b->elements[p];
        }
    }
    for (int64_t k = 0; k < total; k++) {
        assert_in_range(b->order[k], 0, total - 1);
        assert_false(dealt[b->order[k]]);
        dealt[b->order[k]] = true;
    }
    for (int r = 0; r < b->world_size; r++)
        assert_int_equal(loads[r], b->loads[r]);
}

static void check_case(const cz_test_case *c, int *failing)
{
    buckets b;
    open_case(&b, c);
    const int64_t total = b.begins[b.lists.count];
    cz__assign_whole_buckets(&b.lists, b.world_size, b.owners);
    assert_int_equal(*cz_test_case_i64(c, "whole.error", NULL), 0);
    assert_int_equal(compare(&b, c, "whole", false, false), total);
    const bool fails = *cz_test_case_i64(c, "sharded.error", NULL) != 0;
    assert_ok(cz__assign_bucket_pieces(&b.lists, b.world_size, b.loads, b.owners, b.order));
    const int64_t compared = compare(&b, c, "sharded", fails, true);
    if (!fails)
        assert_int_equal(compared, total);
    check_pieces(&b);
    *failing += fails;
}

TEST(recorded_cases)
{
    cz_test_gold *gold = cz_test_gold_open("overlap_assign.gold");
    int failing = 0;
    assert_non_null(gold);
    for (int64_t k = 0; k < cz_test_gold_count(gold); k++)
        check_case(cz_test_gold_case(gold, k), &failing);
    assert_true(failing >= 3 && cz_test_gold_count(gold) >= 9);
    cz_test_gold_close(&gold);
}

TEST(any_buckets)
{
    for (uint64_t seed = 1; seed < 400; seed++) {
        const int count = (int)(seed % 7);
        int64_t sizes[8];
        buckets b = {.world_size = 1 + (int)(seed * 5 % 11)};
        b.lists.begins = b.begins;
        for (int k = 0; k < count; k++) {
            const int64_t members = (int64_t)(seed + (uint64_t)k * 3) % 9; /* empty buckets too */
            cz_test_sizes(seed * 10 + (uint64_t)k, members < 8 ? members : 8, 1000, sizes);
            add_bucket(&b, sizes, members < 8 ? members : 8);
        }
        assert_ok(cz__assign_bucket_pieces(&b.lists, b.world_size, b.loads, b.owners, b.order));
        check_pieces(&b);
    }
}

TEST(no_memory)
{
    static const int64_t sizes[] = {5, 6, 7};
    for (int64_t n = 1;; n++) {
        buckets b = {.world_size = 2};
        add_bucket(&b, sizes, 3);
        cz_test_fail_allocation(n);
        const cz_status status =
            cz__assign_bucket_pieces(&b.lists, b.world_size, b.loads, b.owners, b.order);
        if (!cz_test_allocation_reset()) {
            assert_ok(status);
            assert_int_equal(cz_test_allocations_held(), 0);
            return;
        }
        assert_int_equal(status, CZ_ERR_MEMORY);
        assert_int_equal(b.owners[0], -1);
        assert_int_equal(b.loads[0], 0);
    }
}
