/* SPDX-License-Identifier: MIT */
/* What the forms of a shard map share: the common head, and one table of functions per form. */
#ifndef CZ_SHARD_MAP_H
#define CZ_SHARD_MAP_H

#include "shard/shard.h"

/* No list of 8-byte numbers is longer. */
#define CZ__LONGEST_LIST ((int64_t)(PTRDIFF_MAX / sizeof(int64_t)))

/* Arguments were checked by src/shard/map.c: ranks, parameters and elements exist. */
typedef struct cz__map_kind {
    bool cuts;
    int (*home)(const cz_shard_map *map, int64_t param);
    bool (*locate)(const cz_shard_map *map, int64_t param, int64_t element, cz_span *span);
    void (*iterate)(cz_span_iterator *iterator); /* map and rank are set, the rest is zero */
    bool (*next)(cz_span_iterator *iterator, cz_span *span);
    int64_t (*listed)(const cz_shard_map *map, int64_t place); /* -1 beyond the last */
    /* See cz__shard_map_tally(); each array has a place more, and holds differences: what a rank
     * has beyond the one before it. */
    void (*tally)(const cz_shard_map *map, const uint8_t *include, int64_t *elements,
                  int64_t *spans);
    /* Of even cuts: see cz__shard_map_ranges(). NULL: a table of owners. */
    int64_t (*ranges)(const cz_shard_map *map, size_t *element_size, int64_t *begins,
                      int64_t *units, int64_t room);
    /* The rank that has a parameter's remainder, -1: it has none. NULL: none has. */
    int (*remainder_owner)(const cz_shard_map *map, int64_t param);
    size_t (*bytes)(const cz_shard_map *map);
    void (*release)(cz_shard_map *map); /* what the form owns beyond the head; may be half built */
} cz__map_kind;

/* The first member of each form's struct. */
struct cz_shard_map {
    const cz__map_kind *kind;
    int world_size;
    int64_t param_count;
    int64_t *counts; /* owned */
};

/* Check the arguments that all forms have, then make a zeroed map of `bytes` with its head
 * filled. */
cz_status cz__map_create(cz_shard_map **out, size_t bytes, const cz__map_kind *kind, int world_size,
                         int64_t param_count, const int64_t *counts);

/* Even cuts of parameters that have no remainders: each has as many elements as fill its
 * granules, in a range of whole tensors none. Errors as of cz__shard_map_create_cuts(). */
cz_status cz__even_map_create(cz_shard_map **out, int world_size, int64_t param_count,
                              const int64_t *counts, const cz__cuts *cuts);

/* An owned copy of the permutation `order`; NULL stands for 0 … count - 1. */
cz_status cz__permutation_copy(int64_t **out, int64_t count, const int64_t *order);

#endif
