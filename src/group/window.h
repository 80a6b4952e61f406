/* SPDX-License-Identifier: MIT */
/* Memory that all ranks of a group reach, and how operations share it. Each rank has a part of it. An operation
 * has a lane: in every part flags and slots. Ranks put what others need into slots of their own part, and say
 * with their flags how far they are; no rank ever writes into another one's part. */
#ifndef CZ_GROUP_WINDOW_H
#define CZ_GROUP_WINDOW_H

#include <stdatomic.h>

#include "group/region.h"

enum {
    CZ__LANES = 4,
    CZ__LANE_ROUNDS = 4
}; /* operations at once; rounds of one that are under way */

/* How far a rank is in a lane's present use: use << 32 | rounds. A lane that was used before has smaller
 * numbers, so nothing is ever reset. Each is written by its rank only. */
typedef struct cz__lane_flags {
    _Alignas(64) _Atomic uint64_t published; /* segments for others are in its slots */
    _Alignas(
        64) _Atomic uint64_t reduced; /* it has read those for it, and its result is in a slot */
    _Alignas(64) _Atomic uint64_t copied; /* it has what it wanted of the others */
    _Alignas(64) _Atomic uint64_t ended;  /* the use in which it has done its part */
    _Alignas(
        64) _Atomic uint64_t landed; /* what other machines send to its duties (node.h) is there */
} cz__lane_flags;

/* How fast large operations are with plain stores into slots [0], and with stores past the caches [1]. Which is
 * faster depends on whether the cores share a cache, which on virtual machines changes: so it is tried. */
typedef struct cz__pace {
    double seconds[2]; /* per byte */
    unsigned count;
} cz__pace;

/* As a group has it. */
typedef struct cz__window {
    char **parts; /* owned: of each rank, NULL of one on another machine; NULL: not there (yet) */
    struct cz__node *node; /* owned: NULL if all ranks are on one machine */
    bool useless;          /* too small */
    int lanes;
    double spin_seconds; /* for what another rank is about to do */
    size_t slot_bytes;
    uint64_t uses[CZ__LANES]; /* rank 0: how often each was given away */
    cz__pace paces[8];        /* rank 0: of large operations, by what is done with the data */
} cz__window;

/* As an operation has it. */
typedef struct cz__window_run {
    uint64_t use; /* of its lane; 0: it has none, data go by messages */
    int lane;
    size_t segment_bytes;
    bool stream; /* store past the caches into slots */
    double began_at;
    bool past_caches;                    /* so much that results will not stay in caches */
    uint32_t published, reduced, copied; /* rounds */
    bool all_published, all_copied;      /* the streams have ended */
    bool copying;                        /* the segments of round `copied` are cut */
    cz__cursor own, result;              /* what is reduced next, and where to */
    double stalled_at;                   /* nothing could be done since; 0: something could */
    bool patient;                        /* it waited long enough to sleep */
    bool taken; /* between machines: it has the lane, which is free in its turn on each of them */
} cz__window_run;

#endif
