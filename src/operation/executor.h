/* SPDX-License-Identifier: MIT */
/* One per rank: moves the rank's operations on, on a thread that waits for one of them or else on a
 * thread of its own, and sleeps when nothing can move. How an operation moves on it is told by a
 * table. */
#ifndef CZ_OPERATION_EXECUTOR_H
#define CZ_OPERATION_EXECUTOR_H

#include <stdatomic.h>

#include "czero/group.h"

typedef struct cz__executor cz__executor;

/* What can be done with an operation; by the driver only. */
typedef struct cz__executor_calls {
    /* Move on as far as possible without waiting. True if anything happened. */
    bool (*advance)(cz_work *work);
    /* With the lock held: if it has ended, make that known and take it off the list. */
    void (*retire)(cz_work *work);
    /* Warn or fail it if it is time. When to ask again, in cz__seconds(). */
    double (*watch)(cz_work *work, double now);
    /* Do its next steps wait for messages that are not many bytes? Then who waits for it polls its
     * backend. */
    bool (*is_close)(const cz_work *work);
    /* As of an engine, see there. */
    bool (*spin)(cz_work *work, int turns, const atomic_ullong *events, uint64_t seen);
} cz__executor_calls;

/* What the rank has sent over its groups (cz_group_info). */
typedef struct cz__traffic {
    atomic_ullong sent_bytes, header_bytes, messages, native;
} cz__traffic;

/* `calls` is borrowed. `poll_seconds` > 0: backends want to be polled at least so often while
 * something is in flight. `inline_only`: no thread; operations move on in calls of the program
 * only. */
cz_status cz__executor_create(cz__executor **out, const cz__executor_calls *calls,
                              double poll_seconds, bool inline_only);
/* Every rank has a core of its own: a waiter may keep it for some microseconds. Before anybody
 * waits. */
void cz__executor_spin(cz__executor *executor);
bool cz__executor_spins(const cz__executor *executor);
/* One more group of the rank uses it: one more stop and one more free. */
void cz__executor_share(cz__executor *executor);
/* A group stops using it; the last one ends its thread. The lock stays usable until the last
 * cz__executor_free(). Not on the executor's own thread. */
void cz__executor_stop(cz__executor *executor);
void cz__executor_free(cz__executor *executor);

/* To be counted up by the driver, and read by anybody. */
cz__traffic *cz__executor_traffic(cz__executor *executor);

void cz__executor_lock(cz__executor *executor);
void cz__executor_unlock(cz__executor *executor);

/* Something happened outside: look again. Any thread, without the lock; `executor` is a
 * cz__executor. */
void cz__executor_notify(void *executor);

/* The rest with the lock held. */
/* The rank's groups that have not left; cz_group.next_of_rank leads on. */
void cz__executor_enlist(cz__executor *executor, cz_group *group);
void cz__executor_delist(cz__executor *executor, const cz_group *group);
cz_group *cz__executor_groups(const cz__executor *executor);
void cz__executor_append(cz__executor *executor, cz_work *work);
/* Somebody other than a waiting thread shall see to what was appended. */
void cz__executor_wake(cz__executor *executor);
/* Returns when the work has ended; drives meanwhile. */
void cz__executor_wait(cz__executor *executor, cz_work *work);
/* Drive once without sleeping; the backend of `group` (NULL: of none) is polled even if nothing is
 * in flight. */
void cz__executor_poll(cz__executor *executor, const cz_group *group);
/* The first of its operations; cz_work.next leads on. */
cz_work *cz__executor_first(const cz__executor *executor);
/* Keep others from driving while the operations of a group are taken down. */
void cz__executor_seize(cz__executor *executor);
void cz__executor_release(cz__executor *executor);
/* Put an operation at the end of the list (seizer only). */
void cz__executor_rotate(cz__executor *executor, cz_work *work);
/* Take an ended operation off the list (driver or seizer only) and wake who waits for it; the
 * list's reference is the caller's now. */
void cz__executor_remove(cz__executor *executor, cz_work *work);

#endif
