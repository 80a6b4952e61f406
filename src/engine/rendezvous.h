/* SPDX-License-Identifier: MIT */
/* Where the ranks of one process meet for an operation: each brings its work, the last one to come
 * judges for all, and from then on each may read and write what the others handed over, until all
 * have done their part. */
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

size_t cz__rendezvous_bytes(int size);
/* One more in stock: every work that is made comes with one, and takes one away when it is freed.
 * Any thread. */
cz_status cz__rendezvous_set_stock(cz__rendezvous_set *set);
void cz__rendezvous_set_unstock(cz__rendezvous_set *set);

/* A work's, from when it begins to meet; the driver's. */
typedef struct cz__seat {
    cz__rendezvous *rendezvous; /* that it is in; NULL: none */
} cz__seat;
static inline cz__seat *cz__seat_of(const cz_work *work)
{
    return work->rendezvous.state;
}

/* Bring the work. *last: all have come, and there is a verdict, which nobody sees before that one
 * concludes; `for_all`: it has done all ranks' parts. */
cz_status cz__rendezvous_come(cz_work *work, bool *last);
void cz__rendezvous_conclude(cz_work *work, bool for_all);
bool cz__rendezvous_is_plain(const cz__rendezvous *rendezvous); /* all agree, on all counts */
/* The verdict is there; all have done their parts. */
bool cz__rendezvous_is_judged(const cz__rendezvous *rendezvous);
bool cz__rendezvous_is_finished(const cz__rendezvous *rendezvous);
/* What all ranks act on. */
void cz__rendezvous_take_verdict(cz_work *work);
/* It is not done yet: will it ever be? Not if a rank left before its part, or took its memory from
 * the others'. */
cz_status cz__rendezvous_keep_waiting(const cz_work *work, bool (*done)(const cz__rendezvous *));
/* Look for so many turns whether it is done: see `spin` of engines. */
bool cz__rendezvous_watch(cz_work *work, bool (*done)(const cz__rendezvous *), int turns,
                          const atomic_ullong *events, uint64_t seen);
/* The other ranks' memory may be touched between these two; false: some rank took its own back. */
bool cz__rendezvous_enter(cz_work *work);
void cz__rendezvous_leave(cz_work *work);
/* This rank has done its part of the data. */
void cz__rendezvous_finish(cz_work *work);
/* It goes on its way; the last one puts the rendezvous away. */
void cz__rendezvous_part(cz_work *work);
/* The work's memory is the caller's again when this returns. Does nothing if it is in no
 * rendezvous. */
void cz__rendezvous_withdraw(cz_work *work);
/* Has that rank not done its part yet? */
bool cz__rendezvous_misses(const cz_work *work, int rank);
/* Bytes of a rank's went to others, for its traffic. */
void cz__rendezvous_hand_over(cz__rendezvous *rendezvous, int rank, size_t bytes);
/* What another rank brought, once there is a verdict and inside enter/leave. */
const cz_work *cz__rendezvous_work(const cz__rendezvous *rendezvous, int rank);

#endif
