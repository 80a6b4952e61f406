/* SPDX-License-Identifier: MIT */
/* Collectives between threads. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "bench.h"
#include "czero/group.h"
#include "io/json.h"
#include "show.h"

/* A buffer of `bytes` bytes, and what goes in or out in parts. */
typedef struct buffers {
    cz_group *group;
    float *whole, *part;
    int64_t count; /* of floats in whole; a multiple of the ranks */
} buffers;

static cz_status all_reduce(const buffers *b)
{
    return cz_all_reduce(b->group, b->whole, b->count, CZ_F32, CZ_SUM, NULL);
}

static cz_status reduce_scatter(const buffers *b)
{
    return cz_reduce_scatter(b->group, b->whole, b->part, b->count / cz_group_size(b->group),
                             CZ_F32, CZ_SUM, NULL);
}

static cz_status all_gather(const buffers *b)
{
    return cz_all_gather(b->group, b->part, b->whole, b->count / cz_group_size(b->group), CZ_F32,
                         NULL);
}

static cz_status broadcast(const buffers *b)
{
    return cz_broadcast(b->group, b->whole, b->count, CZ_F32, 0, NULL);
}

static cz_status copy(const buffers *b)
{
    if (cz_group_rank(b->group) == 0)
        memcpy(b->part, b->whole, (size_t)b->count * sizeof *b->whole);
    return CZ_OK;
}

static const struct {
    const char *name;
    cz_status (*run)(const buffers *b);
} kinds[] = {{"all_reduce", all_reduce},
             {"reduce_scatter", reduce_scatter},
             {"all_gather", all_gather},
             {"broadcast", broadcast},
             {"(copy)", copy}};
enum { KINDS = sizeof kinds / sizeof *kinds };

typedef struct shared {
    const bench_options *o;
    double seconds[KINDS][BENCH_SIZES], spread[KINDS][BENCH_SIZES];
} shared;

/* All begin together; rank 0's time counts. Zeros: sums stay what they are. */
static cz_status measure(shared *s, const buffers *b, int kind, int size)
{
    double rounds[BENCH_ROUNDS];
    CZ_TRY(kinds[kind].run(b)); /* to have its memory */
    for (int i = 0; i < s->o->rounds; i++) {
        CZ_TRY(cz_barrier(b->group, NULL));
        const double begin = cz__seconds();
        CZ_TRY(kinds[kind].run(b));
        rounds[i] = cz__seconds() - begin;
    }
    if (cz_group_rank(b->group) == 0) {
        s->seconds[kind][size] = bench_median(rounds, s->o->rounds);
        s->spread[kind][size] = bench_spread(rounds, s->o->rounds);
    }
    return CZ_OK;
}

static cz_status measure_size(shared *s, cz_group *group, int size)
{
    const int64_t ranks = cz_group_size(group);
    const int64_t floats = s->o->bytes[size] / (int64_t)sizeof(float);
    buffers b = {.group = group, .count = floats / ranks * ranks};
    b.count = b.count > 0 ? b.count : ranks;
    b.whole = cz__calloc((size_t)b.count, sizeof *b.whole);
    b.part = cz__calloc((size_t)b.count, sizeof *b.part);
    cz_status status = b.whole && b.part ? CZ_OK
                                         : cz_fail(CZ_ERR_MEMORY, "no memory for 2 buffers of %s",
                                                   show_bytes((uint64_t)s->o->bytes[size]).text);
    for (int kind = 0; status == CZ_OK && kind < KINDS; kind++)
        status = measure(s, &b, kind, size);
    cz__free(b.whole);
    cz__free(b.part);
    return status;
}

static cz_status each_rank(cz_group *group, void *context)
{
    shared *s = context;
    for (int size = 0; size < s->o->sizes; size++)
        CZ_TRY(measure_size(s, group, size));
    return CZ_OK;
}

/* ---- the result ---- */

static double per_second(const shared *s, int kind, int size)
{
    return s->seconds[kind][size] > 0 ? (double)s->o->bytes[size] / s->seconds[kind][size] : 0;
}

static void print(const shared *s)
{
    table t = {0};
    t.right[1] = t.right[2] = t.right[3] = t.right[4] = true;
    printf("\ncollectives, f32, %s that are threads\n",
           show_plural(s->o->ranks, "rank", "ranks").text);
    table_row(&t);
    table_cell(&t, 0, "operation");
    table_cell(&t, 1, "buffer");
    table_cell(&t, 2, "time");
    table_cell(&t, 3, "buffer / time");
    table_cell(&t, 4, "spread");
    for (int size = 0; size < s->o->sizes; size++)
        for (int kind = 0; kind < KINDS; kind++) {
            table_row(&t);
            table_cell(&t, 0, "%s", kinds[kind].name);
            table_cell(&t, 1, "%s", show_bytes((uint64_t)s->o->bytes[size]).text);
            table_cell(&t, 2, "%.1f us", s->seconds[kind][size] * 1e6);
            table_cell(&t, 3, "%.2f GB/s", per_second(s, kind, size) / 1e9);
            table_cell(&t, 4, "%.0f %%", 100 * s->spread[kind][size]);
        }
    table_print(&t, stdout);
    table_clear(&t);
}

static cz_status fill(const shared *s, json_t *list)
{
    for (int size = 0; size < s->o->sizes; size++)
        for (int kind = 0; kind < KINDS; kind++) {
            json_t *item = json_pack("{s:s, s:I, s:f, s:f}", "operation",
                                     kinds[kind].name[0] == '(' ? "copy" : kinds[kind].name,
                                     "bytes", (json_int_t)s->o->bytes[size], "seconds",
                                     s->seconds[kind][size], "spread", s->spread[kind][size]);
            if (json_array_append_new(list, item) != 0)
                return cz_fail(CZ_ERR_MEMORY, "no memory for JSON");
        }
    return CZ_OK;
}

cz_status bench_collectives(const bench_options *o, json_t *list)
{
    static shared s;
    const cz_launch_options launch = {.size = sizeof launch, .ranks = o->ranks};
    s = (shared){.o = o};
    setenv("CZERO_BACKEND", "threads", 1); /* also where mpirun started this */
    CZ_TRY(cz_launch(each_rank, &s, &launch));
    if (o->json)
        return fill(&s, list);
    print(&s);
    return CZ_OK;
}
