/* SPDX-License-Identifier: MIT */
/* Consolidated files before they are written: which there are, and where in them everything is. It follows from the
 * index alone, so it is the same on all ranks, and whatever their number. */
#ifndef CZ_INTEROP_LAYOUT_H
#define CZ_INTEROP_LAYOUT_H

#include "checkpoint/index.h"
#include "czero/checkpoint.h"
#include "io/safetensors.h"

typedef struct cz__layout_file {
    cz__safetensors *header; /* owned, as the next three */
    char *head;              /* its bytes */
    char *path;
    char *name; /* of several files: the path that it gets (cz__layout_choose()); NULL: not yet */
    size_t head_bytes;
} cz__layout_file;

/* A tensor of the common dictionary. */
typedef struct cz__layout_common {
    char *name; /* owned */
    cz_tensor tensor;
} cz__layout_common;

typedef struct cz__layout {
    cz__layout_file *files; /* owned */
    int count;
    int64_t capacity;
    cz__layout_common *common; /* owned; its elements are the dictionary's */
    int64_t common_count, common_capacity;
    cz__names names; /* of all tensors: the number of the file */
    cz__text index;  /* of several files */
} cz__layout;

/* Editions of a folder's files have different names, so that those of one are complete before those of another go:
 * model-00001-of-00003.safetensors, model-1-00001-of-00003.safetensors, … (io/look.h). */
/* The files' names and the index of an edition, for the folder `path`. CZ_ERR_MEMORY. And one such path, in place of
 * what is in `text`. */
cz_status cz__layout_choose(cz__layout *layout, const char *path, int edition);
cz_status cz__layout_path(const cz__layout *layout, const char *path, int edition, int file,
                          cz__text *text);

/* For the path that was given: a file, or, with max_file_bytes, a folder. CZ_ERR_ARGUMENT: a name that is taken, or
 * not UTF-8; CZ_ERR_UNSUPPORTED: a header that would be too long; CZ_ERR_MEMORY. To be cleared in any case. */
cz_status cz__layout_create(cz__layout *layout, const cz__index *index, const char *path,
                            const cz_export_options *options);
void cz__layout_clear(cz__layout *layout);

/* The file in which a tensor begins, and the byte. The name is one that is there. */
void cz__layout_find(const cz__layout *layout, const char *name, int *file, uint64_t *offset);

/* Bytes of a file. */
uint64_t cz__layout_bytes(const cz__layout *layout, int file);

#endif
