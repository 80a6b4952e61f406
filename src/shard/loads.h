/* SPDX-License-Identifier: MIT */
/* What each rank has, and who has least. */
#ifndef CZ_SHARD_LOADS_H
#define CZ_SHARD_LOADS_H

#include "czero/base.h"

/* A heap: the root is the rank with the smallest load, among equals the lowest. */
typedef struct cz__loads {
    int64_t *of; /* borrowed, per rank */
    int size;
    int *heap;  /* owned: ranks */
    int *place; /* owned: of each rank in the heap */
} cz__loads;

/* For these loads, which are kept up to date. CZ_ERR_MEMORY. To be cleared in any case. */
cz_status cz__loads_create(cz__loads *loads, int world_size, int64_t *of);
void cz__loads_clear(cz__loads *loads);

int cz__loads_lightest(const cz__loads *loads);

/* more >= 0 */
void cz__loads_add(cz__loads *loads, int rank, int64_t more);

#endif
