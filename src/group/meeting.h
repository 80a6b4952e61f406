/* SPDX-License-Identifier: MIT */
/* Where the ranks of one process meet for an operation: each brings its work, the last one to come judges for all,
 * and from then on each may read and write what the others handed over, until all have done their part. */
#ifndef CZ_GROUP_MEETING_H
#define CZ_GROUP_MEETING_H

#include <stdatomic.h>

#include "czero/group.h"

typedef struct cz__meetings cz__meetings; /* those of one group */
typedef struct cz__meeting cz__meeting;

/* How the ranks of a group are reached. `left`: CZ_OK, or why that rank will not come any more. */
typedef struct cz__ranks {
    void *context;
    void (*notify)(void *context, int rank);
    cz_status (*left)(void *context, int rank);
} cz__ranks;

cz_status cz__meetings_create(cz__meetings **out, int size, const cz__ranks *ranks);
void cz__meetings_destroy(cz__meetings **meetings); /* accepts NULL and *NULL; nobody is in one */

size_t cz__meeting_bytes(int size);
/* One more in stock: every work that is made comes with one, and takes one away when it is freed. Any thread. */
cz_status cz__meetings_stock(cz__meetings *meetings);
void cz__meetings_unstock(cz__meetings *meetings);

/* In place of cz__header_advance(): until the verdict of all ranks is there. */
bool cz__meeting_advance(cz_work *work);
/* Look for so many turns at what the work waits for, without being notified of it; not if the count of events
 * changes. True: there is something to do. The driver only, for a work in a meeting. */
bool cz__meeting_watch(cz_work *work, int turns, const atomic_ullong *events, uint64_t seen);
/* The other ranks' memory may be touched between these two; false: some rank took its own back. */
bool cz__meeting_enter(cz_work *work);
void cz__meeting_leave(cz_work *work);
/* This rank has done its part of the data. */
void cz__meeting_finish(cz_work *work);
/* Have all? Then it is over, and the work out of the meeting. An error: the group is broken, or a rank left. */
cz_status cz__meeting_is_over(cz_work *work, bool *over);
/* The work's memory is the caller's again when this returns. Does nothing if it is in no meeting. */
void cz__meeting_withdraw(cz_work *work);
/* Has that rank not done its part yet? */
bool cz__meeting_misses(const cz_work *work, int rank);
/* Bytes of a rank's went to others, for its traffic. */
void cz__meeting_hand_over(cz__meeting *meeting, int rank, size_t bytes);
/* What another rank brought, once there is a verdict and inside enter/leave. */
const cz_work *cz__meeting_work(const cz__meeting *meeting, int rank);

#endif
