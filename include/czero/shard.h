/* SPDX-License-Identifier: MIT */
/** @file shard.h  Shard maps: which rank owns which elements of which parameter.
 *
 *  A span is a run of elements of one parameter with one owner. A map says for every element of every
 *  parameter who owns it, in closed form (an owner table, or even cuts of ranges of the fixed
 *  layout); it never lists the spans of all ranks. @see Rajbhandari et al., "ZeRO", SC20,
 *  arXiv:1910.02054. */
#ifndef CZERO_SHARD_H
#define CZERO_SHARD_H

#include "czero/base.h"

CZ_BEGIN_DECLS

/** The elements [begin, end) of parameter `param`, owned by group rank `rank`. */
typedef struct cz_span {
    int64_t param;
    int64_t begin;
    int64_t end;
    int rank;
} cz_span;

/** Immutable once made: any number of threads may read it. */
typedef struct cz_shard_map cz_shard_map;

/** Whole parameters with an owner each.
 *
 *  Local. @param counts  elements of each of `param_count` parameters; copied
 *  @param owners  the rank that owns each; -1: nobody owns it (no span has it); copied
 *  @param order   a permutation of 0 … param_count - 1: the order in which a rank's spans are listed;
 *                 NULL: ascending; copied
 *  @return CZ_ERR_ARGUMENT: `out` is NULL, no ranks, a NULL where there are parameters, a count below
 *          0, an owner outside -1 … world_size - 1, `order` not a permutation; CZ_ERR_MEMORY.
 */
CZ_API cz_status cz_shard_map_create_owners(cz_shard_map **out, int world_size, int64_t param_count,
                                            const int64_t *counts, const int *owners,
                                            const int64_t *order);

/** Even cuts. The fixed layout is the parameters one after the other in `order`; each range of it is
 *  cut into world_size slices, in rank order, at multiples of 64 bytes counted from the range's
 *  start. Remainder blocks rotate over the ranks from range to range, so that two ranks never differ
 *  by more than one block in the whole layout (a range's short last block counts as one).
 *
 *  Local. @param order  as above: the fixed layout; NULL: ascending
 *  @param range_count, range_begins  positions in `order` at which ranges begin, ascending, the
 *                 first 0; range k ends where k + 1 begins. 0 and NULL: one range.
 *  @param element_size  bytes of an element: 1, 2, 4 or 8
 *  @return as above. */
CZ_API cz_status cz_shard_map_create_even(cz_shard_map **out, int world_size, int64_t param_count,
                                          const int64_t *counts, const int64_t *order,
                                          int64_t range_count, const int64_t *range_begins,
                                          size_t element_size);

CZ_API void cz_shard_map_destroy(cz_shard_map **map); /**< local; accepts NULL and *NULL */

/** What a map was made with; 0 and -1 for NULL, -1 and false where there is no such parameter. Local. */
CZ_API int cz_shard_map_world_size(const cz_shard_map *map);
CZ_API int64_t cz_shard_map_param_count(const cz_shard_map *map);
CZ_API int64_t cz_shard_map_count(const cz_shard_map *map, int64_t param); /**< its elements */
CZ_API bool cz_shard_map_cuts(const cz_shard_map *map); /**< may a parameter have several owners? */

/** Elements that `rank` owns, 0 for NULL or no such rank. Closed form or one pass over its spans. Local. */
CZ_API int64_t cz_shard_map_owned(const cz_shard_map *map, int rank);

/** The rank that owns element 0 of a parameter (empty ones have a home too), -1: nobody, or no such parameter. Local. */
CZ_API int cz_shard_map_home(const cz_shard_map *map, int64_t param);

/** The parameter at a place of the map's order: even cuts: of the fixed layout; owner tables: rank by
 *  rank, empty parameters too, those that nobody owns left out. -1 beyond the last, and for NULL. Local. */
CZ_API int64_t cz_shard_map_listed(const cz_shard_map *map, int64_t place);

/** The span that holds element `element` of `param`. False if nobody owns it or there is no such
 *  element, or for a NULL. Local; time logarithmic at most in the number of ranges. */
CZ_API bool cz_shard_map_locate(const cz_shard_map *map, int64_t param, int64_t element,
                                cz_span *span);

/** Walks the spans of one rank in the map's order, in time proportional to them. A value: copy it to
 *  remember a place. The fields are the library's. Empty parameters have no span. */
typedef struct cz_span_iterator {
    const cz_shard_map *map;
    int rank;
    int64_t range;
    int64_t position;
    int64_t begin;
    int64_t end;
} cz_span_iterator;

/** Stand before the first span of `rank`; without a map, or such a rank, there is none. Local; the map outlives the
 *  iterator, of which NULL is left alone. */
CZ_API void cz_span_iterate(const cz_shard_map *map, int rank, cz_span_iterator *iterator);
/** The next span, or false at the end, and for a NULL. Adjacent elements of a parameter are one span. Local. */
CZ_API bool cz_span_next(cz_span_iterator *iterator, cz_span *span);

/** Called for each piece of an intersection; anything but CZ_OK ends the walk and is returned. */
typedef cz_status (*cz_intersection_visitor)(const cz_span *from, int to_rank, void *context);

/** Visit what `rank` owns in map `from`, cut so that each piece has one owner in map `to`: what has
 *  to move where when `from` becomes `to`. Elements that nobody owns in `to` are visited with to_rank
 *  -1. Local. @return CZ_ERR_ARGUMENT: the maps differ in parameters or counts; else the visitor's. */
CZ_API cz_status cz_shard_map_intersect(const cz_shard_map *from, int rank, const cz_shard_map *to,
                                        cz_intersection_visitor visitor, void *context);

/** PyTorch's greedy partition: parameter groups in order; inside a group the largest parameter first
 *  (equal sizes keep their order), each to the rank with the smallest load so far, the lowest on
 *  ties; loads carry over from group to group.
 *
 *  Local. @param counts  elements per parameter
 *  @param group_count, group_sizes, group_params  group g holds the next group_sizes[g] entries of
 *                 group_params (parameter indices). 0 and NULL: one group of all, ascending.
 *  @param owners  receives param_count ranks; -1 for parameters in no group
 *  @param order   NULL, or receives param_count indices: the order in which parameters were dealt
 *                 out (a rank's storage order), those in no group last
 *  @return CZ_ERR_ARGUMENT: a NULL, no ranks, an index out of range or twice, a count below 0;
 *          CZ_ERR_MEMORY.
 */
CZ_API cz_status cz_partition_greedy(int world_size, int64_t param_count, const int64_t *counts,
                                     int64_t group_count, const int64_t *group_sizes,
                                     const int64_t *group_params, int *owners, int64_t *order);

CZ_END_DECLS
#endif
