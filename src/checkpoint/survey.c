/* SPDX-License-Identifier: MIT */
/* Which generations there are, as all ranks together see them: by names alone, nothing is opened. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/open.h"
#include "base/status.h"
#include "checkpoint/generation.h"
#include "checkpoint/index.h"
#include "group/collective.h"

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
    snprintf(again, sizeof again, "%08" PRId64 "-step-%" PRId64, out->number, out->step);
    return out->number >= 0 && out->number <= CZ__LAST_GENERATION && out->step >= 0 &&
           strcmp(again, name) == 0;
}

/* The newest `room` of this rank's view that are older than `before`; *kept of them. */
static cz_status list_here(const char *folder, seen before, seen *kept, int room, int *count)
{
    struct dirent *entry;
    DIR *directory = cz__open_folder(folder);
    *count = 0;
    if (!directory && errno != ENOENT)
        return cz__fail(CZ_ERR_IO, "%s cannot be read: %s", folder, strerror(errno));
    for (errno = 0; directory && (entry = readdir(directory)); errno = 0) {
        seen next;
        if (!parse_name(entry->d_name, &next) || newest_first(&before, &next) >= 0)
            continue;
        kept[(*count)++] = next;
        qsort(kept, (size_t)*count, sizeof *kept, newest_first);
        if (*count > room)
            *count = room;
    }
    const int error = directory ? errno : 0;
    if (directory)
        closedir(directory);
    return error ? cz__fail(CZ_ERR_IO, "%s cannot be read: %s", folder, strerror(error)) : CZ_OK;
}

/* "rank-00001-of-00004.json": the commit mark of a part. */
static bool parse_part(const char *name, int *rank, int *world_size)
{
    char again[64];
    if (sscanf(name, "rank-%d-of-%d.json", rank, world_size) != 2 || *rank < 0 ||
        *rank >= *world_size || *world_size > CZ__MOST_RANKS)
        return false;
    snprintf(again, sizeof again, "rank-%05d-of-%05d.json", *rank, *world_size);
    return strcmp(again, name) == 0;
}

static void look_through(DIR *directory, const cz__generation *g, int *world_size, bool *indexed,
                         uint8_t *marks)
{
    struct dirent *entry;
    int rank, of;
    for (errno = 0; (entry = readdir(directory)); errno = 0) {
        if (strcmp(entry->d_name, "index.json") == 0)
            *indexed = true;
        if (!parse_part(entry->d_name, &rank, &of))
            continue;
        if (marks && of == g->world_size)
            marks[rank] = 1;
        *world_size = of > *world_size ? of : *world_size;
    }
}

/* Look through one generation: the largest world size of its parts and whether there is an index; or, with
 * `marks`, which of the `world_size` parts there are. What cannot be read is an error and not empty: a save
 * takes away what is not complete. */
static cz_status look(const char *folder, const cz__generation *g, int *world_size, bool *indexed,
                      uint8_t *marks)
{
    cz__text path = {0};
    cz_status status = cz__generation_path(&path, folder, g->number, g->step);
    DIR *directory = status == CZ_OK ? cz__open_folder(cz__text_get(&path)) : NULL;
    errno = directory ? 0 : errno;
    if (directory)
        look_through(directory, g, world_size, indexed, marks);
    if (status == CZ_OK && errno != 0 && errno != ENOENT && errno != ENOTDIR)
        status = cz__fail(CZ_ERR_IO, "%s cannot be read: %s", cz__text_get(&path), strerror(errno));
    if (directory)
        closedir(directory);
    cz__text_clear(&path);
    return status;
}

/* All ranks' lists as one. */
static cz_status unite(cz_group *group, const char *folder, seen before, cz__generation **list,
                       int *count)
{
    const int ranks = cz_group_size(group);
    seen own[CZ__GENERATIONS + 1] = {{0}};
    int here = 0, kept = 0;
    const size_t room = (size_t)ranks * CZ__GENERATIONS;
    seen *all = cz__calloc(room, sizeof *all);
    cz_status status = all ? list_here(folder, before, own, CZ__GENERATIONS, &here)
                           : cz__fail(CZ_ERR_MEMORY, "checkpoint: lists of %d ranks", ranks);
    for (int i = here; i < CZ__GENERATIONS; i++)
        own[i] = (seen){-1, -1};
    status = cz__agree(group, status, 0, NULL, "checkpoint: folder");
    if (status == CZ_OK)
        status = cz_all_gather(group, own, all, 2 * CZ__GENERATIONS, CZ_I64,
                               CZ_LABEL("checkpoint: folder"));
    *list = NULL;
    if (status == CZ_OK) {
        *list = cz__calloc(CZ__GENERATIONS, sizeof **list);
        status = cz__agree(group, *list ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "checkpoint: a list"), 0,
                           NULL, "checkpoint: list");
    }
    if (status == CZ_OK)
        qsort(all, room, sizeof *all, newest_first);
    for (size_t i = 0; status == CZ_OK && i < room && kept < CZ__GENERATIONS; i++)
        if (all[i].number >= 0 && (i == 0 || newest_first(&all[i - 1], &all[i]) != 0))
            (*list)[kept++] = (cz__generation){.number = all[i].number, .step = all[i].step};
    cz__free(all);
    *count = kept;
    return status;
}

/* Which parts exist: one mark each, the largest over ranks. */
static cz_status count_parts(cz_group *group, const char *folder, cz__generation *list, int count)
{
    int64_t total = 0, at = 0;
    for (int i = 0; i < count; i++)
        total += list[i].world_size;
    uint8_t *marks = cz__calloc((size_t)total, 1);
    cz_status status =
        marks ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "checkpoint: %" PRId64 " parts", total);
    for (int i = 0; status == CZ_OK && i < count; at += list[i++].world_size) {
        bool indexed;
        int world_size = 0;
        status = look(folder, &list[i], &world_size, &indexed, marks + at);
    }
    status = cz__agree(group, status, 0, NULL, "checkpoint: parts");
    if (status == CZ_OK)
        status = cz_all_reduce(group, marks, total, CZ_U8, CZ_MAX, CZ_LABEL("checkpoint: parts"));
    at = 0;
    for (int i = 0; status == CZ_OK && i < count; at += list[i++].world_size) {
        list[i].missing = -1;
        for (int r = list[i].world_size - 1; r >= 0; r--) {
            list[i].parts += marks[at + r];
            if (!marks[at + r])
                list[i].missing = r;
        }
    }
    cz__free(marks);
    return status;
}

static cz_status complete(cz_group *group, const char *folder, cz__generation *list, int count)
{
    int64_t facts[2 * CZ__GENERATIONS] = {0};
    cz_status status = CZ_OK;
    for (int i = 0; status == CZ_OK && i < count; i++) {
        bool indexed = false;
        int world_size = 0;
        status = look(folder, &list[i], &world_size, &indexed, NULL);
        facts[2 * i] = world_size;
        facts[2 * i + 1] = indexed;
    }
    CZ_TRY(cz__agree(group, status, 0, NULL, "checkpoint: generations"));
    CZ_TRY(cz_all_reduce(group, facts, 2 * count, CZ_I64, CZ_MAX,
                         CZ_LABEL("checkpoint: generations")));
    for (int i = 0; i < count; i++) {
        list[i].world_size = (int)facts[2 * i];
        list[i].indexed = facts[2 * i + 1] != 0;
    }
    return count_parts(group, folder, list, count);
}

cz_status cz__survey(cz_group *group, const char *folder, const cz__generation *before,
                     cz__generation **list, int *count)
{
    const seen limit = before ? (seen){before->number, before->step} : (seen){INT64_MAX, INT64_MAX};
    cz_status status = unite(group, folder, limit, list, count);
    if (status == CZ_OK)
        status = complete(group, folder, *list, *count);
    if (status != CZ_OK) {
        cz__free(*list);
        *list = NULL;
        *count = 0;
    }
    return status;
}
