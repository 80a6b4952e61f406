/* SPDX-License-Identifier: MIT */
/* The map in which one rank has everything. */
#ifndef CZ_SHARD_SINGLE_H
#define CZ_SHARD_SINGLE_H

#include "czero/shard.h"

/* As cz_shard_map_create_owners() with this owner for all. */
cz_status cz__shard_map_create_single(cz_shard_map **out, int world_size, int64_t param_count,
                                      const int64_t *counts, int owner);

#endif
