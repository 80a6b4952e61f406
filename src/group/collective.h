/* SPDX-License-Identifier: MIT */
/* Collective operations for the parts above: agreement, and reductions and gathers along a shard
 * map. */
#ifndef CZ_GROUP_COLLECTIVE_H
#define CZ_GROUP_COLLECTIVE_H

#include "czero/group.h"
#include "operation/identity.h"
#include "operation/mapped.h"

/* All ranks give their status (the sentence is the calling thread's) and a fingerprint; all get the
 * same status back: that of the lowest rank that failed, with its sentence prefixed by "rank R: ";
 * or CZ_OK, and *same says whether all fingerprints are equal. `same` may be NULL. Collective,
 * blocking. CZ_ERR_PEER, CZ_ERR_TIMEOUT: the group is broken. */
cz_status cz__agree(cz_group *group, cz_status mine, uint64_t fingerprint, bool *same,
                    const char *label);

/* The same without waiting: a work (see CZ_START) that ends when all ranks have come, for what
 * continues it. */
cz_status cz__agree_start(cz_group *group, cz_status mine, const cz_operation_options *options);

/* This rank cannot do its part of the operation whose continuation runs here: the group is of no
 * use any more from that one on. All ranks get the status, with the calling thread's sentence. */
void cz__group_give_up(cz_group *group, cz_status status);
/* Are these two ranks on one machine? Threads of one process are, others are where the backend
 * says. */
bool cz__group_are_together(const cz_group *group, int a, int b);
/* Option checked; equal on all ranks or not. */
bool cz__group_is_checked(const cz_group *group);

/* Memory for one operation at a time, had in advance: an operation that is given it cannot be out
 * of memory, if its longest stream has at most `longest` bytes. Local. */
cz_status cz__reserve_create(cz__reserve **out, cz_group *group, size_t longest);
#define CZ__LONGEST ((size_t)1 << 40) /* for any operation */
/* Without staging memory: the operation has that from a pool. */
cz_status cz__reserve_create_bare(cz__reserve **out, cz_group *group);
void cz__reserve_destroy(cz__reserve **reserve); /* accepts NULL and *NULL */
bool cz__reserve_is_bare(const cz__reserve *reserve);

/* Bytes of an operation; a group with nothing in flight, as a first one of the rank's, or as a
 * sub-group of that. `in_process`: with what the ranks of one process need to meet. */
size_t cz__work_bytes(int size, bool in_process);
size_t cz__group_bytes(int size, bool first, bool in_process);

/* Every span of an included parameter becomes, on its owner, the reduction of what all ranks hold.
 * The other ranks' memory is left as it was. Collective; as the public operations otherwise. The
 * struct is copied; what it points to is in use until the work is done. */
cz_status cz__reduce_along_map(cz_group *group, const cz__mapped *memory, cz_reduction reduction,
                               const cz_operation_options *options);

/* The same, and from its owner it goes to all ranks. */
cz_status cz__all_reduce_along_map(cz_group *group, const cz__mapped *memory,
                                   cz_reduction reduction, const cz_operation_options *options);

/* Every span of an included parameter becomes, on every rank, what its owner holds. */
cz_status cz__gather_along_map(cz_group *group, const cz__mapped *memory,
                               const cz_operation_options *options);

/* Reduction, update and gathering in one pass over tiles that stay in cache. Each of an included
 * parameter's spans is reduced over the ranks (unless its owner has the result already, in `result`
 * or `data`), handed to `update` of its owner, which changes these elements in its memory of
 * `values`, and goes from there to all ranks, unless they see one memory of it. Where the owner has
 * a gradient, its elements become the result, unless it is of another type. */
typedef struct cz__tiled_step {
    cz__mapped gradients;
    bool reduces;
    cz_reduction reduction; /* if it does */
    void *const *values;    /* NULL: `update` changes none, and nothing goes anywhere */
    cz_dtype value_dtype;   /* 0: as the gradients have */
    cz__tile_update update;
    void *context;
} cz__tiled_step;

/* Collective, blocking; otherwise as the operations above. */
cz_status cz__step_along_map(cz_group *group, const cz__tiled_step *step,
                             const cz_operation_options *options);

/* As cz__agree() of a rank that has not failed: where all ranks give the same fingerprint the step
 * is made, too, in the same operation. The fingerprint says which parameters are included. */
cz_status cz__agree_on_step(cz_group *group, const cz__tiled_step *step, uint64_t fingerprint,
                            bool *same, const char *label);

/* cz_all_to_all_v() by a rank that may have failed before, and with memory had in advance. */
typedef struct cz__blocks {
    const void *input;
    const int64_t *send_counts; /* in use until the work is done, as the next two */
    void *output;
    const int64_t *receive_counts;
    cz__reserve *reserve; /* NULL, or memory for the operation, of at least a chunk */
    cz_status mine; /* not CZ_OK: what all ranks get instead, with the calling thread's sentence */
} cz__blocks;
cz_status cz__exchange_blocks(cz_group *group, const cz__blocks *blocks, cz_dtype dtype,
                              const cz_operation_options *options);

#endif
