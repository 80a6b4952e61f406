/* SPDX-License-Identifier: MIT */
/* Texts that grow. */
#ifndef CZ_IO_TEXT_H
#define CZ_IO_TEXT_H

#include "base/plain_text.h"
#include "czero/base.h"

/* Zeroed is empty. */
typedef struct cz__text {
    char *bytes; /* owned; NULL, or `count` bytes and a NUL */
    size_t count, capacity;
    bool failed; /* out of memory: something that was to be added is missing */
} cz__text;

static inline const char *cz__text_get(const cz__text *text)
{
    return text->bytes ? text->bytes : "";
}

/* False: out of memory, nothing was changed. */
bool cz__text_append(cz__text *text, const char *bytes, size_t count);
bool cz__text_print(cz__text *text, const char *format, ...) CZ_PRINTF(2, 3);

/* Append `value` as JSON has it, with its quotes; it is UTF-8. */
bool cz__text_quote(cz__text *text, const char *value);
/* Append JSON without spaces. jansson does not look whether keys could be written: with memory that
 * failed it gives a text without them, and no error. */
struct json_t;
bool cz__text_json(cz__text *text, const struct json_t *json);
void cz__text_cut(cz__text *text, size_t count); /* to the first `count` bytes */
void cz__text_clear(cz__text *text);

#endif
