/* SPDX-License-Identifier: MIT */
/* The greedy partition on ranks that carry loads already. */
#ifndef CZ_SHARD_GREEDY_H
#define CZ_SHARD_GREEDY_H

#include "czero/shard.h"

/* As cz_partition_greedy(), beginning with `loads` (world_size elements counts, brought up to date).
 * Owners of parameters in no group are left as they are; `order` gets those in groups only. */
cz_status cz__partition_greedy_onto(int world_size, int64_t *loads, int64_t param_count,
                                    const int64_t *counts, int64_t group_count,
                                    const int64_t *group_sizes, const int64_t *group_params,
                                    int *owners, int64_t *order);

#endif
