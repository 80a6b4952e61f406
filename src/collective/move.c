/* SPDX-License-Identifier: MIT */
/* From one shard map to another: every element goes from its owner in the one to its owner in the
 * other. All ranks walk the elements in one order, parameter by parameter, and know both maps; so a
 * window of that walk is one all-to-all whose counts each rank works out by itself. */
#include "base/memory.h"
#include "base/status.h"
#include "collective/model.h"
#include "group/internal.h"
#include "shard/shard.h"

/* A run of elements with one owner in each map. */
typedef struct piece {
    int64_t param, begin, end;
    int from, to;
} piece;

typedef struct piece_walk {
    const cz__move *move;
    int64_t param, element; /* where the next piece begins */
    int64_t left;           /* elements of this window */
} piece_walk;

/* The next piece of this window, false at its end. */
static bool next_piece(piece_walk *w, piece *out)
{
    const cz__move *move = w->move;
    const int64_t params = cz__shard_map_param_count(move->from);
    cz_span from, to;
    while (w->left > 0 && w->param < params) {
        if (!move->include[w->param] ||
            !cz__shard_map_locate(move->from, w->param, w->element, &from)) {
            w->param++; /* the end of this one, too */
            w->element = 0;
            continue;
        }
        int64_t end = from.end;
        const bool wanted = cz__shard_map_locate(move->to, w->param, w->element, &to);
        if (wanted && to.end < end)
            end = to.end;
        if (end - w->element > w->left)
            end = w->element + w->left;
        *out = (piece){w->param, w->element, end, from.rank, wanted ? to.rank : from.rank};
        w->left -= end - w->element;
        w->element = end;
        if (wanted)
            return true;
    }
    return false;
}

typedef struct rounds {
    cz_group *group;
    const cz__move *move;
    char *outgoing, *incoming;                      /* owned: a window each */
    int64_t *send_counts, *receive_counts, *places; /* owned: bytes per rank */
} rounds;

static void rounds_clear(rounds *r)
{
    r->group->device->release(r->outgoing);
    r->group->device->release(r->incoming);
    cz__free(r->send_counts);
    cz__free(r->receive_counts);
    cz__free(r->places);
}

static cz_status rounds_create(rounds *r)
{
    const cz_device *device = r->group->device;
    const size_t ranks = (size_t)r->group->size;
    int64_t bytes = 0;
    for (int64_t p = 0; p < cz__shard_map_param_count(r->move->from); p++)
        if (r->move->include[p])
            bytes += cz__shard_map_count(r->move->from, p) * (int64_t)r->move->element_size;
    const size_t window = cz__move_window((size_t)bytes);
    void *outgoing = NULL, *incoming = NULL;
    r->send_counts = cz__calloc(ranks, sizeof *r->send_counts);
    r->receive_counts = cz__calloc(ranks, sizeof *r->receive_counts);
    r->places = cz__calloc(ranks, sizeof *r->places);
    cz_status status = device->allocate(CZ_MEMORY_STAGING, window, &outgoing);
    if (status == CZ_OK)
        status = device->allocate(CZ_MEMORY_STAGING, window, &incoming);
    r->outgoing = outgoing;
    r->incoming = incoming;
    if (status != CZ_OK)
        return cz__fail_in(status, "move");
    if (!r->send_counts || !r->receive_counts || !r->places)
        return cz__fail(CZ_ERR_MEMORY, "move: no memory for tables of %zu ranks", ranks);
    return CZ_OK;
}

static size_t piece_bytes(const rounds *r, const piece *p)
{
    return (size_t)(p->end - p->begin) * r->move->element_size;
}

/* Bytes to and from each rank, this one left out. Does anything change hands, on any rank? */
static bool count(rounds *r, piece_walk w)
{
    const int rank = r->group->rank;
    bool any = false;
    piece p;
    for (int k = 0; k < r->group->size; k++)
        r->send_counts[k] = r->receive_counts[k] = 0;
    while (next_piece(&w, &p)) {
        if (p.from == p.to)
            continue;
        any = true;
        if (p.from == rank)
            r->send_counts[p.to] += (int64_t)piece_bytes(r, &p);
        if (p.to == rank)
            r->receive_counts[p.from] += (int64_t)piece_bytes(r, &p);
    }
    return any;
}

/* Where each rank's part begins in a buffer. */
static void place(rounds *r, const int64_t *counts)
{
    int64_t at = 0;
    for (int k = 0; k < r->group->size; k++) {
        r->places[k] = at;
        at += counts[k];
    }
}

static void pack(rounds *r, piece_walk w)
{
    const cz__move *move = r->move;
    const cz_device *device = r->group->device;
    const int rank = r->group->rank;
    piece p;
    place(r, r->send_counts);
    while (next_piece(&w, &p)) {
        const size_t bytes = piece_bytes(r, &p);
        if (p.from != rank)
            continue;
        const void *source = move->source(move->context, p.param, p.begin);
        if (p.to == rank) {
            void *target = move->target(move->context, p.param, p.begin);
            if (target != source)
                (void)device->copy(NULL, target, source, bytes);
            continue;
        }
        (void)device->copy(NULL, r->outgoing + r->places[p.to], source, bytes);
        r->places[p.to] += (int64_t)bytes;
    }
}

static void unpack(rounds *r, piece_walk *w)
{
    const cz__move *move = r->move;
    const int rank = r->group->rank;
    piece p;
    place(r, r->receive_counts);
    while (next_piece(w, &p)) {
        if (p.to != rank || p.from == rank)
            continue;
        (void)r->group->device->copy(NULL, move->target(move->context, p.param, p.begin),
                                     r->incoming + r->places[p.from], piece_bytes(r, &p));
        r->places[p.from] += (int64_t)piece_bytes(r, &p);
    }
}

static cz_status move_all(rounds *r, const char *label)
{
    const int64_t params = cz__shard_map_param_count(r->move->from);
    piece_walk w = {.move = r->move};
    while (w.param < params) {
        w.left = (int64_t)(CZ__WINDOW_BYTES / r->move->element_size);
        const bool any = count(r, w);
        pack(r, w);
        if (any)
            CZ_TRY(cz_all_to_all_v(r->group, r->outgoing, r->send_counts, r->incoming,
                                   r->receive_counts, CZ_U8, CZ_LABEL(label)));
        unpack(r, &w);
    }
    return CZ_OK;
}

cz_status cz__move_between_maps(cz_group *group, const cz__move *move, const char *label)
{
    rounds r = {.group = group, .move = move};
    cz_status status = cz__agree(group, rounds_create(&r), 0, NULL, label);
    if (status == CZ_OK)
        status = move_all(&r, label);
    rounds_clear(&r);
    return status;
}
