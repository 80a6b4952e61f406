/* SPDX-License-Identifier: MIT */
/* Threads that run a job together. All waiting is in threads_meet(): for each other inside a job,
 * for the next job, and for its end. */
#include "threads.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

struct threads {
    atomic_int count;    /* that meet; falls only where a thread could not be made */
    atomic_int arrived;  /* of them, for the present meeting */
    atomic_uint meeting; /* how many have been */
    pthread_mutex_t mutex;
    pthread_cond_t over; /* a meeting is: changed under the mutex */
    pthread_t *others;   /* owned, count - 1 */
    threads_job *job;    /* NULL: to end */
    void *arg;
};

/* A meeting is mostly over soon: a short look is cheaper than to sleep, a long one takes a core
 * from those who are waited for. */
enum { LOOKS = 2000 };

static bool over_soon(threads *all, unsigned meeting)
{
    for (int i = 0; i < LOOKS; i++) {
        if (atomic_load_explicit(&all->meeting, memory_order_acquire) != meeting)
            return true;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    return false;
}

static void meet(threads *all)
{
    const unsigned meeting = atomic_load(&all->meeting);
    if (atomic_fetch_add(&all->arrived, 1) + 1 == atomic_load(&all->count)) {
        atomic_store(&all->arrived, 0); /* before the others can come to the next one */
        pthread_mutex_lock(&all->mutex);
        atomic_store(&all->meeting, meeting + 1);
        pthread_cond_broadcast(&all->over);
        pthread_mutex_unlock(&all->mutex);
    } else if (!over_soon(all, meeting)) {
        pthread_mutex_lock(&all->mutex);
        while (atomic_load(&all->meeting) == meeting)
            pthread_cond_wait(&all->over, &all->mutex);
        pthread_mutex_unlock(&all->mutex);
    }
}

void threads_meet(part self)
{
    if (self.count > 1)
        meet(self.threads);
}

typedef struct seat {
    threads *all;
    int index;
} seat;

static void *each_other(void *arg)
{
    const seat mine = *(seat *)arg;
    threads *all = mine.all;
    free(arg);
    for (;;) {
        meet(all); /* for a job */
        if (!all->job)
            return NULL;
        all->job((part){all, mine.index, atomic_load(&all->count)}, all->arg);
        meet(all); /* it is done */
    }
}

static bool start(threads *all, int index)
{
    seat *place = malloc(sizeof *place);
    if (!place)
        return false;
    *place = (seat){all, index};
    if (pthread_create(&all->others[index - 1], NULL, each_other, place) == 0)
        return true;
    free(place);
    return false;
}

bool threads_create(threads **out, int count)
{
    *out = NULL;
    threads *all = count > 0 ? calloc(1, sizeof *all) : NULL;
    if (!all)
        return false;
    all->others = calloc((size_t)count, sizeof *all->others);
    if (!all->others) {
        free(all);
        return false;
    }
    pthread_mutex_init(&all->mutex, NULL);
    pthread_cond_init(&all->over, NULL);
    atomic_init(&all->count, count);
    int started = 1;
    while (started < count && start(all, started))
        started++;
    atomic_store(&all->count, started); /* those there are: destroy meets them */
    if (started < count)
        threads_destroy(&all);
    *out = all;
    return all;
}

void threads_destroy(threads **all)
{
    if (!all || !*all)
        return;
    const int count = atomic_load(&(*all)->count);
    (*all)->job = NULL;
    if (count > 1)
        meet(*all);
    for (int i = 0; i < count - 1; i++)
        pthread_join((*all)->others[i], NULL);
    pthread_cond_destroy(&(*all)->over);
    pthread_mutex_destroy(&(*all)->mutex);
    free((*all)->others);
    free(*all);
    *all = NULL;
}

void threads_run(threads *all, threads_job *job, void *arg)
{
    const part first = {all, 0, atomic_load(&all->count)};
    all->job = job;
    all->arg = arg;
    threads_meet(first);
    job(first, arg);
    threads_meet(first);
}

share threads_share(part self, int count, int unit, int least)
{
    const int64_t units = count / unit;
    const int most = count / least > 0 ? count / least : 1;
    const int takers = self.count < most ? self.count : most;
    if (self.index >= takers)
        return (share){count, count};
    const int begin = (int)(units * self.index / takers) * unit;
    const int end = (int)(units * (self.index + 1) / takers) * unit;
    return (share){begin, self.index == takers - 1 ? count : end};
}
