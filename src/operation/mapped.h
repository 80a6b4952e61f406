/* SPDX-License-Identifier: MIT */
/* What the parts above give an operation: a model's memory, seen through a map, and memory that the
 * operation needs for itself, had in advance. */
#ifndef CZ_OPERATION_MAPPED_H
#define CZ_OPERATION_MAPPED_H

#include "czero/group.h"
#include "czero/shard.h"
#include "czero/tensor.h"
#include "base/leaves.h"

/* Memory for one operation at a time: group/collective.h makes it. */
typedef struct cz__reserve cz__reserve;

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

/* What a rank gives to a sum in the place of one value, where the leaves of the tree of sums are
 * more than the ranks: a partial sum of each of its blocks of leaves. An average divides by the
 * number of leaves. */
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
    /* Reductions: where owners want their elements, as `data`; NULL: in `data`. And their type
     * there, if it is another one (0: it is not): CZ_F32 of 16-bit types, whose sum or average is
     * not rounded then. With that `result` is needed, if only as a list of NULLs in a step. */
    void *const *result;
    cz_dtype result_dtype;
    const cz__terms *terms; /* reductions: NULL, or what this rank gives in the place of `data` */
    cz__reserve *reserve;   /* NULL, or memory for the operation */
    cz__pool *pool;         /* NULL, or where its staging memory comes from */
    cz_status mine; /* not CZ_OK: what all ranks get instead, with the calling thread's sentence */
    bool detached;  /* started by a continuation, whose work does not wait for its end */
    /* All ranks see one memory of the values: a gather is over when all have come to it, and moves
     * nothing; nor do updates. */
    bool shared;
} cz__mapped;

/* Elements [first, first + count) of a parameter have been reduced, to where `gradient` points. */
typedef void (*cz__tile_update)(void *context, int64_t param, int64_t first, int64_t count,
                                const void *gradient);

#endif
