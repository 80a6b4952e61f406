/* SPDX-License-Identifier: MIT */
/* Which rank owns which parameters of which bucket: pure functions of numbers of elements. */
#ifndef CZ_ZERO_BUCKET_ASSIGN_H
#define CZ_ZERO_BUCKET_ASSIGN_H

#include "czero/base.h"

/* Bucket b holds the parameters params[begins[b]] … params[begins[b + 1] - 1], in this order. */
typedef struct cz__bucket_lists {
    int count;
    const int64_t *begins; /* count + 1 */
    const int64_t *params;
    const int64_t *elements; /* of each parameter, by its index */
} cz__bucket_lists;

/* Bucket b belongs to rank b mod world_size. `owners` is by parameter index; only those listed are set. */
void cz__assign_whole_buckets(const cz__bucket_lists *lists, int world_size, int *owners);

/* Buckets are cut between parameters where a piece would reach a rank's even share of all elements, the
 * smallest bucket first; each piece goes to the rank with the smallest load of those that have none of the
 * bucket yet, the lowest on ties. A bucket's last possible piece takes all that is left of it.
 * `loads` is per rank and brought up to date; `order` receives all listed parameters as they were dealt out.
 * CZ_ERR_MEMORY. */
cz_status cz__assign_bucket_pieces(const cz__bucket_lists *lists, int world_size, int64_t *loads,
                                   int *owners, int64_t *order);

#endif
