/* SPDX-License-Identifier: MIT */
/* What a shard map was made from, so that it can be written down and made again. */
#ifndef CZ_SHARD_FORM_H
#define CZ_SHARD_FORM_H

#include "czero/shard.h"

/* Of even cuts: the size of an element, how many ranges there are, and where the first `room` of them begin. False:
 * it is a table of owners (cz_shard_map_home() and cz_shard_map_listed() have all of it). The order is
 * cz_shard_map_listed() in both. */
bool cz__shard_map_even(const cz_shard_map *map, size_t *element_size, int64_t *range_count,
                        int64_t *begins, int64_t room);

#endif
