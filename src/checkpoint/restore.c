/* SPDX-License-Identifier: MIT */
/* Elements from the files to where they belong: each rank reads what it owns here, then everybody
 * gets the values (and, with an unsharded optimizer, its state). */
#include <inttypes.h>
#include <string.h>

#include "base/fingerprint.h"
#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/loading.h"
#include "group/collective.h"
#include "collective/shared.h"
#include "optim/optim.h"
#include "shard/shard.h"

/* Called for what this rank reads: elements of a tensor here, or of a slot of its state. */
typedef cz_status (*reading)(cz__loading *l, int64_t place, const char *slot, int64_t begin,
                             int64_t end);

/* Is the value of a tensor here loaded? */
static bool has_value(const cz__loading *l, int64_t place)
{
    const int64_t from = l->comparison.from[place];
    return from >= 0 && !l->input.index.stored[from].no_value;
}

static cz_status read_span(cz__loading *l, int64_t place, int64_t begin, int64_t end, reading read)
{
    const cz_state_dict *entry = cz__restore_entry(l, place);
    if (l->comparison.from[place] < 0)
        return CZ_OK;
    if (l->here.stored[place].owner < 0 && has_value(l, place))
        CZ_TRY(read(l, place, NULL, begin, end));
    for (int64_t i = 0; i < cz_state_dict_count(entry); i++) {
        const char *slot = cz_state_dict_key(entry, i);
        if (cz__restore_takes(l, place, entry, slot))
            CZ_TRY(read(l, place, slot, begin, end));
    }
    return CZ_OK;
}

/* All that this rank reads. */
static cz_status read_own(cz__loading *l, reading read)
{
    const cz__index *here = &l->here;
    const int rank = cz_group_rank(l->checkpoint->group);
    cz_span_iterator iterator;
    cz_span span;
    if (here->param_count > 0) {
        cz_span_iterate(here->map, rank, &iterator);
        while (cz_span_next(&iterator, &span))
            CZ_TRY(read_span(l, span.param, span.begin, span.end, read));
    }
    for (int64_t i = 0; i < here->param_count + here->buffer_count; i++)
        if (here->stored[i].owner == rank && has_value(l, i))
            CZ_TRY(read(l, i, NULL, 0, here->stored[i].count));
    return CZ_OK;
}

/* ---- before the change ---- */

static cz_status reach(cz__loading *l, int64_t place, const char *slot, int64_t begin, int64_t end)
{
    return cz__input_reach(&l->input, l->comparison.from[place],
                           cz__restore_slot_in_file(l, place, slot), begin, end);
}

/* Of a file that leaves the rule open it is now known: rules were compared. */
static cz_status settle_rule(cz__loading *l)
{
    const cz_optim *optim = l->checkpoint->optim;
    cz_state_dict *outline = l->input.index.optimizer;
    if (strcmp(cz__outline_rule_of(outline, NULL), CZ__ADAM_OR_ADAMW) != 0)
        return CZ_OK;
    for (int64_t g = 0; g < cz__optim_group_count(optim); g++) {
        const char *rule = cz__optim_group_rule(optim, g)->name;
        if (cz__optim_group_param_count(optim, g) > 0)
            return cz_state_dict_set_text(outline, "rule", rule);
    }
    return CZ_OK;
}

/* Does the file have the value of a parameter in more bits than there are here, and state of it
 * without a master, which is wanted here? */
static bool lacks_master(const cz__loading *l, int64_t p, const cz_state_dict *outline)
{
    const cz_state_dict *state, *entry;
    const int64_t from = l->comparison.from[p];
    if (from < 0 || l->input.index.stored[from].no_value ||
        !cz__optim_has_master(l->checkpoint->optim, p) ||
        cz_state_dict_get_dict(outline, "state", &state) != CZ_OK ||
        cz_state_dict_kind(state, l->here.stored[p].name) != CZ_STATE_DICT ||
        cz_state_dict_get_dict(state, l->here.stored[p].name, &entry) != CZ_OK)
        return false;
    const cz_dtype there = cz__type_in_memory(l->input.index.stored[from].dtype);
    return cz_dtype_size(there) >= sizeof(float) &&
           cz_state_dict_kind(entry, CZ__MASTER) == CZ_STATE_NONE;
}

/* The file's own outline stays: it says what is in the parts. */
static cz_status find_masters(cz__loading *l)
{
    const cz_state_dict *state, *entry;
    for (int64_t p = 0; p < l->here.param_count; p++) {
        if (!lacks_master(l, p, l->adapted ? l->adapted : l->input.index.optimizer))
            continue;
        if (!l->adapted)
            CZ_TRY(cz_state_dict_copy(&l->adapted, l->input.index.optimizer));
        CZ_TRY(cz_state_dict_get_dict(l->adapted, "state", &state));
        CZ_TRY(cz_state_dict_get_dict(state, l->here.stored[p].name, &entry));
        CZ_TRY(cz_state_dict_set_text((cz_state_dict *)entry, CZ__MASTER, CZ__MASTER_FROM_VALUE));
    }
    return CZ_OK;
}

/* Averages that are there and not here, or the other way. */
static cz_status note_averages(cz__loading *l)
{
    int64_t left_out = 0, begun = 0;
    for (int64_t p = 0; p < l->here.param_count; p++) {
        const cz_state_dict *entry = cz__restore_entry(l, p);
        if (!entry || l->comparison.from[p] < 0)
            continue;
        const bool there = cz_state_dict_kind(entry, CZ__AVERAGE) == CZ_STATE_TEXT;
        const bool here = cz__optim_averages(l->checkpoint->optim, p);
        left_out += there && !here;
        begun += here && !there;
    }
    if (left_out > 0)
        cz__text_print(&l->checkpoint->notes,
                       "averages of %" PRId64 " parameters are left out: the optimizer here was "
                       "made without option average\n",
                       left_out);
    if (begun > 0)
        cz__text_print(&l->checkpoint->notes,
                       "averages of %" PRId64 " parameters are not in the file, and begin anew\n",
                       begun);
    return l->checkpoint->notes.failed ? cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for notes")
                                       : CZ_OK;
}

cz_status cz__restore_prepare(cz__loading *l)
{
    cz_checkpoint *c = l->checkpoint;
    if (l->comparison.state)
        CZ_TRY(settle_rule(l));
    if (l->comparison.state && l->options.permissive)
        CZ_TRY(cz__adapt_outline(&l->adapted, c->optim, &l->here, &l->input.index, &l->comparison,
                                 &c->notes));
    if (l->comparison.state)
        CZ_TRY(find_masters(l));
    if (l->comparison.state)
        CZ_TRY(cz__load_create(&l->state, c->optim,
                               l->adapted ? l->adapted : l->input.index.optimizer, CZ_MISSING_NONE,
                               true));
    if (l->comparison.state)
        CZ_TRY(note_averages(l));
    if (l->comparison.state)
        CZ_TRY(cz__optim_unpack(c->optim));
    return l->placement.views ? cz__windows_reach(l) : read_own(l, reach);
}

/* ---- to everybody ---- */

typedef struct spreading {
    void **data; /* owned, as the next: one for each tensor here */
    uint8_t *include;
    uint64_t places;        /* in shared memory, of the values here: equal on all ranks, if… */
    bool shares;            /* …all see the same */
    bool any_shared;        /* some value has only to be read, by its owner */
    cz__reserve *transfers; /* owned: once something has changed, there is memory for the rest */
    cz__windows *windows;   /* owned; NULL: each rank sees what it needs */
} spreading;

/* Is the tensor in memory that as many ranks share as the group has? */
static bool is_shared(const cz__loading *l, int64_t place)
{
    const cz__stored *stored = &l->here.stored[place];
    const size_t bytes = (size_t)stored->count * cz_dtype_size(stored->dtype);
    return cz__shared_by(l->checkpoint->group, cz__contents_address(l->checkpoint, place, NULL, 0),
                         bytes);
}

/* These may be other ranks, so it is compared where that is. */
static uint64_t shared_places(const cz__loading *l)
{
    uint64_t places = 0;
    for (int64_t i = 0; i < l->here.param_count + l->here.buffer_count; i++) {
        if (!is_shared(l, i))
            continue;
        const cz__shared_place at =
            cz__shared_find(cz__contents_address(l->checkpoint, i, NULL, 0), 1);
        const uint64_t numbers[] = {(uint64_t)i, at.block, at.offset};
        places = cz__fingerprint(places, numbers, sizeof numbers);
    }
    return places;
}

static cz_status spread_included(cz__loading *l, const cz_shard_map *map, const spreading *s,
                                 cz_dtype dtype)
{
    const cz__mapped memory = {.map = map,
                               .data = s->data,
                               .include = s->include,
                               .dtype = dtype,
                               .reserve = s->transfers};
    return cz__gather_along_map(l->checkpoint->group, &memory, CZ_LABEL("checkpoint: load"));
}

/* Along a map whose parameters are the first `count` tensors here, those of one type. */
static cz_status spread_type(cz__loading *l, const cz_shard_map *map, spreading *s, cz_dtype dtype,
                             bool owned_whole)
{
    bool any = false;
    const int64_t count = cz__shard_map_param_count(map);
    for (int64_t i = 0; i < count; i++) {
        const cz__stored *stored = &l->here.stored[i];
        s->include[i] =
            has_value(l, i) && stored->dtype == dtype && (stored->owner >= 0) == owned_whole;
        if (s->include[i] && s->shares && is_shared(l, i)) {
            s->include[i] = false;
            s->any_shared = true;
        }
        s->data[i] = s->include[i] ? cz__contents_address(l->checkpoint, i, NULL, 0) : NULL;
        any = any || s->include[i];
    }
    return any ? spread_included(l, map, s, dtype) : CZ_OK;
}

static cz_status spread_values(cz__loading *l, const cz_shard_map *map, spreading *s,
                               bool owned_whole)
{
    for (cz_dtype dtype = CZ_F32; dtype <= CZ_U8; dtype++)
        CZ_TRY(spread_type(l, map, s, dtype, owned_whole));
    return CZ_OK;
}

/* Each rank has all the state; what it did not read comes from the others. */
static cz_status spread_slot(cz__loading *l, spreading *s, int e, cz_dtype dtype)
{
    bool any = false;
    for (int64_t i = 0; i < l->here.param_count; i++) {
        const char *slot = cz__optim_element_slot(l->checkpoint->optim, i, e).name;
        s->include[i] = slot && l->comparison.from[i] >= 0 &&
                        cz__restore_takes(l, i, cz__restore_entry(l, i), slot) &&
                        cz__optim_slot_dtype(l->checkpoint->optim, i, e) == dtype &&
                        cz__contents_address(l->checkpoint, i, slot, 0);
        s->data[i] = s->include[i] ? cz__contents_address(l->checkpoint, i, slot, 0) : NULL;
        any = any || s->include[i];
    }
    return any ? spread_included(l, l->here.map, s, dtype) : CZ_OK;
}

/* The map of what one rank has whole. */
static cz_status whole_map(const cz__loading *l, cz_shard_map **map)
{
    const int64_t count = l->here.param_count + l->here.buffer_count;
    int64_t *counts = cz__calloc((size_t)count, sizeof *counts);
    int *owners = cz__calloc((size_t)count, sizeof *owners);
    cz_status status =
        counts && owners ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for tables");
    if (status)
        goto done;
    for (int64_t i = 0; i < count; i++) {
        counts[i] = l->here.stored[i].count;
        owners[i] = l->here.stored[i].owner;
    }
    status = cz__shard_map_create_owners(map, cz_group_size(l->checkpoint->group), count, counts,
                                         owners, NULL);
done:
    cz__free(counts);
    cz__free(owners);
    return status;
}

static cz_status spread_all(cz__loading *l, const cz_shard_map *whole, spreading *s)
{
    const cz_checkpoint *c = l->checkpoint;
    if (l->here.param_count > 0)
        CZ_TRY(spread_values(l, l->here.map, s, false));
    CZ_TRY(spread_values(l, whole, s, true));
    if (s->any_shared)
        CZ_TRY(cz__agree(c->group, CZ_OK, 0, NULL, "checkpoint: shared values"));
    if (l->state && !c->zero)
        for (int e = 0; e < cz__optim_slot_count(c->optim); e++)
            for (cz_dtype dtype = CZ_F32; dtype <= CZ_BF16; dtype++)
                CZ_TRY(spread_slot(l, s, e, dtype));
    return CZ_OK;
}

/* An upper limit of what one operation moves: all elements, of the largest type. */
static cz_status have_transfers(const cz__loading *l, spreading *s)
{
    int64_t elements = 1;
    for (int64_t i = 0; i < l->here.param_count + l->here.buffer_count; i++)
        elements += l->here.stored[i].count;
    return cz__reserve_create(&s->transfers, l->checkpoint->group, (size_t)elements * 8);
}

static cz_status prepare_spreading(const cz__loading *l, spreading *s, cz_shard_map **whole)
{
    const size_t count = (size_t)(l->here.param_count + l->here.buffer_count);
    s->data = cz__calloc(count, sizeof *s->data);
    s->include = cz__calloc(count, 1);
    if (!s->data || !s->include)
        return cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for tables");
    s->places = shared_places(l);
    CZ_TRY(whole_map(l, whole));
    if (l->placement.views)
        CZ_TRY(cz__windows_create(&s->windows, l->checkpoint->group));
    return have_transfers(l, s);
}

static cz_status change(cz__loading *l, const cz_shard_map *whole, spreading *s)
{
    if (l->state)
        cz__load_commit(l->state);
    CZ_TRY(s->windows ? cz__windows_move(s->windows, l)
                      : cz__agree(l->checkpoint->group, read_own(l, cz__restore_fetch), 0, NULL,
                                  "checkpoint: read"));
    return spread_all(l, whole, s);
}

static cz_status change_all(cz__loading *l, const cz_shard_map *whole, spreading *s)
{
    const cz_status status = change(l, whole, s);
    return status ? cz__fail(status,
                             "%s: values and state that are loaded are undefined until a load "
                             "succeeds",
                             cz_last_error())
                  : CZ_OK;
}

cz_status cz__restore(cz__loading *l)
{
    spreading s = {0};
    cz_shard_map *whole = NULL;
    cz_status status = prepare_spreading(l, &s, &whole);
    status = cz__agree(l->checkpoint->group, status, s.places, &s.shares, "checkpoint: restore");
    if (!status)
        status = change_all(l, whole, &s);
    if (l->state)
        cz__optim_pack(l->checkpoint->optim);
    cz__shard_map_destroy(&whole);
    cz__reserve_destroy(&s.transfers);
    cz__windows_destroy(&s.windows);
    cz__free(s.data);
    cz__free(s.include);
    return status;
}
