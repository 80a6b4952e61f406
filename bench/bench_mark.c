/* SPDX-License-Identifier: MIT */
/* What it costs to mark a gradient that fills no bucket: nanoseconds of a thread per
 * cz_ddp_mark_ready(), where one thread of the rank marks, and where several do at once, one a
 * processor as far as there are, in turn one parameter each. Medians over passes, of the slowest
 * thread. Goal: below 100 ns. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "median.h"

#include "base/clock.h"
#include "czero/czero.h"

enum { PARAMS = 100001, PASSES = 15, MAX_THREADS = 4 };

typedef struct marker {
    pthread_barrier_t *together;
    cz_ddp *ddp;
    int first, stride;
    double seconds; /* for one mark */
} marker;

/* All but parameter 0, which is marked before, and the last one, which would fill the bucket. */
static void *mark(void *context)
{
    marker *m = context;
    int count = 0;
    pthread_barrier_wait(m->together);
    const double begun = cz__seconds();
    for (int p = 1 + m->first; p < PARAMS - 1; p += m->stride, count++)
        CZ_CHECK(cz_ddp_mark_ready(m->ddp, p));
    m->seconds = (cz__seconds() - begun) / count;
    return NULL;
}

/* On a processor of its own: woken up, it would else run after the thread that wakes it. */
static void start(pthread_t *thread, marker *m, int number)
{
    cpu_set_t allowed, one;
    pthread_attr_t attributes;
    int cpu = -1;
    sched_getaffinity(0, sizeof allowed, &allowed);
    for (int left = number % CPU_COUNT(&allowed); left >= 0; left--)
        while (!CPU_ISSET(++cpu, &allowed))
            ;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_attr_init(&attributes);
    pthread_attr_setaffinity_np(&attributes, sizeof one, &one);
    if (pthread_create(thread, &attributes, mark, m) != 0)
        abort();
    pthread_attr_destroy(&attributes);
}

static double mark_by(cz_ddp *ddp, int count)
{
    pthread_t threads[MAX_THREADS];
    marker markers[MAX_THREADS];
    pthread_barrier_t together;
    double slowest = 0;
    pthread_barrier_init(&together, NULL, (unsigned)count);
    for (int t = 0; t < count; t++) {
        markers[t] = (marker){.together = &together, .ddp = ddp, .first = t, .stride = count};
        start(&threads[t], &markers[t], t);
    }
    for (int t = 0; t < count; t++) {
        pthread_join(threads[t], NULL);
        slowest = markers[t].seconds > slowest ? markers[t].seconds : slowest;
    }
    pthread_barrier_destroy(&together);
    return slowest;
}

static void measure(cz_ddp *ddp, const char *what)
{
    double seconds[PASSES];
    for (int threads = 1; threads <= MAX_THREADS; threads *= 2) {
        for (int i = 0; i < PASSES; i++) {
            CZ_CHECK(cz_ddp_begin(ddp, true));
            CZ_CHECK(cz_ddp_mark_ready(ddp, 0)); /* the first one opens the pass */
            seconds[i] = mark_by(ddp, threads);
            CZ_CHECK(cz_ddp_mark_ready(ddp, PARAMS - 1));
            CZ_CHECK(cz_ddp_finish(ddp));
        }
        qsort(seconds, PASSES, sizeof *seconds, by_value);
        printf("%-24s %d thread%s %6.1f ns a mark\n", what, threads, threads == 1 ? " " : "s",
               1e9 * seconds[PASSES / 2]);
    }
}

int main(void)
{
    static float values[PARAMS], gradients[PARAMS];
    static int64_t sizes[PARAMS];
    cz_group *group;
    cz_model *model;
    cz_ddp *ddp;
    cz_zero *zero;
    cz_zero_options overlapped = CZ_ZERO_OPTIONS_INIT;
    for (int p = 0; p < PARAMS; p++)
        sizes[p] = 1;
    CZ_CHECK(cz_group_create_self(&group, NULL));
    CZ_CHECK(cz_model_create(&model));
    CZ_CHECK(cz_model_add_flat(model, values, gradients, CZ_F32, PARAMS, NULL, sizes));
    CZ_CHECK(cz_ddp_create(&ddp, group, model, NULL)); /* one bucket */
    measure(ddp, "ddp");
    overlapped.ddp = ddp;
    overlapped.overlap = CZ_OVERLAP_INTERLEAVED;
    CZ_CHECK(cz_zero_create(&zero, group, model, cz_rule_adamw(), NULL, &overlapped));
    measure(ddp, "ddp + zero, overlapped");
    cz_zero_destroy(&zero);
    cz_ddp_destroy(&ddp);
    cz_model_destroy(&model);
    cz_group_destroy(&group);
    return 0;
}
