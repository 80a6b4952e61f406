/* SPDX-License-Identifier: MIT */
/* Sums of which parts were made on other machines. A leader adds up each subtree of its machine;
 * the owner takes that sum in the place of the subtree's first rank and leaves the places of the
 * others empty, so the tree gives the bits that it gives where all ranks are at hand. Sums of
 * 16-bit types stay f32 until the end. */
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"
#include "engine/window.h"

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
    return cz__has_16_bits(dtype_of(work)) && is_arithmetic(work);
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

/* Of each source elements [begin, begin + count) as f32. */
static cz_status widen(const cz_work *work, int sources, int64_t begin, int64_t count)
{
    const cz__partial_sums *sums = sums_of(work);
    const cz_device *device = work->group->device;
    for (int s = 0; s < sources; s++) {
        const char *from = cz__run_of(work)->sources[s];
        float *tile = sums->tiles + s * CZ__WINDOW_TILE;
        if (!from) {
            sums->tile_sources[s] = NULL;
        } else if (sums->wide[s]) {
            sums->tile_sources[s] = from + begin * 4;
        } else {
            CZ_TRY(device->convert(NULL, CZ_F32, tile, dtype_of(work), from + begin * 2, count));
            sums->tile_sources[s] = tile;
        }
    }
    return CZ_OK;
}

/* To where elements are f32, or rounded. */
static cz_status reduce_wide(const cz_work *work, cz_reduction reduction, int sources,
                             int64_t count, bool narrow, char *out)
{
    const cz__partial_sums *sums = sums_of(work);
    const cz_device *device = work->group->device;
    float *result = sums->tiles + work->group->size * CZ__WINDOW_TILE;
    for (int64_t begin = 0; begin < count; begin += CZ__WINDOW_TILE) {
        const int64_t some = count - begin < CZ__WINDOW_TILE ? count - begin : CZ__WINDOW_TILE;
        CZ_TRY(widen(work, sources, begin, some));
        CZ_TRY(device->reduce(NULL, CZ_F32, reduction, sources, sums->tile_sources, some, CZ_F32,
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
                              cz__run_of(work)->sources, elements(work, bytes), dtype_of(work),
                              out);
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

static void place_sum(const cz_work *work, const cz__subtree *subtree, const char *sum)
{
    for (int k = 0; k < subtree->count; k++) {
        cz__run_of(work)->sources[subtree->first + k] = k == 0 ? sum : NULL;
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
    const cz__region *source = &work->operation.source;
    const void **sources = cz__region_sources(source, cz__run_of(work)->sources);
    for (int i = 0; i < here->rank_count; i++)
        cz__terms_place(source, here->ranks[i], leaf_data(work, round, here->ranks[i], me), bytes,
                        sources);
    if (topology->machine_count > 1)
        memset(sums_of(work)->wide, 0, (size_t)size * sizeof(bool));
    for (int m = 0; m < topology->machine_count; m++)
        if (m != topology->here)
            place_machine(work, round, &topology->machines[m], bytes);
    if (topology->machine_count > 1 && is_wide(work))
        return reduce_wide(work, reduction, size, elements(work, bytes),
                           work->operation.result != CZ_F32, result);
    return work->group->device->reduce(NULL, dtype_of(work), reduction,
                                       cz__region_source_count(source), sources,
                                       elements(work, bytes), work->operation.result, result);
}
