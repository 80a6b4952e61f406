/* SPDX-License-Identifier: MIT */
/* What the machine can do, without czero: streams with the traffic of update rules and of copies,
 * by one thread and by two at once, in the second-level cache, in the third and in memory; and the
 * way of a cache line from core to core. Each with plain and with streaming stores, of which the
 * better counts. Other programs measure these beside their own work again, since memory speed
 * drifts; here they stand to be read. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "shared/ranks.h"
#include "shared/result.h"

enum { ARRAYS = 4, THREADS = 2 };

static const struct stream {
    const char *name;
    int arrays, bytes; /* for each element */
    bool streams;      /* there is a variant with streaming stores */
} kinds[] = {{"stream copy", 2, 8, true},       {"stream sgd", 2, 12, false},
             {"stream momentum", 3, 20, false}, {"stream adam", 4, 28, false},
             {"stream sum", 3, 12, true},       {"stream sum_all", 2, 16, true}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const struct place {
    const char *name;
    size_t bytes; /* all arrays of all threads together */
} places[] = {{"L2", 256 << 10}, {"L3", 8 << 20}, {"memory", 256 << 20}};
enum { PLACES = sizeof places / sizeof *places };

typedef struct job {
    bench_meet meet;
    const bench_loops *loops;
    const struct stream *kind;
    size_t count; /* floats in each array of a thread */
    int repeats, rounds;
    float *memory[THREADS][ARRAYS];
    bench_samples plain, streaming;
} job;

typedef struct part {
    job *job;
    int rank;
} part;

static void run_once(const job *j, int rank, int streams)
{
    float *a[ARRAYS];
    for (int k = 0; k < ARRAYS; k++)
        a[k] = j->memory[rank][k];
    const size_t n = j->count;
    switch (j->kind - kinds) {
    case 0:
        j->loops->copy[streams](n, a[0], a[1]);
        break;
    case 1:
        j->loops->mix2(n, a[0], a[1]);
        break;
    case 2:
        j->loops->mix3(n, a[0], a[1], a[2]);
        break;
    case 3:
        j->loops->mix4(n, a[0], a[1], a[2], a[3]);
        break;
    case 4:
        j->loops->sum[streams](n, 2, a[0], (const float *[]){a[1], a[2]});
        break;
    default:
        j->loops->sum_all[streams](n, 2, (float *[]){a[0], a[1]});
    }
}

/* All threads begin and end together. */
static double time_rounds(job *j, int rank, int streams)
{
    bench_meet_all(&j->meet, rank);
    const double begin = bench_seconds();
    for (int i = 0; i < j->repeats; i++)
        run_once(j, rank, streams);
    bench_meet_all(&j->meet, rank);
    return (bench_seconds() - begin) / j->repeats;
}

static void *each_thread(void *context)
{
    const part *p = context;
    job *j = p->job;
    bench_pin(p->rank);
    for (int round = -1; round < j->rounds; round++) {
        const double bounce = bench_bounce(&j->meet, p->rank), plain = time_rounds(j, p->rank, 0),
                     streaming = j->kind->streams ? time_rounds(j, p->rank, 1) : 0;
        if (round < 0 || p->rank > 0)
            continue;
        j->plain.limit[round] = plain;
        j->streaming.limit[round] = streaming;
        j->plain.limit_bounce[round] = j->streaming.limit_bounce[round] = bounce;
        j->plain.ours_bounce[round] = j->streaming.ours_bounce[round] = bounce;
    }
    return NULL;
}

static void run_threads(job *j)
{
    pthread_t threads[THREADS];
    part parts[THREADS];
    for (int r = 0; r < j->meet.ranks; r++) {
        parts[r] = (part){j, r};
        if (pthread_create(&threads[r], NULL, each_thread, &parts[r]) != 0)
            exit(1);
    }
    for (int r = 0; r < j->meet.ranks; r++)
        pthread_join(threads[r], NULL);
}

static void measure(job *j, const struct stream *kind, const struct place *place, bool quick)
{
    const size_t threads = (size_t)j->meet.ranks;
    char against[64];
    j->kind = kind;
    j->count =
        place->bytes / threads / (size_t)kind->arrays / sizeof(float) / BENCH_LINE * BENCH_LINE;
    j->repeats = (int)(((size_t)(quick ? 16 : 128) << 20) / place->bytes) + 1;
    run_threads(j);
    const bench_summary plain = bench_summarise(&j->plain),
                        streaming = bench_summarise(&j->streaming);
    const bool better = kind->streams && streaming.limit < plain.limit;
    snprintf(against, sizeof against, "%s, %s stores", place->name, better ? "streaming" : "plain");
    bench_say(&(bench_row){.name = kind->name,
                           .bytes = place->bytes,
                           .ranks = j->meet.ranks,
                           .against = against,
                           .counted = (double)(j->count * threads) * kind->bytes},
              better ? &j->streaming : &j->plain);
}

int main(int argc, char **argv)
{
    bool quick = false;
    int rounds = 9;
    bench_arguments(argc, argv, "What memory and caches do, by one thread and two.",
                    (const bench_option[]){{"--quick", "in a second", .flag = &quick},
                                           {"--rounds", "of each", .number = &rounds},
                                           {0}});
    job *j = aligned_alloc(64, (sizeof(job) + 63) / 64 * 64);
    if (!j)
        return 1;
    char heading[96];
    snprintf(heading, sizeof heading,
             "limits of the machine, loops at level %s, bytes that the program names",
             bench_loops_get()->name);
    bench_heading(heading);
    for (int threads = 1; threads <= (bench_cpus() < THREADS ? 1 : THREADS); threads++) {
        *j = (job){.loops = bench_loops_get(), .meet.ranks = threads};
        j->rounds = j->plain.rounds = j->streaming.rounds = quick                   ? 2
                                                            : rounds < BENCH_ROUNDS ? rounds
                                                                                    : BENCH_ROUNDS;
        const size_t most = places[quick ? 1 : PLACES - 1].bytes / (size_t)threads / 2;
        for (int i = 0; i < threads * ARRAYS; i++)
            j->memory[i / ARRAYS][i % ARRAYS] = bench_pages(most, true);
        for (int place = 0; place < (quick ? 2 : PLACES); place++)
            for (int kind = 0; kind < KINDS; kind++)
                measure(j, &kinds[kind], &places[place], quick);
        for (int i = 0; i < threads * ARRAYS; i++)
            bench_pages_free(j->memory[i / ARRAYS][i % ARRAYS], most);
    }
    free(j);
    return 0;
}
