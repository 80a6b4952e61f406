/* SPDX-License-Identifier: MIT */
/* What one rank writes of a generation. A part is a safetensors file and, once that is on the
 * medium, a small JSON file with its checksums, which is the rank's commit mark. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/open.h"
#include "base/process.h"
#include "base/status.h"
#include "base/thread.h"
#include "checkpoint/generation.h"
#include "checkpoint/package.h"
#include "io/folder.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "io/stream.h"

/* ---- tensors ---- */
/* The tensors of a file to be written: its header, and where the elements come from, which is
 * memory or other files. */

enum { BLOCK = 4 << 20 }; /* from another file at once */

/* The elements of one tensor: at an address, or [begin, end) of something in the source's input. */
typedef struct tensor_extent {
    const void *data;
    size_t bytes;
    const cz_device *device; /* NULL: in the input */
    int64_t stored, begin, end;
    const char *slot;
} tensor_extent;

/* Zeroed is empty, but for the header. */
typedef struct tensors {
    cz__safetensors *header; /* owned, as the next two */
    char *head;              /* the header's bytes, once it is dumped */
    tensor_extent *extents;
    size_t head_bytes;
    int64_t count, capacity;
    size_t bytes; /* of all extents */
} tensors;

static void clear_tensors(tensors *t)
{
    cz__safetensors_destroy(&t->header);
    cz__free(t->head);
    cz__free(t->extents);
    *t = (tensors){0};
}

static cz_status append(tensors *t, tensor_extent next)
{
    tensor_extent *extents = cz__grow(t->extents, t->count, &t->capacity, sizeof *extents);
    if (!extents)
        return cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a list of %lld tensors",
                        (long long)t->count + 1);
    t->extents = extents;
    t->extents[t->count++] = next;
    t->bytes += next.bytes;
    return CZ_OK;
}

/* One of a dictionary, to the tensors that `context` is. */
static cz_status add_tensor(const char *name, const cz_tensor *tensor, void *context)
{
    tensors *t = context;
    CZ_TRY(cz__safetensors_add(t->header, name, tensor->dtype, tensor->dimensions, tensor->shape));
    return append(
        t, (tensor_extent){.data = tensor->data,
                           .bytes = (size_t)cz_tensor_count(tensor) * cz_dtype_size(tensor->dtype),
                           .device = cz_device_cpu()});
}

static cz_status copy_extent(const tensor_extent *c, void *to)
{
    if (c->device != cz_device_cpu())
        return c->device->copy(NULL, to, c->data, c->bytes);
    cz__copy_past_caches(to, c->data, c->bytes); /* not read again before it goes to the medium */
    return CZ_OK;
}

/* Copy all elements to *to, which is brought to its end; from then on they come from there. */
static cz_status copy_tensors(tensors *t, char **to)
{
    for (int64_t i = 0; i < t->count; i++) {
        tensor_extent *c = &t->extents[i];
        if (c->bytes > 0)
            CZ_TRY(copy_extent(c, *to));
        c->data = *to;
        c->device = cz_device_cpu();
        *to += c->bytes;
    }
    return CZ_OK;
}

/* ---- writing tensors ---- */

/* Elements on another device come through a block of the host's memory. */
static cz_status append_from_device(cz__writer *writer, const tensor_extent *c)
{
    char block[16384];
    for (size_t done = 0, part; done < c->bytes; done += part) {
        part = c->bytes - done < sizeof block ? c->bytes - done : sizeof block;
        CZ_TRY(c->device->copy(NULL, block, (const char *)c->data + done, part));
        CZ_TRY(cz__writer_append(writer, block, part));
    }
    return CZ_OK;
}

/* And those in other files through a larger one. */
static cz_status append_from_input(cz__writer *writer, const tensor_extent *c,
                                   const cz__source *source, char *block)
{
    const int64_t size = (int64_t)c->bytes / (c->end - c->begin);
    for (int64_t at = c->begin, until; at < c->end; at = until) {
        until = c->end - at < BLOCK / size ? c->end : at + BLOCK / size;
        CZ_TRY(cz__input_read(source->input, c->stored, c->slot, at, until, block));
        CZ_TRY(cz__writer_append(writer, block, (size_t)(until - at) * (size_t)size));
        if (source->wrote)
            CZ_TRY(source->wrote((size_t)(until - at) * (size_t)size, source->context));
    }
    return CZ_OK;
}

static cz_status append_extent(cz__writer *writer, const tensor_extent *c, const cz__source *source,
                               char *block)
{
    if (!c->device)
        return c->bytes > 0 ? append_from_input(writer, c, source, block) : CZ_OK;
    return c->device == cz_device_cpu() ? cz__writer_append(writer, c->data, c->bytes)
                                        : append_from_device(writer, c);
}

static cz_status write_extents(const tensors *t, cz__writer *writer, const cz__source *source,
                               char *block, json_t *sums)
{
    char digits[33];
    for (int64_t i = 0; i < t->count; i++) {
        CZ_TRY(append_extent(writer, &t->extents[i], source, block));
        cz__checksum_print(cz__writer_checksum(writer), digits);
        if (sums && json_array_append_new(sums, json_string(digits)) != 0)
            return cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a list of checksums");
    }
    return CZ_OK;
}

/* `block`: for what is in other files. */
static cz_status write_through(const tensors *t, int folder, const char *path,
                               const cz__source *source, char *block, json_t *sums)
{
    cz__writer *writer;
    CZ_TRY(cz__writer_create_in(&writer, folder, path, t->head_bytes + t->bytes));
    cz_status status = cz__writer_append(writer, t->head, t->head_bytes);
    (void)cz__writer_checksum(writer);
    if (status)
        goto done;
    status = write_extents(t, writer, source, block, sums);
    if (status)
        goto done;
    status = cz__writer_finish(&writer);
done:
    cz__writer_destroy(&writer);
    return status;
}

/* Write a file in the folder that is open; `path` is its path, for sentences. `source` NULL: all is
 * at addresses. `sums`: NULL, or an array that gets a checksum for each tensor. CZ_ERR_IO,
 * CZ_ERR_FORMAT (of the input), CZ_ERR_MEMORY. */
static cz_status write_tensors(const tensors *t, int folder, const char *path,
                               const cz__source *source, json_t *sums)
{
    const bool reads = source && source->input;
    char *block = reads ? cz__allocate(CZ_MEMORY_STAGING, BLOCK) : NULL;
    if (reads && !block)
        return cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a block of %d bytes", BLOCK);
    const cz_status status = write_through(t, folder, path, source, block, sums);
    cz__free(block);
    return status;
}

/* ---- the package ---- */

struct cz__package {
    char *folder, *path;   /* owned: the checkpoint's, the generation's */
    int folder_file, file; /* and both open, so that they stay what they are; -1: not yet */
    int rank, world_size;
    int64_t generation, step;
    char id[33];
    bool leads;
    bool made_folder;
    bool wrote_part; /* or began to */
    int lock;        /* the leader's, -1: none */
    tensors part, common;
    cz__source source; /* of the part's elements */
    json_t *own;       /* the rank's dictionary */
    cz__text index;    /* the leader's */
    pthread_t thread;
    bool runs, goes;  /* there is a thread; it may write */
    sem_t gate;       /* it waits here until then, or until the end */
    cz_status status; /* of the thread, and its sentence */
    char *sentence;   /* owned; NULL: out of memory */
    pid_t process;    /* that made it: cz__process() */
    void *forsaken;
};

/* ---- preparing ---- */

static cz_status begin_tensors(tensors *t, const cz__package *package)
{
    char number[24];
    CZ_TRY(cz__safetensors_create(&t->header));
    CZ_TRY(cz__safetensors_set_metadata(t->header, "format", "czero checkpoint part"));
    CZ_TRY(cz__safetensors_set_metadata(t->header, "id", package->id));
    snprintf(number, sizeof number, "%lld", (long long)package->step);
    return cz__safetensors_set_metadata(t->header, "step", number);
}

static cz_status add_piece(const cz__piece *piece, void *context)
{
    cz__package *o = context;
    const cz_checkpoint *checkpoint = o->source.checkpoint;
    tensor_extent next = {.bytes =
                              (size_t)(piece->end - piece->begin) * cz__type_unit(piece->dtype),
                          .stored = piece->stored,
                          .begin = piece->begin,
                          .end = piece->end,
                          .slot = piece->slot};
    CZ_TRY(cz__safetensors_add(o->part.header, piece->name, piece->dtype, piece->dimensions,
                               piece->shape));
    if (checkpoint) {
        next.data = cz__contents_address(checkpoint, piece->stored, piece->slot, piece->begin);
        next.device = cz__contents_device(checkpoint, piece->stored);
    }
    return append(&o->part, next);
}

static cz_status prepare_part(cz__package *o, const cz__index *index, const cz_state_dict *own)
{
    CZ_TRY(begin_tensors(&o->part, o));
    CZ_TRY(cz__index_visit(index, o->rank, add_piece, o));
    CZ_TRY(cz__dict_to_json(&o->own, own, "own/", add_tensor, &o->part));
    return cz__safetensors_dump(o->part.header, &o->part.head, &o->part.head_bytes);
}

/* Their checksums are in the index, so they are taken before it is written. */
static cz_status describe_common(tensors *t, json_t **out)
{
    char digits[33];
    json_t *list = json_array();
    cz__checksum_print(cz__checksum_of(t->head, t->head_bytes), digits);
    *out = json_pack("{s:I, s:s, s:o}", "bytes", (json_int_t)t->head_bytes + (json_int_t)t->bytes,
                     "header", digits, "tensors", list);
    for (int64_t i = 0; *out && i < t->count; i++) {
        cz__checksum_print(cz__checksum_of(t->extents[i].data, t->extents[i].bytes), digits);
        if (json_array_append_new(list, json_string(digits)) != 0) {
            json_decref(*out);
            *out = NULL;
        }
    }
    return *out ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a list of checksums");
}

/* `common` of the index: the dictionary, and the file of its tensors, null if it has none. */
static cz_status prepare_index(cz__package *o, const cz__index *index, const cz_state_dict *common)
{
    json_t *dictionary = NULL, *file = NULL;
    CZ_TRY(begin_tensors(&o->common, o));
    CZ_TRY(cz__dict_to_json(&dictionary, common, "common/", add_tensor, &o->common));
    cz_status status =
        cz__safetensors_dump(o->common.header, &o->common.head, &o->common.head_bytes);
    if (!status && o->common.count > 0)
        status = describe_common(&o->common, &file);
    json_t *both =
        status == CZ_OK ? json_pack("{s:O, s:o?}", "dictionary", dictionary, "file", file) : NULL;
    if (status)
        goto done;
    if (!both)
        status = cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for an index in JSON");
    if (status)
        goto done;
    status = cz__index_print(index, both, &o->index);
done:
    json_decref(both);
    json_decref(dictionary);
    return status;
}

/* In `folder`, under the last part of the path. */
static cz_status make_folder(int folder, const char *name, const char *path, bool *made)
{
    *made = mkdirat(folder, name, 0777) == 0;
    return *made || errno == EEXIST ? CZ_OK : cz__refuse_path(path, "cannot be made", errno);
}

static cz_status open_folder(int *file, int folder, const char *name, const char *path, int flags)
{
    struct stat about;
    *file = cz__open_at(folder, name, O_RDONLY | O_DIRECTORY | flags);
    if (*file >= 0)
        return CZ_OK;
    const int error = errno;
    if (error != ENOTDIR && error != ELOOP)
        return cz__fail(CZ_ERR_IO, "%s cannot be opened: %s", path, strerror(error));
    const bool link =
        fstatat(folder, name, &about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(about.st_mode);
    return cz__fail(CZ_ERR_IO, "%s: %s is there, and no folder", path, link ? "a link" : "a file");
}

/* The way to the checkpoint's folder is the caller's; a generation is a folder in it, and no link
 * to one. */
static cz_status make_folders(cz__package *o)
{
    struct stat about;
    CZ_TRY(make_folder(AT_FDCWD, o->folder, o->folder, &o->made_folder));
    CZ_TRY(open_folder(&o->folder_file, AT_FDCWD, o->folder, o->folder, 0));
    const char *name = cz__path_name(o->path);
    CZ_TRY(make_folder(o->folder_file, name, o->path, &o->leads));
    CZ_TRY(open_folder(&o->file, o->folder_file, name, o->path, O_NOFOLLOW));
    if (!o->leads)
        return CZ_OK;
    if (fstat(o->file, &about) != 0)
        return cz__fail(CZ_ERR_IO, "%s cannot be seen: %s", o->path, strerror(errno));
    return cz__folder_lock(&o->lock, o->folder_file, o->folder, &about);
}

static cz_status fill_package(cz__package *o, const cz__package_order *order)
{
    const cz__index *index = order->index;
    cz__text path = {0};
    if (cz__generation_path(&path, order->folder, index->generation, index->step) == CZ_OK)
        o->path = cz__strdup(cz__text_get(&path));
    cz__text_clear(&path);
    o->folder = cz__strdup(order->folder);
    if (!o->path || !o->folder)
        return cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a path");
    o->rank = order->rank;
    o->world_size = index->world_size;
    o->generation = index->generation;
    o->step = index->step;
    o->source = order->source;
    memcpy(o->id, index->id, sizeof o->id);
    CZ_TRY(prepare_part(o, index, order->own));
    CZ_TRY(make_folders(o));
    return o->leads ? prepare_index(o, index, order->common) : CZ_OK;
}

cz_status cz__package_create(cz__package **out, const cz__package_order *order)
{
    *out = cz__calloc(1, sizeof **out);
    if (!*out)
        return cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory to write");
    (*out)->process = cz__process();
    (*out)->lock = (*out)->folder_file = (*out)->file = -1;
    return fill_package(*out, order);
}

bool cz__package_leads(const cz__package *package)
{
    return package && package->leads;
}

const char *cz__package_path(const cz__package *package)
{
    return package->path;
}

cz__generation cz__package_generation(const cz__package *package)
{
    return (cz__generation){
        .number = package->generation, .step = package->step, .world_size = package->world_size};
}

const char *cz__package_id(const cz__package *package)
{
    return package->id;
}

/* ---- the snapshot ---- */

size_t cz__package_bytes(const cz__package *package)
{
    return package->part.bytes + package->common.bytes;
}

cz_status cz__package_copy(cz__package *package, void *memory)
{
    char *to = memory;
    CZ_TRY(copy_tensors(&package->part, &to));
    return copy_tensors(&package->common, &to);
}

/* ---- writing the package ---- */

static cz_status write_mark(const cz__package *o, const char *path, json_t *sums)
{
    char digits[33];
    cz__text text = {0};
    cz__checksum_print(cz__checksum_of(o->part.head, o->part.head_bytes), digits);
    json_t *mark = json_pack("{s:s, s:i, s:s, s:I, s:I, s:i, s:i, s:I, s:s, s:O, s:O}", "format",
                             "czero checkpoint part", "version", CZ__FIRST_VERSION, "id", o->id,
                             "generation", (json_int_t)o->generation, "step", (json_int_t)o->step,
                             "rank", o->rank, "world_size", o->world_size, "bytes",
                             (json_int_t)o->part.head_bytes + (json_int_t)o->part.bytes, "header",
                             digits, "tensors", sums, "own", o->own);
    cz_status status =
        mark ? cz__seal(mark, &text) : cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a mark");
    json_decref(mark);
    if (!status)
        status = cz__file_write_in(o->file, path, cz__text_get(&text), text.count);
    cz__text_clear(&text);
    return status;
}

static cz_status write_part(cz__package *o, cz__text *path)
{
    json_t *sums = json_array();
    cz_status status = cz__part_path(path, o->path, o->rank, o->world_size, "safetensors");
    if (!status && !sums)
        status = cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a list of checksums");
    o->wrote_part = true;
    if (status)
        goto done;
    status = write_tensors(&o->part, o->file, cz__text_get(path), &o->source, sums);
    if (status)
        goto done;
    status = cz__part_path(path, o->path, o->rank, o->world_size, "json");
    if (status)
        goto done;
    status = write_mark(o, cz__text_get(path), sums);
done:
    json_decref(sums);
    return status;
}

/* The folders' own names. */
static cz_status sync_folders(const cz__package *o)
{
    if (o->made_folder)
        CZ_TRY(cz__folder_sync_of(o->folder));
    return cz__folder_sync_open(o->folder_file, o->folder);
}

static cz_status write_index(const cz__package *o, cz__text *path)
{
    CZ_TRY(sync_folders(o));
    CZ_TRY(cz__common_path(path, o->path));
    if (o->common.count > 0)
        CZ_TRY(write_tensors(&o->common, o->file, cz__text_get(path), NULL, NULL));
    CZ_TRY(cz__index_path(path, o->path));
    return cz__file_write_in(o->file, cz__text_get(path), cz__text_get(&o->index), o->index.count);
}

cz_status cz__package_write(cz__package *package)
{
    cz__text path = {0};
    cz_status status = write_part(package, &path);
    if (!status && package->leads)
        status = write_index(package, &path);
    cz__text_clear(&path);
    return status;
}

static void *write_later(void *context)
{
    cz__package *package = context;
    while (sem_wait(&package->gate) != 0) /* a signal came */
        ;
    if (!package->goes)
        return NULL;
    package->status = cz__package_write(package);
    if (package->status != CZ_OK)
        package->sentence = cz__strdup(cz_last_error());
    return NULL;
}

cz_status cz__package_start(cz__package *package)
{
    (void)sem_init(&package->gate, 0, 0); /* cannot fail: not shared, not too large */
    if (!cz__thread_allowed())            /* it is written when it is told to go */
        return CZ_OK;
    const int error = cz__thread_create(&package->thread, NULL, write_later, package);
    package->runs = error == 0;
    return package->runs
               ? CZ_OK
               : cz__fail(CZ_ERR_MEMORY,
                          "checkpoint: no thread to write it (too little memory, or too many "
                          "threads): %s",
                          strerror(error));
}

void cz__package_go(cz__package *package)
{
    package->goes = true;
    (void)sem_post(&package->gate);
    if (!package->runs)
        (void)write_later(package);
}

static void join(cz__package *package)
{
    if (package->runs) {
        if (!package->goes)
            (void)sem_post(&package->gate);
        pthread_join(package->thread, NULL);
        (void)sem_destroy(&package->gate);
    }
    package->runs = false;
}

cz_status cz__package_end(cz__package *package)
{
    join(package);
    if (package->status == CZ_OK)
        return CZ_OK;
    return cz__fail(package->status, "%s",
                    package->sentence ? package->sentence : "checkpoint: out of memory");
}

/* ---- the end ---- */

void cz__package_discard(cz__package *package)
{
    static const char *const suffixes[] = {"json", "safetensors", "json.tmp"};
    cz__text path = {0};
    if (!package || package->file < 0)
        return;
    if (package->wrote_part) {
        for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
            if (cz__part_path(&path, package->path, package->rank, package->world_size,
                              suffixes[i]) == CZ_OK)
                (void)unlinkat(package->file, cz__path_name(cz__text_get(&path)), 0);
        }
    }
    cz__text_clear(&path);
}

cz_status cz__package_remove(const cz__package *package)
{
    return cz__generation_remove_in(package->folder_file, package->folder, package->generation,
                                    package->step);
}

void cz__package_destroy(cz__package **package)
{
    if (!package || !*package)
        return;
    if ((*package)->process != cz__process()) { /* its files, lock and thread are the parent's */
        cz__process_forsake(*package, &(*package)->forsaken);
        *package = NULL;
        return;
    }
    join(*package);
    cz__folder_unlock((*package)->lock, (*package)->folder_file);
    if ((*package)->file >= 0)
        close((*package)->file);
    if ((*package)->folder_file >= 0)
        close((*package)->folder_file);
    clear_tensors(&(*package)->part);
    clear_tensors(&(*package)->common);
    json_decref((*package)->own);
    cz__text_clear(&(*package)->index);
    cz__free((*package)->folder);
    cz__free((*package)->path);
    cz__free((*package)->sentence);
    cz__free(*package);
    *package = NULL;
}
