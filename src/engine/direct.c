/* SPDX-License-Identifier: MIT */
/* Ranks of one process move data without messages: each of them has a part of the operation, reads
 * what all brought and writes where it is wanted. A reduction is made by the owner of a stream,
 * from all ranks' memory at once, in tiles that stay in cache, and in an all_reduce each tile goes
 * on to all ranks from there. Where one rank would have all the work (reduce, broadcast), all take
 * an equal piece of it. */
#include "base/status.h"
#include "engine/engine.h"
#include "engine/rendezvous.h"

enum {
    TILE_BYTES = CZ__TILE_BYTES,
    TURN_BYTES = 1 << 20, /* moved before other operations get their turn */
    LARGE_BYTES = 8 << 20 /* what is written is out of the caches before anybody reads it */
};

/* How far a rank is with its part. */
typedef struct part_of_rank {
    int stream;   /* the next, or the present one */
    bool open;    /* it is in one: */
    bool over;    /* it has done its part */
    size_t end;   /* where its piece of the stream ends, if that is not with it */
    size_t bytes; /* moved; */
    size_t own;   /* of its own stream */
    cz__cursor at;
} part_of_rank;

typedef struct direct {
    part_of_rank part;
    const void *sources[]; /* group->size addresses */
} direct;

static direct *direct_of(const cz_work *work)
{
    return work->data.state;
}

/* One rank's part. `worker` is the rank. */
typedef struct view {
    cz__rendezvous *rendezvous;
    const cz_group *group; /* of who does it */
    const void **sources;
    int source_count;
    bool has_terms; /* ranks give more than one value each */
    int worker;
    bool large;
    part_of_rank *part;
} view;

static const cz__operation *of(const view *v, int rank)
{
    return &cz__rendezvous_work(v->rendezvous, rank)->operation;
}

/* Bytes of all streams together, or more. */
static size_t total(const cz__operation *operation)
{
    const bool whole = operation->source.kind == CZ__REGION_MAPPED;
    return whole ? operation->longest : operation->longest * (size_t)operation->source.world_size;
}

/* ---- which streams a worker has ---- */

static bool is_shared_out(const cz__operation *operation)
{
    return operation->header.kind == CZ__REDUCE || operation->header.kind == CZ__BROADCAST;
}

static bool is_pushed(const cz__operation *operation)
{
    return operation->header.kind == CZ__GATHER || operation->header.kind == CZ__GATHER_V;
}

/* Does the owner of a stream do all that is done with it? */
static bool is_owners(const cz__operation *operation)
{
    return operation->reduces || operation->update;
}

/* Does a stream go from one rank to all others? */
static bool goes_to_all(const cz__operation *operation)
{
    if (operation->update)
        return operation->values.mapped.data != NULL;
    return operation->reduces ? operation->exchanges : is_shared_out(operation);
}

static int stream_count(const view *v)
{
    const cz__operation *own = of(v, v->worker);
    return is_owners(own) || is_shared_out(own) || is_pushed(own) ? 1 : v->group->size;
}

/* The i-th: the ranks begin with different ones. */
static int stream_of(const view *v, int i)
{
    const cz__operation *own = of(v, v->worker);
    if (is_shared_out(own))
        return own->header.root;
    return is_owners(own) || is_pushed(own) ? v->worker : (v->worker + i) % v->group->size;
}

/* Who gets stream s, and which stream of the sender that is. */
static int receiver_of(const view *v)
{
    const cz__operation *own = of(v, v->worker);
    return is_pushed(own) ? own->header.root : v->worker;
}

static int sent_stream(const view *v, int stream)
{
    const cz__operation *own = of(v, v->worker);
    return own->reduces || own->same_to_all ? stream : receiver_of(v);
}

/* The region by which a stream is cut into pieces. Cuts are alike on all ranks, so one's own serves
 * for a map. */
static const cz__region *shape_of(const view *v, int stream)
{
    const cz__region *own = &of(v, v->worker)->source;
    return own->kind == CZ__REGION_MAPPED ? own : &of(v, stream)->source;
}

static void open_stream(const view *v, int stream)
{
    part_of_rank *part = v->part;
    const size_t size = (size_t)v->group->size, worker = (size_t)v->worker;
    part->open = true;
    part->end = SIZE_MAX;
    cz__cursor_begin(shape_of(v, stream), sent_stream(v, stream), &part->at);
    if (!is_shared_out(of(v, v->worker)))
        return;
    const size_t lines = (of(v, stream)->longest + 63) / 64;
    part->at.offset = 64 * (lines * worker / size);
    part->end = 64 * (lines * (worker + 1) / size);
}

static bool next_run(const view *v, int stream, cz__run *run)
{
    part_of_rank *part = v->part;
    const cz__region *shape = shape_of(v, stream);
    const cz__operation *own = of(v, v->worker);
    const size_t limit = is_owners(own) ? cz__stream_bytes(own, TILE_BYTES) : TURN_BYTES;
    if (part->at.offset >= part->end)
        return false;
    const size_t left = part->end - part->at.offset;
    return cz__run_next(shape, &part->at, left < limit ? left : limit, run);
}

/* ---- one run ---- */

static cz_status copy(const view *v, char *to, const char *from, size_t bytes)
{
    const cz_device *device = v->group->device;
    if (!to || to == from)
        return CZ_OK;
    if (!from)
        return device->zero(NULL, to, bytes);
    return v->large ? cz__copy_once(device, to, from, bytes) : device->copy(NULL, to, from, bytes);
}

static cz_status reduce_into(const view *v, const cz__operation *owner, size_t bytes, void *out)
{
    const cz__header *header = &owner->header;
    return v->group->device->reduce(
        NULL, (cz_dtype)header->dtype, (cz_reduction)header->reduction, v->source_count, v->sources,
        (int64_t)(bytes / owner->source.element_size), owner->result, out);
}

/* Find each rank's data of a run. True if one of them is `target`, which reading then brings into
 * the cache. */
static bool collect_sources(const view *v, int stream, const cz__run *run, const char *target)
{
    bool read = false;
    for (int r = 0; r < v->group->size; r++) {
        const cz__region *given = &of(v, r)->source;
        const int terms = v->has_terms ? cz__region_terms(given, r) : 1;
        for (int t = 0; t < terms; t++) {
            const char *source = v->has_terms ? cz__term_address(given, t, run)
                                              : cz__run_address(given, stream, run);
            v->sources[v->has_terms ? cz__region_source_of(given, r, t) : r] =
                source ? source : v->group->zeros;
            read |= source == target;
        }
    }
    return read;
}

/* A tile of a step, or less: reduce it if it has to be, update it, and copy the new values to all
 * ranks. */
static cz_status step_run(const view *v, int stream, const cz__run *run)
{
    const cz__operation *owner = of(v, stream);
    const size_t element = owner->source.element_size;
    char *own = cz__run_address(&owner->target, stream, run);
    char *gradient = own ? own : v->group->tile;
    if (owner->reduces) {
        (void)collect_sources(v, stream, run, gradient);
        CZ_TRY(reduce_into(v, owner, run->bytes, gradient));
    }
    owner->update(owner->update_context, run->param, (int64_t)(run->offset / element),
                  (int64_t)(run->bytes / element), gradient);
    if (!goes_to_all(owner))
        return CZ_OK;
    const char *value = cz__run_address(&owner->values, stream, run);
    const size_t bytes = cz__bytes_here(&owner->values, run->bytes);
    for (int r = 0; r < v->group->size && !owner->shared_values; r++)
        if (r != stream)
            CZ_TRY(copy(v, cz__run_address(&of(v, r)->values, stream, run), value, bytes));
    return CZ_OK;
}

/* A tile, or less: reduce it from all ranks' memory to where the owner wants it, and copy it on to
 * all ranks if it is for all. */
static cz_status reduce_run(const view *v, int stream, const cz__run *run)
{
    const cz__operation *owner = of(v, stream);
    const size_t bytes = cz__bytes_here(&owner->target, run->bytes);
    char *target = cz__run_address(&owner->target, stream, run);
    const bool read = collect_sources(v, stream, run, target);
    const bool past = v->large && !read && v->group->device->copy_once;
    CZ_TRY(reduce_into(v, owner, run->bytes, past ? v->group->tile : target));
    if (past)
        CZ_TRY(copy(v, target, v->group->tile, bytes));
    for (int r = 0; r < v->group->size && owner->exchanges; r++)
        if (r != stream)
            CZ_TRY(v->group->device->copy(NULL, cz__run_address(&of(v, r)->target, stream, run),
                                          target, bytes));
    return CZ_OK;
}

static cz_status exchange_run(const view *v, int stream, const cz__run *run)
{
    const char *from = cz__run_address(&of(v, stream)->source, sent_stream(v, stream), run);
    if (!is_shared_out(of(v, v->worker)))
        return copy(v, cz__run_address(&of(v, receiver_of(v))->target, stream, run), from,
                    run->bytes);
    for (int r = 0; r < v->group->size; r++)
        if (r != stream)
            CZ_TRY(copy(v, cz__run_address(&of(v, r)->target, stream, run), from, run->bytes));
    return CZ_OK;
}

static cz_status move_run(const view *v, int stream, const cz__run *run)
{
    const cz__operation *own = of(v, v->worker);
    if (own->update)
        return step_run(v, stream, run);
    return own->reduces ? reduce_run(v, stream, run) : exchange_run(v, stream, run);
}

/* ---- a part ---- */

/* What it moves of its own stream others get, too, if all get the same. */
static void count_run(const view *v, int stream, size_t bytes)
{
    v->part->bytes += bytes;
    if (stream == v->worker)
        v->part->own += bytes;
}

/* About so many bytes of it. */
static cz_status move_some(const view *v, size_t bytes)
{
    part_of_rank *part = v->part;
    for (size_t done = 0; done < bytes && !part->over;) {
        const int stream = part->stream < stream_count(v) ? stream_of(v, part->stream) : -1;
        cz__run run;
        if (stream < 0) {
            part->over = true;
        } else if (!part->open) {
            open_stream(v, stream);
        } else if (next_run(v, stream, &run)) {
            CZ_TRY(move_run(v, stream, &run));
            count_run(v, stream, run.bytes);
            done += run.bytes;
        } else {
            part->stream++;
            part->open = false;
        }
    }
    return CZ_OK;
}

static view view_of(cz_work *work, int worker, part_of_rank *part)
{
    const cz__region *source = &work->operation.source;
    return (view){.rendezvous = cz__seat_of(work)->rendezvous,
                  .group = work->group,
                  .sources = cz__region_sources(source, direct_of(work)->sources),
                  .source_count = cz__region_source_count(source),
                  .has_terms = cz__region_has_terms(source),
                  .worker = worker,
                  .large = total(&work->operation) >= LARGE_BYTES,
                  .part = part};
}

/* What changed hands counts for who had it, as if it had been sent: this rank's, once all have
 * finished. */
static size_t handed_over(const view *v)
{
    const cz__operation *own = of(v, v->worker);
    const size_t others = (size_t)v->group->size - 1;
    size_t all = 0, mine = 0;
    if (!is_owners(own) && !is_shared_out(own) && !is_pushed(own)) {
        for (int r = 0; r < v->group->size && !own->same_to_all; r++)
            mine += r == v->worker ? 0 : cz__region_bytes(&own->source, r);
        return own->same_to_all ? others * v->part->own : mine;
    }
    for (int r = 0; r < v->group->size; r++)
        all += cz__rendezvous_moved(v->rendezvous, r);
    if (is_shared_out(own)) {
        const bool is_root = own->header.root == v->worker;
        if (own->reduces)
            return is_root ? 0 : all;
        return is_root ? others * all : 0;
    }
    if (is_pushed(own))
        return own->header.root == v->worker ? 0 : v->part->bytes;
    if (own->reduces)
        mine = (all - v->part->bytes) * (size_t)cz__region_terms(&own->source, v->worker);
    if (!goes_to_all(own) || own->shared_values)
        return mine;
    return mine + others * cz__bytes_here(cz__region_taken(own), v->part->bytes);
}

/* ---- rendezvous ---- */

static size_t seat_bytes(int size, bool in_process)
{
    return in_process ? sizeof(cz__seat) : 0;
}

static bool takes_rendezvous(const cz_work *work)
{
    return work->group->rendezvous;
}

static void begin_rendezvous(cz_work *work)
{
    *cz__seat_of(work) = (cz__seat){0};
}

static cz_status advance_rendezvous(cz_work *work, cz__engine_progress *progress)
{
    const cz__seat *seat = cz__seat_of(work);
    const bool comes = !seat->rendezvous;
    if (comes)
        CZ_TRY(cz__rendezvous_come(work));
    if (seat->rendezvous && cz__rendezvous_await(work, cz__rendezvous_have_come) &&
        cz__rendezvous_judge(work) && cz__rendezvous_await(work, cz__rendezvous_is_settled)) {
        cz__rendezvous_take_verdict(work);
        *progress = CZ__DONE;
        return CZ_OK;
    }
    *progress = comes && seat->rendezvous ? CZ__MOVED : CZ__WAITS;
    return cz__rendezvous_keep_waiting(work, cz__rendezvous_is_settled);
}

static bool spin_rendezvous(cz_work *work, int turns, const atomic_ullong *events, uint64_t seen)
{
    return cz__rendezvous_watch(work, cz__rendezvous_is_settled, turns, events, seen);
}

const cz__engine cz__engine_rendezvous = {.meets = true,
                                          .takes = takes_rendezvous,
                                          .bytes = seat_bytes,
                                          .begin = begin_rendezvous,
                                          .advance = advance_rendezvous,
                                          .withdraw = cz__rendezvous_withdraw,
                                          .awaits = cz__rendezvous_misses,
                                          .spin = spin_rendezvous};

/* ---- data ---- */

static size_t direct_bytes(int size, bool in_process)
{
    return in_process ? sizeof(direct) + (size_t)size * sizeof(void *) : 0;
}

static bool takes_direct(const cz_work *work)
{
    return work->group->rendezvous;
}

/* Where no data move, ranks have parted already. */
static void begin_direct(cz_work *work)
{
    part_of_rank *part = &direct_of(work)->part;
    part->stream = 0;
    part->bytes = part->own = 0;
    part->open = false;
    part->over = !cz__seat_of(work)->rendezvous;
}

static cz_status advance_direct(cz_work *work, cz__engine_progress *progress)
{
    part_of_rank *part = &direct_of(work)->part;
    if (!cz__seat_of(work)->rendezvous) {
        *progress = CZ__DONE;
        return CZ_OK;
    }
    const view v = view_of(work, work->group->rank, part);
    if (!part->over && cz__rendezvous_enter(work)) {
        const cz_status status = move_some(&v, TURN_BYTES);
        cz__rendezvous_leave(work);
        *progress = CZ__MOVED;
        if (status == CZ_OK && part->over)
            cz__rendezvous_finish(work, part->bytes);
        return status;
    }
    if (!cz__rendezvous_await(work, cz__rendezvous_is_finished))
        return cz__rendezvous_keep_waiting(work, cz__rendezvous_is_finished);
    cz__traffic_handed_over(work->group, handed_over(&v));
    cz__rendezvous_part(work);
    *progress = CZ__DONE;
    return CZ_OK;
}

static bool awaits_none(const cz_work *work, int rank)
{
    return false; /* the rendezvous knows */
}

static bool spin_direct(cz_work *work, int turns, const atomic_ullong *events, uint64_t seen)
{
    return cz__rendezvous_watch(work, cz__rendezvous_is_finished, turns, events, seen);
}

const cz__engine cz__engine_direct = {.takes = takes_direct,
                                      .bytes = direct_bytes,
                                      .begin = begin_direct,
                                      .advance = advance_direct,
                                      .awaits = awaits_none,
                                      .spin = spin_direct};
