/* SPDX-License-Identifier: MIT */
/* Every element once: ranges of each tensor, sorted, must follow each other from 0 to its end. */
#include "interop/archive.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

/* A range of something: "optimizer/exp_avg/w1", elements [begin, end). */
typedef struct covered {
    const char *name; /* the header's; its first `bytes` bytes */
    size_t bytes;
    int64_t begin, end;
    int rank;
} covered;

void cz__coverage_clear(cz__coverage *c)
{
    cz__free(c->list);
    *c = (cz__coverage){0};
}

/* "NAME[B:E]"; false: not of that form. */
static bool take_apart(const char *name, covered *out)
{
    int used = 0;
    const char *bracket = strrchr(name, '[');
    if (!bracket ||
        sscanf(bracket, "[%" SCNd64 ":%" SCNd64 "]%n", &out->begin, &out->end, &used) != 2 ||
        used == 0 || bracket[used])
        return false;
    out->name = name;
    out->bytes = (size_t)(bracket - name);
    return true;
}

cz_status cz__coverage_add(cz__coverage *c, const cz__safetensors *header, int rank)
{
    for (int64_t i = 0; i < cz__safetensors_count(header); i++) {
        covered range = {.rank = rank};
        const char *name = cz__safetensors_entry_at(header, i)->name;
        if (strncmp(name, "own/", 4) == 0 || !take_apart(name, &range))
            continue;
        covered *list = cz__grow(c->list, c->count, &c->capacity, sizeof *list);
        if (!list)
            return cz__fail(CZ_ERR_MEMORY, "no memory for a list of %" PRId64 " tensors",
                            c->count + 1);
        c->list = list;
        c->list[c->count++] = range;
    }
    return CZ_OK;
}

/* ---- comparing ---- */

static int compare_names(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    const int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
    return order ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

static int by_place(const void *left, const void *right)
{
    const covered *a = left, *b = right;
    const int order = compare_names(a->name, a->bytes, b->name, b->bytes);
    if (order)
        return order;
    return a->begin != b->begin ? (a->begin > b->begin) - (a->begin < b->begin)
                                : (a->end > b->end) - (a->end < b->end);
}

typedef struct checking {
    const cz__coverage *coverage;
    cz__coverage_problem say;
    void *context;
    int64_t matched; /* ranges that belong to something */
    cz__text name;
} checking;

static cz_status say_problem(checking *k, const char *format, ...) CZ_PRINTF(2, 3);
static cz_status say_problem(checking *k, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return k->say(text, k->context);
}

/* The first range of that name, or where it would be. */
static int64_t first_of(const cz__coverage *c, const char *name)
{
    int64_t low = 0, high = c->count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        const covered *m = &c->list[middle];
        if (compare_names(m->name, m->bytes, name, strlen(name)) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_called(const covered *range, const char *name)
{
    return compare_names(range->name, range->bytes, name, strlen(name)) == 0;
}

/* What stands between the range before, which ended at `at`, and the next one. */
static cz_status check_seam(checking *k, const char *name, int64_t at, const covered *next)
{
    const int64_t again = next->end < at ? next->end : at; /* up to here */
    if (next->begin > at)
        return say_problem(k, "%s: elements %" PRId64 " to %" PRId64 " are in no part",
                           cz__show(name).text, at, next->begin - 1);
    if (next->begin < again)
        return say_problem(k,
                           "%s: elements %" PRId64 " to %" PRId64
                           " are there more than once, again in the part of rank %d",
                           cz__show(name).text, next->begin, again - 1, next->rank);
    return CZ_OK;
}

static cz_status check_one(checking *k, const char *name, int64_t count)
{
    const cz__coverage *c = k->coverage;
    int64_t at = 0;
    for (int64_t i = first_of(c, name); i < c->count && is_called(&c->list[i], name); i++) {
        const covered *range = &c->list[i];
        k->matched++;
        CZ_TRY(check_seam(k, name, at, range));
        at = range->end > at ? range->end : at;
    }
    if (at > count)
        return say_problem(k,
                           "%s: the parts have elements up to %" PRId64 ", the index has %" PRId64,
                           cz__show(name).text, at, count);
    return check_seam(k, name, at, &(covered){.begin = count, .end = count});
}

static cz_status check_stored(checking *k, const cz__index *index, int64_t i)
{
    const char *slot;
    cz_dtype dtype;
    const cz__stored *s = &index->stored[i];
    cz__text_cut(&k->name, 0);
    cz__text_print(&k->name, "%s/%s", i < index->param_count ? "parameters" : "buffers", s->name);
    CZ_TRY(check_one(k, cz__text_get(&k->name), s->count));
    if (i >= index->param_count)
        return CZ_OK;
    for (int64_t at = 0; cz__index_slot(index, i, &at, &slot, &dtype);) {
        cz__text_cut(&k->name, 0);
        cz__text_print(&k->name, "optimizer/%s/%s", slot, s->name);
        CZ_TRY(check_one(k, cz__text_get(&k->name), s->count));
    }
    return k->name.failed ? cz__fail(CZ_ERR_MEMORY, "no memory for a name") : CZ_OK;
}

cz_status cz__coverage_check(cz__coverage *c, const cz__index *index, cz__coverage_problem problem,
                             void *context)
{
    checking k = {.coverage = c, .say = problem, .context = context};
    cz_status status = CZ_OK;
    if (c->count > 0)
        qsort(c->list, (size_t)c->count, sizeof *c->list, by_place);
    for (int64_t i = 0; i < index->param_count + index->buffer_count; i++) {
        status = check_stored(&k, index, i);
        if (status)
            goto done;
    }
    if (k.matched != c->count)
        status = say_problem(&k, "%" PRId64 " tensors of the parts belong to nothing in the index",
                             c->count - k.matched);
done:
    cz__text_clear(&k.name);
    return status;
}
