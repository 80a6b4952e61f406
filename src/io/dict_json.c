/* SPDX-License-Identifier: MIT */
/* State dictionaries into JSON, and back. */
#include "io/json.h"

#include "base/status.h"
#include "io/text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct json_writing {
    cz__text name; /* the prefix, and the path so far */
    size_t prefix;
    cz__dict_tensor visit;
    void *context;
} json_writing;

static cz_status no_memory(const json_writing *to)
{
    return cz__fail(CZ_ERR_MEMORY, "state dictionary: no memory for '%s' as JSON",
                    to->name.bytes ? cz__show(to->name.bytes + to->prefix).text : "");
}

static cz_status check_text(const json_writing *to, const char *what, const char *text)
{
    return cz__utf8(text) ? CZ_OK
                          : cz__fail(CZ_ERR_ARGUMENT, "state dictionary: '%s' %s that is not UTF-8",
                                     cz__show(to->name.bytes + to->prefix).text, what);
}

static cz_status put_text(json_t **out, json_writing *to, const char *text)
{
    CZ_TRY(check_text(to, "holds a text", text));
    *out = json_string(text);
    return *out ? CZ_OK : no_memory(to);
}

/* What JSON's numbers cannot say is a text: which one it is, for NaN its bits. */
static cz_status put_real(json_t **out, json_writing *to, double real)
{
    char text[24];
    uint64_t bits;
    memcpy(&bits, &real, sizeof bits);
    if (bits == CZ__DICT_JSON_NAN)
        snprintf(text, sizeof text, "nan");
    else if (isnan(real))
        snprintf(text, sizeof text, "0x%016" PRIx64, bits);
    else if (isinf(real))
        snprintf(text, sizeof text, real > 0 ? "inf" : "-inf");
    else if (real == 0 && signbit(real))
        snprintf(text, sizeof text, "-0");
    else {
        *out = json_real(real);
        return *out ? CZ_OK : no_memory(to);
    }
    *out = json_pack("{s:s}", CZ__DICT_JSON_REAL, text);
    return *out ? CZ_OK : no_memory(to);
}

static cz_status put_texts(json_t **out, json_writing *to, const cz_state_dict *dict,
                           const char *key)
{
    const char *const *texts;
    int64_t count;
    CZ_TRY(cz_state_dict_get_texts(dict, key, &texts, &count));
    json_t *const list = json_array();
    cz_status status = list ? CZ_OK : no_memory(to);
    if (status)
        goto done;
    for (int64_t i = 0; i < count; i++) {
        json_t *item = NULL;
        status = put_text(&item, to, texts[i]);
        if (!status && json_array_append_new(list, item) != 0)
            status = no_memory(to);
        if (status)
            break;
    }
done:
    if (!status)
        *out = list;
    else
        json_decref(list);
    return status;
}

static cz_status put_tensor(json_t **out, json_writing *to, const cz_state_dict *dict,
                            const char *key)
{
    cz_tensor tensor;
    CZ_TRY(cz_state_dict_get_tensor(dict, key, &tensor));
    *out = json_pack("{s:s}", CZ__DICT_JSON_TENSOR, to->name.bytes);
    if (!*out)
        return no_memory(to);
    return to->visit ? to->visit(to->name.bytes, &tensor, to->context) : CZ_OK;
}

static cz_status put_dict(json_t **out, json_writing *to, const cz_state_dict *dict);

/* May set *out on a failure too. */
static cz_status put_value(json_t **out, json_writing *to, const cz_state_dict *dict,
                           const char *key)
{
    int64_t integer;
    double real;
    const char *text;
    const cz_state_dict *child;
    switch (cz_state_dict_kind(dict, key)) {
    case CZ_STATE_INTEGER:
        CZ_TRY(cz_state_dict_get_integer(dict, key, &integer));
        *out = json_integer(integer);
        return *out ? CZ_OK : no_memory(to);
    case CZ_STATE_REAL:
        CZ_TRY(cz_state_dict_get_real(dict, key, &real));
        return put_real(out, to, real);
    case CZ_STATE_TEXT:
        CZ_TRY(cz_state_dict_get_text(dict, key, &text));
        return put_text(out, to, text);
    case CZ_STATE_TEXTS:
        return put_texts(out, to, dict, key);
    case CZ_STATE_TENSOR:
        return put_tensor(out, to, dict, key);
    default:
        CZ_TRY(cz_state_dict_get_dict(dict, key, &child));
        return put_dict(out, to, child);
    }
}

/* Under its key, with a "$" before one that begins so: a single one is ours. */
static cz_status put_key(json_t *object, json_writing *to, const char *key, json_t *value)
{
    cz__text escaped = {0};
    const bool done = cz__text_print(&escaped, "%s%s", key[0] == '$' ? "$" : "", key) &&
                      json_object_set(object, escaped.bytes, value) == 0;
    cz__text_clear(&escaped);
    return done ? CZ_OK : no_memory(to);
}

static cz_status put_entry(json_t *object, json_writing *to, const cz_state_dict *dict,
                           const char *key)
{
    json_t *value = NULL;
    const size_t before = to->name.count;
    if (!cz__text_print(&to->name, "%s%s", before > to->prefix ? "/" : "", key))
        return no_memory(to);
    cz_status status = check_text(to, "has a key", key);
    if (status)
        goto done;
    status = put_value(&value, to, dict, key);
    if (status)
        goto done;
    status = put_key(object, to, key, value);
done:
    json_decref(value);
    cz__text_cut(&to->name, before);
    return status;
}

static cz_status put_dict(json_t **out, json_writing *to, const cz_state_dict *dict)
{
    json_t *const object = json_object();
    cz_status status = object ? CZ_OK : no_memory(to);
    if (status)
        goto done;
    for (int64_t i = 0; i < cz_state_dict_count(dict); i++) {
        status = put_entry(object, to, dict, cz_state_dict_key(dict, i));
        if (status)
            break;
    }
done:
    if (!status)
        *out = object;
    else
        json_decref(object);
    return status;
}

cz_status cz__dict_to_json(json_t **out, const cz_state_dict *dict, const char *prefix,
                           cz__dict_tensor visit, void *context)
{
    json_writing to = {.visit = visit, .context = context};
    *out = NULL;
    if (prefix && !cz__utf8(prefix))
        return cz__fail(CZ_ERR_ARGUMENT, "state dictionary: prefix '%s' is not UTF-8",
                        cz__show(prefix).text);
    if (!cz__text_print(&to.name, "%s", prefix ? prefix : ""))
        return no_memory(&to);
    to.prefix = to.name.count;
    const cz_status status = put_dict(out, &to, dict);
    cz__text_clear(&to.name);
    return status;
}

/* ---- and back ---- */

typedef struct json_reading {
    cz__text path; /* so far */
    const char *where;
    int depth; /* 1: the outermost dictionary */
    cz__json_tensor find;
    void *context;
} json_reading;

static cz_status no_room(const json_reading *from)
{
    return cz__fail(CZ_ERR_MEMORY, "%s: no memory for '%s'", from->where,
                    from->path.bytes ? cz__show(from->path.bytes).text : "");
}

/* Fail with "WHERE: 'path/to/key' …"; for the outermost dictionary "WHERE: …". */
static cz_status refuse(const json_reading *from, const char *what)
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

static cz_status get_texts(json_reading *from, cz_state_dict *dict, const char *key,
                           const json_t *list)
{
    cz__text block = {0}; /* of addresses */
    cz_status status = CZ_OK;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = text_of(json_array_get(list, i));
        if (!text)
            status = refuse(from, "is a list with something else than a text in it");
        else if (!cz__text_append(&block, (const char *)&text, sizeof text))
            status = no_room(from);
        if (status)
            goto done;
    }
    status = cz_state_dict_set_texts(dict, key, (const char *const *)(void *)block.bytes,
                                     (int64_t)json_array_size(list));
done:
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
static cz_status get_special(json_reading *from, cz_state_dict *dict, const char *key, json_t *json)
{
    const char *const real_text = text_of(json_object_get(json, CZ__DICT_JSON_REAL));
    const char *const name = text_of(json_object_get(json, CZ__DICT_JSON_TENSOR));
    double real;
    if (json_object_size(json) != 1 || (!real_text && !name))
        return refuse(
            from,
            "has a key with a single $ that is neither {\"$real\": TEXT} nor {\"$tensor\": NAME}");
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

static cz_status get_dict(json_reading *from, cz_state_dict *dict, json_t *json);

static cz_status get_object(json_reading *from, cz_state_dict *dict, const char *key, json_t *json)
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

static cz_status get_value(json_reading *from, cz_state_dict *dict, const char *key, json_t *json)
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

static cz_status get_entry(json_reading *from, cz_state_dict *dict, const char *key, json_t *json)
{
    const size_t before = from->path.count;
    key += key[0] == '$' ? 1 : 0;
    if (!*key)
        return refuse(from, "has an empty key");
    if (!cz__text_print(&from->path, "%s%s", before > 0 ? "/" : "", key))
        return no_room(from);
    const cz_status status = get_value(from, dict, key, json);
    cz__text_cut(&from->path, before);
    return status;
}

static cz_status get_dict(json_reading *from, cz_state_dict *dict, json_t *json)
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
    json_reading from = {.where = where, .depth = 1, .find = find, .context = context};
    json_t *const object = (json_t *)json; /* which jansson's iterators want, and do not change */
    cz_state_dict *dict = NULL;
    *out = NULL;
    if (!json_is_object(json) || is_special(object))
        return refuse(&from, "is something else than an object without $real and $tensor");
    CZ_TRY(cz_state_dict_create(&dict));
    const cz_status status = get_dict(&from, dict, object);
    cz__text_clear(&from.path);
    if (!status)
        *out = dict;
    else
        cz_state_dict_destroy(&dict);
    return status;
}
