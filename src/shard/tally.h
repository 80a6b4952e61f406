/* SPDX-License-Identifier: MIT */
/* How much every rank owns, without a walk for each. */
#ifndef CZ_SHARD_TALLY_H
#define CZ_SHARD_TALLY_H

#include "czero/shard.h"

/* Elements and spans that each rank has of the parameters with a flag (NULL: of all), in time proportional to
 * parameters and ranks, not to their product. Both have room for world_size + 1 numbers. */
void cz__shard_map_tally(const cz_shard_map *map, const uint8_t *include, int64_t *elements,
                         int64_t *spans);

/* What a map allocates. `range_count` 0: a table of owners. */
size_t cz__shard_map_bytes(int world_size, int64_t param_count, int64_t range_count);
size_t cz__even_map_bytes(int64_t param_count, int64_t range_count);
size_t cz__owner_table_bytes(int world_size, int64_t param_count);

#endif
