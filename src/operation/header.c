/* SPDX-License-Identifier: MIT */
/* Headers: what a rank says of its operation, and how two are merged into what both say. A rank
 * whose own check failed, or two that disagree, are found here, before any data moves. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "device/reduction.h"
#include "operation/operation.h"

const char *cz__operation_name(cz__operation_kind kind)
{
    static const char *const names[] = {"unknown operation",
                                        "agreement",
                                        "barrier",
                                        "broadcast",
                                        "all_reduce",
                                        "reduce",
                                        "reduce_scatter",
                                        "all_gather",
                                        "gather",
                                        "scatter",
                                        "all_to_all",
                                        "all_to_all_v",
                                        "reduce_scatter_v",
                                        "all_gather_v",
                                        "gather_v",
                                        "scatter_v",
                                        "gradient reduction",
                                        "parameter synchronisation",
                                        "step",
                                        "gradient all-reduction"};
    return kind >= CZ__AGREE && kind <= CZ__ALL_REDUCE_MAP ? names[kind] : names[0];
}

void cz__header_name(const cz__header *header, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s%s%s%s", cz__operation_name((cz__operation_kind)header->kind),
             header->label[0] ? " '" : "", header->label, header->label[0] ? "'" : "");
}

void cz__work_name(const cz_work *work, char *text, size_t bytes)
{
    char name[CZ__LABEL_BYTES + 32];
    cz__header_name(&work->operation.header, name, sizeof name);
    snprintf(text, bytes, "%s (operation %" PRIu64 ")", name, work->sequence);
}

/* The library's own calls begin with agreements: their labels tell the calls apart. */
static bool same_labels(const cz__header *a, const cz__header *b)
{
    const bool count = a->kind == CZ__AGREE || (a->checked && b->checked);
    return !count || strcmp(a->label, b->label) == 0;
}

static bool same_options(const cz__header *a, const cz__header *b)
{
    return a->segment_bytes == b->segment_bytes && a->checked == b->checked;
}

/* What an agreement is about only the fingerprint says. */
static bool agree(const cz__header *a, const cz__header *b)
{
    if (a->kind == CZ__AGREE && b->kind == CZ__AGREE)
        return same_labels(a, b) && same_options(a, b);
    const bool counts = a->kind == CZ__ALL_TO_ALL_V || a->count == b->count;
    const bool lists = a->kind < CZ__REDUCE_SCATTER_V || a->fingerprint == b->fingerprint;
    const bool params = !a->checked || !b->checked || a->detail == b->detail;
    return a->kind == b->kind && counts && a->dtype == b->dtype && a->reduction == b->reduction &&
           a->root == b->root && lists && same_labels(a, b) && params && same_options(a, b);
}

/* Each operation would be cut, or begun, in another way. */
static void tell_options(const cz__header *a, const cz__header *b, char *text, size_t bytes)
{
    const bool chunks = a->segment_bytes != b->segment_bytes;
    snprintf(text, bytes,
             "group: option %s is %" PRIu32 " on rank %d, %" PRIu32
             " on rank %d; make the group with equal ones%s",
             chunks ? "segment_bytes" : "checked", chunks ? b->segment_bytes : b->checked, b->rank,
             chunks ? a->segment_bytes : a->checked, a->rank,
             chunks ? "" : " (CZERO_DEBUG sets it, too)");
}

#define SAME_ORDER "; all ranks make the same calls in the same order"

/* What two ranks disagree about, as a sentence. */
static void tell_difference(const cz__header *a, const cz__header *b, uint64_t sequence, char *text,
                            size_t bytes)
{
    char ours[CZ__LABEL_BYTES + 32], theirs[CZ__LABEL_BYTES + 32];
    cz__header_name(a, ours, sizeof ours);
    cz__header_name(b, theirs, sizeof theirs);
    if (!same_options(a, b))
        tell_options(a, b, text, bytes);
    else if (a->kind != b->kind)
        snprintf(text, bytes,
                 "operation %" PRIu64 ": rank %d called %s, rank %d called %s" SAME_ORDER, sequence,
                 b->rank, theirs, a->rank, ours);
    else if (a->kind == CZ__AGREE)
        snprintf(text, bytes,
                 "operation %" PRIu64 ": rank %d is in '%s', rank %d in '%s'" SAME_ORDER, sequence,
                 b->rank, b->label, a->rank, a->label);
    else if (a->kind != CZ__ALL_TO_ALL_V && a->count != b->count)
        snprintf(text, bytes, "%s: rank %d gave %" PRId64 " elements, rank %d gave %" PRId64, ours,
                 b->rank, b->count, a->rank, a->count);
    else if (a->dtype != b->dtype)
        snprintf(text, bytes, "%s: rank %d gave type %s, rank %d gave %s", ours, b->rank,
                 cz_dtype_name((cz_dtype)b->dtype), a->rank, cz_dtype_name((cz_dtype)a->dtype));
    else if (a->reduction != b->reduction)
        snprintf(text, bytes, "%s: rank %d asked for %s, rank %d for %s", ours, b->rank,
                 cz__reduction_name((cz_reduction)b->reduction), a->rank,
                 cz__reduction_name((cz_reduction)a->reduction));
    else if (a->root != b->root)
        snprintf(text, bytes, "%s: rank %d named root %d, rank %d root %d", ours, b->rank, b->root,
                 a->rank, a->root);
    else if (a->kind >= CZ__REDUCE_SCATTER_V && a->fingerprint != b->fingerprint)
        snprintf(text, bytes, "%s: rank %d gave other counts per rank than rank %d", ours, b->rank,
                 a->rank);
    else if (!same_labels(a, b))
        snprintf(text, bytes, "%s: rank %d calls it %s", ours, b->rank, theirs);
    else
        snprintf(text, bytes, "%s: rank %d has other parameters in it than rank %d", ours, b->rank,
                 a->rank);
}

int cz__header_child(const cz_group *group, int i)
{
    const int step = 1 << i;
    const int lowest = group->rank & -group->rank;
    if ((group->rank && step >= lowest) || group->rank + step >= group->size)
        return -1;
    return group->rank + step;
}

int cz__header_parent(const cz_group *group)
{
    return group->rank & (group->rank - 1);
}

unsigned cz__header_messages(const cz_group *group)
{
    unsigned count = group->rank ? 1 : 0;
    for (int i = 0; cz__header_child(group, i) >= 0; i++)
        count++;
    return count;
}

void cz__header_copy(cz__header *to, const cz__header *from)
{
    memcpy(to, from, from->status == CZ_OK ? offsetof(cz__header, sentence) : sizeof *to);
}

void cz__header_merge(cz__header *mine, const cz__header *child, uint64_t sequence)
{
    const bool only_ours =
        mine->status != CZ_OK && (child->status == CZ_OK || mine->rank < child->rank);
    if (only_ours)
        return;
    if (child->status != CZ_OK) {
        mine->status = child->status;
        mine->rank = child->rank;
        memcpy(mine->sentence, child->sentence, sizeof mine->sentence);
        return;
    }
    mine->balance += child->balance;
    mine->nonce += child->nonce;
    mine->offers &= child->offers;
    mine->same &= child->same && mine->fingerprint == child->fingerprint;
    if (!agree(mine, child)) {
        tell_difference(mine, child, sequence, mine->sentence, sizeof mine->sentence);
        mine->status = CZ_ERR_MISMATCH;
        mine->rank = child->rank;
    }
}
