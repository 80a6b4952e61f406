/* SPDX-License-Identifier: MIT */
/* Where the ranks of one process meet for an operation: each brings its work, judges once all have
 * come, and from then on may read and write what the others handed over, until all have done their
 * part. */
#ifndef CZ_ENGINE_RENDEZVOUS_H
#define CZ_ENGINE_RENDEZVOUS_H

#include <stdatomic.h>

#include "engine/engine.h"

typedef struct cz__rendezvous_set cz__rendezvous_set; /* those of one group */
typedef struct cz__rendezvous cz__rendezvous;

/* How the ranks of a group are reached. `left`: CZ_OK, or why that rank will not come any more. */
typedef struct cz__ranks {
    void *context;
    void (*notify)(void *context, int rank);
    cz_status (*left)(void *context, int rank);
} cz__ranks;

cz_status cz__rendezvous_set_create(cz__rendezvous_set **out, int size, const cz__ranks *ranks);
/* Accepts NULL and *NULL; nobody is in one. */
void cz__rendezvous_set_destroy(cz__rendezvous_set **set);

/* Operations of a group that may be under way in it at the same time, and more that wait. */
enum { CZ__RENDEZVOUS_RING = 8 };
/* Small data lie beside what a rank says: so many bytes of each. */
enum { CZ__PLACE_BYTES = 4608 };
/* What one takes; and those that a group has from the start. */
size_t cz__rendezvous_bytes(int size);
size_t cz__rendezvous_ring_bytes(int size);
/* One more in stock: every work that is made comes with one, and takes one away when it is freed.
 * Any thread. */
cz_status cz__rendezvous_set_stock(cz__rendezvous_set *set);
void cz__rendezvous_set_unstock(cz__rendezvous_set *set);

/* A work's, from when it begins to meet; the driver's. */
typedef struct cz__seat {
    cz__rendezvous *rendezvous; /* that it is in; NULL: none */
    uint64_t tag;               /* of the operation, there */
    int come, finished;         /* ranks 0 to so many have, as far as this one has looked */
    bool waits;                 /* for a place */
    bool is_small;              /* each rank's data lie with what it says, */
    size_t given;               /* so many bytes of this one's */
    bool judged, plain;         /* there is a verdict; ranks agree, on all counts */
} cz__seat;
static inline cz__seat *cz__seat_of(const cz_work *work)
{
    return work->rendezvous.state;
}

/* Bring the work. CZ_OK without a rendezvous: it has to wait for a place there. */
cz_status cz__rendezvous_come(cz_work *work);
/* All ranks have come; all have done their parts. */
bool cz__rendezvous_have_come(cz_work *work);
bool cz__rendezvous_is_finished(cz_work *work);
/* All have come: find the verdict, which is the same on all ranks. False: some rank has called it
 * off. */
bool cz__rendezvous_judge(cz_work *work);
/* Is there something to do: all have come, or, where they do not agree, seen that? */
bool cz__rendezvous_is_settled(cz_work *work);
/* What all ranks act on. */
void cz__rendezvous_take_verdict(cz_work *work);
/* It is not done yet: will it ever be? Not if a rank left before its part, or took its memory from
 * the others'. */
cz_status cz__rendezvous_keep_waiting(cz_work *work, bool (*done)(cz_work *));
/* Is it done, perhaps in a moment? Else this rank is notified when it is. */
bool cz__rendezvous_await(cz_work *work, bool (*done)(cz_work *));
/* Look for so many turns whether it is done: see `spin` of engines. */
bool cz__rendezvous_watch(cz_work *work, bool (*done)(cz_work *), int turns,
                          const atomic_ullong *events, uint64_t seen);
/* The other ranks' memory may be touched between these two; false: some rank took its own back. */
bool cz__rendezvous_enter(cz_work *work);
void cz__rendezvous_leave(cz_work *work);
/* This rank has done its part of the data, so many bytes of it. */
void cz__rendezvous_finish(cz_work *work, size_t moved);
/* It goes on its way; the last one puts the rendezvous away. */
void cz__rendezvous_part(cz_work *work);
/* The work's memory is the caller's again when this returns. Does nothing if it is in no
 * rendezvous. */
void cz__rendezvous_withdraw(cz_work *work);
/* Has that rank not done its part yet? */
bool cz__rendezvous_misses(const cz_work *work, int rank);
/* What a rank has given of small data, once there is a verdict that all agree. */
char *cz__rendezvous_data(const cz_work *work, int rank);
/* What a rank has moved, once all have finished. */
size_t cz__rendezvous_moved(const cz__rendezvous *rendezvous, int rank);
/* What another rank brought, once there is a verdict and inside enter/leave. */
const cz_work *cz__rendezvous_work(const cz__rendezvous *rendezvous, int rank);

#endif
