/* SPDX-License-Identifier: MIT */
/* A group's window: made, laid out, waited at; and who uses which lane of it. Every rank says in
 * the header whether it reaches the others' parts; if all do, rank 0 chooses a lane and the verdict
 * tells it. Where none is free, or some rank reaches not all, data go by messages. */
#include <math.h>
#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "engine/window.h"

enum {
    BOXES_AT = 1536, /* after the flags */
    FLAGS_BYTES = 8192,
    SMALLEST_SLOT = 1024,
    GOOD_SLOT = 16 * 1024,
    LARGEST_SLOT = 64 * 1024,
    LARGEST_BOX = 16 * 1024,
    LANE_BITS = 7,
    STREAM_BIT = 1 << 7,
    USE_SHIFT = 8
};
enum { CORES_BYTES = sizeof(cpu_set_t) };
enum { LARGE_BYTES = 4 << 20 }; /* results are not read again before they have left the caches */

_Static_assert(CZ__LANES * sizeof(cz__lane_flags) <= BOXES_AT, "flags need more room");
_Static_assert(BOXES_AT + CZ__BOXES * sizeof(cz__box) <= FLAGS_BYTES - CORES_BYTES,
               "boxes need more room");

/* Of a part: flags, boxes, what is in these, slots. */
static size_t slots_at(const cz__window *window)
{
    return FLAGS_BYTES + 2 * CZ__BOXES * window->box_bytes;
}

/* Rather fewer lanes than small slots. */
static bool lay_out(cz__window *window, size_t part_bytes)
{
    const size_t box = part_bytes / 64 / 64 * 64; /* all take a quarter */
    if (window->topology->machine_count == 1)
        window->box_bytes = box < LARGEST_BOX ? box : LARGEST_BOX;
    const size_t before = slots_at(window);
    for (int lanes = CZ__LANES; lanes > 0 && part_bytes > before; lanes /= 2) {
        const size_t slots = (size_t)lanes * CZ__LANE_ROUNDS * (size_t)window->topology->slots;
        const size_t bytes = (part_bytes - before) / slots / SMALLEST_SLOT * SMALLEST_SLOT;
        window->lane_count = lanes;
        window->slot_bytes = bytes < LARGEST_SLOT ? bytes : LARGEST_SLOT;
        if (bytes >= (lanes > 1 ? GOOD_SLOT : SMALLEST_SLOT))
            return true;
    }
    return false;
}

/* At the end of the flags: the cores that the rank may run on. */
static _Atomic uint64_t *cores_of(char *part)
{
    return (_Atomic uint64_t *)(void *)(part + FLAGS_BYTES - CORES_BYTES);
}

static void tell_cores(char *part)
{
    uint64_t words[CORES_BYTES / sizeof(uint64_t)];
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return;
    memcpy(words, &set, sizeof words);
    for (size_t k = 0; k < sizeof words / sizeof *words; k++)
        atomic_store_explicit(&cores_of(part)[k], words[k], memory_order_relaxed);
}

/* How many cores a rank has told, 0 as long as it has told none; they are added to those of all. */
static int count_cores(char *part, uint64_t *all)
{
    int count = 0;
    for (size_t k = 0; k < CORES_BYTES / sizeof *all; k++) {
        const uint64_t word = atomic_load_explicit(&cores_of(part)[k], memory_order_relaxed);
        count += __builtin_popcountll(word);
        all[k] |= word;
    }
    return count;
}

/* How long a rank that waits looks before it gives up its core. If there is a core for each rank
 * nobody else needs it; otherwise the rank that is awaited may. A rank may be bound to a core of
 * its own, so the cores of all ranks are counted. */
static double spin_seconds(const cz_group *group)
{
    const double ALONE = 100e-6, SHARED = 1e-6;
    cz__window *window = group->window;
    uint64_t all[CORES_BYTES / sizeof(uint64_t)] = {0};
    int ranks = 0, cores = 0;
    bool told = true;
    if (window->spin_seconds > 0)
        return window->spin_seconds;
    for (int r = 0; r < group->size; r++)
        if (window->parts[r]) {
            told = count_cores(window->parts[r], all) > 0 && told;
            ranks++;
        }
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        cores += __builtin_popcountll(all[k]);
    const double seconds = cores >= ranks ? ALONE : SHARED;
    if (told)
        window->spin_seconds = seconds;
    return seconds;
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

static bool allocate_rounds(cz__window *window)
{
    const cz__topology *topology = window->topology;
    const size_t rounds = (size_t)window->lane_count * CZ__LANE_ROUNDS;
    const size_t size = (size_t)topology->size;
    window->request_count = 2 * (topology->duty_count + topology->machine_count);
    window->leaves = cz__calloc(rounds * size, sizeof *window->leaves);
    window->requests = cz__calloc(rounds * (size_t)window->request_count, sizeof *window->requests);
    if (!window->leaves || !window->requests)
        return false;
    for (int lane = 0; lane < window->lane_count; lane++) {
        const size_t before = (size_t)lane * CZ__LANE_ROUNDS;
        window->lanes[lane].leaves = window->leaves + before * size;
        window->lanes[lane].requests = window->requests + before * (size_t)window->request_count;
    }
    return true;
}

static bool allocate_sums(cz__window *window)
{
    const size_t size = (size_t)window->topology->size;
    cz__partial_sums *sums = &window->sums;
    if (window->topology->machine_count == 1)
        return true;
    sums->tiles = cz__allocate(CZ_MEMORY_STAGING, (size + 1) * CZ__WINDOW_TILE * sizeof(float));
    sums->tile_sources = cz__calloc(size, sizeof *sums->tile_sources);
    sums->wide = cz__calloc(size, sizeof *sums->wide);
    return sums->tiles && sums->tile_sources && sums->wide;
}

static void destroy(cz__window **window)
{
    cz__window *w = *window;
    if (!w)
        return;
    cz__free(w->parts);
    cz__topology_destroy(&w->topology);
    cz__free(w->leaves);
    if (!w->stuck)
        cz__free(w->requests);
    cz__free(w->sums.tiles);
    cz__free(w->sums.tile_sources);
    cz__free(w->sums.wide);
    cz__free(w);
    *window = NULL;
}

/* NULL: no memory. A window without parts is of no use. */
static cz__window *create(const cz_group *group)
{
    bool useless = false;
    size_t bytes;
    cz__window *window = cz__calloc(1, sizeof *window);
    if (!window)
        return NULL;
    window->parts = cz__calloc((size_t)group->size, sizeof *window->parts);
    if (!window->parts || !find_parts(group, window->parts, &bytes))
        goto fail;
    window->topology = cz__topology_create(group, &useless);
    useless = useless || (window->topology && !lay_out(window, bytes));
    if (useless) {
        cz__free(window->parts);
        window->parts = NULL;
        return window;
    }
    if (!window->topology || !allocate_rounds(window) || !allocate_sums(window))
        goto fail;
    tell_cores(window->parts[group->rank]);
    return window;
fail:
    destroy(&window);
    return NULL;
}

bool cz__window_is_there(cz_group *group)
{
    size_t bytes;
    if (group->window)
        return group->window->parts != NULL;
    if (!group->backend->window || group->size < 2 || group->device != cz_device_cpu() ||
        !group->backend->window(group->endpoint, last_here(group), &bytes))
        return false;
    group->window = create(group);
    return group->window && group->window->parts;
}

void cz__window_forget(cz_group *group)
{
    destroy(&group->window);
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

/* Should stores go past the caches? The faster way is taken; at first, and now and then later, the
 * other one is tried. */
static bool to_stream(const cz_work *work)
{
    enum { FIRST = 4, PROBE = 16 };
    cz__pace *pace = pace_of(work);
    if (work->operation.longest < LARGE_BYTES || work->group->window->topology->machine_count > 1)
        return false;
    const unsigned count = pace->count++;
    if (count < FIRST)
        return count % 2;
    return (pace->seconds[1] < pace->seconds[0]) != (count % PROBE == 0);
}

/* A slower operation counts less than a faster one: something may have come between. */
void cz__window_note(const cz_work *work)
{
    const cz__window_run *run = cz__run_of(work);
    double *pace = &pace_of(work)->seconds[run->stream];
    const double now = (cz__seconds() - run->began_at) / (double)(work->operation.longest + 1);
    if (work->group->rank != 0 || work->operation.longest < LARGE_BYTES)
        return;
    *pace = *pace == 0 || now < *pace ? now : *pace + (now - *pace) / 8;
}

/* Does each pair of ranks exchange data of its own? Between machines the window saves nothing then.
 * (Shared values are on one machine anyway.) */
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
        (group->window->topology->machine_count > 1 && goes_in_pairs(operation)))
        return 0;
    for (int lane = 0; lane < group->window->lane_count; lane++)
        if (is_free(group, lane))
            return ++group->window->uses[lane] << USE_SHIFT | (uint64_t)lane |
                   (to_stream(work) ? STREAM_BIT : 0);
    return 0;
}

cz__box *cz__window_box(const cz_group *group, int rank, int index)
{
    return (cz__box *)(void *)(group->window->parts[rank] + BOXES_AT) + index;
}

char *cz__window_box_data(const cz_group *group, int rank, int index)
{
    return group->window->parts[rank] + FLAGS_BYTES + 2 * (size_t)index * group->window->box_bytes;
}

bool cz__window_look(const cz_group *group, cz__close_look *look)
{
    enum { TURNS = 16 };           /* between looks at the clock, while it keeps the core */
    const double LONGEST = 100e-6; /* seconds */
    if (look->over)
        return false;
    if (look->gives_way)
        sched_yield();
    else
        cz__pause();
    if (++look->turns == TURNS)
        look->since = cz__seconds();
    if (look->gives_way || look->turns % TURNS == 0) {
        const double spent = cz__seconds() - look->since;
        look->gives_way = spent > spin_seconds(group);
        look->over = spent > LONGEST;
    }
    return true;
}

double cz__window_watch(const cz_work *work, double now)
{
    const double SHORTEST = 50e-6, LONGEST = 1e-3; /* seconds */
    return now + fmin(fmax((now - work->patience.since) / 8, SHORTEST), LONGEST);
}

const cz__region *cz__window_opened(const cz_work *work, int rank)
{
    const cz__operation *operation = &work->operation;
    if (operation->reduces || !operation->same_to_all)
        return &operation->source;
    return rank == work->group->rank ? cz__region_given(operation) : cz__region_taken(operation);
}

void cz__window_begin(cz_work *work)
{
    const cz_group *group = work->group;
    const cz__operation *operation = &work->operation;
    cz__window_run *run = cz__run_of(work);
    const uint64_t grant = work->verdict.grant;
    const size_t slot = group->window->slot_bytes,
                 chunk = cz__chunk_bytes(group, operation->longest),
                 bytes = cz__stream_bytes(operation, chunk < slot ? chunk : slot);
    *run = (cz__window_run){.use = grant >> USE_SHIFT,
                            .lane = (int)(grant & ((1 << LANE_BITS) - 1)),
                            .stream = grant & STREAM_BIT,
                            .began_at = cz__seconds(),
                            .chunk_bytes = cz__terms_chunk(&operation->source, bytes),
                            .past_caches = operation->longest >= LARGE_BYTES};
    run->sources = (const void **)(void *)&run->peers[group->size];
    for (int r = 0; r < group->size; r++) {
        cz__cursor_begin(cz__window_opened(work, r), r, &run->peers[r].out);
        cz__cursor_begin(cz__region_taken(operation), r, &run->peers[r].in);
        run->peers[r].received.bytes = 0;
    }
    cz__cursor_begin(&operation->target, group->rank, &run->result);
    cz__pool_pass(work);
}

char *cz__window_slot(const cz_work *work, int rank, uint32_t round, int index)
{
    const cz__window *window = work->group->window;
    const size_t rounds =
        (size_t)cz__run_of(work)->lane * CZ__LANE_ROUNDS + round % CZ__LANE_ROUNDS;
    const size_t slot = rounds * (size_t)window->topology->slots + (size_t)index;
    return window->parts[rank] + slots_at(window) + slot * window->slot_bytes;
}

cz__leaf *cz__window_leaf(const cz_work *work, uint32_t round, int rank)
{
    const cz__lane *lane = &work->group->window->lanes[cz__run_of(work)->lane];
    return &lane->leaves[(int)(round % CZ__LANE_ROUNDS) * work->group->size + rank];
}

cz__request *cz__window_request(const cz_work *work, uint32_t round, cz__window_message message,
                                int number)
{
    const cz__window *window = work->group->window;
    const int duties = window->topology->duty_count, machines = window->topology->machine_count;
    const int begin[] = {0, duties, 2 * duties, 2 * duties + machines};
    return &window->lanes[cz__run_of(work)->lane]
                .requests[(int)(round % CZ__LANE_ROUNDS) * window->request_count + begin[message] +
                          number];
}
