/* SPDX-License-Identifier: MIT */
/* Consolidated files that are read: one of safetensors, or those that an index lists, or one of
 * torch. They may be anybody's, so nothing is believed that was not checked. Everything here is
 * local. */
#ifndef CZ_INTEROP_BUNDLE_H
#define CZ_INTEROP_BUNDLE_H

#include <jansson.h>

#include "checkpoint/index.h"
#include "checkpoint/input.h"
#include "interop/torch.h"
#include "io/safetensors.h"
#include "io/stream.h"

typedef struct cz__bundle_file {
    char *path; /* owned, as the next */
    cz__safetensors *header;
    cz__reader *reader; /* owned; NULL: not open now */
} cz__bundle_file;

/* A tensor, and where it is. */
typedef struct cz__located {
    const cz__safetensors_entry *entry;
    int file;                     /* of several of safetensors */
    const cz__torch_tensor *view; /* in a file of torch; NULL: in one of safetensors */
} cz__located;

typedef struct cz__bundle {
    char *path;             /* owned; as it was given */
    cz__bundle_file *files; /* owned; in the order of their names */
    int count, open;
    cz__located *tensors; /* owned; of all files, in the order of their names */
    int64_t tensor_count;
    json_t *json; /* owned; what is no tensor; NULL: another program's files, or torch's */
    cz__torch_contents *torch; /* owned; NULL: files of safetensors */
    uint64_t fingerprint;      /* of headers and names of files */
} cz__bundle;

/* Read and check all headers, and the index if there is one. `here`, which may be NULL, is for
 * files of torch: see cz__torch_contents_open(). CZ_ERR_IO, CZ_ERR_FORMAT, CZ_ERR_UNSUPPORTED,
 * CZ_ERR_MEMORY, as all that follow. */
cz_status cz__bundle_open(cz__bundle **out, const char *path, const cz__index *here);
void cz__bundle_close(cz__bundle **bundle); /* accepts NULL and *NULL */

/* What is in it, in the order of the data. Another program's files do not say which tensors are
 * buffers: those that are so in `here`, none where that is NULL. The bundle outlives the index. To
 * be cleared in any case. */
cz_status cz__bundle_index(const cz__bundle *bundle, const cz__index *here, cz__index *index);

/* NULL: it is not there. */
const cz__located *cz__bundle_find(const cz__bundle *bundle, const char *name);

/* What of the files was left, or taken for something, a sentence each line; NULL: nothing. The
 * bundle's. */
const char *cz__bundle_notes(const cz__bundle *bundle);

/* Elements [begin, end) of a tensor, in the type of the file. */
cz_status cz__bundle_read(cz__bundle *bundle, const char *name, int64_t begin, int64_t end,
                          void *to);

/* Compare with checksums, where files have them, what is one rank's share of them. So that all
 * ranks read what was verified, their checksums of blocks are to be added up, element by element;
 * NULL: there are none. Then they are trusted. */
cz_status cz__bundle_verify(const cz__bundle *bundle, int rank, int world_size);
uint64_t *cz__bundle_sums(const cz__bundle *bundle, int64_t *count);
void cz__bundle_trust(const cz__bundle *bundle);

/* The common dictionary; an empty one if there is none. */
cz_status cz__bundle_common(cz__bundle *bundle, cz_state_dict **out);

/* As an input: what a load, a conversion and a plan read. `here`: see cz__bundle_index(). To be
 * closed in any case. */
cz_status cz__input_open_bundle(cz__input *input, const char *path, const cz__index *here);
/* NULL: it is a generation, or could not be opened. */
static inline cz__bundle *cz__input_bundle(const cz__input *input)
{
    return input->files;
}

#endif
