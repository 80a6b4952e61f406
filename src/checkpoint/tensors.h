/* SPDX-License-Identifier: MIT */
/* The tensors of a file to be written: its header, and where the elements come from, which is memory or other files. */
#ifndef CZ_CHECKPOINT_TENSORS_H
#define CZ_CHECKPOINT_TENSORS_H

#include <jansson.h>

#include "checkpoint/input.h"
#include "checkpoint/object.h"
#include "io/safetensors.h"

/* Where the elements of pieces are: one of the two. */
typedef struct cz__source {
    const cz_checkpoint *checkpoint; /* training state here */
    /* Files; in their index tensors have the same places, and the same slots. */
    cz__input *input;
    /* NULL, or called for what was written. CZ_OK, or why no more. */
    cz_status (*wrote)(size_t bytes, void *context);
    void *context;
} cz__source;

/* The elements of one tensor: at an address, or [begin, end) of something in the source's input. */
typedef struct cz__extent {
    const void *data;
    size_t bytes;
    const cz_device *device; /* NULL: in the input */
    int64_t stored, begin, end;
    const char *slot;
} cz__extent;

/* Zeroed is empty, but for the header. */
typedef struct cz__tensors {
    cz__safetensors *header; /* owned, as the next two */
    char *head;              /* the header's bytes, once it is dumped */
    cz__extent *extents;
    size_t head_bytes;
    int64_t count, capacity;
    size_t bytes; /* of all extents */
} cz__tensors;

void cz__tensors_clear(cz__tensors *tensors);

/* Append a piece; and a tensor of a dictionary (`context`: the cz__tensors). CZ_ERR_ARGUMENT, CZ_ERR_MEMORY. */
cz_status cz__tensors_add_piece(cz__tensors *tensors, const cz__piece *piece,
                                const cz__source *source);
cz_status cz__tensors_add(const char *name, const cz_tensor *tensor, void *context);

/* Copy all elements to *to, which is brought to its end; from then on they come from there. */
cz_status cz__tensors_copy(cz__tensors *tensors, char **to);

/* Write a file in the folder that is open; `path` is its path, for sentences. `source` NULL: all is at addresses. `sums`: NULL, or an array that gets a checksum for each tensor.
 * CZ_ERR_IO, CZ_ERR_FORMAT (of the input), CZ_ERR_MEMORY. */
cz_status cz__tensors_write(const cz__tensors *tensors, int folder, const char *path,
                            const cz__source *source, json_t *sums);

#endif
