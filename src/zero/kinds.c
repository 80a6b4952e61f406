/* SPDX-License-Identifier: MIT */
/* Types: a model may mix them, and an operation moves elements of one type, so a step makes one for
 * each kind of parameters. The mean of 16-bit gradients is f32: it goes to the update without being
 * rounded. */
#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "shard/shard.h"
#include "zero/zero.h"

static int find_kind(const cz_zero *zero, cz_dtype value, cz_dtype gradient)
{
    int k = 0;
    while (k < zero->kind_count &&
           (zero->kinds[k].value != value || zero->kinds[k].gradient != gradient))
        k++;
    return k;
}

cz_status cz__zero_find_kinds(cz_zero *zero)
{
    const size_t params = (size_t)zero->param_count;
    zero->kind_of = cz__calloc(params, sizeof *zero->kind_of);
    zero->included = cz__calloc(params, sizeof *zero->included);
    if (!zero->kind_of || !zero->included)
        return cz__fail(CZ_ERR_MEMORY, "zero: no memory for tables of %zu parameters", params);
    zero->element_size = sizeof(double);
    for (int64_t p = 0; p < zero->param_count; p++) {
        const cz_dtype value = cz__model_value(zero->model, p)->dtype,
                       gradient = cz__model_gradient_dtype(zero->model, p);
        const size_t size = cz_dtype_size(value);
        const int k = find_kind(zero, value, gradient);
        zero->kinds[k] = (cz__zero_kind){value, gradient};
        zero->kind_count += k == zero->kind_count;
        zero->kind_of[p] = (uint8_t)k;
        if (size < zero->element_size)
            zero->element_size = size;
    }
    return CZ_OK;
}

const uint8_t *cz__zero_include(const cz_zero *zero, int kind)
{
    bool any = false;
    if (zero->kind_count == 1)
        return zero->present;
    for (int64_t p = 0; p < zero->param_count; p++) {
        zero->included[p] = zero->present[p] && zero->kind_of[p] == kind;
        any = any || zero->included[p];
    }
    return any ? zero->included : NULL;
}

int cz__zero_only_kind(const cz_zero *zero)
{
    int only = -1;
    for (int64_t p = 0; p < zero->param_count; p++) {
        if (!zero->present[p])
            continue;
        if (only >= 0 && zero->kind_of[p] != only)
            return -1;
        only = zero->kind_of[p];
    }
    return only;
}

/* If somebody else does not round them. */
static bool may_have_means(const cz_zero *zero)
{
    return cz_group_size(zero->group) > 1 && cz__optim_is_mixed(zero->optim);
}

bool cz__zero_has_means(const cz_zero *zero)
{
    if (!may_have_means(zero))
        return false;
    return cz__zero_reduces(zero) || (zero->ddp && cz__ddp_gives_means(zero->ddp));
}

/* Elements of such gradients that a map deals to this rank; `of`: and where they begin in memory
 * from there on. */
static int64_t place_means(const cz_zero *zero, const cz_shard_map *map, void **of, void *memory)
{
    int64_t elements = 0;
    cz_span_iterator iterator;
    cz_span span;
    cz_span_iterate(map, cz_group_rank(zero->group), &iterator);
    while (cz_span_next(&iterator, &span)) {
        if (!cz__has_16_bits(zero->kinds[zero->kind_of[span.param]].gradient))
            continue;
        if (of)
            of[span.param] = (void *)((uintptr_t)memory + (uintptr_t)elements * sizeof(float) -
                                      (uintptr_t)span.begin * sizeof(float));
        elements += span.end - span.begin;
    }
    return elements;
}

cz_status cz__zero_means_create(cz__zero_means *means, const cz_zero *zero, const cz_shard_map *map)
{
    *means = (cz__zero_means){0};
    bool any = false;
    for (int k = 0; k < zero->kind_count; k++)
        any = any || cz__has_16_bits(zero->kinds[k].gradient);
    if (!zero->ddp || !any || !may_have_means(zero))
        return CZ_OK;
    const size_t bytes = (size_t)place_means(zero, map, NULL, NULL) * sizeof(float);
    means->of = cz__calloc((size_t)zero->param_count, sizeof *means->of);
    if (!means->of)
        return cz__fail(CZ_ERR_MEMORY, "zero: no memory for a table of means");
    const cz_status status = zero->device->allocate(CZ_MEMORY_GRADIENT, bytes, &means->memory);
    if (status)
        return cz__fail(status, "zero: no memory for %zu bytes of means in f32", bytes);
    (void)place_means(zero, map, means->of, means->memory);
    return CZ_OK;
}

void cz__zero_means_clear(cz__zero_means *means, const cz_zero *zero)
{
    if (means->memory)
        zero->device->release(means->memory);
    cz__free(means->of);
    *means = (cz__zero_means){0};
}

cz_dtype cz__zero_widest_given(const cz_zero *zero, int kind)
{
    const cz_dtype gradient = zero->kinds[kind].gradient;
    return cz__has_16_bits(gradient) && may_have_means(zero) ? CZ_F32 : gradient;
}

cz_dtype cz__zero_given_dtype(const cz_zero *zero, int kind)
{
    return cz__zero_has_means(zero) ? cz__zero_widest_given(zero, kind)
                                    : zero->kinds[kind].gradient;
}

bool cz__zero_widens(const cz_zero *zero, int64_t param)
{
    const int kind = zero->kind_of[param];
    return cz__zero_given_dtype(zero, kind) != zero->kinds[kind].gradient;
}

bool cz__zero_include_slot(const cz_zero *zero, const cz__progress *progress, int slot,
                           cz_dtype dtype, uint8_t *include)
{
    bool any = false;
    for (int64_t p = 0; p < zero->param_count; p++) {
        include[p] =
            progress->used[p] >> slot & 1u && cz__optim_slot_dtype(zero->optim, p, slot) == dtype;
        any = any || include[p];
    }
    return any;
}

uint64_t cz__zero_traffic(cz_zero *zero, bool of_values)
{
    uint64_t bytes = 0;
    const int64_t others = cz_group_size(zero->group) - 1;
    for (int k = 0; k < zero->kind_count; k++) {
        const uint8_t *include = cz__zero_include(zero, k);
        if (!include)
            continue;
        const int64_t own = cz__optim_elements(zero->optim, include);
        int64_t all = 0;
        for (int64_t p = 0; p < zero->param_count; p++)
            if (include[p])
                all += cz__shard_map_count(zero->map, p);
        const cz_dtype dtype = of_values ? zero->kinds[k].value : zero->kinds[k].gradient;
        bytes += (uint64_t)(all - own + others * own) * cz_dtype_size(dtype);
    }
    return bytes;
}
