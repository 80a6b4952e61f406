/* SPDX-License-Identifier: MIT */
/* Parameters as views of buckets: where their values are while the optimizer lives. */
#ifndef CZ_ZERO_BUCKET_VIEW_H
#define CZ_ZERO_BUCKET_VIEW_H

#include "zero/zero.h"

/* Memory for the values in the order of `map`; nothing has moved yet. *out is NULL where nothing is to be
 * moved. CZ_ERR_ARGUMENT: there is nobody to tell; CZ_ERR_STATE: another optimizer has moved one;
 * CZ_ERR_MEMORY. */
cz_status cz__bucket_view_create(cz__bucket_view **out, const cz_zero *zero,
                                 const cz_shard_map *map);

/* Bring the values here, and say so. Then the view belongs to `zero`, and the one before is gone. */
void cz__bucket_view_enter(cz_zero *zero, cz__bucket_view *view);

/* Bring the values back to the caller's memory, and say so. */
void cz__bucket_view_leave(cz_zero *zero);

void cz__bucket_view_destroy(cz__bucket_view **view);

#endif
