/* SPDX-License-Identifier: MIT */
/* JSON looked at before it is read: where the members of an object are, and what a tree of it would cost. Whether it is
 * JSON at all is left to jansson; what is found here is where to look, and how much it is. */
#ifndef CZ_IO_JSON_SCAN_H
#define CZ_IO_JSON_SCAN_H

#include "czero/base.h"

/* Bytes that a tree of it would take, about, and never far below. */
uint64_t cz__json_cost(const char *bytes, size_t count);

typedef struct cz__json_scan {
    const char *bytes;
    size_t count, at;
    bool begun;
} cz__json_scan;

/* A member of the object that the scan is of. */
typedef struct cz__json_member {
    size_t key, key_bytes; /* with its quotes; places are those of the scan */
    size_t value,
        value_bytes; /* of an object or a list up to the bracket that closes it, whatever kind that is */
    int depth;       /* of brackets in each other; 0: none */
} cz__json_member;

typedef enum cz__json_step { CZ__JSON_MEMBER, CZ__JSON_END, CZ__JSON_WRONG } cz__json_step;

/* The next member, in order. CZ__JSON_END: there are no more, and nothing but blanks follows. CZ__JSON_WRONG: it is no
 * JSON there; `at` is where, *why is what was wanted. */
cz__json_step cz__json_next(cz__json_scan *scan, cz__json_member *member, const char **why);

#endif
