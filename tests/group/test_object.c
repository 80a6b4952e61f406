/* SPDX-License-Identifier: MIT */
/* Objects: bytes of a length that only the root knows, of many lengths from every root; and what is
 * wrong with one rank's arguments, or with its memory, is seen by all. */
#include "group/group_test.h"

static const size_t lengths[] = {0, 1, 7, 64, 1000, 300001, 3};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static unsigned char byte_of(int root, size_t i)
{
    return (unsigned char)mix((uint64_t)root * 1000003 + i);
}

static cz_status check_object(int root, size_t bytes, const void *out, size_t out_bytes)
{
    CHECK(out_bytes == bytes, "root %d: %zu bytes, not %zu", root, out_bytes, bytes);
    for (size_t i = 0; i < bytes; i++)
        CHECK(((const unsigned char *)out)[i] == byte_of(root, i), "root %d: byte %zu of %zu", root,
              i, bytes);
    return CZ_OK;
}

/* Only the root has an object; the others give nonsense that must not be looked at. */
static cz_status send_object(cz_group *group, int root, size_t bytes)
{
    const bool here = cz_group_rank(group) == root;
    unsigned char *object = here && bytes ? malloc(bytes) : NULL;
    void *out = &out;
    size_t out_bytes = 99;
    for (size_t i = 0; object && i < bytes; i++)
        object[i] = byte_of(root, i);
    cz_status status =
        cz_broadcast_object(group, object, here ? bytes : SIZE_MAX - bytes, root, &out, &out_bytes);
    free(object); /* what came out is a copy, on the root too */
    THEN(check_object(root, bytes, out, out_bytes));
    cz_object_free(out);
    return status;
}

static cz_status each_rank(cz_group *group, void *arg)
{
    const int size = cz_group_size(group);
    for (int i = 0; i < LENGTHS; i++)
        for (int root = i % 2; root < size; root += 2) /* every other one, in turn */
            CZ_TRY(send_object(group, root, lengths[(i + root) % LENGTHS]));
    return CZ_OK;
}

TEST(lengths_and_roots)
{
    for (int world = 1; world <= LARGEST_WORLD; world++) {
        expect_ok(world, 0, each_rank, NULL);
        expect_ok(world, 64 * 50, each_rank, NULL);
    }
}

typedef enum fault { NULL_OBJECT, OTHER_ROOT, ROOT_OUTSIDE, OTHER_CALL, FAULTS } fault;

static cz_status call(cz_group *group, fault wrong, bool odd, void **out, size_t *bytes)
{
    char object[] = "object";
    const int rank = cz_group_rank(group), size = cz_group_size(group);
    if (wrong == NULL_OBJECT) /* the odd one is the root */
        return cz_broadcast_object(group, NULL, 3, odd ? rank : -1, out, bytes);
    if (odd && wrong == OTHER_CALL)
        return cz_barrier(group, NULL);
    const int root = wrong == ROOT_OUTSIDE ? size : odd && wrong == OTHER_ROOT ? 1 : 0;
    return cz_broadcast_object(group, object, sizeof object, root, out, bytes);
}

static cz_status each_rank_wrong(cz_group *group, void *arg)
{
    for (int wrong = 0; wrong < FAULTS; wrong++)
        for (int odd = 0; odd < cz_group_size(group); odd++) {
            void *out = NULL;
            size_t bytes = 0;
            outcome got;
            note(&got, call(group, (fault)wrong, cz_group_rank(group) == odd, &out, &bytes));
            const bool right = wrong == NULL_OBJECT || wrong == ROOT_OUTSIDE
                                   ? got.status == CZ_ERR_ARGUMENT
                                   : got.status == CZ_ERR_MISMATCH;
            CHECK(right && !out && !bytes, "fault %d of rank %d: %s: %s, %p, %zu", wrong, odd,
                  cz_status_name(got.status), got.sentence, out, bytes);
        }
    return send_object(group, 0, 100);
}

TEST(wrong_arguments)
{
    for (int world = 2; world <= 5; world++)
        expect_ok(world, 0, each_rank_wrong, NULL);
}

TEST(local_errors)
{
    cz_group *group = NULL;
    void *out = NULL;
    size_t bytes = 0;
    assert_ok(cz_group_create_self(&group, NULL));
    assert_int_equal(cz_broadcast_object(group, "x", 1, 0, NULL, &bytes), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_broadcast_object(group, "x", 1, 0, &out, NULL), CZ_ERR_ARGUMENT);
    assert_non_null(strstr(cz_last_error(), "out_bytes is NULL"));
    assert_ok(cz_broadcast_object(group, NULL, 0, 0, &out, &bytes));
    assert_int_equal(bytes, 0);
    cz_object_free(out);
    cz_object_free(NULL);
    cz_group_destroy(&group);
}

/* Every allocation made to fail in turn: all ranks get an error and nothing leaks. */
static cz_status one_object(cz_group *group, void *arg)
{
    return send_object(group, 1, 5000);
}

TEST(no_memory)
{
    const int64_t held = cz_test_allocations_held();
    for (int64_t n = 1;; n++) {
        cz_group *groups[3];
        outcome outcomes[3];
        assert_ok(cz_group_create_threads(groups, 3, NULL));
        cz_test_fail_allocation(n);
        run_groups(3, groups, one_object, NULL, outcomes);
        const bool failed = cz_test_allocation_reset();
        for (int r = 0; r < 3; r++)
            if (failed ? outcomes[r].status != CZ_ERR_MEMORY && outcomes[r].status != CZ_ERR_PEER
                       : outcomes[r].status != CZ_OK)
                fail_msg("allocation %d, rank %d: %s: %s", (int)n, r,
                         cz_status_name(outcomes[r].status), outcomes[r].sentence);
        assert_int_equal(cz_test_allocations_held(), held);
        if (!failed)
            break;
    }
}
