/* SPDX-License-Identifier: MIT */
/* The inside of the sharded optimizer. */
#ifndef CZ_ZERO_ZERO_H
#define CZ_ZERO_ZERO_H

#include <stdatomic.h>

#include "czero/zero.h"
#include "ddp/ddp.h"
#include "group/collective.h"
#include "collective/description.h"
#include "optim/optim.h"
#include "parts/parts.h"
#include "tensor/model.h"
#include "trace/trace.h"

typedef struct cz__bucket_view cz__bucket_view; /* bucket_view.c */
typedef struct cz__zero_sums cz__zero_sums;     /* passes.c */

/* Parameters whose values and gradients are of these types. */
typedef struct cz__zero_kind {
    cz_dtype value, gradient;
} cz__zero_kind;
enum { CZ__ZERO_KINDS = 64 }; /* more than there are */

/* Where passes of a ddp reduce 16-bit gradients to, as f32: of each parameter the address of
 * element 0, NULL: nothing of it is here. */
typedef struct cz__zero_means {
    void **of;    /* owned, as is what it points into; NULL: there are none */
    void *memory; /* of the device */
} cz__zero_means;

struct cz_zero {
    cz_group *group; /* borrowed, as are the model and the rule */
    cz__object object;
    cz_model *model;
    const cz_rule *rule; /* of groups that have none of their own */
    /* Borrowed; NULL: gradients come some other way. Bound to the map once created, with what it
     * tells. */
    cz_ddp *ddp;
    cz__ddp_listener listener;
    /* Borrowed; NULL: each rank's gradients are one part, or what reduces them knows of parts. */
    cz_parts *parts;
    cz_join *join; /* borrowed; NULL: inputs are even */
    int join_number;
    cz_overlap overlap;
    bool late;                    /* option overlap_gather */
    bool has_parts;               /* nobody else has the parts */
    bool is_bound;                /* ddp is */
    bool reduces;                 /* steps make the mean over ranks, as far as the model knows */
    bool shadows;                 /* this step has no gradients here */
    bool weightless;              /* all weights of ranks are 0 */
    bool has_stepped;             /* some pass has */
    bool stepped;                 /* the last pass has made its step, with this outcome */
    cz_step_options step_options; /* of steps inside passes; size 0: none */
    cz__step_outcome outcome;
    const cz_device *device; /* whose memory the group moves: all tensors are there */
    cz_partition partition;  /* as it was asked for */
    cz_gradients gradients;
    int64_t param_count;
    int kind_count;
    cz__zero_kind kinds[CZ__ZERO_KINDS];
    uint8_t *kind_of;    /* of each parameter; owned, as is the next one */
    uint8_t *included;   /* those of one kind that take part in the present operation */
    size_t element_size; /* of the smallest value: even cuts are at lines of that */
    cz_optim *optim;     /* owned, as is all that follows */
    cz_shard_map *map;
    /* The work space of a step, param_count each: reserved at create. Trained parameters with a
     * gradient: here, then as agreed by all ranks. This and the next have room for one flag more,
     * which says that tiles will not do. */
    uint8_t *present;
    uint8_t *ownership;      /* room for two flags per parameter that travel */
    cz__model_tables tables; /* borrowed from the model */
    void **nowhere;          /* of NULLs: where means go that stay in cache */
    void **sources;          /* of the gradients here, NULL: none */
    void **results;          /* of the gradients that the update reads */
    cz__zero_means means;    /* of passes of the ddp */
    /* Memory for the local span of a gradient that the program does not have, or of a mean that is
     * of another type. */
    void **kept;
    cz__description settings; /* what a step compares: see cz__describe_settings() */
    int64_t described;        /* hyper-parameters, of all groups, for which it has room */
    /* Of `tables.trainable`, when the model's moves were `trainable_at` - 1. */
    uint64_t trainable_print;
    uint64_t trainable_at;
    cz_shard_map *norm;     /* of the chunks of the norm's sum: who adds up which */
    cz__reserve *transfers; /* memory for a step's reduction, and then for its synchronisation */
    bool in_tiles;          /* the present step, on all ranks */
    const cz__ddp_opening *opening; /* of a pass that it agrees on, too; NULL: it does not */
    bool without_tiles;             /* some rank cannot, as all have found out */
    /* Groups were added that neither `map` nor the local optimizer's spans know of. */
    bool shards_wait;
    bool shared_values; /* all ranks see one memory of the parameters */
    bool views_buckets; /* as the next two: the options */
    void (*moved)(int64_t param, void *value, void *context);
    void *moved_context;
    atomic_bool *asked;  /* owned; which were asked for since the last pass. NULL: nobody checks */
    cz__zero_sums *sums; /* owned; NULL: no rule has partial sums */
    cz__bucket_view *bucket_view; /* owned; NULL: values are where the program has them */
    double weight;                /* of this rank's gradients; below 0: none was set */
    double share;                 /* what they are multiplied by in this step */
    int64_t step_count;           /* steps that updated something here */
    uint64_t *prints;             /* owned: two of each section here, at the last fingerprint */
    int64_t print_count;          /* of these */
    bool printed;                 /* they are of what is here, if steps are still */
    int64_t printed_at;
    cz_state_dict *consolidated; /* owned; NULL: none on this rank */
    int consolidated_to;         /* a rank, CZ_ALL_RANKS, CZ__NOWHERE */
    int64_t consolidated_at;     /* the step count then */
    cz__trace trace;
};

#define CZ__NOWHERE (-2)

/* ---- bucket_view.c: where parameters' values are while the optimizer lives ---- */

/* Memory for the values in the order of `map`; nothing has moved yet. *out is NULL where nothing is
 * to be moved. CZ_ERR_ARGUMENT: there is nobody to tell; CZ_ERR_STATE: another optimizer has moved
 * one; CZ_ERR_MEMORY. */
cz_status cz__bucket_view_create(cz__bucket_view **out, const cz_zero *zero,
                                 const cz_shard_map *map);
/* Bring the values here, and say so. Then the view belongs to `zero`, and the one before is
 * gone. */
void cz__bucket_view_enter(cz_zero *zero, cz__bucket_view *view);
/* Bring the values back to the caller's memory, and say so. */
void cz__bucket_view_leave(cz_zero *zero);
void cz__bucket_view_destroy(cz__bucket_view **view);

/* ---- shared.c: values in memory that ranks share ---- */

/* Are they? All or none: CZ_ERR_ARGUMENT. And where, for all to compare. */
cz_status cz__zero_find_shared(cz_zero *zero);
void cz__describe_sharing(cz__description *description, const cz_zero *zero);
/* What checked mode asks of readers of shared values: that a rank asks for a value not after its
 * last mark in a pass that steps inside, and with overlap_gather not for the first time with its
 * mark. CZ_ERR_STATE. */
cz_status cz__zero_have_reader_checks(cz_zero *zero); /* CZ_ERR_MEMORY */
cz_status cz__zero_check_reader(cz_zero *zero, int64_t param);
cz_status cz__zero_marks(void *zero, int64_t param);
void cz__zero_forget_asked(cz_zero *zero); /* values are on their way again */

/* ---- kinds.c: types ---- */

/* Once, with the number of parameters. CZ_ERR_MEMORY. */
cz_status cz__zero_find_kinds(cz_zero *zero);
/* Which parameters of a kind are `present`, until the next call; NULL: none, and there are other
 * kinds. And the kind of all that are; -1: there are several, or none. */
const uint8_t *cz__zero_include(const cz_zero *zero, int kind);
int cz__zero_only_kind(const cz_zero *zero);
/* Do updates get means that were not rounded, in f32, where gradients have 16 bits? Of what type is
 * what they get of a kind; is it another one than the gradient's? */
bool cz__zero_has_means(const cz_zero *zero);
cz_dtype cz__zero_given_dtype(const cz_zero *zero, int kind);
/* The same in any step that may come. */
cz_dtype cz__zero_widest_given(const cz_zero *zero, int kind);
bool cz__zero_widens(const cz_zero *zero, int64_t param);
/* Which parameters have used a slot, in elements of that type? False: none. */
bool cz__zero_include_slot(const cz_zero *zero, const cz__progress *progress, int slot,
                           cz_dtype dtype, uint8_t *include);
/* For what a map deals to this rank. CZ_ERR_MEMORY. */
cz_status cz__zero_means_create(cz__zero_means *means, const cz_zero *zero,
                                const cz_shard_map *map);
void cz__zero_means_clear(cz__zero_means *means, const cz_zero *zero);
/* What this rank sends and receives of gradients that are present, or of their values. */
uint64_t cz__zero_traffic(cz_zero *zero, bool of_values);

/* ---- describe.c: the fields that all ranks must have in common ---- */

/* Context: the optimizer, or for cz__describe_all() a cz__creation. All but that one begin with the
 * object. Settings may change between steps: which parameters are trainable, hyper-parameters. */
typedef struct cz__creation {
    const cz_zero *zero;
    const cz_zero_options *options; /* as read */
} cz__creation;
void cz__describe_settings(cz__description *description, const void *zero);
void cz__describe_step(cz__description *description, const void *zero);
void cz__describe_groups(cz__description *description, const void *zero);
void cz__describe_all(cz__description *description, const void *creation);
void cz__describe_partition(cz__description *description, const cz_zero *zero,
                            cz_partition partition, const int *owners);
/* What all fields are as a number, so that they are only written where ranks differ; and room for
 * that. CZ_ERR_MEMORY. */
uint64_t cz__zero_settings_print(const cz_zero *zero);
cz_status cz__zero_have_room_for_settings(cz_zero *zero);
/* All fields, as they are compared where ranks differ. */
cz_status cz__zero_write_settings(cz_zero *zero);

/* ---- shards.c ---- */

/* Is this parameter in a group, and not frozen? */
bool cz__zero_is_trained(const cz_zero *zero, int64_t param);

/* What all ranks together know of each parameter's progress. */
typedef struct cz__zero_progress {
    int64_t *words; /* owned, as the others: what travels */
    int64_t *steps;
    unsigned *used;
    double *scalars;
} cz__zero_progress;

/* Collective. CZ_ERR_MEMORY is seen by all ranks. To be cleared also after an error. */
cz_status cz__zero_progress_create(const cz_zero *zero, cz__zero_progress *progress);
void cz__zero_progress_clear(cz__zero_progress *progress);

static inline cz__progress cz__zero_progress_view(const cz__zero_progress *progress)
{
    return (cz__progress){progress->steps, progress->used, progress->scalars};
}

/* Are these options of a partition right for the parameter groups? CZ_ERR_ARGUMENT. */
cz_status cz__zero_check_partition(const cz_zero *zero, cz_partition partition, const int *owners,
                                   int64_t owner_count);
/* Make the map, from checked options. CZ_ERR_MEMORY. */
cz_status cz__zero_partition(const cz_zero *zero, cz_partition partition, const int *owners,
                             cz_shard_map **out);
/* Map and spans as they are with all groups. Local; whoever looks at them calls it first.
 * CZ_ERR_MEMORY: they are as before. */
cz_status cz__zero_settle_shards(cz_zero *zero);
/* Is nothing on its way: no pass of its ddp is under way, and there is memory for state, as at the
 * beginning of a step? CZ_ERR_STATE, CZ_ERR_MEMORY. */
cz_status cz__zero_come_to_rest(cz_zero *zero);
/* And are values those that train, so that shards and state may be looked at or changed now? */
cz_status cz__zero_check_idle(cz_zero *zero);
/* What was consolidated is out of date. */
void cz__zero_forget_dict(cz_zero *zero);

/* ---- print.c ---- */

/* In checked mode, before a step: do all ranks hold the same values of what is trained?
 * CZ_ERR_MISMATCH on all. Collective. */
cz_status cz__zero_compare_in_checked_mode(cz_zero *zero);

/* ---- passes.c ---- */

/* Does a step reduce gradients, or has somebody done so? */
static inline bool cz__zero_reduces(const cz_zero *zero)
{
    return zero->gradients != CZ_GRADIENTS_REDUCED;
}

/* Are means needed in memory, as more than one pass goes over them? As this rank sees it. */
bool cz__zero_keeps_means(const cz_zero *zero);

/* The values of parameters that are `present` from their owners to every rank. Memory for that was
 * had in advance. */
cz_status cz__zero_bring_values(cz_zero *zero);

/* Do ranks have weights in the mean? The same on all of them. */
bool cz__zero_has_weights(const cz_zero *zero);

/* Memory for partial sums. *out is NULL where no rule has any. CZ_ERR_MEMORY. */
cz_status cz__zero_sums_create(cz__zero_sums **out, const cz_zero *zero);
void cz__zero_sums_destroy(cz__zero_sums **sums); /* accepts NULL and *NULL */
/* Bytes of the longest stream, for the reserve that their exchange uses. */
size_t cz__zero_sums_bytes(const cz_zero *zero);
/* The longest stream of its operations, if they have `bytes` of parameters and no rule has partial
 * sums. */
size_t cz__zero_longest(size_t bytes);
/* Memory for any of its operations. CZ_ERR_MEMORY. */
cz_status cz__zero_reserve_transfers(cz__reserve **out, const cz_zero *zero);
/* May this optimizer step inside the passes of its ddp so? CZ_ERR_ARGUMENT, CZ_ERR_UNSUPPORTED. */
cz_status cz__overlap_check(const cz_zero *zero, cz_overlap overlap);
/* Can the step be one pass over tiles that is small, and the agreement in the same operation? As
 * this rank sees it. */
bool cz__zero_can_step_at_once(const cz_zero *zero);
/* Agree in that group and by that name, and where all ranks give the same fingerprint make the
 * step, which began at `start`. */
cz_status cz__zero_step_at_once(cz_zero *zero, double start, const cz__ddp_opening *where,
                                uint64_t fingerprint, bool *same);
/* Reduce, update, synchronise, once all ranks have agreed. */
cz_status cz__zero_make_step(cz_zero *zero, cz__step_outcome *outcome);

/* ---- step.c ---- */

/* Have memory for it, and be told of passes from now on, with the map that the optimizer has;
 * without overlap: only hand on the map. CZ_ERR_MEMORY: nothing was changed. */
cz_status cz__overlap_reserve(const cz_zero *zero, cz_overlap overlap);
void cz__overlap_bind(cz_zero *zero);

/* ---- create.c ---- */

/* What a sharded optimizer allocates, beside its local one, its map and staging memory. */
size_t cz__zero_bytes(int64_t params);

/* ---- what other parts ask ---- */

/* NULL, or 0, for a NULL. */
cz_ddp *cz__zero_ddp(const cz_zero *zero);
cz_group *cz__zero_group(const cz_zero *zero);
/* NULL: without memory for the shards of groups that have just been added. */
const cz_shard_map *cz__zero_shard_map(const cz_zero *zero);
const cz_parts *cz__zero_parts(const cz_zero *zero); /* its own, or its ddp's; NULL: none */
int64_t cz__zero_group_count(const cz_zero *zero);
cz_model *cz__zero_model(const cz_zero *zero);

#endif
