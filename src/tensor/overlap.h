/* SPDX-License-Identifier: MIT */
/* Memories of a model that must not overlap: what is written through one name would change what another one has, on ranks
 * or in moments that do not know of each other. */
#ifndef CZ_TENSOR_OVERLAP_H
#define CZ_TENSOR_OVERLAP_H

#include "czero/tensor.h"

/* Who asks, and about what. What it reads and writes are the values, and for trainable ones the gradients, of its own
 * parameters; values and buffers of others may share memory with each other. No gradient shares memory with a value or a
 * buffer, no buffer with a value. Empty tensors are nowhere. */
typedef struct cz__overlaps {
    const char *part; /* begins the sentence: "ddp" */
    const cz_model *model;
    bool (*is_own)(const void *context, int64_t param);
    const void *context;
    void *const *gradients; /* NULL: the model's; else one address per parameter, NULL: none */
    bool reuses_gradients;  /* one may be in the memory of another, which is not needed any more */
    bool
        before_use; /* a parameter's gradient may be where its own value is, until somebody reads it */
} cz__overlaps;

/* CZ_ERR_ARGUMENT, with both names; CZ_ERR_MEMORY. Time n log n in the number of tensors. */
cz_status cz__check_overlaps(const cz__overlaps *overlaps);

/* The same for memory that moves: what was found right is remembered, and is not looked at again. All zero: nothing
 * yet. */
typedef struct cz__overlap_memory {
    void **gradients;               /* owned; that were right together */
    uint64_t moves, gradient_moves; /* of the model then */
    bool reused;
    struct cz__extent_table *table; /* owned; while parameters come in one after the other */
} cz__overlap_memory;
cz_status cz__check_overlaps_again(cz__overlap_memory *memory, const cz__overlaps *overlaps);
/* When an object is made: gradients that are apart are remembered, so that its first use need not look at them; where they
 * are not, that may be as `overlaps` says. */
cz_status cz__check_overlaps_at_first(cz__overlap_memory *memory, const cz__overlaps *overlaps);
/* When these parameters have become own ones: as the one before, without a look at those that were. Time in proportion
 * to `count`, but for the first time and logarithms. */
cz_status cz__check_overlaps_of(cz__overlap_memory *memory, const cz__overlaps *overlaps,
                                const int64_t *params, int64_t count);
void cz__overlap_memory_clear(cz__overlap_memory *memory);

#endif
