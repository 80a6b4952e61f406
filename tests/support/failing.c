/* SPDX-License-Identifier: MIT */
/* Allocations that fail when a test says so. */
#include <stdlib.h>

#include "czero/base.h"
#include "support/failing.h"

static _Thread_local long left; /* allocations until the one that fails; 0 or less: none will */

static void *allocate(size_t bytes, size_t alignment, void *context)
{
    if (left > 0 && --left == 0)
        return NULL;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void release(void *memory, size_t bytes, void *context)
{
    free(memory);
}

bool cz_test_failing_begin(void)
{
    const cz_allocator allocator = {allocate, release, NULL};
    return cz_set_allocator(&allocator) == CZ_OK;
}

bool cz_test_failing_end(void)
{
    left = 0;
    return cz_set_allocator(NULL) == CZ_OK;
}

void cz_test_fail_allocation(long n)
{
    left = n;
}

bool cz_test_allocation_failed(void)
{
    return left == 0;
}
