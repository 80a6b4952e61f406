/* SPDX-License-Identifier: MIT */
/* A checkpoint by the path that a user gives: a folder of generations, one of these, a consolidated file, or a folder of
 * such with an index. */
#ifndef CZ_TOOL_SOURCE_H
#define CZ_TOOL_SOURCE_H

#include "checkpoint/generation.h"
#include "checkpoint/input.h"
#include "interop/bundle.h"

typedef struct source {
    cz__input input;
    bool generation;  /* or else consolidated files */
    const char *rule; /* borrowed: as it was given to source_open_of_rule() */
    bool foreign;     /* another program's: it says nothing of step and state */
    cz__text
        notes; /* a line for each generation that was passed over, and what was left of a torch file */
} source;

/* `step` below 0: the newest generation that is complete. CZ_ERR_ARGUMENT: there is nothing of that kind; CZ_ERR_STATE: no
 * complete generation; CZ_ERR_FORMAT, CZ_ERR_IO, CZ_ERR_UNSUPPORTED, CZ_ERR_MEMORY. To be closed in any case. */
cz_status source_open(source *s, const char *path, int64_t step);
/* The same of one whose optimizer has that rule (NULL: whichever), where files leave open which it is. CZ_ERR_ARGUMENT, too:
 * they say another one, or nothing of an optimizer. */
cz_status source_open_of_rule(source *s, const char *path, int64_t step, const char *rule);
void source_close(source *s);

/* What is in a file of torch against its checksums; others have none, or are verified as parts. CZ_ERR_FORMAT, CZ_ERR_IO. */
cz_status source_verify_entries(const source *s);

const char *source_path(const source *s);
/* "a checkpoint", "a safetensors file", …: what it is. */
const char *source_kind(const source *s);

/* Is it a folder of generations (and neither one of them nor consolidated files)? CZ_ERR_IO: it cannot be seen. */
cz_status source_is_folder(const char *path, bool *is);

/* The ranks whose parts have elements of a parameter or buffer: *first to *last. */
void source_owners(const cz__index *index, int64_t stored, int *first, int *last);

/* Bytes of a parameter or buffer: its value, and all of its slots. */
uint64_t source_value_bytes(const cz__index *index, int64_t stored);
uint64_t source_state_bytes(const cz__index *index, int64_t stored);

#endif
