/* SPDX-License-Identifier: MIT */
/* A heap of ranks by load. */
#include "shard/loads.h"

#include "base/memory.h"
#include "base/status.h"

static bool lighter(const cz__loads *loads, int a, int b)
{
    return loads->of[a] < loads->of[b] || (loads->of[a] == loads->of[b] && a < b);
}

static void put(cz__loads *loads, int place, int rank)
{
    loads->heap[place] = rank;
    loads->place[rank] = place;
}

/* `rank` has its place at `hole` or below. */
static void sift_down(cz__loads *loads, int hole, int rank)
{
    for (int64_t child; (child = 2 * (int64_t)hole + 1) < loads->size; hole = (int)child) {
        if (child + 1 < loads->size && lighter(loads, loads->heap[child + 1], loads->heap[child]))
            child++;
        if (!lighter(loads, loads->heap[child], rank))
            break;
        put(loads, hole, loads->heap[child]);
    }
    put(loads, hole, rank);
}

cz_status cz__loads_create(cz__loads *loads, int world_size, int64_t *of)
{
    *loads = (cz__loads){of, world_size, cz__calloc((size_t)world_size, sizeof(int)),
                         cz__calloc((size_t)world_size, sizeof(int))};
    if (!loads->heap || !loads->place)
        return cz__fail(CZ_ERR_MEMORY, "partition: no memory for the loads of %d ranks",
                        world_size);
    for (int r = 0; r < world_size; r++)
        put(loads, r, r);
    for (int i = world_size / 2 - 1; i >= 0; i--)
        sift_down(loads, i, loads->heap[i]);
    return CZ_OK;
}

void cz__loads_clear(cz__loads *loads)
{
    cz__free(loads->heap);
    cz__free(loads->place);
}

int cz__loads_lightest(const cz__loads *loads)
{
    return loads->heap[0];
}

void cz__loads_add(cz__loads *loads, int rank, int64_t more)
{
    loads->of[rank] += more;
    sift_down(loads, loads->place[rank], rank);
}
