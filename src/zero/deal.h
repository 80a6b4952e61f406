/* SPDX-License-Identifier: MIT */
/* From numbers of elements to a shard map: what all partitions are made by, for an optimizer that
 * is there and for one that is only planned. Pure functions. */
#ifndef CZ_ZERO_DEAL_H
#define CZ_ZERO_DEAL_H

#include "czero/base.h"
#include "czero/zero.h"

/* Bucket b holds the parameters params[begins[b]] … params[begins[b + 1] - 1], in this order. */
typedef struct cz__bucket_lists {
    int count;
    const int64_t *begins; /* count + 1 */
    const int64_t *params;
    const int64_t *elements; /* of each parameter, by its index */
} cz__bucket_lists;

/* Bucket b belongs to rank b mod world_size. `owners` is by parameter index; only those listed are
 * set. */
void cz__assign_whole_buckets(const cz__bucket_lists *lists, int world_size, int *owners);

/* Buckets are cut between parameters where a piece would reach a rank's even share of all elements,
 * the smallest bucket first; each piece goes to the rank with the smallest load of those that have
 * none of the bucket yet, the lowest on ties. A bucket's last possible piece takes all that is left
 * of it. `loads` is per rank and brought up to date; `order` receives all listed parameters as they
 * were dealt out. CZ_ERR_MEMORY. */
cz_status cz__assign_bucket_pieces(const cz__bucket_lists *lists, int world_size, int64_t *loads,
                                   int *owners, int64_t *order);

/* What becomes of a parameter. */
typedef enum cz__part { CZ__TRAINED, CZ__FROZEN, CZ__NOT_OURS, CZ__PARTS } cz__part;

/* All borrowed. */
typedef struct cz__deal {
    int world_size;
    int64_t param_count; /* of the next three */
    const int64_t *counts;
    const uint8_t *parts;  /* a cz__part each: NOT_OURS: in no group */
    const int64_t *layout; /* the fixed layout: a permutation */
    int64_t group_count; /* of the parameter groups: sizes, and members one group after the other */
    const int64_t *group_sizes, *members;
    /* Of a data-parallel model, with all that it has in them; NULL: none. */
    const cz__bucket_lists *buckets;
    const int *owners; /* CZ_PARTITION_GIVEN */
    size_t element_size;
    /* Of each parameter in groups; param_count each. Elements between which it is not cut, 1:
     * anywhere, 0: nowhere. NULL: 1 for all. */
    const int64_t *granules;
    const double *costs; /* of whole ones; below 0: as many as elements. NULL: that for all. */
} cz__deal;

/* Even cuts without anything to cut, where no rule knows the cost of whole tensors, are the greedy
 * partition. CZ_ERR_MEMORY. The options were checked. */
cz_status cz__deal_out(const cz__deal *deal, cz_partition partition, cz_shard_map **out);

#endif
