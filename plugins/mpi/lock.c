/* SPDX-License-Identifier: MIT */
/* The one lock around all calls of MPI, and who may take it. */
#include <math.h>
#include <sched.h>
#include <time.h>

#include "internal.h"

static pthread_mutex_t mpi = PTHREAD_MUTEX_INITIALIZER;
static atomic_int visitors;    /* threads other than the carrier that want the lock */
static atomic_bool over;       /* MPI_Finalize was called */
static atomic_bool one_thread; /* below MPI_THREAD_SERIALIZED: only `main_thread` */
static pthread_t main_thread;

double cz__mpi_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool lock_within(double seconds)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    const double until = cz__mpi_seconds() + seconds;
    while (pthread_mutex_trylock(&mpi) != 0) {
        if (cz__mpi_seconds() > until)
            return false;
        nanosleep(&nap, NULL);
    }
    return true;
}

static bool is_another_thread(void)
{
    return atomic_load(&one_thread) && !pthread_equal(pthread_self(), main_thread);
}

static bool enter(double patience)
{
    bool locked = true;
    if (is_another_thread())
        return false;
    atomic_fetch_add(&visitors, 1);
    if (patience < 0)
        locked = pthread_mutex_trylock(&mpi) == 0;
    else if (isinf(patience))
        pthread_mutex_lock(&mpi);
    else
        locked = lock_within(patience);
    atomic_fetch_sub(&visitors, 1);
    if (locked && atomic_load(&over))
        pthread_mutex_unlock(&mpi);
    return locked && !atomic_load(&over);
}

bool cz__mpi_enter(void)
{
    return enter(INFINITY);
}

bool cz__mpi_enter_within(double seconds)
{
    return enter(seconds);
}

bool cz__mpi_enter_if_free(void)
{
    return enter(-1);
}

void cz__mpi_lock(void)
{
    if (atomic_load(&visitors))
        sched_yield();
    pthread_mutex_lock(&mpi);
}

void cz__mpi_leave(void)
{
    pthread_mutex_unlock(&mpi);
}

void cz__mpi_restrict(bool to_this_thread)
{
    if (to_this_thread)
        main_thread = pthread_self();
    atomic_store(&one_thread, to_this_thread);
}

void cz__mpi_end(void)
{
    atomic_store(&over, true);
}

bool cz__mpi_over(void)
{
    return atomic_load(&over);
}

cz_status cz__mpi_check_end(void)
{
    return atomic_load(&over)
               ? cz_fail(CZ_ERR_STATE,
                         "mpi: MPI_Finalize was called before the group was destroyed")
               : CZ_OK;
}

cz_status cz__mpi_check(void)
{
    CZ_TRY(cz__mpi_check_end());
    if (is_another_thread())
        return cz_fail(CZ_ERR_STATE, "mpi: called outside the main thread, MPI's thread level is "
                                     "below MPI_THREAD_SERIALIZED");
    return CZ_OK;
}

const char *cz__mpi_level_name(int level)
{
    if (level == MPI_THREAD_SINGLE)
        return "MPI_THREAD_SINGLE";
    return level == MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED" : "MPI_THREAD_SERIALIZED";
}
