/* SPDX-License-Identifier: MIT */
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
#ifndef CZ_IO_DICT_JSON_H
#define CZ_IO_DICT_JSON_H

#include <jansson.h>

#include "czero/state.h"

#define CZ__DICT_JSON_REAL "$real"
#define CZ__DICT_JSON_TENSOR "$tensor"
#define CZ__DICT_JSON_NAN UINT64_C(0x7ff8000000000000) /* "nan" */

/* Called for each tensor, in order. One with the path "scheduler/base_lrs" has the name
 * "PREFIXscheduler/base_lrs". */
typedef cz_status (*cz__dict_tensor)(const char *name, const cz_tensor *tensor, void *context);

/* A new reference, to be dumped with the precision that is jansson's own, 17 digits. `visit` may be NULL, and
 * `prefix`, for "". `dict` NULL: an empty object. CZ_ERR_ARGUMENT: a text, a key or the prefix is not UTF-8; which.
 * CZ_ERR_MEMORY; what `visit` returns. *out is NULL then. */
cz_status cz__dict_to_json(json_t **out, const cz_state_dict *dict, const char *prefix,
                           cz__dict_tensor visit, void *context);

/* Puts the tensor of that name into the dictionary under `key`: calls cz_state_dict_add_tensor(), and fills it or
 * remembers the address, which stays until the outermost dictionary is destroyed. */
typedef cz_status (*cz__json_tensor)(const char *name, cz_state_dict *dict, const char *key,
                                     void *context);

/* The way back. `where` begins the sentence. `find` NULL: there can be no tensors. CZ_ERR_FORMAT: JSON that is no
 * dictionary, or nested deeper than CZ_STATE_MAX_DEPTH: where, and what is there. CZ_ERR_MEMORY; what `find`
 * returns. *out is NULL then, and nothing is leaked whatever the JSON is. */
cz_status cz__dict_from_json(cz_state_dict **out, const json_t *json, const char *where,
                             cz__json_tensor find, void *context);

#endif
