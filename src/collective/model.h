/* SPDX-License-Identifier: MIT */
/* Models and groups: can the group move this one; and a model on its way, from one rank to all, and
 * from the owners of one map to those of another. */
#ifndef CZ_COLLECTIVE_MODEL_H
#define CZ_COLLECTIVE_MODEL_H

#include "group/collective.h"

/* Can the group move every tensor of the model, dense and on a device of the group's type?
 * CZ_ERR_UNSUPPORTED, the sentence begins with `part`. Local. */
cz_status cz__group_check_model(const cz_group *group, const cz_model *model, const char *part);

/* Every rank's parameters and buffers become those of rank `root`; models are alike on all ranks.
 * `object`: that which the call is on. Collective, blocking. Errors as
 * cz_zero_broadcast_parameters(). */
cz_status cz__broadcast_model(cz_group *group, const cz_model *model, const cz__object *object,
                              int root, const char *label);

/* Elements on their way from their owners in one map to their owners in another. Elements that one
 * of the maps gives to nobody stay out. */
typedef struct cz__move {
    const cz_shard_map *from, *to; /* of the same parameters; equal on all ranks */
    const uint8_t *include; /* param_count flags, equal on all ranks: 0: leave this parameter out */
    size_t element_size;
    /* Addresses of element `begin`, from which a run that is one span here lies contiguously: where
     * this rank, an owner in `from`, has it, and where it, an owner in `to`, wants it; the same
     * address where nothing has to be done. */
    const void *(*source)(void *context, int64_t param, int64_t begin);
    void *(*target)(void *context, int64_t param, int64_t begin);
    void *context;
} cz__move;

/* Staging memory: 32 MiB at most. Collective, blocking. CZ_ERR_MEMORY is seen by all ranks and
 * nothing was moved. */
cz_status cz__move_between_maps(cz_group *group, const cz__move *move, const char *label);

#endif
