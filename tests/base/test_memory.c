/* SPDX-License-Identifier: MIT */
/* Host memory: zeroed, aligned, counted per kind, and from the program's allocator if it has
 * one. */
#include "support/cz_test.h"

#include "base/memory.h"

#include <pthread.h>
#include <string.h>

static bool is_zero(const void *memory, size_t bytes)
{
    const unsigned char *byte = memory;
    for (size_t i = 0; i < bytes; i++)
        if (byte[i])
            return false;
    return true;
}

TEST(zeroed_and_aligned)
{
    static const size_t sizes[] = {
        0, 1, 63, 64, 65, 4096, (2u << 20) - 1, 2u << 20, (5u << 20) + 3};
    for (int again = 0; again < 2; again++) /* the second time from memory that was used */
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            void *block = cz__allocate(CZ_MEMORY_STAGING, sizes[i]);
            assert_non_null(block);
            assert_int_equal((uintptr_t)block % 64, 0);
            assert_true(is_zero(block, sizes[i]));
            memset(block, 0xff, sizes[i]);
            cz__free(block);
        }
    assert_int_equal(cz_memory_bytes(CZ_MEMORY_STAGING), 0);
}

TEST(empty_blocks_are_distinct)
{
    void *a = cz__calloc(0, 8), *b = cz__calloc(8, 0);
    assert_non_null(a);
    assert_non_null(b);
    assert_ptr_not_equal(a, b);
    cz__free(a);
    cz__free(b);
    cz__free(NULL);
}

TEST(sizes_that_do_not_fit)
{
    const size_t before = cz_memory_bytes(CZ_MEMORY_GENERAL);
    assert_null(cz__calloc(SIZE_MAX / 2, 3));
    assert_null(cz__calloc((size_t)1 << 32, (size_t)1 << 32));
    assert_null(cz__allocate(CZ_MEMORY_GENERAL, SIZE_MAX));
    assert_null(cz__allocate(CZ_MEMORY_GENERAL, SIZE_MAX - 63));
    assert_null(cz__allocate(CZ_MEMORY_GENERAL, PTRDIFF_MAX));
    assert_int_equal(cz_memory_bytes(CZ_MEMORY_GENERAL), before);
}

TEST(text_is_copied)
{
    char text[] = "layer.0";
    char *copy = cz__strdup(text);
    text[0] = '?';
    assert_string_equal(copy, "layer.0");
    cz__free(copy);
}

TEST(counters_per_kind)
{
    cz_memory_reset_peak();
    void *a = cz__allocate(CZ_MEMORY_STATE, 1000);
    void *b = cz__allocate(CZ_MEMORY_STATE, 24);
    void *c = cz__allocate(CZ_MEMORY_GRADIENT, 7);
    assert_int_equal(cz_memory_bytes(CZ_MEMORY_STATE), 1024);
    assert_int_equal(cz_memory_bytes(CZ_MEMORY_GRADIENT), 7);
    cz__free(a);
    assert_int_equal(cz_memory_bytes(CZ_MEMORY_STATE), 24);
    assert_int_equal(cz_memory_peak_bytes(CZ_MEMORY_STATE), 1024);
    cz_memory_reset_peak();
    assert_int_equal(cz_memory_peak_bytes(CZ_MEMORY_STATE), 24);
    cz__free(b);
    cz__free(c);
    assert_int_equal(cz_memory_bytes(CZ_MEMORY_STATE), 0);
    assert_int_equal(cz_memory_bytes(CZ__MEMORY_KINDS), 0);
    assert_int_equal(cz_memory_peak_bytes((cz_memory_kind)-1), 0);
}

#define THREADS 4

static void *hold_and_release(void *barrier)
{
    for (int i = 0; i < 2000; i++)
        cz__free(cz__allocate(CZ_MEMORY_STATE, 10));
    void *block = cz__allocate(CZ_MEMORY_STATE, 100);
    pthread_barrier_wait(barrier); /* all hold one */
    cz__free(block);
    return NULL;
}

TEST(counters_of_threads_add_up)
{
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, THREADS);
    cz_memory_reset_peak();
    for (int t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, hold_and_release, &barrier), 0);
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    pthread_barrier_destroy(&barrier);
    assert_int_equal(cz_memory_bytes(CZ_MEMORY_STATE), 0);
    assert_int_equal(cz_memory_peak_bytes(CZ_MEMORY_STATE), 100 * THREADS);
}

typedef struct own {
    int allocated;
    int released;
    size_t bytes;
    size_t alignment;
    bool refuse;
} own;

static void *own_allocate(size_t bytes, size_t alignment, void *context)
{
    own *o = context;
    void *memory = NULL;
    if (o->refuse || posix_memalign(&memory, alignment, bytes) != 0)
        return NULL;
    o->allocated++;
    o->bytes = bytes;
    o->alignment = alignment;
    return memset(memory, 0xa5, bytes);
}

static void own_release(void *memory, size_t bytes, void *context)
{
    own *o = context;
    o->released += bytes == o->bytes;
    free(memory);
}

TEST(the_programs_allocator)
{
    own o = {0};
    const cz_allocator allocator = {sizeof(cz_allocator), own_allocate, own_release, &o};
    const cz_allocator without[] = {{sizeof(cz_allocator), own_allocate, NULL, &o},
                                    {sizeof(cz_allocator), NULL, own_release, &o}};
    assert_int_equal(cz_set_allocator(&without[0]), CZ_ERR_ARGUMENT);
    assert_string_equal(cz_last_error(), "set_allocator: release is NULL");
    assert_int_equal(cz_set_allocator(&without[1]), CZ_ERR_ARGUMENT);
    assert_ok(cz_set_allocator(&allocator));

    void *block = cz__calloc(3, 100);
    assert_true(o.bytes >= 300 && o.alignment >= 64);
    assert_true(is_zero(block, 300));
    cz__free(block);
    assert_int_equal(o.allocated, 1);
    assert_int_equal(o.released, 1);

    const size_t before = cz_memory_bytes(CZ_MEMORY_GENERAL);
    o.refuse = true;
    assert_null(cz__calloc(1, 1));
    assert_null(cz__strdup("x"));
    assert_int_equal(cz_memory_bytes(CZ_MEMORY_GENERAL), before);
    assert_ok(cz_set_allocator(NULL));
    cz__free(cz__calloc(1, 1));
    assert_int_equal(o.allocated, 1);
}

TEST(no_other_allocator_while_blocks_are_held)
{
    own o = {0};
    const cz_allocator allocator = {sizeof(cz_allocator), own_allocate, own_release, &o};
    void *block = cz__calloc(0, 0); /* a block without bytes is a block */
    assert_int_equal(cz_set_allocator(&allocator), CZ_ERR_STATE);
    assert_int_equal(cz_set_allocator(NULL), CZ_ERR_STATE);
    cz__free(block);
    assert_int_equal(o.released, 0);
    assert_ok(cz_set_allocator(NULL));
}
