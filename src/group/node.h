/* SPDX-License-Identifier: MIT */
/* Groups whose ranks are on several machines, of which some have more than one: where everybody is,
 * and how data go.
 *
 * Ranks of one machine share a window (window.h). For each rank of another machine one of them is
 * its *leader* here: it adds up what this machine's ranks have of that rank's stream and sends it
 * one partial sum for each *subtree*, and it takes in what that rank sends to all, for this
 * machine's ranks to copy. */
#ifndef CZ_GROUP_NODE_H
#define CZ_GROUP_NODE_H

#include "group/window.h"

/* Ranks `first` … `first` + `count` - 1: a node of the tree of sums, all of one machine and as
 * large as can be. */
typedef struct cz__subtree {
    int first, count;
} cz__subtree;

typedef struct cz__machine {
    int *ranks; /* in ascending order */
    int rank_count;
    cz__subtree *subtrees; /* in ascending order, all of its ranks */
    int subtree_count;
    int slots; /* for partial sums of a chunk: two where sums are wider than elements */
    int at;    /* of these that come from it, in a rank's part: the first slot */
} cz__machine;

/* What a rank has of a stream in a round. */
typedef struct cz__leaf {
    size_t bytes;
    const char *data;
} cz__leaf;

/* A lane on this rank; the driver's. */
typedef struct cz__node_lane {
    uint32_t combined,
        landed;            /* rounds: sums for other machines were sent; what they send has come */
    cz__leaf *leaves;      /* of each round that is under way, and rank */
    cz__request *requests; /* of each round that is under way: see cz__node_request() */
} cz__node_lane;

enum { CZ__NODE_TILE = 256 }; /* elements of 16 bits that are added at once, as f32 */

typedef struct cz__node {
    int size, machine_count, here;
    cz__machine *machines;
    int *machine_of; /* of each rank */
    int *place_of;   /* of each rank, among those of its machine */
    int *leader;     /* of each rank of another machine: its leader on this one, */
    int *duty;       /* and which of that one's duties it is */
    int *duties;     /* of this rank: whose leader it is */
    int duty_count;
    int duty_slots;    /* the most duties of a rank of this machine */
    int slots;         /* in a lane and a round, the same on all ranks */
    int request_count; /* in a lane and a round */
    bool stuck;        /* the backend may still use requests: they stay */
    cz__node_lane lanes[CZ__LANES];
    /* A slot of elements that change no sum, or no product: of the kind that is… */
    char *neutral;
    int neutral_kind;
    float *tiles; /* CZ__NODE_TILE elements of each rank, of the result, and neutral ones */
    const void **tile_sources;
    bool *wide; /* of each source: it is f32 already */
    int *numbers;
    cz__subtree *all_subtrees;
    cz__leaf *all_leaves;
    cz__request *all_requests;
} cz__node;

/* The messages of a round. To the owner of a duty, or from it; to the leader on a machine, or from
 * it. */
typedef enum cz__node_message {
    CZ__NODE_SUMS_TO_OWNER,
    CZ__NODE_RESULT_FROM_OWNER,
    CZ__NODE_SUMS_FROM_MACHINE,
    CZ__NODE_RESULT_TO_MACHINE
} cz__node_message;

/* node.c */
/* NULL: no memory; or *none: no machine has two ranks, or one has all. Without what depends on the
 * window: */
cz__node *cz__node_create(const cz_group *group, bool *none);
bool cz__node_equip(cz__node *node, int lanes, size_t slot_bytes); /* false: no memory */
void cz__node_destroy(cz__node **node);                            /* accepts *NULL */
int cz__node_leader(const cz__node *node, int machine, int rank);
/* The first slots of a leader's part for the sums and for the result of one of its duties. */
int cz__node_slot_of_sums(const cz__node *node, int duty);
int cz__node_slot_of_result(const cz__node *node, int duty);
/* What is under way in an operation's lane. */
cz__node_lane *cz__node_lane_of(const cz_work *work);
cz__leaf *cz__node_leaf(const cz_work *work, uint32_t round, int rank);
/* `number`: of the duty or the machine. */
cz__request *cz__node_request(const cz_work *work, uint32_t round, cz__node_message message,
                              int number);

/* node_sum.c: sums of a round */
size_t cz__node_sums_bytes(const cz_work *work, const cz__machine *machine, size_t segment_bytes);
/* What this rank, a leader, sends to the owner of its duty: where it is. */
cz_status cz__node_add_up(cz_work *work, uint32_t round, int duty, const char **sums);
/* All of this rank's stream. */
cz_status cz__node_reduce(cz_work *work, uint32_t round, char *result);

#endif
