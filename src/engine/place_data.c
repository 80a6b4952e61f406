/* SPDX-License-Identifier: MIT */
/* Small data of ranks of one process lie in their places in the rendezvous, so they are there with
 * the verdict. Each rank takes them or adds them up by itself, and nobody waits a second time, as
 * all would have to where one reads the others' own memory. */
#include "engine/rendezvous.h"
#include "engine/small_data.h"

static bool takes(const cz_work *work)
{
    return work->group->rendezvous && cz__seat_of(work)->rendezvous && cz__seat_of(work)->is_small;
}

static size_t bytes(int size, bool in_process)
{
    return in_process ? 2 * (size_t)size * sizeof(void *) : 0;
}

static void begin(cz_work *work)
{
    cz__pool_pass(work);
}

/* All streams but this rank's own. */
static size_t bytes_of_others(const cz_work *work, size_t own)
{
    const cz__region *source = &work->operation.source;
    size_t bytes = 0;
    if (source->kind == CZ__REGION_EVEN)
        return (size_t)source->count * source->element_size - own;
    for (int r = 0; r < work->group->size; r++)
        bytes += r == work->group->rank ? 0 : cz__region_bytes(source, r);
    return bytes;
}

/* As if it had been sent. */
static size_t handed_over(const cz_work *work)
{
    const cz__operation *operation = &work->operation;
    const size_t own = cz__region_bytes(&operation->source, work->group->rank);
    const size_t to_all = ((size_t)work->group->size - 1) * own;
    if (!operation->reduces)
        return to_all;
    return bytes_of_others(work, own) + (operation->exchanges ? to_all : 0);
}

static cz_status advance(cz_work *work, cz__engine_progress *progress)
{
    const void **addresses = work->data.state; /* what is given, and room for sources */
    const char **given = (const char **)(void *)addresses;
    for (int r = 0; r < work->group->size; r++)
        given[r] = cz__rendezvous_data(work, r);
    const cz__small_data data = {work->group->tile, given, addresses + work->group->size};
    CZ_TRY(cz__small_move(work, &data));
    cz__traffic_handed_over(work->group, handed_over(work));
    cz__rendezvous_part(work);
    *progress = CZ__DONE;
    return CZ_OK;
}

static bool awaits(const cz_work *work, int rank)
{
    return false;
}

const cz__engine cz__engine_places = {
    .takes = takes, .bytes = bytes, .begin = begin, .advance = advance, .awaits = awaits};
