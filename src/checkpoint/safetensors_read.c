/* SPDX-License-Identifier: MIT */
/* Headers from files, which may hold anything: every number is checked before it is used, and what is
 * accepted can be relied on. */
#include "checkpoint/safetensors.h"

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/safetensors_object.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Fail with "PATH: tensor 'NAME' …". */
static cz_status refuse(cz_status status, const char *path, const char *name, const char *format,
                        ...) CZ_PRINTF(4, 5);
static cz_status refuse(cz_status status, const char *path, const char *name, const char *format,
                        ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return cz__fail(status, "%s: tensor '%s' %s", path, cz__show(name).text, what);
}

/* How long the header is, from the first 8 bytes of the file. */
static cz_status read_length(uint64_t *length, const char *path, const unsigned char *bytes,
                             uint64_t count, uint64_t file_bytes)
{
    if (count < 8)
        return cz__fail(CZ_ERR_FORMAT,
                        "%s: no safetensors file: %" PRIu64 " bytes, its first 8 are the length of "
                        "its header",
                        path, count);
    *length = 0;
    for (int i = 0; i < 8; i++)
        *length |= (uint64_t)bytes[i] << 8 * i;
    if (*length > CZ__SAFETENSORS_HEADER_MAX)
        return cz__fail(CZ_ERR_FORMAT,
                        "%s: no safetensors file: a header of %" PRIu64 " bytes, at most %d are "
                        "allowed",
                        path, *length, CZ__SAFETENSORS_HEADER_MAX);
    if (*length > file_bytes - 8)
        return cz__fail(CZ_ERR_FORMAT,
                        "%s: the file ends in its header: it has %" PRIu64 " bytes, the header "
                        "alone has %" PRIu64 " behind the first 8",
                        path, file_bytes, *length);
    return CZ_OK;
}

static cz_status load_json(json_t **json, const char *path, const char *bytes, size_t length)
{
    json_error_t error = {.text = ""};
    if (length == 0 || bytes[0] != '{')
        return cz__fail(CZ_ERR_FORMAT, "%s: no safetensors file: its header does not begin with {",
                        path);
    *json = json_loadb(bytes, length, JSON_REJECT_DUPLICATES, &error);
    if (*json)
        return CZ_OK;
    if (error.text[0] == '\0' || json_error_code(&error) == json_error_out_of_memory)
        return cz__fail(CZ_ERR_MEMORY, "%s: a header of %zu bytes", path, length);
    return cz__fail(CZ_ERR_FORMAT, "%s: the header is no JSON: byte %d: %s", path, error.position,
                    cz__show(error.text).text);
}

static cz_status read_shape(cz__safetensors_entry *entry, const char *path, const json_t *shape)
{
    if (!json_is_array(shape))
        return refuse(CZ_ERR_FORMAT, path, entry->name, "has no \"shape\" that is a list");
    if (json_array_size(shape) > CZ_MAX_DIMENSIONS)
        return refuse(CZ_ERR_FORMAT, path, entry->name, "has %zu dimensions, wanted 0 to %d",
                      json_array_size(shape), CZ_MAX_DIMENSIONS);
    entry->dimensions = (int)json_array_size(shape);
    for (int d = 0; d < entry->dimensions; d++) {
        const json_t *size = json_array_get(shape, (size_t)d);
        entry->shape[d] = json_integer_value(size);
        if (!json_is_integer(size))
            return refuse(CZ_ERR_FORMAT, path, entry->name, "has a dimension %d that is no integer",
                          d);
        if (entry->shape[d] < 0)
            return refuse(CZ_ERR_FORMAT, path, entry->name,
                          "has %" PRId64 " as dimension %d, wanted 0 or more", entry->shape[d], d);
    }
    return CZ_OK;
}

static cz_status read_offsets(cz__safetensors_entry *entry, const char *path, const json_t *offsets,
                              uint64_t data_bytes)
{
    const json_t *const begin = json_array_get(offsets, 0), *const end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return refuse(CZ_ERR_FORMAT, path, entry->name,
                      "has no \"data_offsets\" that are two integers");
    const int64_t from = json_integer_value(begin), to = json_integer_value(end);
    if (from < 0 || to < from)
        return refuse(CZ_ERR_FORMAT, path, entry->name,
                      "has bytes %" PRId64 " to %" PRId64 ", wanted 0 <= begin <= end", from, to);
    if ((uint64_t)to > data_bytes)
        return refuse(CZ_ERR_FORMAT, path, entry->name,
                      "ends at byte %" PRId64 " of the data, of which the file has %" PRIu64, to,
                      data_bytes);
    entry->begin = (uint64_t)from;
    entry->end = (uint64_t)to;
    return CZ_OK;
}

/* Has the shape as many bytes as the offsets say? */
static cz_status check_bytes(const cz__safetensors_entry *entry, const char *path)
{
    cz_tensor form = {.dtype = entry->dtype, .dimensions = entry->dimensions};
    memcpy(form.shape, entry->shape, sizeof form.shape);
    const int64_t count = cz_tensor_count(&form);
    const uint64_t size = cz_dtype_size(entry->dtype), bytes = entry->end - entry->begin;
    if (count < 0)
        return refuse(CZ_ERR_FORMAT, path, entry->name,
                      "has a shape with more elements than 64 bits can count");
    if (bytes % size != 0 || bytes / size != (uint64_t)count)
        return refuse(CZ_ERR_FORMAT, path, entry->name,
                      "has %" PRIu64 " bytes, wanted are %" PRId64 " elements of %" PRIu64
                      " for its shape and type",
                      bytes, count, size);
    return CZ_OK;
}

static cz_status read_entry(cz__safetensors_entry *entry, const char *path, const json_t *json,
                            uint64_t data_bytes)
{
    const char *const type = json_string_value(json_object_get(json, "dtype"));
    if (!*entry->name)
        return cz__fail(CZ_ERR_FORMAT, "%s: a tensor's name is empty", path);
    if (!json_is_object(json) || !type)
        return refuse(CZ_ERR_FORMAT, path, entry->name, "%s",
                      json_is_object(json) ? "has no \"dtype\" that is a text"
                                           : "is described by something else than an object");
    CZ_TRY(read_shape(entry, path, json_object_get(json, "shape")));
    CZ_TRY(read_offsets(entry, path, json_object_get(json, "data_offsets"), data_bytes));
    entry->dtype = cz__safetensors_dtype(type);
    if (!entry->dtype)
        return refuse(CZ_ERR_UNSUPPORTED, path, entry->name,
                      "has type '%s', wanted is one of F32 F64 F16 BF16 I32 I64 U8",
                      cz__show(type).text);
    return check_bytes(entry, path);
}

static cz_status check_metadata(const char *path, json_t *metadata)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return cz__fail(CZ_ERR_FORMAT, "%s: \"" CZ__SAFETENSORS_METADATA "\" is no object", path);
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return cz__fail(CZ_ERR_FORMAT,
                            "%s: '%s' of \"" CZ__SAFETENSORS_METADATA "\" is something else than a "
                            "text",
                            path, cz__show(key).text);
    }
    return CZ_OK;
}

/* Memory for all tensors and their names. */
static cz_status reserve(cz__safetensors *header, const char *path, json_t *json)
{
    size_t bytes = 1;
    const char *key;
    json_t *value;
    json_object_foreach(json, key, value) bytes += strlen(key) + 1;
    const size_t count = json_object_size(json);
    header->name_bytes = cz__allocate(CZ_MEMORY_GENERAL, bytes);
    header->entries = cz__calloc(count, sizeof *header->entries);
    header->by_name = cz__calloc(count, sizeof *header->by_name);
    return header->name_bytes && header->entries && header->by_name
               ? CZ_OK
               : cz__fail(CZ_ERR_MEMORY, "%s: %zu tensors", path, count);
}

static cz_status read_entries(cz__safetensors *header, const char *path, json_t *json)
{
    char *name = header->name_bytes;
    const char *key;
    json_t *value;
    json_object_foreach(json, key, value)
    {
        if (strcmp(key, CZ__SAFETENSORS_METADATA) == 0) {
            CZ_TRY(check_metadata(path, value));
            header->metadata = json_incref(value);
            continue;
        }
        cz__safetensors_entry *const entry = &header->entries[header->count++];
        entry->name = name;
        name = stpcpy(name, key) + 1;
        CZ_TRY(read_entry(entry, path, value, header->data_bytes));
    }
    return CZ_OK;
}

/* Empty tensors come before the one that begins where they are, and among themselves in the order of the
 * JSON, which is that of the addresses of their names. */
static int compare_data(const void *left, const void *right)
{
    const cz__safetensors_entry *const a = left, *const b = right;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    return (a->name > b->name) - (a->name < b->name);
}

static int compare_names(const void *left, const void *right)
{
    return strcmp((*(const cz__safetensors_entry *const *)left)->name,
                  (*(const cz__safetensors_entry *const *)right)->name);
}

/* In the order of their data, which they fill. */
static cz_status order(cz__safetensors *header, const char *path)
{
    uint64_t end = 0;
    qsort(header->entries, (size_t)header->count, sizeof *header->entries, compare_data);
    for (int64_t i = 0; i < header->count; i++) {
        const cz__safetensors_entry *const entry = &header->entries[i];
        if (entry->begin != end)
            return refuse(CZ_ERR_FORMAT, path, entry->name,
                          "begins at byte %" PRIu64 " of the data, wanted %" PRIu64
                          ", where the one before ends",
                          entry->begin, end);
        end = entry->end;
        header->by_name[i] = entry;
    }
    if (end != header->data_bytes)
        return cz__fail(CZ_ERR_FORMAT, "%s: %" PRIu64 " bytes of data, the tensors have %" PRIu64,
                        path, header->data_bytes, end);
    qsort(header->by_name, (size_t)header->count, sizeof *header->by_name, compare_names);
    return CZ_OK;
}

static cz_status read_all(cz__safetensors *header, const char *path, json_t *json)
{
    CZ_TRY(reserve(header, path, json));
    CZ_TRY(read_entries(header, path, json));
    return order(header, path);
}

cz_status cz__safetensors_parse(cz__safetensors **out, const char *path, const void *bytes,
                                size_t count, uint64_t file_bytes)
{
    uint64_t length = 0;
    json_t *json = NULL;
    cz__safetensors *header = NULL;
    *out = NULL;
    file_bytes = file_bytes < count ? count : file_bytes;
    CZ_TRY(read_length(&length, path, bytes, count, file_bytes));
    if (length > count - 8)
        return cz__fail(CZ_ERR_FORMAT, "%s: a header of %" PRIu64 " bytes, of which %zu are there",
                        path, length, count - 8);
    CZ_TRY(load_json(&json, path, (const char *)bytes + 8, (size_t)length));
    cz_status status = cz__safetensors_create(&header);
    if (status == CZ_OK) {
        header->was_read = true;
        header->data_begin = 8 + length;
        header->data_bytes = file_bytes - 8 - length;
        status = read_all(header, path, json);
    }
    json_decref(json);
    if (status == CZ_OK)
        *out = header;
    else
        cz__safetensors_destroy(&header);
    return status;
}

/* The first `count` bytes of the file. */
static cz_status read_bytes(int file, const char *path, char *bytes, size_t count)
{
    for (size_t done = 0; done < count;) {
        const ssize_t got = pread(file, bytes + done, count - done, (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return cz__fail(CZ_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
        if (got == 0)
            return cz__fail(CZ_ERR_FORMAT, "%s: the file ends at byte %zu, its header at %zu", path,
                            done, count);
        done += (size_t)got;
    }
    return CZ_OK;
}

cz_status cz__safetensors_read(cz__safetensors **out, int file, const char *path)
{
    struct stat about;
    char first[8];
    uint64_t length = 0;
    *out = NULL;
    if (fstat(file, &about) != 0)
        return cz__fail(CZ_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
    const uint64_t file_bytes = about.st_size > 0 ? (uint64_t)about.st_size : 0;
    const size_t beginning = file_bytes < 8 ? (size_t)file_bytes : 8;
    CZ_TRY(read_bytes(file, path, first, beginning));
    CZ_TRY(read_length(&length, path, (const unsigned char *)first, beginning, file_bytes));
    const size_t count = 8 + (size_t)length;
    char *const bytes = cz__allocate(CZ_MEMORY_GENERAL, count);
    if (!bytes)
        return cz__fail(CZ_ERR_MEMORY, "%s: a header of %zu bytes", path, count);
    cz_status status = read_bytes(file, path, bytes, count);
    if (status == CZ_OK)
        status = cz__safetensors_parse(out, path, bytes, count, file_bytes);
    cz__free(bytes);
    return status;
}
