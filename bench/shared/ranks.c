/* SPDX-License-Identifier: MIT */
#include "ranks.h"

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BOUNCES = 25, PAGE = 2 << 20 };

int bench_cpus(void)
{
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

void bench_pin(int rank)
{
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    int place = rank % CPU_COUNT(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && place-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            (void)sched_setaffinity(0, sizeof one, &one);
            return;
        }
}

static void relax(unsigned *spins, bool crowded)
{
    if (++*spins % (crowded ? 64 : 1 << 16) == 0)
        sched_yield();
#if defined __SSE2__
    else
        __builtin_ia32_pause();
#endif
}

static void wait_for(bench_line *line, unsigned turn, bool crowded)
{
    unsigned spins = 0;
    /* turns wrap around: the difference does not */
    while ((int)(atomic_load_explicit(&line->turn, memory_order_acquire) - turn) < 0)
        relax(&spins, crowded);
}

/* bench_cpus() asks the system: once is enough, and before threads are pinned to one each. */
static bool crowded(const bench_meet *meet)
{
    static atomic_int cpus;
    if (atomic_load_explicit(&cpus, memory_order_relaxed) == 0)
        atomic_store_explicit(&cpus, (int)sysconf(_SC_NPROCESSORS_ONLN), memory_order_relaxed);
    return meet->ranks > atomic_load_explicit(&cpus, memory_order_relaxed);
}

void bench_meet_all(bench_meet *meet, int rank)
{
    const bool full = crowded(meet);
    const unsigned turn = atomic_load_explicit(&meet->here[rank].turn, memory_order_relaxed) + 1;
    atomic_store_explicit(&meet->here[rank].turn, turn, memory_order_release);
    for (int r = 0; r < meet->ranks; r++)
        wait_for(&meet->here[r], turn, full);
}

double bench_bounce(bench_meet *meet, int rank)
{
    if (meet->ranks < 2 || rank > 1 || sysconf(_SC_NPROCESSORS_ONLN) < 2)
        return 0;
    const unsigned first = atomic_load(&meet->ball.turn) & ~1u; /* rank 1 may see rank 0's first */
    const double begin = bench_seconds();
    for (unsigned i = 0; i < 2 * BOUNCES; i += 2) {
        if (rank == 1)
            wait_for(&meet->ball, first + i + 1, false);
        atomic_store_explicit(&meet->ball.turn, first + i + 1 + (unsigned)rank,
                              memory_order_release);
        if (rank == 0)
            wait_for(&meet->ball, first + i + 2, false);
    }
    return (bench_seconds() - begin) / (2 * BOUNCES);
}

void bench_mail(bench_meet *meet, int rank, int count, const float *mine,
                const float *all[BENCH_RANKS])
{
    const bool full = crowded(meet);
    bench_line(*mail)[2] = meet->mail;
    /* Two slots in turn: whoever is two mails ahead has seen that all others have read the
     * first. */
    unsigned turn = atomic_load_explicit(&mail[rank][0].turn, memory_order_relaxed);
    const unsigned odd = atomic_load_explicit(&mail[rank][1].turn, memory_order_relaxed);
    turn = ((int)(odd - turn) > 0 ? odd : turn) + 1;
    bench_line *slot = &mail[rank][turn & 1];
    memcpy(slot->data, mine, (size_t)count * sizeof *mine);
    atomic_store_explicit(&slot->turn, turn, memory_order_release);
    for (int r = 0; r < meet->ranks; r++) {
        wait_for(&mail[r][turn & 1], turn, full);
        all[r] = mail[r][turn & 1].data;
    }
}

void bench_cut(size_t count, int ranks, int rank, size_t *begin, size_t *end)
{
    const size_t lines = (count + BENCH_LINE - 1) / BENCH_LINE, n = (size_t)ranks, r = (size_t)rank;
    *begin = lines * r / n * BENCH_LINE;
    *end = lines * (r + 1) / n * BENCH_LINE;
}

double bench_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Blocks begin at different places in their pages, so that loops over several do not meet in one
 * bank of the memory. */
enum { PLACES = 13, APART = 20 * 1024 + 3 * 64 };

static size_t whole_pages(size_t bytes)
{
    return (bytes + PLACES * APART + PAGE) / PAGE * PAGE; /* at least a line more */
}

float *bench_pages(size_t bytes, bool huge)
{
    const size_t whole = whole_pages(bytes);
    float *pages = aligned_alloc(PAGE, whole);
    if (!pages) {
        fprintf(stderr, "no memory for %zu bytes\n", whole);
        exit(1);
    }
    (void)madvise(pages, whole, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    memset(pages, 0, whole);
    static atomic_uint blocks;
    return pages + atomic_fetch_add(&blocks, 1) % PLACES * (APART / sizeof *pages);
}

void bench_pages_free(float *pages, size_t bytes)
{
    char *begin = (char *)pages - (uintptr_t)pages % PAGE;
    (void)madvise(begin, whole_pages(bytes), MADV_DONTNEED);
    free(begin);
}
