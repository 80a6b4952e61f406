/* SPDX-License-Identifier: MIT */
/* The list of engines. The first that takes an operation has it, so those that are faster come
 * first, and messages, which can do everything, last. */
#include "engine/engine.h"

static const cz__engine *const engines[] = {
    &cz__engine_native,  &cz__engine_rendezvous, &cz__engine_boxes_meet, &cz__engine_letters_meet,
    &cz__engine_tree,    &cz__engine_counts,     &cz__engine_places,     &cz__engine_direct,
    &cz__engine_letters, &cz__engine_boxes,      &cz__engine_window,     &cz__engine_messages};

enum { COUNT = sizeof engines / sizeof *engines };

/* ---- how ranks meet, where it changes ----
 *
 * Whether all ranks can meet by an engine that is not there from the start, each learns from the
 * verdict of an operation. From LAG operations later on it takes them; and none of those is met for
 * before the rank knows what the verdicts so long before it said. So all ranks choose alike,
 * whatever is under way. */

enum { LAG = 16 };

void cz__engines_start(cz_group *group)
{
    const cz_backend *backend = group->backend;
    const bool has_collectives = backend->all_reduce || backend->reduce_scatter ||
                                 backend->all_gather || backend->broadcast || backend->barrier;
    group->meetings.offered_from = UINT64_MAX;
    group->meetings.may_change =
        group->size > 1 && !group->rendezvous && backend->window && !has_collectives;
}

bool cz__engines_may_change(const cz_group *group)
{
    return group->meetings.may_change;
}

void cz__engines_learn(const cz_work *work)
{
    cz__meetings *meetings = &work->group->meetings;
    if (work->lane != 0 || work->sequence < meetings->known ||
        work->sequence >= meetings->offered_from || !cz__engines_may_change(work->group))
        return;
    const uint32_t bit = UINT32_C(1) << (work->sequence - meetings->known);
    if (meetings->known_after & bit)
        return;
    if (work->verdict.status == CZ_OK && work->verdict.offered_later &&
        work->sequence + LAG < meetings->offered_from)
        meetings->offered_from = work->sequence + LAG;
    meetings->known_after |= bit;
    while (meetings->known_after & 1) {
        meetings->known_after >>= 1;
        meetings->known++;
    }
}

/* Verdicts may come out of order: what the first operation is that is met for the new way is
 * certain once all before the one that said so are known. */
static bool is_known(const cz_work *work)
{
    const cz__meetings *meetings = &work->group->meetings;
    return work->sequence < meetings->known + LAG || meetings->known + LAG > meetings->offered_from;
}

static bool is_offered_by_all(const cz_work *work)
{
    return cz__engines_may_change(work->group) &&
           work->sequence >= work->group->meetings.offered_from;
}

/* ---- choosing ---- */

const cz__engine *cz__engine_choose(const cz_work *work)
{
    if (!work->meeting.agreed && cz__engines_may_change(work->group) && !is_known(work))
        return NULL;
    for (int k = 0; k < COUNT - 1; k++) {
        const cz__engine *engine = engines[k];
        const bool is_too_late = engine->meets && work->meeting.agreed,
                   is_too_early = !engine->meets && work->meeting.needed && !work->meeting.agreed;
        if (is_too_late || is_too_early)
            continue;
        if (engine->grant) {
            if (work->verdict.offers >> k & 1)
                return engine;
        } else if (engine->takes(work) && (!engine->offers || is_offered_by_all(work))) {
            return engine;
        }
    }
    return engines[COUNT - 1];
}

void cz__engines_offer(cz_work *work)
{
    uint64_t offers = 0;
    for (int k = 0; k < COUNT; k++)
        if (engines[k]->offers && engines[k]->offers(work))
            offers |= UINT64_C(1) << k;
    work->operation.header.offers &= offers;
}

bool cz__engines_grant(cz_work *work)
{
    const uint64_t offers = work->verdict.offers;
    bool asked = false;
    work->verdict.offers = work->verdict.grant = 0;
    for (int k = 0; k < COUNT; k++)
        if (engines[k]->meets && engines[k]->offers)
            work->verdict.offered_later = offers >> k & 1;
    if (!cz__work_moves_data(work))
        return asked;
    for (int k = 0; k < COUNT; k++) {
        if (!engines[k]->meets && !engines[k]->grant && engines[k]->takes(work))
            return asked;
        if (!engines[k]->grant || !(offers >> k & 1))
            continue;
        asked = true;
        if (work->group->rank == 0)
            work->verdict.grant = engines[k]->grant(work);
        if (work->verdict.grant) {
            work->verdict.offers = UINT64_C(1) << k;
            return asked;
        }
    }
    return asked;
}

size_t cz__engines_bytes(bool meets, int size, bool in_process)
{
    size_t most = 0;
    for (int k = 0; k < COUNT; k++) {
        const size_t bytes = engines[k]->meets == meets ? engines[k]->bytes(size, in_process) : 0;
        most = bytes > most ? bytes : most;
    }
    return (most + 63) / 64 * 64;
}

void cz__engines_forget(cz_group *group)
{
    for (int k = 0; k < COUNT; k++)
        if (engines[k]->forget)
            engines[k]->forget(group);
}
