/* SPDX-License-Identifier: MIT */
/* State dictionaries as JSON. Tensors are kept elsewhere: the JSON has their names there.
 *
 *  | value               | JSON                                                          |
 *  | integer             | number without a fraction                                     |
 *  | real                | number with a fraction or exponent (17 digits); not finite, or -0: {"$real": "nan"} …; NaN keeps its bits: {"$real": "0x7ff8000000000001"} |
 *  | text                | text                                                          |
 *  | list of texts       | array of texts                                                |
 *  | tensor              | {"$tensor": NAME}                                             |
 *  | dictionary          | object, in order; a key that begins with "$" gets another "$" before it |
 */
#ifndef CZ_CHECKPOINT_DICT_JSON_H
#define CZ_CHECKPOINT_DICT_JSON_H

#include <jansson.h>

#include "czero/state.h"

/* Called for each tensor, in order: `path` is "scheduler/base_lrs"; its name is "PREFIXpath". */
typedef cz_status (*cz__dict_tensor)(const char *name, const cz_tensor *tensor, void *context);

/* New reference. `visit` may be NULL. Texts must be UTF-8 without NUL (CZ_ERR_ARGUMENT names the key). CZ_ERR_MEMORY;
 * what `visit` returns. `dict` NULL: an empty object. */
cz_status cz__dict_to_json(json_t **out, const cz_state_dict *dict, const char *prefix,
                           cz__dict_tensor visit, void *context);

/* The way back; `find` puts the tensor of that name into the dictionary under `key` (it calls
 * cz_state_dict_add_tensor() and fills it, or remembers the address). `where` begins the sentence. CZ_ERR_FORMAT: JSON that
 * is no dictionary, too deep; CZ_ERR_MEMORY; what `find` returns. Nothing is leaked whatever the JSON is. */
typedef cz_status (*cz__json_tensor)(const char *name, cz_state_dict *dict, const char *key,
                                     void *context);
cz_status cz__dict_from_json(cz_state_dict **out, const json_t *json, const char *where,
                             cz__json_tensor find, void *context);

#endif
