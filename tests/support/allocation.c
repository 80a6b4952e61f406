/* SPDX-License-Identifier: MIT */
/* An allocator whose n-th allocation fails. Memory comes with a pattern, so that whoever forgets to
 * zero it is found; released memory gets another. */
#include "support/cz_test.h"

#include <stdatomic.h>
#include <string.h>

static atomic_llong until_failure; /* 1: the next one fails; 0 and below: none */
static atomic_bool failed;
static atomic_llong made, held;
static atomic_llong bytes_held, bytes_peak; /* with what the library puts before each block */
static _Thread_local int64_t thread_bytes, thread_peak;

static void count(int64_t bytes)
{
    const int64_t now = atomic_fetch_add(&bytes_held, bytes) + bytes;
    long long peak = atomic_load(&bytes_peak);
    while (peak < now && !atomic_compare_exchange_weak(&bytes_peak, &peak, now))
        ;
    thread_bytes += bytes;
    thread_peak = thread_peak > thread_bytes ? thread_peak : thread_bytes;
}

static void *allocate(size_t bytes, size_t alignment, void *context)
{
    void *memory = NULL;
    atomic_fetch_add(&made, 1);
    if (atomic_fetch_sub(&until_failure, 1) == 1) {
        atomic_store(&failed, true);
        return NULL;
    }
    if (posix_memalign(&memory, alignment, bytes) != 0)
        return NULL;
    atomic_fetch_add(&held, 1);
    count((int64_t)bytes);
    return memset(memory, 0xa5, bytes);
}

static void release(void *memory, size_t bytes, void *context)
{
    memset(memory, 0xdb, bytes);
    free(memory);
    count(-(int64_t)bytes);
    atomic_fetch_sub(&held, 1);
}

__attribute__((constructor)) static void install(void)
{
    const cz_allocator allocator = {sizeof(cz_allocator), allocate, release, NULL};
    CZ_CHECK(cz_set_allocator(&allocator));
}

void cz_test_fail_allocation(int64_t n)
{
    atomic_store(&failed, false);
    atomic_store(&until_failure, n);
}

bool cz_test_allocation_reset(void)
{
    atomic_store(&until_failure, 0);
    return atomic_load(&failed);
}

int64_t cz_test_allocations_held(void)
{
    return atomic_load(&held);
}

int64_t cz_test_allocations_made(void)
{
    return atomic_load(&made);
}

int64_t cz_test_allocation_bytes(void)
{
    return atomic_load(&bytes_held);
}

int64_t cz_test_allocation_peak(void)
{
    return atomic_load(&bytes_peak);
}

void cz_test_allocation_reset_peak(void)
{
    atomic_store(&bytes_peak, atomic_load(&bytes_held));
}

void cz_test_allocation_thread_begin(void)
{
    thread_bytes = thread_peak = 0;
}

int64_t cz_test_allocation_thread_peak(void)
{
    return thread_peak;
}
