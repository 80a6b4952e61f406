/* SPDX-License-Identifier: MIT */
/* Which parameters share a bucket: a pure function of types and sizes. */
#ifndef CZ_DDP_ASSIGN_H
#define CZ_DDP_ASSIGN_H

#include "czero/base.h"

enum {
    CZ__BUCKET_BYTES = 25 << 20,
    CZ__FIRST_BUCKET_BYTES = 1 << 20
}; /* where options say nothing */

/* Type and number of elements of a parameter. */
typedef void (*cz__param_size)(const void *context, int64_t param, cz_dtype *dtype, int64_t *count);

/* The bucket of each of the `count` parameters in `order`; returns how many there are. Parameters
 * of one type share buckets, which are closed once they have `bytes` of gradients, the first of each type
 * once it has `first_bytes`. Buckets are numbered as they are closed; those that stay open come last, by
 * their first parameter. */
int cz__ddp_assign(cz__param_size size_of, const void *context, int64_t count, const int64_t *order,
                   size_t first_bytes, size_t bytes, int *bucket_of);

/* For cz__ddp_assign() over a model: `context` is one. */
void cz__model_param_size(const void *model, int64_t param, cz_dtype *dtype, int64_t *count);

/* What a data-parallel model of that many parameters and buckets allocates, beside staging memory, the buffers of
 * hooks and its groups. */
size_t cz__ddp_bytes(int64_t params, int buckets);

#endif
