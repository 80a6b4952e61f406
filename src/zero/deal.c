/* SPDX-License-Identifier: MIT */
/* From numbers of elements to a shard map. Buckets of a data-parallel model are dealt out to ranks
 * whole or in pieces, so that a bucket's update is the work of few ranks and each rank has about as
 * much to do. */
#include <inttypes.h>
#include <math.h>
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

/* A parameter with a granule of its own, and where it is to be in the layout. */
typedef struct coarse_param {
    int64_t unit, list, place, param;
} coarse_param;

/* The result, while it is made. */
typedef struct draft {
    const cz__deal *deal;
    int64_t *order; /* owned, as all that follows; param_count each, as the next */
    int *owners;
    int64_t *members; /* a list at hand */
    int64_t *begins;  /* where ranges of even cuts begin in `order` */
    int64_t *units;   /* and their granules */
    int64_t ranges;   /* how many there are so far, and how many parameters `order` has */
    int64_t listed;
    int64_t *loads;       /* per rank */
    coarse_param *coarse; /* a list at hand, as the next; NULL: granules are single elements */
    int64_t *costs;       /* in whole numbers */
    uint8_t *include;     /* of a part */
    bool single;          /* only parameters that are cut anywhere are appended */
} draft;

static void draft_clear(draft *d)
{
    cz__free(d->order);
    cz__free(d->owners);
    cz__free(d->members);
    cz__free(d->begins);
    cz__free(d->units);
    cz__free(d->loads);
    cz__free(d->coarse);
    cz__free(d->costs);
    cz__free(d->include);
}

static int64_t granule_of(const draft *d, int64_t param)
{
    return d->deal->granules && d->deal->parts[param] != CZ__NOT_OURS ? d->deal->granules[param]
                                                                      : 1;
}

static int64_t count_coarse(const draft *d)
{
    int64_t coarse = 0;
    for (int64_t p = 0; p < d->deal->param_count; p++)
        coarse += granule_of(d, p) != 1;
    return coarse;
}

static cz_status draft_create(draft *d)
{
    const size_t params = (size_t)d->deal->param_count;
    const size_t coarse = (size_t)count_coarse(d);
    const size_t buckets = d->deal->buckets ? (size_t)d->deal->buckets->count : 0;
    const size_t ranges = buckets + CZ__PARTS + coarse;
    d->order = cz__calloc(params, sizeof *d->order);
    d->owners = cz__calloc(params, sizeof *d->owners);
    d->members = cz__calloc(params, sizeof *d->members);
    d->begins = cz__calloc(ranges + 1, sizeof *d->begins);
    d->units = cz__calloc(ranges + 1, sizeof *d->units);
    d->loads = cz__calloc((size_t)d->deal->world_size, sizeof *d->loads);
    bool complete = d->order && d->owners && d->members && d->begins && d->units && d->loads;
    if (complete && coarse > 0) {
        d->coarse = cz__calloc(coarse, sizeof *d->coarse);
        d->costs = cz__calloc(params, sizeof *d->costs);
        d->include = cz__calloc(params, sizeof *d->include);
        complete = d->coarse && d->costs && d->include;
    }
    return complete ? CZ_OK
                    : cz__fail(CZ_ERR_MEMORY, "zero: no memory for the partition of %zu parameters",
                               params);
}

/* The parameters of a part, in the order of `all`, are appended to the layout. */
static void append_part(draft *d, cz__part part, const int64_t *all, int64_t all_count)
{
    for (int64_t k = 0; k < all_count; k++)
        if (d->deal->parts[all[k]] == part && (!d->single || granule_of(d, all[k]) == 1))
            d->order[d->listed++] = all[k];
}

static void begin_range(draft *d, int64_t unit)
{
    d->begins[d->ranges] = d->listed;
    d->units[d->ranges++] = unit;
}

/* A range for each bucket that travels on its own: of what is trained, or with what is frozen after
 * it. */
static void append_buckets(draft *d, cz__part last)
{
    const cz__bucket_lists *lists = d->deal->buckets;
    for (int b = 0; b < lists->count; b++) {
        const int64_t begin = lists->begins[b], count = lists->begins[b + 1] - begin;
        begin_range(d, 1);
        for (cz__part part = CZ__TRAINED; part <= last; part++)
            append_part(d, part, lists->params + begin, count);
    }
}

static int larger_granules_first(const void *left, const void *right)
{
    const coarse_param *a = left, *b = right;
    if (a->unit != b->unit) /* 0 is all of a parameter */
        return b->unit == 0 || (a->unit != 0 && a->unit < b->unit) ? 1 : -1;
    if (a->list != b->list)
        return a->list < b->list ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

static void list_coarse(draft *d, cz__part part, int64_t list, const int64_t *all,
                        int64_t all_count, int64_t *count)
{
    for (int64_t k = 0; k < all_count; k++)
        if (d->deal->parts[all[k]] == part && granule_of(d, all[k]) != 1)
            d->coarse[(*count)++] = (coarse_param){granule_of(d, all[k]), list, k, all[k]};
}

/* Ranges of a part for each granule, and in it for each bucket that travels on its own. */
static void append_coarse(draft *d, cz__part part)
{
    const cz__deal *deal = d->deal;
    const cz__bucket_lists *lists = part == CZ__TRAINED ? deal->buckets : NULL;
    int64_t count = 0;
    if (!d->coarse)
        return;
    for (int b = 0; lists && b < lists->count; b++)
        list_coarse(d, part, b, lists->params + lists->begins[b],
                    lists->begins[b + 1] - lists->begins[b], &count);
    if (!lists)
        list_coarse(d, part, 0, deal->layout, deal->param_count, &count);
    if (count > 0)
        qsort(d->coarse, (size_t)count, sizeof *d->coarse, larger_granules_first);
    for (int64_t k = 0; k < count; k++) {
        const coarse_param *here = &d->coarse[k];
        if (k == 0 || here->unit != here[-1].unit || here->list != here[-1].list)
            begin_range(d, here->unit);
        d->order[d->listed++] = here->param;
    }
}

/* Costs as whole numbers that add up to about 2^52: sums are exact, and in whatever order the same.
 * What costs next to nothing is 1, so that it is dealt out, too. */
static int64_t round_costs(draft *d, cz__part part)
{
    const cz__deal *deal = d->deal;
    double sum = 0;
    int64_t count = 0;
    int exponent = 0;
    for (int64_t p = 0; p < deal->param_count; p++) {
        d->costs[p] = 0;
        if (deal->parts[p] != part || granule_of(d, p) != 0 || deal->counts[p] == 0 ||
            deal->costs[p] < 0)
            continue;
        d->members[count++] = p;
        sum += deal->costs[p];
    }
    (void)frexp(sum, &exponent);
    for (int64_t k = 0; k < count; k++) {
        const int64_t cost = llround(ldexp(deal->costs[d->members[k]], 52 - exponent));
        d->costs[d->members[k]] = cost > 0 ? cost : 1;
    }
    return count;
}

/* Whole tensors by cost, where a rule knows it: that is time, and what ranks have of elements
 * memory, which it is not added to. All others, and what is left of those that are cut, by
 * elements, onto the even cuts. */
static cz_status deal_remainders(draft *d, cz__part part, const cz__cuts *cuts)
{
    const cz__deal *deal = d->deal;
    const int64_t count = deal->costs ? round_costs(d, part) : 0;
    memset(d->loads, 0, (size_t)deal->world_size * sizeof *d->loads);
    CZ_TRY(cz__partition_balanced(deal->world_size, d->loads, deal->param_count, d->costs, count,
                                  d->members, d->owners));
    for (int64_t p = 0; p < deal->param_count; p++)
        d->include[p] = deal->parts[p] == part;
    return cz__cuts_deal_remainders(cuts, deal->world_size, deal->param_count, deal->counts,
                                    d->include, d->owners);
}

/* A range for each part, so that both what is trained now and what may be unfrozen later is
 * even. */
static cz_status cut_elements(draft *d, cz_shard_map **out)
{
    const cz__deal *deal = d->deal;
    d->single = true;
    for (cz__part part = CZ__TRAINED; part < CZ__PARTS; part++) {
        append_coarse(d, part);
        if (deal->buckets && part == CZ__TRAINED) {
            append_buckets(d, CZ__TRAINED);
            continue;
        }
        begin_range(d, 1);
        append_part(d, part, deal->layout, deal->param_count);
    }
    cz__cuts cuts = {d->order, d->ranges, d->begins, d->units, deal->element_size, NULL};
    if (d->coarse) {
        for (int64_t p = 0; p < deal->param_count; p++)
            d->owners[p] = -1;
        for (cz__part part = CZ__TRAINED; part < CZ__NOT_OURS; part++)
            CZ_TRY(deal_remainders(d, part, &cuts));
        cuts.owners = d->owners;
    }
    return cz__shard_map_create_cuts(out, deal->world_size, deal->param_count, deal->counts, &cuts);
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

/* Nothing is left to be cut, nor a cost to go by. */
static bool all_are_whole(const draft *d)
{
    const cz__deal *deal = d->deal;
    bool any = false;
    for (int64_t p = 0; p < deal->param_count; p++) {
        if (deal->parts[p] == CZ__NOT_OURS)
            continue;
        if (granule_of(d, p) != 0 || (deal->costs && deal->costs[p] >= 0))
            return false;
        any = true;
    }
    return any;
}

cz_status cz__deal_out(const cz__deal *deal, cz_partition partition, cz_shard_map **out)
{
    draft d = {.deal = deal};
    cz_status status = draft_create(&d);
    if (status)
        goto done;
    if (partition == CZ_PARTITION_GREEDY ||
        (partition == CZ_PARTITION_ELEMENTS && all_are_whole(&d)))
        status = deal_greedily(&d, out);
    else if (partition == CZ_PARTITION_ELEMENTS)
        status = cut_elements(&d, out);
    else if (partition == CZ_PARTITION_GIVEN)
        status = take_owners(&d, out);
    else
        status = deal_buckets(&d, partition == CZ_PARTITION_BUCKETS, out);
done:
    draft_clear(&d);
    return status;
}
