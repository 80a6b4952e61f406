/* SPDX-License-Identifier: MIT */
/* The life of an operation: begun by a collective call, moved on by the driver through its phases
 * (header, then data or the backend's own collective, continuation), ended once and for all
 * ranks alike. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/float_mode.h"
#include "base/options.h"
#include "base/status.h"
#include "base/thread.h"
#include "group/internal.h"
#include "group/work.h"

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
                                        "step"};
    return kind >= CZ__AGREE && kind <= CZ__STEP_MAP ? names[kind] : names[0];
}

static const char *operation_of(const cz_work *work)
{
    return cz__operation_name((cz__operation_kind)work->operation.header.kind);
}

void cz__work_name(const cz_work *work, char *text, size_t bytes)
{
    char name[CZ__LABEL_BYTES + 32];
    cz__header_name(&work->operation.header, name, sizeof name);
    snprintf(text, bytes, "%s (operation %" PRIu64 ")", name, work->sequence);
}

/* ---- begin ---- */

static void set_place(cz_work *work, cz_work *parent)
{
    cz_group *group = work->group;
    work->lane = parent ? 1 : 0;
    work->parent = work->operation.detached ? NULL : parent;
    work->root = parent ? parent->root : work;
    work->sequence = parent ? parent->sequence : group->sequence++;
    work->child = parent ? parent->root->descendants++ : 0;
    if (work->parent)
        work->parent->children++;
    else if (!parent)
        group->backend->announce(group->endpoint, group->sequence);
}

/* The segments and the staging memory that an operation needs: where nothing is reduced, only streams of
 * more than one piece are packed. */
static cz_status equip(cz_work *work)
{
    const cz__operation *operation = &work->operation;
    work->segment_bytes = cz__segment_bytes(work->group, operation->longest);
    work->rounds_most =
        cz__rounds_of(work->group->size, work->group->segment_bytes, operation->longest);
    if (work->group->meetings ||
        (!operation->reduces &&
         (!operation->exchanges || operation->source.kind != CZ__REGION_MAPPED)))
        return CZ_OK;
    if (operation->pool) {
        cz__pool_queue(work);
        return CZ_OK;
    }
    const size_t bytes = cz__staging_bytes(work->group, operation->longest);
    work->staging = cz__group_take_staging(work->group, bytes, operation->reserve);
    return work->staging ? CZ_OK
                         : cz__fail(CZ_ERR_MEMORY, "%s: no memory for %zu bytes of staging",
                                    operation_of(work), bytes);
}

/* Put this rank's own verdict into the header. */
static void judge(cz_work *work, cz_status mine)
{
    cz__header *header = &work->operation.header;
    header->rank = cz_group_global_rank(work->group, work->group->rank);
    header->checked = work->group->checked;
    header->segment_bytes = (uint32_t)work->group->segment_bytes;
    header->nonce = work->group->nonce;
    header->same = 1;
    header->status = mine;
    if (mine != CZ_OK)
        snprintf(header->sentence, sizeof header->sentence, "rank %d: %s", header->rank,
                 cz_last_error());
}

/* Lock held. NULL: no memory, not even the spare work; *spare: it took that. */
static cz_work *begin(cz_group *group, const cz__operation *operation, cz_status mine,
                      const char *label, cz_work *parent, bool *spare)
{
    cz_work *work = cz__group_take_work(group, operation->reserve);
    *spare = !work;
    if (*spare && !(work = cz__group_take_spare(group)))
        return NULL;
    work->operation = *operation;
    if (mine == CZ_OK && *spare)
        mine = cz__fail(CZ_ERR_MEMORY, "%s: no memory for an operation", operation_of(work));
    work->native = cz__native_has(group->backend, (cz__operation_kind)operation->header.kind);
    work->headed = !work->native || group->checked || !group->compared;
    group->compared = true;
    if (!work->headed) /* nothing to equip for */
        work->phase = CZ__PHASE_NATIVE;
    else if (mine == CZ_OK)
        mine = equip(work);
    judge(work, mine);
    if (label)
        snprintf(work->operation.header.label, CZ__LABEL_BYTES, "%s", label);
    work->since = cz__seconds();
    set_place(work, parent);
    cz__recorder_begin(work);
    work->references = 1;
    cz__executor_append(group->executor, work);
    return work;
}

/* The group is broken, or is so from `sequence` on because there is no memory. */
static cz_status cannot_begin(cz_group *group, cz_status broken, uint64_t sequence)
{
    char why[CZ__GROUP_PLACE_BYTES + 64], all[CZ__SENTENCE_BYTES];
    if (broken)
        return cz__fail(broken, "%s", group->why);
    snprintf(why, sizeof why, "rank %d has no memory for an operation",
             cz_group_global_rank(group, group->rank));
    cz__group_break(group, sequence, CZ_ERR_PEER, why, all);
    return cz__fail(CZ_ERR_MEMORY, "%s; the group is broken", why);
}

/* Lock held at call, given up. */
static cz_status wait_for(cz_work *work, bool *same)
{
    cz_group *group = work->group;
    work->references++;
    work->unseen = true;
    group->references++; /* it outlives this call, also if another thread destroys the handle */
    cz__executor_wait(group->executor, work);
    const cz_status status =
        work->status == CZ_OK ? CZ_OK : cz__fail(work->status, "%s", work->sentence);
    if (same)
        *same = work->same;
    cz__work_unreference(work);
    cz__group_unreference(group);
    return status;
}

/* Operations before the one that broke the group still end on all ranks, with all that they start: this rank does
 * its part of that, too. */
static bool goes_on(const cz_group *group, const cz_work *parent)
{
    return parent && cz__group_intact(group, parent->sequence) == CZ_OK;
}

cz_status cz__operation_run(cz_group *group, cz__operation *operation, cz_status mine,
                            const cz_operation_options *options, bool *same)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    cz_operation_options read;
    const cz_status bad = cz__options_read(&read, sizeof read, options, "cz_operation_options");
    if (bad != CZ_OK)
        read = (cz_operation_options){0};
    if (mine == CZ_OK)
        mine = bad;
    if (read.work)
        *read.work = NULL;
    CZ_TRY(cz__group_check_process(group,
                                   cz__operation_name((cz__operation_kind)operation->header.kind)));
    cz_work *parent = cz__work_current();
    if (parent && (parent->group != group || same))
        return cz__fail(CZ_ERR_STATE, "%s: a communication hook, as any continuation, may only %s",
                        cz__operation_name((cz__operation_kind)operation->header.kind),
                        same ? "start operations, not wait" : "use its own group");
    const bool goes = goes_on(group, parent);
    cz__executor_lock(group->executor);
    bool spare;
    cz_work *work = group->left || (group->broken && !goes)
                        ? NULL
                        : begin(group, operation, mine, read.label, parent, &spare);
    if (!work) {
        const cz_status broken = group->broken;
        cz__executor_unlock(group->executor);
        return cannot_begin(group, broken, parent ? parent->sequence : group->sequence);
    }
    /* A spare work is lent until all ranks know: the next operation may need it. */
    if (!parent && (!read.work || spare))
        return wait_for(work, same);
    if (read.work) {
        work->references++;
        group->references++;
        *read.work = work;
    }
    cz__executor_wake(group->executor);
    cz__executor_unlock(group->executor);
    return CZ_OK;
}

/* ---- move on; the driver's thread only ---- */

void cz__operation_fail(cz_work *work, cz_status status, const char *sentence)
{
    char name[CZ__LABEL_BYTES + 64], why[CZ__SENTENCE_BYTES];
    cz__flights_withdraw(work);
    cz__work_name(work, name, sizeof name);
    snprintf(why, sizeof why, "%s: %.200s", name, sentence);
    work->status = cz__group_break(work->group, work->sequence, status, why, work->sentence);
    cz__node_give_up(work);
    work->phase = CZ__PHASE_CONTINUE;
}

static void take_verdict(cz_work *work)
{
    if (work->verdict.status == CZ_OK) {
        if (work->group->origin == 0)
            work->group->origin = work->verdict.nonce;
        work->phase = work->verdict.balance ? CZ__PHASE_COUNTS
                      : work->native        ? CZ__PHASE_NATIVE
                      : work->meeting       ? CZ__PHASE_DIRECT
                                            : CZ__PHASE_DATA;
        if (work->verdict.window)
            cz__window_begin(work);
        return;
    }
    char place[CZ__GROUP_PLACE_BYTES];
    cz__group_place(work->group, place);
    work->status = (cz_status)work->verdict.status;
    snprintf(work->sentence, sizeof work->sentence, "%.*s%s",
             (int)(sizeof work->sentence - 1 - strlen(place)), work->verdict.sentence, place);
    work->phase = CZ__PHASE_CONTINUE;
}

static bool move_header(cz_work *work)
{
    if (!(work->group->meetings ? cz__meeting_advance(work) : cz__header_advance(work)))
        return false;
    if (work->phase == CZ__PHASE_DATA) {
        if (!work->part.over)
            work->since = cz__seconds(); /* every rank has come */
        take_verdict(work);
    }
    return true;
}

/* Where the backend refuses, all ranks go on as if it had no such collective. */
static bool move_native(cz_work *work)
{
    if (work->native)
        return cz__native_advance(work);
    if (work->headed) {
        work->phase = CZ__PHASE_DATA;
        return true;
    }
    work->headed = true;
    cz__executor_lock(work->group->executor);
    judge(work, equip(work));
    cz__executor_unlock(work->group->executor);
    work->phase = CZ__PHASE_HEADER_UP;
    return true;
}

static bool move_data(cz_work *work)
{
    if (work->window.use)
        return work->group->window.node ? cz__node_advance(work) : cz__window_advance(work);
    if (work->operation.pool && !work->staging) {
        work->since = cz__seconds(); /* it is not ranks that it waits for */
        if (!cz__pool_take(work))
            return false;
    }
    return cz__data_advance(work);
}

/* The verdict must have reached the children; then continuations go in the order of operations. */
static bool move_continuation(cz_work *work)
{
    bool passed = true;
    if (work->operation.pool) { /* others wait for it */
        cz__executor_lock(work->group->executor);
        cz__pool_leave(work);
        cz__executor_unlock(work->group->executor);
        return true;
    }
    if (work->has_messages && work->group->endpoint) {
        const cz_status status = cz__header_passed_on(work, &passed);
        if (status != CZ_OK) {
            if (work->status == CZ_OK)
                cz__operation_fail(work, status, cz_last_error());
            else
                cz__flights_withdraw(work);
            return true;
        }
    }
    return passed && cz__work_continue(work);
}

bool cz__operation_advance(cz_work *work)
{
    for (bool moved = false;; moved = true) {
        bool step = false;
        if (work->phase <= CZ__PHASE_HEADER_DOWN)
            step = move_header(work);
        else if (work->phase == CZ__PHASE_COUNTS)
            step = cz__counts_advance(work);
        else if (work->phase == CZ__PHASE_NATIVE)
            step = move_native(work);
        else if (work->phase == CZ__PHASE_DIRECT)
            step = cz__direct_advance(work);
        else if (work->phase == CZ__PHASE_DATA)
            step = move_data(work);
        else if (work->phase == CZ__PHASE_CONTINUE)
            step = move_continuation(work);
        else if (work->phase == CZ__PHASE_CHILDREN)
            step = cz__work_end(work);
        if (!step)
            return moved;
    }
}
