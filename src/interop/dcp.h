/* SPDX-License-Identifier: MIT */
/* Folders of torch.distributed.checkpoint. A pickle, `.metadata`, says which tensors there are, of
 * which chunks each is put together, and in what part of which file a chunk is; each part is a file
 * of torch.save() by itself. They may be anybody's, so nothing is believed that was not checked.
 * Everything here is local. */
#ifndef CZ_INTEROP_DCP_H
#define CZ_INTEROP_DCP_H

#include "interop/torch.h"
#include "io/folder.h"

/* A file beside the metadata. */
typedef struct cz__dcp_file {
    char *path;         /* owned */
    const char *name;   /* the metadata's */
    cz__reader *reader; /* owned; NULL: it is not open now */
    uint64_t bytes;
} cz__dcp_file;

/* A part of a file: what torch.save() wrote of a chunk, or of something that is no tensor. */
typedef struct cz__dcp_part {
    int file;
    uint64_t begin, bytes;
    /* In the list of all parts: */
    int64_t first_sum; /* of its blocks */
    bool verified;     /* those are known */
} cz__dcp_part;

/* The view of a part's tensor; places are those in the file. */
typedef struct cz__dcp_view {
    cz__torch_tensor tensor;
    cz__container_entry storage; /* what the view reaches; without a name */
} cz__dcp_view;

/* A box of a tensor. */
typedef struct cz__dcp_chunk {
    const int64_t *offsets, *sizes; /* the tensor's */
    int64_t count;                  /* elements */
    int64_t first, last;            /* places in the tensor, in row-major order */
    cz__dcp_part part;
    cz__dcp_view *view; /* owned; NULL: it was not read yet */
} cz__dcp_chunk;

typedef struct cz__dcp_tensor {
    const char *name;           /* the metadata's, or of what it is in */
    cz__safetensors_entry form; /* without a name */
    cz__dcp_chunk *chunks;      /* owned, as the next; those that have elements */
    int64_t *boxes;             /* offsets and sizes */
    int64_t chunk_count;
} cz__dcp_tensor;

/* A name in the metadata. */
typedef struct cz__dcp_entry {
    const char *name;
    const cz__pickle_value *about; /* what the metadata say of it */
    const cz__pickle_value *path;  /* a tuple; NULL: the name is the only key */
    int64_t order;                 /* in which the program had them */
    int64_t tensor;                /* its number; -1: it is no tensor, and in the part */
    cz__dcp_part part;
} cz__dcp_entry;

typedef struct cz__dcp {
    char *path; /* owned, as all that follow */
    cz__text where;
    cz__pickle *metadata;
    cz__dcp_file *files; /* in the order of their names */
    cz__dcp_entry *entries;
    cz__dcp_tensor *tensors;
    cz__dcp_part *parts; /* in the order of the files */
    uint64_t *sums;      /* checksums of the blocks of all parts */
    int64_t entry_count, tensor_count, tensor_room, part_count;
    int file_count, open;
    int64_t sum_count;
    uint64_t block;       /* bytes */
    cz__held held;        /* of what is read */
    uint64_t fingerprint; /* of the metadata, and of the files' sizes */
    cz__budget budget;
} cz__dcp;

/* dcp.c: read the metadata, and compare with the files: every element of every tensor is in one
 * part, and parts share no bytes. CZ_ERR_FORMAT, CZ_ERR_UNSUPPORTED, CZ_ERR_IO, CZ_ERR_MEMORY, as
 * all that follow. */
cz_status cz__dcp_read_metadata(cz__dcp **out, const char *path);
void cz__dcp_close(cz__dcp **dcp); /* accepts NULL and *NULL */
cz_status cz__dcp_refuse(const cz__dcp *dcp, const char *format, ...) CZ_PRINTF(2, 3);
/* The part in the list of all parts. */
cz__dcp_part *cz__dcp_listed(const cz__dcp *dcp, const cz__dcp_part *part);
/* For more tensors. */
cz_status cz__dcp_reserve(cz__dcp *dcp, int64_t more);

/* dcp_read.c: a part as the file that it is; the next part of the same file may be opened
 * meanwhile, and no other. */
cz_status cz__dcp_open_part(cz__dcp *dcp, const cz__dcp_part *part, cz__torch **out);
/* A tensor more, which is in a part beside other things; its number. `value` is of `torch`, which
 * is the part. */
cz_status cz__dcp_add_view(cz__dcp *dcp, const cz__dcp_part *part, const cz__torch *torch,
                           const cz__pickle_value *value, const char *name, int64_t *number);
extern const cz__torch_store cz__dcp_store; /* `stored`: a cz__dcp */
/* The persistent id by which a pickle names a tensor of a store: a tuple of this and a number. */
#define CZ__DCP_ID "tensor of a folder"

/* dcp_tree.c: the whole as a file of torch, with the dictionary that was saved. */
cz_status cz__dcp_open(cz__torch **out, const char *path);

#endif
