/* SPDX-License-Identifier: MIT */
/* Data that are so few that every rank gives all of its own, in one piece of memory, beside its
 * header: then each adds up or takes what it wants by itself, in the same order everywhere. */
#ifndef CZ_ENGINE_SMALL_DATA_H
#define CZ_ENGINE_SMALL_DATA_H

#include "engine/engine.h"

/* What all ranks give, where this rank sees it. */
typedef struct cz__small_data {
    size_t room;          /* of what one rank gives, in bytes */
    char *spare;          /* as many, for a sum that is not in place */
    const char **given;   /* owned by the engine: group->size addresses, */
    const void **sources; /* and room for as many */
} cz__small_data;

/* Where chunks of a stream are in what a rank gives. */
typedef struct cz__small_walk {
    const cz__region *region;
    cz__cursor cursor;
    size_t limit, at; /* of the stream: bytes before `chunk` */
    cz__chunk chunk;
} cz__small_walk;

cz__small_walk cz__small_walk_along(const cz__region *region, int stream, size_t limit);
bool cz__small_walk_on(cz__small_walk *walk);
size_t cz__small_put_stream(const cz_work *work, const cz__region *region, int stream, char *to,
                            size_t room);
void cz__small_take_stream(const cz_work *work, const cz__region *region, int stream,
                           const char *from, size_t room);

/* Have all that a rank gives room there? The same on all ranks that agree. */
bool cz__small_fits(const cz_work *work, size_t room);
/* What this rank gives: returns the bytes. `counts`: what the others want of it is counted as
 * sent. */
size_t cz__small_put(const cz_work *work, char *to, size_t room, bool counts);
/* Add up or take what this rank wants, and update what it owns. */
cz_status cz__small_move(cz_work *work, const cz__small_data *data);

#endif
