/* SPDX-License-Identifier: MIT */
/* The backend of the MPI plugin through its table, without the library above it; transfers of more
 * than 1000 bytes are cut. raw LEVEL, under mpirun. */
#include "mpi/raw.h"

static void test_transfers(void)
{
    static const size_t sizes[] = {1, 999, 1000, 1001, 2000, 5001, 300000};
    void *endpoint = create();
    atomic_store(&notified, 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        exchange(endpoint, my_rank, world_size, 0, 3, 0, sizes[i], true);
        exchange(endpoint, my_rank, world_size, 1, 3, 0, sizes[i], false);
    }
    CHECK((atomic_load(&notified) > 0) == (at->carrier && world_size > 1), "notified %d times",
          atomic_load(&notified));
    table->leave(endpoint, NULL);
}

/* While this thread attends it makes all calls of MPI, however long it takes. */
static void test_attend(void)
{
    void *endpoint = create();
    const int to = (my_rank + 1) % world_size, from = (my_rank + world_size - 1) % world_size;
    message in, out;
    for (int round = 0; round < 100 && world_size > 1; round++) {
        const uint64_t tag = tag_of(0, 100 + (uint64_t)round, 0, 1);
        bool received = false, sent = false;
        CHECK(table->attend(endpoint, true), "not on this thread");
        receive(endpoint, &in, from, tag, 700);
        send(endpoint, &out, my_rank, to, tag, 700);
        for (const double until = now() + 60; !received || !sent; table->poll(endpoint)) {
            if (!received)
                OK(table->test(endpoint, &in.transfer, &received));
            if (!sent)
                OK(table->test(endpoint, &out.transfer, &sent));
            CHECK(now() < until, "nothing moves");
        }
        CHECK(table->attend(endpoint, false), "not ended");
        free(in.data);
        free(out.data);
    }
    table->leave(endpoint, NULL);
}

/* A receive of at most so many bytes; of more it fails. */
static void test_fewer_bytes(void)
{
    static const size_t sent[] = {1, 64, 999, 1000};
    void *endpoint = create();
    const int to = (my_rank + 1) % world_size, from = (my_rank + world_size - 1) % world_size;
    message in, out;
    for (int i = 0; i < 4 && world_size > 1; i++) {
        const uint64_t tag = tag_of(0, 50 + (uint64_t)i, 0, 1);
        prepare(&in, from, tag, 1000);
        in.transfer.at_most = true;
        memset(in.data, 0xee, 1000);
        OK(table->post_receive(endpoint, &in.transfer));
        send(endpoint, &out, my_rank, to, tag, sent[i]);
        OK(wait_for(endpoint, &in.transfer));
        CHECK(in.transfer.came == sent[i], "%zu bytes came, not %zu", in.transfer.came, sent[i]);
        CHECK(sent[i] == 1000 || in.data[sent[i]] == 0xee, "written beyond what came");
        finish_send(endpoint, &out);
        free(in.data);
    }
    table->leave(endpoint, NULL);
}

/* More at once than tags tell apart: later ones wait. */
static void test_many_at_once(void)
{
    void *endpoint = create();
    const int lane_0 = world_size > 2 ? 4200 : 9000;
    if (world_size <= 5)
        exchange(endpoint, my_rank, world_size, 0, lane_0, 0, 8, true);
    exchange(endpoint, my_rank, world_size, 1, 1300, 0, 8, false);
    exchange(endpoint, my_rank, world_size, 1, 700, 1, 8, true); /* descendants of operation 3 */
    table->leave(endpoint, NULL);
}

/* Two tags that are one for MPI. What is far ahead waits for the operation that is behind, of which
 * not all is posted yet. */
static void test_far_ahead(int lane, uint64_t sequence, unsigned child)
{
    const uint64_t behind = tag_of(lane, 5, 0, 1), later = tag_of(lane, 5, 0, 2),
                   ahead = tag_of(lane, 5 + sequence, child, 2);
    message first, second, third;
    void *endpoint = create();
    const int to = my_rank ^ 1; /* in pairs; the even rank receives */
    if (to < world_size && my_rank % 2 == 0) {
        receive(endpoint, &first, to, behind, 10);
        receive(endpoint, &third, to, ahead, 10);
        usleep(20000);
        receive(endpoint, &second, to, later, 10);
        finish_receive(endpoint, &second, my_rank);
        finish_receive(endpoint, &first, my_rank);
        finish_receive(endpoint, &third, my_rank);
    } else if (to < world_size) {
        send(endpoint, &second, my_rank, to, later, 10);
        finish_send(endpoint, &second);
        send(endpoint, &first, my_rank, to, behind, 10);
        finish_send(endpoint, &first);
        send(endpoint, &third, my_rank, to, ahead, 10);
        finish_send(endpoint, &third);
    }
    table->leave(endpoint, NULL);
}

static void test_equal_tags_keep_their_order(void)
{
    enum { COUNT = 50 };
    static const size_t sizes[] = {8, 3500, 100000, 1000};
    message in[COUNT], out[COUNT];
    void *endpoint = create();
    const int to = (my_rank + 1) % world_size, from = (my_rank + world_size - 1) % world_size;
    for (int i = 0; i < COUNT && world_size > 1; i++) {
        const size_t bytes = sizes[i % 4];
        prepare(&out[i], to, tag_of(0, 7, 0, 3), bytes);
        memset(out[i].data, i, bytes);
        OK(table->post_send(endpoint, &out[i].transfer));
        receive(endpoint, &in[i], from, tag_of(0, 7, 0, 3), bytes);
    }
    for (int i = 0; i < COUNT && world_size > 1; i++) {
        OK(wait_for(endpoint, &in[i].transfer));
        CHECK(in[i].data[0] == i && in[i].data[sizes[i % 4] - 1] == i, "message %d is %d", i,
              in[i].data[0]);
        finish_send(endpoint, &out[i]);
        free(in[i].data);
    }
    table->leave(endpoint, NULL);
}

static void test_withdraw(void)
{
    message m, out;
    void *endpoint = create();
    const int to = (my_rank + 1) % world_size, from = (my_rank + world_size - 1) % world_size;
    for (int round = 0; round < 20 && world_size > 1; round++) {
        receive(endpoint, &m, from, tag_of(0, 1000 + (uint64_t)round, 0, 2), 2500);
        usleep(round % 3 ? 300 : 0);
        CHECK(table->withdraw(endpoint, &m.transfer), "a receive that nothing was sent to");
        memset(m.data, 0, 2500); /* MPI does not look at it any more */
        free(m.data);
    }
    if (world_size > 1) {
        send(endpoint, &out, my_rank, to, tag_of(0, 1, 0, 2), 2500);
        receive(endpoint, &m, from, tag_of(0, 1, 0, 2), 2500);
        finish_receive(endpoint, &m, my_rank);
        finish_send(endpoint, &out);
    }
    table->leave(endpoint, NULL);
}

/* As if the carrier never came back from a call of MPI: this thread has the lock instead. */
static void test_withdraw_without_the_carrier(void)
{
    message in, out;
    bool started = false;
    cz__endpoint *endpoint = create();
    const int to = (my_rank + 1) % world_size, from = (my_rank + world_size - 1) % world_size;
    if (at->carrier && world_size > 1) {
        receive(endpoint, &in, from, tag_of(0, 1, 0, 2), 100);
        while (!started) {
            CHECK(cz__mpi_enter(), "MPI is over");
            started = endpoint->under_way > 0;
            if (!started)
                cz__mpi_leave();
        }
        CHECK(!table->withdraw(endpoint, &in.transfer), "taken back without MPI");
        cz__mpi_leave();
        send(endpoint, &out, my_rank, to, tag_of(0, 1, 0, 2), 100);
        finish_send(endpoint, &out);
        for (bool landed = false; !landed; usleep(100)) { /* until then its memory must stay */
            CHECK(cz__mpi_enter(), "MPI is over");
            landed = endpoint->under_way == 0;
            cz__mpi_leave();
        }
        free(in.data);
    }
    table->leave(endpoint, NULL);
}

static void await_break(void *endpoint, uint64_t sequence, const char *text)
{
    const double until = now() + 20;
    char sentence[CZ_MPI_SENTENCE_BYTES] = "";
    uint64_t found = 0;
    while (table->broken(endpoint, &found, sentence, sizeof sentence) != CZ_ERR_TIMEOUT ||
           found != sequence) {
        CHECK(now() < until, "broken from %llu on: %s", (unsigned long long)found, sentence);
        pause_a_little(endpoint);
    }
    CHECK(strcmp(sentence, text) == 0, "%s", sentence);
}

static void test_break(void)
{
    void *endpoint = create();
    uint64_t sequence;
    CHECK(table->broken(endpoint, &sequence, NULL, 0) == CZ_OK, "broken from the start");
    exchange(endpoint, my_rank, world_size, 0, 1, 0, 1, true);
    if (my_rank == world_size - 1)
        table->break_group(endpoint, 9, CZ_ERR_TIMEOUT, "it takes too long");
    await_break(endpoint, 9, "it takes too long");
    exchange(endpoint, my_rank, world_size, 0, 2, 0, 100, true); /* earlier operations go on */
    if (my_rank == 0) {
        table->break_group(endpoint, 12, CZ_ERR_TIMEOUT, "later");
        table->break_group(endpoint, 4, CZ_ERR_TIMEOUT, "earlier");
    }
    await_break(endpoint, 4, "earlier");
    table->leave(endpoint, NULL);
}

/* What broke a group is heard from who leaves it as well: that may be earlier than from who broke
 * it. */
static void test_break_and_leave(void)
{
    cz__endpoint *endpoint = create();
    if (my_rank == 0) {
        for (int r = 0; r < world_size; r++)
            endpoint->peers[r].told_from = 0; /* as if they were told already */
        table->break_group(endpoint, 5, CZ_ERR_TIMEOUT, "it takes too long");
    } else {
        await_break(endpoint, 5, "it takes too long");
    }
    table->leave(endpoint, NULL);
}

static void test_announce(void)
{
    void *endpoint = create();
    const double until = now() + 20;
    table->announce(endpoint, 100 + (uint64_t)my_rank);
    for (int r = 0; r < world_size; r++)
        while (table->announced(endpoint, r) != 100 + (uint64_t)r) {
            CHECK(now() < until, "rank %d", r);
            pause_a_little(endpoint);
        }
    exchange(endpoint, my_rank, world_size, 0, 1, 0, 8, true); /* others still ask: be there */
    table->leave(endpoint, NULL);
}

/* The members of color `color` of 0 … size - 1, as rank % colors. */
static void *split(void *parent, uint64_t id, int me, int size, int colors, int *rank, int *count)
{
    int ranks[64];
    void *endpoint = NULL;
    *count = 0;
    for (int r = 0; r < size; r++)
        if (r % colors == me % colors)
            ranks[(*count)++] = r;
    *rank = me / colors;
    OK(table->split(parent, id, ranks, *count, *rank, &endpoint));
    table->start(endpoint, notify, NULL);
    return endpoint;
}

/* Groups of groups, of which some ranks are late; all in use at once, the oldest left first. */
static void test_split(void)
{
    for (int round = 0; round < 40; round++) {
        void *endpoint = create();
        int rank, count, inner_rank, inner_count;
        if (my_rank == round % world_size)
            usleep(3000);
        void *outer = split(endpoint, 1, my_rank, world_size, 2, &rank, &count);
        exchange(endpoint, my_rank, world_size, 0, 1, 0, 20, true);
        void *inner = split(outer, 1, rank, count, 2, &inner_rank, &inner_count);
        void *again = split(endpoint, 2, my_rank, world_size, 1, &(int){0}, &(int){0});
        if (round % 2)
            table->leave(endpoint, NULL);
        exchange(inner, inner_rank, inner_count, 0, 2, 0, 1500, true);
        exchange(outer, rank, count, 0, 2, 0, 1500, false);
        exchange(again, my_rank, world_size, 0, 2, 0, 20, false);
        table->leave(inner, NULL);
        table->leave(again, NULL);
        if (round % 2 == 0)
            table->leave(endpoint, NULL);
        table->leave(outer, NULL);
    }
}

/* Do ranks share memory anywhere, with that many on one machine? */
static bool shares(void *endpoint, int size)
{
    const char *set = getenv("CZERO_MPI_WINDOW");
    bool any = false;
    for (int r = 0; r < size; r++) {
        const int lowest = table->machine(endpoint, r);
        CHECK(lowest <= r && table->machine(endpoint, lowest) == lowest, "rank %d", r);
        any |= lowest < r;
    }
    return any && !(set && strcmp(set, "0") == 0);
}

/* Every rank writes its part and reads those of its machine; in the group, or in one of its
 * halves. */
static void share(void *endpoint, int me, int size, int mark)
{
    const bool wanted = shares(endpoint, size);
    const double until = now() + (wanted ? 20 : 0.1);
    size_t bytes = 0, others;
    int64_t *mine;
    while (!(mine = table->window(endpoint, me, &bytes)) && now() < until)
        pause_a_little(endpoint);
    CHECK((mine != NULL) == wanted, "shared memory");
    for (int64_t i = 0; mine && i < (int64_t)(bytes / sizeof *mine); i++) {
        CHECK(mine[i] == 0, "not new");
        mine[i] = mark + me + i;
    }
    exchange(endpoint, me, size, 0, 1, 0, 30, true);
    for (int r = 0; mine && r < size; r++) {
        const int64_t *its = table->window(endpoint, r, &others);
        if (table->machine(endpoint, r) != table->machine(endpoint, me)) {
            CHECK(!its, "rank %d's part", r);
            continue;
        }
        CHECK(its && others == bytes && its[0] == mark + r, "rank %d's part", r);
        CHECK(r == me || table->present(endpoint, r) == CZ_OK, "%s", cz_last_error());
    }
    exchange(endpoint, me, size, 0, 1, 0, 30, true);
}

/* What rank 0 wrote is there when it has left. */
static void test_share(void)
{
    void *endpoint = create();
    int rank, count;
    size_t bytes;
    share(endpoint, my_rank, world_size, 100);
    void *half = split(endpoint, 1, my_rank, world_size, 2, &rank, &count);
    share(half, rank, count, 1000 * (my_rank % 2));
    table->leave(half, NULL);
    const int64_t *its = table->window(endpoint, 0, &bytes);
    const double until = now() + 20;
    while (my_rank > 0 && its && table->present(endpoint, 0) == CZ_OK && now() < until)
        pause_a_little(endpoint);
    CHECK(my_rank == 0 || !its || (strstr(cz_last_error(), "rank 0 left") && its[1] == 101), "%s",
          cz_last_error());
    table->leave(endpoint, NULL);
}

static void expect_left(void *endpoint, message *m, const char *text)
{
    const cz_status status = wait_for(endpoint, &m->transfer);
    CHECK(status == CZ_ERR_PEER && strstr(cz_last_error(), text), "%s: %s", cz_status_name(status),
          cz_last_error());
    if (table->withdraw(endpoint, &m->transfer)) /* MPI keeps a send that nobody receives */
        free(m->data);
}

/* The last rank sends and leaves at once. What it sent arrives, also later; nothing else does. */
static void test_leave(bool sends_more)
{
    message *out = calloc((size_t)world_size * 2, sizeof *out), in, never, unwanted;
    void *endpoint = create();
    const int leaver = world_size - 1;
    if (my_rank == leaver) {
        for (int r = 0; r < leaver; r++) {
            send(endpoint, &out[r], my_rank, r, tag_of(0, 1, 0, 1), 900);
            if (sends_more)
                send(endpoint, &out[world_size + r], my_rank, r, tag_of(0, 2, 0, 1), 700);
        }
        for (int r = 0; r < leaver; r++) {
            finish_send(endpoint, &out[r]);
            if (sends_more)
                finish_send(endpoint, &out[world_size + r]);
        }
        table->leave(endpoint, sends_more ? "it had enough" : NULL);
    } else {
        usleep(my_rank % 2 ? 30000 : 0);
        receive(endpoint, &never, leaver, tag_of(0, 5, 0, 1), 3000);
        receive(endpoint, &in, leaver, tag_of(0, 1, 0, 1), 900);
        finish_receive(endpoint, &in, my_rank);
        char text[64];
        snprintf(text, sizeof text, "rank %d left the group%s", leaver,
                 sends_more ? " (it had enough)" : "");
        expect_left(endpoint, &never, text);
        send(endpoint, &unwanted, my_rank, leaver, tag_of(0, 6, 0, 1), 100);
        expect_left(endpoint, &unwanted, text);
        if (sends_more) { /* this one was sent, and only now is received */
            receive(endpoint, &in, leaver, tag_of(0, 2, 0, 1), 700);
            finish_receive(endpoint, &in, my_rank);
            receive(endpoint, &in, leaver, tag_of(0, 8, 0, 1), 700);
            expect_left(endpoint, &in, text);
        }
        table->leave(endpoint, NULL);
    }
    free(out);
}

/* Communicators are given back: MPICH has 2048 of them. */
static void test_many_groups(void)
{
    for (int i = 0; i < (world_size > 2 ? 200 : 2100); i++) {
        void *endpoint = create();
        if (i % 16 == 0)
            exchange(endpoint, my_rank, world_size, 0, 1, 0, 10, true);
        table->leave(endpoint, NULL);
    }
}

static void test_refusals(void)
{
    cz_group *group;
    message m;
    cz_mpi_options options = CZ_MPI_OPTIONS_INIT;
    CHECK(cz_group_create_mpi(NULL, MPI_COMM_WORLD, NULL, NULL) == CZ_ERR_ARGUMENT, "out");
    CHECK(cz_group_create_mpi(&group, MPI_COMM_NULL, NULL, NULL) == CZ_ERR_ARGUMENT, "comm");
    options.size = 3;
    CHECK(cz_group_create_mpi(&group, MPI_COMM_WORLD, &options, NULL) == CZ_ERR_ARGUMENT, "size");
    void *endpoint = create();
    prepare(&m, 0, tag_of(0, 1, 0, 7), 8);
    CHECK(table->post_send(endpoint, &m.transfer) == CZ_ERR_UNSUPPORTED, "step 7");
    free(m.data);
    if (at->mpi == MPI_THREAD_SERIALIZED) {
        cz_mpi_options other = {sizeof other, !at->ours, 0};
        CHECK(cz_group_create_mpi(&group, MPI_COMM_WORLD, &other, NULL) == CZ_ERR_STATE, "mixed");
    }
    table->leave(endpoint, NULL);
}

/* MPI_Finalize with groups that are there, one with a receive under way. */
static void test_finalize(void)
{
    message m;
    bool done;
    cz_group *group;
    void *idle = create(), *endpoint = create();
    if (world_size > 1)
        receive(endpoint, &m, (my_rank + 1) % world_size, tag_of(0, 5, 0, 1), 3000);
    MPI_Finalize();
    if (world_size > 1) {
        CHECK(table->test(endpoint, &m.transfer, &done) != CZ_OK &&
                  strstr(cz_last_error(), "MPI_Finalize"),
              "%s", cz_last_error());
        CHECK(table->withdraw(endpoint, &m.transfer), "MPI is gone");
        free(m.data);
    }
    uint64_t sequence;
    CHECK(table->broken(endpoint, &sequence, NULL, 0) == CZ_ERR_STATE, "not broken");
    prepare(&m, 0, 0, 8);
    CHECK(table->post_send(endpoint, &m.transfer) == CZ_ERR_STATE, "posted after the end");
    free(m.data);
    table->leave(endpoint, NULL);
    table->leave(idle, "late");
    CHECK(cz_group_create_mpi(&group, MPI_COMM_WORLD, NULL, NULL) == CZ_ERR_STATE, "created");
}

#define RUN(call)                                                                                  \
    do {                                                                                           \
        const double begun = now();                                                                \
        MPI_Barrier(MPI_COMM_WORLD);                                                               \
        call;                                                                                      \
        if (my_rank == 0)                                                                          \
            printf("%s: %.2f s\n", #call, now() - begun), fflush(stdout);                          \
    } while (0)

int main(int argc, char **argv)
{
    cz_group *group;
    if (cz_group_create_mpi(&group, MPI_COMM_WORLD, NULL, NULL) != CZ_ERR_STATE ||
        !strstr(cz_last_error(), "MPI_Init"))
        return 1;
    at = begin(argc, argv);
    RUN(test_refusals());
    RUN(test_transfers());
    RUN(test_attend());
    RUN(test_fewer_bytes());
    RUN(test_equal_tags_keep_their_order());
    RUN(test_far_ahead(0, 4096, 0));
    RUN(test_far_ahead(1, 512, 0));
    RUN(test_far_ahead(1, 0, 256));
    RUN(test_withdraw());
    RUN(test_withdraw_without_the_carrier());
    RUN(test_break());
    RUN(test_break_and_leave());
    RUN(test_announce());
    RUN(test_split());
    RUN(test_share());
    RUN(test_leave(false));
    RUN(test_leave(true));
    RUN(test_many_groups());
    RUN(test_many_at_once());
    test_finalize();
    return 0;
}
