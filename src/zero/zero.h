/* SPDX-License-Identifier: MIT */
/* The inside of the sharded optimizer. */
#ifndef CZ_ZERO_ZERO_H
#define CZ_ZERO_ZERO_H

#include "czero/zero.h"
#include "group/collective.h"
#include "optim/optim.h"
#include "trace/trace.h"
#include "zero/description.h"

typedef struct cz__bucket_view cz__bucket_view; /* bucket_view.c */
typedef struct cz__zero_sums cz__zero_sums;     /* sums.c */

struct cz_zero {
    cz_group *group; /* borrowed, as are the model and the rule */
    cz_model *model;
    const cz_rule *rule;
    const cz_device *device; /* whose memory the group moves: all tensors are there */
    cz_partition partition;
    cz_gradients gradients;
    cz_dtype dtype; /* of the parameters in groups */
    int64_t param_count;
    cz_optim *optim; /* owned, as is all that follows */
    cz_shard_map *map;
    /* The work space of a step, param_count each: reserved at create. */
    uint8_t *present;   /* trained parameters with a gradient: here, then as agreed by all ranks */
    uint8_t *ownership; /* room for two flags per parameter that travel */
    void **values;      /* addresses of elements 0, as in the model */
    void **sources;     /* of the gradients here, NULL: none */
    void **results;     /* of the gradients that the update reads */
    void **kept;        /* memory for the local span of a gradient that the program does not have */
    cz__description settings; /* what a step compares: see cz__describe_settings() */
    cz__reserve
        *transfers;     /* memory for the reduction, and then for the synchronisation, of a step */
    bool views_buckets; /* as the next two: the options */
    void (*moved)(int64_t param, void *value, void *context);
    void *moved_context;
    cz__zero_sums *sums;          /* owned; NULL: the rule has no partial sums */
    cz__bucket_view *bucket_view; /* owned; NULL: values are where the program has them */
    int64_t step_count;           /* steps that updated something here */
    cz_state_dict *consolidated;  /* owned; NULL: none on this rank */
    int consolidated_to;          /* a rank, CZ_ALL_RANKS, CZ__NOWHERE */
    int64_t consolidated_at;      /* the step count then */
    cz__trace trace;
};

#define CZ__NOWHERE (-2)

/* describe.c: the fields that all ranks must have in common. Settings may change between steps: which
 * parameters are trainable, hyper-parameters. `owners` is NULL, or an int per parameter as given. */
typedef void (*cz__describer)(const cz_zero *zero, const void *context,
                              cz__description *description);
void cz__describe_settings(const cz_zero *zero, const void *unused, cz__description *description);
void cz__describe_groups(const cz_zero *zero, const void *unused, cz__description *description);
void cz__describe_all(const cz_zero *zero, const void *owners, cz__description *description);

/* difference.c: collective, after descriptions turned out to differ somewhere. Returns the error that
 * all ranks get: CZ_ERR_MISMATCH with the first difference of some rank from rank 0. */
cz_status cz__zero_find_difference(const cz_zero *zero, cz__describer describe, const void *context,
                                   const cz__description *mine);

/* Collective: was every rank well until now, and does every rank describe the same? */
cz_status cz__zero_agree_on(cz_zero *zero, cz__describer describe, const void *context,
                            cz_status mine);

/* dict.c: what was consolidated is out of date. */
void cz__zero_forget_dict(cz_zero *zero);

/* partition.c: are these options of a partition right for the parameter groups? CZ_ERR_ARGUMENT. */
cz_status cz__zero_check_partition(const cz_zero *zero, cz_partition partition, const int *owners,
                                   int64_t owner_count);
/* Make the map, from checked options. CZ_ERR_MEMORY. */
cz_status cz__zero_partition(const cz_zero *zero, cz_partition partition, const int *owners,
                             cz_shard_map **out);

/* sync.c: bring the updated spans of the included parameters to every rank. */
cz_status cz__zero_sync(cz_zero *zero);

/* Bytes that this rank sends and receives when every included span goes to, or comes from, all others. */
uint64_t cz__zero_traffic(const cz_zero *zero);

/* Is a parameter in some group, and not frozen? */
bool cz__zero_is_trained(const cz_zero *zero, int64_t param);

#endif
