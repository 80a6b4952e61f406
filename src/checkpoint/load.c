/* SPDX-License-Identifier: MIT */
/* Loading a generation: choose one that can be verified, compare it with what is here, and only
 * then change anything. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/float_mode.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "checkpoint/generation.h"
#include "checkpoint/loading.h"
#include "group/collective.h"

/* ---- choosing ---- */

/* The sentence has the path, so that the file can be looked at, or removed. */
static void note_passed_over(cz_checkpoint *c, const cz__generation *g, const char *why)
{
    cz__text path = {0};
    const char *where = cz__generation_path(&path, c->folder, g->number, g->step) == CZ_OK
                            ? cz__text_get(&path)
                            : c->folder;
    cz__text_print(&c->notes, "%s: generation %" PRId64 " (step %" PRId64 ") was passed over: %s\n",
                   where, g->number, g->step, why);
    if (cz_group_rank(c->group) == 0)
        cz_log(CZ_LOG_WARN,
               "checkpoint: %s: generation %" PRId64 " (step %" PRId64 ") was passed over: %s",
               where, g->number, g->step, why);
    cz__text_clear(&path);
}

/* Of many one after the other, the first few. */
static void note_incomplete(cz__loading *l, const cz__generation *g)
{
    char why[120];
    if (l->incomplete++ >= CZ__FEW_NOTES)
        return;
    if (!g->indexed)
        snprintf(why, sizeof why, "it was never completed: there is no index");
    else
        snprintf(why, sizeof why, "it was never completed: the part of rank %d of %d is missing",
                 g->world_size > 0 ? g->missing : 0, g->world_size);
    note_passed_over(l->checkpoint, g, why);
}

static void note_the_rest(const cz__loading *l)
{
    const int64_t rest = l->incomplete - CZ__FEW_NOTES;
    if (rest <= 0)
        return;
    cz__text_print(&l->checkpoint->notes,
                   "%" PRId64 " more generations were passed over: they were never completed\n",
                   rest);
    if (cz_group_rank(l->checkpoint->group) == 0)
        cz_log(CZ_LOG_WARN, "checkpoint: %" PRId64 " more generations were passed over", rest);
}

/* May the next one be tried? */
static bool falls_back(const cz__loading *l, cz_status status)
{
    return l->options.fall_back &&
           (status == CZ_ERR_FORMAT || status == CZ_ERR_IO || status == CZ_ERR_UNSUPPORTED);
}

static cz_status try_each(cz__loading *l, const cz__generation *list, int count, bool *found,
                          bool *damaged)
{
    cz_checkpoint *c = l->checkpoint;
    for (int i = 0; i < count; i++) {
        if (l->options.step >= 0 && list[i].step != l->options.step)
            continue;
        if (!cz__generation_complete(&list[i])) {
            note_incomplete(l, &list[i]);
            continue;
        }
        const cz_status status = cz__loading_open(l, &list[i]);
        *found = status == CZ_OK;
        if (*found || !falls_back(l, status))
            return status;
        *damaged = true;
        note_passed_over(c, &list[i], cz_last_error());
        cz__loading_clear(l);
    }
    return CZ_OK;
}

/* Page by page: many saves in a row may have been interrupted. */
static cz_status try_all(cz__loading *l, bool *found, bool *damaged)
{
    const cz_checkpoint *c = l->checkpoint;
    cz__survey *survey;
    const cz__generation *list;
    int count = CZ__GENERATIONS;
    *found = *damaged = false;
    cz_status status = cz__survey_begin(&survey, c->group, c->folder);
    if (status)
        goto done;
    while (!*found && count == CZ__GENERATIONS) {
        status = cz__survey_next(survey, &list, &count);
        if (!status)
            status = try_each(l, list, count, found, damaged);
        if (status)
            break;
    }
done:
    cz__survey_end(&survey);
    note_the_rest(l);
    return status;
}

/* Damaged is not missing: a job that went on from nothing would replace what may be mended. */
static cz_status choose_generation(cz__loading *l, bool *found)
{
    const cz_checkpoint *c = l->checkpoint;
    bool damaged;
    CZ_TRY(try_all(l, found, &damaged));
    if (*found || (l->options.missing_ok && !damaged))
        return CZ_OK;
    char wanted[40] = "";
    if (l->options.step >= 0)
        snprintf(wanted, sizeof wanted, " of step %" PRId64, l->options.step);
    return cz__say_alike(c->group,
                         cz__fail(CZ_ERR_STATE, "checkpoint load: %s has no %s generation%s%s%s",
                                  c->folder, l->options.fall_back ? "undamaged" : "complete",
                                  wanted, c->notes.count ? "; " : "", cz__text_get(&c->notes)));
}

/* ---- the call ---- */

static cz_status load_found(cz__loading *l, cz_load_result *result)
{
    cz_checkpoint *c = l->checkpoint;
    CZ_TRY(cz__loading_compare(l));
    char *path = cz__strdup(l->input.path);
    const cz_status status = cz__agree(
        c->group, path ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a name"), 0,
        NULL, "checkpoint: compare");
    if (status != CZ_OK) {
        cz__free(path);
        return status;
    }
    cz__checkpoint_remember(c, path, l->input.index.world_size, l->input.index.id);
    return cz__loading_finish(l, result);
}

static cz_status load(cz__loading *l, cz_load_result *result)
{
    bool found = false;
    CZ_TRY(cz__checkpoint_settle(l->checkpoint));
    cz__text_cut(&l->checkpoint->notes, 0);
    cz_status status = choose_generation(l, &found);
    if (status)
        return status;
    if (found)
        status = cz__contents(l->checkpoint, l->call, false, &l->here);
    if (status)
        return status;
    if (found)
        status = load_found(l, result);
    return status;
}

cz_status cz_checkpoint_load(cz_checkpoint *checkpoint, const cz_load_options *options,
                             cz_load_result *result)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!checkpoint)
        return cz__fail(CZ_ERR_ARGUMENT, "checkpoint load: checkpoint is NULL");
    cz__loading l = {.checkpoint = checkpoint};
    cz_status status = cz__loading_begin(&l, "checkpoint load", CZ_OK, options, result);
    if (!status)
        status = load(&l, result);
    cz__loading_clear(&l);
    return status;
}

/* ---- what ranks had saved for themselves ---- */
/* What ranks had saved for themselves, read by others: from this rank's folder, or from whoever
 * sees it. */

/* `least`: the lowest rank that may be asked for. */
static cz_status check_own(const cz_checkpoint *c, const char *call, int rank, int least,
                           cz_state_dict **out)
{
    if (!c || !out)
        return cz__fail(CZ_ERR_ARGUMENT, "checkpoint %s: %s is NULL", call,
                        c ? "out" : "checkpoint");
    *out = NULL;
    if (!c->last)
        return cz__fail(CZ_ERR_STATE, "checkpoint %s: nothing was loaded or saved", call);
    if (rank < least || rank >= c->last_world_size)
        return cz__fail(CZ_ERR_ARGUMENT, "checkpoint %s: rank %d, it was saved by %d ranks", call,
                        rank, c->last_world_size);
    return CZ_OK;
}

static cz_status check_own_id(const cz_checkpoint *c, const cz__input *input)
{
    return strcmp(input->index.id, c->last_id) == 0
               ? CZ_OK
               : cz__fail(CZ_ERR_FORMAT, "%s: it is not the generation it was", c->last);
}

/* What each rank asks for is known. */
static cz_status fetch_each_own(cz__loading *l, const int32_t *wants)
{
    const int mine = wants[l->placement.rank];
    cz_status status = CZ_OK;
    if (mine >= 0 && cz__placement_sees(&l->placement, l->placement.rank, mine))
        status = cz__input_own(&l->input, mine, &l->own);
    CZ_TRY(cz__agree(l->checkpoint->group, status, 0, NULL, "checkpoint: own"));
    return l->placement.views ? cz__pass_own(l, wants) : CZ_OK;
}

static cz_status fetch_own(cz__loading *l, int32_t rank)
{
    const cz_checkpoint *c = l->checkpoint;
    CZ_TRY(cz__placement_parts(&l->placement, c->group, &l->input));
    int32_t *wants = cz__calloc((size_t)cz_group_size(c->group), sizeof *wants);
    cz_status status =
        wants ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for what ranks ask for");
    status = cz__agree(c->group, status, 0, NULL, "checkpoint: own");
    if (status)
        goto done;
    status = cz_all_gather(c->group, &rank, wants, 1, CZ_I32, CZ_LABEL("checkpoint: own"));
    if (status)
        goto done;
    status = fetch_each_own(l, wants);
done:
    cz__free(wants);
    return status;
}

cz_status cz_checkpoint_fetch_own(cz_checkpoint *checkpoint, int rank, cz_state_dict **out)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (out)
        *out = NULL;
    if (!checkpoint)
        return check_own(NULL, "fetch_own", rank, -1, out);
    cz__loading l = {.checkpoint = checkpoint};
    cz_status status = check_own(checkpoint, "fetch_own", rank, -1, out);
    status = cz__loading_find(&l, checkpoint->last, status);
    bool same;
    if (status)
        goto done;
    status = cz__agree_for(checkpoint->group, &checkpoint->object,
                           check_own_id(checkpoint, &l.input), 0, &same, "checkpoint: own");
    if (status)
        goto done;
    status = fetch_own(&l, rank);
    if (status)
        goto done;
    *out = l.own;
    l.own = NULL;
done:
    cz__loading_clear(&l);
    return status;
}
