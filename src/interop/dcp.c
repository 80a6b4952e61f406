/* SPDX-License-Identifier: MIT */
/* The metadata of a folder of torch.distributed.checkpoint, against its files. */
#include "interop/dcp.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fingerprint.h"
#include "base/memory.h"
#include "base/status.h"

enum { MOST_PICKLE = 1 << 28 };

/* Where a chunk or an object is, as the metadata have it. */
typedef struct stored {
    const cz__pickle *p;
    const char *name;
    const cz__pickle_value *offsets; /* a tuple; NULL: it is no tensor */
    cz__dcp_part part;
    bool transformed; /* it was written through something that has to be undone */
} stored;

typedef struct reading {
    cz__dcp *d;
    const cz__pickle *p;
    stored *list; /* owned; in the order of names, then offsets */
    int64_t count;
} reading;

cz_status cz__dcp_refuse(const cz__dcp *d, const char *format, ...)
{
    char what[600];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return cz__fail(CZ_ERR_FORMAT, "%s: %s", cz__text_get(&d->where), what);
}

static cz_status no_memory(const char *path)
{
    return cz__fail(CZ_ERR_MEMORY, "%s: no memory to read it", path);
}

void cz__dcp_close(cz__dcp **dcp)
{
    if (!dcp || !*dcp)
        return;
    cz__dcp *d = *dcp;
    for (int f = 0; f < d->file_count; f++) {
        cz__reader_close(&d->files[f].reader);
        cz__free(d->files[f].path);
    }
    for (int64_t t = 0; t < d->tensor_count; t++) {
        for (int64_t c = 0; c < d->tensors[t].chunk_count; c++)
            cz__free(d->tensors[t].chunks[c].view);
        cz__free(d->tensors[t].chunks);
        cz__free(d->tensors[t].boxes);
    }
    cz__free(d->files);
    cz__free(d->entries);
    cz__free(d->tensors);
    cz__free(d->parts);
    cz__free(d->sums);
    cz__held_clear(&d->held);
    cz__pickle_destroy(&d->metadata);
    cz__text_clear(&d->where);
    cz__free(d->path);
    cz__free(d);
    *dcp = NULL;
}

/* A table, paid for. */
static cz_status have_table(cz__dcp *d, void *table, int64_t count, size_t size)
{
    void **to = table;
    CZ_TRY(cz__budget_spend(&d->budget, (uint64_t)count * size, "tables of what it names"));
    *to = cz__calloc((size_t)count, size);
    return *to ? CZ_OK : no_memory(d->path);
}

cz_status cz__dcp_reserve(cz__dcp *d, int64_t more)
{
    while (d->tensor_room - d->tensor_count < more) {
        cz__dcp_tensor *tensors =
            cz__grow(d->tensors, d->tensor_room, &d->tensor_room, sizeof *tensors);
        if (!tensors)
            return no_memory(d->path);
        d->tensors = tensors;
    }
    return CZ_OK;
}

/* ---- what the metadata are made of ---- */

static const cz__pickle_value *attribute(const reading *r, const cz__pickle_value *object,
                                         const char *class_name, const char *name)
{
    return cz__pickle_attribute(r->p, object, class_name, name);
}

/* A tuple of numbers from 0 on. */
static bool is_place(const reading *r, const cz__pickle_value *v)
{
    if (!v || v->kind != CZ__PICKLE_TUPLE)
        return false;
    for (int64_t i = 0; i < v->count; i++) {
        const cz__pickle_value *number = cz__pickle_item(r->p, v, i);
        if (number->kind != CZ__PICKLE_INTEGER || number->integer < 0)
            return false;
    }
    return true;
}

static bool is_number(const cz__pickle_value *v)
{
    return v && v->kind == CZ__PICKLE_INTEGER && v->integer >= 0;
}

static const cz__pickle_value *dict_of(const reading *r, const char *name)
{
    const cz__pickle_value *root = &r->p->values[r->p->root];
    const cz__pickle_value *v = attribute(r, root, "Metadata", name);
    return v && v->kind == CZ__PICKLE_DICT ? v : NULL;
}

/* ---- files ---- */

static int by_file(const void *left, const void *right)
{
    return strcmp(((const cz__dcp_file *)left)->name, ((const cz__dcp_file *)right)->name);
}

/* A file in the folder and nowhere else, whose name comes into sentences as it is. */
static bool is_file_name(const char *name)
{
    bool plain = name[0] && name[0] != '.' && !strchr(name, '/');
    for (const char *at = name; *at && plain;)
        at += cz__character(at, &plain);
    return plain;
}

static cz_status see_file(cz__dcp *d, cz__dcp_file *file)
{
    struct stat about;
    cz__text path = {0};
    cz__text_print(&path, "%s/%s", d->path, file->name);
    file->path = path.failed ? NULL : cz__strdup(cz__text_get(&path));
    cz__text_clear(&path);
    if (!file->path)
        return no_memory(d->path);
    if (lstat(file->path, &about) != 0)
        return cz__fail(errno == ENOENT ? CZ_ERR_FORMAT : CZ_ERR_IO, "%s: %s", file->path,
                        errno == ENOENT ? "is not there, and the metadata name it"
                                        : strerror(errno));
    if (!S_ISREG(about.st_mode))
        return cz__fail(CZ_ERR_FORMAT, "%s: is %s, wanted a file in the folder", file->path,
                        S_ISLNK(about.st_mode) ? "a link" : "no file");
    file->bytes = (uint64_t)about.st_size;
    d->fingerprint = cz__fingerprint(d->fingerprint, &file->bytes, sizeof file->bytes);
    return CZ_OK;
}

/* Each name once, in order; what was stored gets its number. */
static cz_status list_files(reading *r, const char **names)
{
    cz__dcp *d = r->d;
    CZ_TRY(have_table(d, &d->files, r->count, sizeof *d->files));
    for (int64_t i = 0; i < r->count; i++)
        d->files[i].name = names[i];
    if (r->count > 0)
        qsort(d->files, (size_t)r->count, sizeof *d->files, by_file);
    for (int64_t i = 0; i < r->count; i++)
        if (d->file_count == 0 || by_file(&d->files[d->file_count - 1], &d->files[i]) != 0)
            d->files[d->file_count++].name = d->files[i].name;
    for (int64_t i = 0; i < r->count; i++) {
        const cz__dcp_file key = {.name = names[i]};
        const cz__dcp_file *found =
            bsearch(&key, d->files, (size_t)d->file_count, sizeof key, by_file);
        r->list[i].part.file = (int)(found - d->files);
    }
    for (int f = 0; f < d->file_count; f++)
        CZ_TRY(see_file(d, &d->files[f]));
    return CZ_OK;
}

/* ---- where things are ---- */

static int compare_offsets(const cz__pickle *p, const cz__pickle_value *a,
                           const cz__pickle_value *b)
{
    const int64_t count_a = a ? a->count : -1, count_b = b ? b->count : -1;
    for (int64_t i = 0; i < count_a && count_a == count_b; i++) {
        const int64_t left = cz__pickle_item(p, a, i)->integer;
        const int64_t right = cz__pickle_item(p, b, i)->integer;
        if (left != right)
            return left < right ? -1 : 1;
    }
    return (count_a > count_b) - (count_a < count_b);
}

static int by_place(const void *left, const void *right)
{
    const stored *a = left, *b = right;
    const int order = strcmp(a->name, b->name);
    return order ? order : compare_offsets(a->p, a->offsets, b->offsets);
}

static cz_status read_stored(const reading *r, const cz__pickle_value *key,
                             const cz__pickle_value *value, stored *to, const char **file)
{
    const cz__pickle_value *name = attribute(r, key, "MetadataIndex", "fqn");
    const cz__pickle_value *offsets = attribute(r, key, "MetadataIndex", "offset");
    const cz__pickle_value *path = attribute(r, value, "_StorageInfo", "relative_path");
    const cz__pickle_value *begin = attribute(r, value, "_StorageInfo", "offset");
    const cz__pickle_value *bytes = attribute(r, value, "_StorageInfo", "length");
    const cz__pickle_value *change = attribute(r, value, "_StorageInfo", "transform_descriptors");
    if (offsets && offsets->kind == CZ__PICKLE_NONE)
        offsets = NULL;
    if (!name || name->kind != CZ__PICKLE_TEXT || (offsets && !is_place(r, offsets)))
        return cz__dcp_refuse(r->d, "its storage_data has a key that is no name and place");
    if (!path || path->kind != CZ__PICKLE_TEXT || !is_number(begin) || !is_number(bytes))
        return cz__dcp_refuse(r->d, "'%s': where it is stored is no file, place and length",
                              cz__show(name->text).text);
    if (!is_file_name(path->text))
        return cz__dcp_refuse(r->d, "'%s' is in '%s', wanted the name of a file in the folder",
                              cz__show(name->text).text, cz__show(path->text).text);
    *file = path->text;
    *to = (stored){r->p,
                   name->text,
                   offsets,
                   {.begin = (uint64_t)begin->integer, .bytes = (uint64_t)bytes->integer},
                   change && change->kind != CZ__PICKLE_NONE && change->count > 0};
    return CZ_OK;
}

static cz_status list_stored(reading *r, const cz__pickle_value *storage)
{
    const char **files = NULL;
    r->count = cz__pickle_dict_count(storage);
    CZ_TRY(have_table(r->d, &r->list, r->count, sizeof *r->list));
    CZ_TRY(have_table(r->d, &files, r->count, sizeof *files));
    cz_status status = CZ_OK;
    for (int64_t i = 0; i < r->count && !status; i++)
        status = read_stored(r, cz__pickle_item(r->p, storage, 2 * i),
                             cz__pickle_item(r->p, storage, 2 * i + 1), &r->list[i], &files[i]);
    if (!status)
        status = list_files(r, files);
    cz__free(files);
    CZ_TRY(status);
    if (r->count > 0)
        qsort(r->list, (size_t)r->count, sizeof *r->list, by_place);
    for (int64_t i = 1; i < r->count; i++)
        if (by_place(&r->list[i - 1], &r->list[i]) == 0)
            return cz__dcp_refuse(r->d, "'%s' is stored twice", cz__show(r->list[i].name).text);
    return CZ_OK;
}

static cz_status find_stored(const reading *r, const char *name, const cz__pickle_value *offsets,
                             cz__dcp_part *part)
{
    const stored key = {.p = r->p, .name = name, .offsets = offsets};
    const stored *found =
        r->count > 0 ? bsearch(&key, r->list, (size_t)r->count, sizeof key, by_place) : NULL;
    if (!found)
        return cz__dcp_refuse(r->d, "'%s': it is not said where %s of it is stored",
                              cz__show(name).text, offsets ? "a chunk" : "the value");
    if (found->transformed)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "%s: '%s' was saved through an extension that changes the bytes, such as "
                        "a compression: load it in torch and save it without",
                        cz__text_get(&r->d->where), cz__show(name).text);
    *part = found->part;
    const cz__dcp_file *file = &r->d->files[part->file];
    return part->begin <= file->bytes && part->bytes <= file->bytes - part->begin
               ? CZ_OK
               : cz__fail(CZ_ERR_FORMAT,
                          "%s: '%s' is at byte %" PRIu64 " and has %" PRIu64
                          " bytes, the file has %" PRIu64,
                          file->path, cz__show(name).text, part->begin, part->bytes, file->bytes);
}

/* ---- tensors ---- */

/* The number of elements; false: it does not fit. */
static bool multiply(const int64_t *sizes, int dimensions, int64_t *count)
{
    *count = 1;
    for (int d = 0; d < dimensions; d++)
        if (sizes[d] == 0)
            *count = 0;
    for (int d = 0; d<dimensions && * count> 0; d++)
        if (__builtin_mul_overflow(*count, sizes[d], count))
            return false;
    return *count <= INT64_MAX / 16;
}

/* Coordinates as random numbers: boxes fill a tensor, each element once, if and only if what they
 * measure adds up to what it measures, whatever the coordinates are taken for; so but for a chance
 * of one in 2^40, on which nobody can work who does not know the key of the hash. */
static uint64_t measure(const int64_t *offsets, const int64_t *sizes, int dimensions)
{
    uint64_t product = 1;
    for (int d = 0; d < dimensions; d++) {
        const int64_t begin[] = {d, offsets[d]}, end[] = {d, offsets[d] + sizes[d]};
        product *= cz__keyed_hash(end, sizeof end) - cz__keyed_hash(begin, sizeof begin);
    }
    return product;
}

static cz_status check_cover(const reading *r, const cz__dcp_tensor *t, int64_t count)
{
    const int64_t zeros[CZ_MAX_DIMENSIONS] = {0};
    uint64_t sum = 0;
    int64_t all = 0;
    if (count == 0)
        return CZ_OK;
    for (int64_t c = 0; c < t->chunk_count; c++) {
        sum += measure(t->chunks[c].offsets, t->chunks[c].sizes, t->form.dimensions);
        if (__builtin_add_overflow(all, t->chunks[c].count, &all))
            return cz__dcp_refuse(r->d, "tensor '%s': its chunks overlap", cz__show(t->name).text);
    }
    if (all == count && sum == measure(zeros, t->form.shape, t->form.dimensions))
        return CZ_OK;
    return cz__dcp_refuse(r->d,
                          "tensor '%s': its %" PRId64 " chunks do not fill it: they have %" PRId64
                          " elements together, the tensor has %" PRId64
                          ", and some overlap or are missing",
                          cz__show(t->name).text, t->chunk_count, all, count);
}

static void place_chunk(const cz__dcp_tensor *t, cz__dcp_chunk *c)
{
    for (int64_t d = t->form.dimensions - 1, stride = 1; d >= 0; stride *= t->form.shape[d--]) {
        c->first += c->offsets[d] * stride;
        c->last += (c->offsets[d] + c->sizes[d] - 1) * stride;
    }
}

/* Those without elements, of ranks that have none of a tensor, are left. */
static cz_status add_chunk(const reading *r, cz__dcp_tensor *t, const cz__pickle_value *chunk)
{
    const cz__pickle_value *offsets = attribute(r, chunk, "ChunkStorageMetadata", "offsets");
    const cz__pickle_value *sizes = attribute(r, chunk, "ChunkStorageMetadata", "sizes");
    const int dimensions = t->form.dimensions;
    int64_t *box = t->boxes + 2 * (int64_t)dimensions * t->chunk_count;
    cz__dcp_chunk *c = &t->chunks[t->chunk_count];
    if (!is_place(r, offsets) || !is_place(r, sizes) || offsets->count != dimensions ||
        sizes->count != dimensions)
        return cz__dcp_refuse(r->d,
                              "tensor '%s': a chunk has not a place and a size for each of "
                              "%d dimensions",
                              cz__show(t->name).text, dimensions);
    for (int d = 0; d < dimensions; d++) {
        box[d] = cz__pickle_item(r->p, offsets, d)->integer;
        box[dimensions + d] = cz__pickle_item(r->p, sizes, d)->integer;
        if (box[d] > t->form.shape[d] || box[dimensions + d] > t->form.shape[d] - box[d])
            return cz__dcp_refuse(r->d,
                                  "tensor '%s': a chunk has %" PRId64 " from %" PRId64
                                  " on in dimension %d, the tensor %" PRId64,
                                  cz__show(t->name).text, box[dimensions + d], box[d], d,
                                  t->form.shape[d]);
    }
    *c = (cz__dcp_chunk){.offsets = box, .sizes = box + dimensions};
    if (!multiply(c->sizes, dimensions, &c->count) || c->count == 0)
        return CZ_OK;
    CZ_TRY(find_stored(r, t->name, offsets, &c->part));
    place_chunk(t, c);
    const uint64_t bytes = (uint64_t)c->count * cz__type_unit(t->form.dtype);
    if (bytes > c->part.bytes)
        return cz__dcp_refuse(r->d,
                              "tensor '%s': a chunk of %" PRIu64 " bytes is stored in %" PRIu64,
                              cz__show(t->name).text, bytes, c->part.bytes);
    t->chunk_count++;
    return CZ_OK;
}

static cz_status read_form(const reading *r, cz__dcp_tensor *t, const cz__pickle_value *about,
                           int64_t *count)
{
    const cz__pickle_value *size = attribute(r, about, "TensorStorageMetadata", "size");
    const cz__pickle_value *properties = attribute(r, about, "TensorStorageMetadata", "properties");
    const cz__pickle_value *type = NULL;
    if (properties && properties->kind == CZ__PICKLE_OBJECT && properties->count == 2 &&
        cz__pickle_item(r->p, properties, 1)->kind == CZ__PICKLE_TUPLE &&
        cz__pickle_item(r->p, properties, 1)->count > 0)
        type = cz__pickle_item(r->p, cz__pickle_item(r->p, properties, 1), 0);
    if (!type || type->kind != CZ__PICKLE_GLOBAL || type->global->role != CZ__PICKLE_DTYPE)
        return cz__dcp_refuse(r->d, "tensor '%s': its type is none", cz__show(t->name).text);
    if (!type->global->dtype)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "%s: tensor '%s' is of torch.%s, which the library has not",
                        cz__text_get(&r->d->where), cz__show(t->name).text, type->global->name);
    if (!is_place(r, size))
        return cz__dcp_refuse(r->d, "tensor '%s' has no size", cz__show(t->name).text);
    if (size->count > CZ_MAX_DIMENSIONS)
        return cz__fail(
            CZ_ERR_UNSUPPORTED, "%s: tensor '%s' has %" PRId64 " dimensions, at most %d",
            cz__text_get(&r->d->where), cz__show(t->name).text, size->count, CZ_MAX_DIMENSIONS);
    t->form.dtype = type->global->dtype;
    t->form.dimensions = (int)size->count;
    for (int64_t d = 0; d < size->count; d++)
        t->form.shape[d] = cz__pickle_item(r->p, size, d)->integer;
    if (!multiply(t->form.shape, t->form.dimensions, count))
        return cz__dcp_refuse(r->d, "tensor '%s': its size does not fit", cz__show(t->name).text);
    t->form.end = (uint64_t)*count * cz__type_unit(t->form.dtype);
    return CZ_OK;
}

static cz_status add_tensor(const reading *r, cz__dcp_entry *e)
{
    int64_t count = 0;
    const cz__pickle_value *chunks = attribute(r, e->about, "TensorStorageMetadata", "chunks");
    cz__dcp_tensor *t = &r->d->tensors[r->d->tensor_count];
    *t = (cz__dcp_tensor){.name = e->name};
    e->tensor = r->d->tensor_count++;
    CZ_TRY(read_form(r, t, e->about, &count));
    if (!chunks || chunks->kind != CZ__PICKLE_LIST)
        return cz__dcp_refuse(r->d, "tensor '%s' has no list of chunks", cz__show(e->name).text);
    CZ_TRY(have_table(r->d, &t->chunks, chunks->count, sizeof *t->chunks));
    CZ_TRY(have_table(r->d, &t->boxes, chunks->count * 2 * t->form.dimensions, sizeof *t->boxes));
    for (int64_t i = 0; i < chunks->count; i++)
        CZ_TRY(add_chunk(r, t, cz__pickle_item(r->p, chunks, i)));
    return check_cover(r, t, count);
}

/* ---- names ---- */

static int by_name(const void *left, const void *right)
{
    return strcmp(((const cz__dcp_entry *)left)->name, ((const cz__dcp_entry *)right)->name);
}

static cz_status list_names(const reading *r, const cz__pickle_value *names)
{
    cz__dcp *d = r->d;
    CZ_TRY(have_table(d, &d->entries, cz__pickle_dict_count(names), sizeof *d->entries));
    for (int64_t i = 0; i < names->count; i += 2) {
        const cz__pickle_value *name = cz__pickle_item(r->p, names, i);
        if (name->kind != CZ__PICKLE_TEXT || !name->text[0])
            return cz__dcp_refuse(d, "it has %s for a name", cz__pickle_kind_name(name->kind));
        d->entries[d->entry_count] = (cz__dcp_entry){.name = name->text,
                                                     .about = cz__pickle_item(r->p, names, i + 1),
                                                     .order = d->entry_count,
                                                     .tensor = -1};
        d->entry_count++;
    }
    if (d->entry_count > 0)
        qsort(d->entries, (size_t)d->entry_count, sizeof *d->entries, by_name);
    for (int64_t i = 1; i < d->entry_count; i++)
        if (by_name(&d->entries[i - 1], &d->entries[i]) == 0)
            return cz__dcp_refuse(d, "'%s' is there twice", cz__show(d->entries[i].name).text);
    return CZ_OK;
}

/* From name to the keys by which a value is in the dictionary that was saved, in its order. */
static cz_status take_paths(const reading *r, const cz__pickle_value *paths)
{
    cz__dcp *d = r->d;
    for (int64_t i = 0; paths && i < paths->count; i += 2) {
        const cz__pickle_value *name = cz__pickle_item(r->p, paths, i);
        const cz__dcp_entry key = {.name = name->kind == CZ__PICKLE_TEXT ? name->text : ""};
        cz__dcp_entry *found =
            d->entry_count > 0
                ? bsearch(&key, d->entries, (size_t)d->entry_count, sizeof key, by_name)
                : NULL;
        if (!found)
            continue;
        found->path = cz__pickle_item(r->p, paths, i + 1);
        found->order = i / 2;
        if (found->path->kind != CZ__PICKLE_TUPLE || found->path->count == 0)
            return cz__dcp_refuse(d, "'%s': its path is no tuple of keys",
                                  cz__show(found->name).text);
    }
    return CZ_OK;
}

static cz_status read_entry(const reading *r, cz__dcp_entry *e)
{
    const cz__pickle_value *about = e->about;
    const char *is = about->kind == CZ__PICKLE_OBJECT
                         ? cz__pickle_item(r->p, about, 0)->global->name
                         : cz__pickle_kind_name(about->kind);
    if (strcmp(is, "TensorStorageMetadata") == 0)
        return add_tensor(r, e);
    if (strcmp(is, "BytesStorageMetadata") == 0)
        return find_stored(r, e->name, NULL, &e->part);
    return cz__dcp_refuse(r->d,
                          "'%s' is %s, wanted TensorStorageMetadata or BytesStorageMetadata: "
                          "nothing was executed",
                          cz__show(e->name).text, is);
}

/* ---- parts ---- */

static int by_begin(const void *left, const void *right)
{
    const cz__dcp_part *a = left, *b = right;
    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

cz__dcp_part *cz__dcp_listed(const cz__dcp *d, const cz__dcp_part *part)
{
    return bsearch(part, d->parts, (size_t)d->part_count, sizeof *part, by_begin);
}

/* What reading will need. */
static cz_status have_sums(cz__dcp *d)
{
    uint64_t bytes = 0;
    for (int64_t i = 0; i < d->part_count; i++)
        if (__builtin_add_overflow(bytes, d->parts[i].bytes, &bytes))
            bytes = UINT64_MAX; /* of files with holes */
    d->block = cz__verified_block(bytes);
    for (int64_t i = 0; i < d->part_count; i++) {
        d->parts[i].first_sum = d->sum_count;
        d->sum_count += (int64_t)(d->parts[i].bytes / d->block + 1);
    }
    d->sums = cz__calloc((size_t)d->sum_count + 1, sizeof *d->sums);
    return d->sums ? CZ_OK : no_memory(d->path);
}

/* Parts that share bytes are a trap: a small file with a lot in it. */
static cz_status list_parts(cz__dcp *d)
{
    int64_t count = 0;
    for (int64_t i = 0; i < d->entry_count; i++)
        count += d->entries[i].tensor < 0 ? 1 : d->tensors[d->entries[i].tensor].chunk_count;
    CZ_TRY(have_table(d, &d->parts, count, sizeof *d->parts));
    for (int64_t i = 0; i < d->entry_count; i++) {
        const cz__dcp_entry *e = &d->entries[i];
        const cz__dcp_tensor *t = e->tensor < 0 ? NULL : &d->tensors[e->tensor];
        if (!t)
            d->parts[d->part_count++] = e->part;
        for (int64_t c = 0; t && c < t->chunk_count; c++)
            d->parts[d->part_count++] = t->chunks[c].part;
    }
    if (count > 0)
        qsort(d->parts, (size_t)count, sizeof *d->parts, by_begin);
    for (int64_t i = 1; i < count; i++) {
        const cz__dcp_part *a = &d->parts[i - 1], *b = &d->parts[i];
        if (a->file == b->file && b->begin - a->begin < a->bytes)
            return cz__fail(CZ_ERR_FORMAT,
                            "%s: what begins at byte %" PRIu64 " and at %" PRIu64 " share bytes",
                            d->files[a->file].path, a->begin, b->begin);
    }
    return have_sums(d);
}

/* ---- together ---- */

static cz_status read_tables(reading *r)
{
    const cz__pickle_value *names = dict_of(r, "state_dict_metadata");
    const cz__pickle_value *storage = dict_of(r, "storage_data");
    if (!names || !storage)
        return cz__dcp_refuse(r->d, "it is not what torch.distributed.checkpoint writes: it has no "
                                    "state_dict_metadata and storage_data");
    CZ_TRY(list_stored(r, storage));
    CZ_TRY(list_names(r, names));
    CZ_TRY(take_paths(r, dict_of(r, "planner_data")));
    CZ_TRY(cz__budget_spend(&r->d->budget, (uint64_t)r->d->entry_count * sizeof(cz__dcp_tensor),
                            "a table of its tensors"));
    CZ_TRY(cz__dcp_reserve(r->d, r->d->entry_count));
    for (int64_t i = 0; i < r->d->entry_count; i++)
        CZ_TRY(read_entry(r, &r->d->entries[i]));
    return list_parts(r->d);
}

static cz_status read_metadata(cz__dcp *d)
{
    char *bytes;
    size_t count;
    reading r = {.d = d};
    if (!cz__text_print(&d->where, "%s/" CZ__DISTRIBUTED_INDEX, d->path))
        return no_memory(d->path);
    const char *where = cz__text_get(&d->where);
    CZ_TRY(cz__file_read(where, MOST_PICKLE, &bytes, &count));
    d->budget = cz__budget_of(where, count);
    d->fingerprint = cz__fingerprint(0, bytes, count);
    cz_status status = cz__pickle_read(&d->metadata, where, bytes, count);
    cz__free(bytes);
    CZ_TRY(status);
    r.p = d->metadata;
    status = read_tables(&r);
    cz__free(r.list);
    return status;
}

cz_status cz__dcp_read_metadata(cz__dcp **out, const char *path)
{
    *out = cz__calloc(1, sizeof **out);
    if (*out)
        (*out)->path = cz__strdup(path);
    const cz_status status = *out && (*out)->path ? read_metadata(*out) : no_memory(path);
    if (status != CZ_OK)
        cz__dcp_close(out);
    return status;
}
