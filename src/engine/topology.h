/* SPDX-License-Identifier: MIT */
/* Where the ranks of a group that has a window are, and how its data go: on one machine or on
 * several.
 *
 * Ranks of one machine share a window (window.h). For each rank of another machine one of them is
 * its *leader* here: it adds up what this machine's ranks have of that rank's stream and sends it
 * one partial sum for each *subtree*, and it takes in what that rank sends to all, for this
 * machine's ranks to copy. Where all ranks are on one machine nobody is a leader. */
#ifndef CZ_ENGINE_TOPOLOGY_H
#define CZ_ENGINE_TOPOLOGY_H

#include "engine/engine.h"

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

typedef struct cz__topology {
    int size;
    cz__machine *machines; /* owned, as the other arrays are */
    int machine_count;
    int here;        /* the machine of this rank */
    int *machine_of; /* of each rank */
    int *place_of;   /* of each rank, among those of its machine */
    int *leader;     /* of each rank of another machine: its leader on this one; else -1 */
    int *duty;       /* and which of that one's duties it is */
    int *duties;     /* of this rank: whose leader it is */
    int duty_count;
    int duty_slots; /* the most duties of a rank of this machine */
    int slots;      /* in a lane and a round, the same on all ranks */
    int *numbers;
    cz__subtree *all_subtrees;
} cz__topology;

/* NULL: no memory; or *useless: there are several machines, none of which has two ranks. */
cz__topology *cz__topology_create(const cz_group *group, bool *useless);
void cz__topology_destroy(cz__topology **topology); /* accepts *NULL */

/* Who of a machine is the leader of that rank of another one. */
int cz__topology_leader(const cz__topology *topology, int machine, int rank);

/* The slots of a rank's part in a round, in their order: [0, size) for what each rank gets, one for
 * a result, sums for each of its duties, results of each duty, sums from each other machine. */
int cz__topology_slot_of_sums(const cz__topology *topology, int duty);
int cz__topology_slot_of_result(const cz__topology *topology, int duty);

#endif
