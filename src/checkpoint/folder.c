/* SPDX-License-Identifier: MIT */
/* Looking for a generation without ranks. */
#include "checkpoint/folder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/open.h"
#include "base/status.h"

/* ---- all of them ---- */

static cz_status visit_page(const char *folder, const cz__generation *list, int count,
                            cz__generation_visitor visit, void *context)
{
    cz__text path = {0};
    cz_status status = CZ_OK;
    for (int i = 0; status == CZ_OK && i < count; i++) {
        status = cz__generation_path(&path, folder, list[i].number, list[i].step);
        if (status == CZ_OK)
            status = visit(cz__text_get(&path), &list[i], context);
    }
    cz__text_clear(&path);
    return status;
}

/* `enough`: it may end before the last; NULL: not. */
static cz_status visit_all(cz_group *self, const char *folder, cz__generation_visitor visit,
                           void *context, const bool *enough)
{
    cz__survey *survey;
    const cz__generation *list;
    int count = CZ__GENERATIONS;
    cz_status status = cz__survey_begin(&survey, self, folder);
    while (status == CZ_OK && count == CZ__GENERATIONS && !(enough && *enough)) {
        status = cz__survey_next(survey, &list, &count);
        if (status == CZ_OK)
            status = visit_page(folder, list, count, visit, context);
    }
    cz__survey_end(&survey);
    return status;
}

static cz_status visit_until(const char *folder, cz__generation_visitor visit, void *context,
                             const bool *enough)
{
    cz_group *self;
    CZ_TRY(cz_group_create_self(&self, NULL));
    const cz_status status = visit_all(self, folder, visit, context, enough);
    cz_group_destroy(&self);
    return status;
}

cz_status cz__generations_visit(const char *folder, cz__generation_visitor visit, void *context)
{
    return visit_until(folder, visit, context, NULL);
}

/* ---- one of them ---- */

void cz__generation_why_not(const cz__generation *g, char *why, size_t bytes)
{
    if (!g->indexed)
        snprintf(why, bytes, "it was never completed: there is no index.json");
    else
        snprintf(why, bytes, "it was never completed: the part of rank %d of %d is missing",
                 g->world_size > 0 ? g->missing : 0, g->world_size);
}

static bool pass_over(cz__found *f, const char *path, const cz__generation *g)
{
    char why[120];
    if (f->incomplete++ >= CZ__FEW_NOTES)
        return true;
    cz__generation_why_not(g, why, sizeof why);
    return cz__text_print(
        &f->passed,
        "%s was passed over: %s. If nothing is writing it, it can be removed: the next save "
        "does so\n",
        path, why);
}

static cz_status look_at(const char *path, const cz__generation *g, void *context)
{
    cz__found *f = context;
    f->seen++;
    if (f->complete || (f->step >= 0 && g->step != f->step))
        return CZ_OK;
    f->complete = cz__generation_complete(g);
    return (f->complete ? cz__text_print(&f->path, "%s", path) : pass_over(f, path, g))
               ? CZ_OK
               : cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a path");
}

cz_status cz__generation_find(cz__found *found, const char *folder, int64_t step)
{
    *found = (cz__found){.step = step};
    CZ_TRY(visit_until(folder, look_at, found, &found->complete));
    if (found->incomplete > CZ__FEW_NOTES &&
        !cz__text_print(&found->passed, "and %" PRId64 " more were passed over: never completed\n",
                        found->incomplete - CZ__FEW_NOTES))
        return cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a note");
    return CZ_OK;
}

void cz__found_clear(cz__found *found)
{
    cz__text_clear(&found->path);
    cz__text_clear(&found->passed);
}

/* ---- and opening it ---- */

/* Lines, without the end of the last one. */
static int length(const cz__text *lines)
{
    return lines->count > 0 ? (int)lines->count - 1 : 0;
}

static cz_status none_found(const cz__found *f, const char *folder, const cz__text *notes)
{
    if (f->seen == 0 && notes->count > 0)
        return cz__fail(CZ_ERR_ARGUMENT, "%s: there is no checkpoint in this folder.\n%.*s", folder,
                        length(notes), cz__text_get(notes));
    if (f->seen == 0)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "%s: there is no checkpoint in this folder. Wanted: folders such as "
                        "00000001-step-100 (czero's), or model.safetensors or "
                        "model.safetensors.index.json (Hugging Face's)",
                        folder);
    if (f->step >= 0)
        return cz__fail(CZ_ERR_STATE, "%s: no complete generation of step %" PRId64, folder,
                        f->step);
    return cz__fail(CZ_ERR_STATE, "%s: no generation is complete:\n%.*s", folder,
                    length(&f->passed), cz__text_get(&f->passed));
}

cz_status cz__input_open_newest(cz__input *input, const char *folder, int64_t step, cz__text *notes)
{
    cz__found found;
    cz_status status = cz__generation_find(&found, folder, step);
    if (status == CZ_OK)
        status = found.path.count > 0 ? cz__input_open(input, cz__text_get(&found.path))
                                      : none_found(&found, folder, notes);
    if (!cz__text_print(notes, "%s", cz__text_get(&found.passed)) && status == CZ_OK)
        status = cz__fail(CZ_ERR_MEMORY, "%s: no memory for what was passed over", folder);
    cz__found_clear(&found);
    return status;
}
