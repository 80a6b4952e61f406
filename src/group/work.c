/* SPDX-License-Identifier: MIT */
/* Works: waiting for operations, and continuing from them. */
#include "group/work.h"

#include <stdio.h>
#include <string.h>

#include "base/float_mode.h"
#include "base/process.h"
#include "base/status.h"
#include "base/thread.h"
#include "group/internal.h"

static _Thread_local cz_work *current; /* whose continuation runs here */

cz_work *cz__work_current(void)
{
    return current;
}

void cz__work_reword(void)
{
    if (current->status != CZ_OK)
        snprintf(current->sentence, sizeof current->sentence, "%s", cz_last_error());
}

/* Continuations run in the order of their operations: those of the program by sequence, those
 * of one operation's descendants by number, so that what they start gets the same tags on all
 * ranks. */
static bool is_turn(const cz_work *work)
{
    const cz_work *other = cz__executor_first(work->group->executor);
    for (; other; other = other->next) {
        const bool before = work->lane == 0 ? other->sequence < work->sequence
                                            : other->sequence == work->sequence &&
                                                  other->family.child < work->family.child;
        if (before && other->group == work->group && other->lane == work->lane && other->then.run &&
            !other->then.ran)
            return false;
    }
    return true;
}

bool cz__work_continue(cz_work *work)
{
    cz__executor *executor = work->group->executor;
    if (work->unseen) {
        work->phase = CZ__PHASE_CHILDREN;
        return true;
    }
    cz__executor_lock(executor);
    const cz_continuation continuation = work->then.run;
    if (continuation && !is_turn(work)) {
        cz__executor_unlock(executor);
        return false;
    }
    work->phase = CZ__PHASE_CHILDREN;
    work->then.ran = continuation != NULL;
    cz__executor_unlock(executor);
    if (continuation) {
        cz_work *outer = current;
        current = work;
        if (work->status != CZ_OK) /* for its cz_last_error(), also if it hands the status on */
            (void)cz__fail(work->status, "%s", work->sentence);
        const cz_status status = continuation(work->status, work->then.context);
        current = outer;
        if (work->status == CZ_OK && status != CZ_OK) {
            work->status = status;
            snprintf(work->sentence, sizeof work->sentence, "%s", cz_last_error());
        }
    }
    return true;
}

/* Where continuations were attached since it looked for one, the first of them has its turn. */
bool cz__work_end(cz_work *work)
{
    if (work->family.children > 0)
        return false;
    if (work->unseen) {
        work->phase = CZ__PHASE_ENDED;
        return true;
    }
    cz__executor_lock(work->group->executor);
    const bool missed = work->then.run && !work->then.ran;
    if (!missed && work->then.last) {
        work->then.run = work->then.last;
        work->then.ran = false;
        work->then.last = NULL;
    }
    work->phase = work->then.run && !work->then.ran ? CZ__PHASE_CONTINUE : CZ__PHASE_ENDED;
    cz__executor_unlock(work->group->executor);
    return true;
}

void cz__work_retire(cz_work *work)
{
    cz_work *parent = work->family.parent;
    if (work->phase != CZ__PHASE_ENDED)
        return;
    if (work->then.run && !work->then.ran) { /* attached since we looked */
        work->phase = CZ__PHASE_CONTINUE;
        return;
    }
    work->ended = true;
    cz__recorder_end(work);
    cz__work_return_staging(work);
    if (parent) {
        parent->family.children--;
        if (parent->status == CZ_OK && work->status != CZ_OK) {
            parent->status = work->status;
            memcpy(parent->sentence, work->sentence, sizeof parent->sentence);
        }
    }
    cz__executor_remove(work->group->executor, work);
    cz__work_unreference(work);
}

void cz__group_give_up(cz_group *group, cz_status status)
{
    char why[CZ__SENTENCE_BYTES], all[CZ__SENTENCE_BYTES];
    const cz_work *work = cz__work_current();
    if (group->process != cz__process())
        return;
    snprintf(why, sizeof why, "rank %d: %.280s", cz_group_global_rank(group, group->rank),
             cz_last_error());
    (void)cz__group_break(group, work ? work->sequence : group->sequence, status, why, all);
}

cz_status cz_work_wait(cz_work *work)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!work)
        return cz__fail(CZ_ERR_ARGUMENT, "work_wait: work is NULL");
    if (current)
        return cz__fail(CZ_ERR_STATE, "work_wait: a continuation may start operations, not wait");
    CZ_TRY(cz__group_check_process(work->group, "work_wait"));
    cz__executor *executor = work->group->executor;
    cz__executor_lock(executor);
    cz__executor_wait(executor, work);
    work->waited = true;
    const cz_status status =
        work->status == CZ_OK ? CZ_OK : cz__fail(work->status, "%s", work->sentence);
    cz__executor_unlock(executor);
    return status;
}

cz_status cz_work_test(cz_work *work, bool *done)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!work || !done)
        return cz__fail(CZ_ERR_ARGUMENT, "work_test: %s is NULL", work ? "done" : "work");
    CZ_TRY(cz__group_check_process(work->group, "work_test"));
    cz__executor *executor = work->group->executor;
    cz__executor_lock(executor);
    if (!work->ended && !current)
        cz__executor_poll(executor, NULL);
    *done = work->ended;
    cz__executor_unlock(executor);
    return CZ_OK;
}

/* Why a work may not have a continuation (any more); NULL: it may. Lock held. */
static const char *refuse_continuation(const cz_work *work)
{
    if (work->then.run)
        return "the work has a continuation already";
    if (work->waited)
        return "the work was waited for";
    if (work->group->left)
        return "the group was destroyed";
    if (work->ended && work->family.parent) /* which has counted it off and may be gone */
        return "the work was started by a continuation and has ended";
    return NULL;
}

cz_status cz_work_then(cz_work *work, cz_continuation continuation, void *context)
{
    CZ__OWN_FLOATS;
    if (!work || !continuation)
        return cz__fail(CZ_ERR_ARGUMENT, "work_then: %s is NULL", work ? "continuation" : "work");
    return cz__work_then(work, continuation, NULL, context);
}

cz_status cz__work_then(cz_work *work, cz_continuation first, cz_continuation last, void *context)
{
    CZ__UNCANCELLED;
    CZ_TRY(cz__group_check_process(work->group, "work_then"));
    cz__executor *executor = work->group->executor;
    cz__executor_lock(executor);
    const char *refusal = refuse_continuation(work);
    if (refusal) {
        cz__executor_unlock(executor);
        return cz__fail(CZ_ERR_STATE, "work_then: %s", refusal);
    }
    work->then.run = first;
    work->then.last = last;
    work->then.context = context;
    if (work->ended) { /* back to the executor for it */
        work->ended = false;
        work->phase = CZ__PHASE_CONTINUE;
        work->references++;
        cz__executor_append(executor, work);
    }
    cz__executor_wake(executor);
    cz__executor_unlock(executor);
    return CZ_OK;
}

void cz_work_destroy(cz_work **handle)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!handle || !*handle)
        return;
    cz_work *work = *handle;
    cz_group *group = work->group;
    *handle = NULL;
    if (group->process != cz__process())
        return; /* the group's memory, which stays as it is */
    cz__executor_lock(group->executor);
    cz__work_unreference(work);
    cz__group_unreference(group);
}
