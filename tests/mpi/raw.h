/* SPDX-License-Identifier: MIT */
/* The plugin's table without the library above it: endpoints, messages with known bytes, and
 * waiting for them. For one source file. */
#ifndef CZ_MPI_TEST_RAW_H
#define CZ_MPI_TEST_RAW_H

#include "mpi/mpi_test.h"

#include "mpi/internal.h"

static const level *at;
static const cz_backend *table; /* of the endpoint made last */
static void *made;

cz_status raw_group_create(cz_group **out, int rank, int size, const cz_backend *backend,
                           void *endpoint, const cz_group_options *options);

/* The plugin calls this one instead of cz_group_create_custom(). */
cz_status raw_group_create(cz_group **out, int rank, int size, const cz_backend *backend,
                           void *endpoint, const cz_group_options *options)
{
    CHECK(rank == my_rank && size == world_size, "rank %d of %d", rank, size);
    table = backend;
    made = endpoint;
    return CZ_OK;
}

/* What it does with that first. */
cz_status raw_barrier(cz_group *group, const cz_operation_options *options);

cz_status raw_barrier(cz_group *group, const cz_operation_options *options)
{
    return CZ_OK;
}

static atomic_int notified;

static void notify(void *context)
{
    atomic_fetch_add(&notified, 1);
}

static void *create(void)
{
    cz_mpi_options options = CZ_MPI_OPTIONS_INIT;
    cz_group *none;
    options.serialized_is_ours = at->ours;
    OK(cz_group_create_mpi(&none, MPI_COMM_WORLD, &options, NULL));
    CHECK(table->poll && table->attend && table->inline_only == !at->carrier, "wrong table");
    table->start(made, notify, NULL);
    return made;
}

static void pause_a_little(void *endpoint)
{
    if (table->inline_only)
        table->poll(endpoint);
    usleep(50);
}

static cz_status wait_for(void *endpoint, cz_transfer *transfer)
{
    const double until = now() + 60;
    bool done = false;
    for (;;) {
        CZ_TRY(table->test(endpoint, transfer, &done));
        if (done)
            return CZ_OK;
        CHECK(now() < until, "a transfer with rank %d does not end", transfer->peer);
        pause_a_little(endpoint);
    }
}

static uint64_t tag_of(int lane, uint64_t sequence, unsigned child, unsigned step)
{
    return (uint64_t)lane << 63 | sequence << 24 | (uint64_t)child << 8 | step;
}

static void fill(unsigned char *data, size_t bytes, int from, int to, uint64_t tag)
{
    const size_t salt = (size_t)((tag >> 8) * UINT64_C(0x9e3779b97f4a7c15) >> 56);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(i * 7 + i / 251 + (size_t)from * 31 + (size_t)to * 17 + salt);
}

/* A message and the memory that it is in. */
typedef struct message {
    cz_transfer transfer;
    unsigned char *data;
} message;

static void prepare(message *m, int peer, uint64_t tag, size_t bytes)
{
    m->data = malloc(bytes);
    m->transfer = (cz_transfer){.size = sizeof(cz_transfer),
                                .peer = peer,
                                .tag = tag,
                                .data = m->data,
                                .bytes = bytes,
                                .device = cz_device_cpu()};
}

static void send(void *endpoint, message *m, int me, int peer, uint64_t tag, size_t bytes)
{
    prepare(m, peer, tag, bytes);
    fill(m->data, bytes, me, peer, tag);
    OK(table->post_send(endpoint, &m->transfer));
}

static void receive(void *endpoint, message *m, int peer, uint64_t tag, size_t bytes)
{
    prepare(m, peer, tag, bytes);
    memset(m->data, 0xee, bytes);
    OK(table->post_receive(endpoint, &m->transfer));
}

static void finish_send(void *endpoint, message *m)
{
    OK(wait_for(endpoint, &m->transfer));
    free(m->data);
}

static void finish_receive(void *endpoint, message *m, int me)
{
    const size_t bytes = m->transfer.bytes;
    unsigned char *want = malloc(bytes);
    OK(wait_for(endpoint, &m->transfer));
    fill(want, bytes, m->transfer.peer, me, m->transfer.tag);
    CHECK(memcmp(want, m->data, bytes) == 0, "other bytes from rank %d, tag %llx, %zu bytes",
          m->transfer.peer, (unsigned long long)m->transfer.tag, bytes);
    free(want);
    free(m->data);
}

/* All to all, `count` operations of the lane at once, posted in order on each side. */
static void exchange(void *endpoint, int me, int size, int lane, int count, unsigned child,
                     size_t bytes, bool receives_first)
{
    message *messages = calloc((size_t)count * (size_t)size * 2, sizeof *messages);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < count; i++)
            for (int r = 0; r < size; r++) {
                message *m = &messages[(i * size + r) * 2];
                const uint64_t tag =
                    tag_of(lane, (uint64_t)(child ? 3 : i), child * (unsigned)i, 1);
                if (r == me)
                    continue;
                if ((pass == 0) == receives_first)
                    receive(endpoint, m, r, tag, bytes);
                else
                    send(endpoint, m + 1, me, r, tag, bytes);
            }
    for (int i = 0; i < count; i++)
        for (int r = 0; r < size; r++)
            if (r != me) {
                finish_receive(endpoint, &messages[(i * size + r) * 2], me);
                finish_send(endpoint, &messages[(i * size + r) * 2 + 1]);
            }
    free(messages);
}

#endif
