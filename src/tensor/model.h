/* SPDX-License-Identifier: MIT */
/* What other parts may do to a model that the program may not. */
#ifndef CZ_TENSOR_MODEL_H
#define CZ_TENSOR_MODEL_H

#include "czero/tensor.h"

#include <string.h>

/* An optimizer stands on the model: its list of parameters and buffers cannot change while any does, and
 * it lives until the last has thawed it. Its tensors may be gone before. */
void cz__model_freeze(cz_model *model);
void cz__model_thaw(cz_model *model);

/* Who makes gradients the mean over ranks: data-parallel models, and sharded optimizers that know of none. `change`: 1
 * or -1. How many of the other kind there are: above 0 gradients are averaged twice. */
int cz__model_count_ddp(cz_model *model, int change);
int cz__model_count_reducing_optimizer(cz_model *model, int change);

static inline const cz_device *cz__device_of(const cz_tensor *tensor)
{
    return tensor->device ? tensor->device : cz_device_cpu();
}

/* Can this table be used? One of another meaning is not read beyond its head. `part` and `name` are for the sentence. */
cz_status cz__device_check(const char *part, const char *name, const cz_device *device);

/* Devices of one type have one name; each is a table of its own. */
static inline bool cz__device_same_type(const cz_device *a, const cz_device *b)
{
    return a == b || strcmp(a->name, b->name) == 0;
}

/* Where the gradient of a parameter is, NULL: there is none. An empty one has some address. */
void *cz__model_gradient_address(const cz_model *model, int64_t param);

/* The fixed layout: the parameters in the order to which cuts and buckets refer. Backward passes produce
 * gradients roughly in reverse order of registration; a flat block keeps its own, so that a piece of it
 * is one piece of memory. */
void cz__model_lay_out(const cz_model *model, int64_t *order);

/* The value of a parameter is somewhere else from now on; `is_viewed`: in the buckets of an optimizer. */
void cz__model_set_address(cz_model *model, int64_t param, void *value, bool is_viewed);
bool cz__model_is_viewed(const cz_model *model, int64_t param);

/* A table of where all values are, which follows cz__model_set_address(). Of a frozen model, until it is
 * thawed. CZ_ERR_MEMORY. */
cz_status cz__model_addresses(cz_model *model, void *const **out);

/* As much of all parameters as a step asks for, in tables that follow all changes. As long as those above. */
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

/* Do these parameters follow each other in memory (cz_model_add_flat)? The number of the flat block a
 * parameter belongs to, -1 for one that was added alone. */
int64_t cz__model_block(const cz_model *model, int64_t param);

#endif
