/* SPDX-License-Identifier: MIT */
/* The job where the library has initialised MPI: its beginning and its end, which are collective,
 * and with a rank that is stopped, dead or cut off would last for ever. At the end ranks tell each
 * other that they have come, on an endpoint of their own, and ask those that have not whether they
 * are still there: carriers answer while their ranks compute, and without carriers ranks that have
 * come. MPI is finalised when all have come; otherwise the job is ended. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "czero/mpi.h"
#include "internal.h"

static const double SHORTEST_PATIENCE = 5; /* seconds; machines may be busy */
static const double GRACE = 2;             /* for the others to say why they fail */
static const double LAST_RESORT = 10;      /* for what cannot hang */

static bool initialised_here;
static pid_t process; /* that did so */
static double patience;
static cz__endpoint *ending; /* of all ranks; NULL: none */
static int my_rank, all_ranks;
static atomic_bool given_up, left_to_program;

/* ---- calls that may never return ---- */

typedef struct watchdog {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    const char *call;
    double seconds;
    bool aborts; /* else the process ends, which with most launchers ends the job */
    bool over;
} watchdog;

static void abort_job(void);

static struct timespec time_after(double seconds)
{
    struct timespec then;
    clock_gettime(CLOCK_MONOTONIC, &then);
    then.tv_sec += (time_t)seconds + 1;
    return then;
}

static void *watch(void *context)
{
    watchdog *dog = context;
    const struct timespec until = time_after(dog->seconds);
    int error = 0;
    pthread_mutex_lock(&dog->lock);
    while (!dog->over && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&dog->changed, &dog->lock, &until);
    const bool over = dog->over;
    pthread_mutex_unlock(&dog->lock);
    if (over)
        return NULL;
    cz_log(CZ_LOG_ERROR,
           "mpi: %s has not returned within %g s: a process of the job is stopped or dead, or has "
           "not come to it; %s",
           dog->call, dog->seconds, dog->aborts ? "the job is ended" : "this one ends");
    if (dog->aborts) /* at any thread level: the thread that is in there will never do it */
        abort_job();
    _exit(1);
}

/* False: there is no thread, and nobody watches. */
static bool begin_watch(watchdog *dog, const char *call, double seconds, bool aborts)
{
    pthread_condattr_t attributes;
    *dog = (watchdog){.call = call, .seconds = seconds, .aborts = aborts};
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&dog->lock, NULL);
    pthread_cond_init(&dog->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    return cz__plugin_thread(&dog->thread, NULL, watch, dog) == 0;
}

static void end_watch(watchdog *dog)
{
    pthread_mutex_lock(&dog->lock);
    dog->over = true;
    pthread_cond_signal(&dog->changed);
    pthread_mutex_unlock(&dog->lock);
    pthread_join(dog->thread, NULL);
    pthread_cond_destroy(&dog->changed);
    pthread_mutex_destroy(&dog->lock);
}

/* ---- the beginning ---- */

cz_status cz__job_begin(double timeout)
{
    int level;
    watchdog dog;
    patience = timeout > SHORTEST_PATIENCE ? timeout : SHORTEST_PATIENCE;
    const bool watched =
        begin_watch(&dog, "MPI_Init_thread", timeout > LAST_RESORT ? timeout : LAST_RESORT, false);
    const int error = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    if (watched)
        end_watch(&dog);
    if (error != MPI_SUCCESS)
        return cz_fail(CZ_ERR_IO, "mpi: MPI_Init_thread failed");
    initialised_here = true;
    process = getpid();
    MPI_Comm_rank(MPI_COMM_WORLD, &my_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &all_ranks);
    return CZ_OK;
}

/* On the wire of the first group of all ranks, as its sub-groups: so nobody has to agree on
 * anything. */
void cz__job_watch_end(cz__endpoint *world)
{
    if (!initialised_here || ending)
        return;
    int *ranks = calloc((size_t)all_ranks, sizeof *ranks);
    if (ranks)
        for (int r = 0; r < all_ranks; r++)
            ranks[r] = r;
    cz_status status = CZ_ERR_MEMORY;
    if (ranks && cz__mpi_enter()) {
        status = cz__endpoint_create(&ending, world->wire, my_rank, all_ranks, world, ranks);
        if (status == CZ_OK) {
            ending->id = UINT64_MAX;
            atomic_store(&ending->attention, true);
            cz__control_meet(ending);
            if (cz__carrier_exists())
                cz__carrier_retain();
        }
        cz__mpi_leave();
    }
    free(ranks);
    if (status != CZ_OK)
        cz_log(CZ_LOG_WARN, "mpi: no memory to watch the end of the job: it may wait for ever for "
                            "a rank that does not come");
}

void cz_plugin_mpi_give_up(bool keep_job)
{
    atomic_store(keep_job ? &left_to_program : &given_up, true);
}

/* ---- the end ---- */

static void nap(void)
{
    const struct timespec moment = {.tv_nsec = 2000000};
    nanosleep(&moment, NULL);
}

/* Ends this process and all others. Not collective; but MPI may be locked by a thread that never
 * comes back. */
static void abort_job(void)
{
    enum { EXIT_CODE = 1 };
    static watchdog dog; /* nobody ends it */
    (void)begin_watch(&dog, "MPI_Abort", LAST_RESORT, false);
    MPI_Abort(MPI_COMM_WORLD, EXIT_CODE);
    _exit(EXIT_CODE);
}

/* All have come, as far as this rank knows, and know that of this rank. */
static bool all_have_come(void)
{
    return !ending || (ending->present == 0 && ending->untold == 0);
}

/* The rank that has said nothing for longest, of those that have not come; they are asked. */
static int quietest(double begun, double *heard_at)
{
    const double OFTEN = 0.25; /* seconds */
    const double now = cz__mpi_seconds();
    int rank = -1;
    if (ending) {
        for (int r = 0; r < all_ranks; r++) {
            cz__peer *peer = &ending->peers[r];
            const double at = fmax(begun, atomic_load(&peer->heard_at));
            if (r == my_rank || peer->left)
                continue;
            if (rank < 0 || at < *heard_at) {
                rank = r;
                *heard_at = at;
            }
            if (now - atomic_load(&peer->asked_at) > OFTEN) {
                atomic_store(&peer->asked_at, now);
                atomic_store(&peer->ask, true);
                atomic_store(&ending->attention, true);
            }
        }
    }
    return rank;
}

static void say_stuck(void)
{
    cz_log(CZ_LOG_ERROR,
           "mpi: rank %d of %d: a thread is inside MPI and does not come back, as happens when "
           "another process is stopped while it has a lock of theirs: the job is ended",
           my_rank, all_ranks);
}

static void say_missing(int rank, double silent)
{
    cz_log(CZ_LOG_ERROR,
           "mpi: rank %d of %d is through, but rank %d has not come to the end and has not "
           "answered for %.1f s: it is stopped, dead or cut off%s; the job is ended",
           my_rank, all_ranks, rank, silent,
           cz__carrier_exists() ? ""
                                : ", or still in the program's code, from where it cannot answer "
                                  "below MPI_THREAD_MULTIPLE");
}

/* True: all ranks have come to the end. Who computes answers by its carrier, or not at all. */
static bool wait_for_all(void)
{
    const double begun = cz__mpi_seconds();
    const double longest = cz__carrier_exists() ? patience : fmax(patience, LAST_RESORT);
    for (;;) {
        double heard_at = begun;
        if (!cz__mpi_enter_within(patience)) {
            say_stuck();
            return false;
        }
        if (!cz__carrier_exists())
            (void)cz__carrier_round();
        const bool all = all_have_come();
        const int rank = quietest(begun, &heard_at);
        cz__mpi_leave();
        if (all)
            return true;
        const double now = cz__mpi_seconds();
        if (atomic_load(&given_up) && now - begun > GRACE)
            return false;
        if (rank >= 0 && now - heard_at > longest) {
            say_missing(rank, now - heard_at);
            return false;
        }
        cz__carrier_wake();
        nap();
    }
}

/* Tell the others that this rank is through, also of groups that it has not destroyed. */
static bool come_to_end(void)
{
    if (!cz__mpi_enter_within(patience)) {
        say_stuck();
        return false;
    }
    cz__endpoints_end(ending, "mpi: the process ends, and the group was not destroyed",
                      "its process ends");
    if (ending) {
        atomic_store(&ending->leaving, true);
        atomic_store(&ending->attention, true);
    }
    cz__endpoint *changed = cz__endpoints_changed();
    cz__mpi_leave();
    cz__endpoints_notify(changed); /* nothing frees them meanwhile */
    cz__carrier_wake();
    return true;
}

void cz_plugin_mpi_finish(void)
{
    static atomic_bool begun;
    int finalised = 0;
    watchdog dog;
    if (!initialised_here || process != getpid() || atomic_load(&left_to_program) ||
        atomic_exchange(&begun, true))
        return;
    MPI_Finalized(&finalised);
    if (finalised)
        return;
    (void)fflush(stdout); /* which exit() does later, and MPI_Abort never */
    const bool inside = cz__carrier_is_this_thread();
    const bool all = !inside && come_to_end() && wait_for_all();
    if (inside || !all || atomic_load(&given_up))
        abort_job();
    if (!cz__carrier_stop(
            patience)) { /* what watches MPI_Finalize would do so too late for MPICH */
        say_stuck();
        abort_job();
    }
    const bool watched = begin_watch(&dog, "MPI_Finalize", fmax(patience, LAST_RESORT), true);
    MPI_Finalize();
    if (watched)
        end_watch(&dog);
}
