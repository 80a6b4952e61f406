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
#include "checkpoint/consolidated.h"

/* ---- what is at a path ---- */

static cz_status unseen(const char *path, const char *name, int error)
{
    return cz__fail(CZ_ERR_IO, "%s%s%s: cannot be seen: %s", path, name ? "/" : "",
                    name ? name : "", strerror(error));
}

static cz_status look_for(int folder, const char *path, const char *name, bool *has)
{
    struct stat about;
    *has = fstatat(folder, name, &about, 0) == 0;
    return *has || errno == ENOENT ? CZ_OK : unseen(path, name, errno);
}

static cz_status look_into(cz__look *look, int file, const char *path)
{
    struct stat about;
    if (fstat(file, &about) != 0)
        return unseen(path, NULL, errno);
    look->there = true;
    look->folder = S_ISDIR(about.st_mode);
    look->file = S_ISREG(about.st_mode);
    look->device = (uint64_t)about.st_dev;
    look->number = (uint64_t)about.st_ino;
    if (!look->folder)
        return CZ_OK;
    CZ_TRY(look_for(file, path, "index.json", &look->generation));
    CZ_TRY(look_for(file, path, CZ__CONSOLIDATED_INDEX, &look->several));
    return look_for(file, path, CZ__CONSOLIDATED_SINGLE, &look->single);
}

cz_status cz__look_at(cz__look *look, const char *path)
{
    *look = (cz__look){0};
    const int file = cz__open(path, O_PATH);
    if (file < 0)
        return errno == ENOENT || errno == ENOTDIR ? CZ_OK : unseen(path, NULL, errno);
    const cz_status status = look_into(look, file, path);
    close(file);
    return status;
}

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
