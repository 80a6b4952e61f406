/* SPDX-License-Identifier: MIT */
/* The life of an operation: begun by a collective call, moved on by the driver through its phases
 * (ranks meet, data move, continuation), ended once and for all ranks alike. Meeting and moving are
 * engines'. */
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

/* ---- begin ---- */

static void set_place(cz_work *work, cz_work *parent)
{
    cz_group *group = work->group;
    work->lane = parent ? 1 : 0;
    work->sequence = parent ? parent->sequence : group->sequence++;
    work->family.root = parent ? parent->family.root : work;
    work->family.child = parent ? work->family.root->family.descendants++ : 0;
    work->family.parent = work->operation.detached ? NULL : parent;
    if (work->family.parent)
        work->family.parent->family.children++;
    else if (!parent)
        group->backend->announce(group->endpoint, group->sequence);
}

/* Does a sentence begin with "rank R: "? Then it was heard from another rank. */
static bool names_a_rank(const char *sentence)
{
    int rank, length = 0;
    return sscanf(sentence, "rank %d: %n", &rank, &length) == 1 && length > 0;
}

/* Put this rank's own verdict into the header. */
static void judge(cz_work *work, cz_status mine)
{
    cz__header *header = &work->operation.header;
    header->rank = cz_group_global_rank(work->group, work->group->rank);
    header->checked = work->group->checked;
    header->segment_bytes = (uint32_t)work->group->segment_bytes;
    header->nonce = work->group->nonce;
    header->offers = UINT64_MAX; /* of those that offer something, as many as all ranks do */
    header->same = 1;
    header->status = mine;
    if (mine == CZ_OK)
        return;
    if (names_a_rank(cz_last_error()))
        snprintf(header->sentence, sizeof header->sentence, "%s", cz_last_error());
    else
        snprintf(header->sentence, sizeof header->sentence, "rank %d: %s", header->rank,
                 cz_last_error());
}

static void give_label(char *to, const char *label)
{
    const size_t length = strnlen(label, CZ__LABEL_BYTES - 1);
    memcpy(to, label, length);
    to[length] = '\0';
}

static void enter(cz_work *work, const cz__engine *engine)
{
    *(engine->meets ? &work->rendezvous.engine : &work->data.engine) = engine;
    work->phase = engine->meets ? CZ__PHASE_MEET : CZ__PHASE_DATA;
    engine->begin(work);
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
        mine = cz__fail(CZ_ERR_MEMORY, "%s: no memory for an operation",
                        cz__operation_name((cz__operation_kind)operation->header.kind));
    work->meeting.needed = group->checked || !group->compared;
    group->compared = true;
    const cz__engine *engine = cz__engines_may_change(group) ? NULL : cz__engine_choose(work);
    if (!engine || engine->meets)
        work->meeting.needed = true;
    if (engine && engine->meets)
        enter(work, engine);
    if (work->meeting.needed && mine == CZ_OK)
        mine = cz__work_take_staging(work);
    judge(work, mine);
    if (label)
        give_label(work->operation.header.label, label);
    work->patience.since = cz__seconds();
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
        *same = work->meeting.agreed && work->verdict.same;
    cz__work_unreference(work);
    cz__group_unreference(group);
    return status;
}

/* Operations before the one that broke the group still end on all ranks, with all that they start:
 * this rank does its part of that, too. */
static bool goes_on(const cz_group *group, const cz_work *parent)
{
    return parent && cz__group_intact(group, parent->sequence) == CZ_OK;
}

const cz__option_table cz__operation_options = CZ__OPTION_TABLE(
    cz_operation_options, CZ__OPTION(cz_operation_options, label, CZ__COMPARED_APART, CZ__ANY),
    CZ__OPTION(cz_operation_options, work, CZ__LOCAL, CZ__ANY));

cz_status cz__operation_run(cz_group *group, cz__operation *operation, cz_status mine,
                            const cz_operation_options *options, bool *same)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    cz_operation_options read;
    const cz_status bad = cz__options_read(&read, &cz__operation_options, options, "operation");
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

void cz__operation_withdraw(cz_work *work)
{
    const cz__stage *stages[] = {&work->rendezvous, &work->data};
    for (int k = 0; k < 2; k++)
        if (stages[k]->engine && stages[k]->engine->withdraw)
            stages[k]->engine->withdraw(work);
}

void cz__operation_fail(cz_work *work, cz_status status, const char *sentence)
{
    const cz__engine *engine = work->data.engine;
    char name[CZ__LABEL_BYTES + 64], why[CZ__SENTENCE_BYTES];
    cz__operation_withdraw(work);
    cz__work_name(work, name, sizeof name);
    snprintf(why, sizeof why, "%s: %.200s", name, sentence);
    work->status = cz__group_break(work->group, work->sequence, status, why, work->sentence);
    if (engine && engine->give_up)
        engine->give_up(work);
    work->phase = CZ__PHASE_CONTINUE;
}

/* This rank's own check failed, and there is no header to tell the others. */
static void fail_alone(cz_work *work)
{
    const cz__header *header = &work->operation.header;
    cz__operation_fail(work, CZ_ERR_PEER, header->sentence);
    work->status = (cz_status)header->status;
    memcpy(work->sentence, header->sentence, sizeof work->sentence);
}

/* A rank that has given up this operation, or an earlier one, ends it for all that know: also for
 * one that comes after that and finds what the other had left for it before. */
static bool is_given_up(cz_work *work)
{
    const cz_status intact = cz__group_intact(work->group, work->sequence);
    if (intact != CZ_OK)
        cz__operation_fail(work, intact, cz_last_error());
    return intact != CZ_OK;
}

/* The next stage. Where ranks have met before, that must be over everywhere. */
static bool begin_stage(cz_work *work)
{
    const cz__engine *engine = cz__engine_choose(work), *before = work->rendezvous.engine;
    bool settled = true;
    if (!work->meeting.needed && work->operation.header.status != CZ_OK) {
        fail_alone(work);
        return true;
    }
    if (!engine) /* it waits for earlier ones, which may have failed */
        return is_given_up(work);
    if (engine->meets && before && before->settle) {
        const cz_status status = before->settle(work, &settled);
        if (status != CZ_OK)
            cz__operation_fail(work, status, cz_last_error());
        if (status != CZ_OK || !settled)
            return status != CZ_OK;
    }
    enter(work, engine);
    return true;
}

static void take_verdict(cz_work *work)
{
    cz__engines_learn(work);
    if (work->verdict.status == CZ_OK) {
        if (work->group->origin == 0)
            work->group->origin = work->verdict.nonce;
        work->meeting.agreed = true;
        work->patience.since = 0; /* every rank has come */
        work->phase = work->operation.header.kind != CZ__AGREE || cz__work_moves_data(work)
                          ? CZ__PHASE_BEGIN
                          : CZ__PHASE_CONTINUE;
        return;
    }
    work->status = (cz_status)work->verdict.status;
    cz__group_tell(work->group, work->verdict.sentence, work->sentence, sizeof work->sentence);
    work->phase = CZ__PHASE_CONTINUE;
}

/* Who moves its data is in the verdict, too. */
static void hear_all(cz_work *work)
{
    work->meeting.agreed = work->verdict.status == CZ_OK;
    work->meeting.asks = work->meeting.agreed && cz__engines_grant(work);
}

/* The backend refuses what its own collective was to do. Another engine takes the operation, which
 * needs the meeting of ranks that it did without so far. */
static void refuse(cz_work *work)
{
    work->phase = CZ__PHASE_BEGIN;
    if (work->meeting.needed)
        return;
    work->meeting.needed = true;
    cz__executor_lock(work->group->executor);
    judge(work, cz__work_take_staging(work));
    cz__executor_unlock(work->group->executor);
}

/* One move of the engine that has the operation. */
static bool move_stage(cz_work *work)
{
    const bool meets = work->phase == CZ__PHASE_MEET;
    const cz__engine *engine = meets ? work->rendezvous.engine : work->data.engine;
    cz__engine_progress progress = CZ__WAITS;
    const cz_status status = engine->advance(work, &progress);
    if (status != CZ_OK) {
        cz__operation_fail(work, status, cz_last_error());
        return true;
    }
    switch (progress) {
    case CZ__WAITS:
        return false;
    case CZ__MOVED:
        if (!meets)
            work->patience.since = 0; /* a long transfer is no late one */
        return true;
    case CZ__TO_TELL:
        cz__engines_offer(work);
        return true;
    case CZ__HEARD:
        if (!is_given_up(work))
            hear_all(work);
        return true;
    case CZ__DONE:
        if (!meets)
            work->phase = CZ__PHASE_CONTINUE;
        else if (!is_given_up(work))
            take_verdict(work);
        return true;
    case CZ__REFUSED:
        refuse(work);
        return true;
    case CZ__TO_MEET:
        work->meeting.agreed = false;
        work->meeting.again = true;
        work->phase = CZ__PHASE_BEGIN;
        return true;
    }
    return false;
}

/* The verdict must have reached all; then continuations go in the order of operations. */
static bool move_continuation(cz_work *work)
{
    const cz__engine *engine = work->rendezvous.engine;
    bool settled = true;
    if (work->operation.pool) { /* others wait for it */
        cz__pool_pass(work);
        return true;
    }
    if (engine && engine->settle) {
        const cz_status status = engine->settle(work, &settled);
        if (status != CZ_OK) {
            if (work->status == CZ_OK)
                cz__operation_fail(work, status, cz_last_error());
            else
                cz__operation_withdraw(work);
            return true;
        }
    }
    return settled && cz__work_continue(work);
}

static bool move(cz_work *work)
{
    switch (work->phase) {
    case CZ__PHASE_BEGIN:
        return begin_stage(work);
    case CZ__PHASE_MEET:
    case CZ__PHASE_DATA:
        return move_stage(work);
    case CZ__PHASE_CONTINUE:
        return move_continuation(work);
    case CZ__PHASE_CHILDREN:
        return cz__work_end(work);
    default:
        return false;
    }
}

bool cz__operation_advance(cz_work *work)
{
    bool moved = false;
    while (move(work))
        moved = true;
    return moved;
}

static const cz__engine *engine_now(const cz_work *work)
{
    if (work->phase == CZ__PHASE_MEET)
        return work->rendezvous.engine;
    return work->phase == CZ__PHASE_DATA ? work->data.engine : NULL;
}

/* Headers are; what comes without messages its engine watches for. For more than that another
 * thread's calls of the backend are worth more than a hand-over costs. */
bool cz__operation_is_close(const cz_work *work)
{
    const size_t MOST = 1 << 20;
    const cz__engine *engine =
        work->phase == CZ__PHASE_BEGIN ? cz__engine_choose(work) : engine_now(work);
    return (work->phase <= CZ__PHASE_MEET || work->operation.longest <= MOST) &&
           !(engine && engine->watch);
}

bool cz__operation_spin(cz_work *work, int turns, const atomic_ullong *events, uint64_t seen)
{
    const cz__engine *engine = engine_now(work);
    if (engine && engine->spin)
        return engine->spin(work, turns, events, seen);
    for (int turn = 0; turn < turns; turn++) {
        if (atomic_load(events) != seen)
            return true;
        cz__pause();
    }
    return false;
}
