/* SPDX-License-Identifier: MIT */
/* Thread ranks with collectives of their own: whoever comes adds its input to a common block, in
 * the order of arrival; everyone takes its part when all have come. It wraps the backend of thread
 * ranks and counts the headers that go through it. It refuses 16-bit types, bytes, and reductions
 * but sum, average and max. */
#ifndef CZ_NATIVE_BACKEND_H
#define CZ_NATIVE_BACKEND_H

#include "group/group_test.h"
#include "group/internal.h"

enum { NATIVE_KINDS = 5, NATIVE_HISTORY = 4096 };

typedef enum native_kind {
    NATIVE_ALL_REDUCE,
    NATIVE_REDUCE_SCATTER,
    NATIVE_ALL_GATHER,
    NATIVE_BROADCAST,
    NATIVE_BARRIER
} native_kind;

/* One operation of all ranks. */
typedef struct native_meeting native_meeting;
struct native_meeting {
    native_meeting *next;
    uint64_t tag;
    native_kind kind;
    int come, gone;
    bool has_come[MANY_RANKS];
    double *block; /* of all ranks' elements */
};

typedef struct native_world native_world;

/* One rank's endpoint. */
typedef struct native_seat {
    native_world *world;
    int rank;
    void *inner;                   /* the endpoint of thread ranks */
    void (*notify)(void *context); /* as the rest under the lock */
    void *context;
    bool left;
    int started; /* in order */
    uint64_t order[NATIVE_HISTORY];
} native_seat;

struct native_world {
    native_world *next; /* in the list of all */
    uint64_t id;
    int leader, size; /* of a sub-group: its first rank in the parent */
    native_world *parent;
    native_meeting *meetings;
    native_seat seats[MANY_RANKS];
};

static pthread_mutex_t native_lock = PTHREAD_MUTEX_INITIALIZER; /* of everything here */
static native_world *native_worlds;
static atomic_int native_headers, native_messages; /* sent: headers, and all others */
static atomic_int native_runs[NATIVE_KINDS];       /* started, on all ranks together */

/* With the lock; NULL: no memory. */
static native_world *native_find(native_world *parent, uint64_t id, int leader, int size)
{
    native_world *w = native_worlds;
    while (w && !(parent && w->parent == parent && w->id == id && w->leader == leader))
        w = w->next;
    if (w || !(w = calloc(1, sizeof *w)))
        return w;
    *w = (native_world){
        .next = native_worlds, .id = id, .leader = leader, .size = size, .parent = parent};
    for (int r = 0; r < size; r++)
        w->seats[r] = (native_seat){.world = w, .rank = r};
    return native_worlds = w;
}

/* ---- meetings; with the lock ---- */

static native_meeting *native_meet(native_world *w, uint64_t tag, native_kind kind, int64_t count)
{
    native_meeting *m = w->meetings;
    while (m && m->tag != tag)
        m = m->next;
    if (m)
        return m;
    m = calloc(1, sizeof *m);
    if (!m || !(m->block = calloc((size_t)(count * w->size) + 1, sizeof *m->block)))
        abort();
    m->tag = tag;
    m->kind = kind;
    m->next = w->meetings;
    return w->meetings = m;
}

static void native_end(native_world *w, native_meeting *m)
{
    native_meeting **link = &w->meetings;
    while (*link != m)
        link = &(*link)->next;
    *link = m->next;
    free(m->block);
    free(m);
}

static void native_part(native_world *w, native_meeting *m)
{
    if (++m->gone == w->size)
        native_end(w, m);
}

static double native_load(cz_dtype dtype, const void *from, int64_t i)
{
    return dtype == CZ_F32   ? (double)((const float *)from)[i]
           : dtype == CZ_F64 ? ((const double *)from)[i]
           : dtype == CZ_I32 ? (double)((const int32_t *)from)[i]
                             : (double)((const int64_t *)from)[i];
}

static void native_store(cz_dtype dtype, void *to, int64_t i, double value)
{
    if (dtype == CZ_F32)
        ((float *)to)[i] = (float)value;
    else if (dtype == CZ_F64)
        ((double *)to)[i] = value;
    else if (dtype == CZ_I32)
        ((int32_t *)to)[i] = (int32_t)value;
    else
        ((int64_t *)to)[i] = (int64_t)value;
}

/* f32 sums are rounded after each rank: the order of arrival shows. */
static double native_combine(const cz_collective *c, double a, double b)
{
    if (c->reduction == CZ_MAX)
        return a > b ? a : b;
    return c->dtype == CZ_F32 ? (double)((float)a + (float)b) : a + b;
}

static void native_give(const native_seat *s, native_meeting *m, const cz_collective *c)
{
    const bool reduces = m->kind <= NATIVE_REDUCE_SCATTER;
    const int64_t count = m->kind == NATIVE_REDUCE_SCATTER ? c->count * s->world->size : c->count;
    double *to = m->kind == NATIVE_ALL_GATHER ? m->block + s->rank * count : m->block;
    if (m->kind == NATIVE_BROADCAST && c->root != s->rank)
        return;
    for (int64_t i = 0; i < count; i++) {
        const double mine = native_load(c->dtype, c->input, i);
        to[i] = reduces && m->come > 0 ? native_combine(c, to[i], mine) : mine;
    }
}

static void native_take(const native_seat *s, const native_meeting *m, const cz_collective *c)
{
    const int size = s->world->size;
    const int64_t count = m->kind == NATIVE_ALL_GATHER ? c->count * size : c->count;
    const double *from = m->kind == NATIVE_REDUCE_SCATTER ? m->block + s->rank * count : m->block;
    for (int64_t i = 0; i < count; i++)
        native_store(c->dtype, c->output, i, c->reduction == CZ_AVERAGE ? from[i] / size : from[i]);
}

static void native_notify(native_world *w, int but)
{
    for (int r = 0; r < w->size; r++)
        if (r != but && w->seats[r].notify)
            w->seats[r].notify(w->seats[r].context);
}

/* ---- the entries ---- */

static bool native_takes(const cz_collective *c, native_kind kind)
{
    const bool wide =
        c->dtype == CZ_F32 || c->dtype == CZ_F64 || c->dtype == CZ_I32 || c->dtype == CZ_I64;
    return kind == NATIVE_BARRIER ||
           (wide && (kind > NATIVE_REDUCE_SCATTER || c->reduction == CZ_SUM ||
                     c->reduction == CZ_AVERAGE || c->reduction == CZ_MAX));
}

static cz_status native_begin(void *endpoint, cz_collective *c, native_kind kind)
{
    native_seat *s = endpoint;
    native_world *w = s->world;
    if (!native_takes(c, kind))
        return cz_fail(CZ_ERR_UNSUPPORTED, "native: not of %s", cz_dtype_name(c->dtype));
    pthread_mutex_lock(&native_lock);
    native_meeting *m = native_meet(w, c->tag, kind, c->count);
    native_give(s, m, c);
    m->has_come[s->rank] = true;
    c->own[0] = m;
    if (c->in_order && s->started < NATIVE_HISTORY)
        s->order[s->started++] = c->tag;
    if (++m->come == w->size)
        native_notify(w, s->rank);
    pthread_mutex_unlock(&native_lock);
    atomic_fetch_add(&native_runs[kind], 1);
    return CZ_OK;
}

#define NATIVE_ENTRY(name, kind)                                                                   \
    static cz_status name(void *endpoint, cz_collective *c)                                        \
    {                                                                                              \
        return native_begin(endpoint, c, kind);                                                    \
    }
NATIVE_ENTRY(native_all_reduce, NATIVE_ALL_REDUCE)
NATIVE_ENTRY(native_reduce_scatter, NATIVE_REDUCE_SCATTER)
NATIVE_ENTRY(native_all_gather, NATIVE_ALL_GATHER)
NATIVE_ENTRY(native_broadcast, NATIVE_BROADCAST)
NATIVE_ENTRY(native_barrier, NATIVE_BARRIER)

static cz_status native_test_collective(void *endpoint, cz_collective *c, bool *done)
{
    native_seat *s = endpoint;
    native_world *w = s->world;
    native_meeting *m = c->own[0];
    int gone = -1;
    pthread_mutex_lock(&native_lock);
    *done = m->come == w->size;
    for (int r = 0; r < w->size && !*done; r++)
        if (w->seats[r].left && !m->has_come[r])
            gone = r;
    if (*done) {
        native_take(s, m, c);
        native_part(w, m);
    }
    pthread_mutex_unlock(&native_lock);
    return gone < 0 ? CZ_OK : cz_fail(CZ_ERR_PEER, "rank %d left the group", gone);
}

static bool native_withdraw_collective(void *endpoint, cz_collective *c)
{
    pthread_mutex_lock(&native_lock); /* what it gave is a copy */
    native_part(((native_seat *)endpoint)->world, c->own[0]);
    pthread_mutex_unlock(&native_lock);
    return true;
}

static void native_start(void *endpoint, void (*notify)(void *), void *context)
{
    native_seat *s = endpoint;
    pthread_mutex_lock(&native_lock);
    s->notify = notify;
    s->context = context;
    pthread_mutex_unlock(&native_lock);
    cz__backend_threads.start(s->inner, notify, context);
}

static void native_leave(void *endpoint, const char *why)
{
    native_seat *s = endpoint;
    pthread_mutex_lock(&native_lock);
    s->notify = NULL;
    s->left = true;
    native_notify(s->world, s->rank);
    pthread_mutex_unlock(&native_lock);
    cz__backend_threads.leave(s->inner, why);
}

static cz_status native_split(void *endpoint, uint64_t id, const int *ranks, int count, int rank,
                              void **out)
{
    native_seat *s = endpoint;
    void *inner = NULL;
    CZ_TRY(cz__backend_threads.split(s->inner, id, ranks, count, rank, &inner));
    if (rank < 0)
        return CZ_OK;
    pthread_mutex_lock(&native_lock);
    native_world *w = native_find(s->world, id, ranks[0], count);
    if (!w)
        abort();
    w->seats[rank].inner = inner;
    *out = &w->seats[rank];
    pthread_mutex_unlock(&native_lock);
    return CZ_OK;
}

static cz_status native_post_send(void *endpoint, cz_transfer *t)
{
    atomic_fetch_add((t->tag & 0xff) <= 2 ? &native_headers : &native_messages, 1);
    return cz__backend_threads.post_send(((native_seat *)endpoint)->inner, t);
}

static cz_status native_post_receive(void *endpoint, cz_transfer *t)
{
    return cz__backend_threads.post_receive(((native_seat *)endpoint)->inner, t);
}

static cz_status native_test(void *endpoint, cz_transfer *t, bool *done)
{
    return cz__backend_threads.test(((native_seat *)endpoint)->inner, t, done);
}

static bool native_withdraw(void *endpoint, cz_transfer *t)
{
    return cz__backend_threads.withdraw(((native_seat *)endpoint)->inner, t);
}

static void native_break(void *endpoint, uint64_t sequence, cz_status status, const char *sentence)
{
    cz__backend_threads.break_group(((native_seat *)endpoint)->inner, sequence, status, sentence);
}

static cz_status native_broken(void *endpoint, uint64_t *sequence, char *sentence, size_t bytes)
{
    return cz__backend_threads.broken(((native_seat *)endpoint)->inner, sequence, sentence, bytes);
}

static void native_announce(void *endpoint, uint64_t begun)
{
    cz__backend_threads.announce(((native_seat *)endpoint)->inner, begun);
}

static uint64_t native_announced(void *endpoint, int rank)
{
    return cz__backend_threads.announced(((native_seat *)endpoint)->inner, rank);
}

static const cz_backend native_backend = {
    .abi = CZ_BACKEND_ABI,
    .size = sizeof(cz_backend),
    .name = "native",
    .start = native_start,
    .post_send = native_post_send,
    .post_receive = native_post_receive,
    .test = native_test,
    .withdraw = native_withdraw,
    .break_group = native_break,
    .broken = native_broken,
    .announce = native_announce,
    .announced = native_announced,
    .leave = native_leave,
    .split = native_split,
    .all_reduce = native_all_reduce,
    .reduce_scatter = native_reduce_scatter,
    .all_gather = native_all_gather,
    .broadcast = native_broadcast,
    .barrier = native_barrier,
    .test_collective = native_test_collective,
    .withdraw_collective = native_withdraw_collective,
};

/* ---- ranks on it ---- */

static void native_free_worlds(void)
{
    for (native_world *w; (w = native_worlds); free(w)) {
        native_worlds = w->next;
        while (w->meetings)
            native_end(w, w->meetings);
    }
}

/* A rank that started its own calls in another order than rank 0, as far as both did; -1: none. */
static int native_out_of_order(void)
{
    for (const native_world *w = native_worlds; w; w = w->next)
        for (int r = 1; r < w->size; r++)
            for (int i = 0; i < w->seats[0].started && i < w->seats[r].started; i++)
                if (w->seats[r].order[i] != w->seats[0].order[i])
                    return r;
    return -1;
}

/* `body` on ranks with this table; the counts begin anew. */
static void native_run(const cz_backend *table, int world, const cz_group_options *options,
                       cz_rank_main body, void *arg, outcome *outcomes)
{
    void *endpoints[MANY_RANKS];
    cz_group *groups[MANY_RANKS];
    atomic_store(&native_headers, 0);
    atomic_store(&native_messages, 0);
    for (int k = 0; k < NATIVE_KINDS; k++)
        atomic_store(&native_runs[k], 0);
    native_world *w = native_find(NULL, 0, 0, world);
    assert_non_null(w);
    assert_ok(cz__threads_create(endpoints, world));
    for (int r = 0; r < world; r++) {
        w->seats[r].inner = endpoints[r];
        assert_ok(cz_group_create_custom(&groups[r], r, world, table, &w->seats[r], options));
    }
    run_groups(world, groups, body, arg, outcomes);
    const int odd = native_out_of_order();
    native_free_worlds();
    if (odd >= 0)
        fail_msg("rank %d of %d started its operations in another order", odd, world);
}

static void native_expect(const cz_backend *table, int world, int checked, cz_rank_main body,
                          void *arg)
{
    outcome outcomes[MANY_RANKS];
    cz_group_options options = CZ_GROUP_OPTIONS_INIT;
    options.timeout_seconds = 60;
    options.segment_bytes = 256;
    options.checked = checked;
    native_run(table, world, &options, body, arg, outcomes);
    assert_all_ok(world, outcomes, "%s", checked ? "checked" : "unchecked");
}

#endif
