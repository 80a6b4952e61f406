/* SPDX-License-Identifier: MIT */
/* All-to-all with a count for each pair: counts of any kind, sparse ones cost no messages, pairs
 * that do not fit are named, whether they are one or many, and nothing moves. */
#include "group/group_bench.h"
#include "group/internal.h"

enum { KINDS = 6, MOST = 700 };

/* What rank `from` sends to rank `to`. 0: anything, 1: few pairs, 2: many elements, 3: nothing, 4:
 * all to the last, 5: a ring. */
static int64_t count_of(int kind, int size, int from, int to)
{
    uint64_t state = (uint64_t)(((kind * 16 + size) * 16 + from) * 16 + to);
    if (kind == 0)
        return draw(&state, 3) ? (int64_t)draw(&state, 40) : 0;
    if (kind == 1)
        return draw(&state, 8) ? 0 : 1 + (int64_t)draw(&state, 90);
    if (kind == 2)
        return 100 + (int64_t)draw(&state, MOST - 100);
    if (kind == 4)
        return to == size - 1 ? 50 + from : 0;
    return kind == 5 && to == (from + 1) % size ? 333 : 0;
}

/* One exchange of this rank. */
typedef struct exchange {
    bench bench;
    int64_t send_counts[MANY_RANKS], receive_counts[MANY_RANKS];
    char *input, *output;
    guarded in, out;
    size_t bytes; /* of the output */
    cz_work *work;
} exchange;

/* Element i of what `from` sends to `to` is element to * MOST + i of its inputs. */
static void exchange_open(exchange *e, cz_group *group, int kind, cz_dtype dtype)
{
    bench *b = &e->bench;
    const size_t size = cz_dtype_size(dtype), block = MOST * size;
    size_t at = 0, sent = 0;
    bench_open(b, group, dtype, MOST);
    for (int r = 0; r < b->size; r++) {
        e->send_counts[r] = count_of(kind, b->size, b->rank, r);
        e->receive_counts[r] = count_of(kind, b->size, r, b->rank);
        sent += (size_t)e->send_counts[r] * size;
        e->bytes += (size_t)e->receive_counts[r] * size;
    }
    e->input = guarded_open(&e->in, sent, dtype);
    e->output = guarded_open(&e->out, e->bytes, dtype);
    for (int r = 0; r < b->size; at += (size_t)e->send_counts[r++] * size)
        memcpy(e->input + at, (char *)b->inputs[b->rank] + (size_t)r * block,
               (size_t)e->send_counts[r] * size);
    at = 0;
    for (int r = 0; r < b->size; at += (size_t)e->receive_counts[r++] * size)
        memcpy((char *)b->wanted + at, (char *)b->inputs[r] + (size_t)b->rank * block,
               (size_t)e->receive_counts[r] * size);
}

static cz_status exchange_run(exchange *e, const cz_operation_options *options)
{
    const bench *b = &e->bench;
    return cz_all_to_all_v(b->group, e->input, e->send_counts, e->output, e->receive_counts,
                           b->dtype, options);
}

static cz_status exchange_close(exchange *e)
{
    bench *b = &e->bench;
    cz_status status = compare(b, "all_to_all_v", e->output, b->wanted, e->bytes);
    bool intact = guarded_close(&e->in); /* each frees its memory, too */
    intact &= guarded_close(&e->out);
    bench_close(b);
    CHECK(intact, "all_to_all_v wrote outside its buffers");
    return status;
}

static cz_status each_rank(cz_group *group, void *arg)
{
    static const cz_dtype dtypes[] = {CZ_F32, CZ_BF16, CZ_I64, CZ_U8};
    for (int kind = 0; kind < KINDS; kind++) {
        exchange e = {0};
        exchange_open(&e, group, kind, dtypes[(kind + cz_group_size(group)) % 4]);
        CZ_TRY(exchange_run(&e, CZ_LABEL("blocks")));
        CZ_TRY(exchange_close(&e));
    }
    return CZ_OK;
}

TEST(counts_of_any_kind)
{
    for (int world = 1; world <= LARGEST_WORLD; world++) {
        expect_ok(world, 0, each_rank, NULL);
        expect_ok(world, world % 2 ? 64 : 192, each_rank, NULL);
    }
}

/* All at once; each goes on with another one from its continuation. */
typedef struct chain {
    exchange first, second;
} chain;

static cz_status start_second(cz_status status, void *context)
{
    CZ_TRY(status);
    return exchange_run(&((chain *)context)->second, CZ_LABEL("second"));
}

static cz_status each_rank_chains(cz_group *group, void *arg)
{
    chain chains[KINDS] = {0};
    uint64_t state = (uint64_t)cz_group_rank(group);
    for (int k = 0; k < KINDS; k++) {
        exchange_open(&chains[k].first, group, k, CZ_F32);
        exchange_open(&chains[k].second, group, KINDS - 1 - k, CZ_F64);
    }
    for (int k = 0; k < KINDS; k++) {
        CZ_TRY(exchange_run(&chains[k].first, CZ_START("first", &chains[k].first.work)));
        CZ_TRY(cz_work_then(chains[k].first.work, start_second, &chains[k]));
        nap(draw(&state, 300), &state);
    }
    for (int k = KINDS - 1; k >= 0; k--) {
        CZ_TRY(cz_work_wait(chains[k].first.work));
        cz_work_destroy(&chains[k].first.work);
        CZ_TRY(exchange_close(&chains[k].first));
        CZ_TRY(exchange_close(&chains[k].second));
    }
    return CZ_OK;
}

TEST(started_and_continued)
{
    for (int world = 1; world <= LARGEST_WORLD; world++)
        expect_ok(world, world % 3 ? 0 : 64, each_rank_chains, NULL);
}

/* ---- pairs that do not fit ---- */

enum { PATTERN = 0x33 };

typedef struct call {
    int64_t send_counts[MANY_RANKS], receive_counts[MANY_RANKS];
    unsigned char input[16 * MANY_RANKS], output[16 * MANY_RANKS]; /* two of any type for each */
} call;

static void make_call(call *c)
{
    for (int r = 0; r < MANY_RANKS; r++)
        c->send_counts[r] = c->receive_counts[r] = 2;
    memset(c->input, PATTERN, sizeof c->input);
    memset(c->output, PATTERN, sizeof c->output);
}

/* Blocking, or started and waited for; the output must not change. */
static cz_status run_call(cz_group *group, call *c, bool start, outcome *got)
{
    cz_work *work = NULL;
    memset(c->input, PATTERN + 1, sizeof c->input);
    note(got, cz_all_to_all_v(group, c->input, c->send_counts, c->output, c->receive_counts, CZ_U8,
                              start ? CZ_START("pair", &work) : CZ_LABEL("pair")));
    if (work)
        note(got, cz_work_wait(work));
    cz_work_destroy(&work);
    for (size_t i = 0; i < sizeof c->output && got->status != CZ_OK; i++)
        CHECK(c->output[i] == PATTERN, "byte %zu was written", i);
    return CZ_OK;
}

/* Only `from` and `to` disagree, and the sum of all counts of a rank may be right nevertheless. */
static cz_status one_pair(cz_group *group, int from, int to, bool by_sender)
{
    const int rank = cz_group_rank(group);
    char wanted[160];
    call c;
    outcome got;
    make_call(&c);
    if (by_sender && rank == from)
        c.send_counts[to] = 0;
    if (!by_sender && rank == to)
        c.receive_counts[from] = 0;
    snprintf(wanted, sizeof wanted,
             "all_to_all_v 'pair': rank %d sends %d elements to rank %d, which expects %d", from,
             by_sender ? 0 : 2, to, by_sender ? 2 : 0);
    CZ_TRY(run_call(group, &c, (from + to) % 2, &got));
    CHECK(got.status == CZ_ERR_MISMATCH && strcmp(got.sentence, wanted) == 0,
          "wanted \"%s\", got %s: \"%s\"", wanted, cz_status_name(got.status), got.sentence);
    make_call(&c);
    CZ_TRY(run_call(group, &c, false, &got));
    CHECK(got.status == CZ_OK && c.output[2 * cz_group_size(group) - 1] == PATTERN + 1,
          "after it: %s", got.sentence);
    return CZ_OK;
}

static cz_status each_rank_pairs(cz_group *group, void *arg)
{
    const int size = cz_group_size(group);
    for (int from = 0; from < size; from++)
        for (int to = 0; to < size; to++) {
            CZ_TRY(one_pair(group, from, to, true));
            CZ_TRY(one_pair(group, from, to, false));
        }
    return CZ_OK;
}

TEST(each_pair_in_turn)
{
    for (int world = 1; world <= LARGEST_WORLD; world++)
        expect_ok(world, 0, each_rank_pairs, NULL);
}

/* Differences that would cancel out in sums: swapped blocks, transposed counts, as many too much
 * here as too few there. The lowest rank that expected something else is named. */
static cz_status each_rank_cancels(cz_group *group, void *arg)
{
    const int rank = cz_group_rank(group), size = cz_group_size(group);
    for (int how = 0; how < 3; how++) {
        call c;
        outcome got;
        make_call(&c);
        if (how == 0 && rank == 1) { /* two blocks of the same sender */
            c.send_counts[0] = 1;
            c.send_counts[1] = 3;
        } else if (how == 1 && rank < 2) { /* rank 0 sends what rank 1 should */
            c.send_counts[0] = rank ? 1 : 3;
        } else if (how == 2) { /* all counts the other way round */
            for (int r = 0; r < size; r++) {
                c.send_counts[r] = r < rank ? 1 : 3;
                c.receive_counts[r] = r < rank ? 1 : 3;
            }
        }
        CZ_TRY(run_call(group, &c, how == 1, &got));
        CHECK(got.status == CZ_ERR_MISMATCH && strstr(got.sentence, "to rank 0, which expects"),
              "difference %d: %s: \"%s\"", how, cz_status_name(got.status), got.sentence);
    }
    return cz_barrier(group, NULL);
}

TEST(differences_that_cancel_out)
{
    for (int world = 2; world <= LARGEST_WORLD; world++)
        expect_ok(world, 0, each_rank_cancels, NULL);
}

/* ---- arguments of one rank ---- */

static cz_status each_rank_wrong(cz_group *group, void *arg)
{
    static const char *const words[] = {"send_counts is NULL",  "receive_counts is NULL",
                                        "send_counts[0] is -1", "receive_counts[0] is -7",
                                        "buffer for",           "buffer for",
                                        "unknown type 77",      "send_counts[0] is"};
    for (int odd = 0; odd < cz_group_size(group); odd++)
        for (int how = 0; how < 8; how++) {
            const bool mine = cz_group_rank(group) == odd;
            char name[32];
            call c;
            outcome got;
            make_call(&c);
            if (mine && (how == 2 || how == 7))
                c.send_counts[0] = how == 2 ? -1 : INT64_MAX / 3;
            if (mine && how == 3)
                c.receive_counts[0] = -7;
            snprintf(name, sizeof name, "rank %d: ", odd);
            note(&got, cz_all_to_all_v(group, mine && how == 4 ? NULL : c.input,
                                       mine && how == 0 ? NULL : c.send_counts,
                                       mine && how == 5 ? NULL : c.output,
                                       mine && how == 1 ? NULL : c.receive_counts,
                                       mine && how == 6 ? (cz_dtype)77 : CZ_U8, NULL));
            CHECK(got.status == CZ_ERR_ARGUMENT && strstr(got.sentence, words[how]) &&
                      strncmp(got.sentence, name, strlen(name)) == 0,
                  "fault %d of rank %d: %s: %s", how, odd, cz_status_name(got.status),
                  got.sentence);
        }
    return cz_barrier(group, NULL);
}

TEST(wrong_arguments)
{
    for (int world = 1; world <= LARGEST_WORLD; world++)
        expect_ok(world, 0, each_rank_wrong, NULL);
}

/* With another operation, another type, and in checked mode another label. */
static cz_status each_rank_differs(cz_group *group, void *arg)
{
    static const char *const words[] = {"called all_to_all", "i64", "'other'"};
    for (int how = 0; how < 3; how++) {
        const bool odd = cz_group_rank(group) == 1;
        call c;
        outcome got;
        make_call(&c);
        if (odd && how == 0)
            note(&got, cz_all_to_all(group, c.input, c.output, 2, CZ_U8, NULL));
        else
            note(&got, cz_all_to_all_v(group, c.input, c.send_counts, c.output, c.receive_counts,
                                       odd && how == 1 ? CZ_I64 : CZ_U8,
                                       CZ_LABEL(odd && how == 2 ? "other" : "one")));
        CHECK(got.status == CZ_ERR_MISMATCH && strstr(got.sentence, words[how]), "%d: %s", how,
              got.sentence);
    }
    return cz_barrier(group, NULL);
}

TEST(ranks_that_disagree)
{
    cz_group_options options = CZ_GROUP_OPTIONS_INIT;
    options.checked = 1;
    for (int world = 2; world <= 5; world++) {
        outcome outcomes[MANY_RANKS];
        run_ranks(world, &options, each_rank_differs, NULL, outcomes);
        assert_all_ok(world, outcomes, "%s", __func__);
    }
}

/* ---- messages ---- */

static atomic_int headers, others;

static cz_status count_send(void *endpoint, cz_transfer *transfer)
{
    const unsigned step = transfer->tag & 0xff;
    atomic_fetch_add(step <= 2 ? &headers : &others, 1);
    return cz__backend_threads.post_send(endpoint, transfer);
}

static cz_status each_rank_sparse(cz_group *group, void *arg)
{
    const int rank = cz_group_rank(group), size = cz_group_size(group);
    int64_t send_counts[MANY_RANKS] = {0}, receive_counts[MANY_RANKS] = {0};
    int32_t value = rank, got = -1;
    send_counts[(rank + 1) % size] = 1;
    receive_counts[(rank + size - 1) % size] = 1;
    CZ_TRY(cz_all_to_all_v(group, &value, send_counts, &got, receive_counts, CZ_I32, NULL));
    CHECK(got == (rank + size - 1) % size, "rank %d has %d", rank, got);
    memset(send_counts, 0, sizeof send_counts);
    return cz_all_to_all_v(group, NULL, send_counts, NULL, send_counts, CZ_I32, NULL);
}

static int rounds_of(int world)
{
    int rounds = 0;
    while (1 << rounds < world)
        rounds++;
    return rounds;
}

/* A ring, then nothing: one message a rank beside the headers, which are those of a barrier. */
TEST(nothing_is_sent_for_nothing)
{
    cz_backend table = cz__backend_threads;
    table.post_send = count_send;
    for (int world = 2; world <= LARGEST_WORLD; world++) {
        void *endpoints[MANY_RANKS];
        cz_group *groups[MANY_RANKS];
        outcome outcomes[MANY_RANKS];
        atomic_store(&headers, 0);
        atomic_store(&others, 0);
        assert_ok(cz__threads_create(endpoints, world));
        for (int r = 0; r < world; r++)
            assert_ok(cz_group_create_custom(&groups[r], r, world, &table, endpoints[r], NULL));
        run_groups(world, groups, each_rank_sparse, NULL, outcomes);
        assert_all_ok(world, outcomes, "%s", __func__);
        assert_int_equal(atomic_load(&headers), 2 * world * rounds_of(world));
        assert_int_equal(atomic_load(&others), world);
    }
}
