/* SPDX-License-Identifier: MIT */
/* Memory that ranks share: one block for all, counted once, gone with the last handle; what one
 * rank cannot have, none has. */
#include <sys/resource.h>

#include "group/group_test.h"

#include "base/memory.h"
#include "czero/shared.h"
#include "collective/shared.h"

enum { BYTES = 3 * 1000 * 1000 + 7 };
/* Each writes its element, reads those of the others, and leaves in an order of its own. */
static cz_status write_and_read(cz_group *group)
{
    const int rank = cz_group_rank(group), size = cz_group_size(group);
    cz_shared *shared = NULL;
    void *block = shared;
    CZ_TRY(cz_shared_create(&shared, group, BYTES, &block));
    int *numbers = block;
    CHECK(numbers, "no block");
    CHECK((uintptr_t)numbers % 64 == 0, "not at a cache line");
    CHECK(((char *)numbers)[BYTES - 1] == 0, "not zero at its end");
    CZ_TRY(cz_barrier(group, NULL));
    numbers[rank] += rank + 1;
    CZ_TRY(cz_barrier(group, NULL));
    for (int r = 0; r < size; r++)
        CHECK(numbers[r] == r + 1, "rank %d reads %d of rank %d", rank, numbers[r], r);
    CHECK(cz__shared_by(group, numbers, BYTES), "rank %d does not find its block", rank);
    CHECK(!cz__shared_by(group, numbers, BYTES + 1), "rank %d finds more than its block", rank);
    CHECK(cz__shared_find((char *)numbers + 40, 8).offset == 40, "another place");
    CZ_TRY(cz_barrier(group, NULL));
    usleep((unsigned)(rank * 7 % size) * 300);
    numbers[rank] = 0; /* it is there as long as this rank has it */
    cz_shared_destroy(&shared);
    CHECK(!shared, "the handle is left");
    return CZ_OK;
}

static cz_status one_after_the_other(cz_group *group, void *context)
{
    for (int k = 0; k < 3; k++)
        CZ_TRY(write_and_read(group));
    return CZ_OK;
}

TEST(all_see_one)
{
    static const int worlds[] = {1, 2, 3, 5, 7};
    for (size_t k = 0; k < sizeof worlds / sizeof *worlds; k++)
        expect_ok(worlds[k], 0, one_after_the_other, NULL);
    cz_shared_destroy(NULL);
}

static cz_status count_bytes(cz_group *group, void *context)
{
    cz_shared *shared = NULL;
    CZ_TRY(cz_barrier(group, NULL));
    const size_t before = cz_memory_bytes(CZ_MEMORY_GENERAL);
    CZ_TRY(cz_barrier(group, NULL));
    CZ_TRY(cz_shared_create(&shared, group, BYTES, NULL));
    CZ_TRY(cz_barrier(group, NULL));
    const size_t now = cz_memory_bytes(CZ_MEMORY_GENERAL) - before;
    CHECK(now >= BYTES && now < BYTES + 100 * 1000, "%zu bytes more", now);
    CZ_TRY(cz_barrier(group, NULL));
    cz_shared_destroy(&shared);
    CZ_TRY(cz_barrier(group, NULL));
    const size_t after = cz_memory_bytes(CZ_MEMORY_GENERAL);
    CHECK(after < before + 100 * 1000, "%zu bytes are left", after - before);
    return cz_barrier(group, NULL);
}

TEST(counted_once)
{
    expect_ok(3, 0, count_bytes, NULL);
}

static cz_status other_sizes(cz_group *group, void *context)
{
    cz_shared *shared = NULL;
    const int rank = cz_group_rank(group), last = cz_group_size(group) - 1;
    const cz_status status = cz_shared_create(&shared, group, rank == last ? 64 : 128, NULL);
    CHECK(status == CZ_ERR_MISMATCH && strstr(cz_last_error(), "the size in bytes is 64 on rank") &&
              strstr(cz_last_error(), "128 on rank 0") && !shared,
          "sizes: %s", cz_last_error());
    CHECK(cz_shared_create(&shared, group, rank == last ? 0 : 128, NULL) == CZ_ERR_ARGUMENT &&
              !shared,
          "0 bytes on one rank: %s", cz_last_error());
    CHECK(cz_shared_create(rank == last ? NULL : &shared, group, 128, NULL) == CZ_ERR_ARGUMENT &&
              !shared,
          "out is NULL on one rank: %s", cz_last_error());
    return write_and_read(group);
}

TEST(refused_by_all)
{
    cz_shared *shared = NULL;
    expect_ok(3, 0, other_sizes, NULL);
    assert_int_equal(cz_shared_create(&shared, NULL, 64, NULL), CZ_ERR_ARGUMENT);
}

typedef struct trial {
    int64_t number;
    atomic_int failed, succeeded;
} trial;

/* Nobody has a block unless all have, whichever allocation fails. */
static cz_status without_memory(cz_group *group, void *context)
{
    trial *t = context;
    cz_shared *shared = NULL;
    CZ_TRY(cz_barrier(group, NULL));
    if (cz_group_rank(group) == 0)
        cz_test_fail_allocation(t->number);
    CZ_TRY(cz_barrier(group, NULL));
    const cz_status status = cz_shared_create(&shared, group, 4096, NULL);
    CHECK((status == CZ_OK) == (shared != NULL), "a status without its block");
    CHECK(status == CZ_OK || status == CZ_ERR_MEMORY, "%s", cz_last_error());
    atomic_fetch_add(status == CZ_OK ? &t->succeeded : &t->failed, 1);
    cz_shared_destroy(&shared);
    return CZ_OK;
}

TEST(no_memory)
{
    for (int64_t n = 1; n < 100; n++) {
        trial t = {.number = n};
        const int64_t held = cz_test_allocations_held();
        expect_ok(3, 0, without_memory, &t);
        const bool failed = cz_test_allocation_reset();
        assert_int_equal(atomic_load(&t.failed) % 3, 0);
        assert_int_equal(cz_test_allocations_held(), held);
        if (!failed)
            return;
    }
    fail_msg("it never has enough memory");
}

/* A block too large for any machine, and for the sums of its size. */
static cz_status too_large(cz_group *group, void *context)
{
    cz_shared *shared = NULL;
    CHECK(cz_shared_create(&shared, group, PTRDIFF_MAX, NULL) == CZ_ERR_MEMORY && !shared, "%s",
          cz_last_error());
    return write_and_read(group);
}

TEST(too_large)
{
    expect_ok(2, 0, too_large, NULL);
}

/* Where files may not be so large that is no memory, and not the end of the process. */
TEST(limit_of_files)
{
    struct rlimit before, small;
    cz__shared_file file = {.id = cz__shared_id()};
    void *data;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = BYTES / 2;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const cz_status status = cz__shared_file_create(&file, BYTES, &data);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, CZ_ERR_MEMORY);
    assert_non_null(strstr(cz_last_error(), "File too large"));
    assert_ok(cz__shared_file_create(&file, BYTES, &data));
    cz__shared_file_unmap(data, BYTES);
    cz__shared_file_close(&file);
}
