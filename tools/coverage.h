/* SPDX-License-Identifier: MIT */
/* Is every element there exactly once? By the names of tensors in the parts, not by the map that they were cut with. */
#ifndef CZ_TOOL_COVERAGE_H
#define CZ_TOOL_COVERAGE_H

#include "checkpoint/input.h"

/* Zeroed is empty. */
typedef struct coverage {
    struct covered *list; /* owned */
    int64_t count, capacity;
} coverage;

void coverage_clear(coverage *c);

/* Note all tensors of a part, whose names its header has. CZ_ERR_MEMORY. */
cz_status coverage_add(coverage *c, const cz__safetensors *header, int rank);

/* Called with a sentence for each thing that is wrong; no more than a few for one tensor. */
typedef cz_status (*coverage_problem)(const char *sentence, void *context);

/* Compare with what the index has: values and slots. CZ_ERR_MEMORY, or what `say` returns. */
cz_status coverage_check(coverage *c, const cz__index *index, coverage_problem say, void *context);

#endif
