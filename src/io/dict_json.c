/* SPDX-License-Identifier: MIT */
/* State dictionaries into JSON. dict_json_read.c is the way back. */
#include "io/dict_json.h"

#include "base/status.h"
#include "io/text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct writing {
    cz__text name; /* the prefix, and the path so far */
    size_t prefix;
    cz__dict_tensor visit;
    void *context;
} writing;

static cz_status no_memory(const writing *to)
{
    return cz__fail(CZ_ERR_MEMORY, "state dictionary: '%s' as JSON",
                    to->name.bytes ? cz__show(to->name.bytes + to->prefix).text : "");
}

static cz_status check_text(const writing *to, const char *what, const char *text)
{
    return cz__utf8(text) ? CZ_OK
                          : cz__fail(CZ_ERR_ARGUMENT, "state dictionary: '%s' %s that is not UTF-8",
                                     cz__show(to->name.bytes + to->prefix).text, what);
}

static cz_status put_text(json_t **out, writing *to, const char *text)
{
    CZ_TRY(check_text(to, "holds a text", text));
    *out = json_string(text);
    return *out ? CZ_OK : no_memory(to);
}

/* What JSON's numbers cannot say is a text: which one it is, for NaN its bits. */
static cz_status put_real(json_t **out, writing *to, double real)
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

static cz_status put_texts(json_t **out, writing *to, const cz_state_dict *dict, const char *key)
{
    const int64_t count = cz_state_dict_text_count(dict, key);
    json_t *const list = json_array();
    cz_status status = list ? CZ_OK : no_memory(to);
    for (int64_t i = 0; i < count && status == CZ_OK; i++) {
        const char *text = NULL;
        json_t *item = NULL;
        status = cz_state_dict_get_text_at(dict, key, i, &text);
        if (status == CZ_OK)
            status = put_text(&item, to, text);
        if (status == CZ_OK && json_array_append_new(list, item) != 0)
            status = no_memory(to);
    }
    if (status == CZ_OK)
        *out = list;
    else
        json_decref(list);
    return status;
}

static cz_status put_tensor(json_t **out, writing *to, const cz_state_dict *dict, const char *key)
{
    cz_tensor tensor;
    CZ_TRY(cz_state_dict_get_tensor(dict, key, &tensor));
    *out = json_pack("{s:s}", CZ__DICT_JSON_TENSOR, to->name.bytes);
    if (!*out)
        return no_memory(to);
    return to->visit ? to->visit(to->name.bytes, &tensor, to->context) : CZ_OK;
}

static cz_status put_dict(json_t **out, writing *to, const cz_state_dict *dict);

/* May set *out on a failure too. */
static cz_status put_value(json_t **out, writing *to, const cz_state_dict *dict, const char *key)
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
static cz_status put_key(json_t *object, writing *to, const char *key, json_t *value)
{
    cz__text escaped = {0};
    const bool done = cz__text_print(&escaped, "%s%s", key[0] == '$' ? "$" : "", key) &&
                      json_object_set(object, escaped.bytes, value) == 0;
    cz__text_clear(&escaped);
    return done ? CZ_OK : no_memory(to);
}

static cz_status put_entry(json_t *object, writing *to, const cz_state_dict *dict, const char *key)
{
    json_t *value = NULL;
    const size_t before = to->name.count;
    if (!cz__text_print(&to->name, "%s%s", before > to->prefix ? "/" : "", key))
        return no_memory(to);
    cz_status status = check_text(to, "has a key", key);
    if (status == CZ_OK)
        status = put_value(&value, to, dict, key);
    if (status == CZ_OK)
        status = put_key(object, to, key, value);
    json_decref(value);
    cz__text_cut(&to->name, before);
    return status;
}

static cz_status put_dict(json_t **out, writing *to, const cz_state_dict *dict)
{
    json_t *const object = json_object();
    cz_status status = object ? CZ_OK : no_memory(to);
    for (int64_t i = 0; i < cz_state_dict_count(dict) && status == CZ_OK; i++)
        status = put_entry(object, to, dict, cz_state_dict_key(dict, i));
    if (status == CZ_OK)
        *out = object;
    else
        json_decref(object);
    return status;
}

cz_status cz__dict_to_json(json_t **out, const cz_state_dict *dict, const char *prefix,
                           cz__dict_tensor visit, void *context)
{
    writing to = {.visit = visit, .context = context};
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
