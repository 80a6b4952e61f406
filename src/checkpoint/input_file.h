/* SPDX-License-Identifier: MIT */
/* One file of a generation: opened and checked against what is said of it, compared with its checksums. */
#ifndef CZ_CHECKPOINT_INPUT_FILE_H
#define CZ_CHECKPOINT_INPUT_FILE_H

#include "checkpoint/input.h"

void cz__input_file_clear(cz__input_file *file);

/* Read the mark of a part and its file's header, and check both against the index. */
cz_status cz__input_file_open_part(cz__input_file *file, const cz__input *input, int rank);
/* The file of the common dictionary's tensors, against what the index says of it. */
cz_status cz__input_file_open_common(cz__input_file *file, const cz__input *input,
                                     const json_t *description);

/* Compare every tensor with its checksum. The file is open. `tell`: see cz__input_verify_each(), or NULL. Gives the
 * checksums of its blocks. */
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

/* As opened here, with the same checks, but without a reader: tensors of its dictionary are waited for. `rank` -1: the
 * file of the common dictionary. */
cz_status cz__input_file_from_head(cz__input_file *file, const cz__input *input, int rank,
                                   const cz__file_head *head);
/* Bytes of the data, from `offset` on: what belongs to a tensor that is waited for is copied there. */
void cz__input_file_come(const cz__input_file *file, uint64_t offset, const char *bytes,
                         size_t count);
/* All of it has come: compare with the checksums. */
cz_status cz__input_file_check_late(const cz__input_file *file);
/* What a dictionary's tensors take of a file that is open, from the beginning of the data: those of a rank's own, or all. */
void cz__input_file_region(const cz__input_file *file, bool own, uint64_t *begin, uint64_t *end);

#endif
