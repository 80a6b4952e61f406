/* SPDX-License-Identifier: MIT */
/* The executor of a rank. At any time at most one thread, the driver, moves its operations on; so
 * they need no locks of their own. The driver gives up the lock while it works on one of them. */
#include "operation/executor.h"

#include <math.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/float_mode.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "operation/operation.h"

enum { SPIN_TURNS = 500, YIELD_TURNS = 20 };

/* Who waits for something close falls asleep when nothing has happened for so long. Before, it
 * gives the core to others between looks, with a core of its own a while later. */
static const double CLOSE_SECONDS = 500e-6, ALONE_SECONDS = 100e-6, SHARED_SECONDS = 1e-6;

struct cz__executor {
    const cz__executor_calls *calls;
    pthread_mutex_t lock;
    pthread_cond_t for_waiters; /* something happened, or there is no driver any more */
    pthread_cond_t for_thread;  /* the same, for the executor's own thread */
    pthread_cond_t for_seizer;  /* there is no driver any more */
    pthread_t thread;
    /* Counts what happened outside; a driver sleeps only if it has seen all. */
    atomic_ullong events;
    int waiters;
    int users, holders; /* groups that have not left, that have not been freed */
    double poll_seconds;
    bool inline_only;
    bool spins; /* a waiter has a core of its own */
    bool driving;
    bool stop;
    cz_work *first, *last;
    cz_group *groups; /* that have not left, linked by next_of_rank */
    cz__traffic traffic;
};

cz__traffic *cz__executor_traffic(cz__executor *executor)
{
    return &executor->traffic;
}

void cz__executor_enlist(cz__executor *executor, cz_group *group)
{
    group->next_of_rank = executor->groups;
    executor->groups = group;
}

void cz__executor_delist(cz__executor *executor, const cz_group *group)
{
    cz_group **link = &executor->groups;
    while (*link && *link != group)
        link = &(*link)->next_of_rank;
    if (*link)
        *link = group->next_of_rank;
}

cz_group *cz__executor_groups(const cz__executor *executor)
{
    return executor->groups;
}

void cz__executor_lock(cz__executor *executor)
{
    pthread_mutex_lock(&executor->lock);
}

void cz__executor_unlock(cz__executor *executor)
{
    pthread_mutex_unlock(&executor->lock);
}

static void wake_somebody(cz__executor *executor)
{
    if (executor->waiters > 0)
        pthread_cond_broadcast(&executor->for_waiters);
    else if (!executor->inline_only)
        pthread_cond_signal(&executor->for_thread);
}

void cz__executor_notify(void *context)
{
    cz__executor *executor = context;
    pthread_mutex_lock(&executor->lock);
    executor->events++;
    wake_somebody(executor);
    pthread_mutex_unlock(&executor->lock);
}

static void link_last(cz__executor *executor, cz_work *work)
{
    work->next = NULL;
    work->previous = executor->last;
    *(executor->last ? &executor->last->next : &executor->first) = work;
    executor->last = work;
}

static void unlink_work(cz__executor *executor, cz_work *work)
{
    *(work->previous ? &work->previous->next : &executor->first) = work->next;
    *(work->next ? &work->next->previous : &executor->last) = work->previous;
    work->previous = work->next = NULL;
}

void cz__executor_append(cz__executor *executor, cz_work *work)
{
    link_last(executor, work);
    executor->events++;
}

void cz__executor_rotate(cz__executor *executor, cz_work *work)
{
    unlink_work(executor, work);
    link_last(executor, work);
}

void cz__executor_wake(cz__executor *executor)
{
    wake_somebody(executor);
}

cz_work *cz__executor_first(const cz__executor *executor)
{
    return executor->first;
}

void cz__executor_remove(cz__executor *executor, cz_work *work)
{
    unlink_work(executor, work);
    if (executor->waiters > 0)
        pthread_cond_broadcast(&executor->for_waiters);
}

static void stop_driving(cz__executor *executor)
{
    executor->driving = false;
    pthread_cond_signal(&executor->for_seizer);
}

/* Not only while it is attended? */
static bool is_polled(const cz_backend *backend)
{
    return backend->poll && (!backend->attend || backend->inline_only);
}

/* Move every operation on as far as it goes now. True if anything happened. */
static bool move_all(cz__executor *executor)
{
    const uint64_t seen = executor->events;
    bool moved = false;
    for (cz_work *work = executor->first, *next; work; work = next) {
        pthread_mutex_unlock(&executor->lock);
        if (is_polled(work->group->backend) && work->group->endpoint)
            work->group->backend->poll(work->group->endpoint);
        moved |= executor->calls->advance(work);
        pthread_mutex_lock(&executor->lock);
        next = work->next; /* read under the lock: others append */
        executor->calls->retire(work);
    }
    return moved || seen != executor->events;
}

/* Move all on, and poll the backend for `wanted`, until that has ended or nothing has happened for
 * a while. True if anything did. The driver, with the lock. */
static bool attend(cz__executor *executor, const cz_work *wanted)
{
    const cz_group *group = wanted->group;
    const double keep = executor->spins ? ALONE_SECONDS : SHARED_SECONDS;
    double quiet_since = cz__seconds(), quiet = 0;
    bool any = false;
    while (quiet < CLOSE_SECONDS) {
        const uint64_t seen = executor->events;
        const bool moved = move_all(executor);
        any |= moved;
        if (wanted->ended || !executor->calls->is_close(wanted))
            return any;
        pthread_mutex_unlock(&executor->lock);
        if (!is_polled(group->backend)) /* else it was when all moved on */
            group->backend->poll(group->endpoint);
        if (quiet > keep)
            sched_yield();
        const double now = cz__seconds();
        pthread_mutex_lock(&executor->lock);
        if (moved || seen != executor->events)
            quiet_since = now;
        quiet = now - quiet_since;
    }
    return any;
}

/* Move every operation on until nothing moves or `wanted` has ended; `attends`: that is expected
 * soon. True if anything moved. Lock held at call and return. */
static bool drive(cz__executor *executor, const cz_work *wanted, bool attends)
{
    const cz__sentence own =
        cz__sentence_hold(); /* what others' operations say is not the caller's */
    const cz_group *group = wanted ? wanted->group : NULL;
    bool any = false, moved = true;
    executor->driving = true;
    if (attends && group->endpoint && group->backend->attend && executor->calls->is_close(wanted) &&
        group->backend->attend(group->endpoint, true)) {
        any = attend(executor, wanted);
        (void)group->backend->attend(group->endpoint, false);
    }
    while (moved && executor->first && !(wanted && wanted->ended)) {
        moved = move_all(executor);
        any |= moved;
    }
    stop_driving(executor);
    cz__sentence_resume(own);
    return any;
}

/* When an operation must be looked at again though nothing happens: to warn, or to time out. -1: at
 * once, something did happen. The lock is given up meanwhile. */
static double next_watch(cz__executor *executor)
{
    const double now = cz__seconds();
    double next =
        executor->first && executor->poll_seconds > 0 ? now + executor->poll_seconds : INFINITY;
    const uint64_t seen = executor->events;
    const cz__sentence own = cz__sentence_hold();
    executor->driving = true;
    for (cz_work *work = executor->first; work; work = work->next) {
        pthread_mutex_unlock(&executor->lock);
        next = fmin(next, executor->calls->watch(work, now));
        pthread_mutex_lock(&executor->lock);
    }
    stop_driving(executor);
    cz__sentence_resume(own);
    return seen == executor->events ? next : -1;
}

static void sleep_until(cz__executor *executor, pthread_cond_t *condition, double moment)
{
    if (moment > 2e9) { /* INFINITY, or more than every time_t holds: never */
        pthread_cond_wait(condition, &executor->lock);
        return;
    }
    struct timespec until = {.tv_sec = (time_t)moment};
    until.tv_nsec = (long)((moment - (double)until.tv_sec) * 1e9);
    pthread_cond_timedwait(condition, &executor->lock, &until);
}

/* Where every rank has a core, what it waits for is often less than a microsecond away: giving up
 * the core would cost more. As yield_for(), but still the driver, so that the work stays where it
 * is. */
static bool spin_for(cz__executor *executor, cz_work *work)
{
    const uint64_t seen = executor->events;
    const bool attended = work->group->backend->attend; /* it has looked for longer */
    const int turns = executor->spins && !attended ? SPIN_TURNS : 0;
    executor->driving = true;
    pthread_mutex_unlock(&executor->lock);
    const bool any = executor->calls->spin(work, turns, &executor->events, seen);
    pthread_mutex_lock(&executor->lock);
    stop_driving(executor);
    return any || seen != executor->events;
}

/* What a peer is about to send is often microseconds away: let it have the core before falling
 * asleep, which costs both sides more than that. True if there is something to look at; also the
 * end of the work, which another thread may have brought about meanwhile. Lock held at call and
 * return. */
static bool yield_for(cz__executor *executor, const cz_work *work)
{
    const uint64_t seen = executor->events;
    for (int turn = 0; turn < YIELD_TURNS && seen == executor->events && !work->ended; turn++) {
        pthread_mutex_unlock(&executor->lock);
        sched_yield();
        pthread_mutex_lock(&executor->lock);
    }
    return seen != executor->events || work->ended;
}

void cz__executor_wait(cz__executor *executor, cz_work *work)
{
    bool is_close = true; /* as far as it knows: and again when something has happened */
    executor->waiters++;
    while (!work->ended) {
        double moment = INFINITY;
        if (!executor->driving) {
            const bool moved = drive(executor, work, is_close), yields = is_close || moved;
            is_close = moved;
            if (work->ended)
                break;
            if (spin_for(executor, work))
                continue;
            moment = next_watch(executor);
            if (moment < 0 || (yields && yield_for(executor, work)))
                continue;
        }
        sleep_until(executor, &executor->for_waiters, moment);
    }
    executor->waiters--;
    if (executor->first)
        wake_somebody(executor); /* somebody else drives the rest */
}

void cz__executor_poll(cz__executor *executor, const cz_group *group)
{
    if (executor->driving)
        return;
    if (group && !executor->first && is_polled(group->backend)) { /* driving would not call it */
        executor->driving = true;
        pthread_mutex_unlock(&executor->lock);
        group->backend->poll(group->endpoint);
        pthread_mutex_lock(&executor->lock);
        stop_driving(executor);
    }
    (void)drive(executor, NULL, false);
    if (executor->inline_only && executor->first)
        (void)next_watch(executor); /* there is no thread to look at the time */
    wake_somebody(executor);
}

void cz__executor_seize(cz__executor *executor)
{
    while (executor->driving)
        pthread_cond_wait(&executor->for_seizer, &executor->lock);
    executor->driving = true;
}

void cz__executor_release(cz__executor *executor)
{
    stop_driving(executor);
    wake_somebody(executor);
}

static void *thread_main(void *context)
{
    cz__executor *executor = context;
    (void)cz__float_enter();
    pthread_mutex_lock(&executor->lock);
    while (!executor->stop) {
        double moment = INFINITY;
        if (executor->first && !executor->driving && executor->waiters == 0) {
            (void)drive(executor, NULL, false);
            if (executor->first && executor->waiters == 0)
                moment = next_watch(executor);
            if (executor->waiters > 0) { /* they came meanwhile: theirs to drive and to watch */
                pthread_cond_broadcast(&executor->for_waiters);
                moment = INFINITY;
            } else if (moment < 0) {
                continue;
            }
        }
        if (!executor->stop)
            sleep_until(executor, &executor->for_thread, moment);
    }
    pthread_mutex_unlock(&executor->lock);
    return NULL;
}

cz_status cz__executor_create(cz__executor **out, const cz__executor_calls *calls,
                              double poll_seconds, bool inline_only)
{
    *out = NULL;
    cz__executor *executor = cz__calloc(1, sizeof *executor);
    if (!executor)
        return cz__fail(CZ_ERR_MEMORY, "group: no memory for an executor");
    executor->calls = calls;
    executor->users = executor->holders = 1;
    executor->poll_seconds = poll_seconds;
    executor->inline_only = inline_only;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    cz__lock_create(&executor->lock);
    pthread_cond_init(&executor->for_waiters, &attributes);
    pthread_cond_init(&executor->for_thread, &attributes);
    pthread_cond_init(&executor->for_seizer, &attributes);
    pthread_condattr_destroy(&attributes);
    const int error =
        inline_only ? 0 : cz__thread_create(&executor->thread, NULL, thread_main, executor);
    if (error) {
        cz__executor_free(executor);
        return cz__fail(CZ_ERR_MEMORY,
                        "group: no thread for operations (too little memory, or too many "
                        "threads): %s",
                        strerror(error));
    }
    *out = executor;
    return CZ_OK;
}

void cz__executor_spin(cz__executor *executor)
{
    executor->spins = true;
}

bool cz__executor_spins(const cz__executor *executor)
{
    return executor->spins;
}

void cz__executor_stop(cz__executor *executor)
{
    pthread_mutex_lock(&executor->lock);
    const bool last = --executor->users == 0;
    executor->stop = last;
    pthread_cond_signal(&executor->for_thread);
    pthread_mutex_unlock(&executor->lock);
    if (last && !executor->inline_only)
        pthread_join(executor->thread, NULL);
}

void cz__executor_share(cz__executor *executor)
{
    pthread_mutex_lock(&executor->lock);
    executor->users++;
    executor->holders++;
    pthread_mutex_unlock(&executor->lock);
}

void cz__executor_free(cz__executor *executor)
{
    if (!executor)
        return;
    pthread_mutex_lock(&executor->lock);
    const bool last = --executor->holders == 0;
    pthread_mutex_unlock(&executor->lock);
    if (!last)
        return;
    pthread_cond_destroy(&executor->for_seizer);
    pthread_cond_destroy(&executor->for_thread);
    pthread_cond_destroy(&executor->for_waiters);
    pthread_mutex_destroy(&executor->lock);
    cz__free(executor);
}
