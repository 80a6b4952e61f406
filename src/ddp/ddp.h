/* SPDX-License-Identifier: MIT */
/* A data-parallel model as a sharded optimizer sees it. */
#ifndef CZ_DDP_DDP_H
#define CZ_DDP_DDP_H

#include "czero/ddp.h"
#include "czero/shard.h"

/* From now on buckets are reduced along this map (borrowed), to the owners in it only, and stay as they are;
 * NULL: to all ranks, as before. Between passes. */
void cz__ddp_bind(cz_ddp *ddp, const cz_shard_map *map);

/* Is it this model's, on so many ranks? */
bool cz__ddp_fits(const cz_ddp *ddp, const cz_model *model, int world_size);

/* Has the last pass reduced gradients? And that of this parameter? Equal on all ranks. */
bool cz__ddp_reduced(const cz_ddp *ddp);
bool cz__ddp_has(const cz_ddp *ddp, int64_t param);

#endif
