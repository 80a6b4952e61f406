/* SPDX-License-Identifier: MIT */
/* Host memory: zeroed, aligned and counted. 64 bytes before each block hold its size and kind; the
 * counters are of bytes asked for, without them. Large blocks are pages of their own, huge ones
 * where the system has them; those for state are left to whoever touches them first. */
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"

#define ALIGNMENT ((size_t)64)
#define HUGE_PAGE ((size_t)2 << 20)

typedef union prefix {
    struct {
        size_t bytes;
        cz_memory_kind kind;
    } block;
    char space[ALIGNMENT];
} prefix;

static atomic_size_t held_bytes[CZ__MEMORY_KINDS];
static atomic_size_t peak_bytes[CZ__MEMORY_KINDS];
static atomic_size_t held_blocks; /* of all kinds; a block of 0 bytes counts */

/* Sanitizers watch the C library's blocks only. */
#if defined(__SANITIZE_ADDRESS__)
#define MAPS false
#elif defined(__has_feature)
#define MAPS (!__has_feature(address_sanitizer))
#else
#define MAPS true
#endif

static bool is_mapped(size_t bytes)
{
    return MAPS && bytes >= HUGE_PAGE + sizeof(prefix);
}

/* Of zeros; what lies before and after the aligned part is given back. */
static void *map_pages(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (bytes + page - 1) / page * page;
    char *all =
        mmap(NULL, pages + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return NULL;
    const size_t before = (HUGE_PAGE - (uintptr_t)all % HUGE_PAGE) % HUGE_PAGE;
    if (before > 0)
        (void)munmap(all, before);
    if (HUGE_PAGE > before)
        (void)munmap(all + before + pages, HUGE_PAGE - before);
#ifdef MADV_HUGEPAGE
    (void)madvise(all + before, pages, MADV_HUGEPAGE); /* a wish; refused on some kernels */
#endif
    return all + before;
}

static void *system_allocate(size_t bytes, size_t alignment, void *context)
{
    void *memory = NULL;
    if (is_mapped(bytes))
        return map_pages(bytes);
    return posix_memalign(&memory, alignment, bytes) == 0 ? memory : NULL;
}

static void system_release(void *memory, size_t bytes, void *context)
{
    if (is_mapped(bytes))
        (void)munmap(memory, bytes);
    else
        free(memory);
}

static const cz_allocator system_allocator = {sizeof(cz_allocator), system_allocate, system_release,
                                              NULL};
static cz_allocator allocator = {sizeof(cz_allocator), system_allocate, system_release, NULL};

const cz__option_table cz__allocator_options =
    CZ__OPTION_TABLE(cz_allocator, CZ__OPTION(cz_allocator, allocate, CZ__LOCAL, CZ__ANY),
                     CZ__OPTION(cz_allocator, release, CZ__LOCAL, CZ__ANY),
                     CZ__OPTION(cz_allocator, context, CZ__LOCAL, CZ__ANY));

cz_status cz_set_allocator(const cz_allocator *chosen)
{
    cz_allocator given;
    CZ_TRY(cz__options_read(&given, &cz__allocator_options, chosen, "set_allocator"));
    if (chosen && (!given.allocate || !given.release))
        return cz__fail(CZ_ERR_ARGUMENT, "set_allocator: %s is NULL",
                        given.allocate ? "release" : "allocate");
    const size_t blocks = atomic_load(&held_blocks);
    if (blocks > 0)
        return cz__fail(CZ_ERR_STATE, "set_allocator: %zu blocks are held, none is wanted", blocks);
    allocator = chosen ? given : system_allocator;
    return CZ_OK;
}

void cz__memory_count(cz_memory_kind kind, size_t bytes)
{
    atomic_fetch_add(&held_blocks, 1);
    const size_t now = atomic_fetch_add(&held_bytes[kind], bytes) + bytes;
    size_t peak = atomic_load(&peak_bytes[kind]);
    while (peak < now && !atomic_compare_exchange_weak(&peak_bytes[kind], &peak, now))
        ;
}

void *cz__allocate(cz_memory_kind kind, size_t bytes)
{
    if (bytes > PTRDIFF_MAX - sizeof(prefix) - 2 * HUGE_PAGE)
        return NULL;
    const size_t total = bytes + sizeof(prefix);
    const size_t alignment = bytes >= HUGE_PAGE ? HUGE_PAGE : ALIGNMENT;
    prefix *block = allocator.allocate(total, alignment, allocator.context);
    if (!block)
        return NULL;
    const bool is_zero = allocator.allocate == system_allocate && is_mapped(total);
    if (!is_zero || kind != CZ_MEMORY_STATE)
        memset(block, 0, total);
    block->block.bytes = bytes;
    block->block.kind = kind;
    cz__memory_count(kind, bytes);
    return block + 1;
}

void *cz__calloc(size_t count, size_t bytes)
{
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total))
        return NULL;
    return cz__allocate(CZ_MEMORY_GENERAL, total);
}

char *cz__strdup(const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *copy = cz__calloc(1, bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

void *cz__grow(void *list, int64_t count, int64_t *capacity, size_t bytes)
{
    if (count < *capacity)
        return list;
    const int64_t larger = 2 * *capacity + 16;
    void *copy = cz__calloc((size_t)larger, bytes);
    if (!copy)
        return NULL;
    if (count > 0)
        memcpy(copy, list, (size_t)count * bytes);
    cz__free(list);
    *capacity = larger;
    return copy;
}

void cz__free(void *memory)
{
    if (!memory)
        return;
    prefix *block = (prefix *)memory - 1;
    const size_t bytes = block->block.bytes;
    atomic_fetch_sub(&held_bytes[block->block.kind], bytes);
    allocator.release(block, bytes + sizeof(prefix), allocator.context);
    atomic_fetch_sub(&held_blocks, 1); /* last: until then the allocator is in use */
}

void cz__memory_uncount(cz_memory_kind kind, size_t bytes)
{
    atomic_fetch_sub(&held_bytes[kind], bytes);
    atomic_fetch_sub(&held_blocks, 1);
}

static bool known(cz_memory_kind kind)
{
    return (unsigned)kind < CZ__MEMORY_KINDS;
}

size_t cz_memory_bytes(cz_memory_kind kind)
{
    return known(kind) ? atomic_load(&held_bytes[kind]) : 0;
}

size_t cz_memory_peak_bytes(cz_memory_kind kind)
{
    return known(kind) ? atomic_load(&peak_bytes[kind]) : 0;
}

void cz_memory_reset_peak(void)
{
    for (int kind = 0; kind < CZ__MEMORY_KINDS; kind++)
        atomic_store(&peak_bytes[kind], atomic_load(&held_bytes[kind]));
}

/* ---- copying of what is not read again soon ---- */

#ifdef __SSE2__
#include <emmintrin.h>

enum { LINE = 64, AHEAD = 16 * LINE };

static void stream_line(char *to, const char *from)
{
    const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)from);
    const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(from + 16));
    const __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(from + 32));
    const __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(from + 48));
    _mm_stream_si128((__m128i *)(void *)to, a);
    _mm_stream_si128((__m128i *)(void *)(to + 16), b);
    _mm_stream_si128((__m128i *)(void *)(to + 32), c);
    _mm_stream_si128((__m128i *)(void *)(to + 48), d);
}

void cz__copy_past_caches(void *to, const void *from, size_t bytes)
{
    char *out = to;
    const char *in = from;
    const size_t before = (size_t)(-(uintptr_t)out % LINE);
    size_t done = before < bytes ? before : bytes;
    if (done > 0)
        memcpy(out, in, done);
    for (; bytes - done >= LINE; done += LINE) {
        __builtin_prefetch(in + done + AHEAD, 0, 0);
        stream_line(out + done, in + done);
    }
    _mm_sfence();
    if (done < bytes)
        memcpy(out + done, in + done, bytes - done);
}

#else

void cz__copy_past_caches(void *to, const void *from, size_t bytes)
{
    if (bytes > 0)
        memcpy(to, from, bytes);
}

#endif
