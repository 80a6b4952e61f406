/* SPDX-License-Identifier: MIT */
/* Ranks on one thread whose large buffers are addresses without memory: a backend and a device that
 * only write down what would be moved, and find out whether it is each element once. */
#ifndef CZ_MOCK_TRANSPORT_H
#define CZ_MOCK_TRANSPORT_H

#include <sys/mman.h>

#include "group/group_test.h"
#include "group/internal.h"

enum { MOCK_RANKS = 3 };

/* Bytes of two buffers that belong together: what came from `from` went to `to`, one piece after
 * the other without a gap. */
typedef struct flow {
    int64_t from_begin, to_begin, bytes;
} flow;

typedef struct landing {
    const void *slot;
    int64_t offset;
    size_t bytes;
} landing;

typedef struct mock {
    char *input[MOCK_RANKS], *output[MOCK_RANKS]; /* PROT_NONE */
    size_t reserved;                              /* bytes of each */
    void *posts;
    flow moved[MOCK_RANKS][MOCK_RANKS];                 /* [to][from], between large buffers */
    flow reduced[MOCK_RANKS];                           /* of the rank's source to its result */
    landing landed[MOCK_RANKS][MOCK_RANKS][CZ__ROUNDS]; /* [to][from], in slots: the last ones */
    char why[160];                                      /* what was wrong first */
} mock;

static mock the_mock;

/* The endpoints are the addresses of these. */
static int mock_numbers[MOCK_RANKS] = {0, 1, 2};

static int mock_rank(void *endpoint)
{
    return *(int *)endpoint;
}

/* Where in a rank's large buffers an address is; -1: elsewhere. */
static int64_t mock_offset(int rank, const void *data)
{
    const char *address = data;
    const char *bases[] = {the_mock.input[rank], the_mock.output[rank]};
    for (int i = 0; i < 2; i++)
        if (address >= bases[i] && address < bases[i] + the_mock.reserved)
            return address - bases[i];
    return -1;
}

static void mock_complain(const char *what, int a, int b, int64_t number)
{
    if (!the_mock.why[0])
        snprintf(the_mock.why, sizeof the_mock.why, "%s (%d, %d) at %" PRId64, what, a, b, number);
}

static void mock_note(flow *f, const char *what, int a, int b, int64_t from, int64_t to,
                      size_t bytes)
{
    if (f->bytes == 0)
        *f = (flow){.from_begin = from, .to_begin = to};
    if (from != f->from_begin + f->bytes || to != f->to_begin + f->bytes)
        mock_complain(what, a, b, from);
    f->bytes += (int64_t)bytes;
}

/* ---- the backend ---- */

enum { MOCK_NEXT, MOCK_DONE, MOCK_RANK, MOCK_SENDS };

/* What was in the slot before, or else landed longest ago, is forgotten. */
static void mock_land(landing *landed, landing last)
{
    int i = CZ__ROUNDS - 1;
    for (int k = 0; k < CZ__ROUNDS; k++)
        if (landed[k].slot == last.slot)
            i = k;
    for (; i > 0; i--)
        landed[i] = landed[i - 1];
    landed[0] = last;
}

static bool mock_has_landed(const landing *landed, const void *slot, int64_t offset, size_t bytes)
{
    for (int k = 0; k < CZ__ROUNDS; k++)
        if (landed[k].slot == slot)
            return landed[k].offset == offset && landed[k].bytes == bytes;
    return false;
}

static void mock_move(const cz_transfer *send, const cz_transfer *receive)
{
    const int from = receive->peer, to = send->peer;
    const int64_t source = mock_offset(from, send->data), target = mock_offset(to, receive->data);
    if (send->bytes != receive->bytes)
        mock_complain("other sizes", from, to, (int64_t)send->bytes);
    else if (source < 0 && target < 0)
        memcpy(receive->data, send->data, send->bytes); /* a header */
    else if (source < 0)
        mock_complain("packed though one piece", from, to, target);
    else if (target >= 0)
        mock_note(&the_mock.moved[to][from], "moved", from, to, source, target, send->bytes);
    else
        mock_land(the_mock.landed[to][from], (landing){receive->data, source, send->bytes});
}

static cz_status mock_post(void *endpoint, cz_transfer *t, bool sends)
{
    void **link = &the_mock.posts;
    t->own[MOCK_RANK] = endpoint;
    t->own[MOCK_SENDS] = sends ? t : NULL;
    for (cz_transfer *o; (o = *link); link = &o->own[MOCK_NEXT])
        if (mock_rank(o->own[MOCK_RANK]) == t->peer && o->peer == mock_rank(endpoint) &&
            o->tag == t->tag && !o->own[MOCK_SENDS] == sends)
            break;
    cz_transfer *other = *link;
    *link = other ? other->own[MOCK_NEXT] : t;
    if (other) {
        mock_move(sends ? t : other, sends ? other : t);
        t->own[MOCK_DONE] = other->own[MOCK_DONE] = t;
    }
    return CZ_OK;
}

static cz_status mock_send(void *endpoint, cz_transfer *t)
{
    return mock_post(endpoint, t, true);
}

static cz_status mock_receive(void *endpoint, cz_transfer *t)
{
    return mock_post(endpoint, t, false);
}

static cz_status mock_test(void *endpoint, cz_transfer *t, bool *done)
{
    *done = t->own[MOCK_DONE] != NULL;
    return CZ_OK;
}

static bool mock_withdraw(void *endpoint, cz_transfer *t)
{
    void **link = &the_mock.posts;
    while (*link && *link != t)
        link = &((cz_transfer *)*link)->own[MOCK_NEXT];
    if (*link)
        *link = t->own[MOCK_NEXT];
    return true;
}

static void mock_poll(void *endpoint)
{
}

/* What it does not say is as in a group of one: nothing breaks here. */
static cz_backend mock_backend(void)
{
    cz_backend table = cz__backend_self;
    table.name = "mock";
    table.post_send = mock_send;
    table.post_receive = mock_receive;
    table.test = mock_test;
    table.withdraw = mock_withdraw;
    table.poll = mock_poll;
    table.inline_only = true;
    return table;
}

/* ---- the device ---- */

static int mock_owner(const void *data)
{
    for (int r = 0; r < MOCK_RANKS; r++)
        if (mock_offset(r, data) >= 0)
            return r;
    return -1;
}

static cz_status mock_copy(void *queue, void *to, const void *from, size_t bytes)
{
    const int rank = mock_owner(to);
    if (rank < 0 || mock_owner(from) != rank)
        mock_complain("copied", rank, mock_owner(from), (int64_t)bytes);
    else
        mock_note(&the_mock.moved[rank][rank], "kept", rank, rank, mock_offset(rank, from),
                  mock_offset(rank, to), bytes);
    return CZ_OK;
}

/* All sources are the same elements of their ranks. */
static cz_status mock_reduce(void *queue, cz_dtype dtype, cz_reduction reduction, int source_count,
                             const void *const *sources, int64_t count, cz_dtype result, void *out)
{
    const int rank = mock_owner(out);
    const size_t bytes = (size_t)count * cz_dtype_size(dtype);
    if (rank < 0 || source_count != MOCK_RANKS) {
        mock_complain("reduced", rank, source_count, count);
        return CZ_OK;
    }
    const int64_t own = mock_offset(rank, sources[rank]);
    for (int r = 0; r < MOCK_RANKS; r++)
        if (r != rank && !mock_has_landed(the_mock.landed[rank][r], sources[r], own, bytes))
            mock_complain("reduced other elements", rank, r, own);
    mock_note(&the_mock.reduced[rank], "reduced", rank, rank, own, mock_offset(rank, out), bytes);
    return CZ_OK;
}

static const cz_device *mock_device(void)
{
    static cz_device device;
    device = *cz_device_cpu();
    device.name = "mock";
    device.copy = mock_copy;
    device.reduce = mock_reduce;
    return &device;
}

/* ---- ranks ---- */

static bool mock_reserve(char **address, size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *address = at == MAP_FAILED ? NULL : at;
    return *address != NULL;
}

/* False: so many addresses cannot be had. */
static bool mock_open(cz_group **groups, size_t bytes, size_t segment_bytes)
{
    static cz_backend table;
    const cz_group_options options = {.size = sizeof options, .segment_bytes = segment_bytes};
    bool all = true;
    table = mock_backend();
    memset(&the_mock, 0, sizeof the_mock);
    the_mock.reserved = bytes;
    for (int r = 0; r < MOCK_RANKS; r++) {
        all &= mock_reserve(&the_mock.input[r], bytes);
        all &= mock_reserve(&the_mock.output[r], bytes);
        assert_ok(
            cz_group_create_custom(&groups[r], r, MOCK_RANKS, &table, &mock_numbers[r], &options));
        groups[r]->device = mock_device(); /* before it has any memory */
    }
    return all;
}

static void mock_forget(void)
{
    memset(the_mock.moved, 0, sizeof the_mock.moved);
    memset(the_mock.reduced, 0, sizeof the_mock.reduced);
}

/* Until all works have ended. */
static void mock_finish(cz_group *const *groups, cz_work **works)
{
    for (bool over = false; !over;) {
        over = true;
        for (int r = 0; r < MOCK_RANKS; r++) {
            bool done = false;
            assert_ok(cz_progress(groups[r]));
            assert_ok(cz_work_test(works[r], &done));
            over &= done;
        }
    }
    for (int r = 0; r < MOCK_RANKS; r++) {
        if (cz_work_wait(works[r]) != CZ_OK)
            fail_msg("rank %d: %s", r, cz_last_error());
        cz_work_destroy(&works[r]);
    }
    if (the_mock.why[0])
        fail_msg("%s", the_mock.why);
}

static void mock_close(cz_group **groups)
{
    for (int r = 0; r < MOCK_RANKS; r++) {
        cz_group_destroy(&groups[r]);
        if (the_mock.input[r])
            munmap(the_mock.input[r], the_mock.reserved);
        if (the_mock.output[r])
            munmap(the_mock.output[r], the_mock.reserved);
    }
}

#endif
