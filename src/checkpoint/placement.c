/* SPDX-License-Identifier: MIT */
/* Which rank sees what. As long as all see the same index in the same place, and all parts, that
 * costs nothing but one table, which deals out parts to verify in any case. */
#include <string.h>

#include "base/fingerprint.h"
#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/generation.h"
#include "checkpoint/input.h"
#include "checkpoint/loading.h"
#include "checkpoint/object.h"
#include "group/collective.h"

/* ---- who sees what ---- */

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
        all ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for what %d ranks see", ranks);
    status = cz__agree(group, status, 0, NULL, "checkpoint: indices");
    if (status)
        goto done;
    status = cz_all_gather(group, &own, all, 2, CZ_I64, CZ_LABEL("checkpoint: indices"));
    if (status)
        goto done;
    status = cz__say_alike(group, compare_indices(p, input, all, ranks));
done:
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
    if (!status)
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

/* And what this rank sees as a number: the same files have the same numbers on all machines that
 * share a folder, a copy has another one. */
static cz_status look_for_parts(const cz__placement *p, const cz__input *input, int size,
                                dealt_part *parts, uint64_t *view)
{
    cz__text path = {0};
    cz_status status = CZ_OK;
    *view = p->identity;
    for (int k = 0; k < input->index.world_size; k++) {
        uint64_t identity = 0;
        status = cz__part_path(&path, input->path, k, input->index.world_size, "json");
        if (!status)
            status = cz__file_identity(cz__text_get(&path), &identity);
        parts[k] = (dealt_part){INT32_MAX, 0};
        if (identity)
            parts[k] = (dealt_part){k % size == p->rank ? p->rank : p->rank + size, 1};
        *view = cz__fingerprint(*view, &identity, sizeof identity);
        if (status)
            break;
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
    cz_status status =
        views ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for what ranks see");
    status = cz__agree(group, status, 0, NULL, "checkpoint: views");
    if (!status)
        status = cz_all_gather(group, &own, views, 1, CZ_I64, CZ_LABEL("checkpoint: views"));
    if (!status)
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
    CZ_TRY(cz__agree(group, look_for_parts(p, input, size, parts, &view), 0, NULL,
                     "checkpoint: paths"));
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
    cz_status status = parts && p->readers
                           ? CZ_OK
                           : cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a table of parts");
    status = cz__agree(group, status, 0, NULL, "checkpoint: parts");
    if (!status)
        status = deal_parts(p, group, input, parts);
    cz__free(parts);
    return status;
}

/* ---- dictionaries to those that do not see them ---- */
/* A dictionary's file from the rank that sees it to one that does not, or to all: first its head,
 * which is read there as if the file had been opened, then the tensors' elements in blocks. */

enum { BLOCK = 1 << 20 };

typedef struct passage {
    cz__loading *loading;
    cz_group *group;
    char *block;     /* owned, as the next two */
    int64_t *counts; /* to, and from, each rank: all 0 between calls */
    /* the file on its way */
    int part, from, to; /* part -1: the common dictionary; `to` -1: all ranks */
    bool receives;      /* this rank wants it */
    cz_state_dict **out;
    char *head; /* owned: the mark, then the header */
    struct {
        int64_t mark, header, file, begin, end; /* bytes; the last two: of the data */
    } size;
    cz__input_file file; /* as it comes; owned */
    cz_status mine;      /* what is wrong on this rank; the others get it with the next block */
} passage;

/* ---- a block ---- */

static cz_status pass_block(passage *p, size_t count)
{
    const int rank = cz_group_rank(p->group), size = cz_group_size(p->group);
    if (p->to < 0) {
        CZ_TRY(cz__agree(p->group, p->mine, 0, NULL, "checkpoint: dictionary"));
        return cz_broadcast(p->group, p->block, (int64_t)count, CZ_U8, p->from,
                            CZ_LABEL("checkpoint: dictionary"));
    }
    if (rank == p->from)
        p->counts[p->to] = (int64_t)count;
    if (rank == p->to)
        p->counts[size + p->from] = (int64_t)count;
    const cz__blocks blocks = {.input = p->block,
                               .send_counts = p->counts,
                               .output = p->block,
                               .receive_counts = p->counts + size,
                               .mine = p->mine};
    const cz_status status =
        cz__exchange_blocks(p->group, &blocks, CZ_U8, CZ_LABEL("checkpoint: dictionary"));
    p->counts[p->to] = p->counts[size + p->from] = 0;
    return status;
}

/* Fill the block with `count` bytes from `offset` on, or take them out of it. */
typedef cz_status (*handling)(passage *p, uint64_t offset, size_t count);

static cz_status pass_all(passage *p, int64_t bytes, handling fill, handling take)
{
    for (int64_t at = 0; at < bytes; at += BLOCK) {
        const size_t count = (size_t)(bytes - at < BLOCK ? bytes - at : BLOCK);
        if (cz_group_rank(p->group) == p->from && p->mine == CZ_OK)
            p->mine = fill(p, (uint64_t)at, count);
        CZ_TRY(pass_block(p, count));
        if (p->receives && p->mine == CZ_OK)
            p->mine = take(p, (uint64_t)at, count);
    }
    return CZ_OK;
}

static cz_status fill_head(passage *p, uint64_t offset, size_t count)
{
    memcpy(p->block, p->head + offset, count);
    return CZ_OK;
}

static cz_status take_head(passage *p, uint64_t offset, size_t count)
{
    memcpy(p->head + offset, p->block, count);
    return CZ_OK;
}

static const cz__input_file *file_here(const passage *p)
{
    return p->part < 0 ? &p->loading->input.common : &p->loading->input.parts[p->part];
}

static cz_status fill_data(passage *p, uint64_t offset, size_t count)
{
    const cz__input_file *file = file_here(p);
    return cz__reader_read(
        file->reader, cz__safetensors_data_begin(file->header) + (uint64_t)p->size.begin + offset,
        p->block, count);
}

static cz_status take_data(passage *p, uint64_t offset, size_t count)
{
    cz__input_file_come(&p->file, (uint64_t)p->size.begin + offset, p->block, count);
    return CZ_OK;
}

/* ---- a file ---- */

/* `mark` and `count`: of the file beside, NULL and 0 where there is none. */
static cz_status make_head(passage *p, const cz__input_file *file, const char *mark, size_t count)
{
    uint64_t begin, end;
    const uint64_t header = cz__safetensors_data_begin(file->header);
    cz__input_file_region(file, p->part >= 0, &begin, &end);
    p->size.mark = (int64_t)count;
    p->size.header = (int64_t)header;
    p->size.file = (int64_t)cz__reader_bytes(file->reader);
    p->size.begin = (int64_t)begin;
    p->size.end = (int64_t)end;
    if (!(p->head = cz__allocate(CZ_MEMORY_STAGING, count + (size_t)header)))
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory for its header", file->path);
    if (count > 0)
        memcpy(p->head, mark, count);
    return cz__reader_read(file->reader, 0, p->head + count, (size_t)header);
}

static cz_status open_source(passage *p)
{
    cz__input *input = &p->loading->input;
    if (p->part < 0)
        return make_head(p, &input->common, NULL, 0);
    cz__text path = {0};
    char *mark = NULL;
    size_t count = 0;
    cz_status status = cz__input_open_part(input, p->part);
    if (status)
        goto done;
    status = cz__part_path(&path, input->path, p->part, input->index.world_size, "json");
    if (status)
        goto done;
    status = cz__file_read(cz__text_get(&path), (size_t)1 << 30, &mark, &count);
    if (status)
        goto done;
    status = make_head(p, &input->parts[p->part], mark, count);
done:
    cz__text_clear(&path);
    cz__free(mark);
    return status;
}

static cz_status have_head(passage *p)
{
    p->head = cz__allocate(CZ_MEMORY_STAGING, (size_t)(p->size.mark + p->size.header));
    return p->head ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a header");
}

static cz_status read_head(passage *p)
{
    cz__input *input = &p->loading->input;
    const cz__file_head head = {.mark = p->head,
                                .header = p->head + p->size.mark,
                                .mark_bytes = (size_t)p->size.mark,
                                .header_bytes = (size_t)p->size.header,
                                .file_bytes = (uint64_t)p->size.file};
    CZ_TRY(cz__input_file_from_head(&p->file, input, p->part, &head));
    return p->part < 0 ? cz__input_common_dict(input, &p->file, p->out)
                       : cz__input_own_dict(&p->file, p->out);
}

static cz_status pass_opened(passage *p)
{
    CZ_TRY(cz__agree(p->group, p->mine, 0, NULL, "checkpoint: dictionary"));
    CZ_TRY(cz_broadcast(p->group, &p->size, sizeof p->size / sizeof(int64_t), CZ_I64, p->from,
                        CZ_LABEL("checkpoint: dictionary")));
    if (p->receives)
        p->mine = have_head(p);
    CZ_TRY(pass_all(p, p->size.mark + p->size.header, fill_head, take_head));
    if (p->receives && p->mine == CZ_OK)
        p->mine = read_head(p);
    CZ_TRY(pass_all(p, p->size.end - p->size.begin, fill_data, take_data));
    if (p->receives && p->mine == CZ_OK)
        p->mine = cz__input_file_check_late(&p->file);
    return cz__agree(p->group, p->mine, 0, NULL, "checkpoint: dictionary");
}

static cz_status pass_file(passage *p, int part, int from, int to, bool receives,
                           cz_state_dict **out)
{
    p->part = part;
    p->from = from;
    p->to = to;
    p->receives = receives;
    p->out = out;
    p->mine = cz_group_rank(p->group) == from ? open_source(p) : CZ_OK;
    const cz_status status = pass_opened(p);
    cz__input_file_clear(&p->file);
    cz__free(p->head);
    p->head = NULL;
    return status;
}

/* ---- all of them ---- */

static cz_status pass_common(passage *p)
{
    cz__loading *l = p->loading;
    if (!l->placement.some_lack || !cz__input_common_file(&l->input))
        return CZ_OK;
    return pass_file(p, -1, l->placement.index_rank, -1, !l->placement.identity, &l->common);
}

/* `wants` NULL: each rank its own. */
static cz_status pass_each(passage *p, const int32_t *wants)
{
    cz__loading *l = p->loading;
    const cz__placement *placement = &l->placement;
    for (int r = 0; r < cz_group_size(p->group); r++) {
        const int part = wants ? wants[r] : r;
        if (part >= 0 && part < l->input.index.world_size &&
            !cz__placement_sees(placement, r, part))
            CZ_TRY(pass_file(p, part, placement->readers[part], r, r == placement->rank, &l->own));
    }
    return CZ_OK;
}

static cz_status have_memory(passage *p)
{
    p->block = cz__allocate(CZ_MEMORY_STAGING, BLOCK);
    p->counts = cz__calloc(2 * (size_t)cz_group_size(p->group), sizeof *p->counts);
    return p->block && p->counts
               ? CZ_OK
               : cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a block of %d bytes", BLOCK);
}

static cz_status pass(cz__loading *l, bool common, const int32_t *wants)
{
    passage p = {.loading = l, .group = l->checkpoint->group};
    cz_status status = cz__agree(p.group, have_memory(&p), 0, NULL, "checkpoint: dictionaries");
    if (status)
        goto done;
    if (common)
        status = pass_common(&p);
    if (status)
        goto done;
    status = pass_each(&p, wants);
done:
    cz__free(p.counts);
    cz__free(p.block);
    return status;
}

cz_status cz__pass_dictionaries(cz__loading *l)
{
    return pass(l, true, NULL);
}

cz_status cz__pass_own(cz__loading *l, const int32_t *wants)
{
    return pass(l, false, wants);
}
