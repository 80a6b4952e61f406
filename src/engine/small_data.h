/* SPDX-License-Identifier: MIT */
/* Data that are so few that every rank gives all of its own, in one piece of memory, beside its
 * header: then each adds up or takes what it wants by itself, in the same order everywhere. */
#ifndef CZ_ENGINE_SMALL_DATA_H
#define CZ_ENGINE_SMALL_DATA_H

#include "engine/engine.h"

/* What all ranks give, where this rank sees it. */
typedef struct cz__small_data {
    char *spare;          /* as much room as one rank's, for sums that are not in place */
    const char **given;   /* owned by the engine: group->size addresses, */
    const void **sources; /* and room for as many */
} cz__small_data;

/* Copy a stream of this rank's memory, one piece after the other, there; returns its bytes. And
 * from there. */
size_t cz__small_put_stream(const cz_work *work, const cz__region *region, int stream, char *to);
void cz__small_take_stream(const cz_work *work, const cz__region *region, int stream,
                           const char *from);

/* Have all that a rank gives room there? The same on all ranks that agree. */
bool cz__small_fits(const cz_work *work, size_t room);
/* What this rank gives: returns the bytes. `counts`: what the others want of it is counted as
 * sent. */
size_t cz__small_put(const cz_work *work, char *to, bool counts);
/* Add up or take what this rank wants, and update what it owns. */
cz_status cz__small_move(cz_work *work, const cz__small_data *data);

#endif
