/* SPDX-License-Identifier: MIT */
/* Shard maps that cut at granules: whole granules by even cuts, and a table of owners for what they
 * leave of each parameter, of a whole tensor all. What lies side by side is one span, and a rank
 * has one of a parameter at most. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/status.h"
#include "shard/loads.h"
#include "shard/map.h"
#include "shard/shard.h"

typedef struct granule_map {
    cz_shard_map head;
    cz_shard_map *granules;   /* owned: parameters without their remainders */
    cz_shard_map *remainders; /* owned: and these alone */
} granule_map;

enum { IN_REMAINDERS = -1 }; /* the range of an iterator that has been through all granules */

static const granule_map *granule_map_of(const cz_shard_map *map)
{
    return (const granule_map *)map;
}

/* The rank that has a parameter's last whole granule; -1: there is none. */
static int last_owner(const cz_shard_map *granules, int64_t param)
{
    cz_span span;
    return cz__shard_map_locate(granules, param, granules->counts[param] - 1, &span) ? span.rank
                                                                                     : -1;
}

static int remainder_owner(const cz_shard_map *map, int64_t param)
{
    const granule_map *m = granule_map_of(map);
    return m->remainders->counts[param] > 0 ? cz__shard_map_home(m->remainders, param) : -1;
}

/* Where nothing lies side by side with the granules this is no rank. */
static int owner_of_both(const cz_shard_map *map, int64_t param)
{
    const int owner = remainder_owner(map, param);
    return owner >= 0 && last_owner(granule_map_of(map)->granules, param) == owner ? owner : -1;
}

static int home(const cz_shard_map *map, int64_t param)
{
    const granule_map *m = granule_map_of(map);
    const int owner = m->granules->counts[param] > 0 ? -1 : remainder_owner(map, param);
    return owner >= 0 ? owner : cz__shard_map_home(m->granules, param);
}

static bool locate(const cz_shard_map *map, int64_t param, int64_t element, cz_span *span)
{
    const granule_map *m = granule_map_of(map);
    const int64_t granules = m->granules->counts[param];
    const bool remains = element >= granules;
    const int owner = remainder_owner(map, param);
    if (granules > 0)
        (void)cz__shard_map_locate(m->granules, param, remains ? granules - 1 : element, span);
    if (remains && (granules == 0 || span->rank != owner))
        *span = (cz_span){param, granules, map->counts[param], owner};
    else if (span->end == granules && span->rank == owner)
        span->end = map->counts[param];
    return true;
}

/* One of the two maps goes on in the iterator. */
static bool next_in(const cz_shard_map *map, cz_span_iterator *iterator, cz_span *span)
{
    const cz_shard_map *whole = iterator->map;
    iterator->map = map;
    const bool found = map->kind->next(iterator, span);
    iterator->map = whole;
    return found;
}

static void begin_in(const cz_shard_map *map, cz_span_iterator *iterator)
{
    cz_span_iterator inner = {.map = map, .rank = iterator->rank};
    map->kind->iterate(&inner);
    inner.map = iterator->map;
    *iterator = inner;
}

static void iterate(cz_span_iterator *iterator)
{
    begin_in(granule_map_of(iterator->map)->granules, iterator);
}

static bool next(cz_span_iterator *iterator, cz_span *span)
{
    const granule_map *m = granule_map_of(iterator->map);
    if (iterator->range != IN_REMAINDERS) {
        if (next_in(m->granules, iterator, span)) {
            if (span->end == m->granules->counts[span->param] &&
                remainder_owner(iterator->map, span->param) == span->rank)
                span->end = m->head.counts[span->param];
            return true;
        }
        begin_in(m->remainders, iterator);
        iterator->range = IN_REMAINDERS;
    }
    while (next_in(m->remainders, iterator, span)) {
        if (owner_of_both(iterator->map, span->param) >= 0)
            continue; /* came with the granules */
        const int64_t granules = m->granules->counts[span->param];
        *span = (cz_span){span->param, granules, granules + span->end, span->rank};
        return true;
    }
    return false;
}

static int64_t listed(const cz_shard_map *map, int64_t place)
{
    return cz__shard_map_listed(granule_map_of(map)->granules, place);
}

static void tally(const cz_shard_map *map, const uint8_t *include, int64_t *elements,
                  int64_t *spans)
{
    const granule_map *m = granule_map_of(map);
    m->granules->kind->tally(m->granules, include, elements, spans);
    m->remainders->kind->tally(m->remainders, include, elements, spans);
    for (int64_t p = 0; p < map->param_count; p++) {
        const int owner = include && !include[p] ? -1 : owner_of_both(map, p);
        if (owner < 0)
            continue;
        spans[owner]--;
        spans[owner + 1]++;
    }
}

static int64_t ranges(const cz_shard_map *map, size_t *element_size, int64_t *begins,
                      int64_t *units, int64_t room)
{
    return cz__shard_map_ranges(granule_map_of(map)->granules, element_size, begins, units, room);
}

static size_t bytes(const cz_shard_map *map)
{
    const granule_map *m = granule_map_of(map);
    return sizeof *m + (size_t)map->param_count * sizeof *map->counts +
           cz__shard_map_bytes(m->granules) + cz__shard_map_bytes(m->remainders);
}

static void release(cz_shard_map *map)
{
    granule_map *m = (granule_map *)map;
    cz__shard_map_destroy(&m->granules);
    cz__shard_map_destroy(&m->remainders);
}

static const cz__map_kind granule_kind = {
    .cuts = true,
    .home = home,
    .locate = locate,
    .iterate = iterate,
    .next = next,
    .listed = listed,
    .tally = tally,
    .ranges = ranges,
    .remainder_owner = remainder_owner,
    .bytes = bytes,
    .release = release,
};

/* ---- made ---- */

/* What is made of the counts, before there is a map. */
typedef struct split {
    int64_t *granules;   /* owned, as the next: elements of each parameter in whole granules */
    int64_t *remainders; /* and beyond them */
    int64_t remaining;   /* parameters that have any */
} split;

static void split_clear(split *s)
{
    cz__free(s->granules);
    cz__free(s->remainders);
}

static void divide(split *s, const cz__cuts *cuts, int64_t position, int64_t range,
                   const int64_t *counts)
{
    const int64_t param = cuts->order ? cuts->order[position] : position;
    const int64_t unit = cuts->units ? cuts->units[range] : 1;
    s->remainders[param] = unit == 0 ? counts[param] : counts[param] % unit;
    s->granules[param] = counts[param] - s->remainders[param];
    s->remaining += s->remainders[param] > 0;
}

/* The map of whole granules alone. */
static cz_status split_create(split *s, const cz__cuts *cuts, int world_size, int64_t param_count,
                              const int64_t *counts, cz_shard_map **granules)
{
    CZ_TRY(cz__even_map_create(granules, world_size, param_count, counts, cuts)); /* checks all */
    s->granules = cz__calloc((size_t)param_count, sizeof *s->granules);
    s->remainders = cz__calloc((size_t)param_count, sizeof *s->remainders);
    if (!s->granules || !s->remainders)
        return cz__fail(CZ_ERR_MEMORY,
                        "shard map: no memory for granules of %" PRId64 " parameters", param_count);
    int64_t range = 0;
    for (int64_t k = 0; k < param_count; k++) {
        while (range + 1 < cuts->range_count && cuts->begins[range + 1] <= k)
            range++;
        divide(s, cuts, k, range, counts);
    }
    if (s->remaining == 0)
        return CZ_OK;
    cz__shard_map_destroy(granules);
    return cz__even_map_create(granules, world_size, param_count, s->granules, cuts);
}

/* The ranks that have the granules of a parameter are *first to *last. False: there are none. */
static bool find_ranks(const cz_shard_map *granules, int64_t param, int *first, int *last)
{
    *first = cz__shard_map_home(granules, param);
    *last = last_owner(granules, param);
    return *last >= 0;
}

static cz_status check_owner(const cz_shard_map *granules, const split *s, const int *owners,
                             int64_t param)
{
    int first, last;
    const int owner = owners ? owners[param] : -1;
    if (owner < 0 || owner >= granules->world_size)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "shard map: the last %" PRId64 " elements of parameter %" PRId64
                        ", which fill no granule, are of rank %d of %d",
                        s->remainders[param], param, owner, granules->world_size);
    if (find_ranks(granules, param, &first, &last) && owner >= first && owner < last)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "shard map: the last %" PRId64 " elements of parameter %" PRId64
                        ", which fill no granule, are of rank %d, where granules before the last "
                        "one are",
                        s->remainders[param], param, owner);
    return CZ_OK;
}

static cz_status fill(granule_map *m, const split *s, const cz__cuts *cuts)
{
    const int64_t params = m->head.param_count;
    int *owners = cz__calloc((size_t)params, sizeof *owners);
    cz_status status =
        owners ? CZ_OK
               : cz__fail(CZ_ERR_MEMORY,
                          "shard map: no memory for owners of %" PRId64 " parameters", params);
    for (int64_t p = 0; p < params && !status; p++) {
        owners[p] = -1;
        if (s->remainders[p] == 0)
            continue;
        status = check_owner(m->granules, s, cuts->owners, p);
        owners[p] = cuts->owners ? cuts->owners[p] : -1;
    }
    if (!status)
        status = cz__shard_map_create_owners(&m->remainders, m->head.world_size, params,
                                             s->remainders, owners, cuts->order);
    cz__free(owners);
    return status;
}

cz_status cz__shard_map_create_cuts(cz_shard_map **out, int world_size, int64_t param_count,
                                    const int64_t *counts, const cz__cuts *cuts)
{
    split s = {0};
    cz_shard_map *granules = NULL, *map = NULL;
    if (!out)
        return cz__fail(CZ_ERR_ARGUMENT, "shard map: out is NULL");
    *out = NULL;
    cz_status status = split_create(&s, cuts, world_size, param_count, counts, &granules);
    if (status)
        goto done;
    if (s.remaining == 0) {
        *out = granules;
        granules = NULL;
        goto done;
    }
    status =
        cz__map_create(&map, sizeof(granule_map), &granule_kind, world_size, param_count, counts);
    if (status)
        goto done;
    ((granule_map *)map)->granules = granules;
    granules = NULL;
    status = fill((granule_map *)map, &s, cuts);
    if (status)
        goto done;
    *out = map;
    map = NULL;
done:
    cz__shard_map_destroy(&granules);
    cz__shard_map_destroy(&map);
    split_clear(&s);
    return status;
}

/* ---- owners of remainders ---- */

/* One to be dealt out. */
typedef struct entry {
    int64_t count, place, param;
    int first, last; /* ranks of its granules; last -1: it has none */
} entry;

typedef struct dealing {
    split split;
    cz_shard_map *granules; /* owned, as all */
    int64_t *load_of, *spans;
    cz__loads loads;
    entry *entries;
    int64_t count;
    int64_t *whole; /* parameters that are all remainder */
    int64_t whole_count;
} dealing;

static void dealing_clear(dealing *d)
{
    split_clear(&d->split);
    cz__shard_map_destroy(&d->granules);
    cz__loads_clear(&d->loads);
    cz__free(d->load_of);
    cz__free(d->spans);
    cz__free(d->entries);
    cz__free(d->whole);
}

static bool is_bound(const entry *e)
{
    return e->last > e->first;
}

/* First those that may not go everywhere, the last one first: the ranks with their last granules
 * are different ones, and those at the end have no more than others. */
static int compare_entries(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    if (is_bound(a) != is_bound(b))
        return is_bound(a) ? -1 : 1;
    if (!is_bound(a) && a->count != b->count)
        return a->count > b->count ? -1 : 1;
    if (a->place == b->place)
        return 0;
    return (a->place < b->place) != is_bound(a) ? -1 : 1;
}

/* Beside its last granule if nobody has less. */
static int choose_owner(const dealing *d, const entry *e)
{
    const int64_t *load_of = d->load_of;
    int owner = cz__loads_lightest(&d->loads);
    if (e->last >= 0 && load_of[e->last] <= load_of[owner])
        return e->last;
    if (!is_bound(e) || owner < e->first || owner >= e->last)
        return owner;
    owner = e->last;
    for (int r = 0; r < d->loads.size; r++)
        if ((r < e->first || r > e->last) && load_of[r] < load_of[owner])
            owner = r;
    return owner;
}

static cz_status dealing_create(dealing *d, const cz__cuts *cuts, int world_size,
                                int64_t param_count, const int64_t *counts, const uint8_t *include,
                                const int *owners)
{
    CZ_TRY(split_create(&d->split, cuts, world_size, param_count, counts, &d->granules));
    d->load_of = cz__calloc((size_t)world_size + 1, sizeof *d->load_of);
    d->spans = cz__calloc((size_t)world_size + 1, sizeof *d->spans);
    d->entries = cz__calloc((size_t)d->split.remaining, sizeof *d->entries);
    d->whole = cz__calloc((size_t)d->split.remaining, sizeof *d->whole);
    if (!d->load_of || !d->spans || !d->entries || !d->whole)
        return cz__fail(CZ_ERR_MEMORY,
                        "partition: no memory for %" PRId64 " parameters on %d ranks",
                        d->split.remaining, world_size);
    cz__shard_map_tally(d->granules, include, d->load_of, d->spans);
    for (int64_t k = 0; k < param_count; k++) {
        const int64_t p = cuts->order ? cuts->order[k] : k;
        if (d->split.remainders[p] == 0 || owners[p] >= 0 || (include && !include[p]))
            continue;
        entry *e = &d->entries[d->count++];
        *e = (entry){.count = d->split.remainders[p], .place = k, .param = p};
        if (!find_ranks(d->granules, p, &e->first, &e->last))
            d->whole[d->whole_count++] = p;
    }
    return cz__loads_create(&d->loads, world_size, d->load_of);
}

cz_status cz__cuts_deal_remainders(const cz__cuts *cuts, int world_size, int64_t param_count,
                                   const int64_t *counts, const uint8_t *include, int *owners)
{
    dealing d = {0};
    cz_status status = dealing_create(&d, cuts, world_size, param_count, counts, include, owners);
    if (status)
        goto done;
    if (d.count > 0)
        qsort(d.entries, (size_t)d.count, sizeof *d.entries, compare_entries);
    for (int64_t k = 0; k < d.count; k++) {
        const int owner = choose_owner(&d, &d.entries[k]);
        owners[d.entries[k].param] = owner;
        cz__loads_add(&d.loads, owner, d.entries[k].count);
    }
    status = cz__partition_improve(world_size, d.load_of, d.split.remainders, d.whole_count,
                                   d.whole, owners);
done:
    dealing_clear(&d);
    return status;
}
