/* SPDX-License-Identifier: MIT */
/* What --json prints. */
#include "json.h"

#include <stdio.h>

#include "checkpoint/seal.h"

json_t *json_any_text(const char *text)
{
    return json_string(cz__utf8(text) ? text : cz__show(text).text);
}

bool json_finish(json_t *root)
{
    const bool good =
        root && json_dumpf(root, stdout, JSON_INDENT(2) | JSON_ENCODE_ANY | JSON_ENSURE_ASCII) == 0;
    json_decref(root);
    return good && fputc('\n', stdout) != EOF;
}

json_t *json_shape(int dimensions, const int64_t *shape)
{
    return cz__json_from_integers(shape, dimensions);
}
