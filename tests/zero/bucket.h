/* SPDX-License-Identifier: MIT */
/* A rank's bucket: the values that it owns, as they lie in memory. */
#ifndef CZ_TEST_ZERO_BUCKET_H
#define CZ_TEST_ZERO_BUCKET_H

#include "support/spans.h"
#include "optim/optim.h"
#include "tensor/model.h"
#include "zero/zero.h"

/* The first piece without a gap of what `rank` owns of parameters in groups on that device; *data
 * is NULL if there is none. */
static inline void find_bucket(const cz_zero *zero, const cz_device *device, int rank, void **data,
                               int64_t *count)
{
    cz_span_iterator iterator;
    cz_span span;
    *data = NULL;
    *count = 0;
    cz_span_iterate(cz_test_shard_map(zero), rank, &iterator);
    while (cz_span_next(&iterator, &span)) {
        const cz_tensor *value = cz__model_value(zero->model, span.param);
        if (cz__optim_group_of(zero->optim, span.param) < 0 || cz__device_of(value) != device)
            continue;
        const size_t size = cz_dtype_size(value->dtype);
        char *begin = (char *)value->data + (size_t)span.begin * size;
        if (*data && begin != (char *)*data + (size_t)*count * size)
            break;
        *data = *data ? *data : begin;
        *count += span.end - span.begin;
    }
}

#endif
