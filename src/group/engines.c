/* SPDX-License-Identifier: MIT */
/* The list of engines. The first that takes an operation has it, so those that are faster come
 * first, and messages, which can do everything, last. */
#include "group/engine.h"

#include "group/internal.h"

static const cz__engine *const engines[] = {
    &cz__engine_native, &cz__engine_rendezvous, &cz__engine_tree,    &cz__engine_counts,
    &cz__engine_direct, &cz__engine_window,     &cz__engine_messages};

enum { COUNT = sizeof engines / sizeof *engines };

const cz__engine *cz__engine_choose(const cz_work *work)
{
    for (int k = 0; k < COUNT - 1; k++) {
        const cz__engine *engine = engines[k];
        const bool is_too_late = engine->meets && work->agreed,
                   is_too_early = !engine->meets && work->headed && !work->agreed;
        if (is_too_late || is_too_early)
            continue;
        if (engine->grant ? work->verdict.offers >> k & 1 : engine->takes(work))
            return engine;
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

void cz__engines_grant(cz_work *work)
{
    const uint64_t offers = work->verdict.offers;
    work->verdict.offers = work->verdict.grant = 0;
    for (int k = 0; k < COUNT; k++) {
        if (!engines[k]->meets && !engines[k]->grant && engines[k]->takes(work))
            return;
        if (!engines[k]->grant || !(offers >> k & 1))
            continue;
        work->verdict.grant = engines[k]->grant(work);
        if (work->verdict.grant) {
            work->verdict.offers = UINT64_C(1) << k;
            return;
        }
    }
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
