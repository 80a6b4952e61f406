/* SPDX-License-Identifier: MIT */
/* The cores of a rank, and threads for kernels on them. */
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/float_mode.h"
#include "base/kernel_threads.h"
#include "base/memory.h"
#include "base/open.h"
#include "base/options.h"
#include "base/plain_text.h"
#include "base/process.h"
#include "base/status.h"
#include "base/thread.h"

/* ---- cores ---- */
/* The cores of a rank: what affinity and control groups allow, divided by the ranks that share
 * it. */

static atomic_int ranks_here; /* threads of this process */

void cz__cores_add_ranks(int ranks)
{
    atomic_fetch_add(&ranks_here, ranks);
}

int cz__cores_share(const cz__cores *cores)
{
    const int processes = cores->processes > 1 ? cores->processes : 1;
    double share = (double)cores->machine / processes;
    share = fmin(share, cores->quota / processes);
    share = fmin(share, cores->allowed); /* which mpirun may have divided already */
    share = floor(share / (cores->ranks > 1 ? cores->ranks : 1));
    return (int)fmin(fmax(share, 1), CZ__KERNEL_THREADS_MAX);
}

/* ---- control groups ---- */

/* Two numbers of a file, the first may be "max". INFINITY: no limit, or no such file. */
static double ratio_in(const char *path)
{
    double ratio = INFINITY;
    char quota[32];
    double period;
    FILE *file = cz__open_stream(path, "r");
    if (!file)
        return ratio;
    if (fscanf(file, "%31s %lf", quota, &period) == 2 && strcmp(quota, "max") != 0 && period > 0)
        ratio = strtod(quota, NULL) / period;
    fclose(file);
    return ratio > 0 ? ratio : INFINITY;
}

static double number_in(const char *path)
{
    double number = -1;
    FILE *file = cz__open_stream(path, "r");
    if (!file)
        return number;
    if (fscanf(file, "%lf", &number) != 1)
        number = -1;
    fclose(file);
    return number;
}

/* Version 2 has one file for both numbers, version 1 a file for each. */
static double quota_of(const char *root, const char *group, bool second)
{
    char path[PATH_MAX], other[PATH_MAX];
    if (second) {
        snprintf(path, sizeof path, "%s%s/cpu.max", root, group);
        return ratio_in(path);
    }
    snprintf(path, sizeof path, "%s/cpu%s/cpu.cfs_quota_us", root, group);
    snprintf(other, sizeof other, "%s/cpu%s/cpu.cfs_period_us", root, group);
    const double quota = number_in(path), period = number_in(other);
    return quota > 0 && period > 0 ? quota / period : INFINITY;
}

/* In a container the group's own path may not be visible: the root, tried in any case, is then its
 * own. */
static double smallest_quota(const char *root, char *group, bool second)
{
    double smallest = quota_of(root, "", second);
    while (*group) {
        smallest = fmin(smallest, quota_of(root, group, second));
        char *end = strrchr(group, '/');
        if (!end)
            break;
        *end = '\0';
    }
    return smallest;
}

double cz__cores_quota(const char *root, const char *membership)
{
    CZ__PLAIN_TEXT;
    double smallest = INFINITY;
    char line[PATH_MAX];
    FILE *file = cz__open_stream(membership, "r");
    if (!file)
        return smallest;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *group = controllers;
        if (controllers)
            group = strchr(++controllers, ':');
        if (!group)
            continue;
        *group++ = '\0';
        const bool second = *controllers == '\0';
        if (second || strcmp(controllers, "cpu") == 0 || strcmp(controllers, "cpu,cpuacct") == 0)
            smallest = fmin(smallest, smallest_quota(root, group, second));
    }
    fclose(file);
    return smallest;
}

/* ---- here ---- */

/* What the starters of Open MPI, of MPICH and of Slurm say; the last one as "4(x2),3", where
 * machines differ. */
static int processes_here(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                                        "SLURM_STEP_TASKS_PER_NODE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = cz__environment_text(names[i]);
        const int count = text ? atoi(text) : 0;
        if (count > 0)
            return count;
    }
    return 1;
}

cz__cores cz__cores_look(void)
{
    cpu_set_t set;
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    cz__cores cores = {
        .machine = online > 0 ? (int)online : 1,
        .quota = cz__cores_quota("/sys/fs/cgroup", "/proc/self/cgroup"),
        .processes = processes_here(),
        .ranks = atomic_load(&ranks_here),
    };
    /* fails where the machine has more processors than the set */
    cores.allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : cores.machine;
    return cores;
}

/* ---- a share that ranks have told each other of ---- */

cz__core_set cz__core_set_look(void)
{
    cz__core_set own = {{0}};
    cpu_set_t set;
    _Static_assert(sizeof set == sizeof own, "a bit for each core of a set");
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        memcpy(own.words, &set, sizeof own.words);
    return own;
}

static bool has_core(const cz__core_set *set, int core)
{
    return (uint64_t)set->words[core / 64] >> core % 64 & 1;
}

int cz__cores_apportion(const cz__core_set *sets, int count, int mine, const cz__cores *here)
{
    const double WHOLE = 1e-6; /* three thirds are one */
    double share = 0;
    for (int core = 0; core < 64 * CZ__CORE_WORDS; core++) {
        int sharers = 0;
        for (int r = 0; r < count && has_core(&sets[mine], core); r++)
            sharers += has_core(&sets[r], core);
        share += sharers > 0 ? 1.0 / sharers : 0;
    }
    if (share == 0)
        share = (double)here->machine / count;
    share = fmin(share, here->quota / count);
    return share < 1 ? 1 : (int)(share + WHOLE);
}

int cz__kernel_thread_count(int option, bool *is_wish)
{
    const double wish = cz__environment_number("CZERO_THREADS", 0, CZ__KERNEL_THREADS_MAX, 0);
    const int count = option > 0 ? option : (int)wish;
    *is_wish = count > 0;
    if (count > 0)
        return count < CZ__KERNEL_THREADS_MAX ? count : CZ__KERNEL_THREADS_MAX;
    const cz__cores cores = cz__cores_look();
    return cz__cores_share(&cores);
}

/* ---- threads ---- */
/* Threads for kernels. A job is a number that grows: a thread that has seen the last one sleeps.
 * Both sides look for some microseconds before they sleep, for the passes of a step follow each
 * other. To wake takes long, and a core may be busy with something else: the caller does what
 * nobody has begun when its own part is done. */

/* Some 10 and 40 microseconds; the others have been woken, so they will soon have finished. */
enum { LOOKS = 800, LOOKS_FOR_END = 3000 };

typedef struct seat {
    cz__kernel_threads *threads;
    int part;
    atomic_uint taken; /* the last job whose part somebody does or has done */
    pthread_t thread;
} seat;

struct cz__kernel_threads {
    pthread_mutex_t lock;
    pthread_cond_t begun, ended;
    pid_t process; /* the one that has the threads */
    int parts;
    cz__part part; /* of the present job, as its context */
    void *context;
    atomic_uint jobs; /* so many have been begun */
    atomic_int left;  /* parts of the present one that others have not finished */
    bool stop;
    seat seats[]; /* owned; of parts 1 and up */
};

/* The next job after `seen`; false: there is none, the thread ends. */
static bool await_job(cz__kernel_threads *threads, unsigned seen)
{
    for (int i = 0; i < LOOKS; i++) {
        if (atomic_load_explicit(&threads->jobs, memory_order_acquire) != seen)
            return true;
        cz__pause();
    }
    pthread_mutex_lock(&threads->lock);
    while (atomic_load(&threads->jobs) == seen && !threads->stop)
        pthread_cond_wait(&threads->begun, &threads->lock);
    const bool stop = threads->stop;
    pthread_mutex_unlock(&threads->lock);
    return !stop;
}

/* A job ends when all its parts are done: until then, who has taken one may read what it is. */
static bool take_part(seat *at, unsigned job)
{
    unsigned before = job - 1;
    return atomic_compare_exchange_strong(&at->taken, &before, job);
}

/* Kernels find their pages there. */
static void touch_stack(void)
{
    volatile char room[32 << 10];
    for (size_t i = 0; i < sizeof room; i += 1 << 10)
        room[i] = 0;
}

static void end_part(cz__kernel_threads *threads)
{
    if (atomic_fetch_sub(&threads->left, 1) > 1)
        return;
    pthread_mutex_lock(&threads->lock);
    pthread_cond_signal(&threads->ended);
    pthread_mutex_unlock(&threads->lock);
}

static void *thread_main(void *context)
{
    seat *self = context;
    cz__kernel_threads *threads = self->threads;
    (void)cz__float_enter(); /* whatever the thread that started it had */
    touch_stack();
    end_part(threads);
    for (unsigned seen = 0; await_job(threads, seen);) {
        seen = atomic_load(&threads->jobs);
        if (!take_part(self, seen))
            continue;
        threads->part(threads->context, self->part);
        end_part(threads);
    }
    return NULL;
}

static void await_others(cz__kernel_threads *threads)
{
    for (int i = 0; i < LOOKS_FOR_END; i++) {
        if (atomic_load_explicit(&threads->left, memory_order_acquire) == 0)
            return;
        cz__pause();
    }
    pthread_mutex_lock(&threads->lock);
    while (atomic_load(&threads->left) > 0)
        pthread_cond_wait(&threads->ended, &threads->lock);
    pthread_mutex_unlock(&threads->lock);
}

static void start_threads(cz__kernel_threads *threads, int parts)
{
    while (threads->parts < parts) {
        seat *next = &threads->seats[threads->parts - 1];
        next->threads = threads;
        next->part = threads->parts;
        atomic_fetch_add(&threads->left, 1);
        if (cz__thread_create(&next->thread, NULL, thread_main, next) != 0) {
            atomic_fetch_sub(&threads->left, 1);
            break;
        }
        threads->parts++;
    }
    await_others(threads);
}

cz_status cz__kernel_threads_start(cz__kernel_threads **out, int parts)
{
    CZ__UNCANCELLED;
    *out = NULL;
    if (parts <= 1 || !cz__thread_allowed())
        return CZ_OK;
    cz__kernel_threads *threads =
        cz__calloc(1, sizeof *threads + (size_t)(parts - 1) * sizeof *threads->seats);
    if (!threads)
        return cz__fail(CZ_ERR_MEMORY, "no memory for %d kernel threads", parts);
    pthread_mutex_init(&threads->lock, NULL);
    pthread_cond_init(&threads->begun, NULL);
    pthread_cond_init(&threads->ended, NULL);
    threads->process = cz__process();
    threads->parts = 1;
    start_threads(threads, parts);
    if (threads->parts == 1)
        cz__kernel_threads_stop(&threads);
    *out = threads;
    return CZ_OK;
}

int cz__kernel_threads_parts(const cz__kernel_threads *threads)
{
    return threads ? threads->parts : 1;
}

void cz__kernel_threads_run(cz__kernel_threads *threads, cz__part part, void *context)
{
    CZ__UNCANCELLED;
    const int parts = cz__kernel_threads_parts(threads);
    if (!threads || threads->process != cz__process()) {
        for (int k = 0; k < parts; k++)
            part(context, k);
        return;
    }
    pthread_mutex_lock(&threads->lock);
    threads->part = part;
    threads->context = context;
    atomic_store(&threads->left, parts - 1);
    const unsigned job = atomic_fetch_add(&threads->jobs, 1) + 1;
    pthread_mutex_unlock(&threads->lock);
    pthread_cond_broadcast(&threads->begun);
    part(context, 0);
    for (int k = 1; k < parts; k++)
        if (take_part(&threads->seats[k - 1], job)) {
            part(context, k);
            atomic_fetch_sub(&threads->left, 1);
        }
    await_others(threads);
}

void cz__kernel_threads_stop(cz__kernel_threads **threads)
{
    CZ__UNCANCELLED;
    if (!threads || !*threads)
        return;
    if ((*threads)->process == cz__process()) {
        pthread_mutex_lock(&(*threads)->lock);
        (*threads)->stop = true;
        pthread_cond_broadcast(&(*threads)->begun);
        pthread_mutex_unlock(&(*threads)->lock);
        for (int k = 1; k < (*threads)->parts; k++)
            pthread_join((*threads)->seats[k - 1].thread, NULL);
        pthread_cond_destroy(&(*threads)->ended);
        pthread_cond_destroy(&(*threads)->begun);
        pthread_mutex_destroy(&(*threads)->lock);
    }
    cz__free(*threads);
    *threads = NULL;
}
