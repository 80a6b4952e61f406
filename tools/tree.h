/* SPDX-License-Identifier: MIT */
/* Tensors as a tree by the points in their names, in which siblings that are alike but for a number
 * are shown once. */
#ifndef CZ_TOOL_TREE_H
#define CZ_TOOL_TREE_H

#include "show.h"
#include "source.h"

typedef struct tree_options {
    const char *pattern; /* NULL, or a pattern as a shell's: only names that fit it */
    bool all;            /* nothing is folded */
    bool ranks;          /* with a column of owners */
} tree_options;

/* Rows for the tensors of a checkpoint; *folded: some stand for others, *count: tensors that fit.
 * CZ_ERR_MEMORY. */
cz_status tree_rows(table *t, const source *s, const tree_options *options, bool *folded,
                    int64_t *count);

#endif
