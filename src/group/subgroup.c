/* SPDX-License-Identifier: MIT */
/* Sub-groups: who is in them is agreed on through the old group, the backend makes the
 * endpoints. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/float_mode.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "group/internal.h"

typedef struct entry { /* what every rank lets know */
    int64_t color;
    int64_t key;
    int64_t last_split;
    int64_t rank;
} entry;

static int by_key(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Put the members of this rank's color to the front, in the new order; returns how many. */
static int choose(entry *entries, int size, int64_t color)
{
    int count = 0;
    for (int r = 0; r < size; r++)
        if (entries[r].color == color)
            entries[count++] = entries[r];
    qsort(entries, (size_t)count, sizeof *entries, by_key);
    return count;
}

/* The endpoint and the group on it; local. */
static cz_status create_local(cz_group *group, uint64_t id, const int *ranks, int count, int rank,
                              cz_group **out)
{
    const cz_group_options options = {.size = sizeof options,
                                      .timeout_seconds = group->timeout_seconds,
                                      .warn_seconds = group->warn_seconds,
                                      .segment_bytes = group->segment_bytes,
                                      .checked = group->checked};
    void *endpoint = NULL;
    if (!group->backend->split)
        return cz__fail(CZ_ERR_UNSUPPORTED, "split: backend '%s' has no sub-groups",
                        group->backend->name);
    CZ_TRY(group->backend->split(group->endpoint, id, ranks, count, rank, &endpoint));
    if (rank < 0)
        return CZ_OK;
    struct cz__rendezvous_set *rendezvous =
        group->rendezvous && !group->owns_rendezvous ? cz__threads_rendezvous(endpoint) : NULL;
    CZ_TRY(cz__group_create(out, rank, count, group->backend, endpoint, rendezvous, group->executor,
                            &options));
    (*out)->origin = group->origin;
    (*out)->compared = true;
    snprintf((*out)->name, sizeof(*out)->name, "%.30s.%" PRIu64, group->name, id);
    (*out)->global_ranks = cz__calloc((size_t)count, sizeof(int));
    if (!(*out)->global_ranks)
        return cz__fail(CZ_ERR_MEMORY, "split: no memory for %d ranks", count);
    for (int r = 0; r < count; r++)
        (*out)->global_ranks[r] = cz_group_global_rank(group, ranks[r]);
    return CZ_OK;
}

/* The largest id that any rank has used, and one more. */
static uint64_t next_id(const entry *entries, int size)
{
    int64_t last = 0;
    for (int r = 0; r < size; r++)
        last = entries[r].last_split > last ? entries[r].last_split : last;
    return (uint64_t)last + 1;
}

static cz_status split(cz_group *group, int color, int key, entry *entries, int *ranks,
                       cz_group **out)
{
    const entry mine = {color, key, (int64_t)group->last_split, group->rank};
    CZ_TRY(cz_all_gather(group, &mine, entries, sizeof mine / sizeof(int64_t), CZ_I64,
                         CZ_LABEL("split")));
    group->last_split = next_id(entries, group->size);
    const int count = color < 0 ? 0 : choose(entries, group->size, color);
    int rank = -1;
    for (int r = 0; r < count; r++) {
        ranks[r] = (int)entries[r].rank;
        if (ranks[r] == group->rank)
            rank = r;
    }
    const cz_status status = create_local(group, group->last_split, ranks, count, rank, out);
    return cz__agree(group, status, 0, NULL, "split");
}

/* `mine`: what is wrong on this rank alone. */
static cz_status split_or_nothing(cz_group *group, cz_status mine, uint64_t fingerprint, int color,
                                  int key, cz_group **out)
{
    bool same = true;
    entry *entries = cz__calloc((size_t)group->size, sizeof *entries);
    int *ranks = cz__calloc((size_t)group->size, sizeof *ranks);
    if (mine == CZ_OK && (!entries || !ranks))
        mine = cz__fail(CZ_ERR_MEMORY, "split: no memory for %d ranks", group->size);
    cz_status status = cz__agree(group, mine, fingerprint, &same, "split");
    if (status == CZ_OK && !same)
        status = cz__fail(CZ_ERR_MISMATCH, "subset: ranks gave different lists");
    if (status == CZ_OK)
        status = split(group, color, key, entries, ranks, out);
    cz__free(entries);
    cz__free(ranks);
    if (status != CZ_OK)
        cz_group_destroy(out);
    return status;
}

cz_status cz_group_split(cz_group *group, int color, int key, cz_group **out)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (out)
        *out = NULL;
    if (!group)
        return cz__fail(CZ_ERR_ARGUMENT, "split: group is NULL");
    const cz_status mine = out ? CZ_OK : cz__fail(CZ_ERR_ARGUMENT, "split: out is NULL");
    return split_or_nothing(group, mine, 0, color, key, out);
}

/* This rank's place in the list, -1 if it is not in it. */
static cz_status read_list(const cz_group *group, const int *ranks, int count, int *place,
                           uint64_t *fingerprint)
{
    if (!ranks || count < 1)
        return cz__fail(CZ_ERR_ARGUMENT, "subset: %s",
                        ranks ? "the list is empty" : "ranks is NULL");
    for (int i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= group->size)
            return cz__fail(CZ_ERR_ARGUMENT, "subset: rank %d in a group of %d", ranks[i],
                            group->size);
        for (int k = 0; k < i; k++)
            if (ranks[k] == ranks[i])
                return cz__fail(CZ_ERR_ARGUMENT, "subset: rank %d is listed twice", ranks[i]);
        if (ranks[i] == group->rank)
            *place = i;
        *fingerprint = (*fingerprint ^ (uint64_t)(ranks[i] + 1)) * UINT64_C(0x9e3779b97f4a7c15);
        *fingerprint ^= *fingerprint >> 31;
    }
    return CZ_OK;
}

cz_status cz_group_subset(cz_group *group, const int *ranks, int count, cz_group **out)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    int place = -1;
    uint64_t fingerprint = 1;
    if (out)
        *out = NULL;
    if (!group)
        return cz__fail(CZ_ERR_ARGUMENT, "subset: group is NULL");
    const cz_status mine = !out ? cz__fail(CZ_ERR_ARGUMENT, "subset: out is NULL")
                                : read_list(group, ranks, count, &place, &fingerprint);
    return split_or_nothing(group, mine, fingerprint, place < 0 ? -1 : 0, place, out);
}
