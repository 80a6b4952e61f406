/* SPDX-License-Identifier: MIT */
/* What a plan asks of checkpoints: the shapes in files, and how much memory saves and exports
 * take. */
#ifndef CZ_INTEROP_SHAPES_H
#define CZ_INTEROP_SHAPES_H

#include "czero/tensor.h"

/* A tensor of a file: a buffer, or a parameter. `frozen`, `buffer`: as the file says it. */
typedef struct cz__file_shape {
    const char *name;
    cz_tensor tensor; /* without data */
    bool frozen, buffer;
} cz__file_shape;
typedef cz_status (*cz__shape_visitor)(const cz__file_shape *shape, void *context);

/* The tensors of a checkpoint, or of a safetensors file or a folder of them, the parameters first.
 * CZ_ERR_IO, CZ_ERR_FORMAT, CZ_ERR_ARGUMENT (nothing of that kind), CZ_ERR_UNSUPPORTED,
 * CZ_ERR_MEMORY, or what `visit` returns. */
cz_status cz__checkpoint_shapes(const char *path, cz__shape_visitor visit, void *context);

/* The same from a text in JSON, as a header has it. */
cz_status cz__json_shapes(const char *path, const char *bytes, size_t count,
                          cz__shape_visitor visit, void *context);

/* What one rank saves, or exports. */
typedef struct cz__save_shape {
    uint64_t elements_bytes; /* of its part */
    int64_t pieces, tensors; /* tensors of its part; parameters and buffers of the model */
    int64_t slots;           /* element slots of each parameter */
    uint64_t name_bytes;     /* of all tensors' names */
} cz__save_shape;
uint64_t cz__save_memory(const cz__save_shape *shape);
uint64_t cz__export_memory(const cz__save_shape *shape);

#endif
