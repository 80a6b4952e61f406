/* SPDX-License-Identifier: MIT */
/* Files that torch.load() reads, from what a consolidated file holds. */
#ifndef CZ_INTEROP_TORCH_WRITE_H
#define CZ_INTEROP_TORCH_WRITE_H

#include "interop/bundle.h"
#include "interop/torch.h"
#include "io/pickle.h"

typedef struct cz__torch_export {
    const cz__index *index;      /* names, shapes, the optimizer's outline */
    cz__bundle *elements;        /* has all of its tensors */
    const cz_state_dict *common; /* NULL: an empty one */
    int64_t step;
    bool parameters_only; /* a state dictionary of the model and nothing else */
} cz__torch_export;

/* ".pt", ".pth" or ".bin" at its end. */
bool cz__torch_is_name(const char *path);

/* Write a new file, and have it on the medium. CZ_ERR_IO, CZ_ERR_UNSUPPORTED (no libzip; more names
 * than a reader takes), CZ_ERR_MEMORY: it has not made one then. Beside what names take, 8 MiB.
 * Local. */
cz_status cz__torch_write(const char *path, const cz__torch_export *what);

/* ---- for the files that write ---- */
/* A file for torch that is being written: what its parts share. */

/* A storage that will be written. */
typedef struct cz__torch_payload {
    char entry[40];
    /* Owned: its name among the elements; NULL: it is `memory`, or one of the numbers. */
    char *tensor;
    const void *memory; /* borrowed */
    float f32;
    double f64;
    cz_dtype dtype;
    uint64_t bytes;
    cz__bundle *elements;
} cz__torch_payload;

typedef struct cz__torch_writing {
    const cz__torch_export *what;
    const cz__torch_rule *rule; /* NULL: torch has none like it, or there is no optimizer */
    const char *rule_name;      /* NULL: there is no optimizer */
    bool named;                 /* the optimizer has names of parameters in place of numbers */
    cz__pickling p;
    cz__text name;
    cz__torch_payload *payloads; /* owned */
    int64_t count, capacity;
} cz__torch_writing;

cz_status cz__torch_no_memory(void);

/* torch_storage.c: a tensor with a storage of its own, which the caller fills in; the value (slot
 * NULL) or a slot of what is stored; a number as torch has it, a tensor without dimensions. The
 * name is for sentences. CZ_ERR_MEMORY. */
cz_status cz__torch_put_tensor(cz__torch_writing *w, const char *name, cz_dtype dtype,
                               int dimensions, const int64_t *shape, cz__torch_payload **out);
cz_status cz__torch_put_stored(cz__torch_writing *w, const cz__stored *stored, const char *slot,
                               cz_dtype dtype);
cz_status cz__torch_put_scalar(cz__torch_writing *w, cz_dtype dtype, double number);
void cz__torch_put_ordered_dict(cz__pickling *p);
/* The entries of a file: the pickle, and all storages; *items is for cz__free(). */
cz_status cz__torch_list_items(cz__torch_writing *w, cz__container_item **items, int64_t *count);
/* torch_write.c: the pickle of all of it. */
cz_status cz__torch_put_all(cz__torch_writing *w);
/* The file. */
cz_status cz__torch_write_entries(cz__torch_writing *w, const char *path);
void cz__torch_writing_clear(cz__torch_writing *w);

#endif
