/* SPDX-License-Identifier: MIT */
/* Folders of torch.distributed.checkpoint that are written: the dictionary that a file for torch
 * has, flattened as torch does it, each value as a file of torch.save() by itself, one behind the
 * other, and metadata that say where each is. */
#include "interop/dcp_write.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/open.h"
#include "base/status.h"
#include "interop/dcp.h"
#include "io/stream.h"
#include "io/types.h"

enum { EDITIONS = 1000 };

bool cz__dcp_is_name(const char *path)
{
    return cz__ends_with(path, ".dcp");
}

/* ---- names of Python's ---- */
/* All stand at the beginning of the metadata, and then are called by their places in the memo. */

#define CHECKPOINT "torch.distributed.checkpoint."

enum {
    METADATA,
    TENSOR,
    PROPERTIES,
    CHUNK,
    BYTES,
    INDEX,
    STORAGE,
    FORMAT,
    LAYOUT,
    SIZE,
    TYPES /* and from here on those of elements */
};

static const struct {
    const char *module, *name;
} classes[] = {
    [METADATA] = {CHECKPOINT "metadata", "Metadata"},
    [TENSOR] = {CHECKPOINT "metadata", "TensorStorageMetadata"},
    [PROPERTIES] = {CHECKPOINT "metadata", "TensorProperties"},
    [CHUNK] = {CHECKPOINT "metadata", "ChunkStorageMetadata"},
    [BYTES] = {CHECKPOINT "metadata", "BytesStorageMetadata"},
    [INDEX] = {CHECKPOINT "metadata", "MetadataIndex"},
    [STORAGE] = {CHECKPOINT "filesystem", "_StorageInfo"},
    [FORMAT] = {CHECKPOINT "metadata", "_MEM_FORMAT_ENCODING"},
    [LAYOUT] = {"torch.serialization", "_get_layout"},
    [SIZE] = {"torch", "Size"},
};

static const struct {
    int dtype;
    const char *name;
} types[] = {
    {CZ_F32, "float32"},     {CZ_F64, "float64"},         {CZ_F16, "float16"},
    {CZ_BF16, "bfloat16"},   {CZ_I32, "int32"},           {CZ_I64, "int64"},
    {CZ_U8, "uint8"},        {CZ__TYPE_BOOL, "bool"},     {CZ__TYPE_I8, "int8"},
    {CZ__TYPE_I16, "int16"}, {CZ__TYPE_C64, "complex64"}, {CZ__TYPE_C128, "complex128"},
};

enum { TYPE_COUNT = sizeof types / sizeof *types };

static void put_classes(cz__pickling *p)
{
    for (int i = 0; i < TYPES; i++) {
        cz__pickle_put_global(p, classes[i].module, classes[i].name);
        cz__pickle_op(p, CZ__PICKLE_OP_POP);
    }
    for (int i = 0; i < TYPE_COUNT; i++) {
        cz__pickle_put_global(p, "torch", types[i].name);
        cz__pickle_op(p, CZ__PICKLE_OP_POP);
    }
}

static void put_class(cz__pickling *p, int number)
{
    cz__pickle_op(p, CZ__PICKLE_OP_GET);
    cz__pickle_op(p, (char)number);
}

/* An object, whose attributes follow until the end. */
static void begin_object(cz__pickling *p, int number)
{
    put_class(p, number);
    cz__pickle_op(p, CZ__PICKLE_OP_EMPTY_TUPLE);
    cz__pickle_op(p, CZ__PICKLE_OP_NEW);
    cz__pickle_begin_dict(p);
}

static void end_object(cz__pickling *p)
{
    cz__pickle_end_dict(p);
    cz__pickle_op(p, CZ__PICKLE_OP_BUILD);
}

/* torch.Size((…)); `numbers` NULL: zeros. */
static void put_size(cz__pickling *p, const char *key, const int64_t *numbers, int count)
{
    cz__pickle_put_text(p, key);
    put_class(p, SIZE);
    cz__pickle_op(p, CZ__PICKLE_OP_MARK);
    cz__pickle_op(p, CZ__PICKLE_OP_MARK);
    for (int i = 0; i < count; i++)
        cz__pickle_put_integer(p, numbers ? numbers[i] : 0);
    cz__pickle_op(p, CZ__PICKLE_OP_TUPLE);
    cz__pickle_op(p, CZ__PICKLE_OP_TUPLE);
    cz__pickle_op(p, CZ__PICKLE_OP_REDUCE);
}

/* ---- values ---- */

typedef struct key {
    const char *text; /* NULL: a place in a list */
    int64_t place;
} key;

/* A tensor of the dictionary; as a value of its own it has all of its elements in one chunk. */
typedef struct form {
    int type; /* of the table */
    int dimensions;
    int64_t shape[CZ_MAX_DIMENSIONS];
} form;

typedef struct folder {
    const char *path;
    const cz__torch_export *what;
    cz__torch_writing all; /* what a file for torch would have */
    cz__pickle *tree;      /* owned: that, read again; as the next */
    cz__container_row *row;
    cz__text name; /* of the value that is written */
    char *data;    /* owned: the path of the file of elements */
    /* Items of three dictionaries of the metadata. */
    cz__pickling values, paths, places;
    key keys[CZ_STATE_MAX_DEPTH];
    bool made;
} folder;

static const cz__torch_payload *payload_of(const folder *f, const cz__pickle_value *call,
                                           form *shape)
{
    const cz__pickle *p = f->tree;
    const cz__pickle_value *arguments = cz__pickle_item(p, call, 1);
    const cz__pickle_value *storage = cz__pickle_item(p, arguments, 0);
    const cz__pickle_value *size = cz__pickle_item(p, arguments, 2);
    const char *number = cz__pickle_item(p, cz__pickle_item(p, storage, 0), 2)->text;
    const cz__torch_payload *payload = &f->all.payloads[strtoll(number, NULL, 10)];
    *shape = (form){.dimensions = (int)size->count};
    for (int i = 0; i < TYPE_COUNT; i++)
        shape->type = types[i].dtype == (int)payload->dtype ? i : shape->type;
    for (int64_t d = 0; d < size->count; d++)
        shape->shape[d] = cz__pickle_item(p, size, d)->integer;
    return payload;
}

/* A file of its own that is being written. */
typedef struct own_file {
    folder *f;
    cz__torch_writing w;
} own_file;

static cz_status put_tensor(cz__pickling *to, const cz__pickle_value *value, void *context)
{
    form shape;
    own_file *o = context;
    cz__torch_payload *copy;
    if (value->kind != CZ__PICKLE_CALL)
        return cz__fail(CZ_ERR_INTERNAL, "checkpoint export: a value of the common dictionary");
    const cz__torch_payload *from = payload_of(o->f, value, &shape);
    CZ_TRY(cz__torch_put_tensor(&o->w, cz__text_get(&o->f->name), from->dtype, shape.dimensions,
                                shape.shape, &copy));
    copy->memory = from->memory;
    copy->f32 = from->f32;
    copy->f64 = from->f64;
    copy->tensor = from->tensor ? cz__strdup(from->tensor) : NULL;
    return from->tensor && !copy->tensor ? cz__torch_no_memory() : CZ_OK;
}

static cz_status write_value(folder *f, const cz__pickle_value *value, uint64_t *begin,
                             uint64_t *bytes)
{
    own_file o = {f, {.what = f->what}};
    cz__container_item *items = NULL;
    int64_t count;
    cz__pickle_begin(&o.w.p);
    cz_status status = cz__pickle_copy(&o.w.p, f->tree, value, SIZE_MAX, put_tensor, &o);
    cz__pickle_end(&o.w.p);
    if (!status && o.w.p.out.failed)
        status = cz__torch_no_memory();
    if (!status)
        status = cz__torch_list_items(&o.w, &items, &count);
    if (!status)
        status = cz__container_row_add(f->row, items, count, begin, bytes);
    cz__free(items);
    cz__torch_writing_clear(&o.w);
    return status;
}

/* ---- what the metadata say of a value ---- */

static void put_form(cz__pickling *p, const form *t)
{
    begin_object(p, TENSOR);
    cz__pickle_put_text(p, "properties");
    put_class(p, PROPERTIES);
    cz__pickle_op(p, CZ__PICKLE_OP_EMPTY_TUPLE);
    cz__pickle_op(p, CZ__PICKLE_OP_NEW);
    cz__pickle_op(p, CZ__PICKLE_OP_MARK);
    put_class(p, TYPES + t->type);
    put_class(p, LAYOUT);
    cz__pickle_op(p, CZ__PICKLE_OP_MARK);
    cz__pickle_put_text(p, "torch.strided");
    cz__pickle_op(p, CZ__PICKLE_OP_TUPLE);
    cz__pickle_op(p, CZ__PICKLE_OP_REDUCE);
    cz__pickle_put_bool(p, false); /* requires_grad */
    put_class(p, FORMAT);
    cz__pickle_op(p, CZ__PICKLE_OP_MARK);
    cz__pickle_put_integer(p, 0); /* contiguous */
    cz__pickle_op(p, CZ__PICKLE_OP_TUPLE);
    cz__pickle_op(p, CZ__PICKLE_OP_REDUCE);
    cz__pickle_put_bool(p, false); /* pin_memory */
    cz__pickle_op(p, CZ__PICKLE_OP_TUPLE);
    cz__pickle_op(p, CZ__PICKLE_OP_BUILD);
    put_size(p, "size", t->shape, t->dimensions);
    cz__pickle_put_text(p, "chunks");
    cz__pickle_begin_list(p);
    begin_object(p, CHUNK);
    put_size(p, "offsets", NULL, t->dimensions);
    put_size(p, "sizes", t->shape, t->dimensions);
    end_object(p);
    cz__pickle_end_list(p);
    end_object(p);
}

static void put_path(folder *f, int depth)
{
    cz__pickle_put_text(&f->paths, cz__text_get(&f->name));
    cz__pickle_op(&f->paths, CZ__PICKLE_OP_MARK);
    for (int i = 0; i < depth; i++)
        if (f->keys[i].text)
            cz__pickle_put_text(&f->paths, f->keys[i].text);
        else
            cz__pickle_put_integer(&f->paths, f->keys[i].place);
    cz__pickle_op(&f->paths, CZ__PICKLE_OP_TUPLE);
}

static void put_place(folder *f, const form *t, uint64_t begin, uint64_t bytes)
{
    cz__pickling *p = &f->places;
    begin_object(p, INDEX);
    cz__pickle_put_text(p, "fqn");
    cz__pickle_put_text(p, cz__text_get(&f->name));
    if (t) {
        put_size(p, "offset", NULL, t->dimensions);
        cz__pickle_put_text(p, "index");
        cz__pickle_put_integer(p, 0);
    } else {
        cz__pickle_put_text(p, "index");
        cz__pickle_put_none(p);
    }
    end_object(p);
    begin_object(p, STORAGE);
    cz__pickle_put_text(p, "relative_path");
    cz__pickle_put_text(p, strrchr(f->data, '/') + 1);
    cz__pickle_put_text(p, "offset");
    cz__pickle_put_integer(p, (int64_t)begin);
    cz__pickle_put_text(p, "length");
    cz__pickle_put_integer(p, (int64_t)bytes);
    end_object(p);
}

/* ---- flattening ---- */

static cz_status name_value(folder *f, int depth)
{
    cz__text_cut(&f->name, 0);
    for (int i = 0; i < depth; i++)
        if (f->keys[i].text)
            cz__text_print(&f->name, "%s%s", i ? "." : "", f->keys[i].text);
        else
            cz__text_print(&f->name, "%s%" PRId64, i ? "." : "", f->keys[i].place);
    return f->name.failed ? cz__torch_no_memory() : CZ_OK;
}

static cz_status add_value(folder *f, const cz__pickle_value *value, int depth)
{
    form shape;
    uint64_t begin, bytes;
    const bool tensor = value->kind == CZ__PICKLE_CALL;
    CZ_TRY(name_value(f, depth));
    CZ_TRY(write_value(f, value, &begin, &bytes));
    if (tensor)
        (void)payload_of(f, value, &shape);
    cz__pickle_put_text(&f->values, cz__text_get(&f->name));
    if (tensor)
        put_form(&f->values, &shape);
    else {
        begin_object(&f->values, BYTES);
        end_object(&f->values);
    }
    put_path(f, depth);
    put_place(f, tensor ? &shape : NULL, begin, bytes);
    return CZ_OK;
}

/* Lists of dictionaries and dictionaries are gone into, as torch does it; what is czero's own is
 * one value. */
static cz_status add_all(folder *f, const cz__pickle_value *value, int depth)
{
    const cz__pickle *p = f->tree;
    const bool own = depth == 1 && strcmp(f->keys[0].text, CZ__TORCH_KEY) == 0;
    const bool list = value->kind == CZ__PICKLE_LIST && value->count > 0 &&
                      cz__pickle_item(p, value, 0)->kind == CZ__PICKLE_DICT;
    if ((value->kind != CZ__PICKLE_DICT && !list) || own || depth == CZ_STATE_MAX_DEPTH)
        return add_value(f, value, depth);
    const int step = list ? 1 : 2;
    for (int64_t i = 0; i < value->count; i += step) {
        f->keys[depth] = (key){list ? NULL : cz__pickle_item(p, value, i)->text, i};
        CZ_TRY(add_all(f, cz__pickle_item(p, value, i + step - 1), depth + 1));
    }
    return CZ_OK;
}

static void put_dict(cz__pickling *p, const char *name, const cz__pickling *items)
{
    cz__pickle_put_text(p, name);
    cz__pickle_begin_dict(p);
    (void)cz__text_append(&p->out, cz__text_get(&items->out), items->out.count);
    cz__pickle_end_dict(p);
}

/* With which the folder is what it is. */
static cz_status write_metadata(const folder *f)
{
    cz__text path = {0};
    cz__pickling p = {.names = {NULL}};
    cz__pickle_begin(&p);
    put_classes(&p);
    begin_object(&p, METADATA);
    put_dict(&p, "state_dict_metadata", &f->values);
    put_dict(&p, "planner_data", &f->paths);
    put_dict(&p, "storage_data", &f->places);
    end_object(&p);
    cz__pickle_end(&p);
    cz_status status = CZ_OK;
    if (f->values.out.failed || f->paths.out.failed || f->places.out.failed || p.out.failed ||
        !cz__text_print(&path, "%s/" CZ__DISTRIBUTED_INDEX, f->path))
        status = cz__torch_no_memory();
    else
        status = cz__file_write(cz__text_get(&path), p.out.bytes, p.out.count);
    cz__text_clear(&path);
    cz__text_clear(&p.out);
    return status;
}

/* ---- the folder ---- */

static bool is_data_name(const char *name)
{
    char again[64];
    int rank, number;
    return sscanf(name, "__%9d_%9d", &rank, &number) == 2 &&
           snprintf(again, sizeof again, "__%d_%d.distcp", rank, number) < (int)sizeof again &&
           strcmp(name, again) == 0;
}

static cz_status make_folder(folder *f)
{
    cz__look look;
    f->made = mkdir(f->path, 0777) == 0;
    const int error = errno;
    CZ_TRY(cz__look_at(&look, f->path));
    if (!look.folder)
        return cz__refuse_path(f->path, "is no folder, and cannot be made one", error);
    return look.generation || look.several || look.single
               ? cz__fail(CZ_ERR_ARGUMENT,
                          "%s: it has another checkpoint or model in it, which would not be read "
                          "any more",
                          f->path)
               : CZ_OK;
}

/* A file beside those that are there. */
static cz_status name_data(folder *f)
{
    struct stat about;
    cz__text path = {0};
    cz_status status = CZ_ERR_STATE;
    for (int edition = 0; edition < EDITIONS && status == CZ_ERR_STATE; edition++) {
        cz__text_cut(&path, 0);
        if (!cz__text_print(&path, "%s/__%d_0.distcp", f->path, edition))
            status = cz__torch_no_memory();
        else if (lstat(cz__text_get(&path), &about) != 0)
            status = errno == ENOENT ? CZ_OK
                                     : cz__fail(CZ_ERR_IO, "%s: cannot be seen: %s",
                                                cz__text_get(&path), strerror(errno));
    }
    if (status == CZ_ERR_STATE)
        status = cz__fail(CZ_ERR_IO, "%s: all names of files are taken, up to %s", f->path,
                          cz__text_get(&path));
    f->data = status ? NULL : cz__strdup(cz__text_get(&path));
    cz__text_clear(&path);
    return status || f->data ? status : cz__torch_no_memory();
}

static cz_status write_data(folder *f)
{
    cz__text beside = {0};
    cz_status status = cz__unfinished_name(&beside, f->data);
    const char *name = cz__text_get(&beside);
    if (!status) {
        (void)unlink(name); /* left behind */
        status = cz__container_row_create(&f->row, name);
    }
    if (!status)
        status = add_all(f, &f->tree->values[f->tree->root], 0);
    if (!status)
        status = cz__container_row_finish(&f->row);
    if (!status && rename(name, f->data) != 0) {
        status = cz__fail(CZ_ERR_IO, "%s: cannot be called %s: %s", name, f->data, strerror(errno));
        (void)unlink(name);
    }
    cz__text_clear(&beside);
    return status ? status : cz__folder_sync(f->path);
}

/* Files of the checkpoint that was replaced, by its metadata, and what was never completed. */
static void remove_file(const folder *f, const char *name)
{
    cz__text path = {0};
    if (cz__text_print(&path, "%s/%s", f->path, name) && unlink(cz__text_get(&path)) != 0 &&
        errno != ENOENT)
        cz__log(CZ_LOG_WARN, "%s: nothing needs it any more, and it cannot be removed: %s",
                cz__text_get(&path), strerror(errno));
    cz__text_clear(&path);
}

static void remove_replaced(const folder *f, const cz__dcp *old)
{
    char name[64];
    const struct dirent *entry;
    const char *mine = strrchr(f->data, '/') + 1;
    for (int i = 0; old && i < old->file_count; i++)
        if (is_data_name(old->files[i].name) && strcmp(old->files[i].name, mine) != 0)
            remove_file(f, old->files[i].name);
    DIR *list = cz__open_folder(f->path);
    while (list && (entry = readdir(list))) {
        const size_t length = strlen(entry->d_name);
        if (!cz__ends_with(entry->d_name, CZ__UNFINISHED) || length >= sizeof name)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(length - strlen(CZ__UNFINISHED)), entry->d_name);
        if (is_data_name(name))
            remove_file(f, entry->d_name);
    }
    if (list)
        closedir(list);
}

/* What is there now, if it can be read; its files stay otherwise. */
static cz_status read_old(const folder *f, cz__dcp **old)
{
    cz__look look;
    *old = NULL;
    CZ_TRY(cz__look_at(&look, f->path));
    const cz_status status = look.distributed ? cz__dcp_read_metadata(old, f->path) : CZ_OK;
    return status == CZ_ERR_MEMORY ? status : CZ_OK;
}

static cz_status replace(folder *f)
{
    cz__dcp *old = NULL;
    CZ_TRY(make_folder(f));
    CZ_TRY(read_old(f, &old));
    cz_status status = name_data(f);
    if (!status)
        status = write_data(f);
    if (!status)
        status = write_metadata(f);
    if (!status && f->made)
        status = cz__folder_sync_of(f->path);
    if (!status)
        remove_replaced(f, old);
    cz__dcp_close(&old);
    return status;
}

/* Nothing is left of what was begun. */
static void take_back(folder *f)
{
    const cz__sentence held = cz__sentence_hold();
    cz__container_row_destroy(&f->row);
    if (f->data)
        (void)unlink(f->data);
    if (f->made)
        (void)rmdir(f->path);
    cz__sentence_resume(held);
}

static cz_status read_tree(folder *f)
{
    f->all.what = f->what;
    f->all.named = true;
    CZ_TRY(cz__torch_put_all(&f->all));
    return cz__pickle_read(&f->tree, f->path, f->all.p.out.bytes, f->all.p.out.count);
}

cz_status cz__dcp_write(const char *path, const cz__torch_export *what)
{
    folder f = {.path = path, .what = what};
    cz_status status = read_tree(&f);
    if (!status) {
        status = replace(&f);
        if (status != CZ_OK)
            take_back(&f);
    }
    cz__pickle_destroy(&f.tree);
    cz__torch_writing_clear(&f.all);
    cz__text_clear(&f.name);
    cz__text_clear(&f.values.out);
    cz__text_clear(&f.paths.out);
    cz__text_clear(&f.places.out);
    cz__free(f.data);
    return status;
}
