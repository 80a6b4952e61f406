/* SPDX-License-Identifier: MIT */
/* A folder of torch.distributed.checkpoint made by hand, right or wrong: a tensor of [3, 4] in
 * three chunks, another one, and an object. */
#ifndef CZ_TEST_DCP_FILES_H
#define CZ_TEST_DCP_FILES_H

#include "io/container.h"
#include "io/pickle.h"

#include <string.h>

enum { DCP_PARTS = 5, DCP_OBJECT = 4 }; /* three chunks, the other tensor, the object */

/* A chunk or the object, and where it is. */
typedef struct dcp_part {
    const char *name;
    const char *key, *inner; /* in the dictionary, and in what it has there */
    const char *file;
    int64_t offsets[2], sizes[2], begin, bytes;
    int64_t place; /* -1: `inner` */
} dcp_part;

typedef struct dcp_folder {
    dcp_part parts[DCP_PARTS];
    int chunks; /* of the first tensor that are listed */
    const char *type, *class_name, *attack;
    bool transformed, twice;
} dcp_folder;

#define DCP_RIGHT                                                                                  \
    {                                                                                              \
        .parts = {{"model.w", "model", "w", "__0_0.distcp", {0, 0}, {2, 4}, 0, 0, -1},             \
                  {"model.w", "model", "w", "__0_0.distcp", {2, 0}, {1, 2}, 0, 0, -1},             \
                  {"model.w", "model", "w", "__0_0.distcp", {2, 2}, {1, 2}, 0, 0, -1},             \
                  {"model.v", "model", "v", "__0_0.distcp", {0, 0}, {2, 1}, 0, 0, -1},             \
                  {"epoch", "epoch", NULL, "__0_0.distcp", {0, 0}, {0, 0}, 0, 0, -1}},             \
        .chunks = 3, .type = "float32", .class_name = "TensorStorageMetadata"                      \
    }

static inline cz_status dcp_give(uint64_t offset, void *to, size_t count, void *context)
{
    memcpy(to, (const char *)context + offset, count);
    return CZ_OK;
}

static inline void dcp_numbers(cz__pickling *p, const int64_t *numbers, int count)
{
    cz__pickle_op(p, '(');
    for (int i = 0; i < count; i++)
        cz__pickle_put_integer(p, numbers[i]);
    cz__pickle_op(p, 't');
}

/* torch.save() of a tensor: element [i, j] of "w" is 4 i + j, of "v" 100 + i. */
static inline cz_status dcp_put_chunk(cz__container_row *row, dcp_part *part)
{
    static char names[][20] = {"archive/data.pkl", "archive/data/0"};
    float elements[16];
    uint64_t begin, bytes;
    cz__pickling p = {.names = {NULL}};
    const int64_t count = part->sizes[0] * part->sizes[1], strides[] = {part->sizes[1], 1};
    for (int64_t i = 0; i < part->sizes[0]; i++)
        for (int64_t k = 0; k < part->sizes[1]; k++)
            elements[i * part->sizes[1] + k] =
                part->name[6] == 'v' ? (float)(100 + i)
                                     : (float)(4 * (part->offsets[0] + i) + part->offsets[1] + k);
    cz__pickle_begin(&p);
    if (part->name[0] == 'e')
        cz__pickle_put_integer(&p, 7);
    else {
        cz__pickle_put_global(&p, "torch._utils", "_rebuild_tensor_v2");
        cz__pickle_op(&p, '(');
        cz__pickle_op(&p, '(');
        cz__pickle_put_text(&p, "storage");
        cz__pickle_put_global(&p, "torch", "FloatStorage");
        cz__pickle_put_text(&p, "0");
        cz__pickle_put_text(&p, "cpu");
        cz__pickle_put_integer(&p, count);
        cz__pickle_op(&p, 't');
        cz__pickle_op(&p, 'Q');
        cz__pickle_put_integer(&p, 0);
        dcp_numbers(&p, part->sizes, 2);
        dcp_numbers(&p, strides, 2);
        cz__pickle_put_bool(&p, false);
        cz__pickle_put_none(&p);
        cz__pickle_op(&p, 't');
        cz__pickle_op(&p, 'R');
    }
    cz__pickle_end(&p);
    const cz__container_item items[] = {
        {names[0], p.out.count, dcp_give, p.out.bytes},
        {names[1], (uint64_t)count * sizeof *elements, dcp_give, elements}};
    const cz_status status =
        cz__container_row_add(row, items, part->name[0] == 'e' ? 1 : 2, &begin, &bytes);
    part->begin = (int64_t)begin;
    part->bytes = (int64_t)bytes;
    cz__text_clear(&p.out);
    return status;
}

/* The file; where each part is then is what the metadata will say. */
static inline cz_status dcp_write_parts(dcp_folder *f, const char *path)
{
    char name[600];
    cz__container_row *row;
    snprintf(name, sizeof name, "%s/__0_0.distcp", path);
    CZ_TRY(cz__container_row_create(&row, name));
    for (int i = 0; i < DCP_PARTS; i++)
        CZ_TRY(dcp_put_chunk(row, &f->parts[i]));
    return cz__container_row_finish(&row);
}

#define DCP_MODULE "torch.distributed.checkpoint."

static inline void dcp_begin(cz__pickling *p, const char *module, const char *name)
{
    cz__pickle_put_global(p, module, name);
    cz__pickle_op(p, ')');
    cz__pickle_op(p, '\x81');
    cz__pickle_begin_dict(p);
}

static inline void dcp_end(cz__pickling *p)
{
    cz__pickle_end_dict(p);
    cz__pickle_op(p, 'b');
}

static inline void dcp_size(cz__pickling *p, const char *key, const int64_t *numbers)
{
    cz__pickle_put_text(p, key);
    cz__pickle_put_global(p, "torch", "Size");
    cz__pickle_op(p, '(');
    dcp_numbers(p, numbers, 2);
    cz__pickle_op(p, 't');
    cz__pickle_op(p, 'R');
}

static inline void dcp_put_tensor(cz__pickling *p, const dcp_folder *f, const dcp_part *parts,
                                  int count, const int64_t *size)
{
    cz__pickle_put_text(p, parts->name);
    dcp_begin(p, DCP_MODULE "metadata", f->class_name);
    cz__pickle_put_text(p, "properties");
    cz__pickle_put_global(p, DCP_MODULE "metadata", "TensorProperties");
    cz__pickle_op(p, ')');
    cz__pickle_op(p, '\x81');
    cz__pickle_op(p, '(');
    cz__pickle_put_global(p, "torch", f->type);
    cz__pickle_put_bool(p, false);
    cz__pickle_op(p, 't');
    cz__pickle_op(p, 'b');
    dcp_size(p, "size", size);
    cz__pickle_put_text(p, "chunks");
    cz__pickle_begin_list(p);
    for (int i = 0; i < count; i++) {
        dcp_begin(p, DCP_MODULE "metadata", "ChunkStorageMetadata");
        dcp_size(p, "offsets", parts[i].offsets);
        dcp_size(p, "sizes", parts[i].sizes);
        dcp_end(p);
    }
    cz__pickle_end_list(p);
    dcp_end(p);
}

static inline void dcp_put_place(cz__pickling *p, const dcp_folder *f, const dcp_part *part)
{
    dcp_begin(p, DCP_MODULE "metadata", "MetadataIndex");
    cz__pickle_put_text(p, "fqn");
    cz__pickle_put_text(p, part->name);
    if (part->name[0] != 'e')
        dcp_size(p, "offset", part->offsets);
    dcp_end(p);
    dcp_begin(p, DCP_MODULE "filesystem", "_StorageInfo");
    cz__pickle_put_text(p, "relative_path");
    cz__pickle_put_text(p, part->file);
    cz__pickle_put_text(p, "offset");
    cz__pickle_put_integer(p, part->begin);
    cz__pickle_put_text(p, "length");
    cz__pickle_put_integer(p, part->bytes);
    if (f->transformed) {
        cz__pickle_put_text(p, "transform_descriptors");
        cz__pickle_begin_list(p);
        cz__pickle_put_text(p, "zstd");
        cz__pickle_end_list(p);
    }
    dcp_end(p);
}

/* The bytes of the metadata, appended to a text. */
static inline void dcp_put_metadata(cz__pickling *p, const dcp_folder *f)
{
    static const int64_t sizes[][2] = {{3, 4}, {2, 1}};
    cz__pickle_begin(p);
    dcp_begin(p, DCP_MODULE "metadata", "Metadata");
    cz__pickle_put_text(p, "state_dict_metadata");
    cz__pickle_begin_dict(p);
    dcp_put_tensor(p, f, f->parts, f->chunks, sizes[0]);
    dcp_put_tensor(p, f, f->parts + 3, 1, sizes[1]);
    cz__pickle_put_text(p, f->parts[DCP_OBJECT].name);
    dcp_begin(p, DCP_MODULE "metadata", "BytesStorageMetadata");
    dcp_end(p);
    cz__pickle_end_dict(p);
    cz__pickle_put_text(p, "planner_data");
    cz__pickle_begin_dict(p);
    for (int i = 2; i < DCP_PARTS; i++) {
        cz__pickle_put_text(p, f->parts[i].name);
        cz__pickle_op(p, '(');
        cz__pickle_put_text(p, f->parts[i].key);
        if (f->parts[i].place >= 0)
            cz__pickle_put_integer(p, f->parts[i].place);
        else if (f->parts[i].inner)
            cz__pickle_put_text(p, f->parts[i].inner);
        cz__pickle_op(p, 't');
    }
    cz__pickle_end_dict(p);
    cz__pickle_put_text(p, "storage_data");
    cz__pickle_begin_dict(p);
    for (int i = 0; i < DCP_PARTS; i++)
        dcp_put_place(p, f, &f->parts[i]);
    if (f->twice)
        dcp_put_place(p, f, &f->parts[1]);
    cz__pickle_end_dict(p);
    if (f->attack) {
        cz__pickle_put_text(p, "version");
        cz__pickle_put_global(p, f->attack, "system");
    }
    dcp_end(p);
    cz__pickle_end(p);
}

static inline cz_status dcp_write_metadata(const dcp_folder *f, const char *path)
{
    char name[600];
    cz__pickling p = {.names = {NULL}};
    snprintf(name, sizeof name, "%s/.metadata", path);
    dcp_put_metadata(&p, f);
    const cz_status status = cz__file_write(name, cz__text_get(&p.out), p.out.count);
    cz__text_clear(&p.out);
    return status;
}

#endif
