/* SPDX-License-Identifier: MIT */
/* Elements from the ranks that see a file to those that need them. All ranks walk what is loaded in
 * one order, and know who owns an element here, whose part has it and who reads that part; so a
 * window of the walk is one all-to-all whose counts each rank works out by itself. What a rank sees
 * itself it reads itself. */
#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/loading.h"
#include "group/collective.h"
#include "tensor/model.h"
#include "shard/shard.h"

/* ---- from the files ---- */
/* Elements to where they belong here: from the files, or from memory in the type of the file. */

enum { BLOCK = 64 * 1024, IN_BLOCK = BLOCK / 8 /* elements of any type */ };

const cz_state_dict *cz__restore_entry(const cz__loading *l, int64_t place)
{
    const cz_state_dict *outline = l->adapted ? l->adapted : l->input.index.optimizer;
    const cz_state_dict *entries, *entry;
    if (!l->state || cz_state_dict_get_dict(outline, "state", &entries) != CZ_OK ||
        cz_state_dict_kind(entries, l->here.stored[place].name) != CZ_STATE_DICT ||
        cz_state_dict_get_dict(entries, l->here.stored[place].name, &entry) != CZ_OK)
        return NULL;
    return entry;
}

bool cz__restore_takes(const cz__loading *l, int64_t place, const cz_state_dict *entry,
                       const char *slot)
{
    return cz_state_dict_kind(entry, slot) == CZ_STATE_TEXT &&
           (strcmp(slot, CZ__AVERAGE) != 0 ||
            cz__optim_has_slot(l->checkpoint->optim, place, slot));
}

/* ---- masters ---- */
/* What has a master there and none here brings it to the value, which then is exact; what has none
 * there, and a value of more bits than here, gets its master from that. */

const char *cz__restore_slot_in_file(const cz__loading *l, int64_t place, const char *slot)
{
    const char *text;
    if (slot && strcmp(slot, CZ__MASTER) == 0 &&
        cz_state_dict_get_text(cz__restore_entry(l, place), slot, &text) == CZ_OK &&
        strcmp(text, CZ__MASTER_FROM_VALUE) == 0)
        return NULL;
    return slot;
}

static const char *slot_here(const cz__loading *l, int64_t place, const char *slot)
{
    return slot && strcmp(slot, CZ__MASTER) == 0 &&
                   !cz__optim_has_master(l->checkpoint->optim, place)
               ? NULL
               : slot;
}

static cz_dtype type_in_file(const cz__loading *l, int64_t place, const char *slot)
{
    const char *there = cz__restore_slot_in_file(l, place, slot);
    return cz__type_in_memory(cz__index_dtype(&l->input.index, l->comparison.from[place], there));
}

cz_dtype cz__restore_type_here(const cz__loading *l, int64_t place, const char *slot)
{
    const char *here = slot_here(l, place, slot);
    return here ? cz__contents_slot_dtype(l->checkpoint, place, here) : l->here.stored[place].dtype;
}

/* ---- elements ---- */

/* Where elements [begin, end) go; NULL if there are none. */
static cz_status find_target(const cz__loading *l, int64_t place, const char *slot, int64_t begin,
                             int64_t end, char **to)
{
    slot = slot_here(l, place, slot);
    *to = cz__contents_address(l->checkpoint, place, slot, begin);
    if (*to || begin == end)
        return CZ_OK;
    return cz__fail(CZ_ERR_INTERNAL, "checkpoint: no memory for '%.60s' of '%.60s'",
                    slot ? slot : "the value", l->here.stored[place].name);
}

/* A block at most, of the type in the file, to any device's memory. */
static cz_status put_block(const cz__loading *l, int64_t place, const char *slot, char *to,
                           const char *block, int64_t count)
{
    char converted[BLOCK];
    const cz_dtype from = type_in_file(l, place, slot);
    const cz_dtype dtype = cz__restore_type_here(l, place, slot);
    if (from != dtype)
        cz__convert(dtype, converted, from, block, count);
    return cz__contents_device(l->checkpoint, place)
        ->copy(NULL, to, from == dtype ? block : converted, (size_t)count * cz_dtype_size(dtype));
}

/* Elements [begin, end) from memory, where they have the type of the file. */
static cz_status put_elements(cz__loading *l, int64_t place, const char *slot, int64_t begin,
                              int64_t end, const char *elements)
{
    char *to;
    const size_t from = cz_dtype_size(type_in_file(l, place, slot)),
                 here = cz_dtype_size(cz__restore_type_here(l, place, slot));
    CZ_TRY(find_target(l, place, slot, begin, end, &to));
    for (int64_t at = begin; at < end; at += IN_BLOCK)
        CZ_TRY(put_block(l, place, slot, to + (size_t)(at - begin) * here,
                         elements + (size_t)(at - begin) * from,
                         end - at < IN_BLOCK ? end - at : IN_BLOCK));
    return CZ_OK;
}

/* Through blocks: another type, or another device's memory. */
static cz_status fetch_blocks(cz__loading *l, int64_t place, const char *slot, int64_t begin,
                              int64_t end, char *to)
{
    char block[BLOCK];
    const size_t size = cz_dtype_size(cz__restore_type_here(l, place, slot));
    for (int64_t at = begin; at < end; at += IN_BLOCK) {
        const int64_t count = end - at < IN_BLOCK ? end - at : IN_BLOCK;
        CZ_TRY(cz__input_read(&l->input, l->comparison.from[place],
                              cz__restore_slot_in_file(l, place, slot), at, at + count, block));
        CZ_TRY(put_block(l, place, slot, to + (size_t)(at - begin) * size, block, count));
    }
    return CZ_OK;
}

cz_status cz__restore_fetch(cz__loading *l, int64_t place, const char *slot, int64_t begin,
                            int64_t end)
{
    char *to;
    CZ_TRY(find_target(l, place, slot, begin, end, &to));
    if (!to)
        return CZ_OK;
    if (type_in_file(l, place, slot) == cz__restore_type_here(l, place, slot) &&
        cz__contents_device(l->checkpoint, place) == cz_device_cpu())
        return cz__input_read(&l->input, l->comparison.from[place],
                              cz__restore_slot_in_file(l, place, slot), begin, end, to);
    return fetch_blocks(l, place, slot, begin, end, to);
}

/* ---- from other ranks ---- */

#define WINDOW_BYTES ((size_t)4 << 20) /* that are read in one round, by all ranks together */

/* ---- the walk ---- */

/* Elements of one tensor here that are in one part and wanted by one rank. */
typedef struct run {
    int64_t place, begin, end;
    const char *slot; /* NULL: the value */
    int part, to;
    size_t bytes; /* in the file */
} run;

typedef struct walk {
    cz__loading *loading;
    int64_t place, slot, element; /* where the next run begins; slot -1: the value */
    const cz_state_dict *entry;   /* the slots of this place; NULL: none */
    bool entered;                 /* it has been looked for */
    size_t left;                  /* bytes of this window */
} walk;

static walk walk_from_the_beginning(cz__loading *loading)
{
    return (walk){.loading = loading, .slot = -1};
}

static void next_slot(walk *w)
{
    w->slot++;
    w->element = 0;
}

static void next_place(walk *w)
{
    w->place++;
    w->slot = -1;
    w->element = 0;
    w->entered = false;
}

/* The value or slot that is next, from here on; false: there are no more. */
static bool enter(walk *w, const char **slot)
{
    const cz__loading *l = w->loading;
    for (; w->place < l->here.param_count + l->here.buffer_count; next_place(w)) {
        *slot = NULL;
        if (l->comparison.from[w->place] < 0)
            continue;
        if (!w->entered)
            w->entry = cz__restore_entry(l, w->place);
        w->entered = true;
        if (w->slot < 0)
            return true;
        for (; w->slot < cz_state_dict_count(w->entry); next_slot(w)) {
            *slot = cz_state_dict_key(w->entry, w->slot);
            if (cz__restore_takes(l, w->place, w->entry, *slot))
                return true;
        }
    }
    return false;
}

/* Who wants the next element; false: nobody, nor those that follow. */
static bool find_owner(const walk *w, const char *slot, int *to, int64_t *end)
{
    const cz__index *here = &w->loading->here;
    const cz__stored *stored = &here->stored[w->place];
    cz_span span;
    *to = stored->owner;
    *end = stored->count;
    if (!slot && stored->owner >= 0)
        return w->element < stored->count;
    if (w->place >= here->param_count ||
        !cz__shard_map_locate(here->map, w->place, w->element, &span))
        return false;
    *to = span.rank;
    *end = span.end;
    return true;
}

/* A run of the window, from the element that is next to `end` at most. */
static cz_status cut_run(walk *w, const char *slot, int to, int64_t end, run *out)
{
    const cz__loading *l = w->loading;
    const int64_t from = l->comparison.from[w->place];
    const char *there = cz__restore_slot_in_file(l, w->place, slot);
    const size_t size = cz__type_unit(cz__index_dtype(&l->input.index, from, there));
    const int64_t most = (int64_t)(w->left / size);
    cz_span piece;
    CZ_TRY(cz__input_piece(&l->input, from, w->element, &piece));
    end = piece.end < end ? piece.end : end;
    end = end - w->element > most ? w->element + most : end;
    *out = (run){.place = w->place,
                 .begin = w->element,
                 .end = end,
                 .slot = slot,
                 .part = piece.rank,
                 .to = to,
                 .bytes = (size_t)(end - w->element) * size};
    w->element = end;
    w->left = end > out->begin ? w->left - out->bytes : 0; /* not even one: the window is full */
    return CZ_OK;
}

/* *any false: the window ends here. */
static cz_status next_run(walk *w, run *out, bool *any)
{
    const char *slot;
    int to;
    int64_t end;
    *any = false;
    while (!*any && w->left > 0 && enter(w, &slot)) {
        if (!find_owner(w, slot, &to, &end)) {
            next_slot(w);
            continue;
        }
        CZ_TRY(cut_run(w, slot, to, end, out));
        *any = out->bytes > 0;
    }
    return CZ_OK;
}

static bool at_end(walk w)
{
    const char *slot;
    return !enter(&w, &slot);
}

/* ---- before the change ---- */

/* Who reads it. */
static int reader_of(const cz__placement *p, const run *r)
{
    return cz__placement_sees(p, r->to, r->part) ? r->to : p->readers[r->part];
}

cz_status cz__windows_reach(cz__loading *l)
{
    walk w = walk_from_the_beginning(l);
    bool any;
    run r;
    w.left = SIZE_MAX;
    for (;;) {
        CZ_TRY(next_run(&w, &r, &any));
        if (!any)
            return CZ_OK;
        if (reader_of(&l->placement, &r) == l->placement.rank)
            CZ_TRY(cz__input_reach(&l->input, l->comparison.from[r.place],
                                   cz__restore_slot_in_file(l, r.place, r.slot), r.begin, r.end));
    }
}

/* ---- the change ---- */

struct cz__windows {
    cz_group *group;
    char *outgoing, *incoming;                      /* owned: a window each */
    int64_t *send_counts, *receive_counts, *places; /* owned: bytes for each rank */
    cz__reserve *reserve;                           /* owned */
    cz__loading *loading;                           /* while it moves */
    cz_status mine;                                 /* what failed here; the others get it */
};

void cz__windows_destroy(cz__windows **windows)
{
    cz__windows *w = windows ? *windows : NULL;
    if (!w)
        return;
    cz__free(w->outgoing);
    cz__free(w->incoming);
    cz__free(w->send_counts);
    cz__free(w->receive_counts);
    cz__free(w->places);
    cz__reserve_destroy(&w->reserve);
    cz__free(w);
    *windows = NULL;
}

static cz_status have_memory(cz__windows *w)
{
    const size_t ranks = (size_t)cz_group_size(w->group);
    w->outgoing = cz__allocate(CZ_MEMORY_STAGING, WINDOW_BYTES);
    w->incoming = cz__allocate(CZ_MEMORY_STAGING, WINDOW_BYTES);
    w->send_counts = cz__calloc(ranks, sizeof *w->send_counts);
    w->receive_counts = cz__calloc(ranks, sizeof *w->receive_counts);
    w->places = cz__calloc(ranks, sizeof *w->places);
    if (!w->outgoing || !w->incoming || !w->send_counts || !w->receive_counts || !w->places)
        return cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for windows of %zu bytes",
                        WINDOW_BYTES);
    return cz__reserve_create(&w->reserve, w->group, CZ__LONGEST);
}

cz_status cz__windows_create(cz__windows **out, cz_group *group)
{
    cz__windows *w = cz__calloc(1, sizeof *w);
    *out = NULL;
    if (!w)
        return cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for windows");
    w->group = group;
    const cz_status status = have_memory(w);
    if (status != CZ_OK)
        cz__windows_destroy(&w);
    *out = w;
    return status;
}

/* Bytes to and from each rank. Does anything change hands, on any rank? */
static cz_status count(cz__windows *w, walk at, bool *moves)
{
    const cz__placement *p = &w->loading->placement;
    bool any;
    run r;
    *moves = false;
    for (int k = 0; k < cz_group_size(w->group); k++)
        w->send_counts[k] = w->receive_counts[k] = 0;
    for (;;) {
        CZ_TRY(next_run(&at, &r, &any));
        if (!any)
            return CZ_OK;
        const int reader = reader_of(p, &r);
        if (reader == r.to)
            continue;
        *moves = true;
        if (reader == p->rank)
            w->send_counts[r.to] += (int64_t)r.bytes;
        if (r.to == p->rank)
            w->receive_counts[reader] += (int64_t)r.bytes;
    }
}

/* Where each rank's bytes begin in a buffer. */
static void place(cz__windows *w, const int64_t *counts)
{
    int64_t at = 0;
    for (int k = 0; k < cz_group_size(w->group); k++) {
        w->places[k] = at;
        at += counts[k];
    }
}

/* What this rank reads: for itself at once to where it belongs, for others into the buffer. */
static cz_status read_run(cz__windows *w, const run *r)
{
    cz__loading *l = w->loading;
    if (r->to == l->placement.rank)
        return cz__restore_fetch(l, r->place, r->slot, r->begin, r->end);
    char *to = w->outgoing + w->places[r->to];
    w->places[r->to] += (int64_t)r->bytes;
    return cz__input_read(&l->input, l->comparison.from[r->place],
                          cz__restore_slot_in_file(l, r->place, r->slot), r->begin, r->end, to);
}

static cz_status read_window(cz__windows *w, walk at)
{
    const cz__placement *p = &w->loading->placement;
    bool any;
    run r;
    place(w, w->send_counts);
    for (;;) {
        CZ_TRY(next_run(&at, &r, &any));
        if (!any)
            return CZ_OK;
        if (reader_of(p, &r) == p->rank)
            CZ_TRY(read_run(w, &r));
    }
}

static cz_status take_window(cz__windows *w, walk at)
{
    const cz__placement *p = &w->loading->placement;
    bool any;
    run r;
    place(w, w->receive_counts);
    for (;;) {
        CZ_TRY(next_run(&at, &r, &any));
        if (!any)
            return CZ_OK;
        const int reader = reader_of(p, &r);
        if (r.to != p->rank || reader == p->rank)
            continue;
        CZ_TRY(put_elements(w->loading, r.place, r.slot, r.begin, r.end,
                            w->incoming + w->places[reader]));
        w->places[reader] += (int64_t)r.bytes;
    }
}

static cz_status skip_window(walk *at)
{
    bool any = true;
    run r;
    while (any)
        CZ_TRY(next_run(at, &r, &any));
    return CZ_OK;
}

static cz_status move_window(cz__windows *w, walk *at)
{
    bool moves;
    at->left = WINDOW_BYTES;
    CZ_TRY(count(w, *at, &moves));
    if (w->mine == CZ_OK)
        w->mine = read_window(w, *at);
    const cz__blocks blocks = {.input = w->outgoing,
                               .send_counts = w->send_counts,
                               .output = w->incoming,
                               .receive_counts = w->receive_counts,
                               .reserve = w->reserve,
                               .mine = w->mine};
    if (moves)
        CZ_TRY(cz__exchange_blocks(w->group, &blocks, CZ_U8, CZ_LABEL("checkpoint: elements")));
    if (moves && w->mine == CZ_OK)
        w->mine = take_window(w, *at);
    return skip_window(at);
}

cz_status cz__windows_move(cz__windows *w, cz__loading *loading)
{
    walk at = walk_from_the_beginning(loading);
    w->loading = loading;
    w->mine = CZ_OK;
    while (!at_end(at))
        CZ_TRY(move_window(w, &at)); /* what fails here, fails on all ranks */
    return cz__agree(w->group, w->mine, 0, NULL, "checkpoint: read");
}
