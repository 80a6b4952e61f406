/* SPDX-License-Identifier: MIT */
/* Files of torch made by hand, right ones and wrong ones. */
#ifndef CZ_TEST_TORCH_FILES_H
#define CZ_TEST_TORCH_FILES_H

#include "base/memory.h"
#include "checkpoint/imports.h"
#include "io/container.h"
#include "io/pickle.h"

enum { TORCH_ENTRIES = 24 };

typedef struct torch_file {
    cz__pickling p;
    const char *prefix; /* NULL: "archive" */
    struct {
        char name[64];
        char bytes[512];
        size_t count;
    } entries[TORCH_ENTRIES];
    int count;
} torch_file;

static inline void torch_add(torch_file *f, const char *name, const void *bytes, size_t count)
{
    assert_true(f->count < TORCH_ENTRIES && count <= sizeof f->entries[0].bytes);
    snprintf(f->entries[f->count].name, sizeof f->entries[0].name, "%s/%s",
             f->prefix ? f->prefix : "archive", name);
    memcpy(f->entries[f->count].bytes, bytes, count);
    f->entries[f->count++].count = count;
}

static inline cz_status torch_read_entry(uint64_t offset, void *to, size_t count, void *context)
{
    memcpy(to, (const char *)context + offset, count);
    return CZ_OK;
}

/* With the pickle first. */
static inline void torch_write(torch_file *f, const char *path)
{
    cz__container_item items[TORCH_ENTRIES + 1];
    char pickle[64];
    snprintf(pickle, sizeof pickle, "%s/data.pkl", f->prefix ? f->prefix : "archive");
    assert_false(f->p.out.failed);
    items[0] = (cz__container_item){pickle, f->p.out.count, torch_read_entry, f->p.out.bytes};
    for (int i = 0; i < f->count; i++)
        items[1 + i] = (cz__container_item){f->entries[i].name, f->entries[i].count,
                                            torch_read_entry, f->entries[i].bytes};
    CZ_CHECK(cz__container_write(path, items, f->count + 1));
    cz__text_clear(&f->p.out);
}

static inline void torch_op(torch_file *f, const char *opcodes)
{
    for (; *opcodes; opcodes++)
        cz__pickle_op(&f->p, *opcodes);
}

/* A view; shape and strides end with -1. */
typedef struct torch_view {
    const char *storage, *key; /* "FloatStorage" */
    int64_t storage_count, offset, shape[10], strides[10];
} torch_view;

static inline void torch_tuple(torch_file *f, const int64_t *numbers)
{
    torch_op(f, "(");
    for (; *numbers >= 0 || *numbers < -1; numbers++)
        cz__pickle_put_integer(&f->p, *numbers);
    torch_op(f, "t");
}

static inline void torch_persistent(torch_file *f, const torch_view *v)
{
    torch_op(f, "(");
    cz__pickle_put_text(&f->p, "storage");
    cz__pickle_put_global(&f->p, "torch", v->storage);
    cz__pickle_put_text(&f->p, v->key);
    cz__pickle_put_text(&f->p, "cuda:0");
    cz__pickle_put_integer(&f->p, v->storage_count);
    torch_op(f, "tQ");
}

static inline void torch_tensor(torch_file *f, const torch_view *v)
{
    cz__pickle_put_global(&f->p, "torch._utils", "_rebuild_tensor_v2");
    torch_op(f, "(");
    torch_persistent(f, v);
    cz__pickle_put_integer(&f->p, v->offset);
    torch_tuple(f, v->shape);
    torch_tuple(f, v->strides);
    cz__pickle_put_bool(&f->p, false);
    cz__pickle_put_global(&f->p, "collections", "OrderedDict");
    torch_op(f, ")RtR");
}

static inline void torch_named(torch_file *f, const char *name, const torch_view *v)
{
    cz__pickle_put_text(&f->p, name);
    torch_tensor(f, v);
}

static inline void torch_named_real(torch_file *f, const char *name, double value)
{
    cz__pickle_put_text(&f->p, name);
    cz__pickle_put_real(&f->p, value);
}

#endif
