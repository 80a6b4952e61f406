/* SPDX-License-Identifier: MIT */
/* Headers to be written: every addition is turned into JSON at once, so that how long the header
 * will be is known at any time; and what can be asked of written and read ones alike. */
#include "io/safetensors.h"

#include "base/memory.h"
#include "base/status.h"

#include <inttypes.h>
#include <string.h>

cz_status cz__safetensors_create(cz__safetensors **out)
{
    *out = cz__calloc(1, sizeof **out);
    return *out ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "safetensors: no memory for a header");
}

void cz__safetensors_destroy(cz__safetensors **header)
{
    if (!header || !*header)
        return;
    cz__safetensors *const h = *header;
    if (!h->was_read)
        for (int64_t i = 0; i < h->count; i++)
            cz__free((char *)h->entries[i].name);
    cz__free(h->name_bytes);
    cz__free(h->by_name);
    cz__free(h->entries);
    cz__names_clear(&h->names);
    cz__text_clear(&h->metadata_json);
    cz__text_clear(&h->tensors_json);
    json_decref(h->metadata);
    cz__free(h);
    *header = NULL;
}

static cz_status check_written(const cz__safetensors *header)
{
    return header->was_read
               ? cz__fail(CZ_ERR_STATE,
                          "safetensors: a header that was read from a file is not added to")
               : CZ_OK;
}

static cz_status check_name(const cz__safetensors *header, const char *name)
{
    int64_t number;
    if (!name || !*name)
        return cz__fail(CZ_ERR_ARGUMENT, "safetensors: a tensor's name is %s",
                        name ? "empty" : "NULL");
    const char *what = NULL;
    if (!cz__utf8(name))
        what = "is not UTF-8";
    else if (strcmp(name, CZ__SAFETENSORS_METADATA) == 0)
        what = "is taken by the format";
    else if (cz__names_find(&header->names, name, &number))
        what = "is there already";
    return what ? cz__fail(CZ_ERR_ARGUMENT, "safetensors: tensor '%s': the name %s",
                           cz__show(name).text, what)
                : CZ_OK;
}

/* Its type and shape, and where its data are. */
static cz_status make_entry(cz__safetensors_entry *entry, const cz__safetensors *header,
                            const char *name, cz_tensor *form, const int64_t *shape)
{
    const cz__shown shown = cz__show(name);
    const size_t size = cz__type_unit(form->dtype);
    uint64_t bytes;
    if (!cz__type_name(form->dtype))
        return cz__fail(CZ_ERR_ARGUMENT,
                        "safetensors: tensor '%s' has type %d, which does not exist", shown.text,
                        (int)form->dtype);
    if (form->dimensions < 0 || form->dimensions > CZ_MAX_DIMENSIONS ||
        (form->dimensions > 0 && !shape))
        return cz__fail(CZ_ERR_ARGUMENT,
                        "safetensors: tensor '%s' has %d dimensions%s, wanted 0 to %d", shown.text,
                        form->dimensions, shape ? "" : " at NULL", CZ_MAX_DIMENSIONS);
    for (int d = 0; d < form->dimensions; d++)
        form->shape[d] = shape[d];
    const int64_t count = cz__type_units(form->dtype, form->dimensions, form->shape);
    if (count < 0 || __builtin_mul_overflow((uint64_t)count, size, &bytes) ||
        bytes > INT64_MAX - header->data_bytes)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "safetensors: tensor '%s' has a dimension below 0, or too many elements",
                        shown.text);
    *entry = (cz__safetensors_entry){.dtype = form->dtype,
                                     .dimensions = form->dimensions,
                                     .begin = header->data_bytes,
                                     .end = header->data_bytes + bytes};
    memcpy(entry->shape, form->shape, sizeof entry->shape);
    return CZ_OK;
}

static bool reserve_entry(cz__safetensors *header)
{
    cz__safetensors_entry *entries =
        cz__grow(header->entries, header->count, &header->capacity, sizeof *entries);
    if (!entries)
        return false;
    header->entries = entries;
    return cz__names_reserve(&header->names, 1);
}

static bool print_entry(cz__text *json, const cz__safetensors_entry *entry)
{
    if ((json->count > 0 && !cz__text_append(json, ",", 1)) || !cz__text_quote(json, entry->name) ||
        !cz__text_print(json, ":{\"dtype\":\"%s\",\"shape\":[", cz__type_name(entry->dtype)))
        return false;
    for (int d = 0; d < entry->dimensions; d++)
        if (!cz__text_print(json, "%s%" PRId64, d ? "," : "", entry->shape[d]))
            return false;
    return cz__text_print(json, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", entry->begin,
                          entry->end);
}

cz_status cz__safetensors_add(cz__safetensors *header, const char *name, cz_dtype dtype,
                              int dimensions, const int64_t *shape)
{
    cz__safetensors_entry entry = {0};
    cz_tensor form = {.dtype = dtype, .dimensions = dimensions};
    CZ_TRY(check_written(header));
    CZ_TRY(check_name(header, name));
    CZ_TRY(make_entry(&entry, header, name, &form, shape));
    const size_t before = header->tensors_json.count;
    char *const copy = cz__strdup(name);
    entry.name = copy;
    if (!copy || !reserve_entry(header) || !print_entry(&header->tensors_json, &entry)) {
        cz__free(copy);
        if (header->tensors_json.bytes)
            cz__text_cut(&header->tensors_json, before);
        return cz__fail(CZ_ERR_MEMORY, "safetensors: no memory for tensor '%s'",
                        cz__show(name).text);
    }
    cz__names_add(&header->names, copy, header->count);
    header->entries[header->count++] = entry;
    header->data_bytes = entry.end;
    return CZ_OK;
}

static bool print_member(cz__text *json, const char *key, const char *value)
{
    return cz__text_append(json, json->count > 0 ? "," : "{", 1) && cz__text_quote(json, key) &&
           cz__text_append(json, ":", 1) && cz__text_quote(json, value) &&
           cz__text_append(json, "}", 1);
}

/* One more, behind those that are there: nothing is printed again, there may be many. */
static bool append_metadata(cz__safetensors *header, const char *key, const char *value)
{
    cz__text *json = &header->metadata_json;
    const size_t before = json->count;
    json_t *metadata = header->metadata ? json_incref(header->metadata) : json_object();
    if (before > 0)
        cz__text_cut(json, before - 1); /* the last } */
    const bool fits = metadata && print_member(json, key, value) &&
                      json_object_set_new(metadata, key, json_string(value)) == 0;
    if (!fits && json->bytes)
        cz__text_cut(json, before > 0 ? before - 1 : 0);
    if (!fits && before > 0)
        (void)cz__text_append(json, "}", 1); /* where it was: there is room */
    if (fits && !header->metadata)
        header->metadata = json_incref(metadata);
    json_decref(metadata);
    return fits;
}

static bool print_metadata(cz__text *json, json_t *metadata)
{
    const char *key;
    json_t *value;
    json_object_foreach(metadata, key, value)
    {
        if (json->count > 0)
            cz__text_cut(json, json->count - 1);
        if (!print_member(json, key, json_string_value(value)))
            return false;
    }
    return true;
}

static bool replace_metadata(cz__safetensors *header, const char *key, const char *value)
{
    cz__text text = {0};
    json_t *metadata = json_copy(header->metadata);
    if (!metadata || /* json_copy() leaves out what it has no memory for */
        json_object_size(metadata) != json_object_size(header->metadata) ||
        json_object_set_new(metadata, key, json_string(value)) != 0 ||
        !print_metadata(&text, metadata)) {
        json_decref(metadata);
        cz__text_clear(&text);
        return false;
    }
    json_decref(header->metadata);
    cz__text_clear(&header->metadata_json);
    header->metadata = metadata;
    header->metadata_json = text;
    return true;
}

cz_status cz__safetensors_set_metadata(cz__safetensors *header, const char *key, const char *value)
{
    CZ_TRY(check_written(header));
    if (!key || !value || !cz__utf8(key) || !cz__utf8(value))
        return cz__fail(CZ_ERR_ARGUMENT, "safetensors: metadata '%s' or its text is %s",
                        key ? cz__show(key).text : "", key && value ? "not UTF-8" : "NULL");
    const bool is_there = json_object_get(header->metadata, key) != NULL;
    if (!(is_there ? replace_metadata : append_metadata)(header, key, value))
        return cz__fail(CZ_ERR_MEMORY, "safetensors: no memory for metadata '%s'",
                        cz__show(key).text);
    return CZ_OK;
}

/* What comes before the tensors: {"__metadata__":{…}, */
static const char *opening(const cz__safetensors *header)
{
    return header->metadata ? "{\"" CZ__SAFETENSORS_METADATA "\":" : "{";
}

/* Of the JSON, without spaces behind it. */
static size_t json_bytes(const cz__safetensors *header)
{
    const bool comma = header->metadata && header->count > 0;
    return strlen(opening(header)) + header->metadata_json.count + (comma ? 1 : 0) +
           header->tensors_json.count + 1;
}

uint64_t cz__safetensors_data_begin(const cz__safetensors *header)
{
    return header->was_read ? header->data_begin : (8 + json_bytes(header) + 63) / 64 * 64;
}

cz_status cz__safetensors_dump(const cz__safetensors *header, char **bytes, size_t *count)
{
    const size_t total = (size_t)cz__safetensors_data_begin(header), length = total - 8;
    *bytes = NULL;
    CZ_TRY(check_written(header));
    if (length > CZ__SAFETENSORS_HEADER_MAX)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "safetensors: a header of %zu bytes for %" PRId64
                        " tensors, a file can have at most %d bytes",
                        length, header->count, CZ__SAFETENSORS_HEADER_MAX);
    char *const dump = cz__allocate(CZ_MEMORY_GENERAL, total);
    if (!dump)
        return cz__fail(CZ_ERR_MEMORY, "safetensors: no memory for a header of %zu bytes", total);
    for (int i = 0; i < 8; i++)
        dump[i] = (char)((uint64_t)length >> 8 * i);
    char *at = stpcpy(dump + 8, opening(header));
    at = stpcpy(at, header->metadata ? header->metadata_json.bytes : "");
    at = stpcpy(at, header->metadata && header->count > 0 ? "," : "");
    at = mempcpy(at, header->count > 0 ? header->tensors_json.bytes : "",
                 header->tensors_json.count);
    *at++ = '}';
    memset(at, ' ', (size_t)(dump + total - at));
    *bytes = dump;
    *count = total;
    return CZ_OK;
}

int64_t cz__safetensors_count(const cz__safetensors *header)
{
    return header->count;
}

const cz__safetensors_entry *cz__safetensors_entry_at(const cz__safetensors *header, int64_t index)
{
    return index >= 0 && index < header->count ? &header->entries[index] : NULL;
}

static int compare_name(const void *name, const void *entry)
{
    return strcmp(name, (*(const cz__safetensors_entry *const *)entry)->name);
}

const cz__safetensors_entry *cz__safetensors_find(const cz__safetensors *header, const char *name)
{
    int64_t number;
    if (!header->was_read)
        return cz__names_find(&header->names, name, &number) ? &header->entries[number] : NULL;
    const cz__safetensors_entry *const *found =
        header->count == 0 ? NULL
                           : bsearch(name, header->by_name, (size_t)header->count,
                                     sizeof *header->by_name, compare_name);
    return found ? *found : NULL;
}

const char *cz__safetensors_metadata(const cz__safetensors *header, const char *key)
{
    return json_string_value(json_object_get(header->metadata, key));
}

json_t *cz__safetensors_all_metadata(const cz__safetensors *header)
{
    return header->metadata;
}

uint64_t cz__safetensors_data_bytes(const cz__safetensors *header)
{
    return header->data_bytes;
}
