/* SPDX-License-Identifier: MIT */
/* The backend of thread ranks, called directly: what the collectives never ask of it, or not under
 * load. */
#include <sched.h>
#include <stdatomic.h>

#include "group/group_test.h"
#include "group/internal.h"

static const cz_backend *const backend = &cz__backend_threads;

typedef struct pair {
    void *endpoints[2];
    atomic_int wakes[2];
} pair;

static void wake(void *context)
{
    atomic_fetch_add((atomic_int *)context, 1);
}

static void pair_open(pair *p)
{
    atomic_init(&p->wakes[0], 0);
    atomic_init(&p->wakes[1], 0);
    assert_ok(cz__threads_create(p->endpoints, 2));
    for (int r = 0; r < 2; r++)
        backend->start(p->endpoints[r], wake, &p->wakes[r]);
}

static void pair_close(pair *p)
{
    for (int r = 0; r < 2; r++)
        if (p->endpoints[r])
            backend->leave(p->endpoints[r], NULL);
}

static cz_transfer message(int peer, uint64_t tag, void *data, size_t bytes)
{
    return (cz_transfer){
        .peer = peer, .tag = tag, .data = data, .bytes = bytes, .device = cz_device_cpu()};
}

static bool done(pair *p, int rank, cz_transfer *transfer)
{
    bool is_done = false;
    assert_ok(backend->test(p->endpoints[rank], transfer, &is_done));
    return is_done;
}

/* Equal tags match in the order in which they were posted, whichever side is first. */
TEST(equal_tags_keep_their_order)
{
    for (int receive_first = 0; receive_first < 2; receive_first++) {
        pair p;
        int sent[5] = {10, 11, 12, 13, 14}, got[5] = {0};
        cz_transfer sends[5], receives[5];
        pair_open(&p);
        for (int side = 0; side < 2; side++)
            for (int i = 0; i < 5; i++) {
                sends[i] = side ? sends[i] : message(1, 7, &sent[i], sizeof(int));
                receives[i] = side ? receives[i] : message(0, 7, &got[i], sizeof(int));
                if (side == receive_first)
                    assert_ok(backend->post_send(p.endpoints[0], &sends[i]));
                else
                    assert_ok(backend->post_receive(p.endpoints[1], &receives[i]));
            }
        for (int i = 0; i < 5; i++) {
            assert_int_equal(got[i], sent[i]);
            assert_true(done(&p, 0, &sends[i]) && done(&p, 1, &receives[i]));
        }
        assert_int_equal(atomic_load(&p.wakes[receive_first]), 5); /* who was first is told */
        assert_int_equal(atomic_load(&p.wakes[!receive_first]), 0);
        pair_close(&p);
    }
}

TEST(tags_and_ranks_must_match)
{
    pair p;
    int one = 1, two = 2, got = 0, own = 0;
    pair_open(&p);
    cz_transfer first = message(1, 1, &one, sizeof one), second = message(1, 2, &two, sizeof two);
    cz_transfer receive = message(0, 2, &got, sizeof got), other = message(1, 1, &own, sizeof own);
    assert_ok(backend->post_send(p.endpoints[0], &first));
    assert_ok(backend->post_receive(p.endpoints[0], &other)); /* the same direction */
    assert_ok(backend->post_send(p.endpoints[0], &second));
    assert_ok(backend->post_receive(p.endpoints[1], &receive));
    assert_int_equal(got, 2);
    assert_false(done(&p, 0, &first));
    assert_false(done(&p, 0, &other));
    backend->withdraw(p.endpoints[0], &first);
    backend->withdraw(p.endpoints[0], &other);
    backend->withdraw(p.endpoints[0], &second); /* has ended: nothing to do */
    pair_close(&p);
}

/* Thousands wait at once, so that many share a list; they are met in another order, three of each
 * tag, and every fifth tag's second one was taken back. */
TEST(many_wait)
{
    enum { TAGS = 3001, EACH = 3 };
    static cz_transfer sends[TAGS][EACH], receives[TAGS][EACH];
    static int sent[TAGS][EACH], got[TAGS][EACH];
    pair p;
    pair_open(&p);
    for (int i = 0; i < EACH; i++)
        for (int t = 0; t < TAGS; t++) {
            sent[t][i] = t * EACH + i;
            sends[t][i] = message(1, (uint64_t)t << 24 | 3, &sent[t][i], sizeof(int));
            receives[t][i] = message(0, (uint64_t)t << 24 | 3, &got[t][i], sizeof(int));
            assert_ok(backend->post_send(p.endpoints[0], &sends[t][i]));
        }
    for (int t = 0; t < TAGS; t += 5)
        assert_true(backend->withdraw(p.endpoints[0], &sends[t][1]));
    for (int i = 0; i < EACH; i++)
        for (int k = 0; k < TAGS; k++) {
            const int t = (int)((int64_t)k * 1234 % TAGS), late = i > 0 && t % 5 == 0;
            assert_ok(backend->post_receive(p.endpoints[1], &receives[t][i]));
            const bool last = late && i == EACH - 1; /* there were two only */
            assert_true(done(&p, 1, &receives[t][i]) == !last);
            assert_true(last || got[t][i] == sent[t][i + (late && i == 1)]);
            if (last)
                backend->withdraw(p.endpoints[1], &receives[t][i]);
        }
    pair_close(&p);
}

TEST(withdrawn_means_gone)
{
    pair p;
    int sent = 3, got = 0, late = 0;
    pair_open(&p);
    cz_transfer early = message(0, 5, &got, sizeof got),
                receive = message(0, 5, &late, sizeof late);
    cz_transfer send = message(1, 5, &sent, sizeof sent);
    assert_ok(backend->post_receive(p.endpoints[1], &early));
    backend->withdraw(p.endpoints[1], &early);
    assert_ok(backend->post_send(p.endpoints[0], &send));
    assert_false(done(&p, 0, &send));
    assert_ok(backend->post_receive(p.endpoints[1], &receive));
    assert_int_equal(got, 0);
    assert_int_equal(late, 3);
    pair_close(&p);
}

/* Sizes that differ are the library's own fault; neither side may take the bytes for good. */
TEST(sizes_must_match)
{
    for (int receive_first = 0; receive_first < 2; receive_first++) {
        pair p;
        char sent[8] = "1234567", got[8] = "";
        bool is_done = false;
        pair_open(&p);
        cz_transfer send = message(1, 5, sent, 8), receive = message(0, 5, got, 4);
        cz_status second;
        if (receive_first) {
            assert_ok(backend->post_receive(p.endpoints[1], &receive));
            second = backend->post_send(p.endpoints[0], &send);
        } else {
            assert_ok(backend->post_send(p.endpoints[0], &send));
            second = backend->post_receive(p.endpoints[1], &receive);
        }
        assert_int_equal(second, CZ_ERR_INTERNAL);
        assert_int_equal(
            backend->test(p.endpoints[receive_first], receive_first ? &receive : &send, &is_done),
            CZ_ERR_INTERNAL);
        assert_false(is_done);
        assert_string_equal(got, "");
        pair_close(&p);
    }
}

TEST(leaving_is_seen)
{
    pair p;
    int sent = 4, got = 0, never = 0;
    bool is_done = false;
    pair_open(&p);
    cz_transfer send = message(1, 1, &sent, sizeof sent), receive = message(0, 1, &got, sizeof got);
    cz_transfer lost = message(0, 2, &never, sizeof never);
    assert_ok(backend->post_receive(p.endpoints[1], &receive));
    assert_ok(backend->post_receive(p.endpoints[1], &lost));
    assert_ok(backend->post_send(p.endpoints[0], &send));
    atomic_store(&p.wakes[1], 0);
    backend->leave(p.endpoints[0], "for lunch");
    p.endpoints[0] = NULL;
    assert_int_equal(atomic_load(&p.wakes[1]), 1);
    assert_true(done(&p, 1, &receive)); /* what it sent before counts */
    assert_int_equal(backend->test(p.endpoints[1], &lost, &is_done), CZ_ERR_PEER);
    assert_string_equal(cz_last_error(), "rank 0 left the group (for lunch)");
    backend->withdraw(p.endpoints[1], &lost);
    pair_close(&p);
}

/* The smallest sequence counts, the first among equals; transfers of earlier operations go on. */
TEST(breaking_is_seen)
{
    pair p;
    int sent = 5, got = 0;
    uint64_t from = 0;
    char sentence[64];
    pair_open(&p);
    cz_transfer receive = message(0, 1, &got, sizeof got), send = message(1, 1, &sent, sizeof sent);
    assert_ok(backend->broken(p.endpoints[1], &from, sentence, sizeof sentence));
    assert_ok(backend->post_receive(p.endpoints[1], &receive));
    backend->break_group(p.endpoints[0], 7, CZ_ERR_TIMEOUT, "too late");
    backend->break_group(p.endpoints[1], 7, CZ_ERR_PEER, "too late for this as well");
    assert_int_equal(atomic_load(&p.wakes[1]), 1);
    assert_int_equal(backend->broken(p.endpoints[1], &from, sentence, sizeof sentence),
                     CZ_ERR_TIMEOUT);
    assert_string_equal(sentence, "too late");
    assert_int_equal(from, 7);
    backend->break_group(p.endpoints[1], 5, CZ_ERR_PEER, "earlier");
    assert_int_equal(backend->broken(p.endpoints[0], &from, sentence, sizeof sentence),
                     CZ_ERR_PEER);
    assert_string_equal(sentence, "earlier");
    assert_int_equal(from, 5);
    assert_false(done(&p, 1, &receive));
    assert_ok(backend->post_send(p.endpoints[0], &send));
    assert_true(done(&p, 1, &receive));
    assert_int_equal(got, 5);
    pair_close(&p);
}

TEST(announcements)
{
    pair p;
    pair_open(&p);
    assert_int_equal(backend->announced(p.endpoints[0], 1), 0);
    backend->announce(p.endpoints[1], 17);
    assert_int_equal(backend->announced(p.endpoints[0], 1), 17);
    assert_int_equal(backend->announced(p.endpoints[1], 1), 17);
    pair_close(&p);
}

/* A rank withdraws receives while the other is about to fill them, and frees their memory at once:
 * each holds the whole message or nothing of it, and nobody writes there afterwards. */
enum { BYTES = 1 << 16, TURNS = SLOW ? 300 : 3000 };

typedef struct load {
    pair pair;
    atomic_int posted; /* receives so far */
    atomic_bool over;
} load;

static void *send_all_the_time(void *context)
{
    load *l = context;
    static char ones[BYTES];
    memset(ones, 1, sizeof ones);
    for (int turn = 0; turn < TURNS; turn++) {
        uint64_t random = (uint64_t)turn;
        while (atomic_load(&l->posted) <= turn)
            sched_yield();
        for (unsigned wait = draw(&random, 2000); wait > 0; wait--)
            atomic_signal_fence(memory_order_seq_cst);
        cz_transfer send = message(1, (uint64_t)turn, ones, BYTES);
        if (backend->post_send(l->pair.endpoints[0], &send) != CZ_OK)
            abort();
        backend->withdraw(l->pair.endpoints[0], &send); /* if nobody was there */
    }
    return NULL;
}

TEST(withdrawing_under_load)
{
    static load l;
    pthread_t sender;
    int whole = 0, nothing = 0, torn = 0;
    pair_open(&l.pair);
    assert_int_equal(pthread_create(&sender, NULL, send_all_the_time, &l), 0);
    for (int turn = 0; turn < TURNS; turn++) {
        char *memory = calloc(1, BYTES);
        uint64_t random = (uint64_t)turn * 31;
        cz_transfer receive = message(0, (uint64_t)turn, memory, BYTES);
        assert_ok(backend->post_receive(l.pair.endpoints[1], &receive));
        atomic_fetch_add(&l.posted, 1);
        for (unsigned wait = draw(&random, 4000); wait > 0; wait--)
            atomic_signal_fence(memory_order_seq_cst);
        if (draw(&random, 4) == 0)
            sched_yield();
        backend->withdraw(l.pair.endpoints[1], &receive);
        int ones = 0;
        for (int i = 0; i < BYTES; i++)
            ones += memory[i];
        whole += ones == BYTES;
        nothing += ones == 0;
        torn += ones != 0 && ones != BYTES;
        free(memory);
    }
    pthread_join(sender, NULL);
    pair_close(&l.pair);
    assert_int_equal(torn, 0);
    assert_int_equal(whole + nothing, TURNS);
}
