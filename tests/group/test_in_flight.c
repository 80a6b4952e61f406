/* SPDX-License-Identifier: MIT */
/* One of every collective in flight at the same time, of different lengths, waited for from the
 * last to the first: each has what a plain oracle says. */
#include "group/group_bench.h"

enum { KINDS = 13, MOST = 2000 };

/* An operation of one rank: where its data is, what is wanted there, and its work. */
typedef struct flight {
    bench bench;
    int64_t counts[MANY_RANKS]; /* of the operations with a count for each rank */
    int64_t mine[MANY_RANKS];   /* counts[rank] each */
    int root;
    char *input, *output;
    guarded in, out;
    char *got;    /* what to look at, NULL: nothing on this rank */
    size_t begin; /* of `wanted`, in bytes */
    size_t bytes;
    cz_work *work;
} flight;

static size_t part_of(const flight *f, int r)
{
    return (size_t)f->counts[r] * cz_dtype_size(f->bench.dtype);
}

static size_t begin_of(const flight *f, int rank)
{
    size_t begin = 0;
    for (int r = 0; r < rank; r++)
        begin += part_of(f, r);
    return begin;
}

/* The parts of all ranks, one after the other. */
static void want_parts(flight *f)
{
    for (int r = 0; r < f->bench.size; r++)
        memcpy((char *)f->bench.wanted + begin_of(f, r), f->bench.inputs[r], part_of(f, r));
}

static void want(flight *f, bool here, char *got, size_t begin, size_t bytes)
{
    f->got = here ? got : NULL;
    f->begin = begin;
    f->bytes = bytes;
}

static cz_status start_reducing(flight *f, int kind, const cz_operation_options *options)
{
    bench *b = &f->bench;
    const int64_t whole = b->count * b->size;
    const bool here = b->rank == f->root;
    plain_reduce(b->dtype, CZ_SUM, b->size, (const void *const *)b->inputs, whole, b->wanted);
    if (kind == 0) {
        want(f, true, f->input, 0, b->bytes);
        return cz_all_reduce(b->group, f->input, b->count, b->dtype, CZ_SUM, options);
    }
    if (kind == 1) {
        want(f, here, f->output, 0, b->bytes);
        return cz_reduce(b->group, f->input, here ? f->output : NULL, b->count, b->dtype, CZ_SUM,
                         f->root, options);
    }
    if (kind == 2) {
        want(f, true, f->output, b->bytes * (size_t)b->rank, b->bytes);
        return cz_reduce_scatter(b->group, f->input, f->output, b->count, b->dtype, CZ_SUM,
                                 options);
    }
    want(f, true, f->output, begin_of(f, b->rank), part_of(f, b->rank));
    return cz_reduce_scatter_v(b->group, f->input, f->output, f->counts, b->dtype, CZ_SUM, options);
}

/* What a root sends. */
static cz_status start_sending(flight *f, int kind, const cz_operation_options *options)
{
    bench *b = &f->bench;
    const bool here = b->rank == f->root;
    memcpy(b->wanted, b->inputs[f->root], b->bytes * (size_t)b->size);
    if (kind == 4) {
        want(f, true, f->input, 0, b->bytes);
        return cz_broadcast(b->group, f->input, b->count, b->dtype, f->root, options);
    }
    if (kind == 5) {
        want(f, true, f->output, b->bytes * (size_t)b->rank, b->bytes);
        return cz_scatter(b->group, here ? f->input : NULL, f->output, b->count, b->dtype, f->root,
                          options);
    }
    want(f, true, f->output, begin_of(f, b->rank), part_of(f, b->rank));
    return cz_scatter_v(b->group, here ? f->input : NULL, f->output, f->counts, b->dtype, f->root,
                        options);
}

static cz_status start_gathering(flight *f, int kind, const cz_operation_options *options)
{
    bench *b = &f->bench;
    const bool here = b->rank == f->root;
    if (kind == 7 || kind == 8)
        for (int r = 0; r < b->size; r++)
            f->counts[r] = b->count;
    want_parts(f);
    want(f, kind % 2 || here, f->output, 0, begin_of(f, b->size));
    if (kind == 7)
        return cz_all_gather(b->group, f->input, f->output, b->count, b->dtype, options);
    if (kind == 8)
        return cz_gather(b->group, f->input, here ? f->output : NULL, b->count, b->dtype, f->root,
                         options);
    if (kind == 9)
        return cz_all_gather_v(b->group, f->input, f->output, f->counts, b->dtype, options);
    return cz_gather_v(b->group, f->input, here ? f->output : NULL, f->counts, b->dtype, f->root,
                       options);
}

static cz_status start_exchanging(flight *f, const cz_operation_options *options)
{
    bench *b = &f->bench;
    const size_t mine = b->bytes * (size_t)b->rank;
    for (int r = 0; r < b->size; r++)
        memcpy((char *)b->wanted + b->bytes * (size_t)r, (char *)b->inputs[r] + mine, b->bytes);
    want(f, true, f->output, 0, b->bytes * (size_t)b->size);
    return cz_all_to_all(b->group, f->input, f->output, b->count, b->dtype, options);
}

/* Each rank sends the beginning of its inputs, of counts[r] elements to rank r. */
static cz_status start_exchanging_v(flight *f, const cz_operation_options *options)
{
    bench *b = &f->bench;
    const size_t begin = begin_of(f, b->rank), bytes = part_of(f, b->rank);
    for (int r = 0; r < b->size; r++) {
        f->mine[r] = f->counts[b->rank];
        memcpy((char *)b->wanted + bytes * (size_t)r, (char *)b->inputs[r] + begin, bytes);
    }
    want(f, true, f->output, 0, bytes * (size_t)b->size);
    return cz_all_to_all_v(b->group, f->input, f->counts, f->output, f->mine, b->dtype, options);
}

static cz_status start(flight *f, int kind)
{
    const cz_operation_options *options = CZ_START("in flight", &f->work);
    return kind < 4    ? start_reducing(f, kind, options)
           : kind < 7  ? start_sending(f, kind, options)
           : kind < 11 ? start_gathering(f, kind, options)
           : kind < 12 ? start_exchanging(f, options)
                       : start_exchanging_v(f, options);
}

static void flight_open(flight *f, cz_group *group, int kind, int round)
{
    static const cz_dtype dtypes[] = {CZ_F32, CZ_BF16, CZ_I64, CZ_U8, CZ_F64};
    uint64_t state = (uint64_t)(round * 100 + kind);
    bench *b = &f->bench;
    const int64_t count = draw(&state, 3) ? 1 + draw(&state, 40) : draw(&state, MOST);
    bench_open(b, group, dtypes[(kind + round) % 5], count);
    const size_t whole = b->bytes * (size_t)b->size;
    f->root = (kind + round) % b->size;
    for (int r = 0; r < b->size; r++) /* no more than the whole */
        f->counts[r] = draw(&state, 3) ? (int64_t)draw(&state, (unsigned)count + 1) : 0;
    f->input = guarded_open(&f->in, whole, b->dtype);
    f->output = guarded_open(&f->out, whole, b->dtype);
    memcpy(f->input, b->inputs[b->rank], whole);
}

static cz_status flight_close(flight *f, int kind)
{
    char name[32];
    snprintf(name, sizeof name, "operation %d", kind);
    cz_work_destroy(&f->work);
    cz_status status = CZ_OK;
    if (f->got)
        status = compare(&f->bench, name, f->got, (char *)f->bench.wanted + f->begin, f->bytes);
    bool intact = guarded_close(&f->in); /* each frees its memory, too */
    intact &= guarded_close(&f->out);
    bench_close(&f->bench);
    CHECK(intact, "operation %d wrote outside its buffers", kind);
    return status;
}

static cz_status each_rank(cz_group *group, void *arg)
{
    flight flights[KINDS];
    uint64_t state = (uint64_t)cz_group_rank(group);
    for (int round = 0; round < (SLOW ? 3 : 8); round++) {
        memset(flights, 0, sizeof flights);
        for (int kind = 0; kind < KINDS; kind++)
            flight_open(&flights[kind], group, kind, round);
        for (int i = 0; i < KINDS; i++) { /* another order in every round */
            CZ_TRY(start(&flights[(i * 5 + round) % KINDS], (i * 5 + round) % KINDS));
            nap(draw(&state, 4) ? 0 : 300, &state);
        }
        for (int kind = KINDS - 1; kind >= 0; kind--)
            CZ_TRY(cz_work_wait(flights[kind].work));
        for (int kind = 0; kind < KINDS; kind++)
            CZ_TRY(flight_close(&flights[kind], kind));
    }
    return CZ_OK;
}

TEST(all_at_once)
{
    for (int world = 1; world <= LARGEST_WORLD; world++) {
        expect_ok(world, 0, each_rank, NULL);
        expect_ok(world, world % 2 ? 64 : 192, each_rank, NULL);
    }
}

/* Handles that are let go of at once: the operations go on, on the executor's thread. */
static cz_status count_end(cz_status status, void *context)
{
    atomic_fetch_add((atomic_int *)context, 1);
    return status;
}

static cz_status each_rank_lets_go(cz_group *group, void *arg)
{
    enum { COUNT = 20 };
    const int size = cz_group_size(group), rank = cz_group_rank(group);
    int32_t in[MANY_RANKS], out[COUNT][MANY_RANKS];
    atomic_int ended = 0;
    for (int r = 0; r < size; r++)
        in[r] = rank * 100 + r;
    for (int i = 0; i < COUNT; i++) {
        cz_work *work;
        CZ_TRY(i % 2 ? cz_all_to_all(group, in, out[i], 1, CZ_I32, CZ_START("let go", &work))
                     : cz_all_gather(group, &in[i % size], out[i], 1, CZ_I32, CZ_START("", &work)));
        CZ_TRY(cz_work_then(work, count_end, &ended));
        cz_work_destroy(&work);
    }
    CHECK(comes(&ended, COUNT), "%d of %d ended", atomic_load(&ended), COUNT);
    for (int i = 0; i < COUNT; i++)
        for (int r = 0; r < size; r++)
            CHECK(out[i][r] == r * 100 + (i % 2 ? rank : i % size), "operation %d: %d from rank %d",
                  i, out[i][r], r);
    return cz_barrier(group, NULL);
}

TEST(handles_let_go)
{
    for (int world = 1; world <= 5; world++)
        expect_ok(world, 0, each_rank_lets_go, NULL);
}
