/* SPDX-License-Identifier: MIT */
/* Opening a generation: the index on all ranks, each part verified by one of them, the dictionaries. */
#include <inttypes.h>

#include "base/status.h"
#include "checkpoint/input_file.h"
#include "checkpoint/loading.h"
#include "checkpoint/passing.h"
#include "group/collective.h"

/* ---- the index ---- */

static cz_status identify(const char *generation, uint64_t *identity)
{
    cz__text path = {0};
    cz_status status = cz__index_path(&path, generation);
    if (status == CZ_OK)
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

static cz_status find(cz__loading *l, const cz__generation *g)
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

/* Of the parts the marks and headers, which say how long the files are, and the common dictionary's file. */
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
    CZ_TRY(find(l, g));
    return cz__agree(l->checkpoint->group, confirm_own(l), 0, NULL, "checkpoint: confirm");
}

cz_status cz__loading_open(cz__loading *l, const cz__generation *g)
{
    CZ_TRY(find(l, g));
    cz_status status = verify_own(l);
    if (status == CZ_OK)
        status = read_dictionaries(l);
    CZ_TRY(cz__agree(l->checkpoint->group, status, 0, NULL, "checkpoint: verify"));
    return l->placement.views ? cz__pass_dictionaries(l) : CZ_OK;
}
