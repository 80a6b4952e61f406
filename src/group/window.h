/* SPDX-License-Identifier: MIT */
/* Memory that all ranks of a group reach, and how operations share it. Each rank has a part of it.
 * An operation has a lane: in every part flags and slots. Ranks put what others need into slots of
 * their own part, and say with their flags how far they are; no rank ever writes into another one's
 * part. */
#ifndef CZ_GROUP_WINDOW_H
#define CZ_GROUP_WINDOW_H

#include <stdatomic.h>

#include "group/internal.h"

enum {
    CZ__LANES = 4,
    CZ__LANE_ROUNDS = 4
}; /* operations at once; rounds of one that are under way */

/* How far a rank is in a lane's present use: use << 32 | rounds. A lane that was used before has
 * smaller numbers, so nothing is ever reset. Each is written by its rank only. */
typedef struct cz__lane_flags {
    _Alignas(64) _Atomic uint64_t published; /* chunks for others are in its slots */
    _Alignas(
        64) _Atomic uint64_t reduced; /* it has read those for it, and its result is in a slot */
    _Alignas(64) _Atomic uint64_t copied; /* it has what it wanted of the others */
    _Alignas(64) _Atomic uint64_t ended;  /* the use in which it has done its part */
    _Alignas(
        64) _Atomic uint64_t landed; /* what other machines send to its duties (node.h) is there */
} cz__lane_flags;

/* How fast large operations are with plain stores into slots [0], and with stores past the caches
 * [1]. Which is faster depends on whether the cores share a cache, which on virtual machines
 * changes: so it is tried. */
typedef struct cz__pace {
    double seconds[2]; /* per byte */
    unsigned count;
} cz__pace;

/* As a group has it. */
typedef struct cz__window {
    char **parts; /* owned: of each rank, NULL of one on another machine; NULL: it is of no use */
    struct cz__node *node; /* owned: NULL if all ranks are on one machine */
    int lanes;
    double spin_seconds; /* for what another rank is about to do */
    size_t slot_bytes;
    uint64_t uses[CZ__LANES]; /* rank 0: how often each was given away */
    cz__pace paces[8];        /* rank 0: of large operations, by what is done with the data */
} cz__window;

/* With another rank: where in the streams to it and from it we are, and the chunk that is taken
 * from it. */
typedef struct cz__window_peer {
    cz__cursor out, in;
    cz__chunk received; /* 0 bytes: none (any more) */
} cz__window_peer;

/* The state of the engines that use one. */
typedef struct cz__window_run {
    uint64_t use; /* of its lane */
    int lane;
    size_t chunk_bytes;
    bool stream; /* store past the caches into slots */
    double began_at;
    bool past_caches;                    /* so much that results will not stay in caches */
    uint32_t published, reduced, copied; /* rounds */
    bool all_published, all_copied;      /* the streams have ended */
    bool copying;                        /* the chunks of round `copied` are cut */
    cz__cursor own, result;              /* what is reduced next, and where to */
    cz__chunk kept;                      /* of its own stream */
    double stalled_at;                   /* nothing could be done since; 0: something could */
    bool patient;                        /* it waited long enough to sleep */
    bool taken; /* between machines: it has the lane, which is free in its turn on each of them */
    const void **sources; /* group->size addresses */
    cz__window_peer peers[];
} cz__window_run;

static inline cz__window_run *cz__run_of(const cz_work *work)
{
    return work->data.state;
}

/* What engines that use a window have in common. */
size_t cz__window_bytes(int size, bool in_process);
bool cz__window_is_there(cz_group *group);
uint64_t cz__window_grant(cz_work *work); /* rank 0: a lane and its use, or 0 */
void cz__window_begin(cz_work *work);     /* with the verdict's lane */
/* Move on, in `step`s, until it is over and has `finish`ed, or has to wait. */
cz_status cz__window_go(cz_work *work, cz_status (*step)(cz_work *, bool *moved),
                        cz_status (*is_over)(cz_work *, bool *over), void (*finish)(cz_work *),
                        cz__progress *progress);
/* When to look again: nobody calls when another process has done something. */
double cz__window_watch(const cz_work *work, double now);
void cz__window_note(const cz_work *work); /* rank 0: it has ended */
void cz__window_forget(cz_group *group);

/* Of its lane. */
static inline cz__lane_flags *cz__window_flags(const cz_work *work, int rank)
{
    return (cz__lane_flags *)(void *)work->group->window->parts[rank] + cz__run_of(work)->lane;
}

/* Say that this rank has done so many rounds; has a rank? */
static inline void cz__window_set(const cz_work *work, _Atomic uint64_t *flag, uint32_t rounds)
{
    atomic_store_explicit(flag, cz__run_of(work)->use << 32 | rounds, memory_order_release);
}

static inline bool cz__window_reached(const cz_work *work, _Atomic uint64_t *flag, uint32_t rounds)
{
    return atomic_load_explicit(flag, memory_order_acquire) >=
           (cz__run_of(work)->use << 32 | (uint64_t)rounds);
}

char *cz__window_slot(const cz_work *work, int rank, uint32_t round, int index);
bool cz__window_next(const cz_work *work, const cz__region *region, cz__cursor *cursor,
                     cz__chunk *chunk);

#endif
