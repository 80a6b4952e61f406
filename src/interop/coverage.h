/* SPDX-License-Identifier: MIT */
/* Is every element there exactly once? By the names of tensors in the parts, not by the map that they were cut with. */
#ifndef CZ_INTEROP_COVERAGE_H
#define CZ_INTEROP_COVERAGE_H

#include "checkpoint/input.h"

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
