/* SPDX-License-Identifier: MIT */
/* An export under way: what this rank writes into the files that all ranks write, and what rank 0
 * does for all. Files have another name until they are published (io/folder.h). Everything here is
 * local. */
#ifndef CZ_INTEROP_EXPORTING_H
#define CZ_INTEROP_EXPORTING_H

#include "checkpoint/index.h"
#include "checkpoint/object.h"
#include "czero/checkpoint.h"
#include "io/safetensors.h"

/* ---- layout.c ---- */
/* Consolidated files before they are written: which there are, and where in them everything is. It
 * follows from the index alone, so it is the same on all ranks, and whatever their number. */

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

/* Editions of a folder's files have different names, so that those of one are complete before those
 * of another go: model-00001-of-00003.safetensors, model-1-00001-of-00003.safetensors, …
 * (io/folder.h). */
/* The files' names and the index of an edition, for the folder `path`. CZ_ERR_MEMORY. And one such
 * path, in place of what is in `text`. */
cz_status cz__layout_choose(cz__layout *layout, const char *path, int edition);
cz_status cz__layout_path(const cz__layout *layout, const char *path, int edition, int file,
                          cz__text *text);

/* For the path that was given: a file, or, with max_file_bytes, a folder. CZ_ERR_ARGUMENT: a name
 * that is taken, or not UTF-8; CZ_ERR_UNSUPPORTED: a header that would be too long; CZ_ERR_MEMORY.
 * To be cleared in any case. */
cz_status cz__layout_create(cz__layout *layout, const cz__index *index, const char *path,
                            const cz_export_options *options);
void cz__layout_clear(cz__layout *layout);

/* The file in which a tensor begins, and the byte. The name is one that is there. */
void cz__layout_find(const cz__layout *layout, const char *name, int *file, uint64_t *offset);

/* Bytes of a file. */
uint64_t cz__layout_bytes(const cz__layout *layout, int file);

/* ---- exporting.c, publish.c ---- */

enum { CZ__TOKEN_BYTES = 16 };

/* Bytes of this rank, and where they go. */
typedef struct cz__run {
    int file;
    uint64_t offset;
    const char *data;
    size_t bytes;
    const cz_device *device;
} cz__run;

typedef struct cz__exporting {
    cz_checkpoint *checkpoint;
    char *path; /* owned; without slashes at its end */
    /* Owned: of a file for torch, where all ranks write its elements, as a safetensors file that
     * rank 0 then makes the file from; NULL: that is the file. */
    char *elements;
    bool distributed; /* it is a folder for torch.distributed.checkpoint */
    cz_export_options options;
    cz__index index;
    cz__layout layout;
    cz__run *runs; /* owned; in the order of the files */
    int64_t count, capacity;
    char *buffer; /* owned */
    /* At the beginning of the first file until its header comes: it is this one. */
    uint8_t token[CZ__TOKEN_BYTES];
    int *files;      /* owned: of each file, -1: it is not open */
    int64_t *inodes; /* owned: of each, as rank 0 has made it, and behind them its machine */
    int created;     /* of rank 0, as the next: files that it has made */
    int named;       /* and given their names */
    bool made_folder;
    bool converted; /* there is a file for torch that has no name yet */
} cz__exporting;

void cz__exporting_clear(cz__exporting *e);

/* The path is to be a file for torch, or a folder for it. CZ_ERR_MEMORY. */
cz_status cz__exporting_for_torch(cz__exporting *e, bool distributed);

size_t cz__exporting_bytes(void); /* through which small spans pass */

/* Have all that writing takes: layout, runs, memory. CZ_ERR_ARGUMENT, CZ_ERR_UNSUPPORTED,
 * CZ_ERR_MEMORY. */
cz_status cz__exporting_prepare(cz__exporting *e);

/* Rank 0: make the files, with room for all they will have. CZ_ERR_IO, as all that follow. */
cz_status cz__exporting_make(cz__exporting *e);
/* Are the files that this rank can find under the path those that rank 0 has made? */
cz_status cz__exporting_see(cz__exporting *e);
/* Once the layout is there; the end is cz__exporting_clear()'s. CZ_ERR_MEMORY. */
cz_status cz__exporting_have_files(cz__exporting *e);
void cz__exporting_close_files(cz__exporting *e);
/* Rank 0 has made one, which stays open: 0, or an errno. */
int cz__exporting_made(cz__exporting *e, int number, int file);
/* That file, to read and to write, open until the end, or, of many, until it is released (0, or an
 * errno). *error: why it cannot be opened. CZ_ERR_IO: it cannot, or another one has its name. */
cz_status cz__exporting_open(cz__exporting *e, int number, int *file, int *error);
int cz__exporting_release(cz__exporting *e, int number);
/* Does it have that name? CZ_ERR_IO: it does not (*other), or nobody can tell. */
cz_status cz__exporting_check_name(const cz__exporting *e, int number, const char *path,
                                   bool *other);
/* Write, and have it on the medium. */
cz_status cz__exporting_write(cz__exporting *e);
/* Bytes that this rank writes; and of all files, which is the sum over ranks where each has its
 * part. */
int64_t cz__exporting_share(const cz__exporting *e);
int64_t cz__exporting_total(const cz__exporting *e);
/* Rank 0, once all have written: are the files what an import wants, headers and lengths?
 * CZ_ERR_FORMAT. */
cz_status cz__exporting_confirm(cz__exporting *e);
/* Rank 0: give the files their names; or take them away. */
cz_status cz__exporting_publish(cz__exporting *e);
void cz__exporting_discard(cz__exporting *e);

#endif
