/* SPDX-License-Identifier: MIT */
/* Shapes as a plan reads them: arrays, so that a million tensors take a few bytes each. */
#ifndef CZ_PLAN_SHAPES_H
#define CZ_PLAN_SHAPES_H

#include "czero/plan.h"
#include "io/text.h"

enum { CZ__SHAPE_KINDS = 3 };

typedef struct cz__shape_sums {
    int64_t count, elements;
    uint64_t bytes, name_bytes;
} cz__shape_sums;

struct cz_shapes {
    int64_t count, capacity;
    int64_t *elements; /* owned, as all that follows, one for each tensor */
    uint8_t *dtypes, *kinds;
    int64_t *
        layout; /* parameters in the fixed layout, counted without buffers; NULL: the last one first */
    cz__shape_sums sums[CZ__SHAPE_KINDS];
    cz_dtype dtype;  /* of the first parameter */
    cz__shown other; /* the first one of another type; "": none */
};

#endif
