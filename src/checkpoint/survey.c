/* SPDX-License-Identifier: MIT */
/* Which generations there are, as all ranks together see them: by names alone. Each folder is read
 * once, and memory is for what is there, whatever numbers the names have. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/open.h"
#include "base/status.h"
#include "checkpoint/generation.h"
#include "checkpoint/index.h"
#include "group/collective.h"
#include "io/folder.h"
#include "io/stream.h"

/* ---- as all ranks see them ---- */

/* What a folder's name says. */
typedef struct seen {
    int64_t number, step; /* -1, -1: none */
} seen;

static int newest_first(const void *a, const void *b)
{
    const seen *x = a, *y = b;
    if (x->number != y->number)
        return x->number < y->number ? 1 : -1;
    return (x->step < y->step) - (x->step > y->step);
}

static bool parse_name(const char *name, seen *out)
{
    char again[64];
    if (sscanf(name, "%" SCNd64 "-step-%" SCNd64, &out->number, &out->step) != 2)
        return false;
    cz__generation_name(again, out->number, out->step);
    return out->number >= 0 && out->number <= CZ__LAST_GENERATION && out->step >= 0 &&
           strcmp(again, name) == 0;
}

/* "rank-00001-of-00004.json": the commit mark of a part. */
typedef struct mark {
    int world_size, rank;
} mark;

typedef struct cz__survey {
    cz_group *group;  /* borrowed */
    const char *path; /* borrowed */
    int folder;       /* open; -1: there is none here */
    seen *own;        /* owned: what this rank sees, newest first */
    int64_t own_count, own_capacity;
    seen before;                          /* the last of the page before */
    cz__generation list[CZ__GENERATIONS]; /* the page */
    int count;
    mark *marks; /* owned: of the page's generations, one after the other */
    int64_t mark_count, mark_capacity;
    int64_t begins[CZ__GENERATIONS + 1]; /* in the marks */
} cz__survey;

/* ---- what this rank sees ---- */

static cz_status unreadable(const char *folder, const char *name)
{
    if (!*name)
        return cz__refuse_path(folder, "cannot be read", errno);
    return cz__fail(CZ_ERR_IO, "%s%s%s cannot be read: %s", folder, *name ? "/" : "", name,
                    strerror(errno));
}

static cz_status add_names(cz__survey *s, DIR *directory)
{
    struct dirent *entry;
    for (errno = 0; (entry = readdir(directory)); errno = 0) {
        seen next;
        if (!parse_name(entry->d_name, &next))
            continue;
        seen *own = cz__grow(s->own, s->own_count, &s->own_capacity, sizeof *own);
        if (!own)
            return cz__fail(CZ_ERR_MEMORY,
                            "checkpoint: no memory for a list of %" PRId64 " generations",
                            s->own_count + 1);
        s->own = own;
        s->own[s->own_count++] = next;
    }
    return errno ? unreadable(s->path, "") : CZ_OK;
}

static cz_status list_here(cz__survey *s)
{
    s->folder = cz__open(s->path, O_RDONLY | O_DIRECTORY);
    if (s->folder < 0)
        return errno == ENOENT ? CZ_OK : unreadable(s->path, "");
    DIR *directory = cz__list_folder(s->folder);
    const cz_status status = directory ? add_names(s, directory) : unreadable(s->path, "");
    if (directory)
        closedir(directory);
    if (s->own_count > 1)
        qsort(s->own, (size_t)s->own_count, sizeof *s->own, newest_first);
    return status;
}

static cz_status add_mark(cz__survey *s, mark next)
{
    mark *marks = cz__grow(s->marks, s->mark_count, &s->mark_capacity, sizeof *marks);
    if (!marks)
        return cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a list of %" PRId64 " parts",
                        s->mark_count + 1);
    s->marks = marks;
    s->marks[s->mark_count++] = next;
    return CZ_OK;
}

static cz_status add_marks(cz__survey *s, DIR *directory, const char *name, bool *indexed)
{
    struct dirent *entry;
    for (errno = 0; (entry = readdir(directory)); errno = 0) {
        mark next;
        const char *suffix;
        *indexed = *indexed || strcmp(entry->d_name, "index.json") == 0;
        if (cz__part_parse(entry->d_name, &next.rank, &next.world_size, &suffix) &&
            strcmp(suffix, "json") == 0)
            CZ_TRY(add_mark(s, next));
    }
    return errno ? unreadable(s->path, name) : CZ_OK;
}

static int by_job(const void *a, const void *b)
{
    const mark *x = a, *y = b;
    if (x->world_size != y->world_size)
        return x->world_size < y->world_size ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* How much speaks for each world size, and the number itself: marks; but where there are those of
 * several, first of all the index. A single file of a name that others chose makes nothing
 * incomplete. */
static cz_status choose_world_size(const cz__survey *s, int i, int folder, const char *name,
                                   int64_t *best)
{
    const mark *marks = s->marks + s->begins[i];
    const int64_t count = s->begins[i + 1] - s->begins[i];
    cz__head head = {0};
    *best = 0;
    if (count > 0 && marks[0].world_size != marks[count - 1].world_size &&
        !cz__head_read(&head, folder, "index.json") && errno != ENOENT && errno != ELOOP)
        return unreadable(s->path, name);
    for (int64_t at = 0, end; at < count; at = end) {
        for (end = at; end < count && marks[end].world_size == marks[at].world_size;)
            end++;
        const int64_t says = (int64_t)(head.world_size == marks[at].world_size) << 56 |
                             (end - at) << 28 | marks[at].world_size;
        *best = says > *best ? says : *best;
    }
    return CZ_OK;
}

/* What cannot be read is an error and not empty: a save takes away what is not complete. */
static cz_status look_into(cz__survey *s, int i, int64_t *world_size, bool *indexed)
{
    char name[64];
    cz__generation_name(name, s->list[i].number, s->list[i].step);
    const int folder =
        s->folder < 0 ? -1 : cz__open_at(s->folder, name, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
    s->begins[i + 1] = s->begins[i] = s->mark_count;
    if (folder < 0)
        return s->folder < 0 || errno == ENOENT || errno == ENOTDIR || errno == ELOOP
                   ? CZ_OK
                   : unreadable(s->path, name);
    DIR *directory = cz__list_folder(folder);
    cz_status status =
        directory ? add_marks(s, directory, name, indexed) : unreadable(s->path, name);
    if (directory)
        closedir(directory);
    s->begins[i + 1] = s->mark_count;
    if (s->begins[i + 1] > s->begins[i])
        qsort(s->marks + s->begins[i], (size_t)(s->begins[i + 1] - s->begins[i]), sizeof *s->marks,
              by_job);
    if (!status)
        status = choose_world_size(s, i, folder, name, world_size);
    close(folder);
    return status;
}

/* ---- what all see ---- */

/* All ranks' lists as one: the next that are older than those before. */
static cz_status unite(cz__survey *s)
{
    const int ranks = cz_group_size(s->group);
    const size_t room = (size_t)ranks * CZ__GENERATIONS;
    seen next[CZ__GENERATIONS];
    int64_t at = 0;
    seen *all = cz__calloc(room, sizeof *all);
    while (at < s->own_count && newest_first(&s->before, &s->own[at]) >= 0)
        at++;
    for (int i = 0; i < CZ__GENERATIONS; i++)
        next[i] = at + i < s->own_count ? s->own[at + i] : (seen){-1, -1};
    cz_status status =
        all ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for lists of %d ranks", ranks);
    status = cz__agree(s->group, status, 0, NULL, "checkpoint: folder");
    s->count = 0;
    if (status)
        goto done;
    status = cz_all_gather(s->group, next, all, 2 * CZ__GENERATIONS, CZ_I64,
                           CZ_LABEL("checkpoint: folder"));
    if (status)
        goto done;
    qsort(all, room, sizeof *all, newest_first);
    for (size_t i = 0; i < room && s->count < CZ__GENERATIONS; i++)
        if (all[i].number >= 0 && (i == 0 || newest_first(&all[i - 1], &all[i]) != 0))
            s->list[s->count++] = (cz__generation){.number = all[i].number, .step = all[i].step};
    if (s->count > 0)
        s->before = (seen){s->list[s->count - 1].number, s->list[s->count - 1].step};
done:
    cz__free(all);
    return status;
}

/* The marks of the world size that was agreed on, which begin at *first. */
static int64_t count_marks(const cz__survey *s, int i, int64_t *first)
{
    int64_t at = s->begins[i], end;
    while (at < s->begins[i + 1] && s->marks[at].world_size != s->list[i].world_size)
        at++;
    for (end = at; end < s->begins[i + 1] && s->marks[end].world_size == s->list[i].world_size;)
        end++;
    *first = at;
    return end - at;
}

/* Which parts exist: one byte each, the largest over ranks. If there are fewer marks than parts, it
 * takes no more bytes than these to find the first that is missing. */
static cz_status count_parts(cz__survey *s)
{
    int64_t sums[CZ__GENERATIONS], rooms[CZ__GENERATIONS], total = 0, first, at = 0;
    for (int i = 0; i < s->count; i++)
        sums[i] = count_marks(s, i, &first);
    CZ_TRY(cz_all_reduce(s->group, sums, s->count, CZ_I64, CZ_SUM, CZ_LABEL("checkpoint: parts")));
    for (int i = 0; i < s->count; i++) {
        const int64_t ranks = s->list[i].world_size;
        rooms[i] = sums[i] < ranks ? sums[i] + 1 : ranks;
        total += rooms[i];
    }
    uint8_t *parts = cz__calloc((size_t)total, 1);
    const cz_status mine =
        parts ? CZ_OK
              : cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for %" PRId64 " parts", total);
    if (parts) {
        for (int i = 0; i < s->count; at += rooms[i++]) {
            const int64_t count = count_marks(s, i, &first);
            for (int64_t k = first; k < first + count; k++)
                if (s->marks[k].rank < rooms[i])
                    parts[at + s->marks[k].rank] = 1;
        }
    }
    cz_status status = cz__agree(s->group, mine, 0, NULL, "checkpoint: parts");
    if (status)
        goto done;
    status = cz_all_reduce(s->group, parts, total, CZ_U8, CZ_MAX, CZ_LABEL("checkpoint: parts"));
    if (status)
        goto done;
    at = 0;
    for (int i = 0; i < s->count; at += rooms[i++]) {
        s->list[i].missing = -1;
        for (int64_t r = rooms[i] - 1; r >= 0; r--) {
            s->list[i].parts += parts[at + r];
            if (!parts[at + r])
                s->list[i].missing = (int)r;
        }
    }
done:
    cz__free(parts);
    return status;
}

static cz_status complete(cz__survey *s)
{
    int64_t facts[2 * CZ__GENERATIONS] = {0};
    cz_status status = CZ_OK;
    s->mark_count = 0;
    for (int i = 0; i < s->count; i++) {
        bool indexed = false;
        status = look_into(s, i, &facts[2 * i], &indexed);
        facts[2 * i + 1] = indexed;
        if (status)
            break;
    }
    CZ_TRY(cz__agree(s->group, status, 0, NULL, "checkpoint: generations"));
    CZ_TRY(cz_all_reduce(s->group, facts, 2 * (int64_t)s->count, CZ_I64, CZ_MAX,
                         CZ_LABEL("checkpoint: generations")));
    for (int i = 0; i < s->count; i++) {
        s->list[i].world_size = (int)(facts[2 * i] & ((1 << 28) - 1));
        s->list[i].indexed = facts[2 * i + 1] != 0;
    }
    return count_parts(s);
}

/* ---- the survey ---- */

cz_status cz__survey_begin(cz__survey **out, cz_group *group, const char *folder)
{
    cz__survey *s = cz__calloc(1, sizeof *s);
    cz_status status =
        s ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a list of generations");
    if (s) {
        *s = (cz__survey){
            .group = group, .path = folder, .folder = -1, .before = {INT64_MAX, INT64_MAX}};
        status = list_here(s);
    }
    status = cz__agree(group, status, 0, NULL, "checkpoint: folder");
    if (status != CZ_OK)
        cz__survey_end(&s);
    *out = s;
    return status;
}

cz_status cz__survey_newest(const cz__survey *s, int64_t *number)
{
    *number = s->own_count > 0 ? s->own[0].number : 0;
    return cz_all_reduce(s->group, number, 1, CZ_I64, CZ_MAX, CZ_LABEL("checkpoint: newest"));
}

cz_status cz__survey_next(cz__survey *s, const cz__generation **list, int *count)
{
    *list = s->list;
    *count = 0;
    CZ_TRY(unite(s));
    if (s->count > 0)
        CZ_TRY(complete(s));
    *count = s->count;
    return CZ_OK;
}

void cz__survey_end(cz__survey **survey)
{
    cz__survey *s = survey ? *survey : NULL;
    if (!s)
        return;
    if (s->folder >= 0)
        close(s->folder);
    cz__free(s->own);
    cz__free(s->marks);
    cz__free(s);
    *survey = NULL;
}

/* ---- as one process without ranks sees them: all ---- */

static cz_status visit_page(const char *folder, const cz__generation *list, int count,
                            cz__generation_visitor visit, void *context)
{
    cz__text path = {0};
    cz_status status = CZ_OK;
    for (int i = 0; i < count; i++) {
        status = cz__generation_path(&path, folder, list[i].number, list[i].step);
        if (!status)
            status = visit(cz__text_get(&path), &list[i], context);
        if (status)
            break;
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
    if (status)
        goto done;
    while (count == CZ__GENERATIONS && !(enough && *enough)) {
        status = cz__survey_next(survey, &list, &count);
        if (!status)
            status = visit_page(folder, list, count, visit, context);
        if (status)
            break;
    }
done:
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

/* Why a generation does not count. */
static void print_why_not(const cz__generation *g, char *why, size_t bytes)
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
    print_why_not(g, why, sizeof why);
    return cz__text_print(&f->passed,
                          "%s was passed over: %s. If nothing is writing it, it can be removed: "
                          "the next save does so\n",
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
    const char *unread = f->seen == 0 ? cz__folder_unread(folder) : NULL;
    if (unread)
        return cz__fail(CZ_ERR_UNSUPPORTED, "%s: %s", folder, unread);
    if (f->seen == 0 && notes->count > 0)
        return cz__fail(CZ_ERR_ARGUMENT, "%s: there is no checkpoint in this folder.\n%.*s", folder,
                        length(notes), cz__text_get(notes));
    if (f->seen == 0)
        return cz__fail(
            CZ_ERR_ARGUMENT,
            "%s: there is no checkpoint in this folder. Wanted: folders such as 00000001-step-100 "
            "(czero's), or model.safetensors or model.safetensors.index.json (Hugging Face's)",
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
    if (!status)
        status = found.path.count > 0 ? cz__input_open(input, cz__text_get(&found.path))
                                      : none_found(&found, folder, notes);
    if (!cz__text_print(notes, "%s", cz__text_get(&found.passed)) && status == CZ_OK)
        status = cz__fail(CZ_ERR_MEMORY, "%s: no memory for what was passed over", folder);
    cz__found_clear(&found);
    return status;
}
