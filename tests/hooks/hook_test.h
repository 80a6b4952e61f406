/* SPDX-License-Identifier: MIT */
/* One rank's model and ddp with a hook, for tests of hooks: parameters lie in buckets in the order
 * in which a test lists them. */
#ifndef CZ_HOOK_TEST_H
#define CZ_HOOK_TEST_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "czero/czero.h"
#include "support/cz_test.h"

enum { MOST_PARAMS = 12 };

typedef struct layout {
    int count;
    int64_t shapes[MOST_PARAMS][3]; /* a row ends at its first 0; {-1}: no elements */
    cz_dtype dtype;
    cz_ddp_options options; /* zero: all defaults */
} layout;

typedef struct subject {
    const layout *layout;
    cz_group *group; /* borrowed */
    cz_model *model;
    cz_ddp *ddp;
    int64_t params[MOST_PARAMS]; /* in the model, of the layout's */
    int64_t counts[MOST_PARAMS];
    void *values[MOST_PARAMS], *grads[MOST_PARAMS]; /* owned */
} subject;

/* Element i of memory of any floating type. */
static inline void put(void *memory, cz_dtype dtype, int64_t i, float value)
{
    char *place = (char *)memory + (size_t)i * cz_dtype_size(dtype);
    (void)cz_device_cpu()->convert(NULL, dtype, place, CZ_F32, &value, 1);
}

static inline float get(const void *memory, cz_dtype dtype, int64_t i)
{
    const char *place = (const char *)memory + (size_t)i * cz_dtype_size(dtype);
    float value = 0;
    (void)cz_device_cpu()->convert(NULL, CZ_F32, &value, dtype, place, 1);
    return value;
}

static inline int64_t element_count(const layout *l)
{
    int64_t all = 0;
    for (int k = 0; k < l->count; k++) {
        int64_t count = l->shapes[k][0] < 0 ? 0 : 1;
        for (int d = 0; d < 3 && l->shapes[k][d] > 0; d++)
            count *= l->shapes[k][d];
        all += count;
    }
    return all;
}

static inline void subject_clear(subject *s)
{
    cz_ddp_destroy(&s->ddp);
    cz_model_destroy(&s->model);
    for (int k = 0; k < MOST_PARAMS; k++) {
        free(s->values[k]);
        free(s->grads[k]);
    }
}

static inline cz_status add_param(subject *s, int k)
{
    const layout *l = s->layout;
    char name[16];
    int64_t shape[3] = {0, 1, 1};
    int dimensions = 1;
    snprintf(name, sizeof name, "p%d", k);
    if (l->shapes[k][0] > 0)
        for (dimensions = 0; dimensions < 3 && l->shapes[k][dimensions] > 0; dimensions++)
            shape[dimensions] = l->shapes[k][dimensions];
    s->counts[k] = shape[0] * shape[1] * shape[2];
    s->values[k] = calloc((size_t)s->counts[k] + 1, cz_dtype_size(l->dtype));
    s->grads[k] = calloc((size_t)s->counts[k] + 1, cz_dtype_size(l->dtype));
    if (!s->values[k] || !s->grads[k])
        return cz_fail(CZ_ERR_MEMORY, "test: parameter %d", k);
    for (int64_t i = 0; i < s->counts[k]; i++)
        put(s->values[k], l->dtype, i, (float)(i % 16) / 8);
    CZ_TRY(cz_model_add(s->model, name, s->values[k], s->grads[k], l->dtype, dimensions, shape));
    s->params[k] = cz_model_find(s->model, name);
    return CZ_OK;
}

/* To be cleared also after a failure. The fixed layout is the reverse order of addition. */
static inline cz_status subject_create(subject *s, cz_group *group, const layout *l)
{
    cz_ddp_options options = l->options;
    options.size = sizeof options;
    *s = (subject){.layout = l, .group = group};
    CZ_TRY(cz_model_create(&s->model));
    for (int k = l->count - 1; k >= 0; k--)
        CZ_TRY(add_param(s, k));
    return cz_ddp_create(&s->ddp, group, s->model, &options);
}

/* A pass over these gradients (all parameters one after the other), of which those with a flag in
 * `unused` are not marked. NULL: all are. */
static inline cz_status subject_pass(subject *s, const float *gradients, const bool *unused)
{
    for (int k = 0; k < s->layout->count; k++)
        for (int64_t i = 0; i < s->counts[k]; i++)
            put(s->grads[k], s->layout->dtype, i, *gradients++);
    CZ_TRY(cz_ddp_begin(s->ddp, true));
    for (int k = 0; k < s->layout->count; k++)
        if (!unused || !unused[k])
            CZ_TRY(cz_ddp_mark_ready(s->ddp, s->params[k]));
    return cz_ddp_finish(s->ddp);
}

/* What became of them, in the same order. */
static inline void subject_result(const subject *s, float *out)
{
    for (int k = 0; k < s->layout->count; k++)
        for (int64_t i = 0; i < s->counts[k]; i++)
            *out++ = get(s->grads[k], s->layout->dtype, i);
}

/* Are these bits the same on all ranks? */
static inline cz_status equal_everywhere(cz_group *group, const void *data, size_t bytes)
{
    char *first = malloc(bytes + 1);
    if (!first)
        return cz_fail(CZ_ERR_MEMORY, "test: %zu bytes", bytes);
    memcpy(first, data, bytes);
    cz_status status = cz_broadcast(group, first, (int64_t)bytes, CZ_U8, 0, NULL);
    if (status == CZ_OK && memcmp(first, data, bytes) != 0)
        status = cz_fail(CZ_ERR_STATE, "rank %d has other bits than rank 0", cz_group_rank(group));
    free(first);
    return status;
}

static const int worlds[] = {1, 2, 3, 5, 7};
enum { WORLDS = sizeof worlds / sizeof *worlds };

#endif
