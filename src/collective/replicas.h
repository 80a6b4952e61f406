/* SPDX-License-Identifier: MIT */
/* Do all ranks hold the same bits? Each makes a fingerprint of everything; only these travel. */
#ifndef CZ_COLLECTIVE_REPLICAS_H
#define CZ_COLLECTIVE_REPLICAS_H

#include "czero/group.h"
#include "czero/tensor.h"
#include "operation/identity.h"

/* Something of which each rank holds all. */
typedef struct cz__replica {
    const char *of; /* "exp_avg", NULL: its value */
    const char *noun;
    int64_t index;
    const char *name;
    const cz_device *device;
    const void *data;
    size_t bytes;
} cz__replica;

/* The value of a parameter, as such. */
cz__replica cz__replica_of_param(const cz_model *model, int64_t param);

/* The part that asks, for its sentences; and the steps that were made, -1: there is none to count
 * them. */
typedef struct cz__asker {
    const char *part;         /* "zero check_replicas" */
    const cz__object *object; /* that the call is on, NULL: none */
    int64_t steps;
} cz__asker;

/* Collective; the list is alike on all ranks but for addresses. `mine`: what failed on this rank
 * before. CZ_ERR_MISMATCH, in one sentence on all ranks, names the first that differs and a rank
 * that does not hold what most do. CZ_ERR_MEMORY. */
cz_status cz__check_replicas(cz_group *group, const cz__asker *asker, const cz__replica *list,
                             int64_t count, cz_status mine);

/* Of all parameters of a model that is alike on all ranks, and of its buffers. */
cz_status cz__model_check_replicas(cz_group *group, const cz__asker *asker, const cz_model *model,
                                   bool buffers, cz_status mine);

#endif
