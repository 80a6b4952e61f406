/* SPDX-License-Identifier: MIT */
/* Into parts, as that many ranks would have saved them: elements cut evenly, in the order in which
 * the library cuts them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/generation.h"
#include "checkpoint/package.h"
#include "convert.h"
#include "shard/shard.h"
#include "tool.h"

/* ---- the map ---- */

typedef struct map_draft {
    int64_t *counts, *order, *begins, *units; /* owned */
    uint8_t *grouped;                         /* owned: is it the optimizer's? */
    int *owners;                              /* owned: of what granules leave */
    int64_t ranges;
    size_t element_size;
} map_draft;

static void draft_clear(map_draft *d)
{
    cz__free(d->counts);
    cz__free(d->order);
    cz__free(d->begins);
    cz__free(d->units);
    cz__free(d->grouped);
    cz__free(d->owners);
}

/* The old one in other pieces. False: it is none of even cuts. */
static bool follow(map_draft *d, const cz__index *from)
{
    const int64_t ranges = cz__shard_map_ranges(from->map, &d->element_size, NULL, NULL, 0);
    if (ranges < 0)
        return false;
    cz__free(d->begins);
    d->ranges = ranges;
    d->begins = cz__calloc((size_t)d->ranges, sizeof *d->begins);
    d->units = cz__calloc((size_t)d->ranges, sizeof *d->units);
    if (!d->units) {
        cz__free(d->begins);
        d->begins = NULL;
    }
    if (!d->begins)
        return false;
    (void)cz__shard_map_ranges(from->map, &d->element_size, d->begins, d->units, d->ranges);
    for (int64_t k = 0; k < from->param_count; k++)
        d->order[k] = cz__shard_map_listed(from->map, k);
    return true;
}

static void mark_members(map_draft *d, const cz__index *from, const cz_state_dict *group)
{
    const char *const *names;
    int64_t count;
    if (cz_state_dict_get_texts(group, "params", &names, &count) != CZ_OK)
        return;
    for (int64_t i = 0; i < count; i++) {
        const int64_t place = cz__index_find(from, names[i]);
        if (place >= 0 && place < from->param_count)
            d->grouped[place] = 1;
    }
}

static void mark_groups(map_draft *d, const cz__index *from)
{
    const cz_state_dict *groups, *group;
    if (cz_state_dict_kind(from->optimizer, "param_groups") != CZ_STATE_DICT ||
        cz_state_dict_get_dict(from->optimizer, "param_groups", &groups) != CZ_OK)
        return;
    for (int64_t g = 0; g < cz_state_dict_count(groups); g++) {
        const char *key = cz_state_dict_key(groups, g);
        if (cz_state_dict_kind(groups, key) == CZ_STATE_DICT &&
            cz_state_dict_get_dict(groups, key, &group) == CZ_OK)
            mark_members(d, from, group);
    }
}

/* The optimizer's parameters, the last one first, and then the others, in a range of their own;
 * without an optimizer all in order. */
static void lay_out(map_draft *d, const cz__index *from)
{
    int64_t count = 0;
    const int64_t params = from->param_count;
    mark_groups(d, from);
    d->element_size = params > 0 ? cz_dtype_size(from->stored[0].dtype) : 4;
    d->element_size = d->element_size > 0 ? d->element_size : 4;
    d->ranges = from->optimizer ? 2 : 1;
    for (int part = 1; part >= 0; part--) {
        if (from->optimizer)
            d->begins[1 - part] = count;
        for (int64_t k = 0; k < params; k++) {
            const int64_t p = from->optimizer ? params - 1 - k : k;
            if (d->grouped[p] == part)
                d->order[count++] = p;
        }
    }
}

static cz_status make_map(cz__index *index, const cz__index *from)
{
    const size_t params = (size_t)from->param_count;
    map_draft d = {.counts = cz__calloc(params, sizeof *d.counts),
                   .order = cz__calloc(params, sizeof *d.order),
                   .begins = cz__calloc(2, sizeof *d.begins),
                   .owners = cz__calloc(params, sizeof *d.owners),
                   .grouped = cz__calloc(params, 1)};
    cz_status status = CZ_ERR_MEMORY;
    if (!d.counts || !d.order || !d.begins || !d.grouped || !d.owners) {
        (void)cz_fail(status, "convert: no memory for tables of %zu parameters", params);
        goto done;
    }
    for (size_t p = 0; p < params; p++) {
        d.counts[p] = from->stored[p].count;
        d.owners[p] = -1;
    }
    const bool follows = follow(&d, from);
    if (!d.begins) {
        (void)cz_fail(status, "convert: no memory for a table of ranges");
        goto done;
    }
    if (!follows)
        lay_out(&d, from);
    const cz__cuts cuts = {d.order, d.ranges, d.begins, d.units, d.element_size, d.owners};
    status = cz__cuts_deal_remainders(&cuts, index->world_size, from->param_count, d.counts, NULL,
                                      d.owners);
    if (status == CZ_OK)
        status = cz__shard_map_create_cuts(&index->own_map, index->world_size, from->param_count,
                                           d.counts, &cuts);
done:
    index->map = index->own_map;
    draft_clear(&d);
    return status;
}

/* ---- the index ---- */

typedef struct last_number {
    int64_t number;
    cz__text left; /* a line for each that is not complete */
} last_number;

static cz_status take_number(const char *path, const cz__generation *g, void *context)
{
    last_number *last = context;
    if (g->number > last->number)
        last->number = g->number;
    if (!cz__generation_complete(g))
        cz__text_print(&last->left,
                       "note: %s was never completed, and stays: if nothing is writing it, it can "
                       "be removed\n",
                       path);
    return CZ_OK;
}

static cz_status choose_number(cz__index *index, const char *folder)
{
    uint8_t bits[16];
    last_number last = {0};
    const cz_status status = cz__generations_visit(folder, take_number, &last);
    tool_say(stderr, cz__text_get(&last.left));
    cz__text_clear(&last.left);
    CZ_TRY(status);
    if (last.number >= CZ__LAST_GENERATION)
        return cz_fail(CZ_ERR_IO, "%s has a generation %" PRId64 ", the last", folder, last.number);
    index->generation = last.number + 1;
    if (getrandom(bits, sizeof bits, 0) != (ssize_t)sizeof bits)
        return cz_fail(CZ_ERR_IO, "convert: no random numbers from the system");
    for (size_t i = 0; i < sizeof bits; i++)
        snprintf(index->id + 2 * i, 3, "%02x", bits[i]);
    return CZ_OK;
}

/* The same tensors at the same places; `optimizer` is lent by the old one. */
static cz_status make_index(cz__index *index, const conversion *c, const char *folder)
{
    const cz__index *from = &c->input->index;
    const int64_t count = from->param_count + from->buffer_count;
    index->world_size = c->ranks;
    index->step = from->step < 0 ? 0 : from->step;
    index->part_count = from->part_count;
    index->param_count = from->param_count;
    index->buffer_count = from->buffer_count;
    index->stored = cz__calloc((size_t)count, sizeof *index->stored);
    if (!index->stored)
        return cz_fail(CZ_ERR_MEMORY, "convert: no memory for a table of %" PRId64 " tensors",
                       count);
    for (int64_t i = 0; i < count; i++) {
        index->stored[i] = from->stored[i];
        index->stored[i].owner = -1;
    }
    index->metadata = json_incref(from->metadata);
    CZ_TRY(choose_number(index, folder));
    CZ_TRY(make_map(index, from));
    CZ_TRY(cz__index_deal_rest(index));
    index->optimizer = from->optimizer;
    return cz__index_complete(index);
}

/* ---- writing ---- */

typedef struct parting {
    conversion *c;
    cz__index index;
    cz__package_order order;
    cz_state_dict *common; /* owned */
    cz__package *leader;   /* owned: that of rank 0, which is complete last */
} parting;

static cz_status read_own(const parting *p, int rank, cz_state_dict **own)
{
    *own = NULL;
    return p->c->from->generation && rank < p->c->original->index.world_size
               ? cz__input_own(p->c->original, rank, own)
               : CZ_OK;
}

static cz_status prepare(parting *p, int rank, cz__package **package, cz_state_dict **own)
{
    CZ_TRY(read_own(p, rank, own));
    p->order.rank = rank;
    p->order.own = *own;
    return cz__package_create(package, &p->order);
}

static cz_status write_part(parting *p, int rank)
{
    cz__package *package = NULL;
    cz_state_dict *own = NULL;
    cz_status status = prepare(p, rank, &package, &own);
    if (status == CZ_OK)
        status = cz__package_write(package);
    if (status != CZ_OK && package)
        cz__package_discard(package);
    cz__package_destroy(&package);
    cz_state_dict_destroy(&own);
    return status;
}

/* Rank 0 makes the folder and holds its lock; its part and the index come last. */
static cz_status write_parts(parting *p, cz_state_dict **own)
{
    CZ_TRY(prepare(p, 0, &p->leader, own));
    if (!cz__text_print(&p->c->made, "%s", cz__package_path(p->leader)))
        return cz_fail(CZ_ERR_MEMORY, "convert: no memory for a path");
    if (!cz__package_leads(p->leader))
        return cz_fail(CZ_ERR_IO, "%s is there already: does a job save to this folder?",
                       cz__package_path(p->leader));
    for (int rank = p->index.world_size - 1; rank > 0; rank--)
        CZ_TRY(write_part(p, rank));
    return cz__package_write(p->leader);
}

static cz_status write_or_remove(parting *p)
{
    cz_state_dict *own = NULL;
    cz_status status = write_parts(p, &own);
    if (status != CZ_OK && p->leader && cz__package_leads(p->leader)) {
        const cz__sentence held = cz__sentence_hold();
        (void)cz__package_remove(p->leader);
        cz__sentence_resume(held);
    }
    cz__package_destroy(&p->leader);
    cz_state_dict_destroy(&own);
    return status;
}

static uint64_t all_bytes(const conversion *c)
{
    const cz__index *index = &c->input->index;
    uint64_t bytes = 0;
    for (int64_t i = 0; i < index->param_count + index->buffer_count; i++)
        bytes += convert_bytes(c, i, NULL) + convert_state_bytes(c, i);
    return bytes;
}

static void count_lost(conversion *c)
{
    const cz__input *input = c->original;
    if (c->from->generation)
        for (int k = c->ranks; k < input->index.world_size; k++)
            c->lost += json_object_size(json_object_get(input->parts[k].mark, "own")) > 0;
}

/* Each part is two files, and a millisecond or so, whatever it holds. */
enum { FEW_RANKS = 4096 };

static cz_status check_ranks(const conversion *c)
{
    const cz__index *index = &c->input->index;
    int64_t elements = 0;
    for (int64_t p = 0; p < index->param_count; p++)
        elements += index->stored[p].count;
    return c->ranks <= FEW_RANKS || c->ranks <= elements
               ? CZ_OK
               : cz_fail(CZ_ERR_ARGUMENT,
                         "--ranks %d: the parameters have %" PRId64
                         " elements, so most of the parts would have none; wanted at most %" PRId64,
                         c->ranks, elements, elements > FEW_RANKS ? elements : FEW_RANKS);
}

cz_status convert_to_parts(conversion *c)
{
    parting p = {.c = c};
    CZ_TRY(check_ranks(c));
    char *folder = cz__path_copy(c->to);
    if (!folder)
        return cz_fail(CZ_ERR_MEMORY, "convert: no memory for a path");
    cz_status status = make_index(&p.index, c, folder);
    if (status)
        goto done;
    status = cz__input_common(c->input, &p.common);
    if (status)
        goto done;
    p.order =
        (cz__package_order){.folder = folder,
                            .index = &p.index,
                            .source = {.input = c->input, .wrote = convert_wrote, .context = c},
                            .common = p.common};
    const bool is_new = access(folder, F_OK) != 0;
    progress_begin(&c->bar, "writing", all_bytes(c), c->quiet);
    count_lost(c);
    status = write_or_remove(&p);
    if (status && is_new)
        (void)rmdir(folder);
done:
    p.index.optimizer = NULL; /* the input's */
    cz__index_clear(&p.index);
    cz_state_dict_destroy(&p.common);
    cz__free(folder);
    return status;
}
