/* SPDX-License-Identifier: MIT */
/* Loading a generation: choose it, verify all of it, compare it with what is here, and only then change anything. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fingerprint.h"
#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/generation.h"
#include "checkpoint/loading.h"
#include "group/collective.h"

/* ---- verifying ---- */

/* Who verifies which part: rank k mod world size if it sees part k, or else the lowest that does. Collective. */
static cz_status deal_parts(cz__loading *l, int64_t *readers)
{
    cz_group *group = l->checkpoint->group;
    const int64_t size = cz_group_size(group), rank = cz_group_rank(group);
    cz__text path = {0};
    cz_status status = CZ_OK;
    for (int k = 0; status == CZ_OK && k < l->input.index.world_size; k++) {
        status = cz__part_path(&path, l->input.path, k, l->input.index.world_size, "json");
        readers[k] = INT64_MAX;
        if (status == CZ_OK && access(cz__text_get(&path), F_OK) == 0)
            readers[k] = k % size == rank ? rank : rank + size;
    }
    cz__text_clear(&path);
    CZ_TRY(cz__agree(group, status, 0, NULL, "checkpoint: paths"));
    CZ_TRY(cz_all_reduce(group, readers, l->input.index.world_size, CZ_I64, CZ_MIN,
                         CZ_LABEL("checkpoint: parts")));
    for (int k = 0; k < l->input.index.world_size; k++) {
        if (readers[k] == INT64_MAX)
            return cz__fail(CZ_ERR_FORMAT, "%s/rank-%05d-of-%05d.json: no rank can find it",
                            l->input.path, k, l->input.index.world_size);
        readers[k] %= size;
    }
    return CZ_OK;
}

static cz_status verify_own(cz__loading *l, const int64_t *readers)
{
    for (int k = 0; k < l->input.index.world_size; k++)
        if (readers[k] == cz_group_rank(l->checkpoint->group))
            CZ_TRY(cz__input_verify(&l->input, k));
    return CZ_OK;
}

/* The own dictionary of a rank whose part is on another machine cannot be had; that is said. */
static cz_status read_dictionaries(cz__loading *l)
{
    const int rank = cz_group_rank(l->checkpoint->group);
    CZ_TRY(cz__input_common(&l->input, &l->common));
    if (rank >= l->input.index.world_size)
        return CZ_OK;
    const cz_status status = cz__input_own(&l->input, rank, &l->own);
    if (status != CZ_ERR_IO)
        return status;
    cz__text_print(&l->checkpoint->notes, "what rank %d alone had is not here: %s\n", rank,
                   cz_last_error());
    return CZ_OK;
}

static cz_status open_here(cz__loading *l, const cz__generation *g)
{
    cz__text path = {0};
    cz_status status = cz__generation_path(&path, l->checkpoint->folder, g->number, g->step);
    if (status == CZ_OK)
        status = cz__input_open(&l->input, cz__text_get(&path));
    cz__text_clear(&path);
    CZ_TRY(status);
    if (l->input.index.generation == g->number && l->input.index.step == g->step &&
        l->input.index.world_size == g->world_size)
        return CZ_OK;
    return cz__fail(CZ_ERR_FORMAT,
                    "%s/index.json: it is of generation %" PRId64 ", step %" PRId64 " and %d ranks",
                    l->input.path, l->input.index.generation, l->input.index.step,
                    l->input.index.world_size);
}

/* Collective: a generation that all ranks have, and all of it well. */
static cz_status open_and_verify(cz__loading *l, const cz__generation *g)
{
    cz_group *group = l->checkpoint->group;
    bool same;
    cz_status status = open_here(l, g);
    CZ_TRY(cz__agree(group, status, cz__fingerprint(0, l->input.index.id, 32), &same,
                     "checkpoint: index"));
    if (!same)
        return cz__fail(CZ_ERR_FORMAT, "%s: ranks see indices of different saves", l->input.path);
    int64_t *readers = cz__calloc((size_t)g->world_size, sizeof *readers);
    status = readers ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "checkpoint: a table of parts");
    status = cz__agree(group, status, 0, NULL, "checkpoint: parts");
    if (status == CZ_OK)
        status = deal_parts(l, readers);
    if (status == CZ_OK)
        status = verify_own(l, readers);
    if (status == CZ_OK)
        status = read_dictionaries(l);
    cz__free(readers);
    return cz__agree(group, status, 0, NULL, "checkpoint: verify");
}

/* ---- choosing ---- */

static void note(cz_checkpoint *c, const cz__generation *g, const char *why)
{
    cz__text_print(&c->notes, "generation %" PRId64 " (step %" PRId64 ") was passed over: %s\n",
                   g->number, g->step, why);
    if (cz_group_rank(c->group) == 0)
        cz_log(CZ_LOG_WARN,
               "checkpoint: generation %" PRId64 " (step %" PRId64 ") was passed over: %s",
               g->number, g->step, why);
}

static void note_incomplete(cz_checkpoint *c, const cz__generation *g)
{
    char why[120];
    if (!g->indexed)
        snprintf(why, sizeof why, "it was never completed: there is no index");
    else
        snprintf(why, sizeof why, "it was never completed: the part of rank %d of %d is missing",
                 g->world_size > 0 ? g->missing : 0, g->world_size);
    note(c, g, why);
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
            note_incomplete(c, &list[i]);
            continue;
        }
        const cz_status status = open_and_verify(l, &list[i]);
        *found = status == CZ_OK;
        if (*found || !falls_back(l, status))
            return status;
        *damaged = true;
        note(c, &list[i], cz_last_error());
        cz__loading_clear(l);
    }
    return CZ_OK;
}

/* Page by page: many saves in a row may have been interrupted. */
static cz_status try_all(cz__loading *l, bool *found, bool *damaged)
{
    cz_checkpoint *c = l->checkpoint;
    cz__generation *list, oldest, *before = NULL;
    int count = CZ__GENERATIONS;
    cz_status status = CZ_OK;
    *found = *damaged = false;
    while (status == CZ_OK && !*found && count == CZ__GENERATIONS) {
        CZ_TRY(cz__survey(c->group, c->folder, before, &list, &count));
        status = try_each(l, list, count, found, damaged);
        if (count > 0)
            oldest = list[count - 1];
        before = &oldest;
        cz__free(list);
    }
    return status;
}

/* Damaged is not missing: a job that went on from nothing would replace what may be mended. */
static cz_status choose(cz__loading *l, bool *found)
{
    const cz_checkpoint *c = l->checkpoint;
    bool damaged;
    CZ_TRY(try_all(l, found, &damaged));
    if (*found || (l->options.missing_ok && !damaged))
        return CZ_OK;
    char wanted[40] = "";
    if (l->options.step >= 0)
        snprintf(wanted, sizeof wanted, " of step %" PRId64, l->options.step);
    return cz__fail(CZ_ERR_STATE, "checkpoint load: %s has no %s generation%s%s%s", c->folder,
                    l->options.fall_back ? "undamaged" : "complete", wanted,
                    c->notes.count ? "; " : "", cz__text_get(&c->notes));
}

/* ---- the call ---- */

static cz_status load_found(cz__loading *l, cz_load_result *result)
{
    cz_checkpoint *c = l->checkpoint;
    CZ_TRY(cz__loading_compare(l));
    CZ_TRY(cz__agree(
        c->group,
        cz__checkpoint_remember(c, l->input.path, l->input.index.world_size, l->input.index.id), 0,
        NULL, "checkpoint: compare"));
    return cz__loading_finish(l, result);
}

static cz_status load(cz__loading *l, cz_load_result *result)
{
    bool found = false;
    CZ_TRY(cz__checkpoint_settle(l->checkpoint));
    cz__text_cut(&l->checkpoint->notes, 0);
    cz_status status = choose(l, &found);
    if (status == CZ_OK && found)
        status = cz__contents(l->checkpoint, &l->here);
    if (status == CZ_OK && found)
        status = load_found(l, result);
    return status;
}

cz_status cz_checkpoint_load(cz_checkpoint *checkpoint, const cz_load_options *options,
                             cz_load_result *result)
{
    if (!checkpoint)
        return cz__fail(CZ_ERR_ARGUMENT, "checkpoint load: checkpoint is NULL");
    cz__loading l = {.checkpoint = checkpoint};
    cz_status status = cz__loading_begin(&l, "checkpoint load", CZ_OK, options, result);
    if (status == CZ_OK)
        status = load(&l, result);
    cz__loading_clear(&l);
    return status;
}

cz_status cz_checkpoint_read_own(cz_checkpoint *checkpoint, int rank, cz_state_dict **out)
{
    cz__input input;
    if (!checkpoint || !out)
        return cz__fail(CZ_ERR_ARGUMENT, "checkpoint read_own: %s is NULL",
                        checkpoint ? "out" : "checkpoint");
    *out = NULL;
    if (!checkpoint->last)
        return cz__fail(CZ_ERR_STATE, "checkpoint read_own: nothing was loaded or saved");
    if (rank < 0 || rank >= checkpoint->last_world_size)
        return cz__fail(CZ_ERR_ARGUMENT, "checkpoint read_own: rank %d, it was saved by %d ranks",
                        rank, checkpoint->last_world_size);
    cz_status status = cz__input_open(&input, checkpoint->last);
    if (status == CZ_OK && strcmp(input.index.id, checkpoint->last_id) != 0)
        status = cz__fail(CZ_ERR_FORMAT, "%s: it is not the generation it was", checkpoint->last);
    if (status == CZ_OK)
        status = cz__input_own(&input, rank, out);
    cz__input_close(&input);
    return status;
}
