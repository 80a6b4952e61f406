/* SPDX-License-Identifier: MIT */
/* JSON in files: looked at before it is read, ended with a checksum, state dictionaries in it. */
#ifndef CZ_IO_JSON_H
#define CZ_IO_JSON_H

#include <jansson.h>

#include "czero/base.h"
#include "czero/state.h"
#include "io/text.h"

/* ---- json.c: a scan ---- */
/* JSON looked at before it is read: where the members of an object are, and what a tree of it would
 * cost. Whether it is JSON at all is left to jansson; what is found here is where to look, and how
 * much it is. */

/* Bytes that a tree of it would take, about, and never far below. */
uint64_t cz__json_cost(const char *bytes, size_t count);

typedef struct cz__json_scan {
    const char *bytes;
    size_t count, at;
    bool begun;
} cz__json_scan;

/* A member of the object that the scan is of. */
typedef struct cz__json_member {
    size_t key, key_bytes; /* with its quotes; places are those of the scan */
    /* Of an object or a list up to the bracket that closes it, whatever kind that is. */
    size_t value, value_bytes;
    int depth; /* of brackets in each other; 0: none */
} cz__json_member;

typedef enum cz__json_step { CZ__JSON_MEMBER, CZ__JSON_END, CZ__JSON_WRONG } cz__json_step;

/* The next member, in order. CZ__JSON_END: there are no more, and nothing but blanks follows.
 * CZ__JSON_WRONG: it is no JSON there; `at` is where, *why is what was wanted. */
cz__json_step cz__json_next(cz__json_scan *scan, cz__json_member *member, const char **why);

/* ---- json.c: a seal ---- */
/* JSON files that end with a checksum of themselves: {…,"checksum":"32 hexadecimal digits"} and a
 * newline, where the checksum is that of all bytes before `,"checksum"`. */

/* Appended to an empty text. The object has members. CZ_ERR_MEMORY. */
cz_status cz__seal(const json_t *object, cz__text *text);

/* Check and parse; new reference. CZ_ERR_FORMAT: damaged, no JSON, no object; CZ_ERR_MEMORY. And
 * only parse. */
cz_status cz__unseal(json_t **out, const char *path, const char *bytes, size_t count);
cz_status cz__json_parse(json_t **out, const char *path, const char *bytes, size_t count);

/* Members of an object that was read. CZ_ERR_FORMAT: it is not there, of another type, out of
 * range: the sentence has path and key. Texts and arrays are borrowed. */
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

/* ---- dict_json.c ---- */
/* State dictionaries as JSON. Tensors are kept elsewhere: the JSON has their names there.
 *
 *  | value         | JSON                                                                        |
 *  | integer       | a number without fraction and exponent                                      |
 *  | real          | a number with one of them, 17 digits; what such a number cannot say:        |
 *  |               | {"$real": "inf"}, "-inf", "-0", "nan"; any other NaN by its bits:           |
 *  |               | {"$real": "0x7ff8000000000001"}                                             |
 *  | text          | a text                                                                      |
 *  | list of texts | an array of texts                                                           |
 *  | tensor        | {"$tensor": NAME}                                                           |
 *  | dictionary    | an object, in order; a key that begins with "$" gets another "$" before it  |
 */

#define CZ__DICT_JSON_REAL "$real"
#define CZ__DICT_JSON_TENSOR "$tensor"
#define CZ__DICT_JSON_NAN UINT64_C(0x7ff8000000000000) /* "nan" */

/* Called for each tensor, in order. One with the path "scheduler/base_lrs" has the name
 * "PREFIXscheduler/base_lrs". */
typedef cz_status (*cz__dict_tensor)(const char *name, const cz_tensor *tensor, void *context);

/* A new reference, to be dumped with the precision that is jansson's own, 17 digits. `visit` may be
 * NULL, and `prefix`, for "". `dict` NULL: an empty object. CZ_ERR_ARGUMENT: a text, a key or the
 * prefix is not UTF-8; which. CZ_ERR_MEMORY; what `visit` returns. *out is NULL then. */
cz_status cz__dict_to_json(json_t **out, const cz_state_dict *dict, const char *prefix,
                           cz__dict_tensor visit, void *context);

/* Puts the tensor of that name into the dictionary under `key`: calls cz_state_dict_add_tensor(),
 * and fills it or remembers the address, which stays until the outermost dictionary is
 * destroyed. */
typedef cz_status (*cz__json_tensor)(const char *name, cz_state_dict *dict, const char *key,
                                     void *context);

/* The way back. `where` begins the sentence. `find` NULL: there can be no tensors. CZ_ERR_FORMAT:
 * JSON that is no dictionary, or nested deeper than CZ_STATE_MAX_DEPTH: where, and what is there.
 * CZ_ERR_MEMORY; what `find` returns. *out is NULL then, and nothing is leaked whatever the JSON
 * is. */
cz_status cz__dict_from_json(cz_state_dict **out, const json_t *json, const char *where,
                             cz__json_tensor find, void *context);

#endif
