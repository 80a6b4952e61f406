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

/* Compare every tensor with its checksum. The file is open. `tell`: see cz__input_verify_each(), or NULL. */
cz_status cz__input_file_verify(const cz__input_file *file, cz__damage_visitor tell, void *context);

/* A dictionary whose tensors are in the file. `json` NULL: an empty one. */
cz_status cz__input_file_dict(const cz__input_file *file, const json_t *json, const char *where,
                              cz_state_dict **out);

#endif
