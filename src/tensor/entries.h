/* SPDX-License-Identifier: MIT */
/* What a model is made of: for the files that build, read and change it. */
#ifndef CZ_TENSOR_ENTRIES_H
#define CZ_TENSOR_ENTRIES_H

#include "base/names.h"
#include "czero/tensor.h"

typedef struct cz__entry {
    char *name; /* owned */
    cz_tensor value;
    cz_tensor gradient;
    cz_dtype gradient_dtype; /* of one that comes later, too */
    bool has_gradient;
    bool requires_grad;
    bool is_viewed; /* an optimizer has moved the value into its buckets */
    int64_t block;  /* the flat block it was added with, -1: none */
} cz__entry;

typedef struct cz__entries {
    cz__entry *items; /* owned */
    int64_t count;
    int64_t capacity;
} cz__entries;

struct cz_model {
    cz__entries params;
    cz__entries buffers;
    cz__names names; /* parameter i is number i, buffer i is number -1 - i */
    int64_t element_count;
    int64_t block_count;
    int64_t freezes; /* optimizers that stand on it */
    int ddps, reducing_optimizers, parts;
    uint64_t moves, gradient_moves;
    /* Owned, while it is frozen; NULL: not asked for. Of the parameters: where values are, and
     * gradients; which of them are trainable. */
    void **addresses;
    void **gradients;
    uint8_t *trainable;
    bool abandoned; /* destroyed by the program, and still stood on: the last thaw frees it */
};

#endif
