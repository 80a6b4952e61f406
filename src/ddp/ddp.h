/* SPDX-License-Identifier: MIT */
/* A data-parallel model as a sharded optimizer sees it. */
#ifndef CZ_DDP_DDP_H
#define CZ_DDP_DDP_H

#include "czero/ddp.h"
#include "czero/shard.h"

/* What a sharded optimizer does during passes; NULL entries: nothing. */
typedef struct cz__ddp_listener {
    /* A pass that synchronises begins: collective, on the thread that begins it. */
    cz_status (*begin)(void *context);
    /* A bucket was reduced: its `count` parameters, those with a flag in `include` (one for each parameter of
     * the model) take part. In a continuation: may start operations on `group`, not wait. */
    cz_status (*reduced)(void *context, cz_group *group, const int64_t *params, int64_t count,
                         const uint8_t *include);
    void *context;
} cz__ddp_listener;

/* From now on buckets are reduced along this map (borrowed), to the owners in it only, and stay as they are;
 * NULL: to all ranks, as before. Between passes. `listener` is copied; NULL: nobody. */
void cz__ddp_bind(cz_ddp *ddp, const cz_shard_map *map, const cz__ddp_listener *listener);

/* Can an optimizer over this model and group be made on it? CZ_ERR_ARGUMENT, CZ_ERR_STATE. */
cz_status cz__ddp_check(const cz_ddp *ddp, const cz_model *model, const cz_group *group);

/* Between its beginning and its end? */
bool cz__ddp_in_pass(const cz_ddp *ddp);

/* Has the last pass reduced gradients? And that of this parameter? Equal on all ranks. */
bool cz__ddp_reduced(const cz_ddp *ddp);
bool cz__ddp_has(const cz_ddp *ddp, int64_t param);

#endif
