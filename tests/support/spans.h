/* SPDX-License-Identifier: MIT */
/* What a shard map says of one rank. */
#ifndef CZ_TEST_SUPPORT_SPANS_H
#define CZ_TEST_SUPPORT_SPANS_H

#include "czero/zero.h"

/* That of a sharded optimizer; NULL: there is none. */
static inline const cz_shard_map *cz_test_shard_map(const cz_zero *zero)
{
    cz_zero_info info = CZ_ZERO_INFO_INIT;
    return cz_zero_get_info(zero, &info) == CZ_OK ? info.shard_map : NULL;
}

/* Elements that `rank` owns. */
static inline int64_t cz_test_owned(const cz_shard_map *map, int rank)
{
    cz_span_iterator iterator;
    cz_span span;
    int64_t sum = 0;
    cz_span_iterate(map, rank, &iterator);
    while (cz_span_next(&iterator, &span))
        sum += span.end - span.begin;
    return sum;
}

#endif
