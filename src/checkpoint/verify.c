/* SPDX-License-Identifier: MIT */
/* Opening a generation: the index on all ranks, each part verified by one of them, the
 * dictionaries. */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/input.h"
#include "checkpoint/loading.h"
#include "group/collective.h"

/* ---- the index ---- */

static cz_status identify(const char *generation, uint64_t *identity)
{
    cz__text path = {0};
    cz_status status = cz__index_path(&path, generation);
    if (!status)
        status = cz__file_identity(cz__text_get(&path), identity);
    cz__text_clear(&path);
    return status;
}

/* Or only its name, where there is none here. */
static cz_status open_here(cz__loading *l, const char *path, uint64_t *identity)
{
    CZ_TRY(identify(path, identity));
    return *identity ? cz__input_open(&l->input, path) : cz__input_name(&l->input, path);
}

cz_status cz__loading_find(cz__loading *l, const char *path, cz_status mine)
{
    uint64_t identity = 0;
    if (mine == CZ_OK)
        mine = open_here(l, path, &identity);
    return cz__placement_index(&l->placement, l->checkpoint->group, &l->input, mine, identity);
}

/* ---- all of it ---- */

/* Alike on all ranks: it is the same index. */
static cz_status check_names(const cz__loading *l, const cz__generation *g)
{
    const cz__index *index = &l->input.index;
    if (index->generation == g->number && index->step == g->step &&
        index->world_size == g->world_size)
        return CZ_OK;
    return cz__fail(CZ_ERR_FORMAT,
                    "%s/index.json: it is of generation %" PRId64 ", step %" PRId64 " and %d ranks",
                    l->input.path, index->generation, index->step, index->world_size);
}

static cz_status find_generation(cz__loading *l, const cz__generation *g)
{
    cz__text path = {0};
    cz_status status = cz__generation_path(&path, l->checkpoint->folder, g->number, g->step);
    status = cz__loading_find(l, cz__text_get(&path), status);
    cz__text_clear(&path);
    CZ_TRY(status);
    CZ_TRY(cz__say_alike(l->checkpoint->group, check_names(l, g)));
    return cz__placement_parts(&l->placement, l->checkpoint->group, &l->input);
}

static cz_status verify_own(cz__loading *l)
{
    for (int k = 0; k < l->input.index.world_size; k++)
        if (l->placement.readers[k] == l->placement.rank)
            CZ_TRY(cz__input_verify(&l->input, k));
    return CZ_OK;
}

/* What one rank has verified, others read: all get the checksums of all blocks. */
static cz_status share_tables(cz__loading *l, const int64_t *counts, uint64_t *all, int64_t total)
{
    cz__input *input = &l->input;
    uint64_t *at = all;
    for (int k = 0; k < input->index.world_size; at += counts[k++])
        if (l->placement.readers[k] == l->placement.rank && counts[k] > 0)
            memcpy(at, input->blocks[k].sums, (size_t)counts[k] * sizeof *all);
    CZ_TRY(cz_all_reduce(l->checkpoint->group, all, total, CZ_I64, CZ_SUM,
                         CZ_LABEL("checkpoint: blocks")));
    cz_status status = CZ_OK;
    at = all;
    for (int k = 0; k < input->index.world_size; at += counts[k++]) {
        cz__block_table *blocks = &input->blocks[k];
        if (blocks->sums)
            continue;
        blocks->sums = cz__calloc((size_t)counts[k] + 1, sizeof *blocks->sums);
        blocks->count = counts[k];
        if (blocks->sums)
            memcpy(blocks->sums, at, (size_t)counts[k] * sizeof *all);
        else
            status = cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for checksums of blocks");
        if (status)
            break;
    }
    return cz__agree(l->checkpoint->group, status, 0, NULL, "checkpoint: blocks");
}

static cz_status share_blocks(cz__loading *l)
{
    const int ranks = l->input.index.world_size;
    cz_group *group = l->checkpoint->group;
    int64_t total = 0;
    uint64_t *all = NULL;
    if (cz_group_size(group) == 1)
        return CZ_OK;
    int64_t *counts = cz__calloc((size_t)ranks, sizeof *counts);
    cz_status status =
        counts ? cz__input_have_blocks(&l->input)
               : cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for checksums of blocks");
    if (!status)
        for (int k = 0; k < ranks; k++)
            counts[k] = l->input.blocks[k].count;
    status = cz__agree(group, status, 0, NULL, "checkpoint: blocks");
    if (status)
        goto done;
    status = cz_all_reduce(group, counts, ranks, CZ_I64, CZ_MAX, CZ_LABEL("checkpoint: blocks"));
    if (status)
        goto done;
    for (int k = 0; k < ranks; k++)
        total += counts[k];
    all = cz__calloc((size_t)total + 1, sizeof *all);
    status = all ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for checksums of blocks");
    status = cz__agree(group, status, 0, NULL, "checkpoint: blocks");
    if (!status)
        status = share_tables(l, counts, all, total);
done:
    cz__free(counts);
    cz__free(all);
    return status;
}

/* Those that are here. */
static cz_status read_dictionaries(cz__loading *l)
{
    const int rank = l->placement.rank;
    const bool common =
        !l->placement.some_lack || l->placement.identity || !cz__input_common_file(&l->input);
    if (common)
        CZ_TRY(cz__input_common(&l->input, &l->common));
    if (rank >= l->input.index.world_size || !cz__placement_sees(&l->placement, rank, rank))
        return CZ_OK;
    return cz__input_own(&l->input, rank, &l->own);
}

/* Of the parts the marks and headers, which say how long the files are, and the common dictionary's
 * file. */
static cz_status confirm_own(cz__loading *l)
{
    const json_t *common = cz__input_common_file(&l->input);
    for (int k = 0; k < l->input.index.world_size; k++)
        if (l->placement.readers[k] == l->placement.rank)
            CZ_TRY(cz__input_part(&l->input, k));
    return common && l->placement.identity
               ? cz__input_file_open_common(&l->input.common, &l->input, common)
               : CZ_OK;
}

cz_status cz__loading_confirm(cz__loading *l, const cz__generation *g)
{
    CZ_TRY(find_generation(l, g));
    return cz__agree(l->checkpoint->group, confirm_own(l), 0, NULL, "checkpoint: confirm");
}

cz_status cz__loading_open(cz__loading *l, const cz__generation *g)
{
    CZ_TRY(find_generation(l, g));
    cz_status status = verify_own(l);
    if (!status)
        status = read_dictionaries(l);
    CZ_TRY(cz__agree(l->checkpoint->group, status, 0, NULL, "checkpoint: verify"));
    CZ_TRY(share_blocks(l));
    return l->placement.views ? cz__pass_dictionaries(l) : CZ_OK;
}
