/* SPDX-License-Identifier: MIT */
/* State dictionaries from JSON, which may hold anything. */
#include "io/dict_json.h"

#include "base/status.h"
#include "io/text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct reading {
    cz__text path; /* so far */
    const char *where;
    int depth; /* 1: the outermost dictionary */
    cz__json_tensor find;
    void *context;
} reading;

static cz_status no_memory(const reading *from)
{
    return cz__fail(CZ_ERR_MEMORY, "%s: '%s'", from->where,
                    from->path.bytes ? cz__show(from->path.bytes).text : "");
}

/* Fail with "WHERE: 'path/to/key' …"; for the outermost dictionary "WHERE: …". */
static cz_status refuse(const reading *from, const char *what)
{
    return from->path.count > 0
               ? cz__fail(CZ_ERR_FORMAT, "%s: '%s' %s", from->where,
                          cz__show(from->path.bytes).text, what)
               : cz__fail(CZ_ERR_FORMAT, "%s: the dictionary %s", from->where, what);
}

/* A text without a NUL in it; NULL: it is none. */
static const char *text_of(const json_t *json)
{
    const char *text = json_string_value(json);
    return text && strlen(text) == json_string_length(json) ? text : NULL;
}

static cz_status get_texts(reading *from, cz_state_dict *dict, const char *key, const json_t *list)
{
    cz__text block = {0}; /* of addresses */
    cz_status status = CZ_OK;
    for (size_t i = 0; i < json_array_size(list) && status == CZ_OK; i++) {
        const char *text = text_of(json_array_get(list, i));
        if (!text)
            status = refuse(from, "is a list with something else than a text in it");
        else if (!cz__text_append(&block, (const char *)&text, sizeof text))
            status = no_memory(from);
    }
    if (status == CZ_OK)
        status = cz_state_dict_set_texts(dict, key, (const char *const *)(void *)block.bytes,
                                         (int64_t)json_array_size(list));
    cz__text_clear(&block);
    return status;
}

/* Those that put_real() in dict_json.c writes as a text. */
static bool real_of(double *real, const char *text)
{
    uint64_t bits = CZ__DICT_JSON_NAN;
    char again[24];
    if (strcmp(text, "inf") == 0 || strcmp(text, "-inf") == 0)
        return *real = text[0] == '-' ? -INFINITY : INFINITY, true;
    if (strcmp(text, "-0") == 0)
        return *real = -0.0, true;
    if (strcmp(text, "nan") != 0) {
        bits = strtoull(text, NULL, 16);
        snprintf(again, sizeof again, "0x%016" PRIx64, bits);
        if (strcmp(text, again) != 0)
            return false;
    }
    memcpy(real, &bits, sizeof bits);
    return isnan(*real);
}

/* {"$real": …} or {"$tensor": …} */
static cz_status get_special(reading *from, cz_state_dict *dict, const char *key, json_t *json)
{
    const char *const real_text = text_of(json_object_get(json, CZ__DICT_JSON_REAL));
    const char *const name = text_of(json_object_get(json, CZ__DICT_JSON_TENSOR));
    double real;
    if (json_object_size(json) != 1 || (!real_text && !name))
        return refuse(from, "has a key with a single $ that is neither {\"$real\": TEXT} nor "
                            "{\"$tensor\": NAME}");
    if (real_text)
        return real_of(&real, real_text)
                   ? cz_state_dict_set_real(dict, key, real)
                   : refuse(from, "is a \"$real\" other than nan, inf, -inf, -0, and NaN's bits");
    return from->find ? from->find(name, dict, key, from->context)
                      : refuse(from, "is a tensor, where none can be");
}

static bool is_special(json_t *json)
{
    const char *key;
    json_t *value;
    json_object_foreach(json, key, value)
    {
        if (key[0] == '$' && key[1] != '$')
            return true;
    }
    return false;
}

static cz_status get_dict(reading *from, cz_state_dict *dict, json_t *json);

static cz_status get_object(reading *from, cz_state_dict *dict, const char *key, json_t *json)
{
    cz_state_dict *child;
    if (is_special(json))
        return get_special(from, dict, key, json);
    if (from->depth >= CZ_STATE_MAX_DEPTH)
        return refuse(from, "is nested too deep, there are at most 64 levels");
    CZ_TRY(cz_state_dict_add_dict(dict, key, &child));
    from->depth++;
    const cz_status status = get_dict(from, child, json);
    from->depth--;
    return status;
}

static cz_status get_value(reading *from, cz_state_dict *dict, const char *key, json_t *json)
{
    switch (json_typeof(json)) {
    case JSON_INTEGER:
        return cz_state_dict_set_integer(dict, key, json_integer_value(json));
    case JSON_REAL:
        return cz_state_dict_set_real(dict, key, json_real_value(json));
    case JSON_STRING:
        return text_of(json) ? cz_state_dict_set_text(dict, key, text_of(json))
                             : refuse(from, "is a text with a NUL in it");
    case JSON_ARRAY:
        return get_texts(from, dict, key, json);
    case JSON_OBJECT:
        return get_object(from, dict, key, json);
    default:
        return refuse(from, "is true, false or null, which no value is");
    }
}

static cz_status get_entry(reading *from, cz_state_dict *dict, const char *key, json_t *json)
{
    const size_t before = from->path.count;
    key += key[0] == '$' ? 1 : 0;
    if (!*key)
        return refuse(from, "has an empty key");
    if (!cz__text_print(&from->path, "%s%s", before > 0 ? "/" : "", key))
        return no_memory(from);
    const cz_status status = get_value(from, dict, key, json);
    cz__text_cut(&from->path, before);
    return status;
}

static cz_status get_dict(reading *from, cz_state_dict *dict, json_t *json)
{
    const char *key;
    json_t *value;
    json_object_foreach(json, key, value)
    {
        CZ_TRY(get_entry(from, dict, key, value));
    }
    return CZ_OK;
}

cz_status cz__dict_from_json(cz_state_dict **out, const json_t *json, const char *where,
                             cz__json_tensor find, void *context)
{
    reading from = {.where = where, .depth = 1, .find = find, .context = context};
    json_t *const object = (json_t *)json; /* which jansson's iterators want, and do not change */
    cz_state_dict *dict = NULL;
    *out = NULL;
    if (!json_is_object(json) || is_special(object))
        return refuse(&from, "is something else than an object without $real and $tensor");
    CZ_TRY(cz_state_dict_create(&dict));
    const cz_status status = get_dict(&from, dict, object);
    cz__text_clear(&from.path);
    if (status == CZ_OK)
        *out = dict;
    else
        cz_state_dict_destroy(&dict);
    return status;
}
