/* SPDX-License-Identifier: MIT */
/* What is evaluated in the place of what trains, on every rank, and back: owners change their
 * spans, which then go the way of new values. */
#include "base/float_mode.h"
#include "base/status.h"
#include "base/thread.h"
#include "zero/zero.h"

typedef struct evaluation {
    cz_zero *zero;
    bool evaluated;
} evaluation;

static void describe(cz__description *d, const void *context)
{
    static const char *const words[] = {"what trains", "what is evaluated", NULL};
    const evaluation *e = context;
    cz__describe_settings(d, e->zero);
    cz__describe_word(d, &(cz__subject){NULL, "the wish", -1, NULL, "is"}, words, e->evaluated);
}

/* All that this rank can do alone. */
static cz_status prepare(cz_zero *zero, bool evaluated)
{
    CZ_TRY(cz__zero_come_to_rest(zero));
    return evaluated && !cz__optim_is_evaluated(zero->optim)
               ? cz__optim_prepare_evaluation(zero->optim)
               : CZ_OK;
}

/* Of which parameters all ranks get something else. */
static cz_status find_changed(cz_zero *zero)
{
    cz__zero_progress progress;
    const cz_status status = cz__zero_progress_create(zero, &progress);
    for (int64_t p = 0; !status && p < zero->param_count; p++)
        zero->present[p] = cz__optim_has_evaluated(zero->optim, p, progress.used[p]);
    cz__zero_progress_clear(&progress);
    return status;
}

static cz_status change(cz_zero *zero, bool evaluated)
{
    CZ_TRY(find_changed(zero));
    cz__optim_evaluate(zero->optim, evaluated);
    zero->printed = false;
    return cz__zero_bring_values(zero);
}

cz_status cz_zero_evaluate(cz_zero *zero, bool evaluated)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!zero)
        return cz__fail(CZ_ERR_ARGUMENT, "zero evaluate: zero is NULL");
    const evaluation e = {zero, evaluated};
    const cz_status mine = prepare(zero, evaluated);
    const bool changes = evaluated != cz__optim_is_evaluated(zero->optim);
    cz_status status =
        cz__agree_on(zero->group, "zero evaluate", describe, &e, mine, &zero->settings);
    if (!status && changes)
        status = change(zero, evaluated);
    if (status && !cz__optim_is_evaluated(zero->optim))
        cz__optim_release_kept(zero->optim);
    return status;
}
