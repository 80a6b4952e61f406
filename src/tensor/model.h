/* SPDX-License-Identifier: MIT */
/* What other parts may do to a model that the program may not. */
#ifndef CZ_TENSOR_MODEL_H
#define CZ_TENSOR_MODEL_H

#include <string.h>

#include "czero/base.h"
#include "czero/tensor.h"

/* An optimizer stands on the model: its list of parameters and buffers cannot change while any
 * does, and it lives until the last has thawed it. Its tensors may be gone before. */
void cz__model_freeze(cz_model *model);
void cz__model_thaw(cz_model *model);

/* Who makes gradients the mean over ranks: data-parallel models, and sharded optimizers that know
 * of none. `change`: 1 or -1. How many of the other kind there are: above 0 gradients are averaged
 * twice. */
int cz__model_count_ddp(cz_model *model, int change);
int cz__model_count_reducing_optimizer(cz_model *model, int change);
/* Parts over it, which may weigh its gradients: how many there are. */
int cz__model_count_parts(cz_model *model, int change);

static inline const cz_device *cz__device_of(const cz_tensor *tensor)
{
    return tensor->device ? tensor->device : cz_device_cpu();
}

/* Can this table be used? One of another meaning is not read beyond its head. `part` and `name` are
 * for the sentence. */
cz_status cz__device_check(const char *part, const char *name, const cz_device *device);

/* Devices of one type have one name; each is a table of its own. */
static inline bool cz__device_same_type(const cz_device *a, const cz_device *b)
{
    return a == b || strcmp(a->name, b->name) == 0;
}

/* May a value of that type have a gradient of that one? What type has a parameter's, also one that
 * it does not have yet? And has each the type of its value? CZ_ERR_UNSUPPORTED: not one's. */
bool cz__model_takes_gradients(cz_dtype value, cz_dtype gradient);
cz_dtype cz__model_gradient_dtype(const cz_model *model, int64_t param);
cz_status cz__model_check_gradients(const cz_model *model, const char *part);

/* Where the gradient of a parameter is, NULL: there is none. An empty one has some address. */
void *cz__model_gradient_address(const cz_model *model, int64_t param);

/* The fixed layout: the parameters in the order to which cuts and buckets refer. Backward passes
 * produce gradients roughly in reverse order of registration; a flat block keeps its own, so that a
 * piece of it is one piece of memory. */
void cz__model_lay_out(const cz_model *model, int64_t *order);

/* The value of a parameter is somewhere else from now on; `is_viewed`: in the buckets of an
 * optimizer. */
void cz__model_set_address(cz_model *model, int64_t param, void *value, bool is_viewed);
bool cz__model_is_viewed(const cz_model *model, int64_t param);

/* The first grows when a value is somewhere else, or a parameter is frozen or unfrozen; the other
 * when a gradient appears or is somewhere else. */
uint64_t cz__model_moves(const cz_model *model);
uint64_t cz__model_gradient_moves(const cz_model *model);

/* As much of all parameters as a step asks for, in tables that follow all changes. Of a frozen
 * model, until it is thawed. CZ_ERR_MEMORY. */
typedef struct cz__model_tables {
    void *const *values;
    void *const *gradients;   /* as cz__model_gradient_address() has them */
    const uint8_t *trainable; /* 1; 0: frozen */
} cz__model_tables;
cz_status cz__model_tables_of(cz_model *model, cz__model_tables *out);

/* Has the program destroyed it? Then only freezes keep it, and its tensors may be gone. */
bool cz__model_is_abandoned(const cz_model *model);

/* What a model of that many tensors, added one by one, allocates at most. */
size_t cz__model_bytes(int64_t params, int64_t buffers, size_t name_bytes);

/* Do these parameters follow each other in memory (cz_model_add_flat)? The number of the flat block
 * a parameter belongs to, -1 for one that was added alone. */
int64_t cz__model_block(const cz_model *model, int64_t param);

/* ---- overlap.c ---- */
/* Memories of a model that must not overlap: what is written through one name would change what
 * another one has, on ranks or in moments that do not know of each other. */

/* Who asks, and about what. What it reads and writes are the values, and for trainable ones the
 * gradients, of its own parameters; values and buffers of others may share memory with each other.
 * No gradient shares memory with a value or a buffer, no buffer with a value. Empty tensors are
 * nowhere. */
typedef struct cz__overlaps {
    const char *part; /* begins the sentence: "ddp" */
    const cz_model *model;
    bool (*is_own)(const void *context, int64_t param);
    const void *context;
    void *const *gradients; /* NULL: the model's; else one address per parameter, NULL: none */
    bool reuses_gradients;  /* one may be in the memory of another, which is not needed any more */
    /* A parameter's gradient may be where its own value is, until somebody reads it. */
    bool before_use;
} cz__overlaps;

/* CZ_ERR_ARGUMENT, with both names; CZ_ERR_MEMORY. Time n log n in the number of tensors. */
cz_status cz__check_overlaps(const cz__overlaps *overlaps);

/* The same for memory that moves: what was found right is remembered, and is not looked at again.
 * All zero: nothing yet. */
typedef struct cz__overlap_memory {
    void **gradients;               /* owned; that were right together */
    uint64_t moves, gradient_moves; /* of the model then */
    bool reused;
    struct cz__extent_table *table; /* owned; while parameters come in one after the other */
} cz__overlap_memory;
cz_status cz__check_overlaps_again(cz__overlap_memory *memory, const cz__overlaps *overlaps);
/* When an object is made: gradients that are apart are remembered, so that its first use need not
 * look at them; where they are not, that may be as `overlaps` says. */
cz_status cz__check_overlaps_at_first(cz__overlap_memory *memory, const cz__overlaps *overlaps);
/* When these parameters have become own ones: as the one before, without a look at those that were.
 * Time in proportion to `count`, but for the first time and logarithms. */
cz_status cz__check_overlaps_of(cz__overlap_memory *memory, const cz__overlaps *overlaps,
                                const int64_t *params, int64_t count);
void cz__overlap_memory_clear(cz__overlap_memory *memory);

/* ---- elements of one floating type as those of another ---- */

/* Is it a type that cz__convert() takes: f32, f64, f16 or bf16? */
bool cz__converts(cz_dtype dtype);

/* to[i] = from[i], rounded to nearest even where the type is narrower. Host memory; no overlap. */
void cz__convert(cz_dtype to_type, void *to, cz_dtype from_type, const void *from, int64_t count);

/* As their names say; what is not there is NULL, 0 or -1. */
int64_t cz__model_param_count(const cz_model *model);
int64_t cz__model_buffer_count(const cz_model *model);
int64_t cz__model_element_count(const cz_model *model);
const char *cz__model_name(const cz_model *model, int64_t param);
const cz_tensor *cz__model_value(const cz_model *model, int64_t param);
const cz_tensor *cz__model_gradient(const cz_model *model, int64_t param);
const char *cz__model_buffer_name(const cz_model *model, int64_t buffer);
const cz_tensor *cz__model_buffer(const cz_model *model, int64_t buffer);
bool cz__model_requires_grad(const cz_model *model, int64_t param);

#endif
