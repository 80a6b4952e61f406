/* SPDX-License-Identifier: MIT */
/* Files of torch.save(): a zip file with a pickle, which says what there is, and the elements of each storage. They may be
 * anybody's, so nothing is believed that was not checked. Everything here is local. */
#ifndef CZ_INTEROP_TORCH_H
#define CZ_INTEROP_TORCH_H

#include "io/container.h"
#include "io/pickle.h"
#include "io/safetensors.h"

typedef struct cz__torch {
    char *path;               /* owned, as the next four */
    cz__container *container; /* NULL: `entries` are pretended (tests) */
    cz__pickle *pickle;
    cz__text prefix;                    /* "archive/data/" */
    cz__text where;                     /* "FILE: archive/data.pkl" */
    const cz__container_entry *entries; /* borrowed; in the order of their names */
    int64_t entry_count;
    bool big_endian;
    uint64_t fingerprint; /* of the pickle, and of names, sizes, places and CRCs */
} cz__torch;

/* A tensor as a view of a storage. */
typedef struct cz__torch_tensor {
    cz__safetensors_entry form;         /* the name is the caller's; begin is 0, end its bytes */
    const cz__container_entry *storage; /* NULL: it has no elements */
    uint64_t first;                     /* byte of the file at which element 0 is */
    int64_t strides[CZ_MAX_DIMENSIONS]; /* elements */
    bool dense;                         /* one element after the other */
    bool swap;                          /* of the other byte order */
} cz__torch_tensor;

/* Is it a file for cz__torch_open(): a zip file, or a pickle as torch wrote them before version 1.6? CZ_ERR_IO: it cannot
 * be read. */
cz_status cz__torch_begins(const char *path, bool *is);

/* Read what there is, no elements. CZ_ERR_FORMAT: what is wrong, and where; CZ_ERR_UNSUPPORTED: what the library does
 * not read, and what to do; CZ_ERR_IO, CZ_ERR_MEMORY; as all that follow. */
cz_status cz__torch_open(cz__torch **out, const char *path);
/* The same of a pickle and a list of entries, which is borrowed; all elements are 0. */
cz_status cz__torch_pretend(cz__torch **out, const char *path, const void *pickle, size_t count,
                            const cz__container_entry *entries, int64_t entry_count);
void cz__torch_close(cz__torch **torch); /* accepts NULL and *NULL */

static inline const cz__pickle_value *cz__torch_root(const cz__torch *torch)
{
    return &torch->pickle->values[torch->pickle->root];
}

/* The tensor that a value is, under that name, checked against its storage. */
cz_status cz__torch_tensor_of(const cz__torch *torch, const cz__pickle_value *value,
                              const char *name, cz__torch_tensor *tensor);

/* Elements [begin, end) in row-major order. */
cz_status cz__torch_read(const cz__torch *torch, const cz__torch_tensor *tensor, int64_t begin,
                         int64_t end, void *to);

/* Is a value a number, or a tensor of one element? *number, and *integer if it is whole and fits (else INT64_MIN). */
cz_status cz__torch_number(const cz__torch *torch, const cz__pickle_value *value, const char *name,
                           bool *is_number, double *number, int64_t *integer);

/* Compare with their CRCs the storages that are the share of one rank. */
cz_status cz__torch_verify(const cz__torch *torch, int rank, int world_size);

#endif
