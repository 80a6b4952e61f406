/* SPDX-License-Identifier: MIT */
#include "support/transports.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group/internal.h"
#include "support/cz_test.h"

/* ---- a transfer that has ended sometimes does not say so, by chance ---- */

static _Thread_local uint64_t late_asked;

static cz_status late_test(void *endpoint, cz_transfer *t, bool *done)
{
    *done = false;
    return mix(++late_asked) % 8 ? cz__backend_threads.test(endpoint, t, done) : CZ_OK;
}

/* Nobody else calls when a transfer may be asked again. */
static const double LATE_POLL_SECONDS = 5e-6;

static void late_poll(void *endpoint)
{
}

/* ---- a window ----
 *
 * It wraps the backend of thread ranks, and counts the data that go by messages all the same. */

typedef struct window_world window_world;

/* One rank's endpoint. */
typedef struct window_seat {
    window_world *world;
    int rank;
    void *inner; /* the endpoint of thread ranks */
    atomic_int asked;
    atomic_bool left;
    char why[100];
} window_seat;

struct window_world {
    window_world *next, *parent;
    uint64_t id;
    int leader, size, present;
    size_t part_bytes;
    char *memory;
    int machine_of[MANY_RANKS];
    window_seat seats[MANY_RANKS];
};

static pthread_mutex_t window_lock = PTHREAD_MUTEX_INITIALIZER;
static window_world *window_worlds;
atomic_int window_messages;
atomic_int window_headers;
atomic_llong window_message_bytes;
size_t window_part_bytes = 128 * 1024;
int window_late;
int window_blind = -1;
bool window_shuffles;
_Thread_local int window_outstays = -1;
int (*window_place)(int rank, int size);

static window_world *window_make(window_world *parent, uint64_t id, const int *ranks, int size)
{
    const int leader = ranks ? ranks[0] : 0;
    window_world *w = window_worlds;
    while (w && !(parent && w->parent == parent && w->id == id && w->leader == leader))
        w = w->next;
    if (w)
        return w;
    w = calloc(1, sizeof *w);
    const size_t bytes = window_part_bytes * (size_t)size;
    if (!w || !(w->memory = aligned_alloc(4096, bytes)))
        abort();
    memset(w->memory, 0, bytes);
    w->id = id;
    w->leader = leader;
    w->size = w->present = size;
    w->parent = parent;
    w->part_bytes = window_part_bytes;
    w->next = window_worlds;
    for (int r = 0; r < size; r++) {
        w->seats[r].world = w;
        w->seats[r].rank = r;
        w->machine_of[r] = parent         ? parent->machine_of[ranks[r]]
                           : window_place ? window_place(r, size)
                                          : 0;
    }
    return window_worlds = w;
}

static int window_machine(void *endpoint, int rank)
{
    const window_world *w = ((window_seat *)endpoint)->world;
    int first = 0;
    while (w->machine_of[first] != w->machine_of[rank])
        first++;
    return first;
}

static void window_drop(window_world *w)
{
    window_world **link = &window_worlds;
    while (*link != w)
        link = &(*link)->next;
    *link = w->next;
    free(w->memory);
    free(w);
}

static cz_status window_split(void *endpoint, uint64_t id, const int *ranks, int count, int rank,
                              void **out)
{
    window_seat *s = endpoint;
    void *inner = NULL;
    CZ_TRY(cz__backend_threads.split(s->inner, id, ranks, count, rank, &inner));
    if (rank < 0)
        return CZ_OK;
    pthread_mutex_lock(&window_lock);
    window_world *w = window_make(s->world, id, ranks, count);
    pthread_mutex_unlock(&window_lock);
    w->seats[rank].inner = inner;
    *out = &w->seats[rank];
    return CZ_OK;
}

static void window_leave(void *endpoint, const char *why)
{
    window_seat *s = endpoint;
    snprintf(s->why, sizeof s->why, "%s", why ? why : "");
    atomic_store(&s->left, true);
    cz__backend_threads.leave(s->inner, why);
    pthread_mutex_lock(&window_lock);
    if (--s->world->present == 0)
        window_drop(s->world);
    pthread_mutex_unlock(&window_lock);
}

static void *window_part(void *endpoint, int rank, size_t *bytes)
{
    window_seat *s = endpoint;
    *bytes = s->world->part_bytes;
    if (s->world->machine_of[rank] != s->world->machine_of[s->rank])
        return NULL;
    if (s->rank == window_blind || atomic_fetch_add(&s->asked, 1) < window_late * s->rank)
        return NULL;
    return s->world->memory + (size_t)rank * s->world->part_bytes;
}

static cz_status window_present(void *endpoint, int rank)
{
    const window_seat *its = &((window_seat *)endpoint)->world->seats[rank];
    while (rank == window_outstays && !atomic_load(&its->left))
        sched_yield(); /* it waits for nobody */
    return atomic_load(&its->left)
               ? cz_fail(CZ_ERR_PEER, "rank %d left the group%s%s%s", rank, its->why[0] ? " (" : "",
                         its->why, its->why[0] ? ")" : "")
               : CZ_OK;
}

static cz_status window_post_send(void *endpoint, cz_transfer *t)
{
    const unsigned step = (unsigned)(t->tag & 0xff);
    if (step == CZ__STEP_REDUCE || step == CZ__STEP_EXCHANGE) {
        atomic_fetch_add(&window_messages, 1);
        atomic_fetch_add(&window_message_bytes, (long long)t->bytes);
    } else {
        atomic_fetch_add(&window_headers, 1);
    }
    return cz__backend_threads.post_send(((window_seat *)endpoint)->inner, t);
}

static cz_status window_post_receive(void *endpoint, cz_transfer *t)
{
    return cz__backend_threads.post_receive(((window_seat *)endpoint)->inner, t);
}

static cz_status window_test(void *endpoint, cz_transfer *t, bool *done)
{
    void *inner = ((window_seat *)endpoint)->inner;
    return window_shuffles ? late_test(inner, t, done) : cz__backend_threads.test(inner, t, done);
}

static bool window_withdraw(void *endpoint, cz_transfer *t)
{
    return cz__backend_threads.withdraw(((window_seat *)endpoint)->inner, t);
}

static void window_break(void *endpoint, uint64_t sequence, cz_status status, const char *sentence)
{
    cz__backend_threads.break_group(((window_seat *)endpoint)->inner, sequence, status, sentence);
}

static cz_status window_broken(void *endpoint, uint64_t *sequence, char *text, size_t bytes)
{
    return cz__backend_threads.broken(((window_seat *)endpoint)->inner, sequence, text, bytes);
}

static void window_announce(void *endpoint, uint64_t begun)
{
    cz__backend_threads.announce(((window_seat *)endpoint)->inner, begun);
}

static uint64_t window_announced(void *endpoint, int rank)
{
    return cz__backend_threads.announced(((window_seat *)endpoint)->inner, rank);
}

static void window_start(void *endpoint, void (*notify)(void *context), void *context)
{
    cz__backend_threads.start(((window_seat *)endpoint)->inner, notify, context);
}

const cz_backend window_backend = {
    .abi = CZ_BACKEND_ABI,
    .size = sizeof(cz_backend),
    .name = "threads", /* tests look at it */
    .start = window_start,
    .post_send = window_post_send,
    .post_receive = window_post_receive,
    .test = window_test,
    .withdraw = window_withdraw,
    .break_group = window_break,
    .broken = window_broken,
    .announce = window_announce,
    .announced = window_announced,
    .leave = window_leave,
    .split = window_split,
    .window = window_part,
    .present = window_present,
    .machine = window_machine,
};

cz_status window_create(cz_group **groups, int world, const cz_group_options *options)
{
    void *inner[MANY_RANKS];
    cz_backend table = window_backend;
    if (window_shuffles) {
        table.poll = late_poll;
        table.poll_seconds = LATE_POLL_SECONDS;
    }
    CZ_TRY(cz__threads_create(inner, world));
    pthread_mutex_lock(&window_lock);
    window_world *w = window_make(NULL, 0, NULL, world);
    pthread_mutex_unlock(&window_lock);
    for (int r = 0; r < world; r++)
        w->seats[r].inner = inner[r];
    cz_status status = CZ_OK;
    for (int r = 0; r < world; r++) { /* an endpoint is left if its group fails */
        if (status == CZ_OK)
            status = cz_group_create_custom(&groups[r], r, world, &table, &w->seats[r], options);
        else
            window_leave(&w->seats[r], NULL);
    }
    return status;
}

/* ---- messages ---- */

static cz_status late_create(cz_group **groups, int world, const cz_group_options *options)
{
    void *endpoints[MANY_RANKS];
    cz_backend late = cz__backend_threads;
    late.test = late_test;
    late.poll = late_poll;
    late.poll_seconds = LATE_POLL_SECONDS;
    CZ_TRY(cz__threads_create(endpoints, world));
    cz_status status = CZ_OK;
    for (int r = 0; r < world; r++) { /* an endpoint is left if its group fails */
        if (status == CZ_OK)
            status = cz_group_create_custom(&groups[r], r, world, &late, endpoints[r], options);
        else
            cz__backend_threads.leave(endpoints[r], NULL);
    }
    return status;
}

/* ---- the choice ---- */

int in_turn(int rank, int size)
{
    return rank % 2;
}

bool ranks_are(const char *transport)
{
    const char *chosen = getenv("CZ_TEST_RANKS");
    return strcmp(chosen ? chosen : "threads", transport) == 0;
}

/* Other transports may look instead of sleeping, which takes cores. */
int largest_world(void)
{
    if (ranks_are("threads"))
        return SANITIZED ? 5 : 9;
    return SANITIZED ? 3 : 5;
}

/* As cz_group_create_threads(). */
cz_status create_ranks(cz_group **groups, int world, const cz_group_options *options)
{
    if (ranks_are("threads"))
        return cz_group_create_threads(groups, world, options);
    if (ranks_are("messages"))
        return late_create(groups, world, options);
    if (ranks_are("nodes")) {
        window_place = in_turn;
        window_part_bytes = 1 << 20; /* there are more slots in it */
    } else if (!ranks_are("segment")) {
        return cz_fail(CZ_ERR_ARGUMENT, "CZ_TEST_RANKS=%s", getenv("CZ_TEST_RANKS"));
    }
    return window_create(groups, world, options);
}
