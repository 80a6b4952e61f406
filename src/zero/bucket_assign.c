/* SPDX-License-Identifier: MIT */
/* Buckets of a data-parallel model are dealt out to ranks, whole or in pieces, so that a bucket's update is
 * the work of few ranks and each rank has about as much to do. */
#include "zero/bucket_assign.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

void cz__assign_whole_buckets(const cz__bucket_lists *lists, int world_size, int *owners)
{
    for (int b = 0; b < lists->count; b++)
        for (int64_t k = lists->begins[b]; k < lists->begins[b + 1]; k++)
            owners[lists->params[k]] = b % world_size;
}

typedef struct sized_bucket {
    int64_t elements;
    int bucket;
} sized_bucket;

static int smaller_first(const void *left, const void *right)
{
    const sized_bucket *a = left, *b = right;
    if (a->elements != b->elements)
        return a->elements < b->elements ? -1 : 1;
    return a->bucket < b->bucket ? -1 : 1; /* keeps the sort stable */
}

typedef struct dealing {
    const cz__bucket_lists *lists;
    int world_size;
    double share;   /* a rank's even part of all elements */
    int64_t *loads; /* borrowed, as the next two */
    int *owners;
    int64_t *order;
    int64_t dealt;  /* entries of `order` so far */
    int *has_piece; /* owned, per rank: the last bucket, counted from 1, of which it has a piece */
} dealing;

static int lightest_without(const dealing *d, int bucket)
{
    int best = -1;
    for (int r = 0; r < d->world_size; r++)
        if (d->has_piece[r] != bucket + 1 && (best < 0 || d->loads[r] < d->loads[best]))
            best = r;
    return best;
}

static void deal_piece(dealing *d, int bucket, int64_t begin, int64_t end, int64_t elements)
{
    const int rank = lightest_without(d, bucket);
    d->has_piece[rank] = bucket + 1;
    d->loads[rank] += elements;
    for (int64_t k = begin; k < end; k++) {
        d->owners[d->lists->params[k]] = rank;
        d->order[d->dealt++] = d->lists->params[k];
    }
}

/* At most one piece for each rank: PyTorch asserts where that is not enough. */
static void deal_bucket(dealing *d, int bucket)
{
    const cz__bucket_lists *lists = d->lists;
    const int64_t end = lists->begins[bucket + 1];
    int64_t begin = lists->begins[bucket], piece = 0;
    int pieces = 0;
    for (int64_t k = begin; k < end; k++) {
        const int64_t elements = lists->elements[lists->params[k]];
        if (k > begin && pieces < d->world_size - 1 && (double)(piece + elements) >= d->share) {
            deal_piece(d, bucket, begin, k, piece);
            begin = k;
            piece = 0;
            pieces++;
        }
        piece += elements;
    }
    if (begin < end)
        deal_piece(d, bucket, begin, end, piece);
}

cz_status cz__assign_bucket_pieces(const cz__bucket_lists *lists, int world_size, int64_t *loads,
                                   int *owners, int64_t *order)
{
    dealing d = {.lists = lists,
                 .world_size = world_size,
                 .loads = loads,
                 .owners = owners,
                 .order = order,
                 .has_piece = cz__calloc((size_t)world_size, sizeof(int))};
    sized_bucket *sorted = cz__calloc((size_t)lists->count, sizeof *sorted);
    if (!d.has_piece || !sorted) {
        cz__free(d.has_piece);
        cz__free(sorted);
        return cz__fail(CZ_ERR_MEMORY, "zero: pieces of %d buckets for %d ranks", lists->count,
                        world_size);
    }
    int64_t total = 0;
    for (int b = 0; b < lists->count; b++) {
        sorted[b].bucket = b;
        for (int64_t k = lists->begins[b]; k < lists->begins[b + 1]; k++)
            sorted[b].elements += lists->elements[lists->params[k]];
        total += sorted[b].elements;
    }
    d.share = (double)total / world_size;
    qsort(sorted, (size_t)lists->count, sizeof *sorted, smaller_first);
    for (int b = 0; b < lists->count; b++)
        deal_bucket(&d, sorted[b].bucket);
    cz__free(d.has_piece);
    cz__free(sorted);
    return CZ_OK;
}
