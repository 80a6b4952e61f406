/* SPDX-License-Identifier: MIT */
/* A checkpoint by the path that a user gives: a folder of generations, one of these, a consolidated
 * file, or a folder of such with an index. */
#ifndef CZ_TOOL_SOURCE_H
#define CZ_TOOL_SOURCE_H

#include "czero/archive.h"

typedef struct source {
    cz_archive *archive; /* owned; NULL: it could not be opened */
    cz_archive_info info;
    bool generation; /* or else consolidated files */
} source;

/* `step` below 0: the newest generation that is complete. CZ_ERR_ARGUMENT: there is nothing of that
 * kind; CZ_ERR_STATE: no complete generation; CZ_ERR_FORMAT, CZ_ERR_IO, CZ_ERR_UNSUPPORTED,
 * CZ_ERR_MEMORY. To be closed in any case. */
cz_status source_open(source *s, const char *path, int64_t step);
/* The same by another function than cz_archive_open(), for an optimizer of that rule. */
typedef cz_status (*source_opener)(cz_archive **out, const char *path, int64_t step,
                                   const char *rule);
cz_status source_open_by(source *s, const char *path, int64_t step, source_opener opener,
                         const char *rule);
void source_close(source *s);

/* Is it a folder of generations (and neither one of them nor consolidated files)? CZ_ERR_IO: it
 * cannot be seen. */
cz_status source_is_folder(const char *path, bool *is);

/* Parameters, and buffers behind them. */
int64_t source_count(const source *s);
cz_archive_tensor source_tensor(const source *s, int64_t place);

/* Bytes of a parameter or buffer: its value, and all of its slots. */
uint64_t source_value_bytes(const source *s, int64_t place);
/* Of a slot's elements. */
cz_dtype source_slot_dtype(const source *s, int64_t place, const char *slot);
uint64_t source_state_bytes(const source *s, int64_t place);

#endif
