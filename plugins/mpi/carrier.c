/* SPDX-License-Identifier: MIT */
/* The carrier thread, the queue that feeds it, the rounds in which messages move, and what happens
 * when the program calls MPI_Finalize. */
#include <errno.h>
#include <fenv.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

/* A carrier with nothing to do looks for what other ranks say every IDLE seconds, later less often.
 * While transfers are under way it tests without a pause for SPIN seconds, then pauses for a
 * sixteenth of the time that it has seen nothing: so a pause adds little to what one waits anyway.
 * Large messages need its calls to get ahead. */
static const double IDLE = 10e-3, LONGEST_IDLE = 40e-3, SPIN = 10e-6, SHORTEST_PAUSE = 20e-6,
                    LONGEST_PAUSE = 1e-3, LONGEST_PAUSE_LARGE = 100e-6;
enum { LARGE = 64 * 1024 };
/* While a thread that waits makes the calls, and no more than this is under way, it looks only so
 * often. */
static const double REST = 1e-3;
enum { MOST_ATTENDED = 1024 * 1024 };
static const double DRAIN = 1; /* seconds for messages to go out after the last group, */
/* and how long who destroys that waits for it: the program may call MPI_Finalize next, and MPICH
 * aborts if a thread is inside MPI at that moment, before it calls what is watching (below) */
static const double PATIENCE = 0.2;
static const double PATIENCE_IN_MPI = 10; /* with a carrier that has to end */

static atomic_int attendants;   /* threads that wait, and make rounds meanwhile */
static atomic_bool busy;        /* since the last round: something is with MPI */
static atomic_bool queued;      /* since the queue was taken something was added */
static double moved_at;         /* with the lock: when a round did something */
static atomic_bool inline_only; /* no carrier */
static bool serialized;

static pthread_mutex_t queue =
    PTHREAD_MUTEX_INITIALIZER; /* innermost: nothing is called under it */
static pthread_cond_t wake, ended;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static cz__parcel *first, **last = &first;
static int groups; /* that the library has */
static bool running, sleeping, called, stop;
static _Thread_local bool is_carrier;
static pid_t home; /* the process that makes groups; 0: none yet */

/* ---- the queue ---- */

/* With its lock. */
static void call_carrier(void)
{
    called = true;
    if (sleeping)
        pthread_cond_signal(&wake);
}

void cz__carrier_wake(void)
{
    pthread_mutex_lock(&queue);
    call_carrier();
    pthread_mutex_unlock(&queue);
}

void cz__carrier_post(cz__parcel *parcel)
{
    parcel->next = NULL;
    pthread_mutex_lock(&queue);
    *last = parcel;
    last = &parcel->next;
    atomic_store(&queued, true);
    if (atomic_load(&attendants) == 0 || parcel->transfer->bytes > MOST_ATTENDED)
        call_carrier();
    pthread_mutex_unlock(&queue);
}

bool cz__carrier_is_attended(void)
{
    return atomic_load(&attendants) > 0;
}

/* What is left to do at the end is the carrier's again. */
void cz__carrier_attend(bool begins)
{
    if (begins) {
        atomic_fetch_add(&attendants, 1);
        return;
    }
    const bool last_one = atomic_fetch_sub(&attendants, 1) == 1;
    if (last_one && (atomic_load(&queued) || atomic_load(&busy)))
        cz__carrier_wake();
}

bool cz__carrier_unpost(cz__parcel *parcel)
{
    pthread_mutex_lock(&queue);
    cz__parcel **link = &first;
    while (*link && *link != parcel)
        link = &(*link)->next;
    const bool found = *link != NULL;
    if (found) {
        *link = parcel->next;
        if (last == &parcel->next)
            last = link;
    }
    pthread_mutex_unlock(&queue);
    return found;
}

bool cz__carrier_start_posted(void)
{
    if (!is_carrier && !atomic_load(&queued))
        return false;
    pthread_mutex_lock(&queue);
    cz__parcel *parcel = first;
    first = NULL;
    last = &first;
    called = false;
    atomic_store(&queued, false);
    pthread_mutex_unlock(&queue);
    const bool any = parcel != NULL;
    while (parcel) {
        cz__parcel *next = parcel->next;
        cz__parcel_start(parcel);
        parcel = next;
    }
    return any;
}

static bool make_round(void)
{
    bool moved = cz__carrier_start_posted();
    cz__control_attend();
    moved |= cz__requests_test();
    if (moved)
        moved_at = cz__mpi_seconds();
    atomic_store(&busy, cz__requests_busy() + cz__endpoints_waiting() > 0);
    return moved;
}

bool cz__carrier_round(void)
{
    const bool moved = make_round();
    cz__endpoints_reap();
    return moved;
}

/* ---- the thread ---- */

static struct timespec time_after(double seconds)
{
    struct timespec then;
    clock_gettime(CLOCK_MONOTONIC, &then);
    then.tv_nsec += (long)(seconds * 1e9);
    then.tv_sec += then.tv_nsec / 1000000000;
    then.tv_nsec %= 1000000000;
    return then;
}

/* Sleep until the pause is over or there is something in the queue. */
static void sleep_for(double pause)
{
    const struct timespec until = time_after(pause);
    pthread_mutex_lock(&queue);
    sleeping = true;
    while (!called && !stop && pthread_cond_timedwait(&wake, &queue, &until) != ETIMEDOUT)
        ;
    sleeping = false;
    pthread_mutex_unlock(&queue);
}

static void pause_carrier(bool is_busy, size_t bytes, double quiet)
{
    const double longest = bytes > LARGE ? LONGEST_PAUSE_LARGE : LONGEST_PAUSE;
    if (cz__carrier_is_attended() && bytes <= MOST_ATTENDED)
        sleep_for(REST);
    else if (!is_busy)
        sleep_for(fmin(fmax(quiet / 16, IDLE), LONGEST_IDLE));
    else if (quiet < SPIN)
        sched_yield();
    else
        sleep_for(fmin(fmax(quiet / 16, SHORTEST_PAUSE), longest));
}

/* The last group is gone and its messages are out. With `untold`, a rank whose port is not known
 * yet has to learn that this one left. */
static bool to_end(bool is_busy, bool untold, double quiet)
{
    pthread_mutex_lock(&queue);
    const bool out = untold ? serialized && quiet > DRAIN : !is_busy || quiet > DRAIN;
    const bool end = stop || (groups == 0 && !called && out);
    if (end) {
        running = false;
        pthread_cond_broadcast(&ended);
    }
    pthread_mutex_unlock(&queue);
    return end;
}

/* Still with the lock, so that the carrier does not free them meanwhile. */
void cz__carrier_round_of_waiter(void)
{
    (void)make_round();
    cz__endpoints_notify(cz__endpoints_changed());
}

static void *carry(void *unused)
{
    fesetenv(FE_DFL_ENV); /* whatever the thread that started it had */
    is_carrier = true;
    prctl(PR_SET_NAME, "czero-mpi");
    prctl(PR_SET_TIMERSLACK, 1000); /* ns; else each pause is 50 us longer */
    cz__mpi_lock();
    moved_at = cz__mpi_seconds();
    cz__mpi_leave();
    for (;;) {
        cz__mpi_lock();
        const bool moved = cz__carrier_round();
        cz__endpoint *changed = cz__endpoints_changed();
        const size_t bytes = cz__parcels_bytes();
        const bool is_busy = atomic_load(&busy);
        const bool untold = cz__endpoints_untold() > 0;
        const double quiet = cz__mpi_seconds() - moved_at;
        cz__mpi_leave();
        cz__endpoints_notify(changed); /* they stay: only this thread frees endpoints */
        if (to_end(is_busy, untold, quiet))
            return NULL;
        if (!moved || cz__carrier_is_attended())
            pause_carrier(is_busy, bytes, quiet);
    }
}

static void make_conditions(void)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&wake, &attributes);
    pthread_cond_init(&ended, &attributes);
    pthread_condattr_destroy(&attributes);
}

int cz__plugin_thread(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                      void *context)
{
    static const int errors[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        sigdelset(&blocked, errors[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    const int error = pthread_create(thread, attributes, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* With the queue's lock. */
static cz_status start_carrier(void)
{
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    running = true;
    stop = false;
    const int error = cz__plugin_thread(&thread, &attributes, carry, NULL);
    pthread_attr_destroy(&attributes);
    if (error == 0)
        return CZ_OK;
    running = false;
    return cz_fail(CZ_ERR_MEMORY,
                   "mpi: no carrier thread (too little memory, or too many threads): %s",
                   strerror(error));
}

/* Unless a group is made meanwhile. With the queue's lock. False: it does not come back from
 * MPI. */
static bool wait_for_end(double patience)
{
    const struct timespec until = time_after(patience);
    int error = 0;
    while (running && groups == 0 && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&ended, &queue, &until);
    return !running || groups > 0;
}

bool cz__carrier_stop(double patience)
{
    pthread_once(&once, make_conditions);
    const struct timespec until = time_after(patience);
    int error = 0;
    pthread_mutex_lock(&queue);
    stop = true;
    pthread_cond_signal(&wake);
    while (running && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&ended, &queue, &until);
    const bool has_ended = !running;
    pthread_mutex_unlock(&queue);
    return has_ended;
}

bool cz__carrier_is_this_thread(void)
{
    return is_carrier;
}

/* ---- MPI_Finalize ----
 *
 * It deletes the attributes of MPI_COMM_SELF first, while MPI can still be used. */

static int finalize(MPI_Comm comm, int keyval, void *value, void *state)
{
    if (!cz__carrier_stop(PATIENCE_IN_MPI)) {
        cz_log(CZ_LOG_ERROR, "mpi: MPI_Finalize was called while a thread is inside MPI and does "
                             "not come back, as happens when another process was stopped while it "
                             "had a lock of theirs: the job is ended");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    cz__mpi_lock();
    cz__endpoints_end(NULL, "mpi: MPI_Finalize was called before the group was destroyed",
                      "it called MPI_Finalize");
    const double until = cz__mpi_seconds() + DRAIN; /* others end about now, too */
    do {
        (void)cz__carrier_round();
        sched_yield();
    } while ((cz__requests_busy() > 0 || cz__endpoints_present() > 0) && cz__mpi_seconds() < until);
    cz__endpoints_notify(cz__endpoints_changed()); /* before the library may free them */
    cz__mpi_end();
    cz__requests_forget();
    cz__mpi_leave();
    return MPI_SUCCESS;
}

static cz_status watch_finalize(void)
{
    static bool watched;
    int keyval;
    if (watched)
        return CZ_OK;
    if (MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, finalize, &keyval, NULL) != MPI_SUCCESS ||
        MPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL) != MPI_SUCCESS)
        return cz_fail(CZ_ERR_IO, "mpi: no attribute for MPI_COMM_SELF");
    watched = true;
    return CZ_OK;
}

/* ---- groups come and go ---- */

/* With the queue's lock. */
static cz_status choose(bool serialized_is_ours)
{
    int level, is_main;
    MPI_Query_thread(&level);
    MPI_Is_thread_main(&is_main);
    const bool alone = level < MPI_THREAD_SERIALIZED;
    const bool without = alone || (level == MPI_THREAD_SERIALIZED && !serialized_is_ours);
    if (alone && !is_main)
        return cz_fail(
            CZ_ERR_STATE,
            "group_create_mpi: MPI's thread level is %s, so only the main thread can make groups",
            cz__mpi_level_name(level));
    if (groups > 0 && without != inline_only)
        return cz_fail(CZ_ERR_STATE,
                       "group_create_mpi: serialized_is_ours is %d, groups that exist have %d",
                       serialized_is_ours, !serialized_is_ours);
    inline_only = without;
    cz__mpi_restrict(alone);
    serialized = level == MPI_THREAD_SERIALIZED;
    return running || without ? CZ_OK : start_carrier();
}

/* So that the carrier stays; who waits for its end need not. With the queue's lock. */
static void add_group(void)
{
    groups++;
    pthread_cond_broadcast(&ended);
}

cz_status cz__carrier_acquire(bool serialized_is_ours)
{
    pthread_once(&once, make_conditions);
    pthread_mutex_lock(&queue);
    home = getpid();
    cz_status status = choose(serialized_is_ours);
    if (status == CZ_OK)
        add_group();
    pthread_mutex_unlock(&queue);
    if (status != CZ_OK)
        return status;
    cz__mpi_lock();
    status = watch_finalize();
    cz__mpi_leave();
    if (status != CZ_OK)
        cz__carrier_release();
    return status;
}

void cz__carrier_retain(void)
{
    pthread_mutex_lock(&queue);
    add_group();
    pthread_mutex_unlock(&queue);
}

void cz__carrier_release(void)
{
    pthread_mutex_lock(&queue);
    groups--;
    call_carrier();
    if (groups == 0 && serialized && !wait_for_end(PATIENCE_IN_MPI)) /* MPI is the program's now */
        cz_log(CZ_LOG_ERROR, "mpi: the carrier thread does not come back from MPI: the program "
                             "cannot make calls of MPI any more");
    else if (groups == 0 && !serialized)
        (void)wait_for_end(PATIENCE);
    pthread_mutex_unlock(&queue);
}

bool cz__carrier_is_of_this_process(void)
{
    return home == 0 || home == getpid();
}

bool cz__carrier_is_forbidden(void)
{
    int level;
    MPI_Query_thread(&level);
    return level == MPI_THREAD_SINGLE;
}

bool cz__carrier_exists(void)
{
    return !inline_only;
}
