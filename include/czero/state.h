/* SPDX-License-Identifier: MIT */
/** @file state.h  State dictionaries: typed values with names, nested, in memory. What an object
 *  has to keep over a restart is written into one and read from one; files are another part's
 *  matter.
 *
 *      CZ_TRY(cz_state_dict_create(&dict));
 *      CZ_TRY(cz_state_dict_set_integer(dict, "epoch", 3));
 *      CZ_TRY(cz_state_dict_get_integer(dict, "epoch", &epoch));
 */
#ifndef CZERO_STATE_H
#define CZERO_STATE_H

#include "czero/tensor.h"

CZ_BEGIN_DECLS

/** What a value is. The numbers are stable: they may go into files. */
typedef enum cz_state_kind {
    CZ_STATE_NONE = 0,    /**< no such key */
    CZ_STATE_INTEGER = 1, /**< int64_t */
    CZ_STATE_REAL = 2,    /**< double */
    CZ_STATE_TEXT = 3,
    CZ_STATE_TEXTS = 4,  /**< a list of texts */
    CZ_STATE_TENSOR = 5, /**< dense, on the CPU, 64-byte aligned, counted as CZ_MEMORY_STATE_DICT */
    CZ_STATE_DICT = 6    /**< a nested dictionary */
} cz_state_kind;

/** Levels of nesting, the outermost dictionary included. */
#define CZ_STATE_MAX_DEPTH 64

/** Keys, which are texts and not empty, and their values, in the order in which they were added. It
 *  owns all of them; a nested dictionary belongs to the one that it is in. All functions here are
 *  local. Any number of threads may read at the same time, a change needs the dictionary, and those
 *  around it, for itself. */
typedef struct cz_state_dict cz_state_dict;

/** @return CZ_ERR_ARGUMENT: `out` is NULL; CZ_ERR_MEMORY. */
CZ_API cz_status cz_state_dict_create(cz_state_dict **out);

/** Free a dictionary and all that is in it; accepts NULL and *NULL, leaves *NULL. The handle of a
 *  nested one is set to NULL and nothing else happens: cz_state_dict_remove() is for those. */
CZ_API void cz_state_dict_destroy(cz_state_dict **dict);

/** A new outermost dictionary with copies of everything in `source`.
 *  @return CZ_ERR_ARGUMENT: a NULL; CZ_ERR_MEMORY. */
CZ_API cz_status cz_state_dict_copy(cz_state_dict **out, const cz_state_dict *source);

/** The same keys with the same values of the same kinds, in whatever order? Reals and tensors are
 *  compared bit for bit. Two NULLs are equal. */
CZ_API bool cz_state_dict_equal(const cz_state_dict *a, const cz_state_dict *b);

/** Keys, those of nested dictionaries not included; -1 for NULL. */
CZ_API int64_t cz_state_dict_count(const cz_state_dict *dict);

/** The key of that index, NULL if there is none. Owned by the dictionary. */
CZ_API const char *cz_state_dict_key(const cz_state_dict *dict, int64_t index);

/** CZ_STATE_NONE where the key, or either argument, is missing. */
CZ_API cz_state_kind cz_state_dict_kind(const cz_state_dict *dict, const char *key);

/** Remove a key with its value. The last key takes its place in the order, so that any removal
 *  takes the same time.
 *  @return CZ_ERR_ARGUMENT: a NULL, no such key. */
CZ_API cz_status cz_state_dict_remove(cz_state_dict *dict, const char *key);

/** Add a value, or replace the one that is there, of whatever kind; everything is copied.
 *  @param value   the tensor may be a view of one in this dictionary
 *  @param texts   `count` of them; may be NULL if count is 0
 *  @return CZ_ERR_ARGUMENT: a NULL, an empty key, a bad shape or type. CZ_ERR_UNSUPPORTED: a sparse
 *          tensor or one that is not on the CPU. CZ_ERR_MEMORY. Nothing was changed. */
CZ_API cz_status cz_state_dict_set_integer(cz_state_dict *dict, const char *key, int64_t value);
CZ_API cz_status cz_state_dict_set_real(cz_state_dict *dict, const char *key, double value);
CZ_API cz_status cz_state_dict_set_text(cz_state_dict *dict, const char *key, const char *value);
CZ_API cz_status cz_state_dict_set_texts(cz_state_dict *dict, const char *key,
                                         const char *const *texts, int64_t count);
CZ_API cz_status cz_state_dict_set_tensor(cz_state_dict *dict, const char *key,
                                          const cz_tensor *value);

/** Add a tensor of zeros that is filled in place.
 *  @param dimensions, shape  0 dimensions: a single element
 *  @param data   receives its address, which stays valid until the key is removed or set again
 *  @return as above; CZ_ERR_STATE: the key exists. Nothing was changed. */
CZ_API cz_status cz_state_dict_add_tensor(cz_state_dict *dict, const char *key, cz_dtype dtype,
                                          int dimensions, const int64_t *shape, void **data);

/** Add an empty nested dictionary.
 *  @param child  receives it; borrowed, valid until the key is removed or set to something else
 *  @return CZ_ERR_ARGUMENT: a NULL, an empty key, CZ_STATE_MAX_DEPTH is reached. CZ_ERR_STATE: the
 *          key exists. CZ_ERR_MEMORY. Nothing was changed. */
CZ_API cz_status cz_state_dict_add_dict(cz_state_dict *dict, const char *key,
                                        cz_state_dict **child);

/** Copy a dictionary, with all that is in it, under a key; what is there is replaced.
 *  @param source  not one that the key is in
 *  @return as cz_state_dict_set_tensor(); CZ_ERR_ARGUMENT: deeper than CZ_STATE_MAX_DEPTH. Nothing
 *  was changed. */
CZ_API cz_status cz_state_dict_set_dict(cz_state_dict *dict, const char *key,
                                        const cz_state_dict *source);

/** Read a value. Texts, tensors and dictionaries are borrowed: valid until the key is removed or
 *  set again. A real may have been stored as an integer.
 *  @param texts, count  the list, and how many are in it
 *  @param view   its memory may be written by whoever may change the dictionary
 *  @return CZ_ERR_ARGUMENT: a NULL, no such key, a value of another kind. The
 *          sentence has the path from the outermost dictionary, "state/w1/exp_avg". */
CZ_API cz_status cz_state_dict_get_integer(const cz_state_dict *dict, const char *key,
                                           int64_t *value);
CZ_API cz_status cz_state_dict_get_real(const cz_state_dict *dict, const char *key, double *value);
CZ_API cz_status cz_state_dict_get_text(const cz_state_dict *dict, const char *key,
                                        const char **value);
CZ_API cz_status cz_state_dict_get_texts(const cz_state_dict *dict, const char *key,
                                         const char *const **texts, int64_t *count);
CZ_API cz_status cz_state_dict_get_tensor(const cz_state_dict *dict, const char *key,
                                          cz_tensor *view);
CZ_API cz_status cz_state_dict_get_dict(const cz_state_dict *dict, const char *key,
                                        const cz_state_dict **child);

CZ_END_DECLS
#endif
