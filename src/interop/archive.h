/* SPDX-License-Identifier: MIT */
/* Archives, for the tool: beyond czero/archive.h. */
#ifndef CZ_INTEROP_ARCHIVE_H
#define CZ_INTEROP_ARCHIVE_H

#include "checkpoint/input.h"
#include "czero/archive.h"

/* ---- archive.c ---- */
/* An archive for those who read its input themselves: a conversion takes elements from it, a plan
 * shapes. */

/* cz_archive_open(), of one whose optimizer has that rule, where a file of torch leaves open which
 * it is; NULL: whichever. The path stays as it is given, for whoever stays where it is. */
cz_status cz__archive_open_of_rule(cz_archive **out, const char *path, int64_t step,
                                   const char *rule);

/* Borrowed. */
cz__input *cz__archive_input(cz_archive *archive);

/* ---- coverage.c ---- */
/* Is every element there exactly once? By the names of tensors in the parts, not by the map that
 * they were cut with. */

/* Zeroed is empty. */
typedef struct cz__coverage {
    struct covered *list; /* owned */
    int64_t count, capacity;
} cz__coverage;

void cz__coverage_clear(cz__coverage *c);

/* Note all tensors of a part, whose names its header has. CZ_ERR_MEMORY. */
cz_status cz__coverage_add(cz__coverage *c, const cz__safetensors *header, int rank);

/* Called with a sentence for each thing that is wrong; no more than a few for one tensor. */
typedef cz_status (*cz__coverage_problem)(const char *sentence, void *context);

/* Compare with what the index has: values and slots. CZ_ERR_MEMORY, or what `say` returns. */
cz_status cz__coverage_check(cz__coverage *c, const cz__index *index, cz__coverage_problem say,
                             void *context);

#endif
