/* SPDX-License-Identifier: MIT */
/* Sums of which parts were made on other machines. A leader adds up each subtree of its machine;
 * the owner takes that sum in the place of the subtree's first rank, and in the places of the
 * others what changes nothing, so the tree gives the bits that it gives where all ranks are at
 * hand. Sums of 16-bit types stay f32 until the end. */
#include <string.h>

#include "base/status.h"
#include "group/node.h"

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

static size_t subtree_bytes(const cz_work *work, const cz__subtree *subtree, size_t segment_bytes)
{
    return subtree->count > 1 && is_wide(work) ? 2 * segment_bytes : segment_bytes;
}

/* From one sum to the next in a message: each is aligned. */
static size_t stride(const cz_work *work, const cz__subtree *subtree, size_t segment_bytes)
{
    const size_t ALIGNMENT = 8;
    const size_t bytes = subtree_bytes(work, subtree, segment_bytes);
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

size_t cz__node_sums_bytes(const cz_work *work, const cz__machine *machine, size_t segment_bytes)
{
    const int last = machine->subtree_count - 1;
    size_t bytes = subtree_bytes(work, &machine->subtrees[last], segment_bytes);
    for (int i = 0; i < last; i++)
        bytes += stride(work, &machine->subtrees[i], segment_bytes);
    return bytes;
}

/* What rank r, of this machine, has of a stream. */
static const char *leaf_data(const cz_work *work, uint32_t round, int r, int stream)
{
    return r == work->group->rank ? cz__node_leaf(work, round, stream)->data
                                  : cz__window_slot(work, r, round, stream);
}

/* ---- 16 bits: in tiles, as f32 ---- */

/* Of each source elements [begin, begin + count) as f32; NULL: neutral ones. */
static cz_status widen(const cz_work *work, int sources, int64_t begin, int64_t count)
{
    const cz__node *node = work->group->window->node;
    const cz_device *device = work->group->device;
    for (int s = 0; s < sources; s++) {
        const char *from = cz__run_of(work)->sources[s];
        float *tile = node->tiles + s * CZ__NODE_TILE;
        if (!from)
            node->tile_sources[s] = node->tiles + (node->size + 1) * CZ__NODE_TILE;
        else if (node->wide[s])
            node->tile_sources[s] = from + begin * 4;
        else
            CZ_TRY(device->convert(NULL, CZ_F32, tile, dtype_of(work), from + begin * 2, count));
        if (from && !node->wide[s])
            node->tile_sources[s] = tile;
    }
    return CZ_OK;
}

static cz_status reduce_wide(const cz_work *work, cz_reduction reduction, int sources,
                             int64_t count, bool narrow, char *out)
{
    const cz__node *node = work->group->window->node;
    const cz_device *device = work->group->device;
    float *result = node->tiles + node->size * CZ__NODE_TILE, *neutral = result + CZ__NODE_TILE;
    CZ_TRY(device->fill(NULL, CZ_F32, reduction == CZ_PRODUCT ? 1 : -0.0, CZ__NODE_TILE, neutral));
    for (int64_t begin = 0; begin < count; begin += CZ__NODE_TILE) {
        const int64_t some = count - begin < CZ__NODE_TILE ? count - begin : CZ__NODE_TILE;
        CZ_TRY(widen(work, sources, begin, some));
        CZ_TRY(device->reduce(NULL, CZ_F32, reduction, sources, node->tile_sources, some,
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
    cz__node *node = work->group->window->node;
    const cz_device *device = work->group->device;
    if (subtree->count == 1)
        return device->copy(NULL, out, cz__run_of(work)->sources[0], bytes);
    if (!is_wide(work))
        return device->reduce(NULL, dtype_of(work), partial_of(work), subtree->count,
                              cz__run_of(work)->sources, elements(work, bytes), out);
    memset(node->wide, 0, (size_t)subtree->count * sizeof *node->wide);
    return reduce_wide(work, partial_of(work), subtree->count, elements(work, bytes), false, out);
}

cz_status cz__node_add_up(cz_work *work, uint32_t round, int duty, const char **sums)
{
    const cz__node *node = work->group->window->node;
    const cz__machine *here = &node->machines[node->here];
    const int owner = node->duties[duty], me = work->group->rank;
    const cz__leaf *leaf = cz__node_leaf(work, round, owner);
    char *out = cz__window_slot(work, me, round, cz__node_slot_of_sums(node, duty));
    *sums = here->rank_count == 1 ? leaf->data : out;
    for (int i = 0; i < here->subtree_count && here->rank_count > 1; i++) {
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
    cz__node *node = work->group->window->node;
    const bool product = partial_of(work) == CZ_PRODUCT;
    const int kind = 2 * (int)dtype_of(work) + product + 1;
    const size_t size = work->operation.source.element_size;
    if (node->neutral_kind == kind)
        return node->neutral;
    for (size_t at = 0; at + size <= work->group->window->slot_bytes; at += size)
        set_element(dtype_of(work), product, node->neutral + at);
    node->neutral_kind = kind;
    return node->neutral;
}

/* `sum` in the place of a subtree. What is no arithmetic may be taken twice. */
static void place_sum(const cz_work *work, const cz__subtree *subtree, const char *sum)
{
    const cz__node *node = work->group->window->node;
    const char *rest = sum;
    if (is_arithmetic(work))
        rest = is_wide(work) ? NULL : neutral(work);
    for (int k = 0; k < subtree->count; k++) {
        cz__run_of(work)->sources[subtree->first + k] = k == 0 ? sum : rest;
        node->wide[subtree->first + k] = subtree->count > 1;
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

cz_status cz__node_reduce(cz_work *work, uint32_t round, char *result)
{
    const cz__node *node = work->group->window->node;
    const int size = node->size, me = work->group->rank;
    const size_t bytes = cz__node_leaf(work, round, me)->bytes;
    const cz_reduction reduction = (cz_reduction)work->operation.header.reduction;
    for (int m = 0; m < node->machine_count; m++)
        if (m != node->here)
            place_machine(work, round, &node->machines[m], bytes);
    for (int i = 0; i < node->machines[node->here].rank_count; i++) {
        const int r = node->machines[node->here].ranks[i];
        cz__run_of(work)->sources[r] = leaf_data(work, round, r, me);
        node->wide[r] = false;
    }
    return is_wide(work) ? reduce_wide(work, reduction, size, elements(work, bytes), true, result)
                         : work->group->device->reduce(NULL, dtype_of(work), reduction, size,
                                                       cz__run_of(work)->sources,
                                                       elements(work, bytes), result);
}
