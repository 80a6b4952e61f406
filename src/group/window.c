/* SPDX-License-Identifier: MIT */
/* Who uses which lane of a group's window. Every rank says in the header whether it reaches the
 * others' parts; if all do, rank 0 chooses a lane and the verdict tells it. Where none is free, or
 * some rank reaches not all, data go by messages. */
#include <math.h>
#include <sched.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/pause.h"
#include "base/status.h"
#include "group/node.h"
#include "group/window.h"

enum {
    FLAGS_BYTES = 4096,
    SMALLEST_SLOT = 1024,
    GOOD_SLOT = 16 * 1024,
    LARGEST_SLOT = 64 * 1024,
    LANE_BITS = 7,
    STREAM_BIT = 1 << 7,
    USE_SHIFT = 8
};
enum { LARGE_BYTES = 4 << 20 }; /* results are not read again before they have left the caches */

_Static_assert(CZ__LANES * sizeof(cz__lane_flags) <= FLAGS_BYTES, "flags need more room");

/* In a lane and a round: one for each rank, and one for a result; more between machines. */
static size_t slots_of(const cz_group *group, const cz__window *window)
{
    return window->node ? (size_t)window->node->slots : (size_t)group->size + 1;
}

/* Rather fewer lanes than small slots. */
static bool lay_out(const cz_group *group, cz__window *window, size_t part_bytes)
{
    for (int lanes = CZ__LANES; lanes > 0 && part_bytes > FLAGS_BYTES; lanes /= 2) {
        const size_t slots = (size_t)lanes * CZ__LANE_ROUNDS * slots_of(group, window);
        const size_t bytes = (part_bytes - FLAGS_BYTES) / slots / SMALLEST_SLOT * SMALLEST_SLOT;
        window->lanes = lanes;
        window->slot_bytes = bytes < LARGEST_SLOT ? bytes : LARGEST_SLOT;
        if (bytes >= (lanes > 1 ? GOOD_SLOT : SMALLEST_SLOT))
            return true;
    }
    return false;
}

/* With a core for each rank there is nobody to give it to; else the rank that is awaited may need
 * it. */
static double spin_seconds(int ranks)
{
    const double ALONE = 100e-6, SHARED = 1e-6;
    cpu_set_t set;
    const bool enough = sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) >= ranks;
    return enough ? ALONE : SHARED;
}

static bool is_here(const cz_group *group, int rank)
{
    const cz_backend *backend = group->backend;
    return !backend->machine || backend->machine(group->endpoint, rank) ==
                                    backend->machine(group->endpoint, group->rank);
}

/* Of the ranks of this machine. */
static bool find_parts(const cz_group *group, char **parts, size_t *bytes)
{
    *bytes = SIZE_MAX;
    for (int r = 0; r < group->size; r++) {
        size_t its = 0;
        if (!is_here(group, r))
            continue;
        parts[r] = group->backend->window(group->endpoint, r, &its);
        *bytes = its < *bytes ? its : *bytes;
        if (!parts[r])
            return false;
    }
    return true;
}

/* The last rank that this one shares memory with. */
static int last_here(const cz_group *group)
{
    int last = group->size - 1;
    while (!is_here(group, last))
        last--;
    return last;
}

/* What is worked out once. False: no memory, or *useless. */
static bool plan(const cz_group *group, cz__window *window, size_t part_bytes, bool *useless)
{
    int ranks = 0;
    for (int r = 0; r < group->size; r++)
        ranks += is_here(group, r);
    window->spin_seconds = spin_seconds(ranks);
    if (ranks < group->size) {
        window->node = cz__node_create(group, useless);
        if (!window->node)
            return false;
    }
    *useless = !lay_out(group, window, part_bytes);
    return !*useless &&
           (!window->node || cz__node_equip(window->node, window->lanes, window->slot_bytes));
}

/* Once it is there it stays; where there is no memory it may be another time. */
bool cz__window_is_there(cz_group *group)
{
    bool useless = false;
    size_t bytes;
    if (group->window)
        return group->window->parts != NULL;
    if (!group->backend->window || group->size < 2 || group->device != cz_device_cpu() ||
        !group->backend->window(group->endpoint, last_here(group), &bytes))
        return false;
    cz__window *window = cz__calloc(1, sizeof *window);
    char **parts = cz__calloc((size_t)group->size, sizeof *parts);
    if (!window || !parts || !find_parts(group, parts, &bytes) ||
        !plan(group, window, bytes, &useless))
        goto fail;
    window->parts = parts;
    group->window = window;
    return true;
fail:
    if (window)
        cz__node_destroy(&window->node);
    if (useless)
        group->window = window;
    else
        cz__free(window);
    cz__free(parts);
    return false;
}

void cz__window_forget(cz_group *group)
{
    if (!group->window)
        return;
    cz__free(group->window->parts);
    cz__node_destroy(&group->window->node);
    cz__free(group->window);
    group->window = NULL;
}

size_t cz__window_bytes(int size, bool in_process)
{
    const size_t each = sizeof(cz__window_peer) + sizeof(void *);
    return in_process ? 0 : sizeof(cz__window_run) + (size_t)size * each;
}

/* ---- lanes ---- */

static cz__lane_flags *flags_of(const cz_group *group, int lane, int rank)
{
    return (cz__lane_flags *)(void *)group->window->parts[rank] + lane;
}

/* Have all ranks, of this machine, done their part in its last use? */
static bool is_free(const cz_group *group, int lane)
{
    for (int r = 0; r < group->size; r++)
        if (group->window->parts[r] &&
            atomic_load_explicit(&flags_of(group, lane, r)->ended, memory_order_acquire) !=
                group->window->uses[lane])
            return false;
    return true;
}

static cz__pace *pace_of(const cz_work *work)
{
    const cz__operation *operation = &work->operation;
    return &work->group->window->paces[operation->reduces + 2 * operation->exchanges +
                                       (operation->update ? 4 : 0)];
}

/* The faster one; at first, and at times later on, the other one. */
static bool to_stream(const cz_work *work)
{
    enum { FIRST = 4, PROBE = 16 };
    cz__pace *pace = pace_of(work);
    if (work->operation.longest < LARGE_BYTES || work->group->window->node)
        return false;
    const unsigned count = pace->count++;
    if (count < FIRST)
        return count % 2;
    return (pace->seconds[1] < pace->seconds[0]) != (count % PROBE == 0);
}

/* Slower ones count less: something came between. */
void cz__window_note(const cz_work *work)
{
    const cz__window_run *run = cz__run_of(work);
    double *pace = &pace_of(work)->seconds[run->stream];
    const double now = (cz__seconds() - run->began_at) / (double)(work->operation.longest + 1);
    if (work->group->rank != 0 || work->operation.longest < LARGE_BYTES)
        return;
    *pace = *pace == 0 || now < *pace ? now : *pace + (now - *pace) / 8;
}

/* Between machines nothing is saved there. (Nor is memory shared between them.) */
static bool goes_in_pairs(const cz__operation *operation)
{
    return operation->shared_values || (!operation->reduces && !operation->same_to_all);
}

uint64_t cz__window_grant(cz_work *work)
{
    cz_group *group = work->group;
    const cz__operation *operation = &work->operation;
    uint64_t from; /* operations before it go on, without lanes that the failed one may have kept */
    const bool intact = group->backend->broken(group->endpoint, &from, NULL, 0) == CZ_OK;
    if (!intact || operation->longest == 0 || (!operation->reduces && !operation->exchanges) ||
        (group->window->node && goes_in_pairs(operation)))
        return 0;
    for (int lane = 0; lane < group->window->lanes; lane++)
        if (is_free(group, lane))
            return ++group->window->uses[lane] << USE_SHIFT | (uint64_t)lane |
                   (to_stream(work) ? STREAM_BIT : 0);
    return 0;
}

void cz__window_begin(cz_work *work)
{
    const cz_group *group = work->group;
    const cz__operation *operation = &work->operation;
    cz__window_run *run = cz__run_of(work);
    const uint64_t grant = work->verdict.grant;
    const size_t slot = group->window->slot_bytes,
                 chunk = cz__chunk_bytes(group, operation->longest);
    *run = (cz__window_run){.use = grant >> USE_SHIFT,
                            .lane = (int)(grant & ((1 << LANE_BITS) - 1)),
                            .stream = grant & STREAM_BIT,
                            .began_at = cz__seconds(),
                            .chunk_bytes = chunk < slot ? chunk : slot,
                            .past_caches = operation->longest >= LARGE_BYTES};
    run->sources = (const void **)(void *)&run->peers[group->size];
    for (int r = 0; r < group->size; r++) {
        const bool own = operation->same_to_all && !operation->reduces;
        cz__cursor_begin(&operation->source, own ? group->rank : r, &run->peers[r].out);
        cz__cursor_begin(cz__region_taken(operation), r, &run->peers[r].in);
        run->peers[r].received.bytes = 0;
    }
    cz__cursor_begin(&operation->source, group->rank, &run->own);
    cz__cursor_begin(&operation->target, group->rank, &run->result);
    if (operation->pool) { /* it needs no turn */
        cz__executor_lock(group->executor);
        cz__pool_leave(work);
        cz__executor_unlock(group->executor);
    }
}

char *cz__window_slot(const cz_work *work, int rank, uint32_t round, int index)
{
    const cz_group *group = work->group;
    const size_t rounds =
        (size_t)cz__run_of(work)->lane * CZ__LANE_ROUNDS + round % CZ__LANE_ROUNDS;
    return group->window->parts[rank] + FLAGS_BYTES +
           (rounds * slots_of(group, group->window) + (size_t)index) * group->window->slot_bytes;
}

bool cz__window_next(const cz_work *work, const cz__region *region, cz__cursor *cursor,
                     cz__chunk *chunk)
{
    return cz__chunk_next(region, cursor, cz__run_of(work)->chunk_bytes, chunk);
}

/* ---- waiting for flags: closely for a moment, then not at all, with an eye on the group ---- */

static void pause_a_little(void)
{
    enum { TIMES = 16 };
    for (int i = 0; i < TIMES; i++)
        cz__pause();
}

/* The group is intact, and no rank has left that has not done its part. */
static cz_status check_ranks(const cz_work *work)
{
    const cz_group *group = work->group;
    CZ_TRY(cz__group_intact(group, work->sequence));
    for (int r = 0; r < group->size; r++) {
        if (r == group->rank || !group->window->parts[r]) /* messages find out */
            continue;
        const cz_status status = group->backend->present(group->endpoint, r);
        if (status != CZ_OK &&
            atomic_load(&cz__window_flags(work, r)->ended) < cz__run_of(work)->use)
            return status;
    }
    return CZ_OK;
}

/* Nothing can be done. True: look again at once; else another time, the group was looked after. */
static bool wait_a_moment(cz_work *work)
{
    const double YIELD = 100e-6; /* seconds */
    cz__window_run *run = cz__run_of(work);
    const double now = cz__seconds();
    if (run->stalled_at == 0)
        run->stalled_at = now;
    run->patient |= now - run->stalled_at > YIELD;
    if (run->patient)
        return false;
    if (now - run->stalled_at < work->group->window->spin_seconds)
        pause_a_little();
    else
        sched_yield();
    return true;
}

cz_status cz__window_go(cz_work *work, cz_status (*step)(cz_work *, bool *moved),
                        cz_status (*is_over)(cz_work *, bool *over), void (*finish)(cz_work *),
                        cz__progress *progress)
{
    cz__window_run *run = cz__run_of(work);
    for (bool moved, over;;) {
        CZ_TRY(is_over(work, &over));
        if (over) {
            finish(work);
            *progress = CZ__DONE;
            return CZ_OK;
        }
        CZ_TRY(step(work, &moved));
        if (moved) {
            *progress = CZ__MOVED;
            run->stalled_at = 0;
            run->patient = false;
        } else if (!wait_a_moment(work)) {
            return check_ranks(work);
        }
    }
}

double cz__window_watch(const cz_work *work, double now)
{
    const double SHORTEST = 50e-6, LONGEST = 1e-3; /* seconds */
    return now + fmin(fmax((now - work->patience.since) / 8, SHORTEST), LONGEST);
}
