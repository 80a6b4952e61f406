/* SPDX-License-Identifier: MIT */
/* Files that torch.load() reads, from what a consolidated file holds. */
#ifndef CZ_INTEROP_TORCH_WRITE_H
#define CZ_INTEROP_TORCH_WRITE_H

#include "interop/bundle.h"

typedef struct cz__torch_export {
    const cz__index *index;      /* names, shapes, the optimizer's outline */
    cz__bundle *elements;        /* has all of its tensors */
    const cz_state_dict *common; /* NULL: an empty one */
    int64_t step;
    bool parameters_only; /* a state dictionary of the model and nothing else */
} cz__torch_export;

/* ".pt", ".pth" or ".bin" at its end. */
bool cz__torch_is_name(const char *path);

/* Write a new file, and have it on the medium. CZ_ERR_IO, CZ_ERR_UNSUPPORTED (no libzip; more names than a reader takes),
 * CZ_ERR_MEMORY: it has not made one then. Beside what names take, 8 MiB. Local. */
cz_status cz__torch_write(const char *path, const cz__torch_export *what);

#endif
