/* SPDX-License-Identifier: MIT */
/* Shard maps as other parts use them. */
#ifndef CZ_SHARD_SHARD_H
#define CZ_SHARD_SHARD_H

#include "czero/shard.h"

/* Of even cuts: the size of an element, how many ranges there are, and where the first `room` of
 * them begin. False: it is a table of owners (cz_shard_map_home() and cz__shard_map_listed() have
 * all of it). The order is cz__shard_map_listed() in both. */
bool cz__shard_map_even(const cz_shard_map *map, size_t *element_size, int64_t *range_count,
                        int64_t *begins, int64_t room);

/* As cz__partition_greedy(), beginning with `loads` (world_size elements counts, brought up to
 * date). Owners of parameters in no group are left as they are; `order` gets those in groups
 * only. */
cz_status cz__partition_greedy_onto(int world_size, int64_t *loads, int64_t param_count,
                                    const int64_t *counts, int64_t group_count,
                                    const int64_t *group_sizes, const int64_t *group_params,
                                    int *owners, int64_t *order);

/* As cz__shard_map_create_owners() with this owner for all. */
cz_status cz__shard_map_create_single(cz_shard_map **out, int world_size, int64_t param_count,
                                      const int64_t *counts, int owner);

/* Elements and spans that each rank has of the parameters with a flag (NULL: of all), in time
 * proportional to parameters and ranks, not to their product. Both have room for world_size + 1
 * numbers. */
void cz__shard_map_tally(const cz_shard_map *map, const uint8_t *include, int64_t *elements,
                         int64_t *spans);

/* What a map of either form allocates. */
size_t cz__even_map_bytes(int64_t param_count, int64_t range_count);
size_t cz__owner_table_bytes(int world_size, int64_t param_count);

/* As their names say; what is not there is NULL, 0 or -1. */
int cz__shard_map_world_size(const cz_shard_map *map);
int64_t cz__shard_map_param_count(const cz_shard_map *map);
bool cz__shard_map_cuts(const cz_shard_map *map);
cz_status cz__shard_map_create_even(cz_shard_map **out, int world_size, int64_t param_count,
                                    const int64_t *counts, const int64_t *order,
                                    int64_t range_count, const int64_t *range_begins,
                                    size_t element_size);
cz_status cz__shard_map_create_owners(cz_shard_map **out, int world_size, int64_t param_count,
                                      const int64_t *counts, const int *owners,
                                      const int64_t *order);
int64_t cz__shard_map_listed(const cz_shard_map *map, int64_t place);
void cz__shard_map_destroy(cz_shard_map **map);
cz_status cz__partition_greedy(int world_size, int64_t param_count, const int64_t *counts,
                               int64_t group_count, const int64_t *group_sizes,
                               const int64_t *group_params, int *owners, int64_t *order);

#endif
