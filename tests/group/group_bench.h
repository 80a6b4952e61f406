/* SPDX-License-Identifier: MIT */
/* What tests of collectives check with: the inputs of all ranks, and comparing with what is
 * wanted. */
#ifndef CZ_GROUP_BENCH_H
#define CZ_GROUP_BENCH_H

#include "group/group_test.h"

/* What one rank checks with: inputs of all ranks, which everyone can make, and its own buffers. */
typedef struct bench {
    cz_group *group;
    int rank, size;
    cz_dtype dtype;
    int64_t count;
    size_t bytes;             /* of count elements */
    void *inputs[MANY_RANKS]; /* size * count elements each */
    void *wanted;             /* the same */
} bench;

static inline void bench_open(bench *b, cz_group *group, cz_dtype dtype, int64_t count)
{
    *b = (bench){.group = group,
                 .rank = cz_group_rank(group),
                 .size = cz_group_size(group),
                 .dtype = dtype,
                 .count = count,
                 .bytes = (size_t)count * cz_dtype_size(dtype)};
    const size_t whole = b->bytes * (size_t)b->size + 1;
    b->wanted = malloc(whole);
    for (int r = 0; r < b->size; r++) {
        b->inputs[r] = malloc(whole);
        if (!b->inputs[r] || !b->wanted)
            abort();
        fill(dtype, (uint64_t)r * 77 + (uint64_t)count, count * b->size, b->inputs[r]);
    }
}

static inline void bench_close(bench *b)
{
    for (int r = 0; r < b->size; r++)
        free(b->inputs[r]);
    free(b->wanted);
}

static inline cz_status compare(const bench *b, const char *what, const void *got,
                                const void *wanted, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (((const char *)got)[i] != ((const char *)wanted)[i])
            return cz_fail(CZ_ERR_INTERNAL, "%s of %" PRId64 " %s: byte %zu of %zu differs", what,
                           b->count, cz_dtype_name(b->dtype), i, bytes);
    return CZ_OK;
}

static inline cz_status close_guarded(const bench *b, const char *what, guarded *memory)
{
    CHECK(guarded_close(memory), "%s of %" PRId64 " %s wrote outside its buffer", what, b->count,
          cz_dtype_name(b->dtype));
    return CZ_OK;
}

/* Every count of a list that ends with a negative one, in each of the types. */
static inline cz_status bench_each(cz_group *group, const int64_t *counts, const cz_dtype *dtypes,
                                   int dtype_count, cz_status (*check_all)(bench *b))
{
    for (const int64_t *count = counts; *count >= 0; count++)
        for (int d = 0; d < dtype_count; d++) {
            bench b;
            bench_open(&b, group, dtypes[d], *count);
            const cz_status status = check_all(&b);
            bench_close(&b);
            CZ_TRY(status);
        }
    return CZ_OK;
}

#endif
