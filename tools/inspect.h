/* SPDX-License-Identifier: MIT */
/* What czero inspect shows, in parts. */
#ifndef CZ_TOOL_INSPECT_H
#define CZ_TOOL_INSPECT_H

#include <jansson.h>

#include "source.h"
#include "tree.h"

typedef struct inspect_options {
    const char *path;
    int64_t step;
    bool json;
    tree_options tree;
} inspect_options;

/* Beside tensors: parameter groups, steps, dictionaries, files. */
cz_status inspect_rest(source *s, bool all);

cz_status inspect_json(source *s, const inspect_options *o);

/* Called for each file of a checkpoint, with its bytes; -1: it is missing. */
typedef cz_status (*inspect_file)(const char *path, int64_t bytes, void *context);
cz_status inspect_files(const source *s, inspect_file visit, void *context);

/* Have parameter groups rules of their own? */
bool inspect_group_rules(const source *s);

/* The least and the most steps that parameters have made; false: none has state. */
bool inspect_steps(const source *s, int64_t *least, int64_t *most);

/* The common dictionary as JSON, tensors by their names: a new reference; NULL: none, or it cannot
 * be read. */
json_t *inspect_common(const source *s);

#endif
