/* SPDX-License-Identifier: MIT */
/* Memory that all ranks of a machine reach, and how operations share it. Each rank has a part of
 * it. An operation has a lane: in every part flags and slots. Ranks put what others need into slots
 * of their own part, and say with their flags how far they are; no rank ever writes into another
 * one's part. */
#ifndef CZ_ENGINE_WINDOW_H
#define CZ_ENGINE_WINDOW_H

#include <stdatomic.h>

#include "engine/topology.h"

enum {
    CZ__LANES = 4,      /* operations at once */
    CZ__LANE_ROUNDS = 4 /* rounds of one that are under way */
};

/* How far a rank is in a lane's present use: use << 32 | rounds. A lane that was used before has
 * smaller numbers, as numbers that go round are compared, so nothing is ever reset. Each is written
 * by its rank only, and has a cache line of its own. */
typedef struct cz__lane_flags {
    /* What others need of it is in its slots. */
    _Alignas(64) _Atomic uint64_t published;
    /* It has read those for it, and its result is in a slot. */
    _Alignas(64) _Atomic uint64_t reduced;
    /* It has what it wanted of the others. */
    _Alignas(64) _Atomic uint64_t copied;
    /* What other machines send to its duties is there. */
    _Alignas(64) _Atomic uint64_t landed;
    /* The use in which it has done its part. */
    _Alignas(64) _Atomic uint64_t ended;
} cz__lane_flags;

/* Where ranks meet (window_boxes.c): for so many operations at once, found by their sequence. */
enum { CZ__BOXES = 8 };

typedef struct cz__box {
    /* The operation, plus 1, of which the rank has read all that it wants. */
    _Alignas(64) _Atomic uint64_t read;
    /* The operation, plus 1, of which the header is here; and the rank has read all that it wants
     * of those before that one. */
    _Alignas(64) _Atomic uint64_t posted;
    uint64_t read_before;
    cz__header header;
    /* The operation, plus 1, of which this rank's new values are here, after an update; and of
     * which rank 0 has chosen who moves the data. */
    _Alignas(64) _Atomic uint64_t updated;
    _Atomic uint64_t answered;
    uint64_t offers, grant;
} cz__box;

/* How fast large operations are with plain stores into slots [0], and with stores past the caches
 * [1]. Which is faster depends on whether the cores share a cache, which on virtual machines
 * changes: so it is tried. */
typedef struct cz__pace {
    double seconds[2]; /* per byte */
    unsigned count;
} cz__pace;

/* What a rank has of a stream in a round. */
typedef struct cz__leaf {
    size_t bytes;
    const char *data;
} cz__leaf;

/* What this rank keeps of the rounds that are under way in a lane: in each, a leaf for each rank,
 * and the messages of cz__window_request(). */
typedef struct cz__lane {
    cz__leaf *leaves;
    cz__request *requests;
} cz__lane;

enum { CZ__WINDOW_TILE = 256 }; /* elements of 16 bits that are added at once, as f32 */

/* Between machines: room for adding sums of which parts were made elsewhere. */
typedef struct cz__partial_sums {
    float *tiles; /* CZ__WINDOW_TILE elements of each rank, and of the result */
    const void **tile_sources;
    bool *wide; /* of each source: it is f32 already */
} cz__partial_sums;

/* As a group has it; all is owned. */
typedef struct cz__window {
    char **parts; /* of each rank, NULL of one on another machine; NULL: it is of no use */
    cz__topology *topology;
    int lane_count;
    double spin_seconds; /* for what another rank is about to do; 0: not known yet */
    size_t box_bytes;    /* of data that a box has, twice: given, and updated; on one machine */
    size_t slot_bytes;
    /* Of boxes: this rank has read all that it wants of operations before this one, and of these
     * from it on; and all ranks have of those before that one. */
    uint64_t read_before, read_after, read_by_all;
    cz__lane lanes[CZ__LANES];
    cz__leaf *leaves;
    cz__request *requests;
    int request_count; /* in a lane and a round */
    bool stuck;        /* the backend may still use requests: they stay */
    cz__partial_sums sums;
    uint64_t uses[CZ__LANES]; /* rank 0: how often each was given away */
    cz__pace paces[8];        /* rank 0: of large operations, by what is done with the data */
} cz__window;

/* How closely this rank has looked for what another process is about to do. */
typedef struct cz__close_look {
    double since; /* the first look at the clock */
    unsigned turns;
    bool gives_way; /* it offers the core to others between looks, */
    bool over;      /* or sleeps: it has looked for long enough */
} cz__close_look;

/* With another rank: where in the streams to it and from it we are, and the chunk that is taken
 * from it. */
typedef struct cz__window_peer {
    cz__cursor out, in;
    cz__chunk received; /* 0 bytes: none (any more) */
} cz__window_peer;

/* The state of the engine. */
typedef struct cz__window_run {
    uint64_t use; /* of its lane */
    int lane;
    size_t chunk_bytes;
    bool stream; /* store past the caches into slots */
    double began_at;
    bool past_caches; /* so much that results will not stay in caches */
    bool taken;       /* it has the lane, which is free in its turn on each machine */
    /* Rounds: what others need is in slots; sums for other machines were sent; its own stream is
     * reduced; what other machines send has come; it has what it wanted. */
    uint32_t published, combined, reduced, landed, copied;
    bool all_published, all_copied; /* the streams have ended */
    bool copying;                   /* the chunks of round `copied` are cut */
    cz__cursor result;              /* where what is reduced next goes */
    cz__close_look look;            /* since something could be done */
    const void **sources;           /* group->size addresses */
    cz__window_peer peers[];
} cz__window_run;

static inline cz__window_run *cz__run_of(const cz_work *work)
{
    return work->data.state;
}

/* window.c */
/* Is there one, or can it be made now? Once it is there it stays; where there is no memory it may
 * be another time. */
bool cz__window_is_there(cz_group *group);
void cz__window_forget(cz_group *group);
/* Rank 0: a lane and its use, or 0. */
uint64_t cz__window_grant(cz_work *work);
/* Of which region a rank goes through stream `rank` as it opens rounds. Of what one rank has for
 * all it goes through every stream, so that all have as many rounds. */
const cz__region *cz__window_opened(const cz_work *work, int rank);
/* With the verdict's lane. */
void cz__window_begin(cz_work *work);
/* Rank 0: it has ended, and took so long. */
void cz__window_note(const cz_work *work);

cz__box *cz__window_box(const cz_group *group, int rank, int index);
/* Its data. */
char *cz__window_box_data(const cz_group *group, int rank, int index);
/* Nothing can be done: a turn of looking closely, at first with the core, then giving it away.
 * False: that is over. */
bool cz__window_look(const cz_group *group, cz__close_look *look);
/* When to look again: nobody calls when another process has done something. */
double cz__window_watch(const cz_work *work, double now);

/* Of its lane. */
static inline cz__lane_flags *cz__window_flags(const cz_work *work, int rank)
{
    return (cz__lane_flags *)(void *)work->group->window->parts[rank] + cz__run_of(work)->lane;
}

char *cz__window_slot(const cz_work *work, int rank, uint32_t round, int index);
cz__leaf *cz__window_leaf(const cz_work *work, uint32_t round, int rank);

/* The messages of a round, by the number of the duty or of the machine: to the owner of a duty, or
 * from it; to the leader on a machine, or from it. */
typedef enum cz__window_message {
    CZ__SUMS_TO_OWNER,
    CZ__RESULT_FROM_OWNER,
    CZ__SUMS_FROM_MACHINE,
    CZ__RESULT_TO_MACHINE
} cz__window_message;

cz__request *cz__window_request(const cz_work *work, uint32_t round, cz__window_message message,
                                int number);

/* window_sum.c: sums of a round */
/* Of a chunk, as they travel from a machine. */
size_t cz__sums_bytes(const cz_work *work, const cz__machine *machine, size_t chunk_bytes);
/* What this rank, a leader, sends to the owner of its duty: where it is. */
cz_status cz__sums_for_owner(cz_work *work, uint32_t round, int duty, const char **sums);
/* All of this rank's stream. */
cz_status cz__sums_reduce(cz_work *work, uint32_t round, char *result);

#endif
