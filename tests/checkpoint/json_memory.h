/* SPDX-License-Identifier: MIT */
/* Allocations of jansson that fail, beside those of the library (cz_test.h): jansson has an
 * allocator of its own, which belongs to the program, here the test. */
#ifndef CZ_TESTS_CHECKPOINT_JSON_MEMORY_H
#define CZ_TESTS_CHECKPOINT_JSON_MEMORY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>

static long json_until_failure; /* 1: the next one fails; 0 and below: none */
static bool json_failed;
static long json_held;

static void *json_test_malloc(size_t bytes)
{
    if (json_until_failure > 0 && --json_until_failure == 0) {
        json_failed = true;
        return NULL;
    }
    void *memory = malloc(bytes);
    json_held += memory != NULL;
    return memory;
}

static void json_test_free(void *memory)
{
    json_held -= memory != NULL;
    free(memory);
}

/* The n-th allocation from now on fails (1: the next); 0: none. */
static inline void json_fail_allocation(long n)
{
    json_set_alloc_funcs(json_test_malloc, json_test_free);
    json_failed = false;
    json_until_failure = n;
}

/* No more of that; did it fail meanwhile? */
static inline bool json_allocation_reset(void)
{
    json_until_failure = 0;
    return json_failed;
}

#endif
