/* SPDX-License-Identifier: MIT */
/* What --json prints: one object, indented. */
#ifndef CZ_TOOL_JSON_H
#define CZ_TOOL_JSON_H

#include <jansson.h>

#include "io/text.h"

/* From now on jansson has memory for a little while longer than the process. Its lexer does not
 * look whether a text could be stored, and where none could it ends the process by an assertion. */
void json_keep_reserve(void);

/* A text that may come from anywhere (a path): what is not UTF-8 is shown as "?". */
json_t *json_any_text(const char *text);

/* An array with an item more, which may be NULL. NULL: no memory, and the array is gone. */
json_t *json_added(json_t *array, json_t *item);

/* Print to stdout and let go of it; false: no memory (root may be NULL), or it cannot be
 * written. */
bool json_finish(json_t *root);

json_t *json_shape(int dimensions, const int64_t *shape);

#endif
