/* SPDX-License-Identifier: MIT */
/* Sums of which parts were made on other machines. A leader adds up each subtree of its machine;
 * the owner takes that sum in the place of the subtree's first rank, and in the places of the
 * others what changes nothing, so the tree gives the bits that it gives where all ranks are at
 * hand. Sums of 16-bit types stay f32 until the end. */
#include <string.h>

#include "base/status.h"
#include "group/engines/window.h"

static cz_dtype dtype_of(const cz_work *work)
{
    return (cz_dtype)work->operation.header.dtype;
}

/* An average is divided once, by the owner. */
static cz_reduction partial_of(const cz_work *work)
{
    const cz_reduction whole = (cz_reduction)work->operation.header.reduction;
    return whole == CZ_AVERAGE ? CZ_SUM : whole;
}

static bool is_arithmetic(const cz_work *work)
{
    return partial_of(work) == CZ_SUM || partial_of(work) == CZ_PRODUCT;
}

/* Are sums wider than elements? */
static bool is_wide(const cz_work *work)
{
    return (dtype_of(work) == CZ_F16 || dtype_of(work) == CZ_BF16) && is_arithmetic(work);
}

static size_t subtree_bytes(const cz_work *work, const cz__subtree *subtree, size_t chunk_bytes)
{
    return subtree->count > 1 && is_wide(work) ? 2 * chunk_bytes : chunk_bytes;
}

/* From one sum to the next in a message: each is aligned. */
static size_t stride(const cz_work *work, const cz__subtree *subtree, size_t chunk_bytes)
{
    const size_t ALIGNMENT = 8;
    const size_t bytes = subtree_bytes(work, subtree, chunk_bytes);
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

size_t cz__sums_bytes(const cz_work *work, const cz__machine *machine, size_t chunk_bytes)
{
    const int last = machine->subtree_count - 1;
    size_t bytes = subtree_bytes(work, &machine->subtrees[last], chunk_bytes);
    for (int i = 0; i < last; i++)
        bytes += stride(work, &machine->subtrees[i], chunk_bytes);
    return bytes;
}

/* What rank r, of this machine, has of a stream. */
static const char *leaf_data(const cz_work *work, uint32_t round, int r, int stream)
{
    return r == work->group->rank ? cz__window_leaf(work, round, stream)->data
                                  : cz__window_slot(work, r, round, stream);
}

static cz__partial_sums *sums_of(const cz_work *work)
{
    return &work->group->window->sums;
}

/* ---- 16 bits: in tiles, as f32 ---- */

/* Of each source elements [begin, begin + count) as f32; NULL: neutral ones. */
static cz_status widen(const cz_work *work, int sources, int64_t begin, int64_t count)
{
    const cz__partial_sums *sums = sums_of(work);
    const cz_device *device = work->group->device;
    for (int s = 0; s < sources; s++) {
        const char *from = cz__run_of(work)->sources[s];
        float *tile = sums->tiles + s * CZ__WINDOW_TILE;
        if (!from) {
            sums->tile_sources[s] = sums->tiles + (work->group->size + 1) * CZ__WINDOW_TILE;
        } else if (sums->wide[s]) {
            sums->tile_sources[s] = from + begin * 4;
        } else {
            CZ_TRY(device->convert(NULL, CZ_F32, tile, dtype_of(work), from + begin * 2, count));
            sums->tile_sources[s] = tile;
        }
    }
    return CZ_OK;
}

static cz_status reduce_wide(const cz_work *work, cz_reduction reduction, int sources,
                             int64_t count, bool narrow, char *out)
{
    const cz__partial_sums *sums = sums_of(work);
    const cz_device *device = work->group->device;
    float *result = sums->tiles + work->group->size * CZ__WINDOW_TILE;
    float *neutral = result + CZ__WINDOW_TILE;
    CZ_TRY(
        device->fill(NULL, CZ_F32, reduction == CZ_PRODUCT ? 1 : -0.0, CZ__WINDOW_TILE, neutral));
    for (int64_t begin = 0; begin < count; begin += CZ__WINDOW_TILE) {
        const int64_t some = count - begin < CZ__WINDOW_TILE ? count - begin : CZ__WINDOW_TILE;
        CZ_TRY(widen(work, sources, begin, some));
        CZ_TRY(device->reduce(NULL, CZ_F32, reduction, sources, sums->tile_sources, some,
                              narrow ? result : (float *)(void *)out + begin));
        if (narrow)
            CZ_TRY(device->convert(NULL, dtype_of(work), out + begin * 2, CZ_F32, result, some));
    }
    return CZ_OK;
}

/* ---- a leader's part ---- */

static int64_t elements(const cz_work *work, size_t bytes)
{
    return (int64_t)(bytes / work->operation.source.element_size);
}

static cz_status add_up_subtree(cz_work *work, const cz__subtree *subtree, size_t bytes, char *out)
{
    const cz_device *device = work->group->device;
    if (subtree->count == 1)
        return device->copy(NULL, out, cz__run_of(work)->sources[0], bytes);
    if (!is_wide(work))
        return device->reduce(NULL, dtype_of(work), partial_of(work), subtree->count,
                              cz__run_of(work)->sources, elements(work, bytes), out);
    memset(sums_of(work)->wide, 0, (size_t)subtree->count * sizeof(bool));
    return reduce_wide(work, partial_of(work), subtree->count, elements(work, bytes), false, out);
}

cz_status cz__sums_for_owner(cz_work *work, uint32_t round, int duty, const char **sums)
{
    const cz__topology *topology = work->group->window->topology;
    const cz__machine *here = &topology->machines[topology->here];
    const int owner = topology->duties[duty], me = work->group->rank;
    const cz__leaf *leaf = cz__window_leaf(work, round, owner);
    if (here->rank_count == 1) {
        *sums = leaf->data;
        return CZ_OK;
    }
    char *out = cz__window_slot(work, me, round, cz__topology_slot_of_sums(topology, duty));
    *sums = out;
    for (int i = 0; i < here->subtree_count; i++) {
        const cz__subtree *subtree = &here->subtrees[i];
        for (int k = 0; k < subtree->count; k++)
            cz__run_of(work)->sources[k] = leaf_data(work, round, subtree->first + k, owner);
        CZ_TRY(add_up_subtree(work, subtree, leaf->bytes, out));
        out += stride(work, subtree, leaf->bytes);
    }
    return CZ_OK;
}

/* ---- the owner's ---- */

/* x + -0 = x and 1 x = x, for every x. */
static void set_element(cz_dtype dtype, bool product, char *element)
{
    const float f32 = product ? 1.0f : -0.0f;
    const double f64 = product ? 1.0 : -0.0;
    const int64_t i64 = product;
    const int32_t i32 = product;
    if (dtype == CZ_F32)
        memcpy(element, &f32, sizeof f32);
    else if (dtype == CZ_F64)
        memcpy(element, &f64, sizeof f64);
    else if (dtype == CZ_I64)
        memcpy(element, &i64, sizeof i64);
    else if (dtype == CZ_I32)
        memcpy(element, &i32, sizeof i32);
    else
        *element = (char)product;
}

static const char *neutral(const cz_work *work)
{
    cz__partial_sums *sums = sums_of(work);
    const bool product = partial_of(work) == CZ_PRODUCT;
    const int kind = 2 * (int)dtype_of(work) + product + 1;
    const size_t size = work->operation.source.element_size;
    if (sums->neutral_kind == kind)
        return sums->neutral;
    for (size_t at = 0; at + size <= work->group->window->slot_bytes; at += size)
        set_element(dtype_of(work), product, sums->neutral + at);
    sums->neutral_kind = kind;
    return sums->neutral;
}

/* `sum` in the place of a subtree. What is no arithmetic may be taken twice. */
static void place_sum(const cz_work *work, const cz__subtree *subtree, const char *sum)
{
    const char *rest = sum;
    if (is_arithmetic(work))
        rest = is_wide(work) ? NULL : neutral(work);
    for (int k = 0; k < subtree->count; k++) {
        cz__run_of(work)->sources[subtree->first + k] = k == 0 ? sum : rest;
        sums_of(work)->wide[subtree->first + k] = subtree->count > 1;
    }
}

static void place_machine(const cz_work *work, uint32_t round, const cz__machine *machine,
                          size_t bytes)
{
    const char *sums = cz__window_slot(work, work->group->rank, round, machine->at);
    for (int i = 0; i < machine->subtree_count; i++) {
        place_sum(work, &machine->subtrees[i], sums);
        sums += stride(work, &machine->subtrees[i], bytes);
    }
}

cz_status cz__sums_reduce(cz_work *work, uint32_t round, char *result)
{
    const cz__topology *topology = work->group->window->topology;
    const cz__machine *here = &topology->machines[topology->here];
    const int size = topology->size, me = work->group->rank;
    const size_t bytes = cz__window_leaf(work, round, me)->bytes;
    const cz_reduction reduction = (cz_reduction)work->operation.header.reduction;
    for (int i = 0; i < here->rank_count; i++)
        cz__run_of(work)->sources[here->ranks[i]] = leaf_data(work, round, here->ranks[i], me);
    if (topology->machine_count > 1)
        memset(sums_of(work)->wide, 0, (size_t)size * sizeof(bool));
    for (int m = 0; m < topology->machine_count; m++)
        if (m != topology->here)
            place_machine(work, round, &topology->machines[m], bytes);
    if (topology->machine_count > 1 && is_wide(work))
        return reduce_wide(work, reduction, size, elements(work, bytes), true, result);
    return work->group->device->reduce(NULL, dtype_of(work), reduction, size,
                                       cz__run_of(work)->sources, elements(work, bytes), result);
}
