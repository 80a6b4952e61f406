/* SPDX-License-Identifier: MIT */
/* From numbers of elements to a shard map. */
#include "zero/deal.h"

#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "shard/greedy.h"

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

/* A range for each bucket that travels on its own: of what is trained, or with what is frozen after it. */
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

/* A range for each part, so that both what is trained now and what may be unfrozen later is even. */
static cz_status cut_elements(draft *d, cz_shard_map **out)
{
    const cz__deal *deal = d->deal;
    if (deal->buckets)
        append_buckets(d, CZ__TRAINED);
    for (cz__part part = deal->buckets ? CZ__FROZEN : CZ__TRAINED; part < CZ__PARTS; part++) {
        d->begins[d->ranges++] = d->listed;
        append_part(d, part, deal->layout, deal->param_count);
    }
    return cz_shard_map_create_even(out, deal->world_size, deal->param_count, deal->counts,
                                    d->order, d->ranges, d->begins, deal->element_size);
}

static cz_status create_owners(const draft *d, const int64_t *order, cz_shard_map **out)
{
    return cz_shard_map_create_owners(out, d->deal->world_size, d->deal->param_count,
                                      d->deal->counts, d->owners, order);
}

static cz_status deal_greedily(draft *d, cz_shard_map **out)
{
    const cz__deal *deal = d->deal;
    CZ_TRY(cz_partition_greedy(deal->world_size, deal->param_count, deal->counts, deal->group_count,
                               deal->group_sizes, deal->members, d->owners, d->order));
    return create_owners(d, d->order, out);
}

/* Whole buckets with what is frozen in them; or pieces of what is trained, the rest onto these greedily. */
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
    return rule->update_tensor && asked == CZ_PARTITION_ELEMENTS ? CZ_PARTITION_GREEDY : asked;
}

cz_status cz__deal_out(const cz__deal *deal, cz_partition partition, cz_shard_map **out)
{
    draft d = {.deal = deal};
    cz_status status = draft_create(&d);
    if (status == CZ_OK && partition == CZ_PARTITION_ELEMENTS)
        status = cut_elements(&d, out);
    else if (status == CZ_OK && partition == CZ_PARTITION_GREEDY)
        status = deal_greedily(&d, out);
    else if (status == CZ_OK && partition == CZ_PARTITION_GIVEN)
        status = take_owners(&d, out);
    else if (status == CZ_OK)
        status = deal_buckets(&d, partition == CZ_PARTITION_BUCKETS, out);
    draft_clear(&d);
    return status;
}
