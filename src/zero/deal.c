/* SPDX-License-Identifier: MIT */
/* From numbers of elements to a shard map. Buckets of a data-parallel model are dealt out to ranks
 * whole or in pieces, so that a bucket's update is the work of few ranks and each rank has about as
 * much to do. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "shard/shard.h"
#include "zero/deal.h"

/* ---- buckets ---- */

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
        return cz__fail(CZ_ERR_MEMORY, "zero: no memory for pieces of %d buckets for %d ranks",
                        lists->count, world_size);
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

/* ---- all partitions ---- */

/* The result, while it is made. */
typedef struct draft {
    const cz__deal *deal;
    int64_t *order; /* owned, as all that follows; param_count each, as the next */
    int *owners;
    int64_t *members; /* a list at hand */
    int64_t *begins;  /* where ranges of even cuts begin in `order` */
    int64_t ranges;   /* how many there are so far, and how many parameters `order` has */
    int64_t listed;
    int64_t *loads; /* per rank */
} draft;

static void draft_clear(draft *d)
{
    cz__free(d->order);
    cz__free(d->owners);
    cz__free(d->members);
    cz__free(d->begins);
    cz__free(d->loads);
}

int64_t cz__deal_ranges(const cz__deal *deal)
{
    return deal->buckets ? deal->buckets->count + CZ__PARTS - CZ__FROZEN : CZ__PARTS;
}

static cz_status draft_create(draft *d)
{
    const size_t params = (size_t)d->deal->param_count;
    d->order = cz__calloc(params, sizeof *d->order);
    d->owners = cz__calloc(params, sizeof *d->owners);
    d->members = cz__calloc(params, sizeof *d->members);
    d->begins = cz__calloc((size_t)cz__deal_ranges(d->deal) + 1, sizeof *d->begins);
    d->loads = cz__calloc((size_t)d->deal->world_size, sizeof *d->loads);
    if (!d->order || !d->owners || !d->members || !d->begins || !d->loads)
        return cz__fail(CZ_ERR_MEMORY, "zero: no memory for the partition of %zu parameters",
                        params);
    return CZ_OK;
}

/* The parameters of a part, in the order of `all`, are appended to the layout. */
static void append_part(draft *d, cz__part part, const int64_t *all, int64_t all_count)
{
    for (int64_t k = 0; k < all_count; k++)
        if (d->deal->parts[all[k]] == part)
            d->order[d->listed++] = all[k];
}

/* A range for each bucket that travels on its own: of what is trained, or with what is frozen after
 * it. */
static void append_buckets(draft *d, cz__part last)
{
    const cz__bucket_lists *lists = d->deal->buckets;
    for (int b = 0; b < lists->count; b++) {
        const int64_t begin = lists->begins[b], count = lists->begins[b + 1] - begin;
        d->begins[d->ranges++] = d->listed;
        for (cz__part part = CZ__TRAINED; part <= last; part++)
            append_part(d, part, lists->params + begin, count);
    }
}

/* A range for each part, so that both what is trained now and what may be unfrozen later is
 * even. */
static cz_status cut_elements(draft *d, cz_shard_map **out)
{
    const cz__deal *deal = d->deal;
    if (deal->buckets)
        append_buckets(d, CZ__TRAINED);
    for (cz__part part = deal->buckets ? CZ__FROZEN : CZ__TRAINED; part < CZ__PARTS; part++) {
        d->begins[d->ranges++] = d->listed;
        append_part(d, part, deal->layout, deal->param_count);
    }
    return cz__shard_map_create_even(out, deal->world_size, deal->param_count, deal->counts,
                                     d->order, d->ranges, d->begins, deal->element_size);
}

static cz_status create_owners(const draft *d, const int64_t *order, cz_shard_map **out)
{
    return cz__shard_map_create_owners(out, d->deal->world_size, d->deal->param_count,
                                       d->deal->counts, d->owners, order);
}

static cz_status deal_greedily(draft *d, cz_shard_map **out)
{
    const cz__deal *deal = d->deal;
    CZ_TRY(cz__partition_greedy(deal->world_size, deal->param_count, deal->counts,
                                deal->group_count, deal->group_sizes, deal->members, d->owners,
                                d->order));
    return create_owners(d, d->order, out);
}

/* Whole buckets with what is frozen in them; or pieces of what is trained, the rest onto these
 * greedily. */
static cz_status deal_buckets(draft *d, bool whole, cz_shard_map **out)
{
    const cz__deal *deal = d->deal;
    int64_t rest = 0;
    for (int64_t p = 0; p < deal->param_count; p++)
        d->owners[p] = -1;
    append_buckets(d, whole ? CZ__FROZEN : CZ__TRAINED);
    d->begins[d->ranges] = d->listed;
    const cz__bucket_lists lists = {(int)d->ranges, d->begins, d->order, deal->counts};
    if (whole)
        cz__assign_whole_buckets(&lists, deal->world_size, d->owners);
    else
        CZ_TRY(cz__assign_bucket_pieces(&lists, deal->world_size, d->loads, d->owners, d->members));
    if (!whole && d->listed > 0)
        memcpy(d->order, d->members, (size_t)d->listed * sizeof *d->members);
    for (int64_t p = 0; p < deal->param_count; p++)
        if (d->owners[p] < 0 && deal->parts[p] == CZ__FROZEN)
            d->members[rest++] = p;
    CZ_TRY(cz__partition_greedy_onto(deal->world_size, d->loads, deal->param_count, deal->counts, 1,
                                     &rest, d->members, d->owners, d->order + d->listed));
    d->listed += rest;
    append_part(d, CZ__NOT_OURS, deal->layout, deal->param_count);
    return create_owners(d, d->order, out);
}

/* As given; greedily onto that where nobody is given. */
static cz_status take_owners(draft *d, cz_shard_map **out)
{
    const cz__deal *deal = d->deal;
    int64_t ownerless = 0;
    for (int64_t p = 0; p < deal->param_count; p++) {
        const bool ours = deal->parts[p] != CZ__NOT_OURS;
        d->owners[p] = ours ? deal->owners[p] : -1;
        if (d->owners[p] >= 0)
            d->loads[d->owners[p]] += deal->counts[p];
        else if (ours)
            d->members[ownerless++] = p;
    }
    CZ_TRY(cz__partition_greedy_onto(deal->world_size, d->loads, deal->param_count, deal->counts, 1,
                                     &ownerless, d->members, d->owners, NULL));
    return create_owners(d, NULL, out);
}

cz_partition cz__deal_partition(const cz_rule *rule, cz_partition asked)
{
    const bool whole = rule && rule->update_tensor;
    return whole && asked == CZ_PARTITION_ELEMENTS ? CZ_PARTITION_GREEDY : asked;
}

cz_status cz__deal_out(const cz__deal *deal, cz_partition partition, cz_shard_map **out)
{
    draft d = {.deal = deal};
    cz_status status = draft_create(&d);
    if (status)
        goto done;
    if (partition == CZ_PARTITION_ELEMENTS)
        status = cut_elements(&d, out);
    else if (partition == CZ_PARTITION_GREEDY)
        status = deal_greedily(&d, out);
    else if (partition == CZ_PARTITION_GIVEN)
        status = take_owners(&d, out);
    else
        status = deal_buckets(&d, partition == CZ_PARTITION_BUCKETS, out);
done:
    draft_clear(&d);
    return status;
}
