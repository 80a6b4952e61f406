/* SPDX-License-Identifier: MIT */
/** @file shard.h  Shard maps: which rank owns which elements of which parameter.
 *
 *  A span is a run of elements of one parameter with one owner. A map says for every element of
 *  every parameter who owns it, in closed form (an owner table, or even cuts of ranges of the fixed
 *  layout); it never lists the spans of all ranks. The *fixed layout* is all parameters one after
 *  the other, the last of the model first, as backward passes come to them; those of a flat block
 *  keep their order.
 *
 *      cz_span_iterator iterator;
 *      cz_span span;
 *      cz_span_iterate(info.shard_map, rank, &iterator);              // of cz_zero_get_info()
 *      while (cz_span_next(&iterator, &span))
 *          printf("%lld: [%lld, %lld)\n", (long long)span.param, (long long)span.begin,
 *                 (long long)span.end);                          // what the rank owns
 *
 *  @see Rajbhandari et al., "ZeRO", SC20, arXiv:1910.02054. */
#ifndef CZERO_SHARD_H
#define CZERO_SHARD_H

#include "czero/base.h"

CZ_BEGIN_DECLS

/** The elements [begin, end) of parameter `param`, owned by group rank `rank`. The struct never
 *  changes. */
typedef struct cz_span {
    int64_t param;
    int64_t begin;
    int64_t end;
    int rank;
} cz_span;

/** Borrowed from whoever has it (cz_zero_info, cz_bucket_info). Immutable: any number of
 *  threads may read it. */
typedef struct cz_shard_map cz_shard_map;

/** Walks the spans of one rank in the map's order, in time proportional to them. A value: copy it
 *  to remember a place. The fields are the library's. Empty parameters have no span. */
typedef struct cz_span_iterator {
    const cz_shard_map *map;
    int rank;
    int64_t range;
    int64_t position;
    int64_t begin;
    int64_t end;
} cz_span_iterator;

/** Stand before the first span of `rank`; without a map, or such a rank, there is none. Local; the
 *  map outlives the iterator, of which NULL is left alone. */
static inline void cz_span_iterate(const cz_shard_map *map, int rank, cz_span_iterator *iterator)
{
    if (!iterator)
        return;
    iterator->map = map;
    iterator->rank = rank;
    iterator->range = iterator->position = iterator->end = 0;
    iterator->begin = -1;
}

/** The next span, or false at the end, and for a NULL. Adjacent elements of a parameter are one
 *  span. Local. */
CZ_API bool cz_span_next(cz_span_iterator *iterator, cz_span *span);

CZ_END_DECLS
#endif
