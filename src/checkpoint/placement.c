/* SPDX-License-Identifier: MIT */
/* Which rank sees what. As long as all see the same index in the same place, and all parts, that costs nothing but one
 * table, which deals out parts to verify in any case. */
#include "base/fingerprint.h"
#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/generation.h"
#include "checkpoint/object.h"
#include "checkpoint/placement.h"
#include "group/collective.h"

void cz__placement_clear(cz__placement *placement)
{
    cz__free(placement->readers);
    cz__free(placement->views);
    *placement = (cz__placement){0};
}

/* ---- the index ---- */

typedef struct seen_index {
    uint64_t there, print;
} seen_index;

/* Who has it, and is it the same? Alike on all ranks. */
static cz_status compare_indices(cz__placement *p, const cz__input *input, const seen_index *all,
                                 int ranks)
{
    p->index_rank = -1;
    for (int r = 0; r < ranks; r++) {
        if (!all[r].there)
            p->some_lack = true;
        else if (p->index_rank < 0)
            p->index_rank = r;
        else if (all[r].print != all[p->index_rank].print)
            return cz__fail(CZ_ERR_FORMAT,
                            "%s: ranks see indices of different saves: rank %d not that of rank %d",
                            input->path, r, p->index_rank);
    }
    return p->index_rank >= 0
               ? CZ_OK
               : cz__fail(CZ_ERR_FORMAT, "%s/index.json: no rank can find it", input->path);
}

static cz_status find_indices(cz__placement *p, cz_group *group, const cz__input *input)
{
    const int ranks = cz_group_size(group);
    const seen_index own = {p->identity != 0,
                            p->identity ? cz__fingerprint(0, input->index.id, 32) : 0};
    seen_index *all = cz__calloc((size_t)ranks, sizeof *all);
    cz_status status =
        all ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "checkpoint: what %d ranks see", ranks);
    status = cz__agree(group, status, 0, NULL, "checkpoint: indices");
    if (status == CZ_OK)
        status = cz_all_gather(group, &own, all, 2, CZ_I64, CZ_LABEL("checkpoint: indices"));
    if (status == CZ_OK)
        status = cz__say_alike(group, compare_indices(p, input, all, ranks));
    cz__free(all);
    return status;
}

static cz_status send_index(cz__placement *p, cz_group *group, cz__input *input)
{
    char *bytes = NULL;
    void *sent = NULL;
    size_t count = 0, received = 0;
    cz_status status = CZ_OK;
    if (p->rank == p->index_rank)
        status = cz__input_index_bytes(input, &bytes, &count);
    status = cz__agree(group, status, 0, NULL, "checkpoint: index");
    if (status == CZ_OK)
        status = cz_broadcast_object(group, bytes, count, p->index_rank, &sent, &received);
    cz__free(bytes);
    CZ_TRY(status);
    if (!p->identity)
        status = cz__input_parse(input, sent, received);
    cz_object_free(sent);
    return cz__agree(group, status, 0, NULL, "checkpoint: index");
}

cz_status cz__placement_index(cz__placement *p, cz_group *group, cz__input *input, cz_status mine,
                              uint64_t identity)
{
    uint64_t print = 0;
    p->rank = cz_group_rank(group);
    p->identity = identity;
    if (mine == CZ_OK && p->identity)
        print = cz__fingerprint(identity, input->index.id, 32);
    CZ_TRY(cz__agree(group, mine, print, &p->one_folder, "checkpoint: index"));
    if (p->one_folder && p->identity)
        return CZ_OK;
    CZ_TRY(find_indices(p, group, input));
    return p->some_lack ? send_index(p, group, input) : CZ_OK;
}

/* ---- parts ---- */

/* What ranks find out together about a part: the least of all. */
typedef struct dealt_part {
    int32_t reader; /* rank, if it sees its own share; rank + world size, if it sees another's */
    int32_t seen;
} dealt_part;

/* And what this rank sees as a number: the same files have the same numbers on all machines that share a folder, a copy
 * has another one. */
static cz_status look(const cz__placement *p, const cz__input *input, int size, dealt_part *parts,
                      uint64_t *view)
{
    cz__text path = {0};
    cz_status status = CZ_OK;
    *view = p->identity;
    for (int k = 0; status == CZ_OK && k < input->index.world_size; k++) {
        uint64_t identity = 0;
        status = cz__part_path(&path, input->path, k, input->index.world_size, "json");
        if (status == CZ_OK)
            status = cz__file_identity(cz__text_get(&path), &identity);
        parts[k] = (dealt_part){INT32_MAX, 0};
        if (identity)
            parts[k] = (dealt_part){k % size == p->rank ? p->rank : p->rank + size, 1};
        *view = cz__fingerprint(*view, &identity, sizeof identity);
    }
    cz__text_clear(&path);
    return status;
}

static cz_status deal(cz__placement *p, const cz__input *input, int size, const dealt_part *parts,
                      bool *everywhere)
{
    const int count = input->index.world_size;
    for (int k = 0; k < count; k++) {
        if (parts[k].reader == INT32_MAX)
            return cz__fail(CZ_ERR_FORMAT, "%s/rank-%05d-of-%05d.json: no rank can find it",
                            input->path, k, count);
        p->readers[k] = parts[k].reader % size;
        *everywhere = *everywhere && parts[k].seen;
    }
    return CZ_OK;
}

/* Ranks with the same view see the same files, if not by chance. */
static cz_status compare_views(cz__placement *p, cz_group *group, uint64_t own)
{
    uint64_t *views = cz__calloc((size_t)cz_group_size(group), sizeof *views);
    cz_status status = views ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "checkpoint: what ranks see");
    status = cz__agree(group, status, 0, NULL, "checkpoint: views");
    if (status == CZ_OK)
        status = cz_all_gather(group, &own, views, 1, CZ_I64, CZ_LABEL("checkpoint: views"));
    if (status == CZ_OK)
        p->views = views;
    else
        cz__free(views);
    return status;
}

static cz_status deal_parts(cz__placement *p, cz_group *group, const cz__input *input,
                            dealt_part *parts)
{
    const int count = input->index.world_size, size = cz_group_size(group);
    bool everywhere = true;
    uint64_t view;
    CZ_TRY(cz__agree(group, look(p, input, size, parts, &view), 0, NULL, "checkpoint: paths"));
    CZ_TRY(cz_all_reduce(group, parts, 2 * (int64_t)count, CZ_I32, CZ_MIN,
                         CZ_LABEL("checkpoint: parts")));
    CZ_TRY(cz__say_alike(group, deal(p, input, size, parts, &everywhere)));
    return p->one_folder && everywhere ? CZ_OK : compare_views(p, group, view);
}

cz_status cz__placement_parts(cz__placement *p, cz_group *group, const cz__input *input)
{
    const size_t count = (size_t)input->index.world_size;
    dealt_part *parts = cz__calloc(count, sizeof *parts);
    p->readers = cz__calloc(count, sizeof *p->readers);
    cz_status status =
        parts && p->readers ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "checkpoint: a table of parts");
    status = cz__agree(group, status, 0, NULL, "checkpoint: parts");
    if (status == CZ_OK)
        status = deal_parts(p, group, input, parts);
    cz__free(parts);
    return status;
}
