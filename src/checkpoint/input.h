/* SPDX-License-Identifier: MIT */
/* What a load reads: a generation, its index, and of the parts those that are asked for; or files
 * of another form, which have an index made from them and no parts. Everything here is local;
 * cz__placement says which rank has what. */
#ifndef CZ_CHECKPOINT_INPUT_H
#define CZ_CHECKPOINT_INPUT_H

#include "checkpoint/index.h"
#include "io/safetensors.h"
#include "io/stream.h"

/* A tensor of a dictionary whose elements have not come yet. */
typedef struct cz__late_tensor {
    int64_t entry; /* of the header */
    char *data;    /* the dictionary's */
} cz__late_tensor;

/* One safetensors file with the checksums of its tensors. */
typedef struct cz__input_file {
    cz__reader *reader;      /* owned; NULL: not open now */
    cz__safetensors *header; /* owned; NULL: not read yet */
    char *path;              /* owned */
    json_t *sums;            /* owned: the checksum of each tensor */
    json_t *mark;            /* owned; of a part: its JSON file */
    bool elsewhere;          /* another rank has it: tensors are noted, and come later */
    cz__late_tensor *late;   /* owned */
    int64_t late_count, late_capacity;
} cz__input_file;

typedef struct cz__input cz__input;

/* How files of another form than a generation's are read, such as those of other programs
 * (interop/bundle.h). */
typedef struct cz__input_form {
    /* Read elements [begin, end) of a value (slot NULL) or a slot; `to` NULL: only see that they
     * are there. */
    cz_status (*read)(cz__input *input, int64_t stored, const char *slot, int64_t begin,
                      int64_t end, void *to);
    /* Read the common dictionary; an empty one if there is none. */
    cz_status (*common)(cz__input *input, cz_state_dict **out);
    void (*close)(cz__input *input);
} cz__input_form;

struct cz__input {
    char *path; /* owned: the generation's folder, or what was imported */
    cz__index index;
    cz__input_file *parts; /* owned, one for each rank that saved */
    cz__input_file common;
    /* Owned, one for each part: of those that were verified, by whomever; or NULL. */
    cz__block_table *blocks;
    cz__held held; /* of one of them */
    int open;      /* files */
    cz__text name; /* of a tensor that is looked for: what was reached needs no more room again */
    const cz__input_form *form; /* of `files`; NULL: a generation */
    void *files;                /* owned; of another form; NULL: a generation, or not open yet */
};

/* Read the index. CZ_ERR_IO, CZ_ERR_FORMAT, CZ_ERR_UNSUPPORTED, CZ_ERR_MEMORY, as all that follows.
 * To be closed in any case. */
cz_status cz__input_open(cz__input *input, const char *path);
/* The same in two steps, where another rank may have the index: its folder's name, and the bytes of
 * the file. */
cz_status cz__input_name(cz__input *input, const char *path);
cz_status cz__input_parse(cz__input *input, const char *bytes, size_t count);
/* The bytes; *bytes is for cz__free(). */
cz_status cz__input_index_bytes(const cz__input *input, char **bytes, size_t *count);
void cz__input_close(cz__input *input);

/* ---- parts, of a generation only ---- */

/* Have a part's mark and header, checked against the index: it holds what the index says, no more
 * and no less. */
cz_status cz__input_part(cz__input *input, int rank);

/* The same, and its file is open. */
cz_status cz__input_open_part(cz__input *input, int rank);

/* Compare all of a part with its checksums. */
cz_status cz__input_verify(cz__input *input, int rank);
/* The same, but what is damaged is no end: `tell` is called for each tensor that is, the thread's
 * sentence says which; what it returns but CZ_OK ends it. */
typedef cz_status (*cz__damage_visitor)(void *context);
cz_status cz__input_verify_each(cz__input *input, int rank, cz__damage_visitor tell, void *context);

/* Bytes of a part's data. Where it was verified they are those that were: CZ_ERR_FORMAT. */
cz_status cz__input_read_part(cz__input *input, int rank, uint64_t offset, char *to, size_t count);
/* Have the list of their checksums; and the memory for that, of one part. CZ_ERR_MEMORY. */
cz_status cz__input_have_blocks(cz__input *input);
cz_status cz__input_hold(cz__input *input, int rank);

/* ---- elements and dictionaries ---- */

/* The piece of a value or a slot in which an element is, and the rank whose part has it.
 * CZ_ERR_FORMAT: nobody. */
cz_status cz__input_piece(const cz__input *input, int64_t stored, int64_t element, cz_span *piece);

/* Elements [begin, end) of a value (slot NULL) or a slot, wherever they are, in the type of the
 * file. */
cz_status cz__input_read(cz__input *input, int64_t stored, const char *slot, int64_t begin,
                         int64_t end, void *to);
/* Have the parts that this takes, and see that they have it: the same cz__input_read() then needs
 * no memory (of files that are not open any more, a little). */
cz_status cz__input_reach(cz__input *input, int64_t stored, const char *slot, int64_t begin,
                          int64_t end);

/* The dictionaries, verified. */
/* What the index says of it; NULL: no file. */
const json_t *cz__input_common_file(const cz__input *input);
cz_status cz__input_common(cz__input *input, cz_state_dict **out);
cz_status cz__input_own(cz__input *input, int rank, cz_state_dict **out);

/* ---- input_file.c ---- */
/* One file of a generation: opened and checked against what is said of it, compared with its
 * checksums. */

void cz__input_file_clear(cz__input_file *file);

/* Read the mark of a part and its file's header, and check both against the index. */
cz_status cz__input_file_open_part(cz__input_file *file, const cz__input *input, int rank);
/* The file of the common dictionary's tensors, against what the index says of it. */
cz_status cz__input_file_open_common(cz__input_file *file, const cz__input *input,
                                     const json_t *description);

/* Compare every tensor with its checksum. The file is open. `tell`: see cz__input_verify_each(), or
 * NULL. Gives the checksums of its blocks. */
cz_status cz__input_file_verify(const cz__input_file *file, cz__damage_visitor tell, void *context,
                                cz__block_table *blocks);
/* And one of them, by its place in the header, with what was found. */
cz_status cz__input_file_check(const cz__input_file *file, int64_t index, cz__checksum found);

/* A dictionary whose tensors are in the file. `json` NULL: an empty one. */
cz_status cz__input_file_dict(cz__input_file *file, const json_t *json, const char *where,
                              cz_state_dict **out);

/* Those of a file: input.c. */
cz_status cz__input_common_dict(const cz__input *input, cz__input_file *file, cz_state_dict **out);
cz_status cz__input_own_dict(cz__input_file *part, cz_state_dict **out);

/* ---- a file that another rank has ---- */

/* What it sends first. */
typedef struct cz__file_head {
    const char *mark, *header; /* borrowed; of a part: its JSON file; up to the data */
    size_t mark_bytes, header_bytes;
    uint64_t file_bytes;
} cz__file_head;

/* As opened here, with the same checks, but without a reader: tensors of its dictionary are waited
 * for. `rank` -1: the file of the common dictionary. */
cz_status cz__input_file_from_head(cz__input_file *file, const cz__input *input, int rank,
                                   const cz__file_head *head);
/* Bytes of the data, from `offset` on: what belongs to a tensor that is waited for is copied
 * there. */
void cz__input_file_come(const cz__input_file *file, uint64_t offset, const char *bytes,
                         size_t count);
/* All of it has come: compare with the checksums. */
cz_status cz__input_file_check_late(const cz__input_file *file);
/* What a dictionary's tensors take of a file that is open, from the beginning of the data: those of
 * a rank's own, or all. */
void cz__input_file_region(const cz__input_file *file, bool own, uint64_t *begin, uint64_t *end);

#endif
