/* SPDX-License-Identifier: MIT */
/* Headers from files, which may hold anything: every number is checked before it is used, and what
 * is accepted can be relied on. */
#include "io/safetensors.h"

#include "base/memory.h"
#include "base/plain_text.h"
#include "base/status.h"
#include "io/json.h"
#include "io/stream.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of what describes a tensor: more than any writer has beside a type, a shape and two numbers. */
enum { MOST_DESCRIPTION = 16384, MOST_DEPTH = 8 };

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

/* What files of another kind begin with; NULL: nothing that is known. */
static const char *what_begins_so(const unsigned char bytes[8])
{
    static const struct {
        const char *bytes, *what;
    } kinds[] = {{"PK\3\4", "a zip file does"},
                 {"\x80\2", "a pickle does"},
                 {"\x80\3", "a pickle does"},
                 {"\x80\4", "a pickle does"},
                 {"\x80\5", "a pickle does"},
                 {"\x89HDF", "an HDF5 file does (Keras, for one, writes them)"},
                 {"\x93NUMPY", "a NumPy file does"},
                 {"GGUF", "a GGUF file does (llama.cpp's)"},
                 {"\x7f"
                  "ELF",
                  "a program does"},
                 {"\x1f\x8b", "a gzip file does"},
                 {"\x28\xb5\x2f\xfd", "a zstd file does"},
                 {"%PDF", "a PDF file does"},
                 {"\x89PNG", "a picture does"},
                 {"version ",
                  "a pointer of Git LFS does, so the file itself was not fetched (git lfs pull)"}};
    int printable = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (memcmp(bytes, kinds[i].bytes, strlen(kinds[i].bytes)) == 0)
            return kinds[i].what;
    for (int i = 0; i < 8; i++)
        printable += (bytes[i] >= ' ' && bytes[i] < 127) || bytes[i] == '\n' || bytes[i] == '\t';
    return printable == 8 ? "a text does" : NULL;
}

/* How long the header is, from the first 8 bytes of the file. */
static cz_status read_length(uint64_t *length, const char *path, const unsigned char *bytes,
                             uint64_t count, uint64_t file_bytes)
{
    if (count < 8)
        return cz__fail(CZ_ERR_FORMAT,
                        "%s: no safetensors file: %" PRIu64
                        " bytes, its first 8 are the length of its header",
                        path, count);
    *length = 0;
    for (int i = 0; i < 8; i++)
        *length |= (uint64_t)bytes[i] << 8 * i;
    const char *seems = what_begins_so(bytes);
    if (*length > CZ__SAFETENSORS_HEADER_MAX && seems)
        return cz__fail(CZ_ERR_FORMAT, "%s: no safetensors file: it begins as %s", path, seems);
    if (*length > CZ__SAFETENSORS_HEADER_MAX)
        return cz__fail(CZ_ERR_FORMAT,
                        "%s: no safetensors file, which begins with the length of its header: that "
                        "would be %" PRIu64 " bytes, at most %d are allowed",
                        path, *length, CZ__SAFETENSORS_HEADER_MAX);
    if (*length > file_bytes - 8)
        return cz__fail(CZ_ERR_FORMAT,
                        "%s: the file ends in its header: it has %" PRIu64
                        " bytes, the header alone has %" PRIu64 " behind the first 8",
                        path, file_bytes, *length);
    return CZ_OK;
}

static cz_status no_json(const char *path, size_t at, const char *why)
{
    return cz__fail(CZ_ERR_FORMAT, "%s: the header is no JSON: byte %zu: %s", path, at,
                    cz__show(why).text);
}

/* A part of the header, which begins at `at`. */
static cz_status load_json(json_t **json, const char *path, const char *bytes, size_t at,
                           size_t count)
{
    CZ__PLAIN_TEXT;
    json_error_t error = {.text = ""};
    errno = 0; /* where memory ends within a text, jansson says that the text does */
    *json = json_loadb(bytes + at, count, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (*json)
        return CZ_OK;
    if (errno == ENOMEM || error.text[0] == '\0' ||
        json_error_code(&error) == json_error_out_of_memory)
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory for a header with %zu bytes for one thing",
                        path, count);
    return no_json(path, at + (size_t)error.position, error.text);
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
    const int64_t count = cz__type_units(entry->dtype, entry->dimensions, entry->shape);
    const uint64_t size = cz__type_unit(entry->dtype), bytes = entry->end - entry->begin;
    if (count < 0)
        return refuse(CZ_ERR_FORMAT, path, entry->name,
                      "has a shape with more elements than 64 bits can count, or that are no whole "
                      "number of bytes");
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
    if (!type)
        return refuse(CZ_ERR_FORMAT, path, entry->name, "has no \"dtype\" that is a text");
    CZ_TRY(read_shape(entry, path, json_object_get(json, "shape")));
    CZ_TRY(read_offsets(entry, path, json_object_get(json, "data_offsets"), data_bytes));
    entry->dtype = cz__type_find(type);
    if (!entry->dtype)
        return refuse(CZ_ERR_UNSUPPORTED, path, entry->name,
                      "has type '%s', wanted is F32, F64, F16, BF16, I32, I64, U8, or another name "
                      "in capitals with a number of bits",
                      cz__show(type).text);
    return check_bytes(entry, path);
}

/* Before anything is made of it, see that it is texts under texts. */
static cz_status check_metadata(const char *path, const char *bytes, const cz__json_member *member)
{
    cz__json_scan scan = {.bytes = bytes + member->value, .count = member->value_bytes};
    cz__json_member text;
    cz__json_step step;
    const char *why;
    if (bytes[member->value] != '{')
        return cz__fail(CZ_ERR_FORMAT, "%s: \"" CZ__SAFETENSORS_METADATA "\" is no object", path);
    while ((step = cz__json_next(&scan, &text, &why)) == CZ__JSON_MEMBER)
        if (scan.bytes[text.value] != '"')
            return cz__fail(
                CZ_ERR_FORMAT,
                "%s: '%s' of \"" CZ__SAFETENSORS_METADATA "\" is something else than a text", path,
                cz__show_part(scan.bytes + text.key + 1, text.key_bytes - 2).text);
    return step == CZ__JSON_END ? CZ_OK : no_json(path, member->value + scan.at, why);
}

static cz_status read_metadata(cz__safetensors *header, const char *path, const char *bytes,
                               const cz__json_member *member)
{
    CZ_TRY(check_metadata(path, bytes, member));
    if (header->metadata)
        return no_json(path, member->key, "\"" CZ__SAFETENSORS_METADATA "\" is there twice");
    cz__budget budget = cz__budget_of(path, member->value_bytes);
    CZ_TRY(cz__budget_spend(&budget, cz__json_cost(bytes + member->value, member->value_bytes),
                            "\"" CZ__SAFETENSORS_METADATA "\" of its header"));
    return load_json(&header->metadata, path, bytes, member->value, member->value_bytes);
}

/* What describes one tensor is small and flat, whatever else stands in it. */
static cz_status check_description(const char *path, const char *name, const char *bytes,
                                   const cz__json_member *member)
{
    if (bytes[member->value] != '{')
        return refuse(CZ_ERR_FORMAT, path, name, "is described by something else than an object");
    if (member->value_bytes > MOST_DESCRIPTION || member->depth > MOST_DEPTH)
        return refuse(CZ_ERR_FORMAT, path, name,
                      "is described by %zu bytes in %d levels, wanted at most %d in %d: a type, a "
                      "shape and where its data are",
                      member->value_bytes, member->depth, (int)MOST_DESCRIPTION, (int)MOST_DEPTH);
    return CZ_OK;
}

/* The key, without its quotes and escapes. Almost none has escapes: it is there as it stands. */
static cz_status read_name(char **name, const char *path, const char *bytes,
                           const cz__json_member *member)
{
    json_t *key = NULL;
    const size_t length = member->key_bytes - 2;
    bool plain = true;
    for (size_t i = 0; i < length; i++) {
        const char c = (*name)[i] = bytes[member->key + 1 + i];
        plain = plain && (unsigned char)c >= 0x20 && c != '\\';
    }
    (*name)[length] = 0;
    if (plain && cz__utf8(*name)) {
        *name += length + 1;
        return CZ_OK;
    }
    CZ_TRY(load_json(&key, path, bytes, member->key, member->key_bytes));
    *name = stpcpy(*name, json_string_value(key)) + 1;
    json_decref(key);
    return CZ_OK;
}

/* Memory for all tensors and their names: what they take is known from where they are. */
static cz_status reserve(cz__safetensors *header, const char *path, const char *bytes,
                         size_t length)
{
    cz__json_scan scan = {.bytes = bytes, .count = length};
    cz__json_member member;
    cz__json_step step;
    const char *why;
    size_t name_bytes = 1, count = 0;
    while ((step = cz__json_next(&scan, &member, &why)) == CZ__JSON_MEMBER) {
        name_bytes += member.key_bytes;
        count++;
    }
    if (step == CZ__JSON_WRONG)
        return no_json(path, scan.at, why);
    header->name_bytes = cz__allocate(CZ_MEMORY_GENERAL, name_bytes);
    header->entries = cz__calloc(count, sizeof *header->entries);
    header->by_name = cz__calloc(count, sizeof *header->by_name);
    return header->name_bytes && header->entries && header->by_name
               ? CZ_OK
               : cz__fail(CZ_ERR_MEMORY, "%s: no memory for %zu tensors", path, count);
}

/* One member after the other, so that a tree is never larger than what one tensor needs. */
static cz_status read_entries(cz__safetensors *header, const char *path, const char *bytes,
                              size_t length)
{
    cz__json_scan scan = {.bytes = bytes, .count = length};
    cz__json_member member;
    const char *why;
    char *name = header->name_bytes;
    while (cz__json_next(&scan, &member, &why) == CZ__JSON_MEMBER) {
        json_t *json = NULL;
        cz__safetensors_entry *const entry = &header->entries[header->count];
        entry->name = name;
        CZ_TRY(read_name(&name, path, bytes, &member));
        if (strcmp(entry->name, CZ__SAFETENSORS_METADATA) == 0) {
            CZ_TRY(read_metadata(header, path, bytes, &member));
            continue;
        }
        header->count++;
        CZ_TRY(check_description(path, entry->name, bytes, &member));
        CZ_TRY(load_json(&json, path, bytes, member.value, member.value_bytes));
        const cz_status status = read_entry(entry, path, json, header->data_bytes);
        json_decref(json);
        CZ_TRY(status);
    }
    return CZ_OK;
}

/* Empty tensors come before the one that begins where they are, and among themselves in the order
 * of the JSON, which is that of the addresses of their names. */
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
    }
    if (end != header->data_bytes)
        return cz__fail(CZ_ERR_FORMAT, "%s: %" PRIu64 " bytes of data, the tensors have %" PRIu64,
                        path, header->data_bytes, end);
    return CZ_OK;
}

/* Each name once. */
static cz_status order_names(cz__safetensors *header, const char *path)
{
    for (int64_t i = 0; i < header->count; i++)
        header->by_name[i] = &header->entries[i];
    qsort(header->by_name, (size_t)header->count, sizeof *header->by_name, compare_names);
    for (int64_t i = 1; i < header->count; i++)
        if (compare_names(&header->by_name[i - 1], &header->by_name[i]) == 0)
            return refuse(CZ_ERR_FORMAT, path, header->by_name[i]->name, "is there twice");
    return CZ_OK;
}

static cz_status read_all(cz__safetensors *header, const char *path, const char *bytes,
                          size_t length)
{
    if (length == 0 || bytes[0] != '{')
        return cz__fail(CZ_ERR_FORMAT, "%s: no safetensors file: its header does not begin with {",
                        path);
    CZ_TRY(reserve(header, path, bytes, length));
    CZ_TRY(read_entries(header, path, bytes, length));
    CZ_TRY(order(header, path));
    return order_names(header, path);
}

cz_status cz__safetensors_parse(cz__safetensors **out, const char *path, const void *bytes,
                                size_t count, uint64_t file_bytes)
{
    uint64_t length = 0;
    cz__safetensors *header = NULL;
    *out = NULL;
    file_bytes = file_bytes < count ? count : file_bytes;
    CZ_TRY(read_length(&length, path, bytes, count, file_bytes));
    if (length > count - 8)
        return cz__fail(CZ_ERR_FORMAT, "%s: a header of %" PRIu64 " bytes, of which %zu are there",
                        path, length, count - 8);
    cz_status status = cz__safetensors_create(&header);
    if (!status) {
        header->was_read = true;
        header->data_begin = 8 + length;
        header->data_bytes = file_bytes - 8 - length;
        status = read_all(header, path, (const char *)bytes + 8, (size_t)length);
    }
    if (!status)
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
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory for a header of %zu bytes", path, count);
    cz_status status = read_bytes(file, path, bytes, count);
    if (!status)
        status = cz__safetensors_parse(out, path, bytes, count, file_bytes);
    cz__free(bytes);
    return status;
}
