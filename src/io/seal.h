/* SPDX-License-Identifier: MIT */
/* JSON files that end with a checksum of themselves: {…,"checksum":"32 hexadecimal digits"} and a newline, where
 * the checksum is that of all bytes before `,"checksum"`. */
#ifndef CZ_IO_SEAL_H
#define CZ_IO_SEAL_H

#include <jansson.h>

#include "io/text.h"

/* Appended to an empty text. The object has members. CZ_ERR_MEMORY. */
cz_status cz__seal(const json_t *object, cz__text *text);

/* Check and parse; new reference. CZ_ERR_FORMAT: damaged, no JSON, no object; CZ_ERR_MEMORY. And only parse. */
cz_status cz__unseal(json_t **out, const char *path, const char *bytes, size_t count);
cz_status cz__json_parse(json_t **out, const char *path, const char *bytes, size_t count);

/* Members of an object that was read. CZ_ERR_FORMAT: it is not there, of another type, out of range: the sentence has
 * path and key. Texts and arrays are borrowed. */
cz_status cz__json_integer(const json_t *object, const char *path, const char *key, int64_t lowest,
                           int64_t highest, int64_t *out);
cz_status cz__json_text(const json_t *object, const char *path, const char *key, const char **out);
cz_status cz__json_array(const json_t *object, const char *path, const char *key, json_t **out);

/* A member more; `value` is consumed. CZ_ERR_MEMORY: or it is NULL. */
cz_status cz__json_set(json_t *object, const char *key, json_t *value);

/* An array of integers; *out is for cz__free(). */
cz_status cz__json_integers(const json_t *object, const char *path, const char *key, int64_t lowest,
                            int64_t highest, int64_t **out, int64_t *count);
json_t *cz__json_from_integers(const int64_t *numbers, int64_t count); /* NULL: out of memory */

#endif
