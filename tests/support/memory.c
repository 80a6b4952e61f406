/* SPDX-License-Identifier: MIT */
/* Models with values and gradient memory, for programs that know the public functions only, too. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/training.h"

void cz_test_store(void *memory, cz_dtype dtype, int64_t i, double value)
{
    if (dtype == CZ_F64)
        ((double *)memory)[i] = value;
    else
        ((float *)memory)[i] = (float)value;
}

double cz_test_load(const void *memory, cz_dtype dtype, int64_t i)
{
    return dtype == CZ_F64 ? ((const double *)memory)[i] : ((const float *)memory)[i];
}

/* Of a matrix of so many elements that is as square as it can be. */
static int64_t square_rows(int64_t size)
{
    int64_t rows = 1;
    for (int64_t k = 2; k * k <= size; k++)
        rows = size % k == 0 ? k : rows;
    return rows;
}

static int64_t rows_of(const cz_test_training *t, int64_t param)
{
    if (t->rule && t->rule == cz_rule_muon())
        return square_rows(t->sizes[param]);
    return t->rows ? t->rows[param] : 0;
}

static cz_status add_all(cz_test_memory *memory, const cz_test_training *t)
{
    if (t->flat && t->rule != cz_rule_muon())
        return cz_model_add_flat(memory->model, memory->values[0], memory->grads[0], t->dtype,
                                 t->param_count, NULL, t->sizes);
    for (int64_t k = 0; k < t->param_count; k++) {
        const int64_t p = t->order > 0 ? k * t->order % t->param_count : k;
        char name[24];
        snprintf(name, sizeof name, "p%" PRId64, p);
        const int64_t rows = rows_of(t, p);
        const int64_t shape[] = {rows > 0 ? rows : t->sizes[p], rows > 0 ? t->sizes[p] / rows : 0};
        CZ_TRY(cz_model_add(memory->model, name, memory->values[p], memory->grads[p], t->dtype,
                            rows > 0 ? 2 : 1, shape));
    }
    return CZ_OK;
}

static size_t elements_of(const cz_test_training *t)
{
    size_t elements = 0;
    for (int64_t p = 0; p < t->param_count; p++)
        elements += (size_t)t->sizes[p];
    return elements;
}

static void set_values(const cz_test_memory *memory, const cz_test_training *t)
{
    for (int64_t p = 0; p < t->param_count; p++)
        for (int64_t i = 0; i < t->sizes[p]; i++)
            cz_test_store(memory->values[p], t->dtype, i, (double)i / 64);
}

/* Values at `values`, NULL: in the block, as gradients are. */
static cz_status lay_out(cz_test_memory *memory, const cz_test_training *t, char *values)
{
    const size_t size = cz_dtype_size(t->dtype), params = (size_t)t->param_count;
    const size_t elements = elements_of(t);
    memory->block = calloc(1, 2 * params * sizeof(void *) + 2 * (elements + 1) * size);
    if (!memory->block)
        return cz_fail(CZ_ERR_MEMORY, "test: %zu elements", elements);
    memory->values = memory->block;
    memory->grads = memory->values + params;
    char *next = (char *)(memory->grads + params);
    values = values ? values : next;
    for (int64_t p = 0, begin = 0; p < t->param_count; begin += t->sizes[p++]) {
        memory->values[p] = values + (size_t)begin * size;
        memory->grads[p] = next + (elements + 1 + (size_t)begin) * size;
    }
    CZ_TRY(cz_model_create(&memory->model));
    return add_all(memory, t);
}

cz_status cz_test_memory_create(cz_test_memory *memory, const cz_test_training *t)
{
    *memory = (cz_test_memory){0};
    CZ_TRY(lay_out(memory, t, NULL));
    set_values(memory, t);
    return CZ_OK;
}

cz_status cz_test_memory_share(cz_test_memory *memory, const cz_test_training *t, cz_group *group)
{
    *memory = (cz_test_memory){0};
    void *block;
    const size_t bytes = (elements_of(t) + 1) * cz_dtype_size(t->dtype);
    CZ_TRY(cz_shared_create(&memory->shared, group, bytes, &block));
    CZ_TRY(lay_out(memory, t, block));
    if (cz_group_rank(group) == 0)
        set_values(memory, t);
    return cz_barrier(group, NULL);
}

void cz_test_memory_destroy(cz_test_memory *memory)
{
    cz_model_destroy(&memory->model);
    cz_shared_destroy(&memory->shared);
    free(memory->block);
    *memory = (cz_test_memory){0};
}
