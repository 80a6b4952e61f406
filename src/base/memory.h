/* SPDX-License-Identifier: MIT */
/* Host memory: everything comes from here, zeroed, 64-byte aligned and counted per kind. */
#ifndef CZ_BASE_MEMORY_H
#define CZ_BASE_MEMORY_H

#include <stddef.h>

#include "czero/base.h"

/* NULL when out of memory, or when bytes would overflow. 0 bytes is a valid, distinct block. Blocks
 * of 2 MiB and more begin 64 bytes behind a multiple of that; of CZ_MEMORY_STATE they may have no
 * pages yet. */
void *cz__allocate(cz_memory_kind kind, size_t bytes);
void *cz__calloc(size_t count, size_t bytes); /* CZ_MEMORY_GENERAL */
char *cz__strdup(const char *text);           /* CZ_MEMORY_GENERAL */
/* A list of `count` elements with room for another one: the same, or a larger copy of it in place
 * of it, *capacity brought up to date. NULL: no memory, the list is as it was. */
void *cz__grow(void *list, int64_t count, int64_t *capacity, size_t bytes);
void cz__free(void *memory); /* any of the above; accepts NULL */
/* Memory that came from elsewhere counts as held. */
void cz__memory_count(cz_memory_kind kind, size_t bytes);
void cz__memory_uncount(cz_memory_kind kind, size_t bytes);

/* As memcpy. Lines of `to` are neither read before they are written nor kept in caches: a third
 * less traffic. The C library does so only from some multiple of 10 MB on. */
void cz__copy_past_caches(void *to, const void *from, size_t bytes);

#define CZ__MEMORY_KINDS (CZ_MEMORY_STATE_DICT + 1)

#endif
