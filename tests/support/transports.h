/* SPDX-License-Identifier: MIT */
/* Ranks as threads of a test, whose data go the way that CZ_TEST_RANKS names: "threads" (also
 * without it), through each other's memory; "messages", which land late and in any order;
 * "segment", through memory that all share; "nodes", through such memory on two pretended machines
 * and by messages between them. ctest runs a test with each of them that the list in
 * tests/CMakeLists.txt has for it: group/test_NAME@segment. */
#ifndef CZ_TRANSPORTS_H
#define CZ_TRANSPORTS_H

#include <stdatomic.h>

#include "czero/backend.h"
#include "czero/group.h"

enum { MANY_RANKS = 16 };

/* As cz_group_create_threads(), for at most MANY_RANKS. */
cz_status create_ranks(cz_group **groups, int world, const cz_group_options *options);

bool ranks_are(const char *transport);

/* How many ranks to go up to. Other transports may look instead of sleeping, which takes cores. */
#define LARGEST_WORLD largest_world()
int largest_world(void);

/* Any bits, made of others. */
static inline uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* ---- the window of "segment" and "nodes" ---- */

cz_status window_create(cz_group **groups, int world, const cz_group_options *options);
extern const cz_backend window_backend;

/* Messages with data, sent by all ranks although there is a window, and their bytes. */
extern atomic_int window_messages;
extern atomic_llong window_message_bytes;
/* Messages without. */
extern atomic_int window_headers;

/* What each rank has of it: little, so that there are many rounds. */
extern size_t window_part_bytes;

/* So often it is not there yet when a rank asks; this rank never reaches it. */
extern int window_late;
extern int window_blind;

/* Messages are seen to have landed late, so that of two any may be seen first. */
extern bool window_shuffles;
/* Where this thread asks whether that rank is present it first waits until it is not. -1: none. */
extern _Thread_local int window_outstays;

/* On which of some pretended machines a rank of the first group is; NULL: all are on one. */
extern int (*window_place)(int rank, int size);
int in_turn(int rank, int size); /* such a place: on two machines */

#endif
