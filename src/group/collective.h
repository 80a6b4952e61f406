/* SPDX-License-Identifier: MIT */
/* Collective operations for the parts above: agreement, and reductions and gathers along a shard
 * map. */
#ifndef CZ_GROUP_COLLECTIVE_H
#define CZ_GROUP_COLLECTIVE_H

#include "czero/group.h"
#include "czero/shard.h"
#include "czero/tensor.h"
#include "group/identity.h"
#include "base/leaves.h"

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
bool cz__group_is_broken(cz_group *group);        /* as far as this rank knows */
bool cz__group_is_checked(const cz_group *group); /* option checked; equal on all ranks or not */

/* Memory for one operation at a time, had in advance: an operation that is given it cannot be out
 * of memory, if its longest stream has at most `longest` bytes. Local. */
typedef struct cz__reserve cz__reserve;
cz_status cz__reserve_create(cz__reserve **out, cz_group *group, size_t longest);
#define CZ__LONGEST ((size_t)1 << 40) /* for any operation */
/* Without staging memory: the operation has that from a pool. */
cz_status cz__reserve_create_bare(cz__reserve **out, cz_group *group);
void cz__reserve_destroy(cz__reserve **reserve); /* accepts NULL and *NULL */
bool cz__reserve_is_bare(const cz__reserve *reserve);

/* Staging memory for any number of operations in flight, had in advance: each waits for its turn,
 * in the order in which they start, before its data move. So that order must be the same on all
 * ranks: the operations that are given one pool are the program's own, or are started one each by
 * continuations of such. Local; the group outlives what is in flight. `longest` as for a reserve;
 * `most`: as many operations are under way at the same time at most. */
typedef struct cz__pool cz__pool;
cz_status cz__pool_create(cz__pool **out, cz_group *group, size_t longest, int most);
void cz__pool_destroy(cz__pool **pool); /* nothing is in flight; accepts NULL and *NULL */
/* Bytes of a pool in a group of that size, and of a group's pool as it is (0: NULL). */
size_t cz__pool_plan(int size, size_t segment_bytes, size_t longest, int most);
size_t cz__pool_bytes(const cz__pool *pool);

/* What a rank gives to a sum in the place of one value, where the leaves of the tree of sums are more
 * than the ranks: a partial sum of each of its blocks of leaves. An average divides by the number of
 * leaves. */
typedef struct cz__terms {
    cz__leaves leaves; /* the same on all ranks */
    /* data[t][p]: of term t of this rank, the address of element 0 of parameter p; NULL: zeros. */
    void *const *const *data;
    const void **sources; /* room for leaves.count addresses, for one operation at a time */
} cz__terms;

/* What cz__reserve_create() and cz__pool_create() are given for reductions of terms. */
size_t cz__terms_longest(const cz__leaves *leaves, size_t longest);

/* Memory of a model, seen through a map: data[p] is the address of element 0 of parameter p. */
typedef struct cz__mapped {
    const cz_shard_map *map;
    void *const *data; /* NULL: the parameter counts as zeros here (reductions, not as an owner) */
    const uint8_t *include; /* param_count flags, equal on all ranks: 0: leave this parameter out */
    cz_dtype dtype;
    /* Reductions: where owners want their elements, as `data`; NULL: in `data`. */
    void *const *result;
    const cz__terms *terms; /* reductions: NULL, or what this rank gives in the place of `data` */
    cz__reserve *reserve;   /* NULL, or memory for the operation */
    cz__pool *pool;         /* NULL, or where its staging memory comes from */
    cz_status mine; /* not CZ_OK: what all ranks get instead, with the calling thread's sentence */
    bool detached;  /* started by a continuation, whose work does not wait for its end */
    /* All ranks see one memory of the values: a gather is over when all have come to it, and moves
     * nothing; nor do updates. */
    bool shared;
} cz__mapped;

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

/* Elements [first, first + count) of a parameter have been reduced, to where `gradient` points. */
typedef void (*cz__tile_update)(void *context, int64_t param, int64_t first, int64_t count,
                                const void *gradient);

/* Reduction, update and gathering in one pass over tiles that stay in cache. Each of an included
 * parameter's spans is averaged over the ranks (unless its owner has the mean already, in `result`
 * or `data`), handed to `update` of its owner, which changes these elements in its memory of
 * `values`, and goes from there to all ranks, unless they see one memory of it. Where the owner has
 * a gradient, its elements become the mean. */
typedef struct cz__tiled_step {
    cz__mapped gradients;
    bool reduces;
    void *const *values; /* NULL: `update` changes none, and nothing goes anywhere */
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

/* The device whose memory the group moves. Local. */
const cz_device *cz__group_device(const cz_group *group);

#endif
