/* SPDX-License-Identifier: MIT */
/* What ranks had saved for themselves, read by others: from this rank's folder, or from whoever sees it. */
#include <string.h>

#include "base/float_mode.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "checkpoint/loading.h"
#include "group/collective.h"

/* `least`: the lowest rank that may be asked for. */
static cz_status check(const cz_checkpoint *c, const char *call, int rank, int least,
                       cz_state_dict **out)
{
    if (!c || !out)
        return cz__fail(CZ_ERR_ARGUMENT, "checkpoint %s: %s is NULL", call,
                        c ? "out" : "checkpoint");
    *out = NULL;
    if (!c->last)
        return cz__fail(CZ_ERR_STATE, "checkpoint %s: nothing was loaded or saved", call);
    if (rank < least || rank >= c->last_world_size)
        return cz__fail(CZ_ERR_ARGUMENT, "checkpoint %s: rank %d, it was saved by %d ranks", call,
                        rank, c->last_world_size);
    return CZ_OK;
}

static cz_status check_id(const cz_checkpoint *c, const cz__input *input)
{
    return strcmp(input->index.id, c->last_id) == 0
               ? CZ_OK
               : cz__fail(CZ_ERR_FORMAT, "%s: it is not the generation it was", c->last);
}

cz_status cz_checkpoint_read_own(cz_checkpoint *checkpoint, int rank, cz_state_dict **out)
{
    CZ__OWN_FLOATS;
    cz__input input;
    if (out)
        *out = NULL;
    CZ_TRY(check(checkpoint, "read_own", rank, 0, out));
    cz_status status = cz__input_open(&input, checkpoint->last);
    if (status == CZ_OK)
        status = check_id(checkpoint, &input);
    if (status == CZ_OK)
        status = cz__input_own(&input, rank, out);
    cz__input_close(&input);
    return status;
}

/* What each rank asks for is known. */
static cz_status fetch_each(cz__loading *l, const int32_t *wants)
{
    const int mine = wants[l->placement.rank];
    cz_status status = CZ_OK;
    if (mine >= 0 && cz__placement_sees(&l->placement, l->placement.rank, mine))
        status = cz__input_own(&l->input, mine, &l->own);
    CZ_TRY(cz__agree(l->checkpoint->group, status, 0, NULL, "checkpoint: own"));
    return l->placement.views ? cz__pass_own(l, wants) : CZ_OK;
}

static cz_status fetch(cz__loading *l, int32_t rank)
{
    const cz_checkpoint *c = l->checkpoint;
    CZ_TRY(cz__placement_parts(&l->placement, c->group, &l->input));
    int32_t *wants = cz__calloc((size_t)cz_group_size(c->group), sizeof *wants);
    cz_status status = wants ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "checkpoint: what ranks ask for");
    status = cz__agree(c->group, status, 0, NULL, "checkpoint: own");
    if (status == CZ_OK)
        status = cz_all_gather(c->group, &rank, wants, 1, CZ_I32, CZ_LABEL("checkpoint: own"));
    if (status == CZ_OK)
        status = fetch_each(l, wants);
    cz__free(wants);
    return status;
}

cz_status cz_checkpoint_fetch_own(cz_checkpoint *checkpoint, int rank, cz_state_dict **out)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (out)
        *out = NULL;
    if (!checkpoint)
        return check(NULL, "fetch_own", rank, -1, out);
    cz__loading l = {.checkpoint = checkpoint};
    cz_status status = check(checkpoint, "fetch_own", rank, -1, out);
    status = cz__loading_find(&l, checkpoint->last, status);
    bool same;
    if (status == CZ_OK)
        status = cz__agree_for(checkpoint->group, &checkpoint->object,
                               check_id(checkpoint, &l.input), 0, &same, "checkpoint: own");
    if (status == CZ_OK)
        status = fetch(&l, rank);
    if (status == CZ_OK) {
        *out = l.own;
        l.own = NULL;
    }
    cz__loading_clear(&l);
    return status;
}
