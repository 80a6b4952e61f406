/* SPDX-License-Identifier: MIT */
/* What --json prints. */
#include "json.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "io/json.h"
#include "tool.h"

/* ---- memory ---- */

static _Alignas(max_align_t) char reserve[1 << 16];
static size_t reserve_used;

static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes);
    if (memory)
        return memory;
    const size_t room =
        (bytes + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    if (room < bytes || room > sizeof reserve - reserve_used) {
        fputs("czero: no memory to read or write JSON\n", stderr);
        exit(TOOL_TROUBLE);
    }
    memory = reserve + reserve_used;
    reserve_used += room;
    return memory;
}

static void release(void *memory)
{
    const char *at = memory;
    if (at < reserve || at >= reserve + sizeof reserve)
        free(memory);
}

void json_keep_reserve(void)
{
    json_set_alloc_funcs(allocate, release);
}

/* ---- printing ---- */

json_t *json_any_text(const char *text)
{
    return json_string(cz__utf8(text) ? text : cz__show(text).text);
}

json_t *json_added(json_t *array, json_t *item)
{
    if (json_array_append_new(array, item) == 0)
        return array;
    json_decref(array);
    return NULL;
}

bool json_finish(json_t *root)
{
    const bool good =
        root && json_dumpf(root, stdout, JSON_INDENT(2) | JSON_ENCODE_ANY | JSON_ENSURE_ASCII) == 0;
    json_decref(root);
    return good && fputc('\n', stdout) != EOF;
}

json_t *json_shape(int dimensions, const int64_t *shape)
{
    return cz__json_from_integers(shape, dimensions);
}
