/* SPDX-License-Identifier: MIT */
/* A table from names to numbers. */
#ifndef CZ_BASE_NAMES_H
#define CZ_BASE_NAMES_H

#include "czero/base.h"

typedef struct cz__name {
    const char *text; /* borrowed; NULL: a free place */
    int64_t number;
} cz__name;

/* Zeroed is empty. */
typedef struct cz__names {
    cz__name *places; /* owned; capacity is 0 or a power of two, at most half of it taken */
    size_t capacity;
    size_t count;
} cz__names;

void cz__names_clear(cz__names *names);

/* Find a name; false if it is not there. */
bool cz__names_find(const cz__names *names, const char *text, int64_t *number);

/* Have room for `more` names. False: out of memory, nothing was changed. */
bool cz__names_reserve(cz__names *names, int64_t more);

/* Add a name that is not there, after cz__names_reserve(). */
void cz__names_add(cz__names *names, const char *text, int64_t number);

/* Remove a name that is there. */
void cz__names_remove(cz__names *names, const char *text);

#endif
